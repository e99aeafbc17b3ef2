"""The base classes of ops: boxes are planned with NumPy, pixels are changed by DALI or on the CPU, from one draw."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from functools import cache
from inspect import get_annotations
from itertools import takewhile
from typing import Any, ClassVar, Literal, Protocol, TypeVar

import numpy as np
from typing_extensions import Self

from detaug.arguments import check_can_be_saved, check_names, in_declared_type, to_python
from detaug.arrays import Arrays, Ints
from detaug.boxes.views import Views
from detaug.errors import InputError
from detaug.gpu.passes import GpuPass
from detaug.ops.cpu_kernels import CpuKernel
from detaug.pipelines.graph import Node, Nodes
from detaug.pixel_format import PixelFormat, check_bands


class _Then(Protocol):
    def then(self: S, *ops: Op) -> S: ...


S = TypeVar("S", bound=_Then)


def check_drawn(drawn: Any, n: int, method: str = "draw") -> Arrays:
    """Return what an op drew for n images. Raises TypeError unless it is a dict of arrays with a row for each image."""
    if not isinstance(drawn, dict):
        raise TypeError(f"{method} must return a dict of arrays, got {type(drawn).__name__}")
    for name, array in drawn.items():
        if np.shape(array)[:1] != (n,):
            raise TypeError(f"{method} must return arrays of n rows, here {n}; {name!r} has shape {np.shape(array)}")
    return drawn


def select(images: slice | Ints, arrays: Arrays) -> Arrays:
    """Return the rows of some images from each array."""
    return {name: array[images] for name, array in arrays.items()}


def label_op(op: object, index: int, of: str = "of the recipe") -> str:
    """Return the name of an op's class and its place: "RandomCrop (2nd op of the recipe)" for index 1."""
    return f"{type(op).__name__} ({ordinal(index + 1)} op {of})"


def ordinal(number: int) -> str:
    """Return 1st, 2nd, 3rd, 4th and so on."""
    teens = number % 100 in (11, 12, 13)
    return f"{number}{'th' if teens else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"


