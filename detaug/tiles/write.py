"""Write the tiles of the pictures of a COCO json as files, with a json."""

from __future__ import annotations

import os
import posixpath
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np

from detaug.arguments import check, is_whole
from detaug.arrays import Bools, Ints
from detaug.converters.coco.annotations import raise_on_errors
from detaug.converters.coco.examine import examine_file
from detaug.converters.coco.table import Table
from detaug.converters.coco.writer import document_text
from detaug.converters.conversion.arguments import IMAGES_ORDER, check_choice, check_json_and_folder
from detaug.converters.conversion.folder import check_folder
from detaug.converters.files.atomic import temporary_path, write_atomically
from detaug.converters.files.parallel import Progress
from detaug.converters.files.paths import PathLike
from detaug.converters.files.threads import Threads
from detaug.converters.findings.finding import counted, on_one_line
from detaug.converters.machine import available_cores
from detaug.errors import ConversionError
from detaug.sources.coco_reader import CocoReader
from detaug.tiles.annotations import annotation_rows
from detaug.tiles.jpeg_blocks import ALIGN, JpegBlocks, can_cut, check_package
from detaug.tiles.pictures import part_of, read_picture
from detaug.tiles.reader import TileReader
from detaug.tiles.windows import Size

Format = Literal["png", "jpeg"]

