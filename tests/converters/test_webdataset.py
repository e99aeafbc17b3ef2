"""WebDataset to COCO JSON: samples as webdataset writes them, positions of images, kinds of tar, what is refused."""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import webdataset
from command import detaug
from hypothesis import strategies as st
from properties import check_examples, few_or_many
from shard_damage import damages, images_left
from shard_files import Document, boxes, classes, contents, converted, jpeg, write_wds
from voc_files import image_bytes, rotated_jpeg

from detaug.converters import ConversionError, Summary, webdataset_to_coco
from detaug.converters.shards.samples import ShardError
from detaug.converters.shards.tar import Member, read_members

LABELS = {"annotations": [{"bbox": [10, 10, 20, 30], "category": "cat"}, {"bbox": [1.5, 2, 3, 4], "category": "dog"}]}
LABELS_TEXT = json.dumps(LABELS).encode()


def convert(shards: Any, **options: Any) -> tuple[Document, Summary]:
    return converted(webdataset_to_coco, shards, **options)


def one(folder: Path, members: Mapping[str, Any], **options: Any) -> tuple[Document, Summary]:
    return convert(write_wds(folder / "one.tar", {"a": {"jpg": jpeg("a"), **members}}), **options)


def write_tar(path: Path, members: Sequence[tuple[str, bytes]], format: int = tarfile.USTAR_FORMAT) -> Path:
    """Write members in their order; two may have one name."""
    with tarfile.open(path, "w", format=format) as archive:
        for name, content in members:
            _add(archive, name, content)
    return path


def _add(archive: tarfile.TarFile, name: str, content: bytes = b"", /, **more: Any) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for key, value in more.items():
        setattr(info, key, value)
    archive.addfile(info, io.BytesIO(content))


# ----------------------------------------------------------------------------------------------------------
# What is read


def test_samples_of_webdataset(tmp_path: Path) -> None:
    samples = {f"d/{name}": {"jpg": jpeg(name), "json": LABELS} for name in "abc"}
    shards = [write_wds(tmp_path / "x/1.tar", samples), write_wds(tmp_path / "y/2.tar", {"e": {"jpg": jpeg("e")}})]
    document, summary = convert(shards, output=tmp_path / "out.json")
    assert contents(document, tmp_path) == {f"d/{n}.jpg": jpeg(n) for n in "abc"} | {"e.jpg": jpeg("e")}
    assert boxes(document) == [[10, 10, 20, 30], [1.5, 2, 3, 4]] * 3
    assert [row["area"] for row in document["annotations"]] == [600, 12] * 3
    assert [row["category_id"] for row in document["annotations"]] == [1, 2] * 3
    assert classes(document) == {1: "cat", 2: "dog"}
    assert [image["shard"] for image in document["images"]] == ["x/1.tar"] * 3 + ["y/2.tar"]
    assert summary.kind_counts == {"label-missing": 1}
    assert summary.image_folder == tmp_path


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # webdataset closes its file late
def test_webdataset_reads_the_same_samples(tmp_path: Path) -> None:
    path = write_wds(tmp_path / "a.tar", {f"{at:03}": {"jpg": jpeg(f"{at}"), "json": LABELS} for at in range(20)})
    document, _ = convert(path)
    expected = {f"{each['__key__']}.jpg": each["jpg"] for each in webdataset.WebDataset(str(path), shardshuffle=False)}
    assert contents(document, tmp_path) == expected


def test_attributes_and_ids_stay(tmp_path: Path) -> None:
    rows = [{"id": 9, "bbox": [1, 2, 3, 4], "category_id": 7, "iscrowd": 1, "area": 5.5, "pose": ["x", None]}]
    labels = {"id": 40, "file_name": "in/it.jpg", "camera": {"f": 50}, "width": 100, "height": 80, "annotations": rows}
    document, summary = one(tmp_path, {"json": labels})
    (image,), (row,) = document["images"], document["annotations"]
    assert image["offset"] % 512 == 0
    rest = {key: value for key, value in image.items() if key not in ("shard", "offset", "length", "crc32c")}
    assert rest == {"id": 40, "file_name": "in/it.jpg", "width": 100, "height": 80, "camera": {"f": 50}}
    assert row == {**rows[0], "image_id": 40}
    assert (classes(document), summary.findings) == ({7: "class 7"}, ())


