"""What the kinds of evaluation have in common: one for boxes, masks, key points and rotated boxes each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

from numpy.typing import NDArray

from detaug.evaluation.ground_truth import GroundTruth
from detaug.evaluation.predictions import Columns, ImageDetections, Key
from detaug.loading.batch import Batch

M_co = TypeVar("M_co", covariant=True)


class Kind(ABC, Generic[M_co]):
    """One kind of detections: the key that has them, their way to source pixels, and their metrics."""

    key: Key
    truth: GroundTruth

    @abstractmethod
    def __init__(self, path: Path) -> None:
        """Read the ground truth of a json."""

    @abstractmethod
    def in_source(self, batch: Batch, columns: Columns) -> Iterable[NDArray[Any]]:
        """Return the shapes of each image in source pixels."""

    @abstractmethod
    def result(self, shape: Any) -> dict[str, Any]:
        """Return what an entry of COCO's results has for a shape."""

    @abstractmethod
    def shapes(self, rows: Sequence[Mapping[str, Any]]) -> NDArray[Any]:
        """Return the shapes of entries of COCO's results, (D, ...), the reverse of `result`.

        Raises KeyError, TypeError or ValueError for entries in another form.
        """

    @abstractmethod
    def metrics(self, found: Mapping[int, ImageDetections], *, voc2007: bool, repeated: int) -> M_co:
        """Return the metrics of the images whose ids `found` has."""

    def rows(self, found: Mapping[int, ImageDetections]) -> Iterable[dict[str, Any]]:
        """Yield the detections in the form of COCO's results, in the json's order of images."""
        for image_id in self.truth.image_ids:
            if (each := found.get(image_id)) is not None:
                columns = (each.shapes.tolist(), each.scores.tolist(), each.category_ids.tolist())
                for shape, score, category in zip(*columns, strict=True):
                    yield {"image_id": image_id, "category_id": category, **self.result(shape), "score": score}
