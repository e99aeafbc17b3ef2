"""`CocoReader`: a checked COCO json with its image folder, and the DALI nodes that read and decode the images."""

from __future__ import annotations

import hashlib
import os
from functools import cached_property
from pathlib import Path
from stat import S_ISREG
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from nvidia.dali import fn, types

from detaug.boxes.views import Floats, Ints, Views, padded, pairs, whole_images
from detaug.converters.check.images import folder_that_has
from detaug.converters.coco.annotations import AnnotationError, read_annotations
from detaug.converters.conversion.inputs import IMAGES_ORDER, check_json_and_folder
from detaug.converters.findings.errors import InputError

Node: TypeAlias = Any


class CocoReader:
    """Images of a folder with the boxes of a COCO json, checked when it is made.

    The arguments may be given by name. `images`: the folder that the json's file names are relative to. `annotations`:
    the json. A mistake in it raises AnnotationError, an InputError that names the entry, and so does a folder without
    the images; `Loader` decides on single images that are `missing`.
    Regions marked `iscrowd` are not objects to train on and are left out.

    Labels are 1..K in the order of the category ids; 0 is the background.

    `cache`: store the parsed content of a json of 4 MB or more in ~/.cache/detaug, which makes the next start faster.

    >>> reader = da.CocoReader("demo/VOC/JPEGImages", "train.json")
    >>> print(len(reader), "images of", reader.class_names)
    48 images of ('background', 'ball', 'car', 'fish', 'house', 'mug', 'tree')
    >>> da.CocoReader("demo", "train.json")
    Traceback (most recent call last):
        ...
    detaug.converters.findings.errors.AnnotationError: train.json: 48 of 48 ...; demo/VOC/JPEGImages has it
    """

    class_names: tuple[str, ...]
    """Name of each label; index 0 is the background."""
    category_ids: tuple[int, ...]
    """The json's category id of each label; index 0, the background, holds -1."""
    missing: Ints
    """The positions of images whose files do not exist; `Loader` refuses them, or skips them with on_error="skip"."""

    def __init__(
        self, images: str | os.PathLike[str], annotations: str | os.PathLike[str], *, cache: bool = True
    ) -> None:
        check_json_and_folder(annotations, images, IMAGES_ORDER)
        self.images, self.annotations = Path(images), Path(annotations)
        # Absolute: a later change of the working folder changes nothing.
        self._folder, self.annotations_file = self.images.absolute(), self.annotations.absolute()
        data = read_annotations(self.annotations, cache=cache)
        self.image_ids = data.image_ids
        self.sizes, self.pixels = data.sizes, data.sizes.prod(1)
        self.file_names = data.file_names
        self.class_names = ("background", *data.categories.values())
        self.category_ids = (-1, *data.categories)
        _check_folder(self.images, self.annotations, self.file_names)
        self._paths = _path_table(self._folder, self.file_names)
        self._file_sizes = _file_sizes(self._folder, self.file_names)
        self.missing = np.flatnonzero(self._file_sizes < 0)
        if len(self.missing) == len(self):
            self.check_files()
        keep = ~data.crowd
        self._boxes = _relative(data.boxes, data.sizes, data.first)[keep]
        self._labels: Ints = np.searchsorted(self.category_ids, data.category_ids[keep])
        self._box_offsets = np.concatenate([[0], np.cumsum(keep)])[data.first]

    def __len__(self) -> int:
        return len(self.image_ids)

    def __repr__(self) -> str:
        objects = f"{len(self)} images, {len(self._boxes)} boxes, {len(self.class_names) - 1} classes"
        return f"CocoReader({str(self.images)!r}, {str(self.annotations)!r})  # {objects}"

    def check_files(self) -> None:
        """Raise AnnotationError if an image was missing when the reader was made."""
        if len(self.missing):
            first = self.file_names[self.missing[0]]
            better = folder_that_has(first, self.images, self.annotations) or ", or detaug check --clean"
            raise AnnotationError(
                f"{self.annotations}: {len(self.missing)} of {len(self)} images are not in {self.images}, the first is "
                f"{first!r}; give the folder that file_name is relative to{better}"
            )

    def views(self, indices: Ints) -> Views:
        """Return the whole images at these positions in the json's list, with their boxes."""
        count, (_, at) = self._box_offsets[indices + 1] - self._box_offsets[indices], pairs(self._box_offsets, indices)
        boxes, labels = padded(self._boxes.take(at, 0), count, 0), padded(self._labels.take(at), count, -1)
        return whole_images(boxes, labels, self.sizes[indices].astype(np.float64))

    def indices_of(self, image_ids: Ints) -> Ints:
        """Return the positions of the images with these ids. Raises InputError for an unknown id."""
        order = np.argsort(self.image_ids)
        at = order[np.searchsorted(self.image_ids, image_ids, sorter=order).clip(max=len(self) - 1)]
        unknown = image_ids[self.image_ids[at] != image_ids]
        if len(unknown):
            raise InputError(f"{self.annotations} has no image with id {unknown[0]}")
        return np.asarray(at)

    def inputs(self, indices: Ints) -> dict[str, NDArray[Any]]:
        """Return the inputs of `decoded` for these images, by name."""
        return {"path": self._paths[indices], "size": self.sizes[indices].astype(np.int32)}

    def path(self, index: int) -> Path:
        """Return the file of an image."""
        return self._folder / self.file_names[index]

    def labels(self) -> tuple[Ints, Ints]:
        """Return each pair of an image and a label that it has, once: (P,) indices of images and (P,) labels."""
        classes = len(self.class_names)
        images = np.repeat(np.arange(len(self)), np.diff(self._box_offsets))
        indices, labels = np.divmod(np.unique(images * classes + self._labels), classes)
        return indices, labels

    @cached_property
    def fingerprint(self) -> str:
        """Return a hash that is equal for the same images, boxes and classes in the same order."""
        columns = (self.image_ids, self.sizes, self._box_offsets, self._boxes, self._labels)
        names = "\0".join([*self.file_names, *self.class_names, *map(str, self.category_ids)])
        content = b"".join([*(column.tobytes() for column in columns), names.encode("utf-8", "surrogateescape")])
        return hashlib.sha256(content).hexdigest()[:16]

    @cached_property
    def files_fingerprint(self) -> str:
        """Return a hash of the sizes of the image files in bytes, as they were when the reader was made."""
        return hashlib.sha256(self._file_sizes.tobytes()).hexdigest()[:16]


