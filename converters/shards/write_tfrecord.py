"""TFRecord shards with TensorFlow's object-detection features, and DALI's index.

A record is its length in 8 bytes, their masked CRC-32C, the bytes of a tf.train.Example, and their masked CRC-32C.
An Example is written here as protobuf does, with the features in the order of their names, around an image that is
not in memory yet.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache

from detaug.converters.shards.layout import Sample, ShardFormat, Source, masked_crc
from detaug.errors import ConversionError

_IMAGE = "image/encoded"
_FORMATS = {"jpg": b"jpeg", "jpe": b"jpeg", "jfif": b"jpeg", "tif": b"tiff"}
"""TensorFlow's names of formats, where they are not the extension."""


def _sample(source: Source) -> Sample:
    features = _features(source)
    earlier = b"".join(_entry(name, features[name]) for name in sorted(features) if name < _IMAGE)
    later = b"".join(_entry(name, features[name]) for name in sorted(features) if name > _IMAGE)
    around = earlier + _image_head(source.image_bytes)
    around = _head(1, len(around) + source.image_bytes + len(later)) + around  # Example.features
    length = struct.pack("<Q", len(around) + source.image_bytes + len(later))
    return Sample(source.file, source.image_bytes, length + masked_crc(length) + around, later, True, "")


def _features(source: Source) -> dict[str, bytes]:
    """Return the features but the image: name -> a serialised Feature."""
    rows, size = source.annotations, (source.width, source.height, source.width, source.height)
    boxes = [[value / side for value, side in zip(box, size, strict=True)] for box in source.boxes]
    columns = {
        f"image/object/bbox/{name}": _floats([box[at] for box in boxes])
        for at, name in enumerate(("xmin", "ymin", "xmax", "ymax"))
    }
    return columns | {
        "image/coco": _bytes([source.text]),
        "image/filename": _bytes([_encoded(source.image["file_name"])]),
        "image/format": _bytes([_FORMATS.get(source.extension, source.extension.encode())]),
        "image/height": _ints([source.height]),
        "image/source_id": _bytes([b"%d" % source.image["id"]]),
        "image/width": _ints([source.width]),
        "image/object/area": _floats([_area(row, box) for row, box in zip(rows, source.boxes, strict=True)]),
        "image/object/class/label": _ints([row["category_id"] for row in rows]),
        "image/object/class/text": _bytes([_encoded(row["category"]) for row in rows]),
        "image/object/difficult": _ints([int(row.get("difficult") in (1, True)) for row in rows]),
        "image/object/is_crowd": _ints([int(row.get("iscrowd") == 1) for row in rows]),
    }


def _area(row: dict[str, object], box: Sequence[float]) -> float:
    """Return the annotation's area in pixels, such as its segmentation's, or its box's."""
    area = row.get("area")
    known = isinstance(area, int | float) and abs(area) < 1e30
    return float(area) if known else (box[2] - box[0]) * (box[3] - box[1])  # type: ignore[arg-type]


def _encoded(text: str) -> bytes:
    """Return text in UTF-8; file names that are not UTF-8 as on the disk."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise ConversionError(f"{text!r} cannot be UTF-8: it has half of a surrogate pair; correct it") from None


def _image_head(length: int) -> bytes:
    """Return the entry of image/encoded up to the image, which ends it."""
    head = b""
    for number in (1, 1, 2):  # BytesList.value, Feature.bytes_list, the value of an entry
        head = _head(number, len(head) + length) + head
    head = _field(1, _IMAGE.encode()) + head
    return _head(1, len(head) + length) + head


def _entry(name: str, feature: bytes) -> bytes:
    return _field(1, _key(name) + _field(2, feature))


@lru_cache
def _key(name: str) -> bytes:
    return _field(1, name.encode())


def _bytes(values: Iterable[bytes]) -> bytes:
    return _field(1, b"".join(_field(1, value) for value in values))


def _floats(values: Sequence[float]) -> bytes:
    return _field(2, _field(1, struct.pack(f"<{len(values)}f", *values)) if values else b"")


def _ints(values: Sequence[int]) -> bytes:
    return _field(3, _field(1, b"".join(map(_varint, values))) if values else b"")


def _field(number: int, payload: bytes) -> bytes:
    return _head(number, len(payload)) + payload


@lru_cache(1 << 14)
def _head(number: int, length: int) -> bytes:
    """Return the start of a field with a length: its number and wire type 2, then the length."""
    return bytes([number << 3 | 2]) + _varint(length)


@lru_cache(1 << 14)
def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _ending(_: int) -> int:
    return 0


def _index(samples: Sequence[tuple[int, Sample]]) -> str:
    """Return tfrecord2idx's index: offset and length of each record."""
    return "".join(f"{offset} {sample.length}\n" for offset, sample in samples)


TFRECORD = ShardFormat("tfrecord", _sample, _ending, _index)
