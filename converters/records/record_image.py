"""The image of a record, whose objects wait in a file until they are written."""

from __future__ import annotations

import pickle
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import IO, Any

from detaug.converters.files.image_headers import ImageHeader
from detaug.converters.findings.finding import Finding
from detaug.converters.records.placing import Placed
from detaug.converters.records.record import Record

_IN_MEMORY = 32 << 20  # bytes of objects, as they are in the file


@dataclass(slots=True)
class RecordImage:
    """One image, and what must be known of its objects before any is written."""

    name: str
    header: ImageHeader | None = None
    findings: list[Finding] = field(default_factory=list)
    record: Record | None = None
    rank: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    """Objects by class."""
    key_points: dict[str, list[str]] = field(default_factory=dict)
    """Names of key points that objects have, by class, in the order in which they occur."""
    last_track: int | None = None
    shapes: frozenset[str] = frozenset()
    """Kinds that objects have: masks, corners, or "" for a box alone."""
    regions: int = 0
    """In which nothing counts."""
    start: int = 0
    """Of its objects in the file of all."""


def _shape_of(item: Placed) -> str:
    return "corners" if "corners" in item.keys else "masks" if "segmentation" in item.keys else ""


class StoredObjects:
    """The objects of all images, in a file: memory grows with the number of images only."""

    def __init__(self, folder: Path) -> None:
        self._file: IO[bytes] = SpooledTemporaryFile(max_size=_IN_MEMORY, mode="w+b", dir=str(folder))  # noqa: SIM115, see close
        self._folder, self._end = str(folder), 0
        self._shapes: dict[frozenset[str], frozenset[str]] = {}  # of all images, once
        self.classes: frozenset[str] | None = None
        """Those that are wanted, None for all."""

    def close(self) -> None:
        """Remove the file."""
        self._file.close()

    def put(self, image: RecordImage, objects: Sequence[Placed], regions: Sequence[Placed]) -> None:
        """Store the objects and the regions of an image."""
        image.start, image.regions = self._end, len(regions)
        image.counts = dict(Counter(sys.intern(item.class_name) for item in objects))
        for item in objects:
            if item.key_points:
                known = image.key_points.setdefault(item.class_name, [])
                known += [name for name in item.key_points if name not in known]
        image.last_track = max((item.track for item in objects if item.track is not None), default=None)
        shapes = frozenset(_shape_of(item) for item in objects)
        image.shapes = self._shapes.setdefault(shapes, shapes)
        if objects or regions:
            try:
                self._file.seek(self._end)
                self._file.write(pickle.dumps([[tuple(item) for item in items] for items in (objects, regions)], 5))
            except OSError as error:  # of a full disk
                raise OSError(error.errno, error.strerror, self._folder) from None
            self._end = self._file.tell()

    def objects(self, image: RecordImage) -> Iterator[Placed]:
        """Yield the objects of an image that are of the classes."""
        found = self._get(image)[0] if image.counts else ()
        return (item for item in map(Placed._make, found) if self.classes is None or item.class_name in self.classes)

    def regions(self, image: RecordImage) -> Iterator[Placed]:
        """Yield the regions of an image."""
        return map(Placed._make, self._get(image)[1] if image.regions else ())

    def _get(self, image: RecordImage) -> list[list[Iterable[Any]]]:
        self._file.seek(image.start)
        found: list[list[Iterable[Any]]] = pickle.load(self._file)
        return found
