"""List the members of a tar with the positions of their contents, reading headers only.

Reads POSIX ustar, pax and GNU headers: https://pubs.opengroup.org/onlinepubs/9799919799/utilities/pax.html and
https://www.gnu.org/software/tar/manual/html_node/Standard.html. Python's tarfile takes over 100 microseconds a member.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterator
from typing import NamedTuple
from zlib import adler32

from detaug.converters.shards.samples import ShardError, refuse_compressed
from detaug.files.paths import is_below
from detaug.files.text import is_plain
from detaug.findings.finding import shown

BLOCK = 512
"""Bytes of a header; a member's content is padded to a multiple."""

_HEAD_BYTES = 4096  # of the content, read with the header: most of what is read of an image, and most json files
_LARGEST_EXTENSION = 1 << 20
_FILES = frozenset((b"0", b"\0", b"7"))
_WITHOUT_CONTENT = {b"1": "a hard link", b"2": "a symbolic link", b"3": "a device", b"4": "a device", b"6": "a fifo"}
_DIRECTORY, _SPARSE = b"5", b"S"
_PAX, _PAX_GLOBAL, _LONG_NAME, _LONG_LINK = b"x", b"g", b"L", b"K"


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


class _Header(NamedTuple):
    name: bytes
    size: int
    type: bytes
    content: int
    """Position of the content."""
    block: bytes


def read_members(file: int) -> Iterator[Member]:
    """Yield the files in a tar, given as an open file descriptor; directories are left out.

    Raises ShardError where the tar is compressed, damaged or cut off, also between members or before its end mark.
    """
    size = os.fstat(file).st_size
    refuse_compressed(os.pread(file, 8, 0))
    position = 0
    pax: dict[bytes, bytes] = {}
    shared: dict[bytes, bytes] = {}
    while block := os.pread(file, BLOCK + _HEAD_BYTES, position):
        if not block[0] and not block[:BLOCK].strip(b"\0"):
            return _check_end(file, position, size)
        header = _parse(block, position, pax)
        position = header.content + header.size + _padding(header.size)
        if position - _padding(header.size) > size:
            raise _cut_off(header.content - BLOCK)
        if header.type in (_PAX, _PAX_GLOBAL, _LONG_NAME, _LONG_LINK):
            content = _extension(file, header)
            (shared if header.type == _PAX_GLOBAL else pax).update(content)
            continue
        member = _member(header, {**shared, **pax})
        if member:
            yield member
        if header.type == _SPARSE:
            position += _sparse_blocks(file, header)
        pax = {}
    raise ShardError("shard-broken", f"is cut off: it ends at byte {position:,} without a tar's end mark")


def _member(header: _Header, pax: dict[bytes, bytes]) -> Member | None:
    """Return the member of a header; None for a directory."""
    raw = pax.get(b"path", header.name)
    if header.type == _DIRECTORY or (header.type == b"\0" and raw.endswith(b"/")):
        return None
    name = raw.decode("utf-8", "surrogateescape")
    fault = _fault(name, header, pax)
    head = header.block[BLOCK : BLOCK + header.size]
    return Member(posixpath.normpath(name), header.content, header.size, head, fault)


def _fault(name: str, header: _Header, pax: dict[bytes, bytes]) -> tuple[str, str] | None:
    if header.type not in _FILES:
        kind = "a sparse file" if header.type == _SPARSE else f"of the unknown type {shown(header.type)}"
        return "member-no-file", f"is {_WITHOUT_CONTENT.get(header.type, kind)}"
    if pax and any(key.startswith(b"GNU.sparse") for key in pax):
        return "member-no-file", "is a sparse file"
    if not is_plain(name):
        return "member-name", "has a name with control characters, or one that is not UTF-8"
    if not is_below(name):
        return "member-name", "has a name that is empty, absolute, or leads outside with '..'"
    return None


