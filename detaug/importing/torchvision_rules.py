"""Rules for the ops of torchvision.transforms.v2. Source: the code of torchvision 0.20 to 0.29 (BSD)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from detaug.arguments import RGB, is_number, is_wholes
from detaug.importing.albumentations_pixels import BOXES
from detaug.importing.calls import Unknown
from detaug.importing.given import Given, LeftOut, Rules, rule
from detaug.ops.affine import RandomAffine, RandomPerspective, RandomRotation
from detaug.ops.auto_augment import RandAugment, TrivialAugmentWide
from detaug.ops.color_ops import ColorJitter, RandomChannelPermutation, RandomGrayscale, RandomPhotometricDistort
from detaug.ops.erasing import RandomErasing
from detaug.ops.filters import (
    JPEG,
    GaussianBlur,
    RandomAdjustSharpness,
    RandomAutocontrast,
    RandomEqualize,
    RandomInvert,
    RandomPosterize,
    RandomSolarize,
)
from detaug.ops.flips_and_crops import (
    CenterCrop,
    Pad,
    RandomCrop,
    RandomHorizontalFlip,
    RandomVerticalFlip,
    RandomZoomOut,
    ScaleJitter,
)
from detaug.ops.iou_crop import RandomIoUCrop
from detaug.ops.noise import GaussianNoise
from detaug.ops.normalize import Normalize
from detaug.ops.op import Op
from detaug.ops.resize import RandomShortestSize, Resize
from detaug.ops.resized_crop import RandomResizedCrop
from detaug.ops.sanitize import SanitizeBoundingBoxes

TORCHVISION: Rules = {}
PER_BATCH = "a size is drawn for each batch, not for each image"
AUTO = "colour ops follow Resize, contrast scales about 128, the equalisation is OpenCV's"


@rule(TORCHVISION, "RandomHorizontalFlip", "p")
def _horizontal_flip(given: Given) -> Op:
    return RandomHorizontalFlip(given.number("p", 0.5))


@rule(TORCHVISION, "RandomVerticalFlip", "p")
def _vertical_flip(given: Given) -> Op:
    return RandomVerticalFlip(given.number("p", 0.5))


@rule(TORCHVISION, "RandomZoomOut", "fill side_range p")
def _zoom_out(given: Given) -> Op:
    low, high = given.get("side_range", (1.0, 4.0))
    if low != 1:
        given.differs("the canvas is at least as large as the image: side_range begins at 1")
    return RandomZoomOut(max(high, 1), given.number("p", 0.5), given.color("fill"))


@rule(TORCHVISION, "RandomIoUCrop", "min_scale max_scale min_aspect_ratio max_aspect_ratio sampler_options trials")
def _iou_crop(given: Given) -> Op:
    options = given.get("sampler_options", [0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0])
    thresholds = tuple(each for each in options if each < 1)
    if not thresholds:
        raise LeftOut("sampler_options has no threshold below 1")
    if len([each for each in options if each >= 1]) > 1:
        given.differs("no crop is one option, not several")
    scaling = given.number("min_scale", 0.3), given.number("max_scale", 1.0)
    ratios = given.number("min_aspect_ratio", 0.5), given.number("max_aspect_ratio", 2.0)
    trials = int(given.number("trials", 40))
    return RandomIoUCrop(thresholds, scaling, ratios, trials, allow_no_crop=len(thresholds) < len(options))


@rule(TORCHVISION, "RandomRotation", "degrees interpolation expand center fill")
def _rotation(given: Given) -> Op:
    _about_centre(given)
    return RandomRotation(_pair(given.get("degrees")), 1.0, bool(given.get("expand", False)), given.color("fill"))


@rule(TORCHVISION, "RandomAffine", "degrees translate scale shear interpolation fill center")
def _affine(given: Given) -> Op:
    _about_centre(given)
    translate, scale, shear = (given.get(name, usual) for name, usual in _AFFINE.items())
    return RandomAffine(
        _pair(given.get("degrees")), _pair(translate), _pair(scale), _pair(shear), 1.0, given.color("fill")
    )


_AFFINE: dict[str, Any] = {"translate": (0.0, 0.0), "scale": (1.0, 1.0), "shear": 0.0}


@rule(TORCHVISION, "RandomPerspective", "distortion_scale p interpolation fill")
def _perspective(given: Given) -> Op:
    return RandomPerspective(given.number("distortion_scale", 0.5), given.number("p", 0.5), given.color("fill"))


# ------------------------------------------------------------------------------------- sizes and crops


@rule(TORCHVISION, "Resize", "size interpolation max_size antialias")
def _resize(given: Given) -> Op:
    size, most = given.get("size"), given.get("max_size")
    if size is None and most is None:
        raise given.error("size", size, "a number or (height, width)")
    if size is None:
        return Resize(most, max_size=most)
    size = size[0] if is_wholes(size, 1) else _pair(size)
    return Resize(size, max_size=most)


@rule(TORCHVISION, "RandomShortestSize", "min_size max_size interpolation antialias")
def _shortest_size(given: Given) -> Op:
    given.differs(PER_BATCH)
    sizes = given.get("min_size")
    return RandomShortestSize((int(sizes),) if is_number(sizes) else tuple(sizes), given.get("max_size"))


@rule(TORCHVISION, "RandomResize", "min_size max_size interpolation antialias")
def _random_resize(given: Given) -> Op:
    given.differs(PER_BATCH)
    return RandomShortestSize(tuple(range(int(given.number("min_size", 0)), int(given.number("max_size", 0)))))


@rule(TORCHVISION, "ScaleJitter", "target_size scale_range interpolation antialias")
def _scale_jitter(given: Given) -> list[Op]:
    """Return ScaleJitter and its Resize; together they are torchvision's ScaleJitter and FixedSizeCrop."""
    size, scale = tuple(given.get("target_size")), tuple(given.get("scale_range", (0.1, 2.0)))
    given.differs("images are cropped or padded to target_size at a random position")
    return [ScaleJitter(size, scale), Resize(size)]


