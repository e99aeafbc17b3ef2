"""Elements, keys and rows that a reader does not know are read, refused with a remedy, or counted by their kind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from coco_files import document, write, write_images
from command import detaug
from format_files import converted, data_set, kinds, refused
from shard_files import detection, jpeg, write_tfrecord, write_wds
from voc_files import box_xml, voc_xml

from detaug.converters import ConversionError, mot_to_coco, tfrecord_to_coco, webdataset_to_coco

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
    assert "have no place in the JSON file: <weather>\n" in str(summary)


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


def test_features_of_tfrecords_are_named(tmp_path: Path) -> None:
    more = {"image/object/mask": [b"png"], "image/object/group_of": [1]}
    shard = write_tfrecord(tmp_path / "a.tfrecord", [detection("a.jpg", [[10, 10, 50, 50]], [1]) | more] * 2)
    summary = tfrecord_to_coco([shard], tmp_path / "out.json")
    assert kinds(summary)["element-unused"] == 4
    assert "have no place in the JSON file: image/object/group_of, image/object/mask\n" in str(summary)


def test_keys_that_another_format_does_not_have_are_named(tmp_path: Path) -> None:
    content = document()
    content["annotations"][0] |= {"score": 0.5, "note": "x"}
    result = detaug("convert-coco-to-yolo", write(tmp_path / "a.json", content), tmp_path / "yolo")
    assert "key-dropped: a key of the JSON file has no place in the other format: annotations.note, ann" in result.out


CORNERS = [[50, 40, 70, 60], [60, 50, 80, 70], [70, 30, 90, 50], [40, 41, 60, 61]]
RELATIVE = [[0.5, 0.4, 0.2, 0.1], [0, 0, 1, 1]]
PIXELS = [[0, 0, 1, 1], [1, 0, 1, 1]]
"""The smallest boxes that pixels may have."""


def imagefolder(boxes: list[Any]) -> dict[str, str]:
    objects = {"bbox": boxes, "categories": ["cat"] * len(boxes)}
    return {"metadata.jsonl": json.dumps({"file_name": "a.jpg", "objects": objects})}


def table(boxes: list[Any]) -> dict[str, str]:
    rows = [["a.jpg", "cat", *box] for box in boxes]
    return {"a.csv": "\n".join(",".join(map(str, row)) for row in [["image", "class", "x", "y", "w", "h"], *rows])}


def create_ml(boxes: list[Any]) -> dict[str, str]:
    objects = [
        {"label": "cat", "coordinates": {"x": x + w / 2, "y": y + h / 2, "width": w, "height": h}}
        for x, y, w, h in boxes
    ]
    return {"a.json": json.dumps([{"image": "a.jpg", "annotations": objects}])}


@pytest.mark.parametrize("files", [imagefolder, table, create_ml])
def test_corners_in_place_of_sizes_are_found_before_they_are_cut(tmp_path: Path, files: Any) -> None:
    message = refused(data_set(tmp_path / "corners", files(CORNERS), "a.jpg"))
    assert "of 4 boxes 4 fit their images as corners, and 4 reach far past them as x, y, width, height" in message
    document, _ = converted(data_set(tmp_path / "three", files(CORNERS[:3]), "a.jpg"), check=False)
    assert len(document["annotations"]) == 3
    sizes = [[x, y, right - x, bottom - y] for x, y, right, bottom in CORNERS]
    document, _ = converted(data_set(tmp_path / "sizes", files(sizes), "a.jpg"))
    assert [row["bbox"] for row in document["annotations"]] == sizes


@pytest.mark.parametrize("files", [imagefolder, create_ml])
def test_coordinates_that_are_all_relative_are_no_pixels(tmp_path: Path, files: Any) -> None:
    folder = data_set(tmp_path / "relative", files(RELATIVE), "a.jpg")
    assert "all coordinates are in 0..1, relative to their images" in refused(folder)
    document, _ = converted(data_set(tmp_path / "pixels", files(PIXELS), "a.jpg"), check=False)
    assert len(document["annotations"]) == 2
    document, _ = converted(data_set(tmp_path / "both", files([*RELATIVE, [1, 1, 1, 1]]), "a.jpg"), check=False)
    assert len(document["annotations"]) == 3


def test_boxes_of_voc_that_are_all_relative_are_no_pixels(tmp_path: Path) -> None:
    relative = (0.1, 0.2, 0.5, 0.9)
    polygon = "<polygon><x1>.1</x1><y1>.1</y1><x2>.9</x2><y2>.1</y2><x3>.5</x3><y3>.9</y3></polygon>"
    rotated = "<robndbox><cx>.5</cx><cy>.5</cy><w>.2</w><h>.1</h><angle>1</angle></robndbox>"
    faults = [
        box_xml(*relative),
        box_xml(*relative) + box_xml(1, 1, 1, 1),
        box_xml(1.2, 1.2, 0.8, 0.8),  # in the first pixel alone: `check` would refuse the JSON file
        *(f"{box_xml(*relative)}<object><name>cat</name>{shape}</object>" for shape in (polygon, rotated)),
    ]
    for at, objects in enumerate(faults):
        message = refused(data_set(tmp_path / f"set{at}", voc(objects), "a.jpg"))
        assert "all coordinates are in 0..1, relative to their images" in message
    document, _ = converted(data_set(tmp_path / "both", voc(box_xml(*relative), box_xml(1, 1, 2, 2)), "a.jpg"))
    assert [row["bbox"] for row in document["annotations"]] == [[0, 0, 0.5, 0.9], [0, 0, 2, 2]]


def test_outlines_that_are_all_relative_are_no_pixels(tmp_path: Path) -> None:
    shape = {"label": "cat", "shape_type": "polygon", "points": [[0.1, 0.1], [0.5, 0.1], [0.5, 0.9]]}
    files = {"a.json": json.dumps({"version": "5.5.0", "shapes": [shape], "imagePath": "a.jpg"})}
    assert "all coordinates are in 0..1" in refused(data_set(tmp_path / "set", files, "a.jpg"))


@pytest.mark.parametrize(
    ("boxes", "says"),
    [(CORNERS, "of 4 boxes 4 fit their images as corners"), (RELATIVE, "all coordinates are in 0..1")],
)
def test_numbers_of_shards(tmp_path: Path, boxes: list[Any], says: str) -> None:
    shards = []
    for part in (boxes[:1], boxes[1:]):  # each alone is too little to tell
        labels = {"annotations": [{"bbox": box, "category": "cat"} for box in part]}
        shards.append(
            write_wds(tmp_path / f"{len(shards)}.tar", {f"{len(shards)}": {"jpg": jpeg("a"), "json": labels}})
        )
    with pytest.raises(ConversionError, match=says):
        webdataset_to_coco(shards, tmp_path / "out.json")
    assert not (tmp_path / "out.json").exists()


def test_numbers_of_tracks(tmp_path: Path) -> None:
    for name, rows in (("0", CORNERS[:1]), ("1", CORNERS[1:])):
        text = "".join(f"1,{at},{','.join(map(str, row))},1,1,1\n" for at, row in enumerate(rows, 1))
        info = "[Sequence]\nimDir=img1\n"
        data_set(tmp_path / "mot", {f"{name}/gt/gt.txt": text, f"{name}/seqinfo.ini": info}, f"{name}/img1/1.jpg")
    with pytest.raises(ConversionError, match="of 4 boxes 4 fit their images as corners"):
        mot_to_coco(tmp_path / "mot", tmp_path / "out.json")


def test_masks_keypoints_and_single_values_of_hugging_face(tmp_path: Path) -> None:
    runs = {"size": [80, 100], "counts": [80 * 10 + 20, 30, 80 - 30, 30, 8000 - 80 * 10 - 130]}
    objects = {
        "bbox": [[10, 20, 2, 30], [1, 2, 30, 40]],
        "categories": ["cat", "dog"],
        "segmentation": [runs, [[1, 2, 31, 2, 31, 42]]],
        "keypoints": [None, [1, 2, 2, 9, 8, 1, 0, 0, 0]],
        "source": "me",
        "nothing": None,
    }
    lines = json.dumps({"file_name": "a.jpg", "objects": objects})
    document, summary = converted(data_set(tmp_path / "set", {"metadata.jsonl": lines}, "a.jpg"))
    cat, dog = document["annotations"]
    assert (cat["bbox"], cat["area"], dog["segmentation"]) == ([10, 20, 2, 30], 60, [[1, 2, 31, 2, 31, 42]])
    assert (dog["keypoints"], dog["num_keypoints"]) == ([1, 2, 2, 9, 8, 1, 0, 0, 0], 2)
    assert document["categories"][1]["keypoints"] == ["point_1", "point_2", "point_3"]
    assert kinds(summary) == {"element-unused": 1}
    assert "have no place in the JSON file: objects.source\n" in str(summary)
    assert "masks=True, keypoints=True" in str(summary)


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("segmentation", {"size": [80, 100], "counts": [1, 2]}, "the counts of the RLE add up to 3"),
        ("segmentation", {"size": [80, 1e9], "counts": [1, 2]}, "size of RLE must be [height, width]"),
        ("segmentation", {"size": [1 << 20, 1 << 20], "counts": [1]}, "size of RLE must be [height, width]"),
        ("keypoints", [1, 2, 3], "keypoints must be x, y and a visibility of 0, 1 or 2 each"),
        ("keypoints", [1, 2], "keypoints must be x, y and a visibility of 0, 1 or 2 each"),
    ],
)
def test_shapes_of_hugging_face_that_are_invalid(tmp_path: Path, key: str, value: Any, says: str) -> None:
    objects = {"bbox": [[1, 2, 3, 4]], "categories": ["cat"], key: [value]}
    lines = json.dumps({"file_name": "a.jpg", "objects": objects})
    assert says in refused(data_set(tmp_path / "set", {"metadata.jsonl": lines}, "a.jpg"))


def test_a_table_of_four_corners_is_none_of_boxes(tmp_path: Path) -> None:
    text = "file,class,x1,y1,x2,y2,x3,y3,x4,y4\na.jpg,cat,10,10,40,12,38,50,8,48\n"
    folder = data_set(tmp_path / "set", {"a.csv": text}, "a.jpg")
    assert "is a table of four corners (x1, y1, ..., x4, y4); write a text file of DOTA" in refused(folder)
    assert "must have the columns filename, class" in refused(folder / "a.csv", format="csv")


def test_a_project_of_videos_of_supervisely(tmp_path: Path) -> None:
    video = {"size": {"height": 80, "width": 100}, "framesCount": 1, "objects": [], "frames": [], "tags": []}
    files = {"meta.json": json.dumps({"classes": [], "tags": []}), "ds/ann/v.mp4.json": json.dumps(video)}
    message = refused(data_set(tmp_path / "set", files, "ds/a.jpg"))
    assert (
        "no annotations of images, ann/NAME.jpg.json; ds/ann/v.mp4.json is a Supervisely JSON file of a video"
        in message
    )


def test_masks_of_mots_are_named(tmp_path: Path) -> None:
    files = {"1/gt/gt.txt": "1 2001 2 80 100 WSV:2\n", "1/seqinfo.ini": "[Sequence]\n"}
    with pytest.raises(ConversionError, match="must be numbers; masks of MOTS are not read"):
        mot_to_coco(data_set(tmp_path / "mot", files, "1/img1/1.jpg"), tmp_path / "out.json")


def cvat(body: str) -> dict[str, str]:
    return {"annotations.xml": f"<annotations><version>1.1</version><meta/>{body}</annotations>"}


def test_groups_of_tracks_and_attributes_of_points_of_cvat(tmp_path: Path) -> None:
    box = '<box frame="0" outside="0" keyframe="1" xtl="1" ytl="1" xbr="9" ybr="9"/>'
    tracks = f'<track id="0" label="a" group_id="3">{box}</track><track id="1" label="b">{box}<attribute/></track>'
    document, summary = converted(data_set(tmp_path / "video", cvat(tracks), "frame_000000.jpg"))
    assert [row.get("group_id") for row in document["annotations"]] == [3, None]
    assert "have no place in the JSON file: <attribute>\n" in str(summary)
    points = "".join(
        f'<points label="{at}" points="{at}0,{at}5"><attribute name="x">y</attribute></points>' for at in (1, 2)
    )
    image = f'<image name="a.jpg" width="100" height="80"><skeleton label="a">{points}</skeleton><note/></image>'
    _, summary = converted(data_set(tmp_path / "images", cvat(image), "a.jpg"))
    assert kinds(summary) == {"element-unused": 3}
    assert "have no place in the JSON file: <attribute> of <points>, <note>\n" in str(summary)


def test_attributes_of_an_xml_that_say_nothing_are_not_counted(tmp_path: Path) -> None:
    start = '<annotation verified="yes" xmlns:xsi="http://w3.org/xsi" xsi:noNamespaceSchemaLocation="voc.xsd"'
    xml = voc_xml(box_xml(1, 2, 30, 40), "<source url='x'/>").replace("<annotation", start)
    _, summary = converted(data_set(tmp_path / "voc", {"a.xml": xml}, "a.jpg"))
    assert kinds(summary) == {}


def test_attributes_of_one_name_of_cvat_are_a_list(tmp_path: Path) -> None:
    values = "".join(f'<attribute name="color">{value}</attribute>' for value in ("red", "blue"))
    image = image_of_cvat(f"<box {BOX_OF_CVAT}>{values}</box>", "")
    document, _ = converted(data_set(tmp_path / "cvat", image, "a.jpg"))
    assert document["annotations"][0]["color"] == ["red", "blue"]


def test_keys_of_supervisely_labelme_and_crowdhuman_are_counted(tmp_path: Path) -> None:
    box = {"geometryType": "rectangle", "classTitle": "cat", "points": {"exterior": [[1, 1], [9, 9]], "interior": []}}
    box |= {"id": 1, "classId": 2, "labelerLogin": "me", "createdAt": "now", "instance": "x", "customData": {}}
    document = {"size": {"height": 80, "width": 100}, "tags": [], "objects": [box, box], "customBigData": {"a": 1}}
    folder = data_set(tmp_path / "supervisely", {"ann/a.jpg.json": json.dumps(document)}, "img/a.jpg")
    _, summary = converted(folder)
    assert "have no place in the JSON file: customBigData, instance\n" in str(summary)
    assert kinds(summary)["element-unused"] == 3

    shape = {"label": "cat", "points": [[1, 1], [9, 9]], "shape_type": "rectangle"}
    document = {
        "version": "5",
        "shapes": [shape],
        "imagePath": "a.jpg",
        "description": "x",
        "attributes": {},
        "text": "",
    }
    _, summary = converted(data_set(tmp_path / "labelme", {"a.json": json.dumps(document)}, "a.jpg"))
    assert "have no place in the JSON file: description\n" in str(summary)

    person = {"tag": "person", "fbox": [1, 2, 30, 40], "pose": 3}
    text = json.dumps({"ID": "a", "gtboxes": [person], "source": "web"})
    _, summary = converted(data_set(tmp_path / "crowdhuman", {"a.odgt": text}, "a.jpg"))
    assert "have no place in the JSON file: pose, source\n" in str(summary)


def test_the_hull_of_a_cuboid_of_supervisely(tmp_path: Path) -> None:
    corners = [[10, 10], [50, 10], [50, 40], [10, 40], [15, 15], [55, 15], [55, 45], [15, 45]]
    vertices = {str(at): {"loc": point} for at, point in enumerate(corners)}
    cuboid = {"geometryType": "cuboid_2d", "classTitle": "cat", "vertices": vertices}
    document = {"size": {"height": 80, "width": 100}, "tags": [], "objects": [cuboid]}
    folder = data_set(tmp_path / "set", {"ann/a.jpg.json": json.dumps(document)}, "img/a.jpg")
    (row,) = converted(folder)[0]["annotations"]
    assert (row["bbox"], row["area"]) == ([10, 10, 45, 35], 45 * 35 - 25)


def region(value: dict[str, Any], **more: Any) -> dict[str, Any]:
    size = {"original_width": 100, "original_height": 80, "image_rotation": 0}
    place = {"x": 10, "y": 10, "width": 20, "height": 25, "rotation": 0}
    return {"id": "r", "to_name": "image", "from_name": "f", **size, "value": place | value, **more}


def tasks(*results: dict[str, Any], **more: Any) -> dict[str, str]:
    task = {"id": 1, "data": {"image": "a.jpg"}, "annotations": [{"result": results}] if results else []}
    return {"tasks.json": json.dumps([task | more])}


def test_the_only_choice_of_a_region_without_a_label_is_its_class(tmp_path: Path) -> None:
    shape, choice = region({}, type="rectangle", score=0.5), region({"choices": ["cat"]}, type="choices")
    document, summary = converted(data_set(tmp_path / "set", tasks(shape, choice), "a.jpg"))
    (row,) = document["annotations"]
    assert (row["bbox"], row["score"], summary.class_counts) == ([10, 8, 20, 20], 0.5, {"cat": 1})
    two = region({"choices": ["cat", "dog"]}, type="choices")
    for at, results in enumerate(([shape], [shape, two], [shape, choice, choice | {"from_name": "other"}])):
        message = refused(data_set(tmp_path / f"set{at}", tasks(*results), "a.jpg"))
        assert "a region must have a label, or one choice of one tag: use RectangleLabels" in message
        assert "1 problem, nothing written" in message


@pytest.mark.parametrize("key", ["predictions", "drafts"])
def test_tasks_with_nothing_but_predictions_say_so(tmp_path: Path, key: str) -> None:
    more = {key: [{"result": [region({"rectanglelabels": ["cat"]}, type="rectanglelabels")]}]}
    message = refused(data_set(tmp_path / "set", tasks(**more), "a.jpg"))
    assert (
        f"no image is left to write; nothing was written; tasks.json: a.jpg: a task has {key} only: submit" in message
    )


def test_images_that_are_skipped_count_as_lost_where_no_object_is_left(tmp_path: Path) -> None:
    """One image of an invalid object is left out, and one without objects stays."""
    bad, good = {"bbox": [[1, 2, 3, "x"]], "categories": ["cat"]}, {"bbox": [[1, 2, 3, 4]], "categories": ["cat"]}
    lines = [{"file_name": "a.jpg", "objects": bad}, {"file_name": "b.jpg"}]
    files = {"metadata.jsonl": "".join(f"{json.dumps(line)}\n" for line in lines)}
    message = refused(data_set(tmp_path / "set", files, "a.jpg", "b.jpg"), on_error="skip")
    assert "no object is left to write, of 1 object-invalid" in message
    files = {
        "metadata.jsonl": "".join(
            f"{json.dumps(line)}\n" for line in [lines[0], {"file_name": "b.jpg", "objects": good}]
        )
    }
    document, _ = converted(data_set(tmp_path / "some", files, "a.jpg", "b.jpg"), on_error="skip")
    assert len(document["annotations"]) == 1


def test_crowds_are_named_where_boxes_are_counted(tmp_path: Path) -> None:
    content = document()
    content["annotations"][0]["iscrowd"] = content["annotations"][3]["iscrowd"] = 1
    images, source = write_images(tmp_path / "images"), write(tmp_path / "a.json", content)
    says = "5 boxes, of which 2 are crowds, in 2 classes"
    for command in (
        ("merge", source, "--classes", "cat,dog", "-o", tmp_path / "b.json"),
        ("pack", source, images, "-o", tmp_path / "shards"),
        ("convert-webdataset", tmp_path / "shards/a-00000.tar", "-o", tmp_path / "c.json"),
        ("convert-coco-to-labelme", source, tmp_path / "labelme", "--images", images, "--with-images", "copy"),
        ("convert", tmp_path / "labelme", "-o", tmp_path / "d.json"),
    ):
        result = detaug(*command)
        assert says in result.out, command
    content["annotations"][0]["iscrowd"] = 0
    result = detaug("merge", write(source, content), "--classes", "cat,dog", "-o", tmp_path / "b.json")
    assert "5 boxes, of which 1 is a crowd, in 2 classes" in result.out


def test_options_of_via_that_are_numbers_have_descriptions(tmp_path: Path) -> None:
    shape = {"name": "rect", "x": 1, "y": 2, "width": 30, "height": 40}
    region = {"shape_attributes": shape, "region_attributes": {"type": "2", "parts": {"1": True}, "pose": "3"}}
    images = {"a.jpg9": {"filename": "a.jpg", "size": 9, "regions": [region], "file_attributes": {}}}
    options = {
        "type": {"type": "dropdown", "options": {"1": "cat", "2": "dog"}},
        "parts": {"type": "checkbox", "options": {"1": "head", "2": "tail"}},
        "pose": {"type": "dropdown", "options": {"3": "", "4": "front"}},  # not all of them are described
    }
    content = {"_via_settings": {}, "_via_img_metadata": images, "_via_attributes": {"region": options, "file": {}}}
    document, summary = converted(data_set(tmp_path / "set", {"via.json": json.dumps(content)}, "a.jpg"))
    (row,) = document["annotations"]
    assert (summary.class_counts, row["parts"], row["pose"]) == ({"dog": 1}, {"head": True}, "3")


def shape_of_via(**keys: Any) -> dict[str, Any]:
    return {"shape_attributes": {"name": "rect", "x": 1, "y": 2, "width": 30, "height": 40, **keys}}


def via(regions: list[Any], **more: Any) -> dict[str, str]:
    return {"a.json": json.dumps({"a.jpg9": {"filename": "a.jpg", "size": 9, "regions": regions, **more}})}


def via_3(metadata: dict[str, Any], view: Any = ("1",), file: str = "1") -> dict[str, str]:
    content = {"project": {}, "config": {}, "attribute": {"1": {"aname": "class"}, "2": {"aname": "weather"}}}
    content |= {"file": {file: {"fname": "a.jpg", "type": 2}}, "view": {"1": {"fid_list": [*view]}}}
    return {"a.json": json.dumps({**content, "metadata": metadata})}


def supervisely(*objects: Any, **more: Any) -> dict[str, str]:
    return {
        "ann/a.jpg.json": json.dumps({"size": {"height": 80, "width": 100}, "objects": objects, "tags": [], **more})
    }


SHAPE = {"label": "cat", "points": [[1, 1], [9, 9]], "shape_type": "rectangle"}
BOX_OF_CVAT = 'label="a" xtl="1" ytl="1" xbr="9" ybr="9" occluded="0"'
PLACE = {"x": 15, "y": 25, "width": 10, "height": 20}
RECTANGLE = {"classTitle": "a", "geometryType": "rectangle", "points": {"exterior": [[1, 1], [9, 9]], "interior": []}}
IN_PIXELS = {"size": [80, 100], "counts": [0, 100, 7900]}
VIA_3 = {"1_1": {"vid": "1", "xy": [2, 1, 1, 9, 9], "z": [], "av": {"1": "cat"}}}


def image_of_cvat(body: str, more: str = "") -> dict[str, str]:
    return cvat(f'<image id="0" name="a.jpg" width="100" height="80" {more}>{body}</image>')


def sam(**more: Any) -> dict[str, str]:
    image = {"image_id": 1, "width": 100, "height": 80, "file_name": "a.jpg"}
    annotation = {"id": 1, "segmentation": IN_PIXELS, "bbox": [0, 0, 2, 80], "area": 100}
    return {"a.json": json.dumps({"image": image | more, "annotations": [annotation], "info": more})}


def web(*parts: str) -> dict[str, str]:
    points = "".join(f"<pt><x>{x}</x><y>{y}</y></pt>" for x, y in ((1, 1), (50, 1), (50, 60)))
    return {
        "a.xml": f"<annotation><filename>a.jpg</filename><folder/><object><name>cat</name>{parts[0]}<polygon>{points}"
        f"</polygon></object>{''.join(parts[1:])}</annotation>"
    }


VOC = voc_xml(box_xml(1, 2, 30, 40))
LABELED = region({"rectanglelabels": ["cat"]}, type="rectanglelabels")
MIN = [
    {
        "image": "a.jpg",
        "id": 1,
        "annotation_id": 2,
        "annotator": 3,
        "label": [LABELED["value"] | {"original_width": 9}],
    }
]


def create_ml_of(item: Any) -> dict[str, str]:
    return {"a.json": json.dumps([{"image": "a.jpg", "annotations": [item]}])}


def labelme(**more: Any) -> dict[str, str]:
    return {"a.json": json.dumps({"version": "5", "shapes": [SHAPE | more], "imagePath": "a.jpg"})}


SHAPE_OF_TABLE = json.dumps(shape_of_via()["shape_attributes"]).replace('"', '""')
VIA_HEAD = "filename,file_size,file_attributes,region_count,region_id,region_shape_attributes,region_attributes"


@pytest.mark.parametrize(
    ("files", "unread"),
    [
        (create_ml_of({"label": "a", "coordinates": PLACE | {"angle": 3}}), "angle"),
        (
            {"a.odgt": json.dumps({"ID": "a", "gtboxes": [{"tag": "person", "fbox": [1, 2, 3, 4], "extra": ["x"]}]})},
            "extra of another type",
        ),
        (sam(license=3), "info, license"),
        (
            labelme(attributes=["x"], flags="y", difficult="no"),
            "attributes of another type, difficult of another type, flags of another type",
        ),
        (labelme(flags={"iscrowd": "yes"}), "iscrowd that is not true or false"),
        (
            supervisely(RECTANGLE | {"tags": {"name": "x"}, "points": RECTANGLE["points"] | {"depth": 3}}),
            "depth, tags of another type",
        ),
        (supervisely(RECTANGLE | {"tags": [{"value": 3}]}), "tags without a name"),
        (web("<occluded>maybe</occluded>", "<weather>rain</weather>"), "<occluded> that is not yes or no, <weather>"),
        (
            image_of_cvat(f'<box {BOX_OF_CVAT} score="0.5"><note/></box>', 'camera="3"'),
            "<note> of <box>, camera of <image>, score of <box>",
        ),
        (cvat(f'<image name="a.jpg"><box {BOX_OF_CVAT}/></image><images><image name="a.jpg"/></images>'), "<images>"),
        (voc(box_xml(1, 2, 30, 40).replace("</bndbox>", "<angle>3</angle></bndbox>")), "<angle> in <bndbox>"),
        (
            voc(box_xml(1, 2, 30, 40, more='<pose x="1"/>').replace("<bndbox", '<bndbox angle="9"')),
            "angle of <bndbox>, x of <pose>",
        ),
        (voc(box_xml(1, 2, 30, 40).replace("<object", '<object deleted="1"')), "deleted of <object>"),
        (
            {"a.xml": '<?xml version="1.0"?>' + VOC.replace("annotation", 'annotation view="b"', 1)},
            "view of <annotation>",
        ),
        (
            {"a.xml": web("", "")["a.xml"].replace("<object", '<object score="0.5"')},
            "score of <object>",
        ),
        (
            {"a.xml": web("", "")["a.xml"].replace("<pt", '<pt time="3"', 1).replace("</polygon>", "<t/></polygon>")},
            "<t> in <polygon>, time of <pt>",
        ),
        (
            image_of_cvat(f'<box {BOX_OF_CVAT}><attribute name="a" mutable="3">b</attribute><attribute/></box>', ""),
            "<attribute> without a name, mutable of <attribute>",
        ),
        (image_of_cvat(f'<box {BOX_OF_CVAT}/><tag label="day"><note/></tag>', ""), "<note> of <tag>"),
        (via([shape_of_via(theta=1) | {"score": 1}], url="x"), "score, theta, url"),
        (via([shape_of_via()], file_attributes="x"), "file_attributes of another type"),
        ({"a.csv": f'{VIA_HEAD},score\na.jpg,9,{{}},1,0,"{SHAPE_OF_TABLE}",{{}},0.5\n'}, "score"),
        (via_3(VIA_3 | {"1_2": {"vid": "1", "xy": [], "z": [1, 2], "av": {}}}), "a time (z) without a region"),
        (
            tasks(LABELED | {"normalization": 1}, {"id": "x", "type": "choices", "value": "day"}),
            "choices without a value, normalization",
        ),
        (
            tasks(LABELED | {"value": LABELED["value"] | {"touches": [1]}}, data={"image": "a.jpg", "ocr": {"a": 1}}),
            "ocr, touches",
        ),
        ({"a.json": json.dumps([MIN[0] | {"sound": [{"start": 0, "end": 1, "labels": ["x"]}]}])}, "sound"),
    ],
)
def test_keys_and_elements_of_parts_are_counted(tmp_path: Path, files: dict[str, str], unread: str) -> None:
    images = ["img/a.jpg" if "ann/a.jpg.json" in files else "a.jpg"]
    document, summary = converted(data_set(tmp_path / "set", files, *images))
    assert f"have no place in the JSON file: {unread}\n" in str(summary)
    assert (len(document["annotations"]), kinds(summary)["element-unused"]) == (1, unread.count(",") + 1)


@pytest.mark.parametrize(
    ("files", "says"),
    [
        (image_of_cvat(f"<box {BOX_OF_CVAT}/>".replace('"0"', '"False"')), "occluded must be 0 or 1, got 'False'"),
        (image_of_cvat(f'<box {BOX_OF_CVAT} group_id="x"/>'), "group_id must be a whole number, got 'x'"),
        (
            cvat(f'<track id="0" label="a"><box frame="0" outside="true" {BOX_OF_CVAT[10:]}/></track>'),
            "outside must be 0 or 1",
        ),
        (
            image_of_cvat('<skeleton label="a">' + 2 * '<points label="1" points="1,2"/>' + "</skeleton>"),
            "each point once, got ['1', '1']",
        ),
        (web("<deleted>maybe</deleted>"), "<deleted> must be 0 or 1, got 'maybe'"),
        (via_3(VIA_3 | {"1_1": VIA_3["1_1"] | {"vid": "7"}}), "an image has no filename"),
        (via_3(VIA_3, file="8"), "an image has no filename"),
        (via_3(VIA_3, view=("1", "2")), "a view must have one file, got 2"),
        (
            {"a.csv": f'{VIA_HEAD}\na.jpg,9,{{}},1,0,{{}},"{{""a"": ""b""}}"\n'},
            "no object is left to write, of 1 empty shape",
        ),
        ({"a.csv": f"{VIA_HEAD}\na.jpg,9,{{}},1,0,{{}},{{}},x\n"}, "line 2 must have 7 words, got 8"),
        (
            {"a.csv": "image,class,x,y,w,h\na.jpg,cat,1,2,3,4,5\n"},
            "a row must have 6 words, got 7; put commas into quotes",
        ),
        ({"a.csv": "image,class,x,y,w,h,note,note\na.jpg,cat,1,2,3,4,5,6\n"}, "names that differ, got 'note' twice"),
        ({"metadata.csv": "file_name,objects\na.jpg,{},x\n"}, "line 2 must have 2 words, got 3"),
        (
            tasks(
                LABELED | {"value": LABELED["value"] | {"rectanglelabels": "cat"}},
                region({"choices": ["red"]}, type="choices"),
            ),
            "rectanglelabels must be a list [...], got 'cat'",
        ),
        (
            tasks(LABELED, LABELED | {"value": LABELED["value"] | {"x": 40}}),
            "a region must have an id of its own, got 'r' for two shapes",
        ),
        (
            tasks({"id": "t", "type": "labels", "value": {"start": 0, "end": 1, "labels": ["x"]}}),
            "no object is left to write, of 1 labels",
        ),
        ({"w.txt": "a.jpg\n1\n0 0 0 0 0 0 0 0 0 0\n"}, "no object is left to write, of 1 box-empty"),
    ],
)
def test_values_that_would_be_taken_for_nothing(tmp_path: Path, files: dict[str, str], says: str) -> None:
    format = {"format": "cvat"} if "annotations.xml" in files else {}
    format = {"format": "wider-face"} if "w.txt" in files else format
    images = ["frame_000000.jpg" if "<track" in str(files) else "a.jpg"]
    assert says in refused(data_set(tmp_path / "set", files, *images), **format)


@pytest.mark.parametrize(
    ("files", "key"),
    [
        (labelme(), '"shapes": ['),
        (create_ml_of({"label": "a", "coordinates": PLACE}), '"annotations": ['),
        ({"a.odgt": json.dumps({"ID": "a", "gtboxes": [{"tag": "person", "fbox": [1, 2, 3, 4]}]})}, '"gtboxes": ['),
        (imagefolder([[1, 2, 3, 4]]), '"objects": {'),
        (via([shape_of_via()]), '"regions": ['),
        (supervisely(RECTANGLE), '"objects": ['),
        (tasks(LABELED), '"result": ['),
    ],
)
def test_a_key_that_occurs_twice_is_refused(tmp_path: Path, files: dict[str, str], key: str) -> None:
    """A parser keeps the last one, and the objects of the first were lost."""
    ((name, text),) = files.items()
    end = {"[": "]", "{": "}"}[key[-1]]
    twice = {name: text.replace(key, f"{key}{end}, {key}", 1)}
    image = "img/a.jpg" if "ann/" in name else "a.jpg"
    rule = f"key {key[1:-4]!r} must occur once in an object; a parser keeps only the last one"
    assert rule in refused(data_set(tmp_path / "set", twice, image))


def test_attributes_of_images_of_via_3_and_of_json_min(tmp_path: Path) -> None:
    """A view's metadata without a region, and choices and texts of a task, are about the image."""
    files = via_3(VIA_3 | {"1_2": {"vid": "1", "xy": [], "z": [], "av": {"2": "rain"}}})
    document, summary = converted(data_set(tmp_path / "via", files, "a.jpg"))
    assert (document["images"][0]["weather"], kinds(summary)) == ("rain", {})
    more = {"scene": "day", "kinds": {"choices": ["a", "b"]}, "notes": ["x", "y"], "url": "http://x.org/y", "empty": []}
    document, summary = converted(data_set(tmp_path / "min", {"a.json": json.dumps([MIN[0] | more])}, "a.jpg"))
    (image,) = document["images"]
    assert (image["scene"], image["kinds"], image["notes"]) == ("day", ["a", "b"], ["x", "y"])
    assert not {"url", "empty", "annotator", "label"} & image.keys()
    assert kinds(summary) == {}


def test_two_nodes_of_one_name_of_supervisely(tmp_path: Path) -> None:
    graph = {"classTitle": "a", "geometryType": "graph", "nodes": {key: {"loc": [9, 9]} for key in "xy"}}
    nodes = {key: {"label": "nose"} for key in "xy"}
    meta = {"classes": [{"title": "a", "shape": "graph", "geometry_config": {"nodes": nodes, "edges": []}}], "tags": []}
    files = {**supervisely(graph), "meta.json": json.dumps(meta)}
    assert "must have each keypoint once, got 'nose' twice" in refused(data_set(tmp_path / "set", files, "img/a.jpg"))


def test_world_coordinates_of_mot_are_counted(tmp_path: Path) -> None:
    lines = "1,1,1,1,9,9,1,-1,-1,-1\n1,2,20,1,9,9,1,3.5,2,0\n"
    folder = data_set(tmp_path / "mot", {"s/gt/gt.txt": lines, "s/seqinfo.ini": "[Sequence]\n"}, "s/img1/1.jpg")
    summary = mot_to_coco(folder, tmp_path / "out.json")
    assert "have no place in the JSON file: world coordinates\n" in str(summary)
    assert kinds(summary)["element-unused"] == 1
