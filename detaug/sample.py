"""What flows through the ops: one sample, and the random numbers of one recipe."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from nvidia.dali import fn

Node: TypeAlias = Any
"""A node of a DALI graph; DALI's own type says no more than this."""

Drawn: TypeAlias = dict[str, NDArray[Any]]
"""What an op draws for a batch of n, by name: arrays whose first axis is n."""

Draw: TypeAlias = Callable[[np.random.Generator, int], Drawn]


class Sample(NamedTuple):
    """One image with its boxes, as nodes of a DALI graph.

    A geometric op changes `boxes`, `matrix` and `size` and leaves `image` alone; `Resize` renders the view
    with one resample. So pixels are read once, and boxes and pixels follow the same numbers.
    """

    image: Node
    """(H, W, 3) RGB in 0..255, uint8, or float32 after colour ops: the source until `Resize`, then the view."""
    boxes: Node
    """(M, 4) float32 XYXY, relative to the view, in [0, 1]."""
    labels: Node
    """(M,) int32, 1..K."""
    matrix: Node
    """(2, 3) float32: a point (x, y) relative to the view -> source pixels."""
    size: Node
    """(2,) float32: (height, width) of the view; in source pixels until `Resize`, in output pixels after it."""
    source: Node
    """(2, 3) float32: the matrix of the view that is the whole source image."""
    random: Random
    """Draws the random numbers of the ops."""
    rendered: bool = False
    """Has `Resize` rendered the view?"""
    uniform: bool = False
    """Have all images of the batch one size?"""
    layout: str = "HWC"
    """Axes of `image`."""
    fill: tuple[float, ...] | None = None
    """RGB, 0..255, of what the image does not reach; None while the view cannot leave the image."""
    shown: Node | None = None
    """(2, 2) float32: what of the source `fill` surrounds, from (x0, y0) to (x1, y1); None is all of it."""


@dataclass(frozen=True)
class Random:
    """The random numbers of one recipe: drawn with NumPy for a whole batch, fed to DALI as inputs.

    A batch's numbers depend on its generator alone, never on the number of threads or pipelines.
    """

    draws: list[Draw] = field(default_factory=list)

    def nodes(self, draw: Draw) -> dict[str, Node]:
        """Graph inputs, by name, for what `draw(rng, n)` returns batch after batch."""
        at = len(self.draws)
        self.draws.append(draw)
        return {name: fn.external_source(name=f"draw{at}.{name}") for name in draw(np.random.default_rng(0), 1)}

    def arrays(self, rng: np.random.Generator, n: int) -> Drawn:
        """Draw for one batch of n: what the graph's inputs need, by input name."""
        drawn = [draw(rng, n) for draw in self.draws]
        named = ((f"draw{at}.{name}", array) for at, arrays in enumerate(drawn) for name, array in arrays.items())
        return {name: _as_input(array) for name, array in named}


def _as_input(array: NDArray[Any]) -> NDArray[Any]:
    """What DALI takes: contiguous, and numbers of 4 bytes."""
    return np.ascontiguousarray(array, {"f": "f4", "u": "u4"}.get(array.dtype.kind, "i4"))
