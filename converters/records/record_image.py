"""The images of records. What is known of them and of their objects waits in a file until it is written."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from detaug.coco.how_to_load import shapes_of
from detaug.converters.records.placing import Placed
from detaug.files.spool import Spool
from detaug.findings.finding import Finding


@dataclass(slots=True, eq=False)
class RecordImage:
    """One image: what stays in memory, of every image of a dataset."""

    name: str
    """"" where there is none."""
    findings: Collection[Finding] = ()
    rank: int = 0
    """How well the image fits its record: see matching."""
    start: int = -1
    """Of what is stored; -1 where nothing is: the image cannot be used."""
    has_regions: bool = False
    """Whether there are some in which nothing counts."""
    video: str = ""
    frame: int | None = None
    size: tuple[int, int] | None = None
    """(width, height) in pixels, of a frame of a video."""


class About(NamedTuple):
    """What is stored of an image, beside its objects."""

    row: dict[str, Any]
    """Of the JSON file, without the id and the name."""
    file: str
    """The annotation file, as findings name it."""
    entry: str
    """The same with the image, as findings without a line name it."""
    counts: dict[str, int]
    """Objects by class."""
    key_points: dict[str, list[str]]
    """Names of keypoints that objects have, by class, in the order in which they occur."""
    last_track: int | None
    shapes: frozenset[str]
    """What objects have beside boxes and keypoints: masks, rotated."""
    crowds: dict[str, int]
    """Objects that are crowds, by class."""
    fingerprint: tuple[int, int]
    """See ImageHeader."""


Values = tuple[tuple[Any, ...], list[tuple[Any, ...]], list[tuple[Any, ...]]]
"""What is stored of an image: see `About`; its objects; its regions."""


def values_of(
    row: dict[str, Any],
    file: tuple[str, str],
    objects: Sequence[Placed],
    regions: Sequence[Placed],
    fingerprint: tuple[int, int],
) -> Values:
    """Return what is stored of an image. row, file, fingerprint: those of `About`; its file and its entry."""
    counts: dict[str, int] = {}
    crowds: dict[str, int] = {}
    key_points: dict[str, list[str]] = {}
    shapes: set[str] = set()
    for item in objects:
        counts[item.class_name] = counts.get(item.class_name, 0) + 1
        if item.is_crowd:
            crowds[item.class_name] = crowds.get(item.class_name, 0) + 1
        if item.keys:
            shapes |= shapes_of([item.keys])
        if item.key_points:
            known = key_points.setdefault(item.class_name, [])
            known += [name for name in item.key_points if name not in known]
    last_track = max((item.track for item in objects if item.track is not None), default=None)
    about = About(row, *file, counts, key_points, last_track, frozenset(shapes), crowds, fingerprint)
    return tuple(about), [*map(tuple, objects)], [*map(tuple, regions)]


class StoredObjects(Spool):
    """The objects of all images, in a file: memory grows with the number of images only."""

    def add(self, image: RecordImage, values: Values) -> None:
        """Store the objects and the regions of an image."""
        image.has_regions = bool(values[2])
        image.start = self.put(*values)

    def about(self, image: RecordImage) -> About:
        """Return what is known of an image. The file is then at its objects."""
        return About._make(self.get(image.start))

    def objects(self, image: RecordImage) -> Iterator[Placed]:
        """Return the objects of an image."""
        self.get(image.start)
        return map(Placed._make, self.following())

    def regions(self, image: RecordImage) -> Iterator[Placed]:
        """Return the regions of an image."""
        self.objects(image)
        return map(Placed._make, self.following())
