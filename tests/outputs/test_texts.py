"""Rates and times in messages."""

from __future__ import annotations

import pytest

from detaug.findings.finding import duration_text, rate_text


@pytest.mark.parametrize(
    ("rate", "text"),
    [
        (0, "0"),
        (0.042, "0.042"),
        (0.4, "0.4"),
        (3.14, "3.1"),
        (9.94, "9.9"),
        (9.96, "10"),
        (31.4, "31"),
        (12345, "12,345"),
    ],
)
def test_a_low_rate_is_not_0(rate: float, text: str) -> None:
    assert rate_text(rate) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"), (45.4, "45 s"), (89, "89 s"), (100, "2 min"), (5000, "83 min"), (6000, "1 h 40 min"),
        (86400, "24 h 0 min"), (3 * 86400 + 5 * 3600, "3 d 5 h"),
    ],
)  # fmt: skip
def test_times_have_one_or_two_units(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text
