"""Read the samples of a TFRecord shard: TensorFlow's object-detection features, and plain classification.

The features are those of create_coco_tf_record.py and dataset_util.py:
https://github.com/tensorflow/models/tree/master/research/object_detection
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from detaug.coco.boxes import cut_to_image
from detaug.coco.writer import Box, whole, whole_numbers
from detaug.converters.shards.documents import ShardPlace, document_sample, parse_document
from detaug.converters.shards.example import FeatureKind, Values, WireError, parse_example, parse_feature
from detaug.converters.shards.samples import (
    Annotation,
    ClassLabel,
    Row,
    SampleError,
    Shard,
    ShardContent,
    ShardSample,
    check_header,
    check_size,
    file_name,
    noted,
    shifted,
)
from detaug.converters.shards.tfrecord import RawRecord, read_records
from detaug.errors import InputError
from detaug.files.image_file import load_crc32c
from detaug.files.image_headers import ImageHeader, parse_image_header

FEATURES = {
    "image": "image/encoded",
    "filename": "image/filename",
    "source_id": "image/source_id",
    "width": "image/width",
    "height": "image/height",
    "xmin": "image/object/bbox/xmin",
    "ymin": "image/object/bbox/ymin",
    "xmax": "image/object/bbox/xmax",
    "ymax": "image/object/bbox/ymax",
    "label": "image/object/class/label",
    "text": "image/object/class/text",
    "difficult": "image/object/difficult",
    "truncated": "image/object/truncated",
    "is_crowd": "image/object/is_crowd",
    "area": "image/object/area",
    "class_label": "image/class/label",
    "class_text": "image/class/text",
    "coco": "image/coco",
}
"""The names of the features that are read, by what they hold. image/coco is the JSON text of `detaug pack`."""

_CORNERS = ("xmin", "ymin", "xmax", "ymax")
_LABELS = frozenset((*_CORNERS, "label", "text", "class_label", "class_text", "coco"))
_REDUNDANT = frozenset(("image/format", "image/key/sha256", "image/colorspace", "image/channels"))
_LOW, _HIGH = -0.25, 1.25  # boxes of another resolution reach to 1.15; farther out, coordinates are not relative
_LARGEST_ID = 2**63 - 1


class TFRecordOptions(NamedTuple):
    """How the records are read."""

    features: Mapping[str, str]
    """The names of all features of FEATURES."""
    first_label: int
    """The number of the first class."""


def feature_names(changes: Mapping[str, str] | None) -> dict[str, str]:
    """Return FEATURES with other names for some. Raises InputError for a key that is not in it."""
    for key in changes or ():
        if key not in FEATURES:
            raise InputError(f"features must be among {', '.join(FEATURES)}, got {key!r}")
    return {**FEATURES, **(changes or {})}


def read_tfrecord(options: TFRecordOptions, shard: Shard) -> ShardContent:
    """Read all records of a shard. What cannot be used becomes a finding."""
    content = ShardContent(shard)
    with noted(content):
        for record in read_records(shard.path):
            where = f"record {record.number:,}"
            with noted(content, where):
                content.add(_sample(_Values(record, options), content, where))
    known = {*options.features.values(), *_REDUNDANT}
    for name, count in sorted(content.parts.items()):
        if name not in known:
            note = f"the feature {name}, in {count:,} records, has no place in the JSON file"
            content.note("element-unused", "", note, name, count=count)
    return content


def _not_an_example(error: WireError) -> SampleError:
    return SampleError("record-broken", f"is not a tf.train.Example: {error}")


def _not_relative(name: str, got: str, corner: float = math.inf) -> str:
    """Return the message about a corner that is not relative; those above 2 are taken to be pixels."""
    remedy = "; divide pixels by its size" if corner > 2 else ""
    return f"{name} must be relative to the image, floats from 0 to 1, got {got}{remedy}"


class _Values:
    """The features of one record. Methods raise SampleError for values of another type."""

    def __init__(self, record: RawRecord, options: TFRecordOptions) -> None:
        if not record.intact:
            raise SampleError("record-broken", "the checksum of its data is wrong")
        try:
            self.features = parse_example(record.data)
        except WireError as error:
            raise _not_an_example(error) from None
        self.record, self.options = record, options

    def _get(self, key: str, kind: FeatureKind) -> Values:
        name = self.options.features[key]
        span = self.features.get(name)
        if span is None:
            return ()
        try:
            actual, values = parse_feature(self.record.data, span)
        except WireError as error:
            raise _not_an_example(error) from None
        if actual == "int" and key in _CORNERS and values:
            raise SampleError("row-not-relative", _not_relative(name, f"whole numbers such as {values[0]}"))
        if actual != kind and values:
            raise SampleError("sample-invalid", f"{name} must be a list of {kind}, got {actual}")
        return values

    def floats(self, key: str) -> Sequence[float]:
        """Return a list of floats; none where the record has no such feature."""
        return self._get(key, "float")

    def ints(self, key: str) -> Sequence[int]:
        """Return a list of integers."""
        return self._get(key, "int")

    def number(self, key: str) -> int | None:
        """Return an integer; None where the record has none."""
        values = self.ints(key)
        return values[0] if values else None

    def texts(self, key: str) -> list[str]:
        """Return a list of texts."""
        data = self.record.data
        try:
            return [data[start:end].decode() for start, end in self._get(key, "bytes")]
        except UnicodeDecodeError:
            raise SampleError("sample-invalid", f"{self.options.features[key]} is not UTF-8 text") from None

    def text(self, key: str) -> str:
        """Return a text; "" where the record has none."""
        texts = self.texts(key)
        return texts[0] if texts else ""

    def image(self) -> tuple[int, bytes]:
        """Return the encoded image and its position in the record."""
        name, spans = self.options.features["image"], self._get("image", "bytes")
        if not spans:
            names = ", ".join(sorted(self.features)[:20])
            remedy = f"it has {names or 'none'}; name it with convert-tfrecord --feature image=NAME"
            raise SampleError("sample-no-image", f"has no feature {name}; {remedy}")
        if len(spans) > 1:
            raise SampleError("sample-no-image", f"{name} must be one image, got {len(spans)}")
        start, end = spans[0]
        return start, self.record.data[start:end]


def _sample(values: _Values, content: ShardContent, where: str) -> ShardSample:
    names = values.options.features
    content.parts.update(values.features.keys())
    content.labeled = content.labeled or any(names[key] in values.features for key in _LABELS)
    start, image = values.image()
    header = parse_image_header(io.BytesIO(image))
    check_header(header, content, where)
    offset, crc32c = values.record.offset + start, load_crc32c()(image)
    if document := values.text("coco"):
        place = ShardPlace(content, where, offset, len(image), crc32c, _name(values, header, content, where))
        parsed = parse_document(document.encode())
        content.dataset = content.dataset or parsed.dataset
        return document_sample(parsed, header, place)
    check_size(values.number("width"), values.number("height"), header, content, where)
    label = _image_label(values)
    annotations = _annotations(values, header, label, content, where)
    name = _name(values, header, content, where)
    return ShardSample(name, offset, len(image), crc32c, header, _image_keys(values, name), label, annotations)


def _name(values: _Values, header: ImageHeader, content: ShardContent, where: str) -> str:
    stem = content.shard.name.rpartition("/")[2].partition(".")[0]
    return file_name(values.text("filename"), f"{stem}-{values.record.number:06}", header, content, where)


def _image_keys(values: _Values, name: str) -> Row:
    """Return source_id as an id where it is a whole number, as in TensorFlow's COCO; else as a text."""
    text = values.text("source_id")
    if text.isdecimal() and text == str(int(text)) and int(text) <= _LARGEST_ID:
        return {"id": int(text)}
    return {"source_id": text} if text not in ("", name) else {}


