"""Panoptic maps: the segment of the source pixel that is seen, as the row of its annotation, through every op."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from panoptic_files import CATEGORIES, CLASS_NAMES, PaintedPanoptic, as_color
from PIL import Image

import detaug as da
from detaug.errors import DataError, InputError
from detaug.ops.op import Op

BLACK = (0, 0, 0)
SIZE = (96, 128)

RECIPES: dict[str, list[Op]] = {
    "resize": [da.Resize(SIZE)],
    "flips and crops": [da.RandomHorizontalFlip(), da.RandomRotate90(), da.RandomIoUCrop(), da.Resize(SIZE)],
    "affine": [da.RandomAffine(fill=BLACK), da.Resize(SIZE, letterbox="center", fill=BLACK)],
    "mosaic": [da.RandomRotation(20, fill=BLACK), da.Resize(SIZE), da.Mosaic()],
    "cutmix": [da.RandomPerspective(fill=BLACK), da.Resize(SIZE), da.CutMix(p=1)],
    "copypaste": [da.RandomZoomOut(fill=BLACK), da.Resize(SIZE), da.CopyPaste(p=1)],
    "copypaste, mosaic and holes": [
        da.Resize(SIZE), da.CopyPaste(p=1), da.Mosaic(), da.RandomErasing(p=1, value=BLACK), da.GridMask(p=0.5),
    ],
    "sanitized": [da.RandomIoUCrop(), da.Resize(SIZE), da.Mosaic(), da.SanitizeBoundingBoxes(min_size=4)],
    "mosaic under a lens": [da.Resize(SIZE), da.Mosaic(), da.OpticalDistortion(p=1, fill=BLACK)],
}  # fmt: skip
QUICK = "resize", "mosaic under a lens", "copypaste, mosaic and holes"


def check_pixels(
    data: PaintedPanoptic, batch: da.Batch, *, copies: bool = False, classes: Sequence[str] = CLASS_NAMES
) -> int:
    """Compare each pixel's row, stuff or void with its color; return how many pixels of things were right.

    A thing is void where its box is not in the batch; with `copies` of images also where that of another copy is.
    """
    annotations = sum(not each["iscrowd"] for each in data.things)
    names = np.array([-1, *(classes.index(name) for name in CLASS_NAMES)])
    things = 0
    found = batch.maps["panoptic"].numpy()
    assert found.dtype == np.int32
    for index, pixels in enumerate(batch.images.permute(0, 2, 3, 1).float().numpy()):
        seen = data.seen(pixels)
        rows, stuff = np.array(data.rows)[seen], np.array(data.classes)[seen]
        kept = batch.rows[index][batch.valid[index]].numpy()
        wanted = np.where(stuff >= 0, annotations + names[stuff + 1], np.where(np.isin(rows, kept), rows, -1))
        compared = seen >= 0
        right = (found[index] == wanted) | (copies & (wanted == rows) & (found[index] == -1))
        assert right[compared].all()
        assert np.isin(found[index], [*kept.tolist(), -1, *(annotations + names[1:])]).all()
        things += (compared & (found[index] == rows) & (rows >= 0)).sum()
    return int(things)


def check_masks(data: PaintedPanoptic, batch: da.Batch) -> int:
    """Compare each mask's color and place with its box; return how many objects there are of which one is a copy."""
    target, copies = batch.as_mask2former(map="panoptic"), 0
    for index, pixels in enumerate(batch.images.permute(0, 2, 3, 1).float().numpy()):
        seen, masks = data.seen(pixels), target["mask_labels"][index].numpy() > 0
        labels = target["class_labels"][index].tolist()
        assert masks.any((1, 2)).all()
        assert masks.sum(0).max(initial=0) <= 1
        assert (masks.any(0) == (batch.maps["panoptic"][index].numpy() >= 0)).all()
        objects = [number for number, label in enumerate(labels) if label < 2]
        stuff = [label for label in labels if label >= 2]
        assert stuff == sorted(set(stuff))
        boxes = batch.boxes[index].numpy()
        free = {place: (row, label) for place, (row, label) in enumerate(
            zip(batch.rows[index].tolist(), batch.labels[index].tolist(), strict=True)) if row >= 0}  # fmt: skip
        last = -1
        for number in objects:
            y, x = np.nonzero(masks[number])
            around = np.array([x.min(), y.min(), x.max() + 1, y.max() + 1])
            own = np.unique(seen[masks[number]])
            rows = {data.rows[each] for each in own.tolist() if each >= 0}
            assert len(rows) <= 1
            # the next box in order with this row that holds the mask
            fits = [
                place for place, (row, label) in free.items()
                if place > last and label == labels[number] + 1 and (not rows or {row} == rows)
                and (around[:2] >= boxes[place, :2] - 1.5).all() and (around[2:] <= boxes[place, 2:] + 1.5).all()
            ]  # fmt: skip
            assert fits, (index, number)
            last = fits[0]
        valid = batch.rows[index][batch.valid[index]].tolist()
        copies += len(valid) - len({*valid})
    return copies


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in RECIPES]
)
def test_pixels_have_the_row_of_their_annotation(tmp_path: Path, name: str) -> None:
    data = PaintedPanoptic(tmp_path)
    batch = next(iter(da.Loader(data.reader(), RECIPES[name], 6, device="cpu", seed=4)))
    assert check_pixels(data, batch, copies="copypaste" in name) > 3000
    check_masks(data, batch)


