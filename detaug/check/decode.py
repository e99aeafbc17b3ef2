"""Find the images that DALI does not decode whole, in a process of its own.

Most broken images make DALI raise an error and end its pipeline. Some end the whole process, so it must be another one,
with limits where the files are not trusted.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from mmap import PAGESIZE
from pathlib import Path
from resource import RLIMIT_CORE, setrlimit
from select import POLLIN, poll
from signal import Signals
from subprocess import PIPE
from typing import Any, NamedTuple

from detaug.files.image_file import ImageFile
from detaug.files.paths import PathLike
from detaug.machine.child_process import Process, child_process
from detaug.machine.cores import available_memory
from detaug.machine.parallel import Progress

_BATCH_SIZE = 32
_COMMAND = f"import sys; from detaug.check.decoder import serve; serve({_BATCH_SIZE}, *sys.argv[1:])"
_LOOK_EVERY = 50  # ms, at the memory and the time

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
    """After this many another process decodes, so that what a file does to the memory of one stays without effect."""
    pixels: int
    """A larger image is not decoded."""


USUAL_LIMITS = Limits(math.inf, sys.maxsize, sys.maxsize, 2**28)
"""Without a limit of memory, an image of more pixels may take all of it, and the process with it."""


def limits_for_strangers() -> Limits:
    """Return the limits of `detaug check --isolated`: a minute, 4 GiB or half of what is free, 512 images."""
    return Limits(_SECONDS, min(_MOST_MEMORY, available_memory() // 2), _IMAGES, sys.maxsize)


class Fault(NamedTuple):
    """Why an image cannot be used. `kind`: a key of CHECK_KINDS."""

    kind: str
    reason: str


def find_undecodable(
    images: Sequence[PathLike | ImageFile],
    progress: Progress | None = None,
    limits: Limits = USUAL_LIMITS,
    dtype: str | None = None,
) -> dict[int, Fault]:
    """Return why images do not decode whole, by position.

    dtype: of the files, to decode them as they are; None decodes to 8-bit RGB. Decodes on the CUDA device if there is
    one, else on all CPU cores. Where the process ends, or goes beyond a limit, the images of its batch are tried again
    one by one, so that only those that cause it are blamed.
    """
    broken: dict[str, Fault] = {}
    names = [json.dumps(image if isinstance(image, ImageFile) else ImageFile(str(image))) for image in images]
    with _DecodingProcess(limits, dtype) as process:
        for start in range(0, len(names), _BATCH_SIZE):
            batch = names[start : start + _BATCH_SIZE]
            broken |= _faults(process, batch)
            if progress:
                progress(start + len(batch), len(names))
    return {index: broken[name] for index, name in enumerate(names) if name in broken}


def _faults(process: _DecodingProcess, batch: list[str]) -> dict[str, Fault]:
    try:
        return {name: Fault("image-broken", reason) for name, reason in process.ask(batch).items()}
    except _Ended as ended:
        if len(batch) == 1:
            return {batch[0]: Fault("image-unsafe", str(ended))}
    # Decoded alone, the image that ended the process is found, and the others of its batch are not blamed.
    return {name: fault for alone in batch for name, fault in _faults(process, [alone]).items()}


class _Ended(Exception):
    """Raised where the decoding process ended, or was ended; the message says what an image does to it."""


class _DecodingProcess:
    """The decoding process, started again after it has ended, or after `limits.images` images."""

    def __init__(self, limits: Limits, dtype: str | None) -> None:
        self._limits, self._arguments = limits, () if dtype is None else (dtype,)
        self._process: Process | None = None
        self._running = ExitStack()
        self._images = self._memory = 0

    def __enter__(self) -> _DecodingProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def ask(self, names: list[str]) -> dict[str, str]:
        """Return the reasons by name. Raises _Ended where one of the images ended the process."""
        if self._images >= self._limits.images:
            self._stop()
        process = self._process or self._start()
        self._images += len(names)
        try:
            _send(process, names)
            return dict(self._receive(process, self._limits.seconds))
        except _Ended:
            self._stop()
            raise

    def _stop(self) -> None:
        self._running.close()
        self._process = None

    def _start(self) -> Process:
        started = child_process(_COMMAND, *self._arguments, stdin=PIPE, stdout=PIPE, bufsize=0)
        process = self._process = self._running.enter_context(started)
        self._images, self._memory = 0, 0
        try:
            self._receive(process, math.inf)
        except _Ended:
            self._stop()
            raise RuntimeError("the decoding process does not start; see its message above") from None
        self._memory = used_memory(process.pid)
        return process

    def _receive(self, process: Process, seconds: float) -> Any:
        """Return the next answer. Raises _Ended, also if it takes longer or more memory than it may."""
        assert process.stdout is not None
        answer, end, waiting = b"", time.monotonic() + seconds, poll()
        waiting.register(process.stdout, POLLIN)
        while not answer.endswith(b"\n"):
            if waiting.poll(_LOOK_EVERY):
                if not (part := os.read(process.stdout.fileno(), 1 << 16)):
                    raise _Ended(f"ends the process that decodes it{_signal_of(process)}")
                answer += part
            elif time.monotonic() > end:
                raise _Ended(f"is not decoded after {seconds:g} seconds")
            if self._memory and used_memory(process.pid) - self._memory > self._limits.memory:
                raise _Ended(f"takes more than {self._limits.memory / 1e9:.1f} GB of memory to decode")
        return json.loads(answer)


def _send(process: Process, message: Any) -> None:
    assert process.stdin is not None
    try:
        process.stdin.write(json.dumps(message).encode() + b"\n")
    except BrokenPipeError:
        raise _Ended(f"ends the process that decodes it{_signal_of(process)}") from None


def _signal_of(process: Process) -> str:
    code = process.wait()
    return f" ({Signals(-code).name})" if code < 0 else ""


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
