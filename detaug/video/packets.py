"""Cut a part out of a video file without decoding it, for a decoder that takes whole files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from io import BytesIO
from typing import Any

import numpy as np

from detaug.arrays import Bytes, Ints
from detaug.video.files import NumberedPackets, VideoError, VideoIndex, import_av, open_video

RATE = 25
"""Frames a second of what is cut out; a player would see it, a decoder does not mind."""


def cut(path: str, index: VideoIndex, numbers: Sequence[int]) -> tuple[Bytes, Ints]:
    """Cut out the frames `numbers`, ascending, and those that are needed to decode them.

    `index`: without other packets. Returns a Matroska file, and the numbers (m,) that the m frames have in it. Raises
    VideoError, and OSError where the file cannot be read.
    """
    av = import_av()
    try:
        with open_video(path) as container:
            packets = _packets(container, index, numbers)
            shown = np.sort([each.pts for each in packets])
            content = _write(packets, container.streams.video[0], shown)
    except FileNotFoundError:
        raise FileNotFoundError(path) from None
    except av.FFmpegError as error:
        raise VideoError(f"cannot be read around frame {numbers[0]} ({error.strerror})") from None
    return np.frombuffer(content, np.uint8), np.searchsorted(shown, numbers)


def _packets(container: Any, index: VideoIndex, numbers: Sequence[int]) -> list[Any]:
    """Return the packets from the key frame before frames on, until there are all that are shown up to the last one.

    Raises VideoError if they end before.
    """
    key, last = index.key_before(numbers[0]), numbers[-1]
    needed, reader = last - key + 1, NumberedPackets(container, index)
    for start in (key, 0):  # a jump may lead too far
        reader.jump(start)
        packets = [*_from(reader, key, last, needed)]
        if sum(each.pts <= last for each in packets) == needed:
            return packets
    raise VideoError(f"has no frame {last} any more: it is cut off, or has changed")


def _from(packets: Iterable[Any], first: int, last: int, needed: int) -> Iterator[Any]:
    """Yield the packets from the key frame `first` on, until `needed` of them are of frames up to `last`.

    Without those of the frames before it: they need others.
    """
    begun = False
    for packet in packets:
        begun = begun or packet.pts == first
        if begun and packet.pts >= first:
            yield packet
            needed -= packet.pts <= last
        if not needed:
            return


def _write(packets: Sequence[Any], source: Any, numbers: Ints) -> bytes:
    """Return packets as a file whose frames have equal distances. `numbers`: of their frames, ascending."""
    file, shown = BytesIO(), np.searchsorted(numbers, [each.pts for each in packets])
    delay = int((np.arange(len(packets)) - shown).max())  # a frame is shown after it is decoded
    with import_av().open(file, "w", format="matroska") as container:
        stream = container.add_stream_from_template(source, opaque=True)
        for at, (packet, time) in enumerate(zip(packets, shown.tolist(), strict=True)):
            packet.pts, packet.dts = time + delay, at
            packet.time_base, packet.stream = Fraction(1, RATE), stream
            container.mux(packet)
    return file.getvalue()