@rule(TORCHVISION, "FixedSizeCrop", "size fill padding_mode")
def _fixed_size_crop(given: Given) -> Op:
    given.differs("a smaller image lies at a random position, not at the top left")
    return RandomCrop(_pair(given.get("size")), 1.0, given.color("fill"))


@rule(TORCHVISION, "CenterCrop", "size")
def _center_crop(given: Given) -> Op:
    return CenterCrop(_square(given), (0.0, 0.0, 0.0))


@rule(TORCHVISION, "RandomCrop", "size padding pad_if_needed fill padding_mode")
def _random_crop(given: Given) -> list[Op]:
    fill = _constant_fill(given)
    padding, crop = given.get("padding"), RandomCrop(_square(given), 1.0, fill)
    if given.get("pad_if_needed", False):
        given.differs("a smaller image is padded to the size; torchvision pads it on both sides before it crops")
    return [Pad(_pair(padding), fill), crop] if padding else [crop]


@rule(TORCHVISION, "Pad", "padding fill padding_mode")
def _pad(given: Given) -> Op:
    return Pad(_pair(given.get("padding")), _constant_fill(given))


@rule(TORCHVISION, "RandomResizedCrop", "size scale ratio interpolation antialias")
def _resized_crop(given: Given) -> Op:
    scale, ratio = _pair(given.get("scale", (0.08, 1.0))), _pair(given.get("ratio", (3 / 4, 4 / 3)))
    return RandomResizedCrop(_square(given), scale, ratio)


# ---------------------------------------------------------------------------------------------- pixels


@rule(TORCHVISION, "RandomPhotometricDistort", "brightness contrast saturation hue p")
def _photometric(given: Given) -> Op:
    usual = RandomPhotometricDistort()
    names = ("brightness", "contrast", "saturation", "hue")
    ranges = [_pair(given.get(name, getattr(usual, name))) for name in names]
    return replace(usual, **dict(zip(names, ranges, strict=True)), p=given.number("p", 0.5))


