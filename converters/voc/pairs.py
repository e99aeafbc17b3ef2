"""Read one Pascal VOC pair, an XML and its image, into boxes by the numbered decisions of the design page."""

from __future__ import annotations

import os
from array import array
from collections import Counter
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from detaug.coco.classes_and_images import header_findings
from detaug.coco.rings import are_flat, cut_ring, keys_of_corners, keys_of_mask, keys_of_rings, points_of
from detaug.coco.writer import Box, whole
from detaug.converters.voc.folders import Folders
from detaug.converters.voc.masks import FOLDER, masks_of_objects, read_masks
from detaug.converters.voc.xml import CocoBox, Origin, VocAnnotation, VocObject, XmlError, read_voc_xml, to_coco_box
from detaug.files.image_headers import ImageError, ImageHeader, read_image_header
from detaug.files.matching import BY_FILENAME, OTHER_FOLDER, Pair
from detaug.files.paths import folded, last_part, stem_of
from detaug.files.text import is_utf8, joined_spaces
from detaug.findings.finding import Finding, has_error
from detaug.outputs.guards import OnError, check_choice, check_classes

Difficult = Literal["keep", "crowd", "drop"]
Unlabelled = Literal["keep", "skip"]

DIFFICULT, TRUNCATED, OCCLUDED = 1, 2, 4
"""Bits of PairResult.flags."""

_ROUNDING = 0.01  # pixels by which an outline may leave its image because of the decimals it is written with
_FLAGS = {"0": 0, "1": 1, "false": 0, "true": 1, "no": 0, "yes": 1, "": 0, "unspecified": 0}


@dataclass(frozen=True)
class VocRules:
    """The choices of voc_to_coco, checked."""

    origin: Origin = "one"
    difficult: Difficult = "keep"
    unlabelled: Unlabelled = "keep"
    on_error: OnError = "stop"
    classes: tuple[str, ...] | None = None
    masks: bool = False

    def __post_init__(self) -> None:
        check_choice("origin", self.origin, Origin)
        check_choice("difficult", self.difficult, Difficult)
        check_choice("unlabelled", self.unlabelled, Unlabelled)
        check_choice("on_error", self.on_error, OnError)
        check_classes(self.classes)


class PairResult(NamedTuple):
    """A pair as read, in plain columns, which are quick to store."""

    xml: str | None
    image: str | None
    """None while it is still to be found by <filename>."""
    filename: str = ""
    width: int = 0
    height: int = 0
    fingerprint: tuple[int, int] = (0, 0)
    names: tuple[str, ...] = ()
    """The class of each box."""
    xywh: array[float] = array("d")
    """Four numbers for each box, pixels, in COCO's order."""
    flags: bytes = b""
    poses: tuple[str, ...] = ()
    keys: tuple[dict[str, Any], ...] = ()
    """Further keys of the row of each box."""
    indices: tuple[int, ...] = ()
    """The position of each box among the objects of the XML."""
    findings: tuple[Finding, ...] = ()


@dataclass(slots=True, eq=False)
class StoredPair:
    """What stays in memory of a pair that was read, since a data set may have a million of them."""

    xml: str | None
    image: str | None
    """See PairResult."""
    rank: int
    """How well the image fits the XML: see matching."""
    start: int
    """Of the PairResult, where it is stored."""
    filename: str
    """"" for a pair that has its image."""
    findings: tuple[Finding, ...]

    @property
    def failed(self) -> bool:
        """Return whether the pair cannot be used."""
        return has_error(self.findings)


