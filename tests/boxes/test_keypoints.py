"""Keypoints lie on painted discs after any recipe, left ones on red and right ones on blue discs."""

from __future__ import annotations

import io
import json
import pickle
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from dali_pipelines import given, make, outputs
from disc_files import NAMES, color_at, disc_samples, find_disc, paint_discs, write_discs
from numpy.typing import NDArray
from PIL import Image
from seeds import seeds, slow

import detaug as da
from detaug.boxes.views import mirrors
from detaug.coco.key_points import other_side

BLACK = (0.0, 0.0, 0.0)
RESIZE = da.Resize((300, 340))
GEOMETRIC: list[da.Op] = [
    da.RandomHorizontalFlip(p=0.5),
    da.RandomVerticalFlip(p=0.5),
    da.RandomRotate90(),
    da.RandomZoomOut(max_ratio=1.5, fill=BLACK),
    da.RandomIoUCrop(),
    da.RandomBoxSafeCrop(p=0.7),
    da.RandomCrop((200, 200), fill=BLACK),
    da.CenterCrop((210, 220), fill=BLACK),
    da.Pad((5, 11), fill=BLACK),
    da.RandomRotation(40, fill=BLACK),
    da.RandomRotation(40, expand=True, fill=BLACK),
    da.RandomAffine(degrees=25, scale=(0.8, 1.2), shear=10, translate=(0.1, 0.1), fill=BLACK),
    da.RandomPerspective(distortion_scale=0.3, p=1, fill=BLACK),
]
AFTER: list[da.Op] = [
    da.Mosaic(p=0.8, min_visibility=0),
    da.MixUp(p=0.3),
    da.CutMix(p=0.8, min_visibility=0, max_hidden=1),
    da.CopyPaste(p=0.8, min_visibility=0, max_hidden=1),
    da.RandomErasing(p=0.8, value=BLACK, max_hidden=1),
    da.GridMask(p=0.4, value=BLACK, max_hidden=1),
]


def assert_points_on_discs(samples: da.Samples) -> int:
    """Compare each visible keypoint whose whole disc can be seen with its disc. Return how many these are."""
    tolerance = 0.25 if GEOMETRIC[-1] in samples.ops else 0.1  # a perspective moves the centroid of a disc
    found, layers = 0, samples.plan.views.drawing_or_whole().layers
    for at, (image, points, sources, boxes) in enumerate(
        zip(samples.images, samples.keypoints, samples.boxes_in_source(), samples.boxes, strict=True)
    ):
        assert len(points) == len(boxes) == len(sources)
        for own in points:
            for slot, (x, y, visible) in enumerate(own):
                if visible == 0:
                    assert x == y == 0
                    continue
                found += _compare(image, own, slot, float(np.median(layers.share[at])), tolerance)
    return found


def _compare(image: NDArray[Any], points: NDArray[np.float64], slot: int, share: float, tolerance: float = 0.1) -> int:
    """Compare one keypoint with the disc at it: 1 if all of the disc is seen."""
    x, y, visible = points[slot]
    if share < 1 or visible == 1:  # another image shines through, or something lies on it
        return 0
    color = color_at(image, x, y)
    assert (slot == 2) == (color == 2), f"a {NAMES[slot]} on a disc of another color"
    found = find_disc(image, x, y, color)
    assert found is None or np.abs(np.array(found) - (x, y)).max() < tolerance, (found, x, y)
    return int(found is not None)


@pytest.mark.parametrize("op", [*GEOMETRIC[:8], *slow(*GEOMETRIC[8:])], ids=repr)
def test_key_points_follow_each_op(op: da.Op, device: str) -> None:
    discs = paint_discs(16)
    assert assert_points_on_discs(disc_samples(discs, device=device).then(op, RESIZE)) >= (
        8 if op in GEOMETRIC[-3:] else 20
    )


def test_key_points_follow_resized_crops(device: str) -> None:
    ops = [da.RandomHorizontalFlip(), da.RandomResizedCrop((320, 320), scale=(0.5, 1.0))]
    assert assert_points_on_discs(disc_samples(paint_discs(16), device=device).then(*ops)) >= 20


