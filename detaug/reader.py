"""`CocoReader`: a checked COCO json and its image folder, and the DALI nodes that read them."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from nvidia.dali import fn

from detaug.converters.annotations import AnnotationError, read_annotations
from detaug.geometry import view_matrix
from detaug.sample import Node, Random, Sample

Rows = NDArray[np.int64]
"""(n,) positions of images in the json's list."""


class CocoReader:
    """Images of a folder with the boxes of a COCO json, checked before anything is built on them.

    `images`: the folder that the json's file names are relative to. `annotations`: the json; its mistakes are
    errors here that name the entry (see `detaug.converters.annotations.read_annotations`), and so is a file
    that is missing. Regions marked `iscrowd` are not objects to train on and are left out.

    Labels are 1..K in the order of the category ids; 0 is the background.
    """

    class_names: tuple[str, ...]
    """Name of each label; index 0 is the background."""
    category_ids: tuple[int, ...]
    """The json's category id of each label; index 0, the background, holds -1."""

    def __init__(self, images: str | os.PathLike[str], annotations: str | os.PathLike[str]) -> None:
        self.images, self.annotations = Path(images), Path(annotations)
        data = read_annotations(self.annotations)
        self.image_ids = data.image_ids
        self.sizes = data.sizes
        self.file_names = data.file_names
        self.class_names = ("background", *data.categories.values())
        self.category_ids = (-1, *data.categories)
        self._paths = _path_table(self.images, self.annotations, self.file_names)
        keep = ~data.crowd
        self._boxes = _relative(data.boxes, data.sizes, data.first)[keep]
        self._labels = np.searchsorted(self.category_ids, data.category_ids[keep]).astype(np.int32)
        self._first = np.concatenate([[0], np.cumsum(keep)])[data.first]

    def __len__(self) -> int:
        return len(self.image_ids)

    def __repr__(self) -> str:
        objects = f"{len(self)} images, {len(self._boxes)} boxes, {len(self.class_names) - 1} classes"
        return f"CocoReader({str(self.images)!r}, {str(self.annotations)!r})  # {objects}"

    def arrays(self, rows: Rows) -> dict[str, NDArray[Any]]:
        """What the graph's inputs need for the images at `rows`, by input name; first axis n."""
        count = self._first[rows + 1] - self._first[rows]
        most = max(int(count.max()), 1)
        at = np.minimum(self._first[rows][:, None] + np.arange(most), max(len(self._boxes) - 1, 0))
        size = self.sizes[rows].astype(np.float32)
        return {
            "path": self._paths[rows],
            "boxes": self._boxes[at] if len(self._boxes) else np.zeros((len(rows), most, 4), np.float32),
            "labels": self._labels[at] if len(self._boxes) else np.zeros((len(rows), most), np.int32),
            "count": count.astype(np.int32)[:, None],
            "size": size,
            "source": view_matrix(np.zeros_like(size), size[:, ::-1]),
        }

    def path(self, row: int) -> Path:
        """Where the image at `row` lies."""
        return self.images / self.file_names[row]

    def fingerprint(self) -> str:
        """The same for the same images and boxes in the same order."""
        columns = (self.image_ids, self.sizes, self._first, self._boxes, self._labels)
        return hashlib.sha256(b"".join(column.tobytes() for column in columns)).hexdigest()[:16]

    def sample(self, random: Random, **decoder: Any) -> tuple[Sample, Node]:
        """The graph's beginning: the whole image as a sample, and (3,) int64, the shape of the file's image.

        `decoder`: arguments of DALI's `decoders.image`.
        """
        count = fn.external_source(name="count")
        boxes, labels = (fn.slice(fn.external_source(name=name), 0, count, axes=[0]) for name in ("boxes", "labels"))
        size, source = fn.external_source(name="size"), fn.external_source(name="source")
        encoded = fn.io.file.read(fn.external_source(name="path"))
        image = fn.decoders.image(encoded, **decoder)
        shape = fn.peek_image_shape(encoded)
        return Sample(image, boxes, labels, source, size, source, random), shape


def _path_table(folder: Path, annotations: Path, names: tuple[str, ...]) -> NDArray[np.uint8]:
    """(N, longest path) uint8, padded with zeros: the system ends a path at the first zero."""
    if not folder.is_dir():
        raise AnnotationError(f"{folder}: no such folder; it must hold the images that {annotations} names")
    if not names:
        raise AnnotationError(f"{annotations}: no images; there is nothing to read")
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise AnnotationError(
            f"{annotations}: {len(missing)} of {len(names)} images are not in {folder}, the first is "
            f"{missing[0]!r}; give the folder that file_name is relative to, or detaug check --clean"
        )
    paths = np.array([os.fsencode(folder.absolute() / name) for name in names])
    return np.frombuffer(paths.tobytes(), np.uint8).reshape(len(names), -1)


def _relative(boxes: NDArray[np.float64], sizes: Rows, first: Rows) -> NDArray[np.float32]:
    """(A, 4) XYXY pixels -> float32 relative to each box's image."""
    size = np.repeat(sizes[:, ::-1], np.diff(first), axis=0)
    return (boxes / np.tile(size, 2)).astype(np.float32)
