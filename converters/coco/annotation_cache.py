"""Cache the parsed columns of a large COCO json beside it, so that the next start need not parse it.

A cache file is valid for one content of the json and one version of the rules that checked it; names and dates do not
count. A damaged or outdated one is ignored. It contains plain arrays with checksums, no pickled objects.
"""

from __future__ import annotations

import hashlib
import os
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from detaug.converters.files.atomic import replacing

Columns = dict[str, NDArray[np.generic]]

SMALLEST = 4 << 20
"""Bytes: a smaller json is parsed in a tenth of a second and gets no cache."""

_DAMAGED = (OSError, ValueError, KeyError, AttributeError, EOFError, zipfile.BadZipFile, NotImplementedError)


def content_key(path: Path, rules: bytes) -> str:
    """Return a key that is equal for equal bytes in the file and equal `rules`. Raises OSError."""
    digest = hashlib.blake2b(rules, digest_size=16)
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
        return f"{file.tell()}-{digest.hexdigest()}"


def load_columns(path: Path, key: str) -> Columns | None:
    """Return the columns saved for the json at `path` with this key, None where there are none or they are damaged."""
    for cache in _cache_files(path, key):
        with suppress(*_DAMAGED), cache.open("rb") as file, np.load(file, allow_pickle=False) as saved:
            if saved["key"].tobytes() == key.encode():
                return {name: saved[name] for name in saved.files if name != "key"}
    return None


def save_columns(path: Path, key: str, columns: Columns) -> None:
    """Save columns beside the json, else in the user's cache folder, else nowhere."""
    for cache in _cache_files(path, key):
        with suppress(OSError):
            _save(cache, {"key": np.frombuffer(key.encode(), np.uint8), **columns})
            return


def _cache_files(path: Path, key: str) -> Iterator[Path]:
    yield path.with_name(f".{path.name}.detaug.npz")
    folder = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "detaug"
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    yield folder / f"{key}.npz"


def _save(cache: Path, columns: Columns) -> None:
    with replacing(cache) as temporary, temporary.open("wb") as file:
        np.savez(file, **columns)  # type: ignore[arg-type]