@rule(TORCHVISION, "ColorJitter", "brightness contrast saturation hue")
def _color_jitter(given: Given) -> Op:
    return ColorJitter(*(_pair(given.get(name, 0.0)) for name in ("brightness", "contrast", "saturation", "hue")))


@rule(TORCHVISION, "RandomGrayscale", "p")
def _grayscale(given: Given) -> Op:
    return RandomGrayscale(given.number("p", 0.1))


@rule(TORCHVISION, "Grayscale", "num_output_channels")
def _always_gray(given: Given) -> Op:
    if given.get("num_output_channels", 1) != 3:
        given.differs("the image keeps three channels, all equal")
    return RandomGrayscale(1.0)


@rule(TORCHVISION, "RandomChannelPermutation")
def _channels(given: Given) -> Op:
    return RandomChannelPermutation(1.0)


@rule(TORCHVISION, "GaussianBlur", "kernel_size sigma")
def _blur(given: Given) -> Op:
    size, sigma = _pair(given.get("kernel_size")), _pair(given.get("sigma", (0.1, 2.0)))
    if isinstance(size, tuple):
        if len(set(size)) > 1:
            given.differs("the kernel is as high as it is wide")
        size = size[0]
    return GaussianBlur(size, sigma if isinstance(sigma, tuple) else (sigma, sigma), 1.0)


@rule(TORCHVISION, "GaussianNoise", "mean sigma clip")
def _noise(given: Given) -> Op:
    if not given.get("clip", True):
        given.differs("values are clipped")
    return GaussianNoise(given.number("mean", 0.0), given.number("sigma", 0.1), 1.0)


@rule(TORCHVISION, "RandomAdjustSharpness", "sharpness_factor p")
def _sharpness(given: Given) -> Op:
    return RandomAdjustSharpness(given.number("sharpness_factor", 1.0), given.number("p", 0.5))


@rule(TORCHVISION, "RandomInvert", "p")
def _invert(given: Given) -> Op:
    return RandomInvert(given.number("p", 0.5))


@rule(TORCHVISION, "RandomPosterize", "bits p")
def _posterize(given: Given) -> Op:
    return RandomPosterize(given.get("bits"), given.number("p", 0.5))


@rule(TORCHVISION, "RandomSolarize", "threshold p")
def _solarize(given: Given) -> Op:
    return RandomSolarize(given.number("threshold", 128), given.number("p", 0.5))


@rule(TORCHVISION, "RandomAutocontrast", "p")
def _autocontrast(given: Given) -> Op:
    return RandomAutocontrast(given.number("p", 0.5))


@rule(TORCHVISION, "RandomEqualize", "p")
def _equalize(given: Given) -> Op:
    given.differs("the formula is OpenCV's, not Pillow's")
    return RandomEqualize(given.number("p", 0.5))


@rule(TORCHVISION, "JPEG", "quality")
def _jpeg(given: Given) -> Op:
    quality = _pair(given.get("quality"))
    return JPEG(quality if isinstance(quality, tuple) else (quality, quality), 1.0)


@rule(TORCHVISION, "RandomErasing", "p scale ratio value")
def _erasing(given: Given) -> Op:
    """Return RandomErasing; behind Normalize the value 0 is its mean colour, else black."""
    given.differs(BOXES)
    if given.get("value", 0) != 0:
        given.differs(f"the rectangle has the colour {given.zero}")
    scale, ratio = _pair(given.get("scale", (0.02, 0.33))), _pair(given.get("ratio", (0.3, 3.3)))
    return RandomErasing(given.number("p", 0.5), scale, ratio, given.zero)


@rule(TORCHVISION, "RandAugment", "num_ops magnitude num_magnitude_bins interpolation fill")
def _rand_augment(given: Given) -> Op:
    given.differs(AUTO)
    ops, magnitude, bins = (int(given.number(name, usual)) for name, usual in _RAND_AUGMENT.items())
    return RandAugment(ops, magnitude, bins, given.color("fill"))


