"""Boxes, points and masks of one view in pixels of the other: against painted discs and stars, and other formulas."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from disc_files import COLORS, find_disc, paint_discs, write_discs
from painted_files import Folder
from PIL import Image
from seeds import slow
from torch import Tensor

import detaug as da
from detaug.testing import paint_stars

FILL = {"fill": (0, 0, 0)}
AFFINE = da.RandomAffine(15, translate=(0.05, 0.05), scale=(0.9, 1.1), **FILL)
WEAK = [da.RandomHorizontalFlip(), da.Resize((300, 400))]
STRONG = [AFFINE, da.RandomHorizontalFlip(), da.RandomVerticalFlip(), da.Resize((360, 440))]
PAIRS: dict[str, dict[str, list[da.Op]]] = {
    "affine": {"weak": WEAK, "strong": STRONG},
    "perspective": {"weak": [da.RandomPerspective(0.2, p=1, **FILL), *WEAK], "strong": STRONG},
    "letterbox": {"weak": [da.Resize((300, 400), letterbox="center", **FILL)], "strong": [da.RandomRotate90(), *WEAK]},
    "bent": {
        "weak": [*WEAK, da.OpticalDistortion((-0.15, 0.15), **FILL)],
        "strong": [*STRONG, da.ElasticTransform(alpha=30, sigma=12, **FILL)],
    },
}
SOME = ["affine", *slow("perspective", "letterbox", "bent")]


def views_of(reader: da.CocoReader, recipes: dict[str, Any], **options: Any) -> dict[str, da.Batch]:
    loader: da.Loader[Any] = da.Loader(reader, recipes, 8, **{"device": "cpu", "seed": 4, **options})
    views: dict[str, da.Batch] = next(iter(loader))
    return views


@pytest.fixture(scope="module")
def discs(tmp_path_factory: pytest.TempPathFactory) -> da.CocoReader:
    folder = tmp_path_factory.mktemp("discs")
    return da.CocoReader(folder, write_discs(folder, paint_discs(8)), keypoints=True)


@pytest.mark.parametrize("pair", ["affine", "perspective", "letterbox", "bent"])
def test_points_follow_the_discs_of_both_views(discs: da.CocoReader, pair: str) -> None:
    """The centers of discs that are found in the weak view lie where they are found in the strong one."""
    weak, strong = views_of(discs, PAIRS[pair]).values()
    image, first, second = weak.match(strong).unbind(1)
    distances = []
    for index, a, b in zip(image.tolist(), first.tolist(), second.tolist(), strict=True):
        pixels = [batch.images[index].permute(1, 2, 0).numpy() for batch in (weak, strong)]
        swapped = torch.linalg.det(strong.matrix[index, :2, :2]) * torch.linalg.det(weak.matrix[index, :2, :2]) < 0
        for point, color in enumerate(_colors_of(weak, index)):
            other = [1, 0, 2][point] if swapped else point
            places = weak.keypoints[index, a, point], strong.keypoints[index, b, other]
            found = [
                find_disc(own, *place[:2].tolist(), color) if place[2] else None
                for own, place in zip(pixels, places, strict=True)
            ]
            if None in found:
                continue
            seen = torch.tensor([found[0]] * len(weak), dtype=torch.float64)[:, None]
            moved = weak.map_points(seen, strong)[index, 0]
            distances.append(float((moved - torch.tensor(found[1])).abs().max()))
    assert len(distances) >= 8
    assert max(distances) < (0.1 if pair != "bent" else 0.2)  # what is bent is not quite a disc


def _colors_of(weak: da.Batch, index: int) -> list[int]:
    """Return the colors of left, right and middle points: a flip changes the sides, and not the colors."""
    flipped = torch.linalg.det(weak.matrix[index, :2, :2]) < 0
    assert len(COLORS) == 3
    return [1, 0, 2] if flipped else [0, 1, 2]


def composed(points: Tensor, weak: da.Batch, strong: da.Batch) -> Tensor:
    """Solve for the source points, and take them through the other map: NumPy's LU, one point at a time."""
    moved = points.clone()
    for index in range(len(points)):
        square = []
        for batch in (weak, strong):
            own = np.eye(3)
            own[: batch.matrix.shape[1]] = batch.matrix[index].double().numpy()
            square.append(own)
        for number, point in enumerate(points[index].numpy()):
            source = np.linalg.solve(square[0], [*point, 1])
            x, y, w = square[1] @ (source / source[2])
            moved[index, number] = torch.tensor([x / w, y / w])
    return moved