@pytest.mark.parametrize(
    "ops",
    [
        [da.Resize(SIZE), da.Mosaic(), da.CopyPaste(p=1)],
        pytest.param(
            [da.RandomIoUCrop(), da.Resize(SIZE), da.Mosaic(), da.CutMix(p=1), da.SanitizeBoundingBoxes(min_size=4)],
            marks=pytest.mark.slow,
        ),
    ],
)
def test_copies_of_an_object_are_masks_of_their_own(tmp_path: Path, ops: list[Op]) -> None:
    """Two images: each mosaic has several copies of both."""
    data = PaintedPanoptic(tmp_path, 2)
    loader, copies = da.Loader(data.reader(), ops, 2, device="cpu", seed=1), 0
    for _ in range(3):
        for batch in loader:
            copies += check_masks(data, batch)
    assert copies > 5


def evaluate(reader: da.Source, *ops: Op, **more: Any) -> da.Batch:
    recipe = ops or (da.Resize((96, 128)),)
    return next(iter(da.Loader(reader, recipe, batch_size=len(reader), train=False, device="cpu", **more)))


def test_joined_sources_have_rows_and_classes_of_all(tmp_path: Path) -> None:
    """The second one has no stuff with boxes, other classes first, and the third one no map."""
    one, other = PaintedPanoptic(tmp_path / "a", 2), PaintedPanoptic(tmp_path / "b", 3, seed=5)
    text = (tmp_path / "b/panoptic.json").read_text()
    (tmp_path / "b/panoptic.json").write_text(text.replace('"sky"', '"sea"'))
    boxes = da.CocoReader(tmp_path / "a/images", tmp_path / "a/things.json")
    reader = da.ConcatReader([one.reader(), other.reader(), boxes])
    kind = reader.maps["panoptic"].kind
    assert kind.class_names == ("dog", "cat", "sky", "grass", "sea")
    assert kind.is_thing == (True, True, False, False, False)
    batch = evaluate(reader)
    found, total = batch.maps["panoptic"].numpy(), len(reader.columns.get("id", reader.objects()[0]))
    first = np.cumsum([0, *reader.objects()[1]])
    for index, (data, image) in enumerate([(one, 0), (one, 1), (other, 0), (other, 1), (other, 2)]):
        own = sum(not each["iscrowd"] for each in one.things) if data is other else 0
        names = [-1, 0, 1, 4 if data is other else 2, 3]
        numbers = data.segments[image]
        rows, stuff = np.array(data.rows)[numbers], np.array(names)[np.array(data.classes)[numbers] + 1]
        assert (found[index] == np.where(stuff >= 0, total + stuff, np.where(rows >= 0, rows + own, -1))).all()
        assert set(found[index][found[index] >= 0]) & set(range(first[index], first[index + 1]))
    assert (found[5:] == -1).all()
    joined = next(iter(da.Loader(reader, [da.Resize(SIZE), da.Mosaic()], 7, device="cpu")))
    for rows, own in zip(joined.rows.tolist(), joined.maps["panoptic"], strict=True):
        assert set(own[(own >= 0) & (own < total)].tolist()) <= {*rows}
    (tmp_path / "b/panoptic.json").write_text(text.replace('"isthing": 0', '"isthing": 1'))
    with (
        pytest.warns(UserWarning, match="class without annotations"),
        pytest.raises(InputError, match="both things and"),
    ):
        da.ConcatReader([one.reader(), other.reader()])


