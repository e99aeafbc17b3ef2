"""A recipe: ops in an order that works, planned and painted together."""

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
from detaug.ops.cpu_kernels import painted
from detaug.ops.op import Arrays, Node, Nodes, Op


class PixelStep(NamedTuple):
    """An op that paints, in its place in a recipe."""

    op: Op
    inputs: dict[str, str]
    """By the names of what it plans, those of the recipe's inputs."""
    views: Views
    """One made-up view before it, for what is the same in every batch, such as `fill`."""


@dataclass(frozen=True)
class Recipe:
    """Ops in an order that works: geometry, Resize, pixels, Normalize."""

    ops: tuple[Op, ...]

    def __post_init__(self) -> None:
        before = ""
        for op in self.ops:
            if not isinstance(op, Op):
                raise TypeError(f"a recipe is made of ops, such as da.Resize((300, 300)); got {op!r}")
            _check_place(op, before)
            before = op.stage
            if op.mixes and not self.uniform:
                raise ValueError(f"{op!r} needs images of one size: give Resize (height, width)")
        fills = {fill for op in self.ops for fill in op.fills}
        if len(fills) > 1:
            raise ValueError(f"all fills of a recipe must be the same, since it is filled once; got {sorted(fills)}")

    @cached_property
    def steps(self) -> tuple[tuple[Op, int], ...]:
        """The ops with their second parts in place, and for each the position of the step whose draw it uses."""
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
        """What all ops do to these images, with the numbers `drawn` before, or new ones from `rng`."""
        *_, plan = self.plan_by_op(views, rng, drawn)
        assert plan
        return plan

    def plan_by_op(
        self, views: Views, rng: np.random.Generator, drawn: Sequence[Arrays] | None = None
    ) -> Iterator[Plan | None]:
        """The same, one op after the other: None after each, and the plan at the end."""
        draws: list[Arrays] = []
        inputs: Arrays = {}
        for at, (op, drawn_by) in enumerate(self.steps):
            if drawn is not None:
                draws.append(drawn[at])
            else:
                draws.append(op.draw_for(views, rng) if drawn_by == at else draws[drawn_by])
            views, planned = op.plan(views, draws[-1])
            _check_views(op, views)
            inputs |= {f"{at}.{name}": _as_input(array) for name, array in planned.items()}
            yield None
        yield Plan(views, inputs, tuple(draws))

    def dali_graph(self, image: Node, canvas: Node | None = None) -> Node:
        """The image after all ops: (H, W, 3), or (3, H, W) after Normalize.

        `canvas`: (height, width) to which Normalize, then the last op, pads with zeros, at the right and the bottom.
        """
        on_cpu = image.device == "cpu"
        steps = [(op, _fed(inputs), views) for op, inputs, views in self.pixel_steps]
        if canvas is not None:
            steps[-1][1]["canvas"] = canvas
        for together, some in groupby(steps, lambda step: on_cpu and step[0].cpu_kernel(step[2]) is not None):
            paint = _painted_together if together else _painted
            image = paint(image, list(some))
        return image

    @cached_property
    def pixel_steps(self) -> tuple[PixelStep, ...]:
        """The steps that paint."""
        views, rng = _one_view(), np.random.default_rng(0)
        draws: list[Arrays] = []
        steps = []
        for at, (op, drawn_by) in enumerate(self.steps):
            draws.append(op.draw_for(views, rng) if drawn_by == at else draws[drawn_by])
            after, planned = op.plan(views, draws[-1])
            steps.append(PixelStep(op, {name: f"{at}.{name}" for name in planned}, views))
            views = after
        return tuple(step for step in steps if step.op.stage != "view" and _paints(step.op))

    @cached_property
    def stages(self) -> tuple[str, ...]:
        """The ops' stages."""
        return tuple(op.stage for op in self.ops)

    @property
    def channels_last(self) -> bool:
        """Does Normalize leave images (H, W, 3), which the loader yields as (N, 3, H, W) all the same?"""
        return any(getattr(op, "channels_last", False) for op in self.ops)

    @property
    def uniform(self) -> bool:
        """Do all images of a batch come out in one size?"""
        return all(op.uniform for op in self.ops)

    @property
    def one_size(self) -> bool:
        """Do the images of all batches come out in one size?"""
        return self.uniform and all(op.one_size for op in self.ops)


@dataclass(frozen=True)
class Plan:
    """What a recipe does to N images."""

    views: Views
    """The views after all ops."""
    inputs: Arrays
    """All that `Recipe.dali_graph` must be fed, by input name."""
    drawn: tuple[Arrays, ...]
    """For each step of the recipe, the random numbers it drew."""


def _paints(op: Op) -> bool:
    """Not so an op that only drops boxes."""
    return type(op).dali_graph is not Op.dali_graph or type(op).cpu_kernel is not Op.cpu_kernel


def _fed(inputs: dict[str, str]) -> Nodes:
    return {name: fn.external_source(name=input_name) for name, input_name in inputs.items()}


def _painted(image: Node, steps: list[tuple[Op, Nodes, Views]]) -> Node:
    for op, nodes, views in steps:
        image = op.dali_graph(image, nodes, views)
    return image


def _painted_together(image: Node, steps: list[tuple[Op, Nodes, Views]]) -> Node:
    """On the CPU, in one go: a pass over the pixels, or putting them into memory once more, costs as much as an op."""
    painters = [(painter, nodes) for op, nodes, views in steps if (painter := op.cpu_kernel(views))]
    last = steps[-1][0]
    return painted(image, painters, last.output_layout, as_is=last.stage == "output")


def _check_place(op: Op, before: str) -> None:
    """May `op` stand after an op of stage `before`?"""
    if before == "output":
        raise ValueError(f"{op!r} comes after Normalize, which must be the last op: put it earlier in the recipe")
    if op.stage in ("view", "render") and before in ("render", "pixels"):
        raise ValueError(f"{op!r} moves the view and must come before Resize: put it earlier in the recipe, or once")
    if op.stage in ("pixels", "output") and before in ("", "view"):
        raise ValueError(f"{op!r} changes pixels and must come after Resize: put it later in the recipe")


def _check_views(op: Op, views: Views) -> None:
    """DALI ends the process when it is to resample what is not there."""
    if op.stage == "view" and views.fill is None and views.overhang() > 0.01:
        raise ValueError(f"{op!r} looks outside of the image: its move must give the views a fill, RGB 0..255")


def make_recipe(ops: Iterable[Op]) -> Recipe:
    """A recipe whose images make a batch: it must have a Resize. Raises ValueError for an order that cannot work."""
    if isinstance(ops, str) or not isinstance(ops, Iterable):
        raise TypeError(f"a recipe is a list of ops, such as da.presets.ssd300(), got {ops!r}")
    recipe = Recipe(tuple(ops))
    if "render" not in recipe.stages:
        raise ValueError(f"the recipe needs a Resize, so that its images make a batch; got {list(recipe.ops)}")
    return recipe


def _one_view() -> Views:
    return whole_images(np.array([[[0.25, 0.25, 0.75, 0.75]]]), np.ones((1, 1), np.int64), np.full((1, 2), 64.0))


def _as_input(array: NDArray[Any]) -> NDArray[Any]:
    """What DALI takes: contiguous, and numbers of 4 bytes."""
    return np.ascontiguousarray(array, {"f": "f4", "u": "u4"}.get(array.dtype.kind, "i4"))
