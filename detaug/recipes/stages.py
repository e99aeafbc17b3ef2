"""What a user gives as a recipe: a list of ops, or `Stages`, a list that changes at epochs or steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, cast

from detaug.arguments import check, checks_names, is_whole
from detaug.errors import InputError
from detaug.ops.op import Op
from detaug.recipes.public_names import name_here, public_names

By = Literal["epoch", "step"]


class Stage(NamedTuple):
    """A recipe, and the epoch or step, from 0, from which on it is used."""

    start: int
    ops: tuple[Op, ...]


@dataclass(frozen=True, repr=False)
class Stages:
    """A recipe for `Loader` that changes at epochs: each (epoch, ops) is used from its epoch on.

    The epochs are counted from 0, and the first is 0.

    Raises InputError for epochs or steps in another order.

    At a new stage the loader ends its pipelines and makes others, which takes about as long as the loader's start.

    Args:
        stages: (epoch, ops) for each stage, the first from 0 on.
        by: "step" counts the steps of the training, all batches from the first epoch on, in place of epochs: (5000,
            ops) is used from the batch after the first 5000 on, also in the middle of an epoch. Ultralytics'
            `close_mosaic`, RT-DETR's and DEIM's `stop_epoch` and MMDetection's `PipelineSwitchHook` do the same. Every
            stage is a recipe as any other, and gives the batches that a loader with this recipe alone gives in these
            epochs; but if any stage mixes images, a partial last batch (`last_batch="partial"`) has two images at least
            in all of them.

    >>> end = [da.RandomHorizontalFlip(), da.Resize((320, 320)), da.Normalize()]
    >>> begin = [da.Resize((320, 320)), da.Mosaic(), da.RandomPhotometricDistort(), da.Normalize()]
    >>> stages = da.Stages([(0, begin), (90, end)])
    >>> loader = da.Loader(da.CocoReader("demo/VOC/JPEGImages", "train.json"), stages, batch_size=8)
    >>> loader.set_epoch(90)
    >>> loader.ops == tuple(end) == stages.at(99)
    True
    """

    stages: tuple[Stage, ...]
    by: By = "epoch"

    @checks_names
    def __init__(self, stages: Iterable[tuple[int, Iterable[Op]]], *, by: By = "epoch") -> None:
        check("by", by, by in ("epoch", "step"), "'epoch' or 'step'")
        pairs = enumerate(_pairs(stages), 1)
        checked = tuple(Stage(_start(number, pair, by), listed(pair[1])) for number, pair in pairs)
        starts = [stage.start for stage in checked]
        if not starts or starts[0] != 0 or sorted(set(starts)) != starts:
            raise InputError(f"the {by}s of stages must begin with 0 and grow, got {starts}")
        object.__setattr__(self, "stages", checked)
        object.__setattr__(self, "by", by)

    def __repr__(self) -> str:
        by = "" if self.by == "epoch" else f", by={self.by!r}"
        return f"Stages([{', '.join(f'({start}, {list(ops)!r})' for start, ops in self.stages)}]{by})"

    def at(self, epoch: int) -> tuple[Op, ...]:
        """Return the ops of an epoch, or of a step, from 0. Raises InputError for a number that is none."""
        check(self.by, epoch, is_whole(epoch, 0), "a whole number of at least 0")
        return next(ops for start, ops in reversed(self.stages) if start <= epoch)


def _pairs(stages: object) -> Sequence[tuple[int, Iterable[Op]]]:
    pairs = list(stages) if isinstance(stages, Iterable) else [stages]
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            name = f"the op {type(pair).__name__}" if isinstance(pair, Op) else f"{pair!r:.80}"
            raise TypeError(f"stages are a list of (epoch, ops), such as [(0, recipe), (90, other)], got {name}")
    return cast(list[tuple[int, Iterable[Op]]], pairs)


def _start(number: int, stage: tuple[int, Iterable[Op]], by: By) -> int:
    if not is_whole(stage[0], 0):
        what = "an epoch" if by == "epoch" else "a step"
        raise InputError(f"stage {number} must begin at {what}, a whole number of at least 0, got {stage[0]!r}")
    return int(stage[0])


def listed(ops: Iterable[Op] | Stages) -> tuple[Op, ...]:
    """Return the ops of a recipe. Raises TypeError for what is not a list of them."""
    if isinstance(ops, Stages):
        raise TypeError("Stages are for a Loader: give the ops of an epoch, stages.at(epoch)")
    if isinstance(ops, Mapping):
        names = ", ".join(map(repr, ops))
        raise TypeError(
            f"a recipe is a list of ops, got a dict of {names}: only a Loader takes one, with a recipe for each view, "
            "which may be Stages"
        )
    if isinstance(ops, str) or not isinstance(ops, Iterable):
        raise TypeError(f"a recipe is a list of ops, such as da.presets.ssd300(), got {ops!r}")
    ops = tuple(ops)
    for op in ops:
        if not isinstance(op, Op):
            raise TypeError(f"a recipe is a list of ops, and {op!r} is none{_hint(op)}")
    return ops


def _hint(value: Any) -> str:
    """Return what to write in the place of a value that is not an op."""
    if isinstance(value, type) and issubclass(value, Op):
        return f"; write {value.__name__}(), with parentheses"
    name = value if isinstance(value, str) else getattr(value, "__name__", type(value).__name__)
    here = name_here(name, public_names())
    return f"; use da.{here} (docs/ops.md has the names of other libraries)" if here else ""