def test_ids_that_are_missing_or_repeated_are_new(tmp_path: Path) -> None:
    rows = [{"id": 9, "bbox": [1, 2, 3, 4], "category_id": 7}, {"bbox": [1, 2, 3, 4], "category": "x"}]
    samples = {name: {"jpg": jpeg(name), "json": {"id": "k9", "annotations": rows}} for name in "ab"}
    document, summary = convert(write_wds(tmp_path / "a.tar", samples))
    assert [row["id"] for row in document["annotations"]] == [1, 2, 3, 4]
    assert [(image["id"], image["source_id"]) for image in document["images"]] == [(1, "k9"), (2, "k9")]
    assert classes(document) == {7: "class 7", 8: "x"}
    assert summary.kind_counts == {"ids-changed": 1}


def test_ids_that_all_samples_have_and_some_share_are_new(tmp_path: Path) -> None:
    samples = {
        name: {"jpg": jpeg(name), "json": {"id": 5, "annotations": [{"id": 7, "bbox": [at, 2, 3, 4], "category": "x"}]}}
        for at, name in enumerate("abc", 1)
    }
    document, summary = convert(write_wds(tmp_path / "a.tar", samples))
    assert [(row["id"], row["image_id"], row["bbox"][0]) for row in document["annotations"]] == [
        (1, 1, 1),
        (2, 2, 2),
        (3, 3, 3),
    ]
    assert [(row["id"], row["file_name"]) for row in document["images"]] == [(1, "a.jpg"), (2, "b.jpg"), (3, "c.jpg")]
    assert summary.kind_counts == {"ids-changed": 2}


def test_what_packs_say_of_themselves_is_that_of_the_first(tmp_path: Path) -> None:
    shards = [
        write_wds(
            tmp_path / f"{name}.tar",
            {name: {"jpg": jpeg(name), "json": {"image": {}, "annotations": [], "dataset": {"info": name}}}},
        )
        for name in "ab"
    ]
    assert [convert(each, output=tmp_path / "out.json")[0]["info"] for each in (shards, shards[::-1])] == ["a", "b"]


@pytest.mark.parametrize(
    ("content", "options", "expected"),
    [("3", {}, {4: "class 4"}), ("1\n", {"first_label": 1}, {1: "class 1"}), ("fish", {}, {1: "fish"})],
)
def test_classes_of_images(tmp_path: Path, content: str, options: Any, expected: dict[int, str]) -> None:
    document, summary = one(tmp_path, {"cls": content.encode()}, **options)
    assert ([image["category_id"] for image in document["images"]], classes(document)) == ([*expected], expected)
    assert summary.image_class_counts == dict.fromkeys(expected.values(), 1)
    document, _ = one(tmp_path, {"json": {"category": "fish", "note": "kept"}})
    assert (document["images"][0]["note"], classes(document)) == ("kept", {1: "fish"})


@pytest.mark.parametrize(("extension", "content"), [("txt", b"0 .5 .5 .1 .1"), ("cls", b"3")])
def test_labels_beside_a_json_with_annotations_are_counted(tmp_path: Path, extension: str, content: bytes) -> None:
    document, summary = one(tmp_path, {"jpg": jpeg("a"), "json": LABELS, extension: content})
    assert len(document["annotations"]) == 2
    assert "category_id" not in document["images"][0]
    assert summary.kind_counts == {"member-unused": 1}
    note = f"1 members .{extension} are not read, such as a.{extension}; the annotations of .json count before them"
    assert [finding.note for finding in summary.findings] == [note]


def test_names_of_classes_in_a_json(tmp_path: Path) -> None:
    """A text in COCO's form has them in `categories`; anything else by that name is a column of the image."""
    labels = {"annotations": [{"bbox": [1, 2, 3, 4], "category_id": 7}, {"bbox": [1, 2, 3, 4], "category_id": 8}]}
    names = [{"id": 7, "name": "cat", "supercategory": "animal"}]
    document, _ = one(tmp_path, {"jpg": jpeg("a"), "json": labels | {"categories": names}})
    assert [(row["id"], row["name"]) for row in document["categories"]] == [(7, "cat"), (8, "class 8")]
    assert "categories" not in document["images"][0]
    document, _ = one(tmp_path, {"jpg": jpeg("a"), "json": labels | {"categories": ["indoor"]}})
    assert document["images"][0]["categories"] == ["indoor"]


