"""`detaug train PATH` to the end on seven kinds of folders, and what each gives and says."""

from __future__ import annotations

import json
import shlex
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from command import detaug
from PIL import Image
from test_train_folder import FILES

from detaug.converters import voc_to_coco
from detaug.demo.people import make_people
from detaug.demo.shapes import make_voc
from detaug.demo.ships import make_ships

pytest.importorskip("torchvision")

IMAGES = 6


class Drawn(NamedTuple):
    """A COCO JSON file of a few drawn images, and their folder."""

    file: Path
    images: Path

    def rows(self) -> Iterator[tuple[str, list[tuple[str, list[float]]]]]:
        """Yield each file name with the class and the box XYXY of each object."""
        content = json.loads(self.file.read_text())
        names = {row["id"]: row["name"] for row in content["categories"]}
        for image in content["images"]:
            of_image = [row for row in content["annotations"] if row["image_id"] == image["id"]]
            boxes = [(row["bbox"], names[row["category_id"]]) for row in of_image]
            yield image["file_name"], [(name, [x, y, x + w, y + h]) for (x, y, w, h), name in boxes]


def things(root: Path) -> Drawn:
    make_voc(root / "voc", IMAGES + 2)  # of these the last is of its split val
    voc_to_coco(root / "voc", root / "things.json", masks=True)
    return Drawn(root / "things.json", root / "voc/JPEGImages")


def ships(root: Path) -> Drawn:
    return Drawn(make_ships(root, IMAGES), root / "ships")


def people(root: Path) -> Drawn:
    return Drawn(make_people(root, IMAGES), root / "people")


def exported(name: str, *more: str) -> Callable[[Drawn, Path], None]:
    def write(drawn: Drawn, folder: Path) -> None:
        words = (f"convert-coco-to-{name}", drawn.file, folder, "--images", drawn.images, "--with-images", "copy")
        result = detaug(*words, *more)
        assert result.code == 0, result.err

    return write


def roboflow(drawn: Drawn, folder: Path) -> None:
    """Write YOLO's files as Roboflow does: a folder for each split, ../ in data.yaml."""
    names = sorted({name for _, objects in drawn.rows() for name, _ in objects})
    for number, (file, objects) in enumerate(drawn.rows()):
        split = folder / ("valid" if number % 3 == 2 else "train")
        stem = f"{Path(file).stem}_jpg.rf.{number:032x}"
        for kind in ("images", "labels"):
            (split / kind).mkdir(parents=True, exist_ok=True)
        shutil.copyfile(drawn.images / file, split / f"images/{stem}.jpg")
        with Image.open(drawn.images / file) as image:
            width, height = image.size
        lines = [
            f"{names.index(name)} {(x1 + x2) / 2 / width} {(y1 + y2) / 2 / height} {(x2 - x1) / width} "
            f"{(y2 - y1) / height}\n"
            for name, (x1, y1, x2, y2) in objects
        ]
        (split / f"labels/{stem}.txt").write_text("".join(lines))
    yaml = f"train: ../train/images\nval: ../valid/images\ntest: ../test/images\n\nnc: {len(names)}\nnames: {names}\n"
    (folder / "data.yaml").write_text(yaml)


def coco_keypoints(drawn: Drawn, folder: Path) -> None:
    (folder / "annotations").mkdir(parents=True)
    shutil.copyfile(drawn.file, folder / "annotations/person_keypoints.json")
    shutil.copytree(drawn.images, folder / "images")


def via(drawn: Drawn, folder: Path) -> None:
    shutil.copytree(drawn.images, folder)
    content = {}
    for file, objects in drawn.rows():
        size = (folder / file).stat().st_size
        regions = [
            {
                "shape_attributes": {"name": "rect", "x": x1, "y": y1, "width": x2 - x1, "height": y2 - y1},
                "region_attributes": {"type": name},
            }
            for name, (x1, y1, x2, y2) in objects
        ]
        content[f"{file}{size}"] = {"filename": file, "size": size, "regions": regions, "file_attributes": {}}
    (folder / "via_region_data.json").write_text(json.dumps(content))


