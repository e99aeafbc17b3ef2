"""Rules for Albumentations' ops that change colours and pixels. Source: the code of 1.3.1, 1.4.15 and 2.0.8 (MIT)."""

from __future__ import annotations

import math
from typing import Any

from detaug.arguments import Range, is_number, is_whole
from detaug.importing.albumentations_geometry import maybe
from detaug.importing.given import Given, Holes, LeftOut, Rules, rule
from detaug.ops.color_ops import ColorJitter, RandomChannelPermutation, RandomGrayscale, RandomHSV
from detaug.ops.containers import RandomChoice
from detaug.ops.erasing import GridMask, RandomErasing
from detaug.ops.filters import (
    CLAHE,
    JPEG,
    GaussianBlur,
    RandomAdjustSharpness,
    RandomAutocontrast,
    RandomEqualize,
    RandomInvert,
    RandomPosterize,
    RandomSolarize,
)
from detaug.ops.noise import GaussianNoise, SaltAndPepperNoise
from detaug.ops.normalize import Normalize
from detaug.ops.op import Op
from detaug.ops.sanitize import SanitizeBoundingBoxes
from detaug.presets import IMAGENET_MEAN, IMAGENET_STD

PIXELS: Rules = {}
BOXES = "boxes are cut off where they are covered, or dropped"
MOST_HOLES = 16
"""Rectangles, each of which is an op of the recipe."""


@rule(PIXELS, "RandomBrightnessContrast", "brightness_limit contrast_limit brightness_by_max")
def _brightness_contrast(given: Given) -> Op:
    """Return ColorJitter. Albumentations' contrast is a factor on RGB, which is what is called brightness here."""
    brightness, contrast = given.limits("brightness_limit", 0.2), given.limits("contrast_limit", 0.2)
    given.raw("brightness_by_max"), given.raw("ensure_safe_range")
    if brightness == (0, 0):
        return ColorJitter(brightness=_factors(contrast), p=given.probability(0.5))
    given.differs(
        "brightness is a factor, not a number that is added; contrast scales about the mean grey, not about 0"
    )
    return ColorJitter(_factors(brightness), _factors(contrast), p=given.probability(0.5))


@rule(PIXELS, "RandomBrightness", "limit")
def _brightness(given: Given) -> Op:
    given.differs("brightness is a factor, not a number that is added")
    return ColorJitter(_factors(given.limits("limit", 0.2)), p=given.probability(0.5))


@rule(PIXELS, "RandomContrast", "limit")
def _contrast(given: Given) -> Op:
    """Return ColorJitter's brightness: Albumentations multiplies RGB by the factor."""
    return ColorJitter(_factors(given.limits("limit", 0.2)), p=given.probability(0.5))


@rule(PIXELS, "HueSaturationValue", "hue_shift_limit sat_shift_limit val_shift_limit")
def _hue_saturation_value(given: Given) -> Op:
    """Return RandomHSV: hues in OpenCV's 180 steps are half turns of 90; shifts of 128 are gains of 1."""
    ranges = [given.limits(f"{name}_shift_limit", most) for name, most in (("hue", 20), ("sat", 30), ("val", 20))]
    given.differs("hue turns in YIQ; saturation and value are multiplied, by 1 for shifts of 128, not added to")
    if any(low != -high for low, high in ranges):
        given.differs("shifts go as far to both sides")
    largest = (max(abs(low), abs(high)) for low, high in ranges)
    hue, saturation, value = (
        min(round(shift / unit, 4), 1.0) for shift, unit in zip(largest, (90, 128, 128), strict=True)
    )
    return RandomHSV(hue, saturation, value, given.probability(0.5))


@rule(PIXELS, "ColorJitter", "brightness contrast saturation hue")
def _color_jitter(given: Given) -> Op:
    hue = (-0.5, 0.5) if given.call.version > 1 else 0.2
    usual = {"brightness": 0.2, "contrast": 0.2, "saturation": 0.2, "hue": hue}
    brightness, contrast, saturation, turn = (_number_or_pair(given.get(*each)) for each in usual.items())
    if turn not in (0, (0, 0)):
        given.differs("hue is not rounded to OpenCV's steps of 2 degrees")
    return ColorJitter(brightness, contrast, saturation, turn, given.probability(0.5))