def decoded(device: str, hw_decoder_load: float = 1.0) -> Node:
    """Return the node of (H, W, 3) uint8 RGB images on `device`, with the EXIF orientation applied.

    It is fed with `CocoReader.inputs`. A file that is not an image, or not of the size in the json, is an error of
    the pipeline. On a GPU the share `hw_decoder_load` of the JPEGs goes to its JPEG engine.
    """
    encoded = fn.io.file.read(fn.external_source(name="path"), dont_use_mmap=True)  # mmap stalls all threads
    encoded = of_size(encoded, fn.external_source(name="size"))
    if device == "cpu":
        return fn.decoders.image(encoded, device="cpu", output_type=types.RGB)
    return fn.decoders.image(
        encoded,
        device="mixed",
        output_type=types.RGB,
        hw_decoder_load=hw_decoder_load,
        preallocate_width_hint=640,
        preallocate_height_hint=640,
    )


def of_size(encoded: Node, size: Node) -> Node:
    """Return the encoded images; one that is not of `size` (height, width) is an error of the pipeline.

    The decoder must not see it: DALI 2.4 ends the process on a GPU for a file that is not an image while other batches
    are in flight, and on both devices where a view lies outside of a smaller image.
    """
    shape = fn.peek_image_shape(encoded, dtype=types.INT32)
    length = encoded.shape(dtype=types.INT32)[0] + (shape[0] != size[0]) + (shape[1] != size[1])
    length = fn.stack(fn.cast(length, dtype=types.INT32))
    return fn.reshape(encoded, shape=length)  # no copy; fails where the image has another size than the json says


def _check_folder(folder: Path, annotations: Path, names: tuple[str, ...]) -> None:
    if not folder.is_dir():
        raise AnnotationError(f"{folder}: no such folder; it must hold the images that {annotations} names")
    if not names:
        raise AnnotationError(f"{annotations}: no images; there is nothing to read")


def _path_table(folder: Path, names: tuple[str, ...]) -> NDArray[np.uint8]:
    """Return the paths as (N, longest path) uint8, padded with zeros, which end a path."""
    paths = np.array([os.fsencode(folder / name) for name in names])
    return np.frombuffer(paths.tobytes(), np.uint8).reshape(len(names), -1)


def _file_sizes(folder: Path, names: tuple[str, ...]) -> Ints:
    """Return (N,) sizes in bytes; -1 for what is no file, or cannot be looked at."""
    root = os.path.join(folder, "")
    return np.array([_file_size(root + name) for name in names], np.int64)


def _file_size(path: str) -> int:
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return -1
    return status.st_size if S_ISREG(status.st_mode) else -1


def _relative(boxes: Floats, sizes: Ints, box_offsets: Ints) -> Floats:
    """Return (A, 4) XYXY boxes in pixels relative to the size of their images."""
    size = np.repeat(sizes[:, ::-1], np.diff(box_offsets), axis=0)
    return boxes / np.tile(size, 2)
