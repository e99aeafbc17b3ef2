"""The stages of a loader: recipes, each from an epoch or step on, checked against source and device; their batches."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from detaug.arrays import Arrays, Ints
from detaug.errors import InputError
from detaug.loading.bad_files import SkippedImages
from detaug.loading.batch_stream import BatchStream, Position, Yielded
from detaug.loading.engine import Engine
from detaug.loading.epochs import EpochOrder
from detaug.loading.fixed_rows import FixedRows
from detaug.loading.image_cache import CacheSizes, ImageCache, make_cache
from detaug.loading.image_feeds import make_feed
from detaug.loading.planner import Planner
from detaug.loading.renderers import choose_renderer
from detaug.loading.settings import Settings, grouping_of, settings_for
from detaug.loading.view_recipes import NamedRecipe, Recipes, ViewRecipe, recipes_by_start
from detaug.ops.op import Op
from detaug.recipes.kernel_chain import KernelChain, chain_for, op_without_kernel
from detaug.recipes.recipe import Recipe, make_recipe
from detaug.recipes.stages import By
from detaug.sources.source import Source
from detaug.video.flow import make_flow


@dataclass(eq=False)
class LoaderStage:
    """A recipe, or one for each view, and what the loader chose for it."""

    views: tuple[ViewRecipe, ...]
    name: str
    """From where on it is used, such as "from epoch 90"; "" for the first one."""
    start: int
    """The first epoch of the stage, or step of the training."""
    by: By
    settings: Settings

    @property
    def recipes(self) -> tuple[Recipe, ...]:
        """Return the recipes of the views."""
        return tuple(view.recipe for view in self.views)


def make_stages(
    ops: Recipes,
    reader: Source,
    batch_size: int,
    device: torch.device,
    cache: CacheSizes | None,
    **options: Any,
) -> list[LoaderStage]:
    """Return the stages of a loader, one if `ops` is a recipe. The arguments are `Loader`'s; `options`: settings.

    Raises InputError for a recipe that the loader cannot use; of several it names the stage and the view.
    """
    recipes, by = recipes_by_start(ops)
    stages = []
    for start, by_view in recipes:
        with _named(f"the stage from {by} {start} on" if len(recipes) > 1 else None):
            views = []
            for name, view_ops in by_view.items():
                with _named(name if name is None else f"the view {name!r}"):
                    views.append(_view_recipe(name, view_ops, reader, batch_size, device, cache))
            images = batch_size * int(reader.clips.shape[1])
            chosen = settings_for(reader, views, device, images, **options)
        stages.append(LoaderStage(tuple(views), f"from {by} {start}" if start else "", start, by, chosen))
    return stages


def _view_recipe(
    name: str | None,
    ops: Iterable[Op],
    reader: Source,
    batch_size: int,
    device: torch.device,
    cache: CacheSizes | None,
) -> ViewRecipe:
    """Return the recipe of a view. Raises InputError for one that the loader cannot use."""
    recipe = make_recipe(ops, reader.pixel_format)
    _check_recipe(recipe, reader, batch_size)
    _check_decode(recipe, reader, device, cache)
    _check_clips(reader, recipe, device)
    kernels = chain_for(recipe, device)
    _check_kernels(recipe, kernels, device)
    return ViewRecipe(name, recipe, kernels)


@contextmanager
def _named(part: str | None) -> Iterator[None]:
    """Name what is wrong in errors, such as "the stage from epoch 90 on"."""
    try:
        yield
    except InputError as error:
        if part is None:
            raise
        raise InputError(f"{part}: {error}") from None


def _check_recipe(recipe: Recipe, reader: Source, batch_size: int) -> None:
    """Raise InputError for a recipe that needs more images in a batch, images without a class, or masks."""
    if batch_size < 2 and recipe.mixing_op:
        raise InputError("the recipe combines images of a batch: batch_size must be at least 2, got 1")
    if recipe.mixing_op and reader.classes is not None:
        mixing = type(recipe.mixing_op).__name__
        raise InputError(
            f"{mixing} combines images, and each image of {reader.origin} has one class as a whole (batch.classes), "
            f"which would be wrong: leave {mixing} out of the recipe"
        )
    recipe.check_masks(reader.shapes.has_masks, "make the reader with masks=True")
    if reader.shapes.keypoints is not None and any(op.flips for op in recipe.ops):
        reader.shapes.keypoints.check_flips()


def _check_decode(recipe: Recipe, reader: Source, device: torch.device, cache: CacheSizes | None) -> None:
    """Raise InputError for images that this loader does not decode: at a scale, or with other bands than 8-bit RGB."""
    if recipe.decodes_scaled and device.type != "cpu":
        raise InputError("decode='scaled' is for a loader on the CPU: leave decode out of the recipe, or device='cpu'")
    if recipe.decodes_scaled and cache is not None:
        raise InputError("decode='scaled' decodes what one epoch shows: leave out cache, or decode")
    if reader.pixel_format.is_rgb8:
        return
    if reader.files and not reader.decodes:
        raise InputError(f"a source with a pixel_format, here {reader.pixel_format}, must have files = False, and read")
    if cache is not None:
        raise InputError(f"the cache keeps 8-bit RGB, and the reader has {reader.pixel_format}: leave cache out")


def _check_kernels(recipe: Recipe, kernels: KernelChain | None, device: torch.device) -> None:
    """Raise InputError for a recipe without kernels whose images DALI's operators do not take on a GPU."""
    if device.type == "cpu" or kernels is not None or recipe.pixels.is_rgb8:
        return
    raise InputError(
        f"{op_without_kernel(recipe, device)} has no kernel for a GPU, or not after the ops before it, and images of "
        f'{recipe.pixels} need one: leave it out, or give the loader device="cpu", and move its batches with '
        'batch.to("cuda")'
    )


