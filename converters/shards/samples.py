"""The samples of a shard: images with their labels, as read, and as texts of JSON without ids and file names."""

from __future__ import annotations

import json
import posixpath
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from detaug.coco.boxes import BoxNumbers
from detaug.coco.how_to_load import shapes_of
from detaug.errors import InputError
from detaug.files.formats import SHARD_FORMS
from detaug.files.image_headers import ImageError, ImageHeader, usual_extension
from detaug.files.known_files import what_file_is
from detaug.files.paths import is_below, last_part
from detaug.files.text import is_plain
from detaug.findings.finding import Finding, shown

_COMPRESSIONS = {
    b"\x1f\x8b": ("GZIP", "gunzip"),
    b"BZh": ("BZIP2", "bunzip2"),
    b"\xfd7zXZ": ("XZ", "unxz"),
    b"\x28\xb5\x2f\xfd": ("Zstandard", "unzstd"),
}
_ZLIB = (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")


class SampleError(InputError):
    """A record or sample that cannot be used. kind: a key of KINDS."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class ShardError(InputError):
    """A shard that cannot be read, or not from some position on. kind: a key of KINDS."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def refuse_compressed(head: bytes) -> None:
    """Raise ShardError for the first bytes of a compressed file: images in it have no position in the file."""
    for magic, (name, program) in _COMPRESSIONS.items():
        if head.startswith(magic):
            raise ShardError("shard-unreadable", f"is compressed with {name}; decompress it first: {program}")


def refuse_zlib(head: bytes) -> None:
    """Raise ShardError for a file that TensorFlow compressed with ZLIB."""
    if head[:2] in _ZLIB:
        raise ShardError("shard-unreadable", "is compressed with ZLIB; write it again without compression")


Row = dict[str, Any]

_NUMBERS = frozenset(("area", "iscrowd", "difficult", "truncated"))
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


class Shard(NamedTuple):
    """A shard: its path, and its path relative to the folder of the shards, with slashes."""

    path: str
    name: str


class ClassLabel(NamedTuple):
    """A class as a record names it: by a category id, by a name, or by both."""

    id: int | None
    name: str | None


class Annotation(NamedTuple):
    """One object."""

    label: ClassLabel
    row: Row
    """The JSON file's row without image_id and category_id. Its id is an int or missing."""


class ShardSample(NamedTuple):
    """One image with its labels."""

    name: str
    """The file name, not yet unique."""
    offset: int
    """Position of the encoded image in the shard, bytes."""
    length: int
    crc32c: int
    """Of the encoded image."""
    header: ImageHeader
    image: Row
    """Further keys of the JSON file's row, and the id, an int, if the shard has one."""
    label: ClassLabel | None
    """Of the image as a whole."""
    annotations: list[Annotation]


class EncodedSample(NamedTuple):
    """A sample that needs little memory: texts of JSON, and positions in ShardContent.labels."""

    name: str
    image_id: int | None
    size: tuple[int, int]
    """(W, H) pixels."""
    offset: int
    length: int
    crc32c: int
    label: int | None
    more: str
    """Further keys of the image's row: '"key":value,...' or ''."""
    annotation_ids: tuple[int | None, ...]
    labels: tuple[int, ...]
    rows: tuple[str, ...]
    """The rows of the annotations from their bbox on: '"bbox":...}'."""


@dataclass
class ShardContent:
    """Everything that was read from one shard."""

    shard: Shard
    samples: list[EncodedSample] = field(default_factory=list)
    labels: dict[ClassLabel, int] = field(default_factory=dict)
    """Each label that occurs, and its position."""
    dataset: Row | None = None
    """The rest of the JSON file that `detaug pack` packed: its info and categories."""
    findings: list[Finding] = field(default_factory=list)
    shapes: set[str] = field(default_factory=set)
    """What annotations have beside boxes, see `shapes_of`."""
    numbers: BoxNumbers = field(default_factory=BoxNumbers)
    """What boxes in pixels look like."""
    crowds: int = 0
    labeled: bool = False
    """Whether any record has a place for labels."""
    parts: Counter[str] = field(default_factory=Counter)
    """How often each feature, or each extension of a member, occurs."""

    def note(
        self, kind: str, where: str, note: str = "", before: object = None, after: object = None, *, count: int = 1
    ) -> None:
        """Append a finding about a record or a member; where "": about the shard."""
        file = f"{self.shard.name} {where}" if where else self.shard.name
        self.findings.append(Finding(file, kind, before=before, after=after, note=note, count=count))

    def add(self, sample: ShardSample) -> None:
        """Append a sample. Raises SampleError for values that JSON does not have."""
        try:
            self.samples.append(_encoded(sample, self.labels))
        except (ValueError, RecursionError) as error:
            raise SampleError("sample-invalid", f"its labels cannot be written as JSON: {error}") from None
        self.crowds += sum(annotation.row.get("iscrowd") == 1 for annotation in sample.annotations)
        self.shapes |= shapes_of(annotation.row for annotation in sample.annotations)


def _encoded(sample: ShardSample, positions: dict[ClassLabel, int]) -> EncodedSample:
    image_id, more = _without_id(sample.image)
    rows = [annotation.row for annotation in sample.annotations]
    labels = [positions.setdefault(annotation.label, len(positions)) for annotation in sample.annotations]
    return EncodedSample(
        sample.name,
        image_id,
        (sample.header.width, sample.header.height),
        sample.offset,
        sample.length,
        sample.crc32c,
        None if sample.label is None else positions.setdefault(sample.label, len(positions)),
        ",".join([f"{_encode(key)}:{_encode(value)}" for key, value in more.items()]),  # quicker than a dict
        tuple([row.get("id") for row in rows]),
        tuple(labels),
        tuple(map(_row_text, rows)),
    )


def _row_text(row: Row) -> str:
    """Return the JSON file of an annotation from its bbox on; the encoder is slow for small rows of plain numbers."""
    x, y, width, height = row["bbox"]
    text = f'"bbox":[{x!r},{y!r},{width!r},{height!r}]'
    for key, value in row.items():
        if key in _NUMBERS and type(value) in (int, float) and value - value == 0:  # not infinity
            text += f',"{key}":{value!r}'
        elif key not in ("id", "bbox"):
            return _encode(_without_id(row)[1])[1:]
    return text + "}"


def _without_id(row: Mapping[str, Any]) -> tuple[int | None, Row]:
    return row.get("id"), {key: value for key, value in row.items() if key != "id"}


@contextmanager
def noted(content: ShardContent, where: str = "") -> Iterator[None]:
    """Turn an error about a sample, or with where "" about a shard, into a finding."""
    try:
        yield
    except ShardError as error:
        is_other = error.kind == "shard-unreadable" or not content.samples
        what = what_file_is(content.shard.path, but=SHARD_FORMS) if is_other else ""
        content.note("shard-unreadable" if what else error.kind, where, what or str(error))
    except (SampleError, ImageError) as error:
        content.note(error.kind, where, str(error))
    except OSError as error:
        content.note("shard-unreadable", "", f"cannot be read: {error.strerror or error}")


def file_name(wanted: str, fallback: str, header: ImageHeader, content: ShardContent, where: str) -> str:
    """Return a file name that is a safe relative path, with a finding if it is not the one wanted."""
    if is_safe(wanted):
        return wanted
    for name in (posixpath.normpath(wanted), last_part(wanted)):
        if wanted and is_safe(name):
            break
    else:
        name = fallback + usual_extension(header.format)
    content.note("file-name-changed", where, "", wanted, name)
    return name


def is_safe(name: str) -> bool:
    """Return whether a name is a normalized path below its folder, of printable text."""
    normal = {"", "."}.isdisjoint(name.split("/"))
    return normal and is_below(name) and is_plain(name) and len(name.encode()) < 4096


def check_size(width: object, height: object, header: ImageHeader, content: ShardContent, where: str) -> None:
    """Append a finding where a record says another size than the image has (decision 2)."""
    if (width, height) not in ((header.width, header.height), (None, None)):
        before, after = f"{shown(width)} x {shown(height)}", f"{header.width} x {header.height}"
        content.note("size-recorded", where, f"says {before} pixels, the image has {after}", before, after)


def check_header(header: ImageHeader, content: ShardContent, where: str) -> None:
    """Append findings about an EXIF orientation outside 1 to 8, and about further images in the file."""
    if not 1 <= header.orientation <= 8:
        content.note("orientation-invalid", where, before=header.orientation, after=1)
    if header.has_more:
        content.note("image-several", where, before=header.format)


def shifted(label: int, first_label: int) -> int:
    """Return the category id of a class number: the first class has the id 1. Raises SampleError."""
    if label < first_label:
        takes = "; if the numbers count from 0: convert-tfrecord and convert-webdataset take --first-label 0"
        remedy = takes if label == 0 else ""
        raise SampleError("sample-invalid", f"class numbers must be at least {first_label}, got {label}{remedy}")
    return label - first_label + 1


def check_first_label(first_label: int) -> None:
    """Raise InputError for a number that classes cannot begin with."""
    if first_label not in (0, 1):
        raise InputError(f"first_label must be 0 or 1, got {first_label!r}")
