"""Mosaic, CutMix, CopyPaste and MixUp, on images whose pixels encode their origin."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from coded import NOWHERE, Piece, coded, coded_batch, origins, pieces
from painted_files import paint_files, write_coco
from PIL import Image
from seeds import seeds, slow

import detaug as da

SIZE = (80, 100)
RESIZE = da.Resize(SIZE)
EXACT = 0.01

MOSAIC = da.Mosaic(p=0.7)
CUTMIX = da.CutMix(p=0.7)
COPY_PASTE = da.CopyPaste(p=0.7)


def stays(op: Any, own: bool, piece: Piece) -> bool:
    """Return whether the op keeps the piece. `own`: it is of the image itself, not of a partner."""
    least = op.min_visibility if isinstance(op, da.Mosaic) or not own else 1 - op.max_hidden
    return piece.share >= least - 1e-9


def key(label: int, box: Any) -> tuple[Any, ...]:
    return (int(label), *np.round(np.asarray(box, float), 3).tolist())


def check_batch(before: da.Samples, op: Any, resize: da.Resize = RESIZE) -> int:
    """Compare with the objects that the rule keeps, each with the hull of its pixels. Return how many are partners'."""
    after, joined = before.then(resize, op), 0
    for at, image in enumerate(after.images):
        left = [piece for piece in pieces(image, before) if stays(op, piece.image == at, piece)]
        expected = sorted(key(piece.label, piece.box) for piece in left)
        got = sorted(map(key, after.labels[at], after.boxes[at]))
        assert len(got) == len(expected)
        assert np.abs(np.array(got) - np.array(expected)).max(initial=0) < EXACT
        joined += sum(piece.image != at for piece in left)
    return joined


