"""Find files with the same content."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b, sha256
from pathlib import Path

from detaug.converters.files.image_file import ImageFile, opened
from detaug.converters.files.paths import PathLike

Fingerprint = tuple[int, int]
"""(length, checksum of the beginning) of a file: see ImageHeader.fingerprint."""


def digest(path: PathLike | ImageFile) -> bytes:
    """Return 16 bytes that are equal only for files with the same content."""
    state = blake2b(digest_size=16)
    with opened(path) as file:
        while block := file.read(1 << 20):
            state.update(block)
    return state.digest()


def short_digest(*parts: bytes) -> str:
    """Return 16 hexadecimal digits that are equal for the same bytes, whatever parts they come in."""
    return sha256(b"".join(parts)).hexdigest()[:16]


def group_equal(fingerprints: Sequence[Fingerprint | None]) -> dict[Fingerprint, list[int]]:
    """Return the positions of each fingerprint. Only files with the same one can be identical."""
    groups: dict[Fingerprint, list[int]] = {}
    for position, fingerprint in enumerate(fingerprints):
        if fingerprint is not None:
            groups.setdefault(fingerprint, []).append(position)
    return groups


def repeated_files(
    fingerprints: Sequence[Fingerprint | None], path_of: Callable[[int], Path | ImageFile]
) -> Iterator[tuple[int, int]]:
    """Yield (position, earlier position) of files with the same bytes; a file without a fingerprint is left out.

    Reads only files whose fingerprint occurs twice. path_of: returns the path at a position.
    """
    for positions in group_equal(fingerprints).values():
        first: dict[bytes, int] = {}
        for position in positions if len(positions) > 1 else ():
            earlier = first.setdefault(digest(path_of(position)), position)
            if earlier != position:
                yield position, earlier