def _check_clips(reader: Source, recipe: Recipe, device: torch.device) -> None:
    """Raise InputError for a recipe that cannot take clips, or takes nothing else."""
    if reader.frames is not None and recipe.mixing_op:
        mixing = type(recipe.mixing_op).__name__
        raise InputError(f"{mixing} combines images, and the reader has clips: leave it out of the recipe")
    if recipe.optical_flow and (reader.frames is None or reader.clips.shape[1] < 2):
        raise InputError("OpticalFlow needs clips of at least 2 frames, as da.ClipReader and da.VideoReader have")
    if recipe.optical_flow and device.type == "cpu":
        raise InputError("OpticalFlow is computed on a GPU, and this loader is on the CPU: leave it out of the recipe")


class Streams:
    """The batches of all stages: one stream has pipelines at a time, and the next one takes over its cache."""

    def __init__(
        self,
        stages: list[LoaderStage],
        reader: Source,
        order: EpochOrder,
        steps: int,
        skipped: SkippedImages,
        device: torch.device,
        *,
        cache: CacheSizes | None,
        pad_to_multiple: int,
        return_params: bool,
        fixed: FixedRows | None,
    ) -> None:
        self.current: BatchStream | None = None
        """The one that has pipelines."""
        self._stage: LoaderStage | None = None  # of the one that had them last
        self._stages, self._reader, self._order, self._skipped, self._device = stages, reader, order, skipped, device
        self._starts = [
            Position(stage.start, 0) if stage.by == "epoch" else Position(*divmod(stage.start, steps))
            for stage in stages
        ]
        self._cache, self._pad_to_multiple, self._return_params = cache, pad_to_multiple, return_params
        self._fixed = fixed

    @property
    def recipes(self) -> list[NamedRecipe]:
        """Return the recipes of all stages and views."""
        return [
            NamedRecipe(" ".join(filter(None, (view.name, stage.name))), number, view.recipe)
            for stage in self._stages
            for number, view in enumerate(stage.views)
        ]

    def stage_of(self, position: Position) -> LoaderStage:
        """Return the stage to which a batch belongs."""
        return self._stages[bisect_right(self._starts, position) - 1]

    def open(self, position: Position) -> BatchStream:
        """Return the stream of the batches from a position on, with pipelines."""
        stage, cache = self.stage_of(position), None
        if self.current:
            if self._stage is stage:
                return self.current
            cache, self.current = self.current.close_but_cache(), None
        elif self._cache is not None:
            cache = make_cache(self._reader, self._order.images_of_shard(), self._cache, self._device)
        stream = self._make(stage, cache)
        stream.open(position)
        self.current, self._stage = stream, stage
        return stream

    def replay(self, indices: Ints, params: Sequence[tuple[Arrays, ...]], position: Position) -> Yielded:
        """Return the batch of a position again. Closed streams stay closed."""
        stage, stream = self.stage_of(position), self.current
        if stream is None or self._stage is not stage:
            stream = self._make(stage, None)
        return stream.replay(indices, params, position)

    def close(self) -> None:
        """End the pipelines and give back all memory; `open` makes new ones."""
        if self.current:
            self.current.close()
        self.current = None

    def _make(self, stage: LoaderStage, cache: ImageCache | None) -> BatchStream:
        recipes, settings, order = stage.recipes, stage.settings, self._order
        feed = make_feed(self._reader, self._device, settings.hw_decoder_load, cache)
        renderer = choose_renderer(stage.views, feed, self._device)
        grouping = grouping_of(settings, recipes)
        following = self._stages.index(stage) + 1
        planner = Planner(
            reader=self._reader,
            recipes=recipes,
            end=self._starts[following] if following < len(self._stages) else None,
            order=order,
            renderer=renderer,
            device=self._device,
            skipped=self._skipped,
            grouping=grouping,
            pad_to_multiple=self._pad_to_multiple,
            return_params=self._return_params,
            fixed=self._fixed,
        )
        images = grouping.most_images(order.batch_size * order.frames)
        flows = [make_flow(recipe, order.batch_size, order.frames, self._device) for recipe in recipes]
        engine = Engine(renderer, self._reader, settings, images, self._device)
        names = [view.name for view in stage.views if view.name is not None]
        return BatchStream(planner, engine, names or None, flows)
