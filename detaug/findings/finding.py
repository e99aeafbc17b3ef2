"""Findings of conversions: one record for each thing repaired, dropped or refused; values in messages."""

from __future__ import annotations

import reprlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from detaug.errors import printable
from detaug.findings.kinds import KINDS, Effect


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding in one file.

    Args:
        file: Path relative to the dataset's root.
        kind: A key of KINDS.
        object_index: Position of the object among the XML's <object> elements, from 0.
        line: In the file, from 1.
        before: As found; for boxes [xmin, ymin, xmax, ymax] as in the XML.
        after: As written; for boxes COCO's [x, y, width, height].
        note: Replaces the kind's meaning.
        count: How many things it is about, where these are counted, not listed.

    >>> from detaug.converters import Finding
    >>> finding = Finding("Annotations/7.xml", "box-empty", object_index=2, line=31, before=[5, 5, 5, 9])
    >>> print(finding.effect, finding)
    dropped Annotations/7.xml:31: object 2: a box has no area: a side is shorter than 0.01 pixel [box-empty]
    """

    file: str
    kind: str
    object_index: int | None = None
    line: int | None = None
    before: object = None
    after: object = None
    note: str = ""
    count: int = 1

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"kind must be a key of KINDS, got {self.kind!r}")

    @property
    def effect(self) -> Effect:
        """Return what the finding's kind does to the result."""
        return KINDS[self.kind].effect

    def as_dict(self) -> dict[str, object]:
        """Return the fields for a JSON file report."""
        return asdict(self)

    def __str__(self) -> str:
        position = self.file if self.line is None else f"{self.file}:{self.line}"
        start = f"{position}: " if position else ""  # no file: about the dataset as a whole
        which = "" if self.object_index is None else f"object {self.object_index}: "
        return on_one_line(f"{start}{which}{self.note or KINDS[self.kind].meaning} [{self.kind}]")


def has_error(findings: Iterable[Finding]) -> bool:
    """Return whether one of the findings is an error."""
    return any(finding.effect == "error" for finding in findings)


def count_kinds(findings: Iterable[Finding]) -> dict[str, int]:
    """Count what the findings of each kind that occurs are about, in the order of KINDS."""
    counts = Counter[str]()
    for finding in findings:
        counts[finding.kind] += finding.count
    return {kind: counts[kind] for kind in KINDS if kind in counts}


def report_document(findings: Iterable[Finding]) -> dict[str, object]:
    """Return the content of --report: counts, the meaning of each kind that occurs, and every finding."""
    findings = list(findings)
    counts = count_kinds(findings)
    return {
        "counts": counts,
        "kinds": {kind: {"effect": KINDS[kind].effect, "meaning": KINDS[kind].meaning} for kind in counts},
        "findings": [finding.as_dict() for finding in findings],
    }


_repr = reprlib.Repr()
_repr.maxstring = _repr.maxother = 160
_repr.maxlist, _repr.maxlevel = 8, 4
_MOST_NAMES = 100
_LONGEST = 600
"""Letters: eight lists of eight in each other, as aliases of YAML make them, are more than one can read."""


def shown(value: object) -> str:
    """Return the repr of a JSON value on one line of bounded length, with control characters escaped."""
    text = _repr.repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def on_one_line(text: str) -> str:
    """Return text with its line breaks, control characters and bytes that are not UTF-8 escaped."""
    return printable(text, "")


def short_name(name: object) -> str:
    """Return a name of a file, such as a class, on one line of bounded length."""
    return shown(str(name))[1:-1]


def listed(names: Iterable[object]) -> str:
    """Return names of a file for a message: a, b, c."""
    texts = [*map(short_name, names)]
    return ", ".join(texts[:_MOST_NAMES]) + f" and {len(texts) - _MOST_NAMES:,} more" * (len(texts) > _MOST_NAMES)


def counted(number: int, one: str, many: str = "") -> str:
    """Return a number with its noun: 1 box, 2,000 boxes."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def rate_text(rate: float) -> str:
    """Return a rate in at least two digits, of which none is made up: 12,345, 31, 3.1, 0.42, 0.042."""
    return f"{rate:,.0f}" if rate >= 9.95 else f"{rate:.2g}"


def duration_text(seconds: float) -> str:
    """Return a time in one or two units: 45 s, 12 min, 3 h 20 min, 2 d 5 h."""
    minutes = round(seconds / 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    if minutes < 90:
        return f"{minutes} min"
    hours = round(seconds / 3600)
    return f"{minutes // 60} h {minutes % 60} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"
