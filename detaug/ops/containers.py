"""Ops that contain ops: run them with a probability, run one of them, or run them in random order.

An op costs nothing for images that did not draw it. Pixel ops leave the image's type as it is: float32 is rounded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from detaug.arguments import check, check_p, is_numbers
from detaug.arrays import Arrays, Bools, Ints
from detaug.boxes.views import Views, replace_at
from detaug.errors import InputError
from detaug.ops.auto_augment import AutoAugment
from detaug.ops.op import Op, check_drawn, label_op, select
from detaug.pipelines.errors import name_op_in_errors
from detaug.pipelines.graph import Node, Nodes, apply_where, keep_type, name_nodes
from detaug.pixel_format import PixelFormat

T = TypeVar("T")


class Container(Op):
    """Contains ops of one stage. They run as a sequence of steps; a subclass chooses the images of each step."""

    ops: Sequence[Op]

    @property
    def stage(self) -> str:  # type: ignore[override]
        """Return the stage of the ops."""
        return self.ops[0].stage

    @property
    def fills(self) -> tuple[tuple[float, ...], ...]:
        return tuple(fill for op in self.ops for fill in op.fills)

    @property
    def bends(self) -> bool:  # type: ignore[override]
        """Return whether one of the ops does."""
        return any(op.bends for op in self.ops)

    @property
    def flips(self) -> bool:  # type: ignore[override]
        """Return whether one of the ops does."""
        return any(op.flips for op in self.ops)

    @property
    def covers(self) -> bool:  # type: ignore[override]
        """Return whether one of the ops does."""
        return any(op.covers for op in self.ops)

    def check_pixels(self, pixels: PixelFormat, label: str) -> None:
        for index, op in enumerate(self.ops):
            op.check_pixels(pixels, f"{label}: {self._label(index)}")

    @property
    def noise_seeds(self) -> tuple[str, ...]:  # type: ignore[override]
        """Return those of the ops."""
        steps = enumerate(self.sequence)
        return tuple(f"{step}.{name}" for step, index in steps for name in self.ops[index].noise_seeds)

    @property
    def sequence(self) -> tuple[int, ...]:
        """Return the index of the op of each step. An op may be in several steps; each image takes one of them."""
        return tuple(range(len(self.ops)))

    def choose(self, rng: np.random.Generator, n: int) -> Bools:
        """Draw (n, S): whether each image takes each of the S steps."""
        raise NotImplementedError(f"{type(self).__name__} must define choose(rng, n)")

    def draw(self, rng: np.random.Generator, n: int) -> Arrays:
        drawn: Arrays = {"chosen": self.choose(rng, n)}
        for step, index in enumerate(self.sequence):
            with name_op_in_errors(self._label(index), "draw"):
                own = check_drawn(self.ops[index].draw(rng, n), n)
            drawn |= {f"{step}.{name}": array for name, array in own.items()}
        return drawn

    def adapt_draw(self, views: Views, drawn: Arrays) -> Arrays:
        """Adapt the draw of each step to the views before it, for the images that take the step."""
        if all(type(op).adapt_draw is Op.adapt_draw for op in self.ops):
            return drawn
        adapted: Arrays = {"chosen": drawn["chosen"]}
        for step, index in enumerate(self.sequence):
            images = _images_of(drawn["chosen"][:, step])
            own = select(images, values_of_step(step, drawn))
            with name_op_in_errors(self._label(index), "adapt_draw"):
                own = check_drawn(self.ops[index].adapt_draw(views[images], own), len(images), "adapt_draw")
            adapted |= {f"{step}.{name}": _scatter(array, images, len(views)) for name, array in own.items()}
            views, _ = self._plan_step(step, views, adapted)
        return adapted

    def plan(self, views: Views, drawn: Arrays) -> tuple[Views, Arrays]:
        inputs: Arrays = {} if self.stage == "view" else {"chosen": drawn["chosen"]}
        for step in range(len(self.sequence)):
            views, planned = self._plan_step(step, views, drawn)
            inputs |= {f"{step}.{name}": array for name, array in planned.items()}
        return views, inputs

    def _plan_step(self, step: int, views: Views, drawn: Arrays) -> tuple[Views, Arrays]:
        """Return the views after a step, and the inputs of its op for all images."""
        chosen, op = drawn["chosen"][:, step], self.ops[self.sequence[step]]
        images = _images_of(chosen)
        own = select(images, values_of_step(step, drawn))
        with name_op_in_errors(self._label(self.sequence[step]), "move" if op.stage == "view" else "plan"):
            moved, planned = op.plan(views[images], own)
        inputs = {name: _scatter(array, images, len(views)) for name, array in planned.items()}
        return replace_at(views, np.flatnonzero(chosen), moved), inputs

    def _label(self, index: int) -> str:
        return label_op(self.ops[index], index, "in it")

    def constants(self, device: str) -> Nodes:
        """Return the ops' constants, which must be made outside of all branches of the graph."""
        makers = ((step, getattr(self.ops[index], "constants", None)) for step, index in enumerate(self.sequence))
        return {f"{step}.{name}": node for step, make in makers if make for name, node in make(device).items()}

    def dali_graph(self, image: Node, planned: Nodes, views: Views) -> Node:
        if self.stage == "view":
            return image
        planned = self.constants(image.device) | planned
        for step, op_index in enumerate(self.sequence):
            graph = name_nodes(self._label(op_index), self.ops[op_index].dali_graph)
            change = keep_type(lambda image, nodes, graph=graph: graph(image, nodes, views))  # type: ignore[misc]
            image = apply_where(planned["chosen"][step], image, values_of_step(step, planned), change)
        return image


