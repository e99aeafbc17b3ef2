"""Write the tiles of the pictures of a COCO json as files, with a json."""

from __future__ import annotations

import os
import posixpath
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from detaug.converters.coco.annotations import raise_on_errors
from detaug.converters.coco.examine import examine_file
from detaug.converters.coco.table import Table
from detaug.converters.coco.writer import document_text
from detaug.converters.conversion.arguments import IMAGES_ORDER, check_json_and_folder
from detaug.converters.conversion.folder import check_folder
from detaug.converters.files.atomic import temporary_path, write_atomically
from detaug.converters.files.parallel import Progress
from detaug.converters.files.paths import PathLike
from detaug.converters.findings.finding import counted, on_one_line
from detaug.errors import ConversionError
from detaug.pixel_format import DType, PixelFormat
from detaug.sources.coco_reader import CocoReader
from detaug.tiles.annotations import annotation_rows
from detaug.tiles.files import Format, TileFiles, checked_format
from detaug.tiles.jpeg_blocks import ALIGN
from detaug.tiles.reader import TileReader
from detaug.tiles.windows import Size

_NOT_OF_TILES = ("id", "file_name", "width", "height", "shard", "offset", "length", "crc32c")
"""Keys of a picture in the json that a tile has other values of, or none."""


@dataclass(frozen=True)
class TileSummary:
    """What `tile_coco` wrote. str() is the text that the command prints.

    >>> summary = da.tile_coco("train.json", "demo/VOC/JPEGImages", "summary", size=320, empty=0)
    >>> print(type(summary).__name__, summary.tiles, summary.boxes, summary.images)
    TileSummary 176 520 summary/images
    """

    annotations: Path
    """The json of the tiles."""
    images: Path
    """The folder that its file names are relative to."""
    pictures: int
    tiles: int
    tiles_without_boxes: int
    objects: int
    """In the pictures."""
    boxes: int
    """In the tiles, where an object may have several."""
    cut: int
    """Boxes of which the tile does not show all."""
    left_out: int
    """Parts of objects in tiles that show too little of them."""
    lost: int
    """Objects that are in no tile."""
    reading: str = field(default="", repr=False)
    """Further arguments of the reader that loads them."""

    def __str__(self) -> str:
        pictures, tiles = counted(self.pictures, "picture"), counted(self.tiles, "tile")
        return "\n".join(
            [
                f"{pictures} in {tiles} ({self.tiles_without_boxes:,} without boxes)",
                f"{counted(self.objects, 'object')} as {counted(self.boxes, 'box', 'boxes')}, {self.cut:,} of them cut",
                f"{counted(self.left_out, 'part')} left out, of which too little is visible",
                *([f"{counted(self.lost, 'object')} in no tile"] if self.lost else []),
                on_one_line(f"written: {self.annotations}"),
                on_one_line(f'load it: da.CocoReader("{self.images}", "{self.annotations}"{self.reading})'),
            ]
        )


def tile_coco(
    annotations: PathLike,
    images: PathLike,
    output: PathLike,
    *,
    size: Size = 1024,
    overlap: float = 0.2,
    min_visibility: float = 0.1,
    empty: float = 1.0,
    whole: int | None = None,
    seed: int = 0,
    format: Format | None = None,
    quality: int | Literal["keep"] = 95,
    channels: int = 3,
    dtype: DType = "uint8",
    progress: Progress | None = None,
) -> TileSummary:
    """Cut the pictures of a COCO json into tiles: output/NAME.json and output/images, with the name of the json.

    The tiles and their objects are those of `da.TileReader`, which explains `size`, `overlap`, `min_visibility`,
    `empty`, `whole` and `seed`. format: "png", the default, keeps each pixel; "jpeg" of this `quality`, 1 to 100, loses
    some, and takes a part of the space. quality="keep" cuts JPEGs between their blocks and loses nothing, but for the
    colours of 2 pixels along cut edges, which decoders interpolate: tiles begin at multiples of 16 pixels, and are up
    to 15 pixels smaller at the right and bottom edges. Pictures of other formats, and those that are turned by their
    EXIF, become PNG then. It needs jpeglib, `pip install 'detaug[lossless]'`. A picture that is one tile is copied as
    it is.

    channels, dtype: of pictures of other bands or depths than 8-bit RGB, as of `da.CocoReader`. Their tiles have the
    same bands and values, as "tiff", the default then, uncompressed; as "npy"; or as "png" of 1, 2 or 4 bands of uint8
    or one of uint16.

    A tile's entry in the json has `tile_of`, the id and file_name of the picture, and `window`, [x, y, width, height]
    in its pixels, and the picture's further keys; an annotation has `part_of`, the id of the object, and its further
    keys. Polygons and masks of run lengths are cut, and boxes are those around them; key points outside of the tile are
    not labelled; `corners` of rotated boxes are moved, and may lie outside. Boxes of objects without an outline are
    cut. The same input gives the same bytes.

    `output` must be new, or an empty folder; it appears when all is written. One picture at a time is in memory.

    Raises AnnotationError for a json with errors, ConversionError for a picture that does not decode and for an output
    that exists, InputError for arguments, and OSError.

    >>> print(da.tile_coco("train.json", "demo/VOC/JPEGImages", "tiles", size=320))
    48 pictures in 192 tiles (16 without boxes)
    167 objects as 520 boxes, 237 of them cut
    16 parts left out, of which too little is visible
    written: tiles/train.json
    load it: da.CocoReader("tiles/images", "tiles/train.json")
    """
    pixels = PixelFormat(channels, dtype)
    files = TileFiles(checked_format(format, pixels, quality), quality)
    keep = quality == "keep"
    source, folder = Path(annotations), Path(output)
    check_json_and_folder(source, images, IMAGES_ORDER)
    _check_output(folder)
    table = examine_file(source)
    raise_on_errors(table)
    if table.coco.has_videos:
        raise ConversionError(f"{source} has frames of videos, which are not cut: their tiles would be no video")
    options: dict[str, Any] = {"whole": whole, "seed": seed, "align": ALIGN if keep else 1, "memory": 1}
    pictures = _reader_of(table, images, pixels)
    if not pixels.is_rgb8:  # that its tiles are cut from
        options["memory"] = int(pictures.pixels.max()) * channels * np.dtype(dtype).itemsize
    reader = TileReader(pictures, size, overlap, min_visibility, empty, **options)
    reader.check_files()
    names = _file_names(table, reader, files.extensions(reader))
    document = table.coco.document
    rows = {"images": _image_rows(table, reader, names), "annotations": annotation_rows(table, reader)}
    with _appearing(folder) as unfinished:
        files.write(reader, unfinished / "images", names, progress)
        write_atomically(unfinished / f"{source.stem}.json", document_text(document, rows), sync=False)
    return TileSummary(
        annotations=folder / f"{source.stem}.json",
        images=folder / "images",
        pictures=len(reader.reader),
        tiles=len(reader),
        tiles_without_boxes=len(reader) - len(np.unique(reader.cut.tile)),
        objects=len(table.image_index),
        boxes=len(reader.cut.rows),
        cut=int((reader.cut.visible < 1 - 1e-9).sum()),
        left_out=reader.cut.left_out,
        lost=len(table.image_index) - len(np.unique(reader.cut.rows)),
        reading="" if pixels.is_rgb8 else f', channels={channels}, dtype="{dtype}"',
    )


