"""Write the tiles of the source images of a COCO JSON file as files, with a JSON file."""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from detaug.arguments import checks_names
from detaug.arrays import Bools, Ints
from detaug.coco.annotations import raise_on_errors
from detaug.coco.examine import examine_file
from detaug.coco.how_to_load import shape_arguments, shapes_of
from detaug.coco.parts import part_head, refuse_keys_of_parts, refuse_part
from detaug.coco.table import ID_OF_ENTRY, OWN_KEYS, Table
from detaug.coco.writer import document_text
from detaug.errors import ConversionError
from detaug.files.atomic import write_atomically
from detaug.files.paths import PathLike
from detaug.files.pixel_types import DTYPES, PixelType
from detaug.findings.finding import counted, on_one_line
from detaug.machine.parallel import Progress
from detaug.named_options import option
from detaug.outputs.folder import appearing_folder, check_folder, unfinished_folders
from detaug.outputs.guards import IMAGES_ORDER, check_json_and_folder
from detaug.outputs.part import Part, check_part
from detaug.pixel_format import DType, PixelFormat
from detaug.sources.coco_reader import CocoReader
from detaug.tiles.annotations import annotation_rows
from detaug.tiles.files import Format, checked_files
from detaug.tiles.jpeg_blocks import ALIGN
from detaug.tiles.reader import TileReader
from detaug.tiles.windows import Size

_NOT_OF_TILES = ("id", "file_name", "width", "height", "shard", "offset", "length", "crc32c", "tile_of", "window")
"""Keys of a source image in the JSON file that a tile has other values of, or none."""


@dataclass(frozen=True)
class TileSummary:
    """What `tile_coco` wrote. str() is the text that the command prints.

    >>> summary = da.tile_coco("train.json", "demo/VOC/JPEGImages", "summary", size=320, empty=0)
    >>> print(type(summary).__name__, summary.tiles, summary.boxes, summary.images)
    TileSummary 176 520 summary/images
    """

    annotations: Path
    """The JSON file of the tiles."""
    images: Path
    """The folder that its file names are relative to."""
    pictures: int
    tiles: int
    tiles_without_boxes: int
    objects: int
    """In the source images."""
    boxes: int
    """In the tiles, where an object may have several."""
    cut: int
    """Boxes of which the tile does not show all."""
    left_out: int
    """Parts of objects in tiles that show too little of them."""
    lost: int
    """Objects that are in no tile."""
    lists_left_out: tuple[str, ...] = ()
    """Lists of the JSON file whose entries name images or annotations, which have other ids in the tiles' file."""
    unfinished: tuple[Path, ...] = field(default=(), repr=False)
    """Folders of earlier runs that did not end, or of one that is running."""
    reading: str | None = field(default="", repr=False)
    """Further arguments of the reader that loads them; None if no reader loads all of them."""

    def __str__(self) -> str:
        source_images, tiles = counted(self.pictures, "source image"), counted(self.tiles, "tile")
        return "\n".join(
            [
                f"{source_images} in {tiles} ({self.tiles_without_boxes:,} without boxes)",
                f"{counted(self.objects, 'object')} as {counted(self.boxes, 'box', 'boxes')}, {self.cut:,} of them cut",
                f"{counted(self.left_out, 'part')} left out, of which too little is visible",
                *([f"{counted(self.lost, 'object')} in no tile"] if self.lost else []),
                *(
                    on_one_line(f"{name} left out: it names images or annotations by ids, and those of tiles are new")
                    for name in self.lists_left_out
                ),
                *(on_one_line(f"{path} is left of a run that was killed; remove it") for path in self.unfinished),
                on_one_line(f"written: {self.annotations}"),
                on_one_line(f'load it: da.CocoReader("{self.images}", "{self.annotations}"{self.reading})')
                if self.reading is not None
                else "some tiles have other bands or more bits: save all source images alike, and tile them again",
            ]
        )


