"""Video files, made with PyAV, whose frames carry their number in their pixels: a row of black and white fields."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray

BITS = 10
SIZE = (48, 16 * BITS)

CODECS = {
    "h264.mp4": "libx264",
    "h264.mkv": "libx264",
    "h264.mov": "libx264",
    "h264.avi": "libx264",
    "h264.mpg": "libx264",
    "hevc.mp4": "libx265",
    "mpeg4.avi": "mpeg4",
    "mpeg2.mpg": "mpeg2video",
    "vp8.webm": "libvpx",
    "vp9.webm": "libvpx-vp9",
    "av1.mp4": "libsvtav1",
    "mjpeg.mkv": "mjpeg",
}


def numbered(number: int, size: tuple[int, int] = SIZE) -> NDArray[np.uint8]:
    """Return a frame with its number."""
    frame = np.full((*size, 3), 90, np.uint8)
    field = size[1] // BITS
    for bit in range(BITS):
        frame[: size[0] // 2, bit * field : (bit + 1) * field] = 255 * (number >> bit & 1)
    return frame


def number_in(frame: NDArray[Any]) -> int:
    """Return the number in a frame (H, W, 3) or (H, W) of 0..255, of any size."""
    height, width = frame.shape[:2]
    centers = ((np.arange(BITS) + 0.5) * (width / BITS)).astype(int)
    fields = np.asarray(frame[height // 8 : height * 3 // 8, centers], np.float64)
    bits = fields.reshape(len(fields), BITS, -1).mean((0, 2)) > 128
    return int((bits << np.arange(BITS)).sum())


def write_video(
    path: Path,
    frames: int = 40,
    codec: str = "libx264",
    *,
    rate: int = 25,
    keys: int = 12,
    stamps: Iterable[int] | None = None,
    size: tuple[int, int] = SIZE,
    sound: bool = False,
    first: int = 0,
) -> Path:
    """Write frames first, first + 1, ...  `keys`: frames from a key frame to the next. `stamps`: times in 1/1000 s."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with same_scheduling(), av.open(str(path), "w") as container:
        stream: Any = container.add_stream(codec, rate=rate)
        stream.height, stream.width = size
        stream.pix_fmt = "yuvj420p" if codec == "mjpeg" else "yuv420p"
        stream.gop_size = keys
        if codec in ("libx264", "libx265"):
            stream.options = {"preset": "ultrafast", "bf": "2", "x265-params": "log-level=none:bframes=2"}
        if stamps is not None:
            stream.codec_context.time_base = Fraction(1, 1000)
        audio = container.add_stream("aac", rate=44100) if sound else None
        for number, stamp in enumerate(stamps or range(frames)):
            frame = av.VideoFrame.from_ndarray(numbered(first + number, size), format="rgb24")
            frame.pts, frame.time_base = stamp, Fraction(1, 1000 if stamps is not None else rate)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
        if audio is not None:
            write_silence(container, audio, frames / rate)
    return path


@contextmanager
def same_scheduling() -> Iterator[None]:
    """Undo what SVT-AV1 does: it lets the thread that encodes, and all processes that it starts, run in real time."""
    policy, parameters = os.sched_getscheduler(0), os.sched_getparam(0)
    yield
    os.sched_setscheduler(0, policy, parameters)


def write_silence(container: Any, stream: Any, seconds: float) -> None:
    for at in range(int(seconds * 44100) // 1024):
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
        frame.sample_rate, frame.pts = 44100, at * 1024
        container.mux(stream.encode(frame))
    container.mux(stream.encode())


def write_sound(path: Path) -> Path:
    """Write a file with sound only."""
    with av.open(str(path), "w") as container:
        write_silence(container, container.add_stream("aac", rate=44100), 1)
    return path
