"""MOTChallenge's ground truth to COCO JSON: boxes, frames, tracks and videos, options, and what is wrong with files."""

from __future__ import annotations

import csv
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import detaug
from PIL import Image
from video_files import Videos, paint_videos, write_lossless

import detaug as da
from detaug.converters import ConversionError, InputError, Summary, check_coco, mot_to_coco
from detaug.demo import make_mot
from detaug.testing import read_box

SIZES = {"v0": (96, 128), "v1": (128, 96), "v2": (150, 150)}


@pytest.fixture(scope="module")
def painted(tmp_path_factory: pytest.TempPathFactory) -> Videos:
    return paint_videos(tmp_path_factory.mktemp("painted"), (6, 5, 4))


@pytest.fixture
def mot(painted: Videos, tmp_path: Path) -> Path:
    """The painted videos in MOTChallenge's layout; their classes are the numbers 1 to 3."""
    root = tmp_path / "mot"
    for number, (name, (height, width)) in enumerate(SIZES.items(), 1):
        (root / name / "gt").mkdir(parents=True)
        shutil.copytree(painted.folder / name, root / name / "img1")
        lines = []
        for frame, path in enumerate(sorted((root / name / "img1").iterdir())):
            path.rename(path.with_name(f"{frame + 1:06}.png"))
            for label, (x0, y0, x1, y1) in enumerate(painted.boxes[100 * number + frame].tolist()):
                if x0 >= 0:
                    lines.append(f"{frame + 1},{label + 7},{x0 + 1},{y0 + 1},{x1 - x0},{y1 - y0},1,{label + 1},0.5\n")
        (root / name / "gt/gt.txt").write_text("".join(lines))
        write_info(root / name, frameRate=10, seqLength=frame + 1, imWidth=width, imHeight=height)
    return root


def write_info(folder: Path, **values: object) -> None:
    text = "".join(f"{key}={value}\n" for key, value in {"name": folder.name, "imDir": "img1", **values}.items())
    (folder / "seqinfo.ini").write_text(f"[Sequence]\n{text}")


def converted(root: Path, **options: Any) -> tuple[dict[str, Any], Summary]:
    output = root.parent / "out.json"
    summary = mot_to_coco(root, output, **options)
    return json.loads(output.read_bytes()), summary


def add(root: Path, *lines: str, to: str = "v0") -> None:
    with open(root / to / "gt/gt.txt", "a") as file:
        file.writelines(f"{line}\n" for line in lines)


def kinds(summary: Summary) -> dict[str, int]:
    return {kind: count for kind, count in summary.kind_counts.items() if kind != "class-unused"}


def test_boxes_lie_on_their_pixels_in_clips(mot: Path) -> None:
    _, summary = converted(mot)
    assert check_coco(summary.output, mot).errors == 0
    reader = da.ClipReader(mot, summary.output, frames=3, step=2, last="pad")
    read = 0
    for batch in da.Loader(reader, [da.RandomHorizontalFlip(), da.Resize((150, 150))], 2, device="cpu", seed=3):
        images = batch.images.numpy()
        for clip, frame, row in np.argwhere(batch.valid.numpy()):
            label = int(batch.labels[clip, frame, row])
            seen = read_box(images[clip, frame, label - 1].astype(float))
            assert np.abs(seen - batch.boxes[clip, frame, row].numpy()).max() < 0.6
            assert batch.track_id[clip, frame, row] == label + 6
            read += 1
    assert read > 30


def test_a_second_reading_gives_the_same_rows(tmp_path: Path) -> None:
    root = make_mot(tmp_path / "MOT", frames=4)
    content, _ = converted(root)
    videos = {row["id"]: row["name"] for row in content["videos"]}
    images = {row["id"]: row for row in content["images"]}
    found = []
    for row in content["annotations"]:
        image, (x, y, width, height) = images[row["image_id"]], row["bbox"]
        place = videos[image["video_id"]], image["frame_id"] + 1
        found.append((*place, row["track_id"], x + 1, y + 1, width, height, 3, row["visibility"]))
        assert image["file_name"] == f"{place[0]}/img1/{place[1]:06}.jpg"
    expected = []
    for name in ("beach", "street"):
        with open(root / name / "gt/gt.txt", newline="") as file:
            for line in csv.reader(file):
                frame, track, x, y, width, height, _, number, visibility = map(float, line)
                expected.append((name, frame, track, x, y, width, height, number, visibility))
    assert sorted(found) == sorted(expected)
    with Image.open(root / images[1]["file_name"]) as picture:
        assert picture.size == (images[1]["width"], images[1]["height"])
    assert content["categories"] == [{"id": 1, "name": "car"}]


