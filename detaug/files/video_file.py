"""Find the frames of video files with PyAV, and read the packets that they are in.

A frame has a number, from 0, in the order in which a player shows them; also where the frame rate varies.

MP4, MOV and Matroska store the time of each frame, which tells the packets apart: frames are found without decoding.
Other containers, as AVI and MPEG program streams, store times of decoding, or of some frames only. FFmpeg guesses the
rest, and guesses differently after a jump. So such a file is decoded once, to see in which packet each frame is, and is
later read from its start, without decoding what is not needed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np

from detaug.arrays import Floats, Ints
from detaug.packages import require

FORMATS = "mov,matroska,avi,mpeg,mpegvideo,mpegts,m4v,h264,hevc,obu,ivf,flv,asf,ogg"
"""FFmpeg's formats that may be in a file. Others, such as playlists, name further files and addresses to read."""

WITH_TIMES = {"mov", "matroska"}
"""FFmpeg's formats that store the time of each frame."""

WITH_TIMES_OF_MOST = {"mpeg", "mpegts", "flv", "ogg", "ivf"}
"""FFmpeg's formats that store presentation times, though not for each frame, or not so that they tell them apart."""

CUT_OFF = 1.0
"""Seconds by which the frames of a file that is not cut off may end before the duration that it states."""


class VideoError(OSError):
    """A file that is not a video that can be used. The message is the end of a sentence about the file."""


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
    """(n,) the presentation times of the frames, in units of `unit`, ascending."""
    keys: Ints
    """The numbers of the frames from which decoding can begin, ascending."""
    unit: float
    """Seconds."""
    size: tuple[int, int]
    """(height, width) as displayed."""
    coding: Coding
    packets: Ints = np.zeros(0, np.int64)
    """(n,) the position in the file, from 0, of the packet of each frame; (0,) if `stamps` are the packets' times."""

    @property
    def times(self) -> Floats:
        """Return (n,) seconds from the first frame."""
        return np.asarray((self.stamps - self.stamps[0]) * self.unit)

    @property
    def is_timed(self) -> bool:
        """Return whether `stamps` are the packets' times."""
        return not len(self.packets)

    @property
    def has_other_packets(self) -> bool:
        """Return whether there are packets among those of the frames that no frame comes out of."""
        return not self.is_timed and len(self.packets) <= int(self.packets.max())

    def key_before(self, number: int) -> int:
        """Return the last key frame before or at a frame; the first frame if there is none."""
        index = int(np.searchsorted(self.keys, number, "right")) - 1
        return int(self.keys[index]) if index >= 0 else 0


class NumberedPackets:
    """Yields the packets of an open video file from the first on. Their `pts` is the number of their frame, or -1."""

    def __init__(self, container: Any, index: VideoIndex) -> None:
        self.stream = video_stream(container)
        self._container, self._index = container, index
        self._packets = with_content(container, self.stream)
        self._position = self._start = 0
        self._numbers = np.full(int(index.packets.max(initial=-1)) + 2, -1)
        self._numbers[index.packets] = np.arange(len(index.packets))

    def __iter__(self) -> Iterator[Any]:
        for packet in self._packets:
            self._position += 1
            if self._position > self._start:
                packet.pts = self._number(packet)
                yield packet

    def jump(self, key: int) -> bool:
        """Go on with the packet of a key frame. Return False, and do nothing, if that has been yielded."""
        if self._index.is_timed:
            self._container.seek(int(self._index.stamps[key]), stream=self.stream, backward=True)
            self._packets = with_content(self._container, self.stream)
            return True
        start = int(self._index.packets[key])
        if start < self._position:
            return False
        self._start = start
        self.stream.codec_context.flush_buffers()
        return True

    def _number(self, packet: Any) -> int:
        if not self._index.is_timed:
            return int(self._numbers[min(self._position, len(self._numbers)) - 1])
        stamps = self._index.stamps
        index = min(int(np.searchsorted(stamps, packet.pts)), len(stamps) - 1) if packet.pts is not None else 0
        return index if stamps[index] == packet.pts else -1


def import_av() -> Any:
    """Return PyAV. Raises InputError if it is not installed."""
    require("reading videos", "av")
    import av

    return av


def open_video(path: str) -> Any:
    """Open a video file, and no other file that it names."""
    only = {"format_whitelist": FORMATS, "protocol_whitelist": "file"}
    av = import_av()
    has_option = int(av.__version__.split(".")[0]) < 19  # PyAV 19 accepts any bytes in metadata
    lenient = {"metadata_errors": "replace"} if has_option else {}
    return av.open(path, options=only, **lenient)


