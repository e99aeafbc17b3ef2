"""da.fn.augment in a user's pipeline: as the loader does it, on painted rectangles, repeatable, with wrong input."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from dali_pipelines import Samples, given, make, outputs
from nvidia.dali import Pipeline, fn, pipeline_def, types
from painted import BLACK
from painted_files import Folder
from seeds import seeds, slow
from test_geometric_ops import EXACT, GEOMETRIC, SIZES, WHOLE_PIXELS

import detaug as da
from detaug.dali.augment import augment
from detaug.ops.filters import as_bytes
from detaug.testing import Painted, Result, assert_boxes_follow_pixels, paint


def run_augment(
    ops: Any, images: Samples, boxes: Samples | None, *columns: Samples, device: str = "cpu", **arguments: Any
) -> list[Samples]:
    """Return the outputs of one batch; the first of `columns` are the labels."""

    def nodes() -> Any:
        image, rows = given(images), None if boxes is None else given(boxes)
        labels, *others = [given(column) for column in columns] or [None]
        image = image.gpu() if device == "cuda" else image
        return da.fn.augment(image, rows, labels, ops, columns=others, **arguments)

    return outputs(make(nodes, len(images), device))


# ------------------------------------------------------------------------------------------------ the loader


def assert_as_loaded(
    ops: list[da.Op], data: Folder, batch_size: int, device: str, exact: bool = True, peek: bool = False
) -> None:
    """Compare each image of an epoch with that of a `Loader`: its boxes to 1e-4 px, labels exactly, and pixels.

    `exact`: pixels too; otherwise to half a level in the mean. `peek`: give the sizes in the files.
    """

    def nodes() -> Any:
        encoded, boxes, labels, image_ids = da.fn.coco(*data, shuffle=False)
        images = fn.decoders.image(encoded, device="mixed" if device == "cuda" else "cpu")
        shapes = fn.peek_image_shape(encoded) if peek else None
        return *da.fn.augment(images, boxes, labels, ops, shapes=shapes, return_matrix=True), image_ids

    pipe = make(nodes, batch_size, device)
    loader = da.Loader(da.CocoReader(*data), ops, batch_size, train=False, device=device)
    images = 0
    for batch in loader:
        expected = batch.to("cpu")
        for at, (image, boxes, labels, matrix, number) in enumerate(
            zip(*(each[: len(batch)] for each in outputs(pipe)), strict=True)
        ):
            height, width = expected.image_size[at].tolist()
            loaded = expected.images[at, :, :height, :width].numpy()
            image = image if image.shape[0] == 3 else image.transpose(2, 0, 1)
            target = expected.targets()[at]
            assert number == [target["image_id"].item()]
            off, level = np.abs(image.astype(float) - loaded), 1 if image.dtype == np.uint8 else 1 / 255
            assert not off.any() if exact else off.mean() < level / 2
            assert labels.tolist() == target["labels"].tolist()
            assert np.abs(boxes - target["boxes"].numpy()).max(initial=0) < 1e-4
            assert np.abs(matrix - expected.matrix[at].numpy()).max() < 1e-4
            images += 1
    assert images == len(da.CocoReader(*data))


RECIPES = {
    "evaluation": da.presets.evaluation((60, 80)),
    "several sizes": [da.Resize(60, max_size=80), da.Normalize()],
    "letterbox": [da.Resize((60, 80), letterbox="center")],
    "every stage": [
        da.Pad((3, 9)),
        da.CenterCrop((90, 90)),
        da.RandomHorizontalFlip(1.0),
        da.Resize((60, 80)),
        da.GaussianBlur(sigma=(1, 1), p=1),
        da.RandomInvert(p=1),
        da.Normalize(),
    ],
    "crop of the resized image": da.presets.imagenet_evaluation(60, 70),
    "channels last": [da.Resize((60, 80)), da.Normalize(memory_format="channels_last")],
    "mask": [da.Resize((60, 80)), da.RandomSolarize(threshold=100, p=1)],
}


@pytest.mark.parametrize(
    "recipe",
    [
        "several sizes",
        "every stage",
        "crop of the resized image",
        *slow("evaluation", "letterbox", "channels last", "mask"),
    ],
)
def test_as_the_loader_does_it(recipe: str, device: str, painted: Folder) -> None:
    """On a GPU Triton's kernels render the loader's images, and DALI's operators those of a user's pipeline."""
    assert_as_loaded(RECIPES[recipe], painted, 5, device, exact=device == "cpu")


def test_sizes_in_the_files(device: str, painted: Folder) -> None:
    assert_as_loaded(RECIPES["every stage"], painted, 5, device, exact=device == "cpu", peek=True)


def test_other_sizes_than_those_given_end_the_pipeline() -> None:
    def nodes() -> Any:
        shapes = given([np.array([40, 50]), np.array([40, 51])])
        return da.fn.augment(given(PHOTOS[:2]), None, None, [da.Resize((30, 40))], shapes=shapes)

    with pytest.raises(RuntimeError, match=r"Sample index: *1\n"):
        make(nodes, 2).run()


@pytest.mark.slow
@pytest.mark.parametrize(
    "ops", [da.presets.evaluation((300, 300)), [da.Resize(800, max_size=1333)]], ids=["300", "800"]
)
def test_photographs_as_the_loader_does_it(ops: list[da.Op], device: str, bccd: tuple[Path, Path]) -> None:
    assert_as_loaded(ops, bccd, 5, device, exact=device == "cpu")


# ---------------------------------------------------------------------------------------- painted rectangles


def in_a_pipeline(ops: list[da.Op], painted: Painted, _: Path, seed: int, device: str) -> Result:
    """Run the ops in a user's pipeline, on pixel boxes."""
    labels = [np.arange(1, 4)] * len(painted.images)
    arguments: dict[str, Any] = {"units": "pixels", "return_matrix": True, "seed": seed, "device": device}
    images, boxes, labels, matrix = run_augment(ops, painted.images, painted.boxes, labels, **arguments)
    last = [image if image.shape[2] == 3 else image.transpose(1, 2, 0) for image in images]
    return Result(last, boxes, labels, np.stack(matrix))


