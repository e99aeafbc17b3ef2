"""Epochs of whole accumulation windows, and of at least so many batches: `Loader(accumulate=K, at_least=M)`."""

from __future__ import annotations

import json
from collections import Counter
from itertools import islice, product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from painted_files import Folder, paint_files, same

import detaug as da
from detaug.loading.epochs import EpochOrder

RESIZE = [da.Resize((8, 8))]
IMAGES = 21


@pytest.fixture(scope="module")
def painted(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    return paint_files(tmp_path_factory.mktemp("painted"), IMAGES)


def make(painted: Folder, batch_size: int, **options: Any) -> da.Loader:
    return da.Loader(da.CocoReader(*painted), RESIZE, batch_size, device="cpu", pipelines=1, threads=1, **options)


def often(schedule: list[np.ndarray]) -> list[int]:
    """Return how often each image comes, from the rarest on."""
    counted = Counter(np.concatenate(schedule).tolist())
    return sorted(counted[10 + at] for at in range(IMAGES))


@pytest.mark.parametrize(
    ("batch_size", "world", "options", "batches"),
    [
        (4, 1, {}, 6),
        (4, 1, {"accumulate": 4}, 8),
        (4, 1, {"accumulate": 6}, 6),
        (4, 1, {"accumulate": 7}, 7),
        (4, 1, {"accumulate": 50}, 50),
        (4, 1, {"at_least": 6}, 6),
        (4, 1, {"at_least": 7}, 7),
        (4, 1, {"accumulate": 4, "at_least": 9}, 12),
        (4, 1, {"accumulate": 4, "at_least": 12}, 12),
        (2, 2, {"accumulate": 4}, 8),
        (2, 3, {"accumulate": 3}, 6),
        (2, 3, {"accumulate": 3, "at_least": 7}, 9),
        (4, 1, {"accumulate": 2, "last_batch": "drop"}, 4),
        (4, 1, {"accumulate": 5, "last_batch": "drop"}, 5),
        (2, 3, {"accumulate": 2, "last_batch": "drop"}, 2),
        (4, 1, {"accumulate": 4, "sampler": lambda reader: np.full(len(reader), 1.8)}, 12),  # of 38 images
        (4, 1, {"accumulate": 2, "aspect_ratio_grouping": True}, 6),  # 7 wide images, 14 others: 2 + 4 batches
        (4, 1, {"accumulate": 7, "aspect_ratio_grouping": True}, 7),
    ],
)
def test_the_batches_of_an_epoch(
    painted: Folder, batch_size: int, world: int, options: dict[str, Any], batches: int
) -> None:
    for rank in range(world):
        with make(painted, batch_size, shard=(rank, world), **options) as loader:
            assert len(loader) == batches
            assert [len(loader.schedule(epoch)) for epoch in (0, 3)] == [batches] * 2
            assert [len(batch) for batch in loader] == [batch_size] * batches
            assert loader.state_dict()["step"] == batches


@pytest.mark.parametrize(("batch_size", "batches"), [(4, 6), (4, 7), (20, 13), (21, 5), (24, 4)])
def test_a_small_set_is_repeated_evenly_and_in_other_orders(painted: Folder, batch_size: int, batches: int) -> None:
    reader = da.CocoReader(*painted)
    order = EpochOrder(reader.clips, np.zeros(IMAGES, int), None, None, None, batch_size, (0, 1), 0, True)
    longer = EpochOrder(**{**vars(order), "at_least": batches})
    once, again = order.steps(1), longer.steps(1)
    assert len(again) == batches
    images = np.concatenate(again)
    # the images come first as in an epoch that is not longer
    assert images[:IMAGES].tolist() == np.concatenate(once)[:IMAGES].tolist()
    counted = np.bincount(images, minlength=IMAGES)
    assert counted.max() - counted.min() <= 1
    if batch_size <= IMAGES:
        assert [len({*step.tolist()}) for step in again] == [batch_size] * batches
    passes = [images[start : start + IMAGES].tolist() for start in range(0, len(images) - IMAGES + 1, IMAGES)]
    assert len({*map(tuple, passes)}) == len(passes)


def test_a_window_that_the_images_fill_changes_nothing(painted: Folder) -> None:
    with make(painted, 4) as plain, make(painted, 4, accumulate=3, at_least=6) as windows:
        assert all(same(*pair) for pair in zip(plain, windows, strict=True))
        state = plain.state_dict()
        with pytest.raises(da.InputError, match="this state has accumulate 1, this loader 3; make them equal"):
            windows.load_state_dict(state)
        del state["accumulate"], state["at_least"]  # as an earlier version saved it
        plain.load_state_dict(state)
        with pytest.raises(da.InputError, match="this state has accumulate 1, this loader 3; make them equal"):
            windows.load_state_dict(state)
        other = windows.state_dict() | {"accumulate": 1}
        with pytest.raises(da.InputError, match="this state has at_least 6, this loader 1; make them equal"):
            plain.load_state_dict(other)


@pytest.mark.parametrize("step", [1, 5, 6, 8, 9])
def test_a_state_in_a_repeated_part_goes_on_there(painted: Folder, step: int) -> None:
    options = {"accumulate": np.int64(3), "at_least": 8}
    with make(painted, 4, **options) as loader:
        expected = [batch.clone() for _ in range(2) for batch in loader]
    assert len(expected) == 18
    with make(painted, 4, **options) as loader, make(painted, 4, **options) as resumed:
        assert len(list(islice(loader, step))) == step
        resumed.load_state_dict(json.loads(json.dumps(loader.state_dict())))
        rest = list(resumed)
    end = 9 if step < 9 else 18
    assert all(same(*pair) for pair in zip(rest, expected[step:end], strict=True))


def test_a_group_gets_as_many_further_batches_as_it_has_images(painted: Folder) -> None:
    """A third of the images is wide, and makes 2 of 6 batches."""
    wide = {10 + at for at in range(0, IMAGES, 3)}
    with make(painted, 4, accumulate=7, aspect_ratio_grouping=True) as loader:
        assert sum({*batch.tolist()} <= wide for batch in loader.schedule(0)) == 2
    with make(painted, 2, at_least=60, aspect_ratio_grouping=True) as loader:
        counted = often(loader.schedule(0))
    assert sum(counted) == 120
    assert counted[0] >= 5
    assert counted[-1] <= 7


def test_a_sampler_counts_in_the_repeated_part_too(painted: Folder) -> None:
    factors = np.r_[3.0, np.ones(IMAGES - 1)]
    with make(painted, 4, at_least=230, sampler=lambda _: factors) as loader:  # 40 times 23 images
        counted = Counter(np.concatenate(loader.schedule(0)).tolist())
    assert counted[10] == 120
    assert {counted[10 + at] for at in range(1, IMAGES)} == {40}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"accumulate": 0}, "accumulate must be a whole number of at least 1, got 0"),
        ({"at_least": 1.5}, r"at_least must be a whole number of at least 1, got 1\.5"),
        ({"accumulate": 2, "train": False}, "accumulate must be 1 in evaluation, which has each image once, got 2"),
        ({"at_least": 2, "train": False}, "at_least must be 1 in evaluation"),
        ({"accumulate": 2, "last_batch": "partial"}, "last_batch must be 'fill' with accumulate=2, got 'partial'"),
        ({"at_least": 2, "last_batch": "partial"}, "last_batch must be 'fill' with at_least=2, got 'partial'"),
        ({"at_least": 2, "last_batch": "drop"}, "last_batch must be 'fill' with at_least=2, got 'drop', which repeats"),
        ({"accumulate": 6, "last_batch": "drop"}, "leaves no batch: 21 images do not fill 6 steps of all shards"),
    ],
)
def test_what_has_no_such_epochs_is_refused(painted: Folder, options: dict[str, Any], message: str) -> None:
    with pytest.raises(da.InputError, match=message):
        make(painted, 4, **options)


