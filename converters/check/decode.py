"""Find the images that DALI does not decode whole, in a process of its own.

Most broken images make DALI raise an error and end its pipeline. Some end the whole process, so it must be another one.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from detaug.converters.conversion.progress import Progress
from detaug.converters.files.image_file import ImageFile
from detaug.converters.files.paths import PathLike
from detaug.converters.files.processes import child_environment

_BATCH_SIZE = 32
_COMMAND = f"from detaug.converters.check.decoder import serve; serve({_BATCH_SIZE})"
_CRASH = "crashes the decoder: DALI's process ended"


def find_undecodable(images: Sequence[PathLike | ImageFile], progress: Progress | None = None) -> dict[int, str]:
    """Return the reasons why images do not decode whole, by position.

    Decodes on the CUDA device if there is one, else on all CPU cores.
    """
    broken: dict[str, str] = {}
    names = [json.dumps(image if isinstance(image, ImageFile) else ImageFile(str(image))) for image in images]
    with _DecodingProcess() as process:
        for start in range(0, len(names), _BATCH_SIZE):
            batch = names[start : start + _BATCH_SIZE]
            broken |= _answers(process, batch)
            if progress:
                progress(start + len(batch), len(names))
    return {at: broken[name] for at, name in enumerate(names) if name in broken}


def _answers(process: _DecodingProcess, batch: list[str]) -> dict[str, str]:
    answer = process.ask(batch)
    if answer is not None:
        return answer
    if len(batch) == 1:
        return {batch[0]: _CRASH}
    half = len(batch) // 2
    return _answers(process, batch[:half]) | _answers(process, batch[half:])


class _DecodingProcess:
    """The decoding process, started again after it has ended."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> _DecodingProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def ask(self, paths: list[str]) -> dict[str, str] | None:
        """Return the reasons by path; None where one of the images ended the process."""
        process = self._process = self._process or _start()
        try:
            _send(process, paths)
            return dict(_receive(process))
        except (EOFError, BrokenPipeError):
            self._stop()
            return None

    def _stop(self) -> None:
        if self._process:
            self._process.kill()
            self._process.communicate()
            self._process = None


def _start() -> subprocess.Popen[str]:
    command, pipe, environment = [sys.executable, "-c", _COMMAND], subprocess.PIPE, child_environment()
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment)
    try:
        _receive(process)
    except EOFError:
        process.communicate()
        raise RuntimeError("the decoding process does not start; see its message above") from None
    return process


def _send(process: subprocess.Popen[str], message: Any) -> None:
    assert process.stdin is not None
    print(json.dumps(message), file=process.stdin, flush=True)


def _receive(process: subprocess.Popen[str]) -> Any:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line.endswith("\n"):
        raise EOFError
    return json.loads(line)
