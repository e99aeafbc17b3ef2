"""`Stages(..., by="step")`: a recipe that changes in the middle of an epoch, also resumed there."""

from __future__ import annotations

import json
import re
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from command import detaug
from painted_files import Folder, digests, same, settings_file
from seeds import slow
from train_run import Tiny, options
from worlds import FLIP, NORMALIZE, write_images

import detaug as da
from detaug.training import Detector
from detaug.training.loaders import make_train_loader

FIT = da.Resize((64, 64), letterbox="center")
BEGIN = [FIT, da.Mosaic(), da.RandomHSV(), NORMALIZE]
MIDDLE = [FLIP, da.RandomShortestSize((40, 48), 72), da.GaussianNoise(), NORMALIZE]
END = [da.Resize((80, 96))]
STARTS = (0, 2, 7, 8)
"""Of 4 steps in each epoch: in the middle of the first, at the end of the second, and where the third begins."""
OPS = (BEGIN, MIDDLE, END, MIDDLE)
STAGES = da.Stages(list(zip(STARTS, OPS, strict=True)), by="step")
STEPS = 12


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    return write_images(tmp_path_factory.mktemp("stages"))


def loader(folder: Folder, ops: Any = STAGES, batch_size: int = 16, **options: Any) -> da.Loader:
    return da.Loader(da.CocoReader(*folder), ops, batch_size, **{"device": "cpu", "seed": 3, **options})


def steps_of(loader: da.Loader, epochs: int = 3) -> list[list[str]]:
    return [list(digests(batch)) for _ in range(epochs) for batch in loader]


@pytest.fixture(scope="module")
def expected(folder: Folder) -> list[list[str]]:
    """The steps of three epochs, by loaders with one recipe each."""
    of_recipe = []
    for ops in OPS:
        with loader(folder, ops) as plain:
            of_recipe.append(steps_of(plain))
    stage_of_step = [max(at for at, start in enumerate(STARTS) if start <= step) for step in range(STEPS)]
    return [of_recipe[stage][step] for step, stage in enumerate(stage_of_step)]


@pytest.mark.parametrize("cache", [None, *slow("device")])
def test_stages_are_parts_of_loaders(folder: Folder, expected: list[list[str]], cache: Any) -> None:
    with loader(folder, cache=cache) as staged:
        for step, batch in enumerate([batch for _ in range(3) for batch in staged]):
            assert list(digests(batch)) == expected[step]
            assert (batch.epoch, batch.step) == divmod(step, 4)


def test_groups_of_batches_end_with_a_stage(folder: Folder, expected: list[list[str]]) -> None:
    """Where a pipeline processes three batches at once, and the next stage begins within them."""
    with loader(folder, settings=settings_file(folder, batches_per_group=3)) as staged:
        assert steps_of(staged) == expected


class Counted(da.CocoReader):
    """Keeps which images are read."""

    def __init__(self, *paths: Path) -> None:
        super().__init__(*paths)
        self.files, self.seen = False, list[int]()

    def contents(self, indices: Any) -> Any:
        self.seen += indices.tolist()
        return super().contents(indices)


def test_a_stage_reads_no_image_of_the_next_one(folder: Folder) -> None:
    reader = Counted(*folder)
    with da.Loader(reader, STAGES, 16, device="cpu", seed=3) as staged:
        batches = [image for batch in islice(staged, 2) for image in batch.image_id.tolist()]
        assert sorted(reader.image_ids[reader.seen].tolist()) == sorted(batches)


