"""Encoded images of a local folder, with files or shards."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch

from detaug.arrays import Bytes, Ints
from detaug.files.paths import regular_status
from detaug.storage.storage import Checksums, Shards, Upcoming

Status = tuple[int, int]
"""(bytes, time of the last change in ns) of a file."""

_madvise = ctypes.CDLL(None).madvise
_madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


class FolderStorage:
    """Files and shards of a local folder. Shards are mapped into memory when their first image is read."""

    is_local = True

    def __init__(
        self, folder: Path, file_names: Sequence[str], shard_names: Sequence[str], places: Ints, checksums: Ints
    ) -> None:
        self._folder, self._file_names = folder, file_names
        self._paths = [os.path.join(folder, name) for name in shard_names]
        self._maps: dict[int, Bytes] = {}
        self._checksums = Checksums(checksums, places[:, 1])
        self.shards = Shards(shard_names, places, file_sizes(self._paths))
        self.file_sizes = file_sizes(os.path.join(folder, file_names[index]) for index in self.shards.files())
        self.version = self.file_sizes.tobytes() + self.shards.sizes.tobytes()

    def read(self, index: int) -> bytes:
        """Return an encoded image. Raises OSError if it cannot be read."""
        shard, offset, length = self.shards.places[index].tolist()
        if shard < 0:
            return (self._folder / self._file_names[index]).read_bytes()
        if self.shards.sizes[shard] < offset + length:
            raise OSError(f"{self._paths[shard]} has {self.shards.sizes[shard]} bytes, image at {offset} + {length}")
        content = self._map(shard)[offset : offset + length]
        self._checksums.verify(np.array([index]), [content])
        return content.tobytes()

    def contents(self, indices: Ints) -> list[Bytes]:
        """Return encoded images; those in shards without a copy. Raises ImageChanged, an OSError."""
        places = self.shards.places[indices]
        if (places[:, 0] < 0).any():
            return [np.frombuffer(self.read(index), np.uint8) for index in indices.tolist()]
        maps = {shard: self._map(shard) for shard in np.unique(places[:, 0]).tolist()}
        contents = [maps[shard][start : start + length] for shard, start, length in places.tolist()]
        read_ahead(contents[index] for index in self._checksums.unverified(indices))
        self._checksums.verify(indices, contents)
        return contents

    def prefetch(self, upcoming: Iterator[Upcoming]) -> None:
        """Do nothing: the system reads ahead."""

    def _map(self, shard: int) -> Bytes:
        """Return a shard's bytes. torch maps a file without keeping it open: there may be more shards than handles."""
        if shard not in self._maps:
            size = int(self.shards.sizes[shard])
            self._maps[shard] = np.asarray(torch.from_file(self._paths[shard], size=size, dtype=torch.uint8).numpy())
        return self._maps[shard]


def read_ahead(mapped: Iterable[Bytes]) -> None:
    """Let the system read parts of mapped files at the same time, before the first of them is waited for."""
    for part in mapped:
        address = part.ctypes.data
        first = address - address % mmap.PAGESIZE
        _madvise(first, address + len(part) - first, mmap.MADV_WILLNEED)


def file_status(path: str) -> Status:
    """Return the length and date of a regular file; (-1, -1) for anything else. Raises OSError."""
    status = regular_status(path)
    return (status.st_size, status.st_mtime_ns) if status else (-1, -1)


def file_sizes(paths: Iterable[str]) -> Ints:
    """Return (N,) sizes in bytes; -1 for what is not a file. Raises OSError."""
    return np.array([file_status(path)[0] for path in paths], np.int64)
