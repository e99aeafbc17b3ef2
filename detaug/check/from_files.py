"""Repair a COCO JSON file with its image files: sizes that are missing, and names that begin with another folder."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np

from detaug.check.images import Header
from detaug.coco.examine import with_repairs
from detaug.coco.repair import REPAIRS
from detaug.coco.table import Table
from detaug.files.image_headers import IMAGE_EXTENSIONS, ImageError, ImageHeader, read_image_header
from detaug.files.paths import folded, list_files
from detaug.findings.entries import Findings, from_messages
from detaug.findings.finding import shown

Row = dict[str, Any]


def with_files(table: Table, folder: Path, headers: Sequence[Header]) -> Table:
    """Return the JSON file with the paths and sizes of its image files, with findings; the same table if none changes.

    headers: of the images where the JSON file says that they are.
    """
    names = _paths(table, folder, headers)
    sizes = _sizes(table, folder, headers, names)
    if not names and not sizes:
        return table
    rows = list(table.coco.document["images"])
    for index in sorted(names.keys() | sizes.keys()):
        name = {"file_name": names[index]} if index in names else {}
        size = {"width": sizes[index].width, "height": sizes[index].height} if index in sizes else {}
        rows[index] = rows[index] | name | size
    repaired = replace(table.coco, document=table.coco.document | {"images": rows})
    earlier = [finding for finding in table.findings if finding.kind in REPAIRS]
    return with_repairs(repaired, [*earlier, *_findings(table, names, sizes)])


def _findings(table: Table, names: dict[int, str], sizes: dict[int, ImageHeader]) -> Iterable[Findings]:
    if names:
        old = {index: shown(table.row("images", index)["file_name"]) for index in names}
        messages = {
            index: f"file_name {old[index]} leads to no file and becomes {shown(new)}" for index, new in names.items()
        }
        yield from_messages("file-name-elsewhere", "images", messages)
    if sizes:
        yield from_messages(
            "size-missing",
            "images",
            {index: _size_text(table.row("images", index), new) for index, new in sizes.items()},
        )


def _size_text(row: Row, header: ImageHeader) -> str:
    old = [shown(row.get(key)) for key in ("width", "height")]
    text = f"width {old[0]} and height {old[1]} become {header.width} and {header.height}"
    rotated = f", with EXIF orientation {header.orientation} applied: check whether its boxes are turned too"
    return text + rotated * (2 <= header.orientation <= 8)


def _sizes(table: Table, folder: Path, headers: Sequence[Header], names: dict[int, str]) -> dict[int, ImageHeader]:
    """Return the headers of the images without a size, by row."""
    missing = {}
    for index in np.flatnonzero(~table.has_size).tolist():
        header = _header(folder / names[index]) if index in names else headers[index]
        if isinstance(header, ImageHeader) and table.row("images", index):
            missing[index] = header
    return missing


def _header(path: Path) -> ImageHeader | None:
    try:
        return read_image_header(path)
    except ImageError:
        return None


def _paths(table: Table, folder: Path, headers: Sequence[Header]) -> dict[int, str]:
    """Return the paths of images that are not where the JSON file says, by row: of those that one file alone can be.

    This is the file whose path ends as the image's, or the other way round: C:\\data\\a.jpg is a.jpg, and a.jpg is
    images/a.jpg. It must have the size that the JSON file has, and no other image may be this file.
    """
    stated = {
        index: table.row("images", index).get("file_name") for index, header in enumerate(headers) if header is None
    }
    single = (table.places[:, 0] < 0) & ~table.videos.in_files
    lost = {index: _parts(name) for index, name in stated.items() if isinstance(name, str) and single[index]}
    if not any(lost.values()):
        return {}
    listed = defaultdict(list)
    for name in list_files(folder, IMAGE_EXTENSIONS):
        parts = _parts(name)
        listed[parts[-1]].append((parts, name))
    ends = {index: _longest(parts, listed[parts[-1]]) for index, parts in lost.items() if parts}
    matches = {index: name for index, name in ends.items() if name is not None}
    taken = {name for name, header in zip(table.file_names, headers, strict=True) if header is not None}
    claims = Counter(name for _, name in {(lost[index], name) for index, name in matches.items()})
    return {
        index: name
        for index, name in matches.items()
        if name not in taken and claims[name] == 1 and _has_size(table, index, folder / name)
    }


def _parts(name: str) -> tuple[str, ...]:
    """Return the folders and the name of a path, as Windows or a web server may write it, without a drive and ".."."""
    plain = folded(unquote(name, errors="replace")).replace("\\", "/")
    return tuple(part for part in re.sub("^[a-z]:", "", plain).split("/") if part not in ("", ".", ".."))


def _longest(parts: tuple[str, ...], files: Iterable[tuple[tuple[str, ...], str]]) -> str | None:
    """Return the file that has the most parts in common, of those that are an end of the path or have it as theirs."""
    ends = [
        (length, name)
        for file_parts, name in files
        if file_parts[-(length := min(len(file_parts), len(parts))) :] == parts[-length:]
    ]
    most = max((length for length, _ in ends), default=0)
    names = [name for length, name in ends if length == most]
    return names[0] if len(names) == 1 else None


def _has_size(table: Table, index: int, path: Path) -> bool:
    """Return whether an image file has the size that the JSON file has, if it has one."""
    header, (height, width) = _header(path), table.sizes[index].tolist()
    if header is None:
        return False
    return not table.has_size[index] or (width, height) in ((header.width, header.height), header.stored_size)
