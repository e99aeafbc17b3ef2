"""benchmarks/mutants.py: each bug can be planted, and its tests are there. That they see it is for the script."""

from __future__ import annotations

import ast
from functools import cache

import pytest
from benchmark_scripts import load_script
from places import REPOSITORY

SCRIPT = load_script("mutants")


@cache
def quick_tests(module: str) -> set[str]:
    """Return the names of the tests of a module that are not slow."""
    functions = ast.walk(ast.parse((REPOSITORY / module).read_text(encoding="utf-8")))
    return {
        each.name
        for each in functions
        if isinstance(each, ast.FunctionDef) and "pytest.mark.slow" not in map(ast.unparse, each.decorator_list)
    }


@pytest.mark.parametrize("mutant", SCRIPT.MUTANTS, ids=str)
def test_each_bug_can_be_planted_and_has_quick_tests(mutant: object) -> None:
    text = SCRIPT.planted(mutant, REPOSITORY)
    ast.parse(text)
    for test in mutant.tests.split():  # type: ignore[attr-defined]
        module, *names = test.split("::")
        assert {names[-1].partition("[")[0]} <= quick_tests(module), test


def test_no_bug_is_there_twice() -> None:
    rows = [(mutant.file, mutant.old, mutant.new) for mutant in SCRIPT.MUTANTS]
    assert len({*rows}) == len(rows) >= 60


def test_a_text_that_is_not_there_once_is_an_error() -> None:
    row = SCRIPT.MUTANTS[0]
    for old, times in (("no such text", 0), ("import", r"\d+")):
        with pytest.raises(ValueError, match=f"{row.file} has {times} times '{old}'"):
            SCRIPT.planted(row._replace(old=old), REPOSITORY)


def test_every_room_with_quick_tests_has_bugs() -> None:
    """Without the rooms whose tests are all slow or on a GPU, and those that are tested by others."""
    rooms = {path.parent.name for path in REPOSITORY.glob("detaug/*/__init__.py")} - {"converters"}
    without = {"bench", "demo", "export", "gpu", "testing", "trainers", "workflow"}
    assert rooms - without <= {mutant.room for mutant in SCRIPT.MUTANTS}
