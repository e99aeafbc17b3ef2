"""Read video files with PyAV: where their frames are, without decoding them, and some frames as images.

A frame has a number, from 0, in the order in which a player shows them; also where the frame rate varies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from detaug.boxes.views import Bytes, Floats, Ints
from detaug.converters.findings.errors import InputError

FORMATS = "mov,matroska,avi,mpeg,mpegvideo,mpegts,m4v,h264,hevc,obu,ivf,flv,asf,ogg"
"""FFmpeg's formats that may be in a file. Others, such as playlists, name further files and addresses to read."""

CUT_OFF = 1.0
"""Seconds by which the frames of a file that is not cut off may end before the duration that it states."""


class VideoError(OSError):
    """A file that is no video that can be used. The message is the end of a sentence about the file."""


class Coding(NamedTuple):
    """How the frames of a file are stored."""

    codec: str
    """FFmpeg's name of the codec."""
    pixels: str
    """FFmpeg's name of the format of the decoded pixels."""
    turns: int
    """Quarter turns, counter-clockwise, that make a decoded frame upright."""


class VideoIndex(NamedTuple):
    """The frames of a video file."""

    stamps: Ints
    """(n,) the presentation times of the frames, in units of the stream, ascending."""
    keys: Ints
    """The numbers of the frames from which decoding can begin, ascending."""
    unit: float
    """Seconds."""
    size: tuple[int, int]
    """(height, width) as displayed."""
    coding: Coding
    is_timed: bool = True
    """Whether each frame has a time of its own. Otherwise `stamps` count, and decoding must begin at the first one."""

    @property
    def times(self) -> Floats:
        """Return (n,) seconds from the first frame."""
        return np.asarray((self.stamps - self.stamps[0]) * self.unit)


def import_av() -> Any:
    """Return PyAV. Raises InputError if it is not installed."""
    try:
        import av
    except ImportError:
        raise InputError("video files need the package av: pip install 'detaug[video]'") from None
    return av


def open_video(path: str) -> Any:
    """Open a video file, and no other file that it names."""
    only = {"format_whitelist": FORMATS, "protocol_whitelist": "file"}
    av = import_av()
    has_option = int(av.__version__.split(".")[0]) < 19  # PyAV 19 accepts any bytes in metadata
    lenient = {"metadata_errors": "replace"} if has_option else {}
    return av.open(path, options=only, **lenient)


def read_index(path: str) -> VideoIndex:
    """Find the frames of a video file. Raises VideoError, and OSError where it cannot be read."""
    av = import_av()
    try:
        with open_video(path) as container:
            stream = _video_stream(container)
            packets = [each for each in container.demux(stream) if each.size and not each.is_discard]
            index = _index(container, stream, packets)
            _check_whole(container, stream, index)
        return index
    except FileNotFoundError:
        raise FileNotFoundError(path) from None
    except av.FFmpegError as error:
        raise VideoError(f"is no video that can be read ({_reason(error)})") from None


def decode_frames(path: str, index: VideoIndex, numbers: Sequence[int]) -> list[Bytes]:
    """Return frames, (H, W, 3) uint8 RGB. `numbers`: ascending, they may be repeated.

    Raises VideoError, and OSError where the file cannot be read.
    """
    av, wanted = import_av(), sorted({*numbers})
    for seek in (True, False):
        with suppress(av.FFmpegError):
            if len(found := _decode(path, index, wanted, seek=seek)) == len(wanted):
                return [found[number] for number in numbers]
    alone = {number: _decode_alone(path, index, number) for number in wanted}
    return [alone[number] for number in numbers]


def _decode_alone(path: str, index: VideoIndex, number: int) -> Bytes:
    """Return a frame of a file that cannot be decoded in one go, so that the frame that is at fault is named."""
    av = import_av()
    try:
        found = _decode(path, index, [number], seek=True) or _decode(path, index, [number])
    except FileNotFoundError:
        raise FileNotFoundError(path) from None
    except av.FFmpegError as error:
        raise VideoError(f"does not decode around frame {number} ({_reason(error)})") from None
    if not found:
        raise VideoError(f"has no frame {number} any more: it is cut off, or has changed")
    return found[number]