class Op:
    """One step of a recipe: it draws random numbers, plans boxes with them and changes pixels with them.

    A subclass is a frozen dataclass, and checks its arguments in `check_arguments`. Derive from GeometricOp or PixelOp,
    which need one method beside `draw`. Arguments are numbers, text, None, ops, or tuples or dicts of these: they are
    what `repr`, recipes in files and resumed runs know of an op.

    >>> for op in da.presets.retinanet():
    ...     print(op.stage, op)
    view RandomHorizontalFlip(p=0.5)
    render Resize(size=800, max_size=1333, letterbox=None, fill=(123.0, 117.0, 104.0))
    output Normalize(mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0), dtype='float32', memory_format='contiguous')
    """

    stage: ClassVar[str]
    """Its position in a recipe: "view", then "render" (Resize), then "pixels", then "output" (Normalize).

    After Resize, a "view" op whose `size_after` is known may come too: Resize's pixels are then rendered after it."""

    uniform: ClassVar[bool] = True
    """Whether all images of a batch have one size after it."""

    one_size: ClassVar[bool] = True
    """Whether the images of all batches have one size after it."""

    size_after: ClassVar[Literal["same", "fixed", "any"]] = "any"
    """The size of an image after an op that moves the view: as before, of a fixed number of pixels, or any.

    With "any", the op must come before Resize."""

    mixes: ClassVar[bool] = False
    """Whether it combines images of a batch. The batch then needs at least two, of one size."""

    bends: ClassVar[bool] = False
    """Whether it bends the finished image: a recipe has one such op, after all that moves or covers parts of it."""

    flips: ClassVar[bool] = False
    """For an op that moves the view: whether it can show an image as a mirror does, so that left and right swap."""

    covers: ClassVar[bool] = False
    """For an op that changes pixels: whether it covers parts of the image."""

    one_draw_a_batch: ClassVar[bool] = False
    """Whether all images of a batch share the draw of its first image."""

    noise_seeds: ClassVar[tuple[str, ...]] = ()
    """Names of what it draws that must differ among the frames of a clip; all else is drawn once for a clip."""

    any_bands: ClassVar[bool] = False
    """For an op that changes pixels: whether it works on float32 images of any bands and units, too, not on 8-bit RGB
    alone; see `Views.pixels`."""

    output_layout: ClassVar[str] = "HWC"
    """DALI's name for the layout of the image after it."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Drop what a class inherits and what does no longer what the class does: see `_INHERITED_WITH`.

        Raises TypeError for a method that an op cannot have.
        """
        super().__init_subclass__(**options)
        if "__init__" in vars(cls) and "__dataclass_fields__" not in vars(cls):
            raise TypeError(f"{cls.__name__} defines __init__: write its arguments as fields of a frozen dataclass")
        for name, methods in _INHERITED_WITH.items():
            of = next(base for base in cls.__mro__ if name in vars(base))
            if any(getattr(cls, method, None) is not getattr(of, method, None) for method in methods):
                setattr(cls, name, vars(Op)[name])
        if cls.gpu_pass is not Op.gpu_pass and (cls.dali_graph, cls.cpu_kernel) == (Op.dali_graph, Op.cpu_kernel):
            raise TypeError(f"{cls.__name__} changes pixels on a GPU alone: define dali_graph or cpu_kernel, too")

    def __new__(cls, *_: Any, **named: Any) -> Self:
        """Refuse a class that is not a dataclass, whose `repr` and == ignore its arguments; and unknown arguments."""
        undecorated = list(takewhile(lambda base: "__dataclass_fields__" not in vars(base), cls.__mro__))
        if not is_dataclass(cls) or any(map(_annotates_arguments, undecorated)):
            raise TypeError(f"{cls.__name__} is an op but no dataclass: write @dataclass(frozen=True) above its class")
        old_names = getattr(cls.__init__, "old_names", {})
        check_names(cls.__name__, named.keys() - old_names, [field.name for field in fields(cls) if field.init])
        return super().__new__(cls)

    def __post_init__(self) -> None:
        """Store arguments as Python's numbers and tuples, so that `repr`, == and saved recipes agree; check them."""
        names = [field.name for field in fields(self) if field.init]  # type: ignore[arg-type]  # it is a dataclass
        for name in names:
            object.__setattr__(self, name, to_python(getattr(self, name)))
        self.check_arguments()
        annotations = _annotations(type(self))  # type: ignore[arg-type]  # mypy looks at the __hash__ of instances
        for name in names:
            object.__setattr__(self, name, in_declared_type(getattr(self, name), annotations.get(name)))
            check_can_be_saved(f"{type(self).__name__}.{name}", getattr(self, name), Op)

    def check_arguments(self) -> None:
        """Raise InputError for an argument that breaks a rule: its name, the rule and the value."""

    @property
    def fills(self) -> tuple[tuple[float, ...], ...]:
        """Return the colors that it puts around images: a number for each band, for RGB 0..255."""
        return ()

    @property
    def band_arguments(self) -> dict[str, tuple[float, ...]]:
        """Return the arguments that have a number for each band, in the values of the images, by name."""
        return {"fill": self.fills[0]} if self.fills else {}

    def check_pixels(self, pixels: PixelFormat, label: str) -> None:
        """Raise InputError unless it can change images of these bands. `label`: its name and place, for the error."""
        if not pixels.is_rgb8 and not self.any_bands:
            raise InputError(
                f"{label} works on 8-bit RGB, and the reader has {pixels}: leave it out of the recipe, or change what "
                "it is for in an op of your own with any_bands = True"
            )
        for name, values in self.band_arguments.items():
            check_bands(f"{label}.{name}", values, pixels)

    @property
    def uses_masks(self) -> bool:
        """Return whether it needs a source with masks."""
        return False

    def draw(self, rng: np.random.Generator, n: int) -> Arrays:
        """Draw the random numbers for n images of one or several batches, by name.

        Take them from `rng` only, also those for `dali_graph`: DALI's own depend on the number of pipelines. The
        numbers must depend on nothing else, so that an image gets the same ones on any number of processes.
        """
        return {}

    def adapt_draw(self, views: Views, drawn: Arrays) -> Arrays:
        """Return what is stored of a draw that depends on the boxes, the sizes or the epoch, by name.

        It draws nothing more: an op that may need any number of random numbers draws a seed for each image.
        """
        return drawn

    def plan(self, views: Views, drawn: Arrays) -> tuple[Views, Arrays]:
        """Return the views after this op, and the inputs of `dali_graph` or of the CPU kernel, by name."""
        raise NotImplementedError(f"{type(self).__name__} must define plan(views, drawn)")

    def cpu_kernel(self, views: Views) -> CpuKernel | None:
        """Return a function that changes one image on the CPU, where that is faster than DALI's operators; else None.

        Args:
            views: See `dali_graph`.
        """
        return None

    def gpu_pass(self, views: Views) -> GpuPass | None:
        """Return what changes rendered images on a GPU, where Triton's kernels render the recipe; else None.

        Without it DALI's operators render the recipe, more slowly.

        Args:
            views: See `dali_graph`.
        """
        return None

    def dali_graph(self, image: Node, planned: Nodes, views: Views) -> Node:
        """Return the image after this op. `planned`: what `plan` returned, as DALI nodes.

        Args:
            views: One example view before this op, for what is the same in every batch, such as `fill`.
        """
        return image

    def __call__(self, samples: S) -> S:
        """Run eagerly on `da.batch(...)`."""
        if not hasattr(samples, "then"):
            raise TypeError(f"ops run on da.batch([image], boxes=[...]) or in a Loader, got {type(samples).__name__}")
        return samples.then(self)