@pytest.mark.parametrize("op", AFTER, ids=repr)
def test_key_points_follow_what_is_mixed_and_covered(op: da.Op, device: str) -> None:
    discs = paint_discs(16)
    samples = disc_samples(discs, device=device).then(da.RandomHorizontalFlip(), RESIZE, op)
    assert assert_points_on_discs(samples) >= (0 if isinstance(op, da.MixUp) else 20)


@pytest.mark.parametrize("seed", seeds(3, 300))
def test_key_points_follow_random_chains(seed: int, device: str) -> None:
    rng = np.random.default_rng(seed)
    discs = paint_discs(4, seed)
    first = [GEOMETRIC[at] for at in rng.integers(0, len(GEOMETRIC), rng.integers(1, 4))]
    then = [AFTER[at] for at in rng.integers(0, len(AFTER), rng.integers(0, 3))]
    assert_points_on_discs(disc_samples(discs, seed=seed, device=device).then(*first, RESIZE, *then))


@pytest.mark.parametrize("op", [*GEOMETRIC[:3], da.RandomRotation(40, fill=BLACK)], ids=repr)
def test_sides_change_places_in_mirrored_images_only(op: da.Op) -> None:
    """Told from the pixels: whether red, blue and green go round the other way than in the source."""
    discs = paint_discs(24)
    samples = disc_samples(discs).then(op, RESIZE)
    mirrored = 0
    for image, points, source in zip(samples.images, samples.keypoints, discs.points, strict=True):
        for own, before in zip(points, source, strict=True) if len(points) == len(source) else []:
            if not (own[:, 2] == 2).all():
                continue
            colors = [color_at(image, *each[:2]) for each in own]
            assert sorted(colors) == [0, 1, 2]
            red, blue, green = (own[colors.index(color), :2] for color in range(3))
            turn = around(red, blue, green) * around(*before)
            assert colors == ([0, 1, 2] if turn > 0 else [1, 0, 2])
            mirrored += turn < 0
    assert (mirrored > 0) == isinstance(op, da.RandomHorizontalFlip | da.RandomVerticalFlip)


def around(a: NDArray[np.float64], b: NDArray[np.float64], c: NDArray[np.float64]) -> float:
    """Return 1 where the way through three points turns clockwise on the screen, -1 where it rotates the other way."""
    return float(np.sign(np.linalg.det(np.stack([b - a, c - a]))))


def test_what_is_erased_or_pasted_over_is_hidden_and_out_of_view_is_nothing() -> None:
    image = np.zeros((100, 100, 3), np.uint8)
    points = [[[20, 20, 2], [80, 80, 2], [50, 50, 1]]]
    shapes = da.Shapes(keypoints=da.KeyPoints(points, [["a", "b", "c"]]))
    samples = da.batch([image], [[[10, 10, 90, 90]]], shapes=shapes)
    erased = samples.then(da.RandomErasing(p=1, scale=(0.2, 0.2), ratio=(1, 1), max_hidden=1))
    assert sorted(erased.keypoints[0][0, :, 2].tolist()) != [2, 2, 1]  # the seed erases one
    cropped = samples.then(da.CenterCrop((40, 40)))
    assert cropped.keypoints[0].tolist() == [[[0, 0, 0], [0, 0, 0], [20, 20, 1]]]


