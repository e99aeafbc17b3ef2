"""Predict with a trained model over the batches of a source: once for each image, or in several views."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from detaug.loading.batch import Batch
from detaug.loading.clip_batch import ClipBatch
from detaug.loading.loader import Loader
from detaug.sources.source import Source
from detaug.training.detectors import images_for
from detaug.training.tta import TTA, SeenIn, in_source_pixels, merged_views

if TYPE_CHECKING:
    from detaug.training.predict import TrainedModel


def predicted_batches(
    model: TrainedModel, source: Source, batch_size: int, tta: TTA | None = None
) -> Iterator[tuple[Batch, list[dict[str, Tensor]]]]:
    """Yield the batches of all images of a source, in its order, with what the model finds in each.

    Detections are in pixels of the batch; with `tta`, in those of the source images, which are then the pixels of the
    batch for `to_source` and evaluators. Of clips, a batch has the frames of one clip.
    """
    recipes = [model.ops] if tta is None else model.views(tta)
    images = 1 if source.frames is not None else batch_size
    # All images, also in a process of several: `detaug train PATH` under torchrun evaluates on its first rank.
    loaders = [Loader(source, recipe, images, device=model.device, train=False, shard=(0, 1)) for recipe in recipes]
    for of_views in zip(*loaders, strict=True):
        batches = [batch.as_images() if isinstance(batch, ClipBatch) else batch for batch in of_views]
        with torch.inference_mode():
            predictions = [_predictions(model, batch, batch_size) for batch in batches]
        if tta is None:
            yield batches[0], predictions[0]
        else:
            yield in_source_pixels(batches[0]), _merged(model, batches, predictions, tta)


def _predictions(model: TrainedModel, batch: Batch, batch_size: int) -> list[dict[str, Tensor]]:
    images = images_for(model.model, batch)
    parts = [images[start : start + batch_size] for start in range(0, len(images), batch_size)]
    return [prediction for part in parts for prediction in model.model(part)]


def _merged(
    model: TrainedModel, batches: list[Batch], predictions: list[list[dict[str, Tensor]]], tta: TTA
) -> list[dict[str, Tensor]]:
    """Return the detections in each image of a batch. `batches`, `predictions`: of each view."""
    merged = []
    for index, size in enumerate(batches[0].source_size.tolist()):
        seen = [
            SeenIn(
                detections[index],
                batch.matrix[index].double().numpy(),
                batch.image_size[index].tolist(),
                None if batch.distortion is None else batch.distortion[index : index + 1],
            )
            for batch, detections in zip(batches, predictions, strict=True)
        ]
        merged.append(merged_views(seen, size, model.keypoints, tta))
    return merged
