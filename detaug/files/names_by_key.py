"""The names of a dataset by keys, in little memory."""

from __future__ import annotations

import os
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

import numpy as np

from detaug.files.image_headers import IMAGE_EXTENSIONS

_PREFERENCE = {extension: rank for rank, extension in enumerate(IMAGE_EXTENSIONS)}


class NamesByKey:
    """The names of each key, in 12 bytes a name: of a million images a dict of lists has hundreds of megabytes."""

    def __init__(self, names: Sequence[str], key: Callable[[str], str]) -> None:
        self._names, self._key = names, key
        hashes = np.fromiter((hash(key(name)) for name in names), np.int64, len(names))
        order = hashes.argsort(kind="stable")
        self._hashes, self._order = array("q", hashes[order].tobytes()), array("i", order.astype(np.intc).tobytes())

    def get(self, key: str) -> tuple[str, ...]:
        """Return the names of a key, best first: see IMAGE_EXTENSIONS."""
        names = [*self._names_of(key)]
        return tuple(sorted(names, key=preference) if len(names) > 1 else names)

    def some(self, key: str, most: int) -> list[str]:
        """Return up to `most` names of a key, in their order."""
        return [*islice(self._names_of(key), most)]

    def _names_of(self, key: str) -> Iterator[str]:
        wanted = hash(key)
        position = bisect_left(self._hashes, wanted)
        while position < len(self._hashes) and self._hashes[position] == wanted:
            name = self._names[self._order[position]]
            # Another key may have the same hash.
            if self._key(name) == key:
                yield name
            position += 1


def preference(name: str) -> tuple[int, str]:
    """Return a key that sorts images by how good their extensions are, see IMAGE_EXTENSIONS, then by name."""
    return _PREFERENCE.get(os.path.splitext(name)[1].lower(), len(_PREFERENCE)), name