_RAND_AUGMENT = {"num_ops": 2, "magnitude": 9, "num_magnitude_bins": 31}


@rule(TORCHVISION, "TrivialAugmentWide", "num_magnitude_bins interpolation fill")
def _trivial_augment(given: Given) -> Op:
    given.differs(AUTO)
    return TrivialAugmentWide(int(given.number("num_magnitude_bins", 31)), given.color("fill"))


# ---------------------------------------------------------------------------------------------- output


@rule(TORCHVISION, "SanitizeBoundingBoxes", "min_size min_area labels_getter")
def _sanitize(given: Given) -> Op:
    given.raw("labels_getter")
    return SanitizeBoundingBoxes(given.number("min_size", 1.0), given.number("min_area", 1.0))


@rule(TORCHVISION, "Normalize", "mean std inplace")
def _normalize(given: Given) -> Op:
    return Normalize(tuple(given.get("mean")), tuple(given.get("std")))


@rule(TORCHVISION, "ToTensor")
def _to_tensor(given: Given) -> Op:
    return Normalize()


@rule(TORCHVISION, "ConvertImageDtype", "dtype")
@rule(TORCHVISION, "ToDtype", "dtype scale")
def _to_dtype(given: Given) -> list[Op]:
    """Return a Normalize to 0..1 in this type; nothing for uint8."""
    name = _dtype(given.raw("dtype"))
    given.raw("scale")
    if name == "uint8":
        return []
    if name not in ("float", "float32", "half", "float16"):
        given.differs("images are float32")
    if given.call.name == "ToDtype" and not given.get("scale", False):
        given.differs("images are in 0..1, as with scale=True")
    return [Normalize(dtype="float16" if name in ("half", "float16") else "float32")]


def _dtype(value: Any) -> str:
    """Return "float32" for torch.float32, and for a dict of types that of the images."""
    if isinstance(value, dict):
        value = next(iter(value.values()), None)
    return value.text.rpartition(".")[2] if isinstance(value, Unknown) else "float32"


def _nothing(given: Given) -> list[Op]:
    """Return nothing: images are tensors, boxes XYXY and always clipped."""
    for name in ("format", "clamping_mode"):
        given.raw(name)
    return []


for _name in ("ToImage", "PILToTensor", "ToPureTensor", "ToImageTensor", "Identity", "RGB", "ToPILImage"):
    rule(TORCHVISION, _name, "mode")(_nothing)
for _name in ("ClampBoundingBoxes", "ConvertBoundingBoxFormat", "ConvertBoundingBoxes", "SetClampingMode"):
    rule(TORCHVISION, _name, "format")(_nothing)

NO_COUNTERPART = {
    "ElasticTransform": "RandomPerspective",
    "AutoAugment": "RandAugment",
    "AugMix": "RandAugment",
    "MixUp": "MixUp, which mixes boxes and comes after Resize",
    "CutMix": "CutMix, which mixes boxes and comes after Resize",
    "FiveCrop": "CenterCrop",
    "TenCrop": "CenterCrop",
    "SimpleCopyPaste": "CopyPaste",
    "Lambda": "an op of your own (docs/custom-op.md)",
    "LinearTransformation": "Normalize",
    "UniformTemporalSubsample": "",
}
"""torchvision's ops that detaug does not have, and the nearest op."""


def _pair(value: Any) -> Any:
    """Return a list as a tuple."""
    return tuple(value) if isinstance(value, list) else value


def _square(given: Given) -> int | tuple[int, int]:
    """Return `size`; one number is a square."""
    size = _pair(given.get("size"))
    return size[0] if isinstance(size, tuple) and len(size) == 1 else size  # type: ignore[no-any-return]


def _constant_fill(given: Given) -> RGB:
    if given.get("padding_mode", "constant") != "constant":
        given.differs("the border is filled with a colour; torchvision repeats or mirrors the image there")
    return given.color("fill")


def _about_centre(given: Given) -> None:
    if given.get("center") is not None:
        given.differs("the image turns about its centre")