def test_tiles_have_the_rows_of_their_own_boxes(tmp_path: Path) -> None:
    data = PaintedPanoptic(tmp_path)
    reader = da.TileReader(data.reader(), 48, whole=64)
    source_rows, total = reader.cut.rows, len(reader.objects()[0])
    seen = 0
    for batch in da.Loader(reader, [da.Resize((48, 64), letterbox="top-left")], 4, train=False, device="cpu"):
        for index, tile in enumerate(batch.image_id.tolist()):
            if reader.is_scaled[tile - 1]:
                continue
            x, y, width, height = reader.windows[tile - 1].tolist()
            numbers = data.segments[reader.pictures[tile - 1]][y : y + height, x : x + width]
            rows, stuff = np.array(data.rows)[numbers], np.array(data.classes)[numbers]
            found = batch.maps["panoptic"][index].numpy()[:height, :width]
            own = batch.rows[index][batch.valid[index]].numpy()
            row_of = {source_rows[row]: row for row in own.tolist()}
            wanted = np.vectorize(lambda row, own=row_of: own.get(row, -1))(rows)
            assert (found == np.where(stuff >= 0, total + stuff, wanted)).all()
            seen += len({*found.ravel().tolist()} & {*own.tolist()})
    assert seen > 20


def test_maps_after_resuming_replaying_and_in_another_process(tmp_path: Path) -> None:
    reader = PaintedPanoptic(tmp_path).reader()

    def loader(source: da.Source) -> da.Loader:
        return da.Loader(source, [da.RandomIoUCrop(), da.Resize((64, 64)), da.Mosaic()], 2, return_params=True, seed=1)

    batches = [each.clone() for each in loader(reader)]
    first = loader(reader)
    next(iter(first))
    again = loader(pickle.loads(pickle.dumps(reader)))
    again.load_state_dict(first.state_dict())
    for batch, wanted in zip(again, batches[1:], strict=True):
        assert torch.equal(batch.maps["panoptic"], wanted.maps["panoptic"])
    for same in (first.replay(batches[1]), pickle.loads(pickle.dumps(batches[1]))):
        assert torch.equal(same.maps["panoptic"], batches[1].maps["panoptic"])
        masks, wanted_masks = (each.as_mask2former(map="panoptic")["mask_labels"] for each in (same, batches[1]))
        assert all(map(torch.equal, masks, wanted_masks))


@pytest.mark.filterwarnings("ignore:MixUp:UserWarning")
def test_averaged_images_and_strides(tmp_path: Path) -> None:
    data = PaintedPanoptic(tmp_path)
    alone = evaluate(data.reader())
    assert torch.equal(alone.map("panoptic", stride=2), evaluate(data.reader(), da.Resize((48, 64))).maps["panoptic"])
    batch = next(iter(da.Loader(data.reader(), [da.Resize((96, 128)), da.MixUp(p=1)], 6, device="cpu", seed=3)))
    pair = batch.map_pair("panoptic")
    assert torch.equal(pair.first, batch.maps["panoptic"])
    by_id = dict(zip(alone.image_id.tolist(), alone.maps["panoptic"], strict=True))
    maps = list(by_id.values())
    for index, image_id in enumerate(batch.image_id.tolist()):
        assert any(torch.equal(pair.first[index], each) for each in maps)
        assert any(torch.equal(pair.second[index], each) for each in maps)
        assert any(torch.equal(each[index], by_id[image_id]) for each in pair[:2])
        assert set(pair.second[index].unique().tolist()) <= {*batch.rows[index].tolist(), -1, *range(10**4)}
    former = batch.as_mask2former(map="panoptic")
    for index, (masks, labels) in enumerate(zip(former["mask_labels"], former["class_labels"], strict=True)):
        values = [batch.maps["panoptic"][index][mask > 0].unique().tolist() for mask in masks]
        assert all(len(each) == 1 for each in values)
        assert len(labels) == len(values) == len(batch.maps["panoptic"][index].unique()) - 1


