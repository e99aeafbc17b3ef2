"""The scripts of benchmarks/, loaded as modules."""

from __future__ import annotations

from importlib import util
from types import ModuleType

from places import REPOSITORY

BENCHMARKS = REPOSITORY / "benchmarks"


def load_script(name: str) -> ModuleType:
    """Return the module of benchmarks/NAME.py, which is in no package."""
    spec = util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
    assert spec
    assert spec.loader
    module = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