def _video_stream(container: Any) -> Any:
    if not container.streams.video:
        kinds = ", ".join(sorted({each.type for each in container.streams})) or "nothing"
        raise VideoError(f"has no video, but {kinds}")
    return container.streams.video[0]


def _index(container: Any, stream: Any, packets: Sequence[Any]) -> VideoIndex:
    if not packets:
        raise VideoError("has no frames")
    container.seek(0)
    first = next(container.decode(stream), None)
    if first is None:
        raise VideoError("has no frame that decodes")
    height, width = _displayed(first).shape[:2]
    picture = (height, width), Coding(stream.codec_context.codec.canonical_name, first.format.name, _turns(first))
    stamps = [each.pts for each in packets]
    if None in stamps or len({*stamps}) < len(stamps):
        rate = float(stream.average_rate or stream.guessed_rate or 25)
        return VideoIndex(np.arange(len(packets)), np.zeros(1, np.int64), 1 / rate, *picture, is_timed=False)
    order = np.argsort(stamps)
    keys = np.flatnonzero(np.array([each.is_keyframe for each in packets])[order])
    return VideoIndex(np.array(stamps, np.int64)[order], keys, float(stream.time_base), *picture)


def _check_whole(container: Any, stream: Any, index: VideoIndex) -> None:
    """Raise VideoError if the frames end long before the file should."""
    alone = len(container.streams) == 1 and container.duration
    stated = float(stream.duration * stream.time_base) if stream.duration else container.duration / 1e6 if alone else 0
    end = float(index.times[-1])
    if stated > end + CUT_OFF + 2 * stated / len(index.stamps):
        raise VideoError(f"is cut off: it should last {stated:.1f} s, and its frames end after {end:.1f} s")


def _decode(path: str, index: VideoIndex, numbers: Sequence[int], *, seek: bool = False) -> dict[int, Bytes]:
    """Return the frames that are found, by number; none if a jump to a key frame led too far."""
    found: dict[int, Bytes] = {}
    with open_video(path) as container:
        stream = _video_stream(container)
        stream.thread_type = "NONE"  # several clips are decoded at once
        frames, at = container.decode(stream), -1
        for number in numbers:
            key = int(index.keys[max(0, np.searchsorted(index.keys, number, "right") - 1)]) if len(index.keys) else 0
            if seek and key > at + 1:
                container.seek(int(index.stamps[key]), stream=stream, backward=True)
                frames, at = container.decode(stream), -1
            reached = next((each for each in _numbered(frames, index, at + 1) if each[0] >= number), None)
            if reached is None:
                break
            at, frame = reached
            if at == number:
                found[number] = _checked(frame, index, number)
            elif seek:
                return {}
    return found


def _numbered(frames: Iterator[Any], index: VideoIndex, first: int) -> Iterator[tuple[int, Any]]:
    """Yield frames with their numbers. `first`: the number of the first one, if they have no times."""
    if not index.is_timed:
        yield from enumerate(frames, first)
        return
    for frame in frames:
        at = int(np.searchsorted(index.stamps, frame.pts))
        if at < len(index.stamps) and index.stamps[at] == frame.pts:
            yield at, frame


def _checked(frame: Any, index: VideoIndex, number: int) -> Bytes:
    """Return the pixels of a frame. Raises VideoError if they are not as many as in the first."""
    pixels = _displayed(frame)
    if pixels.shape[:2] != index.size:
        (height, width), (h, w) = pixels.shape[:2], index.size
        raise VideoError(f"changes its size: frame {number} has {width} x {height} pixels, the first has {w} x {h}")
    return pixels


def _displayed(frame: Any) -> Bytes:
    """Return (H, W, 3) RGB, turned as the file says, in the memory of FFmpeg if its rows lie one behind the other."""
    rgb = frame.reformat(format="rgb24")
    rows: Bytes = np.frombuffer(rgb.planes[0], np.uint8).reshape(rgb.height, rgb.planes[0].line_size)
    pixels = rows[:, : 3 * rgb.width].reshape(rgb.height, rgb.width, 3)
    return np.ascontiguousarray(np.rot90(pixels, _turns(frame)))


def _turns(frame: Any) -> int:
    return int(round(frame.rotation / 90) % 4)


def _reason(error: Any) -> str:
    return (getattr(error, "strerror", None) or str(error)).split(": '")[0]