def video_stream(container: Any) -> Any:
    """Return the first video of an open file. Raises VideoError if there is none."""
    if not container.streams.video:
        kinds = ", ".join(sorted({stream.type for stream in container.streams})) or "nothing"
        raise VideoError(f"has no video, but {kinds}")
    return container.streams.video[0]


def with_content(container: Any, stream: Any) -> Iterator[Any]:
    """Yield the packets of a video without empty ones: AVI has such for frames left out; they would end a decoder."""
    return (packet for packet in container.demux(stream) if packet.size)


def turns_of(frame: Any) -> int:
    """Return the quarter turns, counter-clockwise, that make a frame upright."""
    return int(round(frame.rotation / 90) % 4)


def _is_flipped(frame: Any) -> bool:
    """Return whether the display matrix of a frame, nine numbers row by row, mirrors it."""
    try:
        matrix = frame.side_data.get("DISPLAYMATRIX")
    except ValueError:  # PyAV shows none beside data of a kind that it does not know
        return False
    if matrix is None:
        return False
    a, b, _, c, d = np.frombuffer(bytes(matrix), np.int32)[:5].astype(np.float64).tolist()
    # the determinant of a mirror is negative
    return bool(a * d < b * c)


def reason_of(error: Any) -> str:
    """Return what an error of FFmpeg says, without the path."""
    return (getattr(error, "strerror", None) or str(error)).split(": '")[0]


def read_index(path: str) -> VideoIndex:
    """Find the frames of a video file. Raises VideoError, and OSError where it cannot be read."""
    try:
        scan = _scan(path, decode_all=False)
        index = _by_times(scan) or _by_decoding(scan if scan.is_decoded else _scan(path, decode_all=True))
    except FileNotFoundError:
        raise FileNotFoundError(path) from None
    except import_av().FFmpegError as error:
        raise VideoError(f"is not a video that can be read ({reason_of(error)})") from None
    _check_riff(path)
    end, stated = max(float(index.times[-1]), _end(scan)), scan.duration
    if stated > end + CUT_OFF + 2 * stated / len(index.stamps):
        raise VideoError(f"is cut off: it should last {stated:.1f} s, and its frames end after {end:.1f} s")
    return index


def index_or_reason(path: str) -> VideoIndex | str:
    """Find the frames of a video file. Return the reason if it cannot be used, the end of a sentence about the file."""
    try:
        return read_index(path)
    except FileNotFoundError:
        return "does not exist"
    except OSError as error:
        return error.strerror or str(error)


def _check_riff(path: str) -> None:
    """Raise VideoError for an AVI, a RIFF file, that is shorter than the length at its start says."""
    with open(path, "rb") as file:
        name, length = file.read(4), int.from_bytes(file.read(4), "little") + 8
    if name == b"RIFF" and length > (actual := os.path.getsize(path)):
        raise VideoError(f"is cut off: it should have {length:,} bytes, and has {actual:,}")


def _end(scan: _Scan) -> float:
    """Return the seconds from where the stated duration begins to the end of the last frame; 0 if it is not known."""
    ends = [packet.pts + packet.duration for packet in scan.packets if packet.pts is not None]
    return max(ends, default=0) * scan.unit - scan.start


class _Packet(NamedTuple):
    pts: int | None
    dts: int | None
    duration: int
    """0 if it is not known."""
    is_key: bool
    is_left_out: bool
    """Whether an edit list hides its frame."""


class _Scan(NamedTuple):
    """What a file holds."""

    packets: list[_Packet]
    frames: list[tuple[int, bool | None]]
    """The packet of each frame, as it is shown, and whether decoding can begin there; None for broken packets."""
    is_decoded: bool
    """Whether `frames` are all, and not only the first."""
    is_reordered: bool
    """Whether the decoder shows frames in another order than that of the packets."""
    formats: set[str]
    """FFmpeg's names of the container."""
    first: int
    """The packet of the first frame that decodes."""
    coding: Coding
    size: tuple[int, int]
    unit: float
    rate: float
    """Frames per second."""
    start: float
    """Seconds at which the stated duration begins."""
    duration: float
    """Seconds that the file states; 0 if it does not."""