class _Log:
    """The findings about one file."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.findings: list[Finding] = []

    def add(self, kind: str, item: VocObject | None = None, before: object = None, after: object = None) -> None:
        index, line = (item.object_index, item.line) if item else (None, None)
        self.findings.append(Finding(self.file, kind, index, line, before, after))


def read_pair(pair: Pair, folders: Folders, rules: VocRules) -> PairResult:
    """Read one XML and the header of its image. Errors in them are findings of the result."""
    annotation = None
    if pair.label is not None:
        try:
            annotation = read_voc_xml(os.path.join(folders.annotations, pair.label))
        except XmlError as error:
            file = folders.xml_prefix + pair.label
            finding = Finding(file, error.kind, error.object_index, error.line, error.before, note=str(error))
            image = pair.images[0] if pair.images else None if error.filename else ""
            return PairResult(pair.label, image, error.filename, findings=(finding,))
        if not pair.images:
            return PairResult(pair.label, None, annotation.filename)
    return _read_image(pair, annotation, folders, rules)


def _read_image(pair: Pair, annotation: VocAnnotation | None, folders: Folders, rules: VocRules) -> PairResult:
    image = _choose_image(pair.images, annotation)
    file = folders.image_prefix + image
    if not is_utf8(image):
        return PairResult(pair.label, image, findings=(Finding(file, "file-name-not-utf8"),))
    try:
        header = read_image_header(os.path.join(folders.images, image))
    except ImageError as error:
        return PairResult(pair.label, image, findings=(Finding(file, error.kind, note=str(error)),))
    findings = [*header_findings(image, file, header)]
    result = PairResult(pair.label, image, "", header.width, header.height, header.fingerprint)
    if annotation is None:
        findings.append(Finding(file, "unlabelled-kept" if rules.unlabelled == "keep" else "unlabelled-skipped"))
        return result._replace(findings=tuple(findings))
    log = _Log(folders.xml_prefix + (pair.label or ""))
    _compare_names(pair, image, annotation, log)
    _compare_sizes(annotation, header, log)
    result = _with_boxes(result, annotation, rules, log)
    unread = Counter([*annotation.unread, *(tag for item in annotation.objects for tag in item.unread)])
    log.findings += [
        Finding(log.file, "element-unused", before=f"<{tag}>", count=unread[tag]) for tag in sorted(unread)
    ]
    if rules.masks:
        result = _with_masks(result, annotation, folders, rules, log)
    return result._replace(findings=(*findings, *log.findings))


def _choose_image(candidates: tuple[str, ...], annotation: VocAnnotation | None) -> str:
    """Return the image that <filename> names among images with one stem, else the first."""
    meant = last_part(annotation.filename) if annotation else ""
    return next((image for image in candidates if last_part(image) == meant), candidates[0])


def _compare_names(pair: Pair, image: str, annotation: VocAnnotation, log: _Log) -> None:
    meant, name = folded(annotation.filename.strip()), folded(last_part(image))
    if pair.rank == BY_FILENAME:
        log.add("filename-used", before=annotation.filename, after=image)
    elif meant and meant not in (name, stem_of(name)):
        log.add("filename-differs", before=annotation.filename, after=image)
    if pair.rank == OTHER_FOLDER:
        log.add("image-elsewhere", before=pair.label, after=image)
    if len(pair.images) > 1:
        log.add("image-ambiguous", before=list(pair.images), after=image)


def _compare_sizes(annotation: VocAnnotation, header: ImageHeader, log: _Log) -> None:
    """Note where <size> is not that of the image file, which counts (decision 2)."""
    displayed = (header.width, header.height)
    if annotation.size is None:
        log.add("size-missing", after=list(displayed))
    elif annotation.size != displayed:
        kind = "size-unrotated" if annotation.size == header.stored_size else "size-conflict"
        log.add(kind, before=[whole(side) for side in annotation.size], after=list(displayed))


def _with_boxes(result: PairResult, annotation: VocAnnotation, rules: VocRules, log: _Log) -> PairResult:
    names, xywh, flags, poses, keys = [], array("d"), bytearray(), [], []
    seen, indices = set(), []
    for item in annotation.objects:
        name, bits = _class_name(item, log), _flag_bits(item, log)
        if not _is_wanted(item, name, bits, rules, log):
            continue
        box = _checked_box(item, (result.height, result.width), rules, log)
        if box is None:
            continue
        if item.rotated and are_flat(item.rotated).any():
            log.add("box-empty", item, _numbers(item.rotated))
            continue
        if (name, box) in seen:
            log.add("box-repeated", item, _numbers(item.corners), _numbers(box))
        seen.add((name, box))
        names.append(name)
        xywh.extend(box)
        flags.append(bits)
        poses.append(joined_spaces(item.pose or "") or "Unspecified")
        corners = keys_of_corners(item.rotated) if item.rotated else {}
        keys.append(corners | _outline(item, result, rules, log))
        indices.append(item.object_index)
    return result._replace(
        names=tuple(names), xywh=xywh, flags=bytes(flags), poses=tuple(poses), keys=tuple(keys), indices=tuple(indices)
    )


def _outline(item: VocObject, result: PairResult, rules: VocRules, log: _Log) -> dict[str, Any]:
    """Return the keys of the <polygon> of an object, inside of the image; {} where it has none there."""
    first = 1 if rules.origin == "one" else 0
    rings = [points_of(ring) - first for ring in item.rings]
    inside = [cut for ring in rings if len(cut := cut_ring(ring, result.width, result.height)) > 2]
    sides = (result.width, result.height)
    if any(float(np.abs(ring - ring.clip(0, sides)).max()) > _ROUNDING for ring in rings):
        log.add("outline-cut", item)
    return keys_of_rings(inside) if inside else {}


def _with_masks(
    result: PairResult, annotation: VocAnnotation, folders: Folders, rules: VocRules, log: _Log
) -> PairResult:
    """Return the boxes with the masks of SegmentationObject, whose numbers count all objects of the XML."""
    name = f"{FOLDER}/{stem_of(result.image or '')}.png"
    size = result.height, result.width
    numbers = read_masks(os.path.join(folders.root, name), size)
    if isinstance(numbers, str):
        log.findings.append(Finding(name, "mask-unusable" if numbers else "mask-missing", note=numbers))
        return result
    boxes = {}
    for item in annotation.objects:
        box, _ = _box_of(item, size, rules)
        if box:
            boxes[item.object_index] = box
    masks, unmatched = masks_of_objects(numbers, boxes)
    for number in unmatched:
        log.findings.append(Finding(name, "mask-unmatched", before=number))
    keys = [
        before | (keys_of_mask(masks[index]) if index in masks else {})
        for before, index in zip(result.keys, result.indices, strict=True)
    ]
    for item in annotation.objects:
        if item.object_index in result.indices and item.object_index not in masks:
            log.add("mask-missing", item)
    return result._replace(keys=tuple(keys))


def _origin(item: VocObject, rules: VocRules) -> Origin:
    return "zero" if item.rotated else rules.origin  # roLabelImg's are continuous pixels


def _class_name(item: VocObject, log: _Log) -> str:
    name = joined_spaces(item.name)
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
    """Return whether the object's class is listed and difficult objects are not dropped (decision 5)."""
    if rules.classes is not None and name not in rules.classes:
        log.add("class-not-listed", item, name)
        return False
    if bits & DIFFICULT and rules.difficult == "drop":
        log.add("difficult-dropped", item, _numbers(item.corners))
        return False
    if bits & DIFFICULT and rules.difficult == "crowd":
        log.add("difficult-crowd", item)
    return True


def _box_of(item: VocObject, size: tuple[int, int], rules: VocRules) -> CocoBox:
    origin, (left, top, right, bottom) = _origin(item, rules), item.corners
    if origin == "one" and not item.has_box:  # an outline ends at its last point; a box includes its last pixel
        right, bottom = right - 1, bottom - 1
    return to_coco_box((left, top, right, bottom), origin, size)


def _checked_box(item: VocObject, size: tuple[int, int], rules: VocRules, log: _Log) -> Box | None:
    box, kinds = _box_of(item, size, rules)
    for kind in kinds:
        log.add(kind, item, _numbers(item.corners), box and _numbers(box))
    if _origin(item, rules) == "one" and 0 in item.corners:
        log.add("coordinate-zero", item, _numbers(item.corners))
    return box


def _numbers(values: tuple[float, ...]) -> list[float]:
    return [whole(value) for value in values]
