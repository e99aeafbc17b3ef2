"""Views: a batch for each of several recipes, of the same images, from one decode."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from painted_files import Folder, digests, same, settings_file
from PIL import Image
from seeds import slow
from worlds import FLIP, NORMALIZE, RECIPES, RESIZE, write_images

import detaug as da
from detaug.loading.draws import PositionDraws

WEAK = [FLIP, RESIZE, NORMALIZE]
STRONG = [da.RandomIoUCrop(), FLIP, da.Resize((48, 56)), da.RandomPhotometricDistort(), da.RandomErasing(), NORMALIZE]
TURNED = RECIPES["affine"]
VIEWS = {"weak": WEAK, "strong": STRONG}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    return write_images(tmp_path_factory.mktemp("views"))


def loader(folder: Folder, ops: Any = VIEWS, batch_size: int = 16, **options: Any) -> da.Loader[Any]:
    reader = options.pop("reader", None) or da.CocoReader(*folder)
    return da.Loader(reader, ops, batch_size, **{"device": "cpu", "seed": 3, **options})


def of_view(batches: Any, name: str) -> list[list[str]]:
    return [list(digests(views[name])) for views in batches]


def epoch(batches: Any) -> list[list[str]]:
    return [list(digests(batch)) for batch in batches]


@pytest.mark.parametrize("name", ["ssd", "affine", *slow("several sizes", "resized crop", "containers", "perspective")])
@pytest.mark.parametrize("cache", [None, *slow("device")])
def test_the_first_view_is_what_a_loader_of_its_recipe_gives(
    folder: Folder, name: str, cache: Any, device: str
) -> None:
    views = loader(folder, {"first": RECIPES[name], "second": STRONG, "third": TURNED}, device=device, cache=cache)
    plain = loader(folder, RECIPES[name], device=device)
    for _ in range(2):
        assert of_view(views, "first") == epoch(plain)


@pytest.mark.parametrize("name", ["ssd", *slow("several sizes", "affine", "mixing")])
def test_every_view_is_replayed_by_a_loader_of_its_recipe(folder: Folder, name: str, device: str) -> None:
    recipes = {"other": RECIPES[name], "weak": WEAK, "turned": TURNED}
    views = loader(folder, recipes, device=device, return_params=True)
    plain = {view: loader(folder, ops, device=device, return_params=True) for view, ops in recipes.items()}
    for batches in views:
        assert all(same(plain[view].replay(batch), batch) for view, batch in batches.items())
        again = views.replay(batches)
        assert all(same(again[view], batch) for view, batch in batches.items())


def test_the_other_views_change_no_view(folder: Folder) -> None:
    """Neither their recipes, nor their names, nor those that come after it."""
    expected = of_view(loader(folder, {"a": WEAK, "b": STRONG, "c": TURNED}), "b")
    assert of_view(loader(folder, {"other": TURNED, "b": STRONG}), "b") == expected
    assert of_view(loader(folder, {"a": STRONG, "x": STRONG}), "x") == expected


def test_views_of_one_recipe_differ_in_all_draws(folder: Folder) -> None:
    crops = [da.RandomResizedCrop((32, 32)), da.RandomHorizontalFlip(), NORMALIZE]
    for views in loader(folder, {f"crop {number}": crops for number in range(3)}, 61, return_params=True):
        batches = [*views.values()]
        assert [*views] == ["crop 0", "crop 1", "crop 2"]
        for one, other in ((0, 1), (0, 2), (1, 2)):
            assert torch.equal(batches[one].image_id, batches[other].image_id)
            assert (batches[one].matrix != batches[other].matrix).any((1, 2)).all()
            flips = [batches[view].matrix[:, 0, 0] < 0 for view in (one, other)]
            assert 15 < (flips[0] != flips[1]).sum() < 46  # of 61


class Counted(da.Source):
    """Images in memory that count how often each is read."""

    files = False

    def __init__(self, reader: da.CocoReader) -> None:
        super().__init__(reader.sizes, ["a"], origin="counted", image_ids=reader.image_ids)
        self.images = [reader.read(index) for index in range(len(reader))]
        self.reads = np.zeros(len(reader), np.int64)

    def path(self, index: int) -> Path:
        return Path(f"image {index}")

    def read(self, index: int) -> bytes:
        self.reads[index] += 1
        return self.images[index]


def test_each_image_is_read_and_decoded_once(folder: Folder, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from nvidia.dali import fn

    made: list[str] = []
    for name in ("image", "image_slice"):
        decoder = getattr(fn.decoders, name)

        def counted(*inputs: Any, name: str = name, decoder: Any = decoder, **options: Any) -> Any:
            made.append(name)
            return decoder(*inputs, **options)

        monkeypatch.setattr(fn.decoders, name, counted)
    source = Counted(da.CocoReader(*folder))
    views = loader(folder, {**VIEWS, "turned": TURNED}, 61, reader=source, train=False, device=device, pipelines=1)
    assert len(list(views)) == 1
    assert source.reads.tolist() == [1] * 61
    assert made == ["image_slice" if device == "cpu" else "image"]


def test_scaled_decoding_takes_the_larger_image(tmp_path: Path) -> None:
    """Each view is sharp enough: where both ask for the same scale, it is what its recipe alone gives."""
    pixels = np.random.default_rng(0).integers(0, 256, (40, 60, 3), np.uint8)
    Image.fromarray(pixels).resize((960, 640)).save(tmp_path / "0.jpg")
    content = {"images": [{"id": 1, "file_name": "0.jpg", "width": 960, "height": 640}], "annotations": []}
    (tmp_path / "a.json").write_text(json.dumps({**content, "categories": [{"id": 1, "name": "a"}]}))
    small, large, whole = ([da.Resize(size, decode=decode), NORMALIZE] for size, decode in (
        ((80, 120), "scaled"), ((160, 240), "scaled"), ((160, 240), "whole")))  # fmt: skip
    given = [tmp_path, tmp_path / "a.json"]
    alone = [next(iter(loader(given, ops, 1, train=False))).images for ops in (small, large)]  # type: ignore[arg-type]
    both = next(iter(loader(given, {"a": large, "b": small}, 1, train=False)))  # type: ignore[arg-type]
    assert torch.equal(both["a"].images, alone[1])
    assert 0 < (both["b"].images - alone[0]).abs().max() < 0.5
    unscaled = next(iter(loader(given, {"a": large, "b": whole}, 1, train=False)))  # type: ignore[arg-type]
    assert torch.equal(unscaled["a"].images, unscaled["b"].images)


STAGED = {"weak": WEAK, "strong": da.Stages([(0, STRONG), (1, TURNED)])}


def test_stages_of_a_view_and_a_resumed_run_on_two_shards(folder: Folder) -> None:
    with loader(folder, STAGED) as views:
        first = [*views]
        batches = iter(views)
        next(batches)
        state = json.loads(json.dumps(views.state_dict()))
        rest = [*batches]
    assert [*views.recipes] == ["weak", "strong"]
    assert views.recipes["strong"].ops == tuple(TURNED)
    with loader(folder, {"weak": WEAK, "strong": STRONG}) as plain:
        assert of_view(first, "strong") == of_view(plain, "strong")
    shards = [loader(folder, STAGED, 8, shard=(rank, 2)) for rank in range(2)]
    for shard in shards:
        shard.load_state_dict(state)
    resumed = [*zip(*shards, strict=True)]
    for view in ("weak", "strong"):
        expected = of_view(rest, view)
        assert [[*digests(one[view]), *digests(other[view])] for one, other in resumed] == expected
    with pytest.raises(da.InputError, match=r"op 3 is weak: Normalize\(mean=\(0\.5, 0\.5"):
        loader(folder, {**STAGED, "weak": [FLIP, RESIZE, da.Normalize(mean=(0.5, 0.5, 0.5))]}).load_state_dict(state)
    with pytest.raises(da.InputError, match="op 1 is teacher: "):
        loader(folder, {"teacher": WEAK, "strong": STAGED["strong"]}).load_state_dict(state)


def test_the_draws_of_a_state_are_those_of_the_views(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A version that draws other numbers for the second view alone refuses a state."""
    state = loader(folder).state_dict()
    draw = PositionDraws._of_block
    monkeypatch.setattr(
        PositionDraws, "_of_block", lambda self, *given: draw(replace(self, seed=self.seed + self.view), *given)
    )
    loader(folder, WEAK).load_state_dict(loader(folder, WEAK).state_dict())
    with pytest.raises(da.InputError, match="draws other random numbers than the one that saved this state"):
        loader(folder).load_state_dict(state)


