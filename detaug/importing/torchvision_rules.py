"""Rules for the ops of torchvision.transforms and its v2. Source: the code of torchvision 0.20 to 0.29 (BSD)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from detaug.arguments import RGB, is_number, is_numbers
from detaug.importing.albumentations_pixels import BOXES, FORMULA
from detaug.importing.rules import Arguments, LeftOut, Rules, elastic, nearest_ops, of_channels, rule
from detaug.importing.units import BYTES, FLOATS
from detaug.ops import filters, flips_and_crops
from detaug.ops.affine import RandomAffine, RandomPerspective, RandomRotation
from detaug.ops.auto_augment import RandAugment, TrivialAugmentWide
from detaug.ops.color_ops import ColorJitter, RandomChannelPermutation, RandomGrayscale, RandomPhotometricDistort
from detaug.ops.erasing import RandomErasing
from detaug.ops.iou_crop import RandomIoUCrop
from detaug.ops.noise import GaussianNoise
from detaug.ops.normalize import Normalize
from detaug.ops.op import Op
from detaug.ops.resize import RandomShortestSize, Resize
from detaug.ops.resized_crop import RandomResizedCrop
from detaug.ops.sanitize import SanitizeBoundingBoxes

PER_BATCH = "a size is drawn for each batch, not for each image"
BORDER = "the outermost pixels change too; torchvision leaves them as they are"
AUTO = "color ops follow Resize, contrast scales about 128, the equalisation is OpenCV's"

TORCHVISION: Rules = {
    "RandomHorizontalFlip": lambda args: flips_and_crops.RandomHorizontalFlip(args.probability()),
    "RandomVerticalFlip": lambda args: flips_and_crops.RandomVerticalFlip(args.probability()),
    "CenterCrop": lambda args: flips_and_crops.CenterCrop(_size(args), args.units.color((0.0, 0.0, 0.0))),
    "Pad": lambda args: flips_and_crops.Pad(args.tuple_or_number("padding"), _constant_fill(args)),
    "RandomPerspective": lambda args: RandomPerspective(
        args.get("distortion_scale"), args.probability(), args.color("fill")
    ),
    "RandomResizedCrop": lambda args: RandomResizedCrop(_size(args), *map(args.tuple_or_number, ("scale", "ratio"))),
    "RandomRotation": lambda args: RandomRotation(
        _about_centre(args).tuple_or_number("degrees"), 1.0, args.get("expand"), args.color("fill")
    ),
    "RandomResize": lambda args: RandomShortestSize(
        tuple(range(args.differs(PER_BATCH).get("min_size"), args.get("max_size")))
    ),
    "ColorJitter": lambda args: ColorJitter(**_colors(args)),
    "RandomPhotometricDistort": lambda args: RandomPhotometricDistort(**_colors(args), p=args.probability()),
    "RandomGrayscale": lambda args: RandomGrayscale(args.probability()),
    "RandomChannelPermutation": lambda _: RandomChannelPermutation(1.0),
    "RandomInvert": lambda args: filters.RandomInvert(args.probability()),
    "RandomAutocontrast": lambda args: filters.RandomAutocontrast(args.probability()),
    "RandomPosterize": lambda args: filters.RandomPosterize(args.get("bits"), args.probability()),
    "RandomSolarize": lambda args: filters.RandomSolarize(
        args.units.level(args.number("threshold", math.nan)), args.probability()
    ),
    "RandomAdjustSharpness": lambda args: filters.RandomAdjustSharpness(
        args.differs(BORDER).get("sharpness_factor"), args.probability()
    ),
    "RandomEqualize": lambda args: filters.RandomEqualize(args.differs(FORMULA).probability()),
    "RandAugment": lambda args: RandAugment(
        args.differs(AUTO).get("num_ops"), args.get("magnitude"), args.get("num_magnitude_bins"), args.color("fill")
    ),
    "TrivialAugmentWide": lambda args: TrivialAugmentWide(
        args.differs(AUTO).get("num_magnitude_bins"), args.color("fill")
    ),
    "JPEG": lambda args: filters.JPEG(args.tuple_or_number("quality"), 1.0),
    "SanitizeBoundingBoxes": lambda args: SanitizeBoundingBoxes(args.get("min_size"), args.get("min_area", 1.0)),
}


@rule(TORCHVISION, "ToTensor")
def _to_tensor(args: Arguments) -> Op:
    args.units = FLOATS
    return Normalize()


@rule(TORCHVISION, "Normalize")
def _normalize(args: Arguments) -> Op:
    """Return Normalize. torchvision refuses images in 0..255: without an op that divides them, floats are given."""
    mean, std = (of_channels(args.tuple_or_number(name)) for name in ("mean", "std"))
    if not (is_numbers(mean, 3) and is_numbers(std, 3)):
        return Normalize(mean, std)  # which says what is wrong
    units = (FLOATS if args.units == BYTES else args.units).divided(mean, std)
    op, args.units = units.normalize(), units
    return op


@rule(TORCHVISION, "GaussianNoise")
def _noise(args: Arguments) -> Op:
    args.expect("clip", True, "values are clipped")
    mean, sigma = (args.units.part(args.number(name, default)) for name, default in (("mean", 0.0), ("sigma", 0.1)))
    return GaussianNoise(mean, sigma, 1.0)


@rule(TORCHVISION, "RandomZoomOut")
def _zoom_out(args: Arguments) -> Op:
    low, high = args.get("side_range")
    return flips_and_crops.RandomZoomOut(high, args.probability(), args.color("fill"), low)


@rule(TORCHVISION, "RandomIoUCrop")
def _iou_crop(args: Arguments) -> Op:
    options = args.get("sampler_options")
    thresholds = tuple(threshold for threshold in options if threshold < 1)
    if not thresholds:
        raise LeftOut("sampler_options has no threshold below 1")
    if len(options) > len(thresholds) + 1:
        args.differs("no crop is one option, not several")
    scaling = args.get("min_scale"), args.get("max_scale")
    ratios = args.get("min_aspect_ratio"), args.get("max_aspect_ratio")
    return RandomIoUCrop(thresholds, scaling, ratios, args.get("trials"), allow_no_crop=len(thresholds) < len(options))


@rule(TORCHVISION, "RandomAffine")
def _affine(args: Arguments) -> Op:
    _about_centre(args)
    degrees, translate = args.tuple_or_number("degrees"), args.tuple_or_number("translate", (0.0, 0.0))
    scale, shear = args.tuple_or_number("scale", (1.0, 1.0)), args.tuple_or_number("shear", 0.0)
    return RandomAffine(degrees, translate, scale, shear, 1.0, args.color("fill"))


@rule(TORCHVISION, "ElasticTransform")
def _elastic(args: Arguments) -> Op:
    """Return ElasticTransform. torchvision's shifts along x are times width / height, and along y the inverse."""
    args.differs("shifts are as on a square image; torchvision's go with its ratio")
    numbers = []
    for name, default in (("alpha", 50.0), ("sigma", 5.0)):
        value = args.tuple_or_number(name, default)
        numbers.append(value if is_number(value) else value[0])
        if not is_number(value) and len({*value}) > 1:
            args.differs(f"{name} is {value[0]:g} along both axes")
    return elastic(args, numbers[0], numbers[1], args.color("fill"), 1.0)


