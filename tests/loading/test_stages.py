"""`Stages`: a recipe that changes at epochs gives the batches of loaders with one recipe each, also resumed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command import detaug
from painted_files import Folder, digests, same
from PIL import Image
from seeds import slow
from train_run import Tiny, options
from worlds import FLIP, NORMALIZE, write_images

import detaug as da
from detaug.training import Detector, train
from detaug.training.loaders import make_train_loader

FIT = da.Resize((64, 64), letterbox="center")
BEGIN = [FIT, da.Mosaic(), da.RandomHSV(), NORMALIZE]
MIDDLE = [FLIP, da.RandomShortestSize((40, 48), 72), da.GaussianNoise(), NORMALIZE]
END = [da.Resize((80, 96))]
STAGES = da.Stages([(0, BEGIN), (2, MIDDLE), (3, END)])
OF_EPOCH = [BEGIN, BEGIN, MIDDLE, END, END]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    return write_images(tmp_path_factory.mktemp("stages"))


def loader(folder: Folder, ops: Any = STAGES, batch_size: int = 16, **options: Any) -> da.Loader:
    return da.Loader(da.CocoReader(*folder), ops, batch_size, **{"device": "cpu", "seed": 3, **options})


def epoch(loader: da.Loader) -> list[list[str]]:
    return [list(digests(batch)) for batch in loader]


def one_after_the_other(folder: Folder, **options: Any) -> Iterator[list[list[str]]]:
    """Yield the epochs of loaders that have one recipe each."""
    for number, ops in enumerate(OF_EPOCH):
        with loader(folder, ops, **options) as plain:
            plain.set_epoch(number)
            yield epoch(plain)


@pytest.mark.slow
@pytest.mark.parametrize("cache", [None, *slow("device")])
def test_stages_are_loaders_one_after_the_other(folder: Folder, device: str, cache: Any) -> None:
    with loader(folder, device=device, cache=cache) as staged:
        found = []
        for number, ops in enumerate(OF_EPOCH):
            found.append(epoch(staged))
            assert staged.ops == tuple(ops) == STAGES.at(number)
            assert staged.cached_images == (61 if cache else 0)
    assert found == list(one_after_the_other(folder, device=device))
    assert len({image for each in found for step in each for image in step}) > 250


@pytest.mark.slow
def test_a_run_resumes_in_the_middle_of_a_stage_on_two_shards(folder: Folder) -> None:
    with loader(folder) as staged:
        for _ in range(2):
            epoch(staged)
        batches = iter(staged)
        next(batches)
        state = json.loads(json.dumps(staged.state_dict()))
        rest = [list(digests(batch)) for batch in batches]
        after = [epoch(staged), epoch(staged)]
    shards = [loader(folder, batch_size=8, shard=(rank, 2)) for rank in range(2)]
    for shard in shards:
        shard.load_state_dict(state)
    for expected in (rest, *after):
        assert [[*one, *other] for one, other in zip(*map(epoch, shards), strict=True)] == expected


@pytest.mark.filterwarnings("ignore:Mosaic mixes images within groups")
@pytest.mark.parametrize("world", [1, 2])
def test_the_partial_batch_of_each_stage(folder: Folder, world: int) -> None:
    """61 images in steps of 12 leave one, to which others are added, as many as a later stage needs to mix.

    The batches are those that loaders of one recipe fill, as far as they go.
    """
    plain, mosaic = [FLIP, da.RandomIoUCrop(), FIT, NORMALIZE], [FIT, da.Mosaic(), NORMALIZE]
    stages, of_epoch = da.Stages([(0, plain), (1, mosaic), (3, END)]), [plain, mosaic, mosaic, END]
    for rank in range(world):
        options: dict[str, Any] = {"batch_size": 12 // world, "shard": (rank, world)}
        with loader(folder, stages, last_batch="partial", **options) as staged:
            assert len(staged) == 6
            for number, ops in enumerate(of_epoch):
                found = [batch.clone() for batch in staged]
                assert [len(batch) for batch in found] == [12 // world] * 5 + [2]
                assert [batch.image_id.tolist() for batch in found] == [
                    each.tolist() for each in staged.schedule(number)
                ]
                assert {batch.epoch for batch in found} == {number}
                with loader(folder, ops, **options) as filled:
                    filled.set_epoch(number)
                    wanted = [[*digests(batch)] for batch in filled]
                assert [[*digests(batch)] for batch in found[:5]] == wanted[:5]
                if ops is not mosaic and world == 1:
                    assert [*digests(found[5])] == wanted[5][:2]
                assert found[5].images.shape[2:] == ((80, 96) if ops is END else (64, 64))


def test_an_iterator_goes_to_a_state_of_another_stage(folder: Folder) -> None:
    """As Lightning makes it before it loads states."""
    with loader(folder) as staged:
        staged.set_epoch(3)
        expected = epoch(staged)
        staged.set_epoch(0)
        batches = iter(staged)
        staged.set_epoch(3)
        assert [list(digests(batch)) for batch in batches] == expected


def test_an_early_end_before_another_stage(folder: Folder) -> None:
    with loader(folder) as staged:
        staged.set_epoch(1)
        early = iter(staged)
        next(early)
        found = epoch(staged)
        with pytest.raises(RuntimeError, match="this loader was closed"):
            next(early)
    with loader(folder, MIDDLE) as plain:
        plain.set_epoch(2)
        assert found == epoch(plain)


def test_a_batch_of_an_earlier_stage_is_replayed(folder: Folder) -> None:
    smaller = [da.Resize((48, 48)), *BEGIN[1:]]  # whose ops draw numbers of the same names
    with loader(folder, da.Stages([(0, BEGIN), (1, smaller)]), return_params=True) as staged:
        first = next(iter(staged)).clone()
        list(staged)
        second = next(iter(staged))
        assert (first.epoch, second.epoch) == (0, 2)
        assert same(staged.replay(first), first)
        assert same(staged.replay(second), second)


@pytest.mark.slow
def test_broken_files_are_skipped_in_all_stages(folder: Folder, tmp_path: Path) -> None:
    content = json.loads(folder[1].read_text())
    for image in content["images"]:
        (tmp_path / image["file_name"]).write_bytes((folder[0] / image["file_name"]).read_bytes())
    (tmp_path / content["images"][7]["file_name"]).write_bytes(b"no image")
    broken = tmp_path, folder[1]
    with loader(broken, on_error="skip", max_skipped=0.1) as staged:
        with pytest.warns(UserWarning, match="skip"):
            found = [epoch(staged)]
        found += [epoch(staged) for _ in OF_EPOCH[1:]]
        assert len(staged.skipped) == 1
    with pytest.warns(UserWarning, match="skip"):
        assert found == list(one_after_the_other(broken, on_error="skip", max_skipped=0.1))


def test_a_state_of_other_stages_is_refused(folder: Folder) -> None:
    with loader(folder) as staged:
        state = staged.state_dict()
    earlier = da.Stages([(0, BEGIN), (1, MIDDLE), (3, END)])
    for other, difference in ((earlier, "from epoch 1: RandomHorizontalFlip(p=0.5)"), (BEGIN, "no op")):
        message = re.escape(f"op 5 is {difference}, was from epoch 2: RandomHorizontalFlip")
        with loader(folder, other) as here, pytest.raises(da.InputError, match=message):
            here.load_state_dict(state)


@pytest.mark.parametrize(
    ("first", "then"),
    [([FLIP, FIT], [da.RandomIoUCrop(), FIT]), ([FIT, da.GaussianNoise()], [FIT, da.RandomHSV()])],
)
def test_a_state_has_the_draws_of_every_stage(
    folder: Folder, first: list[da.Op], then: list[da.Op], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where two recipes have different ops at the same place."""
    stages = da.Stages([(0, [*first, NORMALIZE]), (1, [*then, NORMALIZE])])
    with loader(folder, stages) as staged:
        state = staged.state_dict()
    (last,) = (type(op) for op in then if op is not FIT)
    draw = last.draw
    monkeypatch.setattr(last, "draw", lambda op, rng, n: draw(op, np.random.default_rng(rng.integers(9)), n))
    with loader(folder, stages) as staged, pytest.raises(da.InputError, match="draws other random numbers"):
        staged.load_state_dict(state)


