"""All that is known of a data set when its records are read: its classes, and what of them the images have."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from detaug.coco.classes_and_images import alike_classes, unused_classes
from detaug.converters.records.images import Images
from detaug.converters.records.record import Contents
from detaug.converters.records.record_image import About, RecordImage, StoredObjects
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
    """Whether annotations get one: either all of a json have a track_id, or none has. Those of a part may be needed."""
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
    found: Images,
    classes: Sequence[str] | None,
    earlier: Sequence[Finding],
    videos: Sequence[str],
    *,
    is_part: bool,
) -> tuple[DataSet, int, list[Finding]]:
    """Return the data set with the objects of its classes, how many images have none, and findings about classes.

    videos: the names of those of all parts; none for a whole.
    """
    findings, without_boxes, last_track = list[Finding](), 0, None
    not_listed: dict[tuple[str, str], Finding] = {}
    counts, crowds, shapes, fingerprints = Counter[str](), 0, set[str](), array("q")
    key_points = {name: [*points] for name, points in contents.key_points.items()}
    for each in images:
        about = stored.about(each)
        if contents.compares_images:
            fingerprints.append(hash(about.fingerprint))
        own = {name: n for name, n in about.counts.items() if classes is None or name in classes}
        if len(own) < len(about.counts):
            _count_not_listed(not_listed, each, about, stored, own)
        counts.update(own)
        crowds += sum(n for name, n in about.crowds.items() if name in own)
        without_boxes += not own
        shapes |= about.shapes
        if about.last_track is not None:
            last_track = max(about.last_track, about.last_track if last_track is None else last_track)
        for name, points in about.key_points.items():
            known = key_points.setdefault(name, [])
            known += [point for point in points if point not in known]
    for at, first in repeated_files(fingerprints, lambda at: found.folder / images[at].name):
        findings.append(Finding(found.prefix + images[at].name, "image-identical", after=images[first].name))
    findings += not_listed.values()
    listed = [*map(joined_spaces, contents.class_names)] if classes is None else [*classes]
    listed = [*dict.fromkeys(listed)]
    keeps_unused = contents.keeps_unused or classes is not None
    if not keeps_unused and not is_part:
        listed = [name for name in listed if counts[name]] or listed[:1]
    names = [*listed, *sorted(counts.keys() - set(listed))]
    if keeps_unused:
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


def _count_not_listed(
    counts: dict[tuple[str, str], Finding],
    image: RecordImage,
    about: About,
    stored: StoredObjects,
    listed: Collection[str],
) -> None:
    """Count the objects of an image whose class is not listed, by file and class; a single one keeps its place."""
    for item in stored.objects(image):
        if item.class_name not in listed:
            key = about.file, item.class_name
            file = about.file if item.line else about.entry
            single = Finding(file, "class-not-listed", item.object_index, item.line, before=item.class_name)
            count = counts[key].count + 1 if key in counts else 1
            note = f"{count:,} objects of {item.class_name}, which is not among the classes"
            several = Finding(about.file, "class-not-listed", before=item.class_name, note=note, count=count)
            counts[key] = several if count > 1 else single
