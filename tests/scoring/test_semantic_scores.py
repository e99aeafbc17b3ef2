"""`evaluate_semantic` and `predict_maps`: scores against NumPy's, pages, and maps that are files."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command import detaug, error_line
from numpy.typing import NDArray
from PIL import Image
from reference import require_torchvision
from semantic_files import IGNORED, NAMES, list_images, paint_folder, tiny_semantic

import detaug as da
from detaug.drawing import class_colors
from detaug.errors import DataError, InputError
from detaug.scoring import evaluate_maps, evaluate_semantic, predict_maps, semantic, write_page
from detaug.training import load_model
from detaug.training import predict as predict_module
from detaug.training.predict import map_entry

Model = tuple[Path, Path]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    """Return a folder of 7 images and maps, and a model that finds red in about half of what is ground."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(predict_module, "make_detector", tiny_semantic)
        root = paint_folder(tmp_path_factory.mktemp("scored"), 7)
        list_images(root)
        net = tiny_semantic("", 3).model
        weights = net.state_dict()
        weights["net.classifier.weight"] = torch.tensor([[0.0, 2, 0], [1, 0, -1], [-1, 0, 1]])[..., None, None]
        weights["net.classifier.bias"] = torch.tensor([1.3, 1.5, 0])
        content = {"name": "lraspp_mobilenet_v3_large", "size": 48, "class_names": NAMES, "model": weights}
        torch.save(content, root / "model.pt")
        yield root, root / "model.pt"


def truth(root: Path) -> list[NDArray[np.uint8]]:
    return [np.asarray(Image.open(root / "masks" / f"{number}.png")) for number in range(7)]


def found(root: Path, model: Path) -> list[NDArray[np.uint8]]:
    loaded = load_model(model, "cpu")
    return [each["semantic"].numpy() for each in loaded.predict([root / f"images/{at}.png" for at in range(7)])]


def test_scores_are_those_of_numpy(made: Model) -> None:
    root, model = made
    map = da.ClassMap("masks", classes=NAMES)
    evaluation = evaluate_semantic(model, root / "all.json", root / "images", map, batch_size=3, device="cpu", draw=4)
    confusion = np.zeros((3, 3), int)
    right = {}
    for number, (true, own) in enumerate(zip(truth(root), found(root, model), strict=True), 1):
        known = true != IGNORED
        np.add.at(confusion, (true[known], own[known]), 1)
        right[number] = (true == own)[known].mean()
    assert min(confusion[0, 0], confusion[0, 1]) > 1000
    assert 0.5 < max(right.values()) < 1
    assert confusion[2, 2] > 1000
    assert evaluation.confusion.tolist() == confusion.tolist()
    assert evaluation.right == pytest.approx(right)
    iou = np.diag(confusion) / (confusion.sum(0) + confusion.sum(1) - np.diag(confusion))
    assert evaluation.metrics.mIoU == pytest.approx(iou.mean())
    for (name, own_iou, share, pixels), at in zip(evaluation.rows(), range(3), strict=True):
        assert (name, pixels) == (NAMES[at], confusion[at].sum())
        assert own_iou == pytest.approx(iou[at])
        assert share == pytest.approx(confusion[at, at] / confusion[at].sum())
    assert len(evaluation.drawn) == 4
    assert [*evaluation.worst] == sorted(right, key=lambda image: right[image])
    (pair, *_) = evaluation.confused(9)
    assert pair == ("ground", "red", pytest.approx(confusion[0, 1] / confusion[0].sum()))
    text = str(evaluation)
    assert f"mIoU {iou.mean():.3f}" in text
    assert f"confused: ground as red {pair[2]:.1%}" in text


