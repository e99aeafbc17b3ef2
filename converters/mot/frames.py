"""Read a sequence of MOTChallenge: its frames with their boxes."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from detaug.coco.boxes import BoxNumbers, cut_to_image
from detaug.coco.classes_and_images import header_findings
from detaug.coco.writer import Box, whole, whole_numbers
from detaug.converters.mot.ground_truth import NO_FRAME, TruthLine, read_labels, read_truth
from detaug.converters.mot.sequences import (
    GROUND_TRUTH,
    INFO,
    LABELS,
    SequenceInfo,
    file_of,
    find_frames,
    missing_numbers,
    read_info,
)
from detaug.files.image_headers import ImageError, ImageHeader, read_image_header
from detaug.findings.finding import Finding, counted, has_error

Ignored = Literal["drop", "keep", "crowd"]


class Rules(NamedTuple):
    """What to keep. The arguments of `mot_to_coco`."""

    classes: Collection[str] | None
    ignored: Ignored
    first_pixel: int
    """The number of the first pixel: 1 or 0."""


class TrackedBox(NamedTuple):
    """A box in a frame, and the object's number in the sequence."""

    class_name: str
    track: int | None
    """None for a box of no track."""
    box: Box
    visibility: float | None
    is_crowd: bool


class TrackedFrame(NamedTuple):
    """A frame that can be used."""

    number: int
    """From 1."""
    name: str
    """Its path, relative to the data set's root."""
    header: ImageHeader
    boxes: list[TrackedBox]


class TrackedSequence(NamedTuple):
    """A sequence."""

    name: str
    info: SequenceInfo
    frames: list[TrackedFrame]
    class_names: tuple[str, ...]
    """Of all its numbers of classes, whether they occur or not."""
    findings: list[Finding]
    numbers: BoxNumbers
    """What its boxes look like."""


@dataclass
class _Log:
    """What is found in a ground truth. What may be most of its lines is counted, not listed."""

    file: str
    findings: list[Finding]
    ignored: int = 0
    no_track: int = 0
    not_listed: Counter[str] = field(default_factory=Counter)
    first_edge: float = math.inf
    """The smallest left or top."""
    below_one: list[TruthLine] = field(default_factory=list)
    """The lines with a left or top under 1."""
    numbers: BoxNumbers = field(default_factory=BoxNumbers)

    def add(self, kind: str, line: int, before: object = None, after: object = None, note: str = "") -> None:
        """Append a finding about one line."""
        self.findings.append(Finding(self.file, kind, None, line, before, after, note))

    def add_counts(self) -> None:
        """Append the findings about what was counted."""
        if self.ignored:
            note = f"{counted(self.ignored, 'entry', 'entries')} with the flag 0 left out"
            self.findings.append(
                Finding(self.file, "entry-ignored", before=self.ignored, note=note, count=self.ignored)
            )
        if self.no_track:
            self.findings.append(Finding(self.file, "track-none", before=-1, count=self.no_track))
        for name, count in self.not_listed.items():
            note = f"{counted(count, 'object')} of {name}, which is not among the classes"
            self.findings.append(Finding(self.file, "class-not-listed", before=name, note=note, count=count))

    def add_origin(self, *, has_labels: bool) -> None:
        """Append a finding where pixels seem to count from 0. A box that reaches past its image tells nothing."""
        if self.below_one and self.first_edge >= 0:
            first, count = self.below_one[0], len(self.below_one)
            boxes = counted(count, "box", "boxes")
            note = f"{boxes} with a left or top under 1, though pixels count from 1"
            edges = [whole(edge) for edge in first.edges]
            self.findings.append(Finding(self.file, "coordinate-zero", None, first.line, edges, None, note, count))
        elif has_labels and self.first_edge < math.inf:
            self.findings.append(Finding(self.file, "origin-unclear"))


class _Truth(NamedTuple):
    """The lines of a ground truth by frame, and the frames with a line that cannot be read."""

    lines: Mapping[int, Sequence[TruthLine]]
    bad_frames: Collection[int]
    class_names: tuple[str, ...]


def read_sequence(root: Path, name: str, rules: Rules) -> TrackedSequence:
    """Read the frames of a sequence that can be used; none, with a finding, if the sequence cannot."""
    log = _Log(file_of(root, name, GROUND_TRUTH), [])
    info = read_info(root, name, log.findings)
    folder = file_of(root, name, info.image_folder)
    names = find_frames(root, folder, log.findings)
    if not names and not has_error(log.findings):
        log.findings.append(Finding(folder, "frames-missing"))
    unusable = has_error(log.findings)
    truth = _read_truth(root, name, log)
    if unusable or truth is None:
        return TrackedSequence(name, info, [], (), log.findings, log.numbers)
    log.findings += _notes(file_of(root, name, INFO), info, names)
    for number in sorted(truth.lines.keys() - names.keys()):
        note = f"frame {number} has boxes, and no image in {folder}"
        log.add("frame-missing", truth.lines[number][0].line, len(truth.lines[number]), note=note)
    frames = [_read_frame(root, file, number, truth, rules, log) for number, file in names.items()]
    usable = [*_of_one_size([frame for frame in frames if frame], info, log)]
    log.add_counts()
    if rules.first_pixel == 1:
        log.add_origin(has_labels=(root / file_of(root, name, LABELS)).is_file())
    return TrackedSequence(name, info, usable, truth.class_names, log.findings, log.numbers)


