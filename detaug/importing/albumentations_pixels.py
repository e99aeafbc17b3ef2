"""Rules for Albumentations' ops that change colors and pixels. Source: the code of 1.3.1, 1.4.15 and 2.0.8 (MIT)."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

from detaug.arguments import Range, is_number, is_whole
from detaug.importing.albumentations_geometry import maybe
from detaug.importing.rules import Arguments, Holes, LeftOut, Rules, nearest_ops, of_channels, rule
from detaug.ops import filters
from detaug.ops.camera import MOST_MEDIAN, ChannelDropout, Defocus, Downscale, MedianBlur, MotionBlur, RandomGamma
from detaug.ops.color_ops import ColorJitter, RandomChannelPermutation, RandomGrayscale, RandomHSV
from detaug.ops.containers import RandomApply, RandomChoice
from detaug.ops.erasing import GridMask, RandomErasing
from detaug.ops.noise import GaussianNoise, SaltAndPepperNoise
from detaug.ops.normalize import Normalize
from detaug.ops.op import Op
from detaug.ops.sanitize import SanitizeBoundingBoxes
from detaug.presets import IMAGENET_MEAN, IMAGENET_STD

FORMULA = "the formula is OpenCV's, not Pillow's"
BOXES = "boxes are cut off where they are covered, or dropped"
MOST_HOLES = 16
"""Rectangles, each of which is an op of the recipe."""

PIXELS: Rules = {
    "ChannelShuffle": lambda args: RandomChannelPermutation(args.probability()),
    "InvertImg": lambda args: filters.RandomInvert(args.probability()),
    "SaltAndPepper": lambda args: SaltAndPepperNoise(
        args.expect("salt_vs_pepper", [0.5, 0.5], "half of the changed pixels are white").span("amount", (0.01, 0.06)),
        args.probability(),
    ),
    "Erasing": lambda args: RandomErasing(
        args.differs(BOXES).probability(), args.span("scale", (0.02, 0.33)), _height_to_width(args), args.color("fill")
    ),
    "RandomContrast": lambda args: ColorJitter(_factors(*args.limits("limit", 0.2)), p=args.probability()),
}


@rule(PIXELS, "RandomBrightnessContrast", "RandomBrightness")
def _brightness_contrast(args: Arguments) -> Op:
    """Return ColorJitter. Albumentations' contrast is a factor on RGB, which is what is called brightness here.

    A brightness of b adds b * 255, as a factor of 1 + 2 b does to the middle of 0..255, or b times the mean. The
    factor of brightness scales the contrast too, which therefore is divided by the middle of its range.
    """
    brightness = args.limits("limit" if args.op.name == "RandomBrightness" else "brightness_limit", 0.2)
    contrast = args.limits("contrast_limit", 0.0 if args.op.name == "RandomBrightness" else 0.2)
    by_max = args.get("brightness_by_max", True)
    if brightness == (0, 0):
        return ColorJitter(_factors(*contrast), p=args.probability())
    args.differs("brightness is a factor, 1.2 for 0.1 * 255 added; contrast scales about the mean gray, not about 0")
    scale, middle = 1 + sum(contrast) / 2, 2.0 if by_max else 1.0
    low, high = (middle * (args.units.part(limit) if by_max else limit) + scale - 1 for limit in brightness)
    factor = max(1 + (low + high) / 2, 0.01)
    around = _factors((contrast[0] + 1) / factor - 1, (contrast[1] + 1) / factor - 1)
    return ColorJitter(_factors(low, high), around, p=args.probability())


@rule(PIXELS, "HueSaturationValue")
def _hue_saturation_value(args: Arguments) -> Op:
    """Return RandomHSV: hues in OpenCV's 180 steps are half turns of 90.

    What is added to saturation and value is a fraction of 85 and 128 here, which are usual in images.
    """
    ranges = [args.limits(f"{name}_shift_limit", most) for name, most in (("hue", 20), ("sat", 30), ("val", 20))]
    args.differs("hue rotates in YIQ; saturation and value are multiplied, not added to")
    if any(low != -high for low, high in ranges):
        args.differs("shifts go as far to both sides")
    largest = (max(abs(low), abs(high)) for low, high in ranges)
    hue, saturation, value = (
        min(round(shift / unit, 4), 1.0) for shift, unit in zip(largest, (90, 85, 128), strict=True)
    )
    return RandomHSV(hue, saturation, value, args.probability())


@rule(PIXELS, "ColorJitter")
def _color_jitter(args: Arguments) -> Op:
    hue = (-0.5, 0.5) if args.op.version > 1 else 0.2
    defaults = {"brightness": (0.8, 1.2), "contrast": (0.8, 1.2), "saturation": (0.8, 1.2), "hue": hue}
    brightness, contrast, saturation, turn = (args.tuple_or_number(*default) for default in defaults.items())
    if turn not in (0, (0, 0)):
        args.differs("hue is not rounded to OpenCV's steps of 2 degrees")
    return ColorJitter(brightness, contrast, saturation, turn, args.probability())


@rule(PIXELS, "ToGray")
def _to_gray(args: Arguments) -> Op:
    args.expect("method", "weighted_average", "gray is the luma, 0.299 R + 0.587 G + 0.114 B")
    if args.get("num_output_channels", 3) != 3:
        raise LeftOut("images have three channels", "RandomGrayscale")
    return RandomGrayscale(args.probability())


@rule(PIXELS, "Solarize")
def _solarize(args: Arguments) -> Op:
    """Return RandomSolarize. `threshold` of 1.x is a value, `threshold_range` of 2.x fractions of the largest one."""
    name, unit = ("threshold", 1) if "threshold" in args.op.arguments else ("threshold_range", args.units.most)
    return filters.RandomSolarize(args.units.level(args.middle(name, 0.5) * unit), args.probability())


@rule(PIXELS, "RandomGamma")
def _gamma(args: Arguments) -> Op:
    args.ignore("eps")
    low, high = args.span("gamma_limit", (80, 120), lambda _: 1)
    return RandomGamma((max(low, 1) / 100, high / 100), args.probability())


@rule(PIXELS, "ChannelDropout")
def _channel_dropout(args: Arguments) -> Op:
    low, high = args.get("channel_drop_range", (1, 1))
    value = args.first("fill", "fill_value", default=0)
    return ChannelDropout((low, high), args.units.level(value) if is_number(value) else value, args.probability())


@rule(PIXELS, "Posterize")
def _posterize(args: Arguments) -> Op:
    bits, p = args.get("num_bits", 4), args.probability()
    low, high = (bits, bits) if is_number(bits) else bits if len(bits) == 2 else (0, 0)
    if not (is_whole(low, 1, 8) and is_whole(high, 1, 8)):
        raise LeftOut(f"num_bits={bits!r} is not the same for all channels", "RandomPosterize")
    return _one_of([filters.RandomPosterize(number, 1.0) for number in range(low, high + 1)], p)


@rule(PIXELS, "Equalize")
def _equalize(args: Arguments) -> Op:
    args.expect("mode", "cv", FORMULA).ignore("mask_params")
    args.expect("by_channels", True, "each channel is equalised, not the luma")
    return filters.RandomEqualize(args.probability())


@rule(PIXELS, "AutoContrast")
def _auto_contrast(args: Arguments) -> Op:
    """Return RandomAutocontrast for method="pil"; method="cdf" is an equalisation of each channel."""
    args.expect("cutoff", 0, "nothing is cut off the histogram: cutoff is 0")
    if args.get("method", "cdf") == "pil":
        return filters.RandomAutocontrast(args.probability())
    args.differs("each channel is equalised with OpenCV's formula, which also is what Albumentations' default does")
    return filters.RandomEqualize(args.probability())


@rule(PIXELS, "CLAHE")
def _clahe(args: Arguments) -> Op:
    limit = args.differs("the luma is equalised, not L of Lab").middle("clip_limit", 4.0, lambda _: 1.0)
    columns, rows = args.get("tile_grid_size", (8, 8))
    return filters.CLAHE(limit, (rows, columns), args.probability())


# ------------------------------------------------------------------------------------- blur, noise, JPEG


@rule(PIXELS, "Blur")
def _blur(args: Arguments) -> Op:
    """Return a Gaussian of a box's standard deviation: that of k pixels is the square root of (k^2 - 1) / 12."""
    sizes = args.span("blur_limit", 7, lambda _: 3)
    args.differs("a Gaussian blur with the standard deviation of Albumentations' box")
    low, high = (round(math.sqrt((max(size, 3) ** 2 - 1) / 12), 3) for size in sizes)
    return filters.GaussianBlur(None, (low, high), args.probability())


