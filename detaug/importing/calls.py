"""The calls that a pipeline consists of, as read from a file: nothing is executed or imported."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

Library = Literal["albumentations", "torchvision"]

COMPOSE = ("Compose", "ReplayCompose")
"""The names of what a pipeline is made with."""
UNPACKED = "**"
"""The key, in a dict or the arguments of a call, of what an unknown dict may have brought."""


@dataclass(frozen=True)
class Call:
    """A call such as `A.Blur(3, p=0.1)`. Arguments may hold other calls and values of type `Unknown`."""

    library: Library
    name: str
    positional: tuple[Any, ...] = ()
    named: dict[str, Any] = field(default_factory=dict)
    line: int | None = None
    """In a Python file."""
    version: int = 2
    """The major version of the library, which decides defaults."""

    def __str__(self) -> str:
        return self.name if self.line is None else f"{self.name} (line {self.line})"


@dataclass(frozen=True)
class Unknown:
    """A value that the file alone does not give."""

    text: str
    """The code of the value, or of the condition or statement that decides."""
    line: int
    setting: str = ""
    """The name that --set can give it; "" if none can."""
    arguments: tuple[Any, ...] = field(default=(), compare=False)
    """For the value of a call: its arguments, in which pipelines may be."""
    may_be: tuple[Any, ...] = field(default=(), compare=False)
    """Lists and dicts that it may stand for, or that its value may hold: a change of it may be one of them."""


@dataclass(frozen=True)
class Changed(Unknown):
    """An item at the end of a list for what an unknown change did to it: neither length nor places are known."""


class Pipeline(NamedTuple):
    """A pipeline of a file."""

    name: str
    call: Call

    @property
    def title(self) -> str:
        return self.name if self.call.line is None else f"{self.name} (line {self.call.line})"


def unique(pipelines: list[Pipeline]) -> list[Pipeline]:
    """Return the pipelines without repetitions; those that share a name get their line: "transform:12"."""
    calls = [id(each.call) for each in pipelines]
    firsts = [each for at, each in enumerate(pipelines) if id(each.call) not in calls[:at]]
    once = sorted(firsts, key=lambda each: each.call.line or 0)
    names = [each.name for each in once]
    return [
        each._replace(name=f"{each.name}:{each.call.line}") if names.count(each.name) > 1 else each for each in once
    ]


_OLD_OPS = {"Flip", "Cutout", "JpegCompression", "RandomBrightness", "RandomContrast"}
_OLD_ARGUMENTS = {
    *("always_apply", "value", "mask_value", "cval", "fill_value", "pad_mode", "pad_val", "var_limit", "threshold"),
    *("max_holes", "max_height", "max_width", "quality_lower", "quality_upper", "unit_size_min", "sigmaX_limit"),
}
"""Names that Albumentations 2.0 no longer has."""


def is_old(call: Call) -> bool:
    """Return whether a call, or one in it, has a name of Albumentations 1.x."""
    own = call.name in _OLD_OPS or bool(_OLD_ARGUMENTS & set(call.named))
    return own or any(is_old(each) for each in calls_in([*call.positional, *call.named.values()]))


def calls_in(value: Any) -> Iterator[Call]:
    """Yield the calls in a list, tuple or dict, at any depth, without those within calls."""
    if isinstance(value, Call):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from calls_in(each)
    elif isinstance(value, dict):
        for each in value.values():
            yield from calls_in(each)
