"""The public names of detaug, from its stub, the one list of them; and what other libraries call these things."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from difflib import get_close_matches
from functools import cache
from pathlib import Path

_STUB = Path(__file__).parents[1] / "__init__.pyi"


@cache
def public_names() -> dict[str, str]:
    """Return the module that each public name is imported from, without importing it."""
    stub = ast.parse(_STUB.read_text(encoding="utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in imports for alias in node.names}


_OURS = {
    "AdvancedBlur": "GaussianBlur",
    "Affine": "RandomAffine",
    "AtLeastOneBBoxRandomCrop": "RandomIoUCrop",
    "AugMix": "RandAugment",
    "AutoAugment": "RandAugment",
    "AutoContrast": "RandomAutocontrast",
    "BboxParams": "SanitizeBoundingBoxes",
    "BBoxSafeRandomCrop": "RandomBoxSafeCrop",
    "Blur": "GaussianBlur",
    "ChannelShuffle": "RandomChannelPermutation",
    "ClampBoundingBoxes": "SanitizeBoundingBoxes",
    "ClassificationDataset": "ImageFolder",
    "CocoDetection": "CocoReader",
    "Compose": "Loader(reader, [op, op, ...], batch_size)",
    "ConvertImageDtype": "Normalize",
    "CopyAndPaste": "CopyPaste",
    "CropAndPad": "RandomZoomOut",
    "DataLoader": "Loader",
    "DatasetFolder": "ImageFolder",
    "Equalize": "RandomEqualize",
    "Erasing": "RandomErasing",
    "FixedSizeCrop": "ScaleJitter",
    "Flip": "RandomHorizontalFlip",
    "Format": "Normalize",
    "GaussNoise": "GaussianNoise",
    "GlassBlur": "GaussianBlur",
    "Grayscale": "RandomGrayscale(p=1)",
    "GridDropout": "GridMask",
    "HorizontalFlip": "RandomHorizontalFlip",
    "HueSaturationValue": "RandomHSV",
    "ImageCompression": "JPEG",
    "ImageNet": "ImageFolder",
    "InvertImg": "RandomInvert",
    "LetterBox": "Resize((H, W), letterbox='center')",
    "LongestMaxSize": "Resize((H, W), letterbox='center')",
    "OneOf": "RandomChoice",
    "PadIfNeeded": "PadToMultiple",
    "Perspective": "RandomPerspective",
    "PhotoMetricDistort": "RandomPhotometricDistort",
    "PILToTensor": "Normalize",
    "Posterize": "RandomPosterize",
    "RandomBrightnessContrast": "ColorJitter",
    "RandomFlip": "RandomHorizontalFlip",
    "RandomResize": "ScaleJitter",
    "RandomRotate": "RandomRotation",
    "RandomScale": "ScaleJitter",
    "RandomSizedBBoxSafeCrop": "RandomBoxSafeCrop",
    "RandomSizedCrop": "RandomSizeCrop(square=True)",
    "Rotate": "RandomRotation",
    "SafeRotate": "RandomRotation",
    "SaltAndPepper": "SaltAndPepperNoise",
    "Sequential": "RandomApply",
    "Sharpen": "RandomAdjustSharpness",
    "ShiftScaleRotate": "RandomAffine",
    "SmallestMaxSize": "Resize(800, max_size=1333)",
    "Solarize": "RandomSolarize",
    "SSDMatcher": "targets.ssd",
    "ToDtype": "Normalize",
    "ToGray": "RandomGrayscale",
    "ToImage": "Normalize",
    "ToPureTensor": "Normalize",
    "ToTensor": "Normalize",
    "ToTensorV2": "Normalize",
    "TrivialAugment": "TrivialAugmentWide",
    "VerticalFlip": "RandomVerticalFlip",
    "VideoClips": "VideoReader",
    "YOLODataset": "CocoReader",
    "ZoomBlur": "Defocus",
}
"""Names of torchvision, Albumentations and Ultralytics, and what does that here, or the nearest that there is.

docs/ops.md has the differences.
"""


def name_here(name: str, known: Iterable[str]) -> str | None:
    """Return what does here what an op of this name does elsewhere; None if nothing does."""
    return name if name in known else _OURS.get(name)


def explain_missing(name: str, known: Iterable[str]) -> str:
    """Return the error for a name that detaug does not have, with the name that was probably meant."""
    if name in _OURS:
        return f"detaug has no {name}: use da.{_OURS[name]} (docs/ops.md has the names of other libraries)"
    by_lower_case = {public.lower(): public for public in known}
    close = get_close_matches(name.lower(), by_lower_case, 1, cutoff=0.75)
    return f"module 'detaug' has no attribute {name!r}" + (f"; is it da.{by_lower_case[close[0]]}?" if close else "")
