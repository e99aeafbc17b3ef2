"""The recipes of a loader at one time: one, or one for each view of the same images."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

from detaug.arguments import check
from detaug.errors import InputError
from detaug.ops.op import Op
from detaug.recipes.kernel_chain import KernelChain
from detaug.recipes.recipe import Recipe
from detaug.recipes.stages import By, Stages

OneRecipe: TypeAlias = Iterable[Op] | Stages
Recipes: TypeAlias = OneRecipe | Mapping[str, OneRecipe]
"""What a loader gets: a recipe, or one for each view, by name."""


class ViewRecipe(NamedTuple):
    """The recipe of a view, and what renders it."""

    name: str | None
    """None where the loader has one recipe, and yields batches instead of dicts of them."""
    recipe: Recipe
    kernels: KernelChain | None
    """None where the graph of the recipe renders."""


class NamedRecipe(NamedTuple):
    """A recipe of a loader, with what a state says of it."""

    name: str
    """Its view and from where on it is used, such as "weak from epoch 90"; "" for the only one."""
    view: int
    """The number of its view, from 0."""
    recipe: Recipe


class RecipesFrom(NamedTuple):
    """The recipe of each view, by name, and the epoch or step from which on they are used."""

    start: int
    by_view: dict[str | None, Iterable[Op]]


def recipes_by_start(recipes: Recipes) -> tuple[list[RecipesFrom], By]:
    """Return the recipes of all views from each epoch or step on at which one of them changes.

    Raises InputError for views without a name, and for views of which some count epochs and others steps.
    """
    if not isinstance(recipes, Mapping):
        stages = _as_stages(recipes)
        return [RecipesFrom(start, {None: ops}) for start, ops in stages.stages], stages.by
    named = bool(recipes) and all(isinstance(name, str) and name for name in recipes)
    check("the names of views", [*recipes], named, 'one or more texts, as in {"weak": [...], "strong": [...]}')
    views = {name: _as_stages(recipe) for name, recipe in recipes.items()}
    changing: dict[str, By] = {name: stages.by for name, stages in views.items() if len(stages.stages) > 1}
    if len({*changing.values()}) > 1:
        raise InputError(
            f"the Stages of all views must be by epoch, or all by step, got {changing}; give them the same `by`"
        )
    by: By = next(iter(changing.values()), "epoch")
    starts = sorted({start for stages in views.values() for start, _ in stages.stages})
    return [RecipesFrom(start, {name: stages.at(start) for name, stages in views.items()}) for start in starts], by


def has_stages(recipes: Recipes) -> bool:
    """Return whether a recipe changes during the training."""
    every = recipes.values() if isinstance(recipes, Mapping) else [recipes]
    return any(isinstance(recipe, Stages) for recipe in every)


def _as_stages(recipe: OneRecipe) -> Stages:
    return recipe if isinstance(recipe, Stages) else Stages([(0, recipe)])
