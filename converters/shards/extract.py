"""Write the images of shards as plain files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from detaug.errors import ConversionError
from detaug.files.atomic import write_atomically


class Extract(NamedTuple):
    """One image to write: its file name, and where its bytes are."""

    name: str
    shard: str
    offset: int
    length: int


@contextmanager
def extracted(images: Iterable[Extract], folder: Path) -> Iterator[None]:
    """Write images into a folder; remove those that were written if that, or the block, ends with an error.

    A file that exists with the same bytes stays. Raises ConversionError for one with others, and for a name that a
    symbolic link leads outside of the folder.
    """
    written: list[Path] = []
    try:
        for image in images:
            path = folder / image.name
            data = _read(image)
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.parent.resolve().is_relative_to(folder.resolve()):
                raise ConversionError(f"{path} leads outside of {folder} by a symbolic link; give another folder")
            if os.path.lexists(path):
                _refuse_other_content(path, data)
                continue
            write_atomically(path, [data], sync=False)
            written.append(path)
        yield
    except BaseException:
        for path in written:
            with suppress(OSError):
                path.unlink()
        raise


def _read(image: Extract) -> bytes:
    with open(image.shard, "rb", buffering=0) as file:
        data = os.pread(file.fileno(), image.length, image.offset)
    if len(data) < image.length:
        raise ConversionError(f"{image.shard} became shorter while it was read; run again")
    return data


def _refuse_other_content(path: Path, data: bytes) -> None:
    if path.is_symlink() or not path.is_file() or path.stat().st_size != len(data) or path.read_bytes() != data:
        raise ConversionError(
            f"{path} exists with other content and would be replaced; give another folder, or move it away"
        )
