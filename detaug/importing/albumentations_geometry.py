"""Rules for Albumentations' ops that move pixels. Source: the code of 1.3.1, 1.4.15 and 2.0.8 (MIT)."""

from __future__ import annotations

from detaug.arguments import FILL, RGB, Range, is_number, is_wholes
from detaug.boxes.fields import STRONGEST
from detaug.importing.rules import Arguments, CropSize, LeftOut, PadTo, Rules, Step, elastic, rule
from detaug.ops.affine import RandomAffine, RandomPerspective, RandomRotation, RotateMethod
from detaug.ops.containers import RandomApply, RandomChoice
from detaug.ops.distortion import OpticalDistortion
from detaug.ops.flips_and_crops import (
    CenterCrop,
    Pad,
    PadToMultiple,
    RandomBoxSafeCrop,
    RandomCrop,
    RandomHorizontalFlip,
    RandomRotate90,
    RandomVerticalFlip,
)
from detaug.ops.op import Op
from detaug.ops.resize import RandomShortestSize, Resize
from detaug.ops.resized_crop import RandomResizedCrop

NO_CROP_WITHOUT_BOXES = "an image without boxes is not cropped; Albumentations crops it anywhere"

_BOTH_FLIPS = RandomApply((RandomHorizontalFlip(1.0), RandomVerticalFlip(1.0)), 1.0)
_TRANSPOSE = RandomRotation((90.0, 90.0), expand=True), RandomVerticalFlip(1.0)
_SYMMETRY = RandomApply((RandomRotate90(0.75), RandomHorizontalFlip(0.5)), 1.0)
"""One of the eight symmetries of the square: a turn by 0 to 3 quarters, then a flip or none."""

GEOMETRY: Rules = {
    "HorizontalFlip": lambda args: RandomHorizontalFlip(args.probability()),
    "VerticalFlip": lambda args: RandomVerticalFlip(args.probability()),
    "Flip": lambda args: maybe(
        RandomChoice((RandomHorizontalFlip(1.0), RandomVerticalFlip(1.0), _BOTH_FLIPS)), args.probability()
    ),
    "Transpose": lambda args: RandomApply(_TRANSPOSE, args.probability()),
    "D4": lambda args: maybe(_SYMMETRY, args.probability(1.0)),
    "SquareSymmetry": lambda args: maybe(_SYMMETRY, args.probability(1.0)),
    "RandomRotate90": lambda args: RandomRotate90(args.probability(1.0) * 0.75),  # it draws 0 to 3 quarters
    "Resize": lambda args: Resize(_height_and_width(args)),
    "RandomResizedCrop": lambda args: RandomResizedCrop(
        _size(args), args.span("scale", (0.08, 1.0)), args.span("ratio", (3 / 4, 4 / 3))
    ),
}


# ------------------------------------------------------------------------------------------------ sizes


@rule(GEOMETRY, "LongestMaxSize")
def _longest_max_size(args: Arguments) -> Op:
    """Return a Resize whose two limits are equal, so that the longer side has this many pixels."""
    _refuse_two_limits(args)
    size = args.get("max_size")
    if not is_number(size):
        raise LeftOut(f"max_size={size!r} is not one number", "Resize(size, max_size=size)")
    return Resize(int(size), max_size=int(size))


@rule(GEOMETRY, "SmallestMaxSize")
def _smallest_max_size(args: Arguments) -> Op:
    _refuse_two_limits(args)
    sizes = args.get("max_size")
    if is_number(sizes):
        return Resize(int(sizes))
    if not is_wholes(sizes, low=1):
        raise LeftOut(f"max_size={sizes!r} is not one number or a list of numbers", "Resize(size)")
    args.differs("a size is drawn for each batch, not for each image")
    return RandomShortestSize(tuple(sizes))


def _refuse_two_limits(args: Arguments) -> None:
    if (limits := args.get("max_size_hw")) is not None:
        raise LeftOut(f"max_size_hw={limits!r} limits height and width apart", "Resize(size, max_size=...)")