def test_the_loader_and_coco_reader(tmp_path: Path, device: str) -> None:
    discs = paint_discs(8)
    reader = da.CocoReader(tmp_path, write_discs(tmp_path, discs), keypoints=True)
    assert reader.shapes.keypoints is not None
    np.testing.assert_allclose(reader.shapes.keypoints.points[:, :, :2], np.concatenate(discs.points))
    recipe = [da.RandomAffine(degrees=25, fill=BLACK), da.RandomHorizontalFlip(), RESIZE, da.Mosaic(p=0.5)]
    compared = 0
    for batch in da.Loader(reader, recipe, 4, device=device, seed=3):
        points = batch.keypoints
        assert points.dtype.is_floating_point
        assert points.shape == (*batch.labels.shape, 3, 3)
        assert points.device == batch.boxes.device
        assert not points[~batch.valid].any()
        for at, image in enumerate(batch.images.permute(0, 2, 3, 1).cpu().numpy()):
            for own in points[at, : batch.counts[at]].cpu().double().numpy():
                compared += sum(_compare(image, own, slot, 1.0) for slot in range(3) if own[slot, 2] == 2)
    assert compared >= 15


@pytest.mark.parametrize("first", ["ball", "person"])
def test_the_order_of_the_categories_in_a_json_does_not_matter(first: str, tmp_path: Path) -> None:
    """Left and right of the person swap places, and a ball has one point only."""
    person = {"id": 2, "name": "person", "keypoints": ["left_eye", "right_eye"], "skeleton": [[1, 2]]}
    ball = {"id": 1, "name": "ball", "keypoints": ["middle"]}
    rows = [
        {"category_id": 2, "bbox": [5, 5, 50, 50], "keypoints": [10, 20, 2, 30, 20, 2]},
        {"category_id": 1, "bbox": [40, 40, 20, 20], "keypoints": [50, 50, 2]},
    ]
    content = {
        "images": [{"id": 1, "file_name": "a.png", "width": 100, "height": 100}],
        "annotations": [{"id": at, "image_id": 1, **row} for at, row in enumerate(rows, 1)],
        "categories": sorted([person, ball], key=lambda each: each["name"] != first),
    }
    (tmp_path / "a.json").write_text(json.dumps(content))
    Image.new("RGB", (100, 100)).save(tmp_path / "a.png")
    reader = da.CocoReader(tmp_path, tmp_path / "a.json", keypoints=True)
    assert reader.shapes.keypoints is not None
    assert reader.shapes.keypoints.names == [["middle"], ["left_eye", "right_eye"]]
    recipe = [da.RandomHorizontalFlip(p=1), da.Resize((100, 100))]
    (batch,) = da.Loader(reader, recipe, 1, device="cpu")
    assert batch.keypoints[0].tolist() == [[[69.5, 20.5, 2], [89.5, 20.5, 2]], [[49.5, 50.5, 2], [0, 0, 0]]]


def test_a_clone_has_shapes_of_its_own_alone(tmp_path: Path, device: str) -> None:
    """Keypoints, corners, masks and images are the same, and what is saved does not grow with the dataset."""
    path = write_discs(tmp_path, paint_discs(40))

    def outlined(content: Any) -> None:
        for each in content["annotations"]:
            x, y, width, height = each["bbox"]
            each["segmentation"] = [[x, y, x + width, y, x + width, y + height, x, y + height]]

    reader = da.CocoReader(tmp_path, change(path, outlined), keypoints=True, rotated=True, masks=True)
    recipe = [da.RandomHorizontalFlip(), da.RandomRotation(20), RESIZE, da.ElasticTransform(p=0.5)]
    for batch in islice(da.Loader(reader, recipe, 4, device=device, seed=2), 3):
        content = io.BytesIO()
        torch.save(batch.clone(), content)
        saved = torch.load(io.BytesIO(content.getvalue()), weights_only=False)
        assert len(content.getvalue()) < 4 * batch.images.nbytes / 3 + 60_000
        for copied in (batch.clone(), batch.clone().clone(), saved, pickle.loads(pickle.dumps(batch))):
            assert torch.equal(copied.keypoints, batch.keypoints)
            assert torch.equal(copied.corners, batch.corners)
            assert torch.equal(copied.masks(), batch.masks())
            assert torch.equal(copied.instance_map(2), batch.instance_map(2))
            for one, other in zip(copied.marks(), batch.marks(), strict=True):
                assert [np.array_equal(*pair) for pair in zip(one[:2], other[:2], strict=True)] == [True, True]
            assert len(copied.shapes.classes) == int(batch.valid.sum())
            copied.keypoints.zero_()
        assert batch.keypoints.any() or not batch.valid.any()