@pytest.fixture
def users_pipeline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `pipeline=True` of `assert_boxes_follow_pixels` mean a user's pipeline."""
    monkeypatch.setattr("detaug.testing.painted._loaded_result", in_a_pipeline)


@pytest.mark.usefixtures("users_pipeline")
@pytest.mark.parametrize("op", WHOLE_PIXELS, ids=repr)
def test_whole_pixels_stay_exact(op: da.Op, device: str) -> None:
    """Without a Resize."""
    arguments: dict[str, Any] = {"images": 16, "pipeline": True, "device": device}
    assert assert_boxes_follow_pixels(op, tolerance=EXACT, **arguments) >= 40


@pytest.mark.usefixtures("users_pipeline")
@pytest.mark.parametrize("op", [*GEOMETRIC[-3:], *slow(*GEOMETRIC[:-3])], ids=repr)
def test_each_op_and_a_resize(op: da.Op, device: str) -> None:
    assert assert_boxes_follow_pixels([op, da.Resize((220, 240))], images=16, pipeline=True, device=device) >= 24


@pytest.mark.usefixtures("users_pipeline")
@pytest.mark.parametrize("resize", [*SIZES[2:5], *slow(*SIZES[:2], *SIZES[5:])], ids=repr)
def test_each_resize(resize: da.Op, device: str) -> None:
    assert assert_boxes_follow_pixels([da.RandomHorizontalFlip(), resize], pipeline=True, device=device) == 24


@pytest.mark.usefixtures("users_pipeline")
@pytest.mark.parametrize("seed", seeds(2, 200))
def test_a_chain(seed: int, device: str) -> None:
    """1 to 6 ops, with and without a Resize, batches of 1, 4 and 32, of images with three boxes."""
    rng = np.random.default_rng(seed)
    ops = [GEOMETRIC[at] for at in rng.integers(len(GEOMETRIC), size=rng.integers(1, 7))]
    ops += [SIZES[rng.integers(len(SIZES))]] if seed % 3 else []
    images = 32 if seed % 25 == 7 else 1 if seed % 5 == 0 else 4
    assert_boxes_follow_pixels(
        ops, seed=seed, images=images, size=(120, 160), smallest=20, pipeline=True, device=device, min_boxes=0
    )


