"""List the members of a tar with the positions of their contents, reading headers only."""

from __future__ import annotations

import io
import os
import posixpath
import tarfile
from collections.abc import Iterator
from typing import NamedTuple

from detaug.converters.shards.samples import ShardError, refuse_compressed
from detaug.files.paths import is_below
from detaug.files.text import is_plain
from detaug.findings.finding import shown

BLOCK = tarfile.BLOCKSIZE
"""Bytes of a header; a member's content is padded to a multiple."""

_HEAD_BYTES = 4096  # most of what is read of an image, and most JSON files
_LARGEST_EXTENSION = 1 << 20
_FILES = frozenset((tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE))
_KINDS = {
    tarfile.LNKTYPE: "a hard link",
    tarfile.SYMTYPE: "a symbolic link",
    tarfile.CHRTYPE: "a device",
    tarfile.BLKTYPE: "a device",
    tarfile.FIFOTYPE: "a fifo",
    tarfile.GNUTYPE_SPARSE: "a sparse file",
}
_PAX = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE)


class Member(NamedTuple):
    """One file in a tar."""

    name: str
    """Without "./" and the like."""
    offset: int
    """Position of the content in the tar, bytes."""
    size: int
    head: bytes
    """The first bytes of the content."""
    fault: tuple[str, str] | None = None
    """(a key of KINDS, the reason) of a member that must not be used."""


class _Headers(io.BufferedReader):
    """A tar of which tarfile reads headers: one at a time, and names for the next member."""

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or not 0 <= size <= _LARGEST_EXTENSION:
            raise tarfile.ReadError(f"a header of {size} bytes")
        return super().read(size)


def read_members(file: int) -> Iterator[Member]:
    """Yield the files in a tar, given as an open file descriptor; directories are left out.

    Raises ShardError where the tar is compressed, damaged or cut off, also between members or before its end mark.
    """
    size, position = os.fstat(file).st_size, 0
    refuse_compressed(os.pread(file, 8, 0))
    with _Headers(io.FileIO(file, closefd=False)) as headers:
        headers.seek(0)
        for info, following in _readable(headers):
            end = info.offset_data + (info.size if info.type in _FILES else 0)
            if end > size or following >= size + BLOCK:
                raise _cut_off(info.offset)
            _check_pax_headers(file, position, info.offset_data - BLOCK)
            position = following
            if not info.isdir():
                head = os.pread(file, min(info.size, _HEAD_BYTES), info.offset_data)
                yield Member(posixpath.normpath(info.name), info.offset_data, info.size, head, _fault(info))
        _check_end(file, position, size, is_read=headers.tell() >= size)


def _readable(headers: _Headers) -> Iterator[tuple[tarfile.TarInfo, int]]:
    """Yield (header, position of the next one) up to the end mark, or a header that tarfile cannot read."""
    try:
        archive = tarfile.TarFile(fileobj=headers, encoding="utf-8", errors="surrogateescape")
        # Python 3.10 would look for the header after the last one of an empty archive before its start.
        while (archive.firstmember or archive.offset) and (info := archive.next()) and info.size >= 0:  # type: ignore[attr-defined]
            archive.members.clear()  # type: ignore[attr-defined]  # else it keeps all headers, to unpack
            yield info, archive.offset
    except (tarfile.TarError, ValueError, OverflowError, RecursionError):
        return  # tarfile does so itself at a damaged header that is not the first one


def _fault(info: tarfile.TarInfo) -> tuple[str, str] | None:
    if info.type not in _FILES:
        return "member-no-file", f"is {_KINDS.get(info.type, f'of the unknown type {shown(info.type)}')}"
    if info.issparse() or any(key.startswith("GNU.sparse") for key in info.pax_headers):
        return "member-no-file", "is a sparse file"
    if not is_plain(info.name):
        return "member-name", "has a name with control characters, or one that is not UTF-8"
    if not is_below(info.name):
        return "member-name", "has a name that is empty, absolute, or leads outside with '..'"
    return None


def _check_pax_headers(file: int, position: int, end: int) -> None:
    """Raise ShardError for a pax header with something that is not "LENGTH KEY=VALUE\\n".

    tarfile leaves it and what follows out, up to Python 3.10.14, 3.11.9 and 3.12.5; a member then has another name.
    """
    while position < end:
        header = tarfile.TarInfo.frombuf(os.pread(file, BLOCK, position), "utf-8", "surrogateescape")
        if header.type == tarfile.GNUTYPE_SPARSE:
            return  # blocks without a checksum follow
        position += BLOCK
        content = os.pread(file, header.size, position).rstrip(b"\0") if header.type in _PAX else b""
        while content:
            digits = content[:20].partition(b" ")[0]
            length = int(digits) if digits.isdigit() else 0
            record, content = content[:length], content[length:]
            if len(record) <= len(digits) or len(record) < length or b"=" not in record or record[-1:] != b"\n":
                raise ShardError("shard-broken", f"is damaged: the pax header at byte {position:,} cannot be read")
        position += header.size + -header.size % BLOCK


def _check_end(file: int, position: int, size: int, *, is_read: bool) -> None:
    """Raise ShardError if there is no end mark at a position, or something after it."""
    block = os.pread(file, BLOCK, position)
    if not block:
        raise ShardError("shard-broken", f"is cut off: it ends at byte {position:,} without a tar's end mark")
    if block.strip(b"\0"):
        try:
            tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
            is_header = True
        except tarfile.HeaderError:
            is_header = False
        if len(block) < BLOCK or (is_header and is_read):
            raise _cut_off(position)
        kind, what = ("shard-broken", "is damaged") if position else ("shard-unreadable", "is not a tar")
        rule = "does not fit the one that follows it" if is_header else "has a wrong checksum or an invalid number"
        raise ShardError(kind, f"{what}: the header at byte {position:,} {rule}")
    while position < size:
        block = os.pread(file, 1 << 20, position)
        if block.strip(b"\0"):
            rule = "has data after a tar's end mark; tar files joined with cat must be joined with tar -A"
            raise ShardError("shard-broken", f"{rule} (byte {position:,})")
        position += len(block) or size


def _cut_off(position: int) -> ShardError:
    return ShardError("shard-broken", f"is cut off in the member that begins at byte {position:,}")