def test_videos_and_frames(mot: Path) -> None:
    content, summary = converted(mot)
    assert content["videos"][1] == {"id": 2, "name": "v1", "width": 96, "height": 128, "fps": 10}
    assert [row["frame_id"] for row in content["images"]] == [*range(6), *range(5), *range(4)]
    assert [row["video_id"] for row in content["images"]] == [1] * 6 + [2] * 5 + [3] * 4
    assert summary.kind_counts == {}
    assert str(summary).endswith(f'load it: da.ClipReader("{mot}", "{summary.output}")')


def test_one_sequence_and_some_sequences(mot: Path) -> None:
    assert converted(mot / "v1")[0]["images"][0]["file_name"] == "img1/000001.png"
    assert [row["name"] for row in converted(mot, sequences=["v[02]"])[0]["videos"]] == ["v0", "v2"]
    with pytest.raises(ConversionError, match=r"has no sequence like x\*; there are v0, v1, v2"):
        converted(mot, sequences=["x*"])


def test_ignored_entries(mot: Path) -> None:
    before = len(converted(mot)[0]["annotations"])
    add(mot, "1,50,10,10,20,20,0,1,0.5", "2,50,10,10,20,20,0,1,0.5")
    content, summary = converted(mot)
    assert (len(content["annotations"]), kinds(summary)) == (before, {"entry-ignored": 2})
    assert "v0/gt/gt.txt: 2 entries with the flag 0 left out" in str(summary.findings[0])
    kept = [row["iscrowd"] for row in converted(mot, ignored="keep")[0]["annotations"] if row["track_id"] == 50]
    crowds = [row["iscrowd"] for row in converted(mot, ignored="crowd")[0]["annotations"] if row["track_id"] == 50]
    assert (kept, crowds) == ([0, 0], [1, 1])


def test_classes(mot: Path) -> None:
    content, summary = converted(mot, classes=["car", "pedestrian", "bicycle"])
    assert [row["name"] for row in content["categories"]] == ["car", "pedestrian", "bicycle"]
    assert set(summary.kind_counts) == {"class-not-listed", "class-unused"}
    assert sum(summary.class_counts.values()) == len(content["annotations"])
    names = {row["name"] for row in converted(mot)[0]["categories"]}
    assert names == {"pedestrian", "person on vehicle", "car"}


def test_names_of_classes_from_a_file(mot: Path) -> None:
    for name in SIZES:
        (mot / name / "gt/labels.txt").write_text("dog\ncat\nfox\n")
    add(mot, "1,60,10,10,20,20,1,3,0.5,-1")  # CVAT's lines have ten numbers
    content, _ = converted(mot)
    assert [row["name"] for row in content["categories"]] == ["dog", "cat", "fox"]
    assert [row["category_id"] for row in content["annotations"] if row["track_id"] == 60] == [3]


def test_the_form_of_2015_has_no_classes(mot: Path) -> None:
    (mot / "v0/gt/gt.txt").write_text("1,1,10.5,10,20,20,1,-6.3,-4.2,0\n2 1 11.5 10 20 20 1\n")
    content, summary = converted(mot, sequences=["v0"])
    assert [(row["category_id"], row["bbox"]) for row in content["annotations"]] == [
        (1, [9.5, 9, 20, 20]),
        (1, [10.5, 9, 20, 20]),
    ]
    assert summary.class_counts == {"pedestrian": 2}
    assert "visibility" not in content["annotations"][0]


