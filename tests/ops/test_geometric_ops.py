"""Geometric ops, alone and in chains, on painted rectangles that are read off the pixels."""

from __future__ import annotations

import numpy as np
import pytest
from painted import BLACK, RESAMPLED, SIZE, assert_boxes_on_pixels, centroid, paint, painted_batch
from seeds import seeds, slow

import detaug as da
from detaug.testing import assert_boxes_follow_pixels

EXACT = 0.01  # output pixels

WHOLE_PIXELS = [
    da.RandomHorizontalFlip(),
    da.RandomVerticalFlip(),
    da.RandomRotate90(),
    da.RandomZoomOut(max_ratio=2.0, p=0.7, fill=BLACK),
    da.Pad((7, 0, 20, 3), fill=BLACK),
    da.PadToMultiple(50, fill=BLACK),
    da.CenterCrop((180, 300), fill=BLACK),
    da.RandomCrop((170, 170), p=0.7, fill=BLACK),
]
CROPS = [
    da.RandomIoUCrop(),
    da.RandomIoUCrop(min_visibility=0.3, thresholds=(0.3, 0.7), allow_no_crop=False),
    da.RandomBoxSafeCrop(p=0.7),
    da.ScaleJitter((200, 200), scale=(0.5, 2.0), fill=BLACK),
    da.RandomSizeCrop(60, 120, shortest_size=(70, 100, 150), p=0.7),
    da.RandomSizeCrop(60, 120, shortest_size=None, square=True),
]
TURNS = [
    da.RandomRotation(30, fill=BLACK),
    da.RandomRotation((20, 120), p=0.6, expand=True, fill=BLACK),
    da.RandomAffine(20, (0.1, 0.1), (0.7, 1.3), (-10, 10, -10, 10), fill=BLACK),
    da.RandomPerspective(0.4, p=0.7, fill=BLACK),
]
GEOMETRIC = [*WHOLE_PIXELS, *CROPS, *TURNS]

SIZES = [
    da.Resize((150, 220)),
    da.Resize((300, 300)),
    da.Resize(160, max_size=300),
    da.Resize([(200, 200), (256, 160)]),
    da.Resize((250, 180), letterbox="center", fill=BLACK),
    da.Resize((190, 260), letterbox="top-left", fill=BLACK),
    da.RandomShortestSize((130, 180), max_size=320),
]

NOT_LOSING = [
    da.RandomHorizontalFlip(p=0.5),
    da.RandomVerticalFlip(p=0.5),
    da.RandomZoomOut(max_ratio=2.0, p=0.7, fill=BLACK),
    da.RandomIoUCrop(),
    da.RandomIoUCrop(min_visibility=0.3, thresholds=(0.3, 0.7), allow_no_crop=False),
    da.RandomBoxSafeCrop(p=0.7),
    da.Pad((3, 9), fill=BLACK),
    da.PadToMultiple(50, fill=BLACK),
]


@pytest.mark.parametrize("op", WHOLE_PIXELS, ids=repr)
def test_whole_pixels_stay_exact(op: da.Op, device: str) -> None:
    assert assert_boxes_follow_pixels(op, tolerance=EXACT, images=16, device=device) >= 40


@pytest.mark.parametrize("op", [*WHOLE_PIXELS, *CROPS, *TURNS], ids=repr)
@pytest.mark.parametrize("pipeline", [False, *slow(True)], ids=["eager", "pipeline"])
def test_each_op_and_a_resize(op: da.Op, pipeline: bool, device: str) -> None:
    ops = [op, da.Resize((220, 240))]
    assert assert_boxes_follow_pixels(ops, images=16, pipeline=pipeline, device=device) >= 24


@pytest.mark.parametrize("resize", SIZES, ids=repr)
@pytest.mark.parametrize("first", [da.RandomHorizontalFlip(), da.RandomRotation(20, fill=BLACK)], ids=repr)
def test_each_resize(resize: da.Op, first: da.Op, device: str) -> None:
    assert assert_boxes_follow_pixels([first, resize], images=16, device=device) == 48


