"""Every public name has a docstring of its own with an example, and the example prints what it says."""

from __future__ import annotations

import doctest
import inspect
import types
from typing import Any

import numpy as np
import pytest
import torch

import detaug as da
from detaug import converters
from detaug.check import check
from detaug.coco import annotations

HAVE_NO_DOCSTRING = {"converters.KINDS"}
"""A dict, which has none."""


def public_names() -> dict[str, Any]:
    """Return the names of the package and of detaug.converters, and the functions of its public modules."""
    names = {name: getattr(da, name) for name in da.__all__}
    names |= {f"converters.{name}": getattr(converters, name) for name in converters.__all__}
    for module in (da.presets, da.targets, da.testing):
        names |= {f"{module.__name__.split('.')[1]}.{name}": each for name, each in functions(module).items()}
    names |= {f"fn.{name}": each for name, each in vars(da.fn).items() if inspect.isfunction(each)}
    names |= {name: each for name, each in methods().items() if ">>>" in own_docstring(each)}
    return {name: each for name, each in names.items() if name not in HAVE_NO_DOCSTRING}


def methods() -> dict[str, Any]:
    """Return the methods and properties of the classes that have many."""
    classes = (da.Batch, da.CocoEvaluator, da.CocoReader, da.Loader)
    every = {f"{each.__name__}.{name}": method for each in classes for name, method in vars(each).items()}
    return {name: each for name, each in every.items() if is_method(name.partition(".")[2], each)}


def functions(module: types.ModuleType) -> dict[str, Any]:
    own = {name: each for name, each in vars(module).items() if getattr(each, "__module__", "") == module.__name__}
    return {name: each for name, each in own.items() if not name.startswith("_") and inspect.isfunction(each)}


def is_method(name: str, thing: Any) -> bool:
    return not name.startswith("_") and isinstance(thing, types.FunctionType | property)


def own_docstring(thing: Any) -> str:
    """Return its docstring, unless it is inherited or the signature that a dataclass generates."""
    text = (thing.__dict__.get("__doc__") if isinstance(thing, type) else thing.__doc__) or ""
    return "" if text.startswith(f"{getattr(thing, '__name__', '')}(") else text.strip()


NAMES = public_names()
EXAMPLES = [name for name, each in NAMES.items() if not isinstance(each, types.ModuleType)]


def example(name: str) -> doctest.DocTest:
    """Return the lines of a docstring that begin with >>>."""
    globs = {"da": da, "np": np, "torch": torch, "__name__": "example"}
    return doctest.DocTestParser().get_doctest(own_docstring(NAMES[name]), globs, name, None, 0)


@pytest.mark.usefixtures("workplace", "cpu")
@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_prints_what_it_says(name: str) -> None:
    shown = example(name)
    text = "".join(each.source + each.want for each in shown.examples)
    assert getattr(NAMES[name], "__name__", name.rpartition(".")[2]).lower() in text.lower(), (
        f"the docstring of {name} has no example of it: lines that begin with >>>"
    )
    assert any(each.want for each in shown.examples), f"the example of {name} shows no output"
    report: list[str] = []
    doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS).run(shown, out=report.append)
    assert not report, "".join(report)


def test_every_public_thing_has_a_docstring_of_its_own() -> None:
    public = dict(NAMES)
    for module in (annotations, check):
        public |= {f"{module.__name__}.{name}": each for name, each in functions(module).items()}
    public |= methods()
    assert [name for name, each in public.items() if not own_docstring(each)] == []
