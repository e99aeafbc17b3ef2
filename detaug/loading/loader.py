"""`Loader`: augmented batches as torch tensors, in an order that depends on the seed alone."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from threading import RLock
from typing import Any, Generic, Literal, cast

import numpy as np
import torch
from typing_extensions import TypeVar

from detaug.arguments import check, is_number, is_whole
from detaug.arrays import Bools, Floats, Ints
from detaug.errors import InputError
from detaug.loading.bad_files import SkippedImages
from detaug.loading.batch import Batch
from detaug.loading.batch_stream import EpochIterator, Position, check_process
from detaug.loading.clip_batch import ClipBatch
from detaug.loading.devices import give_memory_back, rank_and_world, resolve_device, resolve_shard
from detaug.loading.epochs import EpochOrder, LastBatch
from detaug.loading.fixed_rows import FixedRows
from detaug.loading.image_cache import CacheSizes, check_cache
from detaug.loading.loader_properties import LoaderProperties
from detaug.loading.memory_sizes import MemorySize, check_size
from detaug.loading.misuse import NoDataLoader, explain_other_names
from detaug.loading.stages import Streams, make_stages
from detaug.loading.state import identity_of, mixed_within, read_state
from detaug.loading.view_recipes import Recipes, has_stages
from detaug.ops.mixing import GROUP, MixUp
from detaug.ops.op import Op
from detaug.ops.resize import Resize
from detaug.pipelines.jpeg_engine import keep_decoder
from detaug.sources.source import Source

T = TypeVar("T", default=Batch)
AnyBatch = TypeVar("AnyBatch", Batch, ClipBatch, dict[str, Batch], dict[str, ClipBatch])
LARGEST = 64e6
"""Pixels of an output; a larger one is warned of: 0.77 GB for each image of its batch."""


class Loader(NoDataLoader, LoaderProperties, Generic[T]):
    """Augmented batches. Iterating over the loader is one epoch.

    Training (`train=True`) shuffles; all batches are full and all shards have equally many, so some images of the epoch
    come twice. Evaluation keeps the JSON file's order and has every image exactly once. Between two loops the pipelines
    fill up with the next batches and wait; `close`, or leaving a `with` block, ends them.

    Several threads may take batches from one iterator; each batch goes to one of them.

    Args:
        reader: The source of the images, such as a `CocoReader`.
        ops: A recipe, such as `da.presets.ssd300()`, or for training `Stages`, a recipe that changes at epochs or
            steps. A dict of recipes by name, such as {"weak": [...], "strong": [...]}, gives views of the same images:
            a dict of a batch for each. Each file is read and decoded once. The views have draws of their own: the first
            those that a loader of its recipe alone has, and each further one others. `Batch.match`, `map_boxes`,
            `map_points` and `map_masks` lead from one view to another.
        batch_size: Images of a batch, on each shard.
        device: None (CUDA if there is one, else CPU), "cpu", "cuda", "cuda:1" or a torch.device.
        train: Whether it shuffles.
        seed: The same seed and global batch (batch size x shards) give every image of every step the same boxes and
            pixels, for any number of shards, threads and pipelines; see docs/reliability.md.
        shard: (rank, world size). None: torch.distributed's if it is initialized, else torchrun's RANK and WORLD_SIZE,
            else (0, 1).
        pipelines: The number of DALI pipelines.
        threads: CPU threads of each. None chooses for the device.
        settings: A file that `detaug tune` wrote, with these two and others.
        memory: The limit for decoded images in the pipelines, 3 bytes per pixel: bytes such as "2GB", or a fraction of
            what is free. A batch that needs more is decoded in parts, and stays the same. The size that counts is that
            of large images, the 95th percentile. None: 600 MB on the CPU, a tenth of what is free on a GPU. Frames of
            NVDEC do not count.
        pad_to_multiple: A batch of images of several sizes is padded with zeros, at the right and the bottom, to its
            largest height and width, rounded up to this multiple.
        on_error: For a file that cannot be used, "raise" a DataError, or "skip" it with a warning: training takes
            another image of the epoch instead, evaluation continues without it.
        max_skipped: Raise DataError anyway if more than this fraction of the images, 0 to 1, is skipped; in training of
            all images, in evaluation of the shard's. Each process counts its own.
        collate: The loader yields collate(batch), which gets the dict of views; None yields the `Batch`.
        last_batch: For training, what becomes of the images that do not make a full batch: "fill" it with images from
            the start of the epoch, yield it "partial", so that every image comes once, or "drop" it. On several shards
            each gets its part of a partial batch; if it has too few images for all, some are repeated.
        accumulate: For training with gradient accumulation, the batches of an optimizer step: the number of batches of
            an epoch is a multiple of it, the same on all shards. "fill" shows some images again, "drop" leaves some
            out.
        at_least: The batches of an epoch, at least: a small dataset is repeated, each time in another order. RF-DETR's
            epochs have `accumulate=K, at_least=5 * K`.
        sampler: For training, a function of the reader that returns how often each image comes in an epoch, on average,
            (n,) numbers, such as `da.RepeatFactorSampler(0.001)`; None is once.
        aspect_ratio_grouping: For training, put images that are wider than high and the others into different batches,
            so that less is padded.
        cache: Keep decoded images, 3 bytes per pixel, from the first epoch on: "device" in the memory of the device,
            "host" in pinned main memory, from where a GPU gets them faster than it decodes, as many as half of the free
            memory holds. {"device": "10GB", "host": 0.8} gives both, with bytes, or a fraction of what is free when the
            loader is made. The batches stay the same; images for which there is no room are decoded in every epoch.
        max_boxes: The rows of each image in `boxes`, `labels`, `valid` and all else that belongs to boxes, the same in
            all batches: static shapes for XLA, CUDA graphs and torch.compile. Of an image that shows more boxes, after
            the whole recipe, also one with `Mosaic`, the largest stay; the loader warns of the first one, and
            `batch.boxes_left_out` counts the others. None: the largest number of a batch.
        return_params: Batches have what the ops drew for them, `Batch.params`, with which `replay` makes them again.

    >>> loader = da.Loader(da.CocoReader("demo/VOC/JPEGImages", "train.json"), da.presets.ssd300(), batch_size=8)
    >>> print(len(loader), "batches of", loader.class_names)
    6 batches of ('background', 'ball', 'car', 'fish', 'house', 'mug', 'tree')
    >>> for batch in loader:  # one epoch; the next `for` is the next epoch
    ...     images, targets = batch.images, batch.targets()
    >>> print(tuple(images.shape), [len(target["boxes"]) for target in targets])
    (8, 3, 300, 300) [3, 3, 5, 2, 1, 3, 3, 3]
    """

    @explain_other_names
    def __init__(
        self,
        reader: Source,
        ops: Recipes,
        batch_size: int,
        *,
        device: torch.device | str | None = None,
        train: bool = True,
        seed: int = 0,
        shard: tuple[int, int] | None = None,
        pipelines: int | None = None,
        threads: int | None = None,
        settings: str | os.PathLike[str] | None = None,
        memory: MemorySize | None = None,
        pad_to_multiple: int = 32,
        on_error: Literal["raise", "skip"] = "raise",
        max_skipped: float = 0.01,
        collate: Callable[[Batch], T] | None = None,
        last_batch: LastBatch = "fill",
        accumulate: int = 1,
        at_least: int = 1,
        sampler: Callable[[Source], Floats] | None = None,
        aspect_ratio_grouping: bool = False,
        cache: CacheSizes | None = None,
        max_boxes: int | None = None,
        return_params: bool = False,
    ) -> None:
        _check_source(reader)
        check("on_error", on_error, on_error in ("raise", "skip"), "'raise' or 'skip'")
        check("max_skipped", max_skipped, is_number(max_skipped, 0, 1), "a fraction of the images, in 0..1")
        check_cache(cache)
        if memory is not None:
            check_size("memory", memory)
        _check_for_training(train, sampler, aspect_ratio_grouping or has_stages(ops), last_batch)
        length = _epoch_length(train, last_batch, accumulate, at_least)
        check("seed", seed, is_whole(seed, 0), "a whole number of at least 0")
        self.reader, self.cache = reader, cache
        self.batch_size = _check_positive("batch_size", batch_size)
        self.pad_to_multiple = _check_positive("pad_to_multiple", pad_to_multiple)
        self.return_params = return_params
        self._max_boxes = None if max_boxes is None else _check_positive("max_boxes", max_boxes)
        self.shard, self._shard_was_given = resolve_shard(shard), shard is not None
        self.device = resolve_device(device)
        if self.device.type == "cuda" and not reader.decodes:
            keep_decoder(self.device)
        options = {"file": settings, "pipelines": pipelines, "threads": threads, "memory": memory}
        stages = make_stages(ops, reader, self.batch_size, self.device, cache, **options)
        recipes = [recipe for stage in stages for recipe in stage.recipes]
        mixing = next((recipe.mixing_op for recipe in recipes if recipe.mixing_op), None)
        items = _items(reader, aspect_ratio_grouping, sampler)
        self._order = EpochOrder(
            *items, self.batch_size, self.shard, int(seed), train, last_batch, 2 if mixing else 1, *length
        )
        self._batches, self._steps = len(self._order.batches(0)), _count_steps(self._order)
        check("collate", collate, collate is None or callable(collate), "a function, such as da.Batch.as_hf, or None")
        self._collate: Callable[[Batch], Any] = collate or _return_batch
        self._skipped = SkippedImages(
            reader, self._order.images_of_shard(), skip=on_error == "skip", max_skipped=max_skipped
        )
        _warn_of_repeats(self._order, reader.origin)
        _warn_of_mixing(self._order, mixing)
        _warn_of_recipes(reader, [recipe.ops for recipe in recipes])
        self._start = Position(0, 0)  # of the first iterator, or the next one after load_state_dict
        self._epoch: EpochIterator[T] | None = None  # Lightning sets an attribute `_iterator` of any loader to None
        self._process = os.getpid()
        self._lock = RLock()
        self._streams = Streams(
            stages,
            reader,
            self._order,
            self._steps,
            self._skipped,
            self.device,
            cache=cache,
            pad_to_multiple=self.pad_to_multiple,
            return_params=return_params,
            fixed=None if self._max_boxes is None else FixedRows(self._max_boxes),
        )
        self._streams.open(self._start)

    def __iter__(self) -> EpochIterator[T]:
        """Start the next epoch, or continue from a loaded state."""
        self._check_process()
        with self._lock:
            position = self._next_epoch()
            self._epoch = EpochIterator(self._streams.open, position, len(self), self._steps, self._collate, self._lock)
            return self._epoch

    def _next_epoch(self) -> Position:
        if self._epoch is None:
            return self._start
        epoch, step = self._epoch.position
        return Position(epoch + 1, 0) if step and self._epoch.started else Position(epoch, step)

    def set_epoch(self, epoch: int) -> None:
        """Let the next `for` be this epoch, from 0. In the middle of it, as after `load_state_dict`, it goes on there.

        Trainers that resume, such as transformers', call it between epochs: `state_dict` has this epoch from then on.
        """
        check("epoch", epoch, is_whole(epoch, 0), "a whole number of at least 0")
        with self._lock:
            if self._next_epoch().epoch != epoch:
                self._go_to(Position(int(epoch), 0))

    def _go_to(self, position: Position) -> None:
        self._start = position
        if self._epoch and not self._epoch.started and self._streams.current:
            self._epoch.go_to(position)
        else:
            self._epoch = None

    def schedule(self, epoch: int) -> list[Ints]:
        """Return the ids of the images of each batch of an epoch on this shard, (N,) each, without reading a file.

        Of clips, those of their frames, (N * F,), clip by clip.
        Images that are known to be unusable are left out in evaluation; in training another one takes their place.

        >>> loader = da.Loader(da.CocoReader("demo/VOC/JPEGImages", "train.json"), da.presets.ssd300(), batch_size=8)
        >>> loader.schedule(0)[0]
        array([ 5, 19,  3, 44, 22, 35, 21, 12])
        """
        check("epoch", epoch, is_whole(epoch, 0), "a whole number of at least 0")
        batches = self._order.with_stand_ins(int(epoch), self._skipped.mask())
        pairs = zip(batches.indices, batches.wanted, strict=True)
        return [self.reader.image_ids[indices[wanted]] for indices, wanted in pairs]

    def replay(self, batch: AnyBatch) -> AnyBatch:
        """Make a batch again, from its `image_id` and the numbers that the ops drew, its `params`.

        Raises DataError for a file that cannot be used any more. Where evaluation skipped an image of the batch, ops
        that mix images take other partners, since that image counted among them.

        Args:
            batch: As the loader yielded it, so of views their dict.
        """
        views: Any = batch if isinstance(batch, dict) else {None: batch}
        names: list[str | None] = [view.name for view in self._stage.views]
        if views.keys() != {*names}:
            wanted = f"a dict of batches of the views {', '.join(map(repr, names))}" if self.recipes else "a batch"
            raise InputError(f"batch must be what the loader yielded, {wanted}, got {batch!r:.80}")
        batches = [views[name] for name in names]
        if any(own.params is None for own in batches):
            raise InputError("the batch has no params, which replay needs: make its loader with return_params=True")
        first, params = batches[0], [own.params for own in batches]
        indices = self.reader.indices_of(first.image_id.flatten().cpu().numpy())
        with self._lock:
            return cast(AnyBatch, self._streams.replay(indices, params, Position(first.epoch, first.step)))

    def close(self) -> None:
        """End the pipelines and free what they hold; the next `for` makes new ones.

        Without it, DALI keeps the GPU memory of a deleted loader for the next loader.
        """
        with self._lock:
            self._streams.close()
        give_memory_back(self.device)

    def __enter__(self) -> Loader[T]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------------------------------------- state

    def state_dict(self) -> dict[str, Any]:
        """Return the position after the last yielded batch, as a small dict that JSON can store.

        All shards that are at the same step have the same position: one state can be loaded on all of them, on any
        number of shards with the same global batch.
        """
        epoch, step = self._epoch.position if self._epoch else self._start
        return {"epoch": epoch, "step": step, "skipped": self._skipped.indices, **self._identity}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go to the position of `state`: the next `for` yields the batches that came after it.

        An iterator that has not yielded a batch goes there too: some trainers make it before they load states.
        Raises InputError if it was saved with other data, another recipe, sampler, length of epochs, seed, `max_boxes`
        or global batch (batch size x shards), or by a version that draws other random numbers.
        """
        check_process(self._process)
        position, skipped = read_state(state, self._identity, self._order, len(self.reader), self._steps)
        self._skipped.check_allowed(skipped)
        with self._lock:
            if self._streams.current:
                self._streams.current.discard()  # batches in flight may hold images that the state skips
            self._skipped.restore(skipped)
            self._go_to(position)

    @cached_property
    def _identity(self) -> dict[str, Any]:
        return identity_of(self.reader, self._streams.recipes, self._order, self._max_boxes)

    def _check_process(self) -> None:
        check_process(self._process)
        if not self._shard_was_given and self.shard != rank_and_world():
            raise RuntimeError(
                f"the loader was made for shard {self.shard}, this process is {rank_and_world()}: make the loader "
                "after init_process_group, or give shard=(rank, world size)"
            )


