"""`VideoReader`: every frame is the one that its number says, for all codecs, strides, starts and rates."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numbered_videos import CODECS, SIZE, number_in, numbered, write_sound, write_video
from places import REPOSITORY
from seeds import slow

import detaug as da
from detaug.files.video_file import read_index

Batches = list[da.ClipBatch]

pytestmark = pytest.mark.filterwarnings("ignore:the CPU decodes")  # of codecs that the GPU does not know


@pytest.fixture(scope="module")
def encoded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two classes of two videos each, of 20 to 26 frames."""
    folder = tmp_path_factory.mktemp("encoded")
    for at, name in enumerate(("cat/b.mp4", "cat/a.webm", "dog/sub/c.mkv", "dog/d.avi")):
        codec = {".webm": "libvpx-vp9", ".avi": "mpeg4"}.get(Path(name).suffix, "libx264")
        write_video(folder / name, 20 + 2 * at, codec, keys=7, first=100 * at)
    return folder


@pytest.fixture
def videos(encoded: Path, tmp_path: Path) -> Path:
    """Copies of them, to be changed."""
    return shutil.copytree(encoded, tmp_path / "videos")


def take(reader: da.Source, **options: Any) -> Batches:
    loader: da.Loader[da.ClipBatch] = da.Loader(
        reader, [da.Resize(SIZE)], 2, **{"device": "cpu", "train": False, **options}
    )
    with loader:
        return list(loader)


def numbers(batches: Batches) -> list[list[int]]:
    """Return the numbers in the frames of each clip."""
    return [
        [number_in(each.permute(1, 2, 0).cpu().numpy()) for each in clip] for batch in batches for clip in batch.images
    ]


QUICK = [("h264.mp4", 3, 5, 2), ("h264.avi", 3, 5, 2), ("vp9.webm", 4, 1, 1)]
SLOW = [
    pytest.param(name, *clips, marks=pytest.mark.slow)
    for name in CODECS
    for clips in ((4, 1, 1), (3, 5, 2), (2, 13, 3), (30, 1, None))
    if (name, *clips) not in QUICK
]


@pytest.mark.parametrize(("name", "frames", "stride", "step"), QUICK + SLOW)
def test_every_frame_of_every_clip(
    tmp_path: Path, name: str, frames: int, stride: int, step: int | None, device: str
) -> None:
    write_video(tmp_path / name, 33, CODECS[name])
    reader = da.VideoReader(tmp_path, frames=frames, stride=stride, step=step, cache=False)
    span = (frames - 1) * stride + 1
    starts = range(0, 33 - span + 1, frames * stride if step is None else step)
    assert numbers(take(reader, device=device)) == [[*range(start, start + span, stride)] for start in starts]


@pytest.mark.parametrize("keys", [1, *slow(5, 250)])
def test_random_clips_in_any_order(tmp_path: Path, keys: int) -> None:
    write_video(tmp_path / "a.mp4", 300, keys=keys)
    reader = da.VideoReader([tmp_path / "a.mp4"], frames=5, stride=3, step=1, cache=False)
    with da.Loader(reader, [da.Resize(SIZE)], 2, device="cpu", seed=keys) as loader:
        for batch in islice(loader, 20):
            assert numbers([batch]) == batch.frame.tolist()


def test_rates_that_vary(tmp_path: Path) -> None:
    stamps = [0, 10, 300, 310, 320, 1000, 1001, 2500, 2540, 2580]
    write_video(tmp_path / "a.mkv", stamps=stamps)
    (batch,) = take(da.VideoReader(tmp_path, frames=5, stride=2, cache=False))
    assert numbers([batch]) == [[0, 2, 4, 6, 8]]
    assert batch.time[0].tolist() == pytest.approx([each / 1000 for each in stamps[::2]], abs=1e-6)


