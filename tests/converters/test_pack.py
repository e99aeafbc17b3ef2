"""`detaug pack`: shards that webdataset, DALI and protobuf read, and that convert back to the same JSON file."""

from __future__ import annotations

import gc
import json
import os
import re
import runpy
import signal
import struct
import subprocess
import sys
import sysconfig
import tarfile
import tracemalloc
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import webdataset
from coco_files import Document, document, write, write_images
from command import detaug, usage_error
from dali_pipelines import make, outputs
from full_disk import disk_for_files_of
from nvidia.dali import fn, tfrecord
from places import REPOSITORY
from shard_files import crc32c, example_class, flip_a_bit, masked_crc
from voc_files import HEIGHT, WIDTH, image_bytes, with_segment

from detaug import CocoReader
from detaug.arguments import parse_size
from detaug.converters import ConversionError, InputError, pack_coco
from detaug.converters.shards import layout, pack
from detaug.converters.shards.layout import sample_key
from detaug.converters.shards.pack import PackFormat
from detaug.machine.parallel import map_ahead

FORMATS: list[PackFormat] = ["webdataset", "tfrecord"]
EXTENSIONS = {"webdataset": "tar", "tfrecord": "tfrecord"}
MORE_NAMES = ("a.png", "sub.v2/x.y.JPG", "Ünï 1.jpeg", "__MACOSX__/.m.jpg", "noext", "b-6.jpg", "b.jpeg")
IMAGE_EXTENSIONS = "jpg;jpeg;png"
SIDES = ("xmin", "ymin", "xmax", "ymax")


def data_set() -> Document:
    """A JSON with names that keys cannot have, and everything that may be lost."""
    content = document()
    content["categories"].insert(
        0, {"id": 9, "name": "unused 🐟", "supercategory": None, "keypoints": ["nose"], "flip_idx": [0]}
    )
    content["images"] += [
        {"id": 2**62 + at, "file_name": name, "width": WIDTH, "height": HEIGHT, "attributes": {"night": at % 2 == 0}}
        for at, name in enumerate(MORE_NAMES)
    ]
    crowd = {"id": 77, "image_id": 2**62, "category_id": 2, "bbox": [1, 2, 3.125, 4], "iscrowd": 1, "area": 7.25}
    objects = [
        crowd | {"segmentation": {"counts": [1, 2], "size": [HEIGHT, WIDTH]}},
        crowd | {"id": 60, "image_id": 2**62 + 1, "iscrowd": 0, "difficult": 1, "attributes": {"color": "réd"}},
        crowd | {"id": 61, "image_id": 2**62 + 6, "iscrowd": 0, "track_id": 5},
        crowd | {"id": 62, "image_id": 2**62 + 6, "iscrowd": 0, "corners": [[1, 2], [4, 2], [4, 6], [1, 6]]},
        crowd | {"id": 63, "image_id": 2**62 + 6, "iscrowd": 0, "keypoints": [1, 2, 2], "num_keypoints": 1},
    ]
    return {**content, "annotations": [*content["annotations"], *objects], "contributor": [1, None, {"a": 0.1}]}


def write_data_set(folder: Path) -> tuple[Path, Path]:
    """Write it and its images, each with other bytes; return (JSON, images)."""
    images = write_images(folder / "images")
    for at, name in enumerate(MORE_NAMES):
        (images / name).parent.mkdir(exist_ok=True)
        kind = "PNG" if name in ("a.png", "noext") else "JPEG"
        data = image_bytes(kind=kind)
        (images / name).write_bytes(data + bytes(at + 1) if kind == "PNG" else with_segment(data, b"%d" % at, 0xFE))
    return write(folder / "train.json", data_set()), images


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_data_set(tmp_path_factory.mktemp("source"))


