"""Divide a data set into shards: samples with their offsets, before any image is read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from detaug.converters.coco.places import KEYS as PLACE_KEYS
from detaug.converters.coco.rows import CocoRows
from detaug.converters.coco.writer import json_text
from detaug.converters.files.image_headers import IMAGE_EXTENSIONS, read_image_header, usual_extension
from detaug.converters.shards.write_sample import Sample, ShardFormat, Source, sample_key

Shard = list[tuple[int, Sample]]
"""Samples with their offsets in the shard, in bytes."""


class Layout:
    """The samples of a json's images, in its order, and the shards that they fill."""

    def __init__(self, rows: CocoRows, images: Path, shard_format: ShardFormat, limit: int) -> None:
        """Lay out `rows`, with the images of a folder. limit: the most bytes of a shard with several images."""
        self.rows, self.images, self.format, self.limit = rows, images, shard_format, limit

    def shards(self) -> Iterator[Shard]:
        """Yield the shards. The json texts of one are in memory, but none of its images. Raises OSError."""
        shard: Shard = []
        size, keys = 0, set[str]()
        for at, boxes in self.rows:
            source = self._source(at, boxes, keys)
            sample = self._sample(source, first=not shard)
            if shard and self._ended(size + sample.length) > self.limit:
                yield shard
                shard, size = [], 0
                sample = self._sample(source, first=True)
            shard.append((size, sample))
            size += sample.length
        yield shard

    def _ended(self, size: int) -> int:
        return size + self.format.ending(size)

    def _sample(self, source: Source, *, first: bool) -> Sample:
        text = source.text[:-1] + self._dataset if first else source.text
        return self.format.sample(source._replace(text=text))

    @cached_property
    def _dataset(self) -> bytes:
        """The end of the json text of a shard's first sample."""
        document, names = self.rows.table.coco.document, self.rows.table.categories
        rest = {key: value for key, value in document.items() if key not in ("images", "annotations")}
        rest["categories"] = [row | {"name": names.get(row["id"], "")} for row in document["categories"]]
        return b',"dataset":' + _encoded(rest) + b"}"

    def _source(self, at: int, boxes: list[int], keys: set[str]) -> Source:
        table, name = self.rows.table, self.rows.file_name(at)
        file = table.image_file(self.images, at)
        image = {key: value for key, value in table.row("images", at).items() if key not in PLACE_KEYS}
        annotations = [table.row("annotations", box) | {"category": self.rows.class_name(box)} for box in boxes]
        height, width = table.sizes[at].tolist()
        return Source(
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
    """Return compact json; lone surrogates, which names that are not UTF-8 have, as json's escapes."""
    return json_text(value).encode("utf-8", "backslashreplace")
