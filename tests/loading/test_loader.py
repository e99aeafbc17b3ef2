"""The loader on files: real images, painted ones, odd ones, broken ones."""

from __future__ import annotations

import contextlib
import json
import pickle
import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import nvidia.dali
import pytest
import torch
from lxml import etree
from painted_files import Folder, same, settings_file, write_coco
from PIL import Image
from places import SHARED_DATA
from reference import import_torchvision
from seeds import slow

import detaug as da
from detaug.testing import read_box

BLACK_SSD = [
    da.RandomZoomOut(max_ratio=2, fill=(0, 0, 0)),
    da.RandomIoUCrop(),
    da.RandomHorizontalFlip(),
    da.RandomVerticalFlip(),
    da.Resize((200, 240)),
    da.Normalize(),
]
MIXING = [*BLACK_SSD[:-1], da.Mosaic(), da.MixUp(), da.CutMix(), da.CopyPaste(), da.Normalize()]
SEVERAL_SIZES = [da.Resize([(60, 80), (90, 40)]), da.MixUp(), da.Normalize()]


# ------------------------------------------------------------------------------------- boxes and pixels


def test_boxes_lie_on_the_pixels_of_every_batch(painted: Folder, device: str) -> None:
    loader = da.Loader(da.CocoReader(*painted), BLACK_SSD, batch_size=8, device=device)
    read = 0
    for _ in range(4):
        for batch in loader:
            for image, boxes, labels, mask in zip(batch.images, batch.boxes, batch.labels, batch.valid, strict=True):
                for box, label in zip(boxes[mask], labels[mask], strict=True):
                    seen = read_box(image[label - 1].cpu().double().numpy())
                    assert np.abs(seen - box.cpu().numpy()).max() <= 0.5
                    read += 1
    assert read > 200


def test_to_source_undoes_a_random_recipe(painted: Folder, device: str) -> None:
    reader = da.CocoReader(*painted)
    boxes_of = {row["id"]: [] for row in json.loads(painted[1].read_text())["images"]}
    for row in json.loads(painted[1].read_text())["annotations"]:
        x, y, w, h = row["bbox"]
        boxes_of[row["image_id"]].append([x, y, x + w, y + h])
    for batch in da.Loader(reader, BLACK_SSD, batch_size=7, device=device):
        moved = batch.to_source(batch.boxes)
        window = batch.to_source(torch.tensor([[[0.0, 0.0, 240.0, 200.0]]]).repeat(len(batch), 1, 1))
        for at, image_id in enumerate(batch.image_id.tolist()):
            for box, label in zip(moved[at][batch.valid[at]], batch.labels[at][batch.valid[at]], strict=True):
                x0, y0, x1, y1 = window[at, 0].tolist()
                expected = torch.tensor(boxes_of[image_id][label - 1]).clamp(
                    torch.tensor([x0, y0, x0, y0]), torch.tensor([x1, y1, x1, y1])
                )
                assert (box.cpu() - expected).abs().max() <= 0.5


def test_evaluation_of_bccd_is_the_xml(bccd: Folder, device: str) -> None:
    reader = da.CocoReader(*bccd)
    loader = da.Loader(reader, da.presets.evaluation((300, 300)), batch_size=16, device=device, train=False)
    checked = 0
    for batch in loader:
        source = batch.to_source(batch.boxes)
        for at, image_id in enumerate(batch.image_id.tolist()):
            name = reader.file_names[int(np.flatnonzero(reader.image_ids == image_id)[0])]
            expected = voc_boxes(SHARED_DATA / "bccd" / "Annotations" / Path(name).with_suffix(".xml").name)
            assert source[at][batch.valid[at]].cpu().numpy() == pytest.approx(expected, abs=0.01)
            checked += len(expected)
    assert checked == 2805


def voc_boxes(path: Path) -> np.ndarray:
    """(M, 4) XYXY by decision 1, read without detaug."""
    objects = etree.parse(path).findall("object/bndbox")
    names = ("xmin", "ymin", "xmax", "ymax")
    corners = np.array([[float(box.findtext(name)) for name in names] for box in objects]).reshape(-1, 4)
    return corners - (1, 1, 0, 0)


# ------------------------------------------------------------------------------------------- the epochs