def _warn_of_repeats(order: EpochOrder, origin: str) -> None:
    """Warn of a step of more images than there are, in all or in a group of them."""
    _, sizes = np.unique(order.groups, return_counts=True)
    if order.train and order.last_batch != "partial" and len(sizes) > 1 and sizes.min() < order.global_batch:
        what = "each step of them repeats some" if order.last_batch == "fill" else "no step has them"
        warnings.warn(
            f"aspect_ratio_grouping makes steps of images that are all wide or all high: {origin} has only "
            f"{sizes.min()} of one kind, a step takes {order.global_batch}, so {what}; last_batch='partial' takes each "
            "once",
            stacklevel=4,
        )
        return
    if order.train and order.last_batch == "fill" and order.global_batch > order.items:
        over = f" on {order.shard[1]} shards" if order.shard[1] > 1 else ""
        warnings.warn(
            f"batch_size={order.batch_size}{over} takes {order.global_batch} {order.unit} per step, {origin} has "
            f"{order.items}: every step repeats some of them",
            stacklevel=4,
        )


def _warn_of_mixing(order: EpochOrder, mixing_op: Op | None) -> None:
    if order.shard[1] > 1 and mixing_op and mixed_within(order):
        batch = f"batch_size={order.batch_size}" if order.batch_size % GROUP else "the last, partial batch"
        warnings.warn(
            f"{type(mixing_op).__name__} mixes images within groups of {GROUP} of a batch, and {batch} is not "
            "a multiple of it: another number of shards gives other pixels",
            stacklevel=4,
        )


