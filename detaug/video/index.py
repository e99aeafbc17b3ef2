"""Find video files and their frames, and store the numbers and times of the frames in the user's cache folder."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from detaug.arrays import Ints
from detaug.converters.coco.annotation_cache import load_columns, save_columns
from detaug.converters.coco.file_names import VIDEO_EXTENSIONS
from detaug.converters.files.image_file import short_digest
from detaug.converters.files.paths import PathLike, list_files
from detaug.converters.machine import available_cores
from detaug.errors import InputError
from detaug.storage.folder import file_status
from detaug.video import files as video_files
from detaug.video.files import Coding, VideoIndex, import_av, read_index


class Videos(NamedTuple):
    """Video files."""

    origin: str
    """What errors say where they come from."""
    files: list[str]
    """Absolute paths."""
    class_names: list[str]
    classes: Ints | None
    """(V,) the class of each, 0..K-1; None without classes."""


def find_videos(videos: PathLike | Sequence[PathLike]) -> Videos:
    """Return the videos of a folder, sorted, with the classes that sub-folders are; or those of a list.

    Raises InputError for no videos.
    """
    if not isinstance(videos, str | os.PathLike):
        files = _not_empty([os.path.abspath(each) for each in videos], "the list")
        return Videos("the list of videos", files, [], None)
    folder = Path(videos)
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; give a folder of videos, or a list of files")
    names = _not_empty(list_files(folder, VIDEO_EXTENSIONS), str(folder))
    files = [os.path.join(folder.absolute(), name) for name in names]
    if not all("/" in name for name in names):
        return Videos(str(folder), files, [], None)
    of_files = [name.partition("/")[0] for name in names]
    class_names, classes = np.unique(of_files, return_inverse=True)
    return Videos(str(folder), files, class_names.tolist(), np.asarray(classes, np.int64))


def _not_empty(names: list[str], where: str) -> list[str]:
    if not names:
        raise InputError(f"{where}: no videos; their names end in {', '.join(VIDEO_EXTENSIONS)}")
    return names


def read_indexes(files: Sequence[str], *, cache: bool) -> list[VideoIndex | str]:
    """Return the frames of each file, or the reason why it cannot be used.

    Those of all files are one cache file, which is valid as long as the files' paths, lengths and dates are the same.
    """
    version, code = import_av().__version__, Path(video_files.__file__).read_bytes()
    key = short_digest(code, version.encode(), *(f"{file} {file_status(file)}".encode(*_AS_BYTES) for file in files))
    if cache and (saved := load_columns(Path(files[0]), key)) is not None:
        return _from_columns(saved)
    with ThreadPoolExecutor(available_cores()) as pool:  # FFmpeg reads outside of Python's lock
        indexes = [*pool.map(_read, files)]
    good = [each for each in indexes if isinstance(each, VideoIndex)]
    if cache and len(good) == len(files):
        save_columns(Path(files[0]), key, _to_columns(good))
    return indexes


_AS_BYTES = "utf-8", "surrogateescape"


def _read(file: str) -> VideoIndex | str:
    try:
        return read_index(file)
    except FileNotFoundError:
        return "does not exist"
    except OSError as error:
        return error.strerror or str(error)


def _to_columns(indexes: Sequence[VideoIndex]) -> dict[str, Any]:
    facts = [
        [len(each.stamps), len(each.keys), len(each.packets), each.unit, *each.size, each.coding.turns]
        for each in indexes
    ]
    stamps, keys, packets = (
        np.concatenate(each) for each in zip(*((each.stamps, each.keys, each.packets) for each in indexes), strict=True)
    )
    formats = np.array([[each.coding.codec, each.coding.pixels] for each in indexes])
    numbers = {"stamps": stamps, "keys": keys, "packets": packets}
    return {**numbers, "facts": np.array(facts, np.float64), "formats": formats}


def _from_columns(saved: Any) -> list[VideoIndex | str]:
    facts = saved["facts"]
    stamps, keys, packets = (
        np.split(np.asarray(saved[name], np.int64), np.cumsum(facts[:, at]).astype(int)[:-1])
        for at, name in enumerate(("stamps", "keys", "packets"))
    )
    return [
        VideoIndex(own, own_keys, unit, (int(height), int(width)), Coding(codec, pixels, int(turns)), own_packets)
        for own, own_keys, own_packets, (*_, unit, height, width, turns), (codec, pixels) in zip(
            stamps, keys, packets, facts.tolist(), saved["formats"].tolist(), strict=True
        )
    ]
