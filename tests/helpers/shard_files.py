"""Write shards with other implementations than detaug's: protobuf's messages, a bitwise CRC32C, webdataset's writer."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import webdataset
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from pycocotools.coco import COCO
from voc_files import HEIGHT, WIDTH, image_bytes, with_segment

from detaug.converters import Summary

Features = Mapping[str, Sequence[bytes] | Sequence[str] | Sequence[int] | Sequence[float]]
Document = dict[str, Any]

_FIELD = descriptor_pb2.FieldDescriptorProto


def jpeg(text: str) -> bytes:
    """Return a JPEG of 100 x 80 pixels, with other bytes for another text."""
    return with_segment(image_bytes(), text.encode(), 0xFE)


# ----------------------------------------------------------------------------------------------------------
# tf.train.Example


@cache
def example_class(packed: bool = True) -> Any:
    """Return protobuf's class of tf.train.Example, with its lists packed or a field for each value."""
    file = descriptor_pb2.FileDescriptorProto(name=f"example{packed}.proto", package=f"p{packed}", syntax="proto3")
    types = {"BytesList": _FIELD.TYPE_BYTES, "FloatList": _FIELD.TYPE_FLOAT, "Int64List": _FIELD.TYPE_INT64}
    for name, type_ in types.items():
        field = _add_field(file.message_type.add(name=name), "value", 1, type_, repeated=True)
        if name != "BytesList":
            field.options.packed = packed
    feature = file.message_type.add(name="Feature")
    feature.oneof_decl.add(name="kind")
    for number, name in enumerate(types, 1):
        field = _add_field(feature, f"list{number}", number, _FIELD.TYPE_MESSAGE, f".{file.package}.{name}")
        field.oneof_index = 0
    features = file.message_type.add(name="Features")
    entry = features.nested_type.add(name="FeatureEntry")
    entry.options.map_entry = True
    _add_field(entry, "key", 1, _FIELD.TYPE_STRING)
    _add_field(entry, "value", 2, _FIELD.TYPE_MESSAGE, f".{file.package}.Feature")
    entry_name = f".{file.package}.Features.FeatureEntry"
    _add_field(features, "feature", 1, _FIELD.TYPE_MESSAGE, entry_name, repeated=True)
    example = file.message_type.add(name="Example")
    _add_field(example, "features", 1, _FIELD.TYPE_MESSAGE, f".{file.package}.Features")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{file.package}.Example"))


def _add_field(message: Any, name: str, number: int, type_: Any, of: str = "", *, repeated: bool = False) -> Any:
    label = _FIELD.LABEL_REPEATED if repeated else _FIELD.LABEL_OPTIONAL
    return message.field.add(name=name, number=number, type=type_, type_name=of or None, label=label)


def example(features: Features, *, packed: bool = True) -> bytes:
    """Return a serialized tf.train.Example."""
    message = example_class(packed)()
    for name, values in features.items():
        feature = message.features.feature[name]
        kinds = set(map(type, values))
        if kinds <= {int}:
            feature.list3.value.extend(values)
        elif kinds <= {float, int}:
            feature.list2.value.extend(values)
        else:
            feature.list1.value.extend(value.encode() if isinstance(value, str) else value for value in values)
    data: bytes = message.SerializeToString(deterministic=True)
    return data


@cache
def _crc_table() -> list[int]:
    table = []
    for number in range(256):
        for _ in range(8):
            number = number >> 1 ^ 0x82F63B78 * (number & 1)
        table.append(number)
    return table


def crc32c(data: bytes) -> int:
    """Return CRC-32C, computed byte by byte."""
    crc, table = 0xFFFFFFFF, _crc_table()
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF


def masked_crc(data: bytes) -> int:
    """Return TFRecord's masked CRC-32C."""
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def record(data: bytes) -> bytes:
    """Return a record of a TFRecord file."""
    head = struct.pack("<Q", len(data))
    return head + struct.pack("<I", masked_crc(head)) + data + struct.pack("<I", masked_crc(data))


def write_tfrecord(path: Path, records: Iterable[Features], *, packed: bool = True) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(record(example(features, packed=packed)) for features in records))
    return path


def detection(name: str, boxes: Sequence[Sequence[float]] = (), labels: Sequence[int] = (), **more: Any) -> Features:
    """Return a record of TensorFlow's Object Detection API. boxes: (M, 4) XYXY in pixels of 100 x 80."""
    columns = list(zip(*boxes, strict=True)) or [()] * 4
    sides = (WIDTH, HEIGHT, WIDTH, HEIGHT)
    corners = {
        f"image/object/bbox/{corner}": [value / side for value in column]
        for corner, column, side in zip(("xmin", "ymin", "xmax", "ymax"), columns, sides, strict=True)
    }
    return {
        "image/encoded": [jpeg(name)],
        "image/filename": [name],
        "image/format": ["jpeg"],
        "image/width": [WIDTH],
        "image/height": [HEIGHT],
        **corners,
        "image/object/class/label": list(labels),
        **{key.replace("__", "/"): values for key, values in more.items()},
    }


# ----------------------------------------------------------------------------------------------------------
# WebDataset


def write_wds(path: Path, samples: Mapping[str, Mapping[str, Any]]) -> Path:
    """Write samples with webdataset's TarWriter: {key: {extension: content}}; a document becomes JSON file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with webdataset.TarWriter(str(path), mtime=1.5) as writer:  # not whole: written with a pax header
        for key, members in samples.items():
            writer.write({"__key__": key, **members})
    return path


# ----------------------------------------------------------------------------------------------------------
# Results


def converted(
    function: Callable[..., Summary], shards: Path | Sequence[Path], **options: Any
) -> tuple[Document, Summary]:
    """Convert shards, and check what every JSON file of shards must fulfil."""
    shards = [shards] if isinstance(shards, Path) else shards
    output = options.pop("output", shards[0].parent / "out.json")
    summary = function(shards, output, **options)
    document = json.loads(output.read_bytes())
    COCO(str(output))
    assert len({image["file_name"] for image in document["images"]}) == len(document["images"]) == summary.images
    for rows in (document["images"], document["annotations"], document["categories"]):
        assert len({row["id"] for row in rows}) == len(rows)
    assert {row["image_id"] for row in document["annotations"]} <= {row["id"] for row in document["images"]}
    assert summary.boxes == len(document["annotations"])
    if not options.get("extract"):
        images = contents(document, Path(summary.image_folder))
        assert all(row["crc32c"] == crc32c(images[row["file_name"]]) for row in document["images"])
    return document, summary


def flip_a_bit(path: Path, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([byte ^ 1]))


def contents(document: Document, folder: Path) -> dict[str, bytes]:
    """Return the bytes at the place of each image, by file name."""
    return {
        image["file_name"]: (folder / image["shard"]).read_bytes()[image["offset"] :][: image["length"]]
        for image in document["images"]
    }


def boxes(document: Document) -> list[list[float]]:
    return [row["bbox"] for row in document["annotations"]]


def classes(document: Document) -> dict[int, str]:
    return {row["id"]: row["name"] for row in document["categories"]}