PIXEL_OPS = [da.ColorJitter(0.2, 0.2, 0.2, 0.05), da.GaussianBlur(p=0.5), da.RandomInvert(p=0.5), da.RandomGrayscale()]


@pytest.mark.usefixtures("users_pipeline")
@pytest.mark.parametrize("op", PIXEL_OPS, ids=repr)
@pytest.mark.parametrize("before", [[], *slow([da.RandomIoUCrop()], [da.RandomIoUCrop(), da.Resize((150, 200))])])
def test_pixel_ops_with_and_without_a_resize(op: da.Op, before: list[da.Op], device: str) -> None:
    assert assert_boxes_follow_pixels([*before, op], pipeline=True, device=device) >= 8


@pytest.mark.usefixtures("users_pipeline")
@pytest.mark.parametrize("name", ["ssd300", "retinanet", "yolo640"])
@pytest.mark.slow
def test_presets(name: str, device: str) -> None:
    ops = [op for op in getattr(da.presets, name)() if op.stage in ("view", "render") and not op.fills]
    assert assert_boxes_follow_pixels(ops, pipeline=True, device=device) >= 8


def test_without_a_resize_images_keep_their_sizes(device: str) -> None:
    sizes = [(40, 60), (61, 33), (128, 1), (2, 3)]
    photos = [np.random.default_rng(0).integers(0, 256, (*size, 3), np.uint8) for size in sizes]
    boxes = [np.float32([[0, 0, 1, 1]])] * 4
    for ops in ([], [da.RandomHorizontalFlip(0.0)]):
        images, after, labels = run_augment(ops, photos, boxes, device=device)
        assert all(map(np.array_equal, images, photos))
        assert [box.tolist() for box in after] == [[[0, 0, width, height]] for height, width in sizes]
        assert [label.tolist() for label in labels] == [[1]] * 4
    images, after, _ = run_augment([da.RandomHorizontalFlip(1.0), da.RandomInvert(p=1)], photos, boxes, device=device)
    assert all(np.array_equal(image, 255 - photo[:, ::-1]) for image, photo in zip(images, photos, strict=True))


