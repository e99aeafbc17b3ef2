"""Numbers of bytes as people write them."""

from __future__ import annotations

import re

from detaug.errors import InputError

_UNITS = {"": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12, "kib": 2**10, "mib": 2**20, "gib": 2**30}


def parse_size(name: str, size: str | int) -> int:
    """Return a number of bytes from 256MB, 64MiB, 1.5GB or a number. Raises InputError, which says `name`."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", str(size).strip().lower())
    unit = _UNITS.get(found[2]) if found else None
    if found is None or unit is None or float(found[1]) * unit < 1:
        raise InputError(f"{name} must be bytes such as 256MB, 1GB, 64MiB or 1000000, got {size!r}")
    return int(float(found[1]) * unit)
