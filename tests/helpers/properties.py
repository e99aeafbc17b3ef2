"""Check properties on random examples: a few in each test run, many in the slow one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st


def few_or_many(many: int) -> pytest.MarkDecorator:
    """Run a test with examples=15, and in the slow run with this many."""
    return pytest.mark.parametrize("examples", [15, pytest.param(many, marks=pytest.mark.slow)])


def check_examples(examples: int, check: Callable[..., None], *strategies: st.SearchStrategy[Any]) -> None:
    """Call `check` with values drawn from the strategies, so many times."""
    checks = [HealthCheck.too_slow]
    settings(max_examples=examples, deadline=None, suppress_health_check=checks)(given(*strategies)(check))()
