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
    for at in sorted(names.keys() | sizes.keys()):
        name = {"file_name": names[at]} if at in names else {}
        size = {"width": sizes[at].width, "height": sizes[at].height} if at in sizes else {}
        rows[at] = rows[at] | name | size
    repaired = replace(table.coco, document=table.coco.document | {"images": rows})
    earlier = [found for found in table.findings if found.kind in REPAIRS]
    return with_repairs(repaired, [*earlier, *_findings(table, names, sizes)])


def _findings(table: Table, names: dict[int, str], sizes: dict[int, ImageHeader]) -> Iterable[Findings]:
    if names:
        old = {at: shown(table.row("images", at)["file_name"]) for at in names}
        messages = {at: f"file_name {old[at]} leads to no file and becomes {shown(new)}" for at, new in names.items()}
        yield from_messages("file-name-elsewhere", "images", messages)
    if sizes:
        yield from_messages(
            "size-missing", "images", {at: _size_text(table.row("images", at), new) for at, new in sizes.items()}
        )


def _size_text(row: Row, header: ImageHeader) -> str:
    old = [shown(row.get(key)) for key in ("width", "height")]
    text = f"width {old[0]} and height {old[1]} become {header.width} and {header.height}"
    turned = f", with EXIF orientation {header.orientation} applied: check whether its boxes are turned too"
    return text + turned * (2 <= header.orientation <= 8)


def _sizes(table: Table, folder: Path, headers: Sequence[Header], names: dict[int, str]) -> dict[int, ImageHeader]:
    """Return the headers of the images without a size, by row."""
    found = {}
    for at in np.flatnonzero(~table.has_size).tolist():
        header = _header(folder / names[at]) if at in names else headers[at]
        if isinstance(header, ImageHeader) and table.row("images", at):
            found[at] = header
    return found


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
    given = {at: table.row("images", at).get("file_name") for at, header in enumerate(headers) if header is None}
    single = (table.places[:, 0] < 0) & ~table.videos.in_files
    lost = {at: _parts(name) for at, name in given.items() if isinstance(name, str) and single[at]}
    if not any(lost.values()):
        return {}
    listed = defaultdict(list)
    for name in list_files(folder, IMAGE_EXTENSIONS):
        parts = _parts(name)
        listed[parts[-1]].append((parts, name))
    ends = {at: _longest(parts, listed[parts[-1]]) for at, parts in lost.items() if parts}
    found = {at: name for at, name in ends.items() if name is not None}
    taken = {name for name, header in zip(table.file_names, headers, strict=True) if header is not None}
    claims = Counter(name for _, name in {(lost[at], name) for at, name in found.items()})
    return {
        at: name
        for at, name in found.items()
        if name not in taken and claims[name] == 1 and _has_size(table, at, folder / name)
    }


def _parts(name: str) -> tuple[str, ...]:
    """Return the folders and the name of a path, as Windows or a web server may write it, without a drive and ".."."""
    plain = folded(unquote(name, errors="replace")).replace("\\", "/")
    return tuple(part for part in re.sub("^[a-z]:", "", plain).split("/") if part not in ("", ".", ".."))


def _longest(parts: tuple[str, ...], files: Iterable[tuple[tuple[str, ...], str]]) -> str | None:
    """Return the file that has the most parts in common, of those that are an end of the path or have it as theirs."""
    ends = [
        (length, name) for found, name in files if found[-(length := min(len(found), len(parts))) :] == parts[-length:]
    ]
    most = max((length for length, _ in ends), default=0)
    names = [name for length, name in ends if length == most]
    return names[0] if len(names) == 1 else None


def _has_size(table: Table, at: int, path: Path) -> bool:
    """Return whether an image file has the size that the JSON file has, if it has one."""
    header, (height, width) = _header(path), table.sizes[at].tolist()
    if header is None:
        return False
    return not table.has_size[at] or (width, height) in ((header.width, header.height), header.stored_size)
