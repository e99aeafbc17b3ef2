"""WebDataset's shards: tar files in which the members of a sample have one key, and DALI's index."""

from __future__ import annotations

import struct
import tarfile
from collections.abc import Sequence

from detaug.converters.shards.layout import Sample, ShardFormat, Source
from detaug.converters.shards.tar import BLOCK

_FIELDS = struct.Struct("100s8s8s8s12s12s8s1s100s6s2s247x")


def _sample(source: Source) -> Sample:
    names = [f"{source.key}.{source.extension}", f"{source.key}.json"]
    text_header = _header(names[1], len(source.text))
    after = _padding(source.image_bytes) + text_header + source.text + _padding(len(source.text))
    members = f"{source.extension} {{}} {source.image_bytes} {names[0]} json {{}} {len(source.text)} {names[1]}"
    return Sample(source.file, source.image_bytes, _header(names[0], source.image_bytes), after, False, members)


def _header(name: str, length: int) -> bytes:
    """Return the header of a member, in POSIX ustar: mode 644, everything else 0, so that bytes repeat.

    The same as tarfile's, which takes ten times as long. name: ASCII, at most 100 bytes.
    """
    fields = (name.encode("ascii"), b"0000644", b"0000000", b"0000000", b"%011o" % length, b"00000000000")
    head = _FIELDS.pack(*fields, b" " * 8, b"0", b"", b"ustar", b"00")
    return head[:148] + b"%06o\0 " % sum(head) + head[156:]  # the checksum counts itself as spaces


def _padding(length: int) -> bytes:
    return bytes(-length % BLOCK)


def _ending(length: int) -> int:
    """Return the bytes after the last member: two blocks, and what fills a record of 20 blocks."""
    return 2 * BLOCK + -(length + 2 * BLOCK) % tarfile.RECORDSIZE


def _index(samples: Sequence[tuple[int, Sample]]) -> str:
    """Return wds2idx's index: for each member its extension, offset, length and name; a line for each sample."""
    lines = [f"v1.2 {len(samples)}\n"]
    for offset, sample in samples:
        image = offset + BLOCK
        text = image + sample.image_bytes + len(_padding(sample.image_bytes)) + BLOCK
        lines.append(sample.members.format(image, text) + "\n")
    return "".join(lines)


TAR = ShardFormat("tar", _sample, _ending, _index)