def test_classes_files_and_numbers(videos: Path) -> None:
    reader = da.VideoReader(videos, frames=4, cache=False)
    assert [os.path.relpath(file, videos) for file in reader.video_files] == [
        *("cat/a.webm", "cat/b.mp4", "dog/d.avi", "dog/sub/c.mkv"),
    ]
    assert reader.class_names == ("background", "cat", "dog")
    batches = take(reader)
    first = np.array([100, 0, 300, 200])
    for batch in batches:
        found = np.array(numbers([batch]))
        assert (found == batch.frame.numpy() + first[batch.video_id.numpy() - 1, None]).all()
        assert batch.classes is not None
        assert (batch.classes.numpy() == batch.video_id.numpy() // 3).all()
        assert (batch.track_id.shape, batch.boxes.shape) == ((len(batch), 4, 0), (len(batch), 4, 0, 4))
    assert sum(map(len, batches)) == len(reader.clips) == 5 + 5 + 6 + 6
    assert repr(reader) == f"VideoReader({str(videos)!r})  # 22 clips of 4 frames, 4 videos, 2 classes"


def test_the_loader_of_the_documentation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str) -> None:
    """Of docs/video.md, five lines with the reader: 60 frames, each the fifth, with the class of the folder."""
    for at, name in enumerate(("cat", "dog")):
        file = write_video(tmp_path / f"videos/{name}/0.mp4", 300, first=100 * at)
        for copy in range(1, 4):
            shutil.copy(file, file.with_name(f"{copy}.mp4"))
    monkeypatch.chdir(tmp_path)
    page = REPOSITORY.joinpath("docs/video.md").read_text(encoding="utf-8")
    code = page.partition("## Video files")[2].partition("```py\n")[2].partition("```")[0]
    assert len(code.splitlines()) == 4
    names: dict[str, Any] = {"da": da}
    exec(code, names)
    clips, classes, batch = names["clips"], names["classes"], names["batch"]
    assert (clips.shape, clips.device.type) == ((8, 60, 3, 224, 224), device)
    assert batch.frame.tolist() == [[*range(0, 300, 5)]] * 8
    assert (classes.cpu() == (batch.video_id > 4)).all()
    batch.images.mul_(255)  # from 0..1
    assert numbers([batch]) == (batch.frame + 100 * (batch.video_id[:, None] > 4)).tolist()
    names["loader"].close()


def test_a_list_of_files_and_a_folder_without_classes(videos: Path, tmp_path: Path) -> None:
    reader = da.VideoReader([videos / "dog/d.avi", videos / "cat/b.mp4"], frames=20, cache=False)
    assert [clip[0] for clip in numbers(take(reader))] == [300, 0]
    assert take(reader)[0].classes is None
    write_video(videos / "loose.mp4", 9)
    assert da.VideoReader(videos, frames=4, cache=False).classes is None


@pytest.mark.parametrize(("last", "expected"), [("drop", [0, 8]), ("pad", [0, 8, 16]), ("shift", [0, 8, 12])])
def test_the_end_of_a_video(tmp_path: Path, last: Any, expected: list[int]) -> None:
    write_video(tmp_path / "a.mp4", 20)
    found = numbers(take(da.VideoReader(tmp_path, frames=8, last=last, cache=False)))
    assert [clip[0] for clip in found] == expected
    whole = [*range(expected[-1], expected[-1] + 8)]
    assert found[-1] == ([16, 17, 18, 19, 19, 19, 19, 19] if last == "pad" else whole)


def test_frames_are_shown_upright(tmp_path: Path) -> None:
    """A player turns the frames of a phone's videos by the matrix of the track."""
    path = write_video(tmp_path / "a.mp4", 8)
    content = bytearray(path.read_bytes())
    at = content.index(b"tkhd") + 44
    content[at : at + 36] = struct.pack(">9i", 0, 65536, 0, -65536, 0, 0, 0, 0, 1 << 30)
    path.write_bytes(content)
    reader = da.VideoReader(tmp_path, frames=2, cache=False)
    assert reader.sizes[0].tolist() == [SIZE[1], SIZE[0]]
    loader: da.Loader[da.ClipBatch] = da.Loader(reader, [da.Resize((SIZE[1], SIZE[0]))], 1, device="cpu", train=False)
    turned = next(iter(loader)).images[0, 1].permute(1, 2, 0).numpy()
    assert number_in(np.rot90(turned)) == 1


