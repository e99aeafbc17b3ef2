"""Every codec in every container that PyAV writes: frames, clips and times are those that their numbers say."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import av
import numpy as np
import pytest
from numbered_videos import SIZE, number_in, numbered, same_scheduling, write_video

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
    "mov": "b264 open264 hevc mpeg4 mpeg2video mjpeg prores_ks",
    "mp4": "b264 open264 hevc mpeg4 mpeg2video mpeg1video libvpx-vp9 libsvtav1 mjpeg",
    "m4v": "b264 mpeg4",
    "3gp": "b264 mpeg4 h263",
    "mkv": "b264 open264 hevc mpeg4 mpeg2video mpeg1video libvpx libvpx-vp9 libsvtav1 mjpeg ffv1",
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

PACKED = ("mpg", "mpeg", "vob", "ts", "avi")
"""Containers in which a large image is stored unlike a small one."""


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
    if encoder == "mjpeg":
        return "yuvj420p"
    known = [each.name for each in av.Codec(encoder, "w").video_formats or ()]
    preferred = ("yuv420p", "yuvj420p", "yuv422p", "yuv422p10le", "bgr0", "rgb24", "bgr24")
    return next((each for each in preferred if each in known), known[0] if known else "yuv420p")


def write(path: Path, coded: Coded) -> Path:
    """Write a video; a large one has noise in its lower half, so that an image is larger than a pack of MPEG's."""
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


def assert_numbered(path: Path, *, often: bool = True) -> None:
    """Read single frames in a random order, and frames that follow each other; the more `often`, the more of them."""
    reader = da.VideoReader([path], frames=5, stride=3, step=4, cache=False)
    assert len(reader) == FRAMES
    single = np.random.default_rng(1).permutation(FRAMES)[: 16 if often else 5]
    assert [number_in(reader.contents(np.array([at]))[0]) for at in single] == single.tolist()
    for first, length in ((0, 40), (3, 7), (13, 20), (29, 11)) if often else ((0, 40), (29, 11)):
        some = np.arange(first, first + length)
        assert [number_in(each) for each in reader.contents(some)] == some.tolist()


def assert_clips(*paths: Path) -> None:
    """Load clips of videos, with their times."""
    reader = da.VideoReader([*paths], frames=5, stride=3, step=4, cache=False)
    loader: da.Loader[da.ClipBatch] = da.Loader(reader, [da.Resize(SIZE)], 3, device="cpu", train=True)
    with loader:
        for batch in loader:
            videos = f"{[path.name for path in paths]}, {batch.video_id.tolist()}"
            found = [[number_in(each.permute(1, 2, 0).numpy()) for each in clip] for clip in batch.images]
            assert found == batch.frame.tolist(), videos
            assert np.abs(batch.time.numpy() - batch.frame.numpy() / RATE).max() < 0.002, videos


QUICK = [
    Coded("libx264", "b", "avi"),
    pytest.param(Coded("libx264", "open", "avi", LARGE), marks=pytest.mark.slow),
    Coded("mpeg1video", "b", "mpg"),
    Coded("libx264", "b", "asf"),
]


@pytest.mark.parametrize("coded", QUICK, ids=lambda each: ".".join(map(str, each[:3])))
def test_numbered_frames(tmp_path: Path, coded: Coded) -> None:
    path = write(tmp_path / f"a.{coded.container}", coded)
    assert_numbered(path)
    assert_clips(path)


def test_an_mp4_with_times_of_decoding(tmp_path: Path) -> None:
    """Some programs write the frames of an encoder as they come, with the times 0, 1, 2..."""
    source = write(tmp_path / "a.mkv", Coded("libx264", "b", "mkv"))
    with av.open(str(source)) as given, av.open(str(tmp_path / "b.mp4"), "w") as container:
        stream = container.add_stream_from_template(given.streams.video[0])
        for at, packet in enumerate(each for each in given.demux(video=0) if each.size):
            packet.pts, packet.dts, packet.duration = at, at, 1
            packet.time_base, packet.stream = Fraction(1, RATE), stream
            container.mux(packet)
    assert_numbered(tmp_path / "b.mp4")
    assert_clips(tmp_path / "b.mp4")


