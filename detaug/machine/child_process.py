"""Start Python processes that do not outlive this one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from types import FrameType
from typing import Any

Process = subprocess.Popen[Any]

_WITHOUT_WORKING_FOLDER = 'import sys\nif sys.path[:1] == [""]: sys.path.pop(0)\n'
"""`python -c` looks for modules in the working folder first, where another `detaug`, or a `json.py`, may be."""


@contextmanager
def child_process(code: str, *arguments: str, **options: Any) -> Iterator[Process]:
    """Run Python code with the modules of this process; kill it, and all that it started, at the end of the block.

    It has a session of its own: Ctrl-C is for this process, which ends the other one. `options` are those of Popen.
    """
    paths = [path or os.getcwd() for path in sys.path]  # "" is the working folder
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}  # detaug may not be installed
    with ExitStack() as stack:
        with _signals_held():
            command = [sys.executable, "-c", _WITHOUT_WORKING_FOLDER + code, *arguments]
            process = stack.enter_context(subprocess.Popen(command, env=environment, start_new_session=True, **options))
            stack.callback(_kill, process)
        yield process


def _kill(process: Process) -> None:
    if process.poll() is None:
        with suppress(ProcessLookupError):  # a Ctrl-C that met it before it had a session of its own has ended it
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()  # Popen itself does not wait long after Ctrl-C


@contextmanager
def _signals_held() -> Iterator[None]:
    """Let the signals that this program handles come after the block: Popen would lose a process that it just began."""
    held: list[int] = []

    def hold(number: int, _: FrameType | None) -> None:
        held.append(number)

    is_main = threading.current_thread() is threading.main_thread()  # other threads are not interrupted
    stops = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if is_main else ()
    handlers = {stop: handler for stop in stops if callable(handler := signal.getsignal(stop))}
    for stop in handlers:
        signal.signal(stop, hold)
    try:
        yield
    finally:
        for stop, handler in handlers.items():
            signal.signal(stop, handler)
    for number in held:
        signal.raise_signal(number)