@pytest.mark.parametrize("pair", ["affine", "perspective", "letterbox"])
def test_points_and_boxes_go_through_both_maps(discs: da.CocoReader, pair: str) -> None:
    weak, strong = views_of(discs, PAIRS[pair]).values()
    points = torch.rand(8, 30, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 300
    moved = weak.map_points(points, strong)
    assert moved.dtype == torch.float64
    assert (moved - composed(points, weak, strong)).abs().max() < 1e-9
    assert (strong.map_points(moved, weak) - points).abs().max() < 1e-9
    boxes = torch.cat([points[:, :15], points[:, :15] + points[:, 15:] / 3], -1)
    corners = torch.stack([boxes[..., [x, y]] for x in (0, 2) for y in (1, 3)], 2)
    expected = composed(corners.flatten(1, 2), weak, strong).unflatten(1, (15, 4))
    hulls = torch.cat([expected.amin(2), expected.amax(2)], -1)
    assert (weak.map_boxes(boxes, strong) - hulls).abs().max() < 1e-9
    single = weak.map_boxes([own.float() for own in boxes], strong)
    assert len(single) == 8
    assert single[3].dtype == torch.float32
    assert (torch.stack(single) - hulls).abs().max() < 1e-3


def test_bent_points_go_to_the_source_and_back(discs: da.CocoReader) -> None:
    weak, strong = views_of(discs, PAIRS["bent"]).values()
    points = torch.rand(8, 30, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 200 + 50
    moved = weak.map_points(points, strong)
    assert (strong.points_to_source(moved) - weak.points_to_source(points)).abs().max() < 1e-5
    assert (strong.map_points(moved, weak) - points).abs().max() < 1e-5
    boxes = torch.cat([points, points + 40], -1)
    inner = boxes[..., :2] + 40 * torch.rand(50, 8, 30, 2, dtype=torch.float64)
    hulls = weak.map_boxes(boxes, strong)
    for own in inner:
        inside = weak.map_points(own, strong)
        assert (inside >= hulls[..., :2] - 0.05).all()
        assert (inside <= hulls[..., 2:] + 0.05).all()


def test_boxes_onto_a_bent_view_are_hulls_of_bent_sides(discs: da.CocoReader) -> None:
    """A lens pulls corners inwards more than the middles of the sides, which then decide the box."""
    plain = [da.Resize((300, 400))]
    recipes = {"weak": plain, "strong": [*plain, da.OpticalDistortion((0.25, 0.25), **FILL)]}
    weak, strong = views_of(discs, recipes).values()
    boxes = torch.tensor([[[100.0, 75, 300, 225]]] * 8)
    middles = torch.tensor([[[200.0, 75], [300, 150], [200, 225], [100, 150]]] * 8)
    x, y = weak.map_points(middles, strong).unbind(-1)
    hulls = weak.map_boxes(boxes, strong)[:, 0]
    corners = weak.map_points(torch.tensor([[[100.0, 75], [300, 225]]] * 8), strong)
    assert (hulls - torch.stack([x[:, 3], y[:, 0], x[:, 1], y[:, 2]], -1)).abs().max() < 0.01
    assert (corners[:, 0] - hulls[:, :2]).min() > 1


@pytest.fixture(scope="module")
def stars(tmp_path_factory: pytest.TempPathFactory) -> da.CocoReader:
    folder, painted = tmp_path_factory.mktemp("stars"), paint_stars((240, 320), 8, 0)
    assert painted.outlines
    content: dict[str, Any] = {"images": [], "annotations": [], "categories": []}
    content["categories"] = [{"id": label, "name": f"star {label}"} for label in (1, 2, 3)]
    for number, (pixels, boxes, rings) in enumerate(zip(painted.images, painted.boxes, painted.outlines, strict=True)):
        Image.fromarray(pixels).save(folder / f"{number}.png")
        content["images"].append({"id": number + 1, "file_name": f"{number}.png", "width": 320, "height": 240})
        for label, ((x0, y0, x1, y1), ring) in enumerate(zip(boxes.tolist(), rings, strict=True), 1):
            annotation = {"id": 3 * number + label, "image_id": number + 1, "category_id": label, "iscrowd": 0}
            annotation |= {"bbox": [x0, y0, x1 - x0, y1 - y0], "segmentation": [ring.ravel().tolist()]}
            content["annotations"].append(annotation)
    (folder / "stars.json").write_text(json.dumps(content))
    return da.CocoReader(folder, folder / "stars.json", masks=True)


@pytest.mark.parametrize("pair", SOME)
def test_masks_of_pixels_lie_on_the_stars_of_the_other_view(stars: da.CocoReader, pair: str) -> None:
    """A mask of what is bright in the weak view, moved, is what is bright in the strong one, but for outlines."""
    weak, strong = views_of(stars, PAIRS[pair]).values()
    bright = [[batch.images[index] > 127 for index in range(8)] for batch in (weak, strong)]  # a channel is a star
    moved = weak.map_masks(bright[0], strong)
    compared = 0
    for index in range(8):
        assert moved[index].shape == (3, *strong.images.shape[2:])
        seen = weak.map_masks([torch.ones_like(own) for own in bright[0]], strong)[index]  # the weak view shows it
        for own, expected, shown in zip(moved[index], bright[1][index], seen, strict=True):
            compared += int(own.sum())
            wrong = (own != expected) & shown
            assert wrong.sum() <= 0.05 * own.sum() + 5
            assert not (wrong & (_wide(expected) == ~_wide(~expected))).any()  # farther than 2 pixels from its outline
            assert not (own & ~shown).any()
    assert compared > 20000


def _wide(mask: Tensor) -> Tensor:
    return torch.nn.functional.max_pool2d(mask[None].float(), 5, 1, 2)[0] > 0


@pytest.mark.parametrize("first", [da.RandomSizeCrop(40, 50, None), da.RandomZoomOut(p=1, min_ratio=1.5, **FILL)])
def test_padding_and_fill_have_no_mask(tmp_path: Path, first: da.Op) -> None:
    """A wide image and a high one: the second, rotated view shows fill around, and both are padded."""
    content: dict[str, Any] = {"annotations": [], "categories": [{"id": 1, "name": "a"}]}
    sizes = {1: (60, 100), 2: (100, 60)}
    content["images"] = [
        {"id": number, "file_name": f"{number}.png", "height": size[0], "width": size[1]}
        for number, size in sizes.items()
    ]
    for number, size in sizes.items():
        Image.fromarray(np.full((*size, 3), 255, np.uint8)).save(tmp_path / f"{number}.png")
    (tmp_path / "a.json").write_text(json.dumps(content))
    reader = da.CocoReader(tmp_path, tmp_path / "a.json")
    rotation = da.RandomRotation((30, 30), expand=True, **FILL)
    recipes = {
        "weak": [first, da.RandomShortestSize((48,), 96)],
        "strong": [rotation, da.RandomShortestSize((64,), 128)],
    }
    weak, strong = views_of(reader, recipes, train=False).values()
    everywhere = [torch.ones(1, *weak.images.shape[2:], dtype=torch.bool)] * 2  # also in the padding
    height, width = strong.images.shape[2:]
    rows, columns = torch.meshgrid(torch.arange(height) + 0.5, torch.arange(width) + 0.5, indexing="ij")
    in_weak = strong.map_points(torch.stack([columns, rows], -1).expand(2, -1, -1, -1), weak)
    for index, (moved,) in enumerate(weak.map_masks(everywhere, strong)):
        bright = strong.images[index, 0] > 127
        cropped = ((in_weak[index] > 0) & (in_weak[index] < weak.image_size[index].flip(0))).all(-1)
        assert bright.sum() < 0.8 * bright.numel()
        assert moved.sum() > 0.2 * bright.sum()
        wrong = moved ^ (bright & cropped)
        assert not (wrong & (_wide(bright) == ~_wide(~bright))).any()


@pytest.mark.parametrize("mixed", ["weak", "strong"])
def test_mixed_views_match_and_are_not_mapped(painted: Folder, mixed: str) -> None:
    plain = [da.Resize((64, 64))]
    recipes = {"weak": plain, "strong": [da.RandomIoUCrop(), *plain]}
    recipes[mixed] = [*plain, da.Mosaic(p=1)]
    weak, strong = views_of(da.CocoReader(*painted), recipes).values()
    remedy = "boxes cannot be moved between the views: leave Mosaic, MixUp, CutMix and CopyPaste out of the recipes"
    with pytest.raises(da.InputError, match=f"8 images of this batch are mixed of several, so {remedy}"):
        weak.map_boxes(weak.boxes, strong)
    image, first, second = weak.match(strong).unbind(1)
    assert len(image) > 0
    assert torch.equal(weak.labels[image, first], strong.labels[image, second])


def test_match_finds_all_pairs(painted: Folder) -> None:
    recipes = {"weak": [da.RandomIoUCrop(), da.Resize((64, 64))], "strong": [da.RandomIoUCrop(), da.Resize((72, 80))]}
    weak, strong = views_of(da.CocoReader(*painted, columns=("id",)), recipes).values()
    ids = [batch.columns["id"].tolist() for batch in (weak, strong)]
    expected = [
        [image, ours.index(number), theirs.index(number)]
        for image, (ours, theirs) in enumerate(zip(*ids, strict=True))
        for number in ours
        if number != -1 and number in theirs
    ]
    assert weak.match(strong).tolist() == expected
    assert 0 < len(expected) < sum(weak.counts)
    assert sorted(strong.match(weak)[:, [0, 2, 1]].tolist()) == expected


def test_other_images_and_other_things_are_refused(painted: Folder) -> None:
    reader = da.CocoReader(*painted)
    one, other = (views_of(reader, {"a": [da.Resize((64, 64))]}, seed=seed)["a"] for seed in (0, 1))
    for call in (lambda: one.match(other), lambda: one.map_boxes(one.boxes, other)):
        with pytest.raises(da.InputError, match="other must be a view of the same images in the same order"):
            call()
    with pytest.raises(TypeError, match="other must be a Batch, another view of the same images, got dict"):
        one.match({})  # type: ignore[type-var]
    with pytest.raises(da.InputError, match="points must hold one entry for each of the 8 images, got 7"):
        one.map_points(torch.zeros(7, 1, 2), one)