@pytest.mark.parametrize("stop", [1, *slow(2, 3, 4, 6), 7, 8])
def test_a_run_resumes_at_any_step_on_two_shards(folder: Folder, expected: list[list[str]], stop: int) -> None:
    with loader(folder) as staged:
        assert len(list(islice((batch for _ in range(3) for batch in staged), stop))) == stop
        state = json.loads(json.dumps(staged.state_dict()))
        next_recipe = OPS[max(at for at, start in enumerate(STARTS) if start <= stop)]
        if stop % 4:
            assert list(staged.ops) == next_recipe
    shards = [loader(folder, batch_size=8, shard=(rank, 2)) for rank in range(2)]
    found = []
    for shard in shards:
        shard.load_state_dict(state)
    for _ in range(3 - stop // 4):
        found += [[*one, *other] for one, other in zip(*(steps_of(shard, 1) for shard in shards), strict=True)]
    assert found[: STEPS - stop] == expected[stop:]
    for shard in shards:
        shard.close()


def test_an_epoch_that_is_left_early_and_one_that_is_chosen(folder: Folder, expected: list[list[str]]) -> None:
    with loader(folder) as staged:
        early = iter(staged)
        next(early)
        staged.set_epoch(1)
        assert steps_of(staged, 1) == expected[4:8]
        with pytest.raises(RuntimeError, match=r"went on to another epoch|was closed"):
            next(early)
        staged.set_epoch(0)
        assert steps_of(staged, 1) == expected[:4]


def test_batches_of_two_stages_of_an_epoch_are_made_again(folder: Folder) -> None:
    smaller = [da.Resize((48, 48)), *BEGIN[1:]]  # whose ops draw numbers of the same names
    with loader(folder, da.Stages([(0, BEGIN), (3, smaller)], by="step"), return_params=True) as staged:
        batches = [batch.clone() for batch in staged]
        assert [batch.images.shape[-1] for batch in batches] == [64, 64, 64, 48]
        for batch in (batches[0], batches[3], batches[2]):
            again = staged.replay(batch)
            assert same(again, batch)
            assert (again.epoch, again.step) == (batch.epoch, batch.step)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*skip")
def test_broken_files_are_skipped_in_all_stages(folder: Folder, tmp_path: Path) -> None:
    content = json.loads(folder[1].read_text())
    for image in content["images"]:
        (tmp_path / image["file_name"]).write_bytes((folder[0] / image["file_name"]).read_bytes())
    (tmp_path / content["images"][7]["file_name"]).write_bytes(b"no image")
    of_recipe = []
    for ops in (*OPS, STAGES):
        with loader((tmp_path, folder[1]), ops, on_error="skip", max_skipped=0.1) as each:
            of_recipe.append(steps_of(each))
    stage_of_step = [max(at for at, start in enumerate(STARTS) if start <= step) for step in range(STEPS)]
    assert of_recipe[-1] == [of_recipe[stage][step] for step, stage in enumerate(stage_of_step)]


def test_a_state_of_other_stages_is_refused(folder: Folder) -> None:
    with loader(folder) as staged:
        state = staged.state_dict()
    for other, difference in (
        (da.Stages(list(zip(STARTS, OPS, strict=True))), "from epoch 2: RandomHorizontalFlip(p=0.5)"),
        (da.Stages(list(zip((0, 3, 7, 8), OPS, strict=True)), by="step"), "from step 3: RandomHorizontalFlip(p=0.5)"),
    ):
        message = re.escape(f"op 5 is {difference}, was from step 2: RandomHorizontalFlip")
        with loader(folder, other) as here, pytest.raises(da.InputError, match=message):
            here.load_state_dict(state)


@pytest.mark.parametrize("name", ["stages.yaml", "stages.json"])
def test_files_and_code_give_back_the_stages(name: str, tmp_path: Path) -> None:
    da.save_recipe(STAGES, tmp_path / name)
    loaded = da.load_recipe(tmp_path / name)
    assert loaded == STAGES != da.Stages(list(zip(STARTS, OPS, strict=True)))
    assert isinstance(loaded, da.Stages)
    assert loaded.by == "step"
    assert eval(repr(STAGES), {name: getattr(da, name) for name in da.__all__}) == STAGES
    assert [list(STAGES.at(step)) for step in (0, 1, 2, 6, 7, 8, 99)] == [
        BEGIN,
        BEGIN,
        MIDDLE,
        MIDDLE,
        END,
        MIDDLE,
        MIDDLE,
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[{from_step: 2, ops: []}]", "the steps of stages must begin with 0 and grow, got [2]"),
        ("[{from_step: 0, ops: []}, {from_step: x, ops: []}]", "stage 2 must begin at a step, a whole number"),
        ("[{from_epoch: 0, ops: []}, {from_step: 9, ops: []}]", "entry 1: a stage is {from_step: 0, ops: [...]}; got"),
        ("[{from_step: 0}]", "entry 1: a stage is {from_step: 0, ops: [...]}; got {'from_step': 0}"),
    ],
)
def test_a_wrong_file_is_one_sentence(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(text)
    with pytest.raises(da.InputError, match=re.escape(f"recipe.yaml: {message}")):
        da.load_recipe(tmp_path / "recipe.yaml")


def test_what_is_no_stage_by_step(folder: Folder) -> None:
    with pytest.raises(da.InputError, match="by must be 'epoch' or 'step', got 'batch'"):
        da.Stages([(0, END)], by="batch")  # type: ignore[arg-type]
    with pytest.raises(da.InputError, match="step must be a whole number of at least 0, got -1"):
        STAGES.at(-1)
    with pytest.raises(da.InputError, match="the stage from step 4 on: the recipe needs a Resize"):
        loader(folder, da.Stages([(0, END), (4, [FLIP])], by="step"))


def test_preview_shows_the_first_stage(folder: Folder, tmp_path: Path) -> None:
    da.save_recipe(da.Stages([(0, END), (5, MIDDLE)], by="step"), tmp_path / "stages.yaml")
    command = (
        "preview",
        folder[1],
        folder[0],
        "-o",
        tmp_path / "a.png",
        "--recipe",
        tmp_path / "stages.yaml",
        "--rows",
        2,
    )
    assert detaug(*command).code == 0
    refused = detaug(*command, "--epoch", 1)
    assert refused.code == 2
    assert "must be left out for stages.yaml, whose stages are by step" in refused.err


@pytest.mark.parametrize(("epochs", "reached"), [(2, False), (3, True)])
def test_a_training_that_does_not_reach_a_stage_says_so(
    folder: Folder, tmp_path: Path, epochs: int, reached: bool
) -> None:
    """8 images a step are 8 steps an epoch: step 16 is the first one of epoch 2."""
    da.save_recipe(da.Stages([(0, BEGIN), (16, END)], by="step"), tmp_path / "recipe.yaml")
    recipe = {"recipe": tmp_path / "recipe.yaml", "size": END[0].size, "batch_size": 8}
    settings = options(*folder, tmp_path / "run", epochs=epochs, **recipe)
    with nullcontext() if reached else pytest.warns(UserWarning, match=f"at epoch 2, .* of {epochs} epoch"):
        made = make_train_loader(settings, torch.device("cpu"), Detector(Tiny(2)))
    assert len(made) == 8
    made.close()
