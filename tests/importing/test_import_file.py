"""FILE.py:NAME: the file is run as `import` runs it, and its pipeline is taken; whole training scripts, and errors."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
from command import Result, detaug

import detaug as da

SCRIPTS = Path(__file__).parent / "training_scripts"
IMAGENET = da.presets.IMAGENET_MEAN, da.presets.IMAGENET_STD

GRAY_AND_INVERT = da.RandomGrayscale(0.05), da.RandomInvert(0.01)
COLORS = da.RandomChannelPermutation(1.0), da.RandomInvert(1.0), da.RandomGrayscale(1.0)
FLIPS_OF_D4 = da.RandomApply((da.RandomRotate90(0.75), da.RandomHorizontalFlip(0.5)), 1.0)

RECIPES = {
    "helmets_csv.py:HelmetDataset.train_transform": (
        [
            da.Resize((720, 1280)),
            da.RandomHorizontalFlip(0.5),
            da.RandomApply((da.RandomChoice((da.GaussianBlur(3, (0.8, 0.8), 1.0), da.MedianBlur(3, 1.0))),), 0.2),
            da.Normalize(*IMAGENET),
        ],
        (6, 0, 0),
    ),
    "traffic_dict.py:TRANSFORMS.train": (
        [
            da.Resize((640, 640), letterbox="center", fill=(114, 114, 114)),
            da.RandomHorizontalFlip(0.5),
            da.ColorJitter((0.8, 1.2), p=0.3),
            da.GaussianBlur(5, (1, 2), 0.1),
            da.Normalize(),
        ],
        (6, 1, 0),
    ),
    "traffic_dict.py:TRANSFORMS.val": (
        [da.Resize((640, 640), letterbox="center", fill=(114, 114, 114)), da.Normalize()],
        (4, 0, 0),
    ),
    "drones_class.py:Augmentations.transform": (
        [
            FLIPS_OF_D4,
            da.RandomResizedCrop((512, 512), (0.5, 1.0)),
            da.RandomApply((da.RandomChoice(COLORS),), 0.3),
            da.SanitizeBoundingBoxes(0.0, 9.0),
            da.Normalize(*IMAGENET),
        ],
        (7, 0, 1),
    ),
    "references_detection.py:DetectionPresetTrain.transforms --set data_augmentation=ssd --size 300x300": (
        [
            da.RandomZoomOut(fill=(123, 117, 104)),
            da.RandomIoUCrop(),
            da.RandomHorizontalFlip(0.5),
            da.Resize((300, 300)),
            da.RandomPhotometricDistort(),
            da.SanitizeBoundingBoxes(),
            da.Normalize(),
        ],
        (7, 1, 0),
    ),
    "pedestrians.py:get_transform --set train=True": (
        [da.RandomHorizontalFlip(0.5), da.Resize((480, 640)), da.Normalize()],
        (4, 0, 0),
    ),
    "pedestrians.py:get_transform --set train=no": ([da.Resize((480, 640)), da.Normalize()], (3, 0, 0)),
    "boats_config.py:CONFIG.train.transform": (
        [
            da.RandomIoUCrop(),
            da.RandomHorizontalFlip(0.5),
            da.Resize((384, 640)),
            da.RandomApply((da.ColorJitter((0.8, 1.2), (0.8, 1.2), (0.8, 1.2)),), 0.8),
            *GRAY_AND_INVERT,
            da.Normalize(*IMAGENET),
        ],
        (8, 0, 3),
    ),
    "transfer_learning.py:data_transforms.train": (
        [
            da.RandomResizedCrop((224, 224)),
            da.RandomHorizontalFlip(0.5),
            da.RandomApply((da.ColorJitter((0.6, 1.4), (0.6, 1.4)),), 0.5),
            da.Normalize(*IMAGENET),
        ],
        (5, 0, 0),
    ),
}
"""What whole training scripts are imported as: the ops, and how many mean the same, differ, and are left out."""


def run(command: str, folder: Path) -> Result:
    return detaug("import-recipe", *command.split(), "-o", folder / "recipe.yaml")


def assert_imported(result: Result, recipe: list[da.Op], counts: tuple[int, int, int], folder: Path) -> None:
    assert "{} mean the same, {} differ, {} left out".format(*counts) in result.out, result
    assert result.code == (1 if counts[2] else 3 if counts[1] else 0)
    assert list(da.load_recipe(folder / "recipe.yaml")) == recipe
    assert not (folder / "trained").exists()


@pytest.mark.slow
@pytest.mark.parametrize("command", RECIPES)
def test_a_whole_training_script_gives_its_recipe_without_training(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(f"{SCRIPTS}/{command}", tmp_path)
    assert_imported(result, *RECIPES[command], tmp_path)
    assert result.err.splitlines()[0] == f"running {SCRIPTS / command.partition(':')[0]}"


def test_a_script_that_needs_pandas_runs_with_it_and_else_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = f"{SCRIPTS}/wheat_kaggle.py:get_train_transforms --set size=256 --set flip=0.25"
    monkeypatch.setitem(sys.modules, "pandas", None)
    result = run(command, tmp_path)
    assert result.code == 2
    remedy = "there is no module 'pandas': install it, or run this where the file runs"
    assert result.err.splitlines()[-1] == f"detaug: {SCRIPTS}/wheat_kaggle.py, line 9: {remedy}"
    monkeypatch.setitem(sys.modules, "pandas", ModuleType("pandas"))
    flips = [da.RandomHorizontalFlip(0.25), da.RandomVerticalFlip(0.25)]
    sanitize = da.SanitizeBoundingBoxes(0.0, 16.0)
    recipe = [*flips, da.Resize((256, 256)), da.RandomGrayscale(0.01), sanitize, da.Normalize(*IMAGENET)]
    assert_imported(run(command, tmp_path), [recipe[2], *flips, *recipe[3:]], (7, 0, 0), tmp_path)


# ------------------------------------------------------------------------------------------- names

SMALL = """
import sys
import albumentations as A
from functools import partial