def _warn_of_recipes(reader: Source, recipes: Sequence[Sequence[Op]]) -> None:
    _warn_of_long_images(reader, recipes)
    if reader.maps:
        _warn_of_averaged_maps(op for ops in recipes for op in ops)


def _warn_of_averaged_maps(ops: Iterable[Op]) -> None:
    """Warn of averages of about one half: Beta(alpha, alpha) is flat at 1, and above it has most in the middle."""
    mixup = next((op for op in ops if isinstance(op, MixUp) and op.alpha >= 1 and op.p > 0), None)
    if mixup is not None:
        warnings.warn(
            f"{mixup!r} averages images about half and half, and a map has the value of the one with the larger "
            "fraction: give MixUp an alpha below 1, such as 0.2, or take both from batch.map_pair(name)",
            stacklevel=5,
        )


def _warn_of_long_images(reader: Source, recipes: Iterable[Sequence[Op]]) -> None:
    """Warn of images that a Resize of the shorter side makes enormous; crops before it may prevent that."""
    longest = int(np.argmax(reader.sizes.max(1) / reader.sizes.min(1)))
    short, long = sorted(reader.sizes[longest].tolist())
    for ops in recipes:
        resize = next((op for op in ops if isinstance(op, Resize)), None)
        cropped = any(op.stage == "view" and op.size_after == "fixed" for op in ops)  # no more of it is rendered
        if resize is None or not isinstance(resize.size, int) or cropped:
            continue
        length = min(resize.size * long / short, resize.max_size or math.inf)
        if resize.size * length > LARGEST:
            name = reader.path(longest) if reader.files else reader.origin
            warnings.warn(
                f"{resize!r} makes an image of {long} x {short} pixels {length:.0f} x {resize.size}, "
                f"{resize.size * length * 12 / 1e9:.1f} GB for each image of its batch ({name}): give Resize a "
                "max_size, or leave the image out",
                stacklevel=5,
            )
            return


