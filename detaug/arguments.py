"""Check arguments: one error that names the argument, the rule and the value."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import wraps
from inspect import signature
from typing import Any, ParamSpec, TypeGuard, TypeVar, get_args
from warnings import warn

import numpy as np

from detaug.errors import InputError

P = ParamSpec("P")
R = TypeVar("R")

Range = tuple[float, float]
"""(smallest, largest)."""

RGB = tuple[float, ...]
"""Red, green, blue, 0..255; for images of other bands a number for each, in the values of their files."""

FILL = (123.0, 117.0, 104.0)
"""The default fill around an image: the mean color of images (SSD, Liu et al. 2016)."""

SCORE = 0.4
"""The default confidence threshold of detections in images and errors."""

LARGEST_SEED = 2**63 - 1
"""The largest that torch takes, without those that it reads as negative ones."""

ELSEWHERE = {"maps": "maps are of images: give maps= to a da.CocoReader of these images, or use da.MapReader"}
"""Arguments that only some functions have, and which."""

_INFINITE = float("inf")


def check(name: str, value: Any, holds: bool, rule: str) -> None:
    """Raise InputError "NAME must be RULE, got VALUE" unless `holds`."""
    if not holds:
        raise InputError(f"{name} must be {rule}, got {value!r}")


def check_names(function: str, names: Iterable[str], known: Sequence[str]) -> None:
    """Raise TypeError for the name of an argument that a function does not have; it lists those that there are."""
    for name in names:
        if name not in known:
            remedy = f"; {ELSEWHERE[name]}" if name in ELSEWHERE else ""
            raise TypeError(f"{function} has no argument {name!r}; it has {', '.join(known) or 'none'}{remedy}")


def checks_names(function: Callable[P, R]) -> Callable[P, R]:
    """Make a function, or an __init__, list its arguments where it is called with the name of another one."""
    known = [name for name in signature(function).parameters if name != "self"]
    own = function.__qualname__.removesuffix(".__init__")

    @wraps(function)
    def checked(*args: P.args, **named: P.kwargs) -> R:
        check_names(own, named, known)
        return function(*args, **named)

    return checked


def renamed(**new_names: str) -> Callable[[R], R]:
    """Let a function, or a class, be called with old names of its arguments, too, which are warned of.

    new_names: the name of each argument, by its old one. `old_names` of the function or of __init__ has them.
    """

    def decorate(target: R) -> R:
        function: Any = target.__init__ if isinstance(target, type) else target  # type: ignore[misc]
        name = target.__name__  # type: ignore[attr-defined]

        @wraps(function)
        def call(*args: Any, **named: Any) -> Any:
            for old in new_names.keys() & named:
                if new_names[old] in named:
                    raise TypeError(f"{name} got {new_names[old]} and {old}, its old name; give the first alone")
                # Shown by default, as a DeprecationWarning is not: who reads it can change the call.
                warn(f"{old} of {name} is called {new_names[old]} now", FutureWarning, stacklevel=2)
                named[new_names[old]] = named.pop(old)
            return function(*args, **named)

        call.old_names = new_names  # type: ignore[attr-defined]
        if isinstance(target, type):
            target.__init__ = call  # type: ignore[misc]
            return target
        return call  # type: ignore[return-value]

    return decorate


def is_number(value: Any, low: float = -_INFINITE, high: float = _INFINITE) -> TypeGuard[float]:
    """Return whether the value is a finite number of Python or NumPy in low..high. Booleans are not numbers."""
    number = is_whole(value) or isinstance(value, float | np.floating)
    return number and bool(low <= value <= high) and abs(value) < _INFINITE


def is_whole(value: Any, low: float = -_INFINITE, high: float = _INFINITE) -> TypeGuard[int]:
    """Return whether the value is an integer of Python or NumPy in low..high. Booleans are not integers."""
    integer = isinstance(value, int | np.integer) and not isinstance(value, bool | np.timedelta64)
    return integer and bool(low <= value <= high)


def is_numbers(value: Any, count: int | None = None) -> bool:
    """Return whether the value is a tuple or list of `count` finite numbers; None: of at least one."""
    return _is_list(value, count) and all(is_number(item) for item in value)


def is_wholes(value: Any, count: int | None = None, low: float = -_INFINITE) -> bool:
    """Return whether the value is a tuple or list of `count` integers from `low` on; None: of at least one."""
    return _is_list(value, count) and all(is_whole(item, low) for item in value)


def _is_list(value: Any, count: int | None) -> bool:
    return isinstance(value, tuple | list) and bool(value) and count in (None, len(value))


def to_python(value: Any) -> Any:
    """Return the value in plain Python, at any depth: the forms in which recipes are compared and saved.

    NumPy's scalars become numbers, arrays and lists tuples, torch's dtypes and memory formats their names; dicts are
    sorted by their names. Other values stay as they are.
    """
    if isinstance(value, tuple | list):
        return tuple(to_python(item) for item in value)
    if isinstance(value, Mapping):
        names = sorted(value) if all(isinstance(name, str) for name in value) else value
        return {to_python(name): to_python(value[name]) for name in names}
    if isinstance(value, np.ndarray):
        return to_python(value.tolist())
    if (torch := sys.modules.get("torch")) and isinstance(value, torch.dtype | torch.memory_format):
        return str(value).removeprefix("torch.").removesuffix("_format")
    if isinstance(value, np.floating):
        return float(value)
    if isinstance(value, str):
        return str.__str__(value)
    return value.item() if isinstance(value, np.bool_ | np.integer) else value


def in_declared_type(value: Any, annotation: Any) -> Any:
    """Return a checked argument with its numbers, at any depth, in the type that the annotation names.

    Equal arguments then have one `repr`: 1 becomes 1.0 for float, 2.0 becomes 2 for int, 1 becomes True for bool, and
    -0.0 becomes 0.0. An annotation of several of these types, or none, says nothing, and the value stays.
    """
    kinds = {kind for kind in _parts(annotation) if kind in (float, int, bool)}
    return _in_type(value, kinds.pop()) if len(kinds) == 1 else value


def _parts(annotation: Any) -> Iterator[Any]:
    yield annotation
    for part in get_args(annotation):
        yield from _parts(part)


def _in_type(value: Any, kind: type[Any]) -> Any:
    if isinstance(value, tuple):
        return tuple(_in_type(item, kind) for item in value)
    if isinstance(value, dict):
        return {name: _in_type(item, kind) for name, item in value.items()}
    if not isinstance(value, bool | int | float):
        return value
    try:
        converted = kind(value) + 0.0 if kind is float else kind(value)
    except OverflowError:
        return value
    return converted if converted == value else value


def check_can_be_saved(name: str, value: Any, op: type) -> None:
    """Raise InputError unless `repr` and a recipe file give back the value. `op`: the class of ops."""
    if isinstance(value, tuple):
        for item in value:
            check_can_be_saved(name, item, op)
    elif isinstance(value, dict) and all(isinstance(key, str) for key in value):
        check_can_be_saved(name, tuple(value.values()), op)
    else:
        plain = value is None or type(value) in (bool, int, float, str) or isinstance(value, op)
        rule = "a number, text, None, an op, or a tuple or dict of these, so that the recipe can be saved and resumed"
        check(name, value, plain and (value == value), rule)  # NaN is not equal to itself


def check_p(p: Any) -> None:
    check("p", p, is_number(p, 0, 1), "a probability in 0..1")


def check_range(name: str, bounds: Any, low: float, high: float) -> None:
    in_order = is_numbers(bounds, 2) and low <= bounds[0] <= bounds[1] <= high
    check(name, bounds, in_order, f"(smallest, largest) within {low}..{high}")


def check_share(name: str, value: Any) -> None:
    check(name, value, is_number(value, 0, 1), "a fraction of the area in 0..1")


def check_fill(name: str, value: Any) -> None:
    """Raise InputError for what is not a list of numbers; the recipe knows how many bands its images have."""
    check(
        name, value, is_numbers(value), "three numbers in 0..255: red, green, blue; or one for each band of the files"
    )


def check_rgb(name: str, value: Any) -> None:
    in_range = is_numbers(value, 3) and all(0 <= number <= 255 for number in value)
    check(name, value, in_range, "three numbers in 0..255: red, green, blue")


_UNITS = {"": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12, "kib": 2**10, "mib": 2**20, "gib": 2**30}


def parse_size(name: str, size: str | int) -> int:
    """Return a number of bytes from 256MB, 64MiB, 1.5GB or a number. Raises InputError, which says `name`."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", str(size).strip().lower())
    unit = _UNITS.get(match[2]) if match else None
    if match is None or unit is None or float(match[1]) * unit < 1:
        raise InputError(f"{name} must be bytes such as 256MB, 1GB, 64MiB or 1000000, got {size!r}")
    return int(float(match[1]) * unit)
