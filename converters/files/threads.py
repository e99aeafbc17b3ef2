"""Call a function in threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def map_ahead(function: Callable[[T], R], items: Iterable[T], threads: int) -> Generator[R, None, None]:
    """Yield function(item) of each item, in order, computed by threads.

    Unlike Executor.map, it takes no more than threads + 1 items from a generator before it yields the first result.
    Close it after an error elsewhere: it then waits for the items begun.
    """
    waiting: deque[Future[R]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        try:
            for item in items:
                waiting.append(pool.submit(function, item))
                if len(waiting) > threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for each in waiting:
                each.cancel()