@rule(PIXELS, "GaussianBlur")
def _gaussian_blur(args: Arguments) -> Op:
    """Return one blur for each size of the kernel: an even size becomes the next one, and 0 is as many as sigma needs.

    A sigma of 0 is OpenCV's for that size.
    """
    old = args.op.version < 2
    sizes = args.span("blur_limit", (3, 7) if old else 0, lambda most: min(most, 3) if old else 0)
    sigma = args.span("sigma_limit", 0 if old else (0.5, 3.0), lambda most: most if old else 0)
    low, high = map(round, sizes)
    counts = Counter(size | 1 if size else 0 for size in range(low, high + 1))
    blurs = [filters.GaussianBlur(size or None, _sigma(sigma, size), 1.0) for size in counts]
    p = args.probability()
    if len(blurs) == 1:
        return replace(blurs[0], p=p)
    return maybe(RandomChoice(blurs, tuple(counts.values())), p)


def _sigma(sigma: Range, size: int) -> Range:
    """Return the range of sigma; 0 is OpenCV's choice for a kernel of this many pixels."""
    usual = round(0.3 * ((size - 1) * 0.5 - 1) + 0.8, 3)
    return (max(sigma[0], 0.01), sigma[1]) if sigma[1] > 0 else (usual, usual)


@rule(PIXELS, "AdvancedBlur")
def _advanced_blur(args: Arguments) -> Op:
    low, high = args.first("sigma_x_limit", "sigmaX_limit", default=(0.2, 1.0))
    args.ignore("blur_limit", "sigma_y_limit", "sigmaY_limit", "rotate_limit", "beta_limit", "noise_limit")
    args.differs("a round Gaussian with sigma_x_limit, not turned and without noise in the kernel")
    return filters.GaussianBlur(None, (low, high), args.probability())


