"""Names of before detaug 0.3: accepted, warned of, and the same as the new ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from coco_files import document, write
from command import detaug, usage_error
from voc_files import devkit, image_bytes, voc_xml

import detaug as da
from detaug.cli.main import RENAMED, cli
from detaug.converters import split_coco, voc_to_coco
from detaug.evaluation.errors import KINDS, OLD_KINDS
from detaug.scoring import predict_files
from detaug.training import TrainOptions

ROTATIONS: dict[str, Callable[..., Any]] = {
    "RandomRotation": lambda **named: da.RandomRotation(20, **named),
    "RandomAffine": lambda **named: da.RandomAffine(20, **named),
    "RandomPerspective": da.RandomPerspective,
}


@pytest.mark.parametrize("name", ROTATIONS)
def test_outline_of_rotations(name: str, tmp_path: Path) -> None:
    new = ROTATIONS[name](rotate_method="ellipse")
    with pytest.warns(FutureWarning, match=f"^outline of {name} is called rotate_method now$") as caught:
        assert ROTATIONS[name](outline="ellipse") == new
    assert caught[0].filename == __file__
    with pytest.raises(TypeError, match=f"{name} got rotate_method and outline, its old name"):
        ROTATIONS[name](outline="ellipse", rotate_method="ellipse")
    recipe = tmp_path / "recipe.json"
    da.save_recipe([new, da.Resize((64, 64))], recipe)
    recipe.write_text(recipe.read_text().replace("rotate_method", "outline"))
    with pytest.warns(FutureWarning, match="rotate_method"):
        assert da.load_recipe(recipe)[0] == new


def test_every_old_option_is_an_option_now() -> None:
    opts = {text for command in cli.commands.values() for option in command.params for text in option.opts}
    assert {*RENAMED.values()} <= opts
    assert not {*RENAMED} & opts


def test_old_options_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "all.json", document())
    for old in ("--shares 1,1", "--shares=1,1"):
        result = detaug("split", "all.json", "-o", "a.json", "-o", "b.json", *old.split())
        assert (result.code, result.err) == (0, "warning: --shares is called --ratios now\n")
    devkit(tmp_path / "voc", {"a": voc_xml()}, {"a.jpg": image_bytes(), "b.jpg": image_bytes()})
    assert "unlabeled-skipped" in detaug("convert-voc", "voc", "-o", "voc.json", "--unlabelled", "skip").out
    result = detaug("split", "-o", "a.json", "-o", "b.json", "--ratios", "1,1", "--", "--shares")  # a file
    assert result.code == 2
    assert "--shares" in result.err
    assert "warning" not in result.err
    # An option of another command stays unknown there.
    assert "No such option '--shares'" in usage_error("merge", "all.json", "-o", "c.json", "--shares", "1,1")


def test_old_arguments_of_functions(tmp_path: Path) -> None:
    path, outputs = write(tmp_path / "all.json", document()), [tmp_path / "a.json", tmp_path / "b.json"]
    with pytest.warns(FutureWarning, match="shares of split_coco is called ratios now"):
        split_coco(path, outputs, shares=(1, 1))
    root = devkit(tmp_path / "voc", {"a": voc_xml()}, {"a.jpg": image_bytes(), "b.jpg": image_bytes()})
    with pytest.warns(FutureWarning, match="unlabelled of voc_to_coco is called unlabeled now"):
        assert voc_to_coco(root, tmp_path / "voc.json", unlabelled="keep").kind_counts["unlabeled-kept"] == 1
    with (
        pytest.warns(FutureWarning, match="every of predict_files is called stride now"),
        pytest.raises(da.InputError, match="stride must be a whole number of at least 1, got 0"),
    ):
        predict_files("model.pt", ["photos"], tmp_path / "found.json", every=0)
    with pytest.warns(FutureWarning, match="warm_up of TrainOptions is called warmup_steps now"):
        assert TrainOptions("a.json", "images", "run", warm_up=7).warmup_steps == 7


def test_kinds_of_errors(tmp_path: Path) -> None:
    path, results = write(tmp_path / "all.json", document()), tmp_path / "results.json"
    row = document()["annotations"][0]
    results.write_text(json.dumps([{**{key: row[key] for key in ("image_id", "category_id", "bbox")}, "score": 1}]))
    kinds = da.CocoEvaluator(path).load(results).errors().kinds
    assert [*kinds] == ["localization", "classification", "both", "duplicate", "background", "missed"] == [*KINDS]
    for old, new in OLD_KINDS.items():
        with pytest.warns(FutureWarning, match=f"errors of the kind {old} are called {new} now"):
            assert kinds[old] is kinds[new]
    with pytest.raises(KeyError, match="found"):
        kinds["found"]
