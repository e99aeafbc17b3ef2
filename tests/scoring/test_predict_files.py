"""`detaug predict`: images of folders and patterns, a JSON file that the other commands read, images."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command import detaug
from numbered_videos import SIZE, number_in, write_video
from PIL import Image
from pycocotools import mask as coco_mask
from torch import Tensor, nn

import detaug as da
from detaug.boxes.keypoints import KeyPoints
from detaug.converters import check_coco
from detaug.scoring import evaluate_model, predict_files
from detaug.training import TrainedModel

BOX = (10, 6, 50, 30)
"""XYXY, white, in images of several sizes."""


class FindsWhite(nn.Module):
    """A detector that finds the white pixels with a score of 0.9, and the whole image with 0.3."""

    def __init__(self, *more: str) -> None:
        super().__init__()
        self.more = more

    def forward(self, images: Tensor) -> list[dict[str, Tensor]]:
        found = []
        for image in images:
            white = image.mean(0) > 0.5
            rows, columns = torch.nonzero(white, as_tuple=True)
            box = torch.stack([columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]).float()
            white[rows.median() : rows.median() + 8, columns.median() : columns.median() + 8] = False  # a hole of masks
            whole = torch.tensor([-9.0, -9, 999, 999])
            each = {"boxes": torch.stack([box, whole])}
            each |= {"scores": torch.tensor([0.9, 0.3]), "labels": torch.tensor([2, 1])}
            each |= {"masks": white[None, None].float().repeat(2, 1, 1, 1)} if "masks" in self.more else {}
            points = torch.tensor([[*box[:2].tolist(), 1], [*box[2:].tolist(), 1]])
            each |= {"keypoints": points[None].repeat(2, 1, 1)} if "keypoints" in self.more else {}
            found.append(each)
        return found


def model(*more: str) -> TrainedModel:
    ops = (da.Resize((120, 160)), da.Normalize((0, 0, 0), (1, 1, 1)))
    names = KeyPoints(np.zeros((0, 2, 3)), [["first", "last"]], [[(0, 1)]], np.array([[0, 1]]))
    points = names if "keypoints" in more else None
    return TrainedModel(FindsWhite(*more), ops, ("background", "cat", "dog"), torch.device("cpu"), points)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with five images, two of them in another folder, and one stored upside down."""
    x0, y0, x1, y1 = BOX
    for at, name in enumerate(("a.png", "b.jpg", "sub/c d.png", "sub/é.JPG")):
        pixels = np.zeros((60 + at * 20, 80, 3), np.uint8)
        pixels[y0:y1, x0:x1] = 255
        path = tmp_path / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path, quality=100, subsampling=0)
    pixels, exif = np.zeros((60, 80, 3), np.uint8), Image.Exif()
    pixels[y0:y1, x0:x1] = 255
    exif[0x0112] = 3
    Image.fromarray(pixels[::-1, ::-1]).save(tmp_path / "photos/e.png", exif=exif)
    (tmp_path / "photos/notes.txt").write_text("no image")
    return tmp_path / "photos"


def read(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_bytes()))


def test_nothing_found_names_the_score(folder: Path, tmp_path: Path) -> None:
    found = predict_files(model(), [folder], tmp_path / "found.json", min_score=0.95)
    expected = "0 objects found in 5 images, none with a score of 0.95 or more: a lower min_score finds more\n"
    assert str(found).startswith(expected)
    assert read(tmp_path / "found.json")["annotations"] == []


def test_a_folder(folder: Path, tmp_path: Path) -> None:
    found = predict_files(model(), [folder], tmp_path / "found.json", drawings=tmp_path / "drawn")
    assert str(found).startswith("5 objects found in 5 images")
    content = read(tmp_path / "found.json")
    assert [each["file_name"] for each in content["images"]] == ["a.png", "b.jpg", "e.png", "sub/c d.png", "sub/é.JPG"]
    x0, y0, x1, y1 = BOX
    for each in content["annotations"]:
        assert each["bbox"] == pytest.approx([x0, y0, x1 - x0, y1 - y0], abs=1.1)
        assert (each["category_id"], each["score"], each["iscrowd"]) == (2, 0.9, 0)
    assert check_coco(tmp_path / "found.json", folder).errors == 0
    reader = da.CocoReader(folder, tmp_path / "found.json")
    assert reader.class_names == ("background", "cat", "dog")
    drawn = sorted(path.relative_to(tmp_path / "drawn").as_posix() for path in (tmp_path / "drawn").rglob("*.*"))
    assert drawn == ["a.png", "b.jpg", "e.png", "sub/c d.png", "sub/é.JPG"]
    with Image.open(tmp_path / "drawn/a.png") as picture, Image.open(folder / "a.png") as before:
        assert picture.size == before.size
        assert np.asarray(picture).tolist() != np.asarray(before).tolist()