def test_stuff_with_boxes_has_rows_and_one_mask(tmp_path: Path) -> None:
    """As panopticapi's converter writes it: every segment is an annotation, with the box of the segment."""
    data = PaintedPanoptic(tmp_path)
    categories = [{"id": each["id"], "name": each["name"]} for each in CATEGORIES]
    annotations = [
        {key: info[key] for key in ("category_id", "bbox", "area", "iscrowd")} | {"image_id": entry["image_id"]}
        for entry in data.entries for info in entry["segments_info"]
    ]  # fmt: skip
    annotations = [each | {"id": number} for number, each in enumerate(annotations)]
    content = {"images": data.images, "annotations": annotations, "categories": categories}
    (tmp_path / "things.json").write_text(json.dumps(content))
    reader = data.reader()
    batch = evaluate(reader)
    kept = [number for number, each in enumerate(annotations) if not each["iscrowd"]]
    for index, numbers in enumerate(data.segments):
        row_of = np.array([-1, *(kept.index(each) if each in kept else -1 for each in range(len(annotations)))])
        assert (batch.maps["panoptic"][index].numpy() == row_of[numbers]).all()
    mixed = next(iter(da.Loader(reader, [da.Resize(SIZE), da.Mosaic()], 6, device="cpu")))
    assert reader.maps["panoptic"].kind.class_names == ("dog", "cat", "sky", "grass")
    for labels, own in zip(mixed.as_mask2former(map="panoptic")["class_labels"], mixed.maps["panoptic"], strict=True):
        assert (labels >= 2).sum() <= 2
        assert (labels < 2).sum() <= len(own.unique())


WIDE = 160, 16
"""The width and height of an image whose segments are strips."""


