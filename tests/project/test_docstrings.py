"""Every argument of a public name has one line in the docstring, in the order of the signature."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import pytest
from test_examples import public_names

import detaug as da

MADE_BY_DETAUG = {
    da.Batch, da.ClipBatch, da.DetectionErrors, da.ImportedRecipe, da.KeyPoints, da.Samples, da.Shapes, da.TileSummary,
    da.TrainedModel, da.Views,
}  # fmt: skip
"""Classes that users get and do not make, beside those named ...Metrics and ...Summary."""


def arguments_of(thing: Any) -> list[str]:
    """Return the arguments that a caller gives."""
    if is_dataclass(thing):
        return [field.name for field in fields(thing) if field.init and not field.name.startswith("_")]
    names = inspect.signature(thing).parameters
    return [name for name in names if name not in ("self", "cls")]


def documented(thing: Any) -> list[str]:
    """Return the names in the section Args of a docstring, one after the other."""
    section = re.search(r"^Args:\n((?:    .*\n|\n)*)", f"{inspect.getdoc(thing)}\n", re.M)
    lines = re.findall(r"^    (\w+(?:, \w+)*)(?: \(.*?\))?: \S", section[1] if section else "", re.M)
    return [name for line in lines for name in line.split(", ")]


def documented_fields(thing: type) -> list[str]:
    """Return the fields of a class that have a docstring of their own below them."""
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(thing))).body
    assert isinstance(body, ast.ClassDef)
    return [
        node.target.id
        for node, after in zip(body.body, body.body[1:], strict=False)
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and isinstance(after, ast.Expr)
    ]


def callables() -> Iterator[tuple[str, Any]]:
    for name, thing in public_names().items():
        is_class = inspect.isclass(thing)
        if not callable(thing) or (is_class and (issubclass(thing, Exception | tuple) or thing in MADE_BY_DETAUG)):
            continue
        if is_class and thing.__name__.endswith(("Metrics", "Summary")):
            continue
        if not arguments_of(thing) or (is_class and documented_fields(thing) == arguments_of(thing)):
            continue
        if is_class and issubclass(thing, da.Op) and thing in (da.Op, da.GeometricOp, da.PixelOp):
            continue
        if "." not in name or name.split(".")[0] in ("converters", "fn", "presets", "targets", "testing"):
            yield name, thing


CALLABLES = dict(callables())


@pytest.mark.parametrize("name", CALLABLES)
def test_each_argument_has_a_line_in_order(name: str) -> None:
    assert documented(CALLABLES[name]) == arguments_of(CALLABLES[name])


def test_there_are_many() -> None:
    assert sum(len(arguments_of(thing)) for thing in CALLABLES.values()) > 400
