"""Every codec in every container that PyAV writes: frames, clips and times are those that their numbers say."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import av
import numpy as np
import pytest
from numbered_videos import SIZE, number_in, numbered, same_scheduling

import detaug as da

FRAMES, RATE, KEYS = 40, 25, 8
LARGE = (192, 640)

OPTIONS: dict[str, dict[str, dict[str, str]]] = {
    "libx264": {
        "": {"preset": "veryfast"},
        "b": {"preset": "ultrafast", "bf": "3"},
        "open": {"preset": "veryfast", "x264-params": "open-gop=1:bframes=3:b-pyramid=normal:scenecut=0:b-adapt=0"},
        "refresh": {"preset": "veryfast", "x264-params": "intra-refresh=1:bframes=0"},
    },
    "libx265": {
        "b": {"preset": "ultrafast", "x265-params": "log-level=none:bframes=3:open-gop=0"},
        "open": {"preset": "ultrafast", "x265-params": "log-level=none:bframes=3:open-gop=1"},
    },
    "mpeg4": {"": {}, "b": {"bf": "2"}},
    "mpeg1video": {"": {}, "b": {"bf": "2"}},
    "mpeg2video": {"": {}, "open": {"bf": "2"}, "closed": {"bf": "2", "flags": "+cgop", "sc_threshold": "1000000000"}},
    "libvpx": {"": {}, "hidden": {"auto-alt-ref": "1", "lag-in-frames": "10", "cpu-used": "8"}},
    "libvpx-vp9": {"hidden": {"auto-alt-ref": "1", "lag-in-frames": "12", "cpu-used": "8", "deadline": "realtime"}},
    "libsvtav1": {"": {"preset": "12"}},
}

CONTAINERS = {
    "mov": "b264 open264 hevc mpeg4 mpeg2video mjpeg prores_ks libsvtav1",
    "mp4": "b264 open264 hevc mpeg4 mpeg2video mpeg1video libvpx-vp9 libsvtav1 mjpeg",
    "m4v": "b264 mpeg4",
    "3gp": "b264 mpeg4 h263",
    "mkv": "b264 open264 hevc mpeg4 mpeg2video mpeg1video libvpx libvpx-vp9 libsvtav1 mjpeg ffv1 wmv2 huffyuv",
    "webm": "libvpx libvpx-vp9 libsvtav1",
    "avi": "b264 open264 mpeg4 mpeg2video mpeg1video mjpeg msmpeg4 msmpeg4v2 wmv2 ffv1 huffyuv rawvideo libvpx png",
    "mpg": "b264 open264 hevc mpeg2video mpeg1video mpeg4",
    "mpeg": "b264 mpeg2video mpeg1video",
    "vob": "b264 mpeg2video mpeg1video",
    "ts": "b264 open264 hevc mpeg4 mpeg2video mpeg1video",
    "flv": "b264 flv",
    "asf": "b264 wmv1 wmv2 msmpeg4 mpeg4",
    "ogv": "libvpx",
    "ivf": "libvpx libvpx-vp9",
    "h264": "b264 open264",
    "hevc": "hevc",
    "m2v": "mpeg2video",
    "m1v": "mpeg1video",
    "obu": "libsvtav1",
}
"""The containers, and some of what must be readable in each."""


class Coded(NamedTuple):
    """A video file to write."""

    encoder: str
    variant: str
    container: str
    size: tuple[int, int] = SIZE

    @property
    def options(self) -> dict[str, str]:
        return OPTIONS.get(self.encoder, {}).get(self.variant, {})

    @property
    def short(self) -> str:
        return {"libx264": f"{self.variant}264", "libx265": "hevc"}.get(self.encoder, self.encoder)


def encoders() -> list[str]:
    """Return FFmpeg's encoders of videos that need no hardware."""
    names = []
    for name in sorted(av.codecs_available):
        try:
            codec = av.Codec(name, "w")
        except av.codec.codec.UnknownCodecError:
            continue
        foreign = ("nvenc", "qsv", "amf", "v4l2m2m", "vaapi", "videotoolbox", "wrapped", "vnull")
        if codec.type == "video" and codec.name == name and not any(each in name for each in foreign):
            names.append(name)
    return names


