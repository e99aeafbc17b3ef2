"""A recipe: ops in an order that works, planned with NumPy for many images and run as one DALI graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby, takewhile
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from nvidia.dali import fn
from torch import Tensor

from detaug.arrays import Arrays
from detaug.boxes.views import Views, whole_images
from detaug.errors import InputError
from detaug.ops.auto_augment import AutoAugment
from detaug.ops.cpu_kernels import CpuKernel, apply_kernels
from detaug.ops.filters import as_bytes
from detaug.ops.normalize import Normalize
from detaug.ops.op import Op, check_drawn, label_op, ordinal, select
from detaug.ops.optical_flow import OpticalFlow
from detaug.ops.resize import OwnSize, Render, SizeOnly, first_of_batch
from detaug.pipelines.errors import name_op_in_errors
from detaug.pipelines.graph import Node, Nodes, name_nodes
from detaug.pixel_format import RGB8, PixelFormat
from detaug.recipes.stages import listed


def external_source(name: str) -> Node:
    """Return the node of an input that is fed by hand."""
    return fn.external_source(name=name)


class Draws(Protocol):
    """Where the random numbers of a plan come from."""

    def __call__(self, step: int, op: Op, views: Views) -> Arrays:
        """Return what the op of a step of the recipe draws for these images."""
        ...


def draws_from(rng: np.random.Generator) -> Draws:
    """Return draws that take the numbers of all ops, one after the other, from `rng`."""

    def draw(step: int, op: Op, views: Views) -> Arrays:
        drawn = check_drawn(op.draw(rng, len(views)), len(views))
        return select(first_of_batch(views), drawn) if op.one_draw_a_batch else drawn

    return draw


def draw_for_frames(op: Op, drawn: Arrays, frames: int) -> Arrays:
    """Repeat what was drawn for clips for each of their frames; only noise differs among the frames of a clip."""
    repeated = {name: np.repeat(array, frames, axis=0) for name, array in drawn.items()}
    for name in op.noise_seeds:
        seeds = repeated[name]
        frame = np.resize(np.arange(frames, dtype=seeds.dtype), len(seeds))
        repeated[name] = seeds + frame.reshape(-1, *[1] * (seeds.ndim - 1))
    return repeated


class PixelStep(NamedTuple):
    """An op of a recipe that changes pixels."""

    op: Op
    label: str
    """Its name and place in errors."""
    inputs: dict[str, str]
    """For each name that the op plans, the name of the recipe's input."""
    views: Views
    """One example view before the op, for what is the same in every batch, such as `fill`."""


class _FedStep(NamedTuple):
    """A pixel step, whose inputs are nodes of a DALI graph."""

    op: Op
    label: str
    inputs: Nodes
    views: Views


