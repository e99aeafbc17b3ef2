"""Pieces of objects: what is downloaded and cached as one, an image of its own or neighbors in a shard."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import NamedTuple

import numpy as np

from detaug.arrays import Bools, Bytes, Ints
from detaug.storage.local_cache import LocalCache
from detaug.storage.object_store import ObjectInfo, ObjectStore

PIECE_BYTES = 256 << 10
"""Of a shard, about this much is one piece, if the cache has room for all. In shuffled order the first batches need a
piece for each image: with larger ones they wait longer, and smaller ones need more requests."""

MOST_UNUSED = 64 << 10
"""Bytes for each image: the most that a piece has beside those of its images, as between a few images."""


class PieceTable(NamedTuple):
    """P pieces, and where n images are in them."""

    object: Ints
    """(P,) position of the object that each is of."""
    start: Ints
    """(P,) first byte in the object."""
    length: Ints
    """(P,) bytes."""
    of_image: Ints
    """(n,) the piece of each image."""
    offset: Ints
    """(n,) first byte of each image in its piece."""


def cut_pieces(objects: Ints, starts: Ints, lengths: Ints, room: int) -> PieceTable:
    """Return the pieces of n images, each `lengths` bytes from `starts` in one of the objects.

    Neighbors are in one piece if all such pieces fit into `room` bytes. Otherwise a piece would be downloaded again
    and again for single images, and each image is one.
    """
    table = _table(objects, starts // PIECE_BYTES, starts, lengths)
    images, used = (np.bincount(table.of_image, weights, len(table.length)) for weights in (None, lengths))
    alone = table.length - used > MOST_UNUSED * images
    if table.length.sum() > room:
        alone[:] = True
    if not alone.any():
        return table
    return _table(objects, np.where(alone[table.of_image], -1 - starts, starts // PIECE_BYTES), starts, lengths)


def _table(objects: Ints, groups: Ints, starts: Ints, lengths: Ints) -> PieceTable:
    """Return the table in which images of one object and one group are one piece."""
    order = np.lexsort((groups, objects))
    # the first image begins a piece in any case
    (changes,) = np.nonzero(np.diff(objects[order], prepend=-1) | np.diff(groups[order], prepend=groups[order[:1]] - 1))
    first, end = np.minimum.reduceat(starts[order], changes), np.maximum.reduceat((starts + lengths)[order], changes)
    of_image = np.empty(len(order), np.int64)
    of_image[order] = np.repeat(np.arange(len(changes)), np.diff([*changes, len(order)]))
    return PieceTable(objects[order[changes]], first, end - first, of_image, starts - first[of_image])


class Pieces:
    """Downloads pieces into a cache, and opens them."""

    def __init__(
        self,
        store: ObjectStore,
        cache: LocalCache,
        names: Sequence[str],
        infos: Sequence[ObjectInfo],
        table: PieceTable,
    ) -> None:
        self._store, self._cache, self._names, self._infos, self._table = store, cache, names, infos, table
        self.lengths, self._images = table.length, np.bincount(table.of_image)

    @property
    def limit(self) -> int:
        """Return how many bytes the cache may have."""
        return self._cache.limit

    def free(self) -> int:
        """Return for how many bytes the cache has room."""
        return self._cache.limit - self._cache.used()

    def present(self) -> tuple[Bools, list[str]]:
        """Return (P,) which pieces were in the cache when it was opened, and the keys of its others."""
        keys = dict.fromkeys(self._cache.keys)
        present = np.array([bool(keys) and self.key(piece) in keys for piece in range(len(self.lengths))], bool)
        for piece in np.flatnonzero(present).tolist():
            del keys[self.key(piece)]
        return present, [*keys]

    def key(self, piece: int) -> str:
        """Return the name of a piece in the cache: another one if the object changes."""
        number = int(self._table.object[piece])
        text = f"{self._store.address}/{self._names[number]} {self._infos[number].etag} {self._infos[number].size} "
        return sha256(f"{text}{self._table.start[piece]} {self.lengths[piece]}".encode()).hexdigest()[:32]

    def open(self, piece: int) -> Bytes | None:
        """Return the bytes of a piece that is in the cache."""
        read = self._cache.map if self._images[piece] > 1 else self._cache.read
        return read(self.key(piece), int(self.lengths[piece]))

    def discard(self, pieces: list[int]) -> None:
        """Remove pieces from the cache."""
        for piece in pieces:
            self._cache.discard(self.key(piece))

    def download(self, piece: int, removable: Iterator[str]) -> None:
        """Put a piece into the cache. For the errors see `LocalCache.fill` and `ObjectStore.read`."""
        self._cache.fill(self.key(piece), int(self.lengths[piece]), lambda: self.read(piece), removable)

    def read(self, piece: int) -> memoryview:
        """Return the bytes of a piece from the store."""
        number, start = int(self._table.object[piece]), int(self._table.start[piece])
        return self._store.read(self._names[number], self._infos[number], start, int(self.lengths[piece]))