# ------------------------------------------------------------------------------------- boxes, columns, matrix


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32])
def test_pixel_and_relative_boxes_are_the_same(dtype: type[np.generic]) -> None:
    painted = paint((120, 160), 4, 24, seed=2)
    labels = [np.arange(3)] * 4
    ops = [da.RandomZoomOut(fill=BLACK), da.RandomIoUCrop(), da.Resize((90, 90))]
    relative = [(boxes / (160, 120, 160, 120)).astype(np.float32) for boxes in painted.boxes]
    pixels = [boxes.astype(dtype) for boxes in painted.boxes]
    one = run_augment(ops, painted.images, relative, labels, seed=3)
    other = run_augment(ops, painted.images, pixels, labels, seed=3, units="pixels")
    for a, b in zip(one, other, strict=True):
        assert all(np.allclose(x, y, atol=1e-4) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("first", [0, -5, 2**40])
def test_columns_stay_in_step(first: int, device: str) -> None:
    """Labels of any whole numbers, track ids, pairs of floats, flags: each row names its box."""
    painted = paint((120, 160), 16, 24, seed=2)
    painted.boxes[5] = painted.boxes[5][:0]
    numbers = [np.arange(len(boxes)) + 10 * at for at, boxes in enumerate(painted.boxes)]
    labels = [each + first for each in numbers]
    columns = [
        [each + 2**60 for each in numbers],
        [np.stack([each / 2, each * 3], 1).astype(np.float32) for each in numbers],
        [(each % 2).astype(np.uint8) for each in numbers],
        [each.astype(np.float64)[:, None, None] for each in numbers],
    ]
    arguments: dict[str, Any] = {"units": "pixels", "return_matrix": True, "device": device}
    ops = [da.RandomIoUCrop(allow_no_crop=False), da.RandomHorizontalFlip(), da.Resize((90, 90))]
    _, boxes, labels, matrix, *after = run_augment(ops, painted.images, painted.boxes, labels, *columns, **arguments)
    assert [each[0].dtype for each in (labels, *after)] == [np.int64, np.int64, np.float32, np.uint8, np.float64]
    assert 5 < sum(map(len, boxes)) < 40
    for at in range(16):
        left = labels[at] - first - 10 * at  # the positions of the boxes that are left
        assert len(boxes[at]) == len(left)
        assert np.array_equal(after[0][at], left + 10 * at + 2**60)
        assert np.allclose(after[1][at], np.stack([left + 10 * at, 6 * (left + 10 * at)], 1) / 2)
        assert np.array_equal(after[2][at], (left + 10 * at) % 2)
        assert np.array_equal(after[3][at], (left + 10 * at)[:, None, None])
        corners = painted.boxes[at][left].reshape(-1, 2) @ matrix[at][:, :2].T + matrix[at][:, 2]
        hull = np.sort(corners.reshape(-1, 2, 2), 1).reshape(-1, 4).clip(0, 90)
        assert np.abs(hull - boxes[at]).max(initial=0) < 1e-2


@pytest.mark.parametrize("op", [da.RandomPerspective(0.4, p=1, fill=BLACK), da.RandomAffine(20, fill=BLACK)])
def test_the_matrix_leads_to_the_boxes(op: da.Op) -> None:
    painted = paint((120, 160), 8, 24, seed=2)
    labels = [np.arange(3)] * 8
    arguments: dict[str, Any] = {"units": "pixels", "return_matrix": True}
    outline = [op, da.Resize((200, 200))]
    _, boxes, labels, matrices = run_augment(outline, painted.images, painted.boxes, labels, **arguments)
    for given_boxes, after, left, matrix in zip(painted.boxes, boxes, labels, matrices, strict=True):
        square = np.eye(3)
        square[: len(matrix)] = matrix
        for (x0, y0, x1, y1), box in zip(given_boxes[left], after, strict=True):
            corners = square @ np.array([[x0, y0, 1], [x1, y0, 1], [x0, y1, 1], [x1, y1, 1]]).T
            points = corners[:2] / corners[2]
            hull = np.concatenate([points.min(1), points.max(1)]).clip(0, 200)
            assert (box[:2] >= hull[:2] - 0.1).all()
            assert (box[2:] <= hull[2:] + 0.1).all()


def test_without_boxes(device: str) -> None:
    photos = [np.full((40, 50, 3), 9, np.uint8)] * 3
    images, boxes, labels, matrix = run_augment([da.Resize((8, 9))], photos, None, device=device, return_matrix=True)
    assert [image.shape for image in images] == [(8, 9, 3)] * 3
    assert [(box.shape, box.dtype) for box in boxes] == [((0, 4), np.float32)] * 3
    assert [label.shape for label in labels] == [(0,)] * 3
    assert np.allclose(matrix[0], [[9 / 50, 0, 0], [0, 8 / 40, 0]])


@dataclass(frozen=True)
class DropClass(da.GeometricOp):
    """Drops the boxes of one class."""

    label: int

    def move(self, views: da.Views, drawn: Any) -> da.Views:
        return views.keep(views.labels != self.label)


@pytest.mark.parametrize("mixes", [False, True])
def test_an_op_sees_the_labels_that_were_given(mixes: bool) -> None:
    images = [np.zeros((40, 40, 3), np.uint8)] * 2
    boxes = [np.array([[0, 0, 1, 1], [0, 0, 0.5, 1]], np.float32), np.array([[0, 0, 1, 0.5]], np.float32)]
    labels, tracks = [np.array([5, 2], np.int32), np.array([5], np.int32)], [np.array([7, 8]), np.array([9])]
    ops = [DropClass(5), da.Resize((20, 20)), *([da.MixUp(p=1)] if mixes else [])]
    _, _, left, kept = run_augment(ops, images, boxes, labels, tracks)
    assert [each.tolist() for each in left] == ([[2], [2]] if mixes else [[2], []])
    assert [each.tolist() for each in kept] == ([[8], [8]] if mixes else [[8], []])


def test_boxes_without_labels_get_1() -> None:
    boxes = [np.zeros((0, 4), np.float32), np.float32([[0, 0, 1, 1]]), np.zeros(0, np.float32).reshape(0, 4)]
    _, _, labels = run_augment([], [np.zeros((9, 9, 3), np.uint8)] * 3, boxes)
    assert [label.tolist() for label in labels] == [[], [1], []]


# ------------------------------------------------------------------------------------------------ repeatable

RANDOM = [
    da.RandomZoomOut(p=0.5),
    da.RandomIoUCrop(),
    da.RandomHorizontalFlip(),
    da.Resize((24, 32)),
    da.ColorJitter(0.2, 0.2),
    da.GaussianBlur(p=0.5),
]


def sequence(data: Folder, seed: int = 0, device: str = "cpu", start: str | None = None, **arguments: Any) -> Pipeline:
    """Return a pipeline whose batches depend on the seed. `start`: a checkpoint."""

    @pipeline_def(
        **{"batch_size": 4, "num_threads": 2, "device_id": 0 if device == "cuda" else None, **arguments},
        checkpoint=start,
    )
    def training() -> Any:
        encoded, boxes, labels, image_ids = da.fn.coco(*data, seed=1)
        images = fn.decoders.image(encoded, device="mixed" if device == "cuda" else "cpu")
        images, boxes, labels, matrix = da.fn.augment(images, boxes, labels, RANDOM, seed=seed, return_matrix=True)
        return images, boxes, labels, matrix, image_ids

    return training()


def equal(one: list[Samples], other: list[Samples]) -> bool:
    pairs = [pair for a, b in zip(one, other, strict=True) for pair in zip(a, b, strict=True)]
    return all(map(np.array_equal, *zip(*pairs, strict=True)))


@pytest.fixture
def first_batches(painted: Folder, device: str) -> list[list[Samples]]:
    pipe = sequence(painted, device=device)
    return [outputs(pipe) for _ in range(8)]


SETTINGS = [
    {"prefetch_queue_depth": 1, "num_threads": 1},
    {"prefetch_queue_depth": 4},
    {"enable_conditionals": True},
]


@pytest.mark.parametrize("settings", [*SETTINGS, *slow({"enable_memory_stats": True})], ids=str)
def test_settings_change_nothing(
    settings: dict[str, Any], device: str, painted: Folder, first_batches: list[list[Samples]]
) -> None:
    pipe = sequence(painted, device=device, **settings)
    assert all(equal(outputs(pipe), batch) for batch in first_batches)


@pytest.mark.parametrize(
    "settings", [{}, *slow({"enable_conditionals": True, "prefetch_queue_depth": 4, "num_threads": 1})], ids=str
)
def test_the_older_executor_changes_nothing(settings: dict[str, Any], painted: Folder) -> None:
    pipe, older = sequence(painted), sequence(painted, exec_dynamic=False, **settings)
    assert all(equal(outputs(pipe), outputs(older)) for _ in range(8))


@pytest.mark.gpu
def test_the_older_executor_is_refused_on_a_gpu(painted: Folder) -> None:
    with pytest.raises(da.InputError, match=r"da\.fn needs a pipeline with exec_dynamic=True"):
        sequence(painted, device="cuda", exec_dynamic=False)


def test_checkpointing_changes_nothing_but_the_order_of_later_epochs(
    device: str, painted: Folder, first_batches: list[list[Samples]]
) -> None:
    """DALI's reader shuffles from the second epoch on in another way then."""
    pipe = sequence(painted, device=device, enable_checkpointing=True)
    assert all(equal(outputs(pipe), batch) for batch in first_batches[:6])


def test_a_pipeline_that_is_not_asynchronous_is_refused(painted: Folder) -> None:
    with pytest.raises(da.InputError, match=r"da\.fn needs a pipeline with exec_async=True"):
        sequence(painted, exec_dynamic=False, exec_async=False)


def test_the_seed_and_the_number_of_the_batch_decide(painted: Folder, first_batches: list[list[Samples]]) -> None:
    other = sequence(painted, seed=1)
    matrices = [np.stack(batch[3]) for batch in [*first_batches[:4], *(outputs(other) for _ in range(4))]]
    assert len({matrix.tobytes() for matrix in matrices}) == 8


@pytest.mark.parametrize("batches", [2, *slow(0, 1, 3, 6, 7, 13)])
def test_a_checkpoint_restores_it(batches: int, device: str, painted: Folder) -> None:
    """In the middle of an epoch of 6 batches, and in the second one."""
    stopped = sequence(painted, device=device, enable_checkpointing=True)
    for _ in range(batches):
        stopped.run()
    restored = sequence(painted, device=device, enable_checkpointing=True, start=stopped.checkpoint())
    for _ in range(7):
        assert equal(outputs(stopped), outputs(restored))


def test_a_pipeline_cannot_be_serialized(painted: Folder) -> None:
    with pytest.raises(RuntimeError, match=r"Could not serialize the operator: `nvidia\.dali\.fn\.python_function`"):
        sequence(painted).serialize()


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("flags", [[True, False, True, False], [False] * 4, [True] * 4])
def test_with_an_if(flags: list[bool], inside: bool, device: str) -> None:
    """`augment` in a branch, for some images, none and all, and after one."""
    painted = paint((60, 80), 4, 24, seed=2)
    labels = [np.arange(1, 4)] * 4
    ops = [da.RandomHorizontalFlip(1.0), da.Resize((30, 40)), da.GaussianBlur(sigma=(1, 1), p=1.0)]

    @pipeline_def(batch_size=4, num_threads=2, device_id=0 if device == "cuda" else None, enable_conditionals=True)
    def training() -> Any:
        images, boxes, numbers = given(painted.images), given(painted.boxes), given(labels)
        images = images.gpu() if device == "cuda" else images
        if given([np.array(flag) for flag in flags]):
            images = fn.cast(255 - images, dtype=types.UINT8)
            if inside:
                images, boxes, numbers = da.fn.augment(images, boxes, numbers, ops, units="pixels")
            else:
                boxes = fn.cast(boxes, dtype=types.FLOAT)
        else:
            images, boxes = fn.copy(images), fn.cast(boxes, dtype=types.FLOAT)
        if inside:
            return images, boxes, numbers
        return da.fn.augment(images, boxes, numbers, ops, units="pixels")

    images, boxes, left = outputs(training())
    plain = run_augment(ops, painted.images, painted.boxes, labels, units="pixels", device=device)
    black = [255 - each for each in painted.images]
    inverted = run_augment(ops, black, painted.boxes, labels, units="pixels", device=device)
    for at, flag in enumerate(flags):
        if inside and not flag:
            assert np.array_equal(images[at], painted.images[at])
            assert np.array_equal(boxes[at], painted.boxes[at])
        else:
            assert np.abs(images[at].astype(int) - (inverted if flag else plain)[0][at]).max() <= (device == "cuda")
            assert np.array_equal(boxes[at], plain[1][at])
        assert left[at].tolist() == [1, 2, 3]


# ------------------------------------------------------------------------------------------------ bad input

PHOTOS = [np.zeros((40, 50, 3), np.uint8)] * 4
BOXES = [np.float32([[0.1, 0.1, 0.5, 0.5], [0.2, 0.3, 0.9, 0.9]])] * 4
LABELS = [np.array([1, 2])] * 4
PLACE = r"^da\.fn\.augment, batch 0: sample 2: "


def third(samples: Samples, wrong: Any) -> Samples:
    """Return the samples with another one in the third place."""
    return [*samples[:2], np.ascontiguousarray(wrong, samples[0].dtype), *samples[3:]]


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"labels": third(LABELS, [1])}, r"labels must have a row for each of 2 boxes, got shape \(1,\)"),
    ({"track": third(LABELS, [1, 2, 3])}, r"columns\[0\] must have a row for each of 2 boxes, got shape \(3,\)"),
    (
        {"track": third([np.zeros((2, 2))] * 4, np.zeros((2, 3)))},
        r"columns\[0\] must have rows of one length, got shapes \(2, 2\) and \(2, 3\)",
    ),
    ({"boxes": third(BOXES, [[0.1, 0.1, 0.5, 0.5], [0.1, np.nan, 0.5, 0.5]])}, r"boxes must be finite.*, nan, "),
    ({"boxes": third(BOXES, [[0.1, 0.1, np.inf, 0.5]] * 2)}, r"boxes must be finite numbers, got \[.*inf"),
    ({"boxes": third(BOXES, [[0.5, 0.1, 0.1, 0.5]] * 2)}, r"boxes must be XYXY with x0 <= x1 .*, got \[0\.5, "),
    (
        {"boxes": third(BOXES, [[0.5, 0.1, 20, 0.5]] * 2)},
        r"boxes must be relative to their image, in 0\.\.1; for pixels",
    ),
    ({"boxes": third(BOXES, [[-0.1, 0.1, 0.3, 0.5]] * 2)}, r"boxes must be relative to their image, in 0\.\.1; for"),
    (
        {"boxes": [np.zeros((2, 4)), *[np.zeros((2, 5))] * 3]},
        r"sample 1: boxes must be \(M, 4\) XYXY, got shape \(2, 5",
    ),
    (
        {"boxes": [20 * each for each in BOXES], "units": "pixels", "images": third(PHOTOS, np.zeros((9, 9, 3)))},
        r"sample 2: boxes must be in the pixels of their image of 9 x 9; for 0\.\.1 give units='relative'",
    ),
    (
        {"units": "pixels"},
        r"sample 0: boxes must be pixels, but all are within 0\.\.1; for these give units='relative'",
    ),
    (
        {"images": [each.astype(np.float32) for each in PHOTOS]},
        r"0: images must be .* uint8 RGB, got shape \(40, 50, 12\)",
    ),
    (
        {"images": third(PHOTOS, np.zeros((40, 50, 4)))},
        r"images must be \(H, W, 3\) uint8 RGB, got shape \(40, 50, 4\)",
    ),
    (
        {"images": third(PHOTOS, np.zeros((40, 50, 1)))},
        r"images must be \(H, W, 3\) uint8 RGB, got shape \(40, 50, 1\)",
    ),
    (
        {"images": [each[..., 0].copy() for each in PHOTOS]},
        r"0: images must be \(H, W, 3\) uint8 RGB, got shape \(40, 50\)",
    ),
]


