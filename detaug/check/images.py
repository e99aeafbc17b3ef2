"""Compare a COCO JSON file with its image files: missing, other sizes, EXIF rotations, equal images. Headers only."""

from __future__ import annotations

import os
import posixpath
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import unquote

import numpy as np

from detaug.arrays import Bools
from detaug.check.other_splits import named_by_other_splits
from detaug.coco.columns import whole_numbers
from detaug.coco.other_folders import hint_where, other_folder_with
from detaug.coco.table import Table
from detaug.errors import AnnotationError, InputError
from detaug.files import heif
from detaug.files.image_file import Fingerprint, ImageChanged, ImageFile, digest
from detaug.files.image_headers import (
    IMAGE_EXTENSIONS,
    ImageError,
    ImageHeader,
    is_cut_off,
    read_fingerprint,
    read_image_header,
)
from detaug.files.large_images import too_few_bytes
from detaug.files.paths import list_files
from detaug.files.pixel_types import RGB8
from detaug.files.repeated import group_equal, repeated_files
from detaug.findings.entries import Findings, about_json, from_messages
from detaug.findings.finding import counted, shown
from detaug.machine.parallel import Progress, with_progress

LONG = 20
"""The longer side by the shorter one, above which an image is warned of."""

Header: TypeAlias = "ImageHeader | ImageError | None"
"""The header of one image: None where the file does not exist, the error where it cannot be read."""


class OtherSplit(NamedTuple):
    """The JSON file of another split, and the folder of its images."""

    table: Table
    folder: Path


def read_headers(table: Table, folder: Path, progress: Progress | None = None) -> list[Header]:
    """Read the header of every image of the JSON file, in its order."""
    if not folder.is_dir():
        raise AnnotationError(f"{folder}: no such folder; it must have the images of {table.path}")
    names = with_progress(table.file_names, progress, step=256)
    return [_header(table.image_file(folder, index)) if name else None for index, name in enumerate(names)]


def refuse_other_folder(table: Table, folder: Path, headers: Sequence[Header], *, surely: bool) -> None:
    """Raise AnnotationError where no image exists: the folder is wrong, rather than every image missing.

    surely: only if another folder has all of them.
    """
    are_files = _are_files(table)
    if not are_files.any() or any(headers):
        return
    names = [
        os.path.relpath(table.image_file(folder, index).path, folder) for index in np.flatnonzero(are_files).tolist()
    ]
    if not surely or other_folder_with(names, folder, table.path):
        raise AnnotationError(
            f"{folder}: none of the {len(table.file_names):,} images of {table.path} is here, the first is "
            f"{shown(names[0])}; give the folder that file_name is relative to"
            f"{hint_where(names[0], folder, table.path)}"
        )


def _are_files(table: Table) -> Bools:
    """Return (N,): whether an image must be a file, or in a shard, since it is not a frame of a video file."""
    return np.array([bool(name) for name in table.file_names], bool) & ~table.videos.in_files


def _header(file: ImageFile) -> Header:
    if not file.exists():
        return None
    try:
        return read_image_header(file)
    except ImageError as error:
        return error


def check_images(
    table: Table,
    folder: Path,
    headers: Sequence[Header],
    others: Sequence[OtherSplit] = (),
    bands: tuple[int, str] = RGB8,
) -> Iterator[Findings]:
    """Yield findings about the files that show without decoding them. others: the other splits. bands: (channels,
    dtype) of the reader.
    """
    listed = list_files(folder, IMAGE_EXTENSIONS)
    yield from _missing(table, headers, listed)
    yield from _missing_videos(table, folder, headers)
    yield from _unreadable(table, headers)
    yield from _sizes(table, headers)
    yield from _long(table)
    yield from _palettes(headers)
    yield from _several(headers)
    yield from _bands(headers, *bands)
    yield from _unreferenced(table, folder, listed, others)
    yield from _identical(table, folder, headers)
    for other in others:
        yield from _leaked(table, folder, headers, other)
        yield from _categories_differ(table, other.table)


