"""An op: boxes planned with NumPy and pixels changed by DALI or on the CPU, from one draw."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from detaug.boxes.views import Views
from detaug.ops.cpu_kernels import CpuKernel

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

    output_layout: ClassVar[str] = "HWC"
    """DALI's name of the image's layout after it."""

    def __init_subclass__(cls, **options: Any) -> None:
        """A class that paints in a way of its own does so on the CPU too, if it says nothing else."""
        super().__init_subclass__(**options)
        if "dali_graph" in vars(cls) and "cpu_kernel" not in vars(cls):
            cls.cpu_kernel = Op.cpu_kernel  # type: ignore[method-assign]

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

    def cpu_kernel(self, views: Views) -> CpuKernel | None:
        """How to paint one image on the CPU, where that is faster than DALI's operators; else None.

        `views`: as in `paint`.
        """
        return None

    def dali_graph(self, image: Node, planned: Nodes, views: Views) -> Node:
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
    `crop_to` goes to another window of it, `warp` turns it, `clip` cuts boxes off at its border.

    >>> class LeftHalf(da.GeometricOp):
    ...     def move(self, views, drawn):
    ...         start, end = np.zeros((len(views), 2)), np.tile([0.5, 1.0], (len(views), 1))  # x, y in 0..1
    ...         return views.crop_to(start, end).clip()
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
    ...     def dali_graph(self, image, planned, views):
    ...         return image * planned["share"]
    >>> samples = da.batch([np.full((4, 4, 3), 100, np.uint8)] * 3)
    >>> print([int(image[0, 0, 0]) for image in samples.then(da.Resize((4, 4)), Darker()).images])
    [58, 36, 22]
    """

    stage = "pixels"

    def plan(self, views: Views, drawn: Arrays) -> tuple[Views, Arrays]:
        return views, drawn
