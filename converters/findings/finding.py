"""What a conversion repaired, dropped or could not use: one record, and every kind of it in one table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from detaug.converters.findings.kinds import KINDS, Effect


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing found in one file.

    file: path relative to the data set's root.  kind: a key of KINDS.  object_index: position of the object
    among the XML's <object> elements, from 0.  line: in the file, from 1.  before: as found; for boxes
    [xmin, ymin, xmax, ymax] as in the XML.  after: as written; for boxes COCO's [x, y, width, height].

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

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"kind must be a key of KINDS, got {self.kind!r}")

    @property
    def effect(self) -> Effect:
        return KINDS[self.kind].effect

    def as_dict(self) -> dict[str, object]:
        """The fields as json holds them."""
        return asdict(self)

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        which = "" if self.object_index is None else f"object {self.object_index}: "
        start = f"{place}: " if place else ""  # some are about the data set as a whole
        return f"{start}{which}{self.note or KINDS[self.kind].meaning} [{self.kind}]"


def count_kinds(findings: Iterable[Finding]) -> dict[str, int]:
    """How many findings of each kind, in the order of KINDS."""
    counts = Counter(finding.kind for finding in findings)
    return {kind: counts[kind] for kind in KINDS if kind in counts}


def report_document(findings: Iterable[Finding]) -> dict[str, object]:
    """What --report writes: counts, the meaning of each kind that occurs, and every finding."""
    findings = list(findings)
    counts = count_kinds(findings)
    return {
        "counts": counts,
        "kinds": {kind: asdict(KINDS[kind]) for kind in counts},
        "findings": [finding.as_dict() for finding in findings],
    }