def _image_findings(kind: str, messages: dict[int, str]) -> Iterator[Findings]:
    if messages:
        yield from_messages(kind, "images", messages)


def _missing(table: Table, headers: Sequence[Header], listed: Sequence[str]) -> Iterator[Findings]:
    missing = [index for index in np.flatnonzero(_are_files(table)).tolist() if headers[index] is None]
    listed_by_key = {_similar_key(name): name for name in listed} if missing else {}
    messages = {}
    for index in missing:
        similar = listed_by_key.get(_similar_key(table.file_names[index]))
        what = f"its shard {shown(table.row('images', index)['shard'])} is " if table.places[index, 0] >= 0 else ""
        messages[index] = f"{what}not in the image folder" + (f", but {shown(similar)} is" if similar else "")
    yield from _image_findings("image-missing", messages)


def _missing_videos(table: Table, folder: Path, headers: Sequence[Header]) -> Iterator[Findings]:
    """Yield findings about video files that are not there, unless the frames are files."""
    without = np.unique(table.videos.video_ids[[header is None for header in headers]]).tolist()
    files = {number: table.videos.files[number] for number in without if number in table.videos.files}
    missing = {number: name for number, name in files.items() if not os.path.isfile(folder / name)}
    if missing:
        rows = rows_of_videos(table)
        messages = {
            rows[number]: f"its file {shown(name)} is not in the image folder" for number, name in missing.items()
        }
        yield from_messages("video-missing", "videos", messages)


def rows_of_videos(table: Table) -> dict[int, int]:
    """Return the position of each video, by its id."""
    ids, good = whole_numbers(
        [table.row("videos", index).get("id") for index in range(len(table.coco.document["videos"]))]
    )
    return {int(ids[row]): row for row in reversed(np.flatnonzero(good).tolist())}


def _similar_key(name: str) -> str:
    """Return a key that is equal for names that differ only in case, folder, extension, %20 or backslashes."""
    plain = unicodedata.normalize("NFKC", unquote(name, errors="replace")).replace("\\", "/").casefold()
    return posixpath.splitext(posixpath.basename(plain))[0].strip()


def _unreferenced(
    table: Table, folder: Path, listed: Sequence[str], others: Sequence[OtherSplit]
) -> Iterator[Findings]:
    """Yield a finding about files that neither a JSON file nor a split of the dataset names."""
    named = named_by_other_splits(table, folder, listed)
    named.update(posixpath.normpath(name) for other in others for name in other.table.file_names)
    extra = [name for name in listed if name not in named]
    if extra:
        yield from_messages("image-unreferenced", "files", {index: shown(name) for index, name in enumerate(extra)})


def _unreadable(table: Table, headers: Sequence[Header]) -> Iterator[Findings]:
    errors = {index: error for index, error in enumerate(headers) if isinstance(error, ImageError)}
    unreadable, other = (
        {index: str(error) for index, error in errors.items() if error.kind == kind}
        for kind in ("image-unreadable", "image-format")
    )
    for index, header in enumerate(headers):
        if isinstance(header, ImageHeader) and (fault := heif.name_fault(header.format, table.file_names[index])):
            other[index] = fault
    yield from _image_findings("image-unreadable", unreadable)
    yield from _image_findings("image-format", dict(sorted(other.items())))


def _long(table: Table) -> Iterator[Findings]:
    sides = np.sort(table.sizes, axis=1)
    long = np.flatnonzero((sides[:, 1] > LONG * sides[:, 0]) & (sides[:, 0] > 1))  # 1: a size that cannot be used
    sizes = {index: table.sizes[index].tolist() for index in long.tolist()}
    advice = "give Resize a max_size, or cut the image into tiles"
    messages = {index: f"{width} x {height} pixels; {advice}" for index, (height, width) in sizes.items()}
    yield from _image_findings("image-long", messages)