def test_pixels_from_zero(mot: Path) -> None:
    one, zero = (converted(mot, origin=origin)[0]["annotations"][0]["bbox"] for origin in ("one", "zero"))
    assert zero == [one[0] + 1, one[1] + 1, *one[2:]]


@pytest.mark.parametrize(
    ("lines", "labels", "found"),
    [
        (["1,60,0.0,0.0,30,20,1,1,1", "2,60,50,0.5,30,20,1,1,1"], True, {"coordinate-zero": 2}),
        (["1,60,0.0,0.0,30,20,1,1,1", "2,60,50,0.5,30,20,1,1,1"], False, {"coordinate-zero": 2}),
        (["1,60,0.0,0.0,30,20,1,1,1", "2,60,-1,2,30,20,1,1,1"], False, {}),
        (["1,60,1,1,30,20,1,1,1"], False, {}),
        (["1,60,1,1,30,20,1,1,1"], True, {"origin-unclear": 1}),
    ],
)
def test_pixels_that_seem_to_count_from_zero(mot: Path, lines: list[str], labels: bool, found: dict[str, int]) -> None:
    add(mot, *lines)
    if labels:
        (mot / "v0/gt/labels.txt").write_text("pedestrian\nperson on vehicle\ncar\n")
    _, summary = converted(mot, sequences=["v0"])
    assert {kind: count for kind, count in kinds(summary).items() if kind != "box-clipped"} == found
    assert ("Coordinates of 0 mean that the tool" in str(summary)) == ("coordinate-zero" in found)
    assert ("give convert-mot --origin zero" in str(summary)) == ("origin-unclear" in found)
    content, summary = converted(mot, sequences=["v0"], origin="zero")
    assert {"coordinate-zero", "origin-unclear"}.isdisjoint(summary.kind_counts)
    boxes = [row["bbox"] for row in content["annotations"] if row["track_id"] == 60]
    assert boxes[0] == [*map(float, lines[0].split(",")[2:6])]


def rename_frames(folder: Path, name: str, first: int = 0, step: int = 1) -> None:
    for number, path in enumerate(sorted((folder / "img1").iterdir())):
        path.rename(path.with_name(name.format(first + step * number)))


@pytest.mark.parametrize(
    ("name", "first", "step"),
    [("frame_{:06}.PNG", 0, 1), ("{:06}.png", 0, 1), ("frame_{}.png", 7, 1), ("f{:03}.png", 0, 5), ("v2-{}.png", 9, 1)],
)
def test_frames_whose_names_are_no_numbers_from_one(mot: Path, name: str, first: int, step: int) -> None:
    expected, _ = converted(mot)
    rename_frames(mot / "v0", name, first, step)
    content, summary = converted(mot)
    assert kinds(summary) == {"frames-by-order": 1}
    assert content["annotations"] == expected["annotations"]
    assert [row["frame_id"] for row in content["images"]] == [row["frame_id"] for row in expected["images"]]
    assert content["images"][0]["file_name"] == "v0/img1/" + name.format(first)
    da.ClipReader(mot, summary.output, frames=2)


def test_frames_with_gaps_in_names_that_are_no_numbers(mot: Path) -> None:
    rename_frames(mot / "v0", "frame_{:06}.png")
    (mot / "v0/img1/frame_000003.png").unlink()
    message = r"v0/img1: names of frames must be numbers from 1, or without gaps; they are frame_000000 to frame_000005"
    with pytest.raises(ConversionError, match=message):
        converted(mot)
    assert len(converted(mot, on_error="skip")[0]["videos"]) == 2


def test_images_that_are_no_frames_are_counted(mot: Path) -> None:
    for name in ("thumb.png", "cover.PNG", "1.png", ".hidden.png"):
        shutil.copy(mot / "v0/img1/000001.png", mot / "v0/img1" / name)
    content, summary = converted(mot)
    assert kinds(summary) == {"frame-unnumbered": 2, "image-ambiguous": 1}
    assert "2 images left out, such as v0/img1/cover.PNG: the name is not a frame number" in str(summary.findings[1])
    assert len(content["images"]) == 15