def test_rows_of_yolo(tmp_path: Path) -> None:
    members = {"txt": b"1 0.5 0.5 0.5 0.5\n0 0.95 0.5 0.2 0.5\n"}
    document, summary = one(tmp_path, members, classes=["cat", "dog"])
    assert boxes(document) == [[25, 20, 50, 40], [85, 20, 15, 40]]
    assert [row["category_id"] for row in document["annotations"]] == [2, 1]
    assert summary.kind_counts == {"box-clipped": 1}


def test_the_image_is_the_truth_for_its_size(tmp_path: Path) -> None:
    labels = {**LABELS, "width": 100, "height": 80}
    document, summary = one(tmp_path, {"jpg": rotated_jpeg(6), "json": labels})
    assert (document["images"][0]["width"], document["images"][0]["height"]) == (80, 100)
    assert summary.kind_counts == {"size-recorded": 1}


@pytest.mark.parametrize(
    ("box", "expected", "kinds"),
    [
        ([90, 70, 10.5, 10], [90, 70, 10.5, 10], {}),  # CocoReader accepts it
        ([90, 70, 20, 10], [90, 70, 10, 10], {"box-clipped": 1}),
        ([101, 70, 20, 10], None, {"box-outside": 1}),
        ([10, 10, 0, 10], None, {"box-empty": 1}),
        ([10, 10, -5, 10], None, {"box-empty": 1}),
    ],
)
def test_boxes_at_the_edge(tmp_path: Path, box: Any, expected: Any, kinds: dict[str, int]) -> None:
    rows = [{"bbox": each, "category": "x"} for each in (box, [1, 2, 3, 4])]
    document, summary = one(tmp_path, {"json": {"annotations": rows}})
    assert (boxes(document), summary.kind_counts) == ([*([expected] if expected else []), [1, 2, 3, 4]], kinds)


def test_members_that_are_not_read_are_counted(tmp_path: Path) -> None:
    samples = {name: {"jpg": jpeg(name), "seg.png": b"x", "cls": "1"} for name in "ab"}
    path = write_wds(tmp_path / "a.tar", {**samples, "c": {"001.npy": b"x", "002.npy": b"y"}})
    with tarfile.open(path, "a") as archive:
        _add(archive, "README", b"text")
        _add(archive, "./._a.jpg", b"of macOS")
    document, summary = convert(path)
    assert len(document["images"]) == 2
    expected = [("README", ["", 1]), ("._a.jpg", [".", 1]), ("c.001.npy", ["npy", 2]), ("a.seg.png", ["png", 2])]
    assert [(each.file.removeprefix("a.tar "), each.before) for each in summary.findings] == expected
    assert summary.kind_counts == {"member-unused": 6}
    assert "dropped       6  member-unused: " in str(summary)
    assert "a key ends at the first dot of a name's last part; the first is a.tar README" in str(summary)


@pytest.mark.parametrize("key", ["", "d.v1/"])
def test_images_with_dots_in_their_names_are_not_lost(tmp_path: Path, key: str) -> None:
    names = [f"{key}22.{number:02}" for number in range(12)]
    members = [(f"{name}.{kind}", data) for name in names for kind, data in (("jpg", jpeg(name)), ("json", b"{}"))]
    others = [("train.v1/3.jpg", jpeg("x")), ("train.v1/3.json", LABELS_TEXT)]
    path = write_tar(tmp_path / "one.tar", [*members, *others])
    error = f"one.tar {key}22: 12 images are not read, such as {key}22.00.jpg; a key ends at the first dot of a name's"
    with pytest.raises(ConversionError, match=f"{error} last part, here 22: write - for the dots in names"):
        convert(path)
    document, summary = convert(path, on_error="skip")
    assert contents(document, tmp_path) == {"train.v1/3.jpg": jpeg("x")}
    assert summary.kind_counts == {"member-dots": 12}
    renamed = [(f"{key}{name[len(key) :].replace('.', '-', 1)}", data) for name, data in members]
    assert len(convert(write_tar(path, [*renamed, *others]))[0]["images"]) == 13


def test_labels_with_the_whole_name_of_their_image(tmp_path: Path) -> None:
    members = [("a.jpg", jpeg("a")), ("a.jpg.json", LABELS_TEXT), ("b.JPG", jpeg("b")), ("b.JPG.TXT", b"0 .5 .5 1 1")]
    document, summary = convert(write_tar(tmp_path / "one.tar", members), first_label=0)
    assert ([len(document["annotations"]), *summary.kind_counts]) == [3]
    beside = [*members[:2], ("a.json", b'{"annotations": []}')]
    document, summary = convert(write_tar(tmp_path / "two.tar", beside))
    assert (document["annotations"], summary.kind_counts) == ([], {"member-unused": 1})