def pixels_of(encoder: str) -> str:
    known = [each.name for each in av.Codec(encoder, "w").video_formats or ()]
    preferred = ("yuv420p", "yuvj420p", "yuv422p", "yuv422p10le", "bgr0", "rgb24", "bgr24")
    return next((each for each in preferred if each in known), known[0] if known else "yuv420p")


def write(path: Path, coded: Coded) -> Path:
    """Write a video; a large one has noise in its lower half, so that a picture is larger than a pack of MPEG's."""
    rng, (height, width) = np.random.default_rng(0), coded.size
    with same_scheduling(), av.open(str(path), "w") as container:
        stream: Any = container.add_stream(coded.encoder, rate=RATE)
        stream.height, stream.width, stream.pix_fmt, stream.gop_size = height, width, pixels_of(coded.encoder), KEYS
        stream.options = coded.options
        for number in range(FRAMES):
            picture = numbered(number, coded.size)
            if coded.size != SIZE:
                picture[height // 2 :] = rng.integers(0, 256, (height - height // 2, width, 3))
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24")
            frame.pts, frame.time_base = number, Fraction(1, RATE)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


def assert_numbered(path: Path) -> None:
    """Read single frames in a random order, frames that follow each other, and clips with their times."""
    reader = da.VideoReader([path], frames=5, stride=3, step=4, cache=False)
    assert len(reader) == FRAMES
    single = np.random.default_rng(1).permutation(FRAMES)[:16]
    assert [number_in(reader.contents(np.array([at]))[0]) for at in single] == single.tolist()
    for first, length in ((0, 40), (3, 7), (13, 20), (29, 11)):
        some = np.arange(first, first + length)
        assert [number_in(each) for each in reader.contents(some)] == some.tolist()
    loader: da.Loader[da.ClipBatch] = da.Loader(reader, [da.Resize(SIZE)], 3, device="cpu", train=True)
    with loader:
        for batch in loader:
            found = [[number_in(each.permute(1, 2, 0).numpy()) for each in clip] for clip in batch.images]
            assert found == batch.frame.tolist()
            assert np.abs(batch.time.numpy() - batch.frame.numpy() / RATE).max() < 0.002


QUICK = [
    Coded("libx264", "b", "avi"),
    Coded("libx264", "open", "avi", LARGE),
    Coded("mpeg2video", "open", "mpg"),
    Coded("libx264", "b", "ts"),
]


@pytest.mark.parametrize("coded", QUICK, ids=lambda each: ".".join(map(str, each[:3])))
def test_numbered_frames(tmp_path: Path, coded: Coded) -> None:
    assert_numbered(write(tmp_path / f"a.{coded.container}", coded))


def writable(folder: Path, container: str, encoder: str) -> list[tuple[Coded, Path]]:
    """Return the videos that FFmpeg writes of an encoder in a container."""
    written = []
    size = (288, 352) if encoder in ("h263", "h261") else None  # of a few sizes only
    for variant in OPTIONS.get(encoder, {"": {}}):
        for each in (size,) if size else (SIZE, LARGE):
            coded = Coded(encoder, variant, container, each)
            path = folder / f"{encoder}.{variant}.{each[0]}.{container}"
            try:
                write(path, coded)
            except (av.FFmpegError, ValueError, OSError):
                break
            written.append((coded, path))
    return written


@pytest.mark.slow
@pytest.mark.parametrize("container", CONTAINERS)
def test_every_codec_in_a_container(tmp_path: Path, container: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read is right. MPEG's streams do not tell the codecs that are foreign to them, which are refused."""
    monkeypatch.setenv("SVT_LOG", "1")  # errors only
    read, refused, wrong = set(), list[str](), dict[str, str]()
    for encoder in encoders():
        for coded, path in writable(tmp_path, container, encoder):
            try:
                assert_numbered(path)
                read.add(coded.short)
            except da.InputError as error:
                refused.append(str(error))
            except AssertionError as error:
                wrong[path.name] = str(error)[:200]
            path.unlink()
    assert not wrong
    assert all("1 of 1 videos cannot be used" in each for each in refused)
    assert {*CONTAINERS[container].split()} <= read
