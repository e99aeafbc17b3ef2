"""Read many things in several processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from detaug.converters.files.processes import map_in_processes
from detaug.errors import ConversionError

T = TypeVar("T")
R = TypeVar("R")


def map_in_jobs(function: Callable[[T], R], items: Sequence[T], jobs: int) -> Iterator[R]:
    """Yield function(item) of each item, in order; in this process if one job is enough.

    Raises ConversionError if a process is killed.
    """
    if jobs == 1 or len(items) < 2:
        yield from map(function, items)
        return
    try:
        yield from map_in_processes(function, items, min(jobs, len(items)))
    except EOFError as error:
        raise ConversionError("a reading process was killed (out of memory?); use fewer --jobs") from error
