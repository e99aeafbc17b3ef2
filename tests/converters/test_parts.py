"""Parts of a conversion, of packing and of a check: `merge` joins JSON files to the same bytes as one run writes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from coco_files import document, write, write_images
from command import detaug, usage_error
from format_files import data_set
from places import REPOSITORY
from test_labelme import SHAPES, labelme, shape

import detaug as da
from detaug.check import decode as check_decode
from detaug.converters import (
    ConversionError,
    InputError,
    check_coco,
    coco_to_yolo,
    convert_to_coco,
    merge_coco,
    pack_coco,
)


def joined(tmp_path: Path, root: Path, count: int, **options: Any) -> tuple[bytes, bytes]:
    """Return the JSON file of one run, and that of parts."""
    convert_to_coco(root, tmp_path / "whole.json", **options)
    parts = [tmp_path / f"part-{number}.json" for number in range(1, count + 1)]
    for number, part in enumerate(parts, 1):
        convert_to_coco(root, part, part=(number, count), **options)
    merged = merge_coco(parts[::-1], tmp_path / "merged.json")
    content = json.loads((tmp_path / "whole.json").read_bytes())
    assert merged.images == len(content["images"])
    return (tmp_path / "whole.json").read_bytes(), (tmp_path / "merged.json").read_bytes()


IGNORED = shape("polygon", [[60, 60], [90, 60], [90, 79]], "__ignore__")
PERSON = shape("rectangle", [[60, 10], [90, 70]], "person", group_id=2)


def points(*names: str) -> list[dict[str, Any]]:
    return [shape("point", [[70 + n, 20.5]], name, group_id=2) for n, name in enumerate(names)]


def labelme_set(folder: Path) -> Path:
    """Return files whose classes, keypoints and regions are each in few images, and images without any."""
    contents = {
        "a": labelme(*SHAPES[5:7]),
        "c": labelme(PERSON, *points("nose", "foot"), IGNORED),
        "deep/d": labelme(shape("rectangle", [[1, 1], [9, 9]], "zebra"), image="d.jpg"),
        "e": labelme(IGNORED),
        "f": labelme(PERSON, *points("eye", "nose"), shape("rectangle", [[1, 1], [9, 9]], "ant")),
    }
    files = {f"set/{name}.json": text for name, text in contents.items()}
    return data_set(folder / "data", files, *(f"set/{name}.jpg" for name in (*contents, "b", "g")))


@pytest.mark.parametrize("count", [1, 2, 3, 7, 12])
@pytest.mark.parametrize("options", [{}, {"classes": ["zebra", "person", "nobody"]}])
def test_labelme(tmp_path: Path, count: int, options: dict[str, Any]) -> None:
    whole, merged = joined(tmp_path, labelme_set(tmp_path), count, **options)
    assert merged == whole
    assert len(json.loads(whole)["images"]) == 7


def voc_xml(name: str, *classes: str) -> str:
    boxes = "".join(
        f"<object><name>{each}</name><bndbox><xmin>{n + 1}</xmin><ymin>2</ymin><xmax>30</xmax><ymax>40</ymax></bndbox>"
        "</object>"
        for n, each in enumerate(classes)
    )
    return f"<annotation><filename>{name}</filename>{boxes}</annotation>"


@pytest.mark.parametrize("count", [1, 2, 3, 9])
@pytest.mark.parametrize("options", [{}, {"split": "some"}, {"classes": ["zebra", "cat", "nobody"]}])
def test_voc(tmp_path: Path, count: int, options: dict[str, Any]) -> None:
    xmls = {
        "a": voc_xml("a.jpg", "cat", "dog"),
        "b": voc_xml("b.jpg", "zebra"),
        "other": voc_xml("f.jpg", "ant"),  # found by its <filename>
        "e": voc_xml("e.jpg"),
    }
    files = {f"Annotations/{name}.xml": text for name, text in xmls.items()}
    files |= {"ImageSets/Main/some.txt": "e\nother\nd\na\n"}
    root = data_set(tmp_path / "voc", files, *(f"JPEGImages/{name}.jpg" for name in "abcdef"))
    whole, merged = joined(tmp_path, root, count, **options)
    assert merged == whole
    assert len(json.loads(whole)["images"]) == (4 if options.get("split") else 6)


def refusals(tmp_path: Path, root: Path, **options: Any) -> tuple[str, str]:
    """Return the error of one run, and that of parts or of their merge."""
    with pytest.raises(ConversionError) as whole:
        convert_to_coco(root, tmp_path / "whole.json", **options)
    parts = [tmp_path / f"part-{number}.json" for number in (1, 2, 3)]

    def convert_parts() -> None:
        for number, part in enumerate(parts, 1):
            convert_to_coco(root, part, part=(number, 3), **options)
        merge_coco(parts, tmp_path / "merged.json")

    with pytest.raises(ConversionError) as merged:
        convert_parts()
    assert not [*tmp_path.glob("[mw]*.json")]
    return str(whole.value), str(merged.value).replace(", ".join(map(str, parts)), str(root))


@pytest.mark.parametrize("is_voc", [True, False])
def test_classes_that_leave_no_box(tmp_path: Path, is_voc: bool) -> None:
    if is_voc:
        xmls = {name: voc_xml(f"{name}.jpg", *each) for name, each in zip("abc", CLASSES, strict=True)}
        files = {f"Annotations/{name}.xml": text for name, text in xmls.items()}
        root = data_set(tmp_path / "voc", files, *(f"JPEGImages/{name}.jpg" for name in "abcd"))
    else:
        shapes = ([shape("rectangle", [[n, 1], [9, 9]], each) for n, each in enumerate(classes)] for classes in CLASSES)
        files = {f"{name}.json": labelme(*each, image=f"{name}.jpg") for name, each in zip("abc", shapes, strict=True)}
        root = data_set(tmp_path / "labelme", files, *(f"{name}.jpg" for name in "abcd"))
    whole, merged = refusals(tmp_path, root, classes=["Cat", "nobody"])
    assert whole == merged
    names = "its boxes have the classes cat, dog, zebra, but classes lists Cat (did you mean cat?), nobody"
    assert names in whole


CLASSES = (("cat", "dog"), (), ("zebra",))


def test_parts_without_any_label(tmp_path: Path) -> None:
    names = [f"{name}.jpg" for name in "abcd"]
    yolo = data_set(tmp_path / "yolo", {"classes.txt": "cat\n"}, *(f"images/{name}" for name in names))
    whole, merged = refusals(tmp_path, yolo, format="yolo")
    assert whole == merged
    assert "none of the 4 images has a label file" in whole
    files = {f"Annotations/x{number}.xml": voc_xml(f"x{number}.jpg", "cat") for number in range(3)}
    voc = data_set(tmp_path / "voc", files, *(f"JPEGImages/{name}" for name in names))
    whole, merged = refusals(tmp_path, voc, on_error="skip")
    assert whole == merged
    assert "has the image of none of the 3 entries of Pascal VOC" in whole


def test_an_image_of_another_part_belongs_to_its_own_xml(tmp_path: Path) -> None:
    """The XML "other" means the image of a.xml, which is in the other part."""
    xmls = {"a": voc_xml("a.jpg", "cat"), "b": voc_xml("b.jpg", "dog"), "other": voc_xml("a.jpg", "ant")}
    files = {f"Annotations/{name}.xml": text for name, text in xmls.items()}
    files |= {"ImageSets/Main/some.txt": "a\nb\nother\n"}
    root = data_set(tmp_path / "voc", files, "JPEGImages/a.jpg", "JPEGImages/b.jpg")
    whole, merged = joined(tmp_path, root, 2, split="some", on_error="skip")
    assert merged == whole
    assert [image["file_name"] for image in json.loads(whole)["images"]] == ["a.jpg", "b.jpg"]


def test_a_part_is_a_json_of_its_own(tmp_path: Path) -> None:
    root = labelme_set(tmp_path)
    result = detaug("convert", root, "-o", tmp_path / "2.json", "--part", "2/3")
    assert "2 images (0 without boxes)" in result.out
    assert not check_coco(tmp_path / "2.json", root).errors


def test_the_whole_is_cleaned_and_split(tmp_path: Path) -> None:
    """Rows of a part belong to its place in the whole, so those that are left would not."""
    root = labelme_set(tmp_path)
    part = tmp_path / "2.json"
    detaug("convert", root, "-o", part, "--part", "2/3")
    refusal = "is one part of a dataset; join all of them first: detaug merge"
    assert refusal in usage_error("check", part, root, "--clean", tmp_path / "clean.json")
    outputs = ("-o", tmp_path / "a.json", "-o", tmp_path / "b.json")
    assert refusal in usage_error("split", part, *outputs, "--ratios", "1,1")


def test_objects_of_a_changed_part_stay_with_their_image(tmp_path: Path) -> None:
    root = labelme_set(tmp_path)
    parts = [tmp_path / f"{number}.json" for number in (1, 2)]
    for number, path in enumerate(parts, 1):
        detaug("convert", root, "-o", path, "--part", f"{number}/2")
    detaug("merge", *parts, "-o", tmp_path / "whole.json")
    expected = boxes_by_name(tmp_path / "whole.json")
    content = json.loads(parts[0].read_text())
    lost = content["images"].pop(0)
    content["annotations"] = [each for each in content["annotations"] if each["image_id"] != lost["id"]]
    parts[0].write_text(json.dumps(content, separators=(",", ":")))
    assert detaug("merge", *parts, "-o", tmp_path / "whole.json").code == 0
    del expected[Path(lost["file_name"]).name]
    assert boxes_by_name(tmp_path / "whole.json") == expected


def boxes_by_name(path: Path) -> dict[str, list[list[float]]]:
    content = json.loads(path.read_text())
    rows = content["annotations"]
    return {
        Path(image["file_name"]).name: [row["bbox"] for row in rows if row["image_id"] == image["id"]]
        for image in content["images"]
    }


@pytest.mark.parametrize("count", [2, 3])
def test_files_of_many_images(tmp_path: Path, count: int) -> None:
    def image(name: str, *labels: str) -> str:
        boxes = (f'<box label="{label}" xtl="{n}" ytl="1" xbr="50" ybr="9"/>' for n, label in enumerate(labels))
        return f'<image id="{ord(name[0])}" name="{name}" width="100" height="80">{"".join(boxes)}</image>'

    files = {
        "one.xml": f"<annotations>{image('c.jpg', 'dog', 'cat')}{image('b.jpg')}</annotations>",
        "two.xml": f"<annotations>{image('a.jpg', 'zebra')}{image('e.jpg', 'ant')}</annotations>",
    }
    root = data_set(tmp_path / "data", files, *(f"{name}.jpg" for name in "abcde"))
    whole, merged = joined(tmp_path, root, count)
    assert merged == whole
    table = "filename,width,height,class,xmin,ymin,xmax,ymax,old\n"
    rows = "".join(f"{name}.jpg,100,80,{label},1,1,9,9,{n}\n" for n, (name, label) in enumerate(["cz", "aa", "em"]))
    root = data_set(tmp_path / "csv", {"a.csv": table + rows}, *(f"{name}.jpg" for name in "abcde"))
    whole, merged = joined(tmp_path, root, count)
    assert merged == whole


@pytest.mark.parametrize("task", ["detect", "pose"])
def test_yolo(tmp_path: Path, task: Any) -> None:
    content = document()
    content["images"].append(content["images"][0] | {"id": 4, "file_name": "z.jpg"})
    for row in content["annotations"]:
        row["keypoints"] = [row["bbox"][0], row["bbox"][1], 2]
    images = write_images(tmp_path / "images")
    (images / "z.jpg").write_bytes((images / "a.jpg").read_bytes())
    coco_to_yolo(write(tmp_path / "a.json", content), tmp_path / "yolo", task=task, images=images, with_images="copy")
    for count in (1, 3, 5):
        (tmp_path / f"of-{count}").mkdir()
        whole, merged = joined(tmp_path / f"of-{count}", tmp_path / "yolo", count)
        assert merged == whole
    convert = ("convert-yolo", tmp_path / "yolo", "-o", tmp_path / "part.json", "--part", "4/4", "-q")
    assert detaug(*convert).code == 0
    assert [row["file_name"] for row in json.loads((tmp_path / "part.json").read_bytes())["images"]] == ["z.jpg"]


def test_what_is_refused(tmp_path: Path) -> None:
    root = labelme_set(tmp_path)
    for number in (1, 2, 3):
        convert_to_coco(root, tmp_path / f"{number}.json", part=(number, 3))
    convert_to_coco(root, tmp_path / "whole.json")
    for part in ((0, 3), (4, 3)):
        with pytest.raises(InputError, match="part must be I/N with I from 1 to N, got"):
            convert_to_coco(root, tmp_path / "out.json", part=part)
    changed = json.loads((tmp_path / "1.json").read_bytes())
    one, two, three = (tmp_path / f"{number}.json" for number in (1, 2, 3))
    out = tmp_path / "out.json"
    assert "the parts must be 1/3 to 3/3, each once" in usage_error("merge", one, three, "-o", out)
    assert "is not a part, as the other files are" in usage_error(
        "merge", one, two, three, tmp_path / "whole.json", "-o", out
    )
    assert "leave out --images, --join and --classes" in usage_error("merge", one, two, three, "-o", out, "--join")
    convert_to_coco(root, two, part=(2, 3), classes=["ant"])
    (root / "set/b.jpg").unlink()
    convert_to_coco(root, three, part=(1, 3))
    assert "each once" in usage_error("merge", one, two, three, "-o", out)
    convert_to_coco(root, three, part=(3, 3))
    assert "parts of different datasets, or were changed" in usage_error("merge", one, two, three, "-o", out)
    for number in (1, 2, 3):
        convert_to_coco(root, tmp_path / f"{number}.json", part=(number, 3))
    one.write_text(json.dumps(changed | {"annotations": [{}]}, separators=(",", ":")))
    assert "parts of different datasets" in usage_error("merge", one, two, three, "-o", out)  # b.jpg is in one
    del changed["images"][1]
    two_parts = json.loads(two.read_bytes())["part"]
    one.write_text(
        json.dumps(changed | {"part": two_parts | {"number": 1}, "annotations": [{}]}, separators=(",", ":"))
    )
    assert "the parts were changed; make them again" in usage_error("merge", one, two, three, "-o", out)
    assert not out.exists()
    assert "part must be I/N with I from 1 to N" in usage_error("convert", root, "-o", out, "--part", "4/3")
    assert "must be I/N, such as 1/4" in usage_error("convert", root, "-o", out, "--part", "x")


@pytest.mark.parametrize("format", ["webdataset", "tfrecord"])
@pytest.mark.parametrize("count", [1, 2, 3, 20])
def test_pack(tmp_path: Path, format: Any, count: int) -> None:
    content = document()
    content["annotations"] = content["annotations"][::-1]  # not in the order of the images
    images, path = write_images(tmp_path / "images"), write(tmp_path / "a.json", content)
    options: dict[str, Any] = {"format": format, "shard_size": 1}
    pack_coco(path, images, tmp_path / "whole", **options)
    packed = [pack_coco(path, images, tmp_path / "parts", part=(n + 1, count), **options) for n in range(count)]
    assert sum(each.images for each in packed) == 3
    parts = sorted((tmp_path / "parts").glob("a-part-*-of-*.json"))
    assert len(parts) == count
    merge_coco(parts, tmp_path / "parts/a.json")
    for part in parts:
        part.unlink()
    whole = {path.name: path.read_bytes() for path in (tmp_path / "whole").iterdir()}
    assert {path.name: path.read_bytes() for path in (tmp_path / "parts").iterdir()} == whole
    assert len(whole) == 7


@pytest.mark.parametrize("count", [1, 2, 5])
def test_tiles(tmp_path: Path, count: int) -> None:
    images, path = write_images(tmp_path / "images"), write(tmp_path / "a.json", document())
    options: dict[str, Any] = {"size": 40, "empty": 0.5, "whole": 30, "overlap": 0.3}
    whole = da.tile_coco(path, images, tmp_path / "whole", **options)
    parts = [da.tile_coco(path, images, tmp_path / "parts", part=(n + 1, count), **options) for n in range(count)]
    for name in ("pictures", "tiles", "tiles_without_boxes", "objects", "boxes", "cut", "left_out", "lost"):
        assert sum(getattr(each, name) for each in parts) == getattr(whole, name)
    merge_coco([each.annotations for each in parts], tmp_path / "parts/a.json")
    for each in parts:
        assert each.annotations.name.endswith(f"-of-{count}.json")
        each.annotations.unlink()
    folders = tmp_path / "whole", tmp_path / "parts"
    of_whole, of_parts = ({p.relative_to(each): p.read_bytes() for p in each.rglob("*.*")} for each in folders)
    assert of_whole == of_parts
    assert len(of_whole) == whole.tiles + 1


def test_tiles_of_parts_that_do_not_belong_together(tmp_path: Path) -> None:
    images, path = write_images(tmp_path / "images"), write(tmp_path / "a.json", document())
    order = ("tile", path, images, "-q", "--size", "40", "-o")
    assert detaug(*order, tmp_path / "out", "--part", "1/2").code == 0
    before = sorted((tmp_path / "out").rglob("*"))
    for part in ("1/2", "1/3"):
        error = usage_error(*order, tmp_path / "out", "--part", part)
        assert "a_0_0.png exists; give another folder" in error
    assert sorted((tmp_path / "out").rglob("*")) == before
    assert detaug(*order, tmp_path / "other", "--overlap", "0.5", "--part", "2/2").code == 0
    parts = tmp_path / "out/a-part-1-of-2.json", tmp_path / "other/a-part-2-of-2.json"
    assert "parts of different datasets" in usage_error("merge", *parts, "-o", tmp_path / "b.json")
    tiles_of_a_part = ("tile", parts[0], tmp_path / "out/images", "-o", tmp_path / "again")
    assert "is one part of a dataset" in usage_error(*tiles_of_a_part)
    (images / "a.jpg").write_bytes(b"no image")
    usage_error(*order, tmp_path / "broken", "--part", "1/2")
    assert not (tmp_path / "broken").exists()


def test_the_first_part_has_the_first_shard(tmp_path: Path) -> None:
    images, path = write_images(tmp_path / "images"), write(tmp_path / "train.json", document())
    for part in (1, 2):
        pack_coco(path, images, tmp_path / str(part), part=(part, 2), shard_size=1)
    names = [sorted(each.name for each in (tmp_path / str(part)).glob("*.tar")) for part in (1, 2)]
    assert names == [["train-00000.tar", "train-00002.tar"], ["train-00001.tar"]]


def test_packed_parts_of_other_shards(tmp_path: Path) -> None:
    images, path = write_images(tmp_path / "images"), write(tmp_path / "a.json", document())
    pack_coco(path, images, tmp_path / "one", part=(1, 2), shard_size=1)
    pack_coco(path, images, tmp_path / "two", part=(2, 2), shard_size=2)
    parts = tmp_path / "one/a-part-1-of-2.json", tmp_path / "two/a-part-2-of-2.json"
    assert "parts of different datasets" in usage_error("merge", *parts, "-o", tmp_path / "out.json")
    error = usage_error("pack", parts[0], tmp_path / "one", "-o", tmp_path / "again")
    assert "is one part of a dataset; join all of them first: detaug merge" in error


def test_keys_of_parts_are_not_the_users(tmp_path: Path) -> None:
    images, path = write_images(tmp_path / "images"), write(tmp_path / "a.json", document() | {"regions": 1})
    assert "has one of the keys part, regions, positions" in usage_error(
        "pack", path, images, "-o", tmp_path / "shards", "--part", "1/2"
    )
    assert pack_coco(path, images, tmp_path / "shards").images == 3


def test_check_decodes_a_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images, path = write_images(tmp_path / "images"), write(tmp_path / "a.json", document())
    tried: list[str] = []
    monkeypatch.setattr(
        check_decode, "find_undecodable", lambda files, *_: tried.extend(each.path for each in files) or {}
    )
    for number in (1, 2):
        summary = check_coco(path, images, decode=True, part=(number, 2))
        assert str(summary).endswith(f"ready for training; part {number}/2 of the images decoded")
    assert tried == [str(images / name) for name in ("a.jpg", "b.jpg", "sub/c.png")]
    assert "part" not in str(check_coco(path, images, decode=True)).splitlines()[-1]
    assert "give --decode, too" in usage_error("check", path, images, "--part", "1/2")
    arguments = ("check", path, images, "--decode", "--part", "1/2", "--clean", tmp_path / "clean.json")
    assert "leave one of them out" in usage_error(*arguments)


RAY_SCRIPT = REPOSITORY / "docs/convert_with_ray.py"


def test_the_page_quotes_the_script() -> None:
    quotes = re.findall(r"^```py\n(.*?)^```$", RAY_SCRIPT.with_name("many-machines.md").read_text(), re.M | re.S)
    assert [quote in RAY_SCRIPT.read_text() for quote in quotes] == [True]


@pytest.mark.slow
def test_two_workers_of_ray(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="Ray has no wheel for this Python")
    root, output = labelme_set(tmp_path), tmp_path / "ray.json"
    arguments = [sys.executable, RAY_SCRIPT, root, output, "--parts", "3"]
    environment = os.environ | {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DEFAULT_NUM_CPUS": "2"}
    done = subprocess.run(arguments, capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    convert_to_coco(root, tmp_path / "whole.json")
    assert output.read_bytes() == (tmp_path / "whole.json").read_bytes()
    assert [path.name for path in tmp_path.glob("*part*")] == []