def wrong_pipeline(batches: int = 0, **changes: Any) -> Pipeline:
    """Return a pipeline with wrong samples after `batches` good batches."""
    right = {"images": PHOTOS, "boxes": BOXES, "labels": LABELS, "track": LABELS}
    units, ops = changes.pop("units", "relative"), changes.pop("ops", [da.RandomHorizontalFlip(), da.Resize((8, 8))])
    sources = [[right[name]] * batches + [changes.get(name, right[name])] * 4 for name in right]

    def nodes() -> Any:
        images, boxes, labels, track = (fn.external_source(each, cycle=True) for each in sources)
        return augment(images, boxes, labels, ops, columns=[track], units=units)

    return make(nodes, len(changes.get("images", PHOTOS)))


NAMES = ("images", "boxes", "labels", "track")


@pytest.mark.parametrize(("changes", "message"), WRONG)
def test_wrong_samples(changes: dict[str, Any], message: str) -> None:
    """The error names batch and sample: an InputError of the iterator, and DALI's with the same text."""
    with pytest.raises(da.InputError, match=r"^da\.fn\.augment, batch 0: sample \d: ") as ours:
        next(da.DaliIterator(wrong_pipeline(**changes), NAMES))
    assert ours.match(message)
    assert "2: " in message or "sample 2" in str(ours.value) or ours.match(r"sample [01]: ")
    with pytest.raises(RuntimeError, match=r"Error in CPU operator `nvidia\.dali\.fn\.python_function`") as theirs:
        wrong_pipeline(**changes).run()
    assert str(ours.value) in str(theirs.value)