def test_boxes_of_no_track(mot: Path) -> None:
    add(mot, "1,-1,10,10,20,20,1,1,0.5", "1,-1,30,30,20,20,1,1,0.5", "2,-1,10,10,20,20,1,1,0.5")
    content, summary = converted(mot)
    assert kinds(summary) == {"track-none": 3}
    tracks = [row["track_id"] for row in content["annotations"]]
    assert [tracks.count(track) for track in range(max(tracks) - 2, max(tracks) + 1)] == [1, 1, 1]
    assert not {"track-id", "track-repeated"} & set(check_coco(summary.output, mot).kind_counts)
    (mot / "v0/gt/gt.txt").write_text("1,-1,10,10,20,20,1,1,1\n1,-1,30,30,20,20,1,1,1\n")
    content, summary = converted(mot, sequences=["v0"])
    assert [row["bbox"] for row in content["annotations"]] == [[9, 9, 20, 20], [29, 29, 20, 20]]
    assert not any("track_id" in row for row in content["annotations"])
    da.ClipReader(mot, summary.output, frames=2)


def test_names_of_folders_and_files_in_another_case(mot: Path) -> None:
    before = converted(mot)[0]["annotations"]
    (mot / "v0/gt/gt.txt").rename(mot / "v0/gt/GT.TXT")
    (mot / "v0/gt").rename(mot / "v0/Gt")
    (mot / "v0/seqinfo.ini").rename(mot / "v0/SeqInfo.ini")
    (mot / "v0/img1").rename(mot / "v0/Img1")
    content, summary = converted(mot)
    assert (content["annotations"], kinds(summary)) == (before, {})
    assert content["images"][0]["file_name"] == "v0/Img1/000001.png"


