"""Renderers turn planned groups of images into batches of pixels: DALI's operators, or Triton's kernels.

The loader chooses one when it knows the recipe and the device. On the CPU the graph of the recipe contains the CPU
kernels of the ops, so `GraphRenderer` serves both devices.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from nvidia.dali import fn
from torch import Tensor

from detaug.arrays import Arrays, Ints
from detaug.gpu.passes import Tensors
from detaug.gpu.streams import Copies, StreamGuard
from detaug.loading.image_feeds import Found, ImageFeed
from detaug.loading.plans import GroupPlan
from detaug.loading.view_recipes import ViewRecipe
from detaug.ops.normalize import Normalize
from detaug.pipelines.graph import Node
from detaug.pipelines.internals import to_torch
from detaug.pipelines.scaled_decoding import choose_scales, decoded_sizes, scaled_region
from detaug.recipes.kernel_chain import KernelChain
from detaug.recipes.recipe import Plan, Recipe, make_recipe


class Job(Protocol):
    """One group of batches on its way through a pipeline."""

    @property
    def group(self) -> GroupPlan:
        """Return the group of batches."""
        ...

    @property
    def decoded(self) -> Ints:
        """Return the images that the pipeline decodes, as positions in the source."""
        ...

    def start(self) -> dict[str, Any]:
        """Return the inputs of the pipeline, by name; none if it has nothing to do."""
        ...

    def images(self, outputs: list[Any]) -> list[tuple[Tensor, ...]]:
        """Return the (n, 3, H, W) images of each batch, for each view, from the outputs of the pipeline."""
        ...


class Renderer(Protocol):
    """Makes jobs of groups. `feed` is where the images come from."""

    feed: ImageFeed

    def graph(self) -> list[Node]:
        """Return the outputs of the pipeline; call it inside one."""
        ...

    def planned_inputs(self, plans: Sequence[Plan], sizes: Ints) -> Arrays:
        """Return the inputs of `jobs` for each image, by name.

        `plans`: of each view. `sizes`: (n, 2) of the source images.
        """
        ...

    def jobs(self, groups: list[GroupPlan]) -> list[Job]:
        """Return the jobs of groups that were planned together."""
        ...

    def on_current_stream(self, images: Tensor, guard: StreamGuard) -> Tensor:
        """Return images of a job for use on the current stream, which may not be the one that made them."""
        ...


def choose_renderer(views: Sequence[ViewRecipe], feed: ImageFeed, device: torch.device) -> Renderer:
    """Return Triton's kernels if they can render the recipes of all views, else the graphs of the recipes."""
    kernels = [view.kernels for view in views if view.kernels]
    if len(kernels) == len(views):
        return KernelRenderer(kernels, feed, device)
    return GraphRenderer([view.recipe for view in views], feed, device)


def input_of(view: int, name: str) -> str:
    """Return the name of an input of a view, since all recipes call theirs alike."""
    return f"{view}.{name}"


