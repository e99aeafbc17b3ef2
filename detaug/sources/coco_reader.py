"""`CocoReader`: images of a folder or an object store with the boxes of a COCO JSON file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from detaug.arguments import check, checks_names
from detaug.arrays import Bools, Bytes, Ints
from detaug.coco.annotations import AnnotationError, Annotations, read_annotations
from detaug.coco.other_folders import hint_where
from detaug.coco.unused_parents import without_unused_parents
from detaug.errors import InputError
from detaug.files import heif
from detaug.files.image_file import short_digest
from detaug.files.paths import PathLike
from detaug.maps.find import find_maps
from detaug.maps.kinds import MapKind
from detaug.maps.panoptic import ObjectsOfImages
from detaug.outputs.guards import IMAGES_ORDER, check_json_and_folder
from detaug.pixel_format import DType, PixelFormat
from detaug.sources.clips import Tracks
from detaug.sources.coco_shapes import FlipPairs, WantedShapes
from detaug.sources.source import FolderSource
from detaug.storage.object_store import local_or_remote
from detaug.storage.open_storage import local_json, named, open_storage
from detaug.storage.storage import Upcoming

Crowds = Literal["drop", "keep"]
UnusedParents = Literal["drop", "keep"]


class CocoReader(FolderSource):
    """Images of a folder with the boxes of a COCO JSON file, checked when it is made.

    The two paths may be given in either order, or by name, and may be in S3 or Google Cloud Storage,
    `s3://bucket/folder` and `gs://bucket/folder`; see docs/object-stores.md. A mistake in the JSON file raises
    AnnotationError, an InputError that names the entry, and so does a folder without the images; `Loader` decides on
    single images that are `missing`.

    Labels are 1..K in the order of the category ids; 0 is the background. Give an evaluator the reader, not the JSON
    file.

    Args:
        images: The folder that the JSON file's file names are relative to.
        annotations: The JSON file.
        columns: Keys of the JSON file's annotations, such as "area", "id" or "difficult", whose values each box keeps:
            see `Batch.columns`. Lists and text are possible, and "attributes.occluded" is a key within another.
        keypoints: Whether to read the keypoints of objects, for `Batch.keypoints`. In flipped images those that have
            sides are swapped: left_eye and right_eye, l_eye and r_eye, eye-L and eye-R.
        flip_pairs: These pairs, where names do not tell them: of names, or of positions from 0; [] if none are swapped.
        masks: Whether to read `segmentation`, polygons and RLE, for `Batch.masks`. An annotation without one has the
            mask of its `corners`, else of its box.
        rotated: Whether to read rotated boxes, for `Batch.corners` and `Batch.rotated_boxes`: `corners` of the
            annotations, their `segmentation` where it has four points, else the box.
        tight: Whether each box is that of the visible part of its object's polygon, where an op rotated or clipped it.
        crowds: Regions marked `iscrowd` are not objects to train on: "drop" leaves them out; with "keep" they are
            boxes, and "iscrowd" is a column.
        unused_parents: "drop" leaves out each category that is the `supercategory` of another one and is without an
            annotation, even a crowd, as RF-DETR does: the labels of those behind it are then one less. All stay if none
            would be left. The rule looks at this JSON file alone, so another split may keep a category: compare
            `class_names`.
        channels: The number of bands of the files. With anything but 3 bands of "uint8", 8-bit RGB, all files must have
            them, and a recipe gets float32 in their own values, which the CPU decodes for a GPU too; see docs/bands.md.
        dtype: Their type: "uint8", "uint16" or "float32".
        bands: Positions, from 0, of the bands that are used, in this order; None: all.
        maps: By name, files beside the images with a value for each pixel, {"semantic": da.ClassMap("masks")}, for
            `Batch.maps`; see docs/maps.md.
        cache: Whether to store the parsed content of a JSON file of 4 MB or more, and decoded maps of classes and
            segments, in ~/.cache/detaug, which makes the next start faster.
        cache_folder: Where downloads from an object store are kept; None: ~/.cache/detaug/objects.
        cache_size: The most bytes of them.

    >>> reader = da.CocoReader("demo/VOC/JPEGImages", "train.json")
    >>> print(len(reader), "images of", reader.class_names)
    48 images of ('background', 'ball', 'car', 'fish', 'house', 'mug', 'tree')
    >>> da.CocoReader("demo", "train.json")
    Traceback (most recent call last):
        ...
    detaug.AnnotationError: train.json: 48 of 48 ...; demo/VOC/JPEGImages has it
    """

    class_names: tuple[str, ...]
    """Name of each label; index 0 is the background."""
    category_ids: tuple[int, ...]
    """The JSON file's category id of each label; index 0, the background, holds -1."""

    @checks_names
    def __init__(
        self,
        images: PathLike,
        annotations: PathLike,
        *,
        columns: Sequence[str] = (),
        keypoints: bool = False,
        flip_pairs: FlipPairs = None,
        masks: bool = False,
        rotated: bool = False,
        tight: bool = False,
        crowds: Crowds = "drop",
        unused_parents: UnusedParents = "keep",
        channels: int = 3,
        dtype: DType = "uint8",
        bands: Sequence[int] | None = None,
        maps: Mapping[str, MapKind] | None = None,
        cache: bool = True,
        cache_folder: PathLike | None = None,
        cache_size: str | int = "20GB",
    ) -> None:
        if isinstance(images, list | tuple) or isinstance(annotations, list | tuple):
            raise InputError(
                "CocoReader takes one folder and one JSON file; da.ConcatReader([READER, READER]) joins several, and "
                "da.StackReader([READER, READER]) stacks the bands of files of the same scenes"
            )
        if os.path.isfile(images) and os.path.isdir(annotations):  # in the order of the commands: FILE.json IMAGES
            images, annotations = annotations, images
        self.images, self.annotations = local_or_remote(images), local_or_remote(annotations)
        check_json_and_folder(self.annotations, self.images, IMAGES_ORDER)
        # Absolute: a later change of the working folder changes nothing.
        self.folder, self.annotations_file = self.images.absolute(), self.annotations.absolute()
        self.pixel_format = PixelFormat(channels, dtype, None if bands is None else tuple(bands))
        for name, value in (("crowds", crowds), ("unused_parents", unused_parents)):
            check(name, value, value in ("drop", "keep"), "'drop' or 'keep'")
        names = dict.fromkeys([*column_names(columns), *(["iscrowd"] if crowds == "keep" else [])])
        wanted = WantedShapes(keypoints, flip_pairs, rotated, tight, masks)
        wanted_columns = wanted.with_columns(names)
        file = local_json(self.annotations, cache_folder)
        with named(self.annotations, file):
            data = read_annotations(file, columns=wanted_columns, outlines=wanted.outlines, cache=cache)
        data, self.json_file = replace(data, path=self.annotations), file.absolute()
        data = data if unused_parents == "keep" else without_unused_parents(data)
        self._video_files = data.video_files
        self._without_map: dict[int, str] = {}
        self._keep_columns(data)
        keep = ~data.crowd | (crowds == "keep")
        arguments = source_columns(data, keep, names) | {"origin": str(self.annotations)}
        super().__init__(**arguments, shapes=wanted.of(data, keep))
        self.file_names = data.file_names
        self._storage = open_storage(self.folder, data, cache_folder, cache_size)
        if not self.file_names:
            raise AnnotationError(f"{self.annotations}: no images; there is nothing to read")
        expected = "" if self.pixel_format.is_rgb8 else f" --channels {channels} --dtype {dtype}"
        advice = f"detaug check {self.annotations} {self.images} --decode{expected} --clean OUT.json"
        advice += " leaves out what is broken"
        in_bucket = "put the object there again, or leave it out of the JSON file"
        self.remedy = advice if self._storage.is_local else in_bucket
        self.has_heif = heif.are_among(self.file_names)
        self.files = self._storage.is_local and not (data.shards or self.has_heif) and self.pixel_format.is_rgb8
        files = self._storage.shards.files()
        self.missing = np.union1d(self._storage.shards.missing(), files[self._storage.file_sizes < 0])
        # of no image a file is there: it is the folder that is wrong, and no loader could skip them
        if len(self.missing) == len(self):
            self.check_files()
        objects = partial(self._objects_of_images, data.crowd[keep])
        self.maps = by_name = find_maps(maps, self.folder, self.file_names, self.sizes, objects, cache=cache)
        if by_name:  # `check` knows nothing of maps
            self.remedy = "replace the file, or leave its image out of the JSON file"
        self._without_map = {
            index: of_name.why_absent(index) for of_name in by_name.values() for index in of_name.refused
        }
        self.missing = np.union1d(self.missing, [*self._without_map]).astype(np.int64)

    def _objects_of_images(self, crowd: Bools) -> ObjectsOfImages:
        """Return the annotations, for panoptic maps."""
        boxes = self._boxes * np.tile(np.repeat(self.sizes[:, ::-1], np.diff(self._box_offsets), 0), 2)
        return ObjectsOfImages(self.class_names[1:], self._box_offsets, self._labels, boxes, crowd)

    def _keep_columns(self, data: Annotations) -> None:
        """Keep what a subclass needs of the JSON file besides images, boxes and classes."""

    def __repr__(self) -> str:
        objects = f"{len(self)} images, {len(self._boxes)} boxes, {len(self.class_names) - 1} classes"
        return f"CocoReader({str(self.images)!r}, {str(self.annotations)!r})  # {objects}"

    def why_missing(self, index: int) -> str:
        """Return the reason why a missing image cannot be used."""
        if index in self._without_map:
            return self._without_map[index]
        in_shard = bool(self._storage.shards.name(index))
        return "cannot be read: its shard does not exist, or ends before it" if in_shard else super().why_missing(index)

    def check_files(self) -> None:
        """Raise AnnotationError if an image was missing when the reader was made."""
        if len(cut := self._storage.shards.cut_off()):
            raise AnnotationError(
                f"{self.folder / self._storage.shards.name(int(cut[0]))} ends before {len(cut)} of the images that "
                f"{self.annotations} has in it; get it again, or convert it again"
            )
        if len(self.missing) == len(self) and self._video_files:
            raise AnnotationError(
                f"{self.annotations}: the frames are in video files, as {min(self._video_files.values())!r}, and are "
                "not files; da.VideoReader(VIDEOS, annotations=JSON) reads them, and so does detaug preview --frames N"
            )
        if self._without_map:
            index, why = min(self._without_map.items())
            without = f"{len(self._without_map)} of {len(self)} images have no map, the first: {self.path(index)}"
            raise AnnotationError(f"{self.annotations}: {without} {why}")
        if len(self.missing):
            shard = self._storage.shards.name(int(self.missing[0]))
            first = shard or self.file_names[self.missing[0]]
            better = hint_where(first, self.images, self.annotations)
            if not better and len(self.missing) < len(self):
                better = f", or leave them out{' with detaug check --clean' * self._storage.is_local}"
            raise AnnotationError(
                f"{self.annotations}: {len(self.missing)} of {len(self)} images are not in {self.images}, the first is "
                f"{first!r}; {self._advice_for_folder('shard' if shard else 'file_name')}{better}"
            )

    def _advice_for_folder(self, key: str) -> str:
        """Return what an error advises where images are not in the folder. `key`: the JSON file's key of the names."""
        return f"give the folder that {key} is relative to"

    def path(self, index: int) -> Path:
        """Return the file of an image; of an image in a shard, the shard's path and the image's name."""
        return self.folder / self._storage.shards.name(index) / self.file_names[index]

    def read(self, index: int) -> bytes:
        """Return the encoded image. Raises OSError if it cannot be read."""
        return self._storage.read(index)

    def contents(self, indices: Ints) -> list[Bytes]:
        """Return the encoded images at these positions; those in local shards without a copy."""
        return self._storage.contents(indices)

    def prefetch(self, upcoming: Iterator[Upcoming]) -> None:
        """Download what will be read, from an object store."""
        self._storage.prefetch(upcoming)

    @cached_property
    def files_fingerprint(self) -> str:
        """Return a hash of the sizes of the image files and shards in bytes, as they were when the reader was made."""
        return short_digest(self._storage.version)


