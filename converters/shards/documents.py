"""Read the JSON text of a sample: the image's keys and its annotations in COCO's form.

Two forms are read. That of `detaug pack` is in pack.py: {"image": {...}, "annotations": [...], "dataset": {...}}; it
comes back unchanged. In any other, the image's keys are beside "annotations".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn

from detaug.coco.boxes import box_of_shape, cut_to_image
from detaug.coco.writer import json_text, whole, whole_numbers
from detaug.converters.shards.samples import (
    Annotation,
    ClassLabel,
    Row,
    SampleError,
    ShardContent,
    ShardSample,
    check_size,
    file_name,
)
from detaug.files.image_headers import ImageHeader
from detaug.files.text import unique_keys
from detaug.findings.finding import shown

_REPLACED = frozenset(("id", "image_id", "category_id", "bbox"))
_NUMBERS = frozenset((int, float))
_LARGEST_ID = 2**63 - 1
_LARGEST_COORDINATE = 1e15
_TOLERANCE = 1.0  # pixels past the image that CocoReader accepts and cuts in training
_PLACE = ("id", "file_name", "width", "height", "shard", "offset", "length", "crc32c", "category_id")


class Document(NamedTuple):
    """The JSON text of a sample, parsed."""

    image: Row
    annotations: list[Any] | None
    """None where the text has none."""
    dataset: Row | None
    packed: bool
    """Whether the text has the form of `detaug pack`."""
    class_names: Mapping[int, str] = {}
    """By category_id, as far as the text has them in a list of categories."""


class ShardPlace(NamedTuple):
    """Where an image is: its shard, the name of its record there, its bytes and their CRC-32C, and the file name it
    would have.
    """

    content: ShardContent
    where: str
    offset: int
    length: int
    crc32c: int
    name: str


def parse_document(text: bytes) -> Document:
    """Parse the JSON text of a sample. Raises SampleError."""
    try:
        document = _decode(text.decode("utf-8-sig"))
        if isinstance(document, dict) and "dataset" in document:
            json_text(document["dataset"])  # what is nested too deep to be written
    except (ValueError, RecursionError) as error:
        raise _invalid(f"not readable as JSON ({error})") from None
    if not isinstance(document, dict):
        raise _invalid(f"its JSON file must be an object {{...}}, got {shown(document)}")
    packed = isinstance(document.get("image"), dict)
    image = document["image"] if packed else document.copy()
    annotations, dataset = document.get("annotations"), document.get("dataset") if packed else None
    class_names = {} if packed else _class_names(image.get("categories"))
    if not packed:
        image.pop("annotations", None)
    if class_names:
        image.pop("categories")
    # Without the key a sample may have a class as a whole, or none; null says neither.
    is_needed = packed or "annotations" in document
    if not isinstance(annotations, list if is_needed else list | None):
        raise _invalid(f"annotations must be a list, [] for an image without objects, got {shown(annotations)}")
    if annotations is None and (key := next((key for key, value in image.items() if _are_objects(value)), None)):
        raise _invalid(f"annotations must be the list of objects, which is called {shown(key)} here; rename it")
    return Document(image, annotations, dataset if isinstance(dataset, dict) else None, packed, class_names)


def _class_names(categories: Any) -> dict[int, str]:
    """Return the class names of COCO's categories; {} for anything else, which is a column of the image."""
    entries = categories if isinstance(categories, list) else []
    pairs: list[tuple[Any, Any]] = [(row.get("id"), row.get("name")) for row in entries if isinstance(row, dict)]
    right = all(_is_id(number) and isinstance(name, str) and name.strip() for number, name in pairs)
    return dict(pairs) if right and len(pairs) == len(entries) == len(dict(pairs)) else {}


_BOXES = frozenset(("bbox", "bboxes", "box", "boxes", "segmentation", "keypoints"))


def _are_objects(value: Any) -> bool:
    """Return whether a value is the objects of an image, by another name than annotations: a list, or lists by key."""
    entries = value if isinstance(value, list) else [value]
    return any(isinstance(entry, dict) and not _BOXES.isdisjoint(entry) for entry in entries)


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"JSON has no {constant}")


_decode = json.JSONDecoder(parse_constant=_refuse_constant, object_pairs_hook=unique_keys).decode


def _invalid(message: str) -> SampleError:
    return SampleError("sample-invalid", message)


