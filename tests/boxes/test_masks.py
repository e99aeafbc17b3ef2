"""Masks against painted objects, against other rasterizers, and against the pixels that ops leave of them."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from pycocotools import mask as coco_masks
from reference import torchvision_part
from seeds import seeds
from test_tight_boxes import BLACK, RECIPES, RESIZE, SIZE, blob, code_of, paint

import detaug as da
from detaug.boxes.layers import ERASED
from detaug.boxes.masks import objects_of, pixel_grid, rasterise
from detaug.boxes.placement import Placement

Array = NDArray[Any]
CODES = 7
SHAPES = da.CopyPaste(p=1, masks=True)
FURTHER: dict[str, list[da.Op]] = {
    "flips": [da.RandomHorizontalFlip(), da.RandomVerticalFlip(), da.RandomRotate90(), RESIZE],
    "letterbox": [da.Resize((300, 300), letterbox="center", fill=BLACK)],
    "zoom out": [da.RandomIoUCrop(), da.RandomZoomOut(p=1, fill=BLACK), RESIZE],
    "jitter and pad": [da.Pad(20, fill=BLACK), da.ScaleJitter((200, 200), fill=BLACK)],
    "cut and mixed": [RESIZE, da.CutMix(p=1)],
    "pasted": [RESIZE, da.CopyPaste(p=1)],
    "pasted shapes": [RESIZE, SHAPES],
    "mixed shapes": [da.RandomRotation(30, fill=BLACK), RESIZE, da.Mosaic(p=1), SHAPES, da.CutMix(p=1), SHAPES],
    "erased": [RESIZE, da.RandomErasing(p=1, value=BLACK)],
    "grid": [RESIZE, da.GridMask(p=1, value=BLACK)],
    "mixed": [da.RandomRotation(30, fill=BLACK), RESIZE, da.Mosaic(p=1), da.CopyPaste(p=1), da.CutMix(p=1)],
}
CHAIN: list[da.Op] = [
    da.RandomHorizontalFlip(),
    da.RandomRotate90(),
    da.RandomRotation(40, fill=BLACK),
    da.RandomAffine(degrees=20, scale=(0.7, 1.4), translate=(0.1, 0.1), shear=10, fill=BLACK),
    da.RandomPerspective(distortion_scale=0.4, p=1, fill=BLACK),
    da.RandomIoUCrop(scaling=(0.7, 1)),  # a part of a pixel in the source is then at most one in the output
    da.RandomCrop((160, 210), fill=BLACK),
    da.RandomZoomOut(max_ratio=2, fill=BLACK),
]
AFTER: list[da.Op] = [
    da.Mosaic(),
    da.CutMix(),
    da.CopyPaste(),
    da.CopyPaste(masks=True),
    da.RandomErasing(value=BLACK),
    da.GridMask(value=BLACK),
]


def painted(seed: int, **arguments: Any) -> da.Samples:
    """Return seven images with an object each, of one or two rings, in colors of their own."""
    rng = np.random.default_rng(seed)
    rings = [[blob(rng) for _ in range(1 + number % 2)] for number in range(CODES)]
    points = [np.concatenate(each) for each in rings]
    shapes = da.Shapes.of_segmentations([[ring.ravel().tolist() for ring in each] for each in rings])
    return da.batch(
        [paint(each, number) for number, each in enumerate(rings)],
        [[[*each.min(0), *each.max(0)]] for each in points],
        [[number + 1] for number in range(CODES)],
        shapes=shapes,
        seed=seed,
        **arguments,
    )


def masks_of(samples: da.Samples, image: int) -> Array:
    """Return (M, H, W): the masks of the boxes that are left."""
    counts = [len(boxes) for boxes in samples.boxes]
    first = sum(counts[:image])
    objects = samples._moved.objects.part(slice(first, first + counts[image]))
    return rasterise(samples.shapes.mask_table, objects, pixel_grid(*samples.images[image].shape[:2], 1))


def masks_of_layers(samples: da.Samples, image: int) -> tuple[Array, Array]:
    """Return the sources (L,) of an image's layers and (L, H, W) what shows their objects, also those without a box."""
    layers = samples._moved.placement.layers
    shown = np.flatnonzero(layers.image[image] > ERASED)
    sources = image + layers.image[image, shown]
    field = samples._moved.placement.field
    objects = objects_of(Placement(layers, np.full(len(shown), image), shown, sources, field))
    return sources, rasterise(samples.shapes.mask_table, objects, pixel_grid(*samples.images[image].shape[:2], 1))


