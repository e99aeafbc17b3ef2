"""Cache the parsed columns of a large COCO JSON file in the user's cache folder: the next start need not parse it.

Each JSON file has one cache file, found by its path. It is valid for one content of the JSON file and one version of
the rules that checked it; dates do not count. A damaged or outdated one is ignored. It contains plain arrays with
checksums, no pickled objects. The files that were not used for the longest time are removed: see MOST.
"""

from __future__ import annotations

import errno
import hashlib
import os
import zipfile
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from detaug.files.atomic import replacing

CachedColumns = dict[str, NDArray[np.generic]]

SMALLEST = 4 << 20
"""Bytes: a smaller JSON file is parsed in a tenth of a second and gets no cache."""

MOST = 1 << 30
"""Bytes of all cache files together; COCO train2017 needs about 50 MB."""

_DAMAGED = (OSError, ValueError, KeyError, AttributeError, EOFError, zipfile.BadZipFile, NotImplementedError)


def content_key(path: Path, rules: bytes) -> str:
    """Return a key that is equal for equal bytes in the file and equal `rules`. Raises OSError."""
    digest = hashlib.blake2b(rules, digest_size=16)
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
        return f"{file.tell()}-{digest.hexdigest()}"


def load_columns(path: Path, key: str, leave_out: str = "") -> CachedColumns | None:
    """Return the columns saved for the JSON file at `path` with this key, None where they are missing or damaged.

    `leave_out`: how the names of columns begin that are not needed.
    """
    with suppress(*_DAMAGED):
        cache = cache_file(path)
        with cache.open("rb") as file, np.load(file, allow_pickle=False) as saved:
            if saved["key"].tobytes() == key.encode():
                names = [name for name in saved.files if name != "key"]
                columns = {name: saved[name] for name in names if not (leave_out and name.startswith(leave_out))}
                with suppress(OSError):
                    os.utime(cache)  # used now
                return columns
    return None


def save_columns(path: Path, key: str, columns: CachedColumns) -> None:
    """Save columns in the user's cache folder; nowhere if it cannot be written."""
    with suppress(OSError):
        cache = cache_file(path)
        cache.parent.mkdir(parents=True, exist_ok=True)
        with replacing(cache) as temporary, temporary.open("wb") as file:
            np.savez(file, key=np.frombuffer(key.encode(), np.uint8), **columns)  # type: ignore[arg-type]
        remove_oldest(cache.parent, MOST)


def cache_file(path: Path) -> Path:
    """Return where the columns of the JSON file at `path` are saved. Raises OSError without a cache folder."""
    name = hashlib.blake2b(os.fsencode(path.resolve()), digest_size=16).hexdigest()
    return cache_root() / "annotations" / f"{name}.npz"


def cache_root() -> Path:
    """Return ~/.cache/detaug or $XDG_CACHE_HOME/detaug. Raises OSError without a cache folder."""
    folder = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(folder):  # the specification: ignore a relative one
        folder = os.path.expanduser("~/.cache")
    if not os.path.isabs(folder):
        raise FileNotFoundError(errno.ENOENT, "the user has no home folder", folder)
    return Path(folder, "detaug")


def remove_oldest(folder: Path, most: int) -> None:
    """Remove the files used least recently, so that the rest has at most this many bytes. Raises OSError."""
    status = {path: path.stat() for path in folder.iterdir()}
    size = sum(stat.st_size for stat in status.values())
    # The newest stays, however large it is: it was just written.
    for path in sorted(status, key=lambda path: status[path].st_mtime_ns)[:-1]:
        if size > most:
            path.unlink()
            size -= status[path].st_size
