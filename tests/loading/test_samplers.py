"""Which images come how often, in which batches: samplers and aspect-ratio grouping."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from painted_files import Folder, same
from PIL import Image
from seeds import slow

import detaug as da
from detaug.loading.epochs import replace_skipped

pytestmark = pytest.mark.filterwarnings("ignore:aspect_ratio_grouping makes steps")

TINY = [da.Resize((4, 4))]
CLASSES = [[1], [1], [1], [1], [1], [1, 1, 2], [1, 3], [], [1, 2], [1]]
"""The labels of ten images."""


@pytest.fixture
def reader(tmp_path: Path) -> da.CocoReader:
    images, annotations = [], []
    for at, labels in enumerate(CLASSES):
        Image.new("RGB", (8, 6) if at % 3 else (6, 8)).save(tmp_path / f"{at}.png")
        width, height = (8, 6) if at % 3 else (6, 8)
        images.append({"id": at, "file_name": f"{at}.png", "width": width, "height": height})
        annotations += [{"image_id": at, "category_id": label, "bbox": [1, 1, 3, 3]} for label in labels]
    annotations = [{"id": at, "iscrowd": 0, **each} for at, each in enumerate(annotations, 1)]
    categories = [{"id": label, "name": f"class {label}"} for label in (1, 2, 3, 4)]
    path = tmp_path / "coco.json"
    path.write_text(json.dumps({"images": images, "annotations": annotations, "categories": categories}))
    return da.CocoReader(tmp_path, path)


def counts(loader: da.Loader, epochs: int) -> np.ndarray:
    """(n,): how often each image came."""
    seen = Counter(int(i) for _ in range(epochs) for batch in loader for i in batch.image_id)
    return np.array([seen[at] for at in range(len(loader.reader))])


def detectron2_repeat_factors(threshold: float) -> list[float]:
    """As RepeatFactorTrainingSampler.repeat_factors_from_category_frequency computes them, on plain lists."""
    frequency = Counter(label for labels in CLASSES for label in set(labels))
    repeat = {label: max(1.0, (threshold / (count / len(CLASSES))) ** 0.5) for label, count in frequency.items()}
    return [max((repeat[label] for label in set(labels)), default=1.0) for labels in CLASSES]


@pytest.mark.parametrize("threshold", [0.05, 0.5, 1.0])
def test_repeat_factors_are_those_of_lvis(reader: da.CocoReader, threshold: float) -> None:
    assert da.RepeatFactorSampler(threshold)(reader) == pytest.approx(detectron2_repeat_factors(threshold))


@pytest.mark.parametrize("share", [0, 0.3, 1])
def test_the_share_of_images_without_objects(reader: da.CocoReader, share: float) -> None:
    factors = da.EmptyImageSampler(share)(reader)
    empty = np.array([not labels for labels in CLASSES])
    assert factors[empty].sum() == pytest.approx(10 * share)
    assert factors[~empty] == pytest.approx([10 * (1 - share) / 9] * 9)


def test_a_share_that_no_image_has(tmp_path: Path, reader: da.CocoReader) -> None:
    document = json.loads((tmp_path / "coco.json").read_bytes())
    document["images"] = [each for each in document["images"] if each["id"] != CLASSES.index([])]
    (tmp_path / "full.json").write_text(json.dumps(document))
    full = da.CocoReader(tmp_path, tmp_path / "full.json")
    assert da.EmptyImageSampler(0)(full).tolist() == [1] * 9
    with pytest.raises(da.InputError, match=r"got 0\.1 where there is none without objects"):
        da.EmptyImageSampler(0.1)(full)


def test_images_with_many_errors_come_more_often(reader: da.CocoReader, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    report.write_text(json.dumps({"errors_of_image": {f"{at}.png": at for at in range(10)}}))
    assert da.HardImageSampler(report)(reader) == pytest.approx([1 + at / 4.5 for at in range(10)])
    assert da.HardImageSampler(report, most=2)(reader).max() == 2
    report.write_text(json.dumps({"errors_of_image": {f"{at}.png": 0 for at in range(10)}}))
    assert da.HardImageSampler(report)(reader).tolist() == [1] * 10
    report.write_text(json.dumps({"errors_of_image": {f"{at}.png": 0 for at in range(7)}}))
    with pytest.raises(da.InputError, match=r"no errors of 3 images, the first is '7\.png'"):
        da.HardImageSampler(report)(reader)
    with pytest.raises(da.InputError, match=r"needs a da\.CocoReader"):
        da.HardImageSampler(report)(da.Source([(4, 4)], ["a"]))
    for text in ("", "[]", "{}", '{"errors_of_image": {"0.png": []}}'):
        report.write_text(text)
        with pytest.raises(da.InputError, match=r"report\.json is not a report; detaug evaluate"):
            da.HardImageSampler(report)(reader)


def test_images_come_as_often_as_their_factor_says(reader: da.CocoReader) -> None:
    sampler = da.RepeatFactorSampler(0.5)
    factors = np.array(detectron2_repeat_factors(0.5))
    loader = da.Loader(reader, TINY, 1, device="cpu", sampler=sampler)
    assert len(loader) == np.ceil(factors.sum())
    for _ in range(3):
        once = counts(loader, 1)
        assert (once >= np.floor(factors)).all()
    assert counts(loader, 60) / 60 == pytest.approx(factors, abs=0.25)


def test_every_class_comes_as_often_as_the_others(reader: da.CocoReader) -> None:
    factors = da.ClassBalancedSampler()(reader)
    share = {label: 1 / 3 / sum(label in labels for labels in CLASSES) for label in (1, 2, 3)}
    assert factors == pytest.approx([10 * sum(share[label] for label in set(labels)) for labels in CLASSES])
    assert factors[6] == pytest.approx(10 / 3 * (1 + 1 / 9))  # a draw of class 3 is always this image
    loader = da.Loader(reader, TINY, 5, device="cpu", sampler=da.ClassBalancedSampler())
    assert len(loader) == 2
    seen = counts(loader, 60) / 60
    assert seen[7] == 0
    assert seen == pytest.approx(factors, abs=0.35)


def test_shares_are_those_of_epochs_with_tiles_of_several_grids(reader: da.CocoReader) -> None:
    """An epoch has the tiles of one grid of each source, and a source of many grids has more tiles than that."""
    sources = [da.TileReader(reader, 4, grids=3, whole=8), da.TileReader(reader, 4)]
    joined = da.ConcatReader(sources)
    assert joined.rounds is not None
    source_of = np.repeat([0, 1], [len(each) for each in sources])
    images, labels = joined.labels()
    classes = np.zeros((len(joined), 4))
    classes[images, labels] = 1

    def in_epochs(sampler: Any, marks: np.ndarray) -> list[float]:
        """Return how many images that have each of the marks (n, K) come in an epoch, on average over the grids."""
        factors = sampler(joined)
        return np.mean([factors[each] @ marks[each] for each in joined.rounds], axis=0).tolist()

    total = float(joined.rounds.sum(1).mean())
    sampler = da.SourceWeightSampler([3, 1])
    assert in_epochs(sampler, np.eye(2)[source_of]) == pytest.approx([total * 3 / 4, total / 4])
    empty = ~classes.any(1, keepdims=True)
    assert in_epochs(da.EmptyImageSampler(0.3), np.hstack([empty, ~empty])) == pytest.approx([total * 0.3, total * 0.7])
    count = np.mean([classes[each].sum(0) for each in joined.rounds], axis=0)
    share = np.divide(classes, count, where=count > 0, out=np.zeros_like(classes)).sum(1)
    assert da.ClassBalancedSampler()(joined) == pytest.approx(share * total / 3)
    rarity = np.where(classes, np.maximum(np.sqrt(0.9 * total / np.maximum(count, 1e-9)), 1), 1)
    assert da.RepeatFactorSampler(0.9)(joined) == pytest.approx(rarity.max(1))


@pytest.mark.parametrize("world", [1, 3])
@pytest.mark.parametrize("grouping", [False, True])
def test_shards_have_equal_steps_with_a_sampler(reader: da.CocoReader, world: int, grouping: bool) -> None:
    settings = {"sampler": da.RepeatFactorSampler(0.7), "aspect_ratio_grouping": grouping, "device": "cpu"}
    loaders = [da.Loader(reader, TINY, 2, shard=(rank, world), **settings) for rank in range(world)]
    for _ in range(6):
        epoch = [list(loader) for loader in loaders]
        assert {len(batches) for batches in epoch} == {len(loaders[0])}
        assert {len(batch) for batches in epoch for batch in batches} == {2}
        assert {int(i) for batches in epoch for batch in batches for i in batch.image_id} == set(range(10))


@pytest.mark.parametrize(
    ("last_batch", "message", "times"),
    [
        ("fill", r"only 1 of one kind, a step takes 12, so each step of them repeats some; last_batch='partial'", 12),
        ("drop", r"only 1 of one kind, a step takes 12, so no step has them; last_batch='partial'", 0),
        ("partial", None, 1),
    ],
)
@pytest.mark.filterwarnings("default")
def test_a_group_smaller_than_a_step_is_warned_of(
    tmp_path: Path, last_batch: Any, message: str | None, times: int
) -> None:
    """One image is high, 24 are wide."""
    images = [{"id": at, "file_name": f"{at}.png", "width": 40, "height": 30} for at in range(25)]
    images[24] |= {"width": 30, "height": 40}
    for each in images:
        Image.new("RGB", (each["width"], each["height"])).save(tmp_path / str(each["file_name"]))
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"images": images, "annotations": [], "categories": [{"id": 1, "name": "a"}]}))
    reader, settings = da.CocoReader(tmp_path, path), {"last_batch": last_batch, "aspect_ratio_grouping": True}
    with contextlib.nullcontext() if message is None else pytest.warns(UserWarning, match=message):
        loader = da.Loader(reader, TINY, 12, device="cpu", **settings)
    assert sum(batch.tolist().count(24) for batch in loader.schedule(0)) == times


def test_the_seed_and_the_epoch_decide(reader: da.CocoReader) -> None:
    def ids(seed: int) -> list[list[int]]:
        loader = da.Loader(reader, TINY, 2, seed=seed, device="cpu", **SETTINGS)
        return [[i for batch in loader for i in batch.image_id.tolist()] for _ in range(2)]

    assert ids(1) == ids(1)
    assert ids(1) != ids(2)
    assert ids(1)[0] != ids(1)[1]


SETTINGS = {"sampler": da.RepeatFactorSampler(0.5), "aspect_ratio_grouping": True}


@pytest.mark.parametrize("batch_size", [2, 4])
@pytest.mark.parametrize("world", [1, 2])
def test_a_batch_is_wide_or_tall(painted: Folder, batch_size: int, world: int) -> None:
    reader = da.CocoReader(*painted)
    recipe, padded = [da.Resize(32, max_size=64)], {}
    for grouping in (True, False):
        loaders = [
            da.Loader(reader, recipe, batch_size, device="cpu", shard=(rank, world), aspect_ratio_grouping=grouping)
            for rank in range(world)
        ]
        batches = [batch for loader in loaders for _ in range(2) for batch in loader]
        mixed = [len(set((batch.source_size[:, 1] > batch.source_size[:, 0]).tolist())) > 1 for batch in batches]
        assert any(mixed) != grouping
        assert {int(i) for batch in batches for i in batch.image_id} == set(range(10, 31))
        assert {len(batch) for batch in batches} == {batch_size}
        padded[grouping] = np.mean([batch.images.shape[2] * batch.images.shape[3] for batch in batches])
    assert padded[True] < padded[False]


def test_repeated_images_do_not_follow_each_other(painted: Folder) -> None:
    reader = da.CocoReader(*painted)
    loader = da.Loader(reader, TINY, 1, device="cpu", sampler=lambda reader: np.full(len(reader), 4))
    ids = [int(batch.image_id) for batch in loader]
    assert Counter(ids) == dict.fromkeys(range(10, 31), 4)
    assert sum(a == b for a, b in pairwise(ids)) < 20  # 63 if they did


def test_a_stand_in_is_of_the_same_group(painted: Folder) -> None:
    reader = da.CocoReader(*painted)
    for at in (0, 1, 7):
        (painted[0] / f"{at:02}.png").unlink()
    loader = da.Loader(reader, TINY, 2, device="cpu", aspect_ratio_grouping=True, on_error="skip", max_skipped=1)
    with pytest.warns(UserWarning, match="skipped"):
        batches = list(loader)
    assert [len(set((batch.source_size[:, 1] > batch.source_size[:, 0]).tolist())) for batch in batches] == [1] * len(
        loader
    )


@pytest.mark.parametrize("stop", [1, 4])
def test_a_state_goes_on_with_a_sampler(painted: Folder, stop: int) -> None:
    reader = da.CocoReader(*painted)
    recipe = [da.RandomHorizontalFlip(), da.Resize(32, max_size=64)]
    whole = da.Loader(reader, recipe, 4, device="cpu", **SETTINGS)
    batches = [*whole, *whole]
    loader = da.Loader(reader, recipe, 4, device="cpu", **SETTINGS)
    states = [loader.state_dict() for _ in loader]
    resumed = da.Loader(reader, recipe, 4, device="cpu", **SETTINGS)
    resumed.load_state_dict(json.loads(json.dumps(states[stop - 1])))
    assert all(same(a, b) for a, b in zip(batches[stop:], [*resumed, *resumed], strict=True))
    for others in ({}, {**SETTINGS, "sampler": da.ClassBalancedSampler()}, {**SETTINGS, "sampler": None}):
        with pytest.raises(ValueError, match="sampler"):
            da.Loader(reader, recipe, 4, device="cpu", **others).load_state_dict(states[0])
    ungrouped = da.Loader(reader, recipe, 4, device="cpu", **{**SETTINGS, "aspect_ratio_grouping": False})
    with pytest.raises(ValueError, match="aspect_ratio_grouping"):
        ungrouped.load_state_dict(states[0])


def test_a_function_of_your_own(painted: Folder) -> None:
    reader = da.CocoReader(*painted)
    loader = da.Loader(reader, TINY, 5, device="cpu", sampler=lambda reader: (np.arange(len(reader)) < 5) * 2)
    assert len(loader) == 2
    assert counts_of(loader) == dict.fromkeys(range(10, 15), 2)


def test_numbers_of_numpy_leave_a_state_that_json_stores(painted: Folder) -> None:
    numbers: Any = {"seed": np.int64(3), "shard": (np.int64(1), np.int64(2))}
    loader = da.Loader(da.CocoReader(*painted), TINY, np.int64(5), device="cpu", **numbers)  # type: ignore[arg-type]
    next(iter(loader))
    state = loader.state_dict()
    assert json.loads(json.dumps(state)) == state


def counts_of(loader: da.Loader) -> dict[int, int]:
    return dict(Counter(i for batch in loader for i in batch.image_id.tolist()))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sampler": lambda reader: np.ones(3)}, "returns 21 numbers"),
        ({"sampler": np.ones(21)}, "a function of the reader, .* got ndarray; for weights of images, sampler=lambda"),
        ({"sampler": torch.utils.data.WeightedRandomSampler([1.0], 1)}, "got WeightedRandomSampler; for weights"),
        ({"shard": (0.0, 2)}, r"shard must be \(rank, world size\) .* got \(0\.0, 2\)"),
        ({"sampler": lambda reader: -np.ones(21)}, "of at least 0"),
        ({"sampler": lambda reader: np.zeros(21)}, "one above 0"),
        ({"sampler": lambda reader: np.full(21, np.nan)}, "returns 21 numbers"),
        ({"sampler": da.RepeatFactorSampler(), "train": False}, "are for training"),
        ({"aspect_ratio_grouping": True, "train": False}, "are for training"),
        ({"on_error": "ignore"}, "on_error must be 'raise' or 'skip', got 'ignore'"),
        ({"max_skipped": 5}, "max_skipped must be a fraction"),
    ],
)
def test_a_wrong_setting_is_refused(painted: Folder, settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        da.Loader(da.CocoReader(*painted), TINY, 2, device="cpu", **settings)


@pytest.mark.parametrize("threshold", [0, -1, 1.5])
def test_a_wrong_threshold_is_refused(threshold: float) -> None:
    with pytest.raises(ValueError, match="threshold must be a fraction"):
        da.RepeatFactorSampler(threshold)


# ------------------------------------------------------------------------------------------------- collate


def test_collate_makes_what_the_loader_yields(painted: Folder) -> None:
    reader = da.CocoReader(*painted)
    plain = list(da.Loader(reader, TINY, 4, device="cpu"))
    collated = list(da.Loader(reader, TINY, 4, device="cpu", collate=lambda batch: (batch.images, batch.targets())))
    for batch, (images, targets) in zip(plain, collated, strict=True):
        assert torch.equal(batch.images, images)
        assert [target["image_id"] for target in targets] == batch.image_id.tolist()


def test_a_batch_that_collate_fails_on_comes_again_after_resume(painted: Folder) -> None:
    def fails(batch: da.Batch) -> list[int]:
        if 14 in batch.image_id:
            raise KeyError("mine")
        return batch.image_id.tolist()

    reader = da.CocoReader(*painted)
    loader = da.Loader(reader, TINY, 4, train=False, device="cpu", collate=fails)
    with pytest.raises(KeyError, match="mine"):
        list(loader)
    again = da.Loader(reader, TINY, 4, train=False, device="cpu", collate=lambda batch: batch.image_id.tolist())
    again.load_state_dict(loader.state_dict())
    assert next(iter(again)) == [14, 15, 16, 17]


def test_image_size_is_the_size_before_padding(painted: Folder, device: str) -> None:
    reader = da.CocoReader(*painted)
    (batch,) = da.Loader(reader, [da.Resize(100, max_size=120), da.Normalize()], 21, device=device, train=False)
    assert batch.image_size.tolist() == [[[90, 120], [120, 90], [100, 100]][at % 3] for at in range(21)]
    for image, (height, width) in zip(batch.images, batch.image_size.tolist(), strict=True):
        assert (image[:, height:] == 0).all()
        assert (image[:, :, width:] == 0).all()
    (batch,) = da.Loader(reader, da.presets.ssd300(), 21, device=device)
    assert batch.image_size.tolist() == [[300, 300]] * 21


def test_to_source_undoes_a_perspective() -> None:
    projective = torch.tensor([[[1.0, 0.1, 5], [0.05, 1.2, -3], [0.001, 0.002, 1]]])
    fields = {name: torch.zeros(1) for name in ("boxes", "labels", "valid", "image_id", "source_size", "image_size")}
    batch = da.Batch(images=torch.zeros(1, 3, 2, 2), matrix=projective, counts=(1,), **fields)
    x0, y0, x1, y1 = batch.to_source(torch.tensor([[[10.0, 20.0, 30.0, 50.0]]]))[0, 0].tolist()
    inverse = np.linalg.inv(projective[0].double().numpy())
    moved = np.array([[x, y, 1.0] for x in (10, 30) for y in (20, 50)]) @ inverse.T
    xs, ys = moved[:, 0] / moved[:, 2], moved[:, 1] / moved[:, 2]
    assert (x0, y0, x1, y1) == pytest.approx((xs.min(), ys.min(), xs.max(), ys.max()), abs=1e-3)


@pytest.mark.parametrize("world", [1, 2, 3])
@pytest.mark.parametrize("batch_size", [4, 30, *slow(2, 6, 21)])
def test_a_partial_last_batch_yields_every_image_once(painted: Folder, batch_size: int, world: int) -> None:
    reader = da.CocoReader(*painted)
    shards = [
        da.Loader(reader, [da.Resize((40, 50))], batch_size, device="cpu", shard=(rank, world), last_batch="partial")
        for rank in range(world)
    ]
    for _ in range(2):
        epochs = [[batch.image_id.tolist() for batch in shard] for shard in shards]
        assert len({len(batches) for batches in epochs}) == 1
        assert all(len(shard) == len(batches) for shard, batches in zip(shards, epochs, strict=True))
        assert all(len(each) == batch_size for batches in epochs for each in batches[:-1])
        seen = [image for batches in epochs for each in batches for image in each]
        rest = 21 % (batch_size * world)
        assert len(seen) == 21 + (max(world - rest, 0) if rest else 0)
        assert set(seen) == set(range(10, 31))


def test_a_partial_batch_has_two_images_for_ops_that_combine_them(painted: Folder) -> None:
    ops = [da.Resize((40, 50)), da.MixUp()]
    loader = da.Loader(da.CocoReader(*painted), ops, 4, device="cpu", last_batch="partial")
    assert [len(batch) for batch in loader] == [4, 4, 4, 4, 4, 2]


@pytest.mark.parametrize(("batch_size", "world", "steps"), [(4, 1, 5), (4, 2, 2), (7, 3, 1)])
def test_a_last_batch_that_is_not_full_may_be_dropped(painted: Folder, batch_size: int, world: int, steps: int) -> None:
    reader, seen = da.CocoReader(*painted), []
    for rank in range(world):
        loader = da.Loader(
            reader, [da.Resize((40, 50))], batch_size, device="cpu", shard=(rank, world), last_batch="drop"
        )
        assert len(loader) == steps
        seen += [image for batch in loader for image in batch.image_id.tolist()]
    assert len(seen) == len(set(seen)) == steps * batch_size * world


def test_dropping_the_only_batch_is_refused(painted: Folder) -> None:
    with pytest.raises(da.InputError, match="last_batch='drop' leaves no batch: 21 images"):
        da.Loader(da.CocoReader(*painted), [da.Resize((40, 50))], 22, device="cpu", last_batch="drop")
    with pytest.raises(da.InputError, match="last_batch must be 'fill', 'partial' or 'drop', got 'keep'"):
        da.Loader(da.CocoReader(*painted), [da.Resize((40, 50))], 2, device="cpu", last_batch="keep")
    with pytest.raises(da.InputError, match="last_batch and Stages are for training"):
        da.Loader(da.CocoReader(*painted), [da.Resize((40, 50))], 2, device="cpu", train=False, last_batch="drop")


@pytest.mark.parametrize("last_batch", ["partial", "drop"])
def test_groups_and_a_resumed_epoch_with_other_last_batches(painted: Folder, last_batch: str) -> None:
    def loader() -> da.Loader:
        options = {"last_batch": last_batch, "aspect_ratio_grouping": True, "pipelines": 2}
        return da.Loader(da.CocoReader(*painted), [da.Resize((40, 50))], 4, device="cpu", **options)

    whole, first = loader(), loader()
    batches = [*whole, *whole]
    sizes = [len(batch) for batch in batches[: len(whole)]]
    assert sorted(sizes) == ([2, 3, 4, 4, 4, 4] if last_batch == "partial" else [4, 4, 4, 4])
    for _ in zip(range(2), first, strict=False):
        state = first.state_dict()
    resumed = loader()
    resumed.load_state_dict(json.loads(json.dumps(state)))
    assert all(same(a, b) for a, b in zip(batches[2:], [*resumed, *resumed], strict=True))


@pytest.mark.parametrize("hop", [1, 4])
def test_a_stand_in_is_the_next_good_image_of_its_group_a_hop_later(hop: int) -> None:
    """Against a search one by one."""
    rng = np.random.default_rng(hop)
    for _ in range(50):
        order, groups, skipped = rng.permutation(17), rng.integers(0, 3, 17), rng.random(17) < rng.uniform(0, 1)
        batches = np.split(order, [4, 8, 12, 16])
        found = np.concatenate(replace_skipped(skipped, batches, groups, hop))
        for at, (image, stand_in) in enumerate(zip(order.tolist(), found.tolist(), strict=True)):
            later = [*order[(at + hop + np.arange(17)) % 17]] if at + hop < 17 else [*order]
            good = [each for each in later if not skipped[each]]
            same = [each for each in good if groups[each] == groups[image]]
            expected = same or good or [image]
            assert stand_in == (expected[0] if skipped[image] else image)


def plain_source(labels: list[list[int]]) -> da.Source:
    """Return images with a box for each label."""
    counts = [len(each) for each in labels]
    boxes = np.tile([[1.0, 1, 5, 5]], (sum(counts), 1))
    return da.Source([(9, 9)] * len(labels), ["a", "b"], boxes=boxes, counts=counts, labels=[*chain(*labels)])


def test_factors_by_hand() -> None:
    """Of an image whose rarest class comes first, and of sources of two sizes."""
    source = plain_source([[2, 1], [1], [1, 1], [1]])
    assert da.RepeatFactorSampler(1.0)(source).tolist() == [2, 1, 1, 1]
    both = da.ConcatReader([plain_source([[1], [2]]), plain_source([[1]] * 6)])
    assert da.SourceWeightSampler([3, 1])(both) == pytest.approx([3, 3, *[1 / 3] * 6])