def _image_label(values: _Values) -> ClassLabel | None:
    numbers, names = values.ints("class_label"), values.texts("class_text")
    if len(numbers) > 1 or len(names) > 1:
        raise SampleError("sample-invalid", f"an image must have one class, got {max(len(numbers), len(names))}")
    if not numbers and not any(names):
        return None
    return _label(numbers[0] if numbers else None, names[0] if names else "", values.options.first_label)


def _annotations(
    values: _Values, header: ImageHeader, image_label: ClassLabel | None, content: ShardContent, where: str
) -> list[Annotation]:
    columns = [values.floats(key) for key in _CORNERS]
    count = max(map(len, columns))
    for key, column in zip(_CORNERS, columns, strict=True):
        _check_length(values, key, len(column), count)
    labels = _labels(values, count, image_label)
    more = _attributes(values, count)
    annotations, boxes = [], _RecordBoxes(values, header, content, where)
    for index, corners in enumerate(zip(*columns, strict=True)):
        box = boxes.box(corners, index)
        if box is not None:
            annotations.append(Annotation(labels[index], _row(box, more, index)))
    return annotations


def _check_length(values: _Values, key: str, length: int, count: int) -> None:
    if length != count:
        name = values.options.features[key]
        raise SampleError("sample-invalid", f"{name} must have a value for each of the {count} objects, got {length}")