def test_only_the_classes_of_images_that_are_shown_are_kept(made: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    root, model = made
    arguments: Any = (model, root / "all.json", root / "images", da.ClassMap("masks", classes=NAMES))
    every = evaluate_semantic(*arguments, device="cpu")
    of_image = list[int]()
    computed = semantic.classes_in_source
    monkeypatch.setattr(
        semantic,
        "classes_in_source",
        lambda batch, scores, at: (of_image.append(int(batch.image_id[at])), computed(batch, scores, at))[1],
    )
    monkeypatch.setattr(semantic, "MOST_IMAGES", 2)
    few = evaluate_semantic(*arguments, device="cpu", draw=7)
    assert [*few.worst] == [*every.worst][:2]
    assert all(np.array_equal(few.worst[image], every.worst[image]) for image in few.worst)
    assert of_image == [*range(1, 8)], "once for each"
    of_image.clear()
    evaluate_semantic(*arguments, device="cpu")
    assert {*few.worst} <= {*of_image} < {*every.worst}


def test_the_page_the_report_and_the_sheet(made: Model, tmp_path: Path) -> None:
    root, model = made
    map = da.ClassMap("masks", classes=NAMES)
    evaluation = evaluate_semantic(model, root / "all.json", root / "images", map, device="cpu", draw=2)
    write_page(evaluation, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    shares = evaluation.confusion / evaluation.confusion.sum(1, keepdims=True)
    matrix = page[page.index("<h2>Confusion") :]
    for at, name in enumerate(NAMES):
        (row,) = re.findall(rf"<tr><td><bdi>{name}</bdi></td>\s*((?:<td style[^\n]*\n)+)", matrix)
        cells = re.findall(r">([\d.]*)</td>", row)
        assert cells == [f"{100 * share:.1f}" if share >= 0.0005 else "" for share in shares[at]]
    worst = next(iter(evaluation.worst))
    assert f"<li><bdi>{worst - 1}.png</bdi>: {evaluation.right[worst]:.1%} right" in page
    evaluation.draw_sheet(tmp_path / "sheet.png")
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert min(sheet.size) > 100
    evaluation.write_report(tmp_path / "report.json")
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["confusion"] == evaluation.confusion.tolist()
    assert report["metrics"]["mIoU"] == evaluation.metrics.mIoU


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        (
            ("ground", "blue", "red"),
            "masks has the classes ground, blue, red, and the model those of its training, ",
        ),
        (NAMES[:2], "give the map these, in their order, with classes="),
    ],
)
def test_other_classes_are_refused(made: Model, classes: tuple[str, ...], message: str) -> None:
    root, model = made
    with pytest.raises(InputError, match=message):
        evaluate_semantic(model, root / "all.json", root / "images", da.ClassMap("masks", classes=classes))


def shifted(tmp_path: Path, root: Path, shift: int) -> Path:
    """Write the maps with numbers that are higher by `shift`, but for what is ignored."""
    for number, true in enumerate(truth(root)):
        Image.fromarray(np.where(true == IGNORED, true, true + np.uint8(shift))).save(tmp_path / f"{number}.png")
    return tmp_path


TABLE = {1: 0, 2: 1, 3: 2, IGNORED: IGNORED}


def test_maps_whose_numbers_mean_other_classes_are_refused(made: Model, tmp_path: Path) -> None:
    """Where class 0 is 1 in the files, scores without its table are wrong, and nobody sees it."""
    root, plain = made
    folder = shifted(tmp_path, root, 1)
    wanted = evaluate_semantic(plain, root / "all.json", root / "images", da.ClassMap("masks"), device="cpu")
    content = torch.load(plain, weights_only=True) | map_entry(da.ClassMap("", table=TABLE, classes=NAMES))
    model = tmp_path / "model.pt"
    torch.save(content, model)

    def scored(**settings: Any) -> NDArray[Any]:
        map = da.ClassMap(folder, **settings)
        return evaluate_semantic(model, root / "all.json", root / "images", map, device="cpu").confusion

    numbers = re.escape("the model was trained with ignore=255 and table={1: 0, 2: 1, 3: 2, 255: 255}")
    for settings in ({}, {"classes": NAMES}, {"table": {**TABLE, 3: 0}}, {"table": TABLE, "ignore": 0}):
        with pytest.raises(InputError, match=numbers):
            scored(**settings)
    with pytest.raises(InputError, match="has ignore=255 and no table"):
        scored()
    for settings in ({"table": TABLE}, {"table": TABLE, "classes": NAMES}):  # the remedy
        assert scored(**settings).tolist() == wanted.confusion.tolist()
    own = {number: number for number in (*range(3), IGNORED)}  # files of other numbers, with both
    again = da.ClassMap("masks", table=own, classes=NAMES)
    found = evaluate_semantic(model, root / "all.json", root / "images", again, device="cpu")
    assert found.confusion.tolist() == wanted.confusion.tolist()
    words = ("evaluate", str(root / "all.json"), str(root / "images"), "--model", str(model), "--map")
    (tmp_path / "table.json").write_text(json.dumps({str(key): value for key, value in TABLE.items()}))
    assert "give the map the same, or" in error_line(detaug(*words, f"semantic={folder}"))
    assert detaug(*words, f"semantic={folder},table={tmp_path / 'table.json'}", "--device", "cpu").code == 0


