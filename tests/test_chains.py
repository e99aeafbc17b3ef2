"""Every geometric op, alone and in chains, on painted rectangles: `da.testing` reads them off the pixels."""

from __future__ import annotations

import numpy as np
import pytest

import detaug as da
from detaug.testing import assert_boxes_follow_pixels

BLACK = (0.0, 0.0, 0.0)
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
RESAMPLED = [
    da.RandomIoUCrop(),
    da.RandomIoUCrop(min_visibility=0.3, thresholds=(0.3, 0.7), allow_no_crop=False),
    da.RandomBoxSafeCrop(p=0.7),
    da.ScaleJitter((200, 200), scale=(0.5, 2.0), fill=BLACK),
]
TURNS = [
    da.RandomRotation(30, fill=BLACK),
    da.RandomRotation((20, 120), p=0.6, expand=True, fill=BLACK),
    da.RandomAffine(20, (0.1, 0.1), (0.7, 1.3), (-10, 10, -10, 10), fill=BLACK),
    da.RandomPerspective(0.4, p=0.7, fill=BLACK),
]
GEOMETRIC = [*WHOLE_PIXELS, *RESAMPLED, *TURNS]
SIZES = [
    da.Resize((150, 220)),
    da.Resize((300, 300)),
    da.Resize(160, max_size=300),
    da.Resize([(200, 200), (256, 160)]),
    da.Resize((250, 180), letterbox="center", fill=BLACK),
    da.Resize((190, 260), letterbox="top-left", fill=BLACK),
    da.RandomShortestSize((130, 180), max_size=320),
]


@pytest.mark.parametrize("op", WHOLE_PIXELS, ids=repr)
def test_whole_pixels_stay_exact(op: da.Op, device: str) -> None:
    assert assert_boxes_follow_pixels(op, tolerance=EXACT, images=16, device=device) >= 40


@pytest.mark.parametrize("op", [*WHOLE_PIXELS, *RESAMPLED, *TURNS], ids=repr)
@pytest.mark.parametrize("pipeline", [False, True], ids=["eager", "pipeline"])
def test_each_op_and_a_resize(op: da.Op, pipeline: bool, device: str) -> None:
    ops = [op, da.Resize((220, 240))]
    assert assert_boxes_follow_pixels(ops, images=16, pipeline=pipeline, device=device) >= 24


@pytest.mark.parametrize("resize", SIZES, ids=repr)
@pytest.mark.parametrize("first", [da.RandomHorizontalFlip(), da.RandomRotation(20, fill=BLACK)], ids=repr)
def test_each_resize(resize: da.Op, first: da.Op, device: str) -> None:
    assert assert_boxes_follow_pixels([first, resize], images=16, device=device) == 48


@pytest.mark.parametrize("outline", ["box", "ellipse"])
def test_a_shrunk_turn_is_antialiased(outline: str, device: str) -> None:
    """A checkerboard of single pixels, shrunk four times, is gray: without a filter it would be black and white."""
    board = np.indices((400, 400)).sum(0) % 2 * 255
    samples = da.batch([np.repeat(board[..., None], 3, 2).astype(np.uint8)], device=device)
    turned = samples.then(da.RandomRotation((44, 46), outline=outline), da.Resize((100, 100))).images[0]
    assert np.abs(turned[40:60, 40:60].astype(float) - 127.5).max() < 12


@pytest.mark.parametrize("seed", range(500))
def test_a_chain(seed: int, device: str) -> None:
    """2 to 6 ops and a resize, batches of 1, 4 and 32, in both modes."""
    rng = np.random.default_rng(seed)
    ops = [GEOMETRIC[at] for at in rng.integers(len(GEOMETRIC), size=rng.integers(2, 7))]
    ops.append(SIZES[rng.integers(len(SIZES))])
    images = 32 if seed % 25 == 7 else 1 if seed % 5 == 0 else 4
    assert_boxes_follow_pixels(
        ops, seed=seed, images=images, size=(120, 160), smallest=20, pipeline=seed % 4 == 1, device=device
    )


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
    arguments = {name: value for name, value in vars(op).items() if name != "outline"}
    samples = [
        type(op)(**arguments, outline=outline)(da.batch([np.zeros((96, 140, 3), np.uint8)] * 8, [box] * 8))
        for outline in ("box", "ellipse")
    ]
    for hull, ellipse in zip(samples[0].boxes, samples[1].boxes, strict=True):
        assert (ellipse[:, :2] >= hull[:, :2] - 1e-9 - 0.05).all()
        assert (ellipse[:, 2:] <= hull[:, 2:] + 1e-9 + 0.05).all()
        assert (ellipse[:, 2:] - ellipse[:, :2]).prod() <= (hull[:, 2:] - hull[:, :2]).prod() + 0.1