def test_the_batch_of_a_wrong_sample_is_named() -> None:
    iterator = da.DaliIterator(wrong_pipeline(2, labels=third(LABELS, [1])), NAMES)
    assert [len(next(iterator)) for _ in range(2)] == [4, 4]
    with pytest.raises(da.InputError, match=r"^da\.fn\.augment, batch 2: sample 2: labels must have a row"):
        next(iterator)


def test_a_mixing_op_with_a_batch_of_one() -> None:
    one = {"images": PHOTOS[:1], "boxes": BOXES[:1], "labels": LABELS[:1], "track": LABELS[:1]}
    for _ in range(2):
        pipe = wrong_pipeline(**one, ops=[da.Resize((8, 8)), da.MixUp()])
        with pytest.raises(
            da.InputError, match="batch 0: MixUp combines images of a batch, which must have at least 2"
        ):
            next(da.DaliIterator(pipe, NAMES))


@dataclass(frozen=True)
class Breaks(da.PixelOp):
    """Fails in one of its methods."""

    where: str

    def draw(self, rng: np.random.Generator, n: int) -> Any:
        if self.where == "draw" and n > 1:
            raise ValueError("no luck")
        return {"number": np.zeros(n)}

    def cpu_kernel(self, views: Any) -> Any:
        def kernel(image: torch.Tensor, number: Any) -> torch.Tensor:
            raise ValueError("no luck")

        return kernel if self.where == "cpu_kernel" else None

    def dali_graph(self, image: Any, planned: Any, views: Any) -> Any:
        wide = fn.pad(planned["number"], axes=[0], shape=[1])
        return as_bytes(fn.slice(image, wide, fn.cast_like(wide + 10000, wide), axes=[0], normalized_anchor=False))


