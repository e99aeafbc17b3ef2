"""`Loader`: augmented batches as torch tensors, from one or several DALI pipelines in a fixed order."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from nvidia.dali import fn
from PIL import Image
from torch.utils.dlpack import from_dlpack

from detaug.batches import Batch
from detaug.epochs import evaluation_batches, plan_rng, train_batches
from detaug.pipeline import Lane, resolve_device
from detaug.reader import CocoReader, Rows, decoded
from detaug.recipe import Node, Op, Plan, make_recipe
from detaug.views import Views


class DataError(ValueError):
    """An image that cannot be used, met in the middle of an epoch. Names the file and the remedy."""


PLANNED_AT_ONCE = 512
"""Images: NumPy plans several batches together, since its calls cost much and its numbers little."""


DEPTH = 2
"""Batches that each pipeline has in work: with one, it would stand still while its last one is collected."""


class _Planned(NamedTuple):
    epoch: int
    step: int
    rows: Rows
    plan: Plan


class Loader:
    """Augmented batches; iterating the loader is one epoch.

    Training (`train=True`) shuffles; all batches are full and all shards have equally many, for which some
    images of the epoch come twice. Evaluation keeps the json's order and visits every image exactly once.

    `ops`: a recipe, such as `da.presets.ssd300()`. `batch_size`: images a batch, on each shard.
    `device`: None (CUDA if there is one, else CPU), "cpu", "cuda", "cuda:1" or a torch.device.
    `seed`: the same seed, batch size and shard give the same batches for any number of threads and pipelines.
    `shard`: (rank, world size); None reads RANK and WORLD_SIZE, as torchrun sets them, else (0, 1).
    `pipelines`: DALI pipelines that take turns. `threads`: CPU threads of each. None chooses for the device.
    `pad_to_multiple`: a batch with images of several sizes is padded with zeros, at the right and the bottom,
    to its largest height and width, rounded up to this multiple.
    """

    def __init__(
        self,
        reader: CocoReader,
        ops: Iterable[Op],
        batch_size: int,
        *,
        device: torch.device | str | None = None,
        train: bool = True,
        seed: int = 0,
        shard: tuple[int, int] | None = None,
        pipelines: int | None = None,
        threads: int | None = None,
        pad_to_multiple: int = 32,
    ) -> None:
        self.reader, self.recipe, self.train, self.seed = reader, make_recipe(ops), train, seed
        self.batch_size = _positive("batch_size", batch_size)
        self.pad_to_multiple = _positive("pad_to_multiple", pad_to_multiple)
        self.shard = _resolve_shard(shard)
        self.device = resolve_device(device)
        self.pipelines, self.threads = _pipelines_and_threads(self.device, pipelines, threads)
        if self.batch_size < 2 and any(op.mixes for op in self.ops):
            raise ValueError("the recipe puts images of a batch together: batch_size must be at least 2, got 1")
        self._steps = len(self._batches(0))
        self._open()
        self._plan: Iterator[_Planned] = iter(())
        self._position = (0, 0)
        self._resumed = False

    @property
    def ops(self) -> tuple[Op, ...]:
        """The recipe."""
        return self.recipe.ops

    @property
    def class_names(self) -> tuple[str, ...]:
        """Name of each label; index 0 is the background."""
        return self.reader.class_names

    @property
    def category_ids(self) -> tuple[int, ...]:
        """The json's category id of each label; index 0, the background, holds -1."""
        return self.reader.category_ids

    def __len__(self) -> int:
        """Batches an epoch."""
        return self._steps

    def __iter__(self) -> Iterator[Batch]:
        if os.getpid() != self._process:
            raise RuntimeError("DALI does not work in a forked process: make the loader in the process that uses it")
        epoch, step = self._position
        if step and not self._resumed:
            epoch, step = epoch + 1, 0
        self._go_to(epoch, step)
        self._resumed = False
        return self._rest_of_epoch(epoch, step)

    def state_dict(self) -> dict[str, Any]:
        """Where the loader is: after the batch it yielded last. Small, and json can hold it."""
        epoch, step = self._position
        return {"epoch": epoch, "step": step, **self._identity()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go to where `state` was taken: the next `for` gives the batches that came after it.

        Raises ValueError if it was taken with other data, another recipe, seed, batch size or shard.
        """
        for name, here in self._identity().items():
            if state.get(name) != here:
                raise ValueError(f"this state has {name} {state.get(name)!r}, this loader {here!r}; make them equal")
        epoch, step = state["epoch"], state["step"]
        if not (epoch >= 0 and 0 <= step <= self._steps):
            raise ValueError(f"this state is at epoch {epoch}, step {step}; an epoch has {self._steps} steps")
        self._position = (epoch + 1, 0) if step == self._steps else (epoch, step)
        self._resumed = True

    def _identity(self) -> dict[str, Any]:
        return {
            "data": self.reader.fingerprint,
            "recipe": repr(self.ops),
            "seed": int(self.seed),
            "batch_size": self.batch_size,
            "shard": list(self.shard),
            "train": self.train,
        }

    # ---------------------------------------------------------------------------------------- the order

    def _batches(self, epoch: int) -> list[Rows]:
        if self.train:
            return train_batches(len(self.reader), self.batch_size, self.shard, self.seed, epoch)
        return evaluation_batches(len(self.reader), self.batch_size, self.shard)

    def _plan_from(self, epoch: int, step: int) -> Iterator[_Planned]:
        """The batches from here on: training runs on into the next epochs, evaluation ends with its epoch."""
        group = max(1, PLANNED_AT_ONCE // self.batch_size)
        for each in count(epoch) if self.train else (epoch,):
            batches, begin = self._batches(each), step if each == epoch else 0
            for first in range(begin - begin % group, len(batches), group):
                planned = self._planned(each, first, batches[first : first + group])
                yield from planned[max(0, begin - first) :]

    def _planned(self, epoch: int, first: int, batches: list[Rows]) -> list[_Planned]:
        """The plans of some batches of an epoch, which begin at step `first`."""
        rows, lengths = np.concatenate(batches), [len(batch) for batch in batches]
        which = np.repeat(np.arange(len(batches)), lengths)
        views = replace(self.reader.views(rows), batch=which, epoch=epoch)
        plan = self.recipe.plan(views, plan_rng(self.seed, epoch, first, self.shard[0]))
        ends = np.cumsum(lengths).tolist()
        parts = [slice(end - length, end) for end, length in zip(ends, lengths, strict=True)]
        return [_Planned(epoch, step, rows[part], plan[part]) for step, part in enumerate(parts, first)]

    def _go_to(self, epoch: int, step: int) -> None:
        with self._all_or_nothing():
            if not self._idle and not self._running:
                self._open()
            if not self._running or self._running[0][0][:2] != (epoch, step):
                self._drain()
                self._plan = self._plan_from(epoch, step)
            self._position = (epoch, step)
            self._start_lanes()

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """An error or Ctrl-C halfway may leave a pipeline with one input of a batch and not the other.

        So all pipelines go, with what they work on, and the next `for` makes new ones.
        """
        try:
            yield
        except BaseException:
            self._idle.clear()
            self._running.clear()
            raise

    def _start_lanes(self) -> None:
        while self._idle and (planned := next(self._plan, None)) is not None:
            lane = self._idle.popleft()
            lane.start({"path": self.reader.paths(planned.rows), **planned.plan.inputs})
            self._running.append((planned, lane))

    def _drain(self) -> None:
        """Wait for batches that nobody will see; an error in one of them is nobody's either."""
        try:
            while self._running:
                self._finish()
        except DataError:
            self._open()

    def _finish(self) -> tuple[_Planned, list[Any]]:
        planned, lane = self._running.popleft()
        try:
            outputs = lane.finish()
        except RuntimeError as error:
            raise self._explained(planned.rows, error) from error
        self._idle.append(lane)
        return planned, outputs

    def _rest_of_epoch(self, epoch: int, step: int) -> Iterator[Batch]:
        for at in range(step, self._steps):
            if self._position != (epoch, at):
                raise RuntimeError("this loader went on to another epoch; iterate over one epoch at a time")
            with self._all_or_nothing():
                planned, outputs = self._finish()
                self._start_lanes()
                batch = self._batch(planned.rows, planned.plan.views, outputs)
            self._position, self._resumed = (epoch, at + 1), False
            yield batch

    # ---------------------------------------------------------------------------------------- the batch

    def _open(self) -> None:
        """Make the pipelines. Those in `_idle` wait, once for each batch that they could take in work."""
        lanes = [Lane(self._graph, self.batch_size, self.threads, self.device, DEPTH) for _ in range(self.pipelines)]
        self._idle = deque(lanes * DEPTH)
        self._running: deque[tuple[_Planned, Lane]] = deque()
        self._process = os.getpid()

    def _graph(self) -> list[Node]:
        source = decoded(fn.external_source(name="path"), self.device.type)
        image = self.recipe.paint(source)
        if "output" not in self.recipe.stages:
            image = fn.transpose(image, perm=[2, 0, 1])
        if not self.recipe.uniform:
            image = fn.pad(image, axes=[1, 2], align=[self.pad_to_multiple] * 2)
        return [image, source.shape()]

    def _batch(self, rows: Rows, views: Views, outputs: list[Any]) -> Batch:
        self._check_sizes(rows, np.asarray(outputs[1].as_tensor()))
        boxes, labels, counts = views.packed()
        both = self._to_device(np.concatenate([boxes, labels[..., None]], axis=2, dtype=np.float32))
        labels_on_device = both[..., 4].long()
        return Batch(
            images=from_dlpack(outputs[0].as_tensor()),
            boxes=both[..., :4].contiguous(),
            labels=labels_on_device,
            mask=labels_on_device >= 0,
            image_id=torch.from_numpy(self.reader.image_ids[rows]),
            size=torch.from_numpy(self.reader.sizes[rows]),
            matrix=torch.from_numpy(views.to_output().astype(np.float32)),
            counts=tuple(counts.tolist()),
        )

    def _to_device(self, array: NDArray[Any]) -> torch.Tensor:
        tensor = torch.from_numpy(array)
        return tensor if self.device.type == "cpu" else tensor.pin_memory().to(self.device, non_blocking=True)

    def _check_sizes(self, rows: Rows, file_shape: NDArray[np.int64]) -> None:
        """A json with another size than the file's would put every box of the image in the wrong place."""
        wrong = (file_shape[:, :2] != self.reader.sizes[rows]).any(1)
        for at in np.flatnonzero(wrong):
            (height, width), (has_height, has_width) = self.reader.sizes[rows[at]], file_shape[at, :2]
            raise DataError(
                f"{self.reader.path(rows[at])} has {has_width} x {has_height} pixels, {self.reader.annotations} says "
                f"{width} x {height}, so its boxes would be misplaced; detaug check finds all of them"
            )

    def _explained(self, rows: Rows, error: RuntimeError) -> DataError:
        broken = [f"{self.reader.path(row)}: {reason}" for row in rows if (reason := _why_unreadable(self.reader, row))]
        remedy = f"detaug check {self.reader.annotations} {self.reader.images} --decode --clean OUT.json leaves it out"
        return DataError("; ".join([*(broken or [f"DALI stopped: {_reason(error)}"]), remedy]))


def _reason(error: RuntimeError) -> str:
    """The line that matters of DALI's long messages."""
    lines = [line.strip() for line in str(error).partition("encountered:")[2].splitlines() or str(error).splitlines()]
    return next((line for line in lines if line), "no reason given")


def _why_unreadable(reader: CocoReader, row: int) -> str | None:
    try:
        with Image.open(reader.path(row)) as image:
            image.load()
    except (OSError, SyntaxError, ValueError) as error:
        return f"does not decode ({error})"
    return None


def _pipelines_and_threads(device: torch.device, pipelines: int | None, threads: int | None) -> tuple[int, int]:
    cores = len(os.sched_getaffinity(0))
    if pipelines is None:
        pipelines = 1 if device.type == "cpu" else 3
    if threads is None:
        threads = cores if device.type == "cpu" else 2
    return _positive("pipelines", pipelines), _positive("threads", threads)


def _positive(name: str, value: int) -> int:
    if type(value) is not int or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
    return value


def _resolve_shard(shard: tuple[int, int] | None) -> tuple[int, int]:
    rank, world = shard or (int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1)))
    if not 0 <= rank < world:
        raise ValueError(f"shard must be (rank, world size) with 0 <= rank < world size, got {(rank, world)}")
    return rank, world
