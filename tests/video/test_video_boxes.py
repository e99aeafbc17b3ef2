"""`VideoReader` with annotations: the clips, boxes and tracks that the same frames have as files."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from command import detaug
from PIL import Image
from video_files import paint_videos, write_lossless

import detaug as da
from detaug.coco import annotation_cache
from detaug.converters import check_coco, merge_coco

RECIPE = [da.RandomHorizontalFlip(), da.RandomIoUCrop(), da.Resize((90, 110)), da.RandomErasing(1.0)]


class Files(NamedTuple):
    frames: Path
    """A folder of the frames, and of the JSON file of these."""
    videos: Path
    """A folder of a video file of each, of the same pixels."""
    json: Path

    def change(self, change: Callable[[Any], object]) -> None:
        document = json.loads(self.json.read_text())
        change(document)
        self.json.write_text(json.dumps(document))


pytestmark = pytest.mark.filterwarnings("ignore:the CPU decodes")  # of codecs that the GPU does not know


@pytest.fixture
def files(tmp_path: Path) -> Files:
    painted = paint_videos(tmp_path / "frames")
    found = Files(painted.folder, tmp_path / "videos", tmp_path / "videos.json")
    found.json.write_text(painted.json.read_text())
    for video in range(3):
        write_lossless(found.videos / f"sub/v{video}.mkv", sorted((painted.folder / f"v{video}").iterdir()))
    found.change(lambda document: [each.update(file_name=f"sub/{each['name']}.mkv") for each in document["videos"]])
    return found


def batches(reader: da.Source, **options: Any) -> list[da.ClipBatch]:
    loader: da.Loader[da.ClipBatch] = da.Loader(reader, RECIPE, 2, **{"device": "cpu", "seed": 1, **options})
    with loader:
        return list(loader)


def video_reader(files: Files, **options: Any) -> da.VideoReader:
    return da.VideoReader(files.videos, annotations=files.json, **{"frames": 4, "step": 1, "cache": False, **options})


def add_shapes(document: Any) -> None:
    """Give annotations a triangle, two keypoints and a column."""
    for number, each in enumerate(document["annotations"]):
        x, y, width, height = each["bbox"]
        each["segmentation"] = [[x, y, x + width, y, x, y + height]]
        each["keypoints"] = [x + 1, y + 1, 2, x + width - 1, y + 1, 2]
        each["number"] = number
    for category in document["categories"]:
        category["keypoints"] = ["left", "right"]


def test_shapes_and_columns_are_the_same(files: Files) -> None:
    frames = Files(files.frames, files.videos, files.frames / "videos.json")
    frames.change(add_shapes)
    files.change(add_shapes)
    wanted: Any = {"masks": True, "keypoints": True, "rotated": True, "tight": True, "columns": ["number"]}
    found = batches(video_reader(files, **wanted), train=False)
    clips: Any = {"frames": 4, "step": 1, "cache": False}
    expected = batches(da.ClipReader(frames.frames, frames.json, **clips, **wanted), train=False)
    for one, two in zip(found, expected, strict=True):
        assert torch.equal(one.masks(2), two.masks(2))
        assert torch.equal(one.keypoints, two.keypoints)
        assert torch.equal(one.corners, two.corners)
        assert torch.equal(one.boxes, two.boxes)
        assert torch.equal(torch.as_tensor(one.columns["number"]), torch.as_tensor(two.columns["number"]))
    assert sum(int(each.masks().sum()) for each in found) > 1000
    with pytest.raises(da.InputError, match="are read of annotations: give a CocoVID JSON file"):
        da.VideoReader(files.videos / "sub", masks=True)


@pytest.mark.parametrize("clips", [(4, 2, 1, "drop"), (3, 1, 3, "pad"), (12, 1, 1, "shift")])
def test_frames_of_files_and_of_videos_are_the_same(
    files: Files, clips: tuple[int, int, int, Any], device: str
) -> None:
    names: Any = dict(zip(("frames", "stride", "step", "last"), clips, strict=True))
    in_order: Any = {"device": device, "train": False}  # training takes clips of files stretch by stretch
    expected = batches(da.ClipReader(files.frames, files.frames / "videos.json", **names), **in_order)
    found = batches(video_reader(files, **names), **in_order)
    assert len(found) == len(expected)
    for one, two in zip(found, expected, strict=True):
        tensors = [name for name, value in vars(two).items() if isinstance(value, torch.Tensor) and name != "time"]
        assert all(torch.equal(getattr(one, name), getattr(two, name)) for name in tensors)
        assert one.time.cpu().numpy() == pytest.approx(one.frame.cpu().numpy() / 10, abs=1e-3)


def test_a_json_of_some_frames(files: Files) -> None:
    """As of videos of which every third frame is annotated: a clip has the frames that the JSON file has."""

    def keep(document: Any) -> None:
        document["images"] = [each for each in document["images"] if each["frame_id"] % 3 == 0]
        kept = {each["id"] for each in document["images"]}
        document["annotations"] = [each for each in document["annotations"] if each["image_id"] in kept]

    files.change(keep)
    found = batches(video_reader(files, frames=3), train=False)
    assert sorted(clip for batch in found for clip in batch.frame.tolist()) == sorted(
        [[0, 3, 6], [3, 6, 9], [6, 9, 12], [0, 3, 6], [0, 3, 6], [3, 6, 9]]
    )
    (files.frames / "videos.json").write_text(files.json.read_text())
    expected = batches(da.ClipReader(files.frames, files.frames / "videos.json", frames=3), train=False)
    assert all(torch.equal(one.images, two.images) for one, two in zip(found, expected, strict=True))


def first_video(document: Any) -> Any:
    return document["videos"][0]


WRONG: list[tuple[Callable[[Any], object], str]] = [
    (
        lambda each: first_video(each).pop("file_name"),
        "each video must have the file_name of a video file, .* and the video 1 has none",
    ),
    (lambda each: first_video(each).update(file_name="v0"), r"a video file, as .*, and the video 1 has none"),
    (lambda each: each.pop("videos"), r"a video file, as .*, and the image 'v\d/\d+.png' is of no video"),
    (lambda each: first_video(each).update(file_name="../v0.mkv"), "file_name must not lead outside the image folder"),
    (lambda each: each["images"][0].update(frame_id=14), r"frame_id 14 of sub/v\d.mkv, whose \d+ frames are 0 to \d+"),
    (
        lambda each: [image.update(width=999) for image in each["images"] if image["video_id"] == 2],
        r"the images of sub/v1.mkv have 999 x 128 pixels, its frames 96 x 128, turned as the file says",
    ),
    (
        lambda each: (  # two videos of one file, of which one says another size
            [row.update(file_name="sub/v0.mkv") for row in each["videos"][:2]],
            [row.update(width=48, height=64) for row in each["images"] if row["video_id"] == 2],
            each.update(annotations=[]),
        ),
        r"the images of sub/v0.mkv have 48 x 64 pixels, its frames \d+ x \d+, turned as the file says",
    ),
]


@pytest.mark.parametrize(("change", "message"), WRONG)
def test_jsons_that_do_not_fit(files: Files, change: Callable[[Any], object], message: str) -> None:
    files.change(change)
    with pytest.raises(da.AnnotationError, match=message):
        video_reader(files)


def test_folders_that_are_wrong(files: Files, tmp_path: Path) -> None:
    with pytest.raises(da.InputError, match=r"nowhere: no such folder; it must hold the videos that .*json names"):
        da.VideoReader(tmp_path / "nowhere", annotations=files.json)
    with pytest.raises(da.InputError, match="with annotations, videos must be the folder that the file_name"):
        da.VideoReader([files.videos / "sub/v0.mkv"], annotations=files.json)
    with pytest.raises(da.AnnotationError, match=r"in video files, as 'sub/v0.mkv'.*da.VideoReader\(VIDEOS, annot"):
        da.ClipReader(files.videos, files.json)
    with pytest.raises(da.AnnotationError, match="a clip spans 39 frames, the longest video has 14; give fewer"):
        video_reader(files, frames=20, stride=2)


def test_a_video_that_is_missing(files: Files) -> None:
    (files.videos / "sub/v1.mkv").unlink()
    with pytest.raises(da.InputError, match=r"1 of 3 videos cannot be used, the first is .*v1\.mkv, which does not"):
        batches(video_reader(files))
    with pytest.warns(UserWarning, match=r"v1\.mkv.*skipped"):
        found = batches(video_reader(files), on_error="skip", max_skipped=1.0)
    assert {number for batch in found for number in batch.video_id.tolist()} == {1, 3}
    summary = check_coco(files.json, files.videos, clean=files.json.with_name("clean.json"))
    assert summary.kind_counts == {"video-missing": 1}
    assert "its file 'sub/v1.mkv' is not in the image folder" in str(summary)
    clean = da.VideoReader(files.videos, annotations=files.json.with_name("clean.json"), frames=4, step=1)
    assert len(clean.clips) == 11 + 8
    assert not check_coco(files.json.with_name("clean.json"), files.videos).kind_counts


def test_readers_and_commands_of_images_say_what_reads_video_files(files: Files, tmp_path: Path) -> None:
    message = r"the frames are in video files, as 'sub/v0\.mkv', and are not files.*VideoReader\(VIDEOS, annotations"
    for reader in (da.CocoReader, da.ClipReader):
        with pytest.raises(da.InputError, match=message):
            reader(files.videos, files.json)
    picture = tmp_path / "a.png"
    wrong = detaug("preview", files.json, files.videos, "-o", picture)
    assert (wrong.code, "detaug preview --frames N" in wrong.err) == (2, True)
    assert detaug("preview", files.json, files.videos, "-o", picture, "--frames", 4).code == 0
    wrong = detaug("pack", files.json, files.videos, "-o", tmp_path / "packed")
    assert (wrong.code, "and shards hold images; write the frames as the files that file_name" in wrong.err) == (
        2,
        True,
    )
    assert detaug("pack", files.json, files.frames, "-o", tmp_path / "packed").code == 0


@pytest.mark.slow
def test_frames_that_are_files_too_are_checked(files: Files) -> None:
    videos, frames = check_coco(files.json, files.videos), check_coco(files.json, files.frames, decode=True)
    assert not videos.kind_counts
    assert str(videos).endswith("ready for training; videos not opened (decode=True)")
    assert not frames.kind_counts
    Image.new("RGB", (9, 9)).save(files.frames / "v1/004.png")
    assert check_coco(files.json, files.frames).kind_counts == {"size-wrong": 1}


def test_check_opens_the_videos_with_decode(files: Files, tmp_path: Path) -> None:
    assert str(check_coco(files.json, files.videos)).endswith("ready for training; videos not opened (decode=True)")
    good = check_coco(files.json, files.videos, decode=True)
    assert (good.kind_counts, str(good).splitlines()[-1]) == ({}, "0 errors, 0 warnings: ready for training")
    isolated = check_coco(files.json, files.videos, decode=True, isolated=True)
    assert str(isolated).endswith("ready for training; videos not opened")
    document = json.loads(files.json.read_text())
    latest = max(document["images"], key=lambda image: (image["video_id"] == 1, image["frame_id"]))
    latest["frame_id"] += 1000
    for image in document["images"]:
        if image["video_id"] == 2:
            image["width"] += 1
    wrong = tmp_path / "wrong.json"
    wrong.write_text(json.dumps(document))
    summary = check_coco(wrong, files.videos, decode=True)
    sizes = sum(image["video_id"] == 2 for image in document["images"])
    assert summary.kind_counts == {"frame-missing": 1, "size-wrong": sizes}
    cleaned = check_coco(wrong, files.videos, decode=True, clean=tmp_path / "clean.json").cleaned
    assert cleaned is not None
    da.VideoReader(files.videos, annotations=tmp_path / "clean.json", frames=1)


def test_check_names_a_video_that_is_cut_off(files: Files, tmp_path: Path) -> None:
    videos = Path(shutil.copytree(files.videos, tmp_path / "cut"))
    name = json.loads(files.json.read_text())["videos"][0]["file_name"]
    (videos / name).write_bytes((videos / name).read_bytes()[:100])
    assert not check_coco(files.json, videos).kind_counts
    summary = check_coco(files.json, videos, decode=True, clean=tmp_path / "clean.json")
    assert summary.kind_counts == {"video-unusable": 1}
    assert name in str(summary)
    left = json.loads((tmp_path / "clean.json").read_text())
    assert name not in [video["file_name"] for video in left["videos"]]
    da.VideoReader(videos, annotations=tmp_path / "clean.json", frames=1).check_files()


def test_merged_jsons_name_their_files(files: Files, tmp_path: Path) -> None:
    more, other = tmp_path / "more", tmp_path / "other.json"
    shutil.copytree(files.videos, more)
    shutil.copy(files.json, other)
    merged = merge_coco([files.json, other], tmp_path / "both.json", images=[files.videos, more])
    _, _, line = str(merged).rpartition("\n")
    assert line == f'load it: da.VideoReader("{tmp_path}", annotations="{merged.output}")'
    document = json.loads((tmp_path / "both.json").read_text())
    names = [each["file_name"] for each in document["videos"]]
    assert len(da.VideoReader(tmp_path, annotations=tmp_path / "both.json", frames=4).clips) == 2 * 7
    assert names == [f"{folder}/sub/v{at}.mkv" for folder in ("videos", "more") for at in range(3)]


def test_the_json_may_come_from_the_cache(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(annotation_cache, "SMALLEST", 0)
    readers = [video_reader(files, cache=True) for _ in range(2)]
    first, second = (batches(each) for each in readers)
    assert all(torch.equal(one.images, two.images) for one, two in zip(first, second, strict=True))
    assert readers[0].fingerprint == readers[1].fingerprint
    assert np.array_equal(readers[0].frames.times, readers[1].frames.times)


def test_a_preview(files: Files, tmp_path: Path) -> None:
    result = detaug("preview", files.json, files.videos, "-o", tmp_path / "a.gif", "--frames", 4)
    assert "of 25 clips" in result.out
    with Image.open(tmp_path / "a.gif") as picture:
        assert picture.n_frames == 4  # type: ignore[attr-defined]


def test_videos_without_images_are_one_error(tmp_path: Path) -> None:
    content = {"videos": [{"id": 1}], "images": [], "annotations": [], "categories": [{"id": 1, "name": "car"}]}
    (tmp_path / "a.json").write_text(json.dumps(content))
    with pytest.raises(da.AnnotationError, match=r"a\.json has no images"):
        da.ClipReader(tmp_path, tmp_path / "a.json", frames=2)
    assert check_coco(tmp_path / "a.json", tmp_path).kind_counts["images-empty"] == 1