@dataclass(frozen=True)
class Recipe:
    """Ops in an order that works: geometry, Resize, flips and crops of the resized image, pixels, Normalize."""

    ops: tuple[Op, ...]
    pixels: PixelFormat = RGB8
    """Of the images that it gets."""

    def __post_init__(self) -> None:
        if self.pixels.scale is None and not self.pixels.is_rgb8:
            scale = next((op.scale for op in self.ops if isinstance(op, Normalize)), None)
            object.__setattr__(self, "pixels", replace(self.pixels, scale=scale or self.pixels.white))
        for index, op in enumerate(self.ops):
            if not isinstance(op, Op):
                raise TypeError(f"a recipe is made of ops, such as da.Resize((300, 300)); got {op!r}")
            _check_order(self.ops, index)
            if op.mixes and not self.uniform:
                raise InputError(
                    f"{name_and_place(self.ops, index)} needs images of one size: give Resize (height, width)"
                )
        fills = {fill for op in self.ops for fill in op.fills}
        if len(fills) > 1:
            raise InputError(f"all fills of a recipe must be the same, since it is filled once; got {sorted(fills)}")
        for index, op in enumerate(self.ops):
            op.check_pixels(self.pixels, name_and_place(self.ops, index))

    @cached_property
    def steps(self) -> tuple[tuple[Op, int], ...]:
        """Return the ops and their second parts in running order, each with the index of the step that draws.

        The colors of an AutoAugment change directly after Resize, with what the op drew. If ops move the view after
        Resize, it only sets the size, and the pixels are rendered after them: one resample in any case.
        """
        colors = [(op.color_steps, index) for index, op in enumerate(self.ops) if isinstance(op, AutoAugment)]
        before, after = self._moved_before_rendering
        steps: list[tuple[Op, int]] = [(op, index) for index, op in enumerate(self.ops[:after])]
        if after - before > 1:
            resize = self.ops[before]
            assert isinstance(resize, Render)
            steps[before] = (SizeOnly(resize), before)
            steps.append((OwnSize(), before))
        steps += [(op, index) for op, index in colors if op and after]
        return (*steps, *((op, len(steps) + index) for index, op in enumerate(self.ops[after:])))

    @property
    def _moved_before_rendering(self) -> tuple[int, int]:
        """Return the index of Resize, and of the first op after it that does not move the view; (0, 0) without one."""
        if "render" not in self.stages:
            return 0, 0
        first = self.stages.index("render")
        return first, first + 1 + sum(stage == "view" for stage in self.stages[first:])

    @property
    def mixing_op(self) -> Op | None:
        """Return the first op that combines images of a batch, or None. Its batches need at least 2 images."""
        return next((op for op in self.ops if op.mixes), None)

    def check_masks(self, there: bool, remedy: str) -> None:
        """Raise InputError if an op needs masks, and they are not `there`."""
        for index, op in enumerate(self.ops):
            if op.uses_masks and not there:
                raise InputError(f"{name_and_place(self.ops, index)} needs masks: {remedy}")

    @property
    def optical_flow(self) -> OpticalFlow | None:
        """Return the op that asks for the motion of clips, or None."""
        return next((op for op in self.ops if isinstance(op, OpticalFlow)), None)

    def plan(self, views: Views, draws: Draws, drawn: Sequence[Arrays] | None = None) -> Plan:
        """Plan all ops for these images, with numbers from `draws`, or with those in `drawn`, of an earlier plan."""
        if drawn is not None and [arrays.keys() for arrays in drawn] != self._drawn_names:
            raise InputError("the params are those of another recipe: replay with the ops that drew them")
        used: list[Arrays] = []
        inputs: Arrays = {}
        for index in range(len(self.steps)):
            used.append(self._draw(index, views, draws, used) if drawn is None else drawn[index])
            views, planned = self._plan_step(index, views, used[-1])
            _check_overhang(self.labels[index], self.steps[index][0], views)
            inputs |= {f"{index}.{name}": array for name, array in planned.items()}
        return Plan(views, inputs, tuple(used))

    def _draw(self, index: int, views: Views, draws: Draws, before: list[Arrays]) -> Arrays:
        """Return what the op of a step draws; for a second part, what its op drew."""
        op, drawn_by = self.steps[index]
        if drawn_by != index:
            return before[drawn_by]
        first = views.first_frames()
        with name_op_in_errors(self.labels[index], "draw"):
            drawn = draws(index, op, first)
        with name_op_in_errors(self.labels[index], "adapt_draw"):
            drawn = check_drawn(op.adapt_draw(first, drawn), len(first), "adapt_draw")
        return drawn if views.frames == 1 else draw_for_frames(op, drawn, views.frames)

    @cached_property
    def _drawn_names(self) -> list[Set[str]]:
        """Return the names of what each step draws."""
        return [arrays.keys() for arrays in self.plan(example_view(), draws_from(np.random.default_rng(0))).drawn]

    def _plan_step(self, index: int, views: Views, drawn: Arrays) -> tuple[Views, Arrays]:
        """Return the views after the op of a step, and its inputs."""
        op, _ = self.steps[index]
        with name_op_in_errors(self.labels[index], "move" if op.stage == "view" else "plan"):
            views, planned = op.plan(views, drawn)
            _check_rows(views)
            return views, {name: _as_input(array) for name, array in planned.items()}

    def dali_graph(
        self, image: Node, canvas: Node | None = None, *, feed: Callable[[str], Node] = external_source
    ) -> Node:
        """Return the image after all ops: (H, W, 3) uint8, or (3, H, W) after Normalize; of other bands float32.

        `canvas`: (height, width) to which Normalize, as the last op, pads with zeros at the right and the bottom.
        `feed`: a function that returns the node of an input by its name, see `input_names`.
        """
        steps = [
            _FedStep(op, label, {name: feed(key) for name, key in inputs.items()}, views)
            for op, label, inputs, views in self.pixel_steps
        ]
        if canvas is not None:
            steps[-1].inputs["canvas"] = canvas
        on_cpu = image.device == "cpu"
        for with_kernels, group in groupby(steps, lambda step: on_cpu and _cpu_kernel(step) is not None):
            image = (_apply_cpu_kernels if with_kernels else _apply_dali_graphs)(image, list(group))
        return image if "output" in self.stages or not self.pixels.is_rgb8 else as_bytes(image)

    @cached_property
    def pixel_steps(self) -> tuple[PixelStep, ...]:
        """Return the steps that change pixels."""
        views, draws = replace(example_view(), pixels=self.pixels), draws_from(np.random.default_rng(0))
        drawn: list[Arrays] = []
        steps = []
        for index, (op, _) in enumerate(self.steps):
            drawn.append(self._draw(index, views, draws, drawn))
            after, planned = self._plan_step(index, views, drawn[-1])
            steps.append(PixelStep(op, self.labels[index], {name: f"{index}.{name}" for name in planned}, views))
            views = after
        return tuple(step for step in steps if step.op.stage != "view" and _changes_pixels(step.op))

    @cached_property
    def cpu_kernels(self) -> tuple[tuple[CpuKernel, dict[str, str]], ...] | None:
        """Return the CPU kernel of each pixel step with the names of its inputs; None if a step has no kernel."""
        kernels = [(_cpu_kernel(step), step.inputs) for step in self.pixel_steps]
        known = tuple((kernel, inputs) for kernel, inputs in kernels if kernel)
        return known if len(known) == len(kernels) else None

    @property
    def region_input(self) -> str | None:
        """Return the name of the input with the regions of the source that Resize shows, if it shows no more."""
        first = self.pixel_steps[0] if self.pixel_steps else None
        if first is None or type(first.op).cpu_kernel is not Render.cpu_kernel:
            return None
        return first.inputs.get("region")

    @property
    def decodes_scaled(self) -> bool:
        """Return whether a decoder may leave out pixels that Resize does not need."""
        return any(isinstance(op, Render) and op.decode == "scaled" for op in self.ops)

    @property
    def input_names(self) -> tuple[str, ...]:
        """Return the names of the graph's inputs, which are keys of `Plan.inputs`."""
        return tuple(name for step in self.pixel_steps for name in step.inputs.values())

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """Return the name and place of the op of each step, for errors; a second part has those of its op."""
        # in the order of the ops
        drawing = [index for index, (_, drawn_by) in enumerate(self.steps) if drawn_by == index]
        indices = [drawing.index(drawn_by) for _, drawn_by in self.steps]
        return tuple(label_op(self.ops[index], place_of(self.ops, index)) for index in indices)

    @cached_property
    def stages(self) -> tuple[str, ...]:
        """Return the stages of the ops."""
        return tuple(op.stage for op in self.ops)

    @property
    def channels_last(self) -> bool:
        """Return whether Normalize leaves images (H, W, 3); the loader's batches are (N, 3, H, W) in any case."""
        return any(getattr(op, "channels_last", False) for op in self.ops)

    @property
    def uniform(self) -> bool:
        """Return whether all images of a batch come out in one size."""
        return self._is_fixed([op.uniform for op in self.ops])

    @property
    def one_size(self) -> bool:
        """Return whether the images of all batches come out in one size."""
        return self._is_fixed([op.uniform and op.one_size for op in self.ops])

    def _is_fixed(self, sizes: list[bool]) -> bool:
        """Return whether the size is fixed after the last op that sets it. `sizes`: whether it is, for each op."""
        last = max(
            (index for index, op in enumerate(self.ops) if op.stage == "view" and op.size_after == "fixed"), default=0
        )
        return all(sizes[last:])


