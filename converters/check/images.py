"""A COCO json against its image files: missing, other sizes, EXIF rotations, identical images. Headers only."""

from __future__ import annotations

import os
import posixpath
import unicodedata
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias
from urllib.parse import unquote

from detaug.converters.coco.table import Table
from detaug.converters.files.digests import digest
from detaug.converters.files.image_headers import IMAGE_EXTENSIONS, ImageError, ImageHeader, read_image_header
from detaug.converters.files.paths import list_files
from detaug.converters.findings.entries import Findings, about_json, from_messages
from detaug.converters.findings.errors import AnnotationError
from detaug.converters.findings.text import counted, shown

Progress = Callable[[int, int], None]
Header: TypeAlias = "ImageHeader | ImageError | None"
"""Of one image: None if there is no such file, the error if it cannot be read."""

_HEAD_BYTES = 4096  # as many as ImageHeader.head_crc is of


def read_headers(table: Table, folder: Path, progress: Progress | None = None) -> list[Header]:
    """The header of every image of the json, in its order."""
    if not folder.is_dir():
        raise AnnotationError(f"{folder}: no such folder; it must hold the images that {table.path} names")
    headers: list[Header] = []
    for name in table.file_names:
        headers.append(_header(folder, name) if name else None)
        if progress and (len(headers) % 256 == 0 or len(headers) == len(table.file_names)):
            progress(len(headers), len(table.file_names))
    if any(table.file_names) and not any(headers):
        _refuse_other_folder(table, folder)
    return headers


def _header(folder: Path, name: str) -> Header:
    path = os.path.join(folder, name)
    if not os.path.isfile(path):
        return None
    try:
        return read_image_header(path)
    except ImageError as error:
        return error


def _refuse_other_folder(table: Table, folder: Path) -> None:
    """Not one image is there: this is a wrong argument, not a data set without images."""
    name = next(filter(None, table.file_names))
    better = folder_that_has(name, folder, table.path)
    raise AnnotationError(
        f"{folder}: none of the {len(table.file_names):,} images of {table.path} is here, the first is "
        f"{shown(name)}; give the folder that file_name is relative to{better}"
    )


def folder_that_has(name: str, folder: Path, annotations: Path) -> str:
    """A hint where else an image is: above or in the folder, one or two levels down, or beside the json; "" if not."""
    below = [path for pattern in ("*/", "*/*/") for path in sorted(folder.glob(pattern))]
    guesses = (folder.parent, annotations.parent, *below)
    return next((f"; {guess} has it" for guess in guesses if os.path.isfile(guess / name)), "")


def check_images(
    table: Table, folder: Path, headers: Sequence[Header], others: Sequence[tuple[Table, Path]] = ()
) -> Iterator[Findings]:
    """All that the files show without being decoded. others: further splits and where their images are."""
    listed = list_files(folder, IMAGE_EXTENSIONS)
    yield from _missing(table, headers, listed)
    yield from _unreadable(headers)
    yield from _sizes(table, headers)
    yield from _palettes(headers)
    yield from _unreferenced(table, listed, [other for other, _ in others])
    yield from _identical(table, folder, headers)
    for other, other_folder in others:
        yield from _leaked(table, folder, headers, other, other_folder)
        yield from _categories_differ(table, other)


def _some(kind: str, messages: dict[int, str]) -> Iterator[Findings]:
    if messages:
        yield from_messages(kind, "images", messages)


# ----------------------------------------------------------------------------------------------------------
# Which files


def _missing(table: Table, headers: Sequence[Header], listed: Sequence[str]) -> Iterator[Findings]:
    missing = [at for at, name in enumerate(table.file_names) if name and headers[at] is None]
    near = {_by_eye(name): name for name in listed} if missing else {}
    messages = {}
    for at in missing:
        like = near.get(_by_eye(table.file_names[at]))
        messages[at] = "not in the image folder" + (f", but {shown(like)} is" if like else "")
    yield from _some("image-missing", messages)


def _by_eye(name: str) -> str:
    """The same for names that a person may take for one: other case, folder, extension, %20, backslashes."""
    plain = unicodedata.normalize("NFKC", unquote(name, errors="replace")).replace("\\", "/").casefold()
    return posixpath.splitext(posixpath.basename(plain))[0].strip()


def _unreferenced(table: Table, listed: Sequence[str], others: Sequence[Table]) -> Iterator[Findings]:
    named = {posixpath.normpath(name) for each in (table, *others) for name in each.file_names}
    extra = [name for name in listed if name not in named]
    if extra:
        yield from_messages("image-unreferenced", "files", {at: shown(name) for at, name in enumerate(extra)})