@rule(GEOMETRY, "PadIfNeeded")
def _pad_if_needed(args: Arguments) -> Step:
    position, fill = _position(args), _border(args, "fill", "value")
    divisors = [args.get(f"pad_{side}_divisor") for side in ("height", "width")]
    args.ignore("padding", "min_height", "min_width")
    if any(divisors):
        if divisors[0] != divisors[1]:
            raise LeftOut("height and width have different divisors", "PadToMultiple")
        if position != "top_left":
            args.differs("pads at the right and the bottom, not on all sides")
        return PadToMultiple(divisors[0], fill)
    height, width = (int(args.number(f"min_{side}", 1024)) for side in ("height", "width"))
    return PadTo((height, width), position, fill)


@rule(GEOMETRY, "Pad")
def _pad(args: Arguments) -> Op:
    padding = args.tuple_or_number("padding", 0)
    fill = _border(args, "fill")
    return maybe(Pad(int(padding) if is_number(padding) else padding, fill), args.probability(1.0))


# ------------------------------------------------------------------------------------------------ crops


@rule(GEOMETRY, "RandomCrop")
def _random_crop(args: Arguments) -> Op:
    if args.get("pad_if_needed", False):
        args.differs("a smaller image lies anywhere, not in the middle")
    return RandomCrop(_height_and_width(args), args.probability(1.0), _fill_of_crop(args))


@rule(GEOMETRY, "CenterCrop")
def _center_crop(args: Arguments) -> Op:
    if args.get("pad_if_needed", False):
        _position(args, "pad_position", ("center",))
    return maybe(CenterCrop(_height_and_width(args), _fill_of_crop(args)), args.probability(1.0))


@rule(GEOMETRY, "AtLeastOneBBoxRandomCrop")
def _at_least_one_box(args: Arguments) -> Op:
    args.ignore("erosion_factor")
    args.differs("the crop may lose all boxes")
    return RandomCrop(_height_and_width(args), args.probability(1.0))


@rule(GEOMETRY, "RandomSizedCrop")
def _random_sized_crop(args: Arguments) -> list[Step]:
    """Return crops of a few of the heights, one of which is drawn, and the Resize."""
    low, high = map(int, args.span("min_max_height", None))
    ratio, p = args.number("w2h_ratio", 1.0), args.probability(1.0)
    heights = sorted({round(low + (high - low) * step / 8) for step in range(9)})
    if len(heights) < high - low + 1:
        args.differs(f"one of {len(heights)} heights of the crop is drawn, not any from {low} to {high} pixels")
    crops = [RandomCrop((height, round(height * ratio))) for height in heights]
    crop = maybe(RandomChoice(crops), p) if len(crops) > 1 else RandomCrop(crops[0].size, p)
    return [crop, _resized(_size(args), p)]


@rule(GEOMETRY, "BBoxSafeRandomCrop")
def _box_safe_crop(args: Arguments) -> Op:
    args.differs(NO_CROP_WITHOUT_BOXES)
    if args.number("erosion_rate", 0.0):
        args.differs("erosion_rate is 0 here: the crop keeps all boxes whole")
    return RandomBoxSafeCrop(args.probability(1.0))


@rule(GEOMETRY, "RandomSizedBBoxSafeCrop")
def _sized_box_safe_crop(args: Arguments) -> list[Step]:
    p = args.probability(1.0)
    return [_box_safe_crop(args), _resized(_height_and_width(args), p)]


# ------------------------------------------------------------------------------------- turns and shears


@rule(GEOMETRY, "Rotate")
def _rotate(args: Arguments) -> Op:
    fill = _border(args, "fill", "value")
    return RandomRotation(args.limits("limit", 90), args.probability(), False, fill, _rotate_method(args))


