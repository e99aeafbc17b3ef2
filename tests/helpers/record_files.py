"""Write small files in the formats of DALI's readers, byte by byte: TFRecord, WebDataset, RecordIO, Caffe2's LMDB."""

from __future__ import annotations

import io
import struct
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from painted import paint, random_boxes
from PIL import Image

SIDES = ("xmin", "ymin", "xmax", "ymax")


class Sample(NamedTuple):
    """A painted image, encoded, with its boxes; label k is painted in channel k - 1."""

    encoded: bytes
    pixels: NDArray[np.float32]
    """(M, 4) XYXY."""
    boxes: NDArray[np.float32]
    """(M, 4) XYXY, relative to the image."""
    labels: NDArray[np.int32]


def painted_samples(count: int = 7) -> list[Sample]:
    """Return images of three sizes with 3, 2, 1 and 0 boxes, in turns."""
    return [_painted_sample(at) for at in range(count)]


def _painted_sample(at: int) -> Sample:
    height, width = [(96, 128), (128, 96), (150, 150)][at % 3]
    boxes = random_boxes(np.random.default_rng(at), (height, width), 24)
    labels = np.arange(1, 4, dtype=np.int32)[at % 4 :]
    file = io.BytesIO()
    Image.fromarray(paint((height, width), boxes)).save(file, "PNG")
    pixels = boxes[labels - 1].astype(np.float32)
    return Sample(file.getvalue(), pixels, (pixels / np.tile([width, height], 2)).astype(np.float32), labels)


# ------------------------------------------------------------------------------------------------ protocol buffers


def varint(number: int) -> bytes:
    """Encode an integer of at least 0."""
    low, rest = number & 127, number >> 7
    return bytes([low | 128]) + varint(rest) if rest else bytes([low])


def field(number: int, value: bytes | int) -> bytes:
    """Encode a field of a message: bytes, a message, packed numbers, or an integer."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def message(*fields: tuple[int, bytes | int]) -> bytes:
    return b"".join(field(number, value) for number, value in fields)


def floats(values: NDArray[np.float32]) -> bytes:
    """Encode a packed repeated float."""
    return values.astype("<f4").tobytes()


def integers(values: NDArray[np.int32]) -> bytes:
    """Encode a packed repeated integer."""
    return b"".join(map(varint, values.tolist()))


# ------------------------------------------------------------------------------------------------ files


def write_tfrecord(path: Path, samples: Sequence[Sample]) -> Path:
    """Write TensorFlow's `Example`s under the names of its Object Detection API, and `path`.idx for DALI."""
    data, index = b"", ""
    for sample in samples:
        features = {
            "image/encoded": message((1, message((1, sample.encoded)))),
            "image/object/class/label": message((3, message((1, integers(sample.labels))))),
        }
        for side, values in zip(SIDES, sample.boxes.T, strict=True):
            features[f"image/object/bbox/{side}"] = message((2, message((1, floats(values)))))
        pairs = [(1, message((1, name.encode()), (2, value))) for name, value in features.items()]
        example = message((1, message(*pairs)))
        record = struct.pack("<QI", len(example), 0) + example + struct.pack("<I", 0)  # DALI checks no checksums
        index += f"{len(data)} {len(record)}\n"
        data += record
    path.write_bytes(data)
    Path(f"{path}.idx").write_text(index)
    return path


def write_webdataset(path: Path, samples: Sequence[Sample]) -> Path:
    """Write a tar with the files NUMBER.png, NUMBER.boxes (float32) and NUMBER.labels (int32)."""
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as archive:
        for number, sample in enumerate(samples):
            parts = {"png": sample.encoded, "boxes": sample.boxes.tobytes(), "labels": sample.labels.tobytes()}
            for extension, content in parts.items():
                entry = tarfile.TarInfo(f"{number:04}.{extension}")
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
    return path


def write_recordio(path: Path, samples: Sequence[Sample]) -> Path:
    """Write MXNet's RecordIO with its labels for detection, and `path`.idx.

    The label of an image is (2, 5) and then (class, x0, y0, x1, y1) of each box.
    """
    data, index = b"", ""
    for number, sample in enumerate(samples):
        rows = np.concatenate([sample.labels[:, None].astype(np.float32), sample.boxes], 1)
        label = np.concatenate([[2, 5], rows.ravel()]).astype("<f4")
        content = struct.pack("<IfQQ", len(label), 0, number, 0) + label.tobytes() + sample.encoded
        index += f"{number}\t{len(data)}\n"
        data += struct.pack("<II", 0xCED7230A, len(content)) + content + bytes(-len(content) % 4)
    path.write_bytes(data)
    Path(f"{path}.idx").write_text(index)
    return path


def write_caffe2_lmdb(path: Path, samples: Sequence[Sample]) -> Path:
    """Write Caffe2's LMDB: the encoded image, dense labels, and the boxes as a further tensor. Needs `lmdb`."""
    import lmdb

    with lmdb.open(str(path), map_size=1 << 24) as database, database.begin(write=True) as transaction:
        for number, sample in enumerate(samples):
            image = message((2, 4), (6, sample.encoded))
            labels = message((2, 2), (4, integers(sample.labels)))
            boxes = message((2, 1), (3, floats(sample.boxes.ravel())))
            transaction.put(f"{number:04}".encode(), message((1, image), (1, labels), (1, boxes)))
    return path