def test_the_order_depends_on_the_seed_alone(videos: Path) -> None:
    reader = da.VideoReader(videos, frames=4, step=2, cache=False)
    whole = take(reader, train=True, seed=3)
    again = take(reader, train=True, seed=3, pipelines=2)
    assert all(torch.equal(a.images, b.images) for a, b in zip(whole, again, strict=True))
    parts = [take(reader, train=True, seed=3, shard=(rank, 2), last_batch="drop") for rank in range(2)]
    wide: da.Loader[da.ClipBatch] = da.Loader(reader, [da.Resize(SIZE)], 4, device="cpu", seed=3, last_batch="drop")
    for one, two, both in zip(*parts, wide, strict=True):
        assert torch.equal(torch.cat([one.images, two.images]), both.images)


def test_a_loader_goes_on_in_the_middle_of_an_epoch(videos: Path) -> None:
    def loader() -> da.Loader[da.ClipBatch]:
        return da.Loader(da.VideoReader(videos, frames=4, step=3, cache=False), [da.Resize(SIZE)], 2, device="cpu")

    first = loader()
    batches = iter(first)
    for _ in range(3):
        next(batches)
    state, rest = first.state_dict(), list(batches)
    second = loader()
    second.load_state_dict(state)
    assert all(torch.equal(a.images, b.images) for a, b in zip(rest, second, strict=True))


@pytest.mark.parametrize("cache", ["host", None])
def test_decoded_frames_may_be_cached(videos: Path, cache: Any) -> None:
    reader = da.VideoReader(videos, frames=4, step=2, cache=False)
    loader: da.Loader[da.ClipBatch] = da.Loader(reader, [da.Resize(SIZE)], 2, device="cpu", train=False, cache=cache)
    first, second = ([*loader] for _ in range(2))
    assert all(torch.equal(a.images, b.images) for a, b in zip(first, second, strict=True))
    assert numbers(second)[:2] == [[100, 101, 102, 103], [102, 103, 104, 105]]


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def change_size(path: Path) -> None:
    """Two MPEG videos of different sizes, one after the other, as a recording that was switched."""
    small = write_video(path.with_name("small.mpg"), 20, "mpeg2video", size=(32, 80))
    path.write_bytes(path.read_bytes() + small.read_bytes())
    small.unlink()


BAD: list[tuple[str, Callable[[Path], object], str]] = [
    ("a.mp4", cut, "is not a video that can be read"),
    ("a.mkv", cut, "is cut off: it should last 2.* s, and its frames end after"),
    ("a.mp4", lambda path: path.write_bytes(b""), "is not a video that can be read"),
    ("a.mp4", lambda path: path.write_text("no video" * 99), "is not a video that can be read"),
    ("a.mp4", write_sound, "has no video, but audio"),
]


@pytest.mark.parametrize(("name", "spoil", "message"), BAD)
def test_files_that_cannot_be_used(videos: Path, name: str, spoil: Callable[[Path], object], message: str) -> None:
    spoil(write_video(videos / "cat" / name, 60))
    reader = da.VideoReader(videos, frames=4, cache=False)
    unusable = rf"1 of 5 videos cannot be used, the first is .*cat/{name}, which {message}"
    with pytest.raises(da.InputError, match=unusable):
        take(reader)
    with pytest.warns(UserWarning, match=rf"cat/{name}.*skipped"):
        batches = take(reader, on_error="skip", max_skipped=1.0)
    assert sum(map(len, batches)) == 22
    with pytest.raises(da.InputError, match=f"1 of 1 videos cannot be used.*{message}"):
        da.VideoReader([videos / "cat" / name], frames=4, cache=False)


def jump_beyond_the_end(path: Path) -> None:
    """Let the index of a Matroska file lead beyond its end for the key frame 6."""
    content = path.read_bytes()
    first = content.index(b"\xf1\x82", content.rindex(b"\x1c\x53\xbb\x6b"))  # the place of a cluster, in the cues
    at = content.index(b"\xf1\x82", first + 2) + 2
    path.write_bytes(content[:at] + b"\x7f\xff" + content[at + 2 :])


