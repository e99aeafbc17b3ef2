"""What was read of a large COCO json, kept beside it, so that the next start takes no parsing.

A cache belongs to the json's content and to the rules it was checked by, not to its name or date; one that is
damaged or of other content is as good as none. It holds plain arrays with checksums, no pickled objects.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Columns = dict[str, NDArray[np.generic]]

SMALLEST = 4 << 20
"""Bytes: a smaller json is parsed in a tenth of a second and gets no cache."""

_DAMAGED = (OSError, ValueError, KeyError, AttributeError, EOFError, zipfile.BadZipFile, NotImplementedError)


def content_key(path: Path, rules: bytes) -> str:
    """The same for the same bytes in the file and the same `rules`. Raises OSError."""
    digest = hashlib.blake2b(rules, digest_size=16)
    with path.open("rb") as file:
        while part := file.read(1 << 20):
            digest.update(part)
        return f"{file.tell()}-{digest.hexdigest()}"


def load_columns(path: Path, key: str) -> Columns | None:
    """What was saved for the json at `path` with this key; None if nothing was, or if it is not whole."""
    for place in _places(path, key):
        with suppress(*_DAMAGED), place.open("rb") as file, np.load(file, allow_pickle=False) as saved:
            if saved["key"].tobytes() == key.encode():
                return {name: saved[name] for name in saved.files if name != "key"}
    return None


def save_columns(path: Path, key: str, columns: Columns) -> None:
    """Save them beside the json, or in the user's cache folder, or, if neither can be written, nowhere."""
    for place in _places(path, key):
        with suppress(OSError):
            _write_whole(place, {"key": np.frombuffer(key.encode(), np.uint8), **columns})
            return


def _places(path: Path, key: str) -> Iterator[Path]:
    yield path.with_name(f".{path.name}.detaug.npz")
    folder = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "detaug"
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    yield folder / f"{key}.npz"


def _write_whole(place: Path, columns: Columns) -> None:
    """Under another name first: nobody ever sees half of it, and of several writers the last one stays."""
    handle, name = tempfile.mkstemp(dir=place.parent, prefix=place.name, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez(file, **columns)  # type: ignore[arg-type]
        os.chmod(name, 0o644)
        os.replace(name, place)
    except BaseException:
        os.unlink(name)
        raise