@rule(PIXELS, "MotionBlur")
def _motion_blur(args: Arguments) -> Op:
    args.ignore("direction_range", "angle_range", "allow_shifted")
    args.differs("the line is at any angle, antialiased, and in the middle: Albumentations' moves the objects")
    shortest, longest = _odd_sides(args)
    return MotionBlur((shortest, longest), args.probability())


@rule(PIXELS, "MedianBlur")
def _median_blur(args: Arguments) -> Op:
    shortest, longest = _odd_sides(args)
    if longest > MOST_MEDIAN:
        args.differs(f"squares are of {MOST_MEDIAN} pixels at most")
    sides = range(min(shortest, MOST_MEDIAN), min(longest, MOST_MEDIAN) + 1, 2)
    return _one_of([MedianBlur(side, 1.0) for side in sides], args.probability())


def _odd_sides(args: Arguments) -> tuple[int, int]:
    """Return the smallest and the largest odd side of a kernel."""
    low, high = map(round, args.span("blur_limit", (3, 7), lambda _: 3))
    shortest = max(low | 1, 3)
    return shortest, max(high - 1 + high % 2, shortest)


@rule(PIXELS, "Defocus")
def _defocus(args: Arguments) -> Op:
    args.ignore("alias_blur").differs("the disc has an antialiased edge, and any radius of the range")
    low, high = args.span("radius", (3, 10), lambda _: 1)
    return Defocus((low, high), args.probability())


@rule(PIXELS, "Downscale")
def _downscale(args: Arguments) -> Op:
    """Return Downscale. `scale_min` and `scale_max` of 1.x are `scale_range` of 2.x."""
    low, high = args.span("scale_range", (args.number("scale_min", 0.25), args.number("scale_max", 0.25)))
    args.differs("pixels are picked from the middle of what they stand for: Albumentations' moves the objects")
    nearest = {"downscale": 0, "upscale": 0}
    if args.first("interpolation_pair", "interpolation", default=nearest) not in (nearest, 0):
        args.differs("pixels are picked and repeated, as with the interpolation INTER_NEAREST")
    return Downscale((low, high), args.probability())


