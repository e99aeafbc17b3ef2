"""`StackReader`: the bands of several sources of the same scenes as one image."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import tee
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from detaug.arguments import checks_names
from detaug.arrays import Ints
from detaug.errors import InputError
from detaug.files.decodable import contiguous_tiff
from detaug.files.image_file import short_digest
from detaug.pixel_format import DType, PixelFormat
from detaug.sources.decoder import Decoder
from detaug.sources.source import Source, check_sources
from detaug.storage.storage import Upcoming


class StackReader(Source):
    """Stack the bands of registered pictures, such as an RGB and a thermal one of the same scene, as one image.

    `sources`: readers of the same image ids and sizes, each with its own folder, `channels`, `dtype` and `bands`. Their
    bands follow each other in this order, with their values unchanged: where the types differ, in the larger type.
    Boxes, shapes and columns are those of the first source.

    Files are decoded on the CPU. Raises InputError for clips, and for sources whose images are not the same.

    >>> visible = da.CocoReader("demo/VOC/JPEGImages", "train.json")
    >>> infrared = da.CocoReader("demo/VOC/JPEGImages", "train.json")  # another folder, with files of the same names
    >>> reader = da.StackReader([visible, infrared])
    >>> print(reader.pixel_format)
    6 bands of uint8
    >>> loader = da.Loader(reader, [da.Resize((300, 300)), da.Normalize()], batch_size=8, device="cpu")
    >>> print(next(iter(loader)).images.shape)
    torch.Size([8, 6, 300, 300])
    """

    files, decodes = False, True

    @checks_names
    def __init__(self, sources: Sequence[Source]) -> None:
        check_sources(sources)
        if any(source.frames is not None for source in sources):
            raise InputError("StackReader stacks images, no clips")
        self.sources = tuple(sources)
        first = sources[0]
        self._positions = [_same_images(first, source) for source in self.sources]
        boxes, counts, labels = first.objects()
        super().__init__(
            first.sizes,
            first.class_names[1:],
            boxes=boxes,
            counts=counts,
            labels=labels,
            classes=first.classes,
            image_ids=first.image_ids,
            category_ids=first.category_ids[1:],
            relative=True,
            columns=first.columns,
            shapes=first.shapes,
            origin=first.origin,
        )
        dtypes: list[DType] = ["uint8", "uint16", "float32"]
        dtype = max((source.pixel_format.dtype for source in self.sources), key=dtypes.index)
        self.pixel_format = PixelFormat(sum(source.pixel_format.count for source in self.sources), dtype)
        self.rounds, self.stretch_of_clip = first.rounds, first.stretch_of_clip
        pairs = zip(self.sources, self._positions, strict=True)
        self.missing = np.flatnonzero(
            np.any([np.isin(positions, source.missing) for source, positions in pairs], axis=0)
        )
        self.remedy = "; ".join(dict.fromkeys(source.remedy for source in self.sources))
        self._decoders = [Decoder(source) for source in self.sources]

    def path(self, index: int) -> Path:
        """Return the file of the first source, or another source's that is missing."""
        at = self._missing_from(index) or 0
        return self.sources[at].path(int(self._positions[at][index]))

    def read(self, index: int) -> bytes:
        """Return an image with all bands, as a TIFF. Raises OSError as `contents` does."""
        (image,) = self.contents(np.array([index]))
        return contiguous_tiff(image).tobytes()

    def contents(self, indices: Ints) -> list[NDArray[Any]]:
        """Return images, (H, W, bands). Raises OSError for a file that cannot be read, or does not decode to them."""
        images, dtype = [self._of_source(at, indices) for at in range(len(self.sources))], self.pixel_format.dtype
        stacked = (np.concatenate(bands, axis=2, dtype=dtype) for bands in zip(*images, strict=True))
        return [np.ascontiguousarray(each) for each in stacked]

    def _of_source(self, at: int, indices: Ints) -> list[NDArray[Any]]:
        source, positions = self.sources[at], self._positions[at][indices]
        try:
            images = self._decoders[at].decode(positions)
        except OSError as error:
            if len(indices) > 1 or error.filename:
                raise
            path = os.fspath(source.path(int(positions[0])))
            raise OSError(error.errno or errno.EIO, error.strerror or str(error), path) from None
        bands = source.pixel_format.bands
        return images if bands is None else [image[:, :, bands] for image in images]

    def prefetch(self, upcoming: Iterator[Upcoming]) -> None:
        """Tell each source which images will be read."""
        lock = Lock()
        for positions, source, copy in zip(
            self._positions, self.sources, tee(upcoming, len(self.sources)), strict=True
        ):
            source.prefetch(_moved(copy, positions, lock))

    def why_missing(self, index: int) -> str:
        """Return the reason why a missing image cannot be used."""
        at = self._missing_from(index) or 0
        return self.sources[at].why_missing(int(self._positions[at][index]))

    def check_files(self) -> None:
        """Raise InputError if an image was missing when its source was made."""
        for source in self.sources:
            source.check_files()

    @cached_property
    def files_fingerprint(self) -> str:
        """Return a hash that changes with the files of any source."""
        return short_digest(*(source.files_fingerprint.encode() for source in self.sources))

    def _missing_from(self, index: int) -> int | None:
        """Return the first source that misses an image."""
        pairs = enumerate(zip(self.sources, self._positions, strict=True))
        return next((at for at, (source, positions) in pairs if positions[index] in source.missing), None)

    def _names(self) -> bytes:
        return b"\0".join([*(source.fingerprint.encode() for source in self.sources), super()._names()])


def _same_images(first: Source, source: Source) -> Ints:
    """Return the positions of the images of the first source in another one. Raises InputError if they differ."""
    if len(source) != len(first):
        raise InputError(
            f"sources must have the same image ids: {first.origin} has {len(first)} images, {source.origin} "
            f"{len(source)}"
        )
    positions = source.indices_of(first.image_ids)
    others = np.flatnonzero((source.sizes[positions] != first.sizes).any(1))
    if len(others):
        at = int(others[0])
        (height, width), (other_height, other_width) = first.sizes[at], source.sizes[positions[at]]
        raise InputError(
            f"stacked images must have one size: image {first.image_ids[at]} has {width} x {height} pixels in "
            f"{first.origin}, {other_width} x {other_height} in {source.origin}; resample the files of one"
        )
    return positions


def _moved(upcoming: Iterator[Upcoming], positions: Ints, lock: Lock) -> Iterator[Upcoming]:
    """Yield the positions of images in another source. Threads of several sources ask; `tee` allows one at a time."""
    while True:
        with lock:
            each = next(upcoming, None)
        if each is None:
            return
        yield each._replace(indices=positions[each.indices])