def test_an_index_that_leads_beyond_the_end(tmp_path: Path) -> None:
    jump_beyond_the_end(write_video(tmp_path / "a.mkv", 24, keys=6))
    reader = da.VideoReader(tmp_path, frames=3, stride=5, step=2, cache=False)
    assert numbers(take(reader)) == [[start, start + 5, start + 10] for start in range(0, 14, 2)]


def playlist(path: Path) -> None:
    path.write_text("ffconcat version 1.0\nfile b.mp4\n")


def metadata_in_latin_1(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"Lavf", b"Lav\xec", 1))


def test_a_video_opens_no_other_file(videos: Path) -> None:
    playlist(videos / "cat/z.mp4")
    with pytest.raises(da.InputError, match=r"the first is .*cat/z\.mp4, which is not a video that can be read"):
        take(da.VideoReader(videos, frames=4, cache=False))


def test_metadata_in_another_encoding(tmp_path: Path) -> None:
    metadata_in_latin_1(write_video(tmp_path / "a.mp4", 8))
    assert numbers(take(da.VideoReader(tmp_path, frames=4, cache=False))) == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_a_size_that_changes_midway(videos: Path) -> None:
    path = write_video(videos / "cat/z.mpg", 20, "mpeg2video", keys=5)
    change_size(path)
    reader = da.VideoReader(videos, frames=4, cache=False)
    with pytest.raises(da.DataError, match=r"z\.mpg.*(changes its size|has no frame \d+ any more)"):
        take(reader)


def test_a_file_that_goes_away(videos: Path, device: str) -> None:
    reader = da.VideoReader(videos, frames=4, cache=False)
    (videos / "dog/d.avi").unlink()
    with pytest.raises(da.DataError, match=r"d\.avi does not exist any more"):
        take(reader, device=device)
    with pytest.warns(UserWarning, match=r"d\.avi.*skipped"):
        batches = take(reader, device=device, on_error="skip", max_skipped=1.0)
    assert sum(map(len, batches)) == 16


def test_numbers_and_times_are_stored(videos: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    before = da.VideoReader(videos, frames=4)
    monkeypatch.setattr("detaug.files.video_file.read_index", lambda file: pytest.fail(f"read {file} again"))
    after = da.VideoReader(videos, frames=4)
    assert before.fingerprint == after.fingerprint
    assert np.array_equal(before.frames.times, after.frames.times)
    assert numbers(take(after)) == numbers(take(before))
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write_video(videos / "dog/d.avi", 40, "mpeg4")
    assert len(da.VideoReader(videos, frames=4).clips) == len(before.clips) + 4


def test_sound_is_left_out(tmp_path: Path) -> None:
    write_video(tmp_path / "a.mp4", 12, sound=True)
    assert numbers(take(da.VideoReader(tmp_path, frames=6, cache=False))) == [[*range(6)], [*range(6, 12)]]


def test_wrong_arguments(videos: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(da.InputError, match=r"empty: no videos; their names end in \.avi"):
        da.VideoReader(tmp_path / "empty")
    with pytest.raises(da.InputError, match="nowhere: no such folder; give a folder of videos"):
        da.VideoReader(tmp_path / "nowhere")
    with pytest.raises(da.InputError, match="the list: no videos"):
        da.VideoReader([])
    with pytest.raises(da.InputError, match="a clip spans 99 frames, the longest video has 26; give fewer frames"):
        da.VideoReader(videos, frames=99, cache=False)
    with pytest.raises(da.InputError, match="stride must be a whole number of at least 1, got 0"):
        da.VideoReader(videos, stride=0)
    with pytest.raises(da.InputError, match="last must be 'drop', 'pad' or 'shift'"):
        da.VideoReader(videos, last="no")  # type: ignore[arg-type]


def test_keys_are_those_that_were_asked_for(tmp_path: Path) -> None:
    index = read_index(str(write_video(tmp_path / "a.mp4", 30, keys=10)))
    assert index.keys.tolist() == [0, 10, 20]
    assert number_in(numbered(731)) == 731