@pytest.mark.parametrize("end", ["\r", "\r\n", "\u2028"])
def test_rows_of_yolo_end_as_in_yolo(tmp_path: Path, end: str) -> None:
    rows = ["0 0.1 0.1 0.2 0.2", "0 0.5 0.5 0.2 0.2", "0 0.8 0.8 0.2 0.2"]
    document, summary = one(tmp_path, {"txt": end.join(rows).encode()}, first_label=0)
    assert (len(document["annotations"]), summary.kind_counts) == (3, {})
    with pytest.raises(ConversionError, match=r"a: .txt line 1: has 15 numbers that look like 3 rows"):
        one(tmp_path, {"txt": " ".join(rows).encode()}, first_label=0)


def test_png_and_other_formats(tmp_path: Path) -> None:
    images = {kind: image_bytes(kind=kind.upper()) for kind in ("png", "bmp", "webp", "tiff")}
    path = write_wds(tmp_path / "a.tar", {kind: {kind: image, "cls": "1"} for kind, image in images.items()})
    document, _ = convert(path)
    assert contents(document, tmp_path) == {f"{kind}.{kind}": image for kind, image in images.items()}


# ----------------------------------------------------------------------------------------------------------
# Kinds of tar


def listed(path: Path) -> list[Member]:
    file = os.open(path, os.O_RDONLY)
    try:
        return list(read_members(file))
    finally:
        os.close(file)


parts = st.text(st.characters(exclude_characters="/.\0", exclude_categories=["C", "Z"]), min_size=1, max_size=60)
names = st.lists(parts, min_size=1, max_size=6).map("/".join)


