"""Findings about the entries of a COCO JSON file, all of one kind in one record: there may be a million."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, cast

import numpy as np
from numpy.typing import NDArray

from detaug.findings.kinds import CHECK_KINDS, Severity

Where = Literal["images", "annotations", "categories", "videos", "files", "json"]


@dataclass(frozen=True)
class Findings:
    """All findings of one kind about one list of the JSON file."""

    kind: str
    where: Where
    rows: NDArray[np.int64]
    """Positions in the list, the worst first where one is worse than another."""
    describe: Callable[[int], str]
    """Returns what is wrong with a row."""
    like: Mapping[int, int] = field(default_factory=dict)
    """The earlier row that a row repeats or contradicts."""

    @property
    def severity(self) -> Severity:
        """Return "error" or "warning"."""
        return cast("Severity", CHECK_KINDS[self.kind].effect)

    def __len__(self) -> int:
        return len(self.rows)


def about_json(kind: str, text: str) -> Findings:
    """Return a finding about the JSON file as a whole."""
    return Findings(kind, "json", np.zeros(1, np.int64), lambda _: text)


def from_messages(
    kind: str,
    where: Where,
    messages: Mapping[int, str],
    *,
    badness: Mapping[int, float] | None = None,
    like: Mapping[int, int] | None = None,
) -> Findings:
    """Return findings from messages by row; those with the largest `badness` come first. For `like` see `Findings`."""
    order = sorted(messages, key=lambda row: (-badness[row] if badness else 0.0, row))
    return Findings(kind, where, np.array(order, np.int64), lambda row: messages[int(row)], like or {})


def count_findings(findings: Iterable[Findings]) -> dict[str, int]:
    """Count the findings of each kind that occurs, in the order of CHECK_KINDS."""
    counts = dict.fromkeys(CHECK_KINDS, 0)
    for finding in findings:
        counts[finding.kind] += len(finding)
    return {kind: count for kind, count in counts.items() if count}