def _unreadable(headers: Sequence[Header]) -> Iterator[Findings]:
    for kind in ("image-unreadable", "image-format"):
        errors = {at: error for at, error in enumerate(headers) if isinstance(error, ImageError)}
        yield from _some(kind, {at: str(error) for at, error in errors.items() if error.kind == kind})


# ----------------------------------------------------------------------------------------------------------
# Sizes


def _sizes(table: Table, headers: Sequence[Header]) -> Iterator[Findings]:
    wrong: dict[str, dict[int, str]] = {"size-wrong": {}, "size-unrotated": {}, "orientation-unclear": {}}
    sizes = zip(table.sizes.tolist(), table.sized, headers, strict=True)
    for at, ((height, width), sized, header) in enumerate(sizes):
        if sized and isinstance(header, ImageHeader) and (fault := _size_fault(width, height, header)):
            wrong[fault[0]][at] = fault[1]
    for kind, messages in wrong.items():
        yield from _some(kind, messages)


def _size_fault(width: int, height: int, header: ImageHeader) -> tuple[str, str] | None:
    """(kind, message), None if the size is the file's and its rotation shows in it."""
    turned = f"EXIF orientation {header.orientation}"
    if (width, height) == (header.width, header.height):
        shows = header.orientation in (5, 6, 7, 8) and width != height
        return ("orientation-unclear", f"{turned}, {width} x {height}") if _turns(header) and not shows else None
    says = f"the json says {width} x {height}, the file {header.width} x {header.height}"
    if (width, height) == header.stored_size:
        return "size-unrotated", f"{says} with {turned}: its boxes are those of the unrotated image"
    return "size-wrong", says


def _turns(header: ImageHeader) -> bool:
    return 2 <= header.orientation <= 8


def _palettes(headers: Sequence[Header]) -> Iterator[Findings]:
    """As measured with DALI 2.4's mixed decoder: a palette of 4 bits comes out white, one of 8 bits right."""
    remedy = "save it as RGB or with a palette of 8 bits"
    bits = {at: header.palette_bits for at, header in enumerate(headers) if isinstance(header, ImageHeader)}
    small = {at: number for at, number in bits.items() if 0 < number < 8}
    messages = {at: f"a palette of {counted(number, 'bit')} per pixel; {remedy}" for at, number in small.items()}
    yield from _some("palette-small", messages)


# ----------------------------------------------------------------------------------------------------------
# The same image twice


def _identical(table: Table, folder: Path, headers: Sequence[Header]) -> Iterator[Findings]:
    messages: dict[int, str] = {}
    for rows in _alike(headers).values():
        first: dict[bytes, int] = {}
        for at in rows if len(rows) > 1 else ():
            same = first.setdefault(digest(folder / table.file_names[at]), at)
            if same != at:
                messages[at] = f"same bytes as images[{same}], {shown(table.file_names[same])}"
    yield from _some("image-identical", messages)


def _alike(headers: Sequence[Header]) -> dict[tuple[int, int], list[int]]:
    """Images by size and beginning of their files: only these can be identical."""
    groups: dict[tuple[int, int], list[int]] = {}
    for at, header in enumerate(headers):
        if isinstance(header, ImageHeader):
            groups.setdefault((header.file_bytes, header.head_crc), []).append(at)
    return groups


def _leaked(
    table: Table, folder: Path, headers: Sequence[Header], other: Table, other_folder: Path
) -> Iterator[Findings]:
    groups, messages = _alike(headers), dict[int, str]()
    for name in filter(None, other.file_names):
        path = other_folder / name
        candidates = groups.get(_fingerprint(path), ()) if path.is_file() else ()
        same = digest(path) if candidates else b""
        for at in candidates:
            if digest(folder / table.file_names[at]) == same:
                messages[at] = f"same bytes as {shown(name)} of {other.path}"
    yield from _some("image-leaked", messages)


def _fingerprint(path: Path) -> tuple[int, int]:
    with open(path, "rb", buffering=0) as file:
        return os.fstat(file.fileno()).st_size, zlib.crc32(file.read(_HEAD_BYTES))


def _categories_differ(table: Table, other: Table) -> Iterator[Findings]:
    if table.categories == other.categories:
        return
    number = min(set(table.categories.items()) ^ set(other.categories.items()))[0]
    names = [shown(each.categories.get(number, "not there")) for each in (table, other)]
    yield about_json("categories-differ", f"id {number} is {names[0]} here, {names[1]} in {other.path}")