def _scan(path: str, *, decode_all: bool) -> _Scan:
    """Read all packets of a file, and decode the first frame, or all where the container needs it."""
    packets, frames, first = list[_Packet](), list[tuple[int, bool | None]](), None
    with open_video(path) as container:
        stream = video_stream(container)
        formats = {*container.format.name.split(",")}
        decode_all = decode_all or not formats & WITH_TIMES
        for packet in chain(with_content(container, stream), [None]):
            if packet:
                times = packet.pts, packet.dts, packet.duration or 0
                packets.append(_Packet(*times, packet.is_keyframe, packet.is_discard))
                # the decoder hands the time on: so each frame says which packet it came out of
                packet.pts = len(packets) - 1
            if decode_all or first is None:
                decoded = _decoded(stream, packet)
                first = first or next(iter(decoded or ()), None)
                broken = [(len(packets) - 1, None)] if packet else []
                frames += broken if decoded is None else [(frame.pts, bool(frame.key_frame)) for frame in decoded]
        if first is None:
            raise VideoError("has no frame that decodes" if packets else "has no frames")
        if _is_flipped(first):
            raise VideoError("is to be shown mirrored, by its display matrix, which is not supported")
        turns, codec = turns_of(first), stream.codec_context
        coding = Coding(codec.codec.canonical_name, first.format.name, turns)
        size = (first.width, first.height) if turns % 2 else (first.height, first.width)
        unit, rate = float(stream.time_base), float(stream.average_rate or stream.guessed_rate or 25)
        start, duration = _duration(container, stream)
        more = (coding, size, unit, rate, start, duration)
        return _Scan(packets, frames, decode_all, codec.has_b_frames, formats, first.pts, *more)


def _decoded(stream: Any, packet: Any) -> list[Any] | None:
    """Return the frames that a decoder has after a packet, or after the last if None. None: the packet is broken."""
    try:
        return list(stream.decode(packet))
    except import_av().FFmpegError:
        return None


def _duration(container: Any, stream: Any) -> tuple[float, float]:
    """Return the seconds at which a stated duration begins, and the duration. Matroska counts from 0."""
    if stream.duration:
        return float((stream.start_time or 0) * stream.time_base), float(stream.duration * stream.time_base)
    if match := re.fullmatch(r"(\d+):(\d\d):(\d\d(?:\.\d+)?)", stream.metadata.get("DURATION", "")):
        hours, minutes, seconds = map(float, match.groups())
        return 0.0, 3600 * hours + 60 * minutes + seconds
    return 0.0, container.duration / 1e6 if len(container.streams) == 1 and container.duration else 0.0


def _by_times(scan: _Scan) -> VideoIndex | None:
    """Return the frames by the times of their packets; None where these do not tell them apart, or are of decoding."""
    packets = [packet for packet in scan.packets if not packet.is_left_out]
    begin = scan.packets[scan.first]
    if begin.pts is not None and begin is next((packet for packet in packets if packet.is_key), None):
        # None before it decodes.
        packets = [packet for packet in packets if packet.pts is None or packet.pts >= begin.pts]
    stamps = _known([packet.pts for packet in packets])
    if scan.is_decoded or stamps is None or len({*stamps}) < len(stamps):
        return None
    # frames are reordered, and yet the times ascend from packet to packet
    if scan.is_reordered and _ascending(stamps):
        return None
    order = np.argsort(stamps)
    keys = np.flatnonzero(np.array([packet.is_key for packet in packets])[order])
    return VideoIndex(np.array(stamps, np.int64)[order], keys, scan.unit, scan.size, scan.coding)


def _by_decoding(scan: _Scan) -> VideoIndex:
    """Return the frames by the packets that they came out of. A broken packet has a number too: reading it names it."""
    decoded = {position for position, is_key in scan.frames if is_key is not None}
    frames = [frame for frame in scan.frames if frame[1] is not None or frame[0] not in decoded]
    positions = [position for position, _ in frames]
    if None in positions or len({*positions}) < len(positions):
        raise VideoError("has several frames in a packet")
    packets = [scan.packets[position] for position in positions]
    keys = [index for index, (_, is_key) in enumerate(frames) if is_key and packets[index].is_key]
    stamps, unit = _stamps(packets, scan)
    return VideoIndex(stamps, np.array(keys, np.int64), unit, scan.size, scan.coding, np.array(positions, np.int64))


def _stamps(packets: Sequence[_Packet], scan: _Scan) -> tuple[Ints, float]:
    """Return the presentation times of frames, and their unit, from what is known of their packets."""
    constant = np.arange(len(packets)), 1 / scan.rate
    stamps, of_decoding = (_known([packet[column] for packet in packets]) for column in (0, 1))
    if of_decoding and not scan.formats & WITH_TIMES_OF_MOST:
        stamps = sorted(of_decoding)
    if not stamps or not _ascending(stamps):
        return constant
    shown = np.array(stamps, np.int64)
    off = np.abs((shown - shown[0]) * scan.unit * scan.rate - constant[0])
    if "mpeg" in scan.formats and off.max() < 2:  # FFmpeg mistakes the image that a time is of by one
        return constant
    return shown, scan.unit


def _known(times: Sequence[Any]) -> list[int] | None:
    return None if None in times else list(times)


def _ascending(values: Sequence[int]) -> bool:
    return all(a < b for a, b in pairwise(values))