def test_the_ellipse_rule_is_the_formula() -> None:
    """Half the width of an ellipse with half axes a, b, turned by t: sqrt((a cos t)^2 + (b sin t)^2)."""
    op = da.RandomRotation((33, 33), outline="ellipse")
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


N = 20_000
RNG_SEED = 11


def drawn_by(op: da.Op) -> dict[str, np.ndarray]:
    return op.draw(np.random.default_rng(RNG_SEED), N)


def assert_uniform(values: np.ndarray, low: float, high: float) -> None:
    """Chi-square over 20 bins; 43.8 is passed once in a thousand times."""
    assert low <= values.min() and values.max() <= high  # noqa: PT018
    counts, _ = np.histogram(values, 20, (low, high))
    expected = values.size / 20
    assert ((counts - expected) ** 2 / expected).sum() < 43.8


def assert_rate(applied: np.ndarray, p: float) -> None:
    assert abs(applied.mean() - p) < 4 * np.sqrt(p * (1 - p) / len(applied))


def test_rotation_draws_its_range() -> None:
    angle = drawn_by(da.RandomRotation((-10, 40), p=0.3))["angle"]
    assert_rate(angle != 0, 0.3)
    assert_uniform(angle[angle != 0], -10, 40)


def test_quarter_turns_are_alike() -> None:
    turns = drawn_by(da.RandomRotate90(p=0.6))["turns"]
    assert_rate(turns > 0, 0.6)
    for quarter in (1, 2, 3):
        assert_rate(turns == quarter, 0.2)


def test_affine_draws_its_ranges() -> None:
    drawn = drawn_by(da.RandomAffine((5, 9), (0.1, 0.4), (0.5, 0.9), (1, 2, -8, 4), p=0.7))
    applied = drawn["angle"] != 0
    assert_rate(applied, 0.7)
    assert_uniform(drawn["angle"][applied], 5, 9)
    assert_uniform(drawn["scale"][applied], 0.5, 0.9)
    for axis, most in enumerate((0.1, 0.4)):
        assert_uniform(drawn["translate"][applied, axis], -most, most)
    assert_uniform(drawn["shear"][applied, 0], 1, 2)
    assert_uniform(drawn["shear"][applied, 1], -8, 4)
    still = [np.unique(drawn[name][~applied]).tolist() for name in ("angle", "scale", "translate", "shear")]
    assert still == [[0], [1], [0], [0]]


def test_perspective_draws_its_corners() -> None:
    corners = drawn_by(da.RandomPerspective(0.6, p=0.4))["corners"]
    applied = corners.any((1, 2))
    assert_rate(applied, 0.4)
    for at in np.ndindex(4, 2):
        assert_uniform(corners[(applied, *at)], 0, 0.3)


def test_crops_draw_their_places() -> None:
    drawn = drawn_by(da.RandomCrop(8, p=0.2))
    assert_rate(drawn["crop"], 0.2)
    for axis in (0, 1):
        assert_uniform(drawn["offset"][:, axis], 0, 1)
    drawn = drawn_by(da.RandomBoxSafeCrop(p=0.9))
    assert_rate(drawn["crop"], 0.9)
    for name in ("start", "end"):
        assert_uniform(drawn[name], 0, 1)


def test_iou_crop_happens_with_its_probability() -> None:
    images, boxes = [np.zeros((40, 40, 3), np.uint8)] * 2000, [[[2, 2, 38, 38]]] * 2000
    (drawn,) = da.batch(images, boxes).then(da.RandomIoUCrop((0.0,), allow_no_crop=False, p=0.3)).params[:1]
    assert abs((drawn["window"] != (0, 0, 1, 1)).any(1).mean() - 0.3) < 0.05


