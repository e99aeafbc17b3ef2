"""What an op is, and what a list of ops is: boxes planned with NumPy, pixels painted, from one draw."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any, ClassVar, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from nvidia.dali import fn

from detaug.on_cpu import Painter, painted
from detaug.views import Views, whole_images

Node: TypeAlias = Any
"""A node of a DALI graph; DALI's own type says no more than this."""

Arrays: TypeAlias = dict[str, NDArray[Any]]
"""By name, arrays whose first axis is the batch: what an op draws, or what DALI is fed."""

Nodes: TypeAlias = dict[str, Node]


class _Then(Protocol):
    def then(self: S, *ops: Op) -> S: ...


S = TypeVar("S", bound=_Then)


class Op:
    """One step of a recipe, in three parts that share one draw. A subclass is a frozen dataclass.

    Derive from GeometricOp or PixelOp, which need one method beside `draw`.

    >>> for op in da.presets.retinanet():
    ...     print(op.stage, op)
    view RandomHorizontalFlip(p=0.5)
    render Resize(size=800, max_size=1333, letterbox=None, fill=(123.0, 117.0, 104.0))
    output Normalize(mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0), dtype='float32', layout='CHW')
    """

    stage: ClassVar[str]
    """Where it stands in a recipe: "view", then "render" (Resize), then "pixels", then "output" (Normalize)."""

    uniform: ClassVar[bool] = True
    """Do all images of a batch have one size after it?"""

    one_size: ClassVar[bool] = True
    """And is it the same for all batches?"""

    mixes: ClassVar[bool] = False
    """Does it put several images of a batch together? Then the batch needs two or more, of one size."""

    layout_after: ClassVar[str] = "HWC"
    """DALI's name of the image's layout after it."""

    def __init_subclass__(cls, **options: Any) -> None:
        """A class that paints in a way of its own does so on the CPU too, if it says nothing else."""
        super().__init_subclass__(**options)
        if "paint" in vars(cls) and "painter" not in vars(cls):
            cls.painter = Op.painter  # type: ignore[method-assign]

    @property
    def fills(self) -> tuple[tuple[float, ...], ...]:
        """The colours, RGB 0..255, that it puts beside images."""
        return ()

    @property
    def after_resize(self) -> PixelOp | None:
        """A second part, that the recipe puts right behind Resize; it plans with the numbers that this op drew."""
        return None

    def draw(self, rng: np.random.Generator, n: int) -> Arrays:
        """The random numbers for n images, by name: a batch, or several planned at once.

        Take them from `rng` only, in `paint` too: DALI's own would depend on the number of pipelines.
        """
        return {}

    def draw_for(self, views: Views, rng: np.random.Generator) -> Arrays:
        """The same, for an op whose draw depends on the boxes, or on the epoch."""
        return self.draw(rng, len(views))

    def plan(self, views: Views, drawn: Arrays) -> tuple[Views, Arrays]:
        """The views after this op, and what `paint` needs to know, by name."""
        raise NotImplementedError(f"{type(self).__name__} must define plan(views, drawn)")

    def painter(self, views: Views) -> Painter | None:
        """How to paint one image on the CPU, where that is faster than DALI's operators; else None.

        `views`: as in `paint`.
        """
        return None

    def paint(self, image: Node, planned: Nodes, views: Views) -> Node:
        """The image after this op. `planned`: what `plan` returned, as DALI nodes.

        `views`: one made-up view before this op, for what is the same in every batch, such as `fill`.
        """
        return image

    def __call__(self, samples: S) -> S:
        """Run at once on `da.batch(...)`."""
        if not hasattr(samples, "then"):
            raise TypeError(f"ops run on da.batch([image], boxes=[...]) or in a Loader, got {type(samples).__name__}")
        return samples.then(self)


