"""The Triton kernels of masks give the bits of NumPy's. Without a GPU Triton interprets them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from interpreter import interpret_quickly
from test_tight_boxes import SIZE, blob

import detaug as da
from detaug.boxes import mask_loops
from detaug.boxes.masks import Grid, PlacedObjects, label_map, objects_of, pixel_grid, rasterise
from detaug.boxes.placement import Placement
from detaug.loading.batch_masks import box_grid

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
pytestmark = pytest.mark.gpu if DEVICE.type == "cuda" else pytest.mark.slow
triton = pytest.importorskip("triton")
tl = pytest.importorskip("triton.language")
mask_kernels = pytest.importorskip("detaug.gpu.mask_kernels")

IMAGES, OUTPUT, EVERY = (9, (120, 136), 1) if DEVICE.type == "cuda" else (4, (60, 68), 4)
"""Images, their size, and the corners of outlines that are kept: the interpreter takes 3 ms for an edge."""
RESIZE = da.Resize(OUTPUT)
TURN = da.RandomRotation(30)
RECIPES: dict[str, list[da.Op]] = {
    "flip": [da.RandomHorizontalFlip(), RESIZE],
    "affine": [da.RandomAffine(degrees=30, shear=10), RESIZE],
    "perspective": [da.RandomPerspective(distortion_scale=0.6, p=1), da.RandomIoUCrop(), RESIZE],
    "turns": [da.RandomCrop((150, 180)), TURN, da.RandomZoomOut(max_ratio=1.5), TURN, RESIZE],
    "shapes": [TURN, RESIZE, da.CopyPaste(p=1, masks=True, max_hidden=1)],
    "lens": [TURN, RESIZE, da.Mosaic(), da.OpticalDistortion((-0.2, 0.2), p=0.7)],
    "elastic": [TURN, RESIZE, da.Mosaic(), da.ElasticTransform(90, 6, p=0.7)],
    "averaged": [RESIZE, da.CutMix(), da.CopyPaste(p=1, masks=True), da.MixUp(), da.RandomErasing(p=1), da.MixUp()],
    "mixed": [RESIZE, da.Mosaic(p=1), da.CopyPaste(p=1), da.MixUp(p=0.5), da.RandomErasing(p=1)],
}


@pytest.fixture(autouse=True)
def large_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter takes as long for a large block as for a small one."""
    if DEVICE.type == "cpu":
        interpret_quickly(monkeypatch)
        monkeypatch.setattr("detaug.gpu.masks.ROWS", 256)
        monkeypatch.setattr("detaug.gpu.grids.MOVED_ROWS", 256)