def test_clips(tmp_path: Path, device: str) -> None:
    """An object has one row in all frames, and each of its frames its own keypoints."""
    discs = paint_discs(images=8, seed=3)
    content = json.loads(write_discs(tmp_path, discs).read_text())
    content["videos"] = [{"id": 1, "name": "upright"}, {"id": 2, "name": "wide"}]
    for image in content["images"]:
        image |= {"video_id": 1 + image["id"] % 2, "frame_id": image["id"]}
    seen: dict[int, int] = {}
    for each in content["annotations"]:
        each["track_id"] = seen[each["image_id"]] = seen.get(each["image_id"], 0) + 1
    (tmp_path / "clips.json").write_text(json.dumps(content))
    reader = da.ClipReader(tmp_path, tmp_path / "clips.json", frames=4, keypoints=True)
    ops = [da.RandomHorizontalFlip(), RESIZE]
    loader: da.Loader[da.ClipBatch] = da.Loader(reader, ops, batch_size=2, device=device, seed=1)
    batch = next(iter(loader)).to("cpu")
    assert batch.keypoints.shape == (2, 4, 2, 3, 3)
    found = 0
    for clip, frame, row in np.argwhere(batch.valid.numpy()):
        own = batch.keypoints[clip, frame, row].double().numpy()
        image = batch.images[clip, frame].permute(1, 2, 0).numpy()
        found += sum(_compare(image, own, slot, 1.0, 0.1) for slot in range(3))
    assert found > 30
    assert not batch.keypoints[~batch.valid].any()


def test_background_images_are_joined_without_key_points(tmp_path: Path) -> None:
    path, backgrounds = write_discs(tmp_path, paint_discs(4)), tmp_path / "backgrounds.json"
    backgrounds.write_text(json.dumps({**json.loads(path.read_text()), "annotations": []}))
    with pytest.raises(da.InputError, match=r"has keypoints; .* leave out keypoints=True: da\.ConcatReader joins"):
        da.CocoReader(tmp_path, backgrounds, keypoints=True)
    reader = da.CocoReader(tmp_path, path, keypoints=True)
    joined = da.ConcatReader([reader, da.CocoReader(tmp_path, backgrounds)])
    (batch,) = da.Loader(joined, [RESIZE], 8, device="cpu", train=False)
    (alone,) = da.Loader(reader, [RESIZE], 4, device="cpu", train=False)
    assert torch.equal(batch.keypoints[:4], alone.keypoints)
    assert not batch.valid[4:].any()


def test_a_source_without_key_points_says_so(tmp_path: Path) -> None:
    reader = da.CocoReader(tmp_path, write_discs(tmp_path, paint_discs(4)))
    batch = next(iter(da.Loader(reader, [RESIZE], 4, device="cpu")))
    with pytest.raises(da.InputError, match="no keypoints: make the reader with CocoReader"):
        _ = batch.keypoints


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("left_eye", "right_eye"),
        ("RightEye", "LeftEye"),
        ("eye left", "eye right"),
        ("l_eye", "r_eye"),
        ("eye-L", "eye-R"),
        ("REar", "LEar"),
        ("front_left_wheel", "front_right_wheel"),
        ("nose", None),
        ("lip", None),
        ("leftover", None),
        ("r1", None),
        ("L", None),
    ],
)
def test_names_with_sides(name: str, other: str | None) -> None:
    assert other_side(name) == other


