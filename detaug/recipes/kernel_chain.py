"""Choose the kernels that render a recipe on a GPU: the fused kernel, and passes for the ops that it does not know."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from detaug.arrays import Arrays, Ints
from detaug.boxes.views import Views
from detaug.errors import InputError
from detaug.gpu.passes import GpuPass, Tensors
from detaug.gpu.streams import to_device
from detaug.ops.color_ops import ColorOp
from detaug.ops.containers import Container, values_of_step
from detaug.ops.mixing import PasteTiles
from detaug.ops.normalize import Normalize
from detaug.ops.op import check_drawn
from detaug.ops.resize import Render
from detaug.pipelines.errors import name_op_in_errors
from detaug.pixel_format import PixelFormat
from detaug.recipes.fused_kernel import KNOWN_OPS, FusedKernel, fuse, known_kind
from detaug.recipes.recipe import PixelStep, Plan, Recipe, draws_from, example_view


def _plain(pixels: PixelFormat) -> Normalize:
    """Return what the last kernel writes if the recipe has no Normalize: the values of the files, channels first."""
    return Normalize(dtype="uint8") if pixels.is_rgb8 else Normalize(scale=1)


def _to_next(pixels: PixelFormat) -> Normalize:
    """Return what a kernel writes if a pass comes after it: the values of the files, channels last."""
    return replace(_plain(pixels), memory_format="channels_last")


@dataclass(frozen=True)
class KernelChain:
    """Renders what a recipe planned, from decoded images to a batch: the fused kernel, then passes over its output.

    Between them images of other bands than 8-bit RGB are float32.
    """

    first: FusedKernel
    passes: tuple[GpuPass, ...]

    @property
    def device(self) -> torch.device:
        """Return the device on which it renders."""
        return self.first.device

    def parameters(self, views: Views, sizes: Ints, inputs: Arrays) -> Arrays:
        """Return its parameters of N images, by name, without the starts of their bytes.

        `sizes` (N, 2): height and width of the sources; `views`, `inputs`: those of `Recipe.plan`.
        """
        parameters = {"tiles": self.first.tile_parameters(views.slot, sizes, inputs)}
        return parameters | _numbered([gpu_pass.parameters(views, inputs) for gpu_pass in self.passes])

    def to_device(self, parameters: Sequence[Arrays], starts: Sequence[Ints]) -> list[Tensors]:
        """Copy the parameters of several groups to the device at once; `starts`: see `FusedKernel.to_device`."""
        tiles = self.first.to_device([group["tiles"] for group in parameters], starts)
        lengths = [len(group) for group in tiles]
        names = [name for name in parameters[0] if name != "tiles"]
        others = {
            name: to_device(np.concatenate([group[name] for group in parameters]), self.device).split_with_sizes(
                lengths
            )
            for name in names
        }
        return [{"tiles": group} | {name: others[name][index] for name in names} for index, group in enumerate(tiles)]

    def render(self, decoded: Tensor, copied: Tensor, parameters: Tensors, canvas: tuple[int, int]) -> Tensor:
        """Return (N, bands, *canvas): the images at the top left, zeros beside them. See `FusedKernel.render`."""
        images = self.first.render(decoded, copied, parameters["tiles"], canvas)
        return _run(self.passes, images, parameters)


def _numbered(parameters: Sequence[Arrays]) -> Arrays:
    """Return the parameters of passes as one dict, as `values_of_step` takes it apart."""
    return {f"{index}.{name}": array for index, of_pass in enumerate(parameters) for name, array in of_pass.items()}


def _run(passes: Sequence[GpuPass], images: Tensor, parameters: Tensors) -> Tensor:
    for index, gpu_pass in enumerate(passes):
        images = gpu_pass.run(images, values_of_step(index, parameters))
    return images


# --------------------------------------------------------------------------------------------- passes


@dataclass(frozen=True)
class _FusedPass:
    """The fused kernel on images that are rendered already: it changes their colors and normalizes them."""

    kernel: FusedKernel

    def parameters(self, views: Views, inputs: Arrays) -> Arrays:
        return {"tiles": self.kernel.tile_parameters(views.slot, views.size.astype(np.int64), inputs)}

    def run(self, images: Tensor, parameters: Tensors) -> Tensor:
        height, width = images.shape[2:]
        return self.kernel.render(images, images, parameters["tiles"], (height, width))


@dataclass(frozen=True)
class _OpPass:
    """The pass of a step's op."""

    step: PixelStep
    own: GpuPass

    def parameters(self, views: Views, inputs: Arrays) -> Arrays:
        own_inputs = {name: inputs[key] for name, key in self.step.inputs.items()}
        with name_op_in_errors(self.step.label, "gpu_pass"):
            return check_drawn(self.own.parameters(views, own_inputs), len(views), "parameters")

    def run(self, images: Tensor, parameters: Tensors) -> Tensor:
        with name_op_in_errors(self.step.label, "gpu_pass"):
            changed = self.own.run(images, parameters)
            if (changed.shape, changed.dtype) != (images.shape, images.dtype):
                raise TypeError(
                    f"run must return images {tuple(images.shape)} {images.dtype}, got {tuple(changed.shape)} "
                    f"{changed.dtype}"
                )
            return changed.contiguous(memory_format=torch.channels_last)