@pytest.mark.parametrize("rotate_method", ["box", "ellipse"])
def test_a_shrunk_turn_is_antialiased(rotate_method: str, device: str) -> None:
    """A checkerboard of single pixels, shrunk four times, is gray: without a filter it would be black and white."""
    board = np.indices((400, 400)).sum(0) % 2 * 255
    samples = da.batch([np.repeat(board[..., None], 3, 2).astype(np.uint8)], device=device)
    turned = samples.then(da.RandomRotation((44, 46), rotate_method=rotate_method), da.Resize((100, 100))).images[0]
    assert np.abs(turned[40:60, 40:60].astype(float) - 127.5).max() < 12


@pytest.mark.parametrize("seed", seeds(6, 200))
def test_a_chain(seed: int, device: str) -> None:
    """2 to 6 ops and a resize, batches of 1, 4 and 32, in both modes."""
    rng = np.random.default_rng(seed)
    ops = [GEOMETRIC[at] for at in rng.integers(len(GEOMETRIC), size=rng.integers(2, 7))]
    ops.append(SIZES[rng.integers(len(SIZES))])
    images = 32 if seed % 25 == 7 else 1 if seed % 5 == 0 else 4
    assert_boxes_follow_pixels(
        ops, seed=seed, images=images, size=(120, 160), smallest=20, pipeline=seed % 4 == 1, device=device, min_boxes=0
    )


@pytest.mark.parametrize("seed", seeds(6, 100))
def test_chains_that_lose_no_image_all_boxes(seed: int, device: str) -> None:
    rng = np.random.default_rng(seed)
    samples = painted_batch(seed, smallest=24, device=device)
    for at in rng.integers(0, len(NOT_LOSING), rng.integers(2, 6)):
        samples = samples.then(NOT_LOSING[at])
    size = (int(rng.integers(150, 320)), int(rng.integers(150, 320)))
    read = assert_boxes_on_pixels(da.Resize(size)(samples), RESAMPLED)
    assert read >= len(samples)  # a chain never loses all boxes of an image


@pytest.mark.parametrize("op", NOT_LOSING, ids=repr)
def test_one_pixel_boxes_stay_on_their_pixel(op: da.Op, device: str) -> None:
    rng = np.random.default_rng(3)
    start = rng.integers(0, (128, 96), (16, 1, 2))
    boxes = np.concatenate([start, start + 1], axis=2)
    samples = da.batch([paint(SIZE, each) for each in boxes], boxes, [[1]] * 16, device=device)
    samples = da.Resize((192, 256))(op(samples))
    for image, box, (label,) in zip(samples.images, samples.boxes, samples.labels, strict=True):
        seen = centroid(image[:, :, label - 1].astype(float))
        assert np.abs(seen - (box[0, :2] + box[0, 2:]) / 2).max() <= RESAMPLED


@pytest.mark.parametrize("op", TURNS, ids=repr)
def test_one_pixel_boxes_turn_with_their_pixel(op: da.Op, device: str) -> None:
    rng = np.random.default_rng(3)
    start = rng.integers(0, (128, 96), (16, 1, 2))
    boxes = np.concatenate([start, start + 1], axis=2)
    images = np.zeros((16, 96, 128, 3), np.uint8)
    for image, ((x, y, _, _),) in zip(images, boxes, strict=True):
        image[y, x] = 255
    samples = da.Resize((192, 256))(op(da.batch(list(images), boxes, [[1]] * 16, device=device)))
    for image, box in zip(samples.images, samples.boxes, strict=True):
        if len(box):
            weight = image[:, :, 0].astype(float)
            rows, columns = np.indices(weight.shape) + 0.5
            middle = np.array([(weight * columns).sum(), (weight * rows).sum()]) / weight.sum()
            cut = (box[0, :2] <= 0).any() or (box[0, 2:] >= (256, 192)).any()
            assert cut or np.abs(middle - (box[0, :2] + box[0, 2:]) / 2).max() <= 1


