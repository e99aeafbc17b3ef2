"""Rows of the JSON file, from records whose objects lie in their images."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count
from typing import Any

from detaug.coco.writer import Row, annotation_row, category_rows
from detaug.converters.records.data_set import DataSet
from detaug.converters.records.placing import Placed
from detaug.converters.records.record_image import RecordImage


def videos_of(images: Iterable[RecordImage]) -> dict[str, int]:
    """Return the id of each video."""
    names = dict.fromkeys(image.video for image in images if image.video)
    return {name: number for number, name in enumerate(names, 1)}


def video_rows(dataset: DataSet) -> Iterator[Row]:
    """Yield the videos."""
    first = {image.video: image for image in reversed(dataset.images)}
    for name, number in videos_of(dataset.images).items():
        row = dataset.stored.about(first[name]).row
        more = dataset.videos.get(name, {})
        yield {"id": number, "name": name, "width": row["width"], "height": row["height"], **more}


def image_rows(dataset: DataSet, folder: str) -> Iterator[Row]:
    """Yield the images, by their names below `folder`."""
    videos = videos_of(dataset.images)
    for image_id, image in enumerate(dataset.images, 1):
        row = {"id": image_id, "file_name": image.name.removeprefix(folder), **dataset.stored.about(image).row}
        if image.video:
            row |= {"video_id": videos[image.video], "frame_id": image.frame}
        yield row


def annotation_rows(dataset: DataSet) -> Iterator[Row]:
    """Yield the objects, and then the regions in which nothing counts, each as a crowd of each class."""
    ids = {name: number for number, name in enumerate(dataset.class_names, 1)}
    free = count((dataset.last_track or 0) + 1)
    numbers = count(1)
    for image_id, image in enumerate(dataset.images, 1):
        for item in dataset.stored.objects(image):
            if item.class_name not in ids:
                continue
            row = _object_row(item, next(numbers), image_id, ids[item.class_name])
            if item.key_points:
                points = [item.key_points.get(name, (0, 0, 0)) for name in dataset.key_points[item.class_name]]
                row["keypoints"] = [number for point in points for number in point]
                row["num_keypoints"] = sum(visible > 0 for _, _, visible in points)
            if dataset.has_tracks:
                row["track_id"] = next(free) if item.track is None else item.track
            row |= item.columns
            yield row
    for region in region_rows(dataset):
        more = {"track_id": next(free)} if dataset.has_tracks else {}
        yield from ({**region, "id": next(numbers), "category_id": number, **more} for number in ids.values())


def region_rows(dataset: DataSet) -> Iterator[Row]:
    """Yield the regions in which nothing counts, without an id and a class."""
    for image_id, image in enumerate(dataset.images, 1):
        for item in dataset.stored.regions(image) if image.has_regions else ():
            yield _object_row(item._replace(is_crowd=True), 0, image_id, 0) | dict(item.columns)


def _object_row(item: Placed, annotation_id: int, image_id: int, category_id: int) -> dict[str, Any]:
    row = annotation_row(annotation_id, image_id, category_id, item.box, iscrowd=item.is_crowd)
    row |= item.keys
    return row


def category_rows_of(dataset: DataSet) -> Iterator[Row]:
    """Yield the classes."""
    for row in category_rows(dataset.class_names):
        names = dataset.key_points.get(str(row["name"]))
        pairs = dataset.skeletons.get(str(row["name"]))
        more = {**({"keypoints": names} if names else {}), **dataset.categories.get(str(row["name"]), {})}
        yield {**row, **more, **({"skeleton": [[*pair] for pair in pairs]} if names and pairs else {})}