@dataclass(frozen=True)
class RandomApply(Container):
    """Run all of several ops in order, or none of them (torchvision's `RandomApply`).

    Args:
        ops: Either all geometric ops or all pixel ops.
        p: Probability per image.

    >>> samples = da.batch([np.zeros((100, 200, 3), np.uint8)] * 3, boxes=[[[20, 10, 60, 50]]] * 3)
    >>> turn = da.RandomApply([da.RandomHorizontalFlip(p=1), da.RandomVerticalFlip(p=1)], p=0.5)
    >>> for boxes in turn(samples).boxes:
    ...     print(boxes.round().tolist())
    [[20.0, 10.0, 60.0, 50.0]]
    [[140.0, 50.0, 180.0, 90.0]]
    [[140.0, 50.0, 180.0, 90.0]]
    """

    ops: Sequence[Op]
    p: float = 0.5

    def check_arguments(self) -> None:
        _check_ops(self.ops)
        _check_bends(self.ops)
        check_p(self.p)

    def choose(self, rng: np.random.Generator, n: int) -> Bools:
        return np.tile((rng.random(n) < self.p)[:, None], (1, len(self.ops)))


@dataclass(frozen=True)
class RandomChoice(Container):
    """Run one of several ops (torchvision's `RandomChoice`).

    Args:
        ops: Either all geometric ops or all pixel ops.
        probabilities: A weight for each op; None: equal ones.

    >>> samples = da.batch([np.zeros((100, 200, 3), np.uint8)] * 3, boxes=[[[20, 10, 60, 50]]] * 3)
    >>> flip = da.RandomChoice([da.RandomHorizontalFlip(p=1), da.RandomVerticalFlip(p=1)])
    >>> for boxes in flip(samples).boxes:
    ...     print(boxes.round().tolist())
    [[20.0, 50.0, 60.0, 90.0]]
    [[140.0, 10.0, 180.0, 50.0]]
    [[140.0, 10.0, 180.0, 50.0]]
    """

    ops: Sequence[Op]
    probabilities: Sequence[float] | None = None

    def check_arguments(self) -> None:
        _check_ops(self.ops)
        weights = [1.0] * len(self.ops) if self.probabilities is None else self.probabilities
        right = is_numbers(weights, len(self.ops)) and min(weights) >= 0 and sum(weights) > 0
        check("probabilities", self.probabilities, right, f"{len(self.ops)} weights, one for each op, not all 0")

    def choose(self, rng: np.random.Generator, n: int) -> Bools:
        weights = np.array([1.0] * len(self.ops) if self.probabilities is None else self.probabilities, np.float64)
        drawn = rng.choice(len(self.ops), (n, 1), p=weights / weights.sum())
        return np.asarray(drawn == np.arange(len(self.ops)))


