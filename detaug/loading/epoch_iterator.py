"""Iterate over the rest of one epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import RLock
from typing import Any, Generic, TypeVar

from detaug.loading.batch import Batch
from detaug.loading.batch_stream import BatchStream, Position
from detaug.loading.clip_batch import ClipBatch

T = TypeVar("T")


class EpochIterator(Iterator[T], Generic[T]):
    """Yields the batches of one epoch from a position on, each through `collate`.

    `position` is the one after the last yielded batch; until the first one, `go_to` changes it. `batches`: of an epoch,
    on this shard; `steps`: on the shard that has most. An error ends it. Several threads may take its batches: `lock`
    lets one at a time use the stream.
    """

    def __init__(
        self,
        stream: BatchStream,
        position: Position,
        batches: int,
        steps: int,
        collate: Callable[[Any], T],
        lock: RLock,
    ) -> None:
        self.position, self.started = position, False
        self._stream, self._batches, self._steps, self._collate, self._lock = stream, batches, steps, collate, lock
        self._claim = stream.claim(position)
        self._failed = False

    def __next__(self) -> T:
        with self._lock:
            return self._next()

    def go_to(self, position: Position) -> None:
        """Begin at another position. For an iterator that has not yielded a batch."""
        self.position, self._claim = position, self._stream.claim(position)

    def _next(self) -> T:
        self.started = True
        while self.position.step < self._batches and not self._failed:
            self._failed = True  # until this step has succeeded
            self._stream.check_claim(self._claim)
            batch = self._stream.next_batch(self.position)
            results = [] if batch is None else [self._collated(batch)]
            self.position, self._failed = self.position._replace(step=self.position.step + 1), False
            if results:
                return results[0]
        if not self._failed:  # also where this shard has a batch less than others
            self.position = self.position._replace(step=self._steps)
        raise StopIteration

    def _collated(self, batch: Batch | ClipBatch) -> T:
        """Return collate(batch). A StopIteration inside of it must not end the epoch in silence."""
        try:
            return self._collate(batch)
        except StopIteration as error:
            raise RuntimeError("collate raised StopIteration") from error