@rule(PIXELS, "GaussNoise")
def _gauss_noise(args: Arguments) -> Op:
    """Return noise in units of 255: `var_limit` of 1.x is its variance in 0..255, `std_range` of 2.x its deviation."""
    if _is_old(args, "var_limit", "std_range"):
        variances = args.span("var_limit", (10.0, 50.0), lambda _: 0.0)
        low, high = (args.units.step(math.sqrt(variance)) for variance in variances)
    else:
        low, high = map(args.units.part, args.span("std_range", (0.2, 0.44)))
    if low != high:
        args.differs("sigma is the middle of the range that Albumentations draws from")
    args.expect("per_channel", True, "each channel has its own noise")
    args.expect("noise_scale_factor", 1, "each pixel has its own noise: noise_scale_factor is 1")
    mean = args.units.part(args.middle("mean_range", 0.0)) + args.units.step(args.number("mean", 0))
    return GaussianNoise(mean, round((low + high) / 2, 5), args.probability())


@rule(PIXELS, "ImageCompression", "JpegCompression")
def _compression(args: Arguments) -> Op:
    if str(args.get("compression_type", "jpeg")).rpartition(".")[2].lower() not in ("jpeg", "0"):
        args.differs("the compression is JPEG's")
    low, high = args.span("quality_range", (99, 100))
    low, high = args.number("quality_lower", low), args.number("quality_upper", high)
    args.differs("colors between the samples of JPEG are interpolated as Pillow does, not OpenCV")
    return filters.JPEG((int(low), int(high)), args.probability())


@rule(PIXELS, "Sharpen")
def _sharpen(args: Arguments) -> Op:
    """Return RandomAdjustSharpness: with a lightness of 1, a factor of 1 + 13 alpha is the same kernel.

    Another lightness also multiplies the image by 1 + alpha (lightness - 1).
    """
    args.expect("method", "kernel", "the kernel has 3 x 3 pixels, as with method='kernel'")
    alpha, p = args.ignore("kernel_size", "sigma").middle("alpha", (0.2, 0.5)), args.probability()
    lightness = args.span("lightness", (0.5, 1.0))
    sharpness = round(1 + 13 * alpha, 4)
    if lightness == (1, 1):
        return filters.RandomAdjustSharpness(sharpness, p)
    args.differs("the lightness is that of the middle alpha")
    brightness = _factors(*(alpha * (share - 1) for share in lightness))
    return RandomApply((filters.RandomAdjustSharpness(sharpness, 1.0), ColorJitter(brightness)), p)


# --------------------------------------------------------------------------------------------- dropout


@rule(PIXELS, "CoarseDropout")
def _coarse_dropout(args: Arguments) -> Op | Holes:
    if _is_old(args, "max_holes", "num_holes_range"):
        many, height, width = (_old_range(args, name) for name in ("holes", "height", "width"))
    else:
        many = args.span("num_holes_range", (1, 2), lambda _: 1)
        height, width = (args.span(f"hole_{side}_range", (0.1, 0.2)) for side in ("height", "width"))
    return _holes(args, many, height, width)


@rule(PIXELS, "Cutout")
def _cutout(args: Arguments) -> Op | Holes:
    many, height, width = (args.span(name, 8) for name in ("num_holes", "max_h_size", "max_w_size"))
    return _holes(args, many, height, width)


def _old_range(args: Arguments, name: str) -> Range:
    """Return (smallest, largest) from min_... and max_... of 1.x."""
    high = args.number(f"max_{name}", 8)
    return args.number(f"min_{name}", high), high


def _holes(args: Arguments, many: Range, height: Range, width: Range) -> Op | Holes:
    """Return one RandomErasing for each hole."""
    if many[1] > MOST_HOLES:
        raise LeftOut(f"more than {MOST_HOLES} holes", "GridMask")
    args.differs(BOXES)
    holes = Holes(many, height, width, args.color("fill", "fill_value"), args.probability())
    return holes if max(*height, *width) > 1 else holes.in_image(1, 1)


@rule(PIXELS, "GridDropout")
def _grid_dropout(args: Arguments) -> Op:
    oldest = args.get("unit_size_min"), args.get("unit_size_max")
    low, high = args.get("unit_size_range", oldest)
    if not (is_whole(low, 2) and is_whole(high, 2)):
        raise LeftOut("the distance of its holes is not in pixels", "GridMask(size=(smallest, largest))")
    args.differs(BOXES)
    args.ignore("random_offset", "shift_x", "shift_y", "shift_xy", "holes_number_xy")
    fill = args.color("fill", "fill_value")
    return GridMask(args.probability(), args.number("ratio", 0.5), (low, high), fill, max_hidden=1.0)


# ---------------------------------------------------------------------------------------------- output