@rule(GEOMETRY, "SafeRotate")
def _safe_rotate(args: Arguments) -> Op:
    args.differs("the image grows until Resize; Albumentations squeezes it into its old size and ratio")
    args.ignore(
        "rotate", "scale", "shear", "translate_percent", "translate_px", "keep_ratio", "fit_output"
    )  # of its base class
    fill = _border(args, "fill", "value")
    return RandomRotation(args.limits("limit", 90), args.probability(), True, fill, _rotate_method(args))


@rule(GEOMETRY, "ShiftScaleRotate")
def _shift_scale_rotate(args: Arguments) -> Op:
    both = args.limits("shift_limit", 0.0625)
    low, high = args.limits("scale_limit", 0.1)
    if args.op.version > 1 and low != high:
        args.differs("one factor scales width and height, as in 1.x; since 2.0 each has its own")
    degrees, fill = _clockwise(args.limits("rotate_limit", 45)), _border(args, "fill", "value")
    translate = _translate(args, [args.limits(f"shift_limit_{axis}", both) for axis in "xy"])
    return RandomAffine(degrees, translate, (1 + low, 1 + high), 0.0, args.probability(), fill, _rotate_method(args))


@rule(GEOMETRY, "Affine")
def _affine(args: Arguments) -> Op:
    scale, shear = args.by_axis("scale", 1.0), args.by_axis("shear", 0.0)
    keeps_ratio = args.get("keep_ratio", False)
    if scale[0] != scale[1]:
        args.differs("one factor scales width and height: that of the width")
    elif scale[0][0] != scale[0][1] and not keeps_ratio:
        args.differs("one factor scales width and height, as with keep_ratio=True; Albumentations draws two")
    degrees = args.span("rotate", 0.0)
    if shear != [(0, 0), (0, 0)] and (degrees != (0, 0) or all(angles != (0, 0) for angles in shear)):
        args.differs("the image is sheared along x, then y, and then turned; Albumentations rotates it first")
    if any(bounds != (0, 0) for bounds in args.by_axis("translate_px", 0.0)):
        args.differs("translate_px is left out: shifts here are fractions of the size")
    fill, translate = _border(args, "fill", "cval"), _translate(args, args.by_axis("translate_percent", 0.0))
    shears, p = _shear(args, shear), args.probability()
    return RandomAffine(_clockwise(degrees), translate, scale[0], shears, p, fill, _rotate_method(args))


@rule(GEOMETRY, "Perspective")
def _perspective(args: Arguments) -> Op:
    _, largest = args.span("scale", (0.05, 0.1), lambda _: 0.0)
    args.ignore("keep_size")
    args.differs("the image's corners move inwards and leave fill; Albumentations' cut off the border")
    fill = _border(args, "fill", "pad_val")
    return RandomPerspective(min(2 * largest, 0.99), args.probability(), fill)


# ------------------------------------------------------------------------------------------- distortions


@rule(GEOMETRY, "OpticalDistortion")
def _optical_distortion(args: Arguments) -> Op:
    """Return OpticalDistortion. Albumentations' image lies half a pixel farther left and up, with any coefficient.

    The image is the finished one, not the one at this place of the pipeline; `shift_limit` of 1.x is in pixels.
    """
    if args.get("mode", "camera") != "camera":
        raise LeftOut("only the mode 'camera' is known", "OpticalDistortion")
    if max(map(abs, args.limits("shift_limit", 0.05))) > 0.5:
        args.differs("the lens stays in the middle of the image")
    low, high = args.limits("distort_limit", 0.05)
    if low < STRONGEST or high > 1:
        args.differs(f"distort is limited to {STRONGEST}..1, below which corners fold over")
    args.ignore("keypoint_remapping_method")
    distort = (min(max(low, STRONGEST), 1.0), min(max(high, STRONGEST), 1.0))
    return OpticalDistortion(distort, _border(args, "fill", "value"), args.probability())


