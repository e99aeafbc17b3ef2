"""Numbers that the tests of other libraries expect, in tables of our own: boxes after ops, and scores.

Each table names the repository and the file that the numbers come from, all under BSD, MIT or Apache 2.0. They were
found by other programs, so they tell what ours and a second implementation of ours could have wrong together. Where a
library only computes what it expects, there is no number to take, and `test_against_torchvision.py` compares instead.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from test_evaluator import blank_batch

import detaug as da
from detaug.converters import yolo_to_coco
from detaug.evaluation.rotated import iou_of_quadrangles

Box = Sequence[float]


def moved(ops: Sequence[da.Op], size: tuple[int, int], boxes: Sequence[Box], **shapes: Any) -> da.Samples:
    """Return one image of `size` (H, W) with its boxes, XYXY pixels, after ops."""
    samples = da.batch([np.zeros((*size, 3), np.uint8)], [boxes], **shapes)
    for op in ops:
        samples = op(samples)
    return samples


def with_draws(samples: da.Samples, **drawn: Any) -> da.Samples:
    """Return samples whose first op drew these numbers."""
    first, *others = samples.params
    return samples.replay([{**first, **{name: np.array([value]) for name, value in drawn.items()}}, *others])


def assert_boxes(samples: da.Samples, expected: Any, tolerance: float = 1e-4) -> None:
    assert np.asarray(samples.boxes[0]) == pytest.approx(np.array(expected, float).reshape(-1, 4), abs=tolerance)


# ------------------------------------------------------------------------------------------------ flips

# NVIDIA/DALI, dali/operators/bbox/bb_flip_test.cc: left, top, right, bottom as fractions of the image;
# the box, then flipped horizontally, then vertically
DALI_FLIPS = [
    ((0.2, 0.2, 0.6, 0.5), (0.4, 0.2, 0.8, 0.5), (0.2, 0.5, 0.6, 0.8)),
    ((0.0, 0.0, 0.5, 0.5), (0.5, 0.0, 1.0, 0.5), (0.0, 0.5, 0.5, 1.0)),
    ((0.3, 0.2, 0.4, 0.3), (0.6, 0.2, 0.7, 0.3), (0.3, 0.7, 0.4, 0.8)),
    ((0.0, 0.0, 0.2, 0.3), (0.8, 0.0, 1.0, 0.3), (0.0, 0.7, 0.2, 1.0)),
    ((0.0, 0.0, 0.1, 0.1), (0.9, 0.0, 1.0, 0.1), (0.0, 0.9, 0.1, 1.0)),
    ((0.5, 0.5, 0.6, 0.6), (0.4, 0.5, 0.5, 0.6), (0.5, 0.4, 0.6, 0.5)),
    ((0.0, 0.6, 0.7, 0.9), (0.3, 0.6, 1.0, 0.9), (0.0, 0.1, 0.7, 0.4)),
    ((0.6, 0.2, 0.9, 0.5), (0.1, 0.2, 0.4, 0.5), (0.6, 0.5, 0.9, 0.8)),
    ((0.4, 0.3, 0.9, 0.8), (0.1, 0.3, 0.6, 0.8), (0.4, 0.2, 0.9, 0.7)),
    ((0.25, 0.25, 0.75, 0.75), (0.25, 0.25, 0.75, 0.75), (0.25, 0.25, 0.75, 0.75)),
    ((0.5, 0.5, 1.0, 1.0), (0.0, 0.5, 0.5, 1.0), (0.5, 0.0, 1.0, 0.5)),
]
# albumentations, tests/test_bbox.py, test_bboxes_hflip and test_bboxes_vflip
ALBUMENTATIONS_FLIPS = [
    ((0.1, 0.2, 0.3, 0.4), (0.7, 0.2, 0.9, 0.4), (0.1, 0.6, 0.3, 0.8)),
    ((0.5, 0.6, 0.7, 0.8), (0.3, 0.6, 0.5, 0.8), (0.5, 0.2, 0.7, 0.4)),
    ((0.0, 0.0, 1.0, 1.0), (0.0, 0.0, 1.0, 1.0), (0.0, 0.0, 1.0, 1.0)),
]
FLIPS = [*DALI_FLIPS, *ALBUMENTATIONS_FLIPS]


def pixels(boxes: Sequence[Box], size: tuple[int, int]) -> list[Box]:
    """Turn fractions of an image of `size` (H, W) into pixels."""
    return (np.array(boxes) * [*size[::-1], *size[::-1]]).tolist()


@pytest.mark.parametrize(("op", "column"), [(da.RandomHorizontalFlip(p=1), 1), (da.RandomVerticalFlip(p=1), 2)])
def test_flips(op: da.Op, column: int) -> None:
    size = (80, 120)
    flipped = moved([op], size, pixels([row[0] for row in FLIPS], size))
    assert_boxes(flipped, pixels([row[column] for row in FLIPS], size))


# albumentations, tests/test_bbox.py, test_bbox_d4: (0.05, 0.1, 0.55, 0.6) of an image after 1, 2 and 3 quarter turns
QUARTER_TURNS = {1: (0.1, 0.45, 0.6, 0.95), 2: (0.45, 0.4, 0.95, 0.9), 3: (0.4, 0.05, 0.9, 0.55)}


@pytest.mark.parametrize("turns", QUARTER_TURNS)
def test_quarter_turns(turns: int) -> None:
    size = (60, 100)
    start = moved([], size, pixels([(0.05, 0.1, 0.55, 0.6)], size))
    turned = with_draws(da.RandomRotate90(p=1)(start), turns=turns)
    after = size if turns == 2 else size[::-1]
    assert turned.images[0].shape[:2] == after
    assert_boxes(turned, pixels([QUARTER_TURNS[turns]], after))


# ------------------------------------------------------------------------------------- crops and canvases

# size (H, W) of the image and of the window in its middle, boxes, boxes in the window before they are clipped
CROPS = {
    # pytorch/vision, test/test_transforms_v2_functional.py, test_correctness_crop_bounding_box: top 8, left 12
    "torchvision": (
        (64, 76),
        (48, 52),
        [(10, 15, 25, 35), (50, 5, 70, 22), (45, 46, 56, 62)],
        [(-2, 7, 13, 27), (38, -3, 58, 14), (33, 38, 44, 54)],
    ),
    # albumentations, tests/test_bbox.py, test_crop_bboxes_by_coords: from 50 to 150 and from 40 to 160 of 200
    "albumentations, half": ((200, 200), (100, 100), [(20, 20, 120, 120)], [(-30, -30, 70, 70)]),
    "albumentations, more": ((200, 200), (120, 120), [(40, 40, 140, 140)], [(0, 0, 100, 100)]),
    # albumentations, tests/test_crop.py, test_crop_bbox_by_coords: from 18 to 82 of 100
    "albumentations, over the border": ((100, 100), (64, 64), [(50, 20, 90, 70)], [(32, 2, 72, 52)]),
}


@pytest.mark.parametrize("name", CROPS)
def test_crops(name: str) -> None:
    size, window, boxes, expected = CROPS[name]
    limits = [*window[::-1], *window[::-1]]
    assert_boxes(moved([da.CenterCrop(window)], size, boxes), np.clip(expected, 0, limits).tolist())


def test_padding() -> None:
    """albumentations, tests/test_bbox.py, test_pad_bboxes_constant_border."""
    padded = moved([da.Pad(10)], (100, 100), [(20, 20, 80, 80)])
    assert padded.images[0].shape == (120, 120, 3)
    assert_boxes(padded, [(30, 30, 90, 90)])


def test_a_whole_image_on_a_canvas() -> None:
    """NVIDIA/DALI, dali/operators/bbox/bbox_paste_test.cc, FullBoxPaste: ratio 1.789, paste_x 0.876, paste_y 0.321."""
    ratio, x, y = 1.789, 0.876, 0.321
    margin = (ratio - 1) / ratio
    start = moved([], (1000, 1000), [(0, 0, 1000, 1000)])
    pasted = with_draws(da.RandomZoomOut(ratio, p=1)(start), ratio=ratio, offset=(x, y))
    corner = np.array([x * margin, y * margin])
    size = np.array(pasted.images[0].shape[1::-1])
    assert_boxes(pasted, [[*corner * size, *(corner + 1 / ratio) * size]], tolerance=0.5)  # onto whole pixels


def test_resized_cropped_and_flipped() -> None:
    """facebookresearch/detectron2, tests/data/test_transforms.py, test_resize_and_crop: scaled to 654 x 581."""
    scaled = moved([da.Resize((654, 581))], (900, 800), [(91, 46, 144, 111), (523, 251, 614, 295)])
    after = moved([da.Pad((0, 0, 419, 446)), da.RandomHorizontalFlip(p=1)], (654, 581), scaled.boxes[0])
    assert after.images[0].shape == (1100, 1000, 3)
    assert_boxes(after, [(895.42, 33.42666667, 933.91125, 80.66), (554.0825, 182.39333333, 620.17125, 214.36666667)])


# ------------------------------------------------------------------------------------------------ turns


def test_affine() -> None:
    """pytorch/vision, test/test_transforms_v2_functional.py, test_correctness_affine_bounding_box_on_fixed_input.

    The numbers are albumentations'. Left out is a box that reaches 6 pixels out of its image, which detaug refuses. The
    shift there is (7.68, 14.72) pixels; detaug's is whole, as that of torchvision's RandomAffine.
    """
    boxes = [(20, 25, 35, 45), (22, 22, 42, 42), (1, 1, 5, 5)]
    expected = [
        (24.522435977922218, 34.375689508290854, 46.443125279998114, 54.3516575015695),
        (27.709526487041554, 34.74952648704156, 51.650473512958435, 58.69047351295844),
        (48.56528888843238, 9.611532109828834, 53.35347829361575, 14.39972151501221),
    ]
    turned = da.RandomAffine((63, 63), (0.5, 0.5), (0.89, 0.89))(moved([], (64, 64), boxes))
    rounded = np.array(expected) + np.tile((8 - 7.68, 15 - 14.72), 2)
    assert_boxes(with_draws(turned, translate=(0.12, 0.23)), rounded)


def test_rotation() -> None:
    """pytorch/vision, the same file, test_correctness_rotate_bounding_box_on_fixed_input: Detectron2's numbers.

    They are about the point (12, 23), ours about the middle: both after a shift that puts the last box on (0, 0).
    """
    boxes = [(1, 1, 5, 5), (1, 58, 5, 62), (58, 58, 62, 62), (22, 22, 42, 42)]
    expected = np.array(
        [
            (-11.33452378, 12.39339828, -5.67766953, 18.05025253),
            (28.97056275, 52.69848481, 34.627417, 58.35533906),
            (69.27564928, 12.39339828, 74.93250353, 18.05025253),
            (18.36396103, 1.07968978, 46.64823228, 29.36396103),
        ]
    )
    turned = np.asarray(moved([da.Pad(32), da.RandomRotation((45, 45))], (64, 64), boxes).boxes[0])
    assert turned - np.tile(turned[3, :2], 2) == pytest.approx(expected - np.tile(expected[3, :2], 2), abs=1e-4)


def corners_of(center_x: float, center_y: float, width: float, height: float, degrees: float) -> np.ndarray:
    """Return the corners (4, 2) of a rotated box as Detectron2 writes it, its angle counterclockwise."""
    turn = math.radians(degrees)
    along, across = np.array([math.cos(turn), -math.sin(turn)]), np.array([math.sin(turn), math.cos(turn)])
    signs = [(-1, -1), (1, -1), (1, 1), (-1, 1)]
    return np.array([[center_x, center_y] + a * width / 2 * along + b * height / 2 * across for a, b in signs])


# facebookresearch/detectron2, tests/data/test_transforms.py: ops, size, a rotated box before and after.
# Of a box at 30 degrees that is stretched, Detectron2 makes a rectangle of other corners; detaug moves the corners.
ROTATED = {
    "test_apply_rotated_boxes": (
        [da.Resize((800, 1200)), da.RandomHorizontalFlip(p=1)],
        (200, 300),
        (179, 97, 62, 40, -56),
        (484, 388, 248, 160, 56),
    ),
    "unequal_scaling_factor": ([da.Resize((800, 800))], (400, 200), (150, 100, 40, 20, 0), (600, 200, 160, 40, 0)),
    "unequal_scaling_factor, 90": ([da.Resize((800, 800))], (400, 200), (150, 100, 40, 20, 90), (600, 200, 80, 80, 90)),
}


@pytest.mark.parametrize("name", ROTATED)
def test_rotated_boxes(name: str) -> None:
    ops, size, before, expected = ROTATED[name]
    corners = corners_of(*before)
    shapes = da.Shapes(corners=corners[None])
    after = moved(ops, size, [[*corners.min(0), *corners.max(0)]], shapes=shapes).corners[0][0]
    distance = np.abs(np.asarray(after)[:, None] - corners_of(*expected)).max(2)
    assert distance.min(0).max() < 1e-3


# ------------------------------------------------------------------------------------ which boxes are left

# pytorch/vision, test/test_transforms_v2.py, TestSanitizeBoundingBoxes.test_transform: an image of 256 x 128, min_size
# 10. Its boxes without a side and out of the image do not reach the op: detaug refuses them, or clips them if they
# reach out by at most a pixel.
SANITIZED = [
    ((0, 0, 9, 10), False),
    ((0, 0, 10, 9), False),
    ((0, 0, 10, 10), True),
    ((0, 0, 128, 256), True),
    ((1, 1, 30, 20), True),
]
REFUSED = [(0, 1, 10, 1), (0, 1, 0, 20), (0, 0, -1, 20), (0, 0, -10, -1)]
CLIPPED = [((0, 0, 10, 257), (0, 0, 10, 256)), ((0, 0, 129, 10), (0, 0, 128, 10)), ((-1, 1, 10, 20), (0, 1, 10, 20))]


def test_small_boxes_are_dropped() -> None:
    boxes = [box for box, _ in SANITIZED]
    left = moved([da.Resize((256, 128)), da.SanitizeBoundingBoxes(min_size=10)], (256, 128), boxes)
    assert_boxes(left, [box for box, stays in SANITIZED if stays])


@pytest.mark.parametrize("box", REFUSED)
def test_boxes_without_a_side_are_refused(box: Box) -> None:
    with pytest.raises(da.InputError, match="boxes"):
        moved([], (256, 128), [box])


# roboflow/supervision, test/detection/utils/test_boxes.py, test_clip_boxes: an image of 720 x 1280
SUPERVISION_CLIPPED = [
    ((1, 1, 1279, 719), (1, 1, 1279, 719)),
    ((-1, 1, 1279, 719), (0, 1, 1279, 719)),
    ((1, -1, 1279, 719), (1, 0, 1279, 719)),
    ((1, 1, 1281, 719), (1, 1, 1280, 719)),
    ((1, 1, 1279, 721), (1, 1, 1279, 720)),
]


@pytest.mark.parametrize(("size", "table"), [((256, 128), CLIPPED), ((720, 1280), SUPERVISION_CLIPPED)])
def test_boxes_that_reach_out_by_a_pixel_are_clipped(size: tuple[int, int], table: list[tuple[Box, Box]]) -> None:
    assert_boxes(moved([], size, [box for box, _ in table]), [clipped for _, clipped in table])


# albumentations, tests/test_bbox.py, test_filter_bboxes: an image of 100 x 100, the least area, boxes, how many stay
FILTERED: list[tuple[float, list[Box], int]] = [
    (0, [(10, 10, 20, 20), (30, 30, 40, 40), (50, 50, 60, 60)], 3),
    (200, [(10, 10, 20, 20), (30, 30, 40, 40), (50, 50, 60, 60)], 0),
    (200, [(50, 50, 60, 70), (10, 10, 20, 20), (30, 30, 40, 40)], 1),
    (300, [(50, 50, 60, 70), (10, 10, 20, 20), (30, 30, 40, 40)], 0),
    (101, [(10, 10, 20, 20)], 0),
]


@pytest.mark.parametrize(("area", "boxes", "count"), FILTERED)
def test_boxes_of_a_small_area_are_dropped(area: float, boxes: list[Box], count: int) -> None:
    ops = [da.Resize((100, 100)), da.SanitizeBoundingBoxes(min_area=area)]
    assert_boxes(moved(ops, (100, 100), boxes), boxes[:count])


# albumentations, tests/test_bbox.py, test_bbox_clipping: an image of 100 x 100 shifted by so many pixels right and
# down, the box, the least fraction of it that must be in view, and the box that is left
SHIFTED = [
    (-2, (0, 0, 10, 10), 0.9, None),
    (-2, (0, 0, 10, 10), 0.6, (0, 0, 8, 8)),
    (2, (90, 90, 100, 100), 0.9, None),
    (2, (90, 90, 100, 100), 0.49, (92, 92, 100, 100)),
]


@pytest.mark.parametrize(("shift", "box", "least", "left"), SHIFTED)
def test_boxes_that_are_hardly_in_view_are_dropped(shift: int, box: Box, least: float, left: Box | None) -> None:
    ops = [da.RandomAffine(translate=(0.5, 0.5)), da.Resize((100, 100)), da.SanitizeBoundingBoxes(min_visibility=least)]
    visible = with_draws(moved(ops, (100, 100), [box]), translate=(shift / 100, shift / 100))
    assert_boxes(visible, [left] if left else [])


# ---------------------------------------------------------------------------------------- forms of boxes

# roboflow/supervision, test/detection/utils/test_converters.py, test_xywh_to_xyxy and test_xcycwh_to_xyxy
CORNER_AND_SIZE = [((10, 20, 30, 40), (10, 20, 40, 60)), ((50, 50, 100, 100), (50, 50, 150, 150))]
CENTER_AND_SIZE = [((50, 50, 20, 30), (40, 35, 60, 65)), ((50, 50, 100, 100), (0, 0, 100, 100))]
# the same repository, test_boxes.py, test_denormalize_boxes: an image of 720 x 1280
RELATIVE = [
    ((0.1, 0.2, 0.5, 0.6), (128, 144, 640, 432)),
    ((0.3, 0.4, 0.7, 0.8), (384, 288, 896, 576)),
    ((0.2, 0.1, 0.6, 0.5), (256, 72, 768, 360)),
]


def write_truth(path: Path, images: Sequence[Sequence[dict[str, Any]]], size: tuple[int, int], **more: Any) -> Path:
    """Write a COCO JSON file; images: the annotations of each."""
    rows = [
        {"id": at, "file_name": f"{at}.png", "height": size[0], "width": size[1]} for at in range(1, len(images) + 1)
    ]
    given = [{"image_id": at, **each} for at, own in enumerate(images, 1) for each in own]
    annotations = [
        {"id": at, "category_id": 1, "iscrowd": 0, "area": each["bbox"][2] * each["bbox"][3], **each}
        for at, each in enumerate(given, 1)
    ]
    numbers = sorted({each["category_id"] for each in annotations})
    categories = [{"id": at, "name": f"class {at}", **more} for at in numbers]
    path.write_text(json.dumps({"images": rows, "annotations": annotations, "categories": categories}))
    return path


def loader_of(folder: Path, path: Path, images: int, size: tuple[int, int], **reader: Any) -> da.Loader:
    """Return a loader of black images, at their own size."""
    for at in range(1, images + 1):
        Image.new("RGB", size[::-1]).save(folder / f"{at}.png")
    return da.Loader(da.CocoReader(folder, path, **reader), [da.Resize(size)], images, train=False, device="cpu")


def test_a_corner_and_a_size_are_two_corners(tmp_path: Path) -> None:
    path = write_truth(tmp_path / "a.json", [[{"bbox": box} for box, _ in CORNER_AND_SIZE]], (200, 200))
    batch = next(iter(loader_of(tmp_path, path, 1, (200, 200))))
    assert batch.boxes[0].tolist() == [[*map(float, corners)] for _, corners in CORNER_AND_SIZE]


def test_a_center_and_a_size_are_a_corner_and_a_size(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    (tmp_path / "labels").mkdir()
    Image.new("RGB", (100, 100)).save(tmp_path / "images/a.png")
    rows = [" ".join(["0", *(str(each / 100) for each in box)]) for box, _ in CENTER_AND_SIZE]
    (tmp_path / "labels/a.txt").write_text("\n".join(rows))
    (tmp_path / "data.yaml").write_text("train: images\nnames: [a]\n")
    yolo_to_coco(tmp_path, tmp_path / "a.json", split="train")
    boxes = [each["bbox"] for each in json.loads((tmp_path / "a.json").read_text())["annotations"]]
    assert boxes == [[x0, y0, x1 - x0, y1 - y0] for _, (x0, y0, x1, y1) in CENTER_AND_SIZE]


def test_pixels_are_shares_of_the_image(tmp_path: Path) -> None:
    own = [{"bbox": (x0, y0, x1 - x0, y1 - y0)} for _, (x0, y0, x1, y1) in RELATIVE]
    path = write_truth(tmp_path / "a.json", [own], (720, 1280))
    detr = next(iter(loader_of(tmp_path, path, 1, (720, 1280)))).as_detr()[1][0]["boxes"].numpy()
    corners = np.concatenate([detr[:, :2] - detr[:, 2:] / 2, detr[:, :2] + detr[:, 2:] / 2], axis=1)
    assert corners == pytest.approx(np.array([box for box, _ in RELATIVE]), abs=1e-6)


# ----------------------------------------------------------------------------------------------- scores


def scores(path: Path, predictions: Sequence[dict[str, Any]], kind: str = "bbox", **options: Any) -> Any:
    """Return the metrics of one prediction for each image of the JSON file, whose ids are 1, 2, ..."""
    evaluator = da.CocoEvaluator(path, kind, **options)
    evaluator.update(blank_batch([*range(1, len(predictions) + 1)], size=(640, 640)), predictions)
    return evaluator.compute()


def box_scores(folder: Path, images: Sequence[tuple[dict[int, list[Box]], list[tuple[int, float, Box]]]]) -> Any:
    """Score images of (boxes of each class, [(class, score, box)]), XYXY pixels."""
    truth = [
        [
            {"bbox": (x0, y0, x1 - x0, y1 - y0), "category_id": 1 + k}
            for k, own in boxes.items()
            for x0, y0, x1, y1 in own
        ]
        for boxes, _ in images
    ]
    path = write_truth(folder / "truth.json", truth, (640, 640))
    label = {k: at for at, k in enumerate(sorted({k for boxes, _ in images for k in boxes}), 1)}
    predictions = []
    for _, found in images:
        known = [each for each in found if each[0] in label]  # a class without objects has no score
        predictions.append(
            {
                "boxes": torch.tensor([box for _, _, box in known], dtype=torch.float64).reshape(-1, 4),
                "scores": torch.tensor([score for _, score, _ in known], dtype=torch.float64),
                "labels": torch.tensor([label[k] for k, _, _ in known], dtype=torch.int64),
            }
        )
    return scores(path, predictions)


# Lightning-AI/torchmetrics, tests/detection/test_map.py before version 1.0: four images of COCO, and what pycocotools
# says of them, to three digits
COCO_IMAGES: list[tuple[dict[int, list[Box]], list[tuple[int, float, Box]]]] = [
    ({4: [(214.15, 41.29, 562.41, 285.07)]}, [(4, 0.236, (258.15, 41.29, 606.41, 285.07))]),
    (
        {2: [(13.0, 22.75, 548.98, 632.42), (1.66, 3.32, 270.26, 275.23)]},
        [(3, 0.318, (61.0, 22.75, 565.0, 632.42)), (2, 0.726, (12.66, 3.32, 281.26, 275.23))],
    ),
    (
        {
            4: [(61.87, 276.25, 358.29, 379.43)],
            1: [(2.75, 3.66, 162.15, 316.06)],
            0: [
                (295.55, 93.96, 313.97, 152.79),
                (326.94, 97.05, 340.49, 122.98),
                (356.62, 95.47, 372.33, 147.55),
                (462.08, 105.09, 493.74, 146.99),
                (277.11, 103.84, 292.44, 150.72),
            ],
        },
        [
            (4, 0.546, (87.87, 276.25, 384.29, 379.43)),
            (1, 0.3, (0.0, 3.66, 142.15, 316.06)),
            (0, 0.407, (296.55, 93.96, 314.97, 152.79)),
            (0, 0.611, (328.94, 97.05, 342.49, 122.98)),
            (0, 0.335, (356.62, 95.47, 372.33, 147.55)),
            (0, 0.805, (464.08, 105.09, 495.74, 146.99)),
            (0, 0.953, (276.11, 103.84, 291.44, 150.72)),
        ],
    ),
    ({5: [(13.99, 2.87, 640.0, 421.52)]}, [(5, 0.699, (0.0, 2.87, 601.0, 421.52))]),
]
COCO_SCORES = {
    "AP": 0.706,
    "AP50": 0.901,
    "AP75": 0.846,
    "APs": 0.689,
    "APm": 0.800,
    "APl": 0.701,
    "AR1": 0.592,
    "AR10": 0.716,
    "AR100": 0.716,
    "ARs": 0.767,
    "ARm": 0.800,
    "ARl": 0.700,
}
COCO_CLASSES = {0: (0.725, 0.780), 1: (0.800, 0.800), 2: (0.454, 0.450), 4: (0.650, 0.650), 5: (0.900, 0.900)}


def test_scores_of_four_images_of_coco(tmp_path: Path) -> None:
    metrics = box_scores(tmp_path, COCO_IMAGES)
    assert {name: getattr(metrics, name) for name in COCO_SCORES} == pytest.approx(COCO_SCORES, abs=6e-4)


@pytest.mark.parametrize("number", COCO_CLASSES)
def test_scores_of_a_class(number: int, tmp_path: Path) -> None:
    images = [
        ({k: own for k, own in boxes.items() if k == number}, [each for each in found if each[0] == number])
        for boxes, found in COCO_IMAGES
    ]
    metrics = box_scores(tmp_path, images)
    found = [metrics.AP, metrics.AR100]
    assert found == pytest.approx([*COCO_CLASSES[number]], abs=6e-4)


SMALL, MEDIUM, LARGE = (10, 10, 40, 40), (100, 100, 200, 150), (300, 300, 500, 400)
SCORES: dict[str, tuple[Any, dict[str, float]]] = {
    # the same repository, src/torchmetrics/detection/mean_ap.py, its first example
    "shifted": (
        [({0: [(214, 41, 562, 285)]}, [(0, 0.536, (258, 41, 606, 285))])],
        {"AP": 0.6, "AP50": 1, "AP75": 1, "APl": 0.6, "APm": -1, "APs": -1, "AR1": 0.6, "AR100": 0.6, "ARl": 0.6},
    ),
    # the same repository, test_map.py, test_missing_pred and test_missing_gt: "actually it is 0.5"
    "an image without detections": (
        [({0: [(10, 20, 15, 25)]}, [(0, 0.9, (10, 20, 15, 25))]), ({0: [(10, 20, 15, 25)]}, [])],
        {"AP": 0.5},
    ),
    "an image without objects": (
        [({0: [(10, 20, 15, 25)]}, [(0, 0.9, (10, 20, 15, 25))]), ({}, [(0, 0.95, (10, 20, 15, 25))])],
        {"AP": 0.5},
    ),
    # roboflow/supervision, test/metrics/test_mean_average_precision_area.py and test_mean_average_precision.py
    "three sizes": (
        [({0: [SMALL], 1: [MEDIUM], 2: [LARGE]}, [(0, 0.9, SMALL), (1, 0.9, MEDIUM), (2, 0.9, LARGE)])],
        {"AP": 1, "APs": 1, "APm": 1, "APl": 1},
    ),
    "10 x 10": ([({0: [(0, 0, 10, 10)]}, [(0, 0.9, (0, 0, 10, 10))])], {"APs": 1, "APm": -1, "APl": -1}),
    "50 x 50": ([({0: [(0, 0, 50, 50)]}, [(0, 0.9, (0, 0, 50, 50))])], {"APs": -1, "APm": 1, "APl": -1}),
    "100 x 100": ([({0: [(0, 0, 100, 100)]}, [(0, 0.9, (0, 0, 100, 100))])], {"APs": -1, "APm": -1, "APl": 1}),
    "a medium one missed": (
        [({0: [SMALL]}, [(0, 0.95, SMALL)]), ({1: [(10, 10, 60, 60)]}, []), ({2: [LARGE]}, [(2, 0.9, LARGE)])],
        {"APs": 1, "APm": 0, "APl": 1},
    ),
}


@pytest.mark.parametrize("name", SCORES)
def test_scores(name: str, tmp_path: Path) -> None:
    images, expected = SCORES[name]
    metrics = box_scores(tmp_path, images)
    tolerance = 0.006 if expected == {"AP": 0.5} else 1e-9  # of 101 recalls, 51 are at most a half
    assert {key: getattr(metrics, key) for key in expected} == pytest.approx(expected, abs=tolerance)


# cocodataset.org, keypoints-eval: the similarity of a point that is 1, 2 and 3 standard deviations off is .88, .61
# and .32; so it is found at 8, 3 and none of the thresholds .50, .55, ..., .95
FOUND = {1: 0.8, 2: 0.3, 3: 0.0}


@pytest.mark.parametrize("deviations", FOUND)
def test_similarity_of_key_points(deviations: int, tmp_path: Path) -> None:
    sigma, side = 0.05, 100
    points = {"keypoints": [200, 200, 2], "num_keypoints": 1, "bbox": (150, 150, side, side)}
    path = write_truth(tmp_path / "truth.json", [[points]], (640, 640), keypoints=["point"])
    off = 200.5 + sigma * deviations * side  # the scale is the root of the area; COCO's kappa is 2 sigma
    found = {"keypoints": torch.tensor([[[off, 200.5]]]), "scores": torch.ones(1), "labels": torch.ones(1).long()}
    share = scores(path, [found], "keypoints", sigmas=[sigma]).AP
    assert share == pytest.approx(FOUND[deviations])


# facebookresearch/detectron2, tests/structures/test_rotated_boxes.py: two rotated boxes and their IoU
ROTATED_IOUS = [
    ((0.5, 0.5, 1, 1, 0), (0.5, 0.5, 1, 1, 0), 1.0),
    ((0.5, 0.5, 1, 1, 0), (0.25, 0.5, 0.5, 1, 0), 0.5),
    ((0.5, 0.5, 1, 1, 0), (0.5, 0.25, 1, 0.5, 0), 0.5),
    ((0.5, 0.5, 1, 1, 0), (0.25, 0.25, 0.5, 0.5, 0), 0.25),
    ((0.5, 0.5, 1, 1, 0), (0.75, 0.75, 0.5, 0.5, 0), 0.25),
    ((0.5, 0.5, 1, 1, 0), (1, 1, 1, 1, 0), 0.25 / 1.75),
    ((565, 565, 10, 10, 0), (565, 565, 10, 8.3, 0), 0.83),
    ((1, 1, 2**0.5, 2**0.5, 45), (1, 1, 2, 2, 0), 0.5),
    ((1, 1, 2 * 2**0.5, 2 * 2**0.5, -45), (1, 1, 2, 2, 0), 0.5),
    ((5, 5, 10, 6, 55), (5, 5, 10, 6, -35), 36 / 84),
    ((299.5, 417.370422, 600, 364.259186, 27.1828), (299.5, 417.370422, 600, 364.259155, 27.1828), 0.99999991),
    ((3, 3, 8, 2, -45), (6, 0, 8, 2, -45), 0.0),
    ((160, 153, 230, 23, -37), (190, 127, 80, 21, -46), 0.0),
]


@pytest.mark.parametrize(("one", "other", "expected"), ROTATED_IOUS)
def test_iou_of_rotated_boxes(one: Box, other: Box, expected: float) -> None:
    both = corners_of(*one)[None], corners_of(*other)[None]  # type: ignore[call-arg]
    assert iou_of_quadrangles(*both)[0, 0] == pytest.approx(expected, abs=1e-6)
