"""Report the progress of long work."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

Progress = Callable[[int, int], None]
"""Called with (items done, items in all)."""

Item = TypeVar("Item")


def with_progress(items: Sequence[Item], progress: Progress | None, step: int = 64) -> Iterator[Item]:
    """Yield the items; call `progress` after every `step` of them and after the last."""
    for done, item in enumerate(items, 1):
        yield item
        if progress and (done % step == 0 or done == len(items)):
            progress(done, len(items))
