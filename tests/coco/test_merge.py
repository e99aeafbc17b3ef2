"""Merging COCO JSON files: ids, classes by name, file names, images in two files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from coco_files import Document, document, write, write_images
from command import detaug, usage_error
from hypothesis import strategies as st
from properties import check_examples, few_or_many
from pycocotools.coco import COCO

from detaug.check.check import check_coco
from detaug.coco.annotations import read_annotations
from detaug.converters import ConversionError, InputError, Summary, merge_coco


def renamed(prefix: str, content: Document | None = None) -> Document:
    """Return the document with other file names."""
    content = content or document()
    content["images"] = [dict(image, file_name=f"{prefix}{image['file_name']}") for image in content["images"]]
    return content


def merged(folder: Path, *contents: Document, **options: Any) -> tuple[Document, Summary]:
    sources = [write(folder / f"{n}.json", content) for n, content in enumerate(contents)]
    summary = merge_coco(sources, folder / "out.json", **options)
    content = json.loads((folder / "out.json").read_bytes())
    for rows in content.values():
        assert isinstance(rows, dict) or [row["id"] for row in rows] == list(range(1, len(rows) + 1))
    COCO(str(folder / "out.json"))
    return content, summary


def kinds(summary: Summary) -> dict[str, int]:
    return {kind: count for kind, count in summary.kind_counts.items() if kind != "key-dropped"}


def objects(*contents: Document) -> list[tuple[str, str, list[float]]]:
    """Return (file name, class, box) of every annotation."""
    found = []
    for content in contents:
        images = {row["id"]: row["file_name"] for row in content["images"]}
        classes = {row["id"]: row["name"] for row in content["categories"]}
        rows = content["annotations"]
        found += [(images[row["image_id"]], classes[row["category_id"]], row["bbox"]) for row in rows]
    return found


def test_every_object_keeps_its_image_class_and_box(tmp_path: Path) -> None:
    second = renamed("x")
    second["categories"] = [{"id": 5, "name": "bird"}, {"id": 3, "name": "cat"}]
    for row in second["annotations"]:
        row["category_id"] = 3 if row["id"] % 2 else 5
    content, summary = merged(tmp_path, document(), second)
    assert sorted(objects(content)) == sorted(objects(document(), second))
    assert content["categories"] == [
        {"id": 1, "name": "cat", "supercategory": "animal"},
        {"id": 2, "name": "dog"},
        {"id": 3, "name": "bird"},
    ]
    assert (summary.images, summary.images_without_boxes, summary.boxes) == (6, 2, 10)
    assert summary.class_counts == {"cat": 5, "dog": 3, "bird": 2}
    assert summary.kind_counts == {"key-dropped": 2}


contents = st.builds(
    lambda names, ids, boxes: {
        "images": [{"id": 7 * n + 3, "file_name": name, "width": 100, "height": 80} for n, name in enumerate(names)],
        "categories": [{"id": number, "name": f"class {number % 4}"} for number in ids],
        "annotations": [
            {"id": n, "image_id": 7 * (at % len(names)) + 3, "category_id": ids[which % len(ids)], "bbox": [n, 1, 5, 5]}
            for n, (at, which) in enumerate(boxes)
        ],
    },
    st.lists(st.text("abc", min_size=1, max_size=3), min_size=1, max_size=4, unique=True),
    st.lists(st.integers(0, 99), min_size=1, max_size=4, unique_by=lambda number: number % 4),
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=6),
)


@few_or_many(60)
def test_random_files_lose_no_object(examples: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    def check(documents: list[Document]) -> None:
        content, summary = merged(tmp_path_factory.mktemp("merge"), *documents, join=True)
        assert sorted(objects(content)) == sorted(objects(*documents))
        names = [row["file_name"] for each in documents for row in each["images"]]
        assert [row["file_name"] for row in content["images"]] == list(dict.fromkeys(names))
        assert summary.kind_counts.get("image-joined", 0) == len(names) - len(set(names))

    check_examples(examples, check, st.lists(contents, min_size=2, max_size=3))


def test_other_keys_stay_but_licences(tmp_path: Path) -> None:
    first, second = document(), renamed("x")
    first["annotations"][0] |= {"segmentation": [[1, 2, 3, 4, 5, 6]], "difficult": 1, "area": 7.5}
    content, summary = merged(tmp_path, first, second)
    assert content["annotations"][0] == first["annotations"][0] | {"id": 1, "image_id": 1, "category_id": 2}
    assert content["images"][3] == {"id": 4, "file_name": "xa.jpg", "width": 100, "height": 80}
    assert [finding.before for finding in summary.findings] == [["images.license", 3]] * 2


def test_keys_of_classes_and_of_files_stay_or_are_counted(tmp_path: Path) -> None:
    first, second = document(), renamed("x")
    second["categories"][0] |= {"supercategory": "pet", "color": "red"}
    second["captions"] = [{"image_id": 1, "caption": "a cat"}, {"image_id": 1, "caption": "its tail"}]
    paths = [write(tmp_path / f"{n}.json", content) for n, content in enumerate((first, second))]
    summary = merge_coco(paths, tmp_path / "out.json")
    rows = json.loads((tmp_path / "out.json").read_bytes())["categories"]
    (cat,) = (row for row in rows if row["name"] == "cat")
    assert {**cat, "id": 1} == {"id": 1, "name": "cat", "supercategory": "animal", "color": "red"}
    lost = {finding.before[0]: finding for finding in summary.findings if finding.before[0] != "images.license"}
    assert {key: finding.before[1] for key, finding in lost.items()} == {"captions": 2, "categories.supercategory": 1}
    assert "'pet' was left out" in str(lost["categories.supercategory"])


def test_file_names_of_several_folders(tmp_path: Path) -> None:
    folders = [write_images(tmp_path / "data" / name) for name in ("one/images", "two")]
    content, summary = merged(tmp_path, document(), document(), images=folders)
    assert summary.image_folder == tmp_path / "data"
    assert [image["file_name"] for image in content["images"]] == [
        *("one/images/a.jpg", "one/images/b.jpg", "one/images/sub/c.png"),
        *("two/a.jpg", "two/b.jpg", "two/sub/c.png"),
    ]
    assert check_coco(summary.output, summary.image_folder).errors == 0
    assert str(summary).splitlines()[-1] == f'load it: da.CocoReader("{tmp_path / "data"}", "{summary.output}")'


def test_folders_may_be_given_by_way_of_others(tmp_path: Path) -> None:
    folders = [write_images(tmp_path / "data" / name) for name in ("one", "two")]
    roundabout = [tmp_path / "data" / "two" / ".." / "one", folders[1]]
    _, summary = merged(tmp_path, document(), document(), images=roundabout)
    assert check_coco(summary.output, summary.image_folder).errors == 0
    (tmp_path / "link").symlink_to(folders[0] / "sub")
    _, summary = merged(tmp_path, document(), document(), images=[tmp_path / "link" / "..", folders[1]])
    assert check_coco(summary.output, summary.image_folder).errors == 0


def test_numbers_that_json_does_not_have_become_null(tmp_path: Path) -> None:
    first = document()
    first["annotations"][0]["score"] = float("nan")
    content, _ = merged(tmp_path, first, renamed("x"))
    assert content["annotations"][0]["score"] is None


def test_a_folder_in_the_other(tmp_path: Path) -> None:
    outer = write_images(tmp_path / "images")
    write_images(outer / "more")
    content, summary = merged(tmp_path, document(), document(), images=[outer, outer / "more"])
    assert summary.image_folder == outer
    assert [image["file_name"] for image in content["images"]][::3] == ["a.jpg", "more/a.jpg"]


def test_an_image_in_two_files(tmp_path: Path) -> None:
    with pytest.raises(
        ConversionError, match=r"a\.jpg: is in .*1\.json and in an earlier file; join=True combines"
    ) as raised:
        merged(tmp_path, document(), document())
    assert str(raised.value).count("join=True") == 1
    assert "b.jpg: is in" in str(raised.value)
    assert not (tmp_path / "out.json").exists()
    content, summary = merged(tmp_path, document(), document(), join=True)
    assert (summary.images, summary.boxes) == (3, 10)
    assert kinds(summary) == {"image-joined": 3}
    assert sorted(objects(content)) == sorted(objects(document(), document()))
    content, summary = merged(tmp_path, document(), document(), on_error="skip")
    assert kinds(summary) == {"image-in-two-files": 3, "boxes-without-image": 5}
    assert objects(content) == objects(document())
    folder = write_images(tmp_path / "images")
    with pytest.raises(ConversionError, match="image-in-two-files"):
        merged(tmp_path, document(), document(), images=[folder, folder / "../images"])


def test_two_sizes_are_never_joined(tmp_path: Path) -> None:
    second = document()
    second["images"][0] |= {"width": 200, "file_name": "./a.jpg"}
    with pytest.raises(ConversionError, match=r"with 200 x 80 pixels here and 100 x 80 there"):
        merged(tmp_path, document(), second, join=True)


def test_bad_entries_stop_or_are_skipped(tmp_path: Path) -> None:
    second = renamed("x")
    second["annotations"][0]["bbox"] = None
    with pytest.raises(ConversionError, match=r"1\.json: annotations\[0\] .*got None \(box-invalid\)"):
        merged(tmp_path, document(), second, report=tmp_path / "report.json")
    assert json.loads((tmp_path / "report.json").read_bytes())["counts"]["entry-invalid"] == 1
    assert merged(tmp_path, document(), second, on_error="skip")[1].boxes == 9


def test_names_that_are_nearly_equal(tmp_path: Path) -> None:
    second = renamed("x")
    second["categories"][0]["name"] = "Cat "
    content, summary = merged(tmp_path, document(), second)
    assert len(content["categories"]) == 3
    assert [(finding.before, finding.after) for finding in summary.findings if finding.kind == "class-alike"] == [
        ("Cat ", "cat")
    ]


def test_classes_are_those_listed_in_their_order(tmp_path: Path) -> None:
    source = document()
    source["categories"] = [{"id": 4, "name": "cat", "supercategory": "pet"}, {"id": 9, "name": "dog"}]
    for row in source["annotations"]:
        row["category_id"] = 9 if row["id"] % 3 else 4
    content, summary = merged(tmp_path, source, classes=["dog", "bus", "cat"])
    assert content["categories"] == [
        {"id": 1, "name": "dog"},
        {"id": 2, "name": "bus"},
        {"id": 3, "name": "cat", "supercategory": "pet"},
    ]
    assert objects(content) == objects(source)
    assert kinds(summary) == {"class-unused": 1}
    content, summary = merged(tmp_path, source, renamed("x"), classes=["dog"])
    expected = [each for each in objects(source, renamed("x")) if each[1] == "dog"]
    assert objects(content) == expected
    assert len(content["images"]) == 6
    left_out = len(objects(source, renamed("x"))) - len(expected)
    assert kinds(summary) == {"class-not-listed": left_out}
    assert summary.class_counts == {"dog": len(expected)}


def test_a_text_is_no_list_of_classes(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"classes must be a list of names, got the text 'cat'; use \['cat'\]"):
        merged(tmp_path, document(), classes="cat")


def test_classes_of_images_and_lists_of_classes_get_the_new_ids(tmp_path: Path) -> None:
    """Images of classification have a class of their own, those of LVIS lists of classes."""

    def classified(prefix: str, first: str, second: str) -> Document:
        rows = [{"id": at, "file_name": f"{prefix}{at}.png", "width": 9, "height": 9} for at in (1, 2)]
        rows[0] |= {"category_id": 2, "neg_category_ids": [1, 2]}
        rows[1] |= {"category_id": 1, "not_exhaustive_category_ids": [2]}
        categories = [{"id": 1, "name": first}, {"id": 2, "name": second}]
        return {"images": rows, "annotations": [], "categories": categories}

    both = classified("a", "cat", "dog"), classified("b", "ant", "cat")
    content, summary = merged(tmp_path, *both)
    assert [row["name"] for row in content["categories"]] == ["cat", "dog", "ant"]
    assert [row["category_id"] for row in content["images"]] == [2, 1, 1, 3]
    assert [row.get("neg_category_ids") for row in content["images"]] == [[1, 2], None, [3, 1], None]
    assert [row.get("not_exhaustive_category_ids") for row in content["images"]] == [None, [2], None, [1]]
    assert summary.image_class_counts == {"cat": 2, "dog": 1, "ant": 1}
    content, summary = merged(tmp_path, *both, classes=["ant", "cat"])
    assert [(row["file_name"], row["category_id"]) for row in content["images"]] == [
        ("a2.png", 2),
        ("b1.png", 2),
        ("b2.png", 1),
    ]
    assert [row.get("neg_category_ids") for row in content["images"]] == [None, [1, 2], None]
    assert kinds(summary) == {"class-not-listed": 1}
    with pytest.raises(ConversionError, match=r"0\.json has images with a category_id, .*1\.json has none"):
        merged(tmp_path, both[0], document())
    content, summary = merged(tmp_path, both[0], classified("a", "dog", "ant"), join=True, on_error="skip")
    assert [row["category_id"] for row in content["images"]] == [2, 1]
    assert kinds(summary)["image-in-two-files"] == 2


def test_two_merges_give_the_same_bytes(tmp_path: Path) -> None:
    merged(tmp_path, document(), renamed("x"))
    before = (tmp_path / "out.json").read_bytes()
    merged(tmp_path, document(), renamed("x"))
    assert (tmp_path / "out.json").read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("merge -o x.json", "Missing argument"),
        ("merge {a} -o x.json", "annotations must be two JSON files or more, or one with classes, all different"),
        ("merge {a} -o x.json --classes bus", "its boxes have the classes dog, cat, but classes lists bus"),
        ("merge {a} {a} -o x.json", "all different"),
        ("merge {a} -o x.json --classes ,", "classes must name at least one class, got none"),
        ("merge {a} {b} -o {a}", "output must be another file than"),
        ("merge {a} {b} -o x.json --images {folder}", "one folder for each of the 2 JSON files, got 1"),
        ("merge {a} {b} -o x.json --images {folder} --images no", "images no is not a folder"),
        ("merge {a} {b} -o x.json --images {folder} --images {folder}/sub", "sub has no image of"),
        ("merge {a} no.json -o x.json", "no.json: no such file"),
    ],
)
def test_usage_errors(tmp_path: Path, arguments: str, message: str) -> None:
    names = {
        "a": write(tmp_path / "a.json", document()),
        "b": write(tmp_path / "b.json", renamed("x")),
        "folder": write_images(tmp_path / "images"),
    }
    assert message in usage_error(*arguments.format(**names).split())


def test_the_command(tmp_path: Path) -> None:
    first, second = write(tmp_path / "a.json", document()), write(tmp_path / "b.json", document())
    output = tmp_path / "out.json"
    code, out, err = detaug("merge", first, second, "-o", output, "--join")
    assert (code, err) == (0, "")
    assert "3 images (1 without boxes), 10 boxes in 2 classes" in out
    assert out.splitlines()[-1] == f'load it: da.CocoReader(IMAGES, "{output}"), the images\' folder first'
    assert detaug("merge", first, second, "-o", output, "--join", "-q") == (0, "", "")


# ----------------------------------------------------------------------------------------------------------
# Videos


def video(prefix: str, name: str) -> Document:
    """Return the document as frames of the video 7, with a track for each box."""
    content = renamed(prefix)
    content["videos"] = [{"id": 7, "name": name, "fps": 25}]
    for frame, row in enumerate(content["images"]):
        row |= {"video_id": 7, "frame_id": frame}
    for track, row in enumerate(content["annotations"]):
        row["track_id"] = track
    return content


def test_videos_stay_apart_and_tracks_stay(tmp_path: Path) -> None:
    content, summary = merged(tmp_path, video("x", "one"), video("y", "two"))
    load = f'load it: da.ClipReader(IMAGES, "{summary.output}"), the images\' folder first'
    assert str(summary).splitlines()[-1] == load
    assert content["videos"] == [{"id": 1, "name": "one", "fps": 25}, {"id": 2, "name": "two", "fps": 25}]
    assert [row["video_id"] for row in content["images"]] == [1, 1, 1, 2, 2, 2]
    assert [row["frame_id"] for row in content["images"]] == [0, 1, 2] * 2
    assert [row["track_id"] for row in content["annotations"]] == [*range(5)] * 2
    read_annotations(tmp_path / "out.json")


def test_frames_of_videos_are_not_told_to_be_joined(tmp_path: Path) -> None:
    with pytest.raises(ConversionError, match=r"in an earlier file; if these are different images, give images"):
        merged(tmp_path, video("x", "one"), video("x", "two"))


def test_files_with_and_without_videos(tmp_path: Path) -> None:
    with pytest.raises(ConversionError, match=r"0\.json has videos, .*1\.json has none; merge files of one kind"):
        merged(tmp_path, video("x", "one"), document())
    assert not (tmp_path / "out.json").exists()


def test_frames_are_not_joined(tmp_path: Path) -> None:
    with pytest.raises(ConversionError, match="whose frames cannot be joined; leave out join"):
        merged(tmp_path, video("x", "one"), video("x", "one"), join=True)


def test_a_second_entry_of_a_video_is_left_out(tmp_path: Path) -> None:
    twice = video("x", "one")
    twice["videos"].append({"id": 7, "name": "again"})
    content, summary = merged(tmp_path, twice, video("y", "two"), on_error="skip")
    assert [row["name"] for row in content["videos"]] == ["one", "two"]
    assert kinds(summary) == {"entry-invalid": 1}


NAMES = {"keypoints": ["left_ear", "right_ear"], "skeleton": [[1, 2]], "flip_idx": [1, 0]}


def with_shapes(prefix: str) -> Document:
    """Return a JSON file whose first annotation has all shapes, and whose second category has names of keypoints."""
    content = renamed(prefix)
    shapes = {"keypoints": [10, 10, 2, 20, 10, 1], "num_keypoints": 2, "corners": [[1, 2], [9, 2], [9, 8], [1, 8]]}
    content["annotations"][0] |= shapes | {"segmentation": [[1, 2, 9, 2, 9, 8, 1, 8]]}
    content["categories"][1] |= NAMES
    return content


def test_shapes_and_the_names_of_key_points_stay(tmp_path: Path) -> None:
    content, summary = merged(tmp_path, renamed("a"), with_shapes("b"), with_shapes("c"))
    assert {key: content["categories"][1][key] for key in NAMES} == NAMES
    before = with_shapes("b")["annotations"][0]
    found = [row for row in content["annotations"] if "corners" in row]
    assert len(found) == 2
    for row in found:
        assert {key: row[key] for key in before.keys() - {"id", "image_id"}} == {
            key: before[key] for key in before.keys() - {"id", "image_id"}
        }
    assert kinds(summary) == {}


@pytest.mark.parametrize(("key", "other"), [("keypoints", ["nose", "tail"]), ("skeleton", []), ("flip_idx", [0, 1])])
def test_key_points_that_mean_different_things_are_not_merged(tmp_path: Path, key: str, other: Any) -> None:
    second = with_shapes("b")
    second["categories"][1][key] = other
    with pytest.raises(ConversionError) as raised:
        merged(tmp_path, with_shapes("a"), second)
    message = f"{tmp_path}/1.json and {tmp_path}/0.json: category 'dog' has different {key}, {other!r} and"
    assert message in str(raised.value)
    second["categories"][1]["name"] = "wolf"  # the remedy
    assert [row["name"] for row in merged(tmp_path, with_shapes("a"), second)[0]["categories"]] == [
        "cat",
        "dog",
        "wolf",
    ]