_INHERITED_WITH = {
    "cpu_kernel": ("dali_graph",),
    "gpu_pass": (
        *("draw", "amounts", "adapt_draw", "graph_inputs", "plan", "field"),
        *("dali_graph", "cpu_kernel", "change", "change_bands"),
    ),
    "any_bands": ("dali_graph", "cpu_kernel", "change"),
}
"""What a class inherits only together with these methods: a subclass with its own version of one would change pixels in
other ways on a GPU than on the CPU. Even another draw may plan inputs that only DALI takes, as one sigma per axis."""


def text_without_added(op: Any, *added: str) -> str:
    """Return the `repr` of an op without those arguments, added since 0.1, that have their default.

    States hold the texts of ops: with a new argument in each, none saved before would be of the same recipe.
    """
    named = [
        argument.name
        for argument in fields(op)
        if argument.name not in added or getattr(op, argument.name) != argument.default
    ]
    return f"{type(op).__qualname__}({', '.join(f'{name}={getattr(op, name)!r}' for name in named)})"


@cache
def _annotations(op: type) -> dict[str, Any]:
    """Return the types of an op's arguments, {} where a name in them is not known at run time.

    Not by get_type_hints: on Python 3.10 it refuses the `_: KW_ONLY` of dataclasses.
    """
    annotations: dict[str, Any] = {}
    try:
        for cls in reversed(op.__mro__):
            annotations |= get_annotations(cls, eval_str=True)
    except (NameError, AttributeError, TypeError):
        return {}
    return annotations


def _annotates_arguments(cls: type) -> bool:
    """Return whether a class that is not a dataclass has annotations that would be its fields."""
    return any("ClassVar" not in str(annotation) for annotation in get_annotations(cls).values())


class GeometricOp(Op):
    """Moves the views and leaves the pixels to `Resize`.

    A subclass defines `move`, and `draw` if it draws. In the `Views` of N images, boxes are (N, M, 4) XYXY relative to
    the view and labels (N, M); a label of -1 marks padding or a dropped box, whose coordinates mean nothing.
    In `Compose` and `da.fn.augment`, labels that are not whole numbers of at least 0 are seen as 0.
    `crop_to` takes a window of the view, `warp` turns it, `clip` cuts boxes off at its border.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class LeftPart(da.GeometricOp):
    ...     share: float = 0.5
    ...     def move(self, views, drawn):
    ...         start, end = np.zeros((len(views), 2)), np.tile([self.share, 1.0], (len(views), 1))  # x, y in 0..1
    ...         return views.crop_to(start, end).clip()
    >>> samples = da.batch([np.zeros((100, 200, 3), np.uint8)], boxes=[[[80, 10, 120, 50]]])
    >>> print(LeftPart()(samples).boxes[0])
    [[ 80.  10. 100.  50.]]
    """

    stage = "view"
    any_bands: ClassVar[bool] = True

    @property
    def fills(self) -> tuple[tuple[float, ...], ...]:
        return (tuple(self.fill),) if hasattr(self, "fill") else ()

    def move(self, views: Views, drawn: Arrays) -> Views:
        """Return the views after this op."""
        raise NotImplementedError(f"{type(self).__name__} must define move(views, drawn)")

    def plan(self, views: Views, drawn: Arrays) -> tuple[Views, Arrays]:
        moved = self.move(views, drawn)
        if not isinstance(moved, Views):
            raise TypeError(f"move must return Views, got {type(moved).__name__}")
        return moved, {}


class PixelOp(Op):
    """Changes pixels in place; boxes stay. `dali_graph` gets what `draw` returned.

    A subclass defines `dali_graph`, and `draw` if it draws. `image` is a DALI node, (H, W, 3) in 0..255, uint8 or
    float32. With `any_bands = True` it may also be (H, W, C) float32 in the values of the files, see `views.pixels`.
    `gpu_pass` lets Triton's kernels render recipes with the op on a GPU.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Darker(da.PixelOp):
    ...     def draw(self, rng, n):
    ...         return {"share": rng.uniform(0.2, 0.8, n)}
    ...     def dali_graph(self, image, planned, views):
    ...         return image * planned["share"]
    >>> samples = da.batch([np.full((4, 4, 3), 100, np.uint8)] * 3)
    >>> print([int(image[0, 0, 0]) for image in samples.then(da.Resize((4, 4)), Darker()).images])
    [58, 36, 22]
    """

    stage = "pixels"

    def graph_inputs(self, views: Views, drawn: Arrays) -> Arrays:
        """Return the inputs of `dali_graph` or of the CPU kernel, by name, if they are not what was drawn."""
        return drawn

    def plan(self, views: Views, drawn: Arrays) -> tuple[Views, Arrays]:
        return views, self.graph_inputs(views, drawn)
