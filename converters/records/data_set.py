"""All that is known of a data set when its records are read: its classes, and what of them the images have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from detaug.coco.classes_and_images import alike_classes, unused_classes
from detaug.converters.records.record import Contents
from detaug.converters.records.record_image import About, RecordImage, StoredObjects
from detaug.files.text import joined_spaces
from detaug.findings.finding import Finding
from detaug.outputs.summary import left_out_classes


class DataSet(NamedTuple):
    """What is written."""

    images: list[RecordImage]
    stored: StoredObjects
    class_names: list[str]
    listed: int
    """How many of them, from the first, are of a list; the others are sorted."""
    counts: Mapping[str, int]
    """Objects by class."""
    key_points: dict[str, list[str]]
    """By class."""
    skeletons: Mapping[str, Sequence[tuple[int, int]]]
    last_track: int | None
    """The largest number of a track, None where no object has one."""
    shapes: frozenset[str]
    """Kinds that objects have beside boxes: masks, corners."""
    crowds: int
    """How many of the objects are crowds."""


def data_set_of(
    images: list[RecordImage],
    stored: StoredObjects,
    contents: Contents,
    classes: Sequence[str] | None,
    earlier: Sequence[Finding],
) -> tuple[DataSet, int, list[Finding]]:
    """Return the data set with the objects of its classes, how many images have none, and findings about classes."""
    findings, without_boxes, last_track = list[Finding](), 0, None
    counts, crowds, shapes = Counter[str](), 0, set[str]()
    key_points = {name: [*points] for name, points in contents.key_points.items()}
    for each in images:
        about = stored.about(each)
        own = {name: n for name, n in about.counts.items() if classes is None or name in classes}
        if len(own) < len(about.counts):
            findings += _not_listed(each, about, stored, own)
        counts.update(own)
        crowds += sum(n for name, n in about.crowds.items() if name in own)
        without_boxes += not own
        shapes |= about.shapes
        if about.last_track is not None:
            last_track = max(about.last_track, about.last_track if last_track is None else last_track)
        for name, points in about.key_points.items():
            known = key_points.setdefault(name, [])
            known += [point for point in points if point not in known]
    listed = [*map(joined_spaces, contents.class_names)] if classes is None else [*classes]
    listed = [*dict.fromkeys(listed)]
    names = [*listed, *sorted(counts.keys() - set(listed))]
    left_out = left_out_classes((*earlier, *findings))
    findings += [*unused_classes((name for name in names if not counts[name]), left_out), *alike_classes(names)]
    dataset = DataSet(
        images,
        stored,
        names,
        len(listed),
        counts,
        key_points,
        contents.skeletons,
        last_track,
        frozenset(shapes),
        crowds,
    )
    return dataset, without_boxes, findings


def _not_listed(image: RecordImage, about: About, stored: StoredObjects, listed: Collection[str]) -> Iterator[Finding]:
    """Yield a finding for each object of an image whose class is not listed."""
    for item in stored.objects(image):
        if item.class_name not in listed:
            file = about.file if item.line else about.entry
            yield Finding(file, "class-not-listed", item.object_index, item.line, before=item.class_name)
