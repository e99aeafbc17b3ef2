"""What `CocoReader` needs of an object store: the local cache, and the json as a local file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from detaug.converters.coco.annotation_cache import cache_root
from detaug.converters.coco.annotations import Annotations, read_annotations
from detaug.converters.files.atomic import write_atomically
from detaug.converters.files.byte_sizes import parse_size
from detaug.converters.files.digests import short_digest
from detaug.errors import AnnotationError, InputError
from detaug.sources.local_cache import LocalCache, explained_folder, make_shared_folder
from detaug.sources.object_path import ObjectPath
from detaug.sources.object_store import ObjectStore


def cache_folder_or_default(folder: str | os.PathLike[str] | None) -> Path:
    """Return the folder for what is downloaded: by default "objects" in the user's cache folder. Raises InputError."""
    try:
        return cache_root() / "objects" if folder is None else Path(folder).absolute()
    except OSError as error:
        raise InputError(f"{error.strerror}: give cache_folder, for what is downloaded") from None


def open_cache(folder: str | os.PathLike[str] | None, size: str | int) -> LocalCache:
    """Return the cache of downloaded objects. Raises InputError."""
    return LocalCache(cache_folder_or_default(folder), parse_size("cache_size", size))


def read_remote_annotations(address: ObjectPath, folder: Path, *, columns: Sequence[str], cache: bool) -> Annotations:
    """Read and check a COCO json of an object store, as `read_annotations` does. The errors name its address."""
    local = _download(address, folder)
    try:
        return read_annotations(local, columns=columns, cache=cache)
    except AnnotationError as error:
        raise AnnotationError(str(error).replace(str(local), str(address))) from None


def _download(address: ObjectPath, folder: Path) -> Path:
    """Return the local copy of an object, which is downloaded if it is not there or has changed."""
    store = ObjectStore(ObjectPath(address.parent))
    info = store.find([address.name]).get(address.name)
    if info is None:
        raise AnnotationError(f"{address}: no such object; it must be the COCO json")
    local = folder / "annotations" / short_digest(str(address).encode(), info.etag.encode()) / address.name
    if not (local.is_file() and local.stat().st_size == info.size):
        content = store.read(address.name, info)
        with explained_folder(folder):
            folder.mkdir(parents=True, exist_ok=True)
            for each in (local.parent.parent, local.parent):
                make_shared_folder(each, folder)
            write_atomically(local, [content])
    return local