def _parse(block: bytes, position: int, pax: dict[bytes, bytes]) -> _Header:
    """Parse the header at a position. Raises ShardError."""
    head = block[:BLOCK]
    if len(head) < BLOCK:
        raise _cut_off(position)
    if _number(head[148:156]) != _checksum(head):
        kind, what = ("shard-broken", "is damaged") if position else ("shard-unreadable", "is not a tar")
        raise ShardError(kind, f"{what}: the header at byte {position:,} has a wrong checksum")
    name = head[:100].partition(b"\0")[0]
    prefix = head[345:500].partition(b"\0")[0] if head[345] and head[257:263] == b"ustar\0" else b""
    size = pax.get(b"size", b"")
    length = int(size) if size.isdigit() else _number(head[124:136])
    if length is None or length >= 1 << 63:
        raise ShardError("shard-broken", f"is damaged: the header at byte {position:,} has no valid size")
    type_ = head[156:157]
    content = 0 if type_ == _DIRECTORY or type_ in _WITHOUT_CONTENT else length
    return _Header(prefix + b"/" + name if prefix else name, content, type_, position + BLOCK, block)


def _checksum(head: bytes) -> int:
    """Return the sum of a header's bytes, with spaces in the place of the checksum.

    Adler-32 has it, plus 1 and modulo 65,521, in its lower half: exact for 256 bytes, and quicker than sum().
    """
    rest = head[:148] + b" " * 8 + head[156:]
    return (adler32(rest[:256]) & 0xFFFF) + (adler32(rest[256:]) & 0xFFFF) - 2


def _number(field: bytes) -> int | None:
    """Return a number of a header: octal digits, or GNU's base 256; None where it is neither."""
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    try:
        return int(field.partition(b"\0")[0].strip() or b"0", 8)
    except ValueError:
        return None


def _extension(file: int, header: _Header) -> dict[bytes, bytes]:
    """Return what a pax header, or GNU's header for a long name, says about the next member. Raises ShardError."""
    if header.size > _LARGEST_EXTENSION:
        raise ShardError("shard-broken", f"is damaged: a header of {header.size:,} bytes at byte {header.content:,}")
    content = os.pread(file, header.size, header.content)
    if header.type == _LONG_LINK:
        return {}
    if header.type == _LONG_NAME:
        return {b"path": content.partition(b"\0")[0]}
    return dict(_pax_records(content, header.content))


def _pax_records(content: bytes, position: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield (key, value) of the records "LENGTH KEY=VALUE\\n"."""
    start = 0
    while start < len(content) and content[start]:
        digits = content[start : start + 20].partition(b" ")[0]
        end = start + int(digits) if digits.isdigit() else 0
        key, equals, value = content[start + len(digits) + 1 : end].partition(b"=")
        if not start < end <= len(content) or not equals or value[-1:] != b"\n":
            raise ShardError("shard-broken", f"is damaged: the pax header at byte {position:,} cannot be read")
        if key == b"size" and not value[:-1].isdigit():
            raise ShardError("shard-broken", f"is damaged: the pax header at byte {position:,} has no valid size")
        yield key, value[:-1]
        start = end


def _sparse_blocks(file: int, header: _Header) -> int:
    """Return the bytes of the further headers of GNU's old sparse format, which lie before the content."""
    position, more = header.content, header.block[482:483]
    while more not in (b"\0", b""):
        more = os.pread(file, 1, position + 504)
        position += BLOCK
    return position - header.content


def _padding(size: int) -> int:
    return -size % BLOCK


def _check_end(file: int, position: int, size: int) -> None:
    """Raise ShardError if there is something after the end mark."""
    while position < size:
        block = os.pread(file, 1 << 20, position)
        if not block:
            return
        if block.strip(b"\0"):
            rule = "has data after a tar's end mark; tar files joined with cat must be joined with tar -A"
            raise ShardError("shard-broken", f"{rule} (byte {position:,})")
        position += len(block)


def _cut_off(position: int) -> ShardError:
    return ShardError("shard-broken", f"is cut off in the member that begins at byte {position:,}")
