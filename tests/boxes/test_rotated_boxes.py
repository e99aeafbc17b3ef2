"""Rotated boxes lie on painted rectangles, and are counted as each trainer counts them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from dali_pipelines import given, make, outputs
from numpy.typing import NDArray
from PIL import Image, ImageDraw
from reference import torchvision_part
from seeds import seeds

import detaug as da
from detaug.boxes.rotated import Angle, in_form, smallest_rectangle

BLACK = (0.0, 0.0, 0.0)
SIZE = (200, 260)
OPS: list[da.Op] = [
    da.RandomHorizontalFlip(p=0.5),
    da.RandomVerticalFlip(p=0.5),
    da.RandomRotate90(p=0.7),
    da.RandomZoomOut(max_ratio=1.5, fill=BLACK),
    da.RandomRotation(40, expand=True, fill=BLACK),
    da.RandomAffine(degrees=25, scale=(0.8, 1.1), shear=10, fill=BLACK),
    da.RandomPerspective(distortion_scale=0.3, p=1, fill=BLACK),
]


def rectangle(center: Any, width: float, height: float, angle: float) -> NDArray[np.float64]:
    """Return the corners (4, 2) of a rectangle. `angle`: of the width, radians, clockwise on the screen."""
    along, across = np.array([np.cos(angle), np.sin(angle)]), np.array([-np.sin(angle), np.cos(angle)])
    signs = [(-1, -1), (1, -1), (1, 1), (-1, 1)]
    return np.array([np.array(center) + a * width / 2 * along + b * height / 2 * across for a, b in signs])


def random_rectangles(rng: np.random.Generator, n: int) -> list[NDArray[np.float64]]:
    return [
        rectangle(rng.uniform((90, 80), (170, 120)), rng.uniform(50, 90), rng.uniform(20, 45), rng.uniform(0, np.pi))
        for _ in range(n)
    ]


def paint(corners: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Paint a white quadrangle with smooth edges: eight times as large, then averaged."""
    image = Image.new("L", (SIZE[1] * 8, SIZE[0] * 8))
    ImageDraw.Draw(image).polygon([tuple(each) for each in (corners * 8 - 0.5).tolist()], fill=255)
    small = np.asarray(image.reduce(8))
    return np.stack([small] * 3, axis=2)


def samples_of(corners: list[NDArray[np.float64]], **arguments: Any) -> da.Samples:
    limits = np.array(SIZE[::-1])
    boxes = [[[*each.min(0).clip(0, limits), *each.max(0).clip(0, limits)]] for each in corners]
    return da.batch([paint(each) for each in corners], boxes, shapes=da.Shapes(corners=np.stack(corners)), **arguments)


def edge_error(image: NDArray[Any], corners: NDArray[np.float64]) -> float:
    """Return how far, in pixels, the painted quadrangle's border is from that of `corners`, at most, away from corners.

    Along the normal of each edge the image changes from white to black: the sum of its values says where.
    """
    worst, middle = 0.0, corners.mean(0)
    for start, end in zip(corners, np.roll(corners, -1, 0), strict=True):
        normal = np.array([end[1] - start[1], start[0] - end[0]]) / np.hypot(*(end - start))
        normal *= np.sign((start - middle) @ normal)
        for share in (0.3, 0.5, 0.7):
            point = start + share * (end - start)
            offsets = np.linspace(-5, 5, 201)
            values = sample(image, point + offsets[:, None] * normal)
            worst = max(worst, abs(values.mean() * 10 / 255 - 5))
    return worst