def _read_truth(root: Path, name: str, log: _Log) -> _Truth | None:
    """Read a gt.txt; None, with a finding, if it or the frame of one of its lines cannot be read."""
    lines, bad = defaultdict[int, list[TruthLine]](list), set[int]()
    labels = root / file_of(root, name, LABELS)
    class_names = read_labels(labels)
    try:
        for each in read_truth(root / log.file, class_names, has_labels=labels.is_file()):
            if isinstance(each, TruthLine):
                lines[each.frame].append(each)
            else:
                log.add(each.kind, each.line, each.text, note=each.note)
                bad.add(each.frame)
    except FileNotFoundError:
        log.findings.append(Finding(log.file, "ground-truth-missing"))
    except (OSError, UnicodeDecodeError) as error:
        log.findings.append(Finding(log.file, "label-unreadable", note=f"cannot be read: {error}"))
        bad.add(NO_FRAME)
    return None if NO_FRAME in bad else _Truth(lines, bad, class_names)


def _notes(file: str, info: SequenceInfo, names: Mapping[int, str]) -> Iterator[Finding]:
    missing = [*missing_numbers(names, info.frames)]
    if missing:
        note = f"{counted(len(missing), 'frame')} have no image, the first is frame {missing[0]}"
        yield Finding(file, "frame-gap", before=len(missing), note=note, count=len(missing))


def _read_frame(root: Path, name: str, number: int, truth: _Truth, rules: Rules, log: _Log) -> TrackedFrame | None:
    """Read a frame; None, with a finding, if it or one of its lines cannot be used."""
    lines, before = truth.lines.get(number, ()), len(log.findings)
    try:
        header = read_image_header(root / name)
    except ImageError as error:
        log.findings.append(Finding(name, error.kind, note=str(error)))
    else:
        log.findings += header_findings(name, name, header)
        boxes = [*_boxes(lines, (header.height, header.width), rules, log)]
        log.numbers.add([line.edges for line in lines], (), (header.height, header.width))
    if number in truth.bad_frames or has_error(log.findings[before:]):
        if lines:
            log.findings.append(Finding(name, "boxes-without-image", before=len(lines), count=len(lines)))
        return None
    return TrackedFrame(number, name, header, boxes)


def _boxes(lines: Iterable[TruthLine], size: tuple[int, int], rules: Rules, log: _Log) -> Iterator[TrackedBox]:
    """Yield the boxes to keep of a frame of size (H, W)."""
    seen = set[int | None]()
    for each in lines:
        name = each.class_name
        if rules.classes is not None and name not in rules.classes:
            log.not_listed[name] += 1
        elif each.is_ignored and rules.ignored == "drop":
            log.ignored += 1
        elif each.track in seen and each.track is not None:
            log.add("track-repeated", each.line, each.track)
        else:
            seen.add(each.track)
            log.no_track += each.track is None
            log.first_edge = min(log.first_edge, *each.edges[:2])
            log.below_one += [each] if min(each.edges[:2]) < 1 else []
            left, top, right, bottom = (edge - rules.first_pixel for edge in each.edges)
            box, kind = cut_to_image((left, top, right, bottom), size)
            if kind:
                log.add(kind, each.line, [*each.edges], whole_numbers(box) if box else None)
            if box:
                yield TrackedBox(name, each.track, box, each.visibility, each.is_ignored and rules.ignored == "crowd")


def _of_one_size(frames: Sequence[TrackedFrame], info: SequenceInfo, log: _Log) -> Iterator[TrackedFrame]:
    """Yield the frames that have the size of the first one."""
    sizes = [(frame.header.width, frame.header.height) for frame in frames]
    for frame, size in zip(frames, sizes, strict=True):
        if size == sizes[0]:
            yield frame
        else:
            note = f"has {size[0]} x {size[1]} pixels, the sequence's first frame {sizes[0][0]} x {sizes[0][1]}"
            log.findings.append(Finding(frame.name, "frame-size", note=note))
    if frames and info.size and info.size != sizes[0]:
        log.findings.append(Finding(log.file, "size-conflict", before=[*info.size], after=[*sizes[0]]))