def inner(wrong: Array) -> Array:
    """Return the pixels of a plane whose four neighbors are set too."""
    padded = np.pad(wrong, 1)
    around = [padded[:-2, 1:-1], padded[2:, 1:-1], padded[1:-1, :-2], padded[1:-1, 2:]]
    return np.asarray(wrong & np.logical_and.reduce(around))


def check_pixels(samples: da.Samples) -> tuple[int, int]:
    """Assert that masks are what is painted; return how many, and how many pixels of outlines differ."""
    masks, differing = 0, 0
    for number, (image, labels) in enumerate(zip(samples.images, samples.labels, strict=True)):
        shares, own = image.astype(float) / 255, masks_of(samples, number)
        sources, planes = masks_of_layers(samples, number)
        for source in set(sources.tolist()):
            seen = np.where(code_of(source), shares, 1 - shares).min(2) > 0.5
            wrong = seen ^ planes[sources == source].any(0)
            assert not inner(wrong).any(), f"image {number}, source {source}: {inner(wrong).sum()} pixels, {samples}"
            assert not inner(own[labels == source + 1].any(0) & ~seen).any()
            masks += 1
            differing += int(wrong.sum())
        assert set((labels - 1).tolist()) <= set(sources.tolist())
    return masks, differing


@pytest.mark.parametrize("recipe", [*RECIPES, *FURTHER])
def test_masks_are_what_is_painted(recipe: str, device: str) -> None:
    masks, differing = check_pixels(painted(5, device=device).then(*{**RECIPES, **FURTHER}[recipe]))
    assert masks >= 6
    assert differing / masks < 400


@pytest.mark.parametrize("seed", seeds(4, 100))
def test_masks_follow_random_chains(seed: int) -> None:
    rng = np.random.default_rng(seed)
    before = [CHAIN[at] for at in rng.choice(len(CHAIN), rng.integers(1, 4), replace=False)]
    after = [AFTER[at] for at in rng.choice(len(AFTER), rng.integers(0, 3), replace=False)]
    check_pixels(painted(seed).then(*before, RESIZE, *after))