_MODES = {"png": ("L", "LA", "RGB", "RGBA", "I;16"), "jpeg": ("L", "RGB")}
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

    def __str__(self) -> str:
        pictures, tiles = counted(self.pictures, "picture"), counted(self.tiles, "tile")
        return "\n".join(
            [
                f"{pictures} in {tiles} ({self.tiles_without_boxes:,} without boxes)",
                f"{counted(self.objects, 'object')} as {counted(self.boxes, 'box', 'boxes')}, {self.cut:,} of them cut",
                f"{counted(self.left_out, 'part')} left out, of which too little is visible",
                *([f"{counted(self.lost, 'object')} in no tile"] if self.lost else []),
                on_one_line(f"written: {self.annotations}"),
                on_one_line(f'load it: da.CocoReader("{self.images}", "{self.annotations}")'),
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
    format: Format = "png",
    quality: int | Literal["keep"] = 95,
    progress: Progress | None = None,
) -> TileSummary:
    """Cut the pictures of a COCO json into tiles: output/NAME.json and output/images, with the name of the json.

    The tiles and their objects are those of `da.TileReader`, which explains `size`, `overlap`, `min_visibility`,
    `empty`, `whole` and `seed`. format: "png" keeps each pixel; "jpeg" of this `quality`, 1 to 100, loses some, and
    takes a part of the space. quality="keep" cuts JPEGs between their blocks and loses nothing, but for the colours of
    2 pixels along cut edges, which decoders interpolate: tiles begin at multiples of 16 pixels, and are up to 15 pixels
    smaller at the right and bottom edges. Pictures of other formats, and those that are turned by their EXIF, become
    PNG then. It needs jpeglib, `pip install 'detaug[lossless]'`. A picture that is one tile is copied as it is.

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
    check_choice("format", format, Format)
    keep = quality == "keep"
    check("quality", quality, keep or is_whole(quality, 1, 100), "a whole number in 1..100, or 'keep'")
    if keep:
        check("format", format, format == "jpeg", "'jpeg' with quality='keep'")
        check_package()
    source, folder = Path(annotations), Path(output)
    check_json_and_folder(source, images, IMAGES_ORDER)
    _check_output(folder)
    table = examine_file(source)
    raise_on_errors(table)
    if table.coco.has_videos:
        raise ConversionError(f"{source} has frames of videos, which are not cut: their tiles would be no video")
    options: dict[str, Any] = {"whole": whole, "seed": seed, "align": ALIGN if keep else 1, "memory": 1}
    reader = TileReader(_reader_of(table, images), size, overlap, min_visibility, empty, **options)
    reader.check_files()
    is_jpeg = _are_cut(reader) if keep else np.full(len(reader), format == "jpeg")
    names = _file_names(table, reader, is_jpeg)
    document = table.coco.document
    rows = {"images": _image_rows(table, reader, names), "annotations": annotation_rows(table, reader)}
    with _appearing(folder) as unfinished:
        _write_tiles(reader, unfinished / "images", names, {"format": format, "quality": quality}, progress)
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
    )


def _check_output(folder: Path) -> None:
    check_folder(folder)
    if folder.is_dir() and any(folder.iterdir()):
        raise ConversionError(f"{folder} is not empty; give the name of a folder to make")


def _reader_of(table: Table, images: PathLike) -> CocoReader:
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
        cache=False,
    )


def _are_cut(reader: TileReader) -> Bools:
    """Return (n,): which tiles can be cut from a JPEG without decoding it."""
    can = [can_cut(reader.reader.read(at)) for at in range(len(reader.reader))]
    return np.array(can, bool)[reader.pictures] & ~reader.is_scaled


def _file_names(table: Table, reader: TileReader, is_jpeg: Bools) -> list[str]:
    """Return the file name of each tile. Raises ConversionError for two pictures whose tiles would have one name."""
    names, first = list[str](), dict[str, int]()
    columns = reader.pictures.tolist(), reader.windows.tolist(), reader.is_copy.tolist(), is_jpeg.tolist()
    for picture, window, is_copy, jpeg in zip(*columns, strict=True):
        stem, own = posixpath.splitext(posixpath.normpath(table.file_names[picture]))
        is_whole = window[2:] == table.sizes[picture, ::-1].tolist()
        place = "whole" if is_whole else f"{window[0]}_{window[1]}"
        name = f"{stem}_{place}{own if is_copy else '.jpg' if jpeg else '.png'}"
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


def _write_tiles(
    reader: TileReader, folder: Path, names: list[str], options: dict[str, Any], progress: Progress | None
) -> None:
    ends = np.flatnonzero(np.diff(reader.pictures, append=-1)) + 1
    for path in {folder / posixpath.dirname(name) for name in names}:
        path.mkdir(parents=True, exist_ok=True)
    with Threads(available_cores()) as threads:
        for start, end in pairwise([0, *ends.tolist()]):
            _write_picture(reader, np.arange(start, end), folder, names, options, threads)
            if progress:
                progress(end, len(reader))


def _write_picture(
    reader: TileReader, tiles: Ints, folder: Path, names: list[str], options: dict[str, Any], threads: Threads
) -> None:
    """Write the tiles of one picture."""
    at, blocks = int(reader.pictures[tiles[0]]), None
    try:
        if reader.is_copy[tiles[0]]:
            content = reader.reader.read(at)
            read_picture(reader.reader, at)  # raises OSError for one that does not decode
        else:
            picture = read_picture(reader.reader, at)
            picture = picture.convert("RGB") if picture.mode == "CMYK" else picture
            form = "png" if options["quality"] == "keep" else options["format"]
            if picture.mode not in _MODES[form]:
                png = "; --format png does" if form == "jpeg" and picture.mode in _MODES["png"] else ""
                raise OSError(f"has pixels of mode {picture.mode}, which {form} does not keep{png}")
            if options["quality"] == "keep" and names[tiles[0]].endswith(".jpg"):
                blocks = JpegBlocks(reader.reader.read(at), folder)
    except OSError as error:
        path = reader.path(int(tiles[0]))
        remedy = "" if "does not keep" in str(error) else f"; {reader.remedy}"
        raise ConversionError(f"{path} {error.strerror or error}{remedy}") from None
    if reader.is_copy[tiles[0]]:
        (folder / names[tiles[0]]).write_bytes(content)
        return

    def save(tile: int) -> None:
        path = folder / names[tile]
        if blocks and path.suffix == ".jpg":
            blocks.save(reader.windows[tile], path)
            return
        part = part_of(picture, reader.windows[tile], reader.sizes[tile])
        if path.suffix == ".jpg":
            part.save(path, "JPEG", quality=options["quality"])
        else:
            part.save(path, "PNG", compress_level=1)  # 6, the default, takes 4 times as long for 13 % less

    threads.map(save, tiles.tolist())
