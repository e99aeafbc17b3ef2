"""Rules for Albumentations' ops that move pixels. Source: the code of 1.3.1, 1.4.15 and 2.0.8 (MIT)."""

from __future__ import annotations

from itertools import starmap

from detaug.arguments import RGB, Range, is_number, is_wholes
from detaug.importing.given import CropSize, Given, LeftOut, PadTo, Rules, Step, rule
from detaug.ops.affine import Outline, RandomAffine, RandomPerspective, RandomRotation
from detaug.ops.containers import RandomApply, RandomChoice
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

GEOMETRY: Rules = {}
NO_CROP_WITHOUT_BOXES = "an image without boxes is not cropped; Albumentations crops it anywhere"
EROSION = "erosion_rate is 0 here: the crop keeps all boxes whole"


@rule(GEOMETRY, "HorizontalFlip", "p")
def _horizontal_flip(given: Given) -> Op:
    return RandomHorizontalFlip(given.probability(0.5))


@rule(GEOMETRY, "VerticalFlip", "p")
def _vertical_flip(given: Given) -> Op:
    return RandomVerticalFlip(given.probability(0.5))


@rule(GEOMETRY, "Flip")
def _flip(given: Given) -> Op:
    both = RandomApply((RandomHorizontalFlip(1.0), RandomVerticalFlip(1.0)), 1.0)
    return maybe(RandomChoice((RandomHorizontalFlip(1.0), RandomVerticalFlip(1.0), both)), given.probability(0.5))


@rule(GEOMETRY, "Transpose", "p")
def _transpose(given: Given) -> Op:
    turned = RandomRotation((90.0, 90.0), expand=True), RandomVerticalFlip(1.0)
    return RandomApply(turned, given.probability(0.5))


@rule(GEOMETRY, "D4", "p")
def _d4(given: Given) -> Op:
    """Return one of the eight symmetries of the square: a turn by 0 to 3 quarters, then a flip or none."""
    return maybe(RandomApply((RandomRotate90(0.75), RandomHorizontalFlip(0.5)), 1.0), given.probability(1))


@rule(GEOMETRY, "RandomRotate90", "p")
def _random_rotate90(given: Given) -> Op:
    """Return RandomRotate90 with 3/4 of `p`: Albumentations draws 0 to 3 quarters."""
    return RandomRotate90(given.probability(1.0 if given.call.version > 1 else 0.5) * 0.75)


# ------------------------------------------------------------------------------------------------ sizes


@rule(GEOMETRY, "Resize", "height width interpolation p")
def _resize(given: Given) -> Op:
    always(given)
    return Resize(height_and_width(given))


@rule(GEOMETRY, "LongestMaxSize", "max_size interpolation p")
def _longest_max_size(given: Given) -> Op:
    """Return a Resize whose two limits are equal, so that the longer side has this many pixels."""
    always(given)
    size = given.get("max_size")
    if not is_number(size):
        raise LeftOut(f"max_size={size!r} is not one number", "Resize(size, max_size=size)")
    return Resize(int(size), max_size=int(size))


@rule(GEOMETRY, "SmallestMaxSize", "max_size interpolation p")
def _smallest_max_size(given: Given) -> Op:
    always(given)
    sizes = given.get("max_size")
    if is_number(sizes):
        return Resize(int(sizes))
    if not is_wholes(sizes, low=1):
        raise LeftOut(f"max_size={sizes!r} is not one number or a list of numbers", "Resize(size)")
    given.differs("a size is drawn for each batch, not for each image")
    return RandomShortestSize(tuple(sizes))


@rule(GEOMETRY, "PadIfNeeded", "min_height min_width pad_height_divisor pad_width_divisor position border_mode")
def _pad_if_needed(given: Given) -> Step:
    always(given)
    position, fill = position_of(given), border(given, "fill", "value", mode="border_mode")
    divisors = [given.get(f"pad_{side}_divisor") for side in ("height", "width")]
    if any(divisors):
        if divisors[0] != divisors[1]:
            raise LeftOut("height and width have different divisors", "PadToMultiple")
        given.raw("min_height"), given.raw("min_width")
        if position != "top_left":
            given.differs("pads at the right and the bottom, not on all sides")
        return PadToMultiple(divisors[0], fill)
    height, width = (int(given.number(f"min_{side}", 1024)) for side in ("height", "width"))
    return PadTo((height, width), position, fill)


@rule(GEOMETRY, "Pad", "padding fill fill_mask border_mode p")
def _pad(given: Given) -> Op:
    padding = given.get("padding", 0)
    whole = int(padding) if is_number(padding) else tuple(padding)
    return maybe(Pad(whole, border(given, "fill", mode="border_mode")), given.probability(1.0))


# ------------------------------------------------------------------------------------------------ crops


@rule(GEOMETRY, "RandomCrop", "height width")
def _random_crop(given: Given) -> Op:
    _padded(given, "anywhere, not in the middle")
    return RandomCrop(height_and_width(given), given.probability(1.0))


