"""Seeds as parameters of a test."""

from __future__ import annotations

from typing import Any

import pytest


def seeds(quick: int, total: int) -> list[Any]:
    """Return 0, 1, ... below `total`; those from `quick` on are marked slow."""
    return [seed if seed < quick else pytest.param(seed, marks=pytest.mark.slow) for seed in range(total)]