@pytest.mark.parametrize("name", ["stages.yaml", "stages.json"])
def test_files_and_code_give_back_the_stages(name: str, tmp_path: Path) -> None:
    da.save_recipe(STAGES, tmp_path / name)
    assert da.load_recipe(tmp_path / name) == STAGES
    assert eval(repr(STAGES), {name: getattr(da, name) for name in da.__all__}) == STAGES
    assert {STAGES: 1}[da.Stages(iter([(0, iter(BEGIN)), [np.int64(2), MIDDLE], (3, END)]))] == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[{from_epoch: 0, ops: [Mosaicc]}]", "entry 1, op 1: no op is called 'Mosaicc'"),
        ("[{from_epoch: 0, ops: []}, {from_epoch: 3}]", "entry 2: a stage is {from_epoch: 0, ops: [...]}"),
        ("[{from_epoch: 2, ops: []}]", "the epochs of stages must begin with 0 and grow, got [2]"),
        ("[{from_epoch: 0, ops: []}, {from_epoch: x, ops: []}]", "stage 2 must begin at an epoch, a whole number"),
        ("[{from_epoch: 0, ops: []}, Mosaic]", "entry 2: a stage is {from_epoch: 0, ops: [...]}; got 'Mosaic'"),
        ("[Mosaic, {from_epoch: 9, ops: []}]", "entry 1: a stage is {from_epoch: 0, ops: [...]}; got 'Mosaic'"),
        (
            "[{from_epoch: 0, ops: []}, {from-epoch: 3, ops: []}]",
            "entry 2: a stage is {from_epoch: 0, ops: [...]}; got",
        ),
        ("[{ops: []}, {from_epoch: 3, ops: []}]", "entry 1: a stage is {from_epoch: 0, ops: [...]}; got {'ops': []}"),
        ("{from_epoch: 0, ops: []}", "a recipe is a list of ops, or of stages, {from_epoch: 0, ops: [...]}; got dict"),
    ],
)
def test_a_wrong_file_is_one_sentence(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(text)
    with pytest.raises(da.InputError, match=re.escape(f"recipe.yaml: {message}")):
        da.load_recipe(tmp_path / "recipe.yaml")


@pytest.mark.parametrize("stages", [[(1, END)], [(0, END), (0, END)], [(0, END), (5, END), (3, END)], [], [(-1, END)]])
def test_epochs_that_do_not_grow(stages: Any) -> None:
    with pytest.raises(da.InputError, match="epoch"):
        da.Stages(stages)


def test_a_stage_begins_at_its_epoch() -> None:
    stages = da.Stages([(0, MIDDLE), (5, END)])
    assert [stages.at(epoch) == tuple(END) for epoch in (0, 4, 5, 6)] == [False, False, True, True]


@pytest.mark.parametrize("epoch", [-1, 1.5, "2", None])
def test_what_is_no_epoch(epoch: Any) -> None:
    with pytest.raises(da.InputError, match="epoch must be a whole number of at least 0"):
        STAGES.at(epoch)


@pytest.mark.parametrize("stages", [END, [(0, 1, END)], (0, END), 3, [(0, "Resize")], [(0, [da.Resize])]])
def test_what_is_no_list_of_stages(stages: Any) -> None:
    with pytest.raises(TypeError, match=r"list of (\(epoch, )?ops"):
        da.Stages(stages)


def test_a_recipe_in_the_place_of_stages_is_not_printed_whole() -> None:
    with pytest.raises(TypeError, match=r"such as \[\(0, recipe\), \(90, other\)\], got the op RandomHorizontalFlip$"):
        da.Stages([da.RandomHorizontalFlip(), da.Resize((9, 9))])  # type: ignore[list-item]


def test_recipes_that_do_not_fit_name_their_stage(folder: Folder) -> None:
    with pytest.raises(da.InputError, match="the stage from epoch 4 on: the recipe needs a Resize"):
        loader(folder, da.Stages([(0, END), (4, [FLIP])]))
    with pytest.raises(da.InputError, match=r"the stage from epoch 2 on: .* batch_size must be at least 2"):
        loader(folder, da.Stages([(0, END), (2, BEGIN)]), batch_size=1)
    with pytest.raises(da.InputError, match="Stages are for training"):
        loader(folder, train=False)
    for use in (da.Compose, da.batch([np.zeros((9, 9, 3), np.uint8)]).then):
        with pytest.raises(TypeError, match=r"stages\.at\(epoch\)|a recipe is made of ops|list of ops"):
            use(STAGES)


@pytest.mark.slow
def test_preview_shows_the_recipe_of_an_epoch(folder: Folder, tmp_path: Path) -> None:
    da.save_recipe(STAGES, tmp_path / "stages.yaml")
    da.save_recipe(MIDDLE, tmp_path / "plain.yaml")
    shown = {"1": "stages.yaml", "2": "stages.yaml", "0": "plain.yaml"}
    for number, recipe in shown.items():
        options = ("-o", tmp_path / f"{number}.png", "--recipe", tmp_path / recipe, "--epoch", number)
        assert detaug("preview", folder[1], folder[0], *options, "--rows", 2).code == 0
    begin, middle, plain = (np.asarray(Image.open(tmp_path / f"{number}.png"))[60:] for number in shown)
    assert (middle == plain).all()
    assert begin.shape != middle.shape or (begin != middle).any()


@pytest.mark.parametrize(
    ("recipe", "epochs", "reached"),
    [
        (da.Stages([(0, BEGIN), (2, END)]), 2, False),
        (da.Stages([(0, BEGIN), (2, END)]), 3, True),
        ([FIT, da.Mosaic(until_epoch=2), NORMALIZE], 1, False),
        ([FIT, da.Mosaic(until_epoch=2), NORMALIZE], 2, True),
        (BEGIN, 1, True),
    ],
)
def test_a_training_that_does_not_reach_a_stage_says_so(
    folder: Folder, tmp_path: Path, recipe: Any, epochs: int, reached: bool
) -> None:
    da.save_recipe(recipe, tmp_path / "recipe.yaml")
    (size,) = [op.size for op in getattr(recipe, "stages", [(0, recipe)])[-1][1] if isinstance(op, da.Resize)]
    settings = options(*folder, tmp_path / "run", epochs=epochs, recipe=tmp_path / "recipe.yaml", size=size)
    with nullcontext() if reached else pytest.warns(UserWarning, match=f"at epoch 2, .* of {epochs} epoch"):
        make_train_loader(settings, torch.device("cpu"), Detector(Tiny(2)))


class Stopping(Tiny):
    """Raises an error at a training step, and counts steps by the heights of their images."""

    stops_at = 0
    heights: dict[int, int]

    def forward(self, images: torch.Tensor, targets: Any = None) -> Any:
        if targets is not None:
            Stopping.heights[images.shape[2]] = Stopping.heights.get(images.shape[2], 0) + 1
            if self.calls + 1 == Stopping.stops_at:
                raise RuntimeError("stopped by the test")
        return super().forward(images, targets)


@pytest.mark.slow
def test_a_training_resumes_in_the_middle_of_a_stage(
    painted: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small, large = ([da.RandomHorizontalFlip(), da.Resize((side, side)), da.Normalize()] for side in (32, 48))
    da.save_recipe(da.Stages([(0, small), (1, large)]), tmp_path / "stages.yaml")

    def run(name: str, stops_at: int = 0, *, resume: bool = False) -> list[float]:
        monkeypatch.setattr(Stopping, "stops_at", stops_at)
        monkeypatch.setattr(Stopping, "heights", {}, raising=False)
        others: dict[str, Any] = {"size": (48, 48), "epochs": 2, "recipe": tmp_path / "stages.yaml", "resume": resume}
        settings = options(*painted, tmp_path / name, **others)
        train(settings, make_model=lambda _, classes: Detector(Stopping(classes)), say=lambda _: None)
        rows = map(json.loads, (tmp_path / name / "metrics.jsonl").read_text().splitlines())
        return [row["loss"] for row in rows if "loss" in row]

    whole = run("whole")
    assert Stopping.heights == {32: 6, 48: 6}
    with pytest.raises(RuntimeError, match="stopped by the test"):
        run("stopped", 10)
    assert run("stopped", resume=True) == whole
    assert Stopping.heights == {48: 4}  # from the checkpoint after step 8