def test_maps_that_are_all_ignored(made: Model, tmp_path: Path) -> None:
    root, model = made
    for number, true in enumerate(truth(root)):
        Image.fromarray(np.full_like(true, 7)).save(tmp_path / f"{number}.png")
    with pytest.raises(InputError, match="all pixels have the value 7, which is ignored"):
        evaluate_semantic(model, root / "all.json", root / "images", da.ClassMap(tmp_path, ignore=7), device="cpu")


# ---------------------------------------------------------------------------------------------- predicted maps


def test_predicted_maps_are_what_is_found_and_are_read_again(made: Model, tmp_path: Path) -> None:
    root, model = made
    written = predict_maps(model, [root / "images"], tmp_path / "maps", drawings=tmp_path / "drawn", device="cpu")
    assert str(written) == f"written: {tmp_path / 'maps'}, 7 maps of the classes 0 ground, 1 red, 2 blue"
    for number, own in enumerate(found(root, model)):
        with (
            Image.open(tmp_path / f"maps/{number}.png") as image,
            Image.open(tmp_path / f"drawn/{number}.png") as drawn,
        ):
            assert image.mode == "P"
            colors = np.array([class_colors(NAMES)[name] for name in NAMES])
            assert (np.asarray(image.convert("RGB")) == colors[np.asarray(image)]).all()
            assert (np.asarray(image) == own).mean() > 0.99  # a batch has padding, an image alone has none
            assert drawn.size == image.size
    map = da.ClassMap(root / "masks", classes=NAMES)
    of_files = evaluate_maps(map, tmp_path / "maps", root / "images").metrics
    of_model = evaluate_semantic(model, root / "all.json", root / "images", map, device="cpu").metrics
    assert of_files.mIoU == pytest.approx(of_model.mIoU, abs=0.002)  # type: ignore[union-attr]


def test_sub_folders_and_exif(made: Model, tmp_path: Path) -> None:
    root, model = made
    (tmp_path / "in/a").mkdir(parents=True)
    shutil.copy(root / "images/1.png", tmp_path / "in/a/one.png")
    image, exif = Image.open(root / "images/1.png"), Image.Exif()
    exif[0x0112] = 6
    image.save(tmp_path / "in/turned.jpg", exif=exif, quality=95)
    predict_maps(model, [tmp_path / "in"], tmp_path / "maps", device="cpu")
    one, turned = (np.asarray(Image.open(tmp_path / "maps" / name)) for name in ("a/one.png", "turned.png"))
    assert one.shape == (48, 64)
    assert turned.shape == (64, 48)
    assert ((np.rot90(one, -1) == 2) == (turned == 2)).mean() > 0.97  # blue; of ground JPEG changes the class
    assert 0.05 < (turned == 2).mean() < 0.4


