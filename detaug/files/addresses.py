"""Addresses of objects in buckets, where a path is expected."""

from __future__ import annotations

import os
from pathlib import Path

from detaug.errors import InputError
from detaug.files.paths import PathLike

SCHEMES = ("s3", "gs")


def address_of(location: PathLike) -> str:
    """Return the address that a location is; "" for a path. Python writes s3:/a for Path("s3://a")."""
    scheme, separator, name = os.fspath(location).partition(":/")
    return f"{scheme}://{name.lstrip('/')}" if separator and scheme in SCHEMES else ""


def check_on_disk(location: PathLike) -> None:
    """Raise InputError for an address, where only what is on a disk can be used."""
    if address := address_of(location):
        raise InputError(
            f"{address} is in a bucket; give a path on a disk, such as that of a copy: only da.CocoReader and detaug "
            "train, tune and evaluate read from buckets"
        )


def check_command(json: PathLike) -> str:
    """Return the command that finds all that is wrong with a JSON file: of one in a bucket, for a copy of it."""
    path = os.fspath(json)
    if address_of(path):
        return f"with a copy of it, detaug check {Path(path).name} IMAGES"
    return f"detaug check {path} IMAGES"