@rule(GEOMETRY, "ElasticTransform")
def _elastic(args: Arguments) -> Op:
    """Return ElasticTransform. Albumentations' shifts are alpha times blurred noise, in pixels.

    Its noise is normal, divided by the largest of all numbers, about 5 standard deviations in an image of 500 x 500
    pixels; in 1.x, and with noise_distribution="uniform", it is uniform in -1..1.
    """
    uniform = args.get("noise_distribution", "uniform" if args.op.version < 2 else "gaussian") == "uniform"
    args.differs("shifts at the border are as those elsewhere; Albumentations' are larger there")
    if not uniform:
        args.differs("its strength is that on images of about 500 x 500 pixels")
    if args.op.version < 2 and args.number("alpha_affine", 50.0):
        args.differs("alpha_affine is left out")
    args.expect("same_dxdy", False, "shifts along x and y differ").expect("approximate", False, "the blur is whole")
    args.ignore("keypoint_remapping_method")
    alpha = args.number("alpha", 1.0) * 2 * (1 if uniform else 3**0.5 / LARGEST_OF_NOISE)
    return elastic(args, alpha, args.number("sigma", 50.0), _border(args, "fill", "value"), args.probability())


LARGEST_OF_NOISE = 5.0
"""Standard deviations: about the largest of 500,000 normal numbers."""


# ----------------------------------------------------------------------------------------- their arguments


def maybe(op: Op, p: float) -> Op:
    """Return an op that runs with probability `p`."""
    return op if p == 1 else RandomApply((op,), p)


def _height_and_width(args: Arguments) -> tuple[int, int]:
    return int(args.number("height", 0)), int(args.number("width", 0))


def _size(args: Arguments) -> tuple[int, int]:
    """Return `size`, or the height and width of 1.x."""
    size = args.tuple_or_number("size")
    return _height_and_width(args) if size is None else size


def _resized(size: tuple[int, int], p: float) -> Step:
    """Return the Resize of a crop that is resized; where p is below 1, a later Resize may set the size."""
    return CropSize(size) if p < 1 else Resize(size)


def _position(args: Arguments, name: str = "position", known: tuple[str, ...] = ("center", "top_left")) -> str:
    """Return where the image lies in its padding; another position than those `known` is a difference."""
    position = str(args.get(name, "center")).rpartition(".")[2].lower()
    if position not in known:
        args.differs(f"the image lies in the middle, not at {position}")
        return "center"
    return position


def _fill_of_crop(args: Arguments) -> RGB:
    """Return the fill around a smaller image; Albumentations refuses one without pad_if_needed."""
    args.ignore("pad_position", "border_mode", "fill", "pad_mode", "pad_cval")
    return _border(args, "fill", "pad_cval") if args.get("pad_if_needed", False) else FILL


def _border(args: Arguments, *names: str) -> RGB:
    """Return the fill; a border that repeats or mirrors the image is a difference."""
    if args.first("border_mode", "mode", "pad_mode", default=0) != 0:
        args.differs("the border is filled with a color; Albumentations repeats or mirrors the image there")
    return args.color(*names)


def _rotate_method(args: Arguments) -> RotateMethod:
    """Return `rotate_method` for Albumentations'."""
    return "ellipse" if args.get("rotate_method", "largest_box") == "ellipse" else "box"


def _clockwise(degrees: Range) -> Range:
    """Return the range of angles in the other direction."""
    low, high = degrees
    return -high + 0.0, -low + 0.0


def _shear(args: Arguments, shear: list[Range]) -> tuple[float, ...]:
    """Return the angles (low, high) along x and along y: since 2.0 with this sign, before with the other one."""
    if args.op.version > 1:
        return *shear[0], *shear[1]
    if shear[1] != _clockwise(shear[1]):
        args.differs("the direction along y is that of 1.4; 1.3 sheared the other way")
    return *_clockwise(shear[0]), *_clockwise(shear[1])


def _translate(args: Arguments, shifts: list[Range]) -> tuple[float, float]:
    """Return the largest shifts along x and y."""
    if any(low != -high for low, high in shifts):
        args.differs("shifts go as far to both sides")
    x, y = (min(max(abs(low), abs(high)), 1.0) for low, high in shifts)
    return x, y
