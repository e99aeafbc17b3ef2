"""Nodes of DALI's graphs: branches, types, and the names of ops in the errors of their nodes."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeAlias

from nvidia.dali import fn, types

from detaug.pipelines.errors import name_op_in_errors

Node: TypeAlias = Any
"""A node of a DALI graph; DALI's own type says no more than this."""

Nodes: TypeAlias = dict[str, Node]

_conditional = fn._conditional  # type: ignore[attr-defined]


def apply_where(condition: Node, image: Node, planned: Nodes, change: Callable[[Node, Nodes], Node]) -> Node:
    """Return `change(image, planned)` where `condition`, a number per image, is not 0, else the image itself.

    Only the images that meet the condition cost anything. A pipeline with `enable_conditionals` makes the same
    graph of an `if`, but it rewrites the Python code for that.
    """
    return either(
        condition, {**planned, "": image}, lambda nodes: change(nodes.pop(""), nodes), lambda nodes: nodes[""]
    )


def either(condition: Node, nodes: Nodes, then: Callable[[Nodes], Node], otherwise: Callable[[Nodes], Node]) -> Node:
    """Return `then(nodes)` where `condition`, a number per image, is not 0, else `otherwise(nodes)`."""
    chosen = fn.cast(condition, dtype=types.BOOL)
    parts = {name: _conditional.split(node, predicate=chosen) for name, node in nodes.items()}
    results = [make({name: part[side] for name, part in parts.items()}) for side, make in enumerate((then, otherwise))]
    return _conditional.merge(*results, predicate=chosen)


def keep_type(change: Callable[[Node, Nodes], Node]) -> Callable[[Node, Nodes], Node]:
    """Return `change` with its result cast to the image's type: both branches of a merge need the same one."""
    return lambda image, nodes: fn.reshape(fn.cast_like(change(image, nodes), image), layout="HWC")


def name_nodes(label: str, graph: Callable[..., Node]) -> Callable[..., Node]:
    """Return the `dali_graph` of an op such that errors name the op: those in it, and DALI's of its nodes.

    DALI's error of a node has the traceback of where the node was made. It names functions by their code, so a function
    with the label as the name of its code is a line of that traceback, which `failed_op` finds.
    """

    def call(*arguments: Any) -> Node:
        with name_op_in_errors(label, "dali_graph"):
            image = graph(*arguments)
            if image is None:
                raise TypeError("dali_graph must return the image, got None")
            return image

    return FunctionType(call.__code__.replace(co_name=label), call.__globals__, label, None, call.__closure__)