def find_cut_off(table: Table, folder: Path, headers: Sequence[Header]) -> dict[int, str]:
    """Return the images that lack their end marker or nearly all pixels, with the reason, by position."""
    readable = {index: header for index, header in enumerate(headers) if isinstance(header, ImageHeader)}
    cut = [index for index, header in readable.items() if is_cut_off(table.image_file(folder, index), header)]
    enormous = {
        index: too_few_bytes(header.width, header.height, header.file_bytes) for index, header in readable.items()
    }
    return {
        **dict.fromkeys(cut, "is cut off: its end marker is missing; get the file again"),
        **{index: fault for index, fault in enormous.items() if fault},
    }


def find_changed(table: Table, folder: Path, headers: Sequence[Header]) -> dict[int, str]:
    """Return the images in shards whose checksum is not the JSON file's, with the reason, by position."""
    changed = {}
    for index in np.flatnonzero(table.checksums >= 0).tolist():
        if headers[index] is not None:
            try:
                table.image_file(folder, index).read()
            except ImageChanged as error:
                changed[index] = str(error)
            except OSError:  # `read_headers` has met it, too
                continue
    return changed


def _sizes(table: Table, headers: Sequence[Header]) -> Iterator[Findings]:
    wrong: dict[str, dict[int, str]] = {"size-wrong": {}, "size-unrotated": {}, "orientation-unclear": {}}
    sizes = zip(table.sizes.tolist(), table.has_size, headers, strict=True)
    for index, ((height, width), has_size, header) in enumerate(sizes):
        if has_size and isinstance(header, ImageHeader) and (fault := _size_fault(width, height, header)):
            wrong[fault[0]][index] = fault[1]
    for kind, messages in wrong.items():
        yield from _image_findings(kind, messages)


def _size_fault(width: int, height: int, header: ImageHeader) -> tuple[str, str] | None:
    """Return (kind, message); None where the size is the file's and shows its rotation."""
    orientation = f"EXIF orientation {header.orientation}"
    if (width, height) == (header.width, header.height):
        shows = header.orientation in (5, 6, 7, 8) and width != height
        return (
            ("orientation-unclear", f"{orientation}, {width} x {height}")
            if 2 <= header.orientation <= 8 and not shows
            else None
        )
    sizes = f"{width} x {height} in the JSON file, {header.width} x {header.height} in the file"
    if (width, height) == header.stored_size:
        return "size-unrotated", f"{sizes} with {orientation}: its boxes are those of the unrotated image"
    return "size-wrong", sizes


def _palettes(headers: Sequence[Header]) -> Iterator[Findings]:
    """Find small palettes: DALI 2.4's mixed decoder makes one of 4 bits white, and one of 8 bits right (measured)."""
    remedy = "save it as RGB or with a palette of 8 bits"
    bits = {index: header.palette_bits for index, header in enumerate(headers) if isinstance(header, ImageHeader)}
    small = {index: number for index, number in bits.items() if 0 < number < 8}
    messages = {index: f"a palette of {counted(number, 'bit')} per pixel; {remedy}" for index, number in small.items()}
    yield from _image_findings("palette-small", messages)


def _several(headers: Sequence[Header]) -> Iterator[Findings]:
    messages = {
        index: f"further {'pages' if header.format == 'TIFF' else 'frames'} of the {header.format} are not used"
        for index, header in enumerate(headers)
        if isinstance(header, ImageHeader) and header.has_more
    }
    yield from _image_findings("image-several", messages)


def _bands(headers: Sequence[Header], channels: int, dtype: str) -> Iterator[Findings]:
    pixels = {index: header.pixels for index, header in enumerate(headers) if isinstance(header, ImageHeader)}
    faults = {index: fault for index, pixel_type in pixels.items() if (fault := pixel_type.fault(channels, dtype))}
    without_alpha = (channels, dtype) == RGB8
    alpha = {
        index: pixel_type.bands - 1
        for index, pixel_type in pixels.items()
        if pixel_type.alpha and without_alpha and index not in faults
    }
    yield from _image_findings("image-bands", faults)
    yield from _image_findings(
        "image-alpha", {index: f"alpha beside {counted(n, 'band')}" for index, n in alpha.items()}
    )