@pytest.mark.parametrize("op", [*NOT_LOSING, da.Resize((50, 60)), da.Resize(50)], ids=repr)
def test_an_image_without_boxes_passes_and_the_others_keep_theirs(op: da.Op, device: str) -> None:
    samples = op(da.batch([np.full((40, 50, 3), 9, np.uint8)] * 3, [[], [[1, 2, 30, 20]], []], device=device))
    assert [boxes.shape for boxes in samples.boxes] == [(0, 4), (1, 4), (0, 4)]
    assert [labels.shape for labels in samples.labels] == [(0,), (1,), (0,)]


@pytest.mark.parametrize("op", [*GEOMETRIC, *SIZES], ids=repr)
def test_an_image_without_boxes_passes(op: da.Op, device: str) -> None:
    samples = op(da.batch([np.full((40, 50, 3), 9, np.uint8)] * 3, [[], [[15, 15, 30, 30]], []], device=device))
    assert [len(boxes) for boxes in samples.boxes][::2] == [0, 0]
    assert all(boxes.shape[1] == 4 for boxes in samples.boxes)
    assert all(image.shape[2] == 3 for image in samples.images)


@pytest.mark.parametrize("op", GEOMETRIC, ids=repr)
def test_the_matrix_leads_back_to_the_source(op: da.Op) -> None:
    """A gradient image says of each of its pixels where it came from."""
    ramp = np.zeros((100, 140, 3), np.uint8)
    ramp[..., 0], ramp[..., 1], ramp[..., 2] = np.arange(140), np.arange(100)[:, None], 255
    samples = op(da.batch([ramp] * 6, seed=5)).then(da.Resize((200, 280)))
    for image, matrix in zip(samples.images, samples.matrix, strict=True):
        rows, columns = np.nonzero(image[..., 2] == 255)
        square = np.eye(3)
        square[: len(matrix)] = matrix
        source = np.stack([columns + 0.5, rows + 0.5, np.ones(len(rows))], axis=1) @ np.linalg.inv(square).T
        source = source[:, :2] / source[:, 2:] - 0.5
        inside = ((source > 2) & (source < (137, 97))).all(1)
        assert np.abs(image[rows, columns, :2] - source)[inside].max() < 1.5


@pytest.mark.parametrize("op", TURNS, ids=repr)
def test_turned_boxes_hold_the_ellipse_and_are_held_by_the_hull(op: da.Op) -> None:
    box = [[40, 30, 100, 60]]
    arguments = {name: value for name, value in vars(op).items() if name != "rotate_method"}
    samples = [
        type(op)(**arguments, rotate_method=rotate_method)(da.batch([np.zeros((96, 140, 3), np.uint8)] * 8, [box] * 8))
        for rotate_method in ("box", "ellipse")
    ]
    for hull, ellipse in zip(samples[0].boxes, samples[1].boxes, strict=True):
        assert (ellipse[:, :2] >= hull[:, :2] - 1e-9 - 0.05).all()
        assert (ellipse[:, 2:] <= hull[:, 2:] + 1e-9 + 0.05).all()
        assert (ellipse[:, 2:] - ellipse[:, :2]).prod() <= (hull[:, 2:] - hull[:, :2]).prod() + 0.1


def test_the_ellipse_rule_is_the_formula() -> None:
    """Half the width of an ellipse with half axes a, b, rotated by t: sqrt((a cos t)^2 + (b sin t)^2)."""
    op = da.RandomRotation((33, 33), rotate_method="ellipse")
    (box,) = op(da.batch([np.zeros((400, 400, 3), np.uint8)], [[[140, 170, 260, 230]]])).boxes[0]
    t, a, b = np.radians(33), 60, 30
    half = np.array([np.hypot(a * np.cos(t), b * np.sin(t)), np.hypot(a * np.sin(t), b * np.cos(t))])
    assert box == pytest.approx([*(200 - half), *(200 + half)], abs=0.06)


