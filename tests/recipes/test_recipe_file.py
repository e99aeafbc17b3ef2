"""Recipes in files and as code, and draws that are replayed."""

from __future__ import annotations

import gc
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from command import detaug, usage_error
from painted_files import paint_files
from PIL import Image

import detaug as da
from detaug.recipes.recipe_file import library

RECIPE = (
    da.RandomZoomOut(max_ratio=3.0, fill=(1.0, 2.0, 3.0)),
    da.RandomApply((da.RandomRotation((-5, 10), fill=(1.0, 2.0, 3.0)), da.RandomIoUCrop()), p=0.25),
    da.RandomChoice((da.RandomHorizontalFlip(), da.RandomVerticalFlip(p=1e-07)), probabilities=(1.0, 3.0)),
    da.Resize(((300, 300), (320, 256)), letterbox="center", fill=(1.0, 2.0, 3.0)),
    da.RandomPhotometricDistort(),
    da.Normalize(),
)


@pytest.mark.parametrize("name", ["recipe.yaml", "recipe.json", "recipe"])
def test_a_file_gives_back_the_recipe(name: str, tmp_path: Path) -> None:
    da.save_recipe(RECIPE, tmp_path / name)
    assert tuple(da.load_recipe(tmp_path / name)) == RECIPE
    read = json.loads if name.endswith(".json") else yaml.safe_load
    assert read((tmp_path / name).read_text())[0]["RandomZoomOut"]["max_ratio"] == 3


@pytest.mark.parametrize(
    "preset", [da.presets.ssd300(), da.presets.retinanet(), da.presets.yolo640(), da.presets.evaluation((8, 9))]
)
def test_presets_survive_a_file(preset: list[da.Op], tmp_path: Path) -> None:
    da.save_recipe(preset, tmp_path / "recipe.yaml")
    assert da.load_recipe(tmp_path / "recipe.yaml") == preset


def test_the_repr_is_the_code_that_makes_it() -> None:
    names = {name: getattr(da, name) for name in da.__all__}
    assert eval(repr(RECIPE), names) == RECIPE


