"""Keypoints and rotated boxes as trainers take them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from disc_files import paint_discs, write_discs
from test_rotated_boxes import random_rectangles, write_quadrangles

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
    with pytest.raises(da.InputError, match="task must be 'detect', 'segment', 'pose', 'obb', 'semantic' or 'depth'"):
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
    with pytest.raises(da.InputError, match="the keypoints of 'hand' swap in other ways"):
        da.ConcatReader([points, others])