def test_stages_by_step_of_several_views(folder: Folder) -> None:
    stages = {"a": da.Stages([(0, WEAK), (2, STRONG)], by="step"), "b": da.Stages([(0, WEAK), (3, TURNED)], by="step")}
    sizes = [[tuple(batch.images.shape[2:]) for batch in views.values()] for views in loader(folder, stages)]
    assert sizes == [[(64, 80)] * 2] * 2 + [[(48, 56), (64, 80)]] * 2
    mixed = {"a": stages["a"], "b": da.Stages([(0, WEAK), (3, TURNED)])}
    with pytest.raises(da.InputError, match=r"must be by epoch, or all by step, got .*; give them the same `by`"):
        loader(folder, mixed)


@pytest.mark.parametrize(
    "options",
    [
        {"last_batch": "partial", "sampler": da.RepeatFactorSampler(0.5), "aspect_ratio_grouping": True},
        {"train": False, "max_boxes": 3},
        *slow({"batches_per_group": 3}, {"memory": "100kB"}),
    ],
)
def test_arguments_of_loaders(folder: Folder, options: dict[str, Any], tmp_path: Path) -> None:
    grouped = options.pop("batches_per_group", None)
    if grouped:
        options["settings"] = settings_file((tmp_path / "x", tmp_path), batches_per_group=grouped)
    recipes = {"ssd": RECIPES["ssd"], "several sizes": RECIPES["several sizes"]}
    views, plain = loader(folder, recipes, **options), loader(folder, recipes["ssd"], **options)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert of_view(views, "ssd") == epoch(plain)
    assert [warning.filename for warning in said] == [__file__] * (2 if "max_boxes" in options else 0)
    assert len(views) == len(plain)