@rule(PIXELS, "ToGray", "num_output_channels method p")
def _to_gray(given: Given) -> Op:
    if given.get("method", "weighted_average") not in ("weighted_average", "pca") or given.get("method") == "pca":
        given.differs("grey is the luma, 0.299 R + 0.587 G + 0.114 B")
    if given.get("num_output_channels", 3) != 3:
        raise LeftOut("images have three channels", "RandomGrayscale")
    return RandomGrayscale(given.probability(0.5))


@rule(PIXELS, "ChannelShuffle", "p")
def _channel_shuffle(given: Given) -> Op:
    return RandomChannelPermutation(given.probability(0.5))


@rule(PIXELS, "InvertImg", "p")
def _invert(given: Given) -> Op:
    return RandomInvert(given.probability(0.5))


@rule(PIXELS, "Solarize", "threshold_range p")
def _solarize(given: Given) -> Op:
    old = given.has("threshold")
    low, high = given.span("threshold" if old else "threshold_range", 0.5)
    if low != high:
        given.differs("the threshold is the middle of the range")
    return RandomSolarize((low + high) / 2 * (1 if old else 255), given.probability(0.5))


@rule(PIXELS, "Posterize", "num_bits p")
def _posterize(given: Given) -> Op:
    bits, p = given.get("num_bits", 4), given.probability(0.5)
    low, high = (bits, bits) if is_number(bits) else bits if len(bits) == 2 else (0, 0)
    if not (is_whole(low, 1, 8) and is_whole(high, 1, 8)):
        raise LeftOut(f"num_bits={bits!r} is not the same for all channels", "RandomPosterize")
    return _one_of([RandomPosterize(each, 1.0) for each in range(low, high + 1)], p)


@rule(PIXELS, "Equalize", "mode by_channels mask mask_params")
def _equalize(given: Given) -> Op:
    given.raw("mask_params")
    if given.get("mode", "cv") != "cv":
        given.differs("the formula is OpenCV's, not Pillow's")
    if not given.get("by_channels", True):
        given.differs("each channel is equalised, not the luma")
    return RandomEqualize(given.probability(0.5))


@rule(PIXELS, "AutoContrast", "cutoff ignore method")
def _auto_contrast(given: Given) -> Op:
    if given.get("method", "cdf") != "pil":
        given.differs("each channel is stretched linearly, as with method='pil'")
    if given.number("cutoff", 0):
        given.differs("nothing is cut off the histogram: cutoff is 0")
    return RandomAutocontrast(given.probability(0.5))


@rule(PIXELS, "CLAHE", "clip_limit tile_grid_size")
def _clahe(given: Given) -> Op:
    low, high = given.span("clip_limit", 4.0, lambda _: 1.0)
    given.differs("the luma is equalised, not L of Lab")
    if low != high:
        given.differs("clip_limit is the middle of the range that Albumentations draws from")
    columns, rows = given.get("tile_grid_size", (8, 8))
    return CLAHE((low + high) / 2, (rows, columns), given.probability(0.5))


# ------------------------------------------------------------------------------------- blur, noise, JPEG


@rule(PIXELS, "Blur", "blur_limit")
def _blur(given: Given) -> Op:
    """Return a Gaussian of a box's standard deviation: that of k pixels is the square root of (k^2 - 1) / 12."""
    low, high = given.span("blur_limit", 7, lambda _: 3)
    given.differs("a Gaussian blur with the standard deviation of Albumentations' box")
    sigmas = (math.sqrt((max(size, 3) ** 2 - 1) / 12) for size in (low, high))
    low, high = (round(each, 3) for each in sigmas)
    return GaussianBlur(None, (low, high), given.probability(0.5))


@rule(PIXELS, "GaussianBlur", "blur_limit sigma_limit")
def _gaussian_blur(given: Given) -> Op:
    """Return one blur for each size of the kernel; a sigma of 0 is OpenCV's for that size."""
    old = given.call.version < 2
    low, high = (round(each) for each in given.span("blur_limit", (3, 7) if old else 0, lambda v: min(v, 3)))
    sigma = given.span("sigma_limit", 0 if old else (0.5, 3.0), lambda v: 0.5 if v and not old else v)
    p = given.probability(0.5)
    if high == 0:
        return GaussianBlur(None, sigma, p)
    sizes = range(max(3, low + (low + 1) % 2), max(3, high + (high + 1) % 2) + 1, 2)
    return _one_of([GaussianBlur(size, _sigma(sigma, size), 1.0) for size in sizes], p)