@pytest.mark.parametrize("batch_size", [7, *slow(1, 32, 300)])
@pytest.mark.parametrize("world", [3, *slow(1)])
def test_evaluation_visits_every_image_exactly_once(bccd: Folder, batch_size: int, world: int) -> None:
    reader, ids = da.CocoReader(*bccd), []
    for rank in range(world):
        loader = da.Loader(
            reader, [da.Resize((8, 8))], batch_size, device="cpu", train=False, shard=(rank, world), pipelines=2
        )
        for _ in range(2):
            batches = [batch.image_id for batch in loader]
            assert len(batches) == len(loader)
            assert all(0 < len(batch) <= batch_size for batch in batches)
        ids += torch.cat(batches).tolist()
    assert sorted(ids) == sorted(reader.image_ids.tolist())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"shard": 2}, r"shard must be \(rank, world size\), got 2"),
        ({"shard": 0}, r"shard must be \(rank, world size\), got 0"),
        ({"shard": (0, 1, 2)}, r"shard must be \(rank, world size\), got \(0, 1, 2\)"),
        ({"collate": "as_hf"}, "collate must be a function, such as da.Batch.as_hf, or None, got 'as_hf'"),
    ],
)
def test_wrong_shards_and_functions_are_named(bccd: Folder, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(da.InputError, match=message):
        da.Loader(da.CocoReader(*bccd), [da.Resize((8, 8))], 4, device="cpu", **arguments)


@pytest.mark.parametrize(
    ("batch_size", "world"),
    [(7, 4), *slow((32, 1), (300, 1), (32, 3), (100, 2))],
)
def test_training_has_full_batches_and_equal_steps_on_all_shards(batch_size: int, world: int, bccd: Folder) -> None:
    reader, too_many = da.CocoReader(*bccd), batch_size * world > 205
    with pytest.warns(UserWarning, match="every step repeats") if too_many else contextlib.nullcontext():
        loaders = [
            da.Loader(reader, [da.Resize((8, 8))], batch_size, device="cpu", shard=(rank, world))
            for rank in range(world)
        ]
    epochs = []
    for _ in range(2):
        ids = [[batch.image_id for batch in loader] for loader in loaders]
        assert {len(batches) for batches in ids} == {len(loaders[0])}
        assert all(len(batch) == batch_size for batches in ids for batch in batches)
        epochs.append([int(i) for batches in ids for batch in batches for i in batch])
        assert set(epochs[-1]) == set(reader.image_ids.tolist())
    assert epochs[0] != epochs[1]


def test_the_same_seed_gives_the_same_batches_for_any_threads_and_pipelines(painted: Folder, device: str) -> None:
    reader = da.CocoReader(*painted)

    def batches(seed: int, **settings: int) -> list[da.Batch]:
        loader = da.Loader(reader, da.presets.ssd300(), batch_size=5, device=device, seed=seed, **settings)
        return [batch for _ in range(2) for batch in loader]

    first = batches(3, threads=1, pipelines=1)
    for settings in ({"threads": 4, "pipelines": 1}, {"threads": 2, "pipelines": 3}):
        assert all(same(a, b) for a, b in zip(first, batches(3, **settings), strict=True))
    assert not any(same(a, b) for a, b in zip(first, batches(4, threads=1), strict=True))


@pytest.mark.parametrize("recipe", [MIXING, *slow(BLACK_SSD, SEVERAL_SIZES)], ids=["mixing", "ssd", "several sizes"])
@pytest.mark.parametrize("train", [True, *slow(False)])
@pytest.mark.parametrize("cache", [None, *slow("device")])
def test_batches_that_are_made_together_are_what_they_are_alone(
    recipe: list[da.Op],
    train: bool,
    cache: str | None,
    painted: Folder,
    device: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Three, then one, which is planned with them, then two."""
    monkeypatch.setattr("detaug.loading.planner.BLOCK_IMAGES", 16)
    reader, options = da.CocoReader(*painted), {"device": device, "train": train, "cache": cache}
    alone, together, resumed = (
        da.Loader(reader, recipe, batch_size=4, settings=settings_file(painted, batches_per_group=count), **options)
        for count in (1, 3, 3)
    )
    batches = [*alone, *alone]
    assert all(same(*each) for each in zip([*together, *together], batches, strict=True))
    resumed.load_state_dict({**alone.state_dict(), "epoch": 0, "step": 2})  # between two that are made together
    assert all(same(*each) for each in zip([*resumed, *resumed], batches[2:], strict=True))


def test_a_batch_stays_as_it_was_while_the_loader_goes_on(painted: Folder, device: str) -> None:
    loader = da.Loader(da.CocoReader(*painted), da.presets.ssd300(), batch_size=4, device=device, pipelines=2)
    kept = list(loader)
    sums = [batch.images.double().sum().item() for batch in kept]
    again = list(loader)
    assert sums == [batch.images.double().sum().item() for batch in kept]
    assert sums != [batch.images.double().sum().item() for batch in again]


def test_a_batch_that_is_changed_in_place_changes_no_other(painted: Folder, device: str) -> None:
    """Nor does autograd take it for that, which would refuse to go back through the other."""
    reader, settings = da.CocoReader(*painted), settings_file(painted, batches_per_group=3)
    alone = list(da.Loader(reader, BLACK_SSD, 4, device=device))
    first, second, third = islice(da.Loader(reader, BLACK_SSD, 4, device=device, settings=settings), 3)
    scale = torch.ones((), requires_grad=True)
    loss = sum((each * scale).sum().cpu() for each in (first.images, first.boxes, first.matrix))
    for tensor in vars(second).values():
        if isinstance(tensor, torch.Tensor):
            tensor.zero_()
    loss.backward()
    assert same(first, alone[0])
    assert same(third, alone[2])


def test_breaking_off_starts_a_new_epoch_the_next_time(painted: Folder) -> None:
    reader = da.CocoReader(*painted)
    whole = da.Loader(reader, BLACK_SSD, batch_size=4, device="cpu")
    epochs = [list(whole), list(whole)]
    settings = settings_file(painted, pipelines=3, batches_per_group=2)
    broken = da.Loader(reader, BLACK_SSD, batch_size=4, device="cpu", settings=settings)
    for batch in broken:
        assert same(batch, epochs[0][0])
        break
    assert all(same(a, b) for a, b in zip(broken, epochs[1], strict=True))


@pytest.mark.parametrize("stop", [2, *slow(0, 6)])
def test_a_state_goes_on_where_it_was_taken(painted: Folder, stop: int, device: str) -> None:
    reader = da.CocoReader(*painted)
    whole = da.Loader(reader, BLACK_SSD, batch_size=4, device=device, pipelines=2)
    batches = [*whole, *whole]
    loader = da.Loader(reader, BLACK_SSD, batch_size=4, device=device, pipelines=3)
    state = loader.state_dict()
    for at, _ in enumerate(loader, 1):
        state = loader.state_dict() if at <= stop else state
    resumed = da.Loader(reader, BLACK_SSD, batch_size=4, device=device)
    resumed.load_state_dict(json.loads(json.dumps(state)))
    rest = [*resumed, *(resumed if stop < 6 else ())]
    assert all(same(a, b) for a, b in zip(batches[stop:], rest, strict=True))


@pytest.mark.parametrize("rank", [1, *slow(0)])
def test_a_state_of_a_shard_goes_on_there(painted: Folder, rank: int, device: str) -> None:
    reader, settings = da.CocoReader(*painted), {"device": device, "shard": (rank, 2), "pipelines": 2}
    whole, loader, resumed = (da.Loader(reader, BLACK_SSD, 4, **settings) for _ in range(3))
    batches = [*whole, *whole]
    next(iter(loader))
    resumed.load_state_dict(loader.state_dict())
    assert len(batches) == 6
    assert all(same(a, b) for a, b in zip(batches[1:], [*resumed, *resumed], strict=True))


def test_a_state_of_another_loader_is_refused(painted: Folder) -> None:
    reader = da.CocoReader(*painted)
    state = da.Loader(reader, BLACK_SSD, batch_size=4, device="cpu").state_dict()
    with pytest.raises(ValueError, match=r"has 4 images per step on all shards, this loader 5 .*; give batch_size=4"):
        da.Loader(reader, BLACK_SSD, batch_size=5, device="cpu").load_state_dict(state)
    with pytest.raises(ValueError, match="recipe"):
        da.Loader(reader, BLACK_SSD[1:], batch_size=4, device="cpu").load_state_dict(state)
    with pytest.raises(ValueError, match=r"this loader 8 \(batch_size 4 x 2\); give batch_size=2"):
        da.Loader(reader, BLACK_SSD, batch_size=4, device="cpu", shard=(1, 2)).load_state_dict(state)
    with pytest.raises(ValueError, match="resume on a number of shards that divides 4"):
        da.Loader(reader, BLACK_SSD, batch_size=2, device="cpu", shard=(1, 3)).load_state_dict(state)
    content = json.loads(painted[1].read_text())
    content["annotations"][0]["bbox"][0] += 1
    painted[1].write_text(json.dumps(content))
    with pytest.raises(ValueError, match="images, boxes or classes are not those of this state"):
        da.Loader(da.CocoReader(*painted), BLACK_SSD, batch_size=4, device="cpu").load_state_dict(state)


def test_a_state_with_other_pixels_under_the_same_json_is_refused(painted: Folder) -> None:
    state = da.Loader(da.CocoReader(*painted), BLACK_SSD, 4, device="cpu").state_dict()
    with Image.open(painted[0] / "03.png") as image:
        image.rotate(180).save(painted[0] / "03.png", compress_level=1)
    with pytest.raises(da.InputError, match="image files have other sizes in bytes"):
        da.Loader(da.CocoReader(*painted), BLACK_SSD, 4, device="cpu").load_state_dict(state)


@dataclass(frozen=True)
class FlipsLeft(da.RandomHorizontalFlip):
    """Draws as RandomHorizontalFlip does, or with one number before: another version of an op."""

    first: ClassVar[int] = 0

    def draw(self, rng: np.random.Generator, n: int) -> dict[str, Any]:
        rng.random(self.first)
        return super().draw(rng, n)


def test_a_state_of_a_version_that_draws_otherwise_is_refused(painted: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = da.CocoReader(*painted)
    loader = da.Loader(reader, [FlipsLeft(), da.Resize((40, 50))], 4, device="cpu")
    state = loader.state_dict()
    loader.load_state_dict(state)
    monkeypatch.setattr(FlipsLeft, "first", 1)
    with pytest.raises(da.InputError, match="draws other random numbers"):
        da.Loader(reader, loader.ops, 4, device="cpu").load_state_dict(state)
    monkeypatch.undo()
    monkeypatch.setattr("detaug.loading.draws.STEPS", 32)
    with pytest.raises(da.InputError, match="draws other random numbers"):
        da.Loader(reader, loader.ops, 4, device="cpu").load_state_dict(state)
    with pytest.raises(da.InputError, match="another version of detaug"):
        loader.load_state_dict({**state, "version": 1})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (None, "state must be a dict that .* returned, got None"),
        ({}, "state must be a dict that .* returned, got {}"),
        ({"epoch": "1"}, "this state is at epoch '1', step 0"),
        ({"step": 1.0}, "step 1.0; an epoch has 6 steps"),
        ({"step": 7}, "step 7; an epoch has 6 steps"),
        ({"skipped": "3"}, "skipped of this state must be a list of indices below 21, got '3'"),
        ({"skipped": [21]}, "indices below 21"),
    ],
)
def test_what_is_no_state_is_refused(painted: Folder, change: Any, message: str) -> None:
    loader = da.Loader(da.CocoReader(*painted), BLACK_SSD, 4, device="cpu")
    state = {**loader.state_dict(), **change} if change else change
    with pytest.raises(da.InputError, match=message):
        loader.load_state_dict(state)
    assert len(list(loader)) == 6


# -------------------------------------------------------------------------------------------- slips


@pytest.mark.parametrize(
    ("slip", "message"),
    [
        (lambda loader: next(loader), r"next\(iter\(loader\)\)"),
        (lambda loader: [image for image, _ in loader], "batch.images and batch.targets()"),
        (lambda loader: list(torch.utils.data.DataLoader(loader)), "`for batch in loader`"),
        (pickle.dumps, r"loader\.state_dict\(\)"),
        (lambda loader: da.Loader(loader.reader, loader.ops, 4, num_workers=2), "threads=N"),
        (lambda loader: da.Loader(loader.reader, loader.ops, 4, shuffle=True), "train=True shuffles"),
        (lambda loader: da.Loader(loader.reader, loader.ops, 4, collate_fn=len), "write collate=FUNCTION"),
    ],
)
def test_a_slip_names_the_right_way(painted: Folder, slip: Callable[[Any], object], message: str) -> None:
    loader = da.Loader(da.CocoReader(*painted), BLACK_SSD, 4, device="cpu")
    with pytest.raises(TypeError, match=message):
        slip(loader)


@pytest.mark.parametrize("seed", [-1, None, 0.5, "1"])
def test_a_wrong_seed_is_refused(painted: Folder, seed: Any) -> None:
    with pytest.raises(da.InputError, match="seed must be a whole number of at least 0"):
        da.Loader(da.CocoReader(*painted), BLACK_SSD, 4, device="cpu", seed=seed)


def test_reprs_are_short(painted: Folder) -> None:
    loader = da.Loader(da.CocoReader(*painted), BLACK_SSD, 4, device="cpu")
    assert repr(loader) == "Loader(training, 21 images, 6 batches of 4, cpu, 0.0065 GB of decoded images)"
    assert re.fullmatch(r"Batch\(images \(4, 3, 200, 240\) float32 on cpu, \d+ boxes\)", repr(next(iter(loader))))


# -------------------------------------------------------------------------------------------- the batch


def test_a_clone_has_memory_of_its_own(painted: Folder, tmp_path: Path, device: str) -> None:
    loader = da.Loader(da.CocoReader(*painted), BLACK_SSD, 4, device=device)
    batch = next(iter(loader))
    copy = batch.clone()
    assert same(batch, copy)
    torch.save(copy.images, tmp_path / "images.pt")
    assert (tmp_path / "images.pt").stat().st_size < copy.images.numel() * 4 + 10_000
    copy.images.zero_()
    copy.boxes.zero_()
    assert batch.images.any()
    assert batch.boxes.any()


def test_a_batch_is_what_the_contract_says(painted: Folder, device: str) -> None:
    loader = da.Loader(da.CocoReader(*painted), da.presets.ssd300(), batch_size=21, device=device)
    (batch,) = loader
    n, m = batch.labels.shape
    assert batch.images.shape == (n, 3, 300, 300)
    assert batch.boxes.shape == (n, m, 4)
    assert batch.valid.shape == (n, m)
    assert batch.matrix.shape == (n, 2, 3)
    assert batch.source_size.shape == (n, 2)
    dtypes = (batch.images, batch.boxes, batch.labels, batch.valid, batch.image_id, batch.source_size, batch.matrix)
    floats, ints = torch.float32, torch.int64
    assert [tensor.dtype for tensor in dtypes] == [floats, floats, ints, torch.bool, ints, ints, floats]
    assert {tensor.device.type for tensor in dtypes[:4]} == {device}
    assert min(batch.counts) < max(batch.counts) == m
    assert torch.equal(batch.valid.cpu(), torch.arange(m) < torch.tensor(batch.counts)[:, None])  # the real ones first
    assert (batch.labels[~batch.valid] == -1).all()
    assert (batch.boxes[~batch.valid] == 0).all()
    assert batch.labels[batch.valid].min() >= 1
    assert batch.boxes.min() >= 0
    assert batch.boxes.max() <= 300
    assert 0 <= batch.images.min() < batch.images.max() <= 1
    assert loader.class_names == ("background", "class 1", "class 2", "class 3")
    assert loader.category_ids == (-1, 7, 14, 21)
    assert {tensor.device.type for tensor in vars(batch.to("cpu")).values() if isinstance(tensor, torch.Tensor)} == {
        "cpu"
    }


def test_targets_are_torchvisions(painted: Folder, device: str) -> None:
    loader = da.Loader(da.CocoReader(*painted), da.presets.evaluation((64, 64)), 21, device=device, train=False)
    (batch,) = loader
    targets = batch.targets()
    assert [len(target["boxes"]) for target in targets] == [3] * 20 + [0]
    for at, target in enumerate(targets):
        assert torch.equal(target["boxes"], batch.boxes[at][batch.valid[at]])
        assert torch.equal(target["labels"], batch.labels[at][batch.valid[at]])
        assert target["image_id"] == batch.image_id[at]
    lists = batch.to_source([target["boxes"] for target in targets])
    assert torch.allclose(torch.cat(lists), batch.to_source(batch.boxes)[batch.valid])


def test_images_of_several_sizes_are_padded_at_the_right_and_the_bottom(painted: Folder, device: str) -> None:
    recipe = [da.Resize(100, max_size=120), da.Normalize()]
    loader = da.Loader(da.CocoReader(*painted), recipe, 21, device=device, train=False)
    (batch,) = loader
    assert batch.images.shape[2:] == (128, 128)
    for image, boxes, labels, mask in zip(batch.images, batch.boxes, batch.labels, batch.valid, strict=True):
        for box, label in zip(boxes[mask], labels[mask], strict=True):
            assert np.abs(read_box(image[label - 1].cpu().double().numpy()) - box.cpu().numpy()).max() <= 0.5
    assert (batch.images[0, :, 90:] == 0).all()  # 96 x 128 became 90 x 120
    assert (batch.images[1, :, :, 90:] == 0).all()


@pytest.mark.parametrize(
    "end",
    [
        [],
        [da.Normalize()],
        [da.Normalize(da.presets.IMAGENET_MEAN, da.presets.IMAGENET_STD)],
        [da.Normalize(memory_format="channels_last", dtype="float16")],
    ],
    ids=["none", "plain", "mean", "channels_last"],
)
def test_padding_is_zero_however_the_recipe_ends(painted: Folder, end: list[da.Op], device: str) -> None:
    reader, recipe = da.CocoReader(*painted), [da.Resize(100, max_size=120), *end]
    (batch,) = da.Loader(reader, recipe, 21, device=device, train=False, pad_to_multiple=10)
    assert batch.images.shape == (21, 3, 120, 120)
    assert batch.images.dtype == (getattr(torch, end[0].dtype) if end else torch.uint8)
    photos = [np.asarray(Image.open(reader.path(at)).convert("RGB")) for at in range(21)]
    for image, (height, width), alone in zip(
        batch.images.cpu().double().numpy(),
        batch.image_size.tolist(),
        da.batch(photos, device=device).then(*recipe).images,
        strict=True,
    ):
        expected = alone if alone.shape[0] == 3 else alone.transpose(2, 0, 1)
        assert np.abs(image[:, :height, :width] - expected).max() < 0.01
        assert not image[:, height:].any()
        assert not image[:, :, width:].any()


@dataclass(frozen=True)
class Brighter(da.PixelOp):
    """By more than bytes hold, and not by a whole number."""

    def dali_graph(self, image: Any, planned: Any, views: Any) -> Any:
        return image * 2.3 - 0.65


@dataclass(frozen=True)
class Same(da.PixelOp):
    """Changes nothing; with it, DALI's operators render the recipe on a GPU too."""

    def dali_graph(self, image: Any, planned: Any, views: Any) -> Any:
        return image + 0.0


def test_images_without_normalize_are_bytes_rounded_and_clipped(painted: Folder, device: str) -> None:
    reader = da.CocoReader(*painted)
    (batch,) = da.Loader(reader, [da.Resize((96, 128)), Brighter()], 21, device=device, train=False)
    (plain,) = da.Loader(reader, [da.Resize((96, 128)), Same()], 21, device=device, train=False)
    expected = (plain.images.double() * 2.3 - 0.65).round().clamp(0, 255)
    assert batch.images.dtype == torch.uint8
    assert torch.equal(batch.images.double(), expected)
    assert len(batch.images.unique()) > 2


def test_a_data_set_without_any_box(tmp_path: Path, device: str) -> None:
    for name in "abc":
        Image.new("RGB", (40, 30)).save(tmp_path / f"{name}.png")
    folder = write_coco(tmp_path, [(f"{name}.png", (30, 40), []) for name in "abc"])
    loader = da.Loader(da.CocoReader(*folder), da.presets.ssd300(), batch_size=2, device=device)
    for batch in loader:
        assert not batch.valid.any()
        assert [len(target["boxes"]) for target in batch.targets()] == [0, 0]


# ----------------------------------------------------------------------------------------- kinds of file


def photo() -> Image.Image:
    noise = np.random.default_rng(0).integers(0, 256, (6, 8, 3), np.uint8)
    return Image.fromarray(noise).resize((80, 60), Image.Resampling.BICUBIC)


def save_exif(image: Image.Image, path: Path, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    image.save(path, quality=95, subsampling=0, exif=exif)


KINDS: dict[str, Callable[[Path], None]] = {
    "gray.jpg": lambda path: photo().convert("L").save(path, quality=95),
    "cmyk.jpg": lambda path: photo().convert("CMYK").save(path, quality=95),
    "444.jpg": lambda path: photo().save(path, quality=95, subsampling=0),
    "420.jpg": lambda path: photo().save(path, quality=95, subsampling=2),
    "progressive.jpg": lambda path: photo().save(path, quality=95, subsampling=0, progressive=True),
    "rgb.png": lambda path: photo().save(path),
    "palette.png": lambda path: photo().quantize(200).save(path),
    "4-bit palette.png": lambda path: photo().quantize(16).save(path),
    "png inside.jpg": lambda path: photo().save(path, format="PNG"),
    "exif6.jpg": lambda path: save_exif(photo(), path, 6),
    "exif3.jpg": lambda path: save_exif(photo(), path, 3),
    "名前 ü.jpg": lambda path: photo().save(path, quality=95, subsampling=0),
}


@pytest.mark.parametrize("name", KINDS)
def test_a_file_of_each_kind_shows_what_pillow_shows(name: str, tmp_path: Path, device: str) -> None:
    from PIL import ImageOps

    if name.startswith("4-bit") and device == "cuda":
        pytest.xfail("DALI 2.4's mixed decoder gets palettes of less than 8 bits wrong")
    KINDS[name](tmp_path / name)
    with Image.open(tmp_path / name) as image:
        expected = np.asarray(ImageOps.exif_transpose(image).convert("RGB"))
    folder = write_coco(tmp_path, [(name, expected.shape[:2], [[10, 20, 30, 40]])])
    size = expected.shape[:2]
    (batch,) = da.Loader(da.CocoReader(*folder), [da.Resize(size)], 1, device=device, train=False)
    shown = batch.images[0].permute(1, 2, 0).cpu().numpy().astype(float)
    limit = {"cpu": 1.0, "cuda": 2.0}[device] + (3 if "420" in name else 0)  # chroma is enlarged in another way
    assert np.abs(shown - expected).mean() < limit
    assert batch.source_size.tolist() == [list(size)]


def large(image: Image.Image) -> Image.Image:
    return image.resize((333, 251))


WINDOW_KINDS: dict[str, Callable[[Path], None]] = (
    KINDS
    | {
        "large 420.jpg": lambda path: large(photo()).save(path, quality=90, subsampling=2),
        "large 422.jpg": lambda path: large(photo()).save(path, quality=90, subsampling=1),
        "large progressive.jpg": lambda path: large(photo()).save(path, quality=90, subsampling=2, progressive=True),
        "rgb.tiff": lambda path: photo().save(path),
        "rgb.bmp": lambda path: photo().save(path),
        "rgb.webp": lambda path: photo().save(path),
    }
    | {f"exif{at}.jpg": lambda path, at=at: save_exif(large(photo()), path, at) for at in range(1, 9)}
)  # type: ignore[misc]


def test_only_what_is_shown_is_decoded_and_looks_the_same(tmp_path: Path) -> None:
    """The cache keeps whole images."""
    rows: list[tuple[str, tuple[int, int], list[list[float]]]] = []
    for name, save in WINDOW_KINDS.items():
        save(tmp_path / name)
        with Image.open(tmp_path / name) as image:
            turned = image.getexif().get(0x0112, 1) > 4
            rows.append((name, image.size if turned else image.size[::-1], [[10, 20, 30, 40]]))
    reader = da.CocoReader(*write_coco(tmp_path, rows))
    recipe = [da.RandomZoomOut(p=0.3), da.RandomBoxSafeCrop(), da.RandomHorizontalFlip(), da.Resize((40, 50))]
    for seed in range(3):
        windows, whole = (da.Loader(reader, recipe, 8, device="cpu", seed=seed, cache=c) for c in (None, "device"))
        assert all(same(a, b) for a, b in zip(windows, whole, strict=True))


@pytest.mark.gpu
def test_the_devices_agree(bccd: Folder) -> None:
    reader, recipe = da.CocoReader(*bccd), [da.Resize((300, 300))]
    on_cpu, on_gpu = (list(da.Loader(reader, recipe, 41, device=device, train=False)) for device in ("cpu", "cuda"))
    for a, b in zip(on_cpu, on_gpu, strict=True):
        assert torch.allclose(a.boxes, b.boxes.cpu(), rtol=0, atol=0.03)
        assert (a.images.float() - b.images.cpu().float()).abs().mean() < 2


# ---------------------------------------------------------------------------------------- what goes wrong


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"batch_size": 0}, "batch_size must be a whole number of at least 1, got 0"),
        ({"pipelines": 0}, "pipelines must be"),
        ({"seed": 1.5}, "seed must be a whole number of at least 0, got 1.5"),
        ({"threads": -1}, "threads must be"),
        ({"shard": (2, 2)}, "shard must be"),
        ({"device": "cuda:99"}, "device 'cuda:99' is not there"),
        ({"device": "mps"}, "device must be"),
        ({"device": "gpu"}, "device must be"),
        ({"ops": [da.RandomHorizontalFlip()]}, "the recipe needs a Resize"),
        ({"ops": [da.RandomPhotometricDistort(), da.Resize((9, 9))]}, "must come after Resize"),
        (
            {"ops": [da.SanitizeBoundingBoxes(), da.Normalize()]},
            r"\(1st\) must come after a Resize: the recipe has none",
        ),
        ({"ops": [da.Resize((9, 9)), da.Resize((9, 9))]}, "one too many after Resize"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(painted: Folder, settings: dict, message: str) -> None:
    defaults = {"ops": [da.Resize((9, 9))], "batch_size": 2, "device": "cpu"}
    with pytest.raises(ValueError, match=message):
        da.Loader(da.CocoReader(*painted), **{**defaults, **settings})


@pytest.mark.parametrize("reader", ["train.json", Path("images"), torch.utils.data.TensorDataset(), None])
def test_what_is_no_reader_is_refused(reader: object) -> None:
    with pytest.raises(
        TypeError, match=rf"reader must be a source, such as da\.CocoReader\(.*, got {type(reader).__name__}$"
    ):
        da.Loader(reader, da.presets.ssd300(), 2, device="cpu")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "ours"), [("RandomHorizontalFlip", "RandomHorizontalFlip"), ("Grayscale", "RandomGrayscale(p=1)")]
)
def test_an_op_of_torchvision_leads_to_ours(name: str, ours: str) -> None:
    import_torchvision()
    v2 = import_module("torchvision.transforms.v2")
    with pytest.raises(TypeError, match=rf"is none; use da\.{re.escape(ours)} \(docs/ops\.md has the names"):
        da.Compose([getattr(v2, name)()])
    with pytest.raises(TypeError, match=r"'HorizontalFlip' is none; use da\.RandomHorizontalFlip \(docs"):
        da.Compose(["HorizontalFlip"])  # type: ignore[list-item]