@pytest.mark.parametrize(
    ("segments", "annotations", "rows"),
    [
        # IoUs of 0.67, 0.92; 0.85, 0.85: the order from the lowest one, and that of the file, give rows 0, 1
        ([(20, 120), (32, 132)], [(40, 140), (24, 124)], [1, 0]),
        # IoUs of 0.67, 0.85; 0.54, 0.96: the first segment fits the second annotation better than its own
        ([(20, 120), (30, 130)], [(0, 100), (28, 128)], [0, 1]),
        # the first two have IoUs of 10 / 20 and 10 / 21 with the only annotations near them
        ([(0, 10), (40, 50), (100, 150)], [(0, 20), (40, 61), (100, 150)], [0, -1, 2]),
        # one annotation near two segments
        ([(0, 50), (0, 45)], [(0, 46)], [-1, 0]),
    ],
    ids=["crossed", "taken by a better one", "half", "one to one"],
)
@pytest.mark.filterwarnings("ignore:.*1 no annotation:UserWarning")
def test_each_segment_is_the_annotation_whose_box_fits_best(
    tmp_path: Path, segments: list[tuple[int, int]], annotations: list[tuple[int, int]], rows: list[int]
) -> None:
    """Boxes of one class, as high as the image, from and to x; of pairs with an IoU from 0.5 on the highest first."""
    width, height = WIDE
    for name in ("images", "panoptic"):
        (tmp_path / name).mkdir()
    strip = np.minimum(np.arange(width) * len(segments) // width, len(segments) - 1)
    Image.fromarray(as_color(np.tile(strip + 1, (height, 1)))).save(tmp_path / "panoptic/0.png")
    Image.fromarray(np.full((height, width, 3), 90, np.uint8)).save(tmp_path / "images/0.png")

    def boxes(of: list[tuple[int, int]]) -> list[dict[str, Any]]:
        same = {"category_id": 3, "iscrowd": 0, "image_id": 1}
        return [
            same | {"id": number + 1, "bbox": [low, 0, high - low, height], "area": (high - low) * height}
            for number, (low, high) in enumerate(of)
        ]

    images = [{"id": 1, "file_name": "0.png", "height": height, "width": width}]
    categories = [{"id": 3, "name": "dog", "isthing": 1}]
    entries = [{"image_id": 1, "file_name": "0.png", "segments_info": boxes(segments)}]
    for name, own in (("things", boxes(annotations)), ("panoptic", entries)):
        content = {"images": images, "annotations": own, "categories": categories}
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    maps = {"panoptic": da.PanopticMap("panoptic")}
    reader = da.CocoReader(tmp_path / "images", tmp_path / "things.json", maps=maps)
    values = evaluate(reader, da.Resize((height, width))).maps["panoptic"][0].numpy()
    assert (values == np.array(rows)[strip]).all()


def test_boxes_need_not_be_exactly_those_of_the_segments(tmp_path: Path) -> None:
    """Boxes of a JSON file of instances, in another order."""
    data, rng = PaintedPanoptic(tmp_path), np.random.default_rng(3)
    order = rng.permutation(len(data.things))
    data.things = [data.things[index] for index in order]
    for thing in data.things:
        x, y, width, height = thing["bbox"]
        low = np.clip(np.array([x, y]) + rng.uniform(-1, 1, 2), 0, None)
        thing["bbox"] = [*low.tolist(), *(np.minimum(low + np.array([width, height]), (128, 96)) - low).tolist()]
    data.write()
    batch, wanted = evaluate(data.reader()), evaluate(PaintedPanoptic(tmp_path / "b").reader())
    # grouped by image, and without crowds
    things = sorted((each for each in data.things if not each["iscrowd"]), key=lambda each: each["image_id"])
    ids = [each["id"] for each in things]
    own = sorted((each for each in ids), reverse=True)
    table = np.array([*(ids.index(each) for each in own), *range(len(ids), len(ids) + 4), -1])
    assert (batch.maps["panoptic"].numpy() == table[wanted.maps["panoptic"].numpy()]).all()


# ------------------------------------------------------------------------------------------------- files


def test_kinds_of_files(tmp_path: Path) -> None:
    """Palettes are colors; files with one band have ids; COCO's layout has the JSON file in `annotations`."""
    data = PaintedPanoptic(tmp_path)
    wanted = evaluate(data.reader()).maps["panoptic"]
    image = Image.open(tmp_path / "panoptic/0.png")
    palette = image.quantize(16)
    assert (np.asarray(palette.convert("RGB")) == np.asarray(image)).all()
    palette.save(tmp_path / "panoptic/0.png")
    numbers = np.asarray(Image.open(tmp_path / "panoptic/1.png")).astype(np.int64) @ (1, 256, 65536)
    (tmp_path / "panoptic/1.png").unlink()
    np.save(tmp_path / "panoptic/1.npy", numbers)
    data.entries[1]["file_name"] = "1.npy"
    data.write()
    (tmp_path / "annotations").mkdir()
    (tmp_path / "panoptic.json").rename(tmp_path / "annotations/panoptic.json")
    assert torch.equal(evaluate(data.reader()).maps["panoptic"], wanted)
    (tmp_path / "annotations/panoptic.json").rename(tmp_path / "other.json")
    with pytest.raises(InputError, match=r"no such JSON file: .*panoptic.json, .*annotations/panoptic.json; give Pan"):
        data.reader()
    assert torch.equal(evaluate(data.reader(da.PanopticMap("panoptic", "other.json"))).maps["panoptic"], wanted)


def unknown_id(data: PaintedPanoptic) -> str:
    pixels = np.asarray(Image.open(data.folder / "panoptic/0.png")).copy()
    pixels[40, 60:63] = as_color([1, 2, 2])
    Image.fromarray(pixels).save(data.folder / "panoptic/0.png")
    return "0.png has the ids 1, 2, which segments_info of the JSON file does not have; add what they are, or write 0"


def without_pixels(data: PaintedPanoptic) -> str:
    data.entries[0]["segments_info"].append({"id": 1, "category_id": 7, "bbox": [0, 0, 1, 1]})
    return "0.png has no pixel of the id 1, which segments_info of the JSON file has; remove them there"


def with_floats(data: PaintedPanoptic) -> str:
    (data.folder / "panoptic/0.png").unlink()
    Image.fromarray(np.zeros((96, 128), np.float32)).save(data.folder / "panoptic/0.tiff")
    data.entries[0]["file_name"] = "0.tiff"
    return "0.tiff has pixels of the kind F, where ids are colors of 8 bits, or whole numbers"


@pytest.mark.parametrize("damage", [unknown_id, without_pixels, with_floats])
def test_a_map_that_cannot_be_used_is_named_or_skipped(
    tmp_path: Path, damage: Callable[[PaintedPanoptic], str]
) -> None:
    data = PaintedPanoptic(tmp_path, 3)
    message = damage(data)
    data.write()
    with pytest.raises(DataError, match=message):
        evaluate(data.reader())
    with pytest.warns(UserWarning, match="skipped"):
        assert evaluate(data.reader(), on_error="skip", max_skipped=0.5).image_id.tolist() == [2, 3]


def changed(**keys: Any) -> Callable[[dict[str, Any]], None]:
    return lambda content: content["annotations"][0]["segments_info"][1].update(keys)


def category(**keys: Any) -> Callable[[dict[str, Any]], None]:
    return lambda content: content["categories"][1].update(keys)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (changed(category_id=4), r"annotations\[0\] \(2.png\): segments_info\[1\] has the category_id 4, which"),
        (changed(category_id=[3]), r"has the category_id \[3\], which categories does not have"),
        (changed(id=0), r"must have an id in 1..16777215, the color .*, got 0"),
        (changed(id=1 << 24), "must have an id in 1..16777215"),
        (changed(iscrowd=2), "must have 0 or 1 as iscrowd, got 2"),
        (changed(bbox=[1, 2, 3]), "must have four numbers as bbox"),
        (lambda content: content["annotations"][0]["segments_info"][3].pop("bbox"), "has no bbox, by which"),
        (lambda content: content["annotations"][0]["segments_info"].append(5), "must be an object with id and"),
        (lambda content: content["annotations"][1].update(content["annotations"][0]), r"\[1\] has the file_name of"),
        (lambda content: content["annotations"][0].pop("segments_info"), "is not COCO's panoptic JSON"),
        (lambda content: content.pop("categories"), "has no categories"),
        (lambda content: content["categories"][1].pop("isthing"), r"categories\[1\] must have isthing, .*got None"),
        (category(name=""), "must have a name, got ''"),
        (category(id=7), "categories must each have another id"),
        (category(name="sky"), "categories must each have another name"),
        (category(id="3"), "must be an object with a whole number as id"),
    ],
)  # fmt: skip
def test_wrong_panoptic_json(tmp_path: Path, damage: Callable[[dict[str, Any]], None], message: str) -> None:
    data = PaintedPanoptic(tmp_path, 3)
    content = json.loads((tmp_path / "panoptic.json").read_text())
    damage(content)
    (tmp_path / "panoptic.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match=message) as error:
        data.reader()
    assert str(tmp_path / "panoptic.json") in str(error.value)


def test_two_segments_with_one_id(tmp_path: Path) -> None:
    data = PaintedPanoptic(tmp_path, 3)
    info = data.entries[0]["segments_info"]
    info[2]["id"] = info[0]["id"]
    data.write()
    with pytest.raises(
        InputError, match=rf"annotations\[2\] \(0.png\): the id {info[0]['id']} occurs twice; give each"
    ):
        data.reader()


def test_images_that_the_json_file_does_not_list(tmp_path: Path) -> None:
    data = PaintedPanoptic(tmp_path, 3)
    del data.entries[1]
    data.write()
    with pytest.raises(
        InputError, match=r"1 of 3 images have no map, .*no annotation with the file_name '1.png'; add it"
    ):
        evaluate(data.reader())
    lenient = evaluate(data.reader(da.PanopticMap("panoptic", missing="ignore")))
    assert [bool((each == -1).all()) for each in lenient.maps["panoptic"]] == [False, True, False]


def test_what_is_dropped_is_counted(tmp_path: Path) -> None:
    data = PaintedPanoptic(tmp_path)
    crowds = sum(each["iscrowd"] for each in data.things)
    assert crowds > 0
    assert data.reader().maps["panoptic"].dropped == {
        "crowd": crowds,
        "class without annotations": 0,
        "no annotation": 0,
    }
    kept = data.reader(crowds="keep")
    assert kept.maps["panoptic"].dropped["crowd"] == crowds
    batch = evaluate(kept)
    crowd_rows = np.flatnonzero(kept.columns["iscrowd"])
    assert not np.isin(batch.maps["panoptic"].numpy(), crowd_rows).any()
    data.things[0]["bbox"] = [0, 0, 4, 4]
    data.write()
    with pytest.warns(UserWarning, match=r"panoptic.json: 1 of \d+ objects are void in the map 'panoptic': 1 no annot"):
        reader = data.reader()
    assert reader.maps["panoptic"].dropped["no annotation"] == 1
    assert 0 not in evaluate(reader).maps["panoptic"]
    for thing in data.things:
        thing["category_id"] = 8 - thing["category_id"]
    data.write()
    with pytest.raises(InputError, match=r"none of its \d+ objects is an annotation of the reader"):
        data.reader()


def test_wrong_uses(tmp_path: Path) -> None:
    data = PaintedPanoptic(tmp_path)
    with pytest.raises(InputError, match=r"^annotations must be the path of a JSON file"):
        da.PanopticMap("panoptic", annotations=3)
    with pytest.raises(InputError, match="is a PanopticMap, where one of classes is needed"):
        evaluate(data.reader()).as_semantic("panoptic")
    plain = da.CocoReader(tmp_path / "images", tmp_path / "things.json")
    with pytest.raises(
        InputError, match="must be one of the first source, whose boxes its segments are; give the first"
    ):
        da.StackReader([plain, data.reader()])
    stacked = da.StackReader([data.reader(), plain])
    assert stacked.maps["panoptic"].kind.class_names == CLASS_NAMES
