"""Names of objects in an object store: s3://bucket/folder/name.jpg."""

from __future__ import annotations

import os
import re
from pathlib import Path, PosixPath

from detaug.errors import InputError

SCHEMES = ("s3", "gs")


class ObjectPath(PosixPath):
    """The address of an object, or of all objects whose names begin with it. It is no file: only its text has a use.

    >>> str(ObjectPath("s3://bucket/VOC") / "000001.jpg")
    's3://bucket/VOC/000001.jpg'
    """

    __slots__ = ()

    def __str__(self) -> str:
        return super().__str__().replace(":/", "://", 1)

    def __fspath__(self) -> str:
        return str(self)

    def absolute(self) -> ObjectPath:
        """Return the address itself: it does not depend on the working folder."""
        return self


def local_or_remote(location: str | os.PathLike[str]) -> Path:
    """Return the path, or the ObjectPath of something in an object store. Raises InputError for other addresses."""
    found = re.match(r"([a-zA-Z][a-zA-Z0-9+.-]+):/", os.fspath(location))  # Path("s3://a") is "s3:/a"
    if not found:
        return Path(location)
    if found[1] not in SCHEMES:
        raise InputError(f"{os.fspath(location)}: {found[1]}:// is not supported; s3:// and gs:// are")
    return ObjectPath(os.fspath(location))
