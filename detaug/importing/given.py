"""The arguments of one call, as the rules of an op read them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

from detaug.arguments import RGB, Range, is_number, is_numbers
from detaug.errors import InputError
from detaug.importing.calls import UNPACKED, Call, Unknown
from detaug.ops.containers import RandomApply
from detaug.ops.erasing import RandomErasing
from detaug.ops.op import Op

Status = Literal["same", "differs", "left out"]


@dataclass
class Entry:
    """What became of one op of a pipeline."""

    call: Call
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
        low, high = ((self.height[at] / height) * (self.width[at] / width) for at in (0, 1))
        ratio = self.height[0] / self.width[1], self.height[1] / self.width[0]
        ops = [
            RandomErasing(1.0 if at < self.many[0] else 0.5, (low, min(high, 1.0)), ratio, self.fill, max_hidden=1.0)
            for at in range(int(self.many[1]))
        ]
        return RandomApply(ops, self.p)


@dataclass(frozen=True)
class CropSize:
    """A Resize of cropped images to `size` (H, W); those that are not cropped keep theirs in Albumentations."""

    size: tuple[int, int]


Step = Op | PadTo | Holes | CropSize
"""An op of the recipe, or what becomes a part of one."""

HARMLESS = {
    *(
        "always_apply",
        "area_for_downscale",
        "keypoint_params",
        "additional_targets",
        "is_check_shapes",
        "is_check_args",
    ),
    *("interpolation", "mask_interpolation", "mask_value", "mask_pad_val", "cval_mask", "pad_cval_mask", "fill_mask"),
    *("mask_fill_value", "antialias", "strict", "seed", "save_applied_params", "return_params", "save_key", "inplace"),
    *("transpose_mask", "remove_invisible", "return_processed_params"),
}
"""Arguments that change nothing here: of masks and key points, of how pixels are interpolated, of checks."""


class Given:
    """The arguments of a call, by name. Those that a rule does not read, and that are set, are differences.

    `parameters`: the names of positional arguments, in order. `forced`: the op runs with probability 1. `zero`: the
    colour in 0..255 of pixels that are 0 where the op runs. Raises InputError for an unknown `**dict`.
    """

    def __init__(
        self, call: Call, parameters: Sequence[str], entry: Entry, *, forced: bool = False, zero: RGB = (0, 0, 0)
    ) -> None:
        self.call, self.entry, self._forced, self.zero = call, entry, forced, zero
        self.weight = 1.0
        """The op's own probability, once the rule has read it."""
        self._values = {**dict(zip(parameters, call.positional, strict=False)), **call.named}
        self._read: set[str] = set()
        self._unnamed = call.positional[len(parameters) :]
        if isinstance(unpacked := call.named.get(UNPACKED), Unknown):
            raise unknown_error(call, "an argument", unpacked)

    def has(self, name: str) -> bool:
        """Return whether the argument is given, and not None."""
        return self._values.get(name) is not None

    def raw(self, name: str) -> Any:
        """Return an argument as it was read, None where it is not given."""
        self._read.add(name)
        return self._values.get(name)

    def get(self, name: str, default: Any = None) -> Any:
        """Return an argument; `default` where it is not given or None. Raises InputError for an unknown value."""
        value = self.raw(name)
        for each in _flat(value):
            if isinstance(each, Unknown):
                raise unknown_error(self.call, name, each)
        return default if value is None else value

    def first(self, *names: str, default: Any = None) -> Any:
        """Return the first of these arguments that is given: names of several versions."""
        found = [name for name in names if self.has(name)]
        for name in names:
            self.raw(name)
        return self.get(found[0]) if found else default

    def number(self, name: str, default: float) -> float:
        """Return a number. Raises InputError for anything else."""
        value = self.get(name, default)
        if not is_number(value):
            raise self.error(name, value, "a number")
        return value

    def span(self, name: str, default: Any, low: Callable[[float], float] = lambda value: value) -> Range:
        """Return (smallest, largest). One number v is (low(v), v), by default (v, v)."""
        value = self.get(name, default)
        if is_number(value):
            return min(low(value), value), max(low(value), value)
        if not is_numbers(value, 2):
            raise self.error(name, value, "a number or (smallest, largest)")
        return value[0], value[1]

    def limits(self, name: str, default: Any) -> Range:
        """Return (smallest, largest); one number v is (-v, v)."""
        return self.span(name, default, lambda value: -value)

    def probability(self, default: float) -> float:
        """Return `p`, or 1 with Albumentations' `always_apply` and in a container that has drawn the op."""
        p = self.number("p", default)
        self.weight = 1.0 if self.get("always_apply") is True else p
        return 1.0 if self._forced else self.weight

    @property
    def drawn(self) -> bool:
        """Return whether the rule has read `p`."""
        return "p" in self._read

    def always(self) -> None:
        """Read `p` for an op that runs on each image here; another probability is a difference."""
        if self.probability(1.0) != 1:
            self.differs("it runs on each image: sizes and Normalize are no matter of chance")

    def color(self, *names: str, default: float = 0) -> RGB:
        """Return the first of these arguments as RGB in 0..255; another kind of fill is a difference, and black."""
        value = self.first(*names, default=default)
        value = next(iter(value.values())) if isinstance(value, dict) and value else value
        if is_number(value, 0, 255):
            return (value, value, value)
        if is_numbers(value, 1):
            return (value[0],) * 3
        if is_numbers(value, 3) and all(0 <= each <= 255 for each in value):
            return tuple(value)
        self.differs(f"{names[0]}={value!r} is no colour; the fill here is black")
        return (0, 0, 0)

    def differs(self, reason: str) -> None:
        """Note a difference."""
        self.entry.differs(reason)

    def error(self, name: str, value: Any, rule: str) -> InputError:
        """Return the error of a wrong argument."""
        return InputError(f"{self.call}: {name} must be {rule}, got {value!r}")

    def check_all_read(self) -> None:
        """Note arguments that the rule did not read as differences."""
        if self._unnamed:
            count = len(self._unnamed)
            self.differs(f"{count} of its arguments have no name, and are not translated: write name=value")
        for name, value in self._values.items():
            if name not in self._read | HARMLESS and value not in (None, False) and not isinstance(value, Call):
                shown = value.text if isinstance(value, Unknown) else repr(value)
                self.differs(f"{name}={shown} is not translated")


def unknown_error(call: Call, name: str, value: Unknown) -> InputError:
    """Return the error for a value that the file alone does not give, with the remedy."""
    remedy = f"give it with --set {value.setting}=VALUE" if value.setting else "write what it stands for in its place"
    return InputError(f"line {value.line}: {name} of {call.name} is {value.text!r}, which is no constant: {remedy}")


def _flat(value: Any) -> list[Any]:
    if isinstance(value, list | tuple):
        return [inner for each in value for inner in _flat(each)]
    return [inner for each in value.values() for inner in _flat(each)] if isinstance(value, dict) else [value]


class Rule(NamedTuple):
    """How an op is translated."""

    parameters: tuple[str, ...]
    """The names of positional arguments."""
    translate: Callable[[Given], Step | list[Step]]
    """Returns the ops of the recipe. Raises LeftOut."""


Rules = dict[str, Rule]
Translation = TypeVar("Translation", bound=Callable[..., Any])


def rule(rules: Rules, name: str, parameters: str = "") -> Callable[[Translation], Translation]:
    """Return a decorator that enters a function in `rules` for the op of this name."""

    def enter(function: Translation) -> Translation:
        rules[name] = Rule(tuple(parameters.split()), function)
        return function

    return enter
