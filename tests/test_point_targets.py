"""Key points and rotated boxes as trainers take them; detectors that learn them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from disc_files import paint_discs, write_discs
from test_rotated_boxes import random_rectangles, write_quadrangles
from torch import Tensor, nn

import detaug as da

RESIZE = da.Resize((120, 160))


def point_batch(folder: Path, device: str, **options: Any) -> da.Batch:
    reader = da.CocoReader(folder, write_discs(folder, paint_discs(8)), keypoints=True)
    return next(iter(da.Loader(reader, [RESIZE, da.Normalize()], 8, device=device, train=False, **options)))


def test_targets_and_detr_have_key_points(tmp_path: Path, device: str) -> None:
    batch = point_batch(tmp_path, device)
    for at, target in enumerate(batch.targets()):
        assert torch.equal(target["keypoints"], batch.keypoints[at, : batch.counts[at]])
    (images, _), targets = batch.as_detr()
    for at, target in enumerate(targets):
        scale = torch.tensor([160.0, 120, 1], device=images.tensors.device if hasattr(images, "tensors") else device)
        torch.testing.assert_close(target["keypoints"] * scale, batch.keypoints[at, : batch.counts[at]])


def test_yolos_pose_has_a_row_for_each_box(tmp_path: Path, device: str) -> None:
    batch = point_batch(tmp_path, device)
    rows = batch.as_yolo("pose")
    assert rows["kpt_shape"].tolist() == [3, 3]
    assert rows["keypoints"].shape == (sum(batch.counts), 3, 3)
    at = 0
    for image, count in enumerate(batch.counts):
        for place in range(count):
            x, y, visible = rows["keypoints"][at].unbind(-1)
            expected = batch.keypoints[image, place]
            torch.testing.assert_close(torch.stack([x * 160, y * 120, visible], -1), expected)
            assert rows["batch_idx"][at] == image
            at += 1
    with pytest.raises(da.InputError, match="task must be 'detect', 'segment', 'pose' or 'obb'"):
        batch.as_yolo("segmentation")  # type: ignore[arg-type]


def test_yolos_obb_is_the_rotated_box(tmp_path: Path, device: str) -> None:
    corners = random_rectangles(np.random.default_rng(0), 4)
    reader = da.CocoReader(tmp_path, write_quadrangles(tmp_path, corners, "corners"), rotated=True)
    (batch,) = da.Loader(reader, [da.Resize((200, 260))], 4, device=device, train=False)
    rows = batch.as_yolo("obb")["bboxes"].cpu()
    rotated = batch.rotated_boxes("cxcywhr", "yolo")[:, 0].cpu()
    torch.testing.assert_close(rows[:, :4] * torch.tensor([260.0, 200, 260, 200]), rotated[:, :4])
    torch.testing.assert_close(rows[:, 4], rotated[:, 4])
    for row, expected in zip(rotated, corners, strict=True):
        assert np.allclose(row[:2], expected.mean(0), atol=1e-3)


def test_sources_with_and_without_shapes_join(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    points = da.CocoReader(tmp_path / "a", write_discs(tmp_path / "a", paint_discs(3)), keypoints=True)
    corners = random_rectangles(np.random.default_rng(0), 3)
    ships = da.CocoReader(tmp_path / "b", write_quadrangles(tmp_path / "b", corners, "corners"), rotated=True)
    reader = da.ConcatReader([points, ships])
    assert reader.class_names == ("background", "hand", "ship")
    (batch,) = da.Loader(reader, [da.Resize((200, 260))], 6, device="cpu", train=False)
    assert batch.keypoints[:3, 0, 0, 2].tolist() == [2, 2, 2]
    assert not batch.keypoints[3:].any()
    np.testing.assert_allclose(batch.corners[3:, 0].numpy(), np.stack(corners), atol=1e-4)
    assert points.shapes.keypoints is not None
    others = da.CocoReader(tmp_path / "a", tmp_path / "a" / "discs.json", keypoints=True, flip_pairs=[])
    with pytest.raises(da.InputError, match="the key points of 'hand' differ"):
        da.ConcatReader([points, others])


def small_backbone() -> Any:
    """Return a network from images to (N, 32, H / 8, W / 8)."""
    layers: list[nn.Module] = []
    for inputs, outputs in ((3, 16), (16, 32), (32, 32)):
        layers += [nn.Conv2d(inputs, outputs, 3, 2, 1), nn.GroupNorm(4, outputs), nn.ReLU()]
    backbone = nn.Sequential(*layers)
    backbone.out_channels = 32  # type: ignore[assignment]
    return backbone


@pytest.mark.slow
def test_keypoint_rcnn_learns_eight_images(tmp_path: Path) -> None:
    detection = pytest.importorskip("torchvision.models.detection")
    anchors = pytest.importorskip("torchvision.models.detection.anchor_utils")
    heads = pytest.importorskip("torchvision.models.detection.keypoint_rcnn")
    torch.manual_seed(0)
    model = detection.KeypointRCNN(
        small_backbone(),
        num_classes=2,
        rpn_anchor_generator=anchors.AnchorGenerator(((32, 64, 128),), ((0.5, 1.0, 2.0),)),
        box_roi_pool=pytest.importorskip("torchvision.ops").MultiScaleRoIAlign(["0"], 7, 2),
        keypoint_roi_pool=pytest.importorskip("torchvision.ops").MultiScaleRoIAlign(["0"], 7, 2),
        keypoint_head=heads.KeypointRCNNHeads(32, (32, 32)),
        keypoint_predictor=heads.KeypointRCNNPredictor(32, 3),
        min_size=120,
        max_size=160,
        box_detections_per_img=10,
        rpn_pre_nms_top_n_train=100,
        rpn_post_nms_top_n_train=32,
        box_batch_size_per_image=32,
        image_mean=(0.0, 0.0, 0.0),
        image_std=(1.0, 1.0, 1.0),
    )
    reader = da.CocoReader(tmp_path, write_discs(tmp_path, paint_discs(8)), keypoints=True)
    recipe = [da.RandomHorizontalFlip(), RESIZE, da.Normalize()]
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)
    loader = da.Loader(reader, recipe, 8, device="cpu", seed=0)
    model.train()
    first = last = 0.0
    for _ in range(35):
        (batch,) = loader
        losses = model(list(batch.images), batch.targets())
        loss = sum(losses.values())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        last = losses["loss_keypoint"].item()
        first = first or last
    assert last < 0.9 * first, (first, last)


class TinyRotatedDetector(nn.Module):
    """Predicts one rotated box an image: centre, logarithms of sides, and the double angle, which has no seam."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(small_backbone(), nn.AdaptiveAvgPool2d(6), nn.Flatten(), nn.Linear(32 * 36, 64))
        self.head = nn.Linear(64, 6)

    def forward(self, images: Tensor) -> Tensor:
        return torch.as_tensor(self.head(self.features(images).relu()))


