"""Batches in order from any position on, across the ends of epochs, with several groups in flight."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from threading import RLock
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar

import numpy as np
import torch
from torch import Tensor

from detaug.arrays import Arrays, Ints
from detaug.gpu.streams import StreamGuard
from detaug.loading.bad_files import BadFiles, BadFilesFound, bad_files_error
from detaug.loading.batch import Batch
from detaug.loading.batch_targets import make_batch
from detaug.loading.clip_batch import ClipBatch
from detaug.loading.engine import Engine
from detaug.loading.image_cache import ImageCache
from detaug.loading.map_feed import MapsOfImages
from detaug.loading.planner import Planner
from detaug.loading.plans import BatchPlan, pad_to
from detaug.loading.renderers import Job
from detaug.ops.op import select
from detaug.pipelines.python_functions import no_errors_at_exit
from detaug.recipes.recipe import check_size
from detaug.video.flow import FlowPipeline

Yielded: TypeAlias = Batch | ClipBatch | dict[str, Batch | ClipBatch]
"""What a step gives: a batch, or one for each view, by name."""


class Position(NamedTuple):
    """A position in the order of batches: the batch of `step` in `epoch` comes next."""

    epoch: int
    step: int


@dataclass(frozen=True, eq=False)
class RenderedBatch:
    """A rendered batch. Its images are not on the current stream until the batch is yielded."""

    plan: BatchPlan
    images: tuple[Tensor, ...]
    """Of each view."""
    maps: MapsOfImages
    guard: StreamGuard


class BatchStream:
    """Plans, renders and yields batches. One iterator at a time takes them: the last one that called `claim`.

    `views`: their names, where it yields dicts of batches; None where the planner has one recipe. `flows`: of each.
    """

    def __init__(
        self, planner: Planner, engine: Engine, views: Sequence[str] | None, flows: Sequence[FlowPipeline | None]
    ) -> None:
        self._planner, self._engine, self._views, self._flows = planner, engine, views, flows
        self._jobs: Iterator[Job] = iter(())
        self._parts: list[BatchPart] = []  # of the batch that is being rendered
        self._rendered: deque[RenderedBatch] = deque()
        self._claims = 0
        self._is_claimed = False

    @property
    def cached_images(self) -> int:
        """Return the number of images that the cache holds."""
        cache = self._engine.renderer.feed.cache
        return 0 if cache is None else len(cache)

    def open(self, position: Position) -> None:
        """Make a pipeline for batches from a position on. It takes seconds on a GPU: the source may read ahead."""
        self._planner.prefetch(*position)
        self._engine.open()

    def claim(self, position: Position) -> int:
        """Go to a position, and return a number that `check_claim` knows until another iterator claims the stream."""
        with self._close_on_error():
            self._engine.open()
            if self._next_position() != position:
                self.discard()
                self._jobs = self._planner.jobs_from(*position)
            try:
                self._fill()
            except BadFilesFound as error:
                self._skip(error.files, position)
        self._claims += 1
        self._is_claimed = True
        return self._claims

    def check_claim(self, claim: int) -> None:
        """Raise RuntimeError if the stream was closed, or claimed by another iterator."""
        if claim != self._claims:
            raise RuntimeError("this loader went on to another epoch; iterate over one epoch at a time")
        if not self._is_claimed:
            raise RuntimeError("this loader was closed, or given a state, in the middle of this `for`: begin another")

    def next_batch(self, position: Position) -> Yielded | None:
        """Return the batch at this position, which is the next one; None if all of its images are skipped."""
        with self._close_on_error():
            self._planner.check_batch(*position)
            while not self._rendered:
                self._render_next(position)
            rendered = self._rendered.popleft()
            renderer, guard = self._engine.renderer, rendered.guard
            images = tuple(renderer.on_current_stream(of_view, guard) for of_view in rendered.images)
            return self._assemble(rendered.plan, images, rendered.maps)

    def replay(self, indices: Ints, params: Sequence[tuple[Arrays, ...]], position: Position) -> Yielded:
        """Return the batch of these images with the numbers that were drawn before for each view, at a position."""
        jobs = self._planner.replay(indices, params, position.epoch)
        try:
            finished = [self._engine.run_alone(job) for job in jobs]
        except BadFilesFound as error:
            raise bad_files_error(error.files, self._planner.reader) from None
        plan = replace(jobs[0].group.batches[0].plan, step=position.step)
        parts = [BatchPart(pixels, result.maps) for result in finished for pixels in result.job.images(result.outputs)]
        batch = self._assemble(plan, *joined(parts, plan))
        assert batch is not None, "a replayed batch has no stand-ins"
        return batch

    def discard(self) -> None:
        """Drop all batches that are planned, in flight or rendered; the pipelines stay."""
        self._is_claimed = False
        self._parts.clear()
        self._rendered.clear()
        self._jobs = iter(())
        self._planner.skipped.forget_refused()
        with self._close_on_error():
            self._engine.discard()
            self._engine.open()

    def close(self) -> None:
        """End the pipelines and give back all memory. The stream cannot be used afterwards."""
        self._stop()
        self._engine.renderer.feed.free()

    def close_but_cache(self) -> ImageCache | None:
        """Close, and return the cache with its images for another stream, if there is one."""
        feed = self._engine.renderer.feed
        self._stop()
        cache, feed.cache = feed.cache, None
        feed.free()
        return cache

    # ------------------------------------------------------------------------------------------- one group

    def _next_position(self) -> Position | None:
        """Return the position of the batch that comes next; None if nothing is in flight."""
        if self._rendered:
            plan = self._rendered[0].plan
        elif job := self._engine.next_job:
            plan = job.group.batches[0].plan
        else:
            return None
        return Position(plan.epoch, plan.step)

    def _fill(self) -> None:
        """Start jobs until all pipelines have enough to do. Raises BadFilesFound."""
        while self._engine.has_room and (job := next(self._jobs, None)) is not None:
            self._engine.start(job)

    def _render_next(self, position: Position) -> None:
        """Render the group that was started first, or skip its bad files and plan the rest of the epoch again."""
        bad = BadFiles()
        self._engine.grow()
        try:
            self._fill()
            job, outputs, maps = self._engine.finish()
            self._fill()
        except BadFilesFound as error:
            bad = error.files
        if bad:
            self._skip(bad, position)
            return
        images, guard = job.images(outputs), StreamGuard(self._engine.device)
        for batch, pixels in zip(job.group.batches, images, strict=True):
            self._parts.append(BatchPart(pixels, maps))
            if sum(len(part.images[0]) for part in self._parts) == len(batch.plan.indices):
                self._rendered.append(RenderedBatch(batch.plan, *joined(self._parts, batch.plan), guard))
                self._parts = []

    def _skip(self, bad: BadFiles, position: Position) -> None:
        self._parts.clear()
        self._planner.skipped.add(bad)
        self._planner.check_batch(*position)
        self._engine.close()  # before the new pipelines: the device may not have room for both
        self._engine.open()
        self._jobs = self._planner.jobs_from(*position)

    def _assemble(self, plan: BatchPlan, images: Sequence[Tensor], maps: MapsOfImages) -> Yielded | None:
        """Build the batch, or that of each view, without stand-ins; None if it has no other images."""
        if not plan.wanted.any():
            return None
        if self._views is None:
            return self._batch_of(0, plan, images[0], maps)
        batches: dict[str, Batch | ClipBatch] = {}
        for view, name in enumerate(self._views):  # a comprehension is a frame before Python 3.12, for warnings
            batches[name] = self._batch_of(view, plan, images[view], maps)
        return batches

    def _batch_of(self, view: int, plan: BatchPlan, images: Tensor, maps: MapsOfImages) -> Batch | ClipBatch:
        indices, (params, targets, canvas), flow_of = plan.indices, plan.views[view], self._flows[view]
        targets.wait()
        check_size(images.shape[-2:], canvas)
        if not plan.wanted.all():
            wanted = np.flatnonzero(plan.wanted)
            indices, targets = indices[wanted], targets[wanted]
            params = tuple(select(wanted, drawn) for drawn in params)
            height, width = pad_to(targets.image_size.amax(0).tolist(), self._planner.pad_multiples[view])
            images = images[torch.from_numpy(wanted).to(images.device), :, :height, :width]
        if self._planner.fixed is not None:
            self._planner.fixed.warn(targets.boxes_left_out, targets.counts, self._planner.reader.image_ids[indices])
        flow = flow_of(images) if flow_of else None
        drawn = params if self._planner.return_params else None
        return make_batch(
            self._planner.reader, indices, images, targets, Position(plan.epoch, plan.step), drawn, flow, maps
        )

    @contextmanager
    def _close_on_error(self) -> Iterator[None]:
        """Stop everything on an error or Ctrl-C: a pipeline may have one input of a batch and not the other."""
        try:
            yield
        except BaseException:
            self._stop()
            raise

    def _stop(self) -> None:
        """End the pipelines and drop all batches that are planned, in flight or rendered."""
        self._is_claimed = False
        self._planner.skipped.forget_refused()
        self._engine.close()
        for flow in self._flows:
            if flow:
                flow.close()
        self._parts.clear()
        self._rendered.clear()
        self._jobs = iter(())


class BatchPart(NamedTuple):
    """Part of a batch: the images of each view, and the maps of the group that they are from."""

    images: tuple[Tensor, ...]
    maps: MapsOfImages


def joined(parts: Sequence[BatchPart], plan: BatchPlan) -> BatchPart:
    """Return all parts of a batch as one, without the maps of other batches of the group."""
    maps = MapsOfImages()
    if any(part.maps for part in parts):
        own = {*plan.indices.tolist()}
        maps = {index: of_image for part in parts for index, of_image in part.maps.items() if index in own}
    if len(parts) == 1:
        return BatchPart(parts[0].images, maps)
    return BatchPart(tuple(map(torch.cat, zip(*(part.images for part in parts), strict=True))), maps)


T = TypeVar("T")


class EpochIterator(Iterator[T], Generic[T]):
    """Yields the batches of one epoch from a position on, each through `collate`.

    `open_stream`: returns the stream that has the batch of a position, which may be another one in the middle of an
    epoch. `position` is the one after the last yielded batch; until the first one, `go_to` changes it. `batches`: of an
    epoch, on this shard; `steps`: on the shard that has most. An error ends it. Several threads may take its batches:
    `lock` lets one at a time use the stream.
    """

    def __init__(
        self,
        open_stream: Callable[[Position], BatchStream],
        position: Position,
        batches: int,
        steps: int,
        collate: Callable[[Any], T],
        lock: RLock,
    ) -> None:
        self.position, self.started = position, False
        self._open, self._batches, self._steps, self._collate, self._lock = open_stream, batches, steps, collate, lock
        self.go_to(position)
        self._failed, self._process = False, os.getpid()

    def __next__(self) -> T:
        check_process(self._process)
        with no_errors_at_exit(), self._lock:
            return self._next()

    def go_to(self, position: Position) -> None:
        """Take the next batch from a position. For an iterator that has not yielded a batch, and at another stage."""
        self._stream = self._open(position)
        self.position, self._claim = position, self._stream.claim(position)

    def _next(self) -> T:
        self.started = True
        while self.position.step < self._batches and not self._failed:
            self._failed = True  # until this step has succeeded
            self._stream.check_claim(self._claim)
            if self._open(self.position) is not self._stream:
                self.go_to(self.position)
            batch = self._stream.next_batch(self.position)
            results = [] if batch is None else [self._collated(batch)]
            self.position, self._failed = self.position._replace(step=self.position.step + 1), False
            if results:
                return results[0]
        if not self._failed:  # also where this shard has a batch less than others
            self.position = self.position._replace(step=self._steps)
        raise StopIteration

    def _collated(self, batch: Yielded) -> T:
        """Return collate(batch). A StopIteration inside of it must not end the epoch in silence."""
        try:
            return self._collate(batch)
        except StopIteration as error:
            raise RuntimeError("collate raised StopIteration") from error


def check_process(process: int) -> None:
    """Raise RuntimeError in a process other than the one with this id."""
    if os.getpid() != process:
        raise RuntimeError("DALI does not work in a forked process: make the loader in the process that uses it")
