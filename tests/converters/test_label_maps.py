"""Folders of maps: VOC's SegmentationObject, Cityscapes, ADE20K, Mapillary, read a second time; faults."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from coco_files import Document
from format_files import converted, data_set, kinds, refused
from numpy.typing import NDArray
from PIL import Image

import detaug as da
from detaug.converters import check_coco, convert_to_coco, merge_coco
from detaug.converters.formats.recognise import recognise

OBJECTS = np.zeros((80, 100), np.uint8)
OBJECTS[10:30, 5:45] = 1
OBJECTS[25:70, 30:60] = 2  # over the first one
OBJECTS[5:75, 80:84] = 3
CLASSES = np.array([0, 15, 7, 15], np.uint8)[OBJECTS]
CLASSES[9, 5:45] = OBJECTS[9, 5:45] = 255
NAMED = {1: "person", 2: "car", 3: "person"}


def png(values: NDArray[Any], *, palette: bool = False) -> bytes:
    file, image = io.BytesIO(), Image.fromarray(values)
    if palette:
        image.putpalette([(7 * number) % 256 for number in range(768)])
    image.save(file, "PNG")
    return file.getvalue()


def masks_of(document: Document) -> list[tuple[str, NDArray[np.bool_], dict[str, Any]]]:
    names = {row["id"]: row["name"] for row in document["categories"]}
    found = []
    for row in document["annotations"]:
        found.append((names[row["category_id"]], decoded(row["segmentation"]), row))
    return found


def decoded(segmentation: dict[str, Any]) -> NDArray[np.bool_]:
    """Return the mask of RLE: runs of 0 and 1 in turn, column by column; each but the first three as a difference.

    A number is 5 bits per letter, the lowest first, after 48: bit 32 goes on, bit 16 of the last one is the sign.
    """
    assert segmentation["size"] == [80, 100]
    counts, number, shift = list[int](), 0, 0
    for letter in segmentation["counts"].encode():
        number |= (letter - 48 & 31) << shift
        shift += 5
        if not letter - 48 & 32:
            number -= (letter - 48 >> 4 & 1) << shift
            counts.append(number + (counts[-2] if len(counts) > 2 else 0))
            number = shift = 0
    flat = np.repeat(np.arange(len(counts)) % 2 == 1, counts)
    return np.asarray(flat.reshape(100, 80).T)


def load_with(line: str) -> da.CocoReader:
    """Run the line that a conversion prints."""
    reader: da.CocoReader = eval(line.removeprefix("load it: "), {"da": da})
    return reader


def voc(folder: Path, count: int = 1, **more: bytes) -> Path:
    files: dict[str, Any] = {"ImageSets/Segmentation/train.txt": ""}
    for number in range(count):
        files[f"SegmentationObject/{number}.png"] = png(OBJECTS, palette=True)
        files[f"SegmentationClass/{number}.png"] = png(CLASSES, palette=True)
    files |= {name.replace("__", "/"): content for name, content in more.items()}
    return data_set(folder, files, *(f"JPEGImages/{number}.jpg" for number in range(count)), "JPEGImages/none.jpg")


def test_masks_of_voc(tmp_path: Path) -> None:
    root = voc(tmp_path / "set")
    assert recognise(root).format.name == "voc-masks"
    document, summary = converted(root)
    found = masks_of(document)
    assert [name for name, _, _ in found] == ["person", "car", "person"]
    for number, (_, mask, row) in enumerate(found, 1):
        assert (mask == (number == OBJECTS)).all()
        y, x = np.nonzero(number == OBJECTS)
        assert row["bbox"] == [x.min(), y.min(), np.ptp(x) + 1, np.ptp(y) + 1]
    assert [row["file_name"] for row in document["images"]] == ["0.jpg"]  # the other one has no masks
    assert kinds(summary) == {"image-unlisted": 1}
    reader = load_with(summary.next_step)
    assert reader.shapes.has_masks
    batch = next(iter(da.Loader(reader, [da.Resize((80, 100))], 1, train=False, device="cpu")))
    assert (batch.maps["semantic"][0].numpy() == CLASSES).all()


def test_names_of_voc_layouts(tmp_path: Path) -> None:
    """LabelMe's class_names.txt begins with __ignore__ and _background_, CVAT's labelmap.txt has colors."""
    labelme = "\n".join(["__ignore__", "_background_", *(f"c{number}" for number in range(1, 16))])
    document, _ = converted(voc(tmp_path / "labelme", **{"class_names.txt": labelme.encode()}))
    assert [name for name, _, _ in masks_of(document)] == ["c15", "c7", "c15"]
    cvat = "# label:color_rgb:parts:actions\n" + "\n".join(f"d{number}:{number},0,0::" for number in range(16))
    document, _ = converted(voc(tmp_path / "cvat", **{"labelmap.txt": cvat.encode()}))
    assert [name for name, _, _ in masks_of(document)] == ["d15", "d7", "d15"]
    few = voc(tmp_path / "few", **{"class_names.txt": b"__ignore__\n_background_\ncat\n"})
    assert "class 15 has no name, of 2; add it to the file of names" in refused(few)
    plain = voc(tmp_path / "plain")
    (plain / "ImageSets/Segmentation/train.txt").unlink()
    (plain / "ImageSets/Segmentation").rmdir()
    document, _ = converted(plain)
    assert [name for name, _, _ in masks_of(document)] == ["class 15", "class 7", "class 15"]


def test_jobs_parts_and_images_elsewhere(tmp_path: Path) -> None:
    root = voc(tmp_path / "set", 7)
    document, _ = converted(root)
    assert len(document["annotations"]) == 21
    assert converted(root, jobs=3)[0] == document
    parts = [tmp_path / f"{number}.json" for number in (1, 2)]
    for number, part in enumerate(parts, 1):
        convert_to_coco(root, part, part=(number, 2))
    merge_coco(parts, tmp_path / "merged.json")
    assert json.loads((tmp_path / "merged.json").read_text())["annotations"] == document["annotations"]
    (root / "JPEGImages").rename(tmp_path / "elsewhere")
    assert "has the image of none of 7 maps" in refused(root)
    assert converted(root, images=tmp_path / "elsewhere")[0] == document


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"SegmentationObject__0.png": png(OBJECTS[:, :50])}, "has 50 x 80 pixels, and its image 100 x 80"),
        ({"SegmentationClass__0.png": png(CLASSES[:40])}, "has 100 x 40 pixels, and its image 100 x 80"),
        ({"SegmentationObject__0.png": png(OBJECTS)[:50]}, "cannot be read"),
        ({"SegmentationClass__0.png": png(CLASSES % 15 % 7)}, "object 1 has no class: SegmentationClass has 0 or 255"),
        (
            {"SegmentationObject__1.png": png(OBJECTS), "SegmentationClass__1.png": png(CLASSES)},
            "no image has the name of the map; give",
        ),
    ],
    ids=["size", "size of classes", "cut off", "no class", "no image"],
)
def test_faults_of_voc(tmp_path: Path, more: dict[str, bytes], message: str) -> None:
    assert message in refused(voc(tmp_path / "set", **more))


# --------------------------------------------------------------------------------------------------- Cityscapes

IDS = np.full((80, 100), 7, np.uint16)  # road
IDS[:20] = 23  # sky
IDS[30:60, 5:30] = 24001
IDS[40:70, 20:50] = 26000  # the first car
IDS[40:70, 60:70] = 26  # a group of cars
IDS[25:28, 80:95] = 30002  # a trailer
LABELS = np.where(IDS >= 1000, IDS // 1000, IDS).astype(np.uint8)


def cityscapes(folder: Path, ids: NDArray[Any] = IDS) -> Path:
    files: dict[str, Any] = {}
    images = []
    for city in ("aachen", "bochum"):
        stem = f"{city}_000000_000019"
        files[f"gtFine/train/{city}/{stem}_gtFine_instanceIds.png"] = png(ids)
        files[f"gtFine/train/{city}/{stem}_gtFine_labelIds.png"] = png(LABELS)
        files[f"gtFine/train/{city}/{stem}_gtFine_color.png"] = png(np.stack([LABELS] * 3, axis=2))
        files[f"gtFine/train/{city}/{stem}_gtFine_polygons.json"] = json.dumps(
            {"imgHeight": 80, "imgWidth": 100, "objects": []}
        )
        images.append(f"leftImg8bit/train/{city}/{stem}_leftImg8bit.png")
    return data_set(folder, files, *images)


def test_cityscapes(tmp_path: Path) -> None:
    root = cityscapes(tmp_path / "set")
    assert recognise(root).format.name == "cityscapes"
    document, summary = converted(root)
    found = [item for item in masks_of(document) if item[2]["image_id"] == document["images"][0]["id"]]
    assert len(document["images"]) == 2
    singles = {name: mask for name, mask, row in found if not row["iscrowd"]}
    assert singles.keys() == {"person", "car"}
    assert (singles["person"] == (IDS == 24001)).all()
    assert (singles["car"] == (IDS == 26000)).all()
    crowds = [(name, mask) for name, mask, row in found if row["iscrowd"]]
    groups = [name for name, mask in crowds if (mask == (IDS == 26)).all()]
    ignored = [name for name, mask in crowds if (mask == (IDS == 30002)).all()]
    assert groups == ["car"]
    assert sorted(ignored) == sorted(summary.class_counts)
    names = ["person", "rider", "car", "truck", "bus", "train", "motorcycle", "bicycle"]
    assert [row["name"] for row in document["categories"]] == names
    reader = load_with(summary.next_step)
    batch = next(iter(da.Loader(reader, [da.Resize((80, 100))], 1, train=False, device="cpu")))
    trains = {7: 0, 23: 10, 24: 11, 26: 13, 30: 255}
    assert (batch.maps["semantic"][0].numpy() == np.vectorize(trains.get)(LABELS)).all()


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (np.full((80, 100), 65535, np.uint16), "65535 is not an instanceId: id * 1000 + n"),
        (np.full((80, 100), 200, np.uint8), "200 is not an instanceId"),
        (IDS[:40], "has 100 x 40 pixels, and its image 100 x 80"),
        (np.zeros((80, 100, 3), np.uint8), "has colors, where id * 1000 + n are expected"),
    ],
    ids=["unknown", "8 bits", "size", "colors"],
)
def test_faults_of_cityscapes(tmp_path: Path, ids: NDArray[Any], message: str) -> None:
    assert message in refused(cityscapes(tmp_path / "set", ids))


# ---------------------------------------------------------------------------------------- classes of pixels alone


def ade20k(folder: Path) -> Path:
    rows = "\n".join(f"{number}\t0.1\t9\t9\t1\tclass of {number}" for number in range(1, 151))
    files: dict[str, Any] = {"objectInfo150.txt": f"Idx\tRatio\tTrain\tVal\tStuff\tName\n{rows}\n"}
    images = []
    for split in ("training", "validation"):
        files[f"annotations/{split}/{split}1.png"] = png(OBJECTS % 255)
        images.append(f"images/{split}/{split}1.jpg")
    return data_set(folder, files, *images)


def test_ade20k(tmp_path: Path) -> None:
    root = ade20k(tmp_path / "set")
    assert recognise(root).format.name == "semantic"
    document, summary = converted(root)
    assert document["annotations"] == []
    assert [row["name"] for row in document["categories"]] == [f"class of {number}" for number in range(1, 151)]
    assert [row["file_name"] for row in document["images"]] == ["training/training1.jpg", "validation/validation1.jpg"]
    assert kinds(summary) == {"splits-joined": 1}
    reader = load_with(summary.next_step)
    batch = next(iter(da.Loader(reader, [da.Resize((80, 100))], 2, train=False, device="cpu")))
    assert batch.maps["semantic"][0].unique().tolist() == [0, 1, 2, 255]
    kind = reader.maps["semantic"].kind
    checked = check_coco(summary.output, summary.image_folder, maps={"semantic": kind})
    assert (checked.errors, checked.kind_counts) == (0, {})


def test_mapillary_and_other_folders(tmp_path: Path) -> None:
    labels = [{"name": f"object--c{number}", "readable": f"C{number}", "instances": False} for number in range(16)]
    files = {"config_v1.2.json": json.dumps({"labels": labels}), "training/labels/a.png": png(CLASSES, palette=True)}
    files |= {"training/instances/a.png": png(OBJECTS.astype(np.uint16)), "training/panoptic/a.png": png(OBJECTS)}
    root = data_set(tmp_path / "mapillary", files, "training/images/a.jpg")
    assert recognise(root).format.name == "semantic"
    document, summary = converted(root)
    assert [row["name"] for row in document["categories"]] == [f"C{number}" for number in range(16)]
    reader = load_with(summary.next_step)
    batch = next(iter(da.Loader(reader, [da.Resize((80, 100))], 1, train=False, device="cpu")))
    assert (batch.maps["semantic"][0].numpy() == CLASSES).all()
    plain = data_set(tmp_path / "plain", {"masks/a.png": png(OBJECTS)}, "images/a.jpg")
    document, _ = converted(plain)
    assert [row["name"] for row in document["categories"]] == ["class 0", "class 1", "class 2", "class 3"]


def test_binary_masks_have_two_classes(tmp_path: Path) -> None:
    """Numbers 0 and 255 alone: elsewhere 255 is ignored, and a class would be without a pixel."""
    mask = png(255 * (CLASSES == 15).astype(np.uint8))
    folder = data_set(tmp_path / "data", {"masks/a.png": mask}, "images/a.jpg")
    summary = convert_to_coco(folder, tmp_path / "a.json", format="semantic")
    reader = load_with(str(summary).splitlines()[-1])
    assert list(reader.class_names[1:]) == ["class 0", "class 1"]
    values = reader.maps["semantic"].read(0).pixels().reshape(80, 100)
    assert np.array_equal(values, CLASSES == 15)
    ignored = png(np.where(CLASSES == 255, 255, CLASSES == 15).astype(np.uint8))
    folder = data_set(tmp_path / "other", {"masks/a.png": ignored}, "images/a.jpg")
    assert convert_to_coco(folder, tmp_path / "b.json", format="semantic").map.table is None


@pytest.mark.parametrize("names", [("ground", "water"), ("ground", "water", "ice")])
def test_binary_masks_with_names(tmp_path: Path, names: tuple[str, ...]) -> None:
    """With two names, 255 is the second class; with three, it is ignored."""
    mask, listed = 255 * (CLASSES == 15).astype(np.uint8), "\n".join(names).encode()
    folder = data_set(tmp_path / "data", {"masks/a.png": png(mask), "class_names.txt": listed}, "images/a.jpg")
    summary = convert_to_coco(folder, tmp_path / "a.json", format="semantic")
    reader = load_with(str(summary).splitlines()[-1])
    values = reader.maps["semantic"].read(0).pixels().reshape(80, 100)
    assert np.array_equal(values, CLASSES == 15 if len(names) == 2 else mask)
    (folder / "masks/a.png").write_bytes(png(np.where(CLASSES == 255, 255, CLASSES == 15).astype(np.uint8)))
    assert convert_to_coco(folder, tmp_path / "b.json", format="semantic").map.table is None


def test_one_file_of_many_is_named(tmp_path: Path) -> None:
    """What is wrong with one map, and images that have none, which are counted."""
    files: dict[str, str | bytes] = {f"masks/{number}.png": png(CLASSES) for number in range(4)}
    folder = data_set(tmp_path / "data", files, *(f"images/{number}.jpg" for number in range(6)))
    summary = convert_to_coco(folder, tmp_path / "a.json", format="semantic")
    assert (summary.images, summary.kind_counts) == (4, {"image-unlisted": 2})
    assert "2 images without a map, the first is images/4.jpg" in str(summary.findings[0])
    Image.fromarray(np.full((80, 100), 999, np.uint16)).save(folder / "masks/2.png")
    assert f"{folder / 'masks/2.png'} has the value 999, where a class is in 0..255; read" in refused(folder)


def test_colored_classes_without_names(tmp_path: Path) -> None:
    """Colors of VOC's map, and no file of names: the line that loads them has the table."""
    colors = np.array([[0, 0, 0], [128, 0, 0], [0, 128, 0]], np.uint8)
    objects = np.where(OBJECTS == 255, 0, OBJECTS)
    classes = np.array([0, 1, 2, 1])[objects]
    files = {"SegmentationObject/a.png": png(objects.astype(np.uint8)), "SegmentationClass/a.png": png(colors[classes])}
    summary = convert_to_coco(data_set(tmp_path / "data", files, "JPEGImages/a.jpg"), tmp_path / "a.json")
    reader = load_with(str(summary).splitlines()[-1])
    assert np.array_equal(reader.maps["semantic"].read(0).pixels().reshape(80, 100), classes)


