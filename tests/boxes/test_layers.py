"""Where images lie in a mixed output: pixel by pixel, and box by box back to the image that it is of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from coded import NOWHERE, coded_batch, origins
from numpy.typing import NDArray
from painted_files import Folder
from properties import few_or_many

import detaug as da
from detaug.boxes.layers import Layers
from detaug.boxes.placement import NEAR

SIZE = (80, 100)
ERASE = da.RandomErasing(p=0.8, value=NOWHERE, max_hidden=1)
MIXING: dict[str, list[da.Op]] = {
    "mosaic": [da.Mosaic(p=0.8, min_visibility=0)],
    "cutmix": [da.CutMix(p=0.8, min_visibility=0, max_hidden=1)],
    "copy": [da.CopyPaste(p=0.8, min_visibility=0, max_hidden=1)],
    "erased": [ERASE, da.GridMask(p=0.3, size=(20, 40), value=NOWHERE, max_hidden=1)],
    "mosaic twice": [da.Mosaic(p=0.7, min_visibility=0), da.Mosaic(p=0.7, center=(0.2, 0.9), min_visibility=0)],
    "chain": [ERASE, da.Mosaic(p=0.6), da.CutMix(p=0.6), da.RandomApply([ERASE], p=0.5), da.CopyPaste(p=0.7), ERASE],
}


def layers_of(samples: da.Samples) -> Layers:
    return samples.plan.views.drawing_or_whole().layers.of_source(np.arange(len(samples)))


def origins_by_layers(layers: Layers, at: int, size: tuple[int, int]) -> NDArray[np.int64]:
    """Return (H, W, 3): image, x and y of the source of each pixel of an output, painted layer by layer."""
    y, x = np.indices(size) + 0.5
    painted = np.full((*size, 3), -1)
    for layer in range(layers.image.shape[1]):
        x0, y0, x1, y1 = layers.rectangle[at, layer]
        if x0 >= x1 or y0 >= y1:
            continue
        inside = (x0 < x) & (x < x1) & (y0 < y) & (y < y1)
        points = np.stack([x, y, np.ones(size)]).reshape(3, -1)
        moved = layers.to_source[at, layer] @ points
        source = np.floor(moved[:2] / moved[2]).reshape(2, *size)
        (low_x, low_y), (high_x, high_y) = layers.source_bounds[at, layer]
        shown = (low_x <= source[0]) & (source[0] < high_x) & (low_y <= source[1]) & (source[1] < high_y)
        here = np.stack([np.full(size, layers.image[at, layer]), *source]).transpose(1, 2, 0)
        nothing = layers.image[at, layer] < 0
        painted[inside] = np.where((shown & ~nothing)[..., None], here, -1)[inside]
    return painted


GEOMETRY: dict[str, list[da.Op]] = {
    "whole": [da.Resize(SIZE)],
    "moved": [da.RandomZoomOut(p=0.5, fill=NOWHERE), da.RandomHorizontalFlip(), da.RandomCrop(SIZE, fill=NOWHERE)],
}


@pytest.mark.parametrize("geometry", GEOMETRY)
@pytest.mark.parametrize("mixing", MIXING)
def test_layers_say_where_each_pixel_is_from(mixing: str, geometry: str, device: str) -> None:
    resize = [] if geometry == "whole" else [da.Resize(SIZE)]
    for seed in range(2):
        samples = coded_batch(seed, 12, device=device).then(*GEOMETRY[geometry], *resize, *MIXING[mixing])
        layers = layers_of(samples)
        for at, image in enumerate(samples.images):
            found, expected = origins(image), origins_by_layers(layers, at, SIZE)
            assert (found[..., 0] == expected[..., 0]).all()
            shown = found[..., 0] >= 0
            assert (found[shown] == expected[shown]).all()


def test_mixup_keeps_the_weights_of_both(device: str) -> None:
    samples = coded_batch(0, 8, device=device).then(da.Resize(SIZE), da.Mosaic(p=0.5), da.MixUp(p=0.7))
    layers = layers_of(samples)
    share = samples.params[-1]["share"]
    used = (layers.rectangle[..., :2] < layers.rectangle[..., 2:]).all(2)
    assert (np.where(used[:, :4], layers.share[:, :4], share[:, None]) == share[:, None]).all()
    assert (layers.image[:, [4, 9]] == -1).all()  # the fill around the second mosaic
    np.testing.assert_allclose(
        np.where(used[:, 4:9], layers.share[:, 4:9], 1 - share[:, None]), 1 - share[:, None] + np.zeros(5)
    )
    assert used[:, 4:].any(1).tolist() == (share < 1).tolist()
    assert layers.mixed[share < 1].all()


def test_objects_of_one_copy_know_its_first_layer(device: str) -> None:
    samples = coded_batch(1, 8, device=device).then(da.Resize(SIZE), da.CopyPaste(p=1, max_boxes=4))
    layers = layers_of(samples)
    assert layers.copy.tolist() == [[0, 1, 1, 1, 1]] * 8
    twice = coded_batch(1, 8).then(da.Resize(SIZE), da.CopyPaste(p=1, max_boxes=2), da.CutMix())
    assert layers_of(twice).copy.tolist() == [[0, 1, 1, 3, 4, 5, 5, 7]] * 8


CHAINS: list[list[da.Op]] = [
    *MIXING.values(),
    [da.MixUp()],
    [da.Mosaic(p=0.6), da.MixUp(p=0.6), ERASE, da.CopyPaste(p=0.7), da.CutMix(p=0.5), da.MixUp(p=0.4)],
]
MOVED: list[da.Op] = [
    da.RandomZoomOut(p=0.5),
    da.RandomIoUCrop(p=0.6),
    da.RandomHorizontalFlip(),
    da.RandomRotate90(p=0.3),
]
MOVED.append(da.Resize((160, 144)))


@few_or_many(200)
def test_boxes_go_back_to_their_own_image(examples: int) -> None:
    """More than 100,000 boxes in the slow tests."""
    seen = 0
    for seed in range(examples):
        rng = np.random.default_rng(seed)
        sizes = [tuple(rng.integers(60, 200, 2).tolist()) for _ in range(16)]
        boxes = [random_boxes(rng, size) for size in sizes]
        ids = [np.arange(len(each)) + 100 * at for at, each in enumerate(boxes)]
        images = [np.zeros((*size, 3), np.uint8) for size in sizes]
        samples = da.batch(images, boxes, columns={"id": ids}, seed=seed)
        for chain in CHAINS:
            after = samples.then(*MOVED, *chain)
            views = after.plan.views
            whole = views.visible[views.labels >= 0] > 1 - 1e-9
            found = np.concatenate(after.boxes_in_source())
            image, row = np.divmod(np.concatenate(after.columns["id"]), 100)
            expected = np.array([boxes[i][j] for i, j in zip(image, row, strict=True)]).reshape(-1, 4)
            assert np.abs(found - expected)[whole].max(initial=0) < 0.01
            inside = np.concatenate([found[:, :2] - expected[:, :2], expected[:, 2:] - found[:, 2:]], axis=1)
            assert inside.min() > -0.01  # what was clipped is a part of the box
            layers = layers_of(after)
            at = np.repeat(np.arange(16), [len(each) for each in after.boxes])
            assert (layers.image[at, views.layer_of_box_or_first()[views.labels >= 0]] == image).all()
            seen += len(found)
    assert seen > 500 * examples


def random_boxes(rng: np.random.Generator, size: tuple[int, ...]) -> NDArray[np.float64]:
    corners = rng.uniform(0, 1, (rng.integers(0, 6), 2, 2)) * size[::-1]
    low, high = corners.min(1), corners.max(1)
    return np.concatenate([low, high], axis=1)[(high - low > 3).all(1)]


@pytest.mark.parametrize("chain", range(len(CHAINS)))
def test_a_batch_takes_its_boxes_back(chain: int, painted: Folder, device: str) -> None:
    reader = da.CocoReader(*painted, columns=["id", "bbox"])
    loader = da.Loader(reader, [*MOVED, *CHAINS[chain]], 8, device=device)
    exact = count = 0
    for batch in [*loader, *loader]:
        real = batch.valid.cpu()
        found = batch.boxes_in_source()
        assert found.shape == batch.boxes.shape
        assert found.device == batch.boxes.device
        assert not found.cpu()[~real].any()
        x, y, w, h = batch.columns["bbox"][real].unbind(1)
        expected, found = torch.stack([x, y, x + w, y + h], 1), found.cpu()[real]
        assert ((found - expected)[:, :2] > -0.01).all()
        assert ((expected - found)[:, 2:] > -0.01).all()
        exact, count = exact + int(((found - expected).abs() < 0.01).all(1).sum()), count + len(found)
        if batch.drawing is not None and batch.layer_of_box is not None:
            image = batch.drawing.layers.image[np.nonzero(real.numpy())[0], batch.layer_of_box.numpy()[real]]
            assert (reader.image_ids[image] == batch.image_id_of_box[real].numpy()).all()
    assert exact > count / 4 > 20


def test_boxes_of_a_model_do_not_go_back_from_a_mixed_batch(painted: Folder, device: str) -> None:
    reader = da.CocoReader(*painted)
    mixing: list[list[da.Op]] = [[da.Mosaic()], [da.MixUp()], [da.CutMix()], [da.CopyPaste(p=1)]]
    for ops in (*mixing, [da.Mosaic(), da.MixUp(p=0)], [da.MixUp(), da.RandomErasing(p=1)]):
        batch = next(iter(da.Loader(reader, [da.Resize(SIZE), *ops], 8, device=device)))
        with pytest.raises(da.InputError, match=r"images of this batch are mixed .* batch\.boxes_in_source\(\)"):
            batch.to_source(batch.boxes)
        with pytest.raises(da.InputError, match="images of this batch are mixed"):
            da.CocoEvaluator(reader).update(batch, [{**each, "scores": each["labels"]} for each in batch.targets()])
    plain: list[list[da.Op]] = [
        [],
        [da.RandomErasing(p=1)],
        [da.Mosaic(until_epoch=0)],
        [da.MixUp(p=0)],
        [da.CutMix(p=0)],
    ]
    for ops in plain:
        batch = next(iter(da.Loader(reader, [da.Resize(SIZE), *ops], 8, device=device)))
        expected = batch.to_source(batch.boxes).where(batch.valid[..., None], 0)
        torch.testing.assert_close(batch.boxes_in_source(), expected, rtol=0, atol=1e-3)


def test_skipped_images_leave_layers_in_step(painted: Folder, device: str) -> None:
    (painted[0] / "03.png").write_bytes(b"no image")
    reader = da.CocoReader(*painted, columns=["bbox"])
    options: dict[str, Any] = {"on_error": "skip", "max_skipped": 1, "device": device, "train": False}
    with pytest.warns(UserWarning, match=r"03\.png"):
        batches = list(da.Loader(reader, [da.Resize(SIZE), da.Mosaic()], 8, **options))
    assert sum(map(len, batches)) == 20
    for batch in batches:
        real = batch.valid.cpu()
        x, y, w, h = batch.columns["bbox"][real].unbind(1)
        low, high = batch.boxes_in_source().cpu()[real].chunk(2, 1)
        assert (low > torch.stack([x, y], 1) - 0.01).all()
        assert (high < torch.stack([x + w, y + h], 1) + 0.01).all()


COPIES: dict[str, list[da.Op]] = {
    **MIXING,
    "copied twice": [da.CopyPaste(p=1, max_boxes=4, min_visibility=0, max_hidden=1)] * 2,
    "mosaic, copied": [
        da.Mosaic(p=1, min_visibility=0),
        da.CopyPaste(p=1, max_boxes=3, min_visibility=0, max_hidden=1),
    ],
}


@pytest.mark.parametrize("mixing", COPIES)
def test_masks_and_tight_boxes_are_of_one_copy(mixing: str) -> None:
    """An output of few images shows one several times: pixels of another copy of it are not the object's."""
    several = 0
    for seed in range(3):
        plain = coded_batch(seed, 3)
        rings = [[[x0, y0, x1, y0, x1, y1, x0, y1]] for own in plain.boxes for x0, y0, x1, y1 in own.tolist()]
        shapes = da.Shapes.of_segmentations(rings, tight=True)
        samples = da.batch(plain.source_images, plain.boxes, plain.labels, shapes=shapes, seed=seed)
        samples = samples.then(da.RandomHorizontalFlip(), da.Resize(SIZE), *COPIES[mixing])
        layers, views = layers_of(samples), samples._views
        for at, image in enumerate(samples.images):
            found, copy = origins(image), np.full(SIZE, -1)
            for (x0, y0, x1, y1), number in zip(layers.rectangle[at].astype(int), layers.copy[at], strict=True):
                copy[y0:y1, x0:x1] = number
            of_box = layers.copy[at, views.layer_of_box_or_first()[at][views.labels[at] >= 0]]
            objects = zip(samples.masks[at], samples.boxes[at], samples.labels[at].tolist(), of_box, strict=True)
            for mask, box, label, number in objects:
                x0, y0, x1, y1 = plain.boxes[label // 10][label % 10 - 1]
                expected = (found[..., 0] == label // 10) & (copy == number)
                expected &= (x0 <= found[..., 1]) & (found[..., 1] < x1) & (y0 <= found[..., 2]) & (found[..., 2] < y1)
                assert np.array_equal(mask, expected)
                rows, columns = np.nonzero(mask)
                tight = columns.min(), rows.min(), columns.max() + 1, rows.max() + 1
                assert np.abs(box - tight).max() <= NEAR  # what is covered moves a side only if it is farther off
            several += len(of_box) - len(np.unique(samples.labels[at]))
    assert several > 2 or mixing in ("cutmix", "copy", "erased")