@rule(PIXELS, "Normalize")
def _normalize(args: Arguments) -> Op:
    """Return Normalize: (image - mean * most) / (std * most)."""
    kind = args.get("normalization", "standard")
    if kind != "standard":
        raise LeftOut(f"normalization={kind!r} depends on the image", "Normalize(mean, std)")
    most = args.number("max_pixel_value", 255.0)
    numbers = args.get("mean", IMAGENET_MEAN), args.get("std", IMAGENET_STD)
    mean, std = ([part * most for part in of_channels(values)] for values in numbers)
    units = args.units.divided(mean, std)
    op, args.units = units.normalize(), units
    return op


@rule(PIXELS, "ToFloat")
def _to_float(args: Arguments) -> Op:
    args.expect("max_value", 255, "values are divided by 255")
    args.units = args.units.divided([0] * 3, [args.number("max_value", args.units.most)] * 3)
    return Normalize()


@rule(PIXELS, "BboxParams")
def _box_params(args: Arguments) -> list[Op]:
    """Return SanitizeBoundingBoxes for stricter rules than those of every op."""
    args.ignore("format", "label_fields", "check_each_transform", "clip", "filter_invalid_bboxes")
    sides = [args.number(f"min_{side}", 0.0) for side in ("width", "height")]
    area, visible = args.number("min_area", 0.0), args.number("min_visibility", 0.0)
    ratio = args.get("max_accept_ratio", math.inf)
    if not any((*sides, area, visible)) and ratio == math.inf:
        return []
    if sides[0] != sides[1]:
        args.differs("one smallest size counts for width and height, the larger of the two")
    if visible:
        args.differs("min_visibility counts what all ops together left of a box, not each op alone")
    return [SanitizeBoundingBoxes(max(sides), area, visible, ratio)]


@rule(PIXELS, "ToTensorV2", "ToTensor", "NoOp")
def _nothing(args: Arguments) -> list[Op]:
    """Return nothing: batches are tensors."""
    args.probability()
    return []


NO_COUNTERPART = nearest_ops(
    {
        "ColorJitter": "RandomToneCurve RGBShift FancyPCA ToSepia PlanckianJitter RandomSunFlare "
        "Illumination PlasmaBrightnessContrast PlasmaShadow ChromaticAberration HEStain",
        "GaussianBlur": "GlassBlur",
        "GaussianNoise": "ISONoise MultiplicativeNoise ShotNoise AdditiveNoise",
        "SaltAndPepperNoise": "RandomSnow RandomGravel Spatter PixelDropout",
        "Defocus": "ZoomBlur",
        "RandomAdjustSharpness": "Emboss UnsharpMask RingingOvershoot",
        "Downscale": "Superpixels",
        "GridMask": "XYMasking MaskDropout ConstrainedCoarseDropout RandomGridShuffle",
        "OpticalDistortion": "GridDistortion",
        "RandomAffine": "PiecewiseAffine ThinPlateSpline GridElasticDeform Morphological",
        "ScaleJitter": "RandomScale",
        "RandomZoomOut": "CropAndPad",
        "RandomIoUCrop": "RandomCropNearBBox RandomCropFromBorders CropNonEmptyMaskIfExists",
        "RandomCrop": "Crop",
        "MixUp": "HistogramMatching FDA PixelDistributionAdaptation TemplateTransform MixUp OverlayElements",
        "Mosaic": "Mosaic",
        "Normalize": "FromFloat ToRGB",
    }
)
"""The nearest op by the name of Albumentations' ops that detaug does not have."""


def _height_to_width(args: Arguments) -> Range:
    """Return the range of height / width; Albumentations' `ratio` is width / height."""
    low, high = args.span("ratio", (0.3, 3.3))
    return 1 / high, 1 / low


def _is_old(args: Arguments, old: str, new: str) -> bool:
    """Return whether an op has the arguments of 1.x, which has `old` in the place of `new`."""
    return old in args.op.arguments or (args.op.version < 2 and new not in args.op.arguments)


def _one_of(ops: list[Op], p: float) -> Op:
    """Return one of these ops, drawn with equal chance, with probability `p`."""
    return maybe(RandomChoice(ops) if len(ops) > 1 else ops[0], p)


def _factors(low: float, high: float) -> Range:
    """Return the factors from 1 + low to 1 + high, at least 0."""
    return max(0.0, round(1 + low, 9)), round(1 + high, 9)
