"""Run jobs through several DALI pipelines at once and collect them in order."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from typing import Any, NamedTuple

import numpy as np
import torch

from detaug.loading.bad_files import BadFilesFound, files_behind, unreadable_files
from detaug.loading.map_feed import MapFeed, MapsOfImages, OwnMaps
from detaug.loading.renderers import Job, Renderer
from detaug.loading.settings import Settings
from detaug.pipelines.errors import DALI_ERRORS
from detaug.pipelines.jpeg_engine import keep_decoder
from detaug.pipelines.worker import PipelineWorker
from detaug.sources.source import Source


class InFlight(NamedTuple):
    """A job, the worker that processes it, if it has anything to do, and the maps that are read for it."""

    job: Job
    worker: PipelineWorker
    works: bool
    maps: dict[int, Future[OwnMaps] | None]


class Finished(NamedTuple):
    """A job, the outputs of its pipeline, and the maps of its images."""

    job: Job
    outputs: list[Any]
    maps: MapsOfImages


class Engine:
    """The pipelines, and the jobs that are in flight. `most_images`: of one job.

    Making a pipeline takes half a second on a GPU, and holds Python's lock. One is enough for the first batch, so
    `open` makes one, and `grow` the others while there are jobs for them.
    """

    def __init__(
        self, renderer: Renderer, reader: Source, settings: Settings, most_images: int, device: torch.device
    ) -> None:
        self.renderer, self.reader, self.settings, self.device = renderer, reader, settings, device
        self._most_images = most_images
        self._maps = MapFeed(reader, device)
        self._pipelines = 0
        self._has_finished = False  # a job
        self._free: deque[PipelineWorker] = deque()  # each worker once for every job that it can take
        self._in_flight: deque[InFlight] = deque()

    @property
    def has_room(self) -> bool:
        """Return whether a pipeline can take another job."""
        return bool(self._free)

    @property
    def next_job(self) -> Job | None:
        """Return the job that `finish` will return."""
        return self._in_flight[0].job if self._in_flight else None

    def open(self) -> None:
        """Make the first pipeline, unless it exists."""
        if not self._pipelines:
            if self.device.type == "cuda" and not self.reader.decodes and self.reader.pixel_format.is_rgb8:
                keep_decoder(self.device).join()
            self._add_pipeline()

    def grow(self) -> None:
        """Make another pipeline once a job is finished, if those that exist are full and more are allowed."""
        if self._has_finished and not self.has_room and self._pipelines < self.settings.pipelines:
            self._add_pipeline()

    def close(self) -> None:
        """End the pipelines, and discard their jobs. `open` makes new ones."""
        workers = {*self._free, *(flight.worker for flight in self._in_flight)}
        self._free.clear()
        self._in_flight.clear()
        self._pipelines, self._has_finished = 0, False
        for worker in workers:
            worker.close()

    def start(self, job: Job) -> None:
        """Give a job to the next free pipeline. Raises BadFilesFound for files that cannot be read."""
        worker = self._free[0]
        maps = self._maps.start(job.group.indices)
        works = self._start(worker, job)
        self._free.popleft()
        self._in_flight.append(InFlight(job, worker, works, maps))

    def finish(self) -> Finished:
        """Wait for the job that was started first, and return what it gave.

        Raises BadFilesFound for files that cannot be used, and the pipeline's error if it failed for another reason.
        """
        job, worker, _, reading = self._in_flight[0]
        maps = self._maps.finish(reading)
        same_pipeline = [flight.job.decoded for flight in self._in_flight if flight.worker is worker]
        try:
            outputs = self._collect()
        except DALI_ERRORS as error:
            indices = np.concatenate(same_pipeline)
            raise BadFilesFound(files_behind(error, self.reader, indices, self.device)) from error
        self._has_finished = True
        return Finished(job, outputs, maps)

    def discard(self) -> None:
        """Wait for all jobs in flight and discard them, with their errors; `open` replaces a pipeline that failed."""
        try:
            while self._in_flight:
                self._collect()
        except DALI_ERRORS:
            self.close()

    def run_alone(self, job: Job) -> Finished:
        """Return what a job gives in a pipeline of its own. Raises as `finish` does."""
        worker = self._worker(len(job.group.indices), depth=1)
        reading = self._maps.start(job.group.indices)
        try:
            outputs = worker.finish() if self._start(worker, job) else []
            return Finished(job, outputs, self._maps.finish(reading))
        except DALI_ERRORS as error:
            raise BadFilesFound(files_behind(error, self.reader, job.decoded, self.device)) from error
        finally:
            worker.close()  # its outputs own their memory

    def _start(self, worker: PipelineWorker, job: Job) -> bool:
        """Start a job. Returns whether the worker has something to do."""
        try:
            inputs = job.start()
        except OSError as error:
            raise BadFilesFound(unreadable_files(error, self.reader, job.decoded)) from error
        if inputs:
            worker.start(inputs)
        return bool(inputs)

    def _add_pipeline(self) -> None:
        depth = self.settings.depth
        self._free.extend([self._worker(self._most_images, depth)] * depth)
        self._pipelines += 1

    def _worker(self, size: int, depth: int) -> PipelineWorker:
        return PipelineWorker(self.renderer.graph, size, self.settings.threads, self.device, depth)

    def _collect(self) -> list[Any]:
        """Wait for the outputs of the job that was started first; its worker is free afterwards."""
        _, worker, works, _ = self._in_flight[0]
        outputs = worker.finish() if works else []
        self._in_flight.popleft()
        self._free.append(worker)
        return outputs