@checks_names
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
    quality: int | Literal["keep"] | None = None,
    channels: int = 3,
    dtype: DType = "uint8",
    part: tuple[int, int] | None = None,
    progress: Progress | None = None,
) -> TileSummary:
    """Cut the source images of a COCO JSON file into tiles: output/NAME.json, with its name, and output/images.

    The tiles and their objects are those of `da.TileReader`, which explains `size`, `overlap`, `min_visibility`,
    `empty`, `whole` and `seed`.

    A tile's entry in the JSON file has `tile_of`, the id and file_name of the source image, and `window`, [x, y, width,
    height] in its pixels, and the source image's further keys; an annotation has `part_of`, the id of the object, and
    its further keys. Polygons and RLE masks are cut, and boxes are those around them; keypoints outside of the tile are
    not labeled; `corners` of rotated boxes are moved, and may lie outside. Boxes of objects without a polygon are cut.
    The same input gives the same bytes.

    `output` must be new, or an empty folder; it appears when all is written. One source image at a time is in memory.

    Raises AnnotationError for a JSON file with errors, ConversionError for a source image that does not decode and for
    an output that exists, InputError for arguments, and OSError.

    Args:
        annotations: The COCO JSON file.
        images: The folder of the source images.
        output: A new folder, or an empty one; it appears when all is written.
        size: See `da.TileReader`, as for the next five.
        overlap: Fraction of a side that neighbors have in common.
        min_visibility: Smallest fraction of an object's area in a tile that has it.
        empty: Fraction of the tiles without objects that are kept.
        whole: Longer side of a scaled copy of each source image; None: without one.
        seed: Which tiles without objects are kept.
        format: "png", the default, keeps each pixel; "jpeg" of this `quality`, 1 to 100, by default 95, loses some, and
            takes a part of the space. quality="keep" cuts JPEGs between their blocks and loses nothing, but for the
            colors of 2 pixels along cut edges, which decoders interpolate: tiles begin at multiples of 16 pixels, and
            are up to 15 pixels smaller at the right and bottom edges. Source images of other formats, and those that
            are rotated by their EXIF, become PNG then. It needs jpeglib, `pip install 'detaug[lossless]'`. A source
            image that is one tile is copied as it is.
        quality: 1 to 100 of "jpeg", by default 95, or "keep".
        channels, dtype: Of source images of other bands or depths than 8-bit RGB, as of `da.CocoReader`. Their tiles
            have the same bands and values, as "tiff", the default then, uncompressed; as "npy"; or as "png" of 1, 2 or
            4 bands of uint8 or one of uint16.
        part: (number, of), such as (1, 3), to write only the tiles of the first third of the source images, and
            NAME-part-1-of-3.json; all parts have one folder, and merge_coco joins their JSON files to the same bytes as
            one run writes.
        progress: Called with (source images done, in all).

    >>> print(da.tile_coco("train.json", "demo/VOC/JPEGImages", "tiles", size=320))
    48 source images in 192 tiles (16 without boxes)
    167 objects as 520 boxes, 237 of them cut
    16 parts left out, of which too little is visible
    written: tiles/train.json
    load it: da.CocoReader("tiles/images", "tiles/train.json")
    """
    pixels = PixelFormat(channels, dtype)
    files = checked_files(format, pixels, quality)
    keep = quality == "keep"
    source, folder = Path(annotations), Path(output)
    check_json_and_folder(source, images, IMAGES_ORDER)
    own = check_part(part)
    refuse_part(source)
    if own is None:
        check_folder(folder)
        if folder.is_dir() and any(folder.iterdir()):
            raise ConversionError(f"{folder} is not empty; give the name of a folder to make")
    table = examine_file(source)
    raise_on_errors(table)
    if table.coco.has_videos:
        raise ConversionError(f"{source} has frames of videos, which are not cut: their tiles would be no video")
    options: dict[str, Any] = {"whole": whole, "seed": seed, "align": ALIGN if keep else 1, "memory": 1}
    source_reader = _reader_of(table, images, pixels)
    if not pixels.is_rgb8:  # that its tiles are cut from
        options["memory"] = int(source_reader.pixels.max()) * channels * np.dtype(dtype).itemsize
    reader = TileReader(source_reader, size, overlap, min_visibility, empty, **options)
    reader.check_files()
    names = _file_names(table, reader, files.extensions(reader))
    chosen = _ChosenImages.of(reader, own)
    objects = int(chosen.images[table.image_index].sum())
    if own is None and objects and not len(chosen.boxes):
        raise ConversionError(
            f"{source}: no object is left to write, of {counted(objects, 'object')}; nothing was written; each tile "
            f"shows less of them than {option('min_visibility')}, {min_visibility}: lower it, or make the tiles larger"
        )
    own_names = [names[tile] for tile in chosen.tiles.tolist()]
    json_name = f"{source.stem}{f'-part-{own.number}-of-{own.of}' if own else ''}.json"
    text = _document(table, reader, names, chosen, own, f"{min_visibility} {files.quality}")
    moved = [*(f"images/{name}" for name in own_names), json_name] if own else []
    earlier = unfinished_folders(folder)
    with appearing_folder(folder, moved) as unfinished:
        types = files.write(reader, chosen.tiles, unfinished / "images", own_names, progress)
        write_atomically(unfinished / json_name, text, sync=False)
    return TileSummary(
        annotations=folder / json_name,
        images=folder / "images",
        pictures=int(chosen.images.sum()),
        tiles=len(chosen.tiles),
        tiles_without_boxes=len(chosen.tiles) - len(np.unique(reader.cut.tile[chosen.boxes])),
        objects=objects,
        boxes=len(chosen.boxes),
        cut=int((reader.cut.visible[chosen.boxes] < 1 - 1e-9).sum()),
        left_out=int(reader.cut.left_out[chosen.images].sum()),
        lost=objects - len(np.unique(reader.cut.rows[chosen.boxes])),
        lists_left_out=tuple(_lists_of_ids(table)),
        unfinished=tuple(earlier),
        reading=_reading(pixels, types, shapes_of(table.coco.document["annotations"])),
    )


