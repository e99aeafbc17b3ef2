"""`TileReader`: tiles of the source images of another source, without files of their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from detaug.arguments import check, check_share, checks_names, is_whole, parse_size
from detaug.arrays import Bools, Ints
from detaug.errors import InputError
from detaug.files.decodable import contiguous_tiff
from detaug.machine.cores import available_cores
from detaug.machine.threads import Threads
from detaug.maps.files import SourceMap
from detaug.maps.values import MapValues
from detaug.sources.derived import DerivedSource, of_images
from detaug.sources.source import Source
from detaug.tiles.cut import cut_objects
from detaug.tiles.pictures import ImageParts
from detaug.tiles.windows import Size, plan_tiles


class TileReader(DerivedSource):
    """Tiles of large source images, cut while batches are loaded: what `detaug tile` writes, without the files.

    `detaug tile` fits boxes to the polygons that it cuts; for the same boxes here, make `reader` with `tight=True`.

    `pictures` (n,): the position of each tile's source image in `reader`. `windows` (n, 4): x, y, width, height, pixels
    of the source image. `is_scaled` (n,): whether it shows a scaled source image. `cut`: the objects, see `CutObjects`.
    Image ids of tiles are 1..n. `CocoEvaluator(reader, tiles=...)` scores detections on the source images. Raises
    InputError for wrong arguments, and for clips.

    Args:
        reader: The source of the source images. Boxes, masks, keypoints, rotated boxes and columns that it reads are
            cut with the source images, and tiles have its `channels` and `dtype`.
        size: A side of the tiles in pixels, or (height, width); a source image that is smaller stays whole.
        overlap: The fraction of a side that neighbors have in common; an object that is smaller than that is whole in
            at least one tile. The last tile of a row or a column is moved inwards.
        min_visibility: An object is in a tile that shows at least this fraction of the area of its box, or of its
            rotated box.
        empty: The fraction of the tiles without objects that are kept, chosen by `seed`; evaluation needs all.
        whole: Also show each source image as a whole, its longer side scaled down to this many pixels, for large
            objects.
        grids: Lay this many grids over each source image, each moved by a part of the step, so that objects are cut in
            several ways. An epoch of training has the tiles of one of them: epoch 0 of the first, and so on in turn; a
            resumed training goes on with it. Evaluation has the tiles of all.
        align: Begin tiles at multiples of this many pixels, at the cost of smaller ones at the right and bottom edges.
        seed: Which tiles without objects are kept.
        memory: Bytes of decoded source images that are kept, 4 for a pixel of RGB. Source images are decoded whole; in
            training, tiles of one come near each other, from 8 source images at a time for each 8 images of a batch. Of
            a TIFF that is stored in tiles, as Cloud Optimized GeoTIFFs are, only those needed are read (`pip install
            'detaug[tiff]'`).

    >>> reader = da.CocoReader("demo/VOC/JPEGImages", "train.json")
    >>> tiles = da.TileReader(reader, 320, overlap=0.25)
    >>> print(len(reader), "source images,", len(tiles), "tiles,", tiles.windows[1])
    48 source images, 192 tiles, [180   0 320 320]
    >>> batch = next(iter(da.Loader(tiles, [da.Resize((300, 300)), da.Normalize()], batch_size=8)))
    >>> print(batch.source_size[0])
    tensor([320, 320])
    """

    files, decodes = False, True

    @checks_names
    def __init__(
        self,
        reader: Source,
        size: Size = 1024,
        overlap: float = 0.2,
        min_visibility: float = 0.1,
        empty: float = 1.0,
        *,
        whole: int | None = None,
        grids: int = 1,
        align: int = 1,
        seed: int = 0,
        memory: str | int = "2GB",
    ) -> None:
        if not isinstance(reader, Source) or reader.frames is not None:
            raise InputError(
                f"reader must be a source of images, not of clips, such as da.CocoReader; got {type(reader).__name__}"
            )
        check_share("min_visibility", min_visibility)
        check("empty", empty, isinstance(empty, int | float) and 0 <= empty <= 1, "a fraction of the tiles in 0..1")
        check("seed", seed, is_whole(seed, 0), "a whole number of at least 0")
        self.reader, self.pixel_format = reader, reader.pixel_format
        tiles = plan_tiles(reader.sizes, size, overlap, whole, grids, align)
        objects = cut_objects(reader, tiles, min_visibility)
        counts = np.bincount(objects.tile, minlength=len(tiles.image))
        without = np.flatnonzero(counts == 0)
        some = np.random.default_rng(seed).permutation(without)[: round(empty * len(without))]
        chosen = np.union1d(np.flatnonzero(counts), some)
        if not len(chosen):
            raise InputError(f"empty={empty} leaves no tile of {reader.origin}: no tile shows an object; give empty=1")
        own = tiles.some(chosen)
        self.cut, self.pictures, self.windows, self.is_scaled = objects, own.image, own.windows, own.is_scaled
        cut = {
            "sizes": own.sizes,
            "boxes": objects.boxes,
            "counts": counts[chosen],
            "image_ids": None,
            "relative": False,
            "shapes": objects.shapes,
        }
        super().__init__([reader], self.pictures, of_images(reader, self.pictures, objects.rows) | cut)
        self.rounds = None if grids == 1 else own.grids.T
        self.maps = {name: TileMaps(maps, self._cut_of, self.windows, self.sizes) for name, maps in self.maps.items()}
        self._read = ImageParts(reader, parse_size("memory", memory))

    def __repr__(self) -> str:
        return f"TileReader({self.reader!r})  # {len(self)} tiles, {len(self._boxes)} boxes"

    def _cut_of(self, index: int) -> Ints:
        """Return which annotations of its source image a tile has, counted from the image's first one."""
        rows = self.cut.rows[slice(*self._box_offsets[index : index + 2].tolist())]
        return np.asarray(rows - self.reader._box_offsets[self.pictures[index]])

    def __getstate__(self) -> dict[str, Any]:
        """Leave the threads behind: another process starts its own."""
        return {name: value for name, value in vars(self).items() if name != "_threads"}

    @cached_property
    def stretch_of_clip(self) -> Ints | None:  # type: ignore[override]
        """Return (n,): a number of the tiles whose source image is decoded at once; training takes them together."""
        in_parts = [image for image in np.unique(self.pictures).tolist() if self._read.tiff(image) is not None]
        alone = np.isin(self.pictures, in_parts) & ~self.is_scaled
        numbers = np.where(alone, len(self.reader) + np.arange(len(self)), self.pictures)
        return None if alone.all() else numbers

    @property
    def is_copy(self) -> Bools:
        """Return (n,): whether a tile is its whole source image, as it is."""
        whole = (self.windows[:, 2:] == self.reader.sizes[self.pictures, ::-1]).all(1)
        return np.asarray(whole & ~self.is_scaled)

    def read(self, index: int) -> bytes:
        """Return a tile as an encoded image, PPM or TIFF. Raises OSError if its source image does not decode."""
        (tile,) = self.contents(np.array([index]))
        if not self.pixel_format.is_rgb8:
            return contiguous_tiff(tile).tobytes()
        height, width = tile.shape[:2]
        return b"P6\n%d %d\n255\n" % (width, height) + tile.tobytes()

    def contents(self, indices: Ints) -> list[NDArray[Any]]:
        """Return tiles, (H, W, 3) uint8 RGB or the reader's bands. Raises OSError for a source image that is broken."""
        order = np.argsort(self.pictures[indices], kind="stable")
        groups = np.split(order, np.flatnonzero(np.diff(self.pictures[indices[order]])) + 1)
        encoded = self._read.encoded(self.pictures[indices].tolist())
        files = [encoded.get(int(self.pictures[indices[group[0]]])) for group in groups]
        parts = self._threads.map(self._parts, [indices[group] for group in groups], files)
        result: list[NDArray[Any]] = [np.zeros(0, np.uint8)] * len(indices)
        for group, tiles in zip(groups, parts, strict=True):
            for index, tile in zip(group.tolist(), tiles, strict=True):
                result[index] = tile
        return result

    def _parts(self, indices: Ints, content: bytes | None) -> list[NDArray[Any]]:
        """Return tiles of one source image."""
        return self._read.parts(int(self.pictures[indices[0]]), self.windows[indices], self.sizes[indices], content)

    @cached_property
    def _threads(self) -> Threads:
        return Threads(available_cores())

    @cached_property
    def files_fingerprint(self) -> str:
        """Return a hash that changes with the files of the source images."""
        return self.reader.files_fingerprint

    def _choice(self) -> bytes:
        stretches = self.stretch_of_clip  # the order of training depends on them, and they on whether tifffile is there
        near = b"" if stretches is None else stretches.tobytes()
        return self.windows.tobytes() + self.pictures.tobytes() + near


class TileMaps:
    """The maps of one name of tiles: the parts of those of the source images, which are read once for all tiles."""

    def __init__(self, maps: SourceMap, cut: Callable[[int], Ints], windows: Ints, sizes: Ints) -> None:
        self.kind, self._maps, self._cut, self._windows, self._sizes = maps.kind, maps, cut, windows, sizes

    def read(self, index: int) -> MapValues:
        """Return the map of a tile."""
        part = self._maps.read(index).of_part(self._windows[index].astype(np.float64), self._sizes[index])
        return part if part.segments is None else replace(part, segments=part.segments.with_rows(self._cut(index)))
