"""Ops that bend the finished image: painted boxes, discs and stars are found again, and OpenCV bends pixels alike."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch
from band_files import data_set, encode, values
from dali_pipelines import given, make, outputs
from numpy.typing import NDArray
from painted_files import Folder, same
from PIL import Image
from reference import torchvision_part
from seeds import seeds, slow

import detaug as da
from detaug.boxes.fields import Field
from detaug.ops.distortion import largest_alpha
from detaug.testing import Painted, Result, paint, paint_stars, read_box, run
from detaug.testing.pixels import compare_masks

BLACK = (0.0, 0.0, 0.0)
SIZE, OUTPUT = (192, 256), (300, 400)
RESIZE = da.Resize(OUTPUT)
OPS: dict[str, da.Op] = {
    "lens": da.OpticalDistortion((-0.15, 0.3), BLACK),
    "elastic": da.ElasticTransform(600, 20, BLACK),
}
AFFINE = da.RandomAffine(15, (0.1, 0.1), (0.9, 1.2), 5, p=1, fill=BLACK)


def one_of_four(painted: Painted, at: int) -> list[NDArray[Any]]:
    """Return the images, but that of `at` alone is painted: so its objects can be read where others may lie."""
    return [image * (number == at) for number, image in enumerate(painted.images)]


def mixed(painted: Painted, op: da.Op, at: int, seed: int) -> da.Samples:
    """Return a mosaic of four rotated images that is bent. Labels say of which image and object a box is."""
    labels = [np.arange(1, 4) + 3 * number for number in range(4)]
    shapes = da.Shapes(outlines=painted.shapes.outlines, tight=True)
    samples = da.batch(one_of_four(painted, at), painted.boxes, labels, shapes=shapes, seed=seed)
    return samples.then(AFFINE, RESIZE, da.Mosaic(p=1), op)


def off_painted(image: NDArray[Any], box: NDArray[Any], channel: int, *, tips: bool = False) -> float:
    """Return how far a box is from what is painted. `tips`: sharp ones end between half bright and faint pixels."""
    pixels = image[..., channel].astype(float)
    if pixels.max() < 200:
        return 99.0
    seen = read_box(pixels)
    faint = read_box(pixels, 0.02) if tips else seen
    low, high = np.minimum(seen, faint), np.maximum(seen, faint)
    return float(np.maximum(low - box, box - high).max())


@pytest.mark.parametrize("pipeline", [False, *slow(True)])
@pytest.mark.parametrize("seed", seeds(2, 8))
@pytest.mark.parametrize("name", OPS)
def test_boxes_are_hulls_of_bent_outlines(name: str, seed: int, pipeline: bool, device: str) -> None:
    result = run([RESIZE, OPS[name]], paint(SIZE, 8, 24, seed), seed=seed, device=device, pipeline=pipeline)
    rows = zip(result.images, result.boxes, result.labels, strict=True)
    off = [off_painted(image, *each) for image, boxes, labels in rows for each in zip(boxes, labels - 1, strict=True)]
    assert len(off) == 24
    assert max(off) < 0.5
    assert np.median(off) < 0.2


@pytest.mark.parametrize("seed", seeds(1, 4))
@pytest.mark.parametrize("name", OPS)
def test_boxes_of_mosaics_are_bent(name: str, seed: int) -> None:
    """By their polygons, since a rotated box is larger than its object."""
    painted, off = _rectangles(seed), []
    for at in range(4):
        samples = mixed(painted, OPS[name], at, seed)
        for image, boxes, labels in zip(samples.images, samples.boxes, samples.labels, strict=True):
            for box, label in zip(boxes, labels, strict=True):
                own = (labels - 1) // 3 == at
                if (label - 1) // 3 == at and (labels == label).sum() == 1 and own.any() and box[2:].min() > 0:
                    off.append(off_painted(image, box, (label - 1) % 3, tips=True))
    assert len(off) > 20
    assert max(off) < 0.75
    assert np.mean(np.array(off) < 0.5) > 0.9


def _rectangles(seed: int) -> Painted:
    """Return rectangles whose polygons are known."""
    painted = paint(SIZE, 4, 40, seed)
    outlines = [np.stack([each[:, [0, 2, 2, 0]], each[:, [1, 1, 3, 3]]], 2).astype(float) for each in painted.boxes]
    return painted._replace(outlines=outlines)


@pytest.mark.parametrize("seed", seeds(2, 8))
@pytest.mark.parametrize("name", OPS)
def test_key_points_are_on_their_dots(name: str, seed: int, device: str) -> None:
    """Small ones, since a large dot bends too, and then its center of mass is beside its point."""
    rng, (y, x) = np.random.default_rng(seed), np.indices(OUTPUT) + 0.5
    points, images = rng.uniform(8, np.array(OUTPUT[::-1]) - 8, (30, 3, 2)), np.zeros((30, *OUTPUT, 3), np.uint8)
    for at, channel in np.ndindex(30, 3):
        away = (x - points[at, channel, 0]) ** 2 + (y - points[at, channel, 1]) ** 2
        images[at, ..., channel] = np.round(250 * np.exp(-away / 2 / 1.5**2))
    shapes = da.Shapes(keypoints=da.KeyPoints(np.concatenate([points, np.full((30, 3, 1), 2)], 2)))
    samples = da.batch(list(images), [[[0, 0, *OUTPUT[::-1]]]] * 30, shapes=shapes, seed=seed, device=device)
    bent, off, gone = samples.then(da.Resize(OUTPUT), OPS[name]), [], 0
    for image, keypoints in zip(bent.images, bent.keypoints, strict=True):
        for channel, point in enumerate(keypoints[0]):
            mass = image[..., channel].astype(float)
            center = np.array([(x * mass).sum(), (y * mass).sum()]) / max(mass.sum(), 1)
            if (center > 8).all() and (center < np.array(OUTPUT[::-1]) - 8).all() and mass.max() > 100:
                assert point[2] == 2
                off.append(np.abs(point[:2] - center).max())
            elif mass.max() < 40:
                assert (point == 0).all()
                gone += 1
    assert len(off) > 60
    assert max(off) < 0.25
    assert np.median(off) < 0.05


def test_visible_is_the_share_of_the_area() -> None:
    """Counted on a grid of points that goes on beyond the image."""
    boxes = [[[2.0, 3, 60, 40]], [[100, 60, 256, 192]], [[80, 0, 200, 30]]] * 2
    op = da.OpticalDistortion((-0.15, -0.1))
    views = da.batch([np.zeros((*SIZE, 3), np.uint8)] * 6, boxes).then(da.Resize(SIZE), op).plan.views
    y, x = np.mgrid[-40:232:0.5, -50:306:0.5] + 0.25
    inside = (x > 0) & (x < SIZE[1]) & (y > 0) & (y < SIZE[0])
    assert views.field is not None
    for at, ((box,), share) in enumerate(zip(boxes, views.visible[:, 0], strict=True)):
        from_x, from_y = views.field.undistorted(at, x, y)
        shown = (from_x > box[0]) & (from_x < box[2]) & (from_y > box[1]) & (from_y < box[3])
        assert share == pytest.approx((shown & inside).sum() / shown.sum(), abs=0.01)
        assert share < 0.97


@pytest.mark.parametrize("seed", seeds(2, 8))
@pytest.mark.parametrize("before", [[RESIZE], [AFFINE, RESIZE]], ids=["alone", "turned"])
@pytest.mark.parametrize("name", OPS)
def test_masks_lie_on_their_stars(name: str, before: list[da.Op], seed: int, device: str) -> None:
    result = run([*before, OPS[name]], paint_stars(SIZE, 4, seed), seed=seed, device=device, pipeline=False)
    found = compare_masks([result], 1)
    assert found.boxes >= 10
    assert not found.misplaced


@pytest.mark.parametrize("stride", [1, 3])
@pytest.mark.parametrize("name", OPS)
def test_a_pixel_is_in_a_mask_if_the_point_that_it_shows_is_in_the_outline(
    name: str, stride: int, tmp_path: Path, device: str
) -> None:
    """Against Shapely and, for RLE, the pixels of their bitmap: but for 1/256 pixel no point is wrong."""
    shapely = pytest.importorskip("shapely")
    rng, angle = np.random.default_rng(4), np.arange(40) * np.pi / 20
    rings = [(128, 96) + rng.uniform(30, 90, 40)[:, None] * np.stack([np.cos(angle), np.sin(angle)], 1) for _ in "ab"]
    y, x = np.mgrid[: SIZE[0], : SIZE[1]]
    bitmap = (x // 9 + y // 7) % 3 > 0
    ends = np.flatnonzero(np.diff(bitmap.ravel(order="F"), prepend=False, append=~bitmap[-1, -1]))
    lengths = {"size": [*SIZE], "counts": np.diff(ends, prepend=0).tolist()}
    write(tmp_path, [[each.ravel().tolist() for each in rings], lengths])
    reader = da.CocoReader(tmp_path, tmp_path / "a.json", masks=True)
    op = da.OpticalDistortion((-0.2, 0.3)) if name == "lens" else da.ElasticTransform(600, 20)
    (batch,) = da.Loader(reader, [da.Resize(SIZE), op], 1, device=device, seed=5)
    assert batch.distortion is not None
    center_y, center_x = ((np.arange(side // stride) + 0.5) * stride for side in SIZE)
    from_x, from_y = batch.distortion.undistorted(0, *np.meshgrid(center_x, center_y))
    shape = shapely.union_all([shapely.Polygon(ring) for ring in rings])
    right = shapely.contains_xy(shape, from_x, from_y)
    off = shapely.distance(shape.boundary, shapely.points(from_x, from_y))
    own, of_runs = batch.masks(stride).cpu().numpy()
    assert right.sum() > 10000 / stride**2
    assert off[own != right].max(initial=0) < 0.005
    inside = (from_x >= 0) & (from_x < SIZE[1]) & (from_y >= 0) & (from_y < SIZE[0])
    seen = bitmap[from_y.clip(0, SIZE[0] - 1).astype(int), from_x.clip(0, SIZE[1] - 1).astype(int)] & inside
    from_edge = np.minimum(abs(from_x - from_x.round()), abs(from_y - from_y.round()))
    assert from_edge[of_runs != seen].max(initial=0) < 0.005


def write(folder: Path, segmentations: list[Any]) -> None:
    """Write a black image with these objects."""
    Image.new("RGB", SIZE[::-1]).save(folder / "a.png")
    entry = {"image_id": 1, "category_id": 1, "iscrowd": 0, "area": 1, "bbox": [0, 0, *SIZE[::-1]]}
    content = {
        "images": [{"id": 1, "file_name": "a.png", "height": SIZE[0], "width": SIZE[1]}],
        "annotations": [{"id": at, **entry, "segmentation": each} for at, each in enumerate(segmentations, 1)],
        "categories": [{"id": 1, "name": "a"}],
    }
    (folder / "a.json").write_text(json.dumps(content))


@pytest.mark.slow
@pytest.mark.parametrize("name", OPS)
def test_masks_of_mosaics_lie_on_their_stars(name: str) -> None:
    painted, compared = paint_stars(SIZE, 4, 3), 0
    for at in range(4):
        samples = mixed(painted, OPS[name], at, 3)
        for image, masks, labels in zip(samples.images, samples.masks, samples.labels, strict=True):
            for channel in range(3):
                own = masks[labels == 3 * at + channel + 1]
                result = Result([image[..., [channel] * 3]], [np.zeros((1, 4))], [np.array([1])], samples.matrix[:1])
                if len(own):
                    assert not compare_masks([result._replace(masks=[own.any(0)[None]])], 1).misplaced
                    compared += 1
    assert compared > 20


@pytest.mark.parametrize("name", OPS)
def test_tight_boxes_fit_masks(name: str) -> None:
    painted = paint_stars(SIZE, 4, 1)
    shapes = da.Shapes(outlines=painted.shapes.outlines, tight=True)
    samples = da.batch(painted.images, painted.boxes, shapes=shapes).then(AFFINE, RESIZE, OPS[name])
    off = []
    for masks, boxes in zip(samples.masks, samples.boxes, strict=True):
        for mask, box in zip(masks, boxes, strict=True):
            x, y = (np.flatnonzero(mask.any(axis)) for axis in (0, 1))
            off.append(np.abs(np.array([x[0], y[0], x[-1] + 1, y[-1] + 1]) - box).max())
    assert len(off) >= 10
    assert max(off) < 3  # tips that are thinner than a pixel
    assert np.median(off) < 1.5


def batch_of(painted: Painted, folder: Path, ops: list[da.Op], **arguments: Any) -> da.Batch:
    """Return the batch of a loader of these images, with the masks of their objects."""
    from detaug.testing.painted import _written

    return next(iter(da.Loader(_written(painted, folder), ops, len(painted.images), train=False, **arguments)))


@pytest.mark.parametrize("name", OPS)
def test_every_map_of_masks_samples_the_same(name: str, tmp_path: Path, device: str) -> None:
    batch = batch_of(paint_stars(SIZE, 4, 5), tmp_path, [RESIZE, OPS[name]], device=device).to("cpu")
    whole, coarse = batch.masks(), batch.masks(2)
    assert coarse.shape[1:] == (150, 200)
    corner = batch.masks(1)[:, ::2, ::2] == batch.masks(1)[:, 1::2, 1::2]  # inside and outside of the polygons
    assert (coarse == whole[:, 1::2, 1::2])[corner].float().mean() > 0.999
    assert torch.equal(coarse.any(1).any(1), whole.any(1).any(1))
    labels = batch.instance_map()
    image = torch.repeat_interleave(torch.arange(4), torch.tensor(batch.counts))
    union = torch.stack([whole[image == at].any(0) for at in range(4)])
    assert torch.equal(labels >= 0, union)
    assert torch.equal(batch.semantic_map() > 0, union)
    rows = torch.arange(len(whole))
    around = torch.tensor([[100.0, 80, 228, 208]]).repeat(len(rows), 1)
    assert torch.equal(batch.roi_masks(around, rows, 128), whole[:, 80:208, 100:228])


@pytest.mark.parametrize("name", OPS)
def test_boxes_and_points_go_back_to_the_source(name: str, tmp_path: Path, device: str) -> None:
    painted = paint(SIZE, 4, 24, 2)
    batch = batch_of(painted, tmp_path, [da.Resize((192, 256)), OPS[name]], device=device)
    back, corners = batch.boxes_in_source().cpu().numpy(), torch.tensor([[[0.0, 0], [128, 96], [200, 20]]] * 4)
    cut = inside = 0
    for at, boxes in enumerate(painted.boxes):
        seen = batch.boxes[at].cpu().numpy()
        for box, ours, given_box in zip(seen, back[at], boxes, strict=True):
            if (box[:2] > 1).all() and (box[2:] < (255, 191)).all():
                assert ours[0] <= given_box[0] + 0.1
                assert ours[1] <= given_box[1] + 0.1
                assert (ours[2:] >= given_box[2:] - 0.1).all()
                assert np.abs(ours - given_box).max() < 12  # hulls of what a hull goes back to
                inside += 1
            cut += 1
    assert inside > 4
    assert batch.distortion is not None
    x, y = batch.distortion.undistorted(np.arange(4)[:, None], *corners.double().numpy().transpose(2, 0, 1))
    found = batch.points_to_source(corners.to(batch.images.device)).cpu().numpy()
    assert np.abs(found - np.stack([x, y], 2)).max() < 1e-4
    in_lists = batch.to_source(list(batch.boxes))
    assert torch.equal(torch.stack(in_lists), batch.to_source(batch.boxes))


@pytest.mark.parametrize("name", OPS)
def test_masks_go_back_to_the_source(name: str, tmp_path: Path) -> None:
    painted = paint_stars(SIZE, 3, 5)
    batch = batch_of(painted, tmp_path, [RESIZE, OPS[name]])
    back = batch.masks_to_source([each["masks"] for each in batch.targets(masks=True)])
    straight = batch_of(painted, tmp_path, [da.Resize(SIZE)])
    for ours, each in zip(back, straight.targets(masks=True), strict=True):
        assert ours.shape == each["masks"].shape
        whole = [mask for mask in each["masks"].bool() if not (mask[:14].any() | mask[-14:].any())]
        assert whole or len(each["masks"])
        overlap = (ours & each["masks"].bool()).sum((1, 2)) / (ours | each["masks"].bool()).sum((1, 2))
        assert overlap.median() > 0.95


@pytest.mark.parametrize("name", OPS)
def test_rotated_boxes_are_around_moved_corners(name: str) -> None:
    corners = np.array([[[60.0, 60], [140, 80], [130, 120], [50, 100]]])
    samples = da.batch([np.zeros((*SIZE, 3), np.uint8)], [[[50, 60, 140, 120]]], shapes=da.Shapes(corners=corners))
    bent = samples.then(da.Resize(SIZE), OPS[name])
    field = bent.plan.views.field
    assert field is not None
    (moved,) = bent.corners
    x, y = field.undistorted(np.zeros((1, 4), int), *moved.transpose(2, 0, 1))
    assert np.abs(np.stack([x, y], 2) - corners).max() < 1e-3
    (whole,), (visible,) = (bent.rotated_boxes(border=border) for border in ("whole", "visible"))
    assert np.abs(whole - visible).max() < 1e-9
    expected = cv2.minAreaRect(moved[0].astype(np.float32))
    assert np.prod(whole[0, 2:4]) == pytest.approx(np.prod(expected[1]), rel=1e-3)  # others are almost as small
    assert np.abs(np.sort(whole[0, 2:4]) - np.sort(expected[1])).max() < 0.1


# ------------------------------------------------------------------------------------------------ pixels


def photograph(size: tuple[int, int]) -> NDArray[np.uint8]:
    rng = np.random.default_rng(0)
    coarse = rng.integers(0, 256, (9, 12, 3), np.uint8)
    return np.asarray(cv2.resize(coarse, size[::-1], interpolation=cv2.INTER_CUBIC))


@pytest.mark.parametrize("name", OPS)
def test_pixels_are_those_of_opencv(name: str, device: str) -> None:
    """Where the map leaves the image is the fill; OpenCV's remap has 32 steps to a pixel."""
    photo, fill = photograph(SIZE), (9.0, 200.0, 50.0)
    op = type(OPS[name])(**{**vars(OPS[name]), "fill": fill})
    samples = da.batch([photo] * 6, device=device).then(da.Resize(SIZE), op)
    field, (y, x) = samples.plan.views.field, np.indices(SIZE) + 0.5
    assert field is not None
    filled = 0
    for at, image in enumerate(samples.images):
        from_x, from_y = field.undistorted(at, x, y)
        maps = (from_x - 0.5).astype(np.float32), (from_y - 0.5).astype(np.float32)
        expected = cv2.remap(photo, *maps, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
        outside = (from_x < 0) | (from_x >= SIZE[1]) | (from_y < 0) | (from_y >= SIZE[0])
        expected[outside] = fill
        off = np.abs(image.astype(float) - expected)
        assert np.percentile(off, 99.9) <= 3
        assert off.mean() < 0.3
        filled += int(outside.sum())
    assert filled > 100


def lens_field(size: tuple[int, int], lens: float) -> Field:
    return replace(Field.none(np.array([size], float)), lens=np.array([lens]))


def test_the_lens_is_that_of_albumentations() -> None:
    """`initUndistortRectifyMap` with their camera, whose image lies half a pixel farther left and up."""
    (height, width), k = SIZE, 0.3
    camera = np.array([[width, 0, width / 2], [0, height, height / 2], [0, 0, 1]], np.float32)
    lens = np.array([k, k, 0, 0, 0], np.float32)
    maps = cv2.initUndistortRectifyMap(camera, lens, None, None, (width, height), cv2.CV_32FC1)  # type: ignore[call-overload]
    y, x = np.indices(SIZE) + 0.5
    field = lens_field(SIZE, k)
    for found, theirs in zip(field.undistorted(0, x, y), maps, strict=True):
        assert np.abs(found + 0.5 - (theirs + 0.5)).max() < 1e-3


def test_lenses_are_drawn_from_their_range() -> None:
    drawn = da.OpticalDistortion((-0.1, 0.3), p=0.25).draw(np.random.default_rng(0), 9000)
    assert (drawn["lens"].min(), drawn["lens"].mean(), drawn["lens"].max()) == pytest.approx((-0.1, 0.1, 0.3), abs=0.01)
    assert drawn["apply"].mean() == pytest.approx(0.25, abs=0.02)
    assert da.OpticalDistortion() == da.OpticalDistortion((-0.05, 0.05), (123.0, 117.0, 104.0), 1.0)


@pytest.mark.parametrize(("alpha", "sigma"), [(50, 5), *slow((300, 12))])
def test_shifts_are_as_large_and_as_smooth_as_torchvisions(alpha: float, sigma: float) -> None:
    """The standard deviation and the mean size, of shifts and of their differences over sigma and two sigma pixels."""
    transforms = torchvision_part("torchvision.transforms.v2")
    torch.manual_seed(0)
    side, count = 256, 10
    elastic = transforms.ElasticTransform(float(alpha), float(sigma))
    drawn = [elastic.make_params([torch.zeros(1, 3, side, side)])["displacement"][0] for _ in range(count)]
    theirs = (torch.stack(drawn).numpy() * side / 2)[:, 40:-40, 40:-40]  # from -1..1; blurs mirror the border
    samples = da.batch([np.zeros((side, side, 3), np.uint8)] * count).then(da.Resize((side, side)))
    field, (y, x) = samples.then(da.ElasticTransform(alpha, sigma)).plan.views.field, np.indices((side, side)) + 0.5
    assert field is not None
    ours = np.stack([np.stack(field.undistorted(at, x, y), 2) for at in range(count)]) - np.stack([x, y], 2)
    ours = ours[:, 40:-40, 40:-40]
    assert theirs.std() == pytest.approx(alpha / (4 * np.sqrt(3 * np.pi) * sigma), rel=0.1)
    for step in (0, int(sigma), int(2 * sigma)):
        found, expected = (each[:, :, step:] - (each[:, :, :-step] if step else 0) for each in (ours, theirs))
        assert found.std() == pytest.approx(expected.std(), rel=0.08)
        assert np.abs(found).mean() == pytest.approx(np.abs(expected).mean(), rel=0.08)
    assert np.abs(np.corrcoef(ours[..., 0].ravel(), ours[..., 1].ravel())[0, 1]) < 0.1


@pytest.mark.parametrize("sigma", [1, 5, 23.5])
def test_the_largest_alpha_does_not_fold(sigma: float) -> None:
    message = f"alpha must be at most .* with sigma={sigma:g}, beyond which the image could fold, got 100000"
    with pytest.raises(da.InputError, match=message) as raised:
        da.ElasticTransform(100000, sigma)
    most = float(str(raised.value).split("at most ")[1].split()[0])
    with pytest.raises(da.InputError, match="alpha"):
        da.ElasticTransform(most * 1.001 + 0.02, sigma)
    samples = da.batch([np.zeros((200, 150, 3), np.uint8)] * 20).then(da.Resize((200, 150)))
    field = samples.then(da.ElasticTransform(most, sigma)).plan.views.field
    assert field is not None
    step, (y, x) = 1e-4, np.mgrid[1:199:1.1, 1:149:1.1]
    lowest = []
    for at in range(20):
        here, right, below = (field.undistorted(at, *place) for place in ((x, y), (x + step, y), (x, y + step)))
        (a, b), (c, d) = (np.subtract(other, here) / step for other in (right, below))
        lowest.append((a * d - b * c).min())
    assert 0 < min(lowest) < 0.5
    points = np.random.default_rng(0).uniform(0, (150, 200), (20, 500, 2))
    image = np.arange(20)
    before = np.stack(field.undistorted(image[:, None], *points.transpose(2, 0, 1)), 2)
    assert np.abs(field.place(image, before) - points).max() < 1e-3


@pytest.mark.parametrize("sigma", [1, 5, 23.5])
def test_outlines_are_placed_in_the_strongest_field(sigma: float) -> None:
    """Points 0.2 to 7 pixels apart, of which some lie beside the image, where the shifts no longer change."""
    samples = da.batch([np.zeros((200, 150, 3), np.uint8)] * 60).then(da.Resize((200, 150)))
    field = samples.then(da.ElasticTransform(largest_alpha(sigma), sigma)).plan.views.field
    assert field is not None
    rng, turn = np.random.default_rng(0), np.linspace(0, 2 * np.pi, 90)
    middle, radius = rng.uniform(0, (150, 200), (60, 1, 2)), rng.uniform(3, 100, (60, 1, 1))
    points = middle + radius * np.stack([np.cos(turn), np.sin(turn)], 1)
    placed = field.place(np.arange(60), points)
    before = np.stack(field.undistorted(np.arange(60)[:, None], *placed.transpose(2, 0, 1)), 2)
    off = np.abs(before - points).max((1, 2))
    assert off.max() < 1e-5, off.max()


def test_shifts_do_not_depend_on_the_batch(painted: Folder) -> None:
    """On the largest image of the block, or on the images beside it."""
    reader, ops = da.CocoReader(*painted), [da.Resize(60, max_size=90), da.ElasticTransform(30, 4)]
    loaders = [da.Loader(reader, ops, batch_size, train=False) for batch_size in (3, 7)]
    (one, other) = ([image for batch in each for image in _without_padding(batch)] for each in loaders)
    assert len(one) == len(other) == len(reader)
    first = da.Loader(reader, ops, 3, seed=5), da.Loader(reader, ops, 3, seed=5, threads=1)
    assert same(*(next(iter(each)) for each in first))
    sizes = [(60, 80), (60, 40)]
    both = da.batch([np.zeros((*size, 3), np.uint8) for size in sizes], seed=1).then(da.ElasticTransform(30, 4))
    alone = da.batch([np.zeros((*sizes[0], 3), np.uint8)] * 2, seed=1).then(da.ElasticTransform(30, 4))
    point = np.array([20.5]), np.array([30.5])
    (ours, theirs) = (each.plan.views.field for each in (both, alone))
    assert ours is not None
    assert theirs is not None
    assert np.array_equal(ours.undistorted(0, *point), theirs.undistorted(0, *point))


def _without_padding(batch: da.Batch) -> list[torch.Tensor]:
    return [image[:, :height, :width] for image, (height, width) in zip(batch.images, batch.image_size, strict=True)]


@pytest.mark.parametrize("lens", [-0.3, -0.05, 0.3, 1.0])
def test_places_go_there_and_back(lens: float) -> None:
    rng, field = np.random.default_rng(0), lens_field((100, 200), lens)
    points = rng.uniform(0, (200, 100), (1, 500, 2))
    before = np.stack(field.undistorted(0, *points.transpose(2, 0, 1)), 2)
    assert np.abs(field.place(np.zeros(1, int), before) - points).max() < 1e-9
    far = field.place(np.zeros(1, int), np.array([[[1e6, 1e6], [-1e3, 50], [100, 1e7]]]))
    assert not field.shows(np.zeros(1, int), far).any()


WITHOUT: dict[str, da.Op] = {
    "p": da.OpticalDistortion((0.2, 0.2), BLACK, p=0), "lens": da.OpticalDistortion((0, 0), BLACK),
    "alpha": da.ElasticTransform(0, fill=BLACK), "elastic": da.ElasticTransform(fill=BLACK, p=0),
}  # fmt: skip


@pytest.mark.parametrize("name", WITHOUT)
def test_nothing_changes_without_strength(name: str, device: str) -> None:
    painted = paint_stars(SIZE, 3, 0)
    samples = da.batch(painted.images, painted.boxes, shapes=painted.shapes, device=device).then(AFFINE, RESIZE)
    same_as = samples.then(WITHOUT[name])
    for ours, expected in (
        (same_as.images, samples.images), (same_as.boxes, samples.boxes), (same_as.masks, samples.masks)
    ):  # fmt: skip
        assert all(np.array_equal(*each) for each in zip(ours, expected, strict=True))


# --------------------------------------------------------------------------------------------- entrances


@pytest.mark.parametrize("name", OPS)
def test_compose_bends_masks_and_points(name: str) -> None:
    tv = torchvision_part("torchvision.tv_tensors")
    painted = paint_stars(SIZE, 1, 4)
    image, ops = painted.images[0], [da.Resize(OUTPUT), OPS[name]]
    whole = da.batch([image], [painted.boxes[0]], shapes=painted.shapes)
    points = np.array([[[100.0, 100], [3, 3]]] * 3)
    target = {
        "boxes": torch.from_numpy(painted.boxes[0]).float(), "labels": torch.ones(3, dtype=torch.int64),
        "masks": tv.Mask(np.stack(whole.masks[0])), "keypoints": torch.from_numpy(points),
    }  # fmt: skip
    bent, moved = da.Compose(ops, seed=3, flip_pairs=[])(image, target)
    expected = da.batch([image], [painted.boxes[0]], shapes=painted.shapes, seed=3).then(*ops)
    assert np.array_equal(bent, expected.images[0])
    assert isinstance(moved["masks"], tv.Mask)
    assert (moved["masks"].numpy() != np.stack(expected.masks[0])).mean() < 0.01  # those given are whole pixels
    assert np.abs(moved["boxes"].numpy() - expected.boxes[0]).max() < 1e-3
    field, scale = expected.plan.views.field, np.array([400 / 256, 300 / 192])
    assert field is not None
    placed = field.place(np.zeros(1, int), points[:1] * scale)
    assert np.abs(moved["keypoints"][0].numpy() - placed[0]).max() < 1e-6


@pytest.mark.parametrize("name", OPS)
def test_a_dali_pipeline_bends_as_samples_do(name: str, device: str) -> None:
    painted = paint(SIZE, 4, 24, 0)
    boxes = [each.astype(np.float32) for each in painted.boxes]
    points = [np.concatenate([each.reshape(3, 2, 2), np.full((3, 2, 1), 2)], 2).astype(np.float32) for each in boxes]

    def nodes() -> Any:
        images = given(painted.images)
        return da.fn.augment(
            images.gpu() if device == "cuda" else images, given(boxes), None, [RESIZE, OPS[name]], units="pixels",
            keypoints=given(points), flip_pairs=[],
        )  # fmt: skip

    off = []
    for image, moved, labels, keypoints in zip(*outputs(make(nodes, 4, device)), strict=True):
        assert len(labels) == 3
        off += [off_painted(image, box, channel) for channel, box in enumerate(moved)]
        assert (keypoints[keypoints[..., 2] > 0][:, :2] >= 0).all()
        seen = keypoints[..., 2].all(1)
        inner = (keypoints[seen][:, 0, :2] >= moved[seen, :2] - 0.01).all()
        assert inner
    assert max(off) < 0.5
    with pytest.raises(da.InputError, match="return_matrix must be False with OpticalDistortion"):
        make(lambda: da.fn.augment(given(painted.images), None, None, [RESIZE, OPS["lens"]], return_matrix=True), 4)


@pytest.mark.parametrize("name", OPS)
def test_batches_of_several_sizes_and_caches_are_bent(name: str, painted: Folder, device: str) -> None:
    """Each image in its own size, whatever padding lies beside it; cached and other loaders give the same."""
    reader, ops = da.CocoReader(*painted), [da.Resize(60, max_size=90), OPS[name]]
    made = [
        da.Loader(reader, ops, 4, device=device, seed=1, cache=cache, threads=threads)
        for cache, threads in ((None, 1), ("host", 2))
    ]
    first, second = (next(iter(loader)) for loader in made)
    assert same(first, second)
    sizes = first.image_size.tolist()
    assert len({*map(tuple, sizes)}) > 1
    for image, (height, width) in zip(first.images.cpu(), sizes, strict=True):
        assert not image[:, height:].any()
        assert not image[:, :, width:].any()
    assert first.distortion is not None
    assert first.distortion.size.tolist() == sizes


@pytest.mark.parametrize("name", OPS)
def test_many_bands_are_bent_alike(name: str, tmp_path: Path) -> None:
    size, fill = (37, 53), tuple(float(at) for at in range(6))
    files = {"0.tif": encode(values(6, "uint16", size), "tif")}
    folder, json = data_set(tmp_path, files, size)
    op = type(OPS[name])(**{**vars(OPS[name]), "fill": fill})
    reader = da.CocoReader(folder, json, channels=6, dtype="uint16")
    batch = next(iter(da.Loader(reader, [da.Resize(size), op], 1, train=False)))
    source, (y, x) = values(6, "uint16", size).astype(np.float32), np.indices(size) + 0.5
    assert batch.distortion is not None
    from_x, from_y = batch.distortion.undistorted(0, x, y)
    maps = (from_x - 0.5).astype(np.float32), (from_y - 0.5).astype(np.float32)
    outside = (from_x < 0) | (from_x >= size[1]) | (from_y < 0) | (from_y >= size[0])
    for band in range(6):
        expected = cv2.remap(source[..., band], *maps, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
        expected[outside] = fill[band]
        found = batch.images[0, band].numpy()
        assert np.abs(found - expected).mean() < 0.02 * source[..., band].std()


# ----------------------------------------------------------------------------------------------- recipes


def test_a_recipe_bends_once_and_at_last() -> None:
    lens = da.OpticalDistortion()
    for ops, message in (
        ([RESIZE, lens, da.RandomInvert(), lens], r"OpticalDistortion \(4th\) is one too many after OpticalDistortion"),
        ([RESIZE, lens, da.Mosaic()], r"Mosaic \(3rd\) must come before OpticalDistortion \(2nd\), which bends"),
        ([RESIZE, lens, da.RandomErasing()], r"RandomErasing \(3rd\) must come before OpticalDistortion"),
        ([RESIZE, lens, da.RandomApply([da.GridMask()])], r"RandomApply \(3rd\) must come before OpticalDistortion"),
        ([RESIZE, lens, da.RandomHorizontalFlip()], r"RandomHorizontalFlip \(3rd\) must come before OpticalDistortion"),
        ([lens, RESIZE], r"OpticalDistortion \(1st\) must come after Resize"),
    ):  # fmt: skip
        with pytest.raises(da.InputError, match=message):
            da.batch([np.zeros((8, 8, 3), np.uint8)] * 2).then(*ops)
    for make_container in (da.RandomApply, da.RandomOrder):
        for ops in ([lens, lens], [da.RandomErasing(), lens]):
            with pytest.raises(da.InputError, match="bend the finished image at most once"):
                make_container(ops)
    with pytest.raises(da.InputError, match="all fills of a recipe must be the same"):
        da.batch([np.zeros((8, 8, 3), np.uint8)]).then(AFFINE, RESIZE, lens)


def test_remedies_work() -> None:
    """Of the errors above: one of two by RandomChoice, and what covers before what bends."""
    painted, lens = paint(SIZE, 12, 24, 0), OPS["lens"]
    either = da.RandomChoice([lens, da.OpticalDistortion((-0.2, -0.1), BLACK), da.RandomInvert(p=0)])
    samples = da.batch(painted.images, painted.boxes, [[1, 2, 3]] * 12).then(RESIZE, either)
    rows = zip(samples.images, samples.boxes, samples.labels, strict=True)
    off = [off_painted(image, *each) for image, boxes, labels in rows for each in zip(boxes, labels - 1, strict=True)]
    assert max(off) < 0.5
    field = samples.plan.views.field
    assert field is not None
    assert {*np.sign(field.lens).tolist()} == {-1.0, 0.0, 1.0}
    assert len(samples.then(da.RandomInvert()).images) == 12
    assert len(da.batch(painted.images).then(RESIZE, da.RandomErasing(value=BLACK), lens).images) == 12


def test_erased_parts_are_bent_with_the_picture() -> None:
    painted = paint_stars(SIZE, 4, 2)
    samples = da.batch(painted.images, painted.boxes, [[1, 2, 3]] * 4, shapes=painted.shapes)
    after = samples.then(RESIZE, da.RandomErasing(p=1, value=BLACK, max_hidden=1), OPS["lens"])
    result = Result(after.images, after.boxes, after.labels, after.matrix, masks=after.masks)
    assert not compare_masks([result], 1).misplaced


@pytest.mark.parametrize(
    ("make_op", "message"),
    [
        (lambda: da.OpticalDistortion((-0.4, 0)), r"distort must be \(smallest, largest\) within -0\.3\.\.1"),
        (lambda: da.OpticalDistortion((0.2, 0.1)), "distort must be"),
        (lambda: da.OpticalDistortion(fill=3), "fill must be"),  # type: ignore[arg-type]
        (lambda: da.OpticalDistortion(p=2), "p must be"),
        (lambda: da.ElasticTransform(sigma=0.5), "sigma must be a number of output pixels, at least 1"),
        (lambda: da.ElasticTransform(-1), "alpha must be a number of at least 0"),
        (lambda: da.ElasticTransform((50, 50)), "alpha must be"),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_argument_is_refused_by_name(make_op: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_op()