def table_of_tiffs(drawn: Drawn, folder: Path) -> None:
    (folder / "photos").mkdir(parents=True)
    lines = ["filename,class,xmin,ymin,xmax,ymax"]
    for file, objects in drawn.rows():
        name = f"{Path(file).stem}.tif"
        with Image.open(drawn.images / file) as image:
            image.save(folder / "photos" / name, compression="tiff_lzw")
        lines += [f"{name},{label},{','.join(map(str, box))}" for label, box in objects]
    (folder / "labels.csv").write_text("\n".join(lines) + "\n")


class Kind(NamedTuple):
    make: Callable[[Path], Drawn]
    write: Callable[[Drawn, Path], None]
    says: str = ""


NO_MASKS = "does not learn the masks: for masks give --model maskrcnn_resnet50_fpn_v2 or rf-detr-seg-nano"

KINDS = {
    "LabelMe, masks": Kind(things, exported("labelme"), NO_MASKS),
    "CVAT #1, masks": Kind(things, exported("cvat"), NO_MASKS),
    "Roboflow": Kind(things, roboflow),
    "COCO": Kind(
        people, coco_keypoints, "does not learn the keypoints: for keypoints give --model keypointrcnn_resnet"
    ),
    "DOTA": Kind(
        ships,
        exported("dota"),
        "does not learn the rotated boxes: for rotated boxes give --model fcos_rotated_resnet50_fpn",
    ),
    "VIA": Kind(things, via),
    "tiffs é": Kind(things, table_of_tiffs),
}


def objects_of(*files: Path) -> Counter[tuple[str, str]]:
    """Return how often each stem of a file name, without the end that Roboflow gives it, has each class."""
    counts = Counter[tuple[str, str]]()
    for file in files:
        for name, objects in Drawn(file, file.parent).rows():
            counts.update((Path(name).name.partition("_jpg.rf.")[0].split(".")[0], label) for label, _ in objects)
    return counts


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_a_folder_becomes_a_detector(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = KINDS[name]
    monkeypatch.chdir(tmp_path)
    drawn = kind.make(tmp_path / "drawn")
    kind.write(drawn, tmp_path / name)
    result = detaug("train", name, "-o", "run", "--epochs", "1", "--device", "cpu", "--batch-size", "2")
    assert (result.code, result.err) == (0, "")
    own_splits = name == "Roboflow"
    files = {path.relative_to("run").as_posix() for path in Path("run").rglob("*") if path.is_file()}
    assert files >= FILES - ({"data/all.json"} if own_splits else set())
    assert objects_of(Path("run/data/train.json"), Path("run/data/val.json")) == objects_of(drawn.file)
    assert ("does not learn" in result.out) == bool(kind.says)
    assert kind.says in result.out
    assert_the_commands_do_the_same(result.out)


def assert_the_commands_do_the_same(printed: str) -> None:
    """Run the printed commands but the longest, and compare what they write; and how README.txt predicts."""
    before = {path: path.read_bytes() for path in Path("run").rglob("*") if path.suffix in (".json", ".jpg", ".html")}
    commands = [shlex.split(line[2:])[1:] for line in printed.splitlines() if line.startswith("$ ")]
    for words in commands:
        if words[0] not in ("train", "check"):
            result = detaug(*words)
            assert (result.code, result.err) == (0, ""), words
    assert {path for path, content in before.items() if path.read_bytes() != content} == set()
    readme = Path("run/README.txt").read_text().splitlines()
    assert f"What was done, in the folder {Path.cwd()}:" in readme
    (predict,) = (line for line in readme if line.startswith("detaug predict"))
    images: Any = json.loads(Path("run/data/val.json").read_text())["images"]
    folder = next(words[2] for words in commands if words[0] == "evaluate")
    words = shlex.split(predict)[1:-1]
    result = detaug(*words, Path(folder) / images[0]["file_name"], "--device", "cpu")
    assert (result.code, result.err) == (0, "")
