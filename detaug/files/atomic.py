"""Write files whole or not at all."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from glob import escape
from pathlib import Path

from detaug.files.paths import PathLike


def write_json(path: PathLike, document: object) -> None:
    """Write one document as JSON, indented for people."""
    with json_written_with(path, document):
        pass


@contextmanager
def json_written_with(path: PathLike, document: object) -> Iterator[None]:
    """Write one document as `write_json` does, but only if the block ends without an error.

    The document is on the disk before the block begins, so that a full disk stops it.
    """
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, indent=1)
    with replacing(path) as temporary:
        _write(temporary, [text, "\n"])
        yield


def write_atomically(path: PathLike, chunks: Iterable[str | bytes | memoryview], *, sync: bool = True) -> None:
    """Write a file so that `path` has its old content or all of the new one, never a part of it.

    Text is written as UTF-8; lone surrogates, which file names that are not UTF-8 have, become JSON's escapes.
    For `sync` and errors see `replacing`.
    """
    with replacing(path, sync=sync) as temporary:
        _write(temporary, chunks)


def write_together(texts: Mapping[Path, Iterable[str]]) -> None:
    """Write several files as `write_atomically` does, none of them before the last is on the disk."""
    with ExitStack() as stack:
        for path, chunks in texts.items():
            temporary = stack.enter_context(replacing(path))
            _write(temporary, chunks)
            _sync(temporary)


def _write(path: Path, chunks: Iterable[str | bytes | memoryview]) -> None:
    with path.open("wb") as file:
        for chunk in chunks:
            file.write(chunk.encode("utf-8", "backslashreplace") if isinstance(chunk, str) else chunk)


@contextmanager
def replacing(path: PathLike, *, sync: bool = True) -> Iterator[Path]:
    """Yield a temporary path beside `path` and rename it to `path` when the block ends without an error.

    A symbolic link at `path` is written through. With sync, file and folder are on the disk afterwards; sync=False
    leaves the moment to the system, which is much faster for thousands of files. Errors, KeyboardInterrupt too,
    leave the old content and no temporary file. An OSError about the temporary file names `path` instead.
    """
    target = Path(os.path.realpath(path))
    temporary = temporary_path(target)
    try:
        yield temporary
        if sync:
            _sync(temporary)
        os.replace(temporary, target)
        if sync:
            _sync(target.parent)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink()
        # That of a full disk has no file name.
        if isinstance(error, OSError) and error.errno and error.filename in (None, str(temporary), temporary):
            raise OSError(error.errno, error.strerror, os.fspath(path)) from None
        raise


def temporary_path(target: Path) -> Path:
    """Return a path beside `target` that no other thread, process or machine on a shared disk uses."""
    return target.with_name(f".{target.name[:32]}.{secrets.token_hex(8)}.partial")


def remove_leftovers(target: Path) -> None:
    """Remove the temporary files of `target` that killed processes left. No other process may be writing it."""
    for path in target.parent.glob(f".{escape(target.name[:32])}.*.partial"):
        path.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