@pytest.mark.filterwarnings("ignore:.*skipped")
@pytest.mark.parametrize("train", [True, False])
def test_a_bad_file_is_left_out_of_all_views(painted: Folder, train: bool) -> None:
    (painted[0] / "03.png").write_bytes(b"no image")
    options = {"on_error": "skip", "max_skipped": 0.1, "train": train}
    views = [*loader(painted, VIEWS, 4, **options)]
    shown = [batch.image_id.tolist() for batches in views for batch in batches.values()]
    assert shown[::2] == shown[1::2]
    assert 13 not in np.concatenate(shown)
    assert {*np.concatenate(shown).tolist()} == {*range(10, 31)} - {13}
    assert of_view(views, "weak") == epoch(loader(painted, WEAK, 4, **options))
    with pytest.raises(da.DataError, match=r"03\.png"):
        list(loader(painted, VIEWS, 4))


def clips_of(painted: Folder) -> da.ClipReader:
    """Images of one size are the frames of a video."""
    content = json.loads(painted[1].read_text())
    content["videos"] = [{"id": number, "name": f"video {number}", "fps": 25} for number in (1, 2, 3)]
    for position, image in enumerate(content["images"]):
        image |= {"video_id": position % 3 + 1, "frame_id": position // 3}
    for annotation in content["annotations"]:
        annotation["track_id"] = annotation["category_id"]
    path = painted[1].with_name("clips.json")
    path.write_text(json.dumps(content))
    return da.ClipReader(painted[0], path, frames=3)


def test_views_of_clips(painted: Folder) -> None:
    reader = clips_of(painted)
    views = loader(painted, VIEWS, 2, reader=reader)
    plain = loader(painted, WEAK, 2, reader=reader)
    for batches, alone in zip(views, plain, strict=True):
        weak, strong = (batches[name].as_images() for name in ("weak", "strong"))
        assert torch.equal(batches["weak"].images, alone.images)
        assert batches["strong"].images.shape == (2, 3, 3, 48, 56)
        image, first, second = weak.match(strong).unbind(1)
        assert len(image) > 0
        assert torch.equal(weak.columns["track_id"][image, first], strong.columns["track_id"][image, second])


def test_views_of_tiles(folder: Folder) -> None:
    tiles = da.TileReader(da.CocoReader(*folder), (40, 40))
    views, plain = loader(folder, reader=tiles), loader(folder, WEAK, reader=tiles)
    assert of_view(views, "weak") == epoch(plain)


def test_collate_gets_the_views_and_properties_name_them(folder: Folder) -> None:
    views = loader(folder, collate=lambda batches: (batches["strong"].images, len(batches)))
    images, count = next(iter(views))
    assert (tuple(images.shape), count) == ((16, 3, 48, 56), 2)
    assert "views weak, strong" in repr(views)
    with pytest.raises(da.InputError, match=r"'weak', 'strong': take one of loader\.recipes"):
        views.ops  # noqa: B018
    assert loader(folder, WEAK).recipes == {}
    with pytest.raises(da.InputError, match="a dict of batches of the views 'weak', 'strong'"):
        views.replay(next(iter(loader(folder, WEAK, return_params=True))))


BAD: Mapping[str, tuple[Any, str]] = {
    "empty": ({}, r"the names of views must be one or more texts, as in .*, got \[\]"),
    "number": ({1: WEAK}, r"must be one or more texts, .*, got \[1\]"),
    "recipe": ({"weak": [FLIP], "strong": STRONG}, "the view 'weak': the recipe needs a Resize"),
    "stage": (
        {"weak": WEAK, "strong": da.Stages([(0, STRONG), (2, [FLIP])])},
        "the stage from epoch 2 on: the view 'strong': the recipe needs a Resize",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_views_that_are_refused(folder: Folder, name: str) -> None:
    recipes, message = BAD[name]
    with pytest.raises(da.InputError, match=message):
        loader(folder, recipes)


def test_views_belong_into_a_loader_and_stages_into_them() -> None:
    message = (
        "got a dict of 'weak', 'strong': only a Loader takes one, with a recipe for each view, which may be Stages"
    )
    for call in (lambda: da.Stages([(0, VIEWS)]), lambda: da.Compose(VIEWS)):  # type: ignore[list-item, arg-type]
        with pytest.raises(TypeError, match=message):
            call()


@pytest.mark.parametrize("wrong", [{"weak": {"a": WEAK}}, {"weak": RESIZE}, {"weak": "flip"}])
def test_a_view_that_is_not_a_recipe(folder: Folder, wrong: Any) -> None:
    with pytest.raises(TypeError, match=re.escape("a recipe is a list of ops")):
        loader(folder, wrong)
