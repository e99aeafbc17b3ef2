"""Sources of images: files, shards, several datasets as one, and sources of one's own give the same batches."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pytest
import torch
from object_server import upload
from painted_files import Folder, paint_files, same
from PIL import Image
from seeds import slow

import detaug as da
from detaug.converters import check_coco, pack_coco

RECIPE = [da.RandomIoUCrop(), da.RandomHorizontalFlip(), da.Resize((90, 120)), da.Normalize()]


def put_into_shards(painted: Folder, folder: Path, per_shard: int = 8, kind: str = "bin") -> Folder:
    """Write the files one behind the other into shards, with something between, and a JSON file that says where."""
    folder.mkdir()
    document = json.loads(painted[1].read_bytes())
    for at, image in enumerate(document["images"]):
        name = f"{at // per_shard}.{kind}"
        with (folder / name).open("ab") as shard:
            shard.write(b"before it")
            image |= {"shard": name, "offset": shard.tell()}
            image["length"] = shard.write((painted[0] / image["file_name"]).read_bytes())
    (folder / "annotations.json").write_text(json.dumps(document))
    return folder, folder / "annotations.json"


def halves(painted: Folder) -> list[da.CocoReader]:
    """Return the first ten images, and the others."""
    document = json.loads(painted[1].read_bytes())
    readers = []
    for number, images in enumerate((document["images"][:10], document["images"][10:])):
        ids = {image["id"] for image in images}
        boxes = [each for each in document["annotations"] if each["image_id"] in ids]
        path = painted[0].parent / f"half{number}.json"
        path.write_text(json.dumps({**document, "images": images, "annotations": boxes}))
        readers.append(da.CocoReader(painted[0], path))
    return readers


class Own(da.Source):
    """Painted images of a zip-like list of bytes."""

    files = False

    def __init__(self, painted: Folder) -> None:
        reader = da.CocoReader(*painted)
        boxes, counts, labels = reader.objects()
        super().__init__(
            reader.sizes, reader.class_names[1:], boxes=boxes, counts=counts, labels=labels, relative=True,
            image_ids=reader.image_ids, category_ids=reader.category_ids[1:], origin="own source",
        )  # fmt: skip
        self.images = [reader.read(index) for index in range(len(reader))]

    def path(self, index: int) -> Path:
        return Path(f"image {index}")

    def read(self, index: int) -> bytes:
        return self.images[index]


def put_some_into_shards(painted: Folder) -> Folder:
    """Every third image stays a file."""
    folder, path = put_into_shards(painted, painted[0].parent / "mixed")
    document = json.loads(path.read_bytes())
    for image in document["images"][::3]:
        for key in ("shard", "offset", "length"):
            del image[key]
        (folder / image["file_name"]).write_bytes((painted[0] / image["file_name"]).read_bytes())
    path.write_text(json.dumps(document))
    return folder, path


KINDS = ["webdataset", "tfrecord", "shards", "halves", "own", "file and shard", "mixed", *slow("s3", "s3 tfrecord")]


def make(kind: str, painted: Folder) -> da.Source:
    root = painted[0].parent
    if kind == "shards":
        return da.CocoReader(*put_into_shards(painted, root / "shards"))
    if kind in ("webdataset", "tfrecord"):
        pack_coco(painted[1], painted[0], root / "packed", format=kind, shard_size="10kB")  # type: ignore[arg-type]
        return da.CocoReader(root / "packed", root / "packed" / "annotations.json")
    if kind.startswith("s3"):
        if kind == "s3 tfrecord":
            pack_coco(painted[1], painted[0], root / "packed", format="tfrecord", shard_size="10kB")
        address = upload(painted[0] if kind == "s3" else root / "packed", f"of-{kind}".replace(" ", "-"))
        return da.CocoReader(address, f"{address}/annotations.json", cache_folder=root / "cache")
    if kind == "mixed":
        return da.CocoReader(*put_some_into_shards(painted))
    if kind == "halves":
        return da.ConcatReader(halves(painted))
    if kind == "own":
        return Own(painted)
    first, second = halves(painted)
    return da.ConcatReader([first, da.CocoReader(*put_into_shards((painted[0], second.annotations), root / "second"))])


@pytest.fixture
def painted(tmp_path: Path) -> Folder:
    (tmp_path / "painted").mkdir()
    return paint_files(tmp_path / "painted")


@pytest.fixture(autouse=True)
def server(request: pytest.FixtureRequest) -> None:
    """Start the server for sources in S3."""
    if "kind" in request.fixturenames and str(request.getfixturevalue("kind")).startswith("s3"):
        request.getfixturevalue("s3")


def loader(source: da.Source, device: str = "cpu", **arguments: Any) -> da.Loader:
    return da.Loader(source, RECIPE, 4, device=device, seed=3, **arguments)


@pytest.mark.parametrize("kind", KINDS)
def test_batches_are_those_of_files(kind: str, painted: Folder, device: str) -> None:
    files, other = loader(da.CocoReader(*painted), device), loader(make(kind, painted), device)
    for _ in range(2):
        assert all(same(a, b) for a, b in zip(files, other, strict=True))


@pytest.mark.parametrize(
    "kind", ["tfrecord", *slow("webdataset", "halves", "own", "file and shard", "mixed", "s3", "s3 tfrecord")]
)
@pytest.mark.parametrize("cache", ["device", *slow(None)])
def test_a_state_goes_on_where_it_was_taken(kind: str, cache: Any, painted: Folder) -> None:
    source = make(kind, painted)
    whole, stopped = loader(source, cache=cache), loader(source, cache=cache)
    for step, _ in enumerate(stopped):
        if step == 2:
            break
    again = loader(source, cache=cache)
    again.load_state_dict(stopped.state_dict())
    assert all(same(a, b) for a, b in zip([*whole][3:], again, strict=True))


def break_one(painted: Folder) -> None:
    """Let an image have a header and no pixels."""
    content = (painted[0] / "13.png").read_bytes()
    (painted[0] / "13.png").write_bytes(content[: content.index(b"IDAT") + 30])


@pytest.mark.parametrize("kind", KINDS)
def test_a_broken_image_is_skipped(kind: str, painted: Folder) -> None:
    break_one(painted)
    with pytest.warns(UserWarning, match=r"(13\.png|image 13): does not decode .*; skipped"):
        batches = list(loader(make(kind, painted), train=False, on_error="skip", max_skipped=1.0))
    assert sum(map(len, batches)) == 20


@pytest.mark.parametrize("kind", KINDS)
def test_a_broken_image_is_named(kind: str, painted: Folder) -> None:
    break_one(painted)
    with pytest.raises(da.DataError, match=r"(13\.png|image 13): does not decode"):
        list(loader(make(kind, painted), train=False))


# ------------------------------------------------------------------------------------------------------ shards


def test_a_shard_that_ends_too_early_is_named_or_skipped(painted: Folder) -> None:
    folder, json_file = put_into_shards(painted, painted[0].parent / "shards")
    shard = folder / "1.bin"
    shard.write_bytes(shard.read_bytes()[:-1])
    source = da.CocoReader(folder, json_file)
    assert source.missing.tolist() == [15]
    with pytest.raises(da.InputError, match=r"1\.bin ends before 1 of the images that .* has in it; get it"):
        loader(source)
    with pytest.warns(UserWarning, match=r"1\.bin/15\.png cannot be read: its shard does not exist, or ends"):
        batches = list(loader(source, train=False, on_error="skip", max_skipped=0.1))
    assert sum(map(len, batches)) == 20


def test_shards_that_are_not_in_the_folder(painted: Folder, tmp_path: Path) -> None:
    _, json_file = put_into_shards(painted, painted[0].parent / "shards")
    with pytest.raises(da.InputError, match=r"the first is '0\.bin'; give the folder that shard is relative to"):
        da.CocoReader(tmp_path, json_file)


@pytest.mark.parametrize(
    "change",
    [
        *({"shard": name} for name in ("../0.bin", "/0.bin", 3)),
        *({"offset": -1}, {"offset": "a"}, {"length": 0}),
        *({"crc32c": value} for value in (-1, 2**32, 1.5, "a", True)),
    ],
    ids=str,
)
def test_a_place_that_cannot_be_used(change: dict[str, Any], painted: Folder) -> None:
    folder, json_file = put_into_shards(painted, painted[0].parent / "shards")
    document = json.loads(json_file.read_bytes())
    document["images"][4] |= change
    json_file.write_text(json.dumps(document))
    with pytest.raises(da.InputError, match=r"images\[4\] .*must have the path of a shard below the folder"):
        da.CocoReader(folder, json_file)


def change_a_pixel(painted: Folder, tmp_path: Path, at: int) -> tuple[Folder, da.CocoReader]:
    """Replace an image in its shard by one of equal length that shows another color. Returns shards and reader."""
    for path in painted[0].glob("*.png"):
        image = Image.open(path)
        image.save(path, compress_level=0)
    Image.eval(Image.open(painted[0] / "13.png"), lambda value: value ^ 64).save(tmp_path / "x.png", compress_level=0)
    pack_coco(painted[1], painted[0], tmp_path / "packed", shard_size="300kB")
    json_file = tmp_path / "packed" / "annotations.json"
    row = json.loads(json_file.read_bytes())["images"][at]
    other = (tmp_path / "x.png").read_bytes()
    assert len(other) == row["length"]
    with (json_file.parent / row["shard"]).open("r+b") as shard:
        shard.seek(row["offset"])
        shard.write(other)
    return (json_file.parent, json_file), da.CocoReader(json_file.parent, json_file)


def epoch_with_skips(reader: da.CocoReader, cache: Any) -> tuple[da.Loader, list[int]]:
    """Return a loader, and the images of its epoch."""
    skipping = loader(reader, train=False, cache=cache, on_error="skip", max_skipped=1.0)
    return skipping, [int(number) - 10 for batch in skipping for number in batch.image_id]


@pytest.mark.parametrize("cache", [None, *slow("device")])
def test_an_image_whose_bytes_changed_in_its_shard_is_an_error_or_skipped(
    cache: Any, painted: Folder, tmp_path: Path
) -> None:
    (folder, json_file), reader = change_a_pixel(painted, tmp_path, 13)
    row = json.loads(json_file.read_bytes())["images"][13]
    where = rf"{folder / row['shard']}/13\.png cannot be read \(its bytes, from {row['offset']:,} on in the shard, are"
    with pytest.raises(da.DataError, match=rf"{where} others .* detaug check {json_file} {folder} --decode --clean"):
        list(loader(reader, train=False, cache=cache))
    with pytest.warns(UserWarning, match=where):
        skipping, numbers = epoch_with_skips(reader, cache)
    assert numbers == [at for at in range(21) if at != 13]
    assert skipping.skipped == (folder / row["shard"] / "13.png",)
    with pytest.raises(OSError, match="get the shard again"):
        reader.read(13)


def test_a_json_without_checksums_is_read_as_before(painted: Folder, tmp_path: Path) -> None:
    (folder, json_file), _ = change_a_pixel(painted, tmp_path, 13)
    document = json.loads(json_file.read_bytes())
    for row in document["images"]:
        del row["crc32c"]
    json_file.write_text(json.dumps(document))
    assert sum(len(batch) for batch in loader(da.CocoReader(folder, json_file), train=False)) == 21


def test_each_image_is_verified_once(painted: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pack_coco(painted[1], painted[0], tmp_path / "packed", shard_size="10kB")
    verified, value = [], google_crc32c.value
    monkeypatch.setattr("google_crc32c.value", lambda content: verified.append(len(content)) or value(content))
    reader = da.CocoReader(tmp_path / "packed", tmp_path / "packed" / "annotations.json")
    for loaded in (loader(reader, train=False), loader(reader)):
        for _ in range(2):
            list(loaded)
    assert sorted(verified) == sorted(path.stat().st_size for path in painted[0].glob("*.png"))


def test_check_finds_and_clean_leaves_out_an_image_that_changed(painted: Folder, tmp_path: Path) -> None:
    (folder, json_file), _ = change_a_pixel(painted, tmp_path, 13)
    summary = check_coco(json_file, folder, clean=tmp_path / "clean.json")
    assert [(each.kind, each.file_name) for each in summary.findings if each.severity == "error"] == [
        ("image-changed", "13.png")
    ]
    clean = da.CocoReader(folder, tmp_path / "clean.json")
    assert set(clean.image_ids.tolist()) == set(range(10, 31)) - {23}
    assert sum(len(batch) for batch in loader(clean, train=False)) == 20


def test_shards_need_no_file_handles(painted: Folder) -> None:
    """There may be more of them than a process may have open files."""
    source = da.CocoReader(*put_into_shards(painted, painted[0].parent / "shards", per_shard=1))
    before = len(os.listdir("/proc/self/fd"))
    kept = source.contents(np.arange(21))
    assert len(os.listdir("/proc/self/fd")) == before
    assert len(kept) == 21


# --------------------------------------------------------------------------------------------- several datasets


def test_classes_are_joined_by_name(painted: Folder, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = paint_files(tmp_path / "other", 3)
    document = json.loads(other[1].read_bytes())
    document["categories"] = [{"id": 7, "name": "class 3"}, {"id": 14, "name": "new"}, {"id": 21, "name": "class 1"}]
    other[1].write_text(json.dumps(document))
    one, two = da.CocoReader(*painted), da.CocoReader(*other)
    both = da.ConcatReader([one, two])
    assert both.class_names == ("background", "class 1", "class 2", "class 3", "new")
    names = np.array(both.class_names)[both.views(np.arange(21, 24)).labels]
    own = np.array(two.class_names)[two.views(np.arange(3)).labels]
    shown = two.views(np.arange(3)).labels > 0
    assert names[shown].tolist() == own[shown].tolist()
    assert both.image_ids.tolist() == list(range(1, 25))  # the ids 10, 11 and 12 are in both
    assert [both.source_of(index) for index in (0, 20, 21, 23)] == [(0, 0), (0, 20), (1, 0), (1, 2)]
    assert both.category_ids == (-1, 1, 2, 3, 4)  # class 3 has the ids 3 and 7
    assert da.ConcatReader([two]).category_ids == two.category_ids == (-1, 7, 14, 21)


def test_sources_come_in_the_shares_of_their_weights(painted: Folder) -> None:
    both = da.ConcatReader(halves(painted))
    sampled = loader(both, sampler=da.SourceWeightSampler([1, 3]))
    numbers = torch.cat([batch.image_id for _ in range(20) for batch in sampled])
    share = (numbers >= 10 + 10).double().mean().item()  # ids count from 10; the first half has ten images
    assert 0.7 < share < 0.8
    with pytest.raises(da.InputError, match="weights must be one for each of the 2 sources"):
        loader(both, sampler=da.SourceWeightSampler([1, 2, 3]))
    with pytest.raises(da.InputError, match="weights must be numbers of at least 0, one above 0"):
        da.SourceWeightSampler([0, 0])


@pytest.mark.parametrize("join", [da.ConcatReader, da.StackReader])
@pytest.mark.parametrize("sources", [[], da.Source([(2, 2)], ["a"]), ["a"], "a", None])
def test_what_is_no_list_of_sources(join: Any, sources: Any) -> None:
    with pytest.raises(da.InputError, match="sources must be a list of sources"):
        join(sources)


def test_lists_for_a_coco_reader(painted: Folder) -> None:
    with pytest.raises(
        da.InputError, match=r"one folder and one JSON file; da\.ConcatReader\(\[READER, READER\]\) joins"
    ):
        da.CocoReader([painted[0]] * 2, [painted[1]] * 2)  # type: ignore[arg-type]


def test_metrics_need_one_json(painted: Folder) -> None:
    both = da.ConcatReader(halves(painted))
    with pytest.raises(da.InputError, match=r"annotations must be a JSON file or a da\.CocoReader, got a ConcatReader"):
        da.CocoEvaluator(both)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------- own sources


def test_columns_that_do_not_fit() -> None:
    with pytest.raises(da.InputError, match="the source: labels must have 2 rows, got 1"):
        da.Source([(9, 9)], ["a"], boxes=[[0, 0, 1, 1], [0, 0, 2, 2]], counts=[2], labels=[1])
    with pytest.raises(da.InputError, match="the source: counts must have 1 rows, got 2"):
        da.Source([(9, 9)], ["a"], counts=[0, 0])


TWO: dict[str, Any] = {"boxes": [[0, 0, 1, 1], [0, 0, 2, 2]], "counts": [1, 1], "labels": [1, 2]}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"labels": [0, 1]}, r"labels must be whole numbers in 1\.\.2, the number of class_names, got 0 in row 0"),
        ({"labels": [1, 7]}, "labels must be .* got 7 in row 1"),
        ({"labels": [1.9, 1]}, "labels must be whole numbers .* got 1.9 in row 0"),
        ({"boxes": [[0, 0, 1, 1], [0, 0, np.nan, 2]]}, "boxes must be finite numbers, got .* in row 1"),
        ({"boxes": [[0, 0, 1, 1], [0, 0, 9, 11]]}, "boxes must be in the pixels of their image of .*, got .* in row 1"),
        ({"boxes": [[0, 0, 1, 1], [5, 0, 2, 3]]}, "boxes must be XYXY with x0 <= x1 and y0 <= y1, got .* in row 1"),
        ({"relative": True}, r"boxes must be relative to their image, in 0\.\.1, got .* in row 1"),
        ({"counts": [3, -1]}, "counts must be at least 0, got -1 in row 1"),
        ({"classes": [0, 2]}, r"classes must be in 0\.\.1, for 2 class_names, got 2 in row 1"),
        ({"image_ids": [4, 4]}, "image_ids must be different for each image, got 4 in row 0"),
        ({"category_ids": [5]}, "category_ids must have a number for each of 2 classes, got 1"),
    ],
)
def test_values_that_do_not_fit(given: dict[str, Any], message: str) -> None:
    with pytest.raises(da.InputError, match=f"the source: {message}"):
        da.Source([(9, 9), (9, 9)], ["a", "b"], **{**TWO, **given})
    da.Source([(9, 9), (9, 9)], ["a", "b"], **TWO)


@pytest.mark.parametrize("relative", [False, True])
def test_a_box_may_reach_out_by_a_pixel(relative: bool) -> None:
    sides = np.array([9, 4] * 2) if relative else 1
    boxes = np.array([[-0.9, 0, 9.5, 4.9]]) / sides
    source = da.Source([(4, 9)], ["a"], boxes=boxes, counts=[1], labels=[1], relative=relative)
    assert source.objects()[0].tolist() == [[0, 0, 1, 1]]
    assert da.ConcatReader([source, source]).objects()[0].tolist() == [[0, 0, 1, 1]] * 2


def test_the_class_of_each_image(tmp_path: Path, device: str) -> None:
    class Squares(da.Source):
        def path(self, index: int) -> Path:
            return tmp_path / f"{index}.png"

    for at in range(6):
        Image.new("RGB", (20, 20), (at * 40, 0, 0)).save(tmp_path / f"{at}.png")
    source = Squares([(20, 20)] * 6, ["even", "odd"], classes=[0, 1] * 3)
    for batch in da.Loader(source, [da.Resize((8, 8))], 4, device=device, train=False):
        assert batch.classes is not None
        assert batch.classes.dtype == torch.int64
        assert (batch.images[:, 0, 0, 0].cpu() // 40 % 2).tolist() == batch.classes.tolist()
        assert not batch.valid.any()
    assert da.ClassBalancedSampler()(source).tolist() == [1.0] * 6


def test_the_source_of_each_image_of_three() -> None:
    joined = da.ConcatReader([da.Source([(9, 9)] * count, ["a"]) for count in (2, 3, 4)])
    expected = [(source, at) for source, count in enumerate((2, 3, 4)) for at in range(count)]
    assert [joined.source_of(index) for index in range(9)] == expected