def _sigma(sigma: Range, size: int) -> Range:
    """Return the range of sigma; 0 is OpenCV's choice for a kernel of this many pixels."""
    usual = round(0.3 * ((size - 1) * 0.5 - 1) + 0.8, 3)
    return sigma if sigma[0] > 0 else (usual, usual)


@rule(PIXELS, "AdvancedBlur", "blur_limit sigma_x_limit sigma_y_limit")
def _advanced_blur(given: Given) -> Op:
    low, high = given.first("sigma_x_limit", "sigmaX_limit", default=(0.2, 1.0))
    for name in ("blur_limit", "sigma_y_limit", "sigmaY_limit", "rotate_limit", "beta_limit", "noise_limit"):
        given.raw(name)
    given.differs("a round Gaussian with sigma_x_limit, not turned and without noise in the kernel")
    return GaussianBlur(None, (low, high), given.probability(0.5))


@rule(PIXELS, "GaussNoise")
def _gauss_noise(given: Given) -> Op:
    """Return noise in units of 255: `var_limit` of 1.x is its variance in 0..255, `std_range` of 2.x its deviation."""
    if given.has("var_limit") or (given.call.version < 2 and not given.has("std_range")):
        low, high = (math.sqrt(each) / 255 for each in given.span("var_limit", (10.0, 50.0), lambda _: 0.0))
    else:
        low, high = given.span("std_range", (0.2, 0.44))
    if low != high:
        given.differs("sigma is the middle of the range that Albumentations draws from")
    if not given.get("per_channel", True):
        given.differs("each channel has its own noise")
    if given.number("noise_scale_factor", 1) != 1:
        given.differs("each pixel has its own noise: noise_scale_factor is 1")
    return GaussianNoise(_mean_of_noise(given), round((low + high) / 2, 5), given.probability(0.5))


def _mean_of_noise(given: Given) -> float:
    low, high = given.span("mean_range", 0.0)
    if low != high:
        given.differs("mean is the middle of mean_range")
    return (low + high) / 2 + given.number("mean", 0) / 255


@rule(PIXELS, "SaltAndPepper", "amount salt_vs_pepper")
def _salt_and_pepper(given: Given) -> Op:
    if given.span("salt_vs_pepper", (0.4, 0.6)) != (0.5, 0.5):
        given.differs("half of the changed pixels are white")
    return SaltAndPepperNoise(given.span("amount", (0.01, 0.06)), given.probability(0.5))


@rule(PIXELS, "ImageCompression", "compression_type quality_range")
def _compression(given: Given) -> Op:
    if str(given.get("compression_type", "jpeg")).rpartition(".")[2].lower() not in ("jpeg", "0"):
        given.differs("the compression is JPEG's")
    return _jpeg(given)


@rule(PIXELS, "JpegCompression", "quality_lower quality_upper")
def _jpeg(given: Given) -> Op:
    low, high = given.span("quality_range", (99, 100))
    low, high = given.number("quality_lower", low), given.number("quality_upper", high)
    given.differs("colours between the samples of JPEG are interpolated as Pillow does, not OpenCV")
    return JPEG((int(low), int(high)), given.probability(0.5))


@rule(PIXELS, "Sharpen", "alpha lightness")
def _sharpen(given: Given) -> Op:
    """Return RandomAdjustSharpness: with a lightness of 1, a factor of 1 + 13 alpha is the same kernel."""
    alpha, lightness = given.span("alpha", (0.2, 0.5)), given.span("lightness", (0.5, 1.0))
    if given.get("method", "kernel") != "kernel":
        given.differs("the kernel has 3 x 3 pixels, as with method='kernel'")
    given.raw("kernel_size"), given.raw("sigma")
    if alpha[0] != alpha[1]:
        given.differs("alpha is the middle of the range that Albumentations draws from")
    if lightness != (1, 1):
        given.differs("the lightness stays, as with lightness=(1, 1)")
    return RandomAdjustSharpness(round(1 + 13 * sum(alpha) / 2, 4), given.probability(0.5))