@rule(TORCHVISION, "Resize")
def _resize(args: Arguments) -> Op:
    size, most = _size(args), args.get("max_size")
    return Resize(most if size is None else size, max_size=most)


@rule(TORCHVISION, "RandomShortestSize")
def _shortest_size(args: Arguments) -> Op:
    args.differs(PER_BATCH)
    sizes = args.tuple_or_number("min_size")
    return RandomShortestSize((int(sizes),) if is_number(sizes) else sizes, args.get("max_size"))


@rule(TORCHVISION, "ScaleJitter")
def _scale_jitter(args: Arguments) -> list[Op]:
    """Return ScaleJitter and its Resize; together they are torchvision's ScaleJitter and RandomCrop.

    torchvision's target_size is (W, H).
    """
    width, height = args.get("target_size")
    args.differs("images are cropped or padded to target_size at a random position")
    return [flips_and_crops.ScaleJitter((height, width), args.tuple_or_number("scale_range")), Resize((height, width))]


@rule(TORCHVISION, "RandomCrop")
def _random_crop(args: Arguments) -> list[Op]:
    fill = _constant_fill(args)
    padding, crop = args.tuple_or_number("padding"), flips_and_crops.RandomCrop(_size(args))
    if args.get("pad_if_needed"):
        args.differs("a smaller image is padded to the size; torchvision pads it on both sides before it crops")
        crop = replace(crop, fill=fill)
    return [flips_and_crops.Pad(padding, fill), crop] if padding else [crop]