def test_images_that_share_a_map(tmp_path: Path) -> None:
    """The remedy works: each image with a name and a map of its own."""
    folder = data_set(tmp_path / "data", {"masks/a.png": png(CLASSES), "masks/b.png": png(CLASSES)}, "images/a.jpg")
    for name in ("images/a.png", "images/b.jpg"):
        data_set(folder, {}, name)
    message = refused(folder, format="semantic")
    assert (
        "several images have the name of the map, images/a.jpg, images/a.png; rename all but one, and give" in message
    )
    (folder / "images/a.png").rename(folder / "images/c.png")
    (folder / "masks/c.png").write_bytes((folder / "masks/a.png").read_bytes())
    document, _ = converted(folder)
    assert {row["file_name"] for row in document["images"]} == {"a.jpg", "b.jpg", "c.png"}
    data_set(folder, {}, "images/x/b.png")
    assert "images/b.jpg, images/x/b.png; give the folder that has the images of the maps, images" in refused(folder)


@pytest.mark.parametrize("listed", [False, True])
def test_maps_of_colors_load_with_their_table(tmp_path: Path, listed: bool) -> None:
    """CVAT writes colors, those of labelmap.txt, and VOC's otherwise."""
    colors = np.array([[0, 0, 0], [10, 200, 30] if listed else [128, 0, 0], [0, 128, 0]], np.uint8)
    numbers = np.select([CLASSES == 15, CLASSES == 7], [1, 2], 0)
    files = {"SegmentationClass/a.png": png(colors[numbers])}
    if listed:
        lines = [f"{name}:{','.join(map(str, color))}::" for name, color in zip("xyz", colors.tolist(), strict=True)]
        files["labelmap.txt"] = "\n".join(["# label:color_rgb:parts:actions", *lines]).encode()
    summary = convert_to_coco(data_set(tmp_path / "data", files, "JPEGImages/a.jpg"), tmp_path / "a.json")
    reader = load_with(str(summary).splitlines()[-1])
    assert np.array_equal(reader.maps["semantic"].read(0).pixels().reshape(80, 100), numbers)


