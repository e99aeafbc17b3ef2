"""Find values and files that occur more than once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np

from detaug.files.image_file import ImageFile, digest

K = TypeVar("K", bound=Hashable)


def repeated_hashes(values: Iterable[Hashable]) -> frozenset[int]:
    """Return the hashes that occur more than once, in 8 bytes a value."""
    hashes = np.fromiter(map(hash, values), np.int64)
    hashes.sort()
    return frozenset(hashes[1:][hashes[1:] == hashes[:-1]].tolist())


def group_equal(keys: Iterable[K | None]) -> dict[K, list[int]]:
    """Return the positions of each key, such as a fingerprint: only files with the same one can be identical."""
    groups: dict[K, list[int]] = {}
    for position, key in enumerate(keys):
        if key is not None:
            groups.setdefault(key, []).append(position)
    return groups


def repeated_files(keys: Sequence[Hashable], path_of: Callable[[int], Path | ImageFile]) -> Iterator[tuple[int, int]]:
    """Yield (position, earlier position) of files with the same bytes.

    keys: equal for equal files, such as fingerprints; None for a file that is left out. Reads only files whose key
    occurs twice. path_of: returns the path at a position.
    """
    several = repeated_hashes(key for key in keys if key is not None)
    groups = group_equal(key if key is not None and hash(key) in several else None for key in keys)
    for positions in groups.values():
        first: dict[bytes, int] = {}
        for position in positions if len(positions) > 1 else ():
            earlier = first.setdefault(digest(path_of(position)), position)
            if earlier != position:
                yield position, earlier