def _return_batch(batch: Batch) -> Batch:
    """Return the batch itself: the default of `collate`."""
    return batch


def _check_source(source: Any) -> None:
    needed = [name for name in vars(Source) if not name.startswith("_")]
    if not all(hasattr(type(source), name) for name in needed):  # of the type: its properties may cost seconds
        kind = source.__name__ if isinstance(source, type) else type(source).__name__
        raise TypeError(f"reader must be a source, such as da.CocoReader(images, JSON), got {kind}")
    if source.maps and source.frames is not None:  # a `ClipBatch` does not have them
        names = ", ".join(map(repr, source.maps))
        raise InputError(
            f"{source.origin}: a source of clips must have no maps, got {names}; read the frames as images with "
            "da.CocoReader(maps=)"
        )


def _check_positive(name: str, value: int) -> int:
    check(name, value, is_whole(value) and value >= 1, "a whole number of at least 1")
    return int(value)


def _check_for_training(train: bool, sampler: object, orders: bool, last_batch: LastBatch) -> None:
    check("last_batch", last_batch, last_batch in ("fill", "partial", "drop"), "'fill', 'partial' or 'drop'")
    if sampler is not None and not callable(sampler):
        raise InputError(
            "sampler must be a function of the reader, such as da.RepeatFactorSampler(0.001), got "
            f"{type(sampler).__name__}; for weights of images, sampler=lambda reader: WEIGHTS"
        )
    if not train and (sampler or orders or last_batch != "fill"):
        rule = "sampler, aspect_ratio_grouping, last_batch and Stages are for training"
        raise InputError(f"{rule}; evaluation has each image once")