class GraphRenderer:
    """Runs the recipes inside the pipeline, with DALI's operators and the CPU kernels, on images that it decodes once.

    On the CPU, without a cache, only what is shown is decoded, which is faster: of several views, the window around
    what they show together.
    """

    def __init__(self, recipes: Sequence[Recipe], feed: ImageFeed, device: torch.device) -> None:
        self.recipes, self.feed, self.device = [_with_output(recipe) for recipe in recipes], feed, device
        regions = [recipe.region_input for recipe in self.recipes]
        cuts = device.type == "cpu" and feed.cache is None
        known = [input_of(view, region) for view, region in enumerate(regions) if region is not None]
        self._regions = known if cuts and len(known) == len(recipes) else []
        scaled = all(recipe.decodes_scaled for recipe in self.recipes)
        self._scaled = bool(self._regions) and scaled and feed.decodes_files

    def graph(self) -> list[Node]:
        names = ["window"] * bool(self._regions) + ["scale"] * self._scaled
        image = self.feed.node({name: fn.external_source(name=name) for name in names})
        rendered = [self._rendered(view, image) for view in range(len(self.recipes))]
        return [*rendered, *([image] if self.feed.cache is not None else [])]

    def _rendered(self, view: int, image: Node) -> Node:
        def feed(name: str) -> Node:
            return fn.external_source(name=input_of(view, name))

        recipe = self.recipes[view]
        return recipe.dali_graph(image, None if recipe.uniform else feed("canvas"), feed=feed)

    def planned_inputs(self, plans: Sequence[Plan], sizes: Ints) -> Arrays:
        """Return the inputs of the recipes, and what to decode of each image."""
        inputs = {input_of(view, name): array for view, plan in enumerate(plans) for name, array in plan.inputs.items()}
        if not self._regions:
            return inputs
        regions, part = [inputs[name] for name in self._regions], {}
        if self._scaled:
            # the largest image that a view asks for
            part["scale"] = scales = np.minimum.reduce([choose_scales(region, sizes) for region in regions])
            regions, sizes = [scaled_region(region, scales) for region in regions], decoded_sizes(sizes, scales)
        part["window"], regions = _decoded_window(regions, sizes)
        return {**inputs, **part, **dict(zip(self._regions, regions, strict=True))}

    def jobs(self, groups: list[GroupPlan]) -> list[Job]:
        return [_GraphJob(self, group) for group in groups]

    def on_current_stream(self, images: Tensor, guard: StreamGuard) -> Tensor:
        return guard.wait_for_copy(images)  # DALI's memory


def _decoded_window(regions: Sequence[NDArray[Any]], sizes: Ints) -> tuple[NDArray[Any], list[NDArray[Any]]]:
    """Return the windows to decode in whole pixels, (N, 2, 2): first corner and size (y, x); and the regions in them.

    `regions`: the inputs of Resize of each view; `sizes`: (N, 2) of the images.
    """
    corners = np.concatenate([region[:, :2] for region in regions], axis=1)
    start = np.floor(corners.min(1)).clip(0, sizes - 1)
    end = np.ceil(corners.max(1)).clip(start + 1, sizes)
    moved = [region.copy() for region in regions]
    for region in moved:
        region[:, :2] -= start[:, None]  # exact: floats minus smaller whole numbers
    return np.stack([start, end - start], axis=1).astype(np.int32), moved


def _with_output(recipe: Recipe) -> Recipe:
    """Return a recipe that ends with a Normalize: where there is none, one that keeps the files' own values."""
    if "output" in recipe.stages:
        return recipe
    plain = Normalize(dtype="uint8") if recipe.pixels.is_rgb8 else Normalize(scale=1)
    return make_recipe([*recipe.ops, plain], recipe.pixels)


class _GraphJob:
    def __init__(self, renderer: GraphRenderer, group: GroupPlan) -> None:
        self.renderer, self.group = renderer, group
        self._in_memory: list[Tensor] = []  # DALI copies them while the job is in flight

    @property
    def decoded(self) -> Ints:
        indices = self.group.indices
        return np.asarray(indices[self.renderer.feed.missing(indices)])

    def start(self) -> dict[str, Any]:
        feed, indices = self.renderer.feed, self.group.indices
        self._in_memory = feed.images_in_memory(indices)
        inputs = {**feed.inputs(indices, self._in_memory), **self.group.inputs}
        for view, recipe in enumerate(self.renderer.recipes):
            if not recipe.uniform:  # images of several sizes are in groups of one batch
                canvas = self.group.batches[0].plan.views[view].canvas
                inputs[input_of(view, "canvas")] = np.full((len(indices), 2), canvas, np.float32)
        return inputs

    def images(self, outputs: list[Any]) -> list[tuple[Tensor, ...]]:
        recipes = self.renderer.recipes
        rendered, decoded = outputs[: len(recipes)], outputs[len(recipes) :]
        self.renderer.feed.release(self._in_memory)
        if decoded:
            self.renderer.feed.keep(self.group.indices, decoded[0])
        views = [to_torch(output.as_tensor(), self.renderer.device) for output in rendered]
        views = [
            images.permute(0, 3, 1, 2) if recipe.channels_last else images
            for images, recipe in zip(views, recipes, strict=True)
        ]
        # `data`: see `batch_targets._split`
        return [tuple(images[batch.images].data for images in views) for batch in self.group.batches]