def test_scale_jitter_draws_its_scale() -> None:
    drawn = drawn_by(da.ScaleJitter((9, 9), scale=(0.2, 1.7)))
    assert_rate(da.ScaleJitter((9, 9), p=0.4).draw(np.random.default_rng(RNG_SEED), N)["applied"], 0.4)
    assert_uniform(drawn["scale"], 0.2, 1.7)
    assert_uniform(drawn["offset"], 0, 1)


def test_sizes_are_alike() -> None:
    for op in (da.Resize([(8, 8), (9, 9), (7, 7), (6, 6)]), da.RandomShortestSize((8, 9, 7, 6))):
        for size in range(4):
            assert_rate(drawn_by(op)["size"] == size, 0.25)


@pytest.mark.parametrize("op", [
    da.RandomHorizontalFlip(p=0), da.RandomVerticalFlip(p=0), da.RandomRotate90(p=0), da.RandomZoomOut(p=0),
    da.RandomRotation(30, p=0), da.RandomAffine(30, p=0), da.RandomPerspective(p=0), da.RandomCrop(9, p=0),
    da.RandomBoxSafeCrop(p=0), da.RandomIoUCrop(p=0), da.ScaleJitter((9, 9), p=0), da.Pad(0), da.RandomAffine(0),
], ids=repr)  # fmt: skip
def test_an_op_that_was_not_drawn_leaves_all_as_it_is(op: da.Op, device: str) -> None:
    image = np.random.default_rng(0).integers(0, 256, (50, 70, 3), np.uint8)
    samples = op(da.batch([image] * 4, [[[3, 4, 50, 30]]] * 4, device=device))
    for each, boxes in zip(samples.images, samples.boxes, strict=True):
        assert np.array_equal(each, image)
        assert boxes == pytest.approx(np.array([[3, 4, 50, 30]]), abs=1e-9)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: da.RandomIoUCrop(p=2), "p must be a probability in 0..1, got 2"),
        (lambda: da.ScaleJitter((9, 9), p=2), "p must be a probability in 0..1, got 2"),
        (lambda: da.RandomRotate90(p=3), "p must be a probability in 0..1, got 3"),
        (lambda: da.RandomRotation("x"), "degrees must be"),
        (lambda: da.RandomRotation((9, 1)), "degrees must be"),
        (lambda: da.RandomRotation(9, outline="round"), "outline must be 'box' or 'ellipse', got 'round'"),
        (lambda: da.RandomRotation(9, fill=0), "fill must be three numbers"),
        (lambda: da.RandomAffine(translate=(2, 0)), "translate must be two fractions"),
        (lambda: da.RandomAffine(translate=0.1), "translate must be two fractions"),
        (lambda: da.RandomAffine(scale=(0, 1)), "scale must be above 0"),
        (lambda: da.RandomAffine(shear=(1, 2, 3)), "shear must be one, two or four angles"),
        (lambda: da.RandomAffine(shear=90), "shear must be one, two or four angles"),
        (lambda: da.RandomPerspective(1.0), "distortion_scale must be at least 0 and below 1"),
        (lambda: da.Pad(-1), "padding must be"),
        (lambda: da.Pad((1, 2, 3)), "padding must be"),
        (lambda: da.PadToMultiple(0), "multiple must be a whole number from 1"),
        (lambda: da.CenterCrop(1.5), "size must be"),
        (lambda: da.RandomCrop((3, 0)), "size must be"),
        (lambda: da.RandomBoxSafeCrop(p="a"), "p must be"),
        (lambda: da.ScaleJitter(300), "size must be"),
        (lambda: da.ScaleJitter((300, 300), scale=(0, 1)), "scale must be"),
        (lambda: da.Resize(()), "size must be"),
        (lambda: da.Resize([(3, 4), 5]), "size must be"),
        (lambda: da.Resize((3, 4), letterbox="left"), "letterbox must be None, 'center' or 'top-left', got 'left'"),
        (lambda: da.Resize(3, letterbox="center"), "letterbox must be left out"),
        (lambda: da.RandomShortestSize(()), "min_size must be"),
        (lambda: da.RandomShortestSize((5, 9), max_size=8), "max_size must be at least the largest"),
    ],
)
def test_a_wrong_argument_is_refused_by_name(make, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
