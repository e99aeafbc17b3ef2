"""`Storage`: where the encoded images of a dataset are, as files or in shards, on a disk or in an object store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from detaug.arrays import Bools, Bytes, Ints
from detaug.files.image_file import ImageChanged, load_crc32c


class Upcoming(NamedTuple):
    """The rest of an epoch: which images will be read, in which order."""

    indices: Ints
    """(R,) images that the processes of this machine will read."""
    mine: Bools
    """(R,) whether this process will read it."""

    def part(self, which: slice | Bools) -> Upcoming:
        """Return some of the images."""
        return Upcoming(self.indices[which], self.mine[which])


class Shards:
    """The shards of a dataset, and where its images are in them.

    `names`: of the shards. `places`: (n, 3) position in `names`, offset and length of each image in bytes; the position
    is -1 for an image that is a file of its own. `sizes`: (shards,) bytes; -1 for a shard that does not exist.
    """

    def __init__(self, names: Sequence[str], places: Ints, sizes: Ints) -> None:
        self.names, self.places, self.sizes = names, places, sizes

    def missing(self) -> Ints:
        """Return the positions of images whose shard does not exist, or ends before them."""
        return np.flatnonzero((self.places[:, 0] >= 0) & (self._sizes_of_shards() < self.places[:, 1:].sum(1)))

    def cut_off(self) -> Ints:
        """Return the positions of images in the first shard that ends before some of its images."""
        missing = self.missing()
        cut = missing[self._sizes_of_shards()[missing] >= 0]
        return np.asarray(cut[self.places[cut, 0] == self.places[cut[:1], 0]])

    def _sizes_of_shards(self) -> Ints:
        """Return (n,) the size of each image's shard in bytes; 0 for a file, -1 for a shard that does not exist."""
        return np.asarray(np.append(self.sizes, 0)[self.places[:, 0]])

    def name(self, index: int) -> str:
        """Return the name of an image's shard; "" for a file."""
        shard = int(self.places[index, 0])
        return self.names[shard] if shard >= 0 else ""

    def files(self) -> Ints:
        """Return the positions of images that are files."""
        return np.flatnonzero(self.places[:, 0] < 0)


class Storage(Protocol):
    """Gives the encoded images of n names, each of which is a file, or is in a shard."""

    shards: Shards
    file_sizes: Ints
    """Bytes of each image that is a file, in the order of `shards.files()`; -1 for one that does not exist."""
    version: bytes
    """Changes with the content."""
    is_local: bool
    """Whether images and shards are files of this machine."""

    def read(self, index: int) -> bytes:
        """Return an encoded image. Raises OSError if it cannot be read."""
        ...

    def contents(self, indices: Ints) -> list[Bytes]:
        """Return encoded images, without a copy if possible. Raises OSError if one cannot be read."""
        ...

    def prefetch(self, upcoming: Iterator[Upcoming]) -> None:
        """Learn which images will be read, in which order."""
        ...


class Checksums:
    """The CRC-32C of n images, and which of them this process has not verified yet.

    `expected`: (n,); -1 for an image that cannot be verified. `offsets`: (n,) position of each image in its shard, for
    errors. Raises InputError if the package for checksums is needed and not installed.
    """

    def __init__(self, expected: Ints, offsets: Ints) -> None:
        self._expected, self._offsets = expected, offsets
        self._unverified = expected >= 0
        if self._unverified.any():
            self._crc32c = load_crc32c()

    def unverified(self, indices: Ints) -> list[int]:
        """Return the positions in `indices` of images that are to be verified."""
        positions: list[int] = np.flatnonzero(self._unverified[indices]).tolist()
        return positions

    def verify(self, indices: Ints, contents: Sequence[Bytes]) -> None:
        """Verify those images of a batch that were not verified before. Raises ImageChanged, an OSError.

        Takes some 20 us of one core for an image of 75 kB, once: 7 for the checksum, the rest for mapping its pages.
        """
        for position, checksum in self.changed(indices, contents).items():
            index = int(indices[position])
            raise ImageChanged(int(self._offsets[index]), checksum, int(self._expected[index]))

    def changed(self, indices: Ints, contents: Sequence[Bytes]) -> dict[int, int]:
        """Verify as `verify` does. Returns the CRC-32C of images that have another one, by position in `indices`."""
        unverified = self.unverified(indices)
        checksums = {position: self._crc32c(contents[position]) for position in unverified}
        good = (
            np.array([checksums[position] for position in unverified], np.int64) == self._expected[indices[unverified]]
        )
        self._unverified[indices[unverified]] = ~good
        return {
            position: checksums[position]
            for position, is_good in zip(unverified, good.tolist(), strict=True)
            if not is_good
        }