def test_short_forms_and_own_ops(tmp_path: Path) -> None:
    class Own(da.RandomVerticalFlip):
        """A user's op."""

    lines = ["RandomHorizontalFlip", "Own: {p: 0.1}", "RandomApply: {ops: [Own]}", "Resize: {size: 8}"]
    (tmp_path / "a.yaml").write_text("".join(f"- {line}\n" for line in lines))
    expected = [da.RandomHorizontalFlip(), Own(p=0.1), da.RandomApply((Own(),)), da.Resize(8)]
    assert da.load_recipe(tmp_path / "a.yaml", ops=[Own]) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- RandomHorizontalFlop", "entry 1: no op is called 'RandomHorizontalFlop'; is it RandomHorizontalFlip?"),
        (
            "- Resize: {size: [8, 8]}\n- RandomCrop: {sise: 3}",
            "entry 2: RandomCrop has no argument 'sise'",
        ),
        ("- Resize: {size: 0}", "entry 1: size must be"),
        ("- Resize: {}", "entry 1: .*size"),
        ("- RandomApply: {ops: [RandomRotation: {degrees: x}]}", "entry 1: op 1: degrees must be"),
        ("- RandomApply: {ops: RandomCrop}", "entry 1: ops must be"),
        ("Resize: {size: 8}", "a recipe is a list of ops, or of stages"),
        ("- [1, 2]", "entry 1: an op is a name"),
        ("- {a: {}, b: {}}", "entry 1: an op is a name"),
        ("- GeometricOp", "entry 1: no op is called 'GeometricOp'"),
        ("- !!python/object/apply:os.system [ls]", "neither JSON nor YAML"),
        ("[", "neither JSON nor YAML"),
    ],
)
def test_a_wrong_file_says_where(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text(text)
    with pytest.raises(ValueError, match=rf"bad\.yaml: {message}"):
        da.load_recipe(tmp_path / "bad.yaml")


@pytest.mark.parametrize(("name", "guess"), [("Own", "an"), ("RandomBlur", r"is it RandomCrop\? An")])
def test_an_op_of_ones_own_is_loaded_in_python(name: str, guess: str, tmp_path: Path) -> None:
    """Also where its name is near one of detaug's."""
    own = type(name, (da.RandomVerticalFlip,), {})
    path, images = tmp_path / "own.yaml", tmp_path / "images"
    da.save_recipe([own()], path)
    images.mkdir()
    paint_files(images, 2)
    error = usage_error("preview", images / "annotations.json", images, "-o", tmp_path / "a.png", "--recipe", path)
    advice = rf"is given by --ops MODULE, or in Python by da.load_recipe\(FILE, ops=\[{name}\]\)\n"
    assert re.search(rf"entry 1: no op is called '{name}'; {guess} op of your own {advice}", error)
    assert da.load_recipe(path, ops=[own]) == [own()]


OWN = """\
from dataclasses import dataclass
import detaug as da
from detaug import Resize, PixelOp

@dataclass(frozen=True)
class Black(da.PixelOp):
    part: float = 1.0

    def dali_graph(self, image, planned, views):
        return image * (1 - self.part)
"""


@pytest.mark.parametrize("kind", ["name", "file"])
def test_a_command_takes_ops_of_ones_own(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    module = f"own_ops_{kind}"
    request.addfinalizer(lambda: sys.modules.pop(module, None))
    monkeypatch.chdir(tmp_path)
    Path(f"{module}.py").write_text(OWN)
    Path("own.yaml").write_text("- Resize: {size: [40, 40]}\n- Black: {part: 1.0}\n")
    Path("images").mkdir()
    paint_files(Path("images"), 2)
    preview = ["preview", "images/annotations.json", "images", "-o", "a.png", "--recipe", "own.yaml", "--rows", "1"]
    given = module if kind == "name" else tmp_path / f"{module}.py"
    before = [*sys.path]
    assert detaug(*preview, "--ops", given).code == 0
    assert sys.path == before
    with Image.open("a.png") as sheet:
        assert np.asarray(sheet.convert("L"))[-60:, sheet.width // 2 :].min() == 0  # the op was used
    assert "no op is called 'Black'" in usage_error(*preview)


@pytest.mark.parametrize(
    ("content", "more", "message"),
    [
        ("import nosuch", (), "--ops own_bad.py cannot be imported (ModuleNotFoundError: No module named 'nosuch')"),
        ("def (", (), "--ops own_bad.py cannot be imported (SyntaxError: "),
        ("1 / 0", (), "--ops own_bad.py cannot be imported (ZeroDivisionError: division by zero)"),
        ("from detaug import *", (), "--ops own_bad.py has no op: a dataclass derived from da.GeometricOp or da.Pixel"),
        (None, (), "--ops own_bad.py cannot be imported (FileNotFoundError: "),
        (OWN, ("--recipe",), "ops are for a recipe: give the recipe that names the ops of own_bad.py"),
    ],
)
def test_modules_without_ops_are_refused(
    content: str | None, more: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if content is not None:
        Path("own_bad.py").write_text(content)
    Path("own.yaml").write_text("- Black\n")
    Path("images").mkdir()
    paint_files(Path("images"), 2)
    preview = ["preview", "images/annotations.json", "images", "-o", "a.png", "--ops", "own_bad.py"]
    assert message in usage_error(*preview, *(() if more else ("--recipe", "own.yaml")))


def test_names_of_other_libraries_in_a_recipe_lead_to_ours(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("- GlassBlur\n")
    with pytest.raises(da.InputError, match=r"no op is called 'GlassBlur'; use GaussianBlur \(docs/ops\.md "):
        da.load_recipe(tmp_path / "a.yaml")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no\.yaml: cannot be read"):
        da.load_recipe(tmp_path / "no.yaml")


def test_the_library_has_all_ops_and_no_bases() -> None:
    assert {"Resize", "RandomApply", "Normalize"} <= set(library())
    assert not {"Op", "GeometricOp", "PixelOp"} & set(library())


def test_a_draw_can_be_replayed(device: str) -> None:
    image = np.random.default_rng(0).integers(0, 256, (60, 80, 3), np.uint8)
    boxes = [[[10, 10, 50, 40]]] * 8
    first = da.batch([image] * 8, boxes, seed=1, device=device).then(*RECIPE)
    again = da.batch([image] * 8, boxes, seed=2, device=device).then(*RECIPE)
    replayed = again.replay(first.params)
    assert any(not np.array_equal(a, b) for a, b in zip(first.images, again.images, strict=True))
    for a, b in zip(first.images, replayed.images, strict=True):
        assert np.array_equal(a, b)
    for a, b in zip(first.boxes, replayed.boxes, strict=True):
        assert np.array_equal(a, b)


def test_params_are_what_the_ops_drew() -> None:
    samples = da.RandomZoomOut(p=1)(da.RandomHorizontalFlip()(da.batch([np.zeros((9, 9, 3), np.uint8)] * 3)))
    assert [set(each) for each in samples.params][:2] == [{"flip"}, {"ratio", "offset"}]
    assert samples.params[1]["offset"].shape == (3, 2)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("itself.yaml", "- &a\n  RandomApply:\n    ops:\n    - *a\n"),
        ("argument.yaml", "- RandomHorizontalFlip: {p: &p [*p]}\n"),
        ("deep.yaml", "[" * 5000 + "]" * 5000),
        ("deep.json", "[" * 100_000 + "]" * 100_000),
    ],
)
def test_a_file_that_refers_to_itself_is_one_error(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    gc.collect()  # else what earlier tests left may be finalized at the end of the recursion, and fail there
    with pytest.raises(da.InputError, match=rf"{name}: entries lie in each other too deeply"):
        da.load_recipe(tmp_path / name)


@pytest.mark.slow
def test_aliases_in_each_other_are_refused(tmp_path: Path) -> None:
    """Twenty lists of nine of the one before; a recipe of many ops is none."""
    lists = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lists += [f"a{at}: &a{at} [{', '.join([f'*a{at - 1}'] * 9)}]" for at in range(1, 21)]
    path = tmp_path / "recipe.yaml"
    path.write_text(f"- Resize: {{{', '.join(lists)}, size: *a20}}\n")
    with pytest.raises(da.InputError, match=r"recipe\.yaml: has more than 100,000 values, aliases repeated"):
        da.load_recipe(path)
    path.write_text("- RandomHorizontalFlip: {p: 0.5}\n" * 20_000)
    assert len(da.load_recipe(path)) == 20_000  # type: ignore[arg-type]