def document_sample(document: Document, header: ImageHeader, place: ShardPlace) -> ShardSample:
    """Return the sample of a document and the image's header. Raises SampleError."""
    image = document.image
    wanted = image.get("file_name")
    name = file_name(wanted, place.name, header, place.content, place.where) if isinstance(wanted, str) else place.name
    check_size(image.get("width"), image.get("height"), header, place.content, place.where)
    more = {key: value for key, value in image.items() if key not in _PLACE}
    label = _label({"category_id": image.get("category_id")} if document.packed else image, more, document.class_names)
    if _is_id(image.get("id")):
        more["id"] = image["id"]
    elif image.get("id") is not None:
        more.setdefault("source_id", image["id"])  # some datasets have text there
    rows = [_annotation(row, document, header, place) for row in document.annotations or ()]
    annotations = [row for row in rows if row is not None]
    if not document.packed:  # by detaug, from a JSON file that is checked
        xywh = [row["bbox"] for row in document.annotations or () if row.get("bbox")]
        boxes = [(x, y, x + width, y + height) for x, y, width, height in xywh]
        place.content.numbers.add(boxes, (), (header.height, header.width))
    return ShardSample(name, place.offset, place.length, place.crc32c, header, more, label, annotations)


def _is_id(value: object) -> bool:
    return type(value) is int and 0 <= value <= _LARGEST_ID


def _label(row: Row, more: Row, class_names: Mapping[int, str]) -> ClassLabel | None:
    """Return the class of a row, and take its name out of `more`; None where the row has no class."""
    number, name = row.get("category_id"), row.get("category")
    if number is not None and not _is_id(number):
        raise _invalid(f"category_id must be a whole number from 0 to 2^63 - 1, got {shown(number)}")
    if isinstance(name, str) and name.strip():
        more.pop("category")
    elif name is not None:
        raise _invalid(f"category must be a class name, got {shown(name)}; a number belongs into category_id")
    if name is None and number is not None:
        name = class_names.get(number)
    return None if number is None and name is None else ClassLabel(number, name)


def _annotation(row: Any, document: Document, header: ImageHeader, place: ShardPlace) -> Annotation | None:
    """Return one entry of annotations; None, with a finding, where its box is outside or has no area."""
    if not isinstance(row, dict):
        raise _invalid(f"annotations must be objects {{...}}, got {shown(row)}")
    label = _label(row, row, document.class_names)
    if label is None:
        raise _invalid("an annotation has neither category_id nor category")
    bbox = row.get("bbox")
    if bbox is None:
        bbox = box_of_shape(row, (header.height, header.width))
    box = _box(bbox, header, place)
    if box is None:
        return None
    kept: Row = {"bbox": box}
    if not document.packed or box is not bbox:
        kept["area"], kept["iscrowd"] = _area_and_crowd(row, box, box is bbox)
    for key, value in row.items():
        if key not in _REPLACED and key not in kept:
            kept[key] = value
    if _is_id(row.get("id")):
        kept["id"] = row["id"]
    return Annotation(label, kept)


def _box(bbox: Any, header: ImageHeader, place: ShardPlace) -> list[Any] | None:
    """Return a bbox as it is where CocoReader accepts it, else what is left of it inside the image."""
    if not (isinstance(bbox, list) and len(bbox) == 4 and _NUMBERS.issuperset(map(type, bbox))):
        raise _invalid(f"bbox must be four finite numbers [x, y, width, height], got {shown(bbox)}")
    x, y, width, height = bbox
    if 0 <= x <= header.width - width and 0 <= y <= header.height - height and width >= 1 and height >= 1:
        return bbox
    if not abs(x) + abs(y) + abs(width) + abs(height) < _LARGEST_COORDINATE:
        raise _invalid(f"bbox must be four finite numbers [x, y, width, height], got {shown(bbox)}")
    past = max(-x, -y, x + width - header.width, y + height - header.height)
    if past <= 0 and width >= 1 and height >= 1:
        return bbox
    box, kind = cut_to_image((x, y, x + width, y + height), (header.height, header.width))
    if box is not None and past <= _TOLERANCE:
        return bbox
    after = None if box is None else whole_numbers(box)
    place.content.note(kind, place.where, before=bbox, after=after)
    return after


def _area_and_crowd(row: Row, box: list[Any], unchanged: bool) -> tuple[Any, int]:
    """Return area and iscrowd, which pycocotools needs."""
    area, crowd = row.get("area"), row.get("iscrowd", 0)
    if crowd not in (0, 1):
        raise _invalid(f"iscrowd must be 0 or 1, got {shown(crowd)}")
    if not (unchanged and type(area) in _NUMBERS and abs(area or 0) < _LARGEST_COORDINATE):
        area = whole(box[2] * box[3])
    return area, int(crowd)