@dataclass(frozen=True)
class RandomOrder(Container):
    """Run all of several ops in a random order (torchvision's `RandomOrder`).

    Args:
        ops: Either all geometric ops or all pixel ops.

    >>> samples = da.batch([np.zeros((100, 200, 3), np.uint8)] * 4, boxes=[[[20, 10, 60, 50]]] * 4)
    >>> ops = da.RandomOrder([da.Pad(10), da.CenterCrop((100, 200))])
    >>> for boxes in ops(samples).boxes:  # the last was cropped first
    ...     print(boxes.round().tolist())
    [[20.0, 10.0, 60.0, 50.0]]
    [[20.0, 10.0, 60.0, 50.0]]
    [[20.0, 10.0, 60.0, 50.0]]
    [[30.0, 20.0, 70.0, 60.0]]
    """

    ops: Sequence[Op]

    def check_arguments(self) -> None:
        _check_ops(self.ops)
        _check_bends(self.ops)

    @property
    def sequence(self) -> tuple[int, ...]:
        return tuple(range(len(self.ops))) * len(self.ops)

    def choose(self, rng: np.random.Generator, n: int) -> Bools:
        order = rng.permuted(np.tile(np.arange(len(self.ops)), (n, 1)), axis=1)  # (n, position)
        return np.asarray((order[:, :, None] == np.arange(len(self.ops))).reshape(n, -1))


def _check_ops(ops: Any) -> None:
    several = isinstance(ops, tuple | list) and bool(ops) and all(isinstance(op, Op) for op in ops)
    check("ops", ops, several, "one or more ops")
    kind = {op.stage for op in ops} in ({"view"}, {"pixels"}) and not any(op.mixes for op in ops)
    check("ops", ops, kind, "all geometric ops or all pixel ops, none of which mixes images of the batch")
    check("ops", ops, not any(isinstance(op, AutoAugment) for op in ops), "ops without a second part after Resize")


def _check_bends(ops: Sequence[Op]) -> None:
    """Raise InputError for several ops that all run, of which one bends the image and others bend or cover it."""
    names = [type(op).__name__ for op in ops if op.bends or op.covers]
    if len(names) > 1 and any(op.bends for op in ops):
        raise InputError(
            f"ops must bend the finished image at most once, and then cover no part of it, got {', '.join(names)}: "
            "give those to RandomChoice, which runs one of them, or put what covers before what bends in the recipe"
        )


def _images_of(chosen: Bools) -> Ints:
    """Return the indices of the chosen images; if there are none, one index, to learn the names and types of arrays."""
    return np.flatnonzero(chosen) if chosen.any() else np.zeros(1, np.int64)


def _scatter(array: NDArray[Any], images: Ints, n: int) -> NDArray[Any]:
    """Return (n, ...): the array at the indices `images`, zeros elsewhere."""
    full = np.zeros((n, *array.shape[1:]), array.dtype)
    full[images] = array
    return full


def values_of_step(step: int, named: Mapping[str, T]) -> dict[str, T]:
    """Return what the op of a container's step drew or planned, by the op's own names."""
    prefix = f"{step}."
    return {name[len(prefix) :]: value for name, value in named.items() if name.startswith(prefix)}