@rule(GEOMETRY, "CenterCrop", "height width")
def _center_crop(given: Given) -> Op:
    _padded(given, "")
    return maybe(CenterCrop(height_and_width(given)), given.probability(1.0))


@rule(GEOMETRY, "AtLeastOneBBoxRandomCrop", "height width erosion_factor")
def _at_least_one_box(given: Given) -> Op:
    given.raw("erosion_factor")
    given.differs("the crop may lose all boxes")
    return RandomCrop(height_and_width(given), given.probability(1.0))


@rule(GEOMETRY, "RandomResizedCrop", "size scale ratio interpolation")
def _random_resized_crop(given: Given) -> Op:
    always(given)
    return RandomResizedCrop(size_of(given), given.span("scale", (0.08, 1.0)), given.span("ratio", (3 / 4, 4 / 3)))


@rule(GEOMETRY, "RandomSizedCrop", "min_max_height size w2h_ratio interpolation")
def _random_sized_crop(given: Given) -> list[Step]:
    """Return crops of a few of the heights, one of which is drawn, and the Resize."""
    low, high = (int(each) for each in given.span("min_max_height", None))
    ratio, p = given.number("w2h_ratio", 1.0), given.probability(1.0)
    heights = sorted({round(low + (high - low) * step / 8) for step in range(9)})
    if len(heights) < high - low + 1:
        given.differs(f"one of {len(heights)} heights of the crop is drawn, not any from {low} to {high} pixels")
    crops = [RandomCrop((height, round(height * ratio))) for height in heights]
    crop = maybe(RandomChoice(crops), p) if len(crops) > 1 else RandomCrop(crops[0].size, p)
    return [crop, *_resized(size_of(given), p)]


@rule(GEOMETRY, "BBoxSafeRandomCrop", "erosion_rate")
def _box_safe_crop(given: Given) -> Op:
    given.differs(NO_CROP_WITHOUT_BOXES)
    if given.number("erosion_rate", 0.0):
        given.differs(EROSION)
    return RandomBoxSafeCrop(given.probability(1.0))


@rule(GEOMETRY, "RandomSizedBBoxSafeCrop", "height width erosion_rate interpolation")
def _sized_box_safe_crop(given: Given) -> list[Step]:
    p = given.probability(1.0)
    return [_box_safe_crop(given), *_resized(height_and_width(given), p)]


# ------------------------------------------------------------------------------------- turns and shears


@rule(GEOMETRY, "Rotate", "limit interpolation border_mode")
def _rotate(given: Given) -> Op:
    fill = border(given, "fill", "value", mode="border_mode")
    return RandomRotation(given.limits("limit", 90), given.probability(0.5), False, fill, outline(given))


@rule(GEOMETRY, "SafeRotate", "limit interpolation border_mode")
def _safe_rotate(given: Given) -> Op:
    given.differs("the image grows until Resize; Albumentations squeezes it into its old size and ratio")
    fill = border(given, "fill", "value", mode="border_mode")
    return RandomRotation(given.limits("limit", 90), given.probability(0.5), True, fill, outline(given))


@rule(GEOMETRY, "ShiftScaleRotate", "shift_limit scale_limit rotate_limit interpolation border_mode")
def _shift_scale_rotate(given: Given) -> Op:
    both = given.limits("shift_limit", 0.0625)
    shifts = [given.limits(f"shift_limit_{axis}", both) for axis in "xy"]
    low, high = given.limits("scale_limit", 0.1)
    if given.call.version > 1 and low != high:
        given.differs("one factor scales width and height, as in 1.x; since 2.0 each has its own")
    return RandomAffine(
        degrees=_clockwise(given.limits("rotate_limit", 45)),
        translate=_translate(given, shifts),
        scale=(1 + low, 1 + high),
        p=given.probability(0.5),
        fill=border(given, "fill", "value", mode="border_mode"),
        outline=outline(given),
    )


@rule(GEOMETRY, "Affine", "scale translate_percent translate_px rotate shear")
def _affine(given: Given) -> Op:
    scale, shear = _by_axis(given, "scale", 1.0), _by_axis(given, "shear", 0.0)
    keeps_ratio = given.get("keep_ratio", False)
    if scale[0] != scale[1]:
        given.differs("one factor scales width and height: that of the width")
    elif scale[0][0] != scale[0][1] and not keeps_ratio:
        given.differs("one factor scales width and height, as with keep_ratio=True; Albumentations draws two")
    degrees = given.span("rotate", 0.0)
    if shear != [(0, 0), (0, 0)] and (degrees != (0, 0) or all(each != (0, 0) for each in shear)):
        given.differs("the image is sheared along x, then y, and then turned; Albumentations turns it first")
    if any(bounds != (0, 0) for bounds in _by_axis(given, "translate_px", 0.0)):
        given.differs("translate_px is left out: shifts here are shares of the size")
    return RandomAffine(
        degrees=_clockwise(degrees),
        translate=_translate(given, _by_axis(given, "translate_percent", 0.0)),
        scale=scale[0],
        shear=_shear(given, shear),
        p=given.probability(0.5),
        fill=border(given, "fill", "cval", mode="border_mode" if given.has("border_mode") else "mode", default=0),
        outline=outline(given),
    )