# --------------------------------------------------------------------------------------------- dropout


@rule(PIXELS, "CoarseDropout", "num_holes_range hole_height_range hole_width_range fill")
def _coarse_dropout(given: Given) -> Op | Holes:
    if given.has("max_holes") or (given.call.version < 2 and not given.has("num_holes_range")):
        many, height, width = (_old_range(given, name, 8) for name in ("holes", "height", "width"))
    else:
        many = given.span("num_holes_range", (1, 2), lambda _: 1)
        height, width = (given.span(f"hole_{side}_range", (0.1, 0.2)) for side in ("height", "width"))
    return _holes(given, many, height, width)


@rule(PIXELS, "Cutout", "num_holes max_h_size max_w_size fill_value")
def _cutout(given: Given) -> Op | Holes:
    height, width, many = (given.number(name, 8) for name in ("max_h_size", "max_w_size", "num_holes"))
    return _holes(given, (many, many), (height, height), (width, width))


def _old_range(given: Given, name: str, default: int) -> Range:
    """Return (smallest, largest) from min_... and max_... of 1.x."""
    high = given.number(f"max_{name}", default)
    return given.number(f"min_{name}", high), high


def _holes(given: Given, many: Range, height: Range, width: Range) -> Op | Holes:
    """Return one RandomErasing for each hole."""
    if many[1] > MOST_HOLES:
        raise LeftOut(f"more than {MOST_HOLES} holes", "GridMask")
    given.differs(BOXES)
    holes = Holes(many, height, width, given.color("fill", "fill_value"), given.probability(0.5))
    return holes if max(*height, *width) > 1 else holes.in_image(1, 1)


@rule(PIXELS, "GridDropout", "ratio unit_size_min unit_size_max")
def _grid_dropout(given: Given) -> Op:
    size = given.get("unit_size_range")
    low, high = size or (given.get("unit_size_min"), given.get("unit_size_max"))
    if not (is_whole(low, 2) and is_whole(high, 2)):
        raise LeftOut("the distance of its holes is not in pixels", "GridMask(size=(smallest, largest))")
    given.differs(BOXES)
    for name in ("random_offset", "shift_x", "shift_y", "shift_xy"):
        given.raw(name)
    fill = given.color("fill", "fill_value")
    return GridMask(given.probability(0.5), given.number("ratio", 0.5), (low, high), fill, max_hidden=1.0)


@rule(PIXELS, "Erasing", "scale ratio fill")
def _erasing(given: Given) -> Op:
    given.differs(BOXES)
    scale, ratio = given.span("scale", (0.02, 0.33)), given.span("ratio", (0.3, 3.3))
    return RandomErasing(given.probability(0.5), scale, (1 / ratio[1], 1 / ratio[0]), given.color("fill"))


# ---------------------------------------------------------------------------------------------- output


@rule(PIXELS, "Normalize", "mean std max_pixel_value")
def _normalize(given: Given) -> Op:
    """Return Normalize: (image - mean * most) / (std * most), here for images in 0..1."""
    kind = given.get("normalization", "standard")
    if kind != "standard":
        raise LeftOut(f"normalization={kind!r} depends on the image", "Normalize(mean, std)")
    share = given.number("max_pixel_value", 255.0) / 255
    mean, std = given.get("mean", IMAGENET_MEAN), given.get("std", IMAGENET_STD)
    return Normalize(_three(mean, share), _three(std, share))


def _three(value: Any, share: float) -> Any:
    """Return three numbers times `share`; one number stands for all three."""
    values = value if isinstance(value, list | tuple) else [value] * 3
    return tuple(round(each * share, 9) for each in values)


@rule(PIXELS, "ToFloat", "max_value")
def _to_float(given: Given) -> Op:
    if given.number("max_value", 255) != 255:
        given.differs("values are divided by 255")
    return Normalize()


