"""What can be asked of a loader between its batches: its recipe, its arguments, its classes, its length."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from detaug.errors import InputError
from detaug.loading.bad_files import SkippedImages
from detaug.loading.batch_stream import EpochIterator, Position
from detaug.loading.epochs import EpochOrder
from detaug.loading.settings import Settings, decoded_bytes
from detaug.loading.stages import LoaderStage, Streams
from detaug.ops.op import Op
from detaug.pipelines.jpeg_engine import has_jpeg_engine
from detaug.recipes.recipe import Recipe
from detaug.sources.source import Source


class LoaderProperties:
    """The properties of a `Loader`."""

    reader: Source
    batch_size: int
    device: torch.device
    _order: EpochOrder
    _streams: Streams
    _skipped: SkippedImages
    _batches: int
    _start: Position
    _epoch: EpochIterator[Any] | None

    @property
    def recipe(self) -> Recipe:
        """Return the recipe; of `Stages`, that of the epoch that was begun last, or by step that of the next batch.

        Raises InputError for a loader of views, which has `recipes`.
        """
        if names := ", ".join(map(repr, self.recipes)):
            raise InputError(f"the loader has a recipe for each view, {names}: take one of loader.recipes")
        return self._stage.recipes[0]

    @property
    def recipes(self) -> dict[str, Recipe]:
        """Return the recipe of each view, by name, as `recipe` does; none for a loader of one recipe."""
        return {view.name: view.recipe for view in self._stage.views if view.name is not None}

    @property
    def ops(self) -> tuple[Op, ...]:
        """Return the ops of `recipe`."""
        return self.recipe.ops

    @property
    def settings(self) -> Settings:
        """Return the settings for this recipe, or these of the views."""
        return self._stage.settings

    @settings.setter
    def settings(self, settings: Settings) -> None:
        self._stage.settings = settings

    @property
    def _stage(self) -> LoaderStage:
        return self._streams.stage_of(self._start if self._epoch is None else self._epoch.position)

    @property
    def train(self) -> bool:
        """Return whether this is a training loader."""
        return self._order.train

    @property
    def seed(self) -> int:
        """Return the seed of the order and of all draws."""
        return self._order.seed

    @property
    def class_names(self) -> tuple[str, ...]:
        """Return the name of each label; index 0 is the background."""
        return self.reader.class_names

    @property
    def category_ids(self) -> tuple[int, ...]:
        """Return the JSON file's category id of each label; index 0, the background, holds -1."""
        return self.reader.category_ids

    @property
    def skipped(self) -> tuple[Path, ...]:
        """Return the unusable files that were skipped so far, in the order in which they were found."""
        return self._skipped.paths

    @property
    def cached_images(self) -> int:
        """Return the number of images that the cache holds now: 0 without a cache, and after `close`."""
        return self._streams.current.cached_images if self._streams.current else 0

    def __len__(self) -> int:
        """Return the number of batches of an epoch, on this shard."""
        return self._batches

    def __repr__(self) -> str:
        kind = "training" if self.train else "evaluation"
        engine = f" {'with' if has_jpeg_engine(self.device) else 'without'} JPEG engine"
        device = f"{self.device}{'' if self.device.type == 'cpu' else engine}"
        images = self.batch_size * self._order.frames
        decoded = decoded_bytes(self.reader, self.settings, self._stage.recipes, images, self.device)
        memory = f"{decoded / 1e9:.2g} GB of decoded images"
        views = f", views {', '.join(self.recipes)}" if self.recipes else ""
        of_batches = f"{len(self)} batches of {self.batch_size}{views}"
        return f"Loader({kind}, {len(self.reader)} images, {of_batches}, {device}, {memory})"