def test_whole_pixels_stay_whole(device: str) -> None:
    rng = np.random.default_rng(0)
    images, boxes, segmentations = [], [], []
    for number in range(6):
        x, y, width, height = rng.integers((5, 5, 20, 20), (60, 40, 60, 50)).tolist()
        corner = [x, y, x + width, y, x + width, y + height // 2, x + width // 2, y + height // 2]
        ring = [*corner, x + width // 2, y + height, x, y + height]
        image = np.zeros((100, 130, 3), np.uint8)
        image[y : y + height // 2, x : x + width] = image[y : y + height, x : x + width // 2] = 255
        images.append(image)
        boxes.append([[x, y, x + width, y + height]])
        runs = coco_masks.encode(np.asfortranarray(image[..., 0] > 0))
        segmentations.append([ring] if number % 2 else {"size": [100, 130], "counts": runs["counts"].decode()})
    shapes = da.Shapes.of_segmentations(segmentations)
    samples = da.batch(images, boxes, shapes=shapes, seed=1, device=device)
    flips = [da.RandomHorizontalFlip(), da.RandomVerticalFlip(), da.RandomRotate90()]
    moved = samples.then(*flips, da.Pad(7, fill=BLACK), da.RandomCrop((90, 90), fill=BLACK))
    for number, image in enumerate(moved.images):
        for mask in masks_of(moved, number):
            assert np.array_equal(mask, image[..., 0] > 0)


def exact(rings: list[Array], height: int, width: int) -> Array:
    """Return the mask of rings of whole numbers of 1/256 pixel: even-odd at pixel centers, union over rings."""
    mask = np.zeros((height, width), bool)
    y, x = np.mgrid[:height, :width] * 256 + 128
    for ring in rings:
        inside = np.zeros_like(mask)
        for (x0, y0), (x1, y1) in zip(ring, np.roll(ring, -1, 0), strict=True):
            left = (x - x0) * (y1 - y0) - (y - y0) * (x1 - x0)
            inside ^= ((y0 <= y) != (y1 <= y)) & (left * np.sign(y1 - y0) >= 0)
        mask |= inside
    return mask


@pytest.mark.parametrize("seed", seeds(4, 60))
def test_rings_are_filled_exactly(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rings = [
        [rng.integers(-2000, 20000, (rng.integers(3, 12), 2)) for _ in range(rng.integers(1, 4))] for _ in range(5)
    ]
    shapes = da.Shapes.of_segmentations([[(ring / 256).ravel().tolist() for ring in each] for each in rings])
    samples = da.batch([np.zeros((70, 60, 3), np.uint8)] * 5, [[[0, 0, 60, 70]]] * 5, shapes=shapes)
    for number, each in enumerate(rings):
        assert np.array_equal(masks_of(samples, number)[0], exact(each, 70, 60))


@pytest.mark.filterwarnings("ignore:__array__ implementation")
def test_masks_and_those_of_pycocotools() -> None:
    rng = np.random.default_rng(0)
    rings = [blob(rng) for _ in range(40)]
    shapes = da.Shapes.of_segmentations([[ring.ravel().tolist()] for ring in rings])
    samples = da.batch([np.zeros((*SIZE, 3), np.uint8)] * 40, [[[0, 0, *SIZE[::-1]]]] * 40, shapes=shapes)
    ious, extra = [], []
    for number, ring in enumerate(rings):
        theirs = coco_masks.decode(coco_masks.frPyObjects([ring.ravel().tolist()], *SIZE))[..., 0] > 0
        own = masks_of(samples, number)[0]
        ious.append((own & theirs).sum() / (own | theirs).sum())
        extra.append(int(own.sum()) - int(theirs.sum()))
    assert np.min(ious) > 0.985
    assert abs(np.mean(extra)) < 5


@pytest.mark.parametrize("seed", seeds(2, 20))
def test_runs_are_sampled_where_pixels_are(seed: int) -> None:
    rng = np.random.default_rng(seed)
    mask = np.kron(rng.random((10, 13)) < 0.5, np.ones((20, 20))) > 0
    runs = coco_masks.encode(np.asfortranarray(mask))
    shapes = da.Shapes.of_segmentations([{"size": list(SIZE), "counts": runs["counts"].decode()}])
    samples = da.batch([np.zeros((*SIZE, 3), np.uint8)], [[[0, 0, 260, 200]]], shapes=shapes, seed=seed)
    moved = samples.then(da.RandomHorizontalFlip(), da.RandomPerspective(p=1), RESIZE)
    (own,) = masks_of(moved, 0)
    y, x = (np.mgrid[: own.shape[0], : own.shape[1]] + 0.5).reshape(2, -1)
    to_source = np.linalg.inv(moved.matrix[0])
    source = to_source @ np.stack([x, y, np.ones_like(x)])
    column, row = np.floor(source[:2] / source[2]).astype(int)
    inside = (column >= 0) & (column < 260) & (row >= 0) & (row < 200)
    expected = mask[row.clip(0, 199), column.clip(0, 259)] & inside
    assert (own.ravel() != expected).mean() < 2e-4


def test_colours_change_no_mask() -> None:
    plain = painted(0).then(da.RandomRotation(30), RESIZE)
    noisy = painted(0).then(da.RandomRotation(30), RESIZE, da.ColorJitter(), da.GaussianBlur(5), da.GaussianNoise())
    assert all(np.array_equal(masks_of(plain, number), masks_of(noisy, number)) for number in range(CODES))


# ------------------------------------------------------------------------------------------- the loader


def write_blobs(folder: Path, images: int = 6, objects: int = 3) -> Path:
    """Write images of noise and a JSON file of outlines: rings, RLE, corners, and a box alone."""
    rng = np.random.default_rng(0)
    entries: list[dict[str, Any]] = []
    for number in range(1, images + 1):
        Image.fromarray(rng.integers(0, 256, (*SIZE, 3), np.uint8)).save(folder / f"{number}.png")
        for at in range(objects):
            ring = blob(rng)
            low, high = ring.min(0), ring.max(0)
            box = [*low.tolist(), *(high - low).tolist()]
            entry = {"id": len(entries) + 1, "image_id": number, "category_id": at % 2 + 1, "bbox": box, "iscrowd": 0}
            mask = coco_masks.frPyObjects([ring.ravel().tolist()], *SIZE)[0]
            runs = {"size": list(SIZE), "counts": mask["counts"].decode()}
            entries.append(entry | {"segmentation": [ring.ravel().tolist()] if at % 2 == 0 else runs})
    sides = {"width": SIZE[1], "height": SIZE[0]}
    document = {
        "images": [{"id": at, "file_name": f"{at}.png"} | sides for at in range(1, images + 1)],
        "categories": [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}],
        "annotations": entries,
    }
    path = folder / "blobs.json"
    path.write_text(json.dumps(document))
    return path


RECIPE = [da.RandomHorizontalFlip(), da.RandomIoUCrop(), da.Resize((96, 132))]


def first_batch(folder: Path, device: str = "cpu", recipe: list[da.Op] | None = None, **arguments: Any) -> da.Batch:
    reader = da.CocoReader(folder, write_blobs(folder), masks=True, **arguments)
    with da.Loader(reader, recipe or RECIPE, 6, device=device) as loader:
        batch = next(iter(loader))
    assert isinstance(batch, da.Batch)
    return batch


def test_what_batches_make_of_masks(tmp_path: Path, device: str) -> None:
    batch = first_batch(tmp_path, device)
    masks = batch.masks()
    assert masks.shape == (sum(batch.counts), 96, 132)
    assert masks.dtype == torch.bool
    assert masks.device == batch.boxes.device
    assert torch.equal(batch.masks(3), masks[:, 1::3, 1::3])
    padded = batch.masks(2, padded=True)
    assert torch.equal(padded[batch.valid], batch.masks(2))
    assert not padded[~batch.valid].any()
    areas = masks.sum((1, 2))
    first = 0
    for instances, classes, labels, count in zip(
        batch.instance_map(), batch.semantic_map(), batch.labels, batch.counts, strict=True
    ):
        own = masks[first : first + count]
        expected = torch.full_like(instances, -1)
        for place in sorted(range(count), key=lambda place: -int(areas[first + place])):
            expected[own[place]] = place
        assert torch.equal(instances, expected)
        named = torch.cat([labels, labels.new_zeros(1)])[expected.long()]
        assert torch.equal(classes, torch.where(expected < 0, 0, named))
        first += count
    real = batch.boxes[batch.valid]
    rows = torch.arange(len(real))
    whole = torch.tensor([[0.0, 0.5, 132, 96.5]]).expand(len(real), 4)  # centers of pixels
    assert torch.equal(batch.roi_masks(whole, rows, 4), masks[:, 12::24][:, :, [16, 49, 82, 115]])
    tight = batch.roi_masks(real, rows)
    assert tight.shape == (len(real), 28, 28)
    share = areas / (real[:, 2:] - real[:, :2]).prod(1)
    assert (tight.float().mean((1, 2)) - share).abs().max() < 0.05
    for wrong in (rows - 1, rows + 1):  # -1: a proposal that was matched with no object
        with pytest.raises(da.InputError, match=f"places among {len(real)} masks, from 0, got {wrong.min()} to"):
            batch.roi_masks(real, wrong)


def test_polygons_are_the_outlines_of_masks(tmp_path: Path) -> None:
    batch = first_batch(tmp_path, recipe=[da.Resize((96, 132))])
    polygons, masks = batch.polygons, batch.masks()
    for at, mask in enumerate(masks):
        rings = range(int(polygons.first_ring[at]), int(polygons.first_ring[at + 1]))
        points = [polygons.points[polygons.first_point[ring] : polygons.first_point[ring + 1]] for ring in rings]
        assert np.array_equal(exact([np.floor(each.numpy() * 256 + 0.5).astype(int) for each in points], 96, 132), mask)


def test_batches_with_masks_can_be_saved_and_moved(tmp_path: Path) -> None:
    batch = first_batch(tmp_path)
    again = pickle.loads(pickle.dumps(batch))
    assert torch.equal(again.masks(), batch.masks())
    assert torch.equal(batch.clone().to("cpu").masks(), batch.masks())


def test_trainers_get_masks(tmp_path: Path, device: str) -> None:
    batch = first_batch(tmp_path, device, [da.Resize(96), da.Normalize()])
    masks, height, width = batch.masks().split(batch.counts), *batch.images.shape[-2:]
    targets = batch.targets(masks=True)
    (_, _), detr = batch.as_detr(masks=True)
    two = batch.as_mask2former()
    hugging = batch.as_hf(masks=True)["labels"]
    for own, target, of_detr, of_hf, labels, floats in zip(
        masks, targets, detr, hugging, two["class_labels"], two["mask_labels"], strict=True
    ):
        assert target["masks"].dtype == torch.uint8
        for each in (target["masks"] > 0, of_detr["masks"], of_hf["masks"], floats > 0):
            assert torch.equal(each, own)
        assert torch.equal(of_detr["area"], own.sum((1, 2)).float())
        assert torch.equal(labels, target["labels"] - 1)
    yolo = batch.as_yolo("segment")
    assert yolo["masks"].shape == yolo["sem_masks"].shape == (6, height // 4, width // 4)
    small = batch.masks(4).split(batch.counts)
    for image in range(6):
        rows = yolo["batch_idx"] == image
        order = sorted(range(batch.counts[image]), key=lambda at, image=image: -int(small[image][at].sum()))
        assert torch.equal(yolo["cls"][rows, 0].long() + 1, batch.labels[image, order])
        expected = torch.zeros_like(yolo["masks"][image])
        for number, at in enumerate(order, 1):
            expected[small[image][at]] = number
        assert torch.equal(yolo["masks"][image], expected)
        classes = torch.cat([expected.new_zeros(1).float(), yolo["cls"][rows, 0]])
        assert torch.equal(yolo["sem_masks"][image], classes[expected.long()])


def test_trainers_get_masks_of_a_batch_without_objects(tmp_path: Path, device: str) -> None:
    made = first_batch(tmp_path, device, [da.Resize((96, 96)), da.SanitizeBoundingBoxes(min_size=96)])
    for batch in (made, made.clone(), pickle.loads(pickle.dumps(made)).to(device)):
        assert batch.boxes.shape == (6, 0, 4)
        assert batch.masks().shape == (0, 96, 96)
        assert [len(each["masks"]) for each in batch.targets(masks=True)] == [0] * 6
        assert [len(each) for each in batch.as_mask2former()["mask_labels"]] == [0] * 6
        yolo = batch.as_yolo("segment")
        assert yolo["bboxes"].shape == (0, 4)
        assert yolo["masks"].shape == yolo["sem_masks"].shape == (6, 24, 24)
    assert not yolo["masks"].any()
    assert not yolo["sem_masks"].any()


def change(path: Path, **entries: Any) -> Path:
    """Change the annotations of a JSON file: a value for each, None to leave the key out."""
    document = json.loads(path.read_text())
    for number, entry in enumerate(document["annotations"]):
        for name, values in entries.items():
            entry.pop(name, None)
            if (value := values(number, entry)) is not None:
                entry[name] = value
    path.write_text(json.dumps(document))
    return path


def test_corners_or_boxes_count_where_there_is_no_outline(tmp_path: Path) -> None:
    path = write_blobs(tmp_path)
    document = json.loads(path.read_text())
    boxes = [entry["bbox"] for entry in document["annotations"]]
    for number, entry in enumerate(document["annotations"]):
        if number % 3 == 0:
            del entry["segmentation"]
        elif number % 3 == 1:
            x, y, width, height = entry["bbox"]
            middle = [[x + width / 2, y], [x + width, y + height / 2], [x + width / 2, y + height], [x, y + height / 2]]
            entry["corners"], entry["segmentation"] = middle, None
    path.write_text(json.dumps(document))
    reader = da.CocoReader(tmp_path, path, masks=True)
    (batch,) = da.Loader(reader, [da.Resize(SIZE)], 6, device="cpu", train=False)
    areas = batch.masks().sum((1, 2)).tolist()
    for number, ((_, _, width, height), area) in enumerate(zip(boxes, areas, strict=True)):
        if number % 3 < 2:
            assert area == pytest.approx(width * height / (1 if number % 3 == 0 else 2), rel=0.03)


def test_a_json_of_boxes_has_no_masks(tmp_path: Path) -> None:
    path = change(write_blobs(tmp_path), segmentation=lambda *_: None)
    with pytest.raises(da.AnnotationError, match=r"no annotation has a segmentation.*leave out masks=True.*--model"):
        da.CocoReader(tmp_path, path, masks=True)
    reader = da.CocoReader(tmp_path, path)
    (batch,) = da.Loader(reader, [da.Resize(SIZE)], 6, device="cpu", train=False)
    with pytest.raises(da.InputError, match=r"no masks: make the reader with CocoReader\(..., masks=True\)"):
        batch.masks()
    with pytest.raises(da.InputError, match="stride must be a whole number of at least 1, got 0"):
        first_batch(tmp_path).masks(0)


def test_sources_with_masks_and_without_are_not_joined(tmp_path: Path) -> None:
    path = write_blobs(tmp_path)
    with_masks, without = (da.CocoReader(tmp_path, path, masks=masks) for masks in (True, False))
    with pytest.raises(da.InputError, match="sources must all be made with masks=True, or none"):
        da.ConcatReader([with_masks, without])
    joined = da.ConcatReader([with_masks, da.CocoReader(tmp_path, path, masks=True)])
    (batch,) = da.Loader(joined, [da.Resize(SIZE)], 12, device="cpu", train=False)
    masks = batch.masks()
    assert torch.equal(masks[: len(masks) // 2], masks[len(masks) // 2 :])


@pytest.mark.parametrize("segmentation", [[1, 2, 3], {"counts": [3]}, [["a"] * 6]])
def test_wrong_segmentations_are_named(segmentation: Any) -> None:
    with pytest.raises(da.InputError, match=r"segmentations\[1\]: "):
        da.Shapes.of_segmentations([[[0, 0, 5, 0, 5, 5]], segmentation])


def test_a_mask_is_no_segmentation() -> None:
    with pytest.raises(da.InputError, match=r"segmentations\[0\] must be rings .*got ndarray; pycocotools.mask.encode"):
        da.Shapes.of_segmentations([np.ones((10, 20), bool)])
    with pytest.raises(da.InputError, match=r"segmentations\[1\]: "):
        da.Shapes.of_segmentations([None, {"size": None, "counts": [12, 2, 186]}])


def test_outlines_of_arrays_and_tuples() -> None:
    """A ring is flat, or pairs; numbers may be NumPy's."""
    flat = np.array([1, 2, 9, 2, 9, 8.5])
    forms = [
        *(
            flat,
            flat.reshape(3, 2),
            flat.tolist(),
            tuple(flat),
            [flat],
            [flat.reshape(3, 2)],
            [flat.astype(np.float32)],
        ),
        *(
            ((1, 2), (9, 2), (9, 8.5)),
            [[(1, 2), (9, 2), (9, 8.5)]],
            [tuple(flat)],
            [[np.float64(each) for each in flat]],
        ),
    ]
    shapes = da.Shapes.of_segmentations(forms)
    assert shapes.outlines is not None
    assert shapes.outlines.points.reshape(-1, 6).tolist() == [[1, 2, 9, 2, 9, 8.5]] * len(forms)
    runs = {"size": np.array([10, 20]), "counts": np.array([12, 2, 186])}
    same = da.Shapes.of_segmentations([runs, {"size": (10, 20), "counts": [np.int64(12), 2, 186]}])
    assert same.outlines is not None
    assert same.outlines.runs.tolist() == [12, 14, 200] * 2
    for mask in (np.ones((10, 20), np.uint8), np.ones((2, 10, 20))):
        with pytest.raises(da.InputError, match=r"must be rings .*got ndarray; pycocotools.mask.encode"):
            da.Shapes.of_segmentations([mask])


def test_run_lengths_of_another_height() -> None:
    """Transposed, (20, 10) for (10, 20), the pixels would lie anywhere."""
    runs = [{"size": [*size], "counts": [12, 2, 186]} for size in ((10, 20), (20, 10))]
    pictures, boxes = [np.zeros((10, 20, 3), np.uint8)], [[[1, 2, 9, 9]]]
    right, wrong = (da.Shapes.of_segmentations([each]) for each in runs)
    assert da.batch(pictures, boxes, shapes=right).masks[0].sum() == 2
    with pytest.raises(da.InputError, match=r"segmentations\[0\] are of an image of height 20, its image has 10"):
        da.batch(pictures, boxes, shapes=wrong)
    both = da.Shapes.of_segmentations([[[0, 0, 5, 0, 5, 5]], runs[1]])
    with pytest.raises(da.InputError, match=r"segmentations\[1\] are of an image of height 20, its image has 10"):
        da.batch(pictures * 2, boxes * 2, shapes=both)


def test_corners_that_do_not_fit() -> None:
    for wrong in ([[[1, 1]]], [[["a", "b"]] * 4]):
        with pytest.raises(da.InputError, match=r"corners must be \(A, 4, 2\) finite numbers"):
            da.batch([np.zeros((10, 20, 3), np.uint8)], [[[1, 1, 9, 9]]], shapes=da.Shapes(corners=np.array(wrong)))


def test_corners_of_a_list_are_those_of_an_array() -> None:
    corners = [[[1, 1], [9, 1], [9, 9], [1, 9]]]
    given: list[Any] = [corners, np.array(corners)]
    for each in given:
        samples = da.batch([np.zeros((10, 20, 3), np.uint8)], [[[1, 1, 9, 9]]], shapes=da.Shapes(corners=each))
        flipped = samples.then(da.RandomHorizontalFlip(p=1)).corners[0]
        assert flipped.tolist() == [[[19, 1], [11, 1], [11, 9], [19, 9]]]


# ------------------------------------------------------------------------------- boxes that show nothing


@pytest.mark.parametrize(
    ("least", "turn"),
    [
        (1, [da.RandomRotation(30)]),
        (60, []),
        *(pytest.param(least, turn, marks=pytest.mark.slow) for least, turn in [(1, []), (900, [])]),
        *(pytest.param(least, [da.RandomRotation(30)], marks=pytest.mark.slow) for least in (60, 900)),
    ],
)
def test_boxes_stay_if_their_masks_show_enough(least: int, turn: list[da.Op]) -> None:
    crop, mosaic = da.RandomCrop((70, 80)), da.Mosaic(min_visibility=0)
    recipe = [*turn, da.RandomHorizontalFlip(), crop, RESIZE, mosaic]
    recipe += [da.RandomErasing(p=1, max_hidden=1)] if turn else []
    kept, dropped = 0, 0
    for seed in range(25):
        samples = painted(seed)
        both = [samples.then(*recipe, da.SanitizeBoundingBoxes(min_mask_area=area)) for area in (0, least)]
        for image in range(CODES):
            areas = masks_of(both[0], image).sum((1, 2))
            assert both[0].labels[image][areas >= least].tolist() == both[1].labels[image].tolist()
            kept, dropped = kept + len(both[1].labels[image]), dropped + int((areas < least).sum())
    assert kept > 300
    assert dropped >= (3 if least == 1 and turn else 10 if least > 1 else 1)


def test_a_box_without_a_visible_mask_is_dropped(tmp_path: Path, device: str) -> None:
    Image.fromarray(np.zeros((100, 100, 3), np.uint8)).save(tmp_path / "1.png")
    corner = [10, 10, 90, 10, 90, 20, 20, 20, 20, 90, 10, 90]
    entry = {"id": 1, "image_id": 1, "category_id": 1, "bbox": [10, 10, 80, 80], "segmentation": [corner]}
    document = {
        "images": [{"id": 1, "file_name": "1.png", "width": 100, "height": 100}],
        "categories": [{"id": 1, "name": "a"}],
        "annotations": [entry],
    }
    path = tmp_path / "a.json"
    path.write_text(json.dumps(document))
    recipe: list[da.Op] = [da.CenterCrop((50, 50)), da.Resize((50, 50))]
    for masks, further, boxes in (
        (False, [], 1),
        (True, [], 0),
        (True, [da.SanitizeBoundingBoxes(min_mask_area=0)], 1),
    ):
        reader = da.CocoReader(tmp_path, path, masks=masks)
        (batch,) = da.Loader(reader, [*recipe, *further], 1, device=device, train=False)
        assert batch.counts == (boxes,)
        assert batch.boxes.shape == (1, boxes, 4)
    assert not batch.masks().any()


def test_clips_have_masks(tmp_path: Path, device: str) -> None:
    path = write_blobs(tmp_path)
    document = json.loads(path.read_text())
    document["videos"] = [{"id": 1, "name": "v"}]
    for frame, image in enumerate(document["images"]):
        image.update(video_id=1, frame_id=frame)
    for number, entry in enumerate(document["annotations"]):
        entry["track_id"] = number % 3 + 1
    path.write_text(json.dumps(document))
    reader = da.ClipReader(tmp_path, path, frames=3, masks=True)
    loader = da.Loader(reader, RECIPE, 2, device=device)
    batch = next(iter(loader))
    assert isinstance(batch, da.ClipBatch)
    masks, images = batch.masks(), batch.as_images()
    assert len(masks) == int(batch.valid.sum())
    assert torch.equal(images.masks(), masks)
    padded = batch.masks(padded=True)
    assert padded.shape == (*batch.labels.shape, 96, 132)
    assert torch.equal(padded[batch.valid], masks)
    places = batch.instance_map()
    assert places.shape == (2, 3, 96, 132)
    shown = batch.labels.gather(2, places.clamp(min=0).flatten(2)).view(places.shape).where(places >= 0, 0)
    assert torch.equal(shown, batch.semantic_map())
    assert torch.equal(images.semantic_map(), batch.semantic_map().flatten(0, 1))


@pytest.mark.parametrize("frames", [0, 2])
def test_batches_without_a_box(tmp_path: Path, device: str, frames: int) -> None:
    """All that batches make of masks is empty or background."""
    path = tmp_path / "none.json"
    images = [{"id": at, "file_name": f"{at}.png", "width": 60, "height": 40} for at in range(4)]
    for at, image in enumerate(images):
        Image.new("RGB", (60, 40)).save(tmp_path / image["file_name"])
        image.update(video_id=1, frame_id=at)
    document = {"videos": [{"id": 1}], "images": images, "annotations": [], "categories": [{"id": 1, "name": "cat"}]}
    path.write_text(json.dumps(document))
    if frames:
        reader: Any = da.ClipReader(tmp_path, path, frames=frames, masks=True)
    else:
        reader = da.CocoReader(tmp_path, path, masks=True)
    ops = [da.Resize(40, max_size=90), da.Normalize()]
    batch = next(iter(da.Loader(reader, ops, 2, device=device, train=False)))
    axes = batch.labels.shape[:-1]
    height, width = batch.images.shape[-2:]
    assert batch.masks().shape == (0, height, width)
    assert batch.masks(padded=True).shape == (*axes, 0, height, width)
    assert (batch.instance_map() == -1).all()
    inside = batch.semantic_map()[..., :40, :60]
    assert inside.shape == (*axes, 40, 60)
    assert not inside.any()
    if not frames:
        assert [len(each["masks"]) for each in batch.targets(masks=True)] == [0, 0]
        assert not batch.as_yolo("segment")["masks"].any()


# ------------------------------------------------------------------------------------------- Compose


def random_masks(seed: int) -> tuple[Array, dict[str, Any]]:
    """Return an image and a target whose masks are blocks of random pixels."""
    rng = np.random.default_rng(seed)
    masks = np.zeros((3, *SIZE), np.uint8)
    boxes = [(10, 20, 90, 100), (100, 30, 250, 180), (0, 0, 260, 200)]
    for mask, (x0, y0, x1, y1) in zip(masks, boxes, strict=True):
        mask[y0:y1, x0:x1] = rng.random((y1 - y0, x1 - x0)) < 0.6
    target = {"boxes": torch.tensor(boxes).float(), "labels": torch.tensor([1, 2, 3]), "masks": torch.from_numpy(masks)}
    return rng.integers(0, 256, (*SIZE, 3), np.uint8), target


def test_compose_moves_masks_as_torchvision_does() -> None:
    tv_tensors = torchvision_part("torchvision.tv_tensors")
    v2 = torchvision_part("torchvision.transforms.v2")
    image, target = random_masks(0)
    given = {**target, "masks": tv_tensors.Mask(target["masks"])}
    flips = da.RandomHorizontalFlip(p=1), da.RandomVerticalFlip(p=1)
    _, moved = da.Compose([*flips, da.Pad(9), da.CenterCrop((150, 170))])(image, given)
    theirs = v2.Compose([v2.RandomHorizontalFlip(1), v2.RandomVerticalFlip(1), v2.Pad(9), v2.CenterCrop((150, 170))])
    expected = theirs(given["masks"])
    assert type(moved["masks"]) is tv_tensors.Mask
    assert torch.equal(moved["masks"], expected)
    assert moved["masks"].dtype == torch.uint8


def test_compose_drops_boxes_with_their_masks() -> None:
    image, target = random_masks(1)
    changed = {**target, "masks": target["masks"].bool().numpy(), "area": [1, 2, 3]}
    _, moved = da.Compose([da.CenterCrop((60, 40))])(image, changed)
    assert moved["labels"].tolist() == [2, 3]
    assert moved["area"] == [2, 3]
    assert moved["masks"].dtype == np.bool_
    assert np.array_equal(moved["masks"], changed["masks"][1:, 70:130, 110:150])


@pytest.mark.parametrize("dtype", [torch.uint8, torch.uint16, torch.bool, torch.float32])
@pytest.mark.parametrize("kind", ["tensor", "array", "Mask"])
def test_compose_keeps_the_values_of_masks(kind: str, dtype: torch.dtype) -> None:
    """Such as 255, or the number of an instance."""
    image, target = random_masks(1)
    masks = (target["masks"].int() * torch.tensor([7, 255, 3])[:, None, None]).to(dtype)
    given: Any = masks.numpy() if kind == "array" else masks
    if kind == "Mask":
        given = torchvision_part("torchvision.tv_tensors").Mask(masks)
    _, moved = da.Compose([da.CenterCrop((60, 40))])(image, {**target, "masks": given})
    assert type(moved["masks"]) is type(given)
    assert moved["masks"].dtype == given.dtype
    assert np.array_equal(np.asarray(moved["masks"]), masks[1:, 70:130, 110:150].numpy())


def test_compose_and_batches_give_the_same_masks() -> None:
    image, target = random_masks(2)
    recipe: list[da.Op] = [da.RandomRotation(30), da.RandomIoUCrop(), da.Resize((200, 200))]
    _, moved = da.Compose(recipe, seed=3)(image, target)
    runs = [coco_masks.encode(np.asfortranarray(mask))["counts"].decode() for mask in target["masks"].numpy()]
    shapes = da.Shapes.of_segmentations([{"size": list(SIZE), "counts": each} for each in runs])
    samples = da.batch([image], [target["boxes"]], [target["labels"]], shapes=shapes, seed=3).then(*recipe)
    assert np.array_equal(moved["masks"].numpy() > 0, masks_of(samples, 0))