def _reading(pixels: PixelFormat, types: Collection[PixelType], shapes: Collection[str]) -> str | None:
    """Return the arguments of the reader of tiles with these types: tiles of 8-bit RGB keep 16 bits of gray, too."""
    arguments = shape_arguments(shapes)
    if pixels.is_rgb8 and not any(pixel_type.loss for pixel_type in types):
        return arguments
    kinds = (
        {(pixels.channels, pixels.dtype)}
        if not pixels.is_rgb8
        else {(pixel_type.bands, pixel_type.dtype) for pixel_type in types}
    )
    (channels, dtype), *others = kinds
    return None if others or dtype not in DTYPES else f'{arguments}, channels={channels}, dtype="{dtype}"'


class _ChosenImages(NamedTuple):
    """What a part of a dataset has, or all."""

    images: Bools
    """(n,): which of them."""
    tiles: Ints
    """Their positions."""
    boxes: Ints
    """Positions of the objects in tiles."""

    @classmethod
    def of(cls, reader: TileReader, part: Part | None) -> _ChosenImages:
        """Return the tiles of a part of the source images, consecutive ones; of None all."""
        images = np.zeros(len(reader.reader), bool)
        everything = range(len(images))
        images[[*(part.items(everything) if part else everything)]] = True
        _, counts, _ = reader.objects()
        is_own = images[reader.pictures]
        return cls(images, np.flatnonzero(is_own), np.flatnonzero(np.repeat(is_own, counts)))


