"""`StackReader`: the bands of several sources of the same scenes as one image."""

from __future__ import annotations

import errno
import os
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from detaug.arguments import checks_names
from detaug.arrays import Ints
from detaug.errors import InputError
from detaug.files.decodable import contiguous_tiff
from detaug.maps.kinds import IDS
from detaug.pixel_format import DType, PixelFormat
from detaug.sources.decoder import SourceDecoder
from detaug.sources.derived import DerivedSource
from detaug.sources.source import Source, check_sources

MOST_CLASSES, SAME_NEIGHBORS = 64, 0.9
"""Of a band that is a map of classes: it has at most this many values, below `IDS`, and that many of 1 are as that of
their neighbor. A thermal or depth band has noise, or larger values."""


class StackReader(DerivedSource):
    """Stack the bands of registered images, such as an RGB and a thermal one of the same scene, as one image.

    Bands are interpolated, so a label map is none: the first images that are read are looked at, and a band that holds
    classes is warned of. Give it to the first reader as a map instead, `CocoReader(maps=)`.

    Files are decoded on the CPU. Raises InputError for clips, and for sources whose images are not the same.

    Args:
        sources: Readers of the same image ids and sizes, each with its own folder, `channels`, `dtype` and `bands`.
            Their bands follow each other in this order, with their values unchanged: where the types differ, in the
            larger type. Boxes, shapes and columns are those of the first source. Each source may have maps of its own,
            with other names.

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
        check_sources(sources, clips="StackReader stacks images, no clips")
        _check_maps(sources)
        positions = [_same_images(sources[0], source) for source in sources]
        first = np.cumsum([0, *(len(source) for source in sources[:-1])])
        super().__init__(sources, np.stack(positions, axis=1) + first)
        dtypes: list[DType] = ["uint8", "uint16", "float32"]
        dtype = max((source.pixel_format.dtype for source in self.sources), key=dtypes.index)
        self.pixel_format = PixelFormat(sum(source.pixel_format.count for source in self.sources), dtype)
        self._decoders = [SourceDecoder(source) for source in self.sources]
        self._looked = False

    def read(self, index: int) -> bytes:
        """Return an image with all bands, as a TIFF. Raises OSError as `contents` does."""
        (image,) = self.contents(np.array([index]))
        return contiguous_tiff(image).tobytes()

    def contents(self, indices: Ints) -> list[NDArray[Any]]:
        """Return images, (H, W, bands). Raises OSError for a file that cannot be read, or does not decode to them."""
        images, dtype = (
            [self._of_source(number, indices) for number in range(len(self.sources))],
            self.pixel_format.dtype,
        )
        stacked = (np.concatenate(bands, axis=2, dtype=dtype) for bands in zip(*images, strict=True))
        return [np.ascontiguousarray(image) for image in stacked]

    def _of_source(self, number: int, indices: Ints) -> list[NDArray[Any]]:
        source, positions = self.sources[number], self._shown[indices, number] - self._first[number]
        try:
            images = self._decoders[number].decode(positions)
        except OSError as error:
            if len(indices) > 1 or error.filename:
                raise
            path = os.fspath(source.path(int(positions[0])))
            raise OSError(error.errno or errno.EIO, error.strerror or str(error), path) from None
        bands = source.pixel_format.bands
        images = images if bands is None else [image[:, :, bands] for image in images]
        if images and not self._looked:  # once in a process: it takes a millisecond
            self._looked = number == len(self.sources) - 1
            _warn_of_classes(source, images[0])
        return images

    def _choice(self) -> bytes:
        return b"\0"  # the fingerprints of the sources say all


def _warn_of_classes(source: Source, image: NDArray[Any]) -> None:
    """Warn of bands whose values are classes: few, small whole numbers, in areas of one value."""
    for position in range(image.shape[2] if image.shape[2] != 3 else 0):  # three are colors
        band = image[:, :, position]
        if band.dtype.kind not in "ui" or int(band.max()) >= IDS:
            continue
        count, same = len(np.unique(band)), float((band[:, 1:] == band[:, :-1]).mean()) if band.shape[1] > 1 else 0.0
        if 2 <= count <= MOST_CLASSES and same >= SAME_NEIGHBORS:
            warnings.warn(
                f"band {position} of {source.origin} has only {count} values, in areas, as a map of classes has; bands "
                "are interpolated, which makes other classes of two: leave it out of StackReader, and give the first "
                'reader maps={"semantic": da.ClassMap(FOLDER)}',
                stacklevel=2,
            )


def _check_maps(sources: Sequence[Source]) -> None:
    """Raise InputError for a map that several sources have: an image of the stack would have that of one alone."""
    of_name: dict[str, Source] = {}
    for source in sources:
        for name in source.maps:
            if (other := of_name.setdefault(name, source)) is not source:
                raise InputError(
                    f"the map {name!r} must be of one stacked source, got it of {other.origin} and of {source.origin}; "
                    "give maps= to one of them, or another name"
                )


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
        differing = int(others[0])
        (height, width), (other_height, other_width) = first.sizes[differing], source.sizes[positions[differing]]
        raise InputError(
            f"stacked images must have one size: image {first.image_ids[differing]} has {width} x {height} pixels in "
            f"{first.origin}, {other_width} x {other_height} in {source.origin}; resample the files of one"
        )
    return positions
