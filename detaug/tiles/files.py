"""Write the tiles of source images as files: PNG, JPEG, TIFF or .npy."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from PIL import Image

from detaug.arguments import check, is_whole
from detaug.arrays import Ints
from detaug.errors import ConversionError, InputError
from detaug.files.decodable import contiguous_tiff
from detaug.files.pixel_types import PixelType, read_pixel_type
from detaug.findings.finding import on_one_line
from detaug.machine.cores import available_cores
from detaug.machine.parallel import Progress
from detaug.machine.threads import Threads
from detaug.named_options import option
from detaug.outputs.guards import check_choice
from detaug.pixel_format import PixelFormat
from detaug.tiles.jpeg_blocks import JpegBlocks, can_cut, check_package
from detaug.tiles.pictures import part_of, read_picture
from detaug.tiles.reader import TileReader

Format = Literal["png", "jpeg", "tiff", "npy"]

_EXTENSIONS = {"png": ".png", "jpeg": ".jpg", "tiff": ".tif", "npy": ".npy"}
_MODES = {"png": ("L", "LA", "RGB", "RGBA", "I;16"), "jpeg": ("L", "RGB")}
_BANDS_OF_PNG = ((1, "uint8"), (2, "uint8"), (4, "uint8"), (1, "uint16"))
"""That Pillow writes, besides 8-bit RGB."""


QUALITY = 95
"""Of JPEG, the default."""


def checked_files(format: str | None, pixels: PixelFormat, quality: Any) -> TileFiles:
    """Return the format of tiles, by default one that keeps the pixels of the source images. Raises InputError."""
    if format is not None:
        check_choice("format", format, Format)
    if pixels.is_rgb8 and format in ("tiff", "npy"):
        raise InputError(f"format {format} is for channels and dtype other than 8-bit RGB; png keeps these")
    in_png = (pixels.channels, pixels.dtype) in _BANDS_OF_PNG
    if not pixels.is_rgb8 and (format == "jpeg" or (format == "png" and not in_png)):
        raise InputError(f"format {format} does not keep {pixels}; tiff and npy do")
    if quality is not None:
        right = quality == "keep" or is_whole(quality, 1, 100)
        check("quality", quality, right, "a whole number in 1..100, or 'keep'")
        check("format", format, format == "jpeg", f"'jpeg' with quality={quality!r}")
    if quality == "keep":
        check_package()
    return TileFiles(format or ("png" if pixels.is_rgb8 else "tiff"), quality or QUALITY)


class TileFiles(NamedTuple):
    """Writes tiles in one format."""

    format: str
    quality: int | str

    def extensions(self, reader: TileReader) -> list[str]:
        """Return the extension of each tile's file: with quality keep only some are JPEGs."""
        if self.quality != "keep":
            return [_EXTENSIONS[self.format]] * len(reader)
        can = np.array([can_cut(reader.reader.read(index)) for index in range(len(reader.reader))], bool)
        return [".jpg" if cut else ".png" for cut in can[reader.pictures] & ~reader.is_scaled]

    def write(
        self, reader: TileReader, tiles: Ints, folder: Path, names: Sequence[str], progress: Progress | None
    ) -> set[PixelType]:
        """Write tiles, one source image after the other; return the types of their pixels.

        Raises ConversionError for a source image that does not decode.
        """
        types = set[PixelType]()
        ends = np.flatnonzero(np.diff(reader.pictures[tiles], append=-1)) + 1
        for path in {folder / posixpath.dirname(name) for name in names}:
            path.mkdir(parents=True, exist_ok=True)
        write = self._write_picture if reader.pixel_format.is_rgb8 else self._write_bands
        with Threads(available_cores()) as threads:
            for start, end in pairwise([0, *ends.tolist()]):
                write(reader, tiles[start:end], [folder / name for name in names[start:end]], threads)
                with open(folder / names[start], "rb") as tile:
                    types.add(read_pixel_type(tile.read(4096), tile))
                if progress:
                    progress(end, len(tiles))
        return types

    def _write_picture(self, reader: TileReader, tiles: Ints, paths: list[Path], threads: Threads) -> None:
        """Write the tiles of one source image that Pillow reads."""
        index, blocks = int(reader.pictures[tiles[0]]), None
        is_copy = reader.is_copy[tiles[0]]
        try:
            image = read_picture(reader.reader, index)
            content = reader.reader.read(index) if is_copy else b""
            if self.quality == "keep" and paths[0].suffix == ".jpg" and not is_copy:
                blocks = JpegBlocks(reader.reader.read(index), paths[0].parent)
        except OSError as error:
            raise _unusable(reader, tiles, f"{error.strerror or error}; {reader.remedy}") from None
        if is_copy:
            paths[0].write_bytes(content)
            return
        image = image.convert("RGB") if image.mode == "CMYK" else image
        form = "png" if self.quality == "keep" else self.format
        if image.mode not in _MODES[form]:
            other = f"{option('format', 'png')} does"
            if image.mode not in _MODES["png"]:
                other = f"{option('channels')} and {option('dtype')} do"
            raise _unusable(reader, tiles, f"has pixels of mode {image.mode}, which {form} does not keep; {other}")

        def save(tile: int, path: Path) -> None:
            if blocks and path.suffix == ".jpg":
                blocks.save(reader.windows[tile], path)
                return
            part = part_of(image, reader.windows[tile], reader.sizes[tile])
            if path.suffix == ".jpg":
                part.save(path, "JPEG", quality=self.quality)
            else:
                _save_png(part, path)

        threads.map(save, tiles.tolist(), paths)

    def _write_bands(self, reader: TileReader, tiles: Ints, paths: list[Path], threads: Threads) -> None:
        """Write the tiles of one source image of other bands than 8-bit RGB, which the reader keeps meanwhile."""

        def save(tile: int, path: Path) -> None:
            (pixels,) = reader.contents(np.array([tile]))
            if reader.is_copy[tile]:
                path.write_bytes(reader.reader.read(int(reader.pictures[tile])))
            elif self.format == "npy":
                np.save(path, pixels)
            elif self.format == "png":
                _save_png(Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else pixels), path)
            else:
                path.write_bytes(contiguous_tiff(pixels).data)

        try:
            reader.contents(tiles[:1])  # decodes the source image, once
        except OSError as error:
            raise _unusable(reader, tiles, f"{error.strerror or error}; {reader.remedy}") from None
        threads.map(save, tiles.tolist(), paths)


def _unusable(reader: TileReader, tiles: Ints, why: str) -> ConversionError:
    return ConversionError(on_one_line(f"{reader.path(int(tiles[0]))} {why}"))


def _save_png(image: Image.Image, path: Path) -> None:
    image.save(path, "PNG", compress_level=1)  # 6, the default, takes 4 times as long for 13 % less