@pytest.fixture(scope="module", params=FORMATS)
def shard_format(request: pytest.FixtureRequest) -> PackFormat:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def packed(source: tuple[Path, Path], shard_format: PackFormat, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of shards; there are several."""
    folder = tmp_path_factory.mktemp(shard_format) / "shards"
    result = detaug("pack", *source, "-o", folder, "--format", shard_format, "--shard-size", "60kB")
    assert (result.code, result.err) == (0, "")
    return folder


def shards(folder: Path, extension: str) -> list[Path]:
    found = sorted(folder.glob(f"train-*.{extension}"))
    assert len(found) > 1
    return found


def load(path: Path) -> Document:
    return json.loads(path.read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def without_places(content: Document) -> Document:
    place = ("shard", "offset", "length", "crc32c")
    images = [{key: row[key] for key in row if key not in place} for row in content["images"]]
    return content | {"images": images}


def encoded(source: tuple[Path, Path]) -> dict[int, bytes]:
    """The bytes of each image by its id."""
    return {row["id"]: (source[1] / row["file_name"]).read_bytes() for row in load(source[0])["images"]}


def boxes_of(image_id: int) -> list[list[float]]:
    return [row["bbox"] for row in data_set()["annotations"] if row["image_id"] == image_id]


# ------------------------------------------------------------------------------------------------ JSON and round trip


def test_the_json_is_the_same_and_points_to_the_images_bytes(source: tuple[Path, Path], packed: Path) -> None:
    content, expected = load(packed / "train.json"), encoded(source)
    assert without_places(content) == load(source[0])
    assert len(set(expected.values())) == len(expected)
    for row in content["images"]:
        data = (packed / row["shard"]).read_bytes()
        assert data[row["offset"] : row["offset"] + row["length"]] == expected[row["id"]]
        assert row["crc32c"] == crc32c(expected[row["id"]])


def test_converting_the_shards_gives_the_same_json(packed: Path, shard_format: PackFormat, tmp_path: Path) -> None:
    command = {"webdataset": "convert-webdataset", "tfrecord": "convert-tfrecord"}[shard_format]
    result = detaug(command, *shards(packed, EXTENSIONS[shard_format]), "-o", packed / "back.json")
    content = load(packed / "back.json")
    (packed / "back.json").unlink()
    assert result.code == 0, result.err
    assert content == load(packed / "train.json")


def test_each_shard_alone_has_all_categories(packed: Path, shard_format: PackFormat, tmp_path: Path) -> None:
    command = {"webdataset": "convert-webdataset", "tfrecord": "convert-tfrecord"}[shard_format]
    whole, ids = load(packed / "train.json"), []
    for shard in shards(packed, EXTENSIONS[shard_format]):
        back = packed / f"{shard.stem}.json"
        assert detaug(command, shard, "-o", back).code == 0
        content = load(back)
        back.unlink()
        ids += [row["id"] for row in content["images"]]
        lists = ("images", "annotations")
        assert {key: content[key] for key in content if key not in lists} == {
            key: whole[key] for key in whole if key not in lists
        }
    assert ids == [row["id"] for row in whole["images"]]


def test_annotations_in_another_order_than_their_images_come_back_grouped(
    source: tuple[Path, Path], shard_format: PackFormat, tmp_path: Path
) -> None:
    content = data_set()
    content["annotations"].reverse()
    pack_coco(write(tmp_path / "train.json", content), source[1], tmp_path / "shards", format=shard_format)
    assert without_places(load(tmp_path / "shards/train.json")) == content
    command = {"webdataset": "convert-webdataset", "tfrecord": "convert-tfrecord"}[shard_format]
    shard = tmp_path / f"shards/train-00000.{EXTENSIONS[shard_format]}"
    assert detaug(command, shard, "-o", tmp_path / "shards/back.json").code == 0
    ids = [row["id"] for row in content["images"]]
    grouped = sorted(content["annotations"], key=lambda row: ids.index(row["image_id"]))
    assert grouped != content["annotations"]
    assert load(tmp_path / "shards/back.json")["annotations"] == grouped


# ------------------------------------------------------------------------------------------------ other readers


def check_sample(image: bytes, text: bytes, source: tuple[Path, Path], seen: list[int]) -> None:
    """The image and its JSON file are those of the source."""
    sample, content = json.loads(text), load(source[0])
    number = sample["image"]["id"]
    assert image == encoded(source)[number]
    assert sample["image"] in content["images"]
    names = {row["id"]: row["name"] for row in content["categories"]}
    expected = [row for row in content["annotations"] if row["image_id"] == number]
    assert sample["annotations"] == [row | {"category": names[row["category_id"]]} for row in expected]
    seen.append(number)


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # the package leaves its files open
@pytest.mark.parametrize("shard_format", ["webdataset"], indirect=True)
def test_the_webdataset_package_reads_every_sample(source: tuple[Path, Path], packed: Path) -> None:
    seen: list[int] = []
    keys = set()
    paths = [*map(str, shards(packed, "tar"))]
    for sample in webdataset.WebDataset(paths, empty_check=False, shardshuffle=False):
        (extension,) = {key for key in sample if not key.startswith("__")} - {"json"}
        assert extension in IMAGE_EXTENSIONS.split(";")
        check_sample(sample[extension], sample["json"], source, seen)
        keys.add(sample["__key__"])
    gc.collect()
    assert seen == [row["id"] for row in data_set()["images"]]
    assert len(keys) == len(seen)


@pytest.mark.parametrize("shard_format", ["webdataset"], indirect=True)
@pytest.mark.parametrize("with_index", [True, False])
def test_dalis_webdataset_reader_reads_every_sample(source: tuple[Path, Path], packed: Path, with_index: bool) -> None:
    paths = [*map(str, shards(packed, "tar"))]
    indexes = {"index_paths": [re.sub("tar$", "idx", path) for path in paths]} if with_index else {}
    pipe = make(
        lambda: fn.readers.webdataset(paths=paths, ext=[IMAGE_EXTENSIONS, "json"], name="reader", **indexes),
        len(data_set()["images"]),
    )
    seen: list[int] = []
    assert pipe.epoch_size("reader") == len(data_set()["images"])
    for image, text in zip(*outputs(pipe), strict=True):
        check_sample(image.tobytes(), text.tobytes(), source, seen)
    assert seen == [row["id"] for row in data_set()["images"]]


@pytest.mark.parametrize("shard_format", ["tfrecord"], indirect=True)
def test_dalis_tfrecord_reader_reads_images_and_boxes(source: tuple[Path, Path], packed: Path) -> None:
    paths = [*map(str, shards(packed, "tfrecord"))]
    features = {
        **{f"image/{name}": tfrecord.FixedLenFeature((), tfrecord.string, "") for name in ("encoded", "coco")},
        "image/object/class/label": tfrecord.VarLenFeature(tfrecord.int64, -1),
        **{f"image/object/bbox/{side}": tfrecord.VarLenFeature(tfrecord.float32, 0.0) for side in SIDES},
    }
    indexes = [re.sub("tfrecord$", "idx", path) for path in paths]

    def nodes() -> list[Any]:
        read = fn.readers.tfrecord(path=paths, index_path=indexes, features=features)
        return [read[name] for name in features]

    seen: list[int] = []
    pipe = make(nodes, len(data_set()["images"]))
    for image, text, labels, *sides in zip(*outputs(pipe), strict=True):
        check_sample(image.tobytes(), text.tobytes(), source, seen)
        rows = json.loads(text.tobytes())["annotations"]
        assert labels.tolist() == [row["category_id"] for row in rows]
        x0, y0, x1, y1 = np.stack(sides).astype(np.float64) * np.array([WIDTH, HEIGHT, WIDTH, HEIGHT])[:, None]
        np.testing.assert_allclose(np.stack([x0, y0, x1 - x0, y1 - y0], 1), boxes(rows), atol=1e-4)
    assert seen == [row["id"] for row in data_set()["images"]]


def boxes(rows: list[Document]) -> Any:
    return np.array([row["bbox"] for row in rows], np.float64).reshape(-1, 4)


def records(path: Path) -> list[bytes]:
    """The data of each record."""
    data, found, position = path.read_bytes(), [], 0
    while position < len(data):
        (length,) = struct.unpack_from("<Q", data, position)
        found.append(data[position + 12 : position + 12 + length])
        crcs = (data[position + 8 : position + 12], data[position + 12 + length : position + 16 + length])
        assert [*map(masked_crc, (data[position : position + 8], found[-1]))] == [
            int.from_bytes(crc, "little") for crc in crcs
        ]
        position += length + 16
    return found


@pytest.mark.parametrize("shard_format", ["tfrecord"], indirect=True)
def test_protobuf_parses_tensorflows_features(source: tuple[Path, Path], packed: Path) -> None:
    seen: list[int] = []
    examples = [record for path in shards(packed, "tfrecord") for record in records(path)]
    names = {row["id"]: row["name"] for row in data_set()["categories"]}
    for record in examples:
        example = example_class().FromString(record)
        features = {name: values(feature) for name, feature in example.features.feature.items()}
        check_sample(*features["image/encoded"], *features["image/coco"], source, seen)
        sample = json.loads(features["image/coco"][0])
        rows = sample["annotations"]
        assert features["image/source_id"] == [str(sample["image"]["id"]).encode()]
        assert features["image/filename"] == [sample["image"]["file_name"].encode()]
        assert [features["image/height"], features["image/width"]] == [[HEIGHT], [WIDTH]]
        is_png = features["image/encoded"][0].startswith(b"\x89PNG")
        assert features["image/format"] == [b"png" if is_png else b"jpeg"]
        assert features["image/object/class/label"] == [row["category_id"] for row in rows]
        assert features["image/object/class/text"] == [names[row["category_id"]].encode() for row in rows]
        assert features["image/object/difficult"] == [row.get("difficult", 0) for row in rows]
        assert features["image/object/is_crowd"] == [row["iscrowd"] for row in rows]
        areas = [row.get("area", row["bbox"][2] * row["bbox"][3]) for row in rows]
        assert features["image/object/area"] == pytest.approx(areas)
        sides = np.array([features[f"image/object/bbox/{side}"] for side in SIDES]).T.reshape(-1, 2, 2)
        corners = sides * [WIDTH, HEIGHT]
        expected = boxes(rows)
        np.testing.assert_allclose(corners[:, 0], expected[:, :2], atol=1e-4)
        np.testing.assert_allclose(corners[:, 1] - corners[:, 0], expected[:, 2:], atol=1e-4)
        assert example.SerializeToString(deterministic=True) == record  # also protobuf's own choice of bytes
    assert seen == [row["id"] for row in data_set()["images"]]


def values(feature: Any) -> list[Any]:
    kind = feature.WhichOneof("kind")
    return list(getattr(feature, kind).value)


@pytest.mark.parametrize("shard_format", ["webdataset"], indirect=True)
def test_a_shard_has_the_bytes_that_tarfile_writes(packed: Path, tmp_path: Path) -> None:
    for path in shards(packed, "tar"):
        with tarfile.open(path) as old, tarfile.open(tmp_path / "new", "w", format=tarfile.USTAR_FORMAT) as new:
            for member in old:
                assert (member.mtime, member.uid, member.gid, member.mode) == (0, 0, 0, 0o644)
                again = tarfile.TarInfo(member.name)
                again.size = member.size
                new.addfile(again, old.extractfile(member))
        assert (tmp_path / "new").read_bytes() == path.read_bytes()


def test_the_indexes_are_those_of_dalis_tools(
    packed: Path, shard_format: PackFormat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    extension = EXTENSIONS[shard_format]
    tool = Path(sysconfig.get_path("scripts")) / {"tar": "wds2idx", "tfrecord": "tfrecord2idx"}[extension]
    monkeypatch.setitem(sys.modules, "tensorflow", None)  # which takes seconds to import, to open a file
    for path in shards(packed, extension):
        monkeypatch.setattr("sys.argv", [str(tool), str(path), str(tmp_path / "idx")])
        with suppress(SystemExit):
            runpy.run_path(str(tool), run_name="__main__")
        assert (tmp_path / "idx").read_bytes() == path.with_suffix(".idx").read_bytes()


def test_shards_are_packed_again_from_their_json(
    source: tuple[Path, Path], packed: Path, shard_format: PackFormat, tmp_path: Path
) -> None:
    for number, other in enumerate(FORMATS):
        arguments = ("-o", tmp_path / other, "--format", other, "--shard-size", "60kB", "--quiet")
        assert detaug("pack", packed / "train.json", packed, *arguments).code == 0
        direct = tmp_path / f"direct{number}"
        pack_coco(*source, direct, format=other, shard_size="60kB")
        assert files(tmp_path / other) == files(direct)


def test_images_of_one_name_in_two_shards_cannot_share_one(source: tuple[Path, Path], tmp_path: Path) -> None:
    pack_coco(*source, tmp_path / "shards", shard_size=1)
    content = load(tmp_path / "shards/train.json")
    content["images"][1]["file_name"] = content["images"][0]["file_name"]
    path = write(tmp_path / "two.json", content)
    error = detaug("pack", path, tmp_path / "shards", "-o", tmp_path / "out").err
    assert "a.jpg: its file_name is that of an earlier image; rename one [entry-invalid]" in error
    (tmp_path / "shards/train-00000.tar").write_bytes(b"short")
    error = detaug("pack", tmp_path / "shards/train.json", tmp_path / "shards", "-o", tmp_path / "out").err
    assert "a.jpg: " in error
    assert "train-00000.tar does not have its bytes [image-missing]" in error
    assert not (tmp_path / "out").exists()


# ------------------------------------------------------------------------------------------------ keys and sizes


def test_keys_are_unique_and_plain() -> None:
    names = ["a.jpg", "A.jpg", "a.png", "a-7.jpg", "x/a.jpg", ".jpg", "..x.jpg", "é.jpg", "日本.jpg", "a b.c.jpg"]
    names += ["__x__/a.jpg", "-.jpg", "_.jpg", f"{'d' * 200}/{'f' * 200}.jpg", f"{'d' * 200}/{'f' * 200}.png"]
    taken: set[str] = set()
    keys = [sample_key(name, number, taken) for number, name in enumerate(names, 5)]
    assert keys[:5] == ["a", "A-6", "a-7", "a-7-8", "x/a"]
    assert len({key.lower() for key in keys}) == len(keys)
    for key in keys:
        assert re.fullmatch(r"[A-Za-z0-9-][A-Za-z0-9_/-]{0,89}", key)
        assert not key.endswith("/")
    assert [sample_key(name, 3, taken) for name in ("Q.jpg", "q.jpg")] == ["Q", "q-3"]
    assert sample_key("a.jpg", 1, set(taken)) != sample_key("a.jpg", 2, set(taken))


def test_names_that_are_not_utf8_come_back(tmp_path: Path, shard_format: PackFormat) -> None:
    name = os.fsdecode(b"caf\xe9.jpg")
    (tmp_path / name).write_bytes(image_bytes())
    content = document() | {"annotations": []}
    content["images"] = [content["images"][0] | {"file_name": name}]
    folder = tmp_path / "out"
    pack_coco(write(tmp_path / "x.json", content), tmp_path, folder, format=shard_format)
    assert without_places(load(folder / "x.json")) == content
    if shard_format == "tfrecord":
        (record,) = records(folder / "x-00000.tfrecord")
        feature = example_class().FromString(record).features.feature
        assert values(feature["image/filename"]) == [b"caf\xe9.jpg"]
        assert json.loads(values(feature["image/coco"])[0])["image"]["file_name"] == name


def test_a_class_whose_name_is_no_text(tmp_path: Path, shard_format: PackFormat) -> None:
    """An empty name becomes that of its number; half of a surrogate pair is no UTF-8, as TensorFlow's features are."""
    images = write_images(tmp_path / "images")
    content = document()
    content["categories"][0]["name"] = ""
    pack_coco(write(tmp_path / "x.json", content), images, tmp_path / "out", format=shard_format, on_error="skip")
    back = tmp_path / "back.json"
    files = sorted((tmp_path / "out").glob(f"x-*.{EXTENSIONS[shard_format]}"))
    assert detaug(f"convert-{shard_format}", *files, "-o", back).code == 0
    assert [each["name"] for each in load(back)["categories"]] == ["category 1", "dog"]
    content["categories"][0]["name"] = "\ud800"
    path = write(tmp_path / "y.json", content)
    if shard_format == "tfrecord":
        with pytest.raises(ConversionError, match=r"'\\ud800' cannot be UTF-8: it has half of a surrogate pair"):
            pack_coco(path, images, tmp_path / "other", format=shard_format)
        assert not (tmp_path / "other").exists()
    else:
        pack_coco(path, images, tmp_path / "other", format=shard_format)


@pytest.mark.parametrize(
    ("text", "number"),
    [("256MB", 256_000_000), ("1GB", 10**9), ("64MiB", 64 << 20), ("1.5 kB", 1500), ("1000", 1000), (7, 7)],
)
def test_sizes(text: str | int, number: int) -> None:
    assert parse_size("shard_size", text) == number


@pytest.mark.parametrize("text", ["", "0", "-1", "12 parsecs", "MB", "1e6", "256M", "0.1", "1_000", "nan"])
def test_sizes_that_are_none(text: str) -> None:
    with pytest.raises(InputError, match="shard_size must be bytes such as 256MB"):
        parse_size("shard_size", text)


@pytest.mark.parametrize("limit", [1, 30_000, 47_000, 60_000, 10**9])
def test_a_shard_has_at_most_this_size_or_one_image(
    source: tuple[Path, Path], shard_format: PackFormat, limit: int, tmp_path: Path
) -> None:
    pack_coco(*source, tmp_path, format=shard_format, shard_size=limit)
    names = [row["shard"] for row in load(tmp_path / "train.json")["images"]]
    assert names == sorted(names)
    written = sorted(path.name for path in tmp_path.glob(f"*.{EXTENSIONS[shard_format]}"))
    assert written == sorted(set(names)) == [f"train-{n:05d}.{EXTENSIONS[shard_format]}" for n in range(len(written))]
    sizes = {name: (tmp_path / name).stat().st_size for name in written}
    assert all(size <= limit or names.count(name) == 1 for name, size in sizes.items())
    if limit in (1, 10**9):
        assert len(written) == (len(names) if limit == 1 else 1)


def test_images_are_not_all_in_memory(shard_format: PackFormat, tmp_path: Path) -> None:
    rows = [{"id": n, "file_name": f"{n}.jpg", "width": 9, "height": 9} for n in range(40)]
    for row in rows:
        (tmp_path / str(row["file_name"])).write_bytes(bytes(1_000_000))
    path = write(tmp_path / "x.json", document() | {"images": rows, "annotations": []})
    pack_coco(path, tmp_path, tmp_path / "warm-up", format=shard_format)
    tracemalloc.start()
    pack_coco(path, tmp_path, tmp_path / "shards", format=shard_format, shard_size="5MB")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert sum(file.stat().st_size for file in (tmp_path / "shards").iterdir()) > 40_000_000
    assert peak < 12_000_000


def test_shards_are_laid_out_only_a_little_ahead_of_the_threads() -> None:
    taken: list[int] = []

    def items() -> Iterator[int]:
        for number in range(20):
            taken.append(number)
            yield number

    for done, result in enumerate(map_ahead(lambda number: number * 10, items(), 2), 1):
        assert result == done * 10 - 10
        assert len(taken) <= done + 2
    assert len(taken) == 20
    failing = map_ahead(lambda number: 1 // (3 - number), items(), 2)
    assert [next(failing), next(failing), next(failing)] == [0, 0, 1]
    with pytest.raises(ZeroDivisionError):
        next(failing)


# ------------------------------------------------------------------------------------------------ bad input, errors


def test_the_same_input_gives_the_same_bytes_and_may_be_packed_again(
    source: tuple[Path, Path], shard_format: PackFormat, tmp_path: Path
) -> None:
    for folder in ("one", "two", "one"):
        pack_coco(*source, tmp_path / folder, format=shard_format, shard_size=60_000)
    assert files(tmp_path / "one") == files(tmp_path / "two")


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_other_content_is_not_replaced(source: tuple[Path, Path], shard_format: PackFormat, tmp_path: Path) -> None:
    arguments = ("-o", tmp_path / "out", "--format", shard_format, "--shard-size")
    assert detaug("pack", *source, *arguments, 60_000).code == 0
    before = files(tmp_path / "out")
    assert "exist with other content and would be replaced" in usage_error("pack", *source, *arguments, 30_000)
    other = "webdataset" if shard_format == "tfrecord" else "tfrecord"
    error = usage_error("pack", *source, "-o", tmp_path / "out", "--format", other, "--shard-size", 60_000)
    assert "exists with other content" in error
    assert files(tmp_path / "out") == before


def test_a_json_that_was_changed_is_not_replaced(source: tuple[Path, Path], tmp_path: Path) -> None:
    pack_coco(*source, tmp_path)
    (tmp_path / "train.json").write_text("{}")
    assert f"exists with other content and would be replaced: {tmp_path}/train.json;" in usage_error(
        "pack", *source, "-o", tmp_path
    )
    assert (tmp_path / "train.json").read_text() == "{}"


def test_shards_left_from_a_longer_json_are_refused(
    source: tuple[Path, Path], shard_format: PackFormat, tmp_path: Path
) -> None:
    pack_coco(*source, tmp_path, format=shard_format)
    left = tmp_path / f"train-00001.{EXTENSIONS[shard_format]}"
    left.touch()
    (tmp_path / "train-00001.txt").touch()
    error = usage_error("pack", *source, "-o", tmp_path, "--format", shard_format)
    assert "1 shard file of another dataset of this name, such as train-00001." in error
    left.unlink()
    assert detaug("pack", *source, "-o", tmp_path, "--format", shard_format).code == 0


def test_the_input_is_not_replaced(source: tuple[Path, Path]) -> None:
    assert "is the input and would be replaced" in usage_error("pack", *source, "-o", source[0].parent)
    assert "is a folder in the place of the JSON file" in usage_error("pack", source[1], source[0], "-o", "out")


def test_a_missing_image_is_an_error_before_anything_is_written(tmp_path: Path, shard_format: PackFormat) -> None:
    path, images = write_data_set(tmp_path)
    (images / "b.jpg").unlink()
    arguments = ("pack", path, images, "-o", tmp_path / "out", "--format", shard_format)
    result = detaug(*arguments)
    assert result.code == 2
    assert f"b.jpg: is not in {images} [image-missing]" in result.err
    assert not (tmp_path / "out").exists()
    assert detaug(*arguments, "--on-error", "skip", "--report", tmp_path / "report.json").code == 0
    content, expected = without_places(load(tmp_path / "out/train.json")), data_set()
    assert content["images"] == [row for row in expected["images"] if row["id"] != 2]
    assert content["annotations"] == [row for row in expected["annotations"] if row["image_id"] != 2]
    assert load(tmp_path / "report.json")["counts"] == {"image-missing": 1, "boxes-without-image": 3}


def test_empty_files_and_others_without_an_images_extension_are_errors(tmp_path: Path) -> None:
    path, images = write_data_set(tmp_path)
    (images / "noext").write_bytes(b"not an image")
    (images / "a.jpg").write_bytes(b"")
    result = detaug("pack", path, images, "-o", tmp_path / "out")
    assert result.code == 2
    assert "noext: is not an image that can be read [image-unreadable]" in result.err
    assert "a.jpg: is empty (0 bytes) [image-unreadable]" in result.err


def test_an_annotation_with_a_key_of_this_name_is_reported(tmp_path: Path, source: tuple[Path, Path]) -> None:
    content = data_set()
    content["annotations"][3]["category"] = "mine"
    path = write(tmp_path / "train.json", content)
    summary = pack_coco(path, source[1], tmp_path / "out", report=tmp_path / "report.json")
    assert summary.kind_counts == {"key-dropped": 1}
    assert "annotations.category, in 1 of its rows" in str(summary.findings[0])
    assert without_places(load(tmp_path / "out/train.json")) == content


def test_numbers_that_json_does_not_have_become_null(tmp_path: Path, source: tuple[Path, Path]) -> None:
    content = data_set()
    content["annotations"][0]["score"] = float("nan")
    pack_coco(write(tmp_path / "train.json", content), source[1], tmp_path / "out", format="tfrecord")
    assert load(tmp_path / "out/train.json")["annotations"][0]["score"] is None


def test_an_image_that_changes_meanwhile_leaves_nothing(
    tmp_path: Path, shard_format: PackFormat, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, images = write_data_set(tmp_path)

    def grow_then_write(*arguments: Any) -> list[int]:
        (images / "b-6.jpg").write_bytes(bytes(17))
        return layout.write_samples(*arguments)

    monkeypatch.setattr(pack, "write_samples", grow_then_write)
    error = usage_error("pack", path, images, "-o", tmp_path / "out", "--format", shard_format)
    assert re.search(r"b-6.jpg changed while it was packed: an image had [\d,]+ bytes and has 17; pack again", error)
    assert not (tmp_path / "out").exists()


def test_a_disk_that_is_full_leaves_nothing(
    source: tuple[Path, Path], shard_format: PackFormat, tmp_path: Path
) -> None:
    """A limit on the size of files stands for the disk; some shards are larger than it."""
    (tmp_path / "notes").write_text("mine")
    arguments = ("pack", *source, "-o", tmp_path, "--format", shard_format)
    with disk_for_files_of(40_000):
        error = usage_error(*arguments, "--shard-size", "60kB")
    assert re.fullmatch(rf"detaug: {tmp_path}/train-0000\d\.{EXTENSIONS[shard_format]}: File too large\n", error)
    assert files(tmp_path) == {"notes": b"mine"}


KILLED = """
import os, signal, sys
from detaug.converters.shards import layout, pack
done = []
def write(*arguments):
    checksums = layout.write_samples(*arguments)
    done.append(1)
    if len(done) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return checksums
pack.write_samples = write
pack.pack_coco(*sys.argv[1:4], format=sys.argv[4], shard_size=30_000)
"""


def test_after_a_kill_there_is_no_shard_and_packing_again_works(
    source: tuple[Path, Path], shard_format: PackFormat, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", KILLED, *map(str, source), str(tmp_path / "out"), shard_format]
    run = subprocess.run(command, cwd=REPOSITORY, capture_output=True)
    assert run.returncode == -signal.SIGKILL, run.stderr.decode()
    left = [path.name for path in (tmp_path / "out").iterdir()]
    assert left
    assert all(re.fullmatch(r"\..*\.partial", name) for name in left)  # hidden, and read by nobody
    assert detaug("pack", *source, "-o", tmp_path / "out", "--format", shard_format).code == 0


def test_without_the_package_for_checksums_the_error_says_what_to_install(
    source: tuple[Path, Path], packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "google_crc32c", None)
    error = "detaug: reading or writing shards needs the package google-crc32c: pip install 'detaug[shards]'\n"
    assert usage_error("pack", *source, "-o", tmp_path / "out") == error
    assert not (tmp_path / "out").exists()
    assert usage_error("check", packed / "train.json", packed) == error
    with pytest.raises(InputError, match=r"pip install 'detaug\[shards\]'"):
        CocoReader(packed, packed / "train.json")


def test_an_image_that_changed_in_its_shard_is_not_packed_again(packed: Path, tmp_path: Path) -> None:
    row = load(packed / "train.json")["images"][2]
    flip_a_bit(packed / row["shard"], row["offset"] + row["length"] // 2)
    error = usage_error("pack", packed / "train.json", packed, "-o", tmp_path / "out")
    assert f"{packed / row['shard']} has an image that changed: its bytes, from {row['offset']:,} on" in error
    assert not (tmp_path / "out").exists()
