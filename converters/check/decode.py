"""Find the images that DALI does not decode whole, in a process of its own.

Most broken images make DALI raise an error and end its pipeline. Some end the process, so it is not this one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

_BATCH_SIZE = 32
_COMMAND = f"from detaug.converters.check.decoder import serve; serve({_BATCH_SIZE})"
_CRASH = "crashes the decoder: DALI's process ended"


def find_undecodable(paths: Sequence[Path], progress: Callable[[int, int], None] | None = None) -> dict[int, str]:
    """Why images do not decode whole, by position; those that do are not in it.

    Decodes on the CUDA device if there is one, else on all CPU cores.
    """
    broken: dict[str, str] = {}
    names = list(map(str, paths))
    with _Child() as child:
        for start in range(0, len(names), _BATCH_SIZE):
            batch = names[start : start + _BATCH_SIZE]
            broken |= _answers(child, batch)
            if progress:
                progress(start + len(batch), len(names))
    return {at: broken[name] for at, name in enumerate(names) if name in broken}


def _answers(child: _Child, batch: list[str]) -> dict[str, str]:
    answer = child.ask(batch)
    if answer is not None:
        return answer
    if len(batch) == 1:
        return {batch[0]: _CRASH}
    half = len(batch) // 2
    return _answers(child, batch[:half]) | _answers(child, batch[half:])


class _Child:
    """The decoding process, started anew when it has ended."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> _Child:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def ask(self, paths: list[str]) -> dict[str, str] | None:
        """The reasons by path; None if the process ended over them."""
        process = self._process = self._process or _start()
        try:
            _say(process, paths)
            return dict(_hear(process))
        except (EOFError, BrokenPipeError):
            self._stop()
            return None

    def _stop(self) -> None:
        if self._process:
            self._process.kill()
            self._process.communicate()
            self._process = None


def _start() -> subprocess.Popen[str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}  # it may not be installed
    pipe = subprocess.PIPE
    process = subprocess.Popen([sys.executable, "-c", _COMMAND], stdin=pipe, stdout=pipe, text=True, env=environment)
    try:
        _hear(process)
    except EOFError:
        process.communicate()
        raise RuntimeError("the decoding process does not start; its message is above") from None
    return process


def _say(process: subprocess.Popen[str], message: Any) -> None:
    assert process.stdin is not None
    print(json.dumps(message), file=process.stdin, flush=True)


def _hear(process: subprocess.Popen[str]) -> Any:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line.endswith("\n"):
        raise EOFError
    return json.loads(line)