@few_or_many(1000)
def test_members_are_those_of_pythons_tarfile(examples: int, tmp_path: Path) -> None:
    path = tmp_path / "a.tar"

    def check(given: list[str], format: int, sizes: list[int], mtime: float) -> None:
        with tarfile.open(path, "w", format=format) as archive:
            for name, size in zip(given, sizes, strict=False):
                try:
                    _add(archive, name, b"x" * size, mtime=mtime if format == tarfile.PAX_FORMAT else 1)
                except ValueError:  # too long for ustar
                    continue
                _add(archive, f"{name[:20]}-folder", type=tarfile.DIRTYPE)
        with tarfile.open(path) as archive:
            expected = [(each.name, each.offset_data, each.size) for each in archive if each.isreg()]
        found = listed(path)
        assert [(each.name, each.offset, each.size) for each in found] == expected
        assert not any(each.fault for each in found)

    formats = st.sampled_from([tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
    sizes = st.lists(st.integers(0, 1100), min_size=4, max_size=4)
    check_examples(examples, check, st.lists(names, max_size=4), formats, sizes, st.floats(0, 1e9))


def test_sizes_in_base_256_and_in_pax_headers(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "a.tar", [("a.jpg", b"x" * 700), ("b.jpg", b"y")])
    data = bytearray(path.read_bytes())
    data[124:136] = b"\x80" + (700).to_bytes(11, "big")
    path.write_bytes(with_checksum(data, 0))
    assert [(each.name, each.offset, each.size) for each in listed(path)] == [("a.jpg", 512, 700), ("b.jpg", 2048, 1)]
    info = tarfile.TarInfo("c.jpg")
    info.size, info.pax_headers = 700, {"size": "700", "comment": "x"}
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(info, io.BytesIO(b"x" * 700))
    data = bytearray(path.read_bytes())
    data[1024 + 124 : 1024 + 136] = b"00000000000\0"
    path.write_bytes(with_checksum(data, 1024))
    assert [(each.name, each.offset, each.size) for each in listed(path)] == [("c.jpg", 1536, 700)]


def with_checksum(data: bytearray, position: int) -> bytes:
    """Return a tar with the checksum of the header at a position made right."""
    data[position + 148 : position + 156] = b" " * 8
    data[position + 148 : position + 156] = b"%06o\0 " % sum(data[position : position + 512])
    return bytes(data)


@pytest.mark.parametrize(
    ("more", "kind"),
    [
        ({"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"}, "member-no-file"),
        ({"type": tarfile.LNKTYPE, "linkname": "b.jpg"}, "member-no-file"),
        ({"type": tarfile.FIFOTYPE}, "member-no-file"),
        ({"type": tarfile.CHRTYPE}, "member-no-file"),
        ({"type": tarfile.GNUTYPE_SPARSE}, "member-no-file"),
        ({"pax_headers": {"GNU.sparse.major": "1"}}, "member-no-file"),
        ({"name": "../a.jpg"}, "member-name"),
        ({"name": "x/../../a.jpg"}, "member-name"),
        ({"name": "/a.jpg"}, "member-name"),
        ({"name": "a\n.jpg"}, "member-name"),
    ],
)
def test_members_that_are_no_plain_content(tmp_path: Path, more: dict[str, Any], kind: str) -> None:
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT if "pax_headers" in more else tarfile.GNU_FORMAT) as archive:
        _add(archive, "a.jpg", **more)
        for name in "bc":
            _add(archive, f"{name}.jpg", jpeg(name))
            _add(archive, f"{name}.json", json.dumps(LABELS).encode())
    with pytest.raises(ConversionError) as raised:
        convert(path)
    assert [finding.kind for finding in raised.value.findings] == [kind]
    document, summary = convert(path, on_error="skip")
    assert contents(document, tmp_path) == {f"{name}.jpg": jpeg(name) for name in "bc"}
    assert summary.kind_counts == {kind: 1}


# ----------------------------------------------------------------------------------------------------------
# What is refused


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"json": b"{"}, "not readable as JSON"),
        ({"json": b"\xff"}, "not readable as JSON"),
        ({"json": b"[" * 100_000}, "not readable as JSON"),
        ({"json": b'{"a": NaN}'}, "JSON has no NaN"),
        ({"json": b'{"a": 1e999, "annotations": []}'}, "cannot be written as JSON"),
        ({"json": b"9" * 9000}, "JSON"),
        ({"json": b"[]"}, "its JSON file must be an object {...}, got []"),
        ({"json": {"annotations": {}}}, "annotations must be a list, [] for an image without objects, got {}"),
        ({"json": {"annotations": None}}, "annotations must be a list, [] for an image without objects, got None"),
        ({"json": {"image": {"file_name": "a.jpg"}}}, "annotations must be a list, [] for an image without objects"),
        ({"json": {"annotations": [1]}}, "annotations must be objects {...}, got 1"),
        ({"json": {"annotations": [{"bbox": [1, 2, 3, 4]}]}}, "has neither category_id nor category"),
        ({"json": {"annotations": [{"bbox": [1, 2, 3], "category": "x"}]}}, "bbox must be four finite numbers"),
        ({"json": {"annotations": [{"category": "x"}]}}, "bbox must be four finite numbers [x, y, width, height], got"),
        ({"json": {"annotations": [{"bbox": [1, 2, 3, "4"], "category": "x"}]}}, "bbox must be four finite numbers"),
        ({"json": {"annotations": [{"bbox": [1, 2, 3, 4], "category": 7}]}}, "category must be a class name, got 7"),
        ({"json": {"annotations": [{"bbox": [1, 2, 3, 4], "category_id": "7"}]}}, "category_id must be a whole number"),
        ({"json": {"annotations": [{"bbox": [1, 2, 3, 4], "category_id": True}]}}, "must be a whole number"),
        ({"json": {"annotations": [{"bbox": [1, 2, 3, 4], "category": "x", "iscrowd": 2}]}}, "iscrowd must be 0 or 1"),
        ({"cls": b""}, ".cls must be one class"),
        ({"cls": b"a\nb"}, ".cls must be one class"),
        ({"cls": b"\xff"}, "a.cls is not UTF-8 text"),
        ({"txt": b"a photo of a cat"}, ".txt line 1: must be numbers, got 'a photo of a cat'"),
        (
            {"txt": b"a cat", "json": {"caption": "a cat"}},
            "got 'a cat'; and its .json has no annotations: a shard of capt",
        ),
        ({"txt": b"0 10 10 20 20"}, ".txt line 1: coordinates must be relative to the image"),
        ({"png": image_bytes(kind="PNG")}, "must have one image, got .jpg, .png"),
        ({"jpg": b"no image"}, "is not an image that can be read"),
    ],
)
def test_samples_that_cannot_be_used_are_named(tmp_path: Path, members: Any, message: str) -> None:
    samples = {"d/a": {"jpg": jpeg("a"), **members}, "d/b": {"jpg": jpeg("b"), "json": LABELS}}
    path = write_wds(tmp_path / "one.tar", samples)
    with pytest.raises(ConversionError) as raised:
        convert(path)
    line, last = str(raised.value).splitlines()
    assert line.startswith("one.tar d/a: ")
    assert message in line
    assert 'on_error="skip"' in last
    assert os.listdir(tmp_path) == ["one.tar"]
    document, summary = convert(path, on_error="skip")
    assert contents(document, tmp_path) == {"d/b.jpg": jpeg("b")}
    (kind,) = summary.kind_counts
    yolo = {
        ".txt line 1: must be numbers": "row-invalid",
        "shard of capt": "row-invalid",
        "coordinates must be relative": "row-not-relative",
    }
    others = {"one image": "sample-no-image", "is not an image": "image-unreadable", **yolo}
    assert kind == next((kind for words, kind in others.items() if words in message), "sample-invalid")