@dataclass(frozen=True)
class Plan:
    """What a recipe does to N images."""

    views: Views
    """The views after all ops."""
    inputs: Arrays
    """The inputs of the graph that `Recipe.dali_graph` makes, by name."""
    drawn: tuple[Arrays, ...]
    """For each step of the recipe, the random numbers that it drew."""


def make_recipe(ops: Iterable[Op], pixels: PixelFormat = RGB8) -> Recipe:
    """Return a recipe whose images make a batch: it has a Resize.

    `pixels`: of the images that it gets. Raises InputError for an order that cannot work, and for ops that cannot
    change such images.
    """
    recipe = Recipe(listed(ops), pixels)
    if "render" not in recipe.stages:
        names = ", ".join(type(op).__name__ for op in recipe.ops) or "no ops"
        raise InputError(f"the recipe needs a Resize, so that its images make a batch; got {names}")
    return recipe


def make_rendering_recipe(ops: Iterable[Op]) -> Recipe:
    """Return a recipe that renders: without a Resize, each image keeps the size of its view."""
    ops = listed(ops)
    if any(isinstance(op, OpticalFlow) for op in ops):
        raise InputError("OpticalFlow needs a Loader of clips on a GPU: leave it out here")
    if any(op.stage == "render" for op in ops if isinstance(op, Op)):
        return Recipe(ops)
    count = sum(1 for _ in takewhile(lambda op: isinstance(op, Op) and op.stage == "view", ops))
    return Recipe((*ops[:count], OwnSize(), *ops[count:]))


