"""`Source`: images with boxes and classes, for `Loader`; `FolderSource`: images that are files of a folder."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from detaug.arrays import Bools, Bytes, Floats, Ints, padded, pairs
from detaug.boxes.checking import find_fault, to_relative
from detaug.boxes.shapes import Shapes
from detaug.boxes.views import Views, whole_images
from detaug.errors import InputError
from detaug.files.image_file import short_digest
from detaug.maps.files import SourceMap
from detaug.pixel_format import RGB8, PixelFormat
from detaug.sources.clips import FrameColumns, Tracks
from detaug.sources.columns import as_columns
from detaug.storage.storage import Upcoming


class Source:
    """n images with boxes and classes, for `Loader`: what `CocoReader`, `ImageFolder` and `ConcatReader` are.

    A source of your own is a subclass that calls `Source.__init__` and defines `path`; where the images are not files,
    also `contents` and `read`. See docs/data-formats.md.

    Raises InputError where these do not fit. Boxes that reach out of their image by less than a pixel are clipped.

    Args:
        sizes: (n, 2) height and width of the displayed images.
        class_names: Of the labels 1..K, without background.
        boxes: (A, 4) XYXY pixels, or `relative` to the image in 0..1, grouped by image.
        counts: (n,), how many boxes each image has.
        labels: (A,) 1..K.
        classes: (n,) a class of each image as a whole, 0..K-1.
        image_ids: (n,), by default 1..n.
        category_ids: (K,) numbers of the classes for other programs, by default 1..K.
        relative: Whether `boxes` are relative to their image, 0..1.
        columns: By name, arrays (A, ...) of what else belongs to the boxes, for `Batch.columns`: numbers, or objects
            such as text and lists.
        shapes: Keypoints, corners of rotated boxes and polygons of the A annotations.
        origin: What errors say where this comes from.

    >>> from pathlib import Path
    >>> class Photos(da.Source):
    ...     def path(self, index):
    ...         return Path("demo/VOC/JPEGImages") / f"{index + 1:06}.jpg"
    >>> photos = Photos([(375, 500), (333, 500)], ["indoor", "outdoor"], classes=[0, 1])
    >>> batch = next(iter(da.Loader(photos, [da.Resize((8, 8))], batch_size=2)))
    >>> print(batch.classes.sort().values)
    tensor([0, 1])
    """

    files: bool = True
    """Whether the images are files at `path`; otherwise `contents` returns their bytes."""
    has_heif: bool = False
    """Whether some are AVIF or HEIC, which the CPU decodes for DALI; `files` must be False then."""
    decodes: bool = False
    """Whether `contents` returns pixels, (H, W, 3) uint8 RGB, instead of encoded images."""
    pixel_format: PixelFormat = RGB8
    """The bands and the type of the files; with any other than the default, 8-bit RGB, `files` must be False."""
    missing: Ints = np.zeros(0, np.int64)
    """The positions of images that cannot be read; `Loader` refuses them, or skips them with on_error="skip"."""
    frames: FrameColumns | None = None
    """For a source of clips, whose `clips` come as `ClipBatch`: where each image is in its video."""
    tracks: Tracks | None = None
    """For a source of clips: which boxes are one object."""
    stretch_of_clip: Ints | None = None
    """(C,) for clips of video files: the stretch of a video that each begins in. In training, those of one stretch come
    near each other."""
    rounds: Bools | None = None
    """(R, n): the images that training takes in an epoch, in turn: those of row `epoch` % R. None is all."""
    maps: Mapping[str, SourceMap] = MappingProxyType({})
    """Files beside the images with a value for each pixel, by name; see `ClassMap`."""
    remedy: str = "leave it out, or replace the file"
    """What an error advises for an image that cannot be used."""

    def __init__(
        self,
        sizes: ArrayLike,
        class_names: Sequence[str],
        *,
        boxes: ArrayLike = (),
        counts: ArrayLike | None = None,
        labels: ArrayLike = (),
        classes: ArrayLike | None = None,
        image_ids: ArrayLike | None = None,
        category_ids: Sequence[int] | None = None,
        relative: bool = False,
        columns: Mapping[str, ArrayLike] | None = None,
        shapes: Shapes | None = None,
        origin: str = "the source",
    ) -> None:
        self.sizes: Ints = np.asarray(sizes, np.int64).reshape(-1, 2)
        self.pixels: Ints = self.sizes.prod(1)
        n = len(self.sizes)
        self.image_ids: Ints = np.arange(1, n + 1) if image_ids is None else np.asarray(image_ids, np.int64)
        self.class_names = ("background", *class_names)
        self.category_ids = (-1, *(range(1, len(self.class_names)) if category_ids is None else category_ids))
        self.classes: Ints | None = None if classes is None else np.asarray(classes, np.int64)
        self.origin = origin
        counts = np.zeros(n, np.int64) if counts is None else np.asarray(counts, np.int64)
        self._box_offsets: Ints = np.concatenate([[0], np.cumsum(counts)])
        self._labels: Ints = np.asarray(labels, np.int64)
        xyxy = np.asarray(boxes, np.float64).reshape(-1, 4)
        _check_lengths(self, counts, xyxy)
        self._check_values(counts, np.asarray(labels))
        sides = np.tile(np.repeat(self.sizes[:, ::-1], counts, 0), 2)
        if fault := find_fault(xyxy, sides, relative=relative):
            raise InputError(f"{origin}: boxes must be {fault.rule}, got {xyxy[fault.row]} in row {fault.row}")
        self.columns = as_columns(columns or {}, len(xyxy), origin)
        pixels = xyxy * sides if relative else xyxy
        self.shapes = (shapes or Shapes()).of(self._labels - 1, np.repeat(self.sizes[:, 0], counts), origin, pixels)
        self._boxes: Floats = xyxy.clip(0, 1) if relative else to_relative(xyxy, sides)

    def _check_values(self, counts: Ints, labels: NDArray[Any]) -> None:
        classes = len(self.class_names) - 1
        _, inverse, times = np.unique(self.image_ids, return_inverse=True, return_counts=True)
        in_names = (labels >= 1) & (labels <= classes) & np.equal(labels, self._labels)
        _check_rows(self, "counts", counts, counts >= 0, "at least 0")
        _check_rows(self, "image_ids", self.image_ids, times[inverse] == 1, "different for each image")
        _check_rows(self, "labels", labels, in_names, f"whole numbers in 1..{classes}, the number of class_names")
        if self.classes is not None:
            in_names = (self.classes >= 0) & (self.classes < classes)
            _check_rows(self, "classes", self.classes, in_names, f"in 0..{classes - 1}, for {classes} class_names")

    def __len__(self) -> int:
        return len(self.sizes)

    def path(self, index: int) -> Path:
        """Return the file of an image; of an image in a shard, shard and name. Errors name it."""
        raise NotImplementedError(f"{type(self).__name__} must define path(index)")

    def read(self, index: int) -> bytes:
        """Return the encoded image. Raises OSError if it cannot be read."""
        return self.path(index).read_bytes()

    def contents(self, indices: Ints) -> list[Bytes]:
        """Return the encoded images at these positions, without a copy if possible; unused where `files` is True."""
        return [np.frombuffer(self.read(index), np.uint8) for index in indices.tolist()]

    def prefetch(self, upcoming: Iterator[Upcoming]) -> None:
        """Learn which images will be read from now on, epoch after epoch; `contents` asks for them in this order.

        `Loader` calls it when it begins an epoch, and again when it goes somewhere else.
        """

    def paths(self, indices: Ints) -> Bytes:
        """Return the paths as (N, longest path), padded with zeros, which end a path."""
        return np.asarray(self._path_table[indices])

    @cached_property
    def clips(self) -> Ints:
        """Return (C, F) the images of each item that `Loader` shuffles: an image, or the frames of a clip."""
        return np.arange(len(self))[:, None]

    def views(self, indices: Ints) -> Views:
        """Return the whole images at these positions, with their boxes."""
        count, (_, rows) = (
            self._box_offsets[indices + 1] - self._box_offsets[indices],
            pairs(self._box_offsets, indices),
        )
        boxes, labels = padded(self._boxes.take(rows, 0), count, 0), padded(self._labels.take(rows), count, -1)
        return whole_images(boxes, labels, self.sizes[indices].astype(np.float64), padded(rows, count, -1), self.shapes)

    def clip_views(self, indices: Ints) -> Views:
        """Return the whole images of items, F consecutive `indices` each: of clips, with one row for each object."""
        if self.tracks is None:
            return self.views(indices)
        frames = self.clips.shape[1]
        image, box = pairs(self._box_offsets, indices)
        row, rows = self.tracks.rows(image // frames, box, len(indices) // frames)
        shape = len(indices), rows
        boxes, labels, annotations = np.zeros((*shape, 4)), np.full(shape, -1), np.full(shape, -1)
        boxes[image, row], labels[image, row], annotations[image, row] = self._boxes[box], self._labels[box], box
        views = whole_images(boxes, labels, self.sizes[indices].astype(np.float64), annotations, self.shapes)
        return replace(views, frames=frames)

    def image_ids_of_rows(self, rows: Ints) -> Ints:
        """Return the ids of the images that have the boxes `rows`, of any shape, see `Views.rows`; -1 where -1."""
        images = np.searchsorted(self._box_offsets, rows, side="right") - 1
        return np.where(rows < 0, -1, self.image_ids[images])

    def objects(self) -> tuple[Floats, Ints, Ints]:
        """Return boxes (A, 4) XYXY in 0..1 of their images, counts (n,), how many each image has, and labels (A,)."""
        return self._boxes, np.diff(self._box_offsets), self._labels

    def labels(self) -> tuple[Ints, Ints]:
        """Return each pair of an image and a label that it has, once: (P,) indices of images and (P,) labels."""
        names = len(self.class_names)
        images = np.repeat(np.arange(len(self)), np.diff(self._box_offsets))
        keys = np.unique(images * names + self._labels)
        if self.classes is not None:
            keys = np.union1d(keys, np.arange(len(self)) * names + self.classes + 1)
        return np.divmod(keys, names)

    def indices_of(self, image_ids: Ints) -> Ints:
        """Return the positions of the images with these ids. Raises InputError for an unknown id."""
        order = np.argsort(self.image_ids)
        positions = order[np.searchsorted(self.image_ids, image_ids, sorter=order).clip(max=len(self) - 1)]
        unknown = image_ids[self.image_ids[positions] != image_ids]
        if len(unknown):
            raise InputError(f"{self.origin} has no image with id {unknown[0]}")
        return np.asarray(positions)

    def why_missing(self, index: int) -> str:
        """Return the reason why a missing image cannot be used, as the end of a sentence about its file."""
        return "does not exist"

    def explain_size(self, index: int, size: tuple[int, int]) -> str:
        """Return why an image of this size (height, width) cannot be used, as the end of a sentence about its file."""
        (height, width), expected = size, self.sizes[index]
        says = f"{self.origin} says {expected[1]} x {expected[0]}"
        return f"has {width} x {height} pixels, {says}, so its boxes would be misplaced"

    def check_files(self) -> None:
        """Raise InputError if an image was missing when the source was made."""
        if len(self.missing):
            missing = f"{len(self.missing)} of {len(self)} images are missing"
            raise InputError(f"{self.origin}: {missing}, the first is {self.path(int(self.missing[0]))}")

    @cached_property
    def fingerprint(self) -> str:
        """Return a hash that is equal for the same images, boxes, classes, clips and bands in the same order."""
        columns = (self.image_ids, self.sizes, self._box_offsets, self._boxes, self._labels)
        classes = b"" if self.classes is None else self.classes.tobytes()
        clips = (self.clips.tobytes(), self.tracks.ids.tobytes()) if self.tracks else ()
        bands = () if self.pixel_format.is_rgb8 else (repr(self.pixel_format).encode(),)
        rounds = () if self.rounds is None else (self.rounds.tobytes(),)
        return short_digest(*(column.tobytes() for column in columns), self._names(), classes, *clips, *bands, *rounds)

    @cached_property
    def files_fingerprint(self) -> str:
        """Return a hash that changes with the files; "" where that is not known."""
        return ""

    def _names(self) -> bytes:
        """Return what the images and classes are called, for `fingerprint`."""
        return "\0".join([*self.class_names, *map(str, self.category_ids)]).encode("utf-8", "surrogateescape")

    @cached_property
    def _path_table(self) -> Bytes:
        return path_table([os.fspath(self.path(index)) for index in range(len(self))])


def path_table(paths: Sequence[str]) -> Bytes:
    """Return paths as (N, longest path), padded with zeros."""
    encoded = np.array([os.fsencode(path) for path in paths])
    return np.frombuffer(encoded.tobytes(), np.uint8).reshape(len(paths), -1)


def _check_lengths(source: Source, counts: Ints, boxes: Floats) -> None:
    n, rows = len(source), int(counts.sum())
    of_images = {"counts": counts, "image_ids": source.image_ids, "classes": source.classes}
    of_boxes = {"boxes": boxes, "labels": source._labels}
    lengths = {**dict.fromkeys(of_images, n), **dict.fromkeys(of_boxes, rows)}
    for name, column in {**of_images, **of_boxes}.items():
        if column is not None and len(column) != lengths[name]:
            raise InputError(f"{source.origin}: {name} must have {lengths[name]} rows, got {len(column)}")
    if len(source.category_ids) != len(source.class_names):
        names, ids = len(source.class_names) - 1, len(source.category_ids) - 1
        raise InputError(f"{source.origin}: category_ids must have a number for each of {names} classes, got {ids}")


def _check_rows(source: Source, name: str, column: NDArray[Any], good: Any, rule: str) -> None:
    """Raise InputError for the first row of a column that is not good."""
    if not good.all():
        row = int(np.argmin(good))
        raise InputError(f"{source.origin}: {name} must be {rule}, got {column[row]} in row {row}")


def check_sources(sources: Any, clips: str) -> None:
    """Raise InputError for anything but a list of sources of images. `clips`: what it says of clips."""
    fits = isinstance(sources, Sequence) and len(sources) and all(isinstance(source, Source) for source in sources)
    if not fits:
        raise InputError("sources must be a list of sources, such as [da.CocoReader(...), da.CocoReader(...)]")
    if any(source.frames is not None for source in sources):
        raise InputError(clips)


class FolderSource(Source):
    """A source whose images are files of one folder. A subclass sets both attributes."""

    folder: Path
    """Absolute: a later change of the working folder changes nothing."""
    file_names: Sequence[str]
    """n paths relative to the folder."""

    def path(self, index: int) -> Path:
        """Return the file of an image."""
        return self.folder / self.file_names[index]

    @cached_property
    def _path_table(self) -> Bytes:
        return path_table([os.path.join(self.folder, name) for name in self.file_names])

    def _names(self) -> bytes:
        return "\0".join(self.file_names).encode("utf-8", "surrogateescape") + b"\0" + super()._names()
