"""detaug's loader, with and without a cache, and decoding alone."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import count, cycle
from typing import Any

import numpy as np
import torch

from detaug.bench.jobs import Job, MadeBatch, new_images
from detaug.gpu.kernel_chain import chain_for
from detaug.loading.decoding import decoded, inputs
from detaug.loading.devices import keep_freed_memory, resolve_device
from detaug.loading.loader import Loader
from detaug.loading.settings import Settings, settings_for
from detaug.ops.op import Node
from detaug.ops.pipeline_worker import PipelineWorker
from detaug.ops.recipe import make_recipe
from detaug.sources.coco_reader import CocoReader
from detaug.sources.source import Source


def loader(job: Job) -> Iterator[MadeBatch]:
    """Make batches with `da.Loader`."""
    return _epochs(make_loader(job), job)


def cached(job: Job) -> Iterator[MadeBatch]:
    """Make batches with `da.Loader(cache="device")`; the time to the first batch includes the epoch that fills it."""
    loader = make_loader(job, cache="device")
    deque(loader, maxlen=0)
    return _epochs(loader, job)


def make_loader(job: Job, **options: Any) -> Loader:
    reader = CocoReader(job.images, job.annotations)
    return Loader(reader, job.recipe(), job.batch_size, device=job.device, settings=job.settings, **options)


def _epochs(loader: Loader, job: Job) -> Iterator[MadeBatch]:
    if loader.device.type == "cpu":
        keep_freed_memory()
    images = len(loader.reader)
    for _ in count():
        for step, batch in enumerate(loader):
            yield MadeBatch(batch.images, batch.boxes, batch.labels, new_images(images, step, job.batch_size))


def decoding_workers(source: Source, batch_size: int, device: torch.device, settings: Settings) -> list[PipelineWorker]:
    """Return pipelines that only decode, fed with `inputs`."""

    def graph() -> list[Node]:
        return [decoded(source, device.type, settings.hw_decoder_load)]

    threads, depth = settings.threads, settings.depth
    return [PipelineWorker(graph, batch_size, threads, device, depth) for _ in range(settings.pipelines)]


def decode(job: Job) -> Iterator[MadeBatch]:
    """Decode only, with the loader's pipelines, threads and way of feeding them: no loader can be faster."""
    reader, device = CocoReader(job.images, job.annotations), resolve_device(job.device)
    recipe = make_recipe(job.recipe())
    settings = settings_for(reader, recipe, chain_for(recipe, device), device, job.batch_size, job.settings)
    order = np.random.default_rng(0).permutation(len(reader))
    steps = -(-len(order) // job.batch_size)
    batches = cycle(enumerate(np.resize(order, (steps, job.batch_size))))
    running: deque[tuple[PipelineWorker, list[int]]] = deque()
    for worker in cycle(decoding_workers(reader, job.batch_size * settings.batches_per_group, device, settings)):
        if len(running) == settings.pipelines * settings.depth:
            first, counts = running.popleft()
            first.finish()
            yield from (MadeBatch(None, None, None, new) for new in counts)
        group = [next(batches) for _ in range(settings.batches_per_group)]
        worker.start(inputs(reader, np.concatenate([rows for _, rows in group])))
        running.append((worker, [new_images(len(order), step, job.batch_size) for step, _ in group]))