def _changes_pixels(op: Op) -> bool:
    """Return False for ops that only drop boxes."""
    return type(op).dali_graph is not Op.dali_graph or type(op).cpu_kernel is not Op.cpu_kernel


def _apply_dali_graphs(image: Node, steps: list[_FedStep]) -> Node:
    for op, label, inputs, views in steps:
        if type(op).dali_graph is Op.dali_graph:  # it would leave the image as it is
            raise InputError(f"{label} has a cpu_kernel, but no dali_graph, which DALI needs to render here")
        image = name_nodes(label, op.dali_graph)(image, inputs, views)
    return image


def _apply_cpu_kernels(image: Node, steps: list[_FedStep]) -> Node:
    """Run all kernels in one node: each further node writes the image to memory, which costs as much as an op."""
    kernels = [(kernel, step.inputs) for step in steps if (kernel := _cpu_kernel(step))]
    last = steps[-1].op
    as_is = last.stage == "output" or not steps[-1].views.pixels.is_rgb8
    return apply_kernels(image, kernels, last.output_layout, as_is=as_is)


def _cpu_kernel(step: PixelStep | _FedStep) -> CpuKernel | None:
    """Return the CPU kernel of a step, if it has one. Its errors name the op."""
    with name_op_in_errors(step.label, "cpu_kernel"):
        kernel = step.op.cpu_kernel(step.views)

    def run(image: Tensor, **inputs: Any) -> Tensor:
        assert kernel
        with name_op_in_errors(step.label, "cpu_kernel"):
            changed = kernel(image, **inputs)
            if not isinstance(changed, Tensor):
                raise TypeError(f"the kernel must return the image, got {type(changed).__name__}")
            return changed

    return run if kernel else None


def name_and_place(ops: Sequence[Op], index: int) -> str:
    """Return "RandomCrop (2nd)" for the op at index 1."""
    return f"{type(ops[index]).__name__} ({ordinal(place_of(ops, index) + 1)})"


def place_of(ops: Sequence[Op], index: int) -> int:
    """Return the index of an op among those that the user wrote: not `OwnSize`, see `make_rendering_recipe`."""
    return index - sum(isinstance(op, OwnSize) for op in ops[:index])


