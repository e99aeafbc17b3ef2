"""Boxes of `tight=True` are those of what is seen of the outline: compared with painted outlines and with Shapely's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageDraw
from seeds import seeds, slow

import detaug as da
from detaug.boxes.visible_part import ring_of_runs
from detaug.coco.outlines import OutlineColumns, decode_counts, encode_counts, read_outlines

BLACK = (0.0, 0.0, 0.0)
SIZE = (200, 260)
RESIZE = da.Resize((300, 340))
RECIPES: dict[str, list[da.Op]] = {
    "rotation": [da.RandomRotation(40, fill=BLACK), RESIZE],
    "expanded": [da.RandomRotation(40, expand=True, fill=BLACK), RESIZE],
    "affine": [da.RandomAffine(degrees=30, scale=(0.8, 1.3), shear=10, fill=BLACK), RESIZE],
    "erasing": [RESIZE, da.RandomErasing(p=1, scale=(0.05, 0.3), value=BLACK, max_hidden=1)],
    "perspective": [da.RandomPerspective(distortion_scale=0.4, p=1, fill=BLACK), RESIZE],
    "crop": [da.RandomIoUCrop(), RESIZE],
    "resized crop": [da.RandomHorizontalFlip(), da.RandomResizedCrop((300, 300))],
    "affine, crop": [da.RandomAffine(degrees=30, fill=BLACK), da.RandomIoUCrop(), RESIZE],
    "crop, turn, zoom out, turn": [
        da.RandomCrop((150, 180), fill=BLACK),
        da.RandomRotation(30, fill=BLACK),
        da.RandomZoomOut(max_ratio=1.5, fill=BLACK),
        da.RandomRotation(30, fill=BLACK),
        RESIZE,
    ],
    "mosaic": [da.RandomAffine(degrees=30, fill=BLACK), RESIZE, da.Mosaic(p=1)],
    "affine, cutmix": [da.RandomAffine(degrees=30, fill=BLACK), RESIZE, da.CutMix(p=1)],
    "affine, erasing, lens": [
        da.RandomAffine(degrees=30, fill=BLACK),
        RESIZE,
        da.RandomErasing(p=1, scale=(0.05, 0.3), value=BLACK, max_hidden=1),
        da.OpticalDistortion((-0.2, 0.3), fill=BLACK),
    ],
    "lens": [RESIZE, da.OpticalDistortion((-0.2, 0.3), fill=BLACK)],
    "crop, lens": [da.RandomIoUCrop(), RESIZE, da.OpticalDistortion((-0.2, 0.3), fill=BLACK)],
    "elastic": [RESIZE, da.ElasticTransform(800, 18, BLACK)],
    "mosaic, lens": [
        da.RandomAffine(degrees=30, fill=BLACK),
        RESIZE,
        da.Mosaic(p=1),
        da.OpticalDistortion((-0.2, 0.3), fill=BLACK),
    ],
}


def blob(rng: np.random.Generator) -> NDArray[np.float64]:
    """Return (V, 2): a rounded outline with bays."""
    angles = np.arange(48) * 2 * np.pi / 48
    radii = rng.uniform(40, 60) * (1 + 0.35 * np.cos(rng.integers(2, 5) * angles + rng.uniform(0, 6)))
    center = rng.uniform((85, 85), (175, 115))
    points = center + radii[:, None] * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    return points.clip(1, np.array(SIZE[::-1]) - 1)


def code_of(number: int) -> NDArray[np.bool_]:
    """Return which channels are bright in the object of an image."""
    return np.array([(number % 7 + 1) >> channel & 1 for channel in range(3)], bool)


def paint(rings: list[NDArray[np.float64]], number: int = 6) -> NDArray[np.uint8]:
    image = Image.new("L", (SIZE[1] * 4, SIZE[0] * 4))
    for ring in rings:
        ImageDraw.Draw(image).polygon([tuple(each) for each in (ring * 4 - 0.5).tolist()], fill=255)
    return np.asarray(image.reduce(4))[..., None] * code_of(number).astype(np.uint8)


def outlines_of(rings: list[list[NDArray[np.float64]]]) -> OutlineColumns:
    n = len(rings)
    segmentations = [[ring.ravel().tolist() for ring in each] for each in rings]
    read, faults = read_outlines(segmentations, [None] * n, np.full(n, SIZE[0]), np.full(n, SIZE[1]))
    assert not faults.segmentation
    return read


def samples_of(rings: list[list[NDArray[np.float64]]], *, tight: bool = True, **arguments: Any) -> da.Samples:
    points = [np.concatenate(each) for each in rings]
    boxes = [[[*each.min(0), *each.max(0)]] for each in points]
    shapes = da.Shapes(outlines=outlines_of(rings), tight=tight)
    images = [paint(each, number) for number, each in enumerate(rings)]
    return da.batch(images, boxes, [[number + 1] for number in range(len(rings))], shapes=shapes, **arguments)


def seen_box(image: NDArray[Any], number: int = 6) -> NDArray[np.float64] | None:
    """Return the XYXY box of what is painted of an object, to a part of a pixel."""
    shares = image.astype(float) / 255
    bright = np.where(code_of(number), shares, 1 - shares).min(2)
    if (bright > 0.5).sum() < 20:
        return None
    sides = []
    for along in (bright.max(0), bright.max(1)):
        inside = np.flatnonzero(along > 0.5)
        low, high = inside[0], inside[-1] + 1
        sides.append((low - (along[low - 1] if low else 0), high + (along[high] if high < len(along) else 0)))
    return np.array([sides[0][0], sides[1][0], sides[0][1], sides[1][1]])


def gaps(samples: da.Samples) -> list[float]:
    """Return how far the sides of boxes are from what is painted of their objects, in pixels."""
    found = []
    for image, boxes, labels in zip(samples.images, samples.boxes, samples.labels, strict=True):
        codes = (labels - 1) % 7
        for box, label in zip(boxes, labels.tolist(), strict=True):
            seen = seen_box(image, label - 1)
            if (codes == (label - 1) % 7).sum() == 1 and seen is not None:
                found += np.abs(box - seen).tolist()
    return found


@pytest.mark.parametrize("recipe", [*[*RECIPES][:4], *slow(*[*RECIPES][4:])])
def test_tight_boxes_are_those_of_what_is_painted(recipe: str, device: str) -> None:
    rng = np.random.default_rng(0)
    rings = [[blob(rng)] for _ in range(40)]
    tight = gaps(samples_of(rings, device=device, seed=5).then(*RECIPES[recipe]))
    loose = gaps(samples_of(rings, device=device, seed=5, tight=False).then(*RECIPES[recipe]))
    assert len(tight) >= 60
    assert np.median(tight) <= 1
    assert np.percentile(tight, 95) <= 2.5
    assert np.mean(tight) < np.mean(loose)


@pytest.mark.parametrize("seed", seeds(3, 80))
def test_tight_boxes_are_shapelys(seed: int) -> None:
    """Against Shapely: outlines, also of two rings, moved and cut to the view."""
    shapely = pytest.importorskip("shapely")
    rng = np.random.default_rng(seed)
    rings = [[blob(rng)] if at % 3 else [blob(rng) * 0.5, blob(rng) * 0.5 + 60] for at in range(12)]
    others = ("mosaic", "lens", "elastic", "erasing", "cutmix")
    by_matrix = [ops for name, ops in RECIPES.items() if not any(other in name for other in others)]
    ops = by_matrix[seed % len(by_matrix)]
    samples = samples_of(rings, seed=seed).then(*ops)
    plain = samples_of(rings, seed=seed, tight=False).then(*ops)
    layers = samples.plan.views.drawing_or_whole().layers
    for at, (boxes, before) in enumerate(zip(samples.boxes, plain.boxes, strict=True)):
        if not len(before):
            continue
        matrix = samples.matrix[at] if samples.matrix.shape[1] == 3 else np.vstack([samples.matrix[at], [0, 0, 1]])
        (x0, y0), (x1, y1) = layers.source_bounds[at, 0]
        outline = shapely.union_all([shapely.Polygon(each).buffer(0) for each in rings[at]])
        seen = shapely.intersection(outline, shapely.box(x0, y0, x1, y1))
        seen = shapely.transform(seen, lambda points, m=matrix: moved(points, m))
        seen = shapely.intersection(seen, shapely.box(*layers.rectangle[at, 0]))
        if layers.clip_region is not None:
            seen = shapely.intersection(seen, shapely.Polygon(layers.clip_region[at, 0]).buffer(0))
        expected = np.array(seen.bounds)
        if np.isnan(expected).any() or min(expected[2:] - expected[:2]) < 0.05:
            continue
        assert len(boxes) == 1
        assert np.abs(boxes[0] - expected).max() < 0.02, (boxes[0], expected)


def test_a_view_inside_of_two_rings_is_full() -> None:
    """Rings are a union, not even-odd: their edges are out of view, and its corners lie in both."""
    height, width = SIZE
    rings = [
        np.array([[x, y], [width - x, y], [width - x, height - y], [x, height - y]], float) for x, y in ((9, 9), (4, 4))
    ]
    samples = samples_of([rings]).then(da.CenterCrop((100, 120)), da.Resize((100, 120)))
    np.testing.assert_allclose(samples.boxes[0], [[0, 0, 120, 100]], atol=1e-9)


def moved(points: NDArray[np.float64], matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    after = np.concatenate([points, np.ones((len(points), 1))], axis=1) @ matrix.T
    return np.asarray(after[:, :2] / after[:, 2:])


def test_runs_of_masks_are_outlines_too() -> None:
    rng = np.random.default_rng(3)
    for _ in range(100):
        mask = np.zeros((60, 70), bool)
        for _ in range(rng.integers(1, 4)):
            x, y = rng.integers(0, 60, 2)
            mask[y : y + rng.integers(1, 30), x : x + rng.integers(1, 30)] = True
        if not mask.any():
            continue
        flat = mask.T.ravel()
        ends = np.append(np.flatnonzero(np.diff(flat)) + 1, flat.size).astype(np.int32)
        ring = ring_of_runs(ends if not flat[0] else np.append([0], ends).astype(np.int32), 60)
        rows, columns = np.nonzero(mask)
        assert ring.min(0).tolist() == [columns.min(), rows.min()]
        assert ring.max(0).tolist() == [columns.max() + 1, rows.max() + 1]
        assert (
            decode_counts(encode_counts(np.diff(np.append(0, ends)))).tolist() == np.diff(np.append(0, ends)).tolist()
        )


def test_gaps_in_the_columns_of_a_mask_are_no_part_of_it(device: str) -> None:
    """A C of RLE, of which only the upright stroke is in view, and of its mirror image the other way round."""
    mask = np.zeros((100, 100), bool)
    mask[10:90, 10:20] = mask[10:20, 10:90] = mask[80:90, 10:90] = True
    for shown, expected in ((mask, [10, 0, 20, 40]), (mask[:, ::-1], [80, 0, 90, 40])):
        ends = np.append(np.flatnonzero(np.diff(shown.T.ravel())) + 1, shown.size)
        runs = {"size": [100, 100], "counts": np.diff(np.append(0, ends)).tolist()}
        box = [10, 10, 90, 90]
        shapes = da.Shapes.of_segmentations([runs], tight=True, masks=False)
        samples = da.batch([np.zeros((100, 100, 3), np.uint8)], [[box]], shapes=shapes, device=device)
        assert samples.then(da.CenterCrop((40, 100))).boxes[0].tolist() == [expected]


def test_a_mask_of_which_nothing_is_in_view_has_no_box(device: str) -> None:
    """Two parts of RLE at the left and the right, between which the crop is."""
    mask = np.zeros((100, 100), bool)
    mask[:, :20] = mask[:, 80:] = True
    ends = np.append(np.flatnonzero(np.diff(mask.T.ravel())) + 1, mask.size)
    runs = {"size": [100, 100], "counts": np.diff(np.append(0, np.append(0, ends))).tolist()}
    shapes = da.Shapes.of_segmentations([runs], tight=True, masks=False)
    samples = da.batch([np.zeros((100, 100, 3), np.uint8)], [[[0, 0, 100, 100]]], shapes=shapes, device=device)
    assert not len(samples.then(da.CenterCrop((100, 40))).boxes[0])
    assert samples.then(da.CenterCrop((100, 70))).boxes[0].tolist() == [[0, 0, 70, 100]]


def test_limits_of_boxes_count_for_tight_ones(device: str) -> None:
    """A sliver along a diagonal: its box is large until the end, and then that of a corner of it."""
    ring = [20, 20, 180, 180, 180, 186, 14, 20]
    shapes = da.Shapes.of_segmentations([[ring]] * 40, tight=True, masks=False)
    images = [np.zeros((200, 200, 3), np.uint8)] * 40
    samples = da.batch(images, [[[14, 20, 180, 186]]] * 40, shapes=shapes, device=device, seed=3)
    limits = da.SanitizeBoundingBoxes(min_size=15, min_area=300, max_aspect_ratio=2)
    recipe = [da.RandomCrop(90, fill=BLACK), da.Resize((90, 90))]
    every = np.concatenate(samples.then(*recipe).boxes)
    kept = np.concatenate(samples.then(*recipe, limits).boxes)
    sides = every[:, 2:] - every[:, :2]
    large = (sides.min(1) >= 15) & (sides.prod(1) >= 300) & (sides.max(1) <= 2 * sides.min(1))
    assert 0 < len(kept) == large.sum() < len(every)
    assert np.array_equal(kept, every[large])
    mixed = np.concatenate(samples.then(*recipe, limits, da.Mosaic(p=1)).boxes)
    assert ((mixed[:, 2:] - mixed[:, :2]).min(1) < 15).any()  # not judged again after it


def test_a_copy_in_two_rectangles_is_one_object(device: str) -> None:
    """CopyPaste pastes rectangles: an object of an image may be seen through several of them."""
    rng = np.random.default_rng(4)
    rings = [[blob(rng)] for _ in range(24)]
    tight = gaps(samples_of(rings, device=device, seed=7).then(RESIZE, da.CopyPaste(p=1, max_hidden=1)))
    assert np.percentile(tight, 98) <= 2.5


def test_the_loader_has_tight_boxes(tmp_path: Path, device: str) -> None:
    rng = np.random.default_rng(8)
    content: dict[str, Any] = {"images": [], "annotations": [], "categories": [{"id": 1, "name": "blob"}]}
    for number in range(1, 13):
        ring = blob(rng)
        image = paint([ring])
        Image.fromarray(image).save(tmp_path / f"{number}.png")
        content["images"].append({"id": number, "file_name": f"{number}.png", "width": SIZE[1], "height": SIZE[0]})
        low, high = ring.min(0), ring.max(0)
        annotation: dict[str, Any] = {"id": number, "image_id": number, "category_id": 1}
        annotation |= {"bbox": [*low.tolist(), *(high - low).tolist()], "segmentation": [ring.ravel().tolist()]}
        if number % 2:
            flat = (image[..., 0] > 127).T.ravel()
            ends = np.append(np.flatnonzero(np.diff(flat)) + 1, flat.size)
            counts = np.diff(np.append(0, ends))
            annotation["segmentation"] = {
                "size": [*SIZE],
                "counts": encode_counts(counts) if number % 4 == 1 else counts.tolist(),
            }
        content["annotations"].append(annotation)
    path = tmp_path / "blobs.json"
    path.write_text(json.dumps(content))
    recipe = [da.RandomRotation(40, expand=True, fill=BLACK), RESIZE]
    errors = {}
    for tight in (False, True):
        (batch,) = da.Loader(da.CocoReader(tmp_path, path, tight=tight), recipe, 12, device=device)
        images = batch.images.permute(0, 2, 3, 1).cpu().numpy()
        boxes = batch.boxes.cpu().numpy()
        errors[tight] = [
            np.abs(box[0] - seen).max()
            for image, box in zip(images, boxes, strict=True)
            if (seen := seen_box(image)) is not None
        ]
    assert np.median(errors[True]) < 1.5
    assert np.median(errors[False]) > 4


@pytest.mark.parametrize(
    ("segmentation", "message"),
    [
        ([[1, 2, 3]], "a ring of the segmentation must be a list of x, y"),
        ([[1, 2, 3, 4, 5, "6"]], "a ring of the segmentation must be a list of x, y"),
        (
            {"size": [10, 10], "counts": [100]},
            r"the size of the RLE is \[10, 10\], that of the image",
        ),
        ({"size": [*SIZE], "counts": [5, 5]}, "add up to 10, the image has 52000 pixels"),
        ({"size": [*SIZE], "counts": "~~~"}, "cannot be read"),
        ("ring", "must be rings or RLE"),
    ],
)
def test_wrong_outlines_are_refused(segmentation: Any, message: str, tmp_path: Path) -> None:
    image = {"id": 1, "file_name": "1.png", "width": SIZE[1], "height": SIZE[0]}
    Image.fromarray(paint([])).save(tmp_path / "1.png")
    annotation = {"id": 9, "image_id": 1, "category_id": 1, "bbox": [1, 1, 30, 30], "segmentation": segmentation}
    content = {"images": [image], "annotations": [annotation], "categories": [{"id": 1, "name": "a"}]}
    path = tmp_path / "a.json"
    path.write_text(json.dumps(content))
    with pytest.raises(da.InputError, match=rf"annotations\[0\] \(id 9\): .*{message}"):
        da.CocoReader(tmp_path, path, tight=True)
    da.CocoReader(tmp_path, path)