def change(path: Path, edit: Any) -> Path:
    content = json.loads(path.read_text())
    edit(content)
    path.write_text(json.dumps(content))
    return path


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (
            lambda c: c["annotations"][1].update(keypoints=[1, 2]),
            "keypoints must have 3 numbers for each of 3",
        ),
        (lambda c: c["annotations"][1].update(keypoints=[1, 2, 3] * 3), "visibility of a keypoint must be 0, 1 or 2"),
        (lambda c: c["annotations"][1].update(keypoints=["a"] * 9), "keypoints must be finite numbers"),
        (lambda c: [each.pop("keypoints") for each in c["annotations"]], "no annotation has 'keypoints'"),
        (lambda c: c["categories"][0].update(flip_idx=[1, 1, 2]), "flip_idx must have each"),
    ],
)
def test_wrong_key_points_are_refused(edit: Any, message: str, tmp_path: Path) -> None:
    path = change(write_discs(tmp_path, paint_discs(4)), edit)
    with pytest.raises(da.InputError, match=message):
        da.CocoReader(tmp_path, path, keypoints=True)
    da.CocoReader(tmp_path, path)  # boxes are all right


@pytest.mark.parametrize("pairs", [[("left_hand", "foot")], [(0, 1)]])
def test_flip_pairs_are_the_remedy(pairs: Any, tmp_path: Path) -> None:
    names = ["left_hand", "foot", "nose"]
    path = change(write_discs(tmp_path, paint_discs(4)), lambda c: c["categories"][0].update(keypoints=names))
    reader = da.CocoReader(tmp_path, path, keypoints=True, flip_pairs=pairs)
    assert reader.shapes.keypoints is not None
    assert reader.shapes.keypoints.swapped.tolist() == [[1, 0, 2]]
    with pytest.raises(da.InputError, match="no keypoint 'leg'"):
        da.CocoReader(tmp_path, path, keypoints=True, flip_pairs=[("leg", 0)])


@pytest.mark.parametrize("units", ["pixels", "relative"])
def test_key_points_in_a_dali_pipeline(units: Any, device: str) -> None:
    discs = paint_discs(8)
    recipe = [da.RandomHorizontalFlip(), da.RandomRotation(20, fill=BLACK), RESIZE, da.Mosaic(p=0.5)]
    sides = [np.array(image.shape[1::-1]) if units == "relative" else np.ones(2) for image in discs.images]
    points = [
        np.concatenate([each / side, np.full((len(each), 3, 1), 2)], axis=2).astype(np.float32)
        for each, side in zip(discs.points, sides, strict=True)
    ]
    boxes = [(each / np.tile(side, 2)).astype(np.float32) for each, side in zip(discs.boxes, sides, strict=True)]

    def nodes() -> Any:
        images = given(discs.images)
        images = images.gpu() if device == "cuda" else images
        extra = {"keypoints": given(points), "flip_pairs": [(0, 1)]}
        return da.fn.augment(images, given(boxes), None, recipe, units=units, **extra)

    images, _, _, moved = outputs(make(nodes, len(points), device))
    compared = 0
    for image, each in zip(images, moved, strict=True):
        for own in each.astype(float):
            compared += sum(_compare(image, own, slot, 1.0) for slot in range(3) if own[slot, 2] == 2)
    assert compared >= 15


def test_a_dali_pipeline_needs_flip_pairs() -> None:
    def nodes() -> Any:
        points = given([np.zeros((1, 3, 3), np.float32)])
        return da.fn.augment(
            given([np.zeros((9, 9, 3), np.uint8)]), given([np.zeros((1, 4))]), None, [], keypoints=points
        )

    with pytest.raises(da.InputError, match="keypoints need flip_pairs"):
        make(nodes, 1, "cpu")


def test_mirrors_are_told_by_the_whole_map() -> None:
    """The upper left part of a perspective alone says another thing, for one map in ten of these."""
    rng = np.random.default_rng(0)
    maps = np.concatenate([rng.normal(size=(2000, 2, 3)), rng.uniform(-0.4, 0.4, (2000, 1, 2)) @ np.eye(2, 3)], axis=1)
    maps[:, 2, 2] = 1
    triangle = np.array([[0.2, 0.3], [0.7, 0.4], [0.4, 0.9]])
    moved = np.concatenate([triangle, np.ones((3, 1))], axis=1) @ maps.transpose(0, 2, 1)
    turns = [around(*(points[:, :2] / points[:, 2:])) * around(*triangle) for points in moved]
    assert mirrors(maps).tolist() == [turn < 0 for turn in turns]
    assert 0.02 < (mirrors(maps[:, :2]) != mirrors(maps)).mean() < 0.3
    affine = np.concatenate([maps[:, :2], np.tile([[[0.0, 0, 1]]], (2000, 1, 1))], axis=1)
    assert np.array_equal(mirrors(maps[:, :2]), mirrors(affine))


