"""One Pascal VOC pair, an XML and its image, into boxes by the numbered decisions of the README."""

from __future__ import annotations

import os
from array import array
from collections import Counter
from dataclasses import dataclass
from typing import Literal, NamedTuple

from detaug.converters.coco.writer import whole
from detaug.converters.conversion.choices import OnError, check_choice
from detaug.converters.conversion.images import header_findings
from detaug.converters.files.image_headers import ImageError, ImageHeader, read_image_header
from detaug.converters.files.paths import folded, stem_of
from detaug.converters.findings.finding import Finding
from detaug.converters.voc.files import Folders, Pair
from detaug.converters.voc.xml import VocAnnotation, VocObject, XmlError, read_voc_xml

Origin = Literal["one", "zero"]
Difficult = Literal["keep", "crowd", "drop"]
Unlabelled = Literal["keep", "skip"]
Corners = tuple[float, float, float, float]

MIN_SIDE = 0.01  # pixels; a thinner box has no area that a detector could use
DIFFICULT, TRUNCATED, OCCLUDED = 1, 2, 4  # bits of Outcome.flags
_FLAGS = {"0": 0, "1": 1, "false": 0, "true": 1, "no": 0, "yes": 1, "": 0, "unspecified": 0}


@dataclass(frozen=True)
class VocRules:
    """How XML is read into boxes: the choices that voc_to_coco offers, checked."""

    origin: Origin = "one"
    difficult: Difficult = "keep"
    unlabelled: Unlabelled = "keep"
    on_error: OnError = "stop"
    classes: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        check_choice("origin", self.origin, Origin)
        check_choice("difficult", self.difficult, Difficult)
        check_choice("unlabelled", self.unlabelled, Unlabelled)
        check_choice("on_error", self.on_error, OnError)
        if self.classes is not None:
            _check_classes(self.classes)


def _check_classes(classes: tuple[str, ...]) -> None:
    if not classes:
        raise ValueError("classes must name at least one class, got none; leave it out to take all of them")
    for name, count in Counter(classes).items():
        if not name or count > 1:
            raise ValueError(f"classes must be different names that are not empty, got {name!r} {count} times")


class Outcome(NamedTuple):
    """One pair, read: plain columns, since a data set has a hundred thousand of these.

    image is None where it is still to be found by <filename>. xywh: four numbers a box, pixels, COCO's order.
    fingerprint: the same for images with the same bytes, and for few others.
    """

    xml: str | None
    image: str | None
    filename: str = ""
    width: int = 0
    height: int = 0
    fingerprint: tuple[int, int] = (0, 0)
    names: tuple[str, ...] = ()
    xywh: array[float] = array("d")
    flags: bytes = b""
    poses: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def failed(self) -> bool:
        return any(finding.effect == "error" for finding in self.findings)


class _Log:
    """The findings of one file."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.findings: list[Finding] = []

    def add(self, kind: str, item: VocObject | None = None, before: object = None, after: object = None) -> None:
        index, line = (item.object_index, item.line) if item else (None, None)
        self.findings.append(Finding(self.file, kind, index, line, before, after))


def read_pair(pair: Pair, folders: Folders, rules: VocRules) -> Outcome:
    """Read one XML and the header of its image. What is wrong with them is in the outcome's findings."""
    annotation = None
    if pair.xml is not None:
        try:
            annotation = read_voc_xml(os.path.join(folders.annotations, pair.xml))
        except XmlError as error:
            return _unusable_xml(pair, error, folders)
        if not pair.images:
            return Outcome(pair.xml, None, annotation.filename)
    return _read_image(pair, annotation, folders, rules)


def _unusable_xml(pair: Pair, error: XmlError, folders: Folders) -> Outcome:
    file = folders.xml_prefix + (pair.xml or "")
    finding = Finding(file, error.kind, error.object_index, error.line, error.before, note=str(error))
    return Outcome(pair.xml, pair.images[0] if pair.images else "", findings=(finding,))


def _read_image(pair: Pair, annotation: VocAnnotation | None, folders: Folders, rules: VocRules) -> Outcome:
    image = _choose_image(pair.images, annotation)
    file = folders.image_prefix + image
    try:
        header = read_image_header(os.path.join(folders.images, image))
        image.encode()
    except ImageError as error:
        return Outcome(pair.xml, image, findings=(Finding(file, error.kind, note=str(error)),))
    except UnicodeEncodeError:
        return Outcome(pair.xml, image, findings=(Finding(file, "file-name-not-utf8"),))
    findings = [*header_findings(image, file, header)]
    outcome = Outcome(pair.xml, image, "", header.width, header.height, (header.file_bytes, header.head_crc))
    if annotation is None:
        findings.append(Finding(file, "unlabelled-kept" if rules.unlabelled == "keep" else "unlabelled-skipped"))
        return outcome._replace(findings=tuple(findings))
    log = _Log(folders.xml_prefix + (pair.xml or ""))
    _compare_names(pair, image, annotation, log)
    _compare_sizes(annotation, header, log)
    outcome = _with_boxes(outcome, annotation, rules, log)
    return outcome._replace(findings=(*findings, *log.findings))


def _choose_image(candidates: tuple[str, ...], annotation: VocAnnotation | None) -> str:
    """Among images with one stem, the one that <filename> names, else the first."""
    meant = _last_part(annotation.filename) if annotation else ""
    return next((image for image in candidates if _last_part(image) == meant), candidates[0])