def _check_rows(views: Views) -> None:
    """Raise InputError where an op changed the number of boxes, and not all that belongs to them."""
    for name, array in views.box_arrays().items():
        if array.shape[:2] != views.labels.shape:
            raise InputError(
                f"{name} of the views must have a row for each of {views.labels.shape} labels, got {array.shape[:2]}: "
                "change the boxes with views.select_boxes, or replace all of boxes, labels, visible and rows"
            )


def _check_order(ops: Sequence[Op], index: int) -> None:
    """Raise InputError if the op at this index cannot stand there."""
    op, name, stages = ops[index], name_and_place(ops, index), [other.stage for other in ops]
    if "output" in stages[:index]:
        last = name_and_place(ops, stages.index("output"))
        raise InputError(f"{name} comes after {last}, which must be the last op: put it earlier in the recipe")
    if isinstance(op, OpticalFlow) and set(stages[index + 1 :]) - {"output"}:
        raise InputError(f"{name} must be the last op before Normalize: it is computed of the finished frames")
    _check_bends(ops, index)
    if op.stage == "render" and "render" in stages[:index]:
        resize = name_and_place(ops, stages.index("render"))
        raise InputError(f"{name} is one too many after {resize}: a recipe has one Resize")
    if op.stage == "view" and "pixels" in stages[:index]:
        pixels = name_and_place(ops, stages.index("pixels"))
        raise InputError(f"{name} must come before {pixels}: it moves the view, and the pixels are rendered only once")
    if op.stage == "view" and "render" in stages[:index] and op.size_after == "any":
        resize = name_and_place(ops, stages.index("render"))
        rule = "only flips and crops to a fixed size may come after Resize"
        raise InputError(f"{name} must come before {resize}: {rule}")
    if op.stage in ("pixels", "output") and "render" not in stages[:index]:
        if "render" not in stages:
            remedy = "the recipe has none, so put one before it, such as Resize((640, 640))"
            raise InputError(f"{name} must come after a Resize: {remedy}")
        resize = name_and_place(ops, stages.index("render"))
        raise InputError(f"{name} must come after {resize}, since it changes pixels: put it later in the recipe")


def _check_bends(ops: Sequence[Op], index: int) -> None:
    """Raise InputError for an op at this index that cannot come after one that bends the finished image."""
    bending, op = next((position for position, other in enumerate(ops[:index]) if other.bends), None), ops[index]
    if bending is None:
        return
    name, before = name_and_place(ops, index), name_and_place(ops, bending)
    if op.bends:
        raise InputError(
            f"{name} is one too many after {before}: the finished image is bent once; leave one of them out, or give "
            "both to RandomChoice, which runs one of them"
        )
    if op.mixes or op.covers:
        raise InputError(f"{name} must come before {before}, which bends the finished image")


def _check_overhang(label: str, op: Op, views: Views) -> None:
    """Raise InputError for a view beyond the image without a fill: DALI would end the process."""
    if op.stage != "view" or views.fill is not None:
        return
    corner = views.source_corners()
    overhang = np.abs(corner - corner.clip(views.source_bounds[:, :1], views.source_bounds[:, 1:]))  # source pixels
    if overhang.max(initial=0) > 0.01:
        raise InputError(f"{label} looks outside of the image: its move must give the views a fill, RGB 0..255")


def check_size(rendered: Sequence[int], shown: Sequence[int]) -> None:
    """Raise InputError if images (height, width) have another size than their boxes are for."""
    if tuple(rendered) != tuple(shown):
        raise InputError(
            f"a pixel op changed the size of images to {tuple(rendered)}, but their boxes are in {tuple(shown)}: "
            "a pixel op keeps the size; Resize sets it, and a GeometricOp moves boxes too"
        )


def example_view() -> Views:
    """Return the view of one image with a box."""
    return whole_images(np.array([[[0.25, 0.25, 0.75, 0.75]]]), np.ones((1, 1), np.int64), np.full((1, 2), 64.0))


def _as_input(array: NDArray[Any]) -> NDArray[Any]:
    """Return the array as DALI takes it: contiguous, with numbers of 4 bytes."""
    return np.ascontiguousarray(array, {"f": "f4", "u": "u4"}.get(array.dtype.kind, "i4"))