@dataclass(frozen=True)
class _ChosenPass:
    """The passes of one step of a container, for the images that chose it."""

    chosen: str
    """Name of the recipe's input, (N, S)."""
    position: int
    """The step."""
    passes: tuple[GpuPass, ...]

    def parameters(self, views: Views, inputs: Arrays) -> Arrays:
        chosen = inputs[self.chosen][:, self.position] != 0
        return {"chosen": chosen} | _numbered([gpu_pass.parameters(views, inputs) for gpu_pass in self.passes])

    def run(self, images: Tensor, parameters: Tensors) -> Tensor:
        # passes may change images in place
        changed = _run(self.passes, images.clone(memory_format=torch.preserve_format), parameters)
        return torch.where(parameters["chosen"].view(-1, 1, 1, 1), changed, images)


# --------------------------------------------------------------------------------------- which kernels


def chain_for(recipe: Recipe, device: torch.device) -> KernelChain | None:
    """Return the kernels that render all of the recipe on this device, if there are any."""
    chain = chain_of(recipe, device) if device.type == "cuda" else None
    return chain if chain and triton_works(chain, recipe) else None


def chain_of(recipe: Recipe, device: torch.device) -> KernelChain | None:
    """Return the kernels that render all of the recipe, if they can, whatever the device."""
    return _chain_of(recipe.pixel_steps, recipe.pixels, device)


def op_without_kernel(recipe: Recipe, device: torch.device) -> str:
    """Return the name and place of the first op up to which `chain_of` has no kernels."""
    steps = recipe.pixel_steps
    return next(
        step.label for count, step in enumerate(steps, 1) if _chain_of(steps[:count], recipe.pixels, device) is None
    )


def _chain_of(steps: Sequence[PixelStep], pixels: PixelFormat, device: torch.device) -> KernelChain | None:
    first, *others = _segments(steps) or [()]
    if not first or known_kind(first[0]) is not Render:
        return None
    if not others:
        return KernelChain(fuse(first, _plain(pixels), pixels, device), ())
    # the fused kernel comes last in any case: it writes the batch
    *before_last, last = others if known_kind(others[-1][0]) else [*others, ()]
    passes = _passes(before_last, device)
    if passes is None or (last and known_kind(last[0]) is PasteTiles):
        return None
    last_pass = _FusedPass(fuse(last, _plain(pixels), pixels, device))
    return KernelChain(fuse(first, _to_next(pixels), pixels, device), (*passes, last_pass))


def _segments(steps: Sequence[PixelStep]) -> list[tuple[PixelStep, ...]]:
    """Split steps into runs that the fused kernel renders at once, and single steps of other ops."""
    segments: list[tuple[PixelStep, ...]] = []
    for step in steps:
        if segments and _continues(segments[-1][-1], step):
            segments[-1] = (*segments[-1], step)
        else:
            segments.append((step,))
    return segments


def _continues(before: PixelStep, step: PixelStep) -> bool:
    """Return whether the fused kernel renders a step directly after the one before."""
    kinds = [known_kind(before), known_kind(step)]
    places = [KNOWN_OPS.index(kind) for kind in kinds if kind]
    return len(places) == 2 and places[0] < places[1]


def _passes(segments: Sequence[tuple[PixelStep, ...]], device: torch.device) -> tuple[GpuPass, ...] | None:
    """Return the passes of segments after the first one; None if an op has no pass."""
    of_segments = [_passes_of(segment, device) for segment in segments]
    return None if None in of_segments else tuple(gpu_pass for passes in of_segments for gpu_pass in passes or ())


