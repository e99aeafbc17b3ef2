"""One image at a time: the same as in batches, for each kind of image and target that datasets have."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch
from benchmark_scripts import load_script
from numpy.typing import NDArray
from painted import RESAMPLED, SIZE, paint, random_boxes, read_box
from painted_files import Folder
from PIL import Image
from reference import import_torchvision
from seeds import slow
from torch.utils.data import DataLoader, Dataset

import detaug as da
from detaug.boxes.views import Views
from detaug.pipelines.graph import Node, Nodes
from detaug.samples.annotations import _from_xyxy, _to_xyxy

GEOMETRY = [da.RandomIoUCrop(), da.RandomHorizontalFlip()]
RECIPES = {
    "kernels": [*da.presets.ssd300()],
    "own size": [da.RandomZoomOut(p=1), *GEOMETRY],
    "padded": [da.Resize((200, 300), letterbox="center"), da.ColorJitter(brightness=0.5)],
    "in a pipeline": [da.RandomRotation(20), da.Resize((150, 200)), da.GaussianBlur(p=1), da.RandomErasing(p=1)],
    "pipeline, then normalized": [*GEOMETRY, da.Resize((150, 200)), da.GaussianBlur(p=1), da.Normalize()],
    "channels last": [da.Resize((100, 150)), da.Normalize(memory_format="channels_last")],
    "bytes": [da.Resize((100, 150)), da.Normalize(dtype="uint8")],
}


def example(seed: int = 0) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    boxes = random_boxes(np.random.default_rng(seed), SIZE, 24)
    noise = np.random.default_rng(seed).integers(0, 60, (*SIZE, 3), dtype=np.uint8)
    return np.maximum(paint(SIZE, boxes), noise), boxes


def target_of(boxes: NDArray[Any], **more: Any) -> dict[str, Any]:
    return {"boxes": torch.tensor(boxes, dtype=torch.float32), "labels": torch.arange(1, len(boxes) + 1), **more}


@pytest.fixture
def v2() -> Any:
    """Return torchvision.transforms.v2."""
    try:
        import_torchvision()
        return import_module("torchvision.transforms.v2")
    except ImportError as error:
        pytest.skip(f"torchvision cannot be imported: {error}")


@pytest.fixture
def tv_tensors(v2: Any) -> Any:
    return import_module("torchvision.tv_tensors")


@pytest.fixture
def _newer_torchvision(tv_tensors: Any) -> None:
    if not hasattr(tv_tensors, "KeyPoints"):
        pytest.skip("keypoints and rotated boxes are in torchvision from 0.23 on")


# ------------------------------------------------------------------------------------------------ results


@pytest.mark.parametrize("name", RECIPES)
def test_a_seed_gives_what_it_gives_in_a_batch(name: str) -> None:
    image, boxes = example()
    for seed in range(3):
        samples = da.batch([image], [boxes], [[1, 2, 3]], seed=seed).then(*RECIPES[name])
        result, target = da.Compose(RECIPES[name], seed=seed)(image, target_of(boxes))
        expected = torch.from_numpy(samples.images[0])
        if "Normalize" in repr(RECIPES[name]):
            expected = expected.permute(2, 0, 1) if name == "channels last" else expected
        else:
            result = torch.from_numpy(result)
        assert result.dtype == expected.dtype
        assert torch.equal(result, expected)
        assert np.abs(target["boxes"].numpy() - samples.boxes[0]).max(initial=0) < 1e-4
        assert target["labels"].tolist() == samples.labels[0].tolist()


def test_results_are_those_of_the_loader(painted: Folder) -> None:
    ops = [da.RandomHorizontalFlip(p=1), da.RandomZoomOut(p=0), da.Resize((90, 120)), da.Normalize()]
    reader = da.CocoReader(*painted)
    batch = next(iter(da.Loader(reader, ops, 21, train=False, device="cpu")))
    assert batch.counts[-1] == 0
    transform = da.Compose(ops)
    for at, expected in enumerate(batch.targets()):
        image = Image.open(painted[0] / f"{at:02}.png")
        wide, tall = image.size
        sides = torch.tensor([wide / 120, tall / 90] * 2)
        unflipped = torch.stack([120 - expected["boxes"][:, 2], expected["boxes"][:, 1]], 1)
        unflipped = torch.cat([unflipped, 120 - expected["boxes"][:, :1], expected["boxes"][:, 3:]], 1)
        result, target = transform(image, {"boxes": unflipped * sides, "labels": expected["labels"]})
        assert torch.equal(result, batch.images[at])
        assert torch.allclose(target["boxes"], expected["boxes"], atol=1e-4)


def test_boxes_lie_on_the_painted_pixels() -> None:
    transform = da.Compose([*GEOMETRY, da.Resize((200, 300))])
    torch.manual_seed(0)
    for seed in range(20):
        boxes = random_boxes(np.random.default_rng(seed), SIZE, 40)
        image, target = transform(paint(SIZE, boxes), target_of(boxes))
        for box, label in zip(target["boxes"].numpy(), target["labels"].tolist(), strict=True):
            assert np.abs(read_box(image[:, :, label - 1].astype(float)) - box).max() <= RESAMPLED


# ------------------------------------------------------------------------------------------------ kinds of images


def to_tensor(image: NDArray[np.uint8]) -> torch.Tensor:
    return torch.from_numpy(image).permute(2, 0, 1)


KINDS: dict[str, tuple[Callable[[NDArray[np.uint8]], Any], float]] = {
    "PIL": (Image.fromarray, 1),
    "array": (np.ascontiguousarray, 1),
    "array, other strides": (np.asfortranarray, 1),
    "float32": (lambda image: image.astype(np.float32) / 255, 255),
    "float64": (lambda image: image.astype(np.float64) / 255, 255),
    "tensor": (to_tensor, 1),
    "tensor, float32": (lambda image: to_tensor(image).float() / 255, 255),
    "tensor, float16": (lambda image: to_tensor(image).half() / 255, 255),
}
"""How to make an image of each kind, and what its values are to be multiplied with for 0..255."""


def assert_same_kind(given: Any, result: Any, white: float, expected: NDArray[np.uint8]) -> None:
    assert type(result) is type(given)
    assert getattr(result, "dtype", None) == getattr(given, "dtype", None)
    pixels = result.permute(1, 2, 0).numpy() if isinstance(result, torch.Tensor) else np.array(result)
    assert np.abs(pixels.astype(float) * white - expected).max() <= (0 if white == 1 else 0.1)


@pytest.mark.parametrize("kind", KINDS)
def test_an_image_comes_back_as_what_it_was(kind: str) -> None:
    image, boxes = example()
    make, white = KINDS[kind]
    transform = da.Compose([da.RandomHorizontalFlip(p=1), da.Resize((90, 120))])
    expected, _ = transform(image, target_of(boxes))
    given = make(image)
    result, _ = transform(given, target_of(boxes))
    assert_same_kind(given, result, white, expected)
    assert_same_kind(given, given, white, image)


@pytest.mark.parametrize("kind", KINDS)
def test_normalised_images_are_tensors(kind: str) -> None:
    image, boxes = example()
    expected, _ = da.Compose([da.Resize((90, 120))])(image, target_of(boxes))
    transform = da.Compose([da.Resize((90, 120)), da.Normalize((0.5, 0.5, 0.5), (0.2, 0.2, 0.2))])
    result, _ = transform(KINDS[kind][0](image), target_of(boxes))
    assert type(result) is torch.Tensor
    assert (result - (to_tensor(expected) / 255 - 0.5) / 0.2).abs().max() < 1e-4


@pytest.mark.slow
def test_an_image_of_torchvision_stays_one(tv_tensors: Any) -> None:
    image, boxes = example()
    plain = da.Compose([da.Resize((90, 120))])
    expected, _ = plain(image, target_of(boxes))
    for given, white in ((tv_tensors.Image(to_tensor(image)), 1), (tv_tensors.Image(to_tensor(image) / 255), 255)):
        result, _ = plain(given, target_of(boxes))
        assert_same_kind(given, result, white, expected)
        normalised, _ = da.Compose([da.Resize((90, 120)), da.Normalize()])(given, target_of(boxes))
        assert (type(normalised), normalised.dtype) == (tv_tensors.Image, torch.float32)


# ------------------------------------------------------------------------------------------------ targets


@pytest.mark.slow
@pytest.mark.parametrize("form", ["XYXY", "XYWH", "CXCYWH"])
def test_bounding_boxes_keep_their_format(form: str, tv_tensors: Any, v2: Any) -> None:
    image, boxes = example()
    given = tv_tensors.BoundingBoxes(boxes, format="XYXY", canvas_size=SIZE, dtype=torch.float32)
    transform = da.Compose([da.RandomHorizontalFlip(p=1), da.Resize((90, 120))])
    _, plain = transform(image, target_of(boxes))
    converted = v2.functional.convert_bounding_box_format(given, new_format=tv_tensors.BoundingBoxFormat[form])
    _, target = transform(image, {"boxes": converted, "labels": torch.ones(3)})
    result = target["boxes"]
    assert isinstance(result, tv_tensors.BoundingBoxes)
    assert (result.format.value, result.canvas_size) == (form, (90, 120))
    back = v2.functional.convert_bounding_box_format(result, new_format=tv_tensors.BoundingBoxFormat.XYXY)
    assert torch.allclose(back.as_subclass(torch.Tensor), plain["boxes"], atol=1e-4)


def test_entries_with_a_row_for_each_box_lose_those_of_dropped_boxes() -> None:
    boxes = np.array([[0, 0, 20, 20], [90, 60, 110, 80], [180, 130, 200, 150]])  # the second is in the middle
    given = target_of(
        boxes,
        area=torch.tensor([1.0, 2.0, 3.0]),
        iscrowd=np.array([0, 1, 0]),
        names=["a", "b", "c"],
        corners=torch.arange(24).view(3, 8),
        image_id=torch.tensor([7, 8, 9]),
        orig_size=[1, 2, 3],
        file_name="abc",
        camera=torch.tensor([1.0, 2.0]),
        mean=torch.tensor([0.4, 0.5, 0.6]),
        weather=None,
        difficult=None,
    )
    image = np.zeros((150, 200, 3), np.uint8)
    _, target = da.Compose([da.CenterCrop((60, 60))], columns=["names", "corners"])(image, given)
    kept = {name: np.asarray(target[name]).tolist() for name in ("labels", "area", "iscrowd", "names", "corners")}
    assert kept == {"labels": [2], "area": [2], "iscrowd": [1], "names": ["b"], "corners": [list(range(8, 16))]}
    for name in ("image_id", "orig_size", "file_name", "camera", "mean", "weather", "difficult"):
        assert target[name] is given[name]
    assert list(target) == list(given)
    assert len(given["labels"]) == len(given["names"]) == 3


@dataclass(frozen=True)
class DropClass(da.GeometricOp):
    """Drops the boxes of one class."""

    label: int

    def move(self, views: da.Views, drawn: Any) -> da.Views:
        return views.keep(views.labels != self.label)


def test_an_op_sees_the_labels_that_were_given() -> None:
    image, labels = np.zeros((40, 40, 3), np.uint8), torch.tensor([5, 1, 2, 5])
    boxes = torch.tensor([[float(at), at, at + 9, at + 9] for at in range(4)])
    _, target = da.Compose([DropClass(5)])(image, {"boxes": boxes, "labels": labels, "area": torch.arange(4)})
    assert (target["labels"].tolist(), target["area"].tolist()) == ([1, 2], [1, 2])
    assert torch.equal(target["boxes"], boxes[1:3])
    _, target = da.Compose([DropClass(0)])(image, {"boxes": boxes, "labels": ["a", "b", "c", "d"]})
    assert target["labels"] == []


def test_labels_are_whole_numbers_from_1_or_names() -> None:
    image, boxes = example()
    for labels in (torch.tensor([1, 5, 91]), np.array([1.0, 2, 3]), np.array(["a", "b", "c"]), ["a", "b", "c"]):
        _, target = da.Compose([da.Resize((90, 120))])(image, {"boxes": boxes, "labels": labels})
        assert type(target["labels"]) is type(labels)
        assert list(target["labels"]) == list(labels)
        assert target["boxes"].dtype == np.float32


def test_an_array_that_cannot_be_written_is_no_reason_for_a_warning() -> None:
    image = np.zeros((40, 60, 3), np.uint8)
    image.flags.writeable = False
    torch.set_warn_always(True)  # torch warns of it once in a process
    try:
        for ops in ([], [da.Resize((30, 30))], [da.RandomHorizontalFlip(p=1)], [da.RandomRotation(9)]):
            da.Compose(ops)(image, {"boxes": np.zeros((0, 4)), "labels": []})
    finally:
        torch.set_warn_always(False)


@pytest.mark.parametrize("name", ["kernels", "in a pipeline"])
def test_images_without_boxes(name: str) -> None:
    image, _ = example()
    for empty in (torch.zeros(0, 4), torch.zeros(0), np.zeros((0, 4), np.float32)):
        _, target = da.Compose(RECIPES[name])(image, {"boxes": empty, "labels": torch.zeros(0, dtype=torch.int64)})
        assert (tuple(target["boxes"].shape), target["boxes"].dtype) == ((0, 4), empty.dtype)
        assert target["labels"].shape == (0,)


# ------------------------------------------------------------------------------------------------ randomness


class Examples(Dataset):
    """Twelve times the same image; an item is its boxes and pixels as one tensor."""

    def __init__(self, transform: Any) -> None:
        self.transform = transform

    def __len__(self) -> int:
        return 12

    def __getitem__(self, _: int) -> torch.Tensor:
        image, boxes = example()
        image, target = self.transform(image, target_of(boxes))
        return torch.cat([target["boxes"].sum()[None], torch.from_numpy(image).float().flatten()])


RANDOM = [da.RandomCrop((60, 60)), da.Resize((30, 30)), da.GaussianBlur(p=1)]
"""It needs DALI, in each worker."""


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")  # fork, from Python 3.12 on
@pytest.mark.parametrize("workers", [0, *slow(2)])
def test_torchs_seed_decides_in_every_worker(workers: int) -> None:
    transform = da.Compose(RANDOM)
    transform(example()[0], target_of(example()[1]))  # the parent has a pipeline of its own
    loader = DataLoader(Examples(transform), batch_size=3, num_workers=workers, timeout=60 * workers)

    def epoch(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        return torch.cat(list(loader))

    first = epoch(0)
    assert torch.equal(first, epoch(0))
    assert not torch.equal(first, epoch(1))
    assert len(first.unique(dim=0)) >= 11  # two of twelve crops may be the same


def test_a_seed_repeats_in_each_call() -> None:
    transform = da.Compose(RANDOM, seed=3)
    first, second = (Examples(transform)[0] for _ in range(2))
    assert torch.equal(first, second)
    assert not torch.equal(first, Examples(da.Compose(RANDOM, seed=4))[0])


def test_it_can_be_sent_to_a_worker_that_is_spawned() -> None:
    transform = da.Compose(RANDOM, seed=3)
    expected = Examples(transform)[0]
    copy = pickle.loads(pickle.dumps(transform))
    assert copy == transform
    assert torch.equal(Examples(copy)[0], expected)


def test_ops_are_kept_as_they_are_given() -> None:
    flip = da.RandomHorizontalFlip(p=1)
    ops: list[da.Op] = [flip]
    of_list, of_iterator = da.Compose(ops), da.Compose(iter(ops))  # type: ignore[arg-type]
    ops.append(da.Resize((9, 9)))
    for transform in (of_list, of_iterator):
        assert transform.ops == pickle.loads(pickle.dumps(transform)).ops == (flip,)
        assert hash(transform)


@dataclass(frozen=True)
class Brighter(da.PixelOp):
    """Leaves floats beyond 255, as the ops of users may."""

    def dali_graph(self, image: Node, planned: Nodes, views: Views) -> Node:
        return image * 3.0


@pytest.mark.parametrize("kind", KINDS)
def test_an_op_of_a_user_leaves_the_kind_of_the_image(kind: str) -> None:
    (make, white), light = KINDS[kind], np.full((60, 80, 3), 200, np.uint8)
    changed, _ = da.Compose([da.Resize((60, 80)), Brighter()])(make(light), target_of(np.zeros((0, 4))))
    assert_same_kind(make(light), changed, white, np.full_like(light, 255))
    (image,) = da.batch([light]).then(da.Resize((60, 80)), Brighter()).images
    assert (image.dtype, image.min()) == (np.uint8, 255)


# ------------------------------------------------------------------------------------------------ errors

IMAGE, BOXES = np.zeros((60, 80, 3), np.uint8), torch.tensor([[10.0, 10, 20, 20]])
GOOD = {"boxes": BOXES, "labels": torch.tensor([1])}


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (Image.new("L", (8, 8)), r"mode RGB, got L: give image\.convert\('RGB'\)"),
        (Image.new("I;16", (8, 8)), r"mode RGB, got I;16: scale it to 8 bits before image\.convert\('RGB'\)"),
        (IMAGE[..., 0], r"must be \(H, W, 3\), uint8 or floats in 0\.\.1, got \(60, 80\) uint8"),
        (IMAGE.astype(np.int64), r"got \(60, 80, 3\) int64"),
        (IMAGE[:0], r"got \(0, 80, 3\) uint8"),
        (torch.from_numpy(IMAGE), r"must be \(3, H, W\), uint8 or floats in 0\.\.1, got \(60, 80, 3\) uint8"),
        (torch.zeros(1, 3, 8, 8), r"got \(1, 3, 8, 8\) float32"),
        (IMAGE + np.float32(100), r"must be in 0\.\.1, got 100\.\.100: divide by 255, or give uint8"),
        (np.full((4, 4, 3), np.nan), r"must be in 0\.\.1, got nan\.\.nan"),
    ],
)
def test_wrong_images_are_refused(image: Any, message: str) -> None:
    with pytest.raises(da.InputError, match=message):
        da.Compose([da.Resize((30, 30))])(image, GOOD)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (GOOD | {"labels": None}, r"target\['labels'\] must be a tensor, an array or a list, got NoneType"),
        (GOOD | {"labels": torch.tensor(3)}, r"target\['labels'\] must be a tensor, an array or a list, got Tensor"),
        ({}, "the target must have boxes and labels, got no boxes and no labels"),
        ({"boxes": BOXES}, "got no labels"),
        ({**GOOD, "boxes": [[1, 2, 3, 4]]}, r"target\['boxes'\] must be a tensor or an array, got list"),
        ({**GOOD, "boxes": torch.zeros(1, 5)}, r"must be \(M, 4\), got shape \(1, 5\)"),
        ({**GOOD, "boxes": BOXES[0]}, r"must be \(M, 4\), got shape \(4,\)"),
        (
            GOOD | {"labels": torch.tensor([1, 2])},
            r"target\['labels'\] must have a row for each of 1 boxes, got 2 rows",
        ),
        (
            GOOD | {"labels": torch.ones(1, 2)},
            r"target\['labels'\] must be \(1,\), a label for each box, got 2 numbers",
        ),
        (GOOD | {"area": torch.tensor(3)}, r"target\['area'\] must have a row for each of 1 boxes, got Tensor"),
        (GOOD | {"area": torch.zeros(3)}, r"target\['area'\] must have a row for each of 1 boxes, got 3 rows"),
        (GOOD | {"difficult": 1}, r"target\['difficult'\] must have a row for each of 1 boxes, got int"),
        (GOOD | {"labels": [0]}, r"target\['labels'\]\[0\] must be a whole number from 1, or a name, got 0: .* add 1"),
        (GOOD | {"labels": torch.tensor([-1])}, "from 1, or a name, got -1"),
        (GOOD | {"labels": np.array([1.5])}, r"from 1, or a name, got 1\.5"),
        (GOOD | {"labels": [float("nan")]}, "from 1, or a name, got nan"),
        (
            {**GOOD, "boxes": torch.tensor([[10.0, 10, 81.5, 20]])},
            r"\['boxes'\]\[0\] must be in the pixels .* of 80 x 60, got XYXY \[10\.0, 10\.0, 81\.5, 20\.0\]",
        ),
        ({**GOOD, "boxes": torch.tensor([[20.0, 10, 10, 20]])}, "x0 <= x1"),
        ({**GOOD, "boxes": torch.full((1, 4), torch.nan)}, "must be finite numbers"),
        ({**GOOD, "masks": torch.zeros(1, 9, 80)}, r"target\['masks'\] must be \(1, 60, 80\), .* got \(1, 9, 80\)"),
        ({**GOOD, "masks": "all"}, r"target\['masks'\] must be \(1, 60, 80\), .* got str"),
        ({**GOOD, "keypoints": torch.zeros(1, 17, 3)}, r"target\['keypoints'\]: which of them are swapped"),
    ],
)
def test_wrong_targets_are_refused(target: Any, message: str) -> None:
    with pytest.raises(da.InputError, match=message):
        da.Compose([da.Resize((30, 30))])(IMAGE, target)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ((1, 2, 255), "0, 1, 2, 255"),
        ((0.5, 1.0), "0, 0.5, 1"),
        ((-1.0, 1.0), "-1, 0, 1"),
        ((float("nan"), 1.0), "0, 1, nan"),
        ((-1, -1), "-1, 0"),
    ],
    ids=repr,
)
@pytest.mark.parametrize("as_array", [torch.tensor, np.array])
def test_masks_of_several_values_are_refused_and_the_remedy_works(values: Any, text: str, as_array: Any) -> None:
    mask = np.zeros((1, 60, 80))
    for at, value in enumerate(values):
        mask[0, 10 + at, 10:20] = value
    target, transform = {**GOOD, "masks": as_array(mask)}, da.Compose([da.Resize((60, 80))])
    rule = rf"target\['masks'\]\[0\] must have 0 and one value above it, got {text}; .* target\['masks'\] > 0\.5"
    with pytest.raises(da.InputError, match=rule):
        transform(IMAGE, target)
    _, moved = transform(IMAGE, {**target, "masks": target["masks"] > 0.5})
    assert np.array_equal(np.asarray(moved["masks"]), (mask > 0.5)[: int((mask > 0.5).any())])


@pytest.mark.slow
def test_bounding_boxes_of_another_image_and_rotated_ones_are_refused(tv_tensors: Any) -> None:
    transform = da.Compose([da.Resize((30, 30))])
    wrong = tv_tensors.BoundingBoxes(BOXES, format="XYXY", canvas_size=(80, 60))
    with pytest.raises(
        da.InputError, match=r"canvas_size .* must be the size of the image, \(60, 80\), got \(80, 60\)"
    ):
        transform(IMAGE, {**GOOD, "boxes": wrong})
    with pytest.raises(da.InputError, match=r"target\['regions'\] .* Compose moves boxes, keypoints and masks only"):
        transform(IMAGE, {**GOOD, "regions": tv_tensors.Mask(torch.zeros(1, 60, 80))})


def test_boxes_outside_by_rounding_are_clipped() -> None:
    _, target = da.Compose([da.Resize((60, 80))])(IMAGE, {**GOOD, "boxes": torch.tensor([[-1e-3, 10, 80.001, 20]])})
    assert target["boxes"].tolist() == [[0, 10, 80, 20]]


def test_other_objects_are_no_images_or_targets() -> None:
    transform = da.Compose([da.Resize((30, 30))])
    with pytest.raises(TypeError, match=r"the image must be a PIL image, an array .* got str"):
        transform("image.jpg", GOOD)
    with pytest.raises(TypeError, match="the target must be a dict with boxes and labels, got Tensor"):
        transform(IMAGE, BOXES)  # type: ignore[arg-type]


def test_wrong_recipes_are_refused_at_once() -> None:
    with pytest.raises(da.InputError, match="Mosaic combines images of a batch, and Compose has one: use a Loader"):
        da.Compose(da.presets.yolo640())
    with pytest.raises(da.InputError, match="seed must be None, or a whole number of at least 0"):
        da.Compose([da.Resize((30, 30))], seed=-1)
    with pytest.raises(da.InputError, match="columns must be a list of names"):
        da.Compose([da.Resize((30, 30))], columns="pose")
    with pytest.raises(TypeError, match="a recipe is a list of ops"):
        da.Compose(da.Resize((30, 30)))  # type: ignore[arg-type]


@pytest.mark.slow
def test_the_benchmark_runs(v2: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    script = load_script("compose")
    monkeypatch.setattr("torch.set_num_threads", lambda _: None)
    rows = [{name: make for name, make in each.items() if name != "Albumentations"} for each in script.RECIPES.values()]
    monkeypatch.setattr(script, "RECIPES", dict(zip(script.RECIPES, rows, strict=True)))
    script.main(["--images", "1", "--rounds", "1", "--size", "60", "80"])
    assert capsys.readouterr().out.count("ms an image") == 6


def test_key_points_move_with_their_boxes() -> None:
    points = torch.tensor([[[10.0, 20, 2], [30, 20, 2], [70, 50, 1]]])
    target = {"boxes": torch.tensor([[5.0, 10, 75, 55]]), "labels": torch.tensor([1]), "keypoints": points}
    flipped = da.Compose([da.RandomHorizontalFlip(p=1)], flip_pairs=[(0, 1)])(IMAGE, target)[1]["keypoints"]
    assert flipped.tolist() == [[[50, 20, 2], [70, 20, 2], [10, 50, 1]]]
    cropped = da.Compose([da.CenterCrop((40, 40))], flip_pairs=[])(IMAGE, target)[1]["keypoints"]
    assert cropped.tolist() == [[[0, 0, 0], [10, 10, 2], [0, 0, 0]]]
    plain = {**target, "keypoints": points[..., :2].numpy()}
    moved = da.Compose([da.CenterCrop((40, 40))], flip_pairs=[])(IMAGE, plain)[1]["keypoints"]
    assert moved.tolist() == [[[-10, 10], [10, 10], [50, 40]]]
    with pytest.raises(da.InputError, match=r"must be \(1, K, 2\), or \(1, K, 3\) with visibility, got \(2, 3, 3\)"):
        da.Compose([], flip_pairs=[])(IMAGE, {**target, "keypoints": torch.zeros(2, 3, 3)})


@pytest.mark.usefixtures("_newer_torchvision")
def test_tv_tensors_of_key_points_flip_as_torchvisions_but_for_half_a_pixel(v2: Any, tv_tensors: Any) -> None:
    """torchvision counts pixels of KeyPoints, W - 1 - x, where it has continuous boxes, W - x."""
    pixels = torch.rand(1, 5, 2) * torch.tensor([79.0, 59.0])
    counted = tv_tensors.KeyPoints(pixels, canvas_size=(60, 80))
    theirs = v2.functional.horizontal_flip(counted)
    ours = tv_tensors.KeyPoints(pixels + 0.5, canvas_size=(60, 80))
    target = {"boxes": torch.tensor([[0.0, 0, 80, 60]]), "labels": torch.tensor([1]), "keypoints": ours}
    moved = da.Compose([da.RandomHorizontalFlip(p=1)], flip_pairs=[])(IMAGE, target)[1]["keypoints"]
    assert isinstance(moved, tv_tensors.KeyPoints)
    torch.testing.assert_close(moved.as_subclass(torch.Tensor) - 0.5, theirs.as_subclass(torch.Tensor))


@pytest.mark.usefixtures("_newer_torchvision")
@pytest.mark.parametrize("form", ["XYWHR", "CXCYWHR", "XYXYXYXY"])
def test_rotated_boxes_turn_as_torchvisions(form: str, v2: Any, tv_tensors: Any) -> None:
    centers = tv_tensors.BoundingBoxes(torch.tensor([[40.0, 30, 30, 12, 25]]), format="CXCYWHR", canvas_size=(60, 80))
    boxes = v2.functional.convert_bounding_box_format(centers, new_format=tv_tensors.BoundingBoxFormat[form])
    target = {"boxes": boxes, "labels": torch.tensor([1])}
    ours = da.Compose([da.RandomHorizontalFlip(p=1), da.Resize((120, 160))])(IMAGE, target)[1]["boxes"]
    theirs = v2.functional.resize(v2.functional.horizontal_flip(boxes), [120, 160])
    assert ours.format == boxes.format
    assert ours.canvas_size == (120, 160)
    corners = [
        v2.functional.convert_bounding_box_format(each, new_format=tv_tensors.BoundingBoxFormat.XYXYXYXY)
        for each in (ours, theirs)
    ]
    first, second = (np.asarray(each).reshape(4, 2) for each in corners)
    assert np.abs(first[:, None] - second[None]).max(2).min(0).max() < 0.05


@pytest.mark.slow
@pytest.mark.usefixtures("_newer_torchvision")
def test_rotated_boxes_need_no_more_of_torchvision_than_tv_tensors(tv_tensors: Any) -> None:
    program = """
import numpy as np, torch
from torchvision import tv_tensors
import detaug as da
boxes = tv_tensors.BoundingBoxes(torch.tensor([[40.0, 30, 30, 12, 0]]), format="CXCYWHR", canvas_size=(60, 80))
target = {"boxes": boxes, "labels": torch.tensor([1])}
print(da.Compose([da.RandomHorizontalFlip(p=1)])(np.zeros((60, 80, 3), np.uint8), target)[1]["boxes"][0, :4].tolist())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout == "[40.0, 30.0, 30.0, 12.0]\n", done.stderr


def test_forms_of_boxes_by_hand() -> None:
    """The numbers of two boxes in each form; torchvision's own are in a slow test."""
    xyxy = np.array([[10.0, 20, 40, 80], [5, 1, 6, 4]])
    forms = {"XYXY": xyxy, "XYWH": [[10, 20, 30, 60], [5, 1, 1, 3]], "CXCYWH": [[25, 50, 30, 60], [5.5, 2.5, 1, 3]]}
    for form, boxes in forms.items():
        assert _to_xyxy(np.array(boxes, float), form).tolist() == xyxy.tolist()
        assert _from_xyxy(xyxy, form).tolist() == np.array(boxes, float).tolist()
