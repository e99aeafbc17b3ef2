"""Columns of annotations stay beside their boxes, through every entrance and every op.

Each annotation's `code` is its id in the JSON file, and the box of the JSON file has that id: what a box of a batch is
can be looked up, whatever an op did to it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from dali_pipelines import make
from nvidia.dali import fn
from painted_files import Folder
from PIL import Image

import detaug as da
from detaug.coco.annotations import annotation_cache, read_annotations
from detaug.sources.columns import as_columns, gather, join

TURNED = [da.RandomPerspective(p=0.7), da.RandomIoUCrop(p=0.7), da.RandomRotate90(p=0.5), da.Resize((64, 64))]
RECIPES: dict[str, list[da.Op]] = {
    "moved": [da.RandomZoomOut(), da.RandomIoUCrop(), da.RandomHorizontalFlip(), da.Resize((64, 96))],
    "turned": [*TURNED, da.SanitizeBoundingBoxes(min_size=4)],
    "mosaic": [*TURNED, da.Mosaic(p=0.8)],
    "mixed": [*TURNED, da.Mosaic(p=0.5), da.MixUp(p=0.5), da.CutMix(p=0.5), da.CopyPaste(p=0.7), da.RandomErasing(p=1)],
}
NAMES = ["id", "area", "score", "note", "corner", "attributes.hard"]


@pytest.fixture
def coded(painted: Folder) -> Folder:
    """Painted files, whose annotations have further keys."""
    _, path = painted
    document = json.loads(path.read_text())
    for at, each in enumerate(document["annotations"]):
        number = 1000 + 7 * at
        each |= {"id": number, "area": number + 0.5, "note": f"object {number}", "corner": [number, -number]}
        each |= {"attributes": {"hard": at % 2 == 0}}
        if at % 3:
            each["score"] = number / 7
        if at % 5 == 0:
            each["iscrowd"] = 1
    path.write_text(json.dumps(document))
    return painted


def annotations(folder: Folder) -> dict[int, dict[str, Any]]:
    return {each["id"]: each for each in json.loads(folder[1].read_text())["annotations"]}


@pytest.mark.parametrize("recipe", RECIPES)
def test_columns_are_those_of_the_json(recipe: str, coded: Folder, device: str) -> None:
    by_id, seen = annotations(coded), 0
    reader = da.CocoReader(*coded, columns=NAMES)
    loader = da.Loader(reader, RECIPES[recipe], 8, device=device)
    for batch in [*loader, *loader]:
        real = batch.valid.cpu().numpy()
        assert ((batch.columns["id"].numpy() >= 0) == real).all()
        assert np.isnan(batch.columns["area"].numpy()[~real]).all()
        assert {*batch.columns["note"][~real]} <= {None}
        for place in zip(*np.nonzero(real), strict=True):
            each = by_id[int(batch.columns["id"][place])]
            seen += 1
            assert reader.category_ids[batch.labels[place]] == each["category_id"]
            assert batch.image_id_of_box[place] == each["image_id"]
            assert batch.columns["area"][place] == each["area"]
            assert batch.columns["note"][place] == each["note"]
            assert batch.columns["corner"][place].tolist() == each["corner"]
            assert batch.columns["attributes.hard"][place] == each["attributes"]["hard"]
            assert np.isclose(batch.columns["score"][place], each.get("score", np.nan), equal_nan=True)
            assert reader.columns["id"][batch.rows[place]] == each["id"]
    assert seen > 60


def test_crowds_are_kept_if_wanted(coded: Folder) -> None:
    by_id = annotations(coded)
    crowds = {number for number, each in by_id.items() if each["iscrowd"]}
    batches = {
        kind: list(da.Loader(da.CocoReader(*coded, columns=["id"], crowds=kind), [da.Resize((64, 64))], 7, train=False))
        for kind in ("drop", "keep")
    }
    ids = {
        kind: {int(i) for batch in each for i in batch.columns["id"][batch.valid.cpu()]}
        for kind, each in batches.items()
    }
    assert ids == {"drop": set(by_id) - crowds, "keep": set(by_id)}
    for batch in [*batches["keep"], *batches["drop"]]:
        for targets in (batch.as_detr()[1], batch.as_hf()["labels"]):
            flags = [int(flag) for target in targets for flag in target["iscrowd"]]
            assert flags == [int(i in crowds) for i in batch.columns["id"][batch.valid.cpu()].tolist()]
    for batch in batches["keep"]:
        real = batch.valid.cpu()
        assert batch.columns["iscrowd"][real].tolist() == [int(i in crowds) for i in batch.columns["id"][real].tolist()]
    with pytest.raises(da.InputError, match="crowds must be 'drop' or 'keep', got 'all'"):
        da.CocoReader(*coded, crowds="all")  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore:.*03.png")
def test_skipped_images_and_shards_leave_columns_in_step(coded: Folder) -> None:
    by_id = annotations(coded)
    (coded[0] / "03.png").write_bytes(b"no image")
    for shard in ((0, 1), (0, 2), (1, 2)):
        reader = da.CocoReader(*coded, columns=["id"])
        options: dict[str, Any] = {"on_error": "skip", "max_skipped": 1, "shard": shard, "device": "cpu"}
        batches = [b for train in (True, False) for b in da.Loader(reader, RECIPES["moved"], 4, train=train, **options)]
        for batch in batches:
            for place in zip(*np.nonzero(batch.valid.numpy()), strict=True):
                assert by_id[int(batch.columns["id"][place])]["image_id"] == batch.image_id[place[0]]


def test_a_batch_is_copied_with_its_columns(coded: Folder, tmp_path: Path) -> None:
    batch = next(iter(da.Loader(da.CocoReader(*coded, columns=NAMES), RECIPES["moved"], 8, device="cpu")))
    for copy in (batch.clone(), batch.to("cpu")):
        assert copy.columns["id"].equal(batch.columns["id"])
        assert (copy.columns["note"] == batch.columns["note"]).all()
    batch.clone().columns["id"].zero_()
    assert batch.columns["id"].any()


def test_eager_samples_have_columns(device: str) -> None:
    rng = np.random.default_rng(0)
    images = [np.zeros((60, 80, 3), np.uint8)] * 6
    corner = [rng.uniform(0, 40, (at, 2)).round() for at in range(6)]
    boxes = [np.concatenate([each, each + 18], axis=1) for each in corner]
    columns = {"corner": corner, "name": [[f"{at} {row}" for row in range(at)] for at in range(6)]}
    samples = da.batch(images, boxes, columns=columns, device=device)
    cropped = samples.then(da.CenterCrop((30, 40)))
    for at, (left, names) in enumerate(zip(cropped.columns["corner"], cropped.columns["name"], strict=True)):
        assert len(left) == len(names) == len(cropped.boxes[at])
        assert [corner[at][int(name.split()[1])].tolist() for name in names] == left.tolist()
    mixed = samples.then(da.Resize((60, 80)), da.MixUp())
    assert [len(each) for each in mixed.columns["name"]] == [len(each) for each in mixed.boxes]
    assert any(not name.startswith("5") for name in mixed.columns["name"][5])
    with pytest.raises(da.InputError, match=r"columns\['name'\]\[2\] must have a row for each of 2 boxes, got \(1,\)"):
        da.batch(images, boxes, columns={"name": [[], ["a"], ["a"], *columns["name"][3:]]})
    with pytest.raises(da.InputError, match=r"columns\['name'\] must hold rows for each of 6 images, got 5"):
        da.batch(images, boxes, columns={"name": columns["name"][:5]})


@pytest.mark.parametrize("order", [slice(None), slice(None, None, -1)])
@pytest.mark.parametrize(
    ("rows", "kind"),
    [
        ([2**53 + 1, 7], "i"),
        ([True, False], "b"),
        ([[1, 2, 3], [4, 5, 6]], "i"),
        ([[1, 2], [3]], "O"),
        (["a", "b"], "U"),
    ],
)
def test_an_image_without_boxes_does_not_change_the_type_of_a_column(rows: list[Any], kind: str, order: slice) -> None:
    boxes: list[Any] = [[[1, 1, 9, 9], [5, 5, 30, 30]], []][order]
    (found,) = da.batch([np.zeros((40, 60, 3), np.uint8)] * 2, boxes, columns={"a": [rows, []][order]}).columns.values()
    assert [each.tolist() for each in found] == [rows, []][order]
    assert [each.dtype.kind for each in found] == [kind, kind]


def test_rows_of_several_shapes_are_lists() -> None:
    boxes, columns = [[[1, 1, 9, 9]]] * 2, {"a": [[[1, 2]], [[1, 2, 3]]]}
    samples = da.batch([np.zeros((40, 60, 3), np.uint8)] * 2, boxes, columns=columns)
    assert [each.tolist() for each in samples.columns["a"]] == columns["a"]


def test_clips_have_columns(workplace: Path) -> None:
    reader = da.ClipReader("demo/MOT", "demo/clips.json", frames=3, stride=2, columns=["id"])
    by_id = {each["id"]: each for each in json.loads(Path("demo/clips.json").read_text())["annotations"]}
    recipe = [da.RandomIoUCrop(), da.Resize((60, 80))]
    batch = next(iter(da.Loader(reader, recipe, 4, device="cpu")))
    as_images = batch.as_images()
    for each, shape in ((batch, batch.valid.shape), (as_images, as_images.valid.shape)):
        ids = each.columns["id"]
        assert ids.shape == each.rows.shape == shape
        assert ((ids >= 0) == each.valid).all()
        for place in zip(*np.nonzero(each.valid.numpy()), strict=True):
            found = by_id[int(ids[place])]
            assert found["image_id"] == each.image_id[place[:-1]]
            assert found["track_id"] == each.columns["track_id"][place]
    assert batch.columns["track_id"].equal(batch.track_id)


def test_a_pipeline_has_columns_by_name(painted: Folder) -> None:
    def nodes() -> Any:
        encoded, boxes, labels, image_id = da.fn.coco(*painted, shuffle=False)
        areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
        images = fn.decoders.image(encoded)
        return *da.fn.augment(images, boxes, labels, RECIPES["moved"], columns=[areas]), image_id

    names = ("images", "boxes", "labels", "area", "image_id")
    batch = next(iter(da.DaliIterator(make(nodes, 4, "cpu"), names, reader_name="reader", columns=["area"])))
    assert batch.columns["area"].shape == batch.valid.shape
    assert (torch.isnan(batch.columns["area"]) == ~batch.valid).all()
    with pytest.raises(da.InputError, match="columns must be names of output_map other than images, boxes"):
        da.DaliIterator(make(nodes, 4, "cpu"), names, reader_name="reader", columns=["areas"])


def test_joined_sources_have_the_columns_of_all(coded: Folder) -> None:
    with_all = da.CocoReader(*coded, columns=["id", "score", "note"])
    joined = da.ConcatReader([with_all, da.CocoReader(*coded, columns=["id"]), da.CocoReader(*coded)])
    count = len(with_all.columns["id"])
    ids = with_all.columns["id"].tolist()
    assert joined.columns["id"].tolist() == [*ids, *ids, *[-1] * count]
    assert np.isnan(joined.columns["score"][count:]).all()
    assert set(joined.columns["note"][count:]) == {None}


@pytest.mark.parametrize("order", [slice(None), slice(None, None, -1)])
def test_a_source_without_objects_does_not_change_the_type_of_a_column(
    coded: Folder, tmp_path: Path, order: slice
) -> None:
    """Such as one of background images."""
    document = json.loads(coded[1].read_text())
    (tmp_path / "empty.json").write_text(json.dumps({**document, "annotations": []}))
    names = ["id", "score", "note", "bbox"]
    with_all = da.CocoReader(*coded, columns=names)
    joined = da.ConcatReader([with_all, da.CocoReader(coded[0], tmp_path / "empty.json", columns=names)][order])
    for name, column in with_all.columns.items():
        assert joined.columns[name].dtype == column.dtype
        assert np.array_equal(joined.columns[name], column, equal_nan=column.dtype.kind == "f")


def test_a_source_of_ones_own_has_columns() -> None:
    class Own(da.Source):
        def path(self, index: int) -> Path:
            return Path(f"{index}.png")

    boxes = [[0, 0, 9, 9], [1, 1, 8, 8], [2, 2, 7, 7]]
    own = Own(
        [(10, 10)] * 2, ["a"], boxes=boxes, counts=[1, 2], labels=[1, 1, 1], columns={"hard": [True, False, True]}
    )
    assert gather(own.columns, np.array([[2, -1]]))["hard"].tolist() == [[1, -1]]
    with pytest.raises(da.InputError, match=r"column 'hard' must have a row for each of 3 boxes, got \(2,\)"):
        Own([(10, 10)], ["a"], boxes=boxes, counts=[3], labels=[1, 1, 1], columns={"hard": [1, 2]})


def test_columns_without_rows() -> None:
    empty = as_columns({"a": np.zeros(0, np.int64), "b": np.zeros((0, 2))}, 0, "here")
    gathered = gather(empty, np.full((2, 0), -1))
    assert (gathered["a"].shape, gathered["b"].shape) == ((2, 0), (2, 0, 2))
    assert join([empty, {"a": np.array([3])}], [0, 1])["a"].tolist() == [3]


def test_an_unknown_key_is_refused(coded: Folder) -> None:
    with pytest.raises(da.InputError, match="no annotation has 'aera'; they have 'area', 'attributes', 'bbox'"):
        da.CocoReader(*coded, columns=["aera"])
    with pytest.raises(da.InputError, match=r"columns must be a list of keys .* got 'area'"):
        da.CocoReader(*coded, columns="area")


def test_a_key_that_is_null_everywhere_is_a_column_without_values(coded: Folder, tmp_path: Path) -> None:
    """Of one split; joined to another one it has no type of its own."""
    document = json.loads(coded[1].read_text())
    for each in document["annotations"]:
        each["score"], each["attributes"] = None, {"hard": None}
    path = tmp_path / "null.json"
    path.write_text(json.dumps(document))
    names = ["score", "attributes.hard"]
    null, full = da.CocoReader(coded[0], path, columns=names), da.CocoReader(*coded, columns=names)
    assert {each for name in names for each in null.columns[name].tolist()} == {None}
    for readers in ([null, full], [full, null]):
        joined = da.ConcatReader(readers)
        assert [joined.columns[name].dtype for name in names] == [np.float64, np.int64]
        part = slice(0, len(null.columns["score"])) if readers[0] is null else slice(len(full.columns["score"]), None)
        assert np.isnan(joined.columns["score"][part]).all()
        assert (joined.columns["attributes.hard"][part] == -1).all()


def test_columns_are_cached(coded: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(annotation_cache, "SMALLEST", 0)
    plain = read_annotations(coded[1], columns=NAMES, cache=False)
    for names in ([], ["id"], ["note", "id"], NAMES, ["note"], NAMES):
        read = read_annotations(coded[1], columns=names)
        assert list(read.columns) == names
        for name in names:
            np.testing.assert_array_equal(read.columns[name], plain.columns[name])
            assert read.columns[name].dtype == plain.columns[name].dtype
    parsed: list[Any] = []
    monkeypatch.setattr("detaug.coco.annotations._checked", lambda *each: parsed.append(each))
    read_annotations(coded[1], columns=["score", "corner"])
    assert not parsed


def two_sources(folder: Path, first: int, **more: Any) -> list[da.CocoReader]:
    """Return two readers of two images each; the ids of the second begin at `first`. more: arguments of the second."""
    readers = []
    for name, start in (("a", 1), ("b", first)):
        (folder / name).mkdir(parents=True)
        images = [{"id": start + n, "file_name": f"{n}.png", "width": 9, "height": 8} for n in range(2)]
        for image in images:
            Image.new("RGB", (9, 8)).save(folder / name / image["file_name"])
        rows = [
            {"id": start + n, "image_id": start + n // 2, "category_id": 4 + n % 2, "bbox": [n, 1, 3, 4]}
            for n in range(4)
        ]
        categories = [{"id": 4, "name": f"only {name}"}, {"id": 5, "name": "both"}]
        content = {"images": images, "annotations": rows, "categories": categories}
        (folder / f"{name}.json").write_text(json.dumps(content))
        names = {"columns": ["id", "image_id", "category_id"]} | (more if readers else {})
        readers.append(da.CocoReader(folder / name, folder / f"{name}.json", **names))
    return readers


def test_ids_of_several_sources_differ_in_columns_as_those_of_images_do(tmp_path: Path) -> None:
    both = da.ConcatReader(two_sources(tmp_path / "same", 1))
    assert both.columns["id"].tolist() == [*range(1, 9)]
    assert both.columns["image_id"].tolist() == np.repeat(both.image_ids, 2).tolist() == [1, 1, 2, 2, 3, 3, 4, 4]
    assert both.columns["category_id"].tolist() == [1, 2, 1, 2, 3, 2, 3, 2]
    assert [both.class_names[both.category_ids.index(n)] for n in (1, 2, 3)] == ["only a", "both", "only b"]
    both = da.ConcatReader(two_sources(tmp_path / "other", 11))
    assert both.columns["id"].tolist() == [1, 2, 3, 4, 11, 12, 13, 14]
    assert both.columns["image_id"].tolist() == [1, 1, 2, 2, 11, 11, 12, 12]
    both = da.ConcatReader(two_sources(tmp_path / "one", 1, columns=["image_id"]))
    assert both.columns["id"].tolist() == [1, 2, 3, 4, -1, -1, -1, -1]
    assert both.columns["image_id"].tolist() == [1, 1, 2, 2, 3, 3, 4, 4]