@pytest.mark.parametrize(
    ("members", "message", "kind"),
    [
        ([("a.jpg", jpeg("a")), ("a.jpg", jpeg("b"))], "a: has two members .jpg", "member-repeated"),
        ([("a.jpg", jpeg("a")), ("a.JPG", jpeg("b"))], "a: has two members .jpg", "member-repeated"),
        (
            [("a.json", LABELS_TEXT), ("a.jpg", jpeg("a")), ("a.json", b"{}")],
            "a: has two members .json",
            "member-repeated",
        ),
        ([("a.json", LABELS_TEXT)], "a: must have one image, got .json", "sample-no-image"),
        (
            [("a.jpg", jpeg("a")), ("c.jpg", jpeg("c")), ("a.json", LABELS_TEXT)],
            "a: occurs again later in the shard; the members of a sample must follow each other; sort them",
            "member-repeated",
        ),
        (
            [("a.jpg", jpeg("a")), ("a.cls", b"0"), ("c.jpg", jpeg("c")), ("a.jpg", jpeg("b")), ("a.cls", b"1")],
            "a: occurs again later in the shard; two samples have the name, each with an image; give them",
            "member-repeated",
        ),
    ],
)
def test_groups_of_members_that_are_no_sample(tmp_path: Path, members: Any, message: str, kind: str) -> None:
    path = write_tar(tmp_path / "one.tar", [*members, ("b.jpg", jpeg("b")), ("b.json", LABELS_TEXT)])
    with pytest.raises(ConversionError, match=message):
        convert(path)
    document, summary = convert(path, on_error="skip")
    assert kind in summary.kind_counts
    found = contents(document, tmp_path)
    assert "a.jpg" not in found  # its labels would be missing
    assert found["b.jpg"] == jpeg("b")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (gzip.compress(b"x" * 1000, mtime=0), "a.tar: is compressed with GZIP; decompress it first: gunzip"),
        (b"hello" * 300, "a.tar: is not a tar: the header at byte 0 has a wrong checksum"),
        (b"short", "a.tar: is cut off in the member that begins at byte 0"),
        (b"", "a.tar: is cut off: it ends at byte 0 without a tar's end mark"),
        (bytes(1024), "a.tar: no image is left to write"),
    ],
)
def test_files_that_are_no_tar(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "a.tar").write_bytes(content)
    result = detaug("convert-webdataset", tmp_path / "a.tar", "-o", tmp_path / "a.json")
    assert result.code == 2
    assert message in result.err
    assert os.listdir(tmp_path) == ["a.tar"]


def test_compressed_by_webdataset(tmp_path: Path) -> None:
    path = write_wds(tmp_path / "a.tar.gz", {"a": {"jpg": jpeg("a")}})
    assert "compressed with GZIP" in detaug("convert-webdataset", path, "-o", tmp_path / "a.json").err


PAX_DAMAGED = "the pax header at byte 512 cannot be read|the header at byte 0 does not fit the one that follows"
"""The second one from Python 3.12.6 on, whose tarfile refuses the header."""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b" path=", b" path:", PAX_DAMAGED),
        (b"0.jpg\n", b"0.jpg_", PAX_DAMAGED),
        (b"", b"", "is cut off in the member that begins at byte 0"),  # behind the pax header
    ],
)
def test_damaged_pax_headers_give_no_other_name(tmp_path: Path, old: bytes, new: bytes, message: str) -> None:
    path = write_tar(tmp_path / "a.tar", [("x" * 120 + "/0.jpg", b"x")], tarfile.PAX_FORMAT)
    data = path.read_bytes()
    path.write_bytes(data.replace(old, new, 1) if old else data[:1024])
    with pytest.raises(ShardError, match=message):
        listed(path)


