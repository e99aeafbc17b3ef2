"""Verify the images in shards when they are read for the first time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from detaug.arrays import Bytes, Ints
from detaug.converters.files.image_file import ImageChanged, load_crc32c


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
        found: list[int] = np.flatnonzero(self._unverified[indices]).tolist()
        return found

    def verify(self, indices: Ints, contents: Sequence[Bytes]) -> None:
        """Verify those images of a batch that were not verified before. Raises ImageChanged, an OSError.

        Takes some 20 us of one core for an image of 75 kB, once: 7 for the checksum, the rest for mapping its pages.
        """
        for at, found in self.changed(indices, contents).items():
            index = int(indices[at])
            raise ImageChanged(int(self._offsets[index]), found, int(self._expected[index]))

    def changed(self, indices: Ints, contents: Sequence[Bytes]) -> dict[int, int]:
        """Verify as `verify` does. Returns the CRC-32C of images that have another one, by position in `indices`."""
        unverified = self.unverified(indices)
        found = {at: self._crc32c(contents[at]) for at in unverified}
        good = np.array([found[at] for at in unverified], np.int64) == self._expected[indices[unverified]]
        self._unverified[indices[unverified]] = ~good
        return {at: found[at] for at, is_good in zip(unverified, good.tolist(), strict=True) if not is_good}