def _passes_of(segment: tuple[PixelStep, ...], device: torch.device) -> tuple[GpuPass, ...] | None:
    step, kind = segment[0], known_kind(segment[0])
    if kind:
        pixels = step.views.pixels
        return (_FusedPass(fuse(segment, _to_next(pixels), pixels, device)),) if kind is ColorOp else None
    if isinstance(step.op, Container) and type(step.op).dali_graph is Container.dali_graph:
        return _passes_of_container(step, step.op, device)
    with name_op_in_errors(step.label, "gpu_pass"):
        own = step.op.gpu_pass(step.views)
    return (_OpPass(step, own),) if own else None


def _passes_of_container(step: PixelStep, container: Container, device: torch.device) -> tuple[GpuPass, ...] | None:
    chosen = []
    for position, index in enumerate(container.sequence):
        inner = PixelStep(container.ops[index], step.label, values_of_step(position, step.inputs), step.views)
        passes = _passes([(inner,)], device)
        if passes is None:
            return None
        chosen.append(_ChosenPass(step.inputs["chosen"], position, passes))
    return tuple(chosen)


# ------------------------------------------------------------------------------------ whether Triton works


_works_on: set[tuple[torch.device, Any]] = set()
_reported: set[tuple[torch.device, type[BaseException]]] = set()


def triton_works(chain: KernelChain, recipe: Recipe) -> bool:
    """Return whether these kernels render an image; without a C compiler Triton cannot build them.

    A failure is tried again by the next loader, since a disk or a memory may be full for a while. It is a warning once
    for each kind of error. Raises InputError for it if DALI's operators do not take the recipe's images on a GPU.
    """
    compiled = chain.device, (*_variant_of(chain.first), *map(_variant, chain.passes))
    if compiled in _works_on:
        return True
    plan = recipe.plan(example_view(), draws_from(np.random.default_rng(0)))
    try:
        _render_example(chain, plan)
    except Exception as error:  # whatever it is, DALI's operators render 8-bit RGB
        if not recipe.pixels.is_rgb8:
            raise InputError(
                f"Triton does not work here ({error}), and images of {recipe.pixels} need it on a GPU: {_REMEDY}; or "
                'give the loader device="cpu", and move its batches with batch.to("cuda")'
            ) from error
        _warn_once(chain.device, error)
        return False
    _works_on.add(compiled)
    return True


def _variant(gpu_pass: GpuPass) -> tuple[Any, ...]:
    """Return what decides which kernels are compiled for a pass: its class, its op's class and its inner passes."""
    fused, step, passes = (
        getattr(gpu_pass, "kernel", None),
        getattr(gpu_pass, "step", None),
        getattr(gpu_pass, "passes", ()),
    )
    return type(gpu_pass), fused and _variant_of(fused), step and type(step.op), *map(_variant, passes)


def _variant_of(kernel: FusedKernel) -> tuple[Any, ...]:
    return kernel.view, kernel.colors, kernel.normalize.torch_dtype, kernel.pixels.is_rgb8, kernel.pixels.count


def _render_example(chain: KernelChain, plan: Plan) -> None:
    size = plan.views.source_bounds[:, 1, ::-1].astype(np.int64)
    parameters = chain.parameters(plan.views, size, plan.inputs)
    (on_gpu,) = chain.to_device([parameters], [np.zeros(1, np.int64)])
    pixels = chain.first.pixels
    dtype = getattr(torch, pixels.image_dtype)
    values = torch.zeros(pixels.count * int(size.prod()), dtype=dtype, device=chain.device)
    height, width = plan.views.size[0].astype(int).tolist()
    chain.render(values, values, on_gpu, (height, width))


def _warn_once(device: torch.device, error: Exception) -> None:
    kind = type(error.__cause__ or error)  # an OpError names the op of any error
    if (device, kind) in _reported:
        return
    _reported.add((device, kind))
    warnings.warn(
        f"DALI's operators render, which is slower, because Triton does not work here ({error}); {_REMEDY}; the next "
        "loader tries it again",
        stacklevel=3,
    )


_REMEDY = (
    "it needs a C compiler and Python's headers (gcc and python3-dev, as Debian and Ubuntu call them), and room for "
    "its cache"
)