def test_a_class_in_place_of_an_op_is_refused(painted: Folder) -> None:
    with pytest.raises(TypeError, match=r"and <class .*RandomGrayscale'> is none; write RandomGrayscale\(\), with"):
        da.Loader(da.CocoReader(*painted), [da.Resize((9, 9)), da.RandomGrayscale], 2)  # type: ignore[list-item]


@pytest.mark.parametrize("ops", [da.presets.ssd300, da.Resize((9, 9)), "ssd300", None, [da.Resize((9, 9)), "flip"]])
def test_what_is_no_list_of_ops_is_refused(painted: Folder, ops: object) -> None:
    with pytest.raises(TypeError, match="a recipe is a list of ops"):
        da.Loader(da.CocoReader(*painted), ops, 2)  # type: ignore[arg-type]


def test_a_wrong_folder_of_images_says_where_they_are(painted: Folder, tmp_path: Path) -> None:
    folder, file = painted
    with pytest.raises(
        ValueError,
        match=r"is a folder in the place of the JSON file; .*da\.CocoReader\(images=IMAGES, annotations=FILE\)",
    ):
        da.CocoReader(folder, folder)
    (tmp_path / "other").mkdir()
    with pytest.raises(ValueError, match=f"relative to; {folder} has it"):
        da.CocoReader(tmp_path / "other", file)


