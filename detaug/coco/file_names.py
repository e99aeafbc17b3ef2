"""Where the images and videos of a JSON file are: names of files, or places in shards (decision 13).

An image in a shard has `shard`, `offset` and `length`. `crc32c` is the CRC-32C of its bytes; a JSON file may lack it,
and then nothing notices that they changed.
"""

from __future__ import annotations

import os
import posixpath
from functools import cache
from typing import Any

import numpy as np

from detaug.arrays import Ints
from detaug.coco.columns import Rows, whole_numbers
from detaug.files import heif
from detaug.files.paths import is_below
from detaug.findings.finding import shown
from detaug.packages import needs

VIDEO_EXTENSIONS = (".avi", ".m4v", ".mkv", ".mov", ".mp4", ".mpeg", ".mpg", ".webm")

PLACE_KEYS = ("shard", "offset", "length", "crc32c")

_LARGEST_CRC = 2**32 - 1
_LONGEST_PART = 255  # bytes of a file or folder name
_LONGEST_NAME = 2048  # bytes of a path below the image folder


def file_names_of(rows: Rows, folders: list[str]) -> list[str]:
    """Return the file names; "" for one that cannot be used. `folders`: what each is in, a shard or nothing."""
    values = rows.column("file_name")
    faults = [_name_fault(value) for value in values]
    _note_faults(rows, values, faults)
    names = ["" if fault else value for value, fault in zip(values, faults, strict=True)]
    _note_repeated_names(rows, names, folders)
    return names


def video_files_of(rows: Rows) -> list[str]:
    """Return the names of the files that videos are; "" for another one, as a folder of frames, or a wrong name."""
    values = [value if is_video(value) else "" for value in rows.column("file_name")]
    faults = [_name_fault(value) if value else "" for value in values]
    _note_faults(rows, values, faults)
    return ["" if fault else value for value, fault in zip(values, faults, strict=True)]


def is_video(name: Any) -> bool:
    """Return whether a file is named as a video."""
    return isinstance(name, str) and name.lower().endswith(VIDEO_EXTENSIONS)


def _note_faults(rows: Rows, values: list[Any], faults: list[str]) -> None:
    for kind, rule in _NAME_RULES.items():
        if kind in faults:
            rule = rule.format(needs_heif=needs("pi_heif"))
            wrong = np.array([fault == kind for fault in faults], bool)
            rows.note(kind, wrong, lambda row, rule=rule: f"{rule}, got {shown(values[row])}")  # type: ignore[misc]


_NAME_RULES = {
    "file-name": "file_name must be the path of a file below the image folder",
    "file-name-outside": "file_name must not lead outside the image folder",
    "image-format": "DALI does not decode GIF, and HEIC {needs_heif}; save it as JPEG or PNG",
}


def _name_fault(name: Any) -> str:
    """Return the kind of finding about a file_name; "" where nothing is wrong."""
    if not isinstance(name, str) or not name or "\0" in name:
        return "file-name"
    if not is_below(name):
        return "file-name-outside"
    if not name.isascii() or len(name) > _LONGEST_PART:
        try:
            encoded = os.fsencode(name)
        except UnicodeEncodeError:
            return "file-name"
        if len(encoded) > _LONGEST_NAME or max(map(len, encoded.split(b"/"))) > _LONGEST_PART:
            return "file-name"
    return "image-format" if name[-5:].lower().endswith(_undecoded()) else ""


@cache
def _undecoded() -> tuple[str, ...]:
    return (".gif", *heif.undecoded_extensions())


def _note_repeated_names(rows: Rows, names: list[str], folders: list[str]) -> None:
    paths = [posixpath.join(*pair) for pair in zip(folders, names, strict=True)] if any(folders) else names
    # a.jpg and ./a.jpg are one file
    paths = [posixpath.normpath(path) if "//" in path or "./" in path else path for path in paths]
    if len(set(paths)) == len(paths):
        return
    first: dict[str, int] = {}
    earlier = np.array([first.setdefault(path, index) for index, path in enumerate(paths)], np.int64)
    wrong = (earlier != np.arange(len(paths))) & np.array([bool(name) for name in names], bool)
    rows.note(
        "file-name-repeated",
        wrong,
        lambda row: f"file_name {shown(names[row])} is taken by images[{earlier[row]}] already",
    )


def shard_places(rows: Rows) -> tuple[list[str], Ints, Ints]:
    """Return the shards' names, (N, 3) position of each image's shard, offset and length in bytes, and (N,) CRC-32C.

    The position is -1 for an image that is a file, the CRC-32C where it is not known. Appends findings about images
    whose place cannot be used.
    """
    values = rows.column("shard")
    places: Ints = np.tile([-1, 0, 0], (len(values), 1))
    checksums: Ints = np.full(len(values), -1)
    if values.count(None) == len(values):
        return [], places, checksums
    named = np.array([isinstance(value, str) and is_below(value) for value in values], bool)
    offset, has_offset = whole_numbers(rows.column("offset"))
    length, has_length = whole_numbers(rows.column("length"), 1)
    is_file = np.array([value is None for value in values], bool)
    crc32c, has_crc32c = whole_numbers(rows.column("crc32c"), high=_LARGEST_CRC)
    without_crc32c = np.array([value is None for value in rows.column("crc32c")], bool)
    good = named & has_offset & has_length & (has_crc32c | without_crc32c)
    checksums[good & has_crc32c] = crc32c[good & has_crc32c]

    def describe(row: int) -> str:
        place = {key: rows.rows[row].get(key) for key in PLACE_KEYS}
        rule = "must have the path of a shard below the folder and whole numbers offset, length and crc32c"
        return f"{rule}, got {shown(place)}"

    rows.note("image-shard", ~good & ~is_file, describe)
    positions: dict[str, int] = {}
    for row in np.flatnonzero(good).tolist():
        places[row] = positions.setdefault(values[row], len(positions)), offset[row], length[row]
    return list(positions), places, checksums