def json_of(annotations: PathLike | CocoReader) -> tuple[Path, Path]:
    """Return a JSON file, or that of a reader, and its file: of one in a bucket the copy that the reader read.

    Both are absolute: a later change of the working folder changes nothing.
    """
    if isinstance(annotations, CocoReader):
        return annotations.annotations_file, annotations.json_file
    path = local_or_remote(annotations).absolute()
    return path, local_json(path, None)


def column_names(columns: Sequence[str]) -> list[str]:
    """Return the keys of annotations that are columns. Raises InputError for what is not a list of them."""
    if not (isinstance(columns, list | tuple) and all(isinstance(name, str) for name in columns)):
        raise InputError(f"columns must be a list of keys of the JSON file's annotations, got {columns!r}")
    return list(columns)


def source_columns(data: Annotations, keep: Bools, columns: Iterable[str] = ()) -> dict[str, Any]:
    """Return the arguments of `Source`. `keep`: (A,) which annotations it has; `columns`: the names of its columns."""
    ids = tuple(data.categories)
    return {
        "sizes": data.sizes,
        "class_names": tuple(data.categories.values()),
        "boxes": data.boxes[keep],
        "counts": _counts(data, keep),
        "columns": {name: data.columns[name][keep] for name in columns},
        "labels": np.searchsorted(ids, data.category_ids[keep]) + 1,
        "classes": _classes(data),
        "image_ids": data.image_ids,
        "category_ids": ids,
        "origin": str(data.path),
    }


def tracks_of(data: Annotations) -> Tracks:
    """Return the objects of a CocoVID JSON file."""
    keep = ~data.crowd
    return Tracks(data.track_ids[keep], _counts(data, keep))


def _counts(data: Annotations, keep: Bools) -> Ints:
    """Return (n,) how many of the boxes that are kept each image has."""
    return np.diff(np.concatenate([[0], np.cumsum(keep)])[data.first])


def _classes(data: Annotations) -> Ints | None:
    """Return (n,) the position of each image's category, None if no image has one. Raises AnnotationError."""
    has_class = data.image_categories >= 0
    if not has_class.any():
        return None
    if not has_class.all():
        first = data.file_names[int(np.argmin(has_class))]
        raise AnnotationError(f"{data.path}: some images have a category_id, {first!r} has none; give all or none one")
    return np.searchsorted(tuple(data.categories), data.image_categories)