def test_one_sequence_has_the_name_of_its_folder(mot: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(mot / "v1")
    assert [row["name"] for row in converted(mot / "v1")[0]["videos"]] == ["v1"]
    mot_to_coco(".", "../out.json")
    assert [row["name"] for row in json.loads((mot / "out.json").read_bytes())["videos"]] == ["v1"]


def test_boxes_at_the_edge(mot: Path) -> None:
    add(mot, "1,50,-9,-19,30,40,1,1,1", "1,51,500,10,5,5,1,1,1", "1,52,5,10,0,5,1,1,1")
    content, summary = converted(mot)
    assert [row["bbox"] for row in content["annotations"] if row["track_id"] >= 50] == [[0, 0, 20, 20]]
    assert kinds(summary) == {"box-outside": 1, "box-empty": 1, "box-clipped": 1}


@pytest.mark.parametrize(("old", "new"), [(",", ", "), (",", " "), (",", "\t"), ("\n", ",\n")])
def test_values_may_be_apart_in_other_ways(mot: Path, old: str, new: str) -> None:
    path = mot / "v0/gt/gt.txt"
    before = converted(mot)[0]
    path.write_text(path.read_text().replace(old, new))
    assert converted(mot)[0] == before


def test_windows_line_ends_a_mark_and_empty_lines(mot: Path) -> None:
    path = mot / "v0/gt/gt.txt"
    before = converted(mot)[0]
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n\r\n"))
    assert converted(mot)[0] == before


BAD_LINES = [
    ("0,1,1,1,5,5,1,1,1", "row-invalid", "frame must be a whole number of at least 1"),
    ("2,-2,1,1,5,5,1,1,1", "row-invalid", "id one of at least 0, or -1 for a box of no track"),
    ("2,1.5,1,1,5,5,1,1,1", "row-invalid", "id one of at least 0"),
    ("2,1,nan,1,5,5,1,1,1", "row-invalid", "must be finite numbers, got '2,1,nan"),
    ("2,1,x,1,5,5,1,1,1", "row-invalid", "must be numbers"),
    ("2,1,,1,5,5,1,1,1", "row-invalid", "must be numbers, got '2,1,,1,5"),
    ("2,1,1 1,5,5,1,1,1", "row-invalid", "must be numbers"),
    ("2,1,1_0,1,5,5,1,1,1", "row-invalid", "must be finite numbers"),
    ("2,1,1,1,5", "row-invalid", "must be frame, id, left, top, width, height, flag, class, visibility"),
    ("2,1,1,1,5,5,1,14,1", "class-unknown", "class must be a whole number from 1 to 13"),
    ("2,1,1,1,5,5,1,1.5,1", "class-unknown", "class must be a whole number from 1 to 13"),
    ("2,50,1,1,5,5,1,1,1\n2,50,1,1,6,6,1,1,1", "track-repeated", "an object has two boxes in one frame"),
    ("99,1,1,1,5,5,1,1,1", "frame-missing", "frame 99 has boxes, and no image in v0/img1"),
]


@pytest.mark.parametrize(("line", "kind", "message"), BAD_LINES)
def test_bad_lines(mot: Path, line: str, kind: str, message: str) -> None:
    expected, _ = converted(mot)
    at = len((mot / "v0/gt/gt.txt").read_text().splitlines()) + 1 + line.count("\n")
    add(mot, line)
    (mot.parent / "out.json").unlink()
    with pytest.raises(ConversionError, match=f"v0/gt/gt.txt:{at}: .*{message}"):
        converted(mot)
    assert not (mot.parent / "out.json").exists()
    content, summary = converted(mot, on_error="skip")
    assert kind in summary.kind_counts
    lost = {"99": set[str](), "0": set(map("v0/img1/{:06}.png".format, range(1, 7)))}
    gone = {row["file_name"] for row in expected["images"]} - {row["file_name"] for row in content["images"]}
    assert gone == lost.get(line.partition(",")[0], {"v0/img1/000002.png"})


Change = Callable[[Path], object]
FAULTS: list[tuple[Change, str, str, int]] = [
    (lambda v: (v / "seqinfo.ini").unlink(), "sequence-info-missing", "no seqinfo.ini", 15),
    (lambda v: (v / "seqinfo.ini").write_text("[Other]\n"), "sequence-info", "cannot be read: 'Sequence'", 9),
    (lambda v: (v / "seqinfo.ini").write_bytes(b"\xff"), "sequence-info", "cannot be read: must be UTF-8", 9),
    (lambda v: write_info(v, imDir="../v1/img1"), "sequence-info", "imDir must be a folder below", 9),
    (lambda v: write_info(v, imDir="/tmp"), "sequence-info", "imDir must be a folder below", 9),
    (lambda v: write_info(v, imDir="frames"), "frames-missing", "neither images with numbers as names", 9),
    (lambda v: write_info(v, seqLength=8), "frame-gap", "2 frames have no image, the first is frame 7", 15),
    (lambda v: write_info(v, imWidth=1, imHeight=2), "size-conflict", "in the annotations is not that", 15),
    (lambda v: shutil.rmtree(v / "gt"), "ground-truth-missing", "no gt/gt.txt", 15),
    (lambda v: (v / "gt/gt.txt").write_bytes(b"\xff\xfe1"), "label-unreadable", "cannot be read", 9),
    (lambda v: (v / "img1/000003.png").write_bytes(b""), "image-unreadable", "is empty", 14),
    (lambda v: Image.new("RGB", (9, 9)).save(v / "img1/000003.png"), "frame-size", "has 9 x 9 pixels", 14),
    (lambda v: Image.new("RGB", (128, 9)).save(v / "img1/000003.png"), "frame-size", "has 128 x 9 pixels", 14),
]  # fmt: skip


@pytest.mark.parametrize(("change", "kind", "message", "images"), FAULTS)
def test_faults_of_a_sequence(mot: Path, change: Change, kind: str, message: str, images: int) -> None:
    change(mot / "v0")
    content, summary = converted(mot, on_error="skip")
    assert kind in summary.kind_counts
    assert any(message in str(finding) for finding in summary.findings if finding.kind == kind)
    assert len(content["images"]) == images
    da.ClipReader(mot, summary.output, frames=2)


def test_frames_are_in_the_order_of_their_numbers(mot: Path) -> None:
    """Not in that of their names: 10.png comes before 9.png."""
    for number, path in enumerate(sorted((mot / "v0/img1").iterdir()), 8):
        path.rename(path.with_stem(str(number)))
    (mot / "v0/gt/gt.txt").unlink()
    content, _ = converted(mot, sequences=["v0"])
    assert [row["frame_id"] for row in content["images"]] == [*range(7, 13)]
    assert [row["file_name"] for row in content["images"]] == [f"v0/img1/{number}.png" for number in range(8, 14)]


def test_test_sequences_have_no_boxes(mot: Path) -> None:
    for name in SIZES:
        shutil.rmtree(mot / name / "gt")
    content, summary = converted(mot)
    assert (len(content["images"]), content["annotations"]) == (15, [])
    assert content["categories"] == [{"id": 1, "name": "pedestrian"}]  # a JSON file without a class cannot be loaded
    assert summary.kind_counts["ground-truth-missing"] == 3


def test_wrong_arguments(mot: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConversionError, match=r"empty has no sequences: folders with seqinfo.ini or gt/gt.txt"):
        converted(tmp_path / "empty")
    with pytest.raises(ConversionError, match="nowhere is not a folder"):
        converted(tmp_path / "nowhere")
    with pytest.raises(InputError, match="ignored must be one of drop, keep, crowd"):
        converted(mot, ignored="no")
    with pytest.raises(InputError, match="origin must be one of one, zero"):
        converted(mot, origin="two")
    (mot / "v0/gt/labels.txt").write_text("a\na\n")
    with pytest.raises(ConversionError, match=r"labels.txt must have one class name a line, all different"):
        converted(mot)


def test_the_command(mot: Path) -> None:
    add(mot, "x")
    output, report = mot.parent / "out.json", mot.parent / "report.json"
    failed = detaug("convert-mot", mot, "-o", output, "--report", report)
    assert failed.code == 2
    assert not output.exists()
    assert json.loads(report.read_bytes())["counts"] == {"row-invalid": 1}
    done = detaug("convert-mot", mot, "-o", output, "--sequences", "v1", "--sequences", "v2", "--classes", "car")
    assert done.code == 0
    assert "9 images" in done.out


def test_the_id_0_is_a_track(mot: Path) -> None:
    add(mot, "1,0,10,10,20,20,1,1,0.5", "2,0,12,10,20,20,1,1,0.5")
    content, summary = converted(mot)
    assert kinds(summary) == {}
    assert [row["bbox"] for row in content["annotations"] if row["track_id"] == 0] == [[9, 9, 20, 20], [11, 9, 20, 20]]
    add(mot, "2,0,50,10,20,20,1,1,0.5")
    assert kinds(converted(mot, on_error="skip")[1])["track-repeated"] == 1


@pytest.mark.parametrize("size", [(128, 95), (127, 96)])
def test_a_frame_that_differs_in_one_side_is_left_out(mot: Path, size: tuple[int, int]) -> None:
    Image.new("RGB", size).save(mot / "v0/img1/000003.png")
    content, summary = converted(mot, on_error="skip")
    assert kinds(summary)["frame-size"] == 1
    assert "v0/img1/000003.png" not in {row["file_name"] for row in content["images"]}


# ---------------------------------------------------------------- video files

VIDEO_FILES = {"v0": "v0/v0.mkv", "v1": "v1/clip.mkv", "v2": "v2.mkv"}


@pytest.fixture
def in_files(mot: Path) -> Path:
    """The same sequences with video files in place of their frames; that of v1 has its gt.txt and no folder gt."""
    root = mot.parent / "files"
    shutil.copytree(mot, root, ignore=shutil.ignore_patterns("img1"))
    for name, file in VIDEO_FILES.items():
        write_lossless(root / file, sorted((mot / name / "img1").iterdir()))
    shutil.rmtree(root / "v1/gt")
    (root / "v1/seqinfo.ini").unlink()
    shutil.copy(mot / "v1/gt/gt.txt", root / "v1")
    return root


def test_video_files_have_the_boxes_of_their_frames(mot: Path, in_files: Path) -> None:
    frames, _ = converted(mot)
    videos, summary = converted(in_files)
    assert f'load it: da.VideoReader("{in_files}", annotations="{summary.output}")' in str(summary)
    assert videos["annotations"] == frames["annotations"]
    assert {row["name"]: row["file_name"] for row in videos["videos"]} == VIDEO_FILES
    assert [row["fps"] for row in videos["videos"] if "fps" in row] == [10, 10]
    for row, frame in zip(videos["images"], frames["images"], strict=True):
        file = VIDEO_FILES[f"v{row['video_id'] - 1}"]
        assert row == frame | {"file_name": f"{file}/{row['frame_id']:06}.jpg"}
    assert check_coco(summary.output, in_files).errors == 0


def test_boxes_lie_on_the_pixels_of_video_files(in_files: Path) -> None:
    _, summary = converted(in_files)
    reader = da.VideoReader(in_files, annotations=summary.output, frames=3, cache=False)
    seen = 0
    for batch in da.Loader(reader, [da.Resize((150, 150))], 2, device="cpu", train=False):
        assert isinstance(batch, da.ClipBatch)
        images = batch.images.numpy()
        for clip, frame, row in np.argwhere(batch.valid.numpy()):
            box = read_box(images[clip, frame, int(batch.labels[clip, frame, row]) - 1].astype(float))
            assert np.abs(box - batch.boxes[clip, frame, row].numpy()).max() < 0.6
            seen += 1
    assert seen > 20


def test_one_video_beside_its_ground_truth(in_files: Path, tmp_path: Path) -> None:
    """The folder, and its gt.txt for `detaug convert`."""
    content, summary = converted(in_files / "v1")
    assert content["videos"][0] == {"id": 1, "name": "v1", "width": 96, "height": 128, "file_name": "clip.mkv"}
    assert detaug("convert", in_files / "v1/gt.txt", "-o", tmp_path / "again.json").code == 0
    assert json.loads((tmp_path / "again.json").read_text())["images"] == content["images"]
    assert kinds(summary) == {"sequence-info-missing": 1}


def test_videos_in_a_folder_of_their_own(in_files: Path) -> None:
    folder = in_files.parent / "own"
    folder.mkdir()
    for name, file in VIDEO_FILES.items():
        (in_files / file).rename(folder / f"{name}.mkv")
    (in_files / "v1/gt").mkdir()
    (in_files / "v1/gt.txt").rename(in_files / "v1/gt/gt.txt")
    content, summary = converted(in_files, images=folder)
    assert [row["file_name"] for row in content["videos"]] == ["v0.mkv", "v1.mkv", "v2.mkv"]
    assert check_coco(summary.output, folder).errors == 0


def test_videos_that_cannot_be_used(mot: Path, in_files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(mot / "v0/img1", in_files / "v0/img1")
    with pytest.raises(ConversionError, match=r"^v1 is a video file and v0 has images; .* sequences$"):
        converted(in_files)
    shutil.rmtree(in_files / "v0/img1")
    for name in ("a.mkv", "b.mkv"):
        shutil.copy(in_files / "v1/clip.mkv", in_files / "v0" / name)
    converted(in_files)  # v0.mkv has the name of the sequence
    (in_files / "v0/v0.mkv").unlink()
    with pytest.raises(ConversionError, match=r"video files, v0/a\.mkv and v0/b\.mkv: leave one, or name it v0"):
        converted(in_files)
    (in_files / "v0/b.mkv").unlink()
    (in_files / "v0/a.mkv").write_bytes(b"no video" * 100)
    with pytest.raises(ConversionError, match=r"^v0/a\.mkv: is not a video that can be read .* \[frames-missing\]"):
        converted(in_files)
    (in_files / "v0/a.mkv").unlink()
    add(in_files, "9,1,5,5,10,10,1,1,1", to="v2")
    with pytest.raises(ConversionError, match=r"frame 9 has boxes, and no image in v2\.mkv"):
        converted(in_files, sequences=["v2"])
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(InputError, match="reading videos needs the package av: pip install"):
        converted(in_files)
