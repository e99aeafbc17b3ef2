"""Renderers turn planned groups of images into batches of pixels: DALI's operators, or Triton's kernels.

The loader chooses one when it knows the recipe and the device. On the CPU the graph of the recipe contains the CPU
kernels of the ops, so `GraphRenderer` serves both devices.
"""

from __future__ import annotations

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

    def images(self, outputs: list[Any]) -> list[Tensor]:
        """Return the (n, 3, H, W) images of each batch from the outputs of the pipeline."""
        ...


class Renderer(Protocol):
    """Makes jobs of groups. `feed` is where the images come from."""

    feed: ImageFeed

    def graph(self) -> list[Node]:
        """Return the outputs of the pipeline; call it inside one."""
        ...

    def planned_inputs(self, plan: Plan, sizes: Ints) -> Arrays:
        """Return the inputs of `jobs` for each image, by name. `sizes`: (n, 2) of the source images."""
        ...

    def jobs(self, groups: list[GroupPlan]) -> list[Job]:
        """Return the jobs of groups that were planned together."""
        ...

    def on_current_stream(self, images: Tensor, guard: StreamGuard) -> Tensor:
        """Return images of a job for use on the current stream, which may not be the one that made them."""
        ...


def choose_renderer(recipe: Recipe, kernels: KernelChain | None, feed: ImageFeed, device: torch.device) -> Renderer:
    """Return Triton's kernels if they can render the recipe, else the graph of the recipe."""
    return KernelRenderer(kernels, feed, device) if kernels else GraphRenderer(recipe, feed, device)


class GraphRenderer:
    """Runs the recipe inside the pipeline, with DALI's operators and the CPU kernels."""

    def __init__(self, recipe: Recipe, feed: ImageFeed, device: torch.device) -> None:
        has_output = "output" in recipe.stages
        plain = Normalize(dtype="uint8") if recipe.pixels.is_rgb8 else Normalize(scale=1)  # the files' own values
        self.recipe = recipe if has_output else make_recipe([*recipe.ops, plain], recipe.pixels)
        self.feed, self.device = feed, device
        self._region = self.recipe.region_input if device.type == "cpu" and feed.cache is None else None
        self._scaled = self._region is not None and self.recipe.decodes_scaled and feed.decodes_files

    def graph(self) -> list[Node]:
        canvas = None if self.recipe.uniform else fn.external_source(name="canvas")
        names = ["window"] * (self._region is not None) + ["scale"] * self._scaled
        image = self.feed.node({name: fn.external_source(name=name) for name in names})
        return [self.recipe.dali_graph(image, canvas), *([image] if self.feed.cache is not None else [])]

    def planned_inputs(self, plan: Plan, sizes: Ints) -> Arrays:
        """Return the recipe's inputs. On the CPU, without a cache, only what is shown is decoded, which is faster."""
        if self._region is None:
            return plan.inputs
        region, part = plan.inputs[self._region], {}
        if self._scaled:
            part["scale"] = scales = choose_scales(region, sizes)
            region, sizes = scaled_region(region, scales), decoded_sizes(sizes, scales)
        part["window"], region = _decoded_window(region, sizes)
        return {**plan.inputs, **part, self._region: region}

    def jobs(self, groups: list[GroupPlan]) -> list[Job]:
        return [_GraphJob(self, group) for group in groups]

    def on_current_stream(self, images: Tensor, guard: StreamGuard) -> Tensor:
        return guard.wait_for_copy(images)  # DALI's memory


def _decoded_window(region: NDArray[Any], sizes: Ints) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the windows to decode in whole pixels, (N, 2, 2): first corner and size (y, x); and `region` in them.

    `region`: the input of Resize; `sizes`: (N, 2) of the images.
    """
    corners = region[:, :2]
    start = np.floor(corners.min(1)).clip(0, sizes - 1)
    end = np.ceil(corners.max(1)).clip(start + 1, sizes)
    moved = region.copy()
    moved[:, :2] -= start[:, None]
    return np.stack([start, end - start], axis=1).astype(np.int32), moved


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
        if not self.renderer.recipe.uniform:  # images of several sizes are in groups of one batch
            inputs["canvas"] = np.full((len(indices), 2), self.group.batches[0].plan.canvas, np.float32)
        return inputs

    def images(self, outputs: list[Any]) -> list[Tensor]:
        rendered, *decoded = outputs
        self.renderer.feed.release(self._in_memory)
        if decoded:
            self.renderer.feed.keep(self.group.indices, decoded[0])
        images = to_torch(rendered.as_tensor(), self.renderer.device)
        images = images.permute(0, 3, 1, 2) if self.renderer.recipe.channels_last else images
        return [images[batch.images].data for batch in self.group.batches]  # `data`: see `batch_targets._split`


class KernelRenderer:
    """Renders images with Triton's kernels, after the pipeline that decodes those that are not in the cache."""

    def __init__(self, kernels: KernelChain, feed: ImageFeed, device: torch.device) -> None:
        self.kernels, self.feed, self.device = kernels, feed, device

    def graph(self) -> list[Node]:
        return [self.feed.decoded_node()]

    def planned_inputs(self, plan: Plan, sizes: Ints) -> Arrays:
        return self.kernels.parameters(plan.views, sizes, plan.inputs)

    def jobs(self, groups: list[GroupPlan]) -> list[Job]:
        """Copy the parameters of all groups to the device at once: a copy costs more than its bytes."""
        if not groups:
            return []
        lookups = [self.feed.find(group.indices) for group in groups]
        parameters = self.kernels.to_device([group.inputs for group in groups], [lookup.starts for lookup in lookups])
        guard = StreamGuard(self.device)
        return [_KernelJob(self, *parts, guard) for parts in zip(groups, lookups, parameters, strict=True)]

    def on_current_stream(self, images: Tensor, guard: StreamGuard) -> Tensor:
        guard.wait(images)
        return images


class _KernelJob:
    """`parameters`: the kernels' parameters of all images, on the device; `guard` guards them."""

    def __init__(
        self, renderer: KernelRenderer, group: GroupPlan, lookup: Found, parameters: Tensors, guard: StreamGuard
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

    def images(self, outputs: list[Any]) -> list[Tensor]:
        """Render consecutive batches of one size at once."""
        self._guard.wait(*self._parameters.values())
        decoded = self.renderer.feed.decoded_memory(self.decoded, outputs or self._frames)
        copied = self.renderer.feed.copied_memory(self._copies)
        images: list[Tensor] = []
        for canvas, same_size in groupby(self.group.batches, lambda batch: batch.plan.canvas):
            slices = [batch.images for batch in same_size]
            together = slice(slices[0].start, slices[-1].stop)
            parameters = {name: tensor[together] for name, tensor in self._parameters.items()}
            rendered = self.renderer.kernels.render(decoded, copied, parameters, canvas)
            images += torch.unsafe_split_with_sizes(rendered, [own.stop - own.start for own in slices])
        self.renderer.feed.keep_decoded(self.decoded, decoded)
        return images