T = {"train": A.Compose([A.Resize(8, 8)]), "all": [A.Compose([A.Resize(8, 8)]), A.Compose([])]}
ops = (A.Resize(8, 8), A.NoOp())
single = A.Resize(8, 8)
saved = A.Resize(8, 8).to_dict()
listed = [dict(type="Resize", height=8, width=8)]
number = 3

def make(size=8): return A.Compose([A.Resize(size, size)])
def pair(): return make(), make(16)
make_8 = partial(make, 8)
any_keyword = lambda **sizes: A.Compose([A.Resize(**sizes)])

class Data:
    transform = make()
    def __init__(self, size=8): self.own = make(size)
    def get(self): return self.own
    @staticmethod
    def static(size=8): return make(size)
    @classmethod
    def of_class(cls): return cls.transform

data = Data()
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "small.py"
    path.write_text(SMALL)
    return path


@pytest.mark.parametrize(
    "name",
    [
        *("T.train", "T.all.0", "ops", "single", "saved", "listed", "make", "pair.0", "make_8"),
        *("Data.transform", "Data.own", "Data.static", "Data.of_class", "data.own", "data.get", "Data.own.transforms"),
    ],
)
def test_a_name_leads_to_a_pipeline(name: str, file: Path) -> None:
    assert da.import_recipe(f"{file}:{name}").ops == (da.Resize((8, 8)),)
    assert str(da.import_recipe(f"{file}:{name}")).startswith(f"{file}:{name}\n")


@pytest.mark.parametrize(
    ("command", "size"),
    [
        ("make --set size=4", (4, 4)),
        ("Data.own --set size=4", (4, 4)),
        ("any_keyword --set height=4 --set width=2", (4, 2)),
    ],
)
def test_a_function_gets_the_settings(command: str, size: tuple[int, int], file: Path) -> None:
    assert run(f"{file}:{command}", file.parent).code == 0
    assert da.load_recipe(file.parent / "recipe.yaml") == [da.Resize(size)]


TAKEN = "the pipeline must be of Albumentations or torchvision .*; got"