def outline(number: int, rng: np.random.Generator) -> Any:
    """Return a ring, two rings that overlap, or RLE of a disc with holes."""
    ring, other = blob(rng)[::EVERY], blob(rng)[::EVERY]
    if number % 3 < 2:
        return [each.ravel().tolist() for each in (ring, other)[: number % 3 + 1]]
    y, x = np.mgrid[: SIZE[0], : SIZE[1]]
    mask = ((x - ring[:, 0].mean()) ** 2 + (y - 100) ** 2 < 60**2) & ((x // 7 + y // 5) % 3 > 0)
    flat = mask.ravel(order="F")
    ends = [*(np.flatnonzero(np.diff(flat)) + 1).tolist(), flat.size]
    return {"size": list(SIZE), "counts": np.diff(ends, prepend=0).tolist()}


def samples() -> da.Samples:
    rng = np.random.default_rng(0)
    segmentations = [outline(number, rng) for number in range(IMAGES)]
    boxes = [[[20, 20, SIZE[1] - 20, SIZE[0] - 20]]] * IMAGES
    shapes = da.Shapes.of_segmentations(segmentations)
    return da.batch([np.zeros((*SIZE, 3), np.uint8)] * IMAGES, boxes, shapes=shapes, seed=3)


def check(samples: da.Samples, objects: PlacedObjects, counts: list[int], grid: Grid | int) -> int:
    """Compare masks, areas and, on the grid of pixels of a stride, labels; return how many points are set."""
    from detaug.gpu.grids import grid_on_gpu, pixel_grid_on_gpu
    from detaug.gpu.masks import ObjectsOnGpu

    table = samples.shapes.mask_table
    on_gpu = ObjectsOnGpu(table, objects, DEVICE)
    if isinstance(grid, int):
        points = on_gpu.all, pixel_grid_on_gpu(*OUTPUT, grid, DEVICE)
        grid = pixel_grid(*OUTPUT, grid)
    else:
        points = on_gpu.all, grid_on_gpu(grid, DEVICE)
    expected = rasterise(table, objects, grid)
    assert np.array_equal(on_gpu.masks(*points).cpu().numpy(), expected)
    assert np.array_equal(on_gpu.areas(*points).cpu().numpy(), expected.sum((1, 2)))
    if len(grid.y) == 1:
        labels = np.concatenate([np.arange(count) for count in counts]).astype(np.int32)
        assert np.array_equal(on_gpu.labels(*points, labels, counts).cpu().numpy(), label_map(expected, labels, counts))
    return int(expected.sum())


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_kernels_give_the_bits_of_numpy(recipe: str) -> None:
    moved = samples().then(*RECIPES[recipe])
    counts = [len(each) for each in moved.boxes]
    objects = moved._moved.objects
    assert check(moved, objects, counts, 1) > 0.035 * IMAGES * OUTPUT[0] * OUTPUT[1]
    check(moved, objects, counts, 4)
    y, x = box_grid(torch.from_numpy(np.concatenate(moved.boxes)), 28)
    check(moved, objects, counts, Grid(y.numpy(), x.numpy()))


def test_outlines_behind_the_horizon_of_a_perspective() -> None:
    moved = samples().then(RESIZE)
    placement = moved._moved.placement
    to_source = placement.layers.to_source.copy()
    to_source[:, 0, 2] = 1.44 / OUTPUT[0], 1.088 / OUTPUT[1], 1  # the farther half of each source is never seen
    behind = Placement(replace(placement.layers, to_source=to_source), placement.image, placement.layer, placement.rows)
    objects = objects_of(behind)
    arrays, layers = moved.shapes.mask_table.arrays, objects.scene[0]
    places = zip(objects.rows, objects.layer, strict=True)
    assert sum(mask_loops._place(arrays, layers[layer], row)[2] for row, layer in places) >= 3
    assert check(moved, objects, [1] * IMAGES, 1) > 0.0035 * IMAGES * OUTPUT[0] * OUTPUT[1]


@triton.jit
def both_crossings(edges, points, words, shown, cell):  # type: ignore[no-untyped-def]
    edge, at = edges + 4 * tl.program_id(0), tl.arange(0, 32)
    x0, y0, x1, y1 = tl.load(edge), tl.load(edge + 1), tl.load(edge + 2), tl.load(edge + 3)
    points, rows = tl.load(points + at), tl.program_id(0) * 32 + at
    crossed = mask_kernels._crossed(x0, y0, x1, y1, points[:, None], points[None, :], cell)
    tl.store(words + rows, mask_kernels._crossed_bits(x0, y0, x1, y1, points, points, cell))
    tl.store(shown + rows[:, None] * 32 + at[None, :], crossed)


def test_crossings_that_single_precision_cannot_tell_from_the_centre_of_a_pixel() -> None:
    rng, count = np.random.default_rng(0), 400
    rise, slope, column = rng.integers(1 << 25, 1 << 27, count), rng.integers(-1, 2, count), rng.integers(-2, 35, count)
    run, from_x, from_y = rise * slope + rng.integers(-1, 2, count), column * 256 + 128 - slope, 127
    ends = np.stack([from_x, np.full(count, from_y), from_x + run, from_y + rise], 1).reshape(count, 2, 2)
    ends[::2] = ends[::2, ::-1]
    points = np.arange(32) * 256 + 128
    words, shown = (torch.empty((count, 32, *more), dtype=torch.int32, device=DEVICE) for more in ((), (32,)))
    on_device = (torch.from_numpy(each.astype(np.int32)).to(DEVICE) for each in (ends, points))
    both_crossings[count,](*on_device, words, shown, 256)
    left = (points - from_x[:, None, None]) * rise[:, None, None] >= ((points - from_y)[:, None] * run[:, None, None])
    assert 0.2 < left.mean() < 0.8
    assert np.array_equal(shown.cpu().numpy(), left)
    assert np.array_equal(words.cpu().numpy()[..., None] >> np.arange(32) & 1, left)


def test_no_objects() -> None:
    moved = samples().then(RESIZE)
    nothing = moved._moved.objects.part(slice(0, 0))
    check(moved, nothing, [0] * IMAGES, 1)