def _epoch_length(train: bool, last_batch: LastBatch, accumulate: int, at_least: int) -> tuple[int, int]:
    """Return `accumulate` and `at_least`. Raises InputError where images are not to be repeated for them."""
    lengths = {
        "accumulate": _check_positive("accumulate", accumulate),
        "at_least": _check_positive("at_least", at_least),
    }
    for name, value in lengths.items():
        if value > 1 and not train:
            raise InputError(f"{name} must be 1 in evaluation, which has each image once, got {value}; leave it out")
        if value > 1 and (last_batch == "partial" or (last_batch == "drop" and name == "at_least")):
            why = "has each image once" if last_batch == "partial" else "repeats none"
            raise InputError(
                f"last_batch must be 'fill' with {name}={value}, got {last_batch!r}, which {why}; leave out one of them"
            )
    return lengths["accumulate"], lengths["at_least"]


def _count_steps(order: EpochOrder) -> int:
    steps = len(order.steps(0))
    if not steps:
        what = f"{order.accumulate} steps" if order.accumulate > 1 else "a step"
        raise InputError(
            f"last_batch='drop' leaves no batch: {order.items} {order.unit} do not fill {what} of all shards"
        )
    return steps


def _items(
    reader: Source, aspect_ratio_grouping: bool, sampler: Callable[[Source], Floats] | None
) -> tuple[Ints, Ints, Floats | None, Ints | None, Bools | None]:
    """Return the first arguments of `EpochOrder`: what it knows of the items of a source."""
    height, width = reader.sizes[reader.clips[:, 0]].T
    factors = _call_sampler(sampler, reader) if sampler else None
    return reader.clips, (width > height) * int(aspect_ratio_grouping), factors, reader.stretch_of_clip, reader.rounds


def _call_sampler(sampler: Callable[[Source], Floats], reader: Source) -> Floats:
    """Return (n,): how often each item comes; a clip as often as its images on average."""
    factors = np.asarray(sampler(reader), np.float64)
    right = factors.shape == (len(reader),) and np.isfinite(factors).all() and factors.min() >= 0 < factors.max()
    check("sampler", sampler, bool(right), f"a function that returns {len(reader)} numbers of at least 0, one above 0")
    return np.asarray(factors[reader.clips].mean(1))
