"""A detector as one graph of tensors: normalization, candidates, the choice of detections, boxes of the source image.

torchvision's detectors choose detections image by image, in Python loops whose lengths depend on the data, which a
traced graph cannot have. Here all images of a batch are one tensor, with the same candidates in the same order. A DETR
needs no non-maximum suppression: its best pairs of a query and a class are the detections. Masks and keypoints are
found for the chosen detections alone.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from detaug.errors import InputError
from detaug.findings.finding import listed
from detaug.ops.normalize import Normalize
from detaug.ops.resize import Resize
from detaug.training.detr_models import best_pairs
from detaug.training.model_table import MODELS, Finds

OUTPUTS = ("num_dets", "boxes", "scores", "labels")

SHAPES: dict[Finds, tuple[str, ...]] = {
    "bbox": (), "segm": ("masks", "mask_boxes"), "keypoints": ("keypoints", "keypoints_scores")
}  # fmt: skip
"""Further outputs, by what a model finds."""

NO_LIMIT = 1 << 30
"""Boxes that ONNX's NonMaxSuppression keeps of a class; it keeps none by default."""


class NonMaxSuppression(torch.autograd.Function):
    """ONNX's operator of this name: of every image and class at once. torchvision has none for batches."""

    @staticmethod
    def forward(ctx: Any, boxes: Tensor, scores: Tensor, iou: float, least: float) -> Tensor:
        """Return (D, 3) int64: image, class and position of the boxes that are kept, for tracing and comparison.

        boxes: (N, M, 4) XYXY. scores: (N, C, M).
        """
        from torchvision.ops import nms

        rows = []
        for image in range(scores.shape[0]):
            for label in range(scores.shape[1]):
                (above,) = (scores[image, label] > least).nonzero(as_tuple=True)
                kept = above[nms(boxes[image, above], scores[image, label, above], iou)]
                rows.append(torch.stack([torch.full_like(kept, image), torch.full_like(kept, label), kept], 1))
        return torch.cat(rows)

    @staticmethod
    def symbolic(graph: Any, boxes: Any, scores: Any, iou: float, least: float) -> Any:
        def constant(value: float, dtype: torch.dtype) -> Any:
            return graph.op("Constant", value_t=torch.tensor([value], dtype=dtype))

        limits = (
            constant(NO_LIMIT, torch.int64),
            constant(iou, torch.float32),
            constant(least, torch.float32),
        )
        return graph.op("NonMaxSuppression", boxes, scores, *limits)


class Candidates(NamedTuple):
    """The detections of normalized images, from which the graph takes the best."""

    boxes: Tensor
    """(N, M, 4) XYXY, in pixels of the input."""
    scores: Tensor
    """(N, M), 0 for those that are none."""
    labels: Tensor
    """(N, M)."""
    more: Any = None
    """What `DetectorGraph.shapes` needs."""

    def at(self, index: Tensor) -> Candidates:
        """Return those of the positions (N, K)."""
        return Candidates(
            rows_at(self.boxes, index), rows_at(self.scores, index), rows_at(self.labels, index), self.more
        )


def rows_at(values: Tensor, index: Tensor) -> Tensor:
    """Return (N, K, ...), the rows of values (N, M, ...) at index (N, K)."""
    more = values.shape[2:]
    return values.gather(1, index.view(*index.shape, *(1 for _ in more)).expand(-1, -1, *more))