@pytest.mark.slow
def test_an_epoch_is_as_long_as_that_of_rf_detr() -> None:
    """`accumulate=K, at_least=5 * K` beside rfdetr's own data module, of which only what counts is made."""
    module_data = pytest.importorskip("rfdetr.training.module_data", reason="needs rfdetr[train]")
    cases, differ = 0, []
    for images, batch_size, accumulate, world in product((*range(1, 66), 1000), (1, 4), (1, 3, 4), (1, 2, 4)):
        module = SimpleNamespace(
            _dataset_train=range(images),
            _require_dataset=lambda dataset, _: dataset,
            _resolve_batch_size=lambda size=batch_size: size,
            _effective_grad_accum_steps=lambda steps=accumulate: steps,
            trainer=SimpleNamespace(world_size=world),
            _collate_fn_train=list,
            _num_workers=0,
            _pin_memory=False,
            _persistent_workers=False,
            _prefetch_factor=None,
        )
        theirs = len(module_data.RFDETRDataModule.train_dataloader(module)) / world
        clips, groups = np.arange(images)[:, None], np.zeros(images, int)
        order = EpochOrder(clips, groups, None, None, None, batch_size, (0, world), 0, True)
        ours = len(EpochOrder(**{**vars(order), "accumulate": accumulate, "at_least": 5 * accumulate}).batches(0))
        cases += 1
        if ours != theirs:
            differ.append((images, batch_size, accumulate, world, ours, theirs))
    assert differ == []
    assert cases == 1188