def test_objects_of_maps_with_the_colors_of_a_list(tmp_path: Path) -> None:
    """CVAT's export: objects in VOC's colors, classes in those of labelmap.txt."""
    objects = np.where(OBJECTS == 255, 0, OBJECTS)
    of_objects = np.array([[0, 0, 0], [128, 0, 0], [0, 128, 0], [128, 128, 0]], np.uint8)
    of_classes = np.array([[0, 0, 0], [250, 50, 83], [36, 179, 83], [250, 50, 83]], np.uint8)
    files = {
        "SegmentationObject/a.png": png(of_objects[objects]),
        "SegmentationClass/a.png": png(of_classes[objects]),
        "labelmap.txt": b"# label:color_rgb:parts:actions\nbackground:0,0,0::\ncat:250,50,83::\ndog:36,179,83::\n",
    }
    folder = data_set(tmp_path / "data", files, "JPEGImages/a.jpg")
    document, summary = converted(folder)
    assert [(name, int(mask.sum())) for name, mask, _ in masks_of(document)] == [
        (name, int((objects == number).sum())) for number, name in ((1, "cat"), (2, "dog"), (3, "cat"))
    ]
    reader = load_with(str(summary).splitlines()[-1])
    values = reader.maps["semantic"].read(0).pixels().reshape(80, 100)
    assert np.array_equal(values, np.array([0, 1, 2, 1])[objects])
    files["SegmentationClass/a.png"] = png(of_classes[::-1][objects] + 1)
    assert "which is not in the table of its ClassMap" in refused(data_set(tmp_path / "b", files, "JPEGImages/a.jpg"))