@pytest.mark.parametrize("size", [-512, 1 << 60])
@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_sizes_that_cannot_be(tmp_path: Path, format: int, size: int) -> None:
    """Of the second member, or of the header for its long name."""
    long = "" if format == tarfile.USTAR_FORMAT else "x" * 120
    data = bytearray(write_tar(tmp_path / "a.tar", [("a.jpg", b"x"), (f"{long}b.jpg", b"y")], format).read_bytes())
    data[1024 + 124 : 1024 + 136] = (b"\x80" if size > 0 else b"\xff") + size.to_bytes(11, "big", signed=True)
    (tmp_path / "a.tar").write_bytes(with_checksum(data, 1024))
    with pytest.raises(ShardError, match=r"is damaged|is cut off in the member that begins at byte 1,024"):
        listed(tmp_path / "a.tar")


def test_tars_joined_with_cat(tmp_path: Path) -> None:
    first, second = (write_tar(tmp_path / f"{name}.tar", [(f"{name}.jpg", jpeg(name))]) for name in "ab")
    first.write_bytes(first.read_bytes() + second.read_bytes())
    with pytest.raises(ShardError, match="has data after a tar's end mark"):
        listed(first)


def test_samples_without_labels_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConversionError, match=r"no record has the member .json, .cls or .txt, there are jpg"):
        one(tmp_path, {})


# ----------------------------------------------------------------------------------------------------------
# Damage


def check_damages(path: Path, step: int) -> None:
    """Cut a small shard at every position, and flip bits of every byte; what is left must be whole samples."""
    image = image_bytes(size=(2, 2), kind="PNG")
    text = json.dumps({"annotations": [{"bbox": [0, 0, 1, 1], "category": "x"}]}).encode()
    members = [
        (f"{name}.{extension}", content) for name in "abc" for extension, content in (("json", text), ("png", image))
    ]
    good = write_tar(path, members).read_bytes()
    whole, kinds = images_left(webdataset_to_coco, path)
    assert (len(whole), kinds) == (3, [])
    for position, is_cut in damages(path, good, range(0, 7 * 512 + 1024, step)):
        found, kinds = images_left(webdataset_to_coco, path)
        if is_cut:
            assert found.items() <= whole.items()
            assert len(found) == 3 or kinds
            continue
        assert found.keys() <= whole.keys()
        if position // 512 % 2 == 0:  # a header; a tar has no checksum of contents
            assert found.items() <= whole.items()
            assert len(found) == 3 or kinds[0] in ("shard-broken", "shard-unreadable")


def test_a_damaged_shard_never_gives_other_samples(tmp_path: Path) -> None:
    check_damages(tmp_path / "a.tar", step=31)


@pytest.mark.slow
def test_a_shard_damaged_anywhere_never_gives_other_samples(tmp_path: Path) -> None:
    check_damages(tmp_path / "a.tar", step=1)


# ----------------------------------------------------------------------------------------------------------
# The command


def test_the_command_and_plain_files(tmp_path: Path) -> None:
    path = write_wds(tmp_path / "a.tar", {f"d/{name}": {"jpg": jpeg(name), "json": LABELS} for name in "ab"})
    output, folder, report = tmp_path / "a.json", tmp_path / "images", tmp_path / "report.json"
    result = detaug("convert-webdataset", path, "-o", output, "--extract", folder, "--report", report)
    assert (result.code, result.err) == (0, "")
    assert result.out.splitlines()[-1] == f'load it: da.CocoReader("{folder}", "{output}")'
    assert {each.name: each.read_bytes() for each in (folder / "d").iterdir()} == {f"{n}.jpg": jpeg(n) for n in "ab"}
    document = json.loads(output.read_bytes())
    assert not any({"shard", "offset", "length", "crc32c"} & image.keys() for image in document["images"])
    options = ["--classes", "dog,cat", "--first-label", "1", "--on-error", "skip", "--jobs", "2", "--quiet"]
    assert detaug("convert-webdataset", path, "-o", output, *options) == (0, "", "")
    assert classes(json.loads(output.read_bytes())) == {1: "dog", 2: "cat"}