def _labels(values: _Values, count: int, image_label: ClassLabel | None) -> Sequence[ClassLabel]:
    """Return the class of each object. Without any, they are of the image's class, as in ImageNet's records."""
    numbers, names = values.ints("label"), values.texts("text")
    if count and not numbers and not names:
        if image_label is None:
            raise SampleError("sample-invalid", f"has boxes and no {values.options.features['label']}")
        return [image_label] * count
    for key, column in (("label", numbers), ("text", names)):
        if column or count == 0:
            _check_length(values, key, len(column), count)
    first = values.options.first_label
    if not numbers and not all(names):
        raise SampleError("sample-invalid", f"{values.options.features['text']} has an empty name")
    label_ids: Sequence[int | None] = numbers or [None] * count
    return [_label(number, name, first) for number, name in zip(label_ids, names or [""] * count, strict=True)]


@lru_cache(1 << 12)
def _label(number: int | None, name: str, first_label: int) -> ClassLabel:
    return ClassLabel(None if number is None else shifted(number, first_label), name or None)


def _attributes(values: _Values, count: int) -> dict[str, Sequence[float]]:
    """Return the further columns that the record has, by their keys in the JSON file."""
    columns = {
        "difficult": values.ints("difficult"),
        "truncated": values.ints("truncated"),
        "iscrowd": values.ints("is_crowd"),
        "area": values.floats("area"),
    }
    if not any(columns.values()):
        return {}
    for key, column in columns.items():
        if column:
            _check_length(values, "is_crowd" if key == "iscrowd" else key, len(column), count)
    for crowd in columns["iscrowd"]:
        if crowd not in (0, 1):
            raise SampleError("sample-invalid", f"{values.options.features['is_crowd']} must be 0 or 1, got {crowd}")
    return {key: column for key, column in columns.items() if column}


def _row(box: Box, more: Mapping[str, Sequence[float]], index: int) -> Row:
    row: Row = {"bbox": whole_numbers(box), "area": whole(box[2] * box[3]), "iscrowd": 0}
    for key, column in more.items():
        if key != "area":
            row[key] = column[index]
        elif column[index] > 0 and math.isfinite(column[index]):
            row[key] = whole(round(column[index], 3))
    return row


class _RecordBoxes(NamedTuple):
    """Converts the boxes of one record."""

    values: _Values
    header: ImageHeader
    content: ShardContent
    where: str

    def box(self, corners: Sequence[float], index: int) -> Box | None:
        """Return COCO's box in pixels of relative corners; None, with a finding, where nothing is in the image."""
        left, top, right, bottom = corners
        if not (_LOW <= left <= _HIGH and _LOW <= top <= _HIGH and _LOW <= right <= _HIGH and _LOW <= bottom <= _HIGH):
            wrong = (
                (key, corner) for key, corner in zip(_CORNERS, corners, strict=True) if not _LOW <= corner <= _HIGH
            )
            key, corner = max(wrong, key=lambda pair: abs(pair[1]))
            raise SampleError(
                "row-not-relative", _not_relative(self.values.options.features[key], f"{corner:g}", corner)
            )
        if left > right or top > bottom:
            left, right = sorted((left, right))
            top, bottom = sorted((top, bottom))
            self._note("box-reversed", corners, index)
        width, height = self.header.width, self.header.height
        box, kind = cut_to_image((left * width, top * height, right * width, bottom * height), (height, width))
        if kind:
            self._note(kind, corners, index, box)
        return box

    def _note(self, kind: str, corners: Sequence[float], index: int, box: Box | None = None) -> None:
        after = None if box is None else whole_numbers(box)
        self.content.note(kind, f"{self.where} object {index}", before=[*corners], after=after)
