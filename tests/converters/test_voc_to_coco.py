"""Pascal VOC to COCO: every kind of odd file that datasets have, and the result."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import detaug, usage_error
from full_disk import disk_for_files_of
from PIL import Image
from places import REPOSITORY, SHARED_DATA, TESTS
from voc_files import (
    HEIGHT,
    WIDTH,
    box_xml,
    boxes_of,
    convert,
    devkit,
    image_bytes,
    rotated_jpeg,
    voc_xml,
    with_segment,
    write_files,
)

from detaug.converters import KINDS, ConversionError, Finding, VocSummary, check_coco, coco_to_yolo, voc_to_coco
from detaug.converters.records.record import AnnotationFiles
from detaug.converters.records.to_coco import Options, records_to_coco
from detaug.converters.voc.to_coco import read_voc

DATA = SHARED_DATA
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"the real datasets are not there: {DATA}")


def one(folder: Path, *objects: str, xml: str | bytes | None = None, **options: Any) -> tuple[Any, VocSummary]:
    """Convert a dataset of one image, 100 x 80."""
    return convert(devkit(folder / "voc", {"a": voc_xml(*objects) if xml is None else xml}), **options)


def kinds(summary: VocSummary) -> dict[str, int]:
    return summary.kind_counts


def refused(root: Path, **options: Any) -> ConversionError:
    """Return the error of a dataset that cannot be converted; there must be no output."""
    output = root.parent / "refused.json"
    with pytest.raises(ConversionError) as caught:
        voc_to_coco(root, output, **options)
    assert not output.exists()
    assert not list(root.parent.glob(".*partial"))
    return caught.value


# ---------------------------------------------------------------------------------------------- geometry


def test_box_lies_on_the_painted_pixels(tmp_path: Path) -> None:
    pixels = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    pixels[20:31, 10:16] = 255  # rows 21 to 31 and columns 11 to 16, counted from 1
    root = devkit(tmp_path / "voc", {"a": voc_xml(box_xml(11, 21, 16, 31))}, {})
    Image.fromarray(pixels).save(root / "JPEGImages/a.png")
    document, _ = convert(root)
    x, y, width, height = boxes_of(document)[0]
    assert pixels[y : y + height, x : x + width].min() == 255
    assert pixels.astype(bool).sum() == width * height * 3


@pytest.mark.parametrize(
    ("origin", "corners", "expected", "found"),
    [
        ("one", (1, 1, 100, 80), [0, 0, 100, 80], {}),
        ("zero", (0, 0, 100, 80), [0, 0, 100, 80], {}),
        ("one", (100, 80, 100, 80), [99, 79, 1, 1], {}),  # the last pixel
        ("zero", (99, 79, 100, 80), [99, 79, 1, 1], {}),
        ("one", (5, 5, 5, 9), [4, 4, 1, 5], {}),  # xmin = xmax is one pixel wide
        ("zero", (5, 5, 5, 9), None, {"box-empty": 1}),
        ("zero", (50, 5, 50.01, 9), [50, 5, pytest.approx(0.01), 4], {}),  # 50.01 - 50 is less than 0.01
        ("one", (10.5, 20.25, 30, 40), [9.5, 19.25, 20.5, 20.75], {}),
        ("one", ("1.05e1", "2e1", "3E+1", " 40 "), [9.5, 19, 20.5, 21], {}),
        ("one", ("1\n", "+2", "3.", ".4e1"), [0, 1, 3, 3], {}),
        ("one", (30, 40, 10, 20), [9, 19, 21, 21], {"box-reversed": 1}),
        ("one", (30, 20, 10, 40), [9, 19, 21, 21], {"box-reversed": 1}),
        ("zero", (30, 40, 10, 20), [10, 20, 20, 20], {"box-reversed": 1}),
        ("one", (90, 70, 120, 81), [89, 69, 11, 11], {"box-clipped": 1}),
        ("one", (-5, -5, 10, 10), [0, 0, 10, 10], {"box-clipped": 1}),
        ("zero", (-5, -5, 10, 10), [0, 0, 10, 10], {"box-clipped": 1}),
        ("one", (0, 1, 10, 10), [0, 0, 10, 10], {"box-clipped": 1, "coordinate-zero": 1}),
        ("zero", (0, 1, 10, 10), [0, 1, 10, 9], {}),
        ("one", (101, 10, 120, 20), None, {"box-outside": 1}),
        ("one", (10, 81, 20, 90), None, {"box-outside": 1}),
        ("one", (-9, 10, -2, 20), None, {"box-outside": 1}),
        ("one", (-9, -9, 0, 0), None, {"box-outside": 1, "coordinate-zero": 1}),
        ("zero", (100, 10, 120, 20), None, {"box-outside": 1}),
        ("one", ("-1e308", 1, "1e308", 80), [0, 0, 100, 80], {"box-clipped": 1}),
        ("one", (99.999, 10, 100.0005, 20), [98.999, 9, 1.001, 11], {"box-clipped": 1}),
        ("one", (100.995, 10, 120, 20), None, {"box-outside": 1}),  # 0.005 pixels of it are inside
    ],
)
def test_corners(tmp_path: Path, origin: str, corners: tuple[object, ...], expected: object, found: object) -> None:
    document, summary = one(tmp_path, box_xml(*corners), box_xml(5, 6, 50, 60), origin=origin)
    *first, _ = boxes_of(document)  # of the second one, without which a lost box would leave nothing to write
    assert first == ([] if expected is None else [pytest.approx(expected, abs=1e-9)])
    assert kinds(summary) == found


def test_whole_numbers_stay_whole_and_others_exact(tmp_path: Path) -> None:
    one(tmp_path, box_xml("10.0", 20, "30", 40), box_xml(10.1, 20.7, 30.3, 40.9))
    text = (tmp_path / "out.json").read_text()
    assert '"bbox":[9,19,21,21],"area":441,' in text
    x, y, width, height = boxes_of(json.loads(text))[1]
    assert (x, y) == (10.1 - 1, 20.7 - 1)
    assert (x + width, y + height) == pytest.approx((30.3, 40.9), abs=1e-13)


def test_fractions_never_leave_the_image_by_rounding(tmp_path: Path) -> None:
    draw = random.Random(0)
    objects = [box_xml(draw.uniform(1, 99), draw.uniform(1, 79), 100, 80) for _ in range(2000)]
    document, _ = one(tmp_path, *objects)  # convert() checks every box
    assert len(document["annotations"]) == 2000


@pytest.mark.parametrize("text", ["nan", "NaN", "inf", "-Infinity", "1e999", "", " ", "1,5", "0x10", "1_0", "ten"])
def test_coordinates_that_are_no_numbers_are_refused(tmp_path: Path, text: str) -> None:
    root = devkit(
        tmp_path / "voc", {"a": f"<annotation>\n{box_xml(1, 1, 5, 5)}\n{box_xml(1, text, 5, 5)}</annotation>"}
    )
    error = refused(root)
    assert [(f.kind, f.object_index, f.line) for f in error.findings] == [("coordinate-invalid", 1, 3)]
    assert "Annotations/a.xml:3: object 1: <ymin> must be a finite number, got" in str(error)


def test_coordinates_of_zero_are_one_line_with_the_remedy(tmp_path: Path) -> None:
    _, summary = one(tmp_path, box_xml(0, 0, 10, 10), box_xml(0, 5, 10, 10))
    lines = str(summary).splitlines()
    assert sum("--origin zero" in line for line in lines) == 1
    assert "--origin zero" not in str(one(tmp_path, box_xml(1, 1, 10, 10))[1])


def test_findings_have_the_values_before_and_after(tmp_path: Path) -> None:
    xml = f"<annotation>\n{box_xml(5, 5, 9, 9)}\n{box_xml(90, 70, 120, 90)}</annotation>"
    _, summary = one(tmp_path, xml=xml)
    clipped = next(finding for finding in summary.findings if finding.kind == "box-clipped")
    assert clipped == Finding("Annotations/a.xml", "box-clipped", 1, 3, [90, 70, 120, 90], [89, 69, 11, 11])


def test_repeated_box_is_kept_and_reported(tmp_path: Path) -> None:
    document, summary = one(tmp_path, *[box_xml(1, 1, 9, 9)] * 2, box_xml(1, 1, 9, 9, name="dog"))
    assert len(document["annotations"]) == 3
    assert [(f.kind, f.object_index) for f in summary.findings] == [("box-repeated", 1)]


# ---------------------------------------------------------------------------------------------- objects


def test_child_order_parts_actions_and_comments_are_ignored(tmp_path: Path) -> None:
    part = f"<part>{box_xml(1, 1, 3, 3, name='head')}<name>head</name></part>"
    xml = f"""<annotation><!-- none --><object><?pi?><actions><jumping>1</jumping></actions>{part}
        <bndbox><ymax>40</ymax><!-- c --><xmax>30</xmax><ymin>20</ymin><xmin>1<!-- split -->0</xmin></bndbox>
        <pose>Left</pose><name>c<!-- split -->at</name></object>
        <size><height>80</height><width>100</width></size></annotation>"""
    document, summary = one(tmp_path, xml=xml)
    assert boxes_of(document) == [[9, 19, 21, 21]]
    assert list(summary.class_counts) == ["cat"]
    assert kinds(summary) == {"element-unused": 2}  # counted, not read
    assert "have no place in the JSON file: <actions>, <part>\n" in str(summary)


@pytest.mark.parametrize(
    ("more", "expected", "found"),
    [
        ("", (0, 0, 0, "Unspecified"), {}),
        (
            "<difficult>1</difficult><truncated>1</truncated><occluded>1</occluded>",
            (1, 1, 1, "Unspecified"),
            {},
        ),
        ("<difficult> 1 </difficult><pose> Left\n</pose>", (1, 0, 0, "Left"), {}),
        ("<truncated>true</truncated><occluded/><pose/>", (0, 1, 0, "Unspecified"), {}),
        ("<difficult>2</difficult><truncated>x</truncated>", (0, 0, 0, "Unspecified"), {"flag-invalid": 2}),
    ],
)
def test_flags(tmp_path: Path, more: str, expected: object, found: object) -> None:
    document, summary = one(tmp_path, box_xml(1, 1, 9, 9, more=more))
    row = document["annotations"][0]
    assert (row["difficult"], row["truncated"], row["occluded"], row["pose"]) == expected
    assert row["iscrowd"] == 0
    assert kinds(summary) == found


@pytest.mark.parametrize(
    ("difficult", "expected", "found"),
    [
        ("keep", [(0, 1), (0, 0)], {}),
        ("crowd", [(1, 1), (0, 0)], {"difficult-crowd": 1}),
        ("drop", [(0, 0)], {"difficult-dropped": 1}),
    ],
)
def test_difficult(tmp_path: Path, difficult: str, expected: object, found: object) -> None:
    objects = (box_xml(1, 1, 9, 9, more="<difficult>1</difficult>"), box_xml(2, 2, 9, 9))
    document, summary = one(tmp_path, *objects, difficult=difficult)
    assert [(row["iscrowd"], row["difficult"]) for row in document["annotations"]] == expected
    assert kinds(summary) == found


@pytest.mark.parametrize(
    ("name", "expected", "found"),
    [
        (" cat ", "cat", {"name-spaces": 1}),
        ("traffic\n  light", "traffic light", {"name-spaces": 1}),
        ("猫", "猫", {}),
        ("Katze&amp;Söhne", "Katze&Söhne", {}),
        ("<![CDATA[a<b]]>", "a<b", {}),
    ],
)
def test_class_names(tmp_path: Path, name: str, expected: str, found: object) -> None:
    document, summary = one(tmp_path, box_xml(1, 1, 9, 9, name=name))
    assert [category["name"] for category in document["categories"]] == [expected]
    assert expected in (tmp_path / "out.json").read_text(encoding="utf-8")
    assert kinds(summary) == found


def test_class_names_that_look_alike_are_reported(tmp_path: Path) -> None:
    _, summary = one(tmp_path, box_xml(1, 1, 9, 9, name="Cat"), box_xml(2, 1, 9, 9, name="cat"))
    assert kinds(summary) == {"class-alike": 1}


@pytest.mark.parametrize(
    ("objects", "kind"),
    [
        (box_xml(1, 1, 9, 9, name=""), "object-no-name"),
        (box_xml(1, 1, 9, 9, name=" \n"), "object-no-name"),
        (box_xml(1, 1, 9, 9, name="<b>cat</b>"), "object-no-name"),
        (box_xml(1, 1, 9, 9).replace("<name>cat</name>", ""), "object-no-name"),
        ("<object><name>cat</name></object>", "object-no-box"),
        ("<object><name>cat</name><polygon/></object>", "object-no-box"),
        (box_xml(1, 1, 9, 9).replace("<xmax>9</xmax>", ""), "object-no-box"),
        (box_xml(1, 1, 9, 9, more="<name>dog</name>"), "child-repeated"),
        (box_xml(1, 1, 9, 9, more="<bndbox/>"), "child-repeated"),
        (box_xml("1</xmin><xmin>2", 1, 9, 9), "child-repeated"),
    ],
)
def test_incomplete_objects_are_refused(tmp_path: Path, objects: str, kind: str) -> None:
    error = refused(devkit(tmp_path / "voc", {"a": voc_xml(objects)}))
    assert [(f.kind, f.object_index, f.line) for f in error.findings] == [(kind, 0, 1)]


def test_no_objects_is_an_image_without_boxes(tmp_path: Path) -> None:
    document, summary = one(tmp_path)
    assert (len(document["images"]), document["annotations"], document["categories"]) == (1, [], [])
    assert summary.images_without_boxes == 1


def test_classes_give_the_order_and_drop_others(tmp_path: Path) -> None:
    objects = [box_xml(n, 1, 50, 50, name=name) for n, name in enumerate(["cat", "dog", "owl"], 1)]
    document, summary = one(tmp_path, *objects, classes=["owl", "cat", "yak"])
    assert [category["name"] for category in document["categories"]] == ["owl", "cat", "yak"]
    assert [row["category_id"] for row in document["annotations"]] == [2, 1]
    assert kinds(summary) == {"class-not-listed": 1, "class-unused": 1}
    assert summary.class_counts == {"owl": 1, "cat": 1, "yak": 0}
    assert "is not among --classes: dog\n" in str(summary)
    assert "has no object: yak\n" in str(summary)


def test_a_class_that_matches_nothing_gets_a_suggestion(tmp_path: Path) -> None:
    objects = [box_xml(n, 1, 50, 50, name=name) for n, name in enumerate(["RBC", "WBC", "Platelets"], 1)]
    _, summary = one(tmp_path, *objects, classes=["RBC", "wbc", "platelet", "yak"])
    text = "has no object: wbc (did you mean WBC?), platelet (did you mean Platelets?), yak\n"
    assert text in str(summary)
    unused = [str(found) for found in summary.findings if found.kind == "class-unused"]
    assert unused[0] == "wbc is listed and has no object; did you mean WBC? [class-unused]"


def test_classes_that_leave_no_box_are_refused(tmp_path: Path) -> None:
    root, report = devkit(tmp_path / "voc", {"a": voc_xml(box_xml(1, 1, 9, 9, name="RBC"))}), tmp_path / "report.json"
    line = usage_error("convert-voc", root, "-o", tmp_path / "out.json", "--classes", "rbc,wbc", "--report", report)
    assert "no box is left to write; its boxes have the classes RBC, but classes lists rbc (did you mean RBC?)" in line
    assert not (tmp_path / "out.json").exists()
    assert json.loads(report.read_bytes())["counts"] == {"class-not-listed": 1, "class-unused": 2}


def test_a_file_of_classes_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    (tmp_path / "classes.txt").write_bytes(b"caf\xe9\n")
    root = devkit(tmp_path / "voc", {"a": voc_xml()})
    line = usage_error("convert-voc", root, "-o", tmp_path / "out.json", "--classes", tmp_path / "classes.txt")
    assert "classes.txt must be UTF-8 text, got byte 0xe9 at 3" in line


def test_classes_for_images_without_objects_are_fine(tmp_path: Path) -> None:
    assert one(tmp_path, classes=["cat"])[1].class_counts == {"cat": 0}


def test_classes_without_a_list_are_sorted(tmp_path: Path) -> None:
    objects = [box_xml(n, 1, 50, 50, name=name) for n, name in enumerate(["owl", "dog", "cat"], 1)]
    document, _ = one(tmp_path, *objects)
    assert [category["name"] for category in document["categories"]] == ["cat", "dog", "owl"]


# ---------------------------------------------------------------------------------------------- sizes


@pytest.mark.parametrize(
    ("size", "found"),
    [
        ((100, 80), {}),
        (("100.0", " 80 "), {}),
        (None, {"size-missing": 1}),
        ((0, 0), {"size-missing": 1}),
        (("", ""), {"size-missing": 1}),
        (("nan", "inf"), {"size-missing": 1}),
        ((10, 8), {"size-conflict": 1}),
        ((80, 100), {"size-conflict": 1}),
    ],
)
def test_the_image_is_the_truth_for_its_size(tmp_path: Path, size: Any, found: object) -> None:
    document, summary = one(tmp_path, xml=voc_xml(box_xml(1, 1, 100, 80), size=size))
    assert (document["images"][0]["width"], document["images"][0]["height"]) == (100, 80)
    assert boxes_of(document) == [[0, 0, 100, 80]]
    assert kinds(summary) == found


def test_a_stale_size_in_every_file_is_counted(tmp_path: Path) -> None:
    root = devkit(tmp_path / "voc", {stem: voc_xml(box_xml(1, 1, 100, 80), size=(50, 40)) for stem in "abc"})
    document, summary = convert(root)
    assert boxes_of(document) == [[0, 0, 100, 80]] * 3
    assert kinds(summary) == {"size-conflict": 3}
    assert summary.findings[0] == Finding("Annotations/a.xml", "size-conflict", before=[50, 40], after=[100, 80])


@pytest.mark.parametrize("orientation", range(10))
def test_exif_orientation_counts(tmp_path: Path, orientation: int) -> None:
    is_turned = orientation in (5, 6, 7, 8)
    size = (HEIGHT, WIDTH) if is_turned else (WIDTH, HEIGHT)
    xmls = {"a": voc_xml(box_xml(1, 1, *size), size=size)}
    document, summary = convert(devkit(tmp_path / "voc", xmls, {"a.jpg": rotated_jpeg(orientation)}))
    assert (document["images"][0]["width"], document["images"][0]["height"]) == size
    assert boxes_of(document) == [[0, 0, *size]]
    assert kinds(summary) == ({} if 1 <= orientation <= 8 else {"orientation-invalid": 1})


def test_a_size_from_before_the_rotation_is_told_apart(tmp_path: Path) -> None:
    xmls = {"a": voc_xml(box_xml(1, 1, 10, 10))}
    _, summary = convert(devkit(tmp_path / "voc", xmls, {"a.jpg": rotated_jpeg(6)}))
    assert kinds(summary) == {"size-unrotated": 1}


# ---------------------------------------------------------------------------------------------- encodings


@pytest.mark.parametrize(
    "data",
    [
        voc_xml(box_xml(1, 1, 9, 9, name="猫")).encode(),
        b"\xef\xbb\xbf" + voc_xml(box_xml(1, 1, 9, 9, name="猫")).encode(),
        ('<?xml version="1.0" encoding="UTF-16"?>' + voc_xml(box_xml(1, 1, 9, 9, name="猫"))).encode("utf-16"),
        voc_xml(box_xml(1, 1, 9, 9, name="猫")).encode("utf-16"),
        ('<?xml version="1.0" encoding="GBK"?>' + voc_xml(box_xml(1, 1, 9, 9, name="猫"))).encode("gbk"),
        voc_xml(box_xml(1, 1, 9, 9, name="猫")).replace("><", ">\r\n<").encode(),
    ],
    ids=["utf-8", "utf-8-bom", "utf-16-declared", "utf-16-bom", "gbk", "crlf"],
)
def test_encodings(tmp_path: Path, data: bytes) -> None:
    document, _ = one(tmp_path, xml=data)
    assert [category["name"] for category in document["categories"]] == ["猫"]
    assert boxes_of(document) == [[0, 0, 9, 9]]


def test_text_in_an_undeclared_encoding_is_refused(tmp_path: Path) -> None:
    error = refused(devkit(tmp_path / "voc", {"a": voc_xml(box_xml(1, 1, 9, 9, name="狗")).encode("gbk")}))
    assert [finding.kind for finding in error.findings] == ["xml-broken"]


def test_file_names_beyond_ascii(tmp_path: Path) -> None:
    root = devkit(tmp_path / "voc", {"猫 1": voc_xml()}, splits={"train": "猫 1\r\n"})
    document, _ = convert(root, split="train")
    assert document["images"][0]["file_name"] == "猫 1.jpg"
    assert "猫 1.jpg" in (tmp_path / "out.json").read_text(encoding="utf-8")


def test_a_file_name_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    root = devkit(tmp_path / "voc", {"a": voc_xml()})
    (root / "JPEGImages" / os.fsdecode(b"b\xff.jpg")).write_bytes(image_bytes())
    report = tmp_path / "report.json"
    error = refused(root, report=report)
    assert [finding.kind for finding in error.findings] == ["file-name-not-utf8"]
    assert json.loads(report.read_bytes())["findings"][0]["file"] == "JPEGImages/b\udcff.jpg"


# ---------------------------------------------------------------------------------------------- hostile XML

BOMB = "".join(f'<!ENTITY b{n} "{f"&b{n - 1};" * 10}">' for n in range(1, 12))


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"", "xml-broken"),
        (b"\0" * 100, "xml-broken"),
        (b"not xml", "xml-broken"),
        (voc_xml(box_xml(1, 1, 9, 9))[:-30].encode(), "xml-broken"),
        (voc_xml(box_xml(1, 1, 9, 9, name="&nope;")).encode(), "xml-broken"),
        (voc_xml(box_xml(1, 1, 9, 9, name="a\x01b")).encode(), "xml-broken"),
        ((voc_xml() * 2).encode(), "xml-broken"),
        (b"<html><body/></html>", "xml-not-voc"),
        (b'<annotation xmlns="urn:x"/>', "xml-not-voc"),
        (b"<!DOCTYPE annotation>" + voc_xml().encode(), "xml-doctype"),
        (
            f'<!DOCTYPE a [<!ENTITY b0 "ha">{BOMB}]>{voc_xml(box_xml(1, 1, 9, 9, name="&b11;"))}'.encode(),
            "xml-doctype",
        ),
        (
            f'<!DOCTYPE a [<!ENTITY b0 "ha">{BOMB}]>{voc_xml(box_xml(1, 1, 9, 9, name="&b11;"))}'.encode("utf-16"),
            "xml-doctype",
        ),
        (f'<!DOCTYPE a SYSTEM "http://127.0.0.1:9/x.dtd">{voc_xml()}'.encode(), "xml-doctype"),
        (b"<a>" * 100_000 + b"</a>" * 100_000, "xml-too-large"),
        (b"<annotation>" + b"<object>" * 100_000, "xml-too-large"),
        (b"<annotation>" + b" " * (8 << 20) + b"</annotation>", "xml-too-large"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bad_xml_is_refused_and_named(tmp_path: Path, data: bytes, kind: str) -> None:
    root = devkit(tmp_path / "voc", {"a": data, "b": voc_xml()})
    error = refused(root)
    assert [(finding.file, finding.kind) for finding in error.findings] == [("Annotations/a.xml", kind)]
    document, summary = convert(root, on_error="skip")
    assert [image["file_name"] for image in document["images"]] == ["b.jpg"]
    assert kinds(summary) == {kind: 1}


def in_utf7(text: str) -> bytes:
    """Encode in UTF-7, where "<!" may be written as a code that no search for bytes finds."""
    data = text.encode("utf-7").replace(b"+ADwAIQ-", b"<!").replace(b"<!", b"+ADwAIQ-")
    return b'<?xml version="1.0" encoding="UTF-7"?>' + data


@pytest.mark.parametrize(
    "encode", [str.encode, lambda text: text.encode("utf-16"), lambda text: text.encode("utf-32"), in_utf7]
)
@pytest.mark.parametrize(
    "doctype",
    [
        '<!DOCTYPE a [<!ENTITY x "cat">]>',
        '<!DOCTYPE a [<!ENTITY x SYSTEM "file://{secret}">]>',
        '<!DOCTYPE a SYSTEM "file://{secret}">',
        '<!DOCTYPE a SYSTEM "{secret}" [<!ENTITY x "cat">]>',
        '<!DOCTYPE a [<!ENTITY % p SYSTEM "file://{secret}"> %p;]>',
    ],
)
def test_nothing_outside_is_read(tmp_path: Path, doctype: str, encode: Callable[[str], bytes]) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("cat")  # no DTD: to read it would be a syntax error
    text = doctype.format(secret=secret) + voc_xml(box_xml(1, 1, 9, 9, name="&x;"))
    error = refused(devkit(tmp_path / "voc", {"a": encode(text)}))
    assert [finding.kind for finding in error.findings] == ["xml-doctype"]


def test_200_megabytes_are_refused_unread(tmp_path: Path) -> None:
    root = devkit(tmp_path / "voc", {"a": voc_xml(), "b": voc_xml()})
    with open(root / "Annotations/a.xml", "r+b") as file:
        file.truncate(200 << 20)  # a hole: takes no room on the disk
    script = """if True:
        import sys
        from detaug.converters import voc_to_coco
        voc_to_coco(sys.argv[1], sys.argv[2], on_error="skip")
        print(*[line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")])"""
    command = [sys.executable, "-c", script, str(root), str(tmp_path / "out.json")]
    kilobytes = int(subprocess.run(command, check=True, capture_output=True, cwd=REPOSITORY).stdout)
    assert kilobytes < 150 << 10


def test_broken_xml_is_named_with_its_line(tmp_path: Path) -> None:
    error = refused(devkit(tmp_path / "voc", {"a": "<annotation>\n<object>\n</annotation>"}))
    assert str(error).splitlines()[0].startswith("Annotations/a.xml:3: does not parse: ")


def test_every_bad_file_is_listed_then_the_count_and_the_remedy(tmp_path: Path) -> None:
    xmls = {"a": "<annotation>", "b": voc_xml(box_xml(1, 1, 9, 9)), "c": voc_xml("<object/>"), "d": voc_xml()}
    root = devkit(tmp_path / "voc", xmls)
    (root / "JPEGImages/d.jpg").write_bytes(b"\xff\xd8 no jpeg")
    report = tmp_path / "report.json"
    lines = str(refused(root, report=report)).splitlines()
    assert [line.split(":")[0] for line in lines[:3]] == [
        "Annotations/a.xml",
        "Annotations/c.xml",
        "JPEGImages/d.jpg",
    ]
    assert lines[3].startswith("3 problems")
    assert 'on_error="skip"' in lines[3]
    assert [f["kind"] for f in json.loads(report.read_bytes())["findings"]] == [
        "xml-broken", "object-no-name", "image-unreadable",
    ]  # fmt: skip
    document, summary = convert(root, on_error="skip")
    assert [image["file_name"] for image in document["images"]] == ["b.jpg"]
    assert "skipped" in str(summary)


def test_many_bad_files_are_cut_short(tmp_path: Path) -> None:
    error = refused(devkit(tmp_path / "voc", {f"{n:03}": "<" for n in range(150)}))
    assert len(error.findings) == 150
    lines = str(error).splitlines()
    assert len(lines) == 102
    assert '50 more; report="FILE"' in lines[100]


def test_a_folder_with_no_image_of_any_xml_is_one_error(tmp_path: Path) -> None:
    root = devkit(tmp_path / "voc", {f"{n}": voc_xml(filename=f"{n}.jpg") for n in range(3)})
    other = tmp_path / "other"
    other.mkdir()
    assert str(refused(root, images=other)) == (
        f"{other} has the image of none of the 3 entries of Pascal VOC, the first is '0.jpg'; give the folder of the "
        "images: --images of convert, convert-voc and train, IMAGES of convert-dota"
    )


# ---------------------------------------------------------------------------------------------- images


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    root = devkit(tmp_path / "voc", {"b": voc_xml()}, {"a.jpg": image_bytes()})
    for name in ("Annotations/a.xml", "JPEGImages/b.jpg"):
        (root / name).symlink_to("/proc/self/mem")  # opens, but reading its beginning is an input/output error
    assert [f.kind for f in refused(root).findings] == ["xml-unreadable", "image-unreadable"]


def test_an_image_in_another_folder_is_reported(tmp_path: Path) -> None:
    files = {"one/labels/a.xml": voc_xml(box_xml(1, 1, 9, 9)), "one/photos/a.jpg": image_bytes()}
    document, summary = convert(write_files(tmp_path / "flat", files))
    assert boxes_of(document, "one/photos/a.jpg") == [[0, 0, 9, 9]]
    assert kinds(summary) == {"image-elsewhere": 1}


@pytest.mark.parametrize(
    ("filename", "found"),
    [
        ("a.jpg", {}),
        ("", {}),
        ("a", {}),
        ("A.JPG", {}),
        ("b.jpg", {"filename-differs": 1}),
        ("x/y/a.jpg", {"filename-differs": 1}),
        (r"C:\photos\a.jpg", {"filename-differs": 1}),
        ("../../etc/passwd", {"filename-differs": 1}),
    ],
)
def test_the_stem_goes_before_the_filename(tmp_path: Path, filename: str, found: object) -> None:
    document, summary = one(tmp_path, xml=voc_xml(box_xml(1, 1, 9, 9), filename=filename))
    assert [image["file_name"] for image in document["images"]] == ["a.jpg"]
    assert kinds(summary) == found


@pytest.mark.parametrize(
    "filename",
    [
        "photo.jpg",
        "photo",
        "PHOTO.JPG",
        "some/where/photo.jpg",
        r"C:\x\photo.jpg",
        "../photo.jpg",
        " photo.jpg\n",
    ],
)
def test_the_filename_finds_what_the_stem_does_not(tmp_path: Path, filename: str) -> None:
    root = devkit(
        tmp_path / "voc", {"a": voc_xml(box_xml(1, 1, 9, 9), filename=filename)}, {"photo.jpg": image_bytes()}
    )
    document, summary = convert(root)
    assert [image["file_name"] for image in document["images"]] == ["photo.jpg"]
    assert boxes_of(document) == [[0, 0, 9, 9]]
    assert kinds(summary) == {"filename-used": 1}


def test_of_images_with_one_stem_the_filename_names_one(tmp_path: Path) -> None:
    xml = voc_xml(box_xml(1, 1, 9, 9), filename="photo.png")
    images = {"photo.jpg": image_bytes(), "photo.png": image_bytes(kind="PNG")}
    document, summary = convert(devkit(tmp_path / "voc", {"a": xml}, images))
    assert kinds(summary) == {"filename-used": 1, "unlabeled-kept": 1}
    names = {image["id"]: image["file_name"] for image in document["images"]}
    assert names[document["annotations"][0]["image_id"]] == "photo.png"


@pytest.mark.parametrize("filename", ["", "../outside.jpg", "{}/outside.jpg", "..", "/", "nothing.jpg", "\u202e"])
def test_an_image_outside_the_folder_is_not_found(tmp_path: Path, filename: str) -> None:
    (tmp_path / "outside.jpg").write_bytes(image_bytes())
    xml = voc_xml(filename=filename.format(tmp_path)).replace("<size>", f"<path>{tmp_path}/outside.jpg</path><size>")
    root = devkit(tmp_path / "voc", {"a": xml}, {})
    (root / "outside.jpg").write_bytes(image_bytes())
    assert [finding.kind for finding in refused(root).findings] == ["image-missing"]


@pytest.mark.parametrize("names", [("a.jpg", "a.jpg.jpg", "a.JPG"), ("a.jpg", "a.jpg", "a.png")])
def test_an_xml_may_have_the_whole_name_of_its_image(tmp_path: Path, names: tuple[str, str, str]) -> None:
    xml, meant, other = names
    root = devkit(tmp_path / "voc", {xml: voc_xml(box_xml(1, 1, 9, 9), filename="")}, {meant: image_bytes()})
    (root / "JPEGImages" / other).write_bytes(rotated_jpeg(1))
    content, _ = convert(root)
    names_of_ids = {row["id"]: row["file_name"] for row in content["images"]}
    assert [names_of_ids[row["image_id"]] for row in content["annotations"]] == [meant]


def test_an_image_of_nearly_the_name_is_named(tmp_path: Path) -> None:
    images = {"IMG_001.jpg": image_bytes(), "b.jpg": rotated_jpeg(1)}
    root = devkit(tmp_path / "voc", {"IMG-1": voc_xml(filename=""), "b": voc_xml(filename="b.jpg")}, images)
    (finding,) = refused(root).findings
    assert str(finding).startswith("Annotations/IMG-1.xml: no image in ")
    assert "; IMG_001.jpg has nearly its name and no annotations: rename one of them [image-missing]" in str(finding)
    (root / "JPEGImages/IMG_001.jpg").rename(root / "JPEGImages/IMG-1.jpg")
    assert len(convert(root)[0]["images"]) == 2


def test_an_image_of_an_xml_outside_the_split_is_not_named(tmp_path: Path) -> None:
    xmls = {"IMG-1": voc_xml(filename=""), "IMG_001": voc_xml(filename=""), "b": voc_xml(filename="b.jpg")}
    images = {"IMG_001.jpg": image_bytes(), "b.jpg": rotated_jpeg(1)}
    root = devkit(tmp_path / "voc", xmls, images, splits={"train": "IMG-1\nb\n"})
    (finding,) = refused(root, split="train").findings
    assert (finding.kind, "nearly" in str(finding)) == ("image-missing", False)


def test_a_filename_shared_by_several_xml(tmp_path: Path) -> None:
    xmls = {stem: voc_xml(box_xml(n, 1, 9, 9), filename="a.jpg") for n, stem in enumerate(["a", "b", "c"], 1)}
    images = {name: with_segment(image_bytes(), name.encode(), 0xFE) for name in ("a.jpg", "b.jpg")}
    error = refused(devkit(tmp_path / "voc", xmls, images))
    assert [(f.file, f.kind) for f in error.findings] == [("Annotations/c.xml", "image-shared")]
    document, _ = convert(tmp_path / "voc", on_error="skip")
    assert [boxes_of(document, name) for name in images] == [[[0, 0, 9, 9]], [[1, 0, 8, 9]]]


def test_an_image_of_an_xml_outside_the_split_is_not_taken(tmp_path: Path) -> None:
    xmls = {"a": voc_xml(filename="b.jpg"), "b": voc_xml()}
    root = devkit(tmp_path / "voc", xmls, {"b.jpg": image_bytes()}, {"train": "a"})
    error = refused(root, split="train")
    assert [(f.file, f.kind) for f in error.findings] == [("Annotations/a.xml", "image-shared")]
    write_files(root, {"Annotations/a.xml": voc_xml("<object/>", filename="b.jpg")})
    found = {(f.file, f.kind) for f in refused(root, split="train").findings}
    assert found == {("Annotations/a.xml", "image-shared"), ("Annotations/a.xml", "object-no-name")}


def test_stems_that_are_one_number(tmp_path: Path) -> None:
    xmls = {stem: voc_xml(box_xml(n, 1, 9, 9)) for n, stem in enumerate(["1", "01", "001"], 1)}
    document, summary = convert(devkit(tmp_path / "voc", xmls))
    assert [image["file_name"] for image in document["images"]] == ["001.jpg", "01.jpg", "1.jpg"]
    assert boxes_of(document) == [[2, 0, 7, 9], [1, 0, 8, 9], [0, 0, 9, 9]]
    assert kinds(summary) == {}


def test_case_of_extension_and_stem(tmp_path: Path) -> None:
    images = {"a.JPG": image_bytes(), "B.jpeg": image_bytes((50, 40))}
    root = devkit(tmp_path / "voc", {"a": voc_xml(), "b": voc_xml(size=(50, 40))}, images)
    (root / "Annotations/a.xml").rename(root / "Annotations/a.XML")
    document, summary = convert(root)
    assert [image["file_name"] for image in document["images"]] == ["B.jpeg", "a.JPG"]
    assert kinds(summary) == {}


def test_stems_that_differ_in_case_keep_apart(tmp_path: Path) -> None:
    xmls = {"a": voc_xml(box_xml(1, 1, 9, 9)), "A": voc_xml(box_xml(2, 1, 9, 9))}
    document, _ = convert(devkit(tmp_path / "voc", xmls))
    assert boxes_of(document, "a.jpg") == [[0, 0, 9, 9]]
    assert boxes_of(document, "A.jpg") == [[1, 0, 8, 9]]
    for name, other in (("a", "A"), ("A", "a")):
        root = devkit(tmp_path / f"only {name}" / "voc", xmls, {f"{name}.jpg": image_bytes()})
        assert [(f.file, f.kind) for f in refused(root).findings] == [(f"Annotations/{other}.xml", "image-shared")]


def test_dots_in_stems(tmp_path: Path) -> None:
    document, _ = convert(devkit(tmp_path / "voc", {"a.rf.1": voc_xml(), "a.rf.2": voc_xml()}))
    assert [image["file_name"] for image in document["images"]] == ["a.rf.1.jpg", "a.rf.2.jpg"]


@pytest.mark.parametrize(("filename", "taken"), [("", "a.jpg"), ("a.png", "a.png")])
def test_two_images_with_one_stem(tmp_path: Path, filename: str, taken: str) -> None:
    images = {"a.jpg": image_bytes(), "a.png": image_bytes(kind="PNG")}
    document, summary = convert(devkit(tmp_path / "voc", {"a": voc_xml(filename=filename)}, images))
    assert [image["file_name"] for image in document["images"]] == [taken]
    assert kinds(summary) == {"image-ambiguous": 1}


@pytest.mark.parametrize(("unlabeled", "names"), [("keep", ["a.jpg", "b.jpg"]), ("skip", ["a.jpg"])])
def test_an_image_without_xml(tmp_path: Path, unlabeled: str, names: list[str]) -> None:
    images = {"a.jpg": image_bytes(), "b.jpg": image_bytes((50, 40))}
    document, summary = convert(devkit(tmp_path / "voc", {"a": voc_xml()}, images), unlabeled=unlabeled)
    assert [image["file_name"] for image in document["images"]] == names
    assert kinds(summary) == {"unlabeled-kept" if unlabeled == "keep" else "unlabeled-skipped": 1}


def test_a_bad_xml_takes_the_image_of_its_filename_with_it(tmp_path: Path) -> None:
    """Else the image would be one without boxes."""
    bad = voc_xml(box_xml(11, 11, 40, 40), "<object><name>cat</name></object>", filename="real.jpg")
    xmls = {"frame": bad, "b": voc_xml(box_xml(1, 1, 9, 9))}
    root = devkit(tmp_path / "voc", xmls, {"real.jpg": image_bytes(), "b.jpg": image_bytes()})
    document, summary = convert(root, on_error="skip")
    assert [row["file_name"] for row in document["images"]] == ["b.jpg"]
    assert kinds(summary) == {"object-no-box": 1}
    (root / "JPEGImages/real.jpg").unlink()
    _, summary = convert(root, on_error="skip")
    assert kinds(summary) == {"object-no-box": 1, "image-missing": 1}


def test_an_xml_without_image_stops_or_is_skipped(tmp_path: Path) -> None:
    root = devkit(tmp_path / "voc", {"a": voc_xml(), "b": voc_xml()}, {"a.jpg": image_bytes()})
    assert "Annotations/b.xml: no image in " in str(refused(root))
    document, summary = convert(root, on_error="skip")
    assert len(document["images"]) == 1
    assert kinds(summary) == {"image-missing": 1}


def test_images_with_the_same_bytes_are_reported(tmp_path: Path) -> None:
    same, other = image_bytes(), with_segment(image_bytes()[:-40], b"x" * 36, 0xFE)
    assert len(same) == len(other)
    late = same[:-3] + bytes([same[-3] ^ 1]) + same[-2:]  # differs only far from the beginning
    big = image_bytes((400, 400), quality=100)
    big_late = big[:-3] + bytes([big[-3] ^ 1]) + big[-2:]
    images = {
        "a.jpg": same,
        "b.jpg": other,
        "c.jpg": same,
        "d.jpg": late,
        "e.jpg": big,
        "f.jpg": big_late,
        "g.jpg": big,
    }
    _, summary = convert(devkit(tmp_path / "voc", {"a": voc_xml()}, images))
    identical = [(f.file, f.after) for f in summary.findings if f.kind == "image-identical"]
    assert identical == [("JPEGImages/c.jpg", "a.jpg"), ("JPEGImages/g.jpg", "e.jpg")]


@pytest.mark.parametrize(
    ("name", "data", "found"),
    [
        ("a.jpg", image_bytes(kind="PNG"), {"image-extension": 1}),
        ("a.png", image_bytes(kind="PNG"), {}),
        ("a.jpg", image_bytes(mode="L"), {}),
        ("a.jpg", image_bytes(mode="CMYK"), {}),
        ("a.jpg", image_bytes(progressive=True), {}),
        ("a.jpg", image_bytes()[:-100], {}),  # cut off: the header is whole, a decoder will tell
        ("a.bmp", image_bytes(kind="BMP"), {}),
        ("a.tif", image_bytes(kind="TIFF"), {}),
        ("a.webp", image_bytes(kind="WEBP"), {}),
        ("a.ppm", image_bytes(kind="PPM"), {}),
    ],
)
def test_kinds_of_images(tmp_path: Path, name: str, data: bytes, found: object) -> None:
    document, summary = convert(devkit(tmp_path / "voc", {"a": voc_xml(box_xml(1, 1, 100, 80))}, {name: data}))
    assert boxes_of(document) == [[0, 0, 100, 80]]
    assert kinds(summary) == found


@pytest.mark.parametrize(
    ("name", "data", "kind"),
    [
        ("a.jpg", b"", "image-unreadable"),
        ("a.jpg", b"\xff\xd8\xff", "image-unreadable"),
        ("a.jpg", image_bytes()[:100], "image-unreadable"),
        ("a.png", image_bytes(kind="PNG")[:20], "image-unreadable"),
        ("a.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + b"\0" * 30, "image-unreadable"),
        ("a.jpg", b"<html>not found</html>", "image-unreadable"),
        ("a.gif", image_bytes(kind="GIF"), "image-format"),
        ("a.jpg", image_bytes(kind="GIF"), "image-format"),
        ("a.avif", b"\0\0\0\x1cftypavif\0\0\0\0mif1", "image-unreadable"),
        ("a.HEIC", b"\0\0\0\x1cftypheic\0\0\0\0mif1", "image-unreadable"),
        ("a.heif", b"\0\0\0\x1cftypmif1\0\0\0\0heic", "image-unreadable"),
    ],
)
def test_images_that_cannot_be_used(tmp_path: Path, name: str, data: bytes, kind: str) -> None:
    error = refused(devkit(tmp_path / "voc", {"a": voc_xml()}, {name: data}))
    assert [(f.file, f.kind) for f in error.findings] == [(f"JPEGImages/{name}", kind)]


# ---------------------------------------------------------------------------------------------- splits


def test_images_beside_xml_in_nested_folders(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {}
    for n, folder in enumerate(["train", "test"], 1):  # both hold a file of the same name
        files[f"{folder}/a.xml"] = voc_xml(box_xml(n, 1, 9, 9))
        files[f"{folder}/a.jpg"] = with_segment(image_bytes(), folder.encode(), 0xFE)
    files |= {".hidden/b.xml": "<", "train/._a.xml": "\0", "__MACOSX/a.xml": "<", "labels.csv": ""}
    document, summary = convert(write_files(tmp_path / "flat", files))
    assert [image["file_name"] for image in document["images"]] == ["test/a.jpg", "train/a.jpg"]
    assert boxes_of(document) == [[1, 0, 8, 9], [0, 0, 9, 9]]
    assert kinds(summary) == {"splits-joined": 1}
    assert "has images of test and train" in str(summary)
    assert summary.image_folder == tmp_path / "flat"


@pytest.mark.parametrize(
    "folders", [("annotations", "images"), ("Annotations", "Images"), ("ANNOTATIONS", "jpegimages")]
)
def test_other_spellings_of_the_folders(tmp_path: Path, folders: tuple[str, str]) -> None:
    files = {f"{folders[0]}/a.xml": voc_xml(), f"{folders[1]}/a.jpg": image_bytes()}
    document, summary = convert(write_files(tmp_path / "voc", files))
    assert [image["file_name"] for image in document["images"]] == ["a.jpg"]
    assert summary.image_folder == tmp_path / "voc" / folders[1]


def test_folders_given(tmp_path: Path) -> None:
    write_files(tmp_path, {"xml/a.xml": voc_xml(), "pictures/a.jpg": image_bytes(), "voc/x": ""})
    document, summary = convert(tmp_path / "voc", images=tmp_path / "pictures", annotations=tmp_path / "xml")
    assert [image["file_name"] for image in document["images"]] == ["a.jpg"]
    assert summary.image_folder == tmp_path / "pictures"


def test_the_devkit_of_several_years_is_refused_with_the_remedy(tmp_path: Path) -> None:
    for year in ("VOC2007", "VOC2012"):
        devkit(tmp_path / "VOCdevkit" / year, {"a": voc_xml()})
    assert "VOC2007, VOC2012; convert each" in str(refused(tmp_path / "VOCdevkit"))


@pytest.mark.parametrize(
    ("folder", "options"), [("Annotations", {}), ("Annotations", {"split": "a"}), ("JPEGImages", {})]
)
def test_one_folder_of_a_data_set_names_the_data_set(tmp_path: Path, folder: str, options: Any) -> None:
    root = devkit(tmp_path / "voc", {"a": voc_xml(), "b": voc_xml()}, splits={"a": "a\n"})
    message = f"{root / folder} is one folder of a VOC dataset; give the folder above it: convert {root}"
    assert str(refused(root / folder, **options)) == message
    if folder == "Annotations":
        (root / "JPEGImages").rename(root / "images")
        assert str(refused(root / folder, **options)) == message


@pytest.mark.parametrize("end", ["\r\n", "\n", "\r"])
def test_a_split_keeps_its_order(tmp_path: Path, end: str) -> None:
    xmls = {stem: voc_xml(box_xml(n, 1, 9, 9)) for n, stem in enumerate("abcd", 1)}
    root = devkit(
        tmp_path / "voc", xmls, splits={"train": "\ufeff" + end.join(["c", "", "# a comment", "a ", "b.jpg", "c", ""])}
    )
    document, summary = convert(root, split="train")
    assert [image["file_name"] for image in document["images"]] == ["c.jpg", "a.jpg", "b.jpg"]
    assert [row["image_id"] for row in document["annotations"]] == [1, 2, 3]
    assert [(f.kind, f.file, f.line) for f in summary.findings] == [
        ("split-entry-repeated", "ImageSets/Main/train.txt", 6)
    ]


def test_the_split_of_a_class_leaves_out_what_it_marks_negative(tmp_path: Path) -> None:
    xmls = {stem: voc_xml(box_xml(1, 1, 9, 9)) for stem in ("a", "b", "c", "photo 1")}
    root = devkit(
        tmp_path / "voc",
        xmls,
        splits={"cat_train": "c -1\r\na  1\r\nb  0\r\nphoto 1 1\n", "plain": "photo 1\n"},
    )
    document, summary = convert(root, split="cat_train")
    assert [image["file_name"] for image in document["images"]] == ["a.jpg", "b.jpg", "photo 1.jpg"]
    assert [(f.kind, f.before) for f in summary.findings] == [("split-negative", 1)]
    assert [image["file_name"] for image in convert(root, split="plain")[0]["images"]] == ["photo 1.jpg"]


def test_an_image_that_a_split_names_twice_is_written_once(tmp_path: Path) -> None:
    """By its own name, and by an XML that has it by its <filename>."""
    root = devkit(
        tmp_path / "voc",
        {"x": voc_xml(box_xml(1, 1, 9, 9), filename="a.jpg"), "b": voc_xml()},
        {"a.jpg": image_bytes(), "b.jpg": rotated_jpeg(1)},
        {"train": "a\nb\nx\n"},
    )
    document, summary = convert(root, split="train")
    assert [image["file_name"] for image in document["images"]] == ["b.jpg", "a.jpg"]
    assert boxes_of(document, "a.jpg") == [[0, 0, 9, 9]]
    assert kinds(summary) == {"filename-used": 1}


def test_a_reader_of_records_gives_the_same(tmp_path: Path) -> None:
    root = odd_data_set(tmp_path / "voc", list(range(60)))
    write_files(root, {"ImageSets/Main/some.txt": "3/3\n1/1\n2/2\n"})
    source = AnnotationFiles(root, [], root, tmp_path)
    for split in (None, "some"):
        for options in ({}, {"origin": "zero", "difficult": "drop", "unlabeled": "skip"}):
            convert(root, split=split, on_error="skip", **options)
            contents = read_voc(source, split, **options)  # type: ignore[arg-type]
            other = tmp_path / "other.json"
            records_to_coco(contents, root, other, [root], Options(on_error="skip"), "Pascal VOC")
            assert other.read_bytes() == (tmp_path / "out.json").read_bytes()
    (tmp_path / "photos").mkdir()
    contents = read_voc(source._replace(images=tmp_path / "photos"))
    with pytest.raises(ConversionError, match=r"photos has the image of none of the 60 entries"):
        records_to_coco(contents, root, tmp_path / "x.json", [root], Options(), "Pascal VOC")


def test_split_entries_without_files(tmp_path: Path) -> None:
    root = devkit(tmp_path / "voc", {"a": voc_xml()}, splits={"train": "a\nnope\n../a\n"})
    error = refused(root, split="train")
    assert [(f.kind, f.line, f.before) for f in error.findings] == [
        ("split-entry-missing", 2, "nope"),
        ("split-entry-missing", 3, "../a"),
    ]


def test_a_split_with_an_image_without_xml(tmp_path: Path) -> None:
    images = {"a.jpg": image_bytes(), "b.jpg": image_bytes((50, 40))}
    root = devkit(tmp_path / "voc", {"a": voc_xml()}, images, {"test": "b\na\n"})
    assert [image["file_name"] for image in convert(root, split="test")[0]["images"]] == ["b.jpg", "a.jpg"]
    assert len(convert(root, split="test", unlabeled="skip")[0]["images"]) == 1


@pytest.mark.parametrize(
    ("split", "message"),
    [
        ("nope", "there are empty, negative, train"),
        ("../Main/train", "there are empty, negative, train"),
        ("empty", "empty.txt names no image (0 marked -1): the split is empty"),
        ("negative", "names no image (1 marked -1)"),
        ("latin", "must be UTF-8 text, got byte 0xe9"),
    ],
)
def test_splits_that_are_refused(tmp_path: Path, split: str, message: str) -> None:
    splits = {"train": "a", "empty": "\r\n \n", "negative": "a -1\n"}
    root = devkit(tmp_path / "voc", {"a": voc_xml()}, splits=splits)
    if split == "latin":
        write_files(root, {"ImageSets/Main/latin.txt": "caf\xe9".encode("latin-1")})
    assert message in str(refused(root, split=split))


def test_a_split_of_a_data_set_without_splits(tmp_path: Path) -> None:
    files = {"train/a.xml": voc_xml(), "train/a.jpg": image_bytes()}
    assert f"convert {tmp_path / 'flat' / 'train'}" in str(
        refused(write_files(tmp_path / "flat", files), split="train")
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"origin": "two"}, "origin must be one of one, zero, got 'two'"),
        ({"difficult": "x"}, "difficult must be one of keep, crowd, drop, got 'x'"),
        ({"unlabeled": "x"}, "unlabeled must be one of keep, skip, got 'x'"),
        ({"on_error": "x"}, "on_error must be one of stop, skip, got 'x'"),
        ({"jobs": 0}, "jobs must be at least 1, got 0"),
        ({"classes": []}, "classes must name at least one class, got none"),
        ({"classes": ["a", "a"]}, "got 'a' 2 times"),
        ({"classes": "cat"}, "classes must be a list of names, got the text 'cat'"),
        ({"images": "/nowhere"}, "/nowhere is not a folder"),
    ],
)
def test_arguments_that_are_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    root = devkit(tmp_path / "voc", {"a": voc_xml()})
    with pytest.raises(ValueError, match=message):
        voc_to_coco(root, tmp_path / "out.json", **options)
    assert not (tmp_path / "out.json").exists()


def test_outputs_that_are_refused(tmp_path: Path) -> None:
    root = devkit(tmp_path / "voc", {"a": voc_xml()})
    for output in (tmp_path, tmp_path / "no/out.json", root / "Annotations/a.xml", Path("/dev/null")):
        with pytest.raises(ConversionError, match="output"):
            voc_to_coco(root, output)
    with pytest.raises(ValueError, match="report must be another file"):
        voc_to_coco(root, tmp_path / "x.json", report=tmp_path / "x.json")
    assert (root / "Annotations/a.xml").read_text() == voc_xml()


def test_folders_without_xml(tmp_path: Path) -> None:
    assert "has no XML files" in str(refused(write_files(tmp_path / "voc", {"a.jpg": image_bytes()})))
    assert "is not a folder" in str(refused(tmp_path / "nowhere"))


def test_nothing_left_is_an_error(tmp_path: Path) -> None:
    assert "no image is left" in str(refused(devkit(tmp_path / "voc", {"a": "<"}), on_error="skip"))


# ---------------------------------------------------------------------------------------------- output


def odd_data_set(folder: Path, order: list[int]) -> Path:
    """Write 300 files, many with something to report, in the given order."""
    xmls = {}
    for n in order:
        name = ["cat", "dog", "Cat ", "猫"][n % 4]
        xmls[f"{n % 7}/{n}"] = voc_xml(box_xml(n % 50, 1, 60 + n % 60, 9, name=name), filename=f"{n % 9}.jpg")
    images = {
        f"{stem}.jpg": with_segment(image_bytes((100, 70 + n % 20)), b"x" * (n % 3), 0xFE)
        for n, stem in enumerate(sorted(xmls))
    }
    return devkit(
        folder,
        xmls,
        {name: images[name] for name in random.Random(len(order)).sample(sorted(images), len(images))},
    )


@pytest.mark.slow
def test_same_input_same_bytes(tmp_path: Path) -> None:
    """With any order in the folder, hash seed and number of jobs."""
    written = set()
    for n, (seed, jobs) in enumerate([("0", 1), ("1", 3)]):
        order = random.Random(n).sample(range(300), 300)
        root = odd_data_set(tmp_path / f"{n}" / "voc", order)
        code = "import sys; from detaug.converters import voc_to_coco as convert; "
        code += "convert(sys.argv[1], sys.argv[2], jobs=int(sys.argv[3]), report=sys.argv[4])"
        out, report = tmp_path / f"{n}.json", tmp_path / f"{n}.report.json"
        command = [sys.executable, "-c", code, str(root), str(out), str(jobs), str(report)]
        subprocess.run(command, check=True, env={**os.environ, "PYTHONHASHSEED": seed}, cwd=REPOSITORY)
        written.add((out.read_bytes(), report.read_bytes()))
    assert len(written) == 1


def test_report_holds_every_finding_and_its_meaning(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    _, summary = convert(odd_data_set(tmp_path / "voc", list(range(300))), report=report)
    document = json.loads(report.read_bytes())
    assert [Finding(**finding) for finding in document["findings"]] == list(summary.findings)
    assert document["counts"] == kinds(summary)
    assert {name: kind["meaning"] for name, kind in document["kinds"].items()} == {
        name: KINDS[name].meaning for name in document["counts"]
    }
    assert {"name-spaces", "class-alike", "box-clipped", "coordinate-zero", "filename-differs"} <= set(
        document["counts"]
    )


def test_an_interrupted_conversion_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = devkit(tmp_path / "voc", {"a": voc_xml()})
    output = tmp_path / "out.json"
    output.write_text("old")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        voc_to_coco(root, output)
    assert output.read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.json", "voc"]


@pytest.mark.parametrize("command", ["convert-voc", "convert-yolo", "merge", "convert-coco-to-voc"])
def test_a_full_disk_leaves_neither_output_nor_report(tmp_path: Path, command: str) -> None:
    boxes = [box_xml(1 + n % 50, 1 + n // 50, 90, 70) for n in range(500)]
    xmls = {f"{n}": voc_xml(*(boxes if n == 9 else boxes[:9])) for n in range(10)}
    root, before, yolo = devkit(tmp_path / "voc", xmls), tmp_path / "before.json", tmp_path / "yolo"
    voc_to_coco(root, before)
    other = tmp_path / "other.json"
    other.write_text(before.read_text().replace(".jpg", ".png"))
    coco_to_yolo(before, yolo, images=root / "JPEGImages", with_images="link")
    report, out = tmp_path / "report.json", tmp_path / "out.json"
    arguments: dict[str, list[object]] = {
        "convert-voc": [root, "-o", out],
        "convert-yolo": [yolo, "-o", out],
        "merge": [before, other, "-o", out],
        "convert-coco-to-voc": [before, out],
    }
    with disk_for_files_of(30_000):
        result = detaug(command, *arguments[command], "--report", report)
    assert result.code == 2
    assert "File too large" in result.err
    assert not report.exists()
    assert not out.is_file()
    assert not list(tmp_path.rglob("*.partial"))


def test_output_keeps_links_and_the_umask(tmp_path: Path) -> None:
    root = devkit(tmp_path / "voc", {"a": voc_xml()})
    (tmp_path / "link.json").symlink_to(tmp_path / "real.json")
    voc_to_coco(root, tmp_path / "link.json")
    assert (tmp_path / "link.json").is_symlink()
    plain = tmp_path / "plain"
    plain.write_text("")
    assert (tmp_path / "real.json").stat().st_mode == plain.stat().st_mode


def test_progress_counts_up_to_the_total(tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    root = devkit(tmp_path / "voc", {f"{n}": voc_xml() for n in range(130)})
    voc_to_coco(root, tmp_path / "out.json", progress=lambda done, total: calls.append((done, total)))
    assert calls == [(64, 130), (128, 130), (130, 130)]


def test_links_back_up_do_not_loop(tmp_path: Path) -> None:
    root = devkit(tmp_path / "voc", {"a": voc_xml()})
    (root / "JPEGImages/up").symlink_to(root)
    (root / "Annotations/up").symlink_to(root / "Annotations")
    os.mkfifo(root / "JPEGImages/b.jpg")
    assert len(convert(root)[0]["images"]) == 1


def test_a_link_in_a_loop_that_nothing_uses_is_ignored(tmp_path: Path) -> None:
    root = devkit(tmp_path / "voc", {"a": voc_xml()})
    for name in ("loop", "Annotations/loop", "JPEGImages/loop.jpg"):
        (root / name).symlink_to((root / name).name)
    assert len(convert(root)[0]["images"]) == 1
    check_coco(tmp_path / "out.json", root / "JPEGImages")


@pytest.mark.parametrize("place", ["folder", "fifo", "device", "loop", "nowhere"])
def test_an_xml_that_is_no_file_does_not_make_its_image_a_negative(tmp_path: Path, place: str) -> None:
    root = devkit(tmp_path / "voc", {"a": voc_xml()}, {"a.jpg": image_bytes(), "b.jpg": rotated_jpeg(1)})
    xml = root / "Annotations/b.xml"
    if place == "folder":
        xml.mkdir()
    elif place == "fifo":
        os.mkfifo(xml)
    else:
        xml.symlink_to({"device": "/dev/zero", "loop": "b.xml", "nowhere": "c.xml"}[place])
    error = refused(root)
    assert [(found.file, found.kind) for found in error.findings] == [("Annotations/b.xml", "xml-unreadable")]
    assert [row["file_name"] for row in convert(root, on_error="skip")[0]["images"]] == ["a.jpg"]


def test_every_kind_is_tested() -> None:
    tests = "".join(path.read_text() for path in TESTS.rglob("test_*.py"))
    untested = {kind for kind in KINDS if f'"{kind}"' not in tests}
    assert untested == set()


def test_a_kind_that_is_not_in_the_table_is_refused() -> None:
    with pytest.raises(ValueError, match="kind must be a key of KINDS, got 'nope'"):
        Finding("a.xml", "nope")


# ---------------------------------------------------------------------------------------------- real data


@needs_data
@pytest.mark.parametrize(("split", "count"), [("train", 205), ("val", 87), ("test", 72), (None, 364)])
def test_bccd(tmp_path: Path, split: str | None, count: int) -> None:
    document, summary = convert(DATA / "bccd", output=tmp_path / "out.json", split=split)
    assert len(document["images"]) == count
    assert {(image["width"], image["height"]) for image in document["images"]} == {(640, 480)}
    assert list(summary.class_counts) == ["Platelets", "RBC", "WBC"]
    if split is None:
        assert summary.boxes == 4888
        assert sum(row["bbox"][2] == 1 for row in document["annotations"]) == 2


@needs_data
def test_microcontroller_has_the_boxes_of_its_csv(tmp_path: Path) -> None:
    document, summary = convert(DATA / "microcontroller", output=tmp_path / "out.json")
    assert (summary.images, summary.boxes, len(summary.class_counts)) == (149, 177, 4)
    rows = [line.split(",") for line in (DATA / "microcontroller/train_labels.csv").read_text().split()[1:]]
    expected = sorted(
        [int(x1) - 1, int(y1) - 1, int(x2) - int(x1) + 1, int(y2) - int(y1) + 1] for *_, x1, y1, x2, y2 in rows
    )
    names = {image["id"]: image["file_name"] for image in document["images"]}
    train = sorted(row["bbox"] for row in document["annotations"] if names[row["image_id"]].startswith("train/"))
    assert train == expected


@needs_data
def test_chess(tmp_path: Path) -> None:
    document, summary = convert(DATA / "chess", output=tmp_path / "out.json")
    assert (summary.images, summary.boxes, len(summary.class_counts)) == (12, 180, 12)
    assert boxes_of(document, "0AF.jpg")[0] == [554, 100, 69, 110]
    assert boxes_of(document, "5c1.jpg") == []
    assert kinds(summary) == {"unlabeled-kept": 1}


@needs_data
def test_voc_shapes(tmp_path: Path) -> None:
    document, _ = convert(DATA / "voc_shapes/voc_dataset1", output=tmp_path / "out.json", split="train")
    assert boxes_of(document) == [[0, 1, 3, 3], [3, 4, 3, 3]]  # the <part> is no object
    document, _ = convert(DATA / "voc_shapes/voc_dataset3", output=tmp_path / "out.json", split="train")
    assert [image["file_name"] for image in document["images"]] == ["2007_000001.jpg"]
    error = refused_real(DATA / "voc_shapes/voc_dataset2", tmp_path)
    assert [finding.kind for finding in error.findings] == ["image-missing"] * 5


def refused_real(root: Path, folder: Path) -> ConversionError:
    with pytest.raises(ConversionError) as caught:
        voc_to_coco(root, folder / "refused.json", split="trainval")
    return caught.value
