"""The shards that `detaug pack` writes, each with DALI's index: tar files of WebDataset, and TFRecord.

In a tar, the members of a sample have one key. A TFRecord's record is its length in 8 bytes, their masked CRC-32C, the
bytes of a tf.train.Example with TensorFlow's object-detection features, and their masked CRC-32C. An Example is written
here as protobuf does, with the features in the order of their names, around an image that is not in memory yet.
"""

from __future__ import annotations

import struct
import tarfile
from collections.abc import Iterable, Sequence
from functools import lru_cache

from detaug.converters.shards.layout import PackedSample, SampleContent, ShardFormat, masked_crc
from detaug.converters.shards.tar import BLOCK
from detaug.errors import ConversionError
from detaug.findings.finding import shown

_FIELDS = struct.Struct("100s8s8s8s12s12s8s1s100s6s2s247x")


def _tar_sample(source: SampleContent) -> PackedSample:
    names = [f"{source.key}.{source.extension}", f"{source.key}.json"]
    text_header = _header(names[1], len(source.text))
    after = _padding(source.image_bytes) + text_header + source.text + _padding(len(source.text))
    members = f"{source.extension} {{}} {source.image_bytes} {names[0]} json {{}} {len(source.text)} {names[1]}"
    return PackedSample(source.file, source.image_bytes, _header(names[0], source.image_bytes), after, False, members)


def _header(name: str, length: int) -> bytes:
    """Return the header of a member, in POSIX ustar: mode 644, everything else 0, so that bytes repeat.

    The same as tarfile's, which takes ten times as long. name: ASCII, at most 100 bytes.
    """
    fields = (name.encode("ascii"), b"0000644", b"0000000", b"0000000", b"%011o" % length, b"00000000000")
    head = _FIELDS.pack(*fields, b" " * 8, b"0", b"", b"ustar", b"00")
    return head[:148] + b"%06o\0 " % sum(head) + head[156:]  # the checksum counts itself as spaces


def _padding(length: int) -> bytes:
    return bytes(-length % BLOCK)


def _tar_ending(length: int) -> int:
    """Return the bytes after the last member: two blocks, and what fills a record of 20 blocks."""
    return 2 * BLOCK + -(length + 2 * BLOCK) % tarfile.RECORDSIZE


def _tar_index(samples: Sequence[tuple[int, PackedSample]]) -> str:
    """Return wds2idx's index: for each member its extension, offset, length and name; a line for each sample."""
    lines = [f"v1.2 {len(samples)}\n"]
    for offset, sample in samples:
        image = offset + BLOCK
        text = image + sample.image_bytes + len(_padding(sample.image_bytes)) + BLOCK
        lines.append(sample.members.format(image, text) + "\n")
    return "".join(lines)


TAR = ShardFormat("tar", _tar_sample, _tar_ending, _tar_index)


_IMAGE = "image/encoded"
_FORMATS = {"jpg": b"jpeg", "jpe": b"jpeg", "jfif": b"jpeg", "tif": b"tiff"}
"""TensorFlow's names of formats, where they are not the extension."""


def _record(source: SampleContent) -> PackedSample:
    features = _features(source)
    earlier = b"".join(_entry(name, features[name]) for name in sorted(features) if name < _IMAGE)
    later = b"".join(_entry(name, features[name]) for name in sorted(features) if name > _IMAGE)
    around = earlier + _image_head(source.image_bytes)
    around = _head(1, len(around) + source.image_bytes + len(later)) + around  # Example.features
    length = struct.pack("<Q", len(around) + source.image_bytes + len(later))
    return PackedSample(source.file, source.image_bytes, length + masked_crc(length) + around, later, True, "")


def _features(source: SampleContent) -> dict[str, bytes]:
    """Return the features but the image: name -> a serialized Feature."""
    rows, size = source.annotations, (source.width, source.height, source.width, source.height)
    boxes = [[value / side for value, side in zip(box, size, strict=True)] for box in source.boxes]
    columns = {
        f"image/object/bbox/{name}": _floats([box[index] for box in boxes])
        for index, name in enumerate(("xmin", "ymin", "xmax", "ymax"))
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
        raise ConversionError(f"{shown(text)} cannot be UTF-8: it has half of a surrogate pair; correct it") from None


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


def _record_index(samples: Sequence[tuple[int, PackedSample]]) -> str:
    """Return tfrecord2idx's index: offset and length of each record."""
    return "".join(f"{offset} {sample.length}\n" for offset, sample in samples)


TFRECORD = ShardFormat("tfrecord", _record, lambda length: 0, _record_index)