class KernelRenderer:
    """Renders images with Triton's kernels, after the pipeline that decodes those that are not in the cache."""

    def __init__(self, kernels: Sequence[KernelChain], feed: ImageFeed, device: torch.device) -> None:
        self.kernels, self.feed, self.device = kernels, feed, device

    def graph(self) -> list[Node]:
        return [self.feed.decoded_node()]

    def planned_inputs(self, plans: Sequence[Plan], sizes: Ints) -> Arrays:
        return {
            input_of(view, name): array
            for view, (kernels, plan) in enumerate(zip(self.kernels, plans, strict=True))
            for name, array in kernels.parameters(plan.views, sizes, plan.inputs).items()
        }

    def jobs(self, groups: list[GroupPlan]) -> list[Job]:
        """Copy the parameters of all groups to the device at once: a copy costs more than its bytes."""
        if not groups:
            return []
        lookups = [self.feed.find(group.indices) for group in groups]
        starts = [lookup.starts for lookup in lookups]
        views = [
            kernels.to_device([_inputs_of(view, group.inputs) for group in groups], starts)
            for view, kernels in enumerate(self.kernels)
        ]
        guard, parameters = StreamGuard(self.device), zip(*views, strict=True)
        return [_KernelJob(self, *parts, guard) for parts in zip(groups, lookups, parameters, strict=True)]

    def on_current_stream(self, images: Tensor, guard: StreamGuard) -> Tensor:
        guard.wait(images)
        return images


def _inputs_of(view: int, inputs: Arrays) -> Arrays:
    """Return the inputs of a view, by the names in its recipe."""
    start = input_of(view, "")
    return {name.removeprefix(start): array for name, array in inputs.items() if name.startswith(start)}


class _KernelJob:
    """`parameters`: those of the kernels of each view for all images, on the device; `guard` guards them."""

    def __init__(
        self,
        renderer: KernelRenderer,
        group: GroupPlan,
        lookup: Found,
        parameters: tuple[Tensors, ...],
        guard: StreamGuard,
    ) -> None:
        self.renderer, self.group, self._parameters, self._guard = renderer, group, parameters, guard
        self.decoded: Ints = group.indices[lookup.missing]
        self._on_host: Ints = group.indices[lookup.on_host]
        self._copies: Copies | None = None
        self._frames: list[Tensor] = []

    def start(self) -> dict[str, Any]:
        self._copies = self.renderer.feed.copies(self._on_host)
        self._frames = self.renderer.feed.frames(self.decoded)
        return self.renderer.feed.decoder_inputs(self.decoded)

    def images(self, outputs: list[Any]) -> list[tuple[Tensor, ...]]:
        self._guard.wait(*(tensor for view in self._parameters for tensor in view.values()))
        decoded = self.renderer.feed.decoded_memory(self.decoded, outputs or self._frames)
        copied = self.renderer.feed.copied_memory(self._copies)
        views = [self._rendered(view, decoded, copied) for view in range(len(self._parameters))]
        self.renderer.feed.keep_decoded(self.decoded, decoded)
        return [*zip(*views, strict=True)]

    def _rendered(self, view: int, decoded: Tensor, copied: Tensor) -> list[Tensor]:
        """Render a view of each batch, consecutive batches of one size at once."""
        images: list[Tensor] = []
        for canvas, same_size in groupby(self.group.batches, lambda batch: batch.plan.views[view].canvas):
            slices = [batch.images for batch in same_size]
            together = slice(slices[0].start, slices[-1].stop)
            parameters = {name: tensor[together] for name, tensor in self._parameters[view].items()}
            rendered = self.renderer.kernels[view].render(decoded, copied, parameters, canvas)
            images += torch.unsafe_split_with_sizes(rendered, [own.stop - own.start for own in slices])
        return images
