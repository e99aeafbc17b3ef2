"""What can be wrong with a COCO json and its images: every kind in one table, and one record for what was found."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from detaug.converters.findings.kinds import CHECK_KINDS, Severity

Where = Literal["images", "annotations", "categories", "files", "json"]


@dataclass(frozen=True)
class Findings:
    """All findings of one kind in one list: `rows` are positions in it, `describe` says what is wrong with one."""

    kind: str
    where: Where
    rows: NDArray[np.int64]
    describe: Callable[[int], str]

    @property
    def severity(self) -> Severity:
        return CHECK_KINDS[self.kind].severity

    def __len__(self) -> int:
        return len(self.rows)


def about_json(kind: str, text: str) -> Findings:
    """A finding about the json as a whole."""
    return Findings(kind, "json", np.zeros(1, np.int64), lambda _: text)


def from_messages(kind: str, where: Where, messages: Mapping[int, str]) -> Findings:
    """Findings from what is wrong, by row."""
    rows = np.array(sorted(messages), np.int64)
    return Findings(kind, where, rows, lambda row: messages[int(row)])


def count_findings(found: Iterable[Findings]) -> dict[str, int]:
    """How many findings of each kind, in the order of CHECK_KINDS."""
    counts = dict.fromkeys(CHECK_KINDS, 0)
    for each in found:
        counts[each.kind] += len(each)
    return {kind: count for kind, count in counts.items() if count}
