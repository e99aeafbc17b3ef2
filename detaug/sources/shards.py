"""Know which images are in shards: TFRecord or tar files, of which a json says where each image is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from detaug.arrays import Ints


class Shards:
    """The shards of a data set, and where its images are in them.

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