@pytest.mark.parametrize("skeleton", [[[0, 1]], [[1, 4]], [[1, 2, 3]], "none", [[1, 2], [16, 14]]])
def test_a_wrong_skeleton_is_no_reason_to_refuse(tmp_path: Path, skeleton: Any) -> None:
    """Only images show it: CrowdPose, ATRW and others have one that does not fit their points."""
    path = change(write_discs(tmp_path, paint_discs(4)), lambda c: c["categories"][0].update(skeleton=skeleton))
    reader = da.CocoReader(tmp_path, path, keypoints=True)
    points = reader.shapes.keypoints
    assert points is not None
    assert points.skeletons[0] == []
    right = change(path, lambda c: c["categories"][0].update(skeleton=[[1, 3]]))
    points = da.CocoReader(tmp_path, right, keypoints=True).shapes.keypoints
    assert points is not None
    assert points.skeletons[0] == [(0, 2)]


def test_each_class_has_its_own_swaps_sides_and_lines() -> None:
    """Of several objects and images; some images are flipped, and the first object of two images is dropped."""
    names = [["left_eye", "right_eye", "nose"], ["top", "left_end", "right_end"], ["a", "b"]]
    bones = [[(0, 2), (1, 2)], [(0, 1)], []]
    swapped = [[1, 0, 2], [0, 2, 1], [0, 1, 2]]
    classes = [[2, 0, 1], [1, 2, 2, 0], [0], [1, 0]]
    rng = np.random.default_rng(0)
    points = [np.append(rng.uniform(5, 95, (len(own), 3, 2)), np.full((len(own), 3, 1), 2), 2) for own in classes]
    key_points = da.KeyPoints(np.concatenate(points), names, bones, np.array(swapped))
    for at, (own, lines) in enumerate(zip(names, bones, strict=True)):
        found_names, found_lines, found_swaps = key_points.of_class(at, 3)
        assert (found_names, found_lines, found_swaps.tolist()) == (own, lines, swapped[at])
    labels = [np.array(own) + 1 for own in classes]
    boxes = [[[0, 0, 100, 100]] * len(own) for own in classes]
    boxes[0][0] = boxes[1][0] = [0, 0, 3, 3]
    images = [np.arange(100, dtype=np.uint8)[None, :, None].repeat(100, 0).repeat(3, 2)] * 4
    samples = da.batch(images, boxes, labels, shapes=da.Shapes(keypoints=key_points), seed=1)
    flipped = samples.then(da.RandomHorizontalFlip(p=0.5), da.Resize((100, 100)), da.SanitizeBoundingBoxes(min_size=5))
    for own in (points, classes):
        own[:2] = [each[1:] for each in own[:2]]
    is_flipped = [image[0, 0, 0] == 99 for image in flipped.images]
    assert 0 < sum(is_flipped) < 4
    assert not is_flipped[0], "places of objects and of images in the batch are to differ"
    shown = zip(flipped.keypoints, flipped.marks(), points, classes, is_flipped, strict=True)
    for found, marks, own, numbers, mirrored in shown:
        expected = own.copy()
        if mirrored:
            order = np.array(swapped)[numbers]
            expected = np.take_along_axis(own, order[..., None], 1) * (-1, 1, 1) + (100, 0, 0)
        np.testing.assert_allclose(found, expected, atol=1e-9)
        assert marks is not None
        assert marks.skeletons == [bones[number] for number in numbers]
        sides = {0: ["left", "right", ""], 1: ["", "left", "right"], 2: ["", "", ""]}
        assert marks.sides == [sides[number] for number in numbers]