@pytest.mark.parametrize(("container", "codec"), [("avi", "mpeg4"), ("ts", "libx264")])
def test_times_of_frames_that_are_left_out(tmp_path: Path, container: str, codec: str) -> None:
    """AVI has empty packets in their place."""
    stamps = [0, 40, 80, 200, 240, 280, 480, 520, 560, 600]
    path = tmp_path / f"a.{container}"
    with av.open(str(path), "w") as file:
        stream: Any = file.add_stream(codec, rate=RATE)
        stream.height, stream.width, stream.pix_fmt = *SIZE, "yuv420p"
        stream.options = {"bf": "2"} if codec == "libx264" else {}
        for number, stamp in enumerate(stamps):
            frame = av.VideoFrame.from_ndarray(numbered(number), format="rgb24")
            frame.pts, frame.time_base = stamp // 40, Fraction(1, RATE)
            file.mux(stream.encode(frame))
        file.mux(stream.encode())
    reader = da.VideoReader([path], frames=10, cache=False)
    assert [number_in(each) for each in reader.contents(np.arange(10))] == [*range(10)]
    (batch,) = da.Loader[da.ClipBatch](reader, [da.Resize(SIZE)], 1, device="cpu", train=False)
    assert batch.time[0].tolist() == pytest.approx([each / 1000 for each in stamps], abs=1e-3)


@pytest.mark.parametrize("container", ["avi", "mkv"])
def test_a_broken_packet_has_a_number(tmp_path: Path, container: str) -> None:
    path = tmp_path / f"a.{container}"
    whole = write(tmp_path / "whole.mkv", Coded("ffv1", "", "mkv"))
    with av.open(str(whole)) as given, av.open(str(path), "w") as file:
        stream = file.add_stream_from_template(given.streams.video[0])
        for at, packet in enumerate(each for each in given.demux(video=0) if each.size):
            copy = av.Packet(bytes(packet) if at != 17 else b"broken")
            copy.pts = copy.dts = packet.pts
            copy.time_base, copy.stream, copy.is_keyframe = packet.time_base, stream, packet.is_keyframe
            file.mux(copy)
    reader = da.VideoReader([path], frames=5, cache=False)
    assert len(reader) == FRAMES
    assert [number_in(reader.contents(np.array([at]))[0]) for at in (16, 24, 39)] == [16, 24, 39]
    with pytest.raises(OSError, match="does not decode around frame 17"):
        reader.contents(np.array([17]))


def writable(folder: Path, container: str, encoder: str, needed: set[str]) -> Iterator[tuple[Coded, Path]]:
    """Yield the videos of an encoder that FFmpeg writes in a container, and reads from their first frame to the last.

    Large ones, and all variants, only of codecs that the container is for, `needed`.

    It does not read all that it writes: MPEG's streams do not name codecs that are foreign to them.
    """
    if (encoder, container) == ("rpza", "mov"):
        return  # FFmpeg marks all its frames as key frames, which they are not
    sizes = [SIZE, LARGE] if encoder in OPTIONS else [(288, 352)] if encoder in ("h261", "h263") else [SIZE]
    for number, variant in enumerate(OPTIONS.get(encoder, {"": {}})):
        for size in sizes:
            coded = Coded(encoder, variant, container, size)
            if (size == LARGE or number) and coded.short not in needed:
                continue
            path = folder / f"{encoder}.{variant}.{size[0]}.{container}"
            with suppress(av.FFmpegError, ValueError, OSError, IndexError):
                write(path, coded)
                with av.open(str(path)) as file:
                    found = [number_in(frame.to_ndarray(format="rgb24")) for frame in file.decode(video=0)]
                if found == [*range(FRAMES)]:
                    yield coded, path