class GeometricOp(Op):
    """Moves the views and leaves the pixels to `Resize`.

    A subclass defines `move`, and `draw` if it draws. In `views`, of N images, boxes are (N, M, 4) XYXY relative to the
    view, labels (N, M); where a label is -1 there is no box, or none any more, and `boxes` holds whatever numbers.
    `look` goes to another window of it, `warp` turns it, `clip` cuts boxes off at its border.

    >>> class LeftHalf(da.GeometricOp):
    ...     def move(self, views, drawn):
    ...         start, end = np.zeros((len(views), 2)), np.tile([0.5, 1.0], (len(views), 1))  # x, y in 0..1
    ...         return views.look(start, end).clip()
    >>> samples = da.batch([np.zeros((100, 200, 3), np.uint8)], boxes=[[[80, 10, 120, 50]]])
    >>> print(LeftHalf()(samples).boxes[0])
    [[ 80.  10. 100.  50.]]
    """

    stage = "view"

    @property
    def fills(self) -> tuple[tuple[float, ...], ...]:
        return (tuple(self.fill),) if hasattr(self, "fill") else ()

    def move(self, views: Views, drawn: Arrays) -> Views:
        """The views after this op."""
        raise NotImplementedError(f"{type(self).__name__} must define move(views, drawn)")

    def plan(self, views: Views, drawn: Arrays) -> tuple[Views, Arrays]:
        return self.move(views, drawn), {}


class PixelOp(Op):
    """Changes pixels where they are; the boxes stay. `paint` gets what `draw` returned.

    A subclass defines `paint`, and `draw` if it draws. `image` is a DALI node, (H, W, 3) in 0..255, uint8 or float32.

    >>> class Darker(da.PixelOp):
    ...     def draw(self, rng, n):
    ...         return {"share": rng.uniform(0.2, 0.8, n)}
    ...     def paint(self, image, planned, views):
    ...         return image * planned["share"]
    >>> samples = da.batch([np.full((4, 4, 3), 100, np.uint8)] * 3)
    >>> print([int(image[0, 0, 0]) for image in samples.then(da.Resize((4, 4)), Darker()).images])
    [58, 36, 22]
    """

    stage = "pixels"

    def plan(self, views: Views, drawn: Arrays) -> tuple[Views, Arrays]:
        return views, drawn


class Step(NamedTuple):
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

    def paint(self, image: Node, canvas: Node | None = None) -> Node:
        """The image after all ops: (H, W, 3), or (3, H, W) after Normalize.

        `canvas`: (height, width) to which Normalize, then the last op, pads with zeros, at the right and the bottom.
        """
        on_cpu = image.device == "cpu"
        steps = [(op, _fed(inputs), views) for op, inputs, views in self.painting]
        if canvas is not None:
            steps[-1][1]["canvas"] = canvas
        for together, some in groupby(steps, lambda step: on_cpu and step[0].painter(step[2]) is not None):
            paint = _painted_together if together else _painted
            image = paint(image, list(some))
        return image

    @cached_property
    def painting(self) -> tuple[Step, ...]:
        """The steps that paint."""
        views, rng = _one_view(), np.random.default_rng(0)
        draws: list[Arrays] = []
        steps = []
        for at, (op, drawn_by) in enumerate(self.steps):
            draws.append(op.draw_for(views, rng) if drawn_by == at else draws[drawn_by])
            after, planned = op.plan(views, draws[-1])
            steps.append(Step(op, {name: f"{at}.{name}" for name in planned}, views))
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
    """All that `Recipe.paint` must be fed, by input name."""
    drawn: tuple[Arrays, ...]
    """For each step of the recipe, the random numbers it drew."""


def _paints(op: Op) -> bool:
    """Not so an op that only drops boxes."""
    return type(op).paint is not Op.paint or type(op).painter is not Op.painter


def _fed(inputs: dict[str, str]) -> Nodes:
    return {name: fn.external_source(name=input_name) for name, input_name in inputs.items()}


def _painted(image: Node, steps: list[tuple[Op, Nodes, Views]]) -> Node:
    for op, nodes, views in steps:
        image = op.paint(image, nodes, views)
    return image


def _painted_together(image: Node, steps: list[tuple[Op, Nodes, Views]]) -> Node:
    """On the CPU, in one go: a pass over the pixels, or putting them into memory once more, costs as much as an op."""
    painters = [(painter, nodes) for op, nodes, views in steps if (painter := op.painter(views))]
    last = steps[-1][0]
    return painted(image, painters, last.layout_after, as_is=last.stage == "output")


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
    if op.stage == "view" and views.fill is None and views.beyond() > 0.01:
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