@pytest.mark.parametrize(
    ("command", "message", "better"),
    [
        ("mak", "there is no 'mak'; the file has T, ops, single, saved, listed, make, pair", "make"),
        ("T.test", "there is no 'test'; the file has T, ", "T.train"),
        ("T", f"{TAKEN} an object of dict, which has pipelines: train, all; .* with NAME.train", "T.train"),
        ("T.all", r"2 pipelines: choose one, in Python with \[0\], for the command with NAME.0", "T.all.0"),
        ("pair", "2 pipelines: choose one", "pair.0"),
        ("number", f"{TAKEN} an object of int", "make"),
        ("data", f"{TAKEN} an object of Data, which has pipelines: own; .* with NAME.own", "data.own"),
        ("Data.get", "get is a method: make an object of its class in the file, and name that", "data.get"),
        ("make --set sise=4", "make has no argument 'sise'; it has size", "make --set size=4"),
        ("T.train --set size=4", "it is not a function, so --set gives nothing to it: leave --set out", "T.train"),
    ],
)
def test_a_wrong_name_is_told_with_one_that_works(command: str, message: str, better: str, file: Path) -> None:
    result = run(f"{file}:{command}", file.parent)
    assert (result.code, result.out) == (2, "")
    assert len(result.err.splitlines()) == 2  # the first one is "running ..."
    name = command.split()[0]
    assert re.match(rf"detaug: {file}:{name}: {message}", result.err.splitlines()[1]), result.err
    assert run(f"{file}:{better}", file.parent).code == 0


def test_arguments_without_a_default_are_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text("import albumentations as A\ndef make(height, *, width): return A.Resize(height, width)\n")
    error = run(f"{path}:make --set width=2", tmp_path).err.splitlines()[-1]
    assert error == f"detaug: {path}:make: make needs height: give it with --set height=VALUE"
    assert run(f"{path}:make --set width=2 --set height=4", tmp_path).code == 0
    assert da.load_recipe(tmp_path / "recipe.yaml") == [da.Resize((4, 2))]


