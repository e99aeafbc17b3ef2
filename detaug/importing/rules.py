"""What the rules of all libraries share: the arguments of an op, and the entry that says what became of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeVar

from detaug.arguments import RGB, Range, is_number, is_numbers
from detaug.errors import InputError
from detaug.importing.library_ops import Library, LibraryOp
from detaug.importing.units import BYTES, Units
from detaug.ops.containers import RandomApply
from detaug.ops.distortion import ElasticTransform, largest_alpha
from detaug.ops.erasing import RandomErasing
from detaug.ops.op import Op

Status = Literal["same", "differs", "left out"]


@dataclass
class Entry:
    """What became of one op of a pipeline."""

    name: str
    """The op's name in its library."""
    library: Library
    became: str = ""
    """The ops of the recipe that do it; for an op that is left out, the nearest one."""
    reasons: list[str] = field(default_factory=list)
    left_out: bool = False
    parts: int = 1
    """The number of ops of the recipe that do it."""

    @property
    def status(self) -> Status:
        """Return "same" if the recipe does the same, "differs" if it does something near, or "left out"."""
        return "left out" if self.left_out else "differs" if self.reasons else "same"

    def differs(self, reason: str) -> None:
        """Add a difference."""
        if reason not in self.reasons:
            self.reasons.append(reason)

    def leave_out(self, reason: str, nearest: str = "") -> None:
        """Note that the op, or one of its parts, is not in the recipe."""
        if self.parts > 1:
            self.parts -= 1
            self.differs(reason)
        elif not self.left_out:
            self.reasons, self.left_out, self.became = [reason], True, nearest

    def __str__(self) -> str:
        reasons = "; ".join(self.reasons)
        if self.left_out:
            return f"{self.status:10}{self.name}: {reasons}" + (f"; nearest: {self.became}" if self.became else "")
        became = f" -> {self.became}" if self.became else " -> nothing is needed"
        return f"{self.status:10}{self.name}{became}" + (f": {reasons}" if reasons else "")


class LeftOut(Exception):  # no error
    """Raised by the rule of an op that has no counterpart."""

    def __init__(self, reason: str, nearest: str = "") -> None:
        super().__init__(reason)
        self.reason, self.nearest = reason, nearest


@dataclass(frozen=True)
class PadTo:
    """Pads a smaller image to `size` (H, W) pixels; `position`: "center" or "top_left"."""

    size: tuple[int, int]
    position: str
    fill: RGB


@dataclass(frozen=True)
class Holes:
    """Covers `many` rectangles, (fewest, most), with sides in pixels, (smallest, largest), with probability `p`."""

    many: Range
    height: Range
    width: Range
    fill: RGB
    p: float

    stage: ClassVar[str] = "pixels"

    def in_image(self, height: float, width: float) -> Op:
        """Return the op for images of this size. Holes beyond the fewest come with half the probability."""
        low, high = ((self.height[index] / height) * (self.width[index] / width) for index in (0, 1))
        ratio = self.height[0] / self.width[1], self.height[1] / self.width[0]
        ops = [
            RandomErasing(
                1.0 if number < self.many[0] else 0.5, (low, min(high, 1.0)), ratio, self.fill, max_hidden=1.0
            )
            for number in range(int(self.many[1]))
        ]
        return RandomApply(ops, self.p)


@dataclass(frozen=True)
class CropSize:
    """A Resize of cropped images to `size` (H, W); those that are not cropped keep theirs in Albumentations."""

    size: tuple[int, int]


def of_channels(value: Any) -> Any:
    """Return the three numbers of a number for all channels, or of a list with it; other values as they are."""
    return [value] * 3 if is_number(value) else [*value] * 3 if is_numbers(value, 1) else value


Step = Op | PadTo | Holes | CropSize
"""An op of the recipe, or what becomes a part of one."""

ALWAYS = "it runs on each image: sizes and Normalize are not random"

HARMLESS = {
    *("always_apply", "area_for_downscale", "keypoint_params", "additional_targets", "is_check_shapes", "seed"),
    *("is_check_args", "interpolation", "mask_interpolation", "mask_value", "mask_pad_val", "cval_mask", "strict"),
    *("pad_cval_mask", "fill_mask", "mask_fill_value", "antialias", "save_applied_params", "return_params"),
    *("save_key", "inplace", "transpose_mask", "remove_invisible", "return_processed_params", "labels_getter"),
}
"""Arguments that change nothing here: of masks and keypoints, of how pixels are interpolated, of checks."""