def test_all_images_also_in_one_of_several_processes(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert str(predict_files(model(), [folder], tmp_path / "found.json")).startswith("5 objects found in 5 images")
    monkeypatch.setattr("detaug.scoring.evaluate.load_model", lambda *_: model())
    evaluated = evaluate_model("model.pt", tmp_path / "found.json", folder, draw=5)
    assert evaluated.metrics.AP > 0.99
    assert len(evaluated.drawn) == 5


def test_the_lowest_score_and_the_edges(folder: Path, tmp_path: Path) -> None:
    predict_files(model(), [folder / "a.png"], tmp_path / "found.json", min_score=0.3)
    whole = read(tmp_path / "found.json")["annotations"][1]
    assert whole["bbox"] == [0, 0, 80, 60]
    assert whole["category_id"] == 1


class FindsInThePadding(FindsWhite):
    """Finds the white pixels, and something right of the image."""

    def forward(self, images: Tensor) -> list[dict[str, Tensor]]:
        found = super().forward(images)
        for each in found:
            each["boxes"][1] = torch.tensor([160.0, 3, 190, 40])
        return found


@pytest.mark.parametrize("finds", [(), ("masks", "keypoints")])
def test_what_is_out_of_the_image_is_left_out(folder: Path, tmp_path: Path, finds: tuple[str, ...]) -> None:
    padded = replace(model(*finds), model=FindsInThePadding(*finds))
    out = {"drawings": tmp_path / "drawn", "pre_labels": {"cvat": tmp_path / "cvat"}}
    predicted = predict_files(padded, [folder / "a.png"], tmp_path / "found.json", min_score=0.3, **out)
    (row,) = read(tmp_path / "found.json")["annotations"]
    assert (predicted.objects, row["score"]) == (1, 0.9)
    reader = da.CocoReader(folder, tmp_path / "found.json")
    (batch,) = da.Loader(reader, padded.ops, 1, train=False, device="cpu")
    (found,) = padded.predict(batch, min_score=0.3)
    assert {name: len(each) for name, each in found.items()} == dict.fromkeys(found, 1)


@pytest.mark.parametrize("name", ["*.png", "**/*.png"])
def test_patterns(folder: Path, tmp_path: Path, name: str) -> None:
    predict_files(model(), [folder / name, folder / "a.png"], tmp_path / "found.json")
    names = sorted(each["file_name"] for each in read(tmp_path / "found.json")["images"])
    assert names == sorted(path.relative_to(folder).as_posix() for path in folder.glob(name))


@pytest.mark.filterwarnings("ignore:__array__:DeprecationWarning")  # of pycocotools
def test_masks_and_key_points(folder: Path, tmp_path: Path) -> None:
    predict_files(model("masks", "keypoints"), [folder / "a.png"], tmp_path / "found.json", drawings=tmp_path / "drawn")
    for row in read(tmp_path / "found.json")["annotations"]:
        area = int(coco_mask.decode(row["segmentation"]).sum())
        assert (row["area"], row["area"] == row["bbox"][2] * row["bbox"][3]) == (area, False)
    reader = da.CocoReader(folder, tmp_path / "found.json", masks=True, keypoints=True)
    (batch,) = da.Loader(reader, [da.Resize((60, 80))], 1, train=False, device="cpu")
    wanted = torch.zeros(60, 80, dtype=torch.bool)
    x0, y0, x1, y1 = BOX
    wanted[y0:y1, x0:x1] = True
    assert (batch.masks()[0] ^ wanted).sum() < 2 * (x1 - x0 + y1 - y0)  # at most the outline
    assert batch.keypoints[0, 0, :, :2].flatten().tolist() == pytest.approx(BOX, abs=0.01)
    category = read(tmp_path / "found.json")["categories"][1]
    assert (category["keypoints"], category["skeleton"]) == (["first", "last"], [[1, 2]])


def test_what_cannot_be_predicted(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(da.InputError, match=r"notes\.txt: \.txt is not read, only .*\.png, .*; save it as PNG"):
        predict_files(model(), [folder / "notes.txt"], tmp_path / "found.json")
    for path in ("nothing", folder / "*.gif"):
        with pytest.raises(da.InputError, match="is not an image or video, a folder of them, or a pattern"):
            predict_files(model(), [path], tmp_path / "found.json")
    (folder / "bad.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    with pytest.raises(da.DataError, match=r"bad\.png"):
        predict_files(model(), [folder], tmp_path / "found.json", drawings=tmp_path / "drawn")
    assert not (tmp_path / "found.json").exists()
    assert not (tmp_path / "drawn").exists()


def cut_off(path: Path) -> None:
    """Leave a header that is right, so that the image fails when it is decoded, after others."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_an_image_that_fails_leaves_nothing_and_everything_as_it_was(folder: Path, tmp_path: Path) -> None:
    """The drawings of the images before it, too: they would stand beside those, and a JSON file, of another model."""
    drawn, out = tmp_path / "drawn", tmp_path / "found.json"
    pixels = np.random.default_rng(0).integers(0, 255, (60, 80, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(folder / "z.png")
    whole = (folder / "z.png").read_bytes()
    cut_off(folder / "z.png")
    for _ in range(2):
        with pytest.raises(da.DataError, match=r"z\.png"):
            predict_files(model(), [folder], out, drawings=drawn, batch_size=1, min_score=0)
        assert not drawn.exists()
        assert not out.exists()
    (folder / "z.png").write_bytes(whole)
    predict_files(model(), [folder], out, drawings=drawn, batch_size=1, min_score=0)
    before = contents(tmp_path)
    assert {path.name for path in drawn.rglob("*.*")} >= {"a.png", "z.png"}
    cut_off(folder / "z.png")
    with pytest.raises(da.DataError, match=r"z\.png"):
        predict_files(model(), [folder], out, drawings=drawn, batch_size=1, min_score=0.5)
    (folder / "z.png").write_bytes(whole)
    assert contents(tmp_path) == before
    predict_files(model(), [folder], out, drawings=drawn, batch_size=1, min_score=0.5)
    assert {*contents(tmp_path)} == {*before}
    assert contents(tmp_path) != before


@pytest.mark.parametrize(
    "wrong", [{"stride": 0}, {"stride": 2}, {"batch_size": 0}, {"batch_size": 1.5}, {"min_score": 2}]
)
def test_arguments_that_are_wrong(folder: Path, tmp_path: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(da.InputError, match=f"{next(iter(wrong))} must be (a|1)"):
        predict_files(model(), [folder], tmp_path / "found.json", **wrong)


def test_no_photograph_becomes_a_drawing(folder: Path, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in folder.rglob("*.*")}
    for drawings in (folder, folder / "sub/.."):
        with pytest.raises(da.InputError, match=r"must be another file than .*, which is an input"):
            predict_files(model(), [folder], tmp_path / "found.json", drawings=drawings)
    assert {path: path.read_bytes() for path in folder.rglob("*.*")} == before
    for _ in range(2):  # its own drawings are replaced
        predict_files(model(), [folder], tmp_path / "found.json", drawings=tmp_path / "drawn")
    Image.new("RGB", (3, 3)).save(tmp_path / "drawn/a.png")
    with pytest.raises(da.InputError, match=r"exists and was not written by detaug"):
        predict_files(model(), [folder], tmp_path / "found.json", drawings=tmp_path / "drawn")


def test_scores_keep_their_order(folder: Path, tmp_path: Path) -> None:
    """The scores of a model that has learnt little, or that are rounded up to 1, are close to each other."""
    scores = [1.0, 0.99999994, 0.9, 0.1434961, 0.14345968, 3e-6, 2e-6]

    class Found(nn.Module):
        def forward(self, images: Tensor) -> list[dict[str, Tensor]]:
            box = torch.tensor([[9.0, 9, 50, 50]])
            each = {"boxes": box.repeat(len(scores), 1), "labels": torch.ones(len(scores), dtype=torch.int64)}
            return [{**each, "scores": torch.tensor(scores)} for _ in images]

    predict_files(replace(model(), model=Found()), [folder / "a.png"], tmp_path / "found.json", min_score=0)
    assert [each["score"] for each in read(tmp_path / "found.json")["annotations"]] == scores


def test_images_that_differ_in_their_format_have_their_own_drawings(folder: Path, tmp_path: Path) -> None:
    for name in ("b.webp", "b.bmp"):
        Image.open(folder / "b.jpg").save(folder / name)
    predict_files(model(), [folder / "b.*"], tmp_path / "found.json", drawings=tmp_path / "drawn")
    assert sorted(path.name for path in (tmp_path / "drawn").iterdir()) == ["b.bmp.jpg", "b.jpg", "b.webp.jpg"]
    (folder / "b.bmp").rename(folder / "b.jpg.webp")
    (folder / "b.webp").rename(folder / "b.jpg.webp.jpg")
    with pytest.raises(da.InputError, match=r"b\.jpg\.webp and b\.jpg\.webp\.jpg would have the same drawing; predict"):
        predict_files(model(), [folder], tmp_path / "found.json", drawings=tmp_path / "other")
    predict_files(model(), [folder / "b.jpg.webp"], tmp_path / "found.json", drawings=tmp_path / "other")


# ---------------------------------------------------------------- pre-labels


def test_pre_labels_for_label_studio(folder: Path, tmp_path: Path) -> None:
    predict_files(
        model(), [folder], tmp_path / "found.json", min_score=0.3, pre_labels={"label-studio": tmp_path / "studio"}
    )
    tasks = json.loads((tmp_path / "studio/tasks.json").read_bytes())
    (prediction,) = tasks[0]["predictions"]
    assert prediction["score"] == pytest.approx(0.6)
    best, whole = prediction["result"]
    assert (best["score"], whole["score"]) == (0.9, 0.3)
    assert best["value"]["rectanglelabels"] == ["dog"]
    percent = np.array(BOX) * 100 / (80, 60, 80, 60)
    corner = [best["value"][name] for name in ("x", "y")]
    assert corner == pytest.approx(percent[:2].tolist(), abs=1.5)
    assert best["value"]["width"] == pytest.approx(percent[2] - percent[0], abs=2.5)
    assert "score" not in (tmp_path / "studio/label_config.xml").read_text()


@pytest.mark.parametrize("tool", ["labelme", "cvat"])
def test_pre_labels_come_back(folder: Path, tmp_path: Path, tool: Any) -> None:
    out = tmp_path / "out"
    said = str(predict_files(model(), [folder], tmp_path / "found.json", pre_labels={tool: out}))
    command, changes = f"written: {out}\nand back: detaug convert ", {"again.json": str(tmp_path / "again.json")}
    assert command in said
    detaug("convert", *(changes.get(word, word) for word in shlex.split(said.split(command)[1])))
    boxes = [
        sorted((tuple(np.round(each["bbox"], 2)), each["category_id"]) for each in read(path)["annotations"])
        for path in (tmp_path / "found.json", tmp_path / "again.json")
    ]
    assert [box for box, _ in boxes[0]] == [box for box, _ in boxes[1]]


class MustNotRun(nn.Module):
    def forward(self, images: Tensor) -> list[dict[str, Tensor]]:
        raise AssertionError("the arguments are to be refused before anything is predicted")


@pytest.mark.parametrize(
    ("tool", "file"), [("labelme", "sub/c d.json"), ("cvat", "annotations.xml"), ("label-studio", "tasks.json")]
)
def test_pre_labels_of_others_are_refused_before_predicting(folder: Path, tmp_path: Path, tool: Any, file: str) -> None:
    other = folder / file
    other.write_text("somebody's work")
    unused = replace(model(), model=MustNotRun())
    with pytest.raises(da.InputError, match=f"1 file exists with other content and would be replaced: .*{file}"):
        predict_files(unused, [folder], tmp_path / "found.json", pre_labels={tool: folder})
    assert other.read_text() == "somebody's work"
    assert not (tmp_path / "found.json").exists()


def test_pre_labels_that_would_fail_are_refused_before_predicting(folder: Path, tmp_path: Path) -> None:
    unused = replace(model(), model=MustNotRun())
    with pytest.raises(da.InputError, match=r"output .*a\.json is a file of the pre-labels of labelme"):
        predict_files(unused, [folder], folder / "a.json", pre_labels={"labelme": folder})
    ignored = replace(unused, class_names=("background", "__ignore__", "dog"))
    with pytest.raises(da.InputError, match=r"^.*/found\.json: a class named __ignore__"):
        predict_files(ignored, [folder], tmp_path / "found.json", pre_labels={"labelme": tmp_path / "out"})
    (folder / "a.jpg").write_bytes((folder / "b.jpg").read_bytes())
    with pytest.raises(da.InputError, match=r"(?s)(a\.jpg|a\.png).*predict these apart from each other$"):
        predict_files(unused, [folder], tmp_path / "found.json", pre_labels={"labelme": tmp_path / "out"})
    for kind in ("jpg", "png"):
        labels: dict[Any, Path] = {"labelme": tmp_path / kind}
        predict_files(model(), [folder / f"*.{kind}"], tmp_path / f"{kind}.json", pre_labels=labels)
    assert not {tmp_path / "found.json", tmp_path / "out"} & {*tmp_path.iterdir()}


def test_a_tool_has_one_folder(folder: Path, tmp_path: Path) -> None:
    labels = [each for name in "ab" for each in ("--pre-labels", "cvat", tmp_path / name)]
    (tmp_path / "model.pt").touch()
    result = detaug("predict", tmp_path / "model.pt", folder, "-o", tmp_path / "found.json", *labels)
    assert (result.code, "--pre-labels takes each tool once" in result.err) == (2, True)


# ---------------------------------------------------------------- videos


class ReadsNumbers(nn.Module):
    """Finds one box, whose corner is the number of the frame and whose label is 1; x1 tells how many came at once."""

    def forward(self, images: Tensor) -> list[dict[str, Tensor]]:
        found = []
        for image in images:
            number = number_in(image.permute(1, 2, 0).numpy() * 255)
            box = torch.tensor([[number, 2.0, number + len(images), 9.0]])
            found.append({"boxes": box, "scores": torch.tensor([0.8]), "labels": torch.tensor([1])})
        return found


def reads_numbers() -> TrainedModel:
    ops = (da.Resize(SIZE), da.Normalize((0, 0, 0), (1, 1, 1)))
    return TrainedModel(ReadsNumbers(), ops, ("background", "cat"), torch.device("cpu"))


@pytest.mark.parametrize("stride", [1, 3])
def test_videos(tmp_path: Path, stride: int) -> None:
    lengths = {"a.mp4": 70, "sub/b.avi": 20}
    for name, frames in lengths.items():
        write_video(tmp_path / "videos" / name, frames, "mpeg4" if name.endswith("avi") else "libx264")
    json_file = tmp_path / "found.json"
    drawn = tmp_path / "drawn"
    said = predict_files(reads_numbers(), [tmp_path / "videos"], json_file, stride=stride, drawings=drawn, batch_size=5)
    content = read(json_file)
    wanted = [(name, number) for name, frames in lengths.items() for number in range(0, frames, stride)]
    files = {each["id"]: each["file_name"] for each in content["videos"]}
    images = {each["id"]: (files[each["video_id"]], each["frame_id"]) for each in content["images"]}
    assert [*images.values()] == wanted
    found = [(images[each["image_id"]], each["bbox"]) for each in content["annotations"]]
    assert [frame for frame, _ in found] == wanted
    assert [box[0] for _, box in found] == [number for _, number in wanted]
    assert max(box[2] for _, box in found) == 5
    assert str(said).startswith(f"{len(wanted)} objects found in {len(wanted)} frames of 2 videos\n")
    names = sorted(path.relative_to(drawn).as_posix() for path in drawn.rglob("*.jpg"))
    assert names == sorted(f"{name}/{number:06}.jpg" for name, number in wanted)
    for name, number in wanted:
        with Image.open(drawn / name / f"{number:06}.jpg") as picture:
            assert number_in(np.asarray(picture)[12:]) == number  # below the box and its label
    reader = da.VideoReader(tmp_path / "videos", annotations=json_file, frames=2, stride=1, last="pad")
    for batch in da.Loader(reader, [da.Resize(SIZE)], 1, train=False, device="cpu"):
        assert batch.boxes[0, :, 0, 0].tolist() == batch.frame[0].tolist()


def test_what_is_no_video(folder: Path, tmp_path: Path) -> None:
    write_video(folder / "a.mp4", 3)
    with pytest.raises(da.InputError, match=r"a\.mp4 is a video: give images alone, and videos alone, .* '\*\.mp4'"):
        predict_files(model(), [folder], tmp_path / "found.json")
    predict_files(reads_numbers(), [folder / "*.mp4"], tmp_path / "found.json")
    with pytest.raises(da.InputError, match="pre_labels are of images: write the frames as files"):
        predict_files(model(), [folder / "a.mp4"], tmp_path / "found.json", pre_labels={"cvat": tmp_path / "cvat"})
    (folder / "b.mp4").write_bytes(b"no video")
    with pytest.raises(da.InputError, match=r"1 of 2 videos cannot be used, the first is .*b\.mp4") as error:
        predict_files(model(), [folder / "*.mp4"], tmp_path / "other.json", drawings=tmp_path / "drawn")
    assert str(error.value).endswith("remove it, or write it again: ffmpeg -i IN OUT.mp4")
    assert not (tmp_path / "other.json").exists()
    assert not (tmp_path / "drawn").exists()