def _check_output(folder: Path) -> None:
    check_folder(folder)
    if folder.is_dir() and any(folder.iterdir()):
        raise ConversionError(f"{folder} is not empty; give the name of a folder to make")


def _reader_of(table: Table, images: PathLike, pixels: PixelFormat) -> CocoReader:
    """Return a reader of all that the json has of its objects."""
    objects = table.coco.document["annotations"]
    outlines = [each["segmentation"] for each in objects if each.get("segmentation")]
    quadrangles = bool(outlines) and all(
        isinstance(each, list) and len(each) == 1 and len(each[0]) == 8 for each in outlines
    )
    rotated = quadrangles or any(each.get("corners") for each in objects)
    return CocoReader(
        images,
        table.path,
        keypoints=any(each.get("keypoints") for each in objects),
        flip_pairs=[],
        masks=bool(outlines),
        rotated=rotated,
        tight=bool(outlines) or rotated,
        crowds="keep" if any(each.get("iscrowd") for each in objects) else "drop",
        channels=pixels.channels,
        dtype=pixels.dtype,
        cache=False,
    )


def _file_names(table: Table, reader: TileReader, extensions: Sequence[str]) -> list[str]:
    """Return the file name of each tile. Raises ConversionError for two pictures whose tiles would have one name."""
    names, first = list[str](), dict[str, int]()
    columns = reader.pictures.tolist(), reader.windows.tolist(), reader.is_copy.tolist(), extensions
    for picture, window, is_copy, extension in zip(*columns, strict=True):
        stem, own = posixpath.splitext(posixpath.normpath(table.file_names[picture]))
        is_whole = window[2:] == table.sizes[picture, ::-1].tolist()
        place = "whole" if is_whole else f"{window[0]}_{window[1]}"
        name = f"{stem}_{place}{own if is_copy else extension}"
        other = first.setdefault(name, picture)
        if other != picture:
            raise ConversionError(
                f"{table.file_names[other]} and {table.file_names[picture]} would both have the tile {name}; rename one"
            )
        names.append(name)
    return names


def _image_rows(table: Table, reader: TileReader, names: list[str]) -> Iterator[dict[str, Any]]:
    sizes, columns = reader.sizes.tolist(), (reader.pictures.tolist(), reader.windows.tolist())
    for number, (picture, window, name, (height, width)) in enumerate(zip(*columns, names, sizes, strict=True), 1):
        row = table.row("images", picture)
        yield {
            "id": number,
            "file_name": name,
            "width": width,
            "height": height,
            "tile_of": {"id": row["id"], "file_name": row["file_name"]},
            "window": window,
            **{key: value for key, value in row.items() if key not in _NOT_OF_TILES},
        }


@contextmanager
def _appearing(folder: Path) -> Iterator[Path]:
    """Yield a folder that gets the name `folder` at the end, and is removed after an error."""
    unfinished = temporary_path(Path(os.path.realpath(folder)))
    unfinished.mkdir()
    try:
        yield unfinished
        os.replace(unfinished, os.path.realpath(folder))
    except BaseException as error:
        shutil.rmtree(unfinished, ignore_errors=True)
        if isinstance(error, OSError) and error.errno:  # the name of a file in it says nothing
            raise OSError(error.errno, error.strerror, os.fspath(folder)) from None
        raise