class Arguments:
    """The arguments of an op, by name. Those that a rule does not read, and that are set, are differences.

    `forced`: the op runs with probability 1. `units`: of pixels where the op runs; a rule sets those after it.
    `surely`: whether they are known, as they are not behind a function of the user's.
    """

    def __init__(
        self, op: LibraryOp, entry: Entry, *, forced: bool = False, units: Units = BYTES, surely: bool = True
    ) -> None:
        self.op, self.entry, self._forced, self.units, self._surely = op, entry, forced, units, surely
        self.weight = 1.0
        """The op's own probability, once the rule has read it."""
        self._read: set[str] = set()

    def ignore(self, *names: str) -> Arguments:
        """Note that these arguments change nothing here, or that a rule has told what they change."""
        self._read.update(names)
        return self

    def differs(self, reason: str) -> Arguments:
        """Note a difference."""
        self.entry.differs(reason)
        return self

    def expect(self, name: str, value: Any, reason: str) -> Arguments:
        """Note a difference where an argument has another value than this one, which is what detaug's op does."""
        return self if self.get(name, value) == value else self.differs(reason)

    def get(self, name: str, default: Any = None) -> Any:
        """Return an argument; `default` where it is not given or None."""
        self._read.add(name)
        value = self.op.arguments.get(name)
        return default if value is None else value

    def first(self, *names: str, default: Any = None) -> Any:
        """Return the first of these arguments that is given: names of several versions."""
        values = [self.get(name) for name in names]
        return next((value for value in values if value is not None), default)

    def number(self, name: str, default: float) -> float:
        """Return a number. Raises InputError for anything else."""
        value = self.get(name, default)
        if not is_number(value):
            raise self._error(name, value, "a number")
        return value

    def span(self, name: str, default: Any, low: Callable[[float], float] = lambda value: value) -> Range:
        """Return (smallest, largest). One number v is (low(v), v), by default (v, v)."""
        return self._range(name, self.get(name, default), low)

    def middle(self, name: str, default: Any, low: Callable[[float], float] = lambda value: value) -> float:
        """Return the middle of a range, which is a difference from drawing in it."""
        smallest, largest = self.span(name, default, low)
        if smallest != largest:
            self.differs(f"{name.split('_')[0]} is the middle of the range that Albumentations draws from")
        return (smallest + largest) / 2

    def limits(self, name: str, default: Any) -> Range:
        """Return (smallest, largest); one number v is (-v, v)."""
        return self.span(name, default, lambda value: -value)

    def by_axis(self, name: str, default: float) -> list[Range]:
        """Return the ranges of x and y, from a dict, or one for both; one number v is (v, v)."""
        value = self.get(name, default)
        by_axis = value if isinstance(value, Mapping) else {"x": value, "y": value}
        return [self._range(name, by_axis.get(axis, default), lambda value: value) for axis in "xy"]

    def _range(self, name: str, value: Any, low: Callable[[float], float]) -> Range:
        if is_number(value):
            return min(low(value), value), max(low(value), value)
        if not is_numbers(value, 2):
            raise self._error(name, value, "a number or (smallest, largest)")
        return value[0], value[1]

    def tuple_or_number(self, name: str, default: Any = None) -> Any:
        """Return an argument, a list as a tuple."""
        value = self.get(name, default)
        return tuple(value) if isinstance(value, list) else value

    def probability(self, default: float = 0.5) -> float:
        """Return `p`, or 1 with Albumentations' `always_apply` and in a container that has drawn the op."""
        p = self.number("p", default)
        self.weight = 1.0 if self.get("always_apply") is True else p
        return 1.0 if self._forced else self.weight

    def always(self) -> None:
        """Read `p` for an op that runs on each image here, unless the rule has; another probability is a difference."""
        if "p" not in self._read and self.probability(1.0) != 1:
            self.differs(ALWAYS)

    def color(self, *names: str, units: Units | None = None) -> RGB:
        """Return the first of these arguments as RGB in 0..255; another kind of fill is a difference, and black.

        `units`: those of the argument; None: those of the pixels.
        """
        value = self.first(*names, default=0)
        if isinstance(value, Mapping) and value:  # of torchvision, by the type of the image
            value = value.get("Image", value.get("others", next(iter(value.values())))) or 0
        numbers = of_channels(value)
        if not is_numbers(numbers, 3):
            self.differs(f"{names[0]}={value!r} is not a color; the fill here is black")
            return (0, 0, 0)
        if any(numbers) and not (units or self._surely):
            self.differs(f"{names[0]}={value!r} may be in other units behind a function, which is not read")
        color = (units or self.units).color(numbers)
        if all(0 <= number <= 255 for number in color):
            return color
        red, green, blue = (min(max(number, 0), 255) for number in color)
        self.differs(f"{names[0]}={value!r} is {color} in 0..255; the fill here is the nearest color")
        return red, green, blue

    def _error(self, name: str, value: Any, rule: str) -> InputError:
        return InputError(f"{self.op.name}: {name} must be {rule}, got {value!r}")

    def check_all_read(self) -> None:
        """Note arguments that the rule did not read as differences."""
        for name, value in self.op.arguments.items():
            if name not in self._read | HARMLESS and value is not None and value is not False:
                self.differs(f"{name}={value!r} is not translated")


Rule = Callable[[Arguments], Step | list[Step] | list[Op]]
"""Returns the ops of the recipe. Raises LeftOut."""
Rules = dict[str, Rule]
Translation = TypeVar("Translation", bound=Callable[[Arguments], Any])


def rule(rules: Rules, *names: str) -> Callable[[Translation], Translation]:
    """Return a decorator that enters a function in `rules` for the ops of these names."""

    def enter(function: Translation) -> Translation:
        rules.update(dict.fromkeys(names, function))
        return function

    return enter


def elastic(args: Arguments, alpha: float, sigma: float, fill: RGB, p: float) -> Op:
    """Return ElasticTransform, with the nearest numbers that it takes."""
    if sigma < 1:
        args.differs("sigma is at least 1")
    sigma = max(sigma, 1.0)
    if alpha > (most := largest_alpha(sigma)):
        args.differs(f"alpha is at most {most:g} with this sigma, beyond which the image could fold")
    return ElasticTransform(min(alpha, most), sigma, fill, p)


def nearest_ops(names: Mapping[str, str]) -> dict[str, str]:
    """Return the nearest op by the name of an op that detaug does not have. `names`: by the nearest one, separated."""
    return {name: nearest for nearest, listed in names.items() for name in listed.split()}
