"""Save and check the state of a loader: what a resumed training must have in common with the one before.

A position is a step of all shards together. So a state is valid on any number of shards with the same global batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np

from detaug.arguments import is_whole
from detaug.errors import InputError
from detaug.files.image_file import short_digest
from detaug.loading.batch_stream import Position
from detaug.loading.draws import PositionDraws
from detaug.loading.epochs import EpochOrder, training_steps
from detaug.loading.view_recipes import NamedRecipe
from detaug.ops.mixing import GROUP
from detaug.sources.source import Source

VERSION = 3
"""The format of the state."""

_CHANGED = {
    "version": "another version of detaug saved this state; resume with that version, or start from the weights",
    "draws": "this version of detaug or NumPy draws other random numbers than the one that saved this state; resume "
    "with that one, or start from the weights",
    "data": "the JSON file's images, boxes or classes are not those of this state; resume with the same JSON file",
    "stretches": "the reader cuts the videos into other stretches; resume with the same stretch and the same files",
    "files": "image files have other sizes in bytes than when this state was saved; resume with the same files",
}
"""The error for each part of the identity that is not an argument of `Loader`."""

_BEFORE = {"accumulate": 1, "at_least": 1, "max_boxes": None}
"""What a state of a version that did not have an argument was saved with."""


def identity_of(
    reader: Source, recipes: Sequence[NamedRecipe], order: EpochOrder, max_boxes: int | None
) -> dict[str, Any]:
    """Return the data, the arguments and the version that a state is valid for.

    `recipes`: of all stages and views. `max_boxes`: of `Loader`.
    """
    ops = [(f"{name}: " if name else "") + repr(op) for name, _, recipe in recipes for op in recipe.ops]
    mixes = any(recipe.mixing_op for _, _, recipe in recipes)
    return {
        "version": VERSION,
        "data": reader.fingerprint,
        "files": reader.files_fingerprint,
        "recipe": ops,
        "seed": order.seed,
        "global_batch": order.global_batch,
        "train": order.train,
        "sampler": None if order.factors is None else short_digest(order.factors.tobytes()),
        "aspect_ratio_grouping": bool(order.groups.any()),
        "last_batch": order.last_batch,
        "accumulate": order.accumulate,
        "at_least": order.at_least,
        "max_boxes": max_boxes,
        "stretches": None if order.stretches is None else short_digest(order.stretches.tobytes()),
        "mixed_within": mixed_within(order) if mixes else None,
        "draws": _draws_fingerprint(reader, recipes),
    }


def mixed_within(order: EpochOrder) -> int | None:
    """Return the batch size if the partners of mixed images depend on it; None if they depend on the global batch."""
    whole_groups = order.batch_size % GROUP == 0 and order.train and order.last_batch != "partial"
    return None if whole_groups else order.batch_size


def read_state(
    state: Any, identity: Mapping[str, Any], order: EpochOrder, images: int, steps: int
) -> tuple[Position, list[int]]:
    """Return the position of a state and the indices of its skipped images.

    Raises InputError if it is not a loader's state, or has another identity. `images`: of the source; `steps`: of
    an epoch.
    """
    if not isinstance(state, Mapping) or "epoch" not in state:
        raise InputError(f"state must be a dict that Loader.state_dict() returned, got {_short(state)}")
    for name, here in identity.items():
        saved = state.get(name, _BEFORE.get(name))
        if saved != here:
            raise InputError(_difference(name, saved, here, order))
    epoch, step, skipped = (state.get(name) for name in ("epoch", "step", "skipped"))
    if not (is_whole(epoch, 0) and is_whole(step, 0, steps)):
        raise InputError(f"this state is at epoch {epoch!r}, step {step!r}; an epoch has {steps} steps")
    if not (isinstance(skipped, Sequence) and all(is_whole(index, 0, images - 1) for index in skipped)):
        raise InputError(f"skipped of this state must be a list of indices below {images}, got {_short(skipped)}")
    position = Position(epoch + 1, 0) if step == steps else Position(epoch, step)
    return position, list(skipped)


def _difference(name: str, saved: Any, here: Any, order: EpochOrder) -> str:
    if name == "recipe":
        return _recipe_difference(saved, here)
    if name == "global_batch":
        return _batch_difference(saved, order)
    if name == "mixed_within":
        return _mixing_difference(saved, here)
    return _CHANGED.get(name, f"this state has {name} {saved!r}, this loader {here!r}; make them equal")


def _batch_difference(saved: Any, order: EpochOrder) -> str:
    """Return the error for another global batch, with the batch size that gives the same one, if there is any."""
    shards = order.shard[1]
    fits = is_whole(saved, 1) and saved % shards == 0
    remedy = f"give batch_size={saved // shards}" if fits else f"resume on a number of shards that divides {saved}"
    here = f"this loader {order.global_batch} (batch_size {order.batch_size} x {shards})"
    return f"this state has {saved} images per step on all shards, {here}; {remedy}"


def _mixing_difference(saved: Any, here: Any) -> str:
    then, now = (f"batches of {size}" if size else f"groups of {GROUP}" for size in (saved, here))
    return f"images of this state were mixed within {then}, here within {now}; resume with the same number of shards"


def _recipe_difference(saved: Any, here: list[str]) -> str:
    ops = list(saved) if isinstance(saved, Sequence) else []
    pairs = enumerate(zip_longest(ops, here, fillvalue="no op"), 1)
    number, (before, now) = next((number, pair) for number, pair in pairs if pair[0] != pair[1])
    return f"the recipe is not that of this state: op {number} is {now}, was {before}; make them equal"


def _draws_fingerprint(reader: Source, recipes: Iterable[NamedRecipe]) -> str:
    """Return a hash of example draws, which changes when a version draws other numbers from the same seed.

    Rounded, since the last bits of floats differ between processors.
    """
    views = reader.clip_views(reader.clips[np.arange(8) % len(reader.clips)].reshape(-1))
    positions = 0, 150, np.arange(8) * 20, np.arange(8) * 3
    # PositionDraws keeps draws by the step of a recipe, so each recipe needs its own
    of_steps = [
        arrays
        for _, view, recipe in recipes
        for arrays in recipe.plan(views, PositionDraws(0, 22, view).at(*positions)).drawn
    ]
    drawn = [array for arrays in of_steps for _, array in sorted(arrays.items())]
    order = training_steps(None, np.zeros(8, np.int64), 4, 0, 0)
    numbers = [np.round(np.asarray(array, np.float64), 6) + 0.0 for array in [*order, *drawn]]
    return short_digest(*(array.tobytes() for array in numbers))


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}..."