def test_what_cannot_be_predicted(made: Model, tmp_path: Path) -> None:
    root, model = made
    folder = tmp_path / "in"
    folder.mkdir()
    for name in ("a.png", "a.jpg"):
        Image.open(root / "images/0.png").save(folder / name)
    with pytest.raises(InputError, match=r"a\.(jpg|png) and .*a\.(jpg|png) would have the same map"):
        predict_maps(model, [folder], tmp_path / "maps", device="cpu")
    (folder / "a.jpg").unlink()
    (folder / "b.png").write_bytes((folder / "a.png").read_bytes()[:200])
    with pytest.raises(DataError, match=r"b\.png"):
        predict_maps(model, [folder], tmp_path / "maps", device="cpu")
    assert not (tmp_path / "maps").exists()
    (folder / "b.png").unlink()
    (tmp_path / "maps").mkdir()
    Image.open(root / "masks/0.png").save(tmp_path / "maps/a.png")
    before = (tmp_path / "maps/a.png").read_bytes()
    with pytest.raises(InputError, match=r"maps/a\.png exists and was not written by detaug"):
        predict_maps(model, [folder], tmp_path / "maps", device="cpu")
    assert (tmp_path / "maps/a.png").read_bytes() == before
    (folder / "clip.mp4").write_bytes(b"")
    (folder / "a.png").unlink()
    with pytest.raises(InputError, match=r"clip\.mp4 is a video: write its frames as files, ffmpeg -i"):
        predict_maps(model, [folder], tmp_path / "other", device="cpu")


def test_the_command(made: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require_torchvision()
    root, model = made
    monkeypatch.chdir(tmp_path)
    words: tuple[Any, ...] = ("predict", model, root / "images", "--device", "cpu")
    result = detaug(*map(str, words))
    assert result.code == 0, result.err
    assert result.out == "written: predictions/maps, 7 maps of the classes 0 ground, 1 red, 2 blue\n"
    assert {path.name for path in Path("predictions").glob("*.png")} == {f"{number}.png" for number in range(7)}
    assert Path("predictions/.detaug-run").is_file()  # so that no later dataset has these images
    for option, value in {"--min-score": "0.1", "--stride": "2"}.items():
        message = error_line(detaug(*map(str, words), option, value))
        assert message.strip().endswith(
            f"{option} is for objects, and this model finds the class of each pixel: leave it out"
        )


def test_the_command_that_scores_a_model(made: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require_torchvision()
    root, model = made
    monkeypatch.chdir(tmp_path)
    truth_of = f"semantic={root / 'masks'},classes={','.join(NAMES)}"
    words = [*map(str, ("evaluate", root / "all.json", root / "images", "--model", model, "--map", truth_of))]
    files = ("--html", "a.html", "--sheet", "a.png", "--report", "a.json", "--device", "cpu", "--kind", "semantic")
    result = detaug(*words, *files)
    assert result.code == 0, result.err
    maps = da.ClassMap(root / "masks", classes=NAMES)
    wanted = evaluate_semantic(model, root / "all.json", root / "images", maps, device="cpu")
    assert result.out == f"{wanted}\nwritten: a.html\nwritten: a.png\nwritten: a.json\n"
    assert json.loads(Path("a.json").read_text())["confusion"] == wanted.confusion.tolist()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--map", "semantic=masks", "--predictions", "."), "--map needs --predictions FOLDER, of panoptic maps"),
        (("--map", "depth=masks"), "--model finds the class of each pixel: give --map semantic=FOLDER"),
        (("--map", "semantic=masks", "--kind", "depth"), "--kind is depth, and --map has a map of the kind semantic"),
        (("--map", "depth=masks", "--kind", "panoptic"), "--kind is panoptic, and --map has a map of the kind depth"),
        (("--map", "panoptic=m", "--kind", "depth"), "--kind is depth, and --map has a map of the kind panoptic"),
        (("--kind", "panoptic"), "--kind panoptic needs the maps of the dataset: give --map panoptic=FOLDER"),
        (("--map", "semantic=masks", "--tile", "32"), "--tile is for boxes: leave it out, or --map"),
        ((), "finds the class of each pixel, which a map is compared with; give it: --map semantic=FOLDER"),
    ],
)
def test_options_that_do_not_fit_a_model_of_maps(made: Model, words: tuple[str, ...], message: str) -> None:
    require_torchvision()
    root, model = made
    given = map(str, ("evaluate", root / "all.json", root / "images", "--model", model))
    result = detaug(*given, *words)
    assert result.code == 2
    assert message in result.err


def test_a_model_needs_the_json_file(made: Model) -> None:
    require_torchvision()
    root, model = made
    result = detaug("evaluate", str(root / "images"), "--model", str(model), "--map", "semantic=masks")
    assert result.code == 2
    assert "--model needs FILE.json IMAGES; detaug convert makes FILE.json of a folder of maps" in result.err
