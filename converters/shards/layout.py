"""Divide a dataset into shards, samples with their offsets, before any image is read; then write the samples."""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from detaug.coco.file_names import PLACE_KEYS
from detaug.coco.rows import CocoRows
from detaug.coco.writer import json_text
from detaug.converters.shards.tfrecord import HEAD_BYTES, masked
from detaug.errors import InputError
from detaug.files.image_file import ImageChanged, ImageFile, load_crc32c
from detaug.files.image_headers import IMAGE_EXTENSIONS, read_image_header, usual_extension
from detaug.files.paths import stem_of

_UNUSABLE = re.compile(r"[^A-Za-z0-9_/-]")
_LONGEST_KEY = 90  # with an extension at most 100 bytes, the longest name that every version of tar has


class PackedSample(NamedTuple):
    """An image, and the bytes around it in the shard. The image itself is read when the shard is written."""

    file: ImageFile
    image_bytes: int
    before: bytes
    after: bytes
    checksum: bool
    """Whether 4 bytes with the masked CRC-32C of a TFRecord follow: of all before them but the first 12."""
    members: str
    """What the index says of the sample beside offsets and lengths; "" in a TFRecord."""

    @property
    def length(self) -> int:
        """Return the sample's bytes in the shard."""
        return len(self.before) + self.image_bytes + len(self.after) + 4 * self.checksum


class SampleContent(NamedTuple):
    """What a sample is made of."""

    key: str
    file: ImageFile
    image_bytes: int
    extension: str
    """In lower case, without the dot."""
    image: dict[str, Any]
    """The image's entry of the JSON file."""
    height: int
    width: int
    boxes: Sequence[Sequence[float]]
    """(M, 4) XYXY pixels, cut at the image's edges."""
    annotations: Sequence[dict[str, Any]]
    """M entries of the JSON file, with the key "category"."""
    text: bytes
    """The sample's JSON file."""


class ShardFormat(NamedTuple):
    """The functions that write one kind of shard."""

    extension: str
    sample: Callable[[SampleContent], PackedSample]
    ending: Callable[[int], int]
    """Returns the number of zero bytes that end a shard of this many bytes."""
    index_text: Callable[[Sequence[tuple[int, PackedSample]]], str]
    """Returns the index of a shard, from its samples and their offsets."""


Shard = list[tuple[int, PackedSample]]
"""Samples with their offsets in the shard, in bytes."""


class Layout:
    """The samples of a JSON file's images, in its order, and the shards that they fill."""

    def __init__(self, rows: CocoRows, images: Path, shard_format: ShardFormat, limit: int) -> None:
        """Lay out `rows`, with the images of a folder. limit: the most bytes of a shard with several images."""
        self.rows, self.images, self.format, self.limit = rows, images, shard_format, limit

    def shards(self) -> Iterator[Shard]:
        """Yield the shards. The JSON texts of one are in memory, but none of its images. Raises OSError."""
        shard: Shard = []
        size, keys = 0, set[str]()
        for index, boxes in self.rows:
            source = self._source(index, boxes, keys)
            sample = self._sample(source, first=not shard)
            end = size + sample.length
            if shard and end + self.format.ending(end) > self.limit:
                yield shard
                shard, size = [], 0
                sample = self._sample(source, first=True)
            shard.append((size, sample))
            size += sample.length
        yield shard

    def _sample(self, source: SampleContent, *, first: bool) -> PackedSample:
        text = source.text[:-1] + self._dataset if first else source.text
        return self.format.sample(source._replace(text=text))

    @cached_property
    def _dataset(self) -> bytes:
        """The end of the JSON text of a shard's first sample."""
        document, names = self.rows.table.coco.document, self.rows.table.categories
        rest = {key: value for key, value in document.items() if key not in ("images", "annotations")}
        rest["categories"] = [row | {"name": names.get(row["id"], "")} for row in document["categories"]]
        return b',"dataset":' + _encoded(rest) + b"}"

    def _source(self, index: int, boxes: list[int], keys: set[str]) -> SampleContent:
        table, name = self.rows.table, self.rows.file_name(index)
        file = table.image_file(self.images, index)
        image = {key: value for key, value in table.row("images", index).items() if key not in PLACE_KEYS}
        annotations = [table.row("annotations", box) | {"category": self.rows.class_name(box)} for box in boxes]
        height, width = table.sizes[index].tolist()
        return SampleContent(
            key=sample_key(name, image["id"], keys),
            file=file,
            image_bytes=os.path.getsize(file.path) if file.length is None else file.length,
            extension=image_extension(name) or usual_extension(read_image_header(file).format)[1:],
            image=image,
            height=height,
            width=width,
            boxes=table.boxes[boxes].tolist() if boxes else [],
            annotations=annotations,
            text=_encoded({"image": image, "annotations": annotations}),
        )


def image_extension(name: str) -> str:
    """Return the extension of an image in lower case, without the dot; "" where it is none of an image."""
    extension = os.path.splitext(name)[1].lower()
    return extension[1:] if extension in IMAGE_EXTENSIONS else ""


def _encoded(value: object) -> bytes:
    """Return compact JSON; lone surrogates, which names that are not UTF-8 have, as JSON file's escapes."""
    return json_text(value).encode("utf-8", "backslashreplace")


def sample_key(name: str, image_id: int, taken: set[str]) -> str:
    """Return the key of an image, other than those taken, and add it to these.

    The stem of its file name, folders included, where each character that is not one of A-Z a-z 0-9 _ - / becomes _:
    webdataset ends the key at the first dot, DALI's index has spaces between its columns, GNU tar lists other
    characters escaped, and webdataset skips what begins with __. The image id is added where the key is taken.
    """
    key = _UNUSABLE.sub("_", stem_of(name))[-_LONGEST_KEY:].lstrip("/_") or str(image_id)
    candidates = (f"{key[-50:].lstrip('/')}-{image_id}{f'-{n}' * bool(n)}" for n in count())
    while key.lower() in taken:  # in lower case, so that the files can be extracted on every disk
        key = next(candidates)
    taken.add(key.lower())
    return key


def write_samples(samples: Iterable[PackedSample], file: BinaryIO) -> list[int]:
    """Write samples to a shard, and return the CRC-32C of each image. Raises OSError and InputError.

    One image is in memory at a time.
    """
    crc32c, checksums = load_crc32c(), list[int]()
    for sample in samples:
        image = _read_image(sample)
        data = b"".join((sample.before, image, sample.after))
        file.write(data)
        if sample.checksum:
            file.write(masked_crc(data[HEAD_BYTES:]))
        checksums.append(crc32c(image))
    return checksums


def masked_crc(data: bytes) -> bytes:
    """Return the checksum of a TFRecord."""
    return struct.pack("<I", masked(load_crc32c()(data)))


def _read_image(sample: PackedSample) -> bytes:
    """Read the image. Raises InputError if it changed since its JSON file or the layout was made, and OSError."""
    try:
        data = sample.file.read()
    except ImageChanged as error:
        raise InputError(f"{sample.file.path} has an image that changed: {error}") from None
    if len(data) != sample.image_bytes:
        raise InputError(
            f"{sample.file.path} changed while it was packed: an image had {sample.image_bytes:,} bytes and has "
            f"{len(data):,}; pack again when nothing writes to it"
        )
    return data
