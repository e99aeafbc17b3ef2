"""Read the records of a TFRecord file, and check their checksums.

A record is the length (uint64, little endian), the masked CRC32C of these 8 bytes (uint32), the data, and the masked
CRC32C of the data: https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

from detaug.converters.shards.samples import ShardError, refuse_compressed, refuse_zlib
from detaug.files.image_file import load_crc32c
from detaug.files.paths import require_file

HEAD_BYTES = 12
"""Of a record, before its data: length and checksum."""
TAIL_BYTES = 4
"""Of a record, after its data: checksum."""

_READ_BYTES = 1 << 20


class RawRecord(NamedTuple):
    """One record of a TFRecord file."""

    number: int
    """From 1."""
    offset: int
    """Position of the data in the file, bytes."""
    data: bytes
    intact: bool
    """Whether the checksum of the data is right."""


def masked(crc: int) -> int:
    """Return a CRC32C as TFRecord stores it: rotated right by 15 bits, plus a constant."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def read_records(path: str | os.PathLike[str]) -> Iterator[RawRecord]:
    """Yield the records of a TFRecord file; only one of them is in memory.

    Raises ShardError where the file is compressed, cut off, or a length's checksum is wrong: where the next record
    begins is then unknown. A record whose data's checksum is wrong is yielded with intact=False. Raises OSError.
    """
    crc32c = load_crc32c()
    require_file(path)
    with open(path, "rb", buffering=_READ_BYTES) as file:
        size, position, number = os.fstat(file.fileno()).st_size, 0, 0
        while head := file.read(HEAD_BYTES):
            number += 1
            length = _data_length(head, number, position, size, crc32c)
            data = file.read(length)
            tail = file.read(TAIL_BYTES)
            if len(data) + len(tail) < length + TAIL_BYTES:  # the file became shorter while it was read
                raise _cut_off(number, position)
            offset = position + HEAD_BYTES
            yield RawRecord(number, offset, data, int.from_bytes(tail, "little") == masked(crc32c(data)))
            position = offset + length + TAIL_BYTES


def _data_length(head: bytes, number: int, position: int, size: int, crc32c: Callable[[bytes], int]) -> int:
    """Return the length of a record's data. Raises ShardError."""
    if number == 1:
        refuse_compressed(head)
    if len(head) < HEAD_BYTES:
        raise _cut_off(number, position)
    length, crc = struct.unpack("<QI", head)
    if crc != masked(crc32c(head[:8])):
        if number == 1:
            refuse_zlib(head)
            raise ShardError("shard-unreadable", "is not a TFRecord file: its first checksum is wrong")
        raise ShardError("shard-broken", f"is damaged at byte {position:,}: the checksum of record {number:,} is wrong")
    if position + HEAD_BYTES + length + TAIL_BYTES > size:
        raise _cut_off(number, position)
    return int(length)


def _cut_off(number: int, position: int) -> ShardError:
    return ShardError("shard-broken", f"is cut off in record {number:,}, which begins at byte {position:,}")
