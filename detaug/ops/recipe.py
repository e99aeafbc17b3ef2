"""A recipe: ops in an order that works, planned with NumPy for many images and run as one DALI graph."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from nvidia.dali import fn

from detaug.boxes.views import Views, whole_images
from detaug.converters.findings.errors import InputError
from detaug.ops.cpu_kernels import apply_kernels
from detaug.ops.op import Arrays, Node, Nodes, Op


class PixelStep(NamedTuple):
    """An op of a recipe that changes pixels."""

    op: Op
    inputs: dict[str, str]
    """For each name that the op plans, the name of the recipe's input."""
    views: Views
    """One example view before the op, for what is the same in every batch, such as `fill`."""


class _FedStep(NamedTuple):
    """A pixel step, whose inputs are nodes of a DALI graph."""

    op: Op
    inputs: Nodes
    views: Views


@dataclass(frozen=True)
class Recipe:
    """Ops in an order that works: geometry, Resize, pixels, Normalize."""

    ops: tuple[Op, ...]

    def __post_init__(self) -> None:
        stage = ""
        for op in self.ops:
            if not isinstance(op, Op):
                raise TypeError(f"a recipe is made of ops, such as da.Resize((300, 300)); got {op!r}")
            _check_order(op, stage)
            stage = op.stage
            if op.mixes and not self.uniform:
                raise InputError(f"{op!r} needs images of one size: give Resize (height, width)")
        fills = {fill for op in self.ops for fill in op.fills}
        if len(fills) > 1:
            raise InputError(f"all fills of a recipe must be the same, since it is filled once; got {sorted(fills)}")

    @cached_property
    def steps(self) -> tuple[tuple[Op, int], ...]:
        """Return the ops and their second parts in running order, each with the index of the step that draws.

        A second part (`Op.after_resize`) runs directly after Resize, with what its op drew.
        """
        steps: list[tuple[Op, int]] = []
        second_parts: list[tuple[Op, int]] = []
        for op in self.ops:
            if op.after_resize:
                second_parts.append((op.after_resize, len(steps)))
            steps.append((op, len(steps)))
            if op.stage == "render":
                steps += second_parts
        return tuple(steps)

    def plan(self, views: Views, rng: np.random.Generator, drawn: Sequence[Arrays] | None = None) -> Plan:
        """Plan all ops for these images, with numbers from `rng`, or with those in `drawn`, of an earlier plan."""
        *_, plan = self.plan_by_op(views, rng, drawn)
        assert plan
        return plan

    def plan_by_op(
        self, views: Views, rng: np.random.Generator, drawn: Sequence[Arrays] | None = None
    ) -> Iterator[Plan | None]:
        """Plan one op at a time, as `plan` does: yield None after each op, then the plan."""
        draws: list[Arrays] = []
        inputs: Arrays = {}
        for step, (op, drawn_by) in enumerate(self.steps):
            if drawn is not None:
                draws.append(drawn[step])
            else:
                draws.append(op.draw_for(views, rng) if drawn_by == step else draws[drawn_by])
            views, planned = op.plan(views, draws[-1])
            _check_overhang(op, views)
            inputs |= {f"{step}.{name}": _as_input(array) for name, array in planned.items()}
            yield None
        yield Plan(views, inputs, tuple(draws))

    def dali_graph(self, image: Node, canvas: Node | None = None) -> Node:
        """Return the image after all ops: (H, W, 3), or (3, H, W) after Normalize.

        `canvas`: (height, width) to which Normalize, as the last op, pads with zeros at the right and the bottom.
        """
        steps = [_FedStep(op, _external_sources(inputs), views) for op, inputs, views in self.pixel_steps]
        if canvas is not None:
            steps[-1].inputs["canvas"] = canvas
        on_cpu = image.device == "cpu"
        for with_kernels, group in groupby(steps, lambda step: on_cpu and step.op.cpu_kernel(step.views) is not None):
            image = (_apply_cpu_kernels if with_kernels else _apply_dali_graphs)(image, list(group))
        return image

    @cached_property
    def pixel_steps(self) -> tuple[PixelStep, ...]:
        """Return the steps that change pixels."""
        views, rng = _example_view(), np.random.default_rng(0)
        draws: list[Arrays] = []
        steps = []
        for at, (op, drawn_by) in enumerate(self.steps):
            draws.append(op.draw_for(views, rng) if drawn_by == at else draws[drawn_by])
            after, planned = op.plan(views, draws[-1])
            steps.append(PixelStep(op, {name: f"{at}.{name}" for name in planned}, views))
            views = after
        return tuple(step for step in steps if step.op.stage != "view" and _changes_pixels(step.op))

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
        return all(op.uniform for op in self.ops)

    @property
    def one_size(self) -> bool:
        """Return whether the images of all batches come out in one size."""
        return self.uniform and all(op.one_size for op in self.ops)


