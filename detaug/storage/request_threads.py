"""Threads for requests. A process that ends does not wait for them, as it does for those of ThreadPoolExecutor."""

from __future__ import annotations

import atexit
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from threading import Thread
from threading import enumerate as all_threads
from time import monotonic
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

REQUESTS = 64
"""How many are made at once."""

EXIT_SECONDS = 1
"""How long a process that ends waits for requests."""

_NAME = "detaug-request"


def start_thread(task: Callable[[], None]) -> None:
    """Run a task in a thread of its own. Raises RuntimeError if the interpreter ends."""
    Thread(target=task, name=_NAME, daemon=True).start()


def run_in_threads(function: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """Return `function` of each item, REQUESTS at once. Raises the error of the first item that has one."""
    todo = deque((item, Future[Result]()) for item in items)
    futures = [future for _, future in todo]

    def work() -> None:
        while todo:
            try:
                item, future = todo.popleft()
            except IndexError:  # another thread was faster
                return
            try:
                future.set_result(function(item))
            except BaseException as error:  # noqa: BLE001
                future.set_exception(error)

    for _ in range(min(REQUESTS, len(futures))):
        start_thread(work)
    try:
        return [future.result() for future in futures]
    finally:
        todo.clear()


@atexit.register
def _wait_a_moment() -> None:
    """Let requests end: a thread that comes back from the client while the interpreter ends can crash the process."""
    end = monotonic() + EXIT_SECONDS
    for thread in all_threads():
        if thread.name == _NAME:
            thread.join(max(0, end - monotonic()))