@rule(TORCHVISION, "Grayscale")
def _always_gray(args: Arguments) -> Op:
    args.expect("num_output_channels", 3, "the image keeps three channels, all equal")
    return RandomGrayscale(1.0)


@rule(TORCHVISION, "GaussianBlur")
def _blur(args: Arguments) -> Op:
    width, height = args.get("kernel_size")
    if width != height:
        args.differs("the kernel is as high as it is wide")
    return filters.GaussianBlur((width + height) // 2 | 1, args.tuple_or_number("sigma"), 1.0)


@rule(TORCHVISION, "RandomErasing")
def _erasing(args: Arguments) -> Op:
    """Return RandomErasing; behind Normalize the value 0 is its mean color, else black."""
    color = args.differs(BOXES).color("value")
    return RandomErasing(args.probability(), args.tuple_or_number("scale"), args.tuple_or_number("ratio"), color)


@rule(TORCHVISION, "ConvertImageDtype", "ToDtype")
def _to_dtype(args: Arguments) -> list[Op]:
    """Return a Normalize to 0..1 in this type; nothing for uint8."""
    dtype, scale = args.get("dtype"), args.get("scale", args.op.name == "ConvertImageDtype")
    if isinstance(dtype, Mapping):
        dtype = dtype.get("Image", dtype.get("others"))
    if dtype == "uint8":
        return _to_bytes(args)
    if dtype is None:
        return []
    if dtype not in ("float32", "float16") or (dtype == "float16" and args.units.most == 1):
        args.differs("images are float32")
    if args.units.most == 1:  # floats stay as they are
        return []
    args.units = FLOATS
    if not scale:
        args.differs("images are in 0..1, as with scale=True")
        args.units = replace(BYTES, most=1.0)
    return [Normalize(dtype="float16" if dtype == "float16" else "float32")]


@rule(TORCHVISION, "ToPILImage")
def _to_bytes(args: Arguments) -> list[Op]:
    """Return nothing: images are in 0..255 until the end, and then in 0..1 if an op before made them so."""
    if args.ignore(*args.op.arguments).units != BYTES:
        args.differs("the batch stays float32, as an op before makes it")
        args.units = BYTES
    return []


@rule(TORCHVISION, "ToImage", "PILToTensor", "ToPureTensor", "ToImageTensor", "Identity", "RGB")
@rule(TORCHVISION, "ClampBoundingBoxes", "ConvertBoundingBoxFormat", "SetClampingMode")
@rule(TORCHVISION, "ClampKeyPoints", "SanitizeKeyPoints")
def _nothing(args: Arguments) -> list[Op]:
    """Return nothing: images are tensors, boxes XYXY and always clipped."""
    args.ignore(*args.op.arguments)
    return []


NO_COUNTERPART = nearest_ops(
    {
        "RandAugment": "AutoAugment AugMix",
        "CenterCrop": "FiveCrop TenCrop",
        "Normalize": "LinearTransformation",
        "MixUp": "MixUp",
        "CutMix": "CutMix",
        "": "UniformTemporalSubsample",
    }
)
"""The nearest op by the name of torchvision's ops that detaug does not have."""


def _size(args: Arguments) -> int | tuple[int, int]:
    """Return `size`; a list of one number is that number."""
    size = args.tuple_or_number("size")
    return size[0] if isinstance(size, tuple) and len(size) == 1 else size  # type: ignore[no-any-return]


def _colors(args: Arguments) -> dict[str, Any]:
    """Return the ranges of brightness, contrast, saturation and hue; what torchvision leaves as it is has none."""
    names = ("brightness", "contrast", "saturation", "hue")
    return {name: args.tuple_or_number(name) for name in names if args.get(name) is not None}


def _constant_fill(args: Arguments) -> RGB:
    reason = "the border is filled with a color; torchvision repeats or mirrors the image there"
    return args.expect("padding_mode", "constant", reason).color("fill")


def _about_centre(args: Arguments) -> Arguments:
    return args.expect("center", None, "the image rotates about its center")