@pytest.mark.parametrize("where", ["draw", "cpu_kernel", "dali_graph"])
def test_an_op_that_fails_is_named(where: str) -> None:
    pipe = wrong_pipeline(ops=[da.Resize((8, 8)), Breaks(where)])
    with pytest.raises(da.OpError, match=rf"Breaks \(2nd op of the recipe\) failed in {where}") as error:
        next(da.DaliIterator(pipe, NAMES))
    assert where == "dali_graph" or "no luck" in str(error.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"ops": [da.RandomInvert(), da.Resize((8, 8))]}, r"RandomInvert \(1st\) must come after Resize \(2nd\)"),
        ({"ops": [da.Resize((8, 8)), da.Mosaic(until_epoch=3)]}, "Mosaic has until_epoch=3, but a DALI pipeline"),
        (
            {"ops": [da.Resize((8, 8)), da.MixUp()], "return_matrix": True},
            "return_matrix must be False with MixUp, since an image that is mixed of several has no one matrix",
        ),
        ({"seed": -1}, "seed must be a whole number of at least 0, below 2"),
        ({"seed": 2**63}, "seed must be a whole number of at least 0, below 2"),
        ({"seed": 0.5}, "seed must be a whole number of at least 0, below 2"),
        ({"units": "xyxy"}, "units must be 'relative' or 'pixels', got 'xyxy'"),
        ({"columns": "track"}, "columns must be a list of nodes, got 'track'"),
        ({"columns": [np.zeros(2)]}, r"columns\[0\] must be the output of a DALI operator, got 'ndarray'"),
        ({"images": PHOTOS}, "images must be the output of a DALI operator, got 'list'"),
        ({"boxes": None}, "labels must come with boxes, got boxes=None"),
        ({"boxes": "boxes"}, "boxes must be the output of a DALI operator, got 'str'"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], message: str) -> None:
    def nodes() -> Any:
        right = {"images": given(PHOTOS), "boxes": given(BOXES), "labels": given(LABELS), "ops": []}
        return da.fn.augment(**{**right, **arguments})

    with pytest.raises(da.InputError, match=message):
        make(nodes)


@pytest.mark.parametrize("ops", ["ssd300", da.Resize((8, 8)), [da.Resize], None])
def test_what_is_no_recipe(ops: Any) -> None:
    with pytest.raises(TypeError, match="a recipe is"):
        make(lambda: da.fn.augment(given(PHOTOS), given(BOXES), given(LABELS), ops))


@pytest.mark.gpu
def test_boxes_on_a_gpu_are_refused() -> None:
    with pytest.raises(da.InputError, match="boxes must be on the CPU, got 'a node on the GPU'"):
        make(lambda: da.fn.augment(given(PHOTOS), given(BOXES).gpu(), given(LABELS), []), device="cuda")
