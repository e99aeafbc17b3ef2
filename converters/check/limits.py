"""The limits of a process that decodes the files of strangers."""

from __future__ import annotations

import math
import sys
from contextlib import suppress
from mmap import PAGESIZE
from pathlib import Path
from resource import RLIMIT_CORE, setrlimit
from typing import NamedTuple

from detaug.converters.machine import available_memory

_SECONDS = 60.0  # a usual image takes some 10 ms, one of 100 million pixels a few seconds
_MOST_MEMORY = 4 << 30
_IMAGES = 512  # a process starts in some 3 s


class Limits(NamedTuple):
    """What a decoding process may take."""

    seconds: float
    """For one answer, about one image or a batch."""
    memory: int
    """Bytes beyond what it takes before it decodes."""
    images: int
    """After so many another process decodes, so that what a file does to the memory of one stays without effect."""
    pixels: int
    """A larger image is not decoded."""


USUAL_LIMITS = Limits(math.inf, sys.maxsize, sys.maxsize, 2**28)
"""Without a limit of memory, an image of more pixels may take all of it, and the process with it."""


def limits_for_strangers() -> Limits:
    """Return the limits of `detaug check --isolated`: a minute, 4 GiB or half of what is free, 512 images."""
    return Limits(_SECONDS, min(_MOST_MEMORY, available_memory() // 2), _IMAGES, sys.maxsize)


def used_memory(process: int) -> int:
    """Return the bytes of memory that are a process's own; 0 if it has ended."""
    with suppress(OSError):
        _, resident, shared, *_ = Path(f"/proc/{process}/statm").read_text(encoding="ascii").split()
        return (int(resident) - int(shared)) * PAGESIZE
    return 0


def be_expendable() -> None:
    """Let this process end without a core dump, and before others where the system has no memory left."""
    setrlimit(RLIMIT_CORE, (0, 0))
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
