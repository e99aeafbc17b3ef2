"""What can be asked of a loader between its batches: its recipe, its arguments, its classes, its length."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

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
        """Return the recipe; of `Stages`, that of the epoch that was begun last, or by step that of the next batch."""
        return self._stage.recipe

    @property
    def ops(self) -> tuple[Op, ...]:
        """Return the ops of this recipe."""
        return self.recipe.ops

    @property
    def settings(self) -> Settings:
        """Return the settings for this recipe."""
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
        decoded = decoded_bytes(self.reader, self.settings, self.recipe, images, self.device)
        memory = f"{decoded / 1e9:.2g} GB of decoded images"
        return (
            f"Loader({kind}, {len(self.reader)} images, {len(self)} batches of {self.batch_size}, {device}, {memory})"
        )