def _last_part(path: str) -> str:
    return path.strip().replace("\\", "/").rpartition("/")[2]


def _compare_names(pair: Pair, image: str, annotation: VocAnnotation, log: _Log) -> None:
    meant, name = folded(annotation.filename.strip()), folded(_last_part(image))
    if pair.rank == 3:
        log.add("filename-used", before=annotation.filename, after=image)
    elif meant and meant not in (name, stem_of(name)):
        log.add("filename-differs", before=annotation.filename, after=image)
    if pair.rank == 2:
        log.add("image-elsewhere", before=pair.xml, after=image)
    if len(pair.images) > 1:
        log.add("image-ambiguous", before=list(pair.images), after=image)


def _compare_sizes(annotation: VocAnnotation, header: ImageHeader, log: _Log) -> None:
    """Decision 2: the image file is the truth."""
    shown = (header.width, header.height)
    if annotation.size is None:
        log.add("size-missing", after=list(shown))
    elif annotation.size != shown:
        kind = "size-unrotated" if annotation.size == header.stored_size else "size-conflict"
        log.add(kind, before=[whole(side) for side in annotation.size], after=list(shown))


def _with_boxes(outcome: Outcome, annotation: VocAnnotation, rules: VocRules, log: _Log) -> Outcome:
    names, xywh, flags, poses = [], array("d"), bytearray(), []
    seen = set()
    for item in annotation.objects:
        name, bits = _class_name(item, log), _flag_bits(item, log)
        if not _is_wanted(item, name, bits, rules, log):
            continue
        box = _checked_box(item, (outcome.height, outcome.width), rules, log)
        if box is None:
            continue
        if (name, box) in seen:
            log.add("box-repeated", item, _before(item), _after(box))
        seen.add((name, box))
        names.append(name)
        xywh.extend(box)
        flags.append(bits)
        poses.append(" ".join((item.pose or "").split()) or "Unspecified")
    return outcome._replace(names=tuple(names), xywh=xywh, flags=bytes(flags), poses=tuple(poses))


def _class_name(item: VocObject, log: _Log) -> str:
    name = " ".join(item.name.split())
    if name != item.name:
        log.add("name-spaces", item, item.name, name)
    return name


def _flag_bits(item: VocObject, log: _Log) -> int:
    bits = 0
    for bit, text in ((DIFFICULT, item.difficult), (TRUNCATED, item.truncated), (OCCLUDED, item.occluded)):
        value = 0 if text is None else _FLAGS.get(text.strip().lower())
        if value is None:
            log.add("flag-invalid", item, text, 0)
        elif value:
            bits |= bit
    return bits


def _is_wanted(item: VocObject, name: str, bits: int, rules: VocRules, log: _Log) -> bool:
    """Whether the classes take the object in, and decision 5."""
    if rules.classes is not None and name not in rules.classes:
        log.add("class-not-listed", item, name)
        return False
    if bits & DIFFICULT and rules.difficult == "drop":
        log.add("difficult-dropped", item, _before(item))
        return False
    if bits & DIFFICULT and rules.difficult == "crowd":
        log.add("difficult-crowd", item)
    return True


def _checked_box(item: VocObject, size: tuple[int, int], rules: VocRules, log: _Log) -> Corners | None:
    box, kinds = place_box(item.corners, rules.origin, size)
    for kind in kinds:
        log.add(kind, item, _before(item), box and _after(box))
    if rules.origin == "one" and 0 in item.corners:
        log.add("coordinate-zero", item, _before(item))
    return box


def _before(item: VocObject) -> list[float]:
    return [whole(value) for value in item.corners]


def _after(box: Corners) -> list[float]:
    return [whole(value) for value in box]


def place_box(corners: Corners, origin: Origin, size: tuple[int, int]) -> tuple[Corners | None, tuple[str, ...]]:
    """VOC's (xmin, ymin, xmax, ymax) as COCO's (x, y, width, height) inside an image of size (H, W); pixels.

    Decisions 1 and 7. Also the kinds of findings that it makes; the box is None where nothing is left of it.
    """
    xmin, ymin, xmax, ymax = corners
    height, width = size
    kinds = []
    if xmin > xmax or ymin > ymax:
        kinds.append("box-reversed")
        xmin, xmax, ymin, ymax = min(xmin, xmax), max(xmin, xmax), min(ymin, ymax), max(ymin, ymax)
    first = 1 if origin == "one" else 0
    edges = (xmin - first, ymin - first, xmax, ymax)
    left, top, right, bottom = max(edges[0], 0), max(edges[1], 0), min(xmax, width), min(ymax, height)
    if right - left < MIN_SIDE or bottom - top < MIN_SIDE:
        return None, (*kinds, "box-outside" if _is_outside(edges, size) else "box-empty")
    if (left, top, right, bottom) != edges:
        kinds.append("box-clipped")
    return (left, top, right - left, bottom - top), tuple(kinds)


def _is_outside(edges: Corners, size: tuple[int, int]) -> bool:
    left, top, right, bottom = edges
    is_thin = right - left < MIN_SIDE or bottom - top < MIN_SIDE
    return not is_thin or left >= size[1] or top >= size[0] or right <= 0 or bottom <= 0