@pytest.mark.parametrize("ending", ["", ":"])
def test_a_file_without_a_name_is_not_run(ending: str, tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text(f"open({str(tmp_path / 'trap')!r}, 'w').close()\n{SMALL}")
    result = run(f"{path}{ending}", tmp_path)
    names = ", ".join(f"{path}:{name}" for name in ("T", "make", "any_keyword"))
    message = f"name the pipeline in it, as FILE.py:NAME, such as {names}; to get it, all of the file is run"
    assert result.err == f"detaug: {path}: {message}\n"
    with pytest.raises(da.InputError, match="name the pipeline in it"):
        da.import_recipe(f"{path}{ending}")
    assert not (tmp_path / "trap").exists()
    assert run(f"{path}:T.train", tmp_path).code == 0
    assert (tmp_path / "trap").exists()


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("t = A.Compose([A.Resize(8, 8)])", "t"),
        ("t: A.Compose = A.Compose([A.Resize(8, 8)])", "t"),
        ("size = 8\ndef make(side=8):\n    return A.Compose([A.Resize(side, size)])", "make"),
    ],
)
def test_the_only_pipeline_needs_no_name(text: str, name: str, tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text(f"import albumentations as A\n{text}\n")
    result = run(str(path), tmp_path)
    assert (result.code, result.out.splitlines()[0]) == (0, f"{path}:{name}")
    assert da.load_recipe(tmp_path / "recipe.yaml") == [da.Resize((8, 8))]
    assert da.import_recipe(path).ops == (da.Resize((8, 8)),)


@pytest.mark.parametrize(
    "text",
    [
        "t = A.Compose([A.Resize(8, 8)])\nu: A.Compose = A.Compose([A.Resize(9, 9)])",
        "t = A.Compose([A.Resize(8, 8)])\nif t:\n    t = A.Compose([A.Resize(9, 9)])",
        "class T:\n    t = A.Compose([A.Resize(8, 8)])",
        "t = [A.Resize(8, 8)]",
    ],
)
def test_other_files_need_a_name(text: str, tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text(f"import albumentations as A\n{text}\n")
    assert "name the pipeline in it, as FILE.py:NAME, " in run(str(path), tmp_path).err


# ------------------------------------------------------------------------------- how the file is run

PIPELINE = "\nimport albumentations as A\nt = A.Compose([A.Resize(8, 8)])\n"


def import_text(text: str, folder: Path, name: str = "t") -> da.ImportedRecipe:
    """Import a name of a file of this text."""
    path = folder / "file.py"
    path.write_text(text)
    return da.import_recipe(f"{path}:{name}")


def test_the_file_runs_as_an_import_does_and_leaves_no_trace(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    before = sys.path[:], sys.argv[:], set(sys.modules)
    (tmp_path / "beside.py").write_text("SIZE = 8")
    text = f"""
import sys
from dataclasses import dataclass
from pathlib import Path
import beside
print("printed", __name__, sys.argv, Path(__file__).name, sys.path[0])
@dataclass
class Config:
    size: "int" = beside.SIZE
def make():
    import beside_too
    return A.Compose([A.Resize(beside_too.SIZE, Config().size)])
{PIPELINE}"""
    (tmp_path / "beside_too.py").write_text("SIZE = 4")
    assert import_text(text, tmp_path, "make").ops == (da.Resize((4, 8)),)
    out, err = capfd.readouterr()
    assert (out, err) == ("", f"printed file ['{tmp_path / 'file.py'}'] file.py {tmp_path}\n")
    assert (sys.path, sys.argv) == before[:2]
    assert {name for name in set(sys.modules) - before[2] if name.startswith(("beside", "file"))} == set()
    assert not list(tmp_path.glob("**/*.pyc")) or list(tmp_path.glob("__pycache__/beside*"))
    (tmp_path / "beside_too.py").write_text("SIZE = 16  # another time, another value")
    assert import_text(text, tmp_path, "make").ops == (da.Resize((16, 8)),)


def test_a_file_may_be_called_like_a_module_that_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "json.py"
    path.write_text(f"SIZE = 3{PIPELINE}")
    loaded = sys.modules["json"]
    assert da.import_recipe(f"{path}:t").ops == (da.Resize((8, 8)),)
    assert sys.modules["json"] is loaded


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("x = 1\nx / 0", 2, "ZeroDivisionError: division by zero. All of the file is run: what only a training needs"),
        ("open('/no/such/file')", 1, r"FileNotFoundError: \[Errno 2\] .*: '/no/such/file'. All of the file is run"),
        ("import sys\nsys.exit('bye')", 2, r"it ends the program \(SystemExit: bye\), run without arguments as it was"),
        (
            "import argparse\np = argparse.ArgumentParser()\np.add_argument('--data', required=True)\np.parse_args()",
            4,
            r"it ends the program \(SystemExit: 2\), run without arguments as it was. All of the file is run",
        ),
        (
            "import no_such_module",
            1,
            "there is no module 'no_such_module': install it, or run this where the file runs",
        ),
        ("from . import sibling", 1, "ImportError: attempted relative import .* give it to da.import_recipe"),
        ("import json\nfrom json import no_such_name", 2, "ImportError: cannot import name 'no_such_name'"),
        ("x = (1,\n", 1, r"not Python \('\(' was never closed\)"),
        ("def t():\n    raise RuntimeError('two\\nlines')", 2, "RuntimeError: two lines. All of the file is run"),
    ],
)
def test_an_error_of_the_file_is_one_line_with_its_line(text: str, line: int, message: str, tmp_path: Path) -> None:
    with pytest.raises(da.InputError, match=rf"^{tmp_path / 'file.py'}, line {line}: {message}") as raised:
        import_text(text, tmp_path)
    assert "\n" not in str(raised.value)
    result = run(f"{tmp_path / 'file.py'}:t", tmp_path)
    assert result.code == 2
    assert result.err.splitlines()[-1] == f"detaug: {raised.value}"


def test_the_main_guard_is_the_remedy(tmp_path: Path) -> None:
    text = f"import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('data'){PIPELINE}"
    with pytest.raises(da.InputError, match="if __name__ == '__main__'"):
        import_text(f"{text}args = parser.parse_args()\n", tmp_path)
    guarded = f"{text}if __name__ == '__main__':\n    args = parser.parse_args()\n"
    assert import_text(guarded, tmp_path).ops == (da.Resize((8, 8)),)


def test_the_command_says_that_it_runs_the_file_before_it_does(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text(f"print('running indeed'){PIPELINE}")
    assert run(f"{path}:t", tmp_path).err == f"running {path}\nrunning indeed\n"
    assert run(f"{path}:t -q", tmp_path) == (0, "", "running indeed\n")
    help_text = detaug("import-recipe", "--help").out
    assert help_text.splitlines()[2].strip().startswith("Run FILE.py")


def test_what_does_not_exist_is_not_run(tmp_path: Path) -> None:
    assert run(f"{tmp_path}/no.py:t", tmp_path).err == f"detaug: {tmp_path}/no.py: No such file or directory\n"
    assert "--set is for the arguments of a function" in run(f"{tmp_path}/a.json --set a=1", tmp_path).err
