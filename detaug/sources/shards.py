"""Read images within shards: TFRecord or tar files, of which a json says where each image is."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import torch

from detaug.boxes.views import Ints
from detaug.sources.folder_source import file_sizes
from detaug.sources.source import Bytes


class Shards:
    """The images in shards of a folder. `places`: (n, 3) position in `names`, offset and length of each in bytes.

    The position is -1 for an image that is a file. Shards are mapped into memory when their first image is read, and
    stay so.
    """

    def __init__(self, folder: Path, names: Sequence[str], places: Ints) -> None:
        self._paths, self._places = [os.path.join(folder, name) for name in names], places
        self.names, self.sizes = names, file_sizes(self._paths)
        self._map = cache(self._map_whole)

    def missing(self) -> Ints:
        """Return the positions of images whose shard does not exist, or ends before them."""
        return np.flatnonzero((self._places[:, 0] >= 0) & (self._sizes_of_shards() < self._places[:, 1:].sum(1)))

    def cut_off(self) -> Ints:
        """Return the positions of images in the first shard that ends before some of its images."""
        missing = self.missing()
        cut = missing[self._sizes_of_shards()[missing] >= 0]
        return np.asarray(cut[self._places[cut, 0] == self._places[cut[:1], 0]])

    def _sizes_of_shards(self) -> Ints:
        """Return (n,) the size of each image's shard in bytes; 0 for a file, -1 for a shard that does not exist."""
        return np.asarray(np.append(self.sizes, 0)[self._places[:, 0]])

    def name(self, index: int) -> str:
        """Return the name of an image's shard; "" for a file."""
        shard = int(self._places[index, 0])
        return self.names[shard] if shard >= 0 else ""

    def files(self) -> Ints:
        """Return the positions of images that are files."""
        return np.flatnonzero(self._places[:, 0] < 0)

    def has_files(self, indices: Ints) -> bool:
        """Return whether some of these images are files."""
        return bool((self._places[indices, 0] < 0).any())

    def image(self, index: int) -> Bytes:
        """Return the bytes of an image, without a copy. Raises OSError if its shard does not have them."""
        shard, offset, length = self._places[index].tolist()
        if self.sizes[shard] < offset + length:
            raise OSError(f"{self._paths[shard]} has {self.sizes[shard]} bytes, image at {offset} + {length}")
        return self._map(shard)[offset : offset + length]

    def images(self, indices: Ints) -> list[Bytes]:
        """Return the bytes of several images, without a copy."""
        maps = [self._map(shard) for shard in self._places[indices, 0].tolist()]
        spans = self._places[indices, 1:].tolist()
        return [content[at : at + length] for content, (at, length) in zip(maps, spans, strict=True)]

    def _map_whole(self, shard: int) -> Bytes:
        """Return a shard's bytes. torch maps a file without keeping it open: there may be more shards than handles."""
        mapped = torch.from_file(self._paths[shard], size=int(self.sizes[shard]), dtype=torch.uint8)
        return np.asarray(mapped.numpy())