def test_numbers_that_are_not_classes_of_maps(tmp_path: Path) -> None:
    files = {"masks/a.png": png(np.full((80, 100), 300, np.uint16))}
    folder = data_set(tmp_path / "data", files, "images/a.jpg")
    message = refused(folder, format="semantic")
    assert "masks/a.png has the value 300, where a class is in 0..255" in message


def test_splits_of_class_maps(tmp_path: Path) -> None:
    """Folders named after them, and VOC's lists; names of classes are those of all splits."""
    root = ade20k(tmp_path / "ade")
    for split, name in {"train": "training", "val": "validation"}.items():
        document, summary = converted(root, split=split)
        assert [row["file_name"] for row in document["images"]] == [f"{name}1.jpg"]
        assert kinds(summary) == {}
        assert summary.map is not None
        assert str(summary.map.folder).endswith(f"annotations/{name}")
        assert (summary.map.table, len(summary.map.classes or ())) == ("ade20k", 150)
    lists = {f"ImageSets/Segmentation/{name}.txt": text for name, text in {"train": "0\n2\n", "val": "1\n"}.items()}
    other = voc(tmp_path / "voc", 3, **{name.replace("/", "__"): text.encode() for name, text in lists.items()})
    for format in ("voc-masks", "semantic"):
        document, summary = converted(other, split="train", format=format)
        assert [row["file_name"] for row in document["images"]] == ["0.jpg", "2.jpg"]
        assert summary.map is not None
        assert (summary.map.classes or ())[15] == "person"
    assert "has no maps of the split 'test': there are train, val" in refused(other, split="test")
    cities = cityscapes(tmp_path / "cities")
    for folder in ("gtFine", "leftImg8bit"):
        (cities / folder / "val").mkdir()
        (cities / folder / "train/bochum").rename(cities / folder / "val/bochum")
    document, summary = converted(cities, split="val")
    assert [row["file_name"] for row in document["images"]] == ["bochum_000000_000019_leftImg8bit.png"]
    assert summary.map is not None
    assert (summary.map.suffix, summary.map.table) == ("_gtFine_labelIds", "cityscapes")
    plain = data_set(tmp_path / "plain", {"masks/a.png": png(OBJECTS)}, "images/a.jpg")
    assert "has no maps of the split 'train': there are none; leave it out" in refused(plain, split="train")
    few = {"masks/train/a.png": png(OBJECTS % 3), "masks/val/b.png": png(OBJECTS)}
    both = data_set(tmp_path / "both", few, "images/train/a.jpg", "images/val/b.jpg")
    document, _ = converted(both, split="train")
    assert [row["name"] for row in document["categories"]] == ["class 0", "class 1", "class 2", "class 3"]


def test_faults_of_class_maps(tmp_path: Path) -> None:
    other = data_set(tmp_path / "other", {"masks/a.png": png(OBJECTS[:, :30])}, "images/a.jpg")
    assert "has 30 x 80 pixels, and its image 100 x 80" in refused(other)
    colors = np.random.default_rng(0).integers(0, 255, (80, 100, 3), np.uint8)
    colored = data_set(tmp_path / "colored", {"masks/a.png": png(colors)}, "images/a.jpg")
    assert "read such maps with da.MapReader(images, masks, table=)" in refused(colored)
    none = data_set(tmp_path / "none", {}, "images/a.jpg")
    assert "and no annotations in a format that is known" in refused(none)
    assert "has no maps in the folders of Cityscapes" in refused(none, format="cityscapes")
    assert "is a file, and Cityscapes (instanceIds) are folders" in refused(none / "images/a.jpg", format="cityscapes")
