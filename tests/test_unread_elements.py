"""Elements, keys and rows that a reader does not know are read, refused with a remedy, or counted by their kind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from format_files import converted, data_set, kinds, refused
from shard_files import jpeg, write_wds
from voc_files import box_xml, voc_xml

from detaug.converters import ConversionError, webdataset_to_coco

DIOR = "".join(
    f"<{axis}_{place}>{value}</{axis}_{place}>"
    for place, point in (
        ("left_top", (20, 5)),
        ("right_top", (40, 15)),
        ("right_bottom", (35, 25)),
        ("left_bottom", (15, 15)),
    )
    for axis, value in zip("xy", point, strict=True)
)


def voc(*parts: str) -> dict[str, str]:
    return {"a.xml": voc_xml("".join(parts))}


@pytest.mark.parametrize(
    ("body", "where"),
    [
        (f"<objects>{box_xml(1, 2, 30, 40)}</objects>", "<object> in a <objects>"),
        (f"<layer><objects>{box_xml(1, 2, 30, 40)}</objects></layer>", "<object> in a <layer>"),
        (box_xml(1, 2, 30, 40).replace("object>", "Object>"), "a <Object>"),
    ],
)
def test_objects_elsewhere_in_an_xml_do_not_make_an_image_without_objects(
    tmp_path: Path, body: str, where: str
) -> None:
    folder = data_set(tmp_path / "voc", voc(body), "a.jpg")
    assert f"a.xml:1: must have each <object> directly in <annotation>, got {where}; write it so" in refused(folder)
    folder = data_set(tmp_path / "both", voc(box_xml(1, 2, 30, 40), body), "a.jpg")
    assert "must have each <object> directly in <annotation>" in refused(folder)


def test_elements_beside_the_objects_of_an_xml_are_counted(tmp_path: Path) -> None:
    folder = data_set(tmp_path / "voc", voc("<weather>rain</weather><owner/>", box_xml(1, 2, 30, 40)), "a.jpg")
    _, summary = converted(folder)
    assert kinds(summary) == {"element-unused": 1}
    assert "have no place in the json: <weather>\n" in str(summary)


def test_the_four_points_of_a_rotated_box_of_dior_r(tmp_path: Path) -> None:
    xml = f"<object><name>ship</name><robndbox>{DIOR}</robndbox></object>"
    document, summary = converted(data_set(tmp_path / "voc", voc(xml), "a.jpg"))
    (row,) = document["annotations"]
    assert row["corners"] == [[20, 5], [40, 15], [35, 25], [15, 15]]
    assert (row["bbox"], kinds(summary)) == ([15, 5, 25, 20], {})
    xml = xml.replace("y_left_bottom", "y_other")
    assert "has a <robndbox> without <y_left_bottom>" in refused(data_set(tmp_path / "bad", voc(xml), "a.jpg"))


@pytest.mark.parametrize(
    "labels",
    [
        {"objects": [{"bbox": [1, 2, 3, 4], "category": "cat"}]},
        {"objects": {"bbox": [[1, 2, 3, 4]], "categories": ["cat"]}},
        {"labels": [{"box": [1, 2, 3, 4], "class": "cat"}]},
    ],
)
def test_objects_of_another_name_do_not_make_a_sample_without_objects(tmp_path: Path, labels: Any) -> None:
    shard = write_wds(
        tmp_path / "a.tar", {"a": {"jpg": jpeg("a"), "json": labels}, "b": {"jpg": jpeg("b"), "json": {}}}
    )
    with pytest.raises(ConversionError, match=f"the list of objects, which is called '{next(iter(labels))}'"):
        webdataset_to_coco([shard], tmp_path / "out.json")


def test_annotations_without_a_bbox_get_that_of_their_shape(tmp_path: Path) -> None:
    rings = [[10, 10, 50, 10, 50, 40]]
    labels = {"annotations": [{"category": "cat", "segmentation": rings}, {"category": "cat", "segmentation": []}]}
    shard = write_wds(tmp_path / "a.tar", {"a": {"jpg": jpeg("a"), "json": labels}})
    with pytest.raises(ConversionError, match="four finite numbers"):
        webdataset_to_coco([shard], tmp_path / "out.json")
    labels["annotations"].pop()
    shard = write_wds(tmp_path / "b.tar", {"a": {"jpg": jpeg("a"), "json": labels}})
    webdataset_to_coco([shard], tmp_path / "out.json")
    (row,) = json.loads((tmp_path / "out.json").read_bytes())["annotations"]
    assert (row["bbox"], row["segmentation"]) == ([10, 10, 40, 30], rings)