def _document(
    table: Table, reader: TileReader, names: list[str], chosen: _ChosenImages, part: Part | None, rules: str
) -> Iterator[str]:
    """Return the text of the JSON file. rules: what else two parts must have in common."""
    left_out = _lists_of_ids(table)
    document = {key: value for key, value in table.coco.document.items() if key not in left_out}
    images, boxes = _image_rows(table, reader, names), annotation_rows(table, reader)
    if part is None:
        return document_text(document, {"images": images, "annotations": boxes})
    refuse_keys_of_parts(table.path, document)
    positions = {"images": chosen.tiles.tolist(), "annotations": chosen.boxes.tolist()}
    rows = {"images": _some(images, positions["images"]), "annotations": _some(boxes, positions["annotations"])}
    return document_text({"part": part_head(part, [*names, rules]), **document, "positions": positions}, rows)


def _lists_of_ids(table: Table) -> list[str]:
    """Return the names of the lists, beside COCO's own, whose entries have ids of images or annotations."""
    names = []
    for name, rows in table.coco.document.items():
        if name not in OWN_KEYS and isinstance(rows, list):
            matches = (ID_OF_ENTRY.search(key) for row in rows if isinstance(row, dict) for key in row)
            if any(match and match[1] != "category" for match in matches):
                names.append(name)
    return names


def _some(rows: Iterator[dict[str, Any]], positions: Sequence[int]) -> Iterator[dict[str, Any]]:
    wanted = frozenset(positions)
    return (row for position, row in enumerate(rows) if position in wanted)


def _reader_of(table: Table, images: PathLike, pixels: PixelFormat) -> CocoReader:
    """Return a reader of all that the JSON file has of its objects."""
    objects = table.coco.document["annotations"]
    outlines = [entry["segmentation"] for entry in objects if entry.get("segmentation")]
    quadrangles = bool(outlines) and all(
        isinstance(outline, list) and len(outline) == 1 and len(outline[0]) == 8 for outline in outlines
    )
    rotated = quadrangles or any(entry.get("corners") for entry in objects)
    return CocoReader(
        images,
        table.path,
        keypoints=any(entry.get("keypoints") for entry in objects),
        flip_pairs=[],
        masks=bool(outlines),
        rotated=rotated,
        tight=bool(outlines) or rotated,
        crowds="keep" if any(entry.get("iscrowd") for entry in objects) else "drop",
        channels=pixels.channels,
        dtype=pixels.dtype,
        cache=False,
    )


def _file_names(table: Table, reader: TileReader, extensions: Sequence[str]) -> list[str]:
    """Return the file name of each tile. Raises ConversionError where tiles of two would have one name."""
    names, first = list[str](), dict[str, int]()
    columns = reader.pictures.tolist(), reader.windows.tolist(), reader.is_copy.tolist(), extensions
    for image, window, is_copy, extension in zip(*columns, strict=True):
        stem, own = posixpath.splitext(posixpath.normpath(table.file_names[image]))
        is_whole = window[2:] == table.sizes[image, ::-1].tolist()
        place = "whole" if is_whole else f"{window[0]}_{window[1]}"
        name = f"{stem}_{place}{own if is_copy else extension}"
        other = first.setdefault(name, image)
        if other != image:
            raise ConversionError(
                f"{table.file_names[other]} and {table.file_names[image]} would both have the tile {name}; rename one"
            )
        names.append(name)
    return names


def _image_rows(table: Table, reader: TileReader, names: list[str]) -> Iterator[dict[str, Any]]:
    sizes, columns = reader.sizes.tolist(), (reader.pictures.tolist(), reader.windows.tolist())
    for number, (image, window, name, (height, width)) in enumerate(zip(*columns, names, sizes, strict=True), 1):
        row = table.row("images", image)
        yield {
            "id": number,
            "file_name": name,
            "width": width,
            "height": height,
            "tile_of": {key: row[key] for key in ("id", "file_name", "tile_of") if key in row},  # of a tile: of its own
            "window": window,
            **{key: value for key, value in row.items() if key not in _NOT_OF_TILES},
        }