def test_what_a_turn_cut_off_stays_cut_off() -> None:
    """A white image turned and turned back shows its cut corners as fill, with smooth edges."""
    white = da.batch([np.full((100, 100, 3), 255, np.uint8)])
    there, back = da.RandomRotation((45, 45), fill=BLACK), da.RandomRotation((-45, -45), fill=BLACK)
    image = white.then(there, back, da.Resize((100, 100))).images[0][..., 0]
    assert image[3, 3] == 0
    assert image[50, 50] == 255
    octagon = 100**2 - 2 * (100 - 50 * np.sqrt(2)) ** 2 * 0 - 4 * (50 * (2 - np.sqrt(2))) ** 2 / 2
    assert (image / 255).sum() == pytest.approx(octagon, rel=0.02)


def test_zoom_out_shows_the_image_and_nothing_but_fill_around_it(device: str) -> None:
    photo = np.random.default_rng(0).integers(0, 200, (40, 60, 3), np.uint8)
    samples = da.RandomZoomOut(p=1, fill=(250.0, 240.0, 230.0))(da.batch([photo] * 6, device=device))
    for image, matrix in zip(samples.images, samples.matrix, strict=True):
        x, y = np.round(matrix[:, 2]).astype(int)
        assert np.array_equal(image[y : y + 40, x : x + 60], photo)
        image[y : y + 40, x : x + 60] = (250, 240, 230)
        assert (image == (250, 240, 230)).all()


@pytest.mark.parametrize(
    "ops",
    [
        [da.Resize((80, 80))],
        [da.Resize((75, 90))],
        [da.Resize((10, 12))],
        [da.Resize((90, 90), letterbox="center")],
    ],
    ids=str,
)
def test_rotations_by_90_degrees_are_those_of_the_pixels_up_to_the_border(ops: list[da.Op]) -> None:
    """Nothing around the image blends with its outermost pixels, as little as without the rotation."""
    pixels = np.random.default_rng(0).integers(0, 256, (20, 31, 3), np.uint8)
    rotated = da.RandomRotate90(p=1)(da.batch([pixels] * 9, seed=1))
    turns = [next(k for k in (1, 2, 3) if np.array_equal(image, np.rot90(pixels, k))) for image in rotated.images]
    assert {*turns} == {1, 2, 3}
    expected = da.batch([np.rot90(pixels, k).copy() for k in turns])
    for op in ops:
        rotated, expected = op(rotated), op(expected)
    for image, other in zip(rotated.images, expected.images, strict=True):
        assert np.abs(np.subtract(image, other, dtype=np.int64)).max() <= 1


@pytest.mark.parametrize("fill", [(255, 0, 0), (0, 0, 0)])
def test_rotations_by_90_degrees_of_a_padded_image_are_those_of_the_padded_pixels(fill: tuple[int, int, int]) -> None:
    """As if each op had made pixels: what is enlarged blends with the fill around it."""
    pixels = np.random.default_rng(0).integers(100, 156, (20, 31, 3), np.uint8)
    pad = da.Pad((7, 5, 3, 9), fill=fill)
    rotated = da.RandomRotate90(p=1)(pad(da.batch([pixels] * 9, seed=1)))
    (padded,) = pad(da.batch([pixels])).images
    turns = [next(k for k in (1, 2, 3) if np.array_equal(image, np.rot90(padded, k))) for image in rotated.images]
    enlarge = da.Resize((110, 90))
    expected = enlarge(da.batch([np.rot90(padded, k).copy() for k in turns]))
    for image, other in zip(enlarge(rotated).images, expected.images, strict=True):
        assert np.abs(np.subtract(image, other, dtype=np.int64)).max() <= 1
