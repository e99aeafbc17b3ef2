"""The same images, boxes and pixels on any number of shards, and states that move from one number to another."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from itertools import chain, islice, product, repeat, zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmark_scripts import BENCHMARKS, load_script
from painted_files import Folder, digests
from seeds import slow
from worlds import GLOBAL_BATCH, RECIPES, RESIZE, SAMPLERS, settings, write_images

import detaug as da

pytestmark = pytest.mark.filterwarnings("ignore:aspect_ratio_grouping makes steps")

WORLDS = {"once": (1, 2, 24), "repeated": (1, 3, 8), "grouped": (1, 3, 8)}
"""By sampler: the numbers of shards; each recipe comes with all of one of them."""
BROKEN = (5, 23, 24, 40)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    return write_images(tmp_path_factory.mktemp("worlds"))


class Shards:
    """The loaders of all shards, each with other settings; they change only the speed."""

    def __init__(self, folder: Folder, ops: Iterable[da.Op], world: int, path: Path, **options: Any) -> None:
        batch_size = options.pop("global_batch", GLOBAL_BATCH) // world
        mixes = world > 1 and any(op.mixes for op in ops) and batch_size % 8
        with pytest.warns(UserWarning, match="other pixels") if mixes else contextlib.nullcontext():
            self.loaders = [
                da.Loader(
                    da.CocoReader(*folder),
                    ops,
                    batch_size,
                    shard=(rank, world),
                    settings=settings(path, rank),
                    **options,
                )
                for rank in range(world)
            ]

    def load(self, state: dict[str, Any]) -> None:
        for loader in self.loaders:
            loader.load_state_dict(json.loads(json.dumps(state)))

    def steps(self, epochs: int) -> Iterator[list[str]]:
        """Yield the digests of the images of each step, in the order of their slots."""
        for batches in zip(*(chain.from_iterable(repeat(loader, epochs)) for loader in self.loaders), strict=True):
            yield [digest for batch in batches for digest in digests(batch)]


def worlds_of(recipe: str, sampler: str) -> tuple[int, ...]:
    """Return the world sizes whose images must be the same: for ops that mix, those with whole groups of 8."""
    mixes = any(op.mixes for op in RECIPES[recipe])
    return (1, 3) if mixes else WORLDS[sampler]


@pytest.mark.parametrize("recipe", ["several sizes", "mixing", *slow("ssd", "containers", "mosaic")])
def test_the_same_images_on_one_shard_and_on_three(folder: Folder, tmp_path: Path, recipe: str, device: str) -> None:
    one, three = (list(Shards(folder, RECIPES[recipe], world, tmp_path, device=device).steps(2)) for world in (1, 3))
    assert one == three
    assert [len(step) for step in one] == [24] * 6
    assert len({image for step in one for image in step}) > 120  # of 144; an image that comes twice differs


def test_the_images_of_a_step_have_one_scale_on_all_shards(folder: Folder, tmp_path: Path) -> None:
    ops = [da.RandomShortestSize((16, 20, 24))]
    steps = zip(*Shards(folder, ops, 2, tmp_path, device="cpu", global_batch=6).loaders, strict=True)
    scales = [{side for batch in step for side in batch.image_size.amin(1).tolist()} for step in steps]
    assert [len(each) for each in scales] == [1] * 11
    assert set.union(*scales) == {16, 20, 24}


def test_no_two_positions_of_two_epochs_have_the_same_numbers(folder: Folder) -> None:
    ops, five = [da.RandomZoomOut(p=1), da.Resize((4, 4))], lambda reader: np.full(len(reader), 5)
    loader = da.Loader(da.CocoReader(*folder), ops, 2, device="cpu", sampler=five, return_params=True)
    offsets = np.concatenate([batch.params[0]["offset"] for _ in range(2) for batch in loader])
    assert len(np.unique(offsets)) == offsets.size == 2 * 2 * 306


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "sampler"),
    [(recipe, [*SAMPLERS][at % len(SAMPLERS)]) for at, recipe in enumerate(RECIPES)],  # neither knows of the other
)
def test_the_same_images_on_any_number_of_shards(
    folder: Folder, tmp_path: Path, recipe: str, sampler: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two epochs, with other numbers of pipelines, threads, batches in flight and images planned at once."""
    found = {}
    for world in worlds_of(recipe, sampler):
        monkeypatch.setattr("detaug.loading.planner.BLOCK_IMAGES", 2048 // world**2)
        shards = Shards(folder, RECIPES[recipe], world, tmp_path, device="cpu", **SAMPLERS[sampler])
        found[world] = list(shards.steps(2))
        assert found[world] == found[1], f"{world} shards"
    assert len(found[1]) >= 4


@pytest.mark.slow
def test_a_larger_batch_mixes_in_groups_on_more_shards(folder: Folder, tmp_path: Path) -> None:
    one, *others = (
        list(Shards(folder, RECIPES["mosaic"], world, tmp_path, device="cpu", global_batch=48).steps(2))
        for world in (1, 2, 3, 6)
    )
    assert others == [one] * 3


@pytest.mark.parametrize("world", [2, *slow(4, 12)])
def test_cut_groups_give_other_pixels_and_the_loader_says_so(folder: Folder, tmp_path: Path, world: int) -> None:
    one, others = (Shards(folder, RECIPES["mixing"], each, tmp_path, device="cpu") for each in (1, world))  # warns
    assert next(one.steps(1)) != next(others.steps(1))
    with pytest.raises(da.InputError, match=rf"mixed within groups of 8, here within batches of {24 // world}; resume"):
        others.load(one.loaders[0].state_dict())


@pytest.mark.slow
@pytest.mark.parametrize("world", [2, 3, 13, 24])
def test_a_partial_step_is_the_same_on_any_number_of_shards(folder: Folder, tmp_path: Path, world: int) -> None:
    """61 images leave 13; on 24 shards some of these come twice."""
    ops = RECIPES["several sizes"]
    options = {"device": "cpu", "last_batch": "partial", "global_batch": 24 if world != 13 else 26}
    one, others = (list(Shards(folder, ops, each, tmp_path, **options).steps(2)) for each in (1, world))
    assert [step[: len(expected)] for step, expected in zip(others, one, strict=True)] == one
    assert [len(step) for step in one] == [24, 24, 13] * 2 if world != 13 else [26, 26, 9] * 2


@pytest.mark.parametrize("world", [4, *slow(3, 24)])
def test_evaluation_has_the_same_steps_on_any_number_of_shards(folder: Folder, tmp_path: Path, world: int) -> None:
    one, others = (Shards(folder, RECIPES["ssd"], each, tmp_path, device="cpu", train=False) for each in (1, world))
    steps = list(one.steps(1))
    assert [sorted(images) for images in steps_of_uneven(others)] == [sorted(images) for images in steps]
    assert [int(image.split()[0]) for step in steps for image in step] == list(range(10, 71))


def steps_of_uneven(shards: Shards) -> list[list[str]]:
    """Return the steps of one epoch in which some shards may have a batch less."""
    columns = zip_longest(*shards.loaders)
    return [[digest for batch in batches if batch is not None for digest in digests(batch)] for batches in columns]


@pytest.mark.filterwarnings("ignore:.*skipped")
@pytest.mark.slow
@pytest.mark.parametrize(("world", "train"), [*product((2, 3, 8), (True, False)), (24, True)])
def test_stand_ins_are_the_same_on_any_number_of_shards(
    folder: Folder, tmp_path: Path, world: int, train: bool
) -> None:
    """An image that cannot be read changes no other image, whichever shard finds it and whenever."""
    broken = Path(shutil.copytree(folder[0], tmp_path / "broken"))
    for at in BROKEN:
        (broken / f"{at}.{'png' if at % 5 else 'jpg'}").write_bytes(b"no image")
    options = {"device": "cpu", "on_error": "skip", "max_skipped": 1, "train": train}
    found = [
        [sorted(step) for _ in range(2) for step in steps_of_uneven(shards)]
        for shards in (Shards((broken, folder[1]), RECIPES["ssd"], each, tmp_path, **options) for each in (1, world))
    ]
    assert found[0] == found[1]
    undamaged = Shards(folder, RECIPES["ssd"], 1, tmp_path, device="cpu", train=train)
    whole = [step for _ in range(2) for step in steps_of_uneven(undamaged)]
    ids = {str(10 + at) for at in BROKEN}
    left = [{image for image in step if image.split()[0] not in ids} for step in whole]
    assert all(images <= set(step) for images, step in zip(left, found[0], strict=True))


@pytest.mark.slow
def test_the_same_images_in_other_processes(device: str) -> None:
    """Two and four processes, beside one; the script takes all recipes and samplers, in a minute or two."""
    command = [sys.executable, BENCHMARKS / "world_sizes.py", "--device", device, "--recipes", "several sizes"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert run.returncode == 0, run.stdout + run.stderr[-5000:]
    assert re.findall(r"(\d) processes .*: 432 images compared, 0 differ\n", run.stdout)[-1] == "4"


def test_the_script_tells_which_images_differ() -> None:
    script = load_script("world_sizes")
    one, other = {"ssd, once": [["1 a", "2 b"], ["3 c", "4 d"]]}, {"ssd, once": [["1 a", "2 B"], ["3 c"]]}
    expected = [f"ssd, once, step {at}, slot 1" for at in (0, 1)]
    assert script.compare(one, other) == (4, expected)
    assert (
        script.compare(one, script.joined([{"ssd, once": [[a], [b]]} for a, b in (("1 a", "3 c"), ("2 b", "4 d"))]))[1]
        == []
    )
    went_on = {"ssd, once": [[], ["3 c", "4 D"]]}
    assert script.compare(one, went_on) == (2, ["ssd, once, step 1, slot 1"])


def test_the_script_uses_all_gpus() -> None:
    script = load_script("world_sizes")

    def devices(gpus: int) -> list[str]:
        chosen = script.layouts("cuda", gpus)
        return [" ".join(name[-1] for name in each.devices) + " on" * each.goes_on for each in chosen]

    assert devices(1) == ["0", "0 0", "0 0 0 0", "0 0 0 on", "0 0 on", "0 on"]
    assert devices(2) == ["0", "0 1", "0 0", "0 1 0 1", "0 1 0 on", "0 1 on", "0 on"]
    assert devices(4) == ["0", "0 1", "0 1 2 3", "0 1 2 on", "0 1 on", "0 on"]
    assert devices(8)[3:5] == ["0 1 2 3 4 5 6 7", "0 1 2 3 4 5 6 on"]
    layouts = script.layouts("cuda", 8)
    assert [script.images_of_a_step(recipe, 8) for recipe in ("ssd", "mixing")] == [56, 64]
    assert [script.divides("ssd", layout, 8) for layout in layouts] == [True] * 7
    assert [script.divides("mixing", layout, 8) for layout in layouts] == [True, True, True, True, False, True, True]


# ------------------------------------------------------------------------------------------- elastic resume


@pytest.mark.parametrize(
    ("recipe", "worlds", "runs"),
    [("several sizes", (3, 1), 2), *slow(("ssd", (8, 2, 3, 1), 10), ("affine", (12, 4, 24), 5))],
)
def test_a_training_moves_between_numbers_of_shards(
    folder: Folder, tmp_path: Path, recipe: str, worlds: tuple[int, ...], runs: int
) -> None:
    """Each stops somewhere in the middle of an epoch; any shard's state is loaded on all shards."""
    options = {"device": "cpu", **SAMPLERS["grouped"]}
    shards = [Shards(folder, RECIPES[recipe], world, tmp_path, **options) for world in worlds]
    start = shards[0].loaders[0].state_dict()
    expected = list(Shards(folder, RECIPES[recipe], 1, tmp_path, **options).steps(2 * len(worlds)))
    rng = np.random.default_rng(runs)
    for _ in range(runs):
        state, seen = start, list[list[str]]()
        for each in shards:
            each.load(state)
            seen += islice(each.steps(3), int(rng.integers(1, 7)))
            state = each.loaders[rng.integers(len(each.loaders))].state_dict()
        assert seen == expected[: len(seen)]


def test_longer_epochs_move_between_numbers_of_shards(folder: Folder, tmp_path: Path) -> None:
    """61 images fill 3 steps of 24; they are repeated for 5, which are no multiple of 2."""
    options = {"device": "cpu", "accumulate": 2, "at_least": 5}
    one, two = (Shards(folder, RECIPES["several sizes"], world, tmp_path, **options) for world in (1, 2))
    expected = list(one.steps(2))
    assert [len(step) for step in expected] == [24] * 12
    assert list(islice(two.steps(1), 4)) == expected[:4]
    one.load(two.loaders[1].state_dict())
    assert list(one.steps(2)) == expected[4:]


@pytest.mark.parametrize("stop", [1, *slow(2, 3)])
def test_an_evaluation_moves_to_another_number_of_shards(folder: Folder, tmp_path: Path, stop: int) -> None:
    """61 images in steps of 20: four of five shards have a batch less, also where a state is taken after it."""
    options = {"device": "cpu", "train": False, "global_batch": 20}
    one, five = (Shards(folder, [RESIZE], world, tmp_path, **options) for world in (1, 5))
    expected = [sorted(step) for step in steps_of_uneven(one)]
    iterators = [iter(loader) for loader in five.loaders]
    for iterator in iterators:
        assert len(list(islice(iterator, stop))) == stop
    one.load(five.loaders[4].state_dict())
    assert [sorted(step) for step in steps_of_uneven(one)] == expected[stop:]
    five.load(json.loads(json.dumps(five.loaders[0].state_dict())))
    assert [sorted(step) for step in steps_of_uneven(five)] == expected[stop:]
    one.load(five.loaders[4].state_dict())  # at the end of an epoch, in which this shard had a batch less
    assert [sorted(step) for step in steps_of_uneven(one)] == expected


# ------------------------------------------------------------------------------------------- the schedule


def test_the_schedule_is_what_the_loader_yields(folder: Folder, tmp_path: Path) -> None:
    three = Shards(folder, [RESIZE], 3, tmp_path, device="cpu", **SAMPLERS["grouped"])
    for loader in three.loaders:
        planned = [loader.schedule(epoch) for epoch in range(2)]
        yielded = [[batch.image_id.tolist() for batch in loader] for _ in range(2)]
        assert [[ids.tolist() for ids in epoch] for epoch in planned] == yielded
    with pytest.raises(da.InputError, match="epoch must be a whole number of at least 0, got -1"):
        three.loaders[0].schedule(-1)


def test_the_schedule_reads_no_file_and_knows_missing_ones(folder: Folder, tmp_path: Path) -> None:
    reader = da.CocoReader(Path(shutil.copytree(folder[0], tmp_path / "copy")), folder[1])
    loader = da.Loader(reader, [RESIZE], 8, device="cpu", train=False, on_error="skip", max_skipped=1)
    shutil.rmtree(tmp_path / "copy")
    assert [ids.tolist() for ids in loader.schedule(0)][:2] == [[*range(10, 18)], [*range(18, 26)]]
    (missing := Path(shutil.copytree(folder[0], tmp_path / "less")) / "1.png").unlink()
    with pytest.warns(UserWarning, match=f"{missing.name} does not exist; skipped"):
        loader = da.Loader(
            da.CocoReader(missing.parent, folder[1]),
            [RESIZE],
            8,
            device="cpu",
            train=False,
            on_error="skip",
            max_skipped=1,
        )
    assert loader.schedule(0)[0].tolist() == [10, 12, 13, 14, 15, 16, 17]
