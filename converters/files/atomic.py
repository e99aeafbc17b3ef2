"""Write files whole or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path


def write_json(path: str | os.PathLike[str], document: object) -> None:
    """Write one document as json, indented for people."""
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, indent=1)
    write_atomically(path, [text, "\n"])


def write_atomically(path: str | os.PathLike[str], pieces: Iterable[str], *, sync: bool = True) -> None:
    """Write text as UTF-8 so that path holds its old content or all of the new one, never a part of it.

    Goes to a temporary file in the same folder, to the disk, then over path. A symbolic link is written
    through. File names that are not UTF-8 (lone surrogates) become json's own escapes. sync=False leaves the
    moment at which the disk has it to the system: for thousands of files, it is much faster.
    """
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        with open(temporary, "w", encoding="utf-8", errors="backslashreplace", newline="\n") as file:
            file.writelines(pieces)
            file.flush()
            if sync:
                os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException as error:  # KeyboardInterrupt too: leave nothing behind
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:  # a full disk does not say which file
            raise OSError(error.errno, error.strerror, os.fspath(path)) from None
        raise
    if sync:
        _sync_folder(target.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