def break_file(path: Path, how: str) -> None:
    content = path.read_bytes()
    if how == "deleted":
        path.unlink()
    else:
        path.write_bytes({"truncated": content[: len(content) // 2], "garbage": b"no image", "empty": b""}[how])


@pytest.mark.parametrize("how", ["truncated", "deleted", *slow("garbage", "empty")])
def test_an_unreadable_image_in_an_epoch_is_named(painted: Folder, how: str, device: str) -> None:
    reader = da.CocoReader(*painted)
    break_file(painted[0] / "13.png", how)
    loader = da.Loader(reader, [da.Resize((9, 9))], 4, device=device, train=False)
    with pytest.raises(da.DataError, match=r"13\.png.*detaug check"):
        list(loader)


def test_a_loader_goes_on_after_an_error(painted: Folder, device: str) -> None:
    content = (painted[0] / "02.png").read_bytes()
    loader = da.Loader(da.CocoReader(*painted), [da.Resize((9, 9))], 4, device=device, train=False, pipelines=2)
    (painted[0] / "02.png").write_bytes(content[:100])
    for _ in range(3):
        with pytest.raises(da.DataError, match=r"02\.png"):
            list(loader)
    (painted[0] / "02.png").write_bytes(content)
    assert sum(len(batch) for batch in loader) == 21


def test_ctrl_c_between_two_inputs_does_not_mix_up_images(painted: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = da.CocoReader(*painted)
    expected = list(da.Loader(reader, BLACK_SSD, 4, device="cpu", train=False))
    loader = da.Loader(reader, BLACK_SSD, 4, device="cpu", train=False, settings=settings_file(painted))
    feed, calls = nvidia.dali.Pipeline.feed_input, iter(range(100))

    def interrupted(pipeline: nvidia.dali.Pipeline, *args: object, **options: object) -> None:
        if next(calls) == 9:
            raise KeyboardInterrupt
        feed(pipeline, *args, **options)

    monkeypatch.setattr(nvidia.dali.Pipeline, "feed_input", interrupted)
    with pytest.raises(KeyboardInterrupt):
        list(loader)
    monkeypatch.undo()
    loader.load_state_dict({**loader.state_dict(), "epoch": 0, "step": 0})
    assert all(same(a, b) for a, b in zip(loader, expected, strict=True))


def test_ctrl_c_while_a_state_is_loaded_does_not_mix_up_images(
    painted: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(pipeline: nvidia.dali.Pipeline, **options: object) -> None:
        raise KeyboardInterrupt

    reader = da.CocoReader(*painted)
    expected = list(da.Loader(reader, BLACK_SSD, 4, device="cpu", train=False))
    loader = da.Loader(reader, BLACK_SSD, 4, device="cpu", train=False, settings=settings_file(painted))
    state = loader.state_dict()
    next(iter(loader))
    monkeypatch.setattr(nvidia.dali.Pipeline, "outputs", interrupted)
    with pytest.raises(KeyboardInterrupt):
        loader.load_state_dict(state)
    monkeypatch.undo()
    loader.load_state_dict(state)
    assert all(same(a, b) for a, b in zip(loader, expected, strict=True))


def test_a_loader_does_not_hang_in_a_forked_process(painted: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    loader = da.Loader(da.CocoReader(*painted), BLACK_SSD, 4, device="cpu")
    monkeypatch.setattr("os.getpid", lambda: -1)
    with pytest.raises(RuntimeError, match="forked process"):
        iter(loader)


def test_an_error_names_the_file_after_a_change_of_folder(painted: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(painted[0])
    reader = da.CocoReader(".", painted[1].name)
    monkeypatch.chdir("/")
    break_file(painted[0] / "13.png", "truncated")
    with pytest.raises(da.DataError) as caught:
        list(da.Loader(reader, [da.Resize((9, 9))], 4, device="cpu", train=False))
    assert [f"{at:02}.png" in str(caught.value) for at in (12, 13, 14)] == [False, True, False]


def test_to_source_takes_whole_numbers(painted: Folder) -> None:
    (batch,) = da.Loader(da.CocoReader(*painted), [da.Resize((30, 40))], 21, device="cpu", train=False)
    boxes = torch.tensor([[[1, 2, 30, 20]]]).repeat(21, 1, 1)
    assert torch.equal(batch.to_source(boxes), batch.to_source(boxes.float()))


def test_a_json_with_another_size_than_the_file_is_named(painted: Folder) -> None:
    reader = da.CocoReader(*painted)
    Image.new("RGB", (50, 60)).save(painted[0] / "05.png")
    with pytest.raises(da.DataError, match=r"05\.png has 50 x 60 pixels.*says 150 x 150"):
        list(da.Loader(reader, [da.Resize((9, 9))], 4, device="cpu", train=False))


@pytest.mark.parametrize(
    "preset", [da.presets.ssd300(), da.presets.retinanet(), da.presets.yolo640(), da.presets.evaluation((64, 96))]
)
def test_presets_make_batches_with_boxes_inside(preset: list[da.Op], painted: Folder, device: str) -> None:
    for batch in da.Loader(da.CocoReader(*painted), preset, batch_size=7, device=device):
        height, width = batch.images.shape[2:]
        assert batch.boxes.amin() >= 0
        assert batch.boxes[..., 2].max() <= width
        assert batch.boxes[..., 3].max() <= height
        assert (batch.boxes[..., 2:] > batch.boxes[..., :2])[batch.valid].all()
        assert batch.images.amin() >= 0
        assert batch.images.amax() <= 1


def test_old_names_lead_to_the_new_ones(painted: Folder) -> None:
    batch = next(iter(da.Loader(da.CocoReader(*painted), da.presets.ssd300(), 4, device="cpu")))
    for old, new in {"mask": "valid", "size": "source_size"}.items():
        with pytest.raises(AttributeError, match=rf"batch\.{old} is called batch\.{new} now"):
            getattr(batch, old)
        assert hasattr(batch, new)


@pytest.mark.parametrize(
    ("size", "ops", "message"),
    [
        (
            (20_000, 30),
            [da.Resize(800)],
            r"an image of 20000 x 30 pixels 533333 x 800, 5\.1 GB .*b\.png",
        ),
        ((30, 20_000), [da.RandomHorizontalFlip(), da.Resize(800)], r"give Resize a max_size, or leave the image out"),
        ((20_000, 30), [da.Resize(800, max_size=1333)], None),
        ((20_000, 30), [da.Resize((800, 800))], None),
        ((20_000, 30), [da.Resize(300), da.CenterCrop((224, 224))], None),
        ((20_000, 200), [da.Resize(800)], None),  # 64 megapixels, the limit
        ((20_001, 200), [da.Resize(800)], r"80004 x 800"),
    ],
)
def test_an_enormous_output_is_warned_of(
    tmp_path: Path, size: tuple[int, int], ops: list[da.Op], message: str | None
) -> None:
    """Nothing is decoded: the sizes of the JSON file tell."""
    Image.new("RGB", size).save(tmp_path / "b.png")
    Image.new("RGB", (40, 30)).save(tmp_path / "a.png")
    sizes = {"a.png": (40, 30), "b.png": size}
    images = [{"id": at, "file_name": name, "width": w, "height": h} for at, (name, (w, h)) in enumerate(sizes.items())]
    row = {"id": 1, "image_id": 1, "category_id": 1, "bbox": [1, 1, 9, 9], "area": 81, "iscrowd": 0}
    document = {"images": images, "annotations": [row], "categories": [{"id": 1, "name": "a"}]}
    (tmp_path / "a.json").write_text(json.dumps(document))
    reader = da.CocoReader(tmp_path, tmp_path / "a.json")
    with pytest.warns(UserWarning, match=message) if message else contextlib.nullcontext():
        da.Loader(reader, ops, 2, device="cpu").close()
