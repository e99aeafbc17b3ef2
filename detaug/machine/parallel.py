"""Work through many items: report the progress, and use several threads or processes."""

from __future__ import annotations

import pickle
import sys
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from queue import SimpleQueue
from subprocess import PIPE
from typing import Any, TypeVar

from detaug.errors import ConversionError
from detaug.machine.child_process import Process, child_process
from detaug.machine.threads import Threads
from detaug.named_options import option

Progress = Callable[[int, int], None]
"""Called with (items done, items in all)."""

T = TypeVar("T")
R = TypeVar("R")

_COMMAND = "from detaug.machine.parallel import serve; serve()"


def with_progress(items: Sequence[T], progress: Progress | None, step: int = 64) -> Iterator[T]:
    """Yield the items; call `progress` after every `step` of them and after the last."""
    for done, item in enumerate(items, 1):
        yield item
        if progress and (done % step == 0 or done == len(items)):
            progress(done, len(items))


def map_ahead(function: Callable[[T], R], items: Iterable[T], threads: int) -> Generator[R, None, None]:
    """Yield function(item) of each item, in order, computed by threads.

    Unlike Executor.map, it takes no more than threads + 1 items from a generator before it yields the first result.
    Close it after an error elsewhere: it then waits for the items begun.
    """
    waiting: deque[Future[R]] = deque()
    with Threads(threads) as pool:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) > threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def map_in_jobs(function: Callable[[T], R], items: Iterable[T], jobs: int) -> Iterator[R]:
    """Yield function(item) of each item, in order; in this process if there is one job.

    Raises ConversionError if a process is killed.
    """
    if jobs < 2:
        yield from map(function, items)
        return
    try:
        yield from map_in_processes(function, items, jobs)
    except EOFError as error:
        raise ConversionError(
            f"a reading process was killed (out of memory?); give a smaller number of {option('jobs')}"
        ) from error


def map_in_processes(function: Callable[[T], R], items: Iterable[T], processes: int) -> Iterator[R]:
    """Yield function(item) of each item, in order, computed by new interpreters. Raises EOFError if one is killed.

    A forked process would inherit locks that other threads hold; one of multiprocessing would run the caller's script
    again.
    """
    with ExitStack() as stack:
        idle: SimpleQueue[Process] = SimpleQueue()
        for _ in range(processes):
            started = stack.enter_context(child_process(_COMMAND, stdin=PIPE, stdout=PIPE))
            _send(started, function)
            idle.put(started)

        def call(item: T) -> R:
            process = idle.get()
            try:
                result: R = _answer(process, item)
                return result
            finally:
                idle.put(process)

        yield from map_ahead(call, items, processes)


def _send(process: Process, value: object) -> None:
    assert process.stdin is not None
    try:
        pickle.dump(value, process.stdin)
        process.stdin.flush()
    except BrokenPipeError:
        raise EOFError from None


def _answer(process: Process, item: object) -> Any:
    assert process.stdout is not None
    _send(process, item)
    result, failure = pickle.load(process.stdout)
    if failure:
        raise RuntimeError(f"in another process:\n{failure}")
    return result


def serve() -> None:
    """Read a function and its arguments from stdin, write each result to stdout, until stdin ends."""
    function = pickle.load(sys.stdin.buffer)
    while True:
        try:
            item = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        pickle.dump(_call(function, item), sys.stdout.buffer)
        sys.stdout.buffer.flush()


def _call(function: Callable[[T], R], item: T) -> tuple[R | None, str]:
    try:
        return function(item), ""
    except Exception:  # noqa: BLE001  the parent raises it
        return None, traceback.format_exc()