@pytest.mark.parametrize(
    "op",
    [
        MOSAIC,
        CUTMIX,
        COPY_PASTE,
        *slow(
            da.Mosaic(center=(0, 1), min_visibility=0),
            da.Mosaic(center=(0.5, 0.5), min_visibility=0.9),
            da.CutMix(min_visibility=0, max_hidden=1),
            da.CutMix(min_visibility=1, max_hidden=0),
            da.CopyPaste(p=1, max_boxes=8, min_visibility=0, max_hidden=1),
            da.CopyPaste(p=1, max_boxes=1, min_visibility=1, max_hidden=0.2),
        ),
    ],
    ids=repr,
)
@pytest.mark.parametrize("n", [32, *slow(2, 3)])
def test_boxes_lie_on_the_pixels_of_their_objects(op: da.Op, n: int, device: str) -> None:
    assert sum(check_batch(coded_batch(seed, n, SIZE, device), op) for seed in range(1 + 20 // n)) > 5


LETTERBOX = da.Resize(SIZE, letterbox="center", fill=NOWHERE)


def narrow_and_low(seed: int, device: str = "cpu") -> da.Samples:
    """16 coded images as high or as wide as LETTERBOX, so that it does not resample them, with two boxes each."""
    rng = np.random.default_rng(seed)
    sizes = [(80, int(width)) for width in rng.integers(30, 101, 8)] + [(int(h), 100) for h in rng.integers(24, 81, 8)]
    boxes = [[[2, 3, width // 2, 20], [width - 20, height - 20, width, height]] for height, width in sizes]
    labels = [[10 * at + 1, 10 * at + 2] for at in range(16)]
    return da.batch([coded(at, size) for at, size in enumerate(sizes)], boxes, labels, seed=seed, device=device)


@pytest.mark.parametrize("op", [MOSAIC, da.Mosaic(center=(0, 1)), CUTMIX, COPY_PASTE], ids=repr)
def test_boxes_lie_on_their_objects_in_images_with_a_border(op: da.Op, device: str) -> None:
    assert check_batch(narrow_and_low(0, device), op, LETTERBOX) > 5


def test_the_tiles_of_a_mosaic_touch_and_the_border_is_at_the_rim(device: str) -> None:
    """As in Ultralytics' mosaic: next to the point in the middle are four images, and fill only beyond their ends."""
    source, filled = narrow_and_low(1, device), 0
    after = source.then(LETTERBOX, da.Mosaic(center=(0.1, 0.9)))
    middles = np.round(after.params[-1]["center"] * SIZE[::-1]).astype(int)
    for at, (image, (x, y)) in enumerate(zip(after.images, middles, strict=True)):
        ids = origins(image)[..., 0]
        row, column = np.argwhere(ids == at)[0]
        shift = (column, row) - origins(image)[row, column, 1:]
        assert np.abs(after.matrix[at] - np.column_stack([np.eye(2), shift])).max() < 1e-9
        for half in (ids[:y][::-1], ids[y:]):
            for tile in (half[:, :x][:, ::-1], half[:, x:]):  # each quadrant, seen from the point
                height, width = source.source_images[tile[0, 0]].shape[:2]
                expected = np.full(tile.shape, -1)
                expected[:height, :width] = tile[0, 0]
                assert np.array_equal(tile, expected)
                filled += (tile < 0).sum()
    assert filled > 1000


def test_a_mosaic_of_photographs_of_one_shape_has_no_border() -> None:
    photos = [np.full((480, 640, 3), 200 - at, np.uint8) for at in range(8)]
    for image in da.batch(photos).then(*da.presets.yolo640()[:3]).images:
        assert image.min() > 190


@pytest.mark.parametrize("fill", [(255.0, 255.0, 255.0), (10.0, 20.4, 30.6)])
def test_a_mosaic_after_other_ops_has_their_fill(fill: tuple[float, float, float], device: str) -> None:
    """The fill of a zoom-out goes to the rim; a mosaic of mosaics has none of its own."""
    samples = da.batch([np.full((40, 50, 3), 100, np.uint8)] * 8, device=device)
    zoomed = samples.then(da.RandomZoomOut(3, p=1, fill=fill), RESIZE)
    for image in zoomed.then(da.Mosaic()).images:
        assert {tuple(color) for color in image.reshape(-1, 3).tolist()} == {(100,) * 3, tuple(np.round(fill))}
    white = [(image == np.round(fill)).all(2).mean() for image in zoomed.then(da.Mosaic(), da.Mosaic()).images]
    assert 0 < np.mean(white) < 1


@pytest.mark.parametrize(("n", "different"), [(2, 2), (3, 3), (4, 4), (5, 4), (32, 4)])
def test_the_images_of_a_mosaic_are_different_ones_where_the_batch_has_them(n: int, different: int) -> None:
    for seed in range(8):
        for image in coded_batch(seed, n, SIZE).then(RESIZE, da.Mosaic()).images:
            assert len(np.unique(origins(image)[..., 0])) == different


def test_a_mosaic_shows_four_images_at_full_size(device: str) -> None:
    own_quadrants, partners, middles = set(), [], []
    for seed in range(4):
        samples = coded_batch(seed, 32, SIZE, device).then(RESIZE, da.Mosaic())
        for at, image in enumerate(samples.images):
            origin, (y, x) = origins(image), np.indices(SIZE)
            ids = origin[..., 0]
            offset = np.stack([ids, x - origin[..., 1], y - origin[..., 2]], axis=2)
            tiles, counts = np.unique(offset.reshape(-1, 3), axis=0, return_counts=True)
            assert len(tiles) == 4
            assert counts.sum() == 8000
            shift = {tuple((tile[1:] > 0).tolist()): tuple(np.abs(tile[1:]).tolist()) for tile in tiles}
            (right, below) = shift[True, True]  # that image's top left corner is at the point
            assert shift == {
                (True, True): (right, below),
                (False, True): (100 - right, below),
                (True, False): (right, 80 - below),
                (False, False): (100 - right, 80 - below),
            }
            (own,) = tiles[tiles[:, 0] == at]
            assert np.abs(samples.matrix[at] - [[1, 0, own[1]], [0, 1, own[2]]]).max() < 1e-9
            own_quadrants.add(tuple((own[1:] > 0).tolist()))
            partners += [tile[0] for tile in tiles if tile[0] != at]
            middles.append((right / 100, below / 80))
    assert len(own_quadrants) == 4
    assert set(partners) == set(range(32))
    assert np.min(middles) >= 0.25 - 0.01
    assert np.max(middles) <= 0.75 + 0.01


def test_a_mosaic_ends_at_its_epoch(painted_files: tuple[Path, Path]) -> None:
    ops = [RESIZE, da.Mosaic(until_epoch=1)]
    loader = da.Loader(da.CocoReader(*painted_files), ops, batch_size=4, device="cpu")
    mixed = [[len(np.unique(image[0])) > 1 for batch in loader for image in batch.images.numpy()] for _ in range(3)]
    assert [np.mean(epoch) for epoch in mixed] == [1, 0, 0]


@pytest.fixture
def painted_files(tmp_path: Path) -> tuple[Path, Path]:
    """30 coded files of one size with boxes; red encodes the image id, 10 and more."""
    images = []
    for at in range(30):
        boxes = np.random.default_rng(at).integers(0, 40, (at % 4, 4)) + np.array([0, 0, 40, 40])
        Image.fromarray(coded(at, SIZE)).save(tmp_path / f"{at:02}.png")
        images.append((f"{at:02}.png", SIZE, boxes))
    return write_coco(tmp_path, images)


@pytest.mark.parametrize(
    "op", [da.Mosaic(), da.CutMix(), da.CopyPaste(p=1), da.MixUp()], ids=lambda op: type(op).__name__
)
def test_partners_are_of_the_same_batch(op: da.Op, painted_files: tuple[Path, Path], device: str) -> None:
    from_others = 0
    loader = da.Loader(da.CocoReader(*painted_files), [RESIZE, op], batch_size=4, device=device, seed=3)
    for batch in loader:
        here = {int(i) - 10 for i in batch.image_id}
        for image, image_id in zip(batch.images.cpu().numpy(), batch.image_id.tolist(), strict=True):
            if isinstance(op, da.MixUp):
                assert is_mean_of_two(image.transpose(1, 2, 0), image_id - 10, here)
                from_others += 1
                continue
            found = set(np.unique(origins(image.transpose(1, 2, 0))[..., 0]).tolist())
            assert found <= here
            from_others += len(found - {image_id - 10})
    assert from_others > 10


def is_mean_of_two(image: np.ndarray, own: int, others: set[int]) -> bool:
    """Return whether red is the weighted mean of two of these images; green and blue, equal in all, stay."""
    red = image[..., 0].astype(float)
    low, high = 1 + 7 * min(others), 1 + 7 * max(others)
    same = np.abs(image[..., 1:] - coded(own, SIZE)[..., 1:]).max() < 1e-3
    return bool(np.ptp(red) < 1e-3 and low <= red[0, 0] <= high and abs(red[0, 0] - 1 - 7 * own) > 0.5 and same)


def test_the_same_seed_gives_the_same_pictures_for_any_number_of_pipelines(painted_files: tuple[Path, Path]) -> None:
    reader, ops = da.CocoReader(*painted_files), [RESIZE, MOSAIC, da.MixUp(p=0.5), CUTMIX, COPY_PASTE]
    runs = [list(da.Loader(reader, ops, batch_size=4, device="cpu", pipelines=count)) for count in (1, 3)]
    for a, b in zip(*runs, strict=True):
        assert np.array_equal(a.images, b.images)
        assert np.array_equal(a.boxes, b.boxes)


def test_an_evaluation_with_one_image_left_over_mixes_it_with_itself(painted_files: tuple[Path, Path]) -> None:
    ops = [RESIZE, da.Mosaic(), da.MixUp(), da.CutMix(), da.CopyPaste(p=1)]
    *_, last = da.Loader(da.CocoReader(*painted_files), ops, batch_size=29, device="cpu", train=False)
    assert len(last) == 1
    assert np.unique(last.images[0, 0]).tolist() == [1 + 7 * 29]


@pytest.mark.parametrize("op", [da.Mosaic, da.CutMix, da.CopyPaste, da.MixUp])
@pytest.mark.parametrize("seed", range(3))
def test_images_that_drew_nothing_do_not_change(op: Any, seed: int, device: str) -> None:
    before = coded_batch(seed, 8, SIZE, device).then(RESIZE)
    for p in (0, 0.5):
        after, same = before.then(op(p=p)), 0
        for at, image in enumerate(after.images):
            if np.array_equal(image, before.images[at]):
                own = after.labels[at] // 10 == at
                if isinstance(op(), da.CopyPaste) or own.all():
                    assert np.array_equal(after.boxes[at][own], before.boxes[at])
                    same += 1
                assert np.array_equal(after.matrix[at], before.matrix[at])
        assert same == 8 if p == 0 else 1 <= same <= 7


class TestMixUp:
    def test_it_is_the_weighted_mean_with_the_boxes_of_both(self, device: str) -> None:
        rng = np.random.default_rng(0)
        photos = rng.integers(0, 256, (6, *SIZE, 3), np.uint8)
        boxes = [[[at, 2, at + 30.5, 40]] * (at % 3) for at in range(6)]
        labels = [[at + 1] * (at % 3) for at in range(6)]
        before = da.batch(list(photos), boxes, labels, device=device).then(RESIZE)
        after = before.then(da.MixUp(alpha=2.0))
        for at, image in enumerate(after.images):
            fits = []
            for other in set(range(6)) - {at}:
                own, theirs = photos[at].astype(float), photos[other].astype(float)
                lam = ((image - theirs) * (own - theirs)).sum() / ((own - theirs) ** 2).sum()
                fits.append((np.abs(lam * own + (1 - lam) * theirs - image).max(), other, lam))
            error, other, lam = min(fits)
            assert error < 0.51  # rounded
            assert 0 < lam < 1
            assert after.labels[at].tolist() == labels[at] + labels[other]
            expected = [*before.boxes[at], *before.boxes[other]]
            assert np.abs(np.reshape(after.boxes[at], (-1, 4)) - np.reshape(expected, (-1, 4))).max(initial=0) < 1e-9
            assert np.array_equal(after.matrix[at], before.matrix[at])

    def test_lam_is_of_the_beta_distribution(self) -> None:
        n = 20000
        for alpha in (0.5, 2.0, 32.0):
            drawn = da.MixUp(p=0.4, alpha=alpha).draw(np.random.default_rng(0), n)["share"]
            mixed = drawn[drawn < 1]
            assert abs(len(mixed) / n - 0.4) < 0.011
            assert abs(mixed.mean() - 0.5) < 0.012
            assert abs(mixed.var() - 0.25 / (2 * alpha + 1)) < 0.004


def test_a_cutmix_rectangle_is_torchvisions_draw() -> None:
    """torchvision.transforms.v2.CutMix.make_params, in whole pixels."""
    n, op, (height, width) = 20000, da.CutMix(p=1, alpha=1.0), SIZE
    views = coded_batch(0, 2, SIZE).then(RESIZE).plan.views[np.zeros(n, np.int64)]
    ours = op.rectangles(views, views, op.draw(np.random.default_rng(0), n))[:, 0]
    rng = np.random.default_rng(1)
    half = 0.5 * np.sqrt(1 - rng.beta(1, 1, n))
    x, y = rng.integers(0, width, n), rng.integers(0, height, n)
    half_x, half_y = (half * width).astype(int), (half * height).astype(int)
    low, high = np.stack([x - half_x, y - half_y], 1).clip(0), np.stack([x + half_x, y + half_y], 1)
    theirs = np.concatenate([low, high.clip(max=(width, height))], axis=1)
    for axis in range(4):
        both = np.sort(np.concatenate([ours[:, axis], theirs[:, axis]]))
        shares = [np.searchsorted(np.sort(each[:, axis]), both, side="right") / n for each in (ours, theirs)]
        assert np.abs(shares[0] - shares[1]).max() < 1.95 * np.sqrt(2 / n)


@pytest.mark.parametrize(("op", "name"), [(da.Mosaic, "mosaic"), (da.CopyPaste, "paste")])
def test_p_is_the_share_of_images(op: Any, name: str) -> None:
    assert abs(op(p=0.3).draw(np.random.default_rng(0), 20000)[name].mean() - 0.3) < 0.01


def test_every_other_image_is_a_partner_as_often() -> None:
    from detaug.ops.mixing import partners

    views = coded_batch(0, 5, SIZE).then(RESIZE).plan.views[np.tile(np.arange(5), 4000)]
    views = replace(views, batch=np.repeat(np.arange(4000), 5))
    rows = partners(views, np.random.default_rng(0).random((20000, 3)))
    assert np.array_equal(rows // 5, np.repeat(np.arange(4000), 5)[:, None].repeat(3, 1))
    counts = np.zeros((5, 5))
    np.add.at(counts, (np.tile(np.arange(5), 4000)[:, None].repeat(3, 1), rows % 5), 1)
    assert (counts.diagonal() == 0).all()
    assert np.abs(counts[~np.eye(5, dtype=bool)] - 3000).max() < 5 * np.sqrt(3000)


def test_copy_paste_takes_whole_pixels_around_a_box(device: str) -> None:
    samples = da.batch([coded(at, SIZE) for at in range(2)], [[], [[10.7, 20.6, 30.9, 40.1]]], device=device)
    image = samples.then(RESIZE, da.CopyPaste(p=1)).images[0]
    rows, columns = np.nonzero(origins(image)[..., 0] == 1)
    assert (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1) == (10, 20, 31, 41)
    after = samples.then(RESIZE, da.CopyPaste(p=1))
    assert np.abs(after.boxes[0] - [[10.7, 20.6, 30.9, 40.1]]).max() < 1e-9


def test_images_of_several_sizes_are_mixed_after_resize(device: str) -> None:
    rng = np.random.default_rng(0)
    images = [np.full((h, w, 3), 20 * at, np.uint8) for at, (h, w) in enumerate(rng.integers(30, 90, (8, 2)))]
    boxes = [[[0, 0, image.shape[1] / 2, image.shape[0]]] for image in images]
    samples = da.batch(images, boxes, [[at + 1] for at in range(8)], device=device)
    for op in (da.Mosaic(), da.CutMix(), da.CopyPaste(p=1)):
        after = samples.then(RESIZE, op)
        for image, found, labels in zip(after.images, after.boxes, after.labels, strict=True):
            for box, label in zip(found, labels, strict=True):
                x0, y0, x1, y1 = np.round(box).astype(int)
                assert (image[y0:y1, x0:x1, 0] == 20 * (label - 1)).any()


# ------------------------------------------------------------------------------------------------ chains

EXACT_GEOMETRY = [
    da.RandomHorizontalFlip(),
    da.RandomVerticalFlip(),
    da.RandomCrop((90, 110), fill=NOWHERE),
    da.Pad(5, fill=NOWHERE),
]
AFTER = [
    da.Mosaic(0.7),
    da.CutMix(0.7),
    da.CopyPaste(0.7),
    da.RandomErasing(0.7, value=NOWHERE),
    da.GridMask(0.7, 0.5, (9, 50), NOWHERE),
    da.SanitizeBoundingBoxes(),
]


@pytest.mark.parametrize("seed", seeds(3, 100))
def test_random_chains_keep_boxes_on_their_objects(seed: int, device: str) -> None:
    """Every box contains pixels of its object, and is their hull if only one op came after Resize."""
    rng = np.random.default_rng(seed)
    before = coded_batch(seed, int(rng.integers(2, 9)), (130, 150), device)
    chain: list[da.Op] = [EXACT_GEOMETRY[at] for at in rng.integers(0, 4, rng.integers(0, 4))]
    chain += [da.RandomCrop(SIZE, fill=NOWHERE), RESIZE]
    chain += [AFTER[at] for at in rng.integers(0, 6, rng.integers(1, 4))]
    after = before.then(*chain)
    for image, boxes, labels in zip(after.images, after.boxes, after.labels, strict=True):
        origin = origins(image)
        assert (boxes >= -1e-6).all()
        assert (boxes <= np.tile(SIZE[::-1], 2) + 1e-6).all()
        for box, label in zip(boxes, labels.tolist(), strict=True):
            source = replace(before, ops=()).boxes[label // 10][label % 10 - 1]
            centre = origin[..., 1:] + 0.5
            inside = ((centre > source[:2]) & (centre < source[2:])).all(2) & (origin[..., 0] == label // 10)
            rows, columns = np.nonzero(inside)
            here = (columns + 0.5 > box[0]) & (columns + 0.5 < box[2]) & (rows + 0.5 > box[1]) & (rows + 0.5 < box[3])
            assert here.any(), f"nothing of {label} in {box}"
            if len(chain) - chain.index(RESIZE) == 2:
                hull = (columns[here].min(), rows[here].min(), columns[here].max() + 1, rows[here].max() + 1)
                assert np.abs(box - hull).max() < EXACT


@pytest.mark.parametrize("seed", seeds(4, 20))
def test_boxes_turned_before_resize_are_mixed_as_their_hulls(seed: int) -> None:
    samples = coded_batch(seed, 4, SIZE).then(da.RandomRotation(40), da.Resize((90, 90)))
    for op in AFTER:
        after = samples.then(op, da.MixUp())
        assert all((boxes >= 0).all() and (boxes <= 90 + 1e-9).all() for boxes in after.boxes)
        assert all((boxes[:, :2] < boxes[:, 2:]).all() for boxes in after.boxes)
        assert all(image.shape == (90, 90, 3) for image in after.images)


# ----------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize("op", [da.Mosaic(), da.CutMix(), da.CopyPaste(), da.MixUp()], ids=lambda op: type(op).__name__)
def test_recipes_and_batches_that_cannot_be_mixed_are_refused(op: da.Op, painted_files: tuple[Path, Path]) -> None:
    samples, reader = coded_batch(0, 2), da.CocoReader(*painted_files)
    with pytest.raises(ValueError, match=r"needs images of one size: give Resize \(height, width\)"):
        samples.then(da.Resize(100), op)
    with pytest.raises(ValueError, match="must come after Resize"):
        samples.then(op, RESIZE)
    with pytest.raises(ValueError, match=r"combines images of a batch: give it at least 2, got 1"):
        coded_batch(0, 1).then(RESIZE, op)
    with pytest.raises(ValueError, match="batch_size must be at least 2, got 1"):
        da.Loader(reader, [RESIZE, op], batch_size=1, device="cpu")
    with pytest.raises(ValueError, match="none of which mixes images of the batch"):
        da.RandomApply([op])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: da.Mosaic(p=-1), "p must be a probability"),
        (lambda: da.Mosaic(center=(0.7, 0.3)), r"center must be \(smallest, largest\) within 0..1"),
        (lambda: da.Mosaic(center=0.5), "center must be"),
        (lambda: da.Mosaic(min_visibility=3), "min_visibility must be a fraction"),
        (lambda: da.Mosaic(until_epoch=1.5), "until_epoch must be None or a whole number"),
        (lambda: da.MixUp(alpha=0), "alpha must be a number above 0"),
        (lambda: da.CutMix(alpha=float("inf")), "alpha must be a number above 0"),
        (lambda: da.CutMix(max_hidden=-0.1), "max_hidden must be a fraction"),
        (lambda: da.CopyPaste(max_boxes=0), "max_boxes must be a whole number from 1"),
        (lambda: da.CopyPaste(min_visibility="half"), "min_visibility must be a fraction"),
    ],
)
def test_wrong_arguments_are_refused(wrong: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        wrong()


@pytest.mark.filterwarnings("ignore:.*another number of shards gives other pixels")
@pytest.mark.parametrize("op", [da.MixUp(), da.CutMix(), da.CopyPaste(p=1, max_hidden=1, min_visibility=0)])
def test_an_image_alone_is_not_mixed_with_itself(op: da.Op, tmp_path: Path, device: str) -> None:
    """The last batch of evaluation has two of 20 images, one on each shard; each box came twice."""
    reader, options = da.CocoReader(*paint_files(tmp_path, 20)), {"device": device, "train": False, "shard": (0, 2)}
    for seed in range(5):
        loader, plain = (da.Loader(reader, [RESIZE, *more], 3, seed=seed, **options) for more in ([op], []))
        alone, expected = list(loader)[-1], list(plain)[-1]
        assert len(alone) == 1
        assert len(expected.boxes[0]) > 0
        assert alone.boxes.equal(expected.boxes)
        assert alone.images.equal(expected.images)
