"""Read the sizes of images from their headers once, and store them in the user's cache folder.

The sizes of a folder's images are one cache file, of the kind that CocoReader's annotations have. The size of a file is
valid as long as its path, its length in bytes and the time of its last change are the same.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from detaug.arrays import Ints
from detaug.coco.annotation_cache import load_columns, save_columns
from detaug.files import image_headers, pixel_types
from detaug.files.image_file import short_digest
from detaug.files.image_headers import read_image_sizes
from detaug.storage.folder import file_status

Faults = dict[int, str]
"""Why each image that cannot be used cannot, by its index."""


class FileTable(NamedTuple):
    """N files, by their paths below a folder."""

    names: list[str]
    status: Ints
    """(N, 2): length in bytes, time of the last change in ns; -1 for a file that is not there."""


def stat_files(folder: Path, names: list[str]) -> FileTable:
    """Look at each file."""
    return FileTable(
        names, np.array([file_status(os.path.join(folder, name)) for name in names], np.int64).reshape(-1, 2)
    )


def with_sizes(folder: Path, cached_as: Path, files: FileTable, *, cache: bool) -> tuple[Ints, Faults]:
    """Return (N, 2) height and width of the images below `folder`, (1, 1) for those with a fault, and the faults.

    `cached_as`: the path under which the sizes are cached.
    """
    readers = (Path(file).read_bytes() for file in (image_headers.__file__, pixel_types.__file__))
    key = short_digest(*readers, os.fsencode(folder))
    sizes = _cached_sizes(cached_as, key, files) if cache else np.zeros((len(files.names), 2), np.int64)
    unknown = np.flatnonzero(sizes[:, 0] == 0).tolist()
    faults = _read_into(sizes, unknown, [os.path.join(folder, files.names[index]) for index in unknown])
    if cache and len(unknown) > len(faults):
        names = np.frombuffer("\0".join(files.names).encode("utf-8", "surrogateescape"), np.uint8)
        save_columns(cached_as, key, {"names": names, "status": files.status, "sizes": sizes})
    sizes[[*faults]] = 1
    return sizes, faults


def _read_into(sizes: Ints, indices: Sequence[int], paths: Sequence[str]) -> Faults:
    """Read the sizes of images into the rows `indices`. Returns the faults."""
    read = dict(zip(indices, read_image_sizes(paths), strict=True))
    for index, size in read.items():
        sizes[index] = 0 if isinstance(size, str) else size
    return {index: fault for index, fault in read.items() if isinstance(fault, str)}


def _cached_sizes(cached_as: Path, key: str, files: FileTable) -> Ints:
    """Return (N, 2), 0 where a size is not known."""
    saved = load_columns(cached_as, key)
    if saved is None:
        return np.zeros((len(files.names), 2), np.int64)
    names = saved["names"].tobytes().decode("utf-8", "surrogateescape").split("\0")
    status, sizes = np.asarray(saved["status"], np.int64), np.asarray(saved["sizes"], np.int64)
    if names == files.names:
        return np.asarray(np.where((status == files.status).all(1)[:, None], sizes, 0))
    known = {(name, *own): index for index, (name, own) in enumerate(zip(names, status.tolist(), strict=True))}
    rows = [known.get((name, *own), -1) for name, own in zip(files.names, files.status.tolist(), strict=True)]
    return np.concatenate([sizes, np.zeros((1, 2), np.int64)])[rows]