class DetectorGraph(nn.Module):
    """A detector for one input size (H, W) and any number of images.

    `resize`: how images get to the input size, which `forward` undoes. `most`: detections per image at most.
    """

    def __init__(self, model: nn.Module, resize: Resize, normalize: Normalize, most: int) -> None:
        super().__init__()
        self.model: Any = model
        self.mean: Tensor
        self.std: Tensor
        assert isinstance(resize.size, tuple)
        self.resize, self.size, self.most = resize, resize.size, most
        self.register_buffer("mean", torch.tensor(normalize.mean).view(3, 1, 1))
        self.register_buffer("std", torch.tensor(normalize.std).view(3, 1, 1))

    def forward(self, images: Tensor, source_size: Tensor) -> tuple[Tensor, ...]:
        """Return how many detections each image has (N,), boxes (N, K, 4), scores (N, K), labels (N, K), and `SHAPES`.

        images: (N, 3, H, W), 0..1, resized. source_size: (N, 2) int64, height and width before. Boxes are XYXY in
        pixels of the source images, best first; after the last one all is 0. masks: (N, K, h, w), the probability
        of each part of the rectangle of mask_boxes (N, K, 4), XYXY in pixels of the source images, also outside of
        them. keypoints: (N, K, P, 3), x, y in pixels of the source images, and 1; keypoints_scores: (N, K, P).
        """
        candidates = self.candidates((images - self.mean) / self.std)
        boxes = self._in_source(candidates.boxes, source_size, clip=True)
        # Label 0, the background, has scores in RetinaNet and FCOS, too, and takes a place among the best as in
        # torchvision; boxes in the fill of a letterbox have no area in the source image. Both go now.
        scores = candidates.scores * (candidates.labels > 0)
        if self.resize.letterbox:
            scores = scores * ((boxes[..., 2:] - boxes[..., :2]).amin(-1) > 0)
        scores, index = scores.topk(min(self.most, scores.shape[1]), dim=1)
        kept = scores > 0
        values = (
            rows_at(boxes, index),
            scores,
            rows_at(candidates.labels, index),
            *self.shapes(candidates, index, source_size),
        )
        return kept.sum(1), *(value * kept.view(*kept.shape, *(1 for _ in value.shape[2:])) for value in values)

    def candidates(self, images: Tensor) -> Candidates:
        """Return the model's detections of normalized images."""
        raise NotImplementedError

    def shapes(self, candidates: Candidates, index: Tensor, source_size: Tensor) -> tuple[Tensor, ...]:
        """Return what `SHAPES` names, for the candidates at index (N, K)."""
        return ()

    def _in_source(self, points: Tensor, source_size: Tensor, *, clip: bool = False) -> Tensor:
        """Return x, y, or XYXY, (N, ..., 2 or 4) of the input in pixels of the source images: `Resize`, backwards."""
        source = source_size.to(points.dtype)
        size = source.new_tensor(self.size)
        if self.resize.letterbox:
            length = (source * (size / source).amin(1, keepdim=True)).round().clamp(min=1)
            offset = ((size - length) / 2).floor() if self.resize.letterbox == "center" else torch.zeros_like(length)
        else:
            length, offset = size.expand_as(source), torch.zeros_like(source)
        axes = -1, *(1 for _ in points.shape[1:-1]), points.shape[-1]
        offset, scale, limit = (
            pair.flip(1).repeat(1, points.shape[-1] // 2).view(axes) for pair in (offset, source / length, source)
        )
        moved = (points - offset) * scale
        return moved.clamp(min=0).minimum(limit) if clip else moved


class DetrGraph(DetectorGraph):
    """RT-DETRv2, D-FINE or RF-DETR. Of RF-DETR it takes a copy, which its package makes ready for tracing."""

    def __init__(self, model: Any, resize: Resize, normalize: Normalize, most: int) -> None:
        super().__init__(model.for_tracing(), resize, normalize, most)

    def candidates(self, images: Tensor) -> Candidates:
        """Return the best pairs, as `DetrDetector` does."""
        outputs = self.model.outputs(images)
        boxes, scores, labels, queries = best_pairs(outputs.logits, outputs.boxes, self.size, self.model.most)
        return Candidates(boxes, scores, labels, None if outputs.masks is None else (queries, outputs.masks))

    def shapes(self, candidates: Candidates, index: Tensor, source_size: Tensor) -> tuple[Tensor, ...]:
        """Return masks of the whole input, if the model finds some."""
        if candidates.more is None:
            return ()
        queries, masks = candidates.more
        height, width = self.size
        whole = self._in_source(
            candidates.boxes.new_tensor([0, 0, width, height]).expand(index.shape[0], 4), source_size
        )
        return rows_at(masks, rows_at(queries, index)).sigmoid(), whole[:, None].expand(-1, index.shape[1], -1)


class TorchvisionGraph(DetectorGraph):
    """What torchvision's detectors of one stage and of two have in common."""

    def anchors(self, generator: Any, images: Tensor, features: list[Tensor]) -> Tensor:
        """Return (A, 4) XYXY, the same for each image, so constants of the graph."""
        from torchvision.models.detection.image_list import ImageList

        anchors: Tensor = generator(ImageList(images[:1], [self.size]), features)[0]
        return anchors

    def decoded(self, coder: Any, offsets: Tensor, anchors: Tensor) -> Tensor:
        """Return boxes XYXY clipped to the input, as torchvision's box coders decode them."""
        sizes = anchors[..., 2:] - anchors[..., :2]
        middles = (anchors[..., :2] + anchors[..., 2:]) / 2
        if hasattr(coder, "normalize_by_size"):  # FCOS
            offsets = offsets * torch.cat([sizes, sizes], -1) if coder.normalize_by_size else offsets
            boxes = torch.cat([middles - offsets[..., :2], middles + offsets[..., 2:]], -1)
        else:
            offsets = offsets / offsets.new_tensor(coder.weights)
            middles = offsets[..., :2] * sizes + middles
            sizes = offsets[..., 2:].clamp(max=coder.bbox_xform_clip).exp() * sizes
            boxes = torch.cat([middles - sizes / 2, middles + sizes / 2], -1)
        height, width = self.size
        return boxes.clamp(min=0).minimum(boxes.new_tensor([width, height, width, height]))

    def kept(self, boxes: Tensor, scores: Tensor, iou: float, least: float) -> Tensor:
        """Return the scores (N, C, M) of boxes (N, M, 4) that non-maximum suppression keeps, 0 for the others."""
        images, classes, positions = scores.shape[0], scores.shape[1], scores.shape[2]
        rows = NonMaxSuppression.apply(boxes, scores, float(iou), float(least))
        flat = (rows[:, 0] * classes + rows[:, 1]) * positions + rows[:, 2]
        kept = torch.zeros_like(scores).flatten().index_fill(0, flat, 1.0)
        return kept.view(images, classes, positions) * scores


class OneStageGraph(TorchvisionGraph):
    """torchvision's SSD, SSDlite, RetinaNet or FCOS."""

    def candidates(self, images: Tensor) -> Candidates:
        """Return the detections after non-maximum suppression; scores of boxes that are not kept are 0."""
        features = [*self.model.backbone(images).values()]
        heads = self.model.head(features)
        anchors = self.anchors(self.model.anchor_generator, images, features)
        choose = self._of_classes if type(self.model).__name__ == "SSD" else self._of_levels
        candidates = Candidates(*choose(heads, anchors, features))
        return candidates.at(
            candidates.scores.topk(min(self.model.detections_per_img, candidates.scores.shape[1]), dim=1).indices
        )

    def _of_classes(self, heads: dict[str, Tensor], anchors: Tensor, _: list[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Return the candidates of SSD: the best of each class, (N, C * K)."""
        boxes = self.decoded(self.model.box_coder, heads["bbox_regression"], anchors)
        scores = heads["cls_logits"].softmax(-1)[..., 1:].transpose(1, 2)
        classes, most = scores.shape[1], min(self.model.topk_candidates, scores.shape[2])
        scores, index = scores.topk(most, dim=2)
        boxes = boxes[:, None].expand(-1, classes, -1, -1).gather(2, index[..., None].expand(-1, -1, -1, 4))
        kept = self._kept(boxes.flatten(0, 1), scores.flatten(0, 1)[:, None])  # each class as an image of its own
        labels = torch.arange(1, classes + 1)[:, None].expand(-1, most).flatten().expand(scores.shape[0], -1)
        return boxes.flatten(1, 2), kept.view_as(scores).flatten(1), labels

    def _of_levels(
        self, heads: dict[str, Tensor], anchors: Tensor, features: list[Tensor]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the candidates of RetinaNet and FCOS: the best pairs of a box and a class of each level, (N, M)."""
        scores = heads["cls_logits"].sigmoid()
        if "bbox_ctrness" in heads:
            scores = (scores * heads["bbox_ctrness"].sigmoid()).sqrt()
        classes = scores.shape[2]
        per_place = anchors.shape[0] // sum(level.shape[2] * level.shape[3] for level in features)
        counts = [level.shape[2] * level.shape[3] * per_place for level in features]
        parts = []
        levels = (
            torch.split(tensor, counts, dim)
            for tensor, dim in ((scores, 1), (heads["bbox_regression"], 1), (anchors, 0))
        )
        for of_level, offsets, own_anchors in zip(*levels, strict=True):
            flat = of_level.flatten(1)
            best, index = flat.topk(min(self.model.topk_candidates, flat.shape[1]), dim=1)
            place = torch.div(index, classes, rounding_mode="floor")
            chosen = offsets.gather(1, place[..., None].expand(-1, -1, 4))
            parts.append(
                (self.decoded(self.model.box_coder, chosen, own_anchors[place]), best, index - place * classes)
            )
        boxes, best, labels = (torch.cat(part, 1) for part in zip(*parts, strict=True))
        of_class = torch.arange(classes)[None, :, None] == labels[:, None]
        return boxes, self._kept(boxes, best[:, None] * of_class).sum(1), labels

    def _kept(self, boxes: Tensor, scores: Tensor) -> Tensor:
        return self.kept(boxes, scores, self.model.nms_thresh, self.model.score_thresh)


def refuse_other_models(name: str) -> None:
    """Raise InputError for a model whose detections have no place in the graph."""
    if MODELS[name].finds not in SHAPES:
        others = [other for other, row in MODELS.items() if row.finds in SHAPES]
        why = "because ONNX has no non-maximum suppression of rotated boxes"
        if MODELS[name].finds == "semantic":
            why = "since its graph would have no boxes; torch.onnx.export takes da.load_model(FILE).model"
        raise InputError(f"{name} is not exported, {why}; export {listed(others)}")