def sample(image: NDArray[Any], points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return (N,): the values of an image at points (N, 2), in continuous pixels, by bilinear interpolation.

    Beyond the centers of the outermost pixels they are 0.
    """
    height, width = image.shape[:2]
    places = points - 0.5
    left, top = np.floor(places).astype(int).T
    inside = (left >= 0) & (left < width - 1) & (top >= 0) & (top < height - 1)
    left, top = np.where(inside, left, 0), np.where(inside, top, 0)
    across, down = (places - np.stack([left, top], 1)).T
    pixels = image[..., 0].astype(float)
    upper = pixels[top, left] * (1 - across) + pixels[top, left + 1] * across
    lower = pixels[top + 1, left] * (1 - across) + pixels[top + 1, left + 1] * across
    return np.where(inside, upper * (1 - down) + lower * down, 0)


def whole(image: NDArray[Any], corners: NDArray[np.float64]) -> bool:
    height, width = image.shape[:2]
    return bool((corners > 8).all() and (corners < (width - 8, height - 8)).all())


@pytest.mark.parametrize("op", OPS, ids=repr)
def test_corners_lie_on_painted_rectangles(op: da.Op, device: str) -> None:
    samples = samples_of(random_rectangles(np.random.default_rng(0), 16), device=device).then(op, da.Resize((300, 340)))
    pairs = [(image, own) for image, each in zip(samples.images, samples.corners, strict=True) for own in each]
    errors = [edge_error(image, own) for image, own in pairs if whole(image, own)]
    assert len(errors) >= 10
    assert max(errors) < 0.5


@pytest.mark.parametrize("seed", seeds(2, 100))
def test_corners_after_random_chains(seed: int, device: str) -> None:
    rng = np.random.default_rng(seed)
    first = [OPS[at] for at in rng.integers(0, len(OPS), rng.integers(1, 4))]
    samples = samples_of(random_rectangles(rng, 4), seed=seed, device=device)
    samples = samples.then(*first, da.Resize((300, 340)), da.Mosaic(p=0.5, min_visibility=0))
    for image, each in zip(samples.images, samples.corners, strict=True):
        if len(each) == 1 and whole(image, each[0]):  # others may hide the edges of several
            assert edge_error(image, each[0]) < 0.6


@pytest.mark.parametrize("units", ["relative", "pixels"])
def test_corners_in_a_dali_pipeline(units: Any, device: str) -> None:
    """Columns and keypoints beside them stay what they are."""
    corners = random_rectangles(np.random.default_rng(7), 8)
    recipe = [da.RandomHorizontalFlip(), OPS[-1], da.Resize((300, 340)), da.Mosaic(p=0.4, min_visibility=0)]
    side = np.array(SIZE[::-1] if units == "relative" else (1, 1))
    numbers = [np.array([[at]], np.int64) for at in range(8)]
    middles = [np.array([[[*each.mean(0) / side, 2]]], np.float32) for each in corners]

    def nodes() -> Any:
        images = given([paint(each) for each in corners])
        boxes = given([np.array([[*each.min(0) / side, *each.max(0) / side]], np.float32) for each in corners])
        points = {
            "keypoints": given(middles),
            "flip_pairs": [],
            "corners": given([(each / side)[None] for each in corners]),
        }
        images = images.gpu() if device == "cuda" else images
        return da.fn.augment(images, boxes, None, recipe, units=units, columns=[given(numbers)], **points)

    compared, seen = 0, set[int]()
    for image, _, _, middle, moved, number in zip(*outputs(make(nodes, 8, device)), strict=True):
        assert moved.dtype == np.float32
        assert moved.shape == (len(number), 4, 2)
        seen |= {*number.ravel().tolist()}
        for own, (x, y, visible) in zip(moved.astype(float), middle[:, 0], strict=True):
            assert visible == 0 or np.abs(own.mean(0) - (x, y)).max() < 8  # a perspective moves the middle
        if len(moved) == 1 and whole(image, moved[0]):
            assert edge_error(image, moved[0].astype(float)) < 0.5
            compared += 1
    assert compared >= 3
    assert len(seen) >= 6


def test_corners_of_a_dali_pipeline_are_four_points() -> None:
    def nodes() -> Any:
        images, boxes = given([np.zeros((9, 9, 3), np.uint8)]), given([np.array([[0, 0, 1, 1]], np.float32)])
        return da.fn.augment(images, boxes, None, [], corners=given([np.zeros((1, 8), np.float32)]))

    with pytest.raises(RuntimeError, match=r"corners must be \(M, 4, 2\): x, y of each corner; got \(8,\)"):
        make(nodes, 1, "cpu").run()


def test_turning_four_times_is_the_identity() -> None:
    corners = random_rectangles(np.random.default_rng(1), 6)
    turned = samples_of(corners)
    for _ in range(4):
        turned = turned.then(da.RandomRotation((90, 90), expand=True))
    for before, after in zip(corners, turned.corners, strict=True):
        assert sorted(map(tuple, after[0].round(6).tolist())) == sorted(map(tuple, before.round(6).tolist()))


@pytest.mark.parametrize("angle", get_args(Angle))
def test_forms_convert_there_and_back(angle: Angle) -> None:
    corners = random_rectangles(np.random.default_rng(2), 200)
    boxes = np.concatenate(samples_of(corners).rotated_boxes(angle, border="whole"))
    for box, expected in zip(boxes, corners, strict=True):
        *center_and_sides, turn = box
        radians = -np.deg2rad(turn) if angle == "torchvision" else turn
        back = rectangle(center_and_sides[:2], *center_and_sides[2:], radians)
        distance = np.abs(back[:, None] - expected[None]).max(2).min(0)
        assert distance.max() < 1e-4
    low, high = {
        "le90": (-np.pi / 2, np.pi / 2), "le135": (-np.pi / 4, 3 * np.pi / 4), "yolo": (-np.pi / 4, 3 * np.pi / 4),
        "oc": (-np.pi / 2, 0), "torchvision": (-90, 90),
    }[angle]  # fmt: skip
    assert (boxes[:, 4] >= low - 1e-9).all()
    assert (boxes[:, 4] <= high + 1e-9).all()
    assert angle == "oc" or (boxes[:, 2] >= boxes[:, 3] - 1e-9).all()


def test_angles_are_those_of_opencv_for_ultralytics_and_mmrotate() -> None:
    cv2 = pytest.importorskip("cv2")
    for corners in random_rectangles(np.random.default_rng(3), 100):
        (x, y), (width, height), degrees = cv2.minAreaRect(corners.astype(np.float32))
        turn = np.deg2rad(degrees)
        ours = samples_of([corners]).rotated_boxes("yolo", border="whole")[0][0]
        # Ultralytics' xyxyxyxy2xywhr: the longer side is the width, and the angle in [-pi/4, 3 pi/4)
        if width < height:
            width, height, turn = height, width, turn + np.pi / 2
        turn = (turn + np.pi / 4) % np.pi - np.pi / 4
        assert np.allclose(ours[:4], (x, y, width, height), atol=0.01)
        assert abs((ours[4] - turn + np.pi / 2) % np.pi - np.pi / 2) < 1e-3


def test_torchvision_turns_as_we_do() -> None:
    functional = torchvision_part("torchvision.transforms.v2.functional")
    tv_tensors = torchvision_part("torchvision.tv_tensors")
    if not hasattr(tv_tensors, "KeyPoints"):
        pytest.skip("rotated boxes are in torchvision from 0.23 on")
    for corners in random_rectangles(np.random.default_rng(4), 50):
        ours = samples_of([corners]).rotated_boxes("torchvision", border="whole")[0]
        boxes = tv_tensors.BoundingBoxes(torch.from_numpy(ours), format="CXCYWHR", canvas_size=SIZE)
        back = functional.convert_bounding_box_format(boxes, new_format=tv_tensors.BoundingBoxFormat.XYXYXYXY)
        distance = np.abs(np.asarray(back).reshape(4, 1, 2) - corners[None]).max(2).min(0)
        assert distance.max() < 0.01


def test_the_smallest_rectangle_is_found_by_brute_force() -> None:
    rng = np.random.default_rng(5)
    quadrangles = rng.uniform(0, 100, (50, 4, 2))
    angles = np.linspace(0, np.pi / 2, 20001)
    for quadrangle, direction in zip(quadrangles, smallest_rectangle(quadrangles), strict=True):
        sides = [
            np.ptp(quadrangle @ np.stack([np.cos(each), np.sin(each)]), axis=0) for each in (angles, angles + np.pi / 2)
        ]
        own = [np.ptp(quadrangle @ [np.cos(each), np.sin(each)]) for each in (direction, direction + np.pi / 2)]
        assert own[0] * own[1] <= (sides[0] * sides[1]).min() + 1e-6


def test_the_visible_part_keeps_its_angle() -> None:
    corners = [rectangle((0, 100), 120, 30, 0.3)]
    samples = samples_of(corners)
    (visible,), (all_of_it,) = samples.rotated_boxes("le90")[0], samples.rotated_boxes("le90", border="whole")[0]
    assert visible[4] == pytest.approx(0.3)
    assert all_of_it[:4] == pytest.approx([0, 100, 120, 30])
    inside = [point for point in grid_points(corners[0]) if point[0] >= 0]
    along, across = np.array([np.cos(0.3), np.sin(0.3)]), np.array([-np.sin(0.3), np.cos(0.3)])
    assert visible[2] == pytest.approx(np.ptp(np.array(inside) @ along), abs=0.3)
    assert visible[3] == pytest.approx(np.ptp(np.array(inside) @ across), abs=0.3)


def grid_points(corners: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    steps = np.linspace(0, 1, 601)
    first, second = corners[1] - corners[0], corners[3] - corners[0]
    return [corners[0] + a * first + b * second for a in steps for b in np.linspace(0, 1, 121)]


def write_quadrangles(folder: Path, corners: list[NDArray[np.float64]], key: str) -> Path:
    content: dict[str, Any] = {"images": [], "annotations": [], "categories": [{"id": 1, "name": "ship"}]}
    for number, each in enumerate(corners, 1):
        Image.fromarray(paint(each)).save(folder / f"{number}.png")
        content["images"].append({"id": number, "file_name": f"{number}.png", "width": SIZE[1], "height": SIZE[0]})
        low, high = each.min(0), each.max(0)
        annotation: dict[str, Any] = {"id": number, "image_id": number, "category_id": 1}
        annotation["bbox"] = [*low.tolist(), *(high - low).tolist()]
        annotation |= {"corners": each.tolist()} if key == "corners" else {"segmentation": [each.ravel().tolist()]}
        content["annotations"].append(annotation)
    path = folder / "quadrangles.json"
    path.write_text(json.dumps(content))
    return path


@pytest.mark.parametrize("key", ["corners", "segmentation"])
def test_the_loader_has_rotated_boxes(key: str, tmp_path: Path, device: str) -> None:
    corners = random_rectangles(np.random.default_rng(6), 6)
    path = write_quadrangles(tmp_path, corners, key)
    reader = da.CocoReader(tmp_path, path, rotated=True)
    recipe = [da.RandomAffine(degrees=30, fill=BLACK), da.Resize((300, 340))]
    (batch,) = da.Loader(reader, recipe, 6, device=device)
    assert batch.corners.shape == (6, 1, 4, 2)
    for image, own in zip(batch.images.permute(0, 2, 3, 1).cpu().numpy(), batch.corners.cpu().numpy(), strict=True):
        if whole(image, own[0]):
            assert edge_error(image, own[0].astype(float)) < 0.5
    assert batch.rotated_boxes("cxcywhr", "le90").shape == (6, 1, 5)
    with pytest.raises(da.InputError, match="angle must be one of le90, le135"):
        batch.rotated_boxes("cxcywhr", "le45")  # type: ignore[arg-type]
    (plain,) = da.Loader(da.CocoReader(tmp_path, path), recipe, 6, device=device)
    with pytest.raises(da.InputError, match=r"no rotated boxes: make the reader with CocoReader"):
        _ = plain.corners


@pytest.mark.parametrize("value", [[[0, 0], [1, 1]], "corners", [[0, 0], [9, 0], [9, 9], [0, float("nan")]]])
def test_wrong_corners_are_refused(value: Any, tmp_path: Path) -> None:
    path = write_quadrangles(tmp_path, random_rectangles(np.random.default_rng(7), 2), "corners")
    content = json.loads(path.read_text())
    content["annotations"][1]["corners"] = value
    path.write_text(json.dumps(content).replace("NaN", "1e999"))
    with pytest.raises(da.InputError, match=r"annotations\[1\] \(id 2\): corners must be"):
        da.CocoReader(tmp_path, path, rotated=True)


def test_in_form_is_mmrotates_rule() -> None:
    """The cases of MMRotate's tests of `regularize_boxes`: width 30, height 10, at 100 degrees."""
    turn = np.deg2rad([100.0])
    le90 = in_form(np.array([30.0]), np.array([10.0]), turn, "le90")[0]
    assert le90.round(6).tolist() == [30, 10, round(float(np.deg2rad(-80)), 6)]
    le135 = in_form(np.array([10.0]), np.array([30.0]), np.deg2rad([10.0]), "le135")[0]
    assert le135.round(6).tolist() == [30, 10, round(float(np.deg2rad(100)), 6)]
    oc = in_form(np.array([30.0]), np.array([10.0]), np.deg2rad([30.0]), "oc")[0]
    assert oc.round(6).tolist() == [10, 30, round(float(np.deg2rad(-60)), 6)]
