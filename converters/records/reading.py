"""From records to images with their objects in pixels: in this process, or in several."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from detaug.coco.boxes import BoxNumbers
from detaug.coco.classes_and_images import header_findings
from detaug.coco.writer import ANNOTATION_FILE
from detaug.converters.records.images import Images
from detaug.converters.records.placing import Place, Placed, columns_of
from detaug.converters.records.record import Record
from detaug.converters.records.record_image import RecordImage, Values, values_of
from detaug.files.image_headers import ImageError, ImageHeader, read_image_header
from detaug.files.matching import SAME_STEM
from detaug.files.paths import last_part, stem_of
from detaug.files.text import is_utf8
from detaug.findings.finding import Finding

_RECORDS_AT_ONCE = 16  # in larger chunks objects live so long that they cost time
_PIXELS_AT_ONCE = 1 << 24
"""Of masks, which are the largest part of records."""


def chunks_of(records: Iterable[Record]) -> Iterator[list[Record]]:
    """Yield the records in lists that a process reads at once: many small ones, or few with large masks."""
    chunk, pixels = list[Record](), 0
    for record in records:
        chunk.append(record)
        pixels += sum(mask.pixels.size for item in record.objects for mask in item.masks)
        if len(chunk) == _RECORDS_AT_ONCE or pixels > _PIXELS_AT_ONCE:
            yield chunk
            chunk, pixels = [], 0
    if chunk:
        yield chunk


class ReadChunk(NamedTuple):
    """What is known of the records of a chunk."""

    images: list[tuple[RecordImage, Values | None]]
    """Each with what is to be stored of it: None if the image cannot be used."""
    unread: Counter[str]
    """Elements and keys that the reader leaves out."""
    numbers: BoxNumbers
    """What boxes and shapes look like, of records that have pixels."""
    alike: set[str]
    """Images that share the stem of a record with others, also of records of other parts."""


@dataclass(frozen=True)
class RecordReader:
    """Reads the records of a chunk: their files, as far as that is not done yet, and the headers of their images."""

    images: Images
    read: Callable[[Record], None] | None
    wanted: frozenset[str] | None
    """The images of this part; None for all."""
    files: int
    """How many annotation files there are."""
    place: Callable[[Record, tuple[int, int], BoxNumbers], tuple[list[Placed], list[Placed]]]
    """See `Contents`."""
    find: Callable[[Images, Record], tuple[str | None, int]]

    def __call__(self, records: Sequence[Record]) -> ReadChunk:
        """Return the images of records, those of other parts left out."""
        chunk = ReadChunk([], Counter(), BoxNumbers(), set())
        for record in records:
            if self.read:
                self.read(record)
            name, rank = (record.image, SAME_STEM) if record.image else self.find(self.images, record)
            chunk.alike.update(record.alike)
            if self.wanted is None or not name or name in self.wanted:
                record.image = name or ""
                chunk.unread.update(record.unread)
                chunk.images.append(self._image(record, rank, chunk.numbers))
        return chunk

    def _image(self, record: Record, rank: int, numbers: BoxNumbers) -> tuple[RecordImage, Values | None]:
        name = record.image
        header = header_of(name, self.images, record.findings) if name and not record.video_size else None
        image = RecordImage(name, record.findings or (), rank, video=sys.intern(record.video), frame=record.frame)
        size = (header.width, header.height) if header else record.video_size
        if not size:
            return image, None
        image.size = size if record.video else None
        if record.size and record.size != size:
            kind = "size-unrotated" if header and record.size == header.stored_size else "size-conflict"
            record.findings.append(Finding(record.file, kind, before=[*record.size], after=[*size]))
        objects, regions = self.place(record, size[::-1], numbers)
        image.findings = record.findings or ()
        origin = {} if self.files < 2 or _is_named_as(record.file, name) else {ANNOTATION_FILE: record.file}
        row = {"width": size[0], "height": size[1], **origin, **columns_of(record.columns, record.tool_id)}
        fingerprint = header.fingerprint if header else (0, 0)
        return image, values_of(row, (record.file, record.about(None)), objects, regions, fingerprint)


def placed_objects(record: Record, size: tuple[int, int], numbers: BoxNumbers) -> tuple[list[Placed], list[Placed]]:
    """Return the objects and the regions of a record in pixels of its image, of size (H, W)."""
    scale = (size[1] / record.unit[0], size[0] / record.unit[1]) if record.unit else (1.0, 1.0)
    place = Place(size, scale, record)
    if not record.unit:
        boxes = [item.edges for item in record.objects if item.edges]
        numbers.add(boxes, (ring for item in record.objects for ring in (*item.rings, item.corners)), size)
    seen: dict[tuple[Any, ...], list[Placed]] = {}
    objects: list[Placed] = []
    regions: list[Placed] = []
    for item in record.objects:
        place.tidy_class_name(item)
        placed = place.put(item)
        if placed is None:
            continue
        if item.is_ignored:
            place.note("region-ignored", item, after=[*placed.box])
            regions.append(placed)
            continue
        earlier = seen.setdefault((item.class_name, placed.box), [])
        if earlier and any(placed.keys == other.keys and placed.key_points == other.key_points for other in earlier):
            place.note("box-repeated", item, after=[*placed.box])
        earlier.append(placed)
        objects.append(placed)
    return objects, regions


def _is_named_as(file: str, image: str) -> bool:
    """Return whether the name of an image tells which annotation file it was read from."""
    name = last_part(image)
    return stem_of(last_part(file)) in (name, stem_of(name))


def header_of(name: str, images: Images, findings: list[Finding]) -> ImageHeader | None:
    """Read the header of an image; return None, with a finding, if it cannot be used."""
    file = images.prefix + name
    if not is_utf8(name):
        findings.append(Finding(file, "file-name-not-utf8"))
        return None
    try:
        header = read_image_header(os.path.join(images.folder, name))
    except ImageError as error:
        findings.append(Finding(file, error.kind, note=str(error)))
        return None
    findings.extend(header_findings(name, file, header))
    return header