@rule(PIXELS, "BboxParams", "format label_fields min_area min_visibility min_width min_height")
def _box_params(given: Given) -> list[Op]:
    """Return SanitizeBoundingBoxes for stricter rules than those of every op."""
    for name in ("format", "label_fields", "check_each_transform", "clip", "filter_invalid_bboxes"):
        given.raw(name)
    sides = [given.number(f"min_{side}", 0.0) for side in ("width", "height")]
    area, visible = given.number("min_area", 0.0), given.number("min_visibility", 0.0)
    ratio = given.number("max_accept_ratio", math.inf) if given.has("max_accept_ratio") else math.inf
    if not any((*sides, area, visible)) and ratio == math.inf:
        return []
    if sides[0] != sides[1]:
        given.differs("one smallest size counts for width and height, the larger of the two")
    if visible:
        given.differs("min_visibility counts what all ops together left of a box, not each op alone")
    return [SanitizeBoundingBoxes(max(sides), area, visible, ratio)]


@rule(PIXELS, "ToTensorV2")
@rule(PIXELS, "ToTensor")
@rule(PIXELS, "NoOp")
def _nothing(given: Given) -> list[Op]:
    """Return nothing: batches are tensors."""
    given.raw("transpose_mask"), given.probability(1.0 if given.call.name.startswith("ToTensor") else 0.5)
    return []


NO_COUNTERPART = {
    **dict.fromkeys(["RandomGamma", "RandomToneCurve", "RGBShift", "FancyPCA", "ToSepia"], "ColorJitter"),
    **dict.fromkeys(["PlanckianJitter", "RandomSunFlare", "RandomShadow", "Illumination"], "ColorJitter"),
    **dict.fromkeys(["MotionBlur", "MedianBlur", "GlassBlur", "Defocus", "ZoomBlur", "RandomFog"], "GaussianBlur"),
    **dict.fromkeys(["ISONoise", "MultiplicativeNoise", "ShotNoise", "AdditiveNoise"], "GaussianNoise"),
    **dict.fromkeys(["RandomRain", "RandomSnow", "Spatter", "PixelDropout"], "SaltAndPepperNoise"),
    **dict.fromkeys(["ChannelDropout"], "RandomGrayscale"),
    **dict.fromkeys(["Emboss", "UnsharpMask", "RingingOvershoot"], "RandomAdjustSharpness"),
    **dict.fromkeys(["Downscale", "Superpixels"], "JPEG"),
    **dict.fromkeys(["XYMasking", "MaskDropout", "ConstrainedCoarseDropout", "RandomGridShuffle"], "GridMask"),
    **dict.fromkeys(["ElasticTransform", "GridDistortion", "OpticalDistortion"], "RandomPerspective"),
    **dict.fromkeys(["PiecewiseAffine", "ThinPlateSpline", "GridElasticDeform", "Morphological"], "RandomAffine"),
    **dict.fromkeys(["RandomScale"], "ScaleJitter"),
    **dict.fromkeys(["CropAndPad"], "RandomZoomOut"),
    **dict.fromkeys(["RandomCropNearBBox", "RandomCropFromBorders", "CropNonEmptyMaskIfExists"], "RandomIoUCrop"),
    **dict.fromkeys(["Crop"], "RandomCrop"),
    **dict.fromkeys(["HistogramMatching", "FDA", "PixelDistributionAdaptation", "TemplateTransform"], "MixUp"),
    **dict.fromkeys(["MixUp", "OverlayElements"], "MixUp"),
    **dict.fromkeys(["Mosaic"], "Mosaic"),
    **dict.fromkeys(["Lambda"], "an op of your own (docs/custom-op.md)"),
    **dict.fromkeys(["FromFloat", "ToRGB"], "Normalize"),
}
"""Albumentations' ops that detaug does not have, and the nearest op."""


def _one_of(ops: list[Op], p: float) -> Op:
    """Return one of these ops, drawn with equal chance, with probability `p`."""
    return maybe(RandomChoice(ops) if len(ops) > 1 else ops[0], p)


def _factors(limits: Range) -> Range:
    """Return the factors 1 + limits, at least 0."""
    low, high = limits
    return max(0.0, round(1 + low, 9)), round(1 + high, 9)


def _number_or_pair(value: Any) -> Any:
    return tuple(value) if isinstance(value, list | tuple) else value
