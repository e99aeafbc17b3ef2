"""Mask R-CNN and Keypoint R-CNN of torchvision as one graph."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from detaug.export.graph import Candidates, TorchvisionGraph, rows_at

LEAST_SIDE = 0.01
"""Pixels of the sides of a detection, in torchvision's `RoIHeads.postprocess_detections`."""


class TwoStageGraph(TorchvisionGraph):
    """Each image has as many proposals, of which some may have the score 0; those of all images are one list.

    `Candidates.more` are the features by their names.
    """

    def candidates(self, images: Tensor) -> Candidates:
        """Return the detections after non-maximum suppression of each class; scores of boxes not kept are 0."""
        features = self.model.backbone(images)
        features = features if isinstance(features, dict) else {"0": features}
        proposals, valid = self._proposals(images, [*features.values()])
        heads = self.model.roi_heads
        logits, offsets = heads.box_predictor(heads.box_head(self._pooled(heads.box_roi_pool, features, proposals)))
        images_, most = proposals.shape[0], proposals.shape[1]
        scores = logits.view(images_, most, -1).softmax(-1)[..., 1:] * valid[..., None]
        boxes = self.decoded(heads.box_coder, offsets.view(images_, most, -1, 4)[:, :, 1:], proposals[:, :, None])
        scores = scores * ((boxes[..., 2:] - boxes[..., :2]).amin(-1) >= LEAST_SIDE)
        scores, boxes = scores.transpose(1, 2), boxes.transpose(1, 2)
        classes = scores.shape[1]
        # Each class as an image of its own: its boxes are not those of the others.
        kept = self.kept(boxes.flatten(0, 1), scores.flatten(0, 1)[:, None], heads.nms_thresh, heads.score_thresh)
        labels = torch.arange(1, classes + 1)[:, None].expand(-1, most).flatten().expand(images_, -1)
        candidates = Candidates(boxes.flatten(1, 2), kept.view_as(scores).flatten(1), labels, features)
        return candidates.at(candidates.scores.topk(min(heads.detections_per_img, classes * most), dim=1).indices)

    def _proposals(self, images: Tensor, features: list[Tensor]) -> tuple[Tensor, Tensor]:
        """Return the best boxes of the first stage (N, M, 4), and which of them are some (N, M)."""
        from torchvision.models.detection.rpn import concat_box_prediction_layers

        rpn = self.model.rpn
        objectness, offsets = rpn.head(features)
        counts = [int(level.shape[1] * level.shape[2] * level.shape[3]) for level in objectness]
        logits, flat_offsets = concat_box_prediction_layers(objectness, offsets)
        levels = zip(
            torch.split(logits.view(images.shape[0], -1), counts, 1),
            torch.split(flat_offsets.view(images.shape[0], -1, 4), counts, 1),
            torch.split(self.anchors(rpn.anchor_generator, images, features), counts, 0),
            strict=True,
        )
        parts = []
        for of_level, own_offsets, own_anchors in levels:
            best, index = of_level.topk(min(rpn.pre_nms_top_n(), of_level.shape[1]), dim=1)
            parts.append((self.decoded(rpn.box_coder, rows_at(own_offsets, index), own_anchors[index]), best.sigmoid()))
        boxes = torch.cat([part for part, _ in parts], 1)
        scores = torch.cat([part for _, part in parts], 1)
        level = torch.cat([torch.full((part.shape[1],), number) for number, (_, part) in enumerate(parts)])
        scores = scores * ((boxes[..., 2:] - boxes[..., :2]).amin(-1) >= rpn.min_size) * (scores >= rpn.score_thresh)
        of_level = scores[:, None] * (torch.arange(len(parts))[:, None] == level)  # each level as a class
        kept = self.kept(boxes, of_level, rpn.nms_thresh, 0.0).sum(1)
        kept, index = kept.topk(min(rpn.post_nms_top_n(), kept.shape[1]), dim=1)
        return rows_at(boxes, index), kept > 0

    def _pooled(self, pool: Any, features: dict[str, Tensor], boxes: Tensor) -> Tensor:
        """Return the features of regions (N, M, 4), as (N * M, C, h, w): torchvision's MultiScaleRoIAlign."""
        from torchvision.ops import roi_align
        from torchvision.ops.poolers import LevelMapper

        image = torch.arange(boxes.shape[0]).view(-1, 1, 1).expand(-1, boxes.shape[1], 1)
        regions = torch.cat([image.to(boxes.dtype), boxes], -1).flatten(0, 1)
        maps = [features[name] for name in pool.featmap_names]
        powers = [round(math.log2(int(level.shape[2]) / self.size[0])) for level in maps]

        def align(number: int, of: Tensor) -> Tensor:
            pooled: Tensor = roi_align(maps[number], of, pool.output_size, 2.0 ** powers[number], pool.sampling_ratio)
            return pooled

        if len(maps) == 1:
            return align(0, regions)
        mapper = LevelMapper(-powers[0], -powers[-1], pool.canonical_scale, pool.canonical_level)
        levels = mapper([regions[:, 1:]])
        rows = [(levels == number).nonzero()[:, 0] for number in range(len(maps))]
        return torch.cat([align(number, regions[row]) for number, row in enumerate(rows)])[torch.cat(rows).argsort()]

    def shapes(self, candidates: Candidates, index: Tensor, source_size: Tensor) -> tuple[Tensor, ...]:
        """Return masks in their boxes, or keypoints."""
        chosen, heads = candidates.at(index), self.model.roi_heads
        count = index.shape[0], index.shape[1]
        if heads.has_mask():
            pooled = self._pooled(heads.mask_roi_pool, candidates.more, chosen.boxes)
            logits = heads.mask_predictor(heads.mask_head(pooled))
            masks = rows_at(logits, chosen.labels.flatten()[:, None])[:, 0].sigmoid()
            return masks.view(*count, *masks.shape[1:]), self._in_source(chosen.boxes, source_size)
        from torchvision.models.detection.roi_heads import heatmaps_to_keypoints

        pooled = self._pooled(heads.keypoint_roi_pool, candidates.more, chosen.boxes)
        maps = heads.keypoint_predictor(heads.keypoint_head(pooled))
        points, scores = heatmaps_to_keypoints(maps, chosen.boxes.flatten(0, 1))
        points = points.view(*count, maps.shape[1], 3)
        places = self._in_source(points[..., :2], source_size)
        return torch.cat([places, points[..., 2:]], -1), scores.view(*count, maps.shape[1])