def _identical(table: Table, folder: Path, headers: Sequence[Header]) -> Iterator[Findings]:
    pairs = repeated_files(_fingerprints(headers), lambda index: table.image_file(folder, index))
    messages = {index: f"same bytes as images[{first}], {shown(table.file_names[first])}" for index, first in pairs}
    yield from _image_findings("image-identical", messages)


def _fingerprints(headers: Sequence[Header]) -> list[Fingerprint | None]:
    return [header.fingerprint if isinstance(header, ImageHeader) else None for header in headers]


def _leaked(table: Table, folder: Path, headers: Sequence[Header], other: OtherSplit) -> Iterator[Findings]:
    _refuse_other_folder(table, folder, other)
    groups, messages = group_equal(_fingerprints(headers)), dict[int, str]()
    for other_index, name in enumerate(other.table.file_names):
        file = other.table.image_file(other.folder, other_index)
        candidates = groups.get(read_fingerprint(file), ()) if name and file.exists() else ()
        content = digest(file) if candidates else b""
        for index in candidates:
            if digest(table.image_file(folder, index)) == content:
                messages[index] = f"same bytes as {shown(name)} of {other.table.path}"
    yield from _image_findings("image-leaked", messages)


def _refuse_other_folder(table: Table, folder: Path, other: OtherSplit) -> None:
    """Raise InputError where all files of the other JSON file are in this one too, and most have other boxes there.

    Where each split has a folder of its own, its images often are 000001.jpg and so on.
    """
    if other.folder != folder:
        return
    own, others = _boxes_by_file(table, folder), _boxes_by_file(other.table, folder)
    both = [file for file in own if file in others]
    differ = [file for file in both if own[file] != others[file]]
    if 2 * len(differ) > len(both) == len(others):
        first, name = differ[0].path, other.table.path.name
        raise InputError(
            f"{other.table.path} and {table.path} have different boxes for {counted(len(differ), 'image')} of the same "
            f"name, such as {first}: if its images are in another folder, put {name} into that one"
        )


def _boxes_by_file(table: Table, folder: Path) -> dict[ImageFile, list[Any]]:
    """Return the classes and boxes of each image."""
    boxes: dict[int, list[Any]] = {index: [] for index in range(len(table.file_names))}
    rows = zip(table.image_index.tolist(), table.category_ids.tolist(), table.boxes.round(2).tolist(), strict=True)
    for index, category, box in rows:
        if index in boxes:
            boxes[index].append((table.categories.get(category, ""), box))
    return {table.image_file(folder, index): sorted(own) for index, own in boxes.items() if table.file_names[index]}


def _categories_differ(table: Table, other: Table) -> Iterator[Findings]:
    if table.categories == other.categories:
        return
    number = min(set(table.categories.items()) ^ set(other.categories.items()))[0]
    names = [shown(split.categories.get(number, "not there")) for split in (table, other)]
    yield about_json("categories-differ", f"id {number} is {names[0]} here, {names[1]} in {other.path}")


def check_image_classes(table: Table) -> Iterator[Findings]:
    """Find a JSON file of which only some images have a class as a whole: it is not a classification.

    In a dataset of objects these are too many, and `--clean` leaves the key out; else the others are without one.
    """
    has_class = table.image_categories >= 0
    if not has_class.any() or has_class.all():
        return
    if len(table.boxes):
        rows, message = np.flatnonzero(has_class), "has a category_id of its own, and other images have none"
        yield Findings("image-class", "images", rows, lambda _: message)
    else:
        rows = np.flatnonzero(~has_class)
        yield Findings("category-unknown", "images", rows, lambda _: "has no category_id, and other images have one")
