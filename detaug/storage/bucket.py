"""Encoded images in an object store, read through a local cache."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from weakref import finalize

import numpy as np

from detaug.arrays import Bytes, Ints
from detaug.storage.local_cache import LocalCache
from detaug.storage.object_store import ObjectInfo, ObjectPath, ObjectStore
from detaug.storage.pieces import Pieces, cut_pieces
from detaug.storage.prefetch import Prefetcher
from detaug.storage.storage import Checksums, Shards, Upcoming

LIST_FROM = 2000
"""From this many objects on, all below the address are listed, 1,000 with each request, instead of asking for each."""

_NONE = ObjectInfo(-1, "")


class BucketStorage:
    """Files and shards below an address. See `Storage`."""

    is_local = False

    def __init__(
        self,
        address: ObjectPath,
        file_names: Sequence[str],
        shard_names: Sequence[str],
        places: Ints,
        checksums: Ints,
        cache: LocalCache,
    ) -> None:
        store = ObjectStore(address)
        names = [
            *shard_names,
            *(
                posixpath.normpath(name)
                for name, shard in zip(file_names, places[:, 0].tolist(), strict=True)
                if shard < 0
            ),
        ]
        listed = store.find_all() if len(names) >= LIST_FROM else store.find(names)
        infos = [listed.get(name, _NONE) for name in names]
        sizes, shards = np.array([info.size for info in infos], np.int64), len(shard_names)
        self.shards, self.file_sizes = Shards(shard_names, places, sizes[:shards]), sizes[shards:]
        self.version = "\0".join(info.etag for info in infos).encode() + sizes.tobytes()
        objects, starts, self._lengths = places.T.copy()
        files = self.shards.files()
        objects[files], self._lengths[files] = np.arange(shards, len(names)), self.file_sizes.clip(min=0)
        table = cut_pieces(objects, starts, self._lengths, cache.limit)
        self._checksums = Checksums(checksums, places[:, 1])
        self._piece_of, self._offset = table.of_image, table.offset
        self._pieces = Pieces(store, cache, names, infos, table)
        self._prefetcher = Prefetcher(self._pieces, table.of_image)
        finalize(self, self._prefetcher.stop)

    def read(self, index: int) -> bytes:
        """Return an encoded image. Raises OSError and DataError as `contents` does."""
        (content,) = self._contents(np.array([index]))
        return content.tobytes()

    def contents(self, indices: Ints) -> list[Bytes]:
        """Return encoded images. Raises FileNotFoundError for an object that is gone, DataError for other failures."""
        contents = self._contents(indices)
        self._prefetcher.read(indices)
        return contents

    def prefetch(self, upcoming: Iterator[Upcoming]) -> None:
        """Download what will be read."""
        self._prefetcher.start(upcoming)

    def _contents(self, indices: Ints) -> list[Bytes]:
        """Return encoded images. Raises ImageChanged, an OSError, for one that is another in the store."""
        contents = self._in_pieces(indices)
        if changed := self._checksums.changed(indices, contents):  # perhaps only in the cache
            self._pieces.discard(np.unique(self._piece_of[indices[[*changed]]]).tolist())
            contents = self._in_pieces(indices)
            self._checksums.verify(indices, contents)
        return contents

    def _in_pieces(self, indices: Ints) -> list[Bytes]:
        pieces = self._opened(np.unique(self._piece_of[indices]).tolist())
        columns = (column[indices].tolist() for column in (self._piece_of, self._offset, self._lengths))
        return [pieces[piece][start : start + length] for piece, start, length in zip(*columns, strict=True)]

    def _opened(self, pieces: list[int]) -> dict[int, Bytes]:
        """Return the bytes of pieces, and download those that are not in the cache."""
        opened = {piece: content for piece in pieces if (content := self._pieces.open(piece)) is not None}
        absent = [piece for piece in pieces if piece not in opened]
        for piece, uncached in zip(absent, self._prefetcher.fetch(absent), strict=True):
            content = self._pieces.open(piece) if uncached is None else None
            opened[piece] = (
                np.frombuffer(uncached or self._pieces.read(piece), np.uint8) if content is None else content
            )
        return opened