@rule(GEOMETRY, "Perspective", "scale keep_size")
def _perspective(given: Given) -> Op:
    _, largest = given.span("scale", (0.05, 0.1), lambda _: 0.0)
    given.raw("keep_size")
    given.differs("the image's corners move inwards and leave fill; Albumentations' cut off the border")
    mode = "border_mode" if given.has("border_mode") else "pad_mode"
    fill = border(given, "fill", "pad_val", mode=mode, default=0)
    return RandomPerspective(min(2 * largest, 0.99), given.probability(0.5), fill)


# ----------------------------------------------------------------------------------------- their arguments


def maybe(op: Op, p: float) -> Op:
    """Return an op that runs with probability `p`."""
    return op if p == 1 else RandomApply((op,), p)


def always(given: Given) -> None:
    """Note that a size is set for each image, where the pipeline does so with a probability."""
    if given.probability(1.0) != 1:
        given.differs("each image is resized: p is 1 here")


def height_and_width(given: Given) -> tuple[int, int]:
    """Return (height, width)."""
    return int(given.number("height", 0)), int(given.number("width", 0))


def size_of(given: Given) -> tuple[int, int]:
    """Return `size`, or the height and width of 1.x."""
    if is_number(given.raw("size")):  # 1.x: height, width by position
        return int(given.number("size", 0)), int(given.number("scale", 0))
    return tuple(given.get("size")) if given.has("size") else height_and_width(given)


def position_of(given: Given) -> str:
    """Return "center" or "top_left", where the image lies in its padding."""
    position = str(given.first("position", default="center")).rpartition(".")[2].lower()
    if position not in ("center", "top_left"):
        given.differs(f"the image lies in the middle, not at {position}")
        return "center"
    return position


def border(given: Given, *names: str, mode: str, default: int | None = None) -> RGB:
    """Return the fill; a border that repeats or mirrors the image is a difference.

    `default`: the border mode where none is given; None: the default of Albumentations' version.
    """
    if default is None:
        default = 0 if given.call.version > 1 else 4
    if given.get(mode, default) != 0:
        given.differs("the border is filled with a colour; Albumentations repeats or mirrors the image there")
    return given.color(*names)


def outline(given: Given) -> Outline:
    """Return `outline` for Albumentations' `rotate_method`."""
    return "ellipse" if given.get("rotate_method", "largest_box") == "ellipse" else "box"


def _padded(given: Given, where: str) -> None:
    """Read the padding of a crop: here a smaller image is always padded."""
    pads = given.get("pad_if_needed", False)
    for name in ("pad_position", "border_mode", "fill", "pad_mode", "pad_cval"):
        given.raw(name)
    if pads and where:
        given.differs(f"a smaller image lies {where}")


def _resized(size: tuple[int, int], p: float) -> list[Step]:
    """Return the Resize of a crop that is resized; where p is below 1, a later Resize may set the size."""
    return [CropSize(size) if p < 1 else Resize(size)]


def _clockwise(degrees: Range) -> Range:
    """Return the range of angles in the other direction."""
    low, high = degrees
    return -high + 0.0, -low + 0.0


def _by_axis(given: Given, name: str, default: float) -> list[Range]:
    """Return the ranges of x and y; one number v is (v, v) for both."""
    value = given.get(name, default)
    by_axis = value if isinstance(value, dict) else {"x": value, "y": value}
    found = [by_axis.get(axis, default) for axis in "xy"]
    return list(starmap(_pair, ((given, name, each) for each in found)))


def _pair(given: Given, name: str, value: object) -> Range:
    if is_number(value):
        return value, value
    if isinstance(value, list | tuple) and len(value) == 2:
        return value[0], value[1]
    raise given.error(name, value, "a number or (smallest, largest), or a dict of these for x and y")


def _shear(given: Given, shear: list[Range]) -> tuple[float, ...]:
    """Return the angles (low, high) along x and along y: since 2.0 with this sign, before with the other one."""
    if given.call.version > 1:
        return *shear[0], *shear[1]
    if shear[1] != _clockwise(shear[1]):
        given.differs("the direction along y is that of 1.4; 1.3 sheared the other way")
    return *_clockwise(shear[0]), *_clockwise(shear[1])


def _translate(given: Given, shifts: list[Range]) -> tuple[float, float]:
    """Return the largest shifts along x and y."""
    if any(low != -high for low, high in shifts):
        given.differs("shifts go as far to both sides")
    x, y = (min(max(abs(low), abs(high)), 1.0) for low, high in shifts)
    return x, y