def as_numbers(boxes: Tensor) -> Tensor:
    x, y, w, h, angle = boxes.unbind(-1)
    return torch.stack([x / 160, y / 120, (w / 40).log(), (h / 20).log(), (2 * angle).cos(), (2 * angle).sin()], -1)


@pytest.mark.slow
def test_a_rotated_detector_learns_eight_images(tmp_path: Path) -> None:
    torch.manual_seed(0)
    corners = random_rectangles(np.random.default_rng(1), 8)
    reader = da.CocoReader(tmp_path, write_quadrangles(tmp_path, corners, "corners"), rotated=True)
    recipe = [da.RandomHorizontalFlip(), RESIZE, da.Normalize()]
    model = TinyRotatedDetector()
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    loader = da.Loader(reader, recipe, 8, device="cpu", seed=0)
    for _ in range(120):
        (batch,) = loader
        loss = (model(batch.images) - as_numbers(batch.rotated_boxes("cxcywhr", "le90")[:, 0])).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    (batch,) = da.Loader(reader, recipe[1:], 8, device="cpu", train=False)
    with torch.no_grad():
        predicted = model(batch.images)
    expected = as_numbers(batch.rotated_boxes("cxcywhr", "le90")[:, 0])
    assert (predicted[:, :2] - expected[:, :2]).abs().mean() < 0.05
    turn = torch.atan2(predicted[:, 5], predicted[:, 4]) - torch.atan2(expected[:, 5], expected[:, 4])
    assert (torch.remainder(turn + torch.pi, 2 * torch.pi) - torch.pi).abs().div(2).mean() < np.deg2rad(8)
