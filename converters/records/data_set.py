"""All that is known of a dataset when its records are read: its classes, and what of them the images have."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from detaug.coco.classes_and_images import alike_classes, unused_classes
from detaug.converters.records.images import Images
from detaug.converters.records.record import Contents
from detaug.converters.records.record_image import RecordImage, StoredObjects
from detaug.files.repeated import repeated_files
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
    has_tracks: bool
    """Whether annotations get one: either all of a file have a track_id, or none has. Those of a part may be needed."""
    videos: Mapping[str, Mapping[str, Any]]
    """Further keys of the rows of videos, by name."""
    shapes: frozenset[str]
    """Kinds that objects have beside boxes: masks, corners."""
    crowds: int
    """How many of the objects are crowds."""
    categories: Mapping[str, Mapping[str, Any]]
    """Further keys of the rows of classes."""


def data_set_of(
    images: list[RecordImage],
    stored: StoredObjects,
    contents: Contents,
    finder: Images,
    classes: Sequence[str] | None,
    earlier: Sequence[Finding],
    videos: Sequence[str],
    *,
    is_part: bool,
) -> tuple[DataSet, int, list[Finding]]:
    """Return the dataset with the objects of its classes, how many images have none, and findings about classes.

    videos: the names of those of all parts; none for a whole.
    """
    findings, without_boxes, last_track = list[Finding](), 0, None
    not_listed, first_of = Counter[tuple[str, str]](), dict[tuple[str, str], RecordImage]()  # by file and class
    counts, crowds, shapes, fingerprints = Counter[str](), 0, set[str](), array("q")
    key_points = {name: [*points] for name, points in contents.key_points.items()}
    for image in images:
        about = stored.about(image)
        if contents.compares_images:
            fingerprints.append(hash(about.fingerprint))
        own = {name: n for name, n in about.counts.items() if classes is None or name in classes}
        for name, n in about.counts.items():
            if name not in own:
                not_listed[about.file, name] += n
                first_of.setdefault((about.file, name), image)
        counts.update(own)
        crowds += sum(n for name, n in about.crowds.items() if name in own)
        without_boxes += not own
        shapes |= about.shapes
        if about.last_track is not None:
            last_track = max(about.last_track, about.last_track if last_track is None else last_track)
        for name, points in about.key_points.items():
            known = key_points.setdefault(name, [])
            known += [point for point in points if point not in known]
    for index, first in repeated_files(fingerprints, lambda index: finder.folder / images[index].name):
        findings.append(Finding(finder.prefix + images[index].name, "image-identical", after=images[first].name))
    findings += [_not_listed(key, first_of[key], n, stored) for key, n in not_listed.items()]
    listed = [*map(joined_spaces, contents.class_names)] if classes is None else [*classes]
    listed = [*dict.fromkeys(listed)]
    keeps_unused = contents.keeps_unused or classes is not None
    if not keeps_unused and not is_part:
        listed = [name for name in listed if counts[name]] or listed[:1]
    names = [*listed, *sorted(counts.keys() - set(listed))]
    if keeps_unused and (contents.map is None or not_listed):  # a map has classes that objects need not have
        left_out = left_out_classes((*earlier, *findings))
        findings += unused_classes((name for name in names if not counts[name]), left_out)
    findings += alike_classes(names)
    dataset = DataSet(
        images,
        stored,
        names,
        len(listed),
        counts,
        key_points,
        contents.skeletons,
        last_track,
        last_track is not None or bool(videos),
        contents.videos,
        frozenset(shapes),
        crowds,
        contents.categories,
    )
    return dataset, without_boxes, findings


def _not_listed(key: tuple[str, str], image: RecordImage, count: int, stored: StoredObjects) -> Finding:
    """Return what is said of objects whose class is not listed: several by their file and class, one by its place.

    image: the first one that has such objects.
    """
    file, name = key
    if count > 1:
        note = f"{count:,} objects of {name}, which is not among the classes"
        return Finding(file, "class-not-listed", before=name, note=note, count=count)
    entry = stored.about(image).entry
    item = next(item for item in stored.objects(image) if item.class_name == name)
    return Finding(file if item.line else entry, "class-not-listed", item.object_index, item.line, before=name)
