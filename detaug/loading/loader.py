"""`Loader`: augmented batches as torch tensors, from one or several DALI pipelines in a fixed order."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from nvidia.dali import fn

from detaug.boxes.views import Floats
from detaug.gpu.fused_kernel import OneKernel, kernel_of, may_join
from detaug.gpu.streams import MadeOn
from detaug.loading.bad_files import DataError, Faults, faults_behind, named, remedy, wrong_sizes
from detaug.loading.batch import Batch
from detaug.loading.image_cache import DecodedImages, NoLane, kept
from detaug.loading.memory import keep_freed_memory
from detaug.loading.pipeline import (
    DALI_ERRORS,
    Lane,
    as_torch,
    give_memory_back,
    in_one_piece,
    rank_and_world,
    resolve_device,
)
from detaug.loading.planner import Planned, Planner, Run, at_rows
from detaug.loading.settings import Settings, choose_settings
from detaug.ops.arguments import check
from detaug.ops.op import Node, Op
from detaug.ops.pixels import Normalize
from detaug.ops.recipe import Recipe, make_recipe
from detaug.sources.coco_reader import CocoReader, Rows, decoded


class Loader:
    """Augmented batches; iterating the loader is one epoch.

    Training (`train=True`) shuffles; all batches are full and all shards have equally many, for which some
    images of the epoch come twice. Evaluation keeps the json's order and visits every image exactly once. Without a
    `for`, the pipelines work ahead and wait; `close`, or leaving a `with` block, ends them.

    `ops`: a recipe, such as `da.presets.ssd300()`. `batch_size`: images a batch, on each shard.
    `device`: None (CUDA if there is one, else CPU), "cpu", "cuda", "cuda:1" or a torch.device.
    `seed`: the same seed, batch size and shard give the same batches for any number of threads and pipelines.
    `shard`: (rank, world size); None takes torch.distributed's where that is initialised, else RANK and WORLD_SIZE,
    as torchrun sets them, else (0, 1).
    `pipelines`: DALI pipelines that take turns. `threads`: CPU threads of each. None chooses for the device.
    `settings`: a file that `detaug tune` wrote, for these two and others.
    `pad_to_multiple`: a batch with images of several sizes is padded with zeros, at the right and the bottom,
    to its largest height and width, rounded up to this multiple.
    `on_error`: at a file that cannot be used, "raise" a DataError, or "skip" it with a warning: training takes another
    image of the epoch in its place, evaluation goes on without. `max_skipped`: more than this share of the images,
    from 0 to 1, is a DataError all the same. Each process counts what it met itself: in training as a share of all
    images, in evaluation of the images of its shard.
    `collate`: what the loader yields is collate(batch); None is the `Batch` itself.
    `sampler`: for training, a function of the reader that says how often each image comes in an epoch, on average,
    (n,) numbers, such as `da.RepeatFactorSampler(0.001)`; None is once.
    `aspect_ratio_grouping`: for training, a batch has images that are wider than high, or others, never both, so
    that less of it is padding.
    `cache`: "device" decodes all images at once when the loader is made, and keeps them in the memory of its device, 3
    bytes a pixel: every epoch then costs what the recipe costs. The batches stay the same. Raises ValueError where they
    do not fit.
    `return_params`: batches carry what the ops drew for them, `Batch.params`, with which `replay` makes them again.

    >>> loader = da.Loader(da.CocoReader("demo/VOC/JPEGImages", "train.json"), da.presets.ssd300(), batch_size=8)
    >>> print(len(loader), "batches of", loader.class_names)
    6 batches of ('background', 'ball', 'car', 'fish', 'house', 'mug', 'tree')
    >>> for batch in loader:  # one epoch; the next `for` is the next epoch
    ...     images, targets = batch.images, batch.targets()
    >>> print(tuple(images.shape), [len(target["boxes"]) for target in targets])
    (8, 3, 300, 300) [7, 2, 4, 1, 2, 3, 4, 3]
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
        settings: str | os.PathLike[str] | None = None,
        pad_to_multiple: int = 32,
        on_error: Literal["raise", "skip"] = "raise",
        max_skipped: float = 0.01,
        collate: Callable[[Batch], Any] | None = None,
        sampler: Callable[[CocoReader], Floats] | None = None,
        aspect_ratio_grouping: bool = False,
        cache: Literal["device"] | None = None,
        return_params: bool = False,
    ) -> None:
        if not isinstance(reader, CocoReader):
            raise TypeError(f"reader must be a da.CocoReader(images, json), got {type(reader).__name__}")
        check("on_error", on_error, on_error in ("raise", "skip"), "'raise' or 'skip'")
        check("max_skipped", max_skipped, 0 <= max_skipped <= 1, "a share of the images, in 0..1")
        check("cache", cache, cache in (None, "device"), "None or 'device'")
        if not train and (sampler or aspect_ratio_grouping):
            raise ValueError("sampler and aspect_ratio_grouping are for training; evaluation has each image once")
        self.reader, self.recipe, self.train, self.seed = reader, make_recipe(ops), train, seed
        self.batch_size = _positive("batch_size", batch_size)
        self.pad_to_multiple = _positive("pad_to_multiple", pad_to_multiple)
        self.on_error, self.max_skipped, self.collate = on_error, max_skipped, collate
        self.return_params, self.cache = return_params, cache
        self.shard, self._shard_was_given = _resolve_shard(shard), shard is not None
        factors = _factors(sampler, reader) if sampler else None
        groups = (reader.sizes[:, 1] > reader.sizes[:, 0]) * int(aspect_ratio_grouping)
        self.device = resolve_device(device)
        self._kernel = kernel_of(self.recipe, self.device)
        self.settings = settings_for(
            reader, self.recipe, self._kernel, self.device, batch_size, settings, pipelines=pipelines, threads=threads
        )
        self._planner = Planner(
            reader, self.recipe, self.batch_size, self.shard, seed, train, factors, groups, return_params, self.device,
            self._kernel,
        )  # fmt: skip
        self._skipped: dict[int, None] = {}
        if self.batch_size < 2 and any(op.mixes for op in self.ops):
            raise ValueError("the recipe puts images of a batch together: batch_size must be at least 2, got 1")
        self._steps = len(self._planner.batches(0))
        self._warn_of_repeats()
        self._decoded: DecodedImages | None = None
        self._open()
        self._plan: Iterator[Run] = iter(())
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

    @property
    def skipped(self) -> tuple[Path, ...]:
        """The files that could not be used and were skipped so far, in the order in which they were met."""
        return tuple(self.reader.path(row) for row in self._skipped)

    def __len__(self) -> int:
        """Batches an epoch."""
        return self._steps

    def __iter__(self) -> Iterator[Any]:
        if os.getpid() != self._process:
            raise RuntimeError("DALI does not work in a forked process: make the loader in the process that uses it")
        if not self._shard_was_given and self.shard != rank_and_world():
            raise RuntimeError(
                f"the loader was made for shard {self.shard}, this process is {rank_and_world()}: make the loader "
                "after init_process_group, or give shard=(rank, world size)"
            )
        epoch, step = self._position
        if step and not self._resumed:
            epoch, step = epoch + 1, 0
        self._go_to(epoch, step)
        self._resumed = False
        return self._rest_of_epoch(epoch, step)

    def replay(self, batch: Batch) -> Batch:
        """A batch of these images with the numbers that the ops drew before: `batch.image_id` and `batch.params`.

        Raises DataError for a file that cannot be used any more. Where evaluation skipped an image of the batch, ops
        that mix images take others now: the one that is not there counted among them.
        """
        if batch.params is None:
            raise ValueError("the batch does not say what was drawn for it: make its loader with return_params=True")
        run = self._planner_now().replay(self.reader.rows(batch.image_id.numpy()), batch.params)
        ((_, planned),) = run.batches
        again = self._batch(planned, *self._images(run, self._run_alone(run)))
        assert again is not None  # no image of it is skipped
        return again

    def close(self) -> None:
        """End the pipelines and free what they hold; the next `for` makes new ones.

        Without it a loader that is gone leaves its GPU memory to DALI, for the next loader.
        """
        self._let_go()
        self._plan = iter(())  # what batches to come say is on the device already
        self._decoded = None
        give_memory_back(self.device)

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def state_dict(self) -> dict[str, Any]:
        """Where the loader is: after the batch it yielded last. Small, and json can hold it."""
        epoch, step = self._position
        return {"epoch": epoch, "step": step, "skipped": list(self._skipped), **self._identity()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go to where `state` was taken: the next `for` gives the batches that came after it.

        Raises ValueError if it was taken with other data, another recipe, sampler, seed, batch size or shard.
        """
        for name, here in self._identity().items():
            if state.get(name) != here:
                raise ValueError(f"this state has {name} {state.get(name)!r}, this loader {here!r}; make them equal")
        epoch, step, skipped = state["epoch"], state["step"], state.get("skipped", [])
        if not (epoch >= 0 and 0 <= step <= self._steps):
            raise ValueError(f"this state is at epoch {epoch}, step {step}; an epoch has {self._steps} steps")
        if skipped and self.on_error == "raise":
            raise ValueError(f"this state skipped {len(skipped)} images; give the loader on_error='skip' too")
        with self._all_or_nothing():
            self._drain()  # what is in work may hold images that the state skips
        self._skipped = dict.fromkeys([*skipped, *(self._skipped if self._decoded else ())])
        self._position = (epoch + 1, 0) if step == self._steps else (epoch, step)
        self._resumed = True

    def _identity(self) -> dict[str, Any]:
        factors = self._planner.factors
        return {
            "data": self.reader.fingerprint,
            "recipe": repr(self.ops),
            "seed": int(self.seed),
            "batch_size": self.batch_size,
            "shard": list(self.shard),
            "train": self.train,
            "sampler": None if factors is None else hashlib.sha256(factors.tobytes()).hexdigest()[:16],
            "aspect_ratio_grouping": bool(self._planner.groups.any()),
        }

    # ------------------------------------------------------------------------------------- the pipelines

    def _go_to(self, epoch: int, step: int) -> None:
        with self._all_or_nothing():
            if not self._idle and not self._running:
                self._open()
            if self._next_at() != (epoch, step):
                self._drain()
                self._plan = self._plan_from(epoch, step)
            self._position = (epoch, step)
            self._start_lanes()

    def _plan_from(self, epoch: int, step: int) -> Iterator[Run]:
        return self._planner_now().plan_from(epoch, step, self._skipped)

    def _planner_now(self) -> Planner:
        kept_at = self._decoded.at if self._decoded else None
        return replace(self._planner, together=self.settings.together, kept_at=kept_at)

    def _next_at(self) -> tuple[int, int] | None:
        """Epoch and step of the batch that comes next; None if none is in work."""
        batches = self._made or (self._running[0][0].batches if self._running else None)
        return batches[0][1][:2] if batches else None

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """An error or Ctrl-C halfway may leave a pipeline with one input of a batch and not the other.

        So all pipelines go, with what they work on, and the next `for` makes new ones.
        """
        try:
            yield
        except BaseException:
            self._let_go()
            raise

    def _let_go(self) -> None:
        self._idle.clear()
        self._running.clear()
        self._made.clear()

    def _start_lanes(self) -> None:
        while self._idle and (run := next(self._plan, None)) is not None:
            lane = self._idle.popleft()
            lane.start(self._inputs(run))
            self._running.append((run, lane))

    def _drain(self) -> None:
        """Wait for batches that nobody will see; an error in one of them is nobody's either."""
        self._made.clear()
        try:
            while self._running:
                self._finish()
        except DALI_ERRORS:
            self._open()

    def _finish(self) -> tuple[Run, list[Any]]:
        run, lane = self._running.popleft()
        outputs = lane.finish()
        self._idle.append(lane)
        return run, outputs

    def _run_alone(self, run: Run) -> list[Any]:
        """What a pipeline of its own makes of it. Raises DataError for a file that cannot be used."""
        lane = self._lane(len(run.rows))
        lane.start(self._inputs(run))
        try:
            outputs = lane.finish()
            faults = self._wrong_sizes(run, outputs)
        except DALI_ERRORS as error:
            faults = faults_behind(error, self.reader, run.rows, self.device)
        if faults:
            raise DataError(f"{named(faults)}; {remedy(self.reader)}")
        return outputs

    def _rest_of_epoch(self, epoch: int, step: int) -> Iterator[Any]:
        for at in range(step, self._steps):
            if self._position != (epoch, at):
                raise RuntimeError("this loader went on to another epoch; iterate over one epoch at a time")
            if not self._running and not self._made:
                raise RuntimeError(
                    "this loader was closed, or given a state, in the middle of this `for`: begin another"
                )
            with self._all_or_nothing():
                batch = self._next_batch()
            made = self.collate(batch) if self.collate and batch is not None else batch
            self._position, self._resumed = (epoch, at + 1), False
            if batch is not None:
                yield made

    def _next_batch(self) -> Batch | None:
        """The batch that was started first; None if evaluation has skipped every image of it."""
        while not self._made:
            if faults := self._finish_run():
                self._skip(faults)
                self._open()
                self._plan = self._plan_from(*self._position)
                self._start_lanes()
        images, planned = self._made.popleft()
        if self._kernel:
            self._made_on.hand_over(images)
        else:  # DALI's memory
            images = self._made_on.hand_over_copy(images)
        return self._batch(planned, images)

    def _finish_run(self) -> Faults:
        """Its batches are made, or: what is wrong with images of it, or of a run that its pipeline works on too."""
        running = tuple(self._running)
        try:
            run, outputs = self._finish()
        except DALI_ERRORS as error:
            rows = np.concatenate([each.rows for each, lane in running if lane is running[0][1]])
            return faults_behind(error, self.reader, rows, self.device)
        if faults := self._wrong_sizes(run, outputs):
            return faults
        self._start_lanes()
        images, self._made_on = self._images(run, outputs), MadeOn(self.device)
        self._made.extend(zip(images, (planned for _, planned in run.batches), strict=True))
        return {}

    def _wrong_sizes(self, run: Run, outputs: list[Any]) -> Faults:
        """Nothing comes from a `NoLane`: what is kept was looked at when it was decoded."""
        return wrong_sizes(self.reader, run.rows, np.asarray(outputs[1].as_tensor())) if outputs else {}

    def _skip(self, faults: Faults) -> None:
        """Remember them; DataError if they may not be skipped, or too many were."""
        names = named(faults)
        if self.on_error == "raise":
            raise DataError(f"{names}; {remedy(self.reader)}")
        self._skipped |= dict.fromkeys(faults)
        images = len(self.reader) if self.train else sum(map(len, self._planner.batches(0)))
        if len(self._skipped) > self.max_skipped * images:
            lost = f"{len(self._skipped)} of {images} images cannot be used, more than max_skipped={self.max_skipped}"
            raise DataError(f"{lost}, the last: {names}; {remedy(self.reader)}")
        for what in faults.values():
            warnings.warn(f"{what}; skipped", stacklevel=2)

    # ---------------------------------------------------------------------------------------- the batch

    def _open(self) -> None:
        """Make the pipelines. Those in `_idle` wait, once for each batch that they could take in work."""
        self._idle: deque[Lane | NoLane] = deque()  # the old ones go first: the device may not hold twice as many
        self._running: deque[tuple[Run, Lane | NoLane]] = deque()
        self._made: deque[tuple[torch.Tensor, Planned]] = deque()
        if self.device.type == "cpu":
            keep_freed_memory()
        if self.cache and not self._decoded:
            rows = np.arange(len(self.reader)) if self.train else np.concatenate(self._planner.batches(0))
            self._decoded = DecodedImages(self.reader, rows, self.device, self.settings, self._skip)
        how = self.settings
        size = self.batch_size * how.together
        lanes = [self._lane(size, how.depth) for _ in range(how.pipelines)]
        self._idle.extend(lanes * how.depth)
        self._process = os.getpid()

    def _lane(self, size: int, depth: int = 1) -> Lane | NoLane:
        if self._decoded and self._kernel:
            return NoLane()
        return Lane(self._graph, size, self.settings.threads, self.device, depth)

    def _graph(self) -> list[Node]:
        source, shape = self._source()
        if self._kernel:
            return [source, shape]
        recipe = self.recipe if "output" in self.recipe.stages else make_recipe([*self.ops, Normalize(dtype="uint8")])
        return [recipe.dali_graph(source, None if recipe.uniform else fn.external_source(name="canvas")), shape]

    def _source(self) -> tuple[Node, Node]:
        """The images, and the shapes of their files, which may be others than the json says."""
        if self._decoded:
            image = kept(self.device.type)
            return image, image.shape()
        image = decoded(self.device.type, self.settings.hw_decoder_load)
        return (_no_smaller_than_said(image) if self._pads_sources else image), image.shape()

    @property
    def _pads_sources(self) -> bool:
        """On the CPU a file of a wrong size is an error of the pipeline already, and the kernel reads no such file."""
        return self.device.type == "cuda" and not self._kernel

    def _inputs(self, run: Run) -> dict[str, Any]:
        if self._kernel:
            return {} if self._decoded else self._image_inputs(run.rows)
        canvas = {} if self.recipe.uniform else {"canvas": self._canvases(run)}
        return {**self._image_inputs(run.rows), **run.inputs, **canvas}

    def _image_inputs(self, rows: Rows) -> dict[str, Any]:
        if self._decoded:
            return self._decoded.inputs(rows)
        least = {"least": self.reader.sizes[rows].astype(np.int32)} if self._pads_sources else {}
        return {**self.reader.inputs(rows, self.device.type), **least}

    def _canvas(self, largest: Sequence[int]) -> tuple[int, int]:
        """(height, width) that images are padded to, of which these are the largest."""
        multiple = 1 if self.recipe.uniform else self.pad_to_multiple
        height, width = largest
        return -(-height // multiple) * multiple, -(-width // multiple) * multiple

    def _canvases(self, run: Run) -> NDArray[np.float32]:
        """(N, 2): the same for each image of a run, of one batch."""
        return np.full((len(run.rows), 2), self._canvas(run.batches[0][1].largest), np.float32)

    def _images(self, run: Run, outputs: list[Any]) -> list[torch.Tensor]:
        """Of each batch (N, 3, H, W), of what the pipeline made of the run."""
        if self._kernel:
            return self._painted(run, self._kernel, self._sources(run, outputs))
        images = as_torch(outputs[0], self.device)
        images = images.permute(0, 3, 1, 2) if self.recipe.channels_last else images
        return [images[at].data for at, _ in run.batches]  # `data`: see `outcomes._split`

    def _painted(self, run: Run, kernel: OneKernel, sources: torch.Tensor) -> list[torch.Tensor]:
        """By the kernel: batches that follow each other and come out in one size at once."""
        assert run.table is not None
        assert run.made_on
        run.made_on.hand_over(run.table)
        images: list[torch.Tensor] = []
        for canvas, group in groupby(run.batches, lambda batch: self._canvas(batch[1].largest)):
            parts = [at for at, _ in group]
            together = kernel.paint(sources, run.table[parts[0].start : parts[-1].stop], canvas)
            images += [each.data for each in together.split_with_sizes([at.stop - at.start for at in parts])]
        return images

    def _sources(self, run: Run, outputs: list[Any]) -> torch.Tensor:
        """The bytes on the device in which the images of a run lie."""
        if self._decoded:
            return self._decoded.memory()
        return in_one_piece(outputs[0], 3 * int(self.reader.pixels[run.rows].sum()), self.device)

    def _batch(self, planned: Planned, images: torch.Tensor) -> Batch | None:
        rows, drawn, after = planned.rows, planned.drawn, planned.outcome
        after.made_on.hand_over(after.boxes, after.labels, after.mask)
        if planned.kept is not None:
            at = np.flatnonzero(planned.kept)
            if not len(at):
                return None
            drawn, rows, after = tuple(at_rows(at, each) for each in drawn), rows[at], after[at]
            height, width = self._canvas(after.size.amax(0).tolist())  # without those that only stood in
            images = images[torch.from_numpy(at).to(images.device), :, :height, :width]
        return Batch(
            images=images,
            boxes=after.boxes,
            labels=after.labels,
            mask=after.mask,
            image_id=torch.from_numpy(self.reader.image_ids[rows]),
            size=torch.from_numpy(self.reader.sizes[rows]),
            image_size=after.size,
            matrix=after.matrix,
            counts=after.counts,
            params=drawn if self.return_params else None,
        )

    def _warn_of_repeats(self) -> None:
        at_once, images = self.batch_size * self.shard[1], len(self.reader)
        if self.train and at_once > images:
            over = f" on {self.shard[1]} shards" if self.shard[1] > 1 else ""
            warnings.warn(
                f"batch_size={self.batch_size}{over} takes {at_once} images a step, {self.reader.annotations} has "
                f"{images}: every step repeats some of them",
                stacklevel=3,
            )


def settings_for(
    reader: CocoReader,
    recipe: Recipe,
    kernel: OneKernel | None,
    device: torch.device,
    batch_size: int,
    file: str | os.PathLike[str] | None = None,
    **given: int | None,
) -> Settings:
    """`choose_settings` for these images after this recipe. `given`: its `pipelines` and `threads`."""
    pixels, joins = pixels_in_work(reader, recipe, kernel), may_join(recipe, kernel)
    return choose_settings(device, batch_size, pixels, file, may_join=joins, **given)


def pixels_in_work(reader: CocoReader, recipe: Recipe, kernel: OneKernel | None) -> int:
    """About how many an image has after the recipe; with a kernel, which paints what waits decoded, at least as many
    as take the memory of a source's bytes, as float32.
    """
    some = reader.views(np.arange(8) % len(reader))
    made = int(recipe.plan(some, np.random.default_rng(0)).views.size.prod(1).max())
    return max(made, int(reader.pixels.mean()) // 4) if kernel else made


def _no_smaller_than_said(image: Node) -> Node:
    """A file smaller than the json says, padded to that size: DALI ends the process if a view lies outside of it."""
    return fn.pad(image, axes=[0, 1], shape=fn.external_source(name="least"))


def _positive(name: str, value: int) -> int:
    if type(value) is not int or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
    return value


def _resolve_shard(shard: tuple[int, int] | None) -> tuple[int, int]:
    rank, world = shard or rank_and_world()
    if not 0 <= rank < world:
        raise ValueError(f"shard must be (rank, world size) with 0 <= rank < world size, got {(rank, world)}")
    return rank, world


def _factors(sampler: Callable[[CocoReader], Floats], reader: CocoReader) -> Floats:
    factors = np.asarray(sampler(reader), np.float64)
    right = factors.shape == (len(reader),) and np.isfinite(factors).all() and factors.min() >= 0 < factors.max()
    check("sampler", sampler, bool(right), f"a function that returns {len(reader)} numbers of at least 0, one above 0")
    return factors
