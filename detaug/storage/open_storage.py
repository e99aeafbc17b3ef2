"""Open a dataset on a disk or in an object store: what decides between them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from detaug.arguments import parse_size
from detaug.coco.annotation_cache import cache_root
from detaug.coco.annotations import Annotations
from detaug.errors import AnnotationError, InputError
from detaug.files.addresses import check_command
from detaug.files.atomic import write_atomically
from detaug.files.image_file import short_digest
from detaug.storage.bucket import BucketStorage
from detaug.storage.folder import FolderStorage
from detaug.storage.local_cache import LocalCache, explained_folder, make_shared_folder
from detaug.storage.object_store import ObjectPath, ObjectStore
from detaug.storage.storage import Storage

CacheFolder = str | os.PathLike[str] | None
"""A folder for what is downloaded; None: "objects" in the user's cache folder."""


def local_json(path: Path, cache_folder: CacheFolder) -> Path:
    """Return the file of a JSON file: of one in a bucket a copy."""
    return _download(path, _cache_folder(cache_folder)) if isinstance(path, ObjectPath) else path


@contextmanager
def named(path: Path, file: Path) -> Iterator[None]:
    """Let an AnnotationError about the file of a JSON file name its path, or its address in a bucket."""
    try:
        yield
    except AnnotationError as error:
        text = str(error).replace(check_command(file), check_command(path)).replace(str(file), str(path))
        raise AnnotationError(text) from None


def open_storage(folder: Path, data: Annotations, cache_folder: CacheFolder, cache_size: str | int) -> Storage:
    """Return where the images of a JSON file are. Raises AnnotationError for a folder that does not exist."""
    if isinstance(folder, ObjectPath):
        cache = LocalCache(_cache_folder(cache_folder), parse_size("cache_size", cache_size))
        return BucketStorage(folder, data.file_names, data.shards, data.places, data.checksums, cache)
    if not folder.is_dir():
        raise AnnotationError(f"{folder}: no such folder; it must hold the images that {data.path} names")
    return FolderStorage(folder, data.file_names, data.shards, data.places, data.checksums)


def _cache_folder(folder: str | os.PathLike[str] | None) -> Path:
    """Return the folder for what is downloaded: by default "objects" in the user's cache folder. Raises InputError."""
    try:
        return cache_root() / "objects" if folder is None else Path(folder).absolute()
    except OSError as error:
        raise InputError(f"{error.strerror}: give cache_folder, for what is downloaded") from None


def _download(address: ObjectPath, folder: Path) -> Path:
    """Return the local copy of an object, which is downloaded if it is not there or has changed."""
    store = ObjectStore(ObjectPath(address.parent))
    info = store.find([address.name]).get(address.name)
    if info is None:
        raise AnnotationError(f"{address}: no such object; it must be the COCO JSON file")
    local = folder / "annotations" / short_digest(str(address).encode(), info.etag.encode()) / address.name
    if not (local.is_file() and local.stat().st_size == info.size):
        content = store.read(address.name, info)
        with explained_folder(folder):
            folder.mkdir(parents=True, exist_ok=True)
            for parent in (local.parent.parent, local.parent):
                make_shared_folder(parent, folder)
            write_atomically(local, [content])
    return local