@pytest.mark.slow
@pytest.mark.parametrize("container", CONTAINERS)
def test_every_codec_in_a_container(tmp_path: Path, container: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SVT_LOG", "1")  # errors only
    needed, read = {*CONTAINERS[container].split()}, list[tuple[str, Path]]()
    for encoder in encoders():
        for coded, path in writable(tmp_path, container, encoder, needed):
            try:
                small = coded.size == SIZE or container in PACKED
                assert_numbered(path, often=small and coded.short in needed)
                read.append((coded.short, path))
            except (AssertionError, OSError, da.InputError) as error:
                if "1 of 1 videos cannot be used" not in str(error):  # in MPEG's streams, of foreign codecs
                    raise AssertionError(f"{coded}: {error}") from error
    assert needed <= {short for short, _ in read}
    assert_clips(*(path for short, path in read if short in needed))


def frames_of(path: Path) -> list[int]:
    """Return the numbers in the frames that the reader has."""
    reader = da.VideoReader([path], frames=1, cache=False)
    return [number_in(each) for each in reader.contents(np.arange(len(reader)))]


@pytest.mark.parametrize("container", ["mkv", "webm", "mp4"])
def test_times_that_do_not_begin_at_0(tmp_path: Path, container: str) -> None:
    codec = "libvpx-vp9" if container == "webm" else "libx264"
    path = write_video(tmp_path / f"a.{container}", codec=codec, stamps=range(5000, 6600, 40))
    assert frames_of(path) == [*range(40)]


@pytest.mark.parametrize("container", ["mkv", "mp4"])
def test_a_last_frame_that_is_shown_for_long(tmp_path: Path, container: str) -> None:
    path = tmp_path / f"a.{container}"
    with av.open(str(write_video(tmp_path / "all.mkv", 10))) as file, av.open(str(path), "w") as output:
        packets = [packet for packet in file.demux(video=0) if packet.size]
        stream = output.add_stream_from_template(file.streams.video[0])
        for packet in packets:
            packet.stream, packet.duration = stream, 20_000 if packet is packets[-1] else 40
            output.mux(packet)
    with av.open(str(path)) as file:
        if max(packet.duration or 0 for packet in file.demux(video=0)) == 40:
            pytest.skip(f"PyAV {av.__version__} does not write the duration of the last frame")
    assert frames_of(path) == [*range(10)]


@pytest.mark.parametrize(("codec", "kind", "skipped"), [("libx264", "open", None), ("libx264", "b", 3)])
def test_packets_that_do_not_decode_at_the_start_have_no_numbers(
    tmp_path: Path, codec: str, kind: str, skipped: int | None
) -> None:
    """As `ffmpeg -ss SECONDS -c copy` leaves them, and a stream that is recorded from its middle on."""
    path = tmp_path / "a.mkv"
    with (
        av.open(str(write(tmp_path / "all.mkv", Coded(codec, kind, "mkv")))) as file,
        av.open(str(path), "w") as output,
    ):
        packets = [packet for packet in file.demux(video=0) if packet.size]
        first = [at for at, packet in enumerate(packets) if packet.is_keyframe][1] if skipped is None else skipped
        stream = output.add_stream_from_template(file.streams.video[0])
        for packet in packets[first:]:
            packet.stream = stream
            output.mux(packet)
    with av.open(str(path)) as file:
        expected = [number_in(frame.to_ndarray(format="rgb24")) for frame in file.decode(video=0)]
    assert len(expected) < len(packets) - first
    assert frames_of(path) == expected


@pytest.mark.parametrize("sound", [False, True])
def test_an_avi_that_is_cut_off_is_refused(tmp_path: Path, sound: bool) -> None:
    content = write_video(tmp_path / "a.avi", 200, "mpeg4", sound=sound).read_bytes()
    assert frames_of(tmp_path / "a.avi") == [*range(200)]
    (tmp_path / "a.avi").write_bytes(content[: len(content) // 2])
    with pytest.raises(da.InputError, match=f"is cut off: it should have {len(content):,} bytes, and has"):
        frames_of(tmp_path / "a.avi")


def test_a_file_with_sound_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    content = write_video(tmp_path / "a.mkv", 200, sound=True).read_bytes()
    (tmp_path / "a.mkv").write_bytes(content[: len(content) // 2])
    with pytest.raises(da.InputError, match=r"is cut off: it should last 8\.\d s, and its frames end after"):
        frames_of(tmp_path / "a.mkv")


@pytest.mark.parametrize("matrix", [(-1, 0, 0, 1), (1, 0, 0, -1), (0, 1, 1, 0)])
def test_a_video_to_be_shown_mirrored_is_refused(tmp_path: Path, matrix: tuple[int, ...]) -> None:
    content = bytearray(write_video(tmp_path / "a.mp4", 5).read_bytes())
    at = content.find(b"tkhd") + 4 + 4 + 4 * 5 + 8 + 2 * 4  # behind version, times, id, duration, layer and volume
    a, b, c, d = (each << 16 for each in matrix)
    content[at : at + 36] = struct.pack(">9i", a, b, 0, c, d, 0, 0, 0, 1 << 30)
    (tmp_path / "a.mp4").write_bytes(content)
    with pytest.raises(da.InputError, match="is to be shown mirrored"):
        frames_of(tmp_path / "a.mp4")
