"""Pixel work for some images of a batch only: the others do not pay for it."""

from __future__ import annotations

from collections.abc import Callable

from nvidia.dali import fn, types

from detaug.ops.op import Node, Nodes

_conditional = fn._conditional  # type: ignore[attr-defined]


def where(apply: Node, image: Node, planned: Nodes, paint: Callable[[Node, Nodes], Node]) -> Node:
    """`paint(image, planned)` where `apply`, a number for each image, is not 0; elsewhere the image as it is.

    It is what an `if` in a DALI pipeline with `enable_conditionals` becomes, said without rewriting Python code.
    """
    chosen = fn.cast(apply, dtype=types.BOOL)
    inside, outside = _conditional.split(image, predicate=chosen)
    parts = {name: _conditional.split(node, predicate=chosen)[0] for name, node in planned.items()}
    return _conditional.merge(paint(inside, parts), outside, predicate=chosen)


def of_one_type(change: Callable[[Node, Nodes], Node]) -> Callable[[Node, Nodes], Node]:
    """`change`, its result of the image's own type, as those images have that it is not for."""
    return lambda image, nodes: fn.reshape(fn.cast_like(change(image, nodes), image), layout="HWC")
