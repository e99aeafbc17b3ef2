"""The errors for a shard, or a sample in it, that cannot be used."""

from __future__ import annotations

from detaug.errors import InputError

_COMPRESSIONS = {
    b"\x1f\x8b": ("GZIP", "gunzip"),
    b"BZh": ("BZIP2", "bunzip2"),
    b"\xfd7zXZ": ("XZ", "unxz"),
    b"\x28\xb5\x2f\xfd": ("Zstandard", "unzstd"),
}
_ZLIB = (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")


class SampleError(InputError):
    """A record or sample that cannot be used. kind: a key of KINDS."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class ShardError(InputError):
    """A shard that cannot be read, or not from some position on. kind: a key of KINDS."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def refuse_compressed(head: bytes) -> None:
    """Raise ShardError for the first bytes of a compressed file: images in it have no position in the file."""
    for magic, (name, program) in _COMPRESSIONS.items():
        if head.startswith(magic):
            raise ShardError("shard-unreadable", f"is compressed with {name}; decompress it first: {program}")


def refuse_zlib(head: bytes) -> None:
    """Raise ShardError for a file that TensorFlow compressed with ZLIB."""
    if head[:2] in _ZLIB:
        raise ShardError("shard-unreadable", "is compressed with ZLIB; write it again without compression")