@dataclass(frozen=True)
class Plan:
    """What a recipe does to N images."""

    views: Views
    """The views after all ops."""
    inputs: Arrays
    """The inputs of the graph that `Recipe.dali_graph` makes, by name."""
    drawn: tuple[Arrays, ...]
    """For each step of the recipe, the random numbers that it drew."""


def make_recipe(ops: Iterable[Op]) -> Recipe:
    """Return a recipe whose images make a batch: it has a Resize. Raises InputError for an order that cannot work."""
    if isinstance(ops, str) or not isinstance(ops, Iterable):
        raise TypeError(f"a recipe is a list of ops, such as da.presets.ssd300(), got {ops!r}")
    recipe = Recipe(tuple(ops))
    if "render" not in recipe.stages:
        raise InputError(f"the recipe needs a Resize, so that its images make a batch; got {_names(recipe.ops)}")
    return recipe


def _names(ops: Iterable[Op]) -> str:
    return ", ".join(type(op).__name__ for op in ops) or "no ops"


def _changes_pixels(op: Op) -> bool:
    """Return False for ops that only drop boxes."""
    return type(op).dali_graph is not Op.dali_graph or type(op).cpu_kernel is not Op.cpu_kernel


def _external_sources(inputs: dict[str, str]) -> Nodes:
    return {name: fn.external_source(name=input_name) for name, input_name in inputs.items()}


def _apply_dali_graphs(image: Node, steps: list[_FedStep]) -> Node:
    for op, inputs, views in steps:
        image = op.dali_graph(image, inputs, views)
    return image


def _apply_cpu_kernels(image: Node, steps: list[_FedStep]) -> Node:
    """Run all kernels in one node: each further node writes the image to memory, which costs as much as an op."""
    kernels = [(kernel, inputs) for op, inputs, views in steps if (kernel := op.cpu_kernel(views))]
    last = steps[-1].op
    return apply_kernels(image, kernels, last.output_layout, as_is=last.stage == "output")


def _check_order(op: Op, stage: str) -> None:
    """Raise InputError if `op` cannot stand after an op of this stage."""
    if stage == "output":
        raise InputError(f"{op!r} comes after Normalize, which must be the last op: put it earlier in the recipe")
    if op.stage in ("view", "render") and stage in ("render", "pixels"):
        raise InputError(f"{op!r} moves the view and must come before Resize: put it earlier, or only once")
    if op.stage in ("pixels", "output") and stage in ("", "view"):
        raise InputError(f"{op!r} changes pixels and must come after Resize: put it later in the recipe")


def _check_overhang(op: Op, views: Views) -> None:
    """Raise InputError for a view beyond the image without a fill: DALI would end the process."""
    if op.stage == "view" and views.fill is None and views.overhang() > 0.01:
        raise InputError(f"{op!r} looks outside of the image: its move must give the views a fill, RGB 0..255")


def _example_view() -> Views:
    return whole_images(np.array([[[0.25, 0.25, 0.75, 0.75]]]), np.ones((1, 1), np.int64), np.full((1, 2), 64.0))


def _as_input(array: NDArray[Any]) -> NDArray[Any]:
    """Return the array as DALI takes it: contiguous, with numbers of 4 bytes."""
    return np.ascontiguousarray(array, {"f": "f4", "u": "u4"}.get(array.dtype.kind, "i4"))
