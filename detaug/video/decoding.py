"""Decode frames of video files with PyAV."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from detaug.arrays import Bytes
from detaug.files.video_file import (
    NumberedPackets,
    VideoError,
    VideoIndex,
    import_av,
    open_video,
    reason_of,
    turns_of,
)


def decode_frames(path: str, index: VideoIndex, numbers: Sequence[int]) -> list[Bytes]:
    """Return frames, (H, W, 3) uint8 RGB. `numbers`: ascending, they may be repeated.

    Raises VideoError, and OSError where the file cannot be read.
    """
    av, wanted = import_av(), sorted({*numbers})
    # with jumps to key frames; if one led to the wrong frame, from the start
    for seek in (True, False):
        with suppress(av.FFmpegError):
            if len(frames := _decode(path, index, wanted, seek=seek)) == len(wanted):
                return [frames[number] for number in numbers]
    alone = {number: _decode_alone(path, index, number) for number in wanted}
    return [alone[number] for number in numbers]


def _decode_alone(path: str, index: VideoIndex, number: int) -> Bytes:
    """Return a frame of a file that cannot be decoded in one go, so that the frame that is at fault is named."""
    av = import_av()
    try:
        frames = _decode(path, index, [number], seek=True) or _decode(path, index, [number])
    except FileNotFoundError:
        raise FileNotFoundError(path) from None
    except av.FFmpegError as error:
        raise VideoError(f"does not decode around frame {number} ({reason_of(error)})") from None
    if not frames:
        raise VideoError(f"has no frame {number} any more: it is cut off, or has changed")
    return frames[number]


def _decode(path: str, index: VideoIndex, numbers: Sequence[int], *, seek: bool = False) -> dict[int, Bytes]:
    """Return the frames that are found, by number; none if a jump to a key frame led too far."""
    decoded: dict[int, Bytes] = {}
    with open_video(path) as container:
        packets = NumberedPackets(container, index)
        packets.stream.thread_type = "NONE"  # several clips are decoded at once
        frames, position = _frames(packets), -1
        for number in numbers:
            key = index.key_before(number)
            if seek and key > position + 1 and packets.jump(key):
                frames = _frames(packets)
            reached = next((frame for frame in frames if frame.pts is not None and frame.pts >= number), None)
            if reached is None:
                break
            position = reached.pts
            if position == number:
                decoded[number] = _checked(reached, index, number)
            elif seek:
                return {}
    return decoded


def _frames(packets: NumberedPackets) -> Iterator[Any]:
    """Yield frames, whose `pts` are their numbers."""
    for packet in packets:
        yield from packets.stream.decode(packet)
    yield from packets.stream.decode(None)


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
    return np.ascontiguousarray(np.rot90(pixels, turns_of(frame)))
