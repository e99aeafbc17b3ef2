"""`CocoReader`: a checked COCO json with its image folder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from detaug.arrays import Bytes, Ints
from detaug.converters.check.images import folder_that_has
from detaug.converters.coco.annotations import AnnotationError, Annotations, read_annotations
from detaug.converters.conversion.inputs import IMAGES_ORDER, check_json_and_folder
from detaug.converters.files.digests import short_digest
from detaug.converters.files.paths import PathLike
from detaug.errors import InputError
from detaug.sources.bucket_storage import BucketStorage
from detaug.sources.coco_columns import Crowds, source_columns
from detaug.sources.folder_source import FolderSource
from detaug.sources.object_path import ObjectPath, local_or_remote
from detaug.sources.remote_files import cache_folder_or_default, open_cache, read_remote_annotations
from detaug.sources.source import Upcoming
from detaug.sources.storage import FolderStorage, Storage


class CocoReader(FolderSource):
    """Images of a folder with the boxes of a COCO json, checked when it is made.

    The arguments may be given by name. `images`: the folder that the json's file names are relative to. `annotations`:
    the json. A mistake in it raises AnnotationError, an InputError that names the entry, and so does a folder without
    the images; `Loader` decides on single images that are `missing`.

    `columns`: keys of the json's annotations, such as "area", "id" or "difficult", whose values each box keeps: see
    `Batch.columns`. Lists and text are possible, and "attributes.occluded" is a key within another.
    `crowds`: regions marked `iscrowd` are no objects to train on: "drop" leaves them out; with "keep" they are boxes,
    and "iscrowd" is a column.

    Labels are 1..K in the order of the category ids; 0 is the background.

    `cache`: store the parsed content of a json of 4 MB or more in ~/.cache/detaug, which makes the next start faster.

    Folder and json may be in S3 or Google Cloud Storage, `s3://bucket/folder` and `gs://bucket/folder`. What is read is
    kept in `cache_folder`, by default ~/.cache/detaug/objects, up to `cache_size` bytes; see docs/object-stores.md.

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
    """The json's category id of each label; index 0, the background, holds -1."""

    def __init__(
        self,
        images: PathLike,
        annotations: PathLike,
        *,
        columns: Sequence[str] = (),
        crowds: Crowds = "drop",
        cache: bool = True,
        cache_folder: PathLike | None = None,
        cache_size: str | int = "20GB",
    ) -> None:
        if isinstance(images, list | tuple) or isinstance(annotations, list | tuple):
            raise InputError(
                "CocoReader takes one folder and one json; da.ConcatReader([READER, READER]) joins several"
            )
        self.images, self.annotations = local_or_remote(images), local_or_remote(annotations)
        check_json_and_folder(self.annotations, self.images, IMAGES_ORDER)
        # Absolute: a later change of the working folder changes nothing.
        self.folder, self.annotations_file = self.images.absolute(), self.annotations.absolute()
        if not (isinstance(columns, list | tuple) and all(isinstance(name, str) for name in columns)):
            raise InputError(f"columns must be a list of keys of the json's annotations, got {columns!r}")
        if crowds not in ("drop", "keep"):
            raise InputError(f"crowds must be 'drop' or 'keep', got {crowds!r}")
        names = dict.fromkeys([*columns, *(["iscrowd"] if crowds == "keep" else [])])
        data = _read(self.annotations, tuple(names), cache, cache_folder)
        self._keep_columns(data)
        super().__init__(**{**source_columns(data, crowds), "origin": str(self.annotations)})
        self.file_names = data.file_names
        _check_folder(self.images, self.annotations, self.file_names)
        self._storage, self.remedy = self._open(data, cache_folder, cache_size)
        self.files = isinstance(self._storage, FolderStorage) and not data.shards
        files = self._storage.shards.files()
        self.missing = np.union1d(self._storage.shards.missing(), files[self._storage.file_sizes < 0])
        if len(self.missing) == len(self):
            self.check_files()

    def _keep_columns(self, data: Annotations) -> None:
        """Keep what a subclass needs of the json besides images, boxes and classes."""

    def _open(self, data: Annotations, cache_folder: PathLike | None, cache_size: str | int) -> tuple[Storage, str]:
        """Return where the images are, and what an error advises for an image that cannot be used."""
        if isinstance(self.folder, ObjectPath):
            cache = open_cache(cache_folder, cache_size)
            bucket = BucketStorage(self.folder, self.file_names, data.shards, data.places, data.checksums, cache)
            return bucket, "put the object there again, or leave it out of the json"
        storage = FolderStorage(self.folder, self.file_names, data.shards, data.places, data.checksums)
        check = f"detaug check {self.annotations} {self.images} --decode --clean OUT.json"
        return storage, f"{check} leaves out what is broken"

    def __repr__(self) -> str:
        objects = f"{len(self)} images, {len(self._boxes)} boxes, {len(self.class_names) - 1} classes"
        return f"CocoReader({str(self.images)!r}, {str(self.annotations)!r})  # {objects}"

    def why_missing(self, index: int) -> str:
        """Return the reason why a missing image cannot be used."""
        in_shard = bool(self._storage.shards.name(index))
        return "cannot be read: its shard does not exist, or ends before it" if in_shard else super().why_missing(index)

    def check_files(self) -> None:
        """Raise AnnotationError if an image was missing when the reader was made."""
        if len(cut := self._storage.shards.cut_off()):
            raise AnnotationError(
                f"{self.folder / self._storage.shards.name(int(cut[0]))} ends before {len(cut)} of the images that "
                f"{self.annotations} has in it; get it again, or convert it again"
            )
        if len(self.missing):
            shard = self._storage.shards.name(int(self.missing[0]))
            first = shard or self.file_names[self.missing[0]]
            better = folder_that_has(first, self.images, self.annotations) or self._advice_for_some()
            raise AnnotationError(
                f"{self.annotations}: {len(self.missing)} of {len(self)} images are not in {self.images}, the first is "
                f"{first!r}; {self._advice_for_folder('shard' if shard else 'file_name')}{better}"
            )

    def _advice_for_folder(self, key: str) -> str:
        """Return what an error advises where images are not in the folder. `key`: the json's key of the names."""
        return f"give the folder that {key} is relative to"

    def _advice_for_some(self) -> str:
        """Return what else an error advises: to leave out images, but not all of them."""
        return "" if len(self.missing) == len(self) else ", or leave them out with detaug check --clean"

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


def _read(annotations: Path, columns: tuple[str, ...], cache: bool, cache_folder: PathLike | None) -> Annotations:
    if isinstance(annotations, ObjectPath):
        folder = cache_folder_or_default(cache_folder)
        return read_remote_annotations(annotations, folder, columns=columns, cache=cache)
    return read_annotations(annotations, columns=columns, cache=cache)


def _check_folder(folder: Path, annotations: Path, names: tuple[str, ...]) -> None:
    if not (isinstance(folder, ObjectPath) or folder.is_dir()):
        raise AnnotationError(f"{folder}: no such folder; it must hold the images that {annotations} names")
    if not names:
        raise AnnotationError(f"{annotations}: no images; there is nothing to read")
