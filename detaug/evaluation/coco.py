"""`CocoEvaluator`: score detections in source pixels by the rules of COCO, Pascal VOC and DOTA."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar, overload

import numpy as np
from torch import Tensor

from detaug.arguments import SCORE, check, checks_names, is_number, is_whole
from detaug.errors import InputError
from detaug.evaluation.boxes import BoxKind, Metrics
from detaug.evaluation.errors import DetectionErrors, find_errors
from detaug.evaluation.ground_truth import GroundTruth
from detaug.evaluation.keypoints import KeypointKind, KeypointMetrics
from detaug.evaluation.kind import DetectionKind, place
from detaug.evaluation.label_errors import LabelError, find_label_errors
from detaug.evaluation.masks import MaskKind, MaskMetrics
from detaug.evaluation.merging import Tiles, merged, tiles_of
from detaug.evaluation.predictions import ImageDetections, read_predictions
from detaug.evaluation.ranks import of_all_ranks
from detaug.evaluation.results import read_results
from detaug.evaluation.rotated import RotatedKind, RotatedMetrics, iou_of_quadrangles
from detaug.evaluation.voc_ap import Overlaps, iou_of_boxes
from detaug.files.atomic import write_atomically
from detaug.loading.batch import Batch
from detaug.loading.clip_batch import ClipBatch
from detaug.outputs.guards import output_files
from detaug.sources.coco_reader import CocoReader, json_of
from detaug.sources.source import Source
from detaug.storage.open_storage import named

M = TypeVar("M")

MOST_DETECTIONS = 1_000_000

_KINDS: dict[str, Any] = {"bbox": BoxKind, "segm": MaskKind, "keypoints": KeypointKind, "rotated": RotatedKind}


class CocoEvaluator(Generic[M]):
    """Collects detections batch by batch and scores them against a COCO JSON file.

    Raises InputError for mistakes in the JSON file, and for wrong arguments.

    COCO's rules, for boxes, masks and keypoints, are pycocotools' own: a crowd region is ignored, `difficult` has no
    effect. VOC's, for boxes, are the devkit's, and DOTA's, for rotated boxes, follow them: a difficult object or a
    crowd is not counted, and a detection of it is neither right nor wrong. Detections in images without objects are
    wrong.

    Args:
        annotations: The JSON file, or a `CocoReader` with that JSON, which has the labels of the detections.
        kind: What is compared, "bbox", "segm" (masks), "keypoints" or "rotated".
        sigmas: For keypoints, K numbers, how far from a point annotators put it, as a fraction of the root of the
            object's area; by default COCO's for 17 points, and 0.05 for each of another number of points.
        tiles: The batches are of tiles, a `TileReader` or a JSON file of `detaug tile`, and the JSON file is that of
            the images. Detections are moved to the images, and merged as `merge_tiles` does.
        min_iou: See `merge_tiles`.
        max_detections: Of an image and a class, at least 100, of keypoints at least 20; by default COCO's 100 and 20,
            which are few for a large image. AR1, AR10 and AR100 keep their own numbers of detections.

    >>> reader = da.CocoReader("demo/VOC/JPEGImages", "train.json")
    >>> evaluator = da.CocoEvaluator(reader)
    >>> for batch in da.Loader(reader, da.presets.evaluation((300, 300)), batch_size=8, train=False):
    ...     found = [{**each, "scores": torch.ones(len(each["labels"]))} for each in batch.targets()]  # your model's
    ...     evaluator.update(batch, found)
    >>> print(evaluator.compute())
    AP 1.000  AP50 1.000  AP75 1.000  ... VOC_AP50 1.000
    """

    @overload
    def __init__(
        self: CocoEvaluator[Metrics],
        annotations: str | os.PathLike[str] | CocoReader,
        kind: Literal["bbox"] = "bbox",
        *,
        tiles: Tiles | None = None,
        min_iou: float = 0.5,
        max_detections: int | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self: CocoEvaluator[MaskMetrics],
        annotations: str | os.PathLike[str] | CocoReader,
        kind: Literal["segm"],
        *,
        tiles: Tiles | None = None,
        min_iou: float = 0.5,
        max_detections: int | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self: CocoEvaluator[KeypointMetrics],
        annotations: str | os.PathLike[str] | CocoReader,
        kind: Literal["keypoints"],
        *,
        sigmas: Sequence[float] | None = None,
        tiles: Tiles | None = None,
        min_iou: float = 0.5,
        max_detections: int | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self: CocoEvaluator[RotatedMetrics],
        annotations: str | os.PathLike[str] | CocoReader,
        kind: Literal["rotated"],
        *,
        tiles: Tiles | None = None,
        min_iou: float = 0.5,
        max_detections: int | None = None,
    ) -> None: ...
    @checks_names
    def __init__(
        self,
        annotations: str | os.PathLike[str] | CocoReader,
        kind: str = "bbox",
        *,
        sigmas: Sequence[float] | None = None,
        tiles: Tiles | None = None,
        min_iou: float = 0.5,
        max_detections: int | None = None,
    ) -> None:
        if isinstance(annotations, Source) and not isinstance(annotations, CocoReader):
            name = type(annotations).__name__
            raise InputError(
                f"annotations must be a JSON file or a da.CocoReader, got a {name}; give it the images' own JSON file"
            )
        check("kind", kind, kind in _KINDS, f"one of {', '.join(map(repr, _KINDS))}")
        if sigmas is not None and kind != "keypoints":
            raise InputError(f"sigmas are for kind='keypoints', got kind={kind!r}")
        self.annotations, file = json_of(annotations)
        with named(self.annotations, file):
            self._kind: DetectionKind[M] = _KINDS[kind](file, **({} if sigmas is None else {"sigmas": sigmas}))
        if isinstance(annotations, CocoReader):  # it may have left out categories
            self._kind.truth = self._kind.truth.of_categories(annotations.category_ids[1:])
        truth = self._kind.truth
        self._tiles = None if tiles is None else tiles_of(tiles, truth, self.annotations)
        self._image_ids = truth.image_ids if self._tiles is None else self._tiles.image_ids
        self._sizes = dict(zip(truth.image_ids, truth.sizes.tolist(), strict=True))
        shown = truth.sizes if self._tiles is None else self._tiles.sizes
        self._shown = dict(zip(self._image_ids, shown.tolist(), strict=True))
        self._number = {image_id: index for index, image_id in enumerate(self._image_ids)}
        if self._tiles is not None and isinstance(self._kind, MaskKind):
            self._kind.sizes = self._shown
        check("min_iou", min_iou, is_number(min_iou, 0, 1), "in 0..1")
        fewest = 20 if kind == "keypoints" else 100
        fits = max_detections is None or is_whole(max_detections, fewest, MOST_DETECTIONS)
        check("max_detections", max_detections, fits, f"None, or a whole number in {fewest}..{MOST_DETECTIONS:,}")
        self._min_iou, self._max_detections = min_iou, max_detections
        self._category_ids = np.array(list(truth.categories), np.int64)
        self._own: dict[int, ImageDetections] = {}
        self._own_repeated = 0
        self._gathered, self._repeated = self._own, 0
        self._merged: Mapping[int, ImageDetections] | None = None

    def update(self, batch: Batch, predictions: Sequence[Mapping[str, Tensor]]) -> None:
        """Add the detections in a batch.

        Boxes are moved to the source image and cut at its edges: a detector cuts them at the edges of its input,
        padding and letterbox included, and a box that reaches into those would lose IoU. A box that lies wholly in them
        stays, without area, a wrong detection. Keypoints and corners are moved, and not cut. An image counts once: if
        it is updated again, as by samplers that fill up shards, the first detections stay and `Metrics.repeated` counts
        it.

        Args:
            predictions: N dicts, as torchvision's detectors return them: boxes (K, 4) XYXY in pixels of `batch.images`,
                scores (K,), labels (K,) in 1..the number of classes. For masks, instead of boxes, masks (K, H, W) bool,
                or (K, 1, H, W) probabilities, see `Batch.masks_to_source`. For keypoints, keypoints (K, P, 2) or (K, P,
                3), of which x and y count, in continuous pixels, as those of `batch.keypoints`; in flipped images, left
                is what looks left. For rotated boxes, corners (K, 4, 2) x, y.
        """
        if isinstance(batch, ClipBatch):
            raise InputError("got a ClipBatch: give batch.as_images(), and predictions of each frame")
        if batch.image_id is None or batch.source_size is None:  # of a DALI pipeline
            raise InputError(
                "the batch has no image_id or no source_size: return both from the pipeline, named in output_map"
            )
        for image_id, size in zip(batch.image_id.tolist(), batch.source_size.tolist(), strict=True):
            if (other := self._shown.get(image_id, size)) != size:
                raise InputError(
                    f"the image with image_id {image_id} is {size[1]} x {size[0]} pixels, and {other[1]} x {other[0]} "
                    "in the JSON file that it is compared with; evaluate with the loader's JSON file"
                )
        detections = self._in_source(batch, predictions)
        for image_id, image_detections in zip(batch.image_id.tolist(), detections, strict=True):
            if image_id not in self._number:
                where = f"in {self.annotations}" if self._tiles is None else "that of a tile"
                raise InputError(f"image_id {image_id} is not {where}; evaluate with the loader's JSON file")
            self._own_repeated += image_id in self._own
            self._own.setdefault(image_id, image_detections)
        self._gathered, self._repeated, self._merged = self._own, self._own_repeated, None

    def load(self, path: str | os.PathLike[str]) -> CocoEvaluator[M]:
        """Take the detections of a JSON file in COCO's results format, such as `save` writes, instead of those so far.

        An image without a row has no detections. Returns the evaluator. Raises OSError, and InputError for what does
        not fit the JSON file of the objects, and for an evaluator of tiles.
        """
        if self._tiles is not None:
            raise InputError("a JSON file has the detections in images: make the evaluator without tiles")
        self._own, self._own_repeated = read_results(Path(path), self._kind), 0
        self._gathered, self._repeated = self._own, 0
        return self

    def gather(self) -> CocoEvaluator[M]:
        """Gather the detections of all ranks of torch.distributed; every rank must call it. Returns the evaluator.

        Does nothing without an initialized process group. For an image on several ranks, the
        detections of the lowest rank count. May be called again after more updates.
        """
        parts = of_all_ranks((self._own, self._own_repeated))
        if parts is None:
            return self
        # the lowest rank comes last, and so its detections stay
        self._gathered = {
            image_id: image_detections for own, _ in reversed(parts) for image_id, image_detections in own.items()
        }
        self._repeated, self._merged = sum(len(own) + repeated for own, repeated in parts) - len(self._gathered), None
        return self

    def compute(self, *, partial: bool = False, voc2007: bool = False) -> M:
        """Compute the metrics of all images of the JSON file.

        Args:
            partial: Of the updated images only; otherwise a missing image is an error.
            voc2007: VOC's and DOTA's AP is the mean of precision at 11 recalls, as in VOC2007, not the area under the
                curve, as from VOC2010 on.
        """
        self._check_complete(partial)
        rules: dict[str, Any] = {"voc2007": voc2007, "max_detections": self._max_detections}
        return self._kind.metrics(self._in_images(), repeated=self._repeated, **rules)

    @property
    def truth(self) -> GroundTruth:
        """Return the objects that detections are compared with."""
        return self._kind.truth

    @property
    def detections(self) -> Mapping[int, ImageDetections]:
        """Return the detections by image id, in source pixels; those in tiles merged."""
        return self._in_images()

    def errors(self, *, min_score: float = SCORE, partial: bool = False) -> DetectionErrors:
        """Return what detections of at least `min_score`, 0..1, do wrong; of boxes or rotated boxes. See `compute`."""
        check("min_score", min_score, is_number(min_score, 0, 1), "in 0..1")
        iou = _overlaps(self._kind, "errors")
        self._check_complete(partial)
        return find_errors(self.truth, self._in_images(), min_score, iou)

    def label_errors(self, *, partial: bool = False) -> list[LabelError]:
        """Return annotations that are likely wrong or missing, the worst first, see `find_label_errors`."""
        iou = _overlaps(self._kind, "label errors")
        self._check_complete(partial)
        return find_label_errors(self.truth, self._in_images(), iou)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the detections as COCO results, the JSON file that pycocotools' `loadRes` and test servers take.

        Rotated boxes have their `corners` beside the box around them.
        """
        (target,) = output_files({"path": path}, self.annotations).values()
        lines = (json.dumps(row, separators=(",", ":"), allow_nan=False) for row in self._kind.rows(self._in_images()))
        write_atomically(target, ("[" + next(lines, ""), *(",\n" + line for line in lines), "]\n"))

    # ---------------------------------------------------------------------------------------- detections

    def _in_images(self) -> Mapping[int, ImageDetections]:
        """Return the detections by image id of the JSON file: those of tiles are merged, once after each change."""
        if self._tiles is None:
            return self._gathered
        if self._merged is None:
            self._merged = merged(self._tiles, self._gathered, self._kind, self._min_iou)
        return self._merged

    def _in_source(self, batch: Batch, predictions: Sequence[Mapping[str, Tensor]]) -> Sequence[ImageDetections]:
        columns = read_predictions(predictions, len(batch), len(self._category_ids), self._kind.key)
        per_image = zip(self._kind.in_source(batch, columns), columns.scores, columns.labels, strict=True)
        detections = [
            ImageDetections(shapes, scores.double().numpy(), self._category_ids[labels.numpy() - 1])
            for shapes, scores, labels in per_image
        ]
        return detections if self._tiles is None else self._in_source_images(batch, predictions, detections)

    def _in_source_images(
        self, batch: Batch, predictions: Sequence[Mapping[str, Tensor]], detections: Sequence[ImageDetections]
    ) -> list[ImageDetections]:
        """Return detections in tiles in pixels of their images.

        Boxes that come with keypoints or masks are what these are merged by: they show better what a tile cuts.
        """
        assert self._tiles is not None
        of_boxes = None
        if self._kind.key.name != "boxes" and all(
            "boxes" in prediction and prediction["boxes"].shape == (len(prediction["scores"]), 4)
            for prediction in predictions
        ):
            of_boxes = batch.to_source([prediction["boxes"].detach() for prediction in predictions])
        moved = []
        for index, (image_id, image_detections) in enumerate(zip(batch.image_id.tolist(), detections, strict=True)):
            tile = self._number.get(image_id)
            if tile is None:  # `update` refuses it
                moved.append(image_detections)
                continue
            window, size = self._tiles.windows[tile], self._tiles.sizes[tile]
            shapes = self._kind.placed(image_detections.shapes, window, size, self._sizes[self._tiles.source_ids[tile]])
            around = self._kind.boxes_around(shapes)
            if of_boxes is not None:
                around = place(of_boxes[index].double().cpu().numpy(), window, size)
            moved.append(image_detections._replace(shapes=shapes, boxes=around))
        return moved

    def _check_complete(self, partial: bool) -> None:
        ids = self._image_ids
        missing = [image_id for image_id in ids if image_id not in self._gathered]
        if not self._gathered:
            raise InputError("there is nothing to compute: call update(batch, predictions) first")
        if missing and not partial:
            images = "images" if self._tiles is None else "tiles of the images"
            raise InputError(
                f"{len(missing)} of {len(ids)} {images} of {self.annotations} were never updated, the "
                f"first has image_id {missing[0]}; update with all, gather() over the ranks, or compute(partial=True)"
            )


def _overlaps(kind: DetectionKind[Any], what: str) -> Overlaps:
    """Return the IoU by which errors are found. Raises InputError for a kind without boxes."""
    if not isinstance(kind, BoxKind | RotatedKind):
        raise InputError(f"{what} are found by boxes: make the evaluator with kind='bbox' or 'rotated'")
    return iou_of_boxes if isinstance(kind, BoxKind) else iou_of_quadrangles
