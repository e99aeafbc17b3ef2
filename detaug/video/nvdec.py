"""Decode frames of videos to the memory of a GPU: with NVDEC, or on the CPU what NVDEC does not decode.

DALI takes whole files: `cut` cuts a part out of a video file without decoding it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from functools import cache
from io import BytesIO
from queue import SimpleQueue
from typing import Any

import numpy as np
import torch
from nvidia.dali import fn, types
from torch import Tensor

from detaug.arrays import Bytes, Ints
from detaug.files.video_file import NumberedPackets, VideoError, VideoIndex, import_av, open_video
from detaug.pipelines.errors import DALI_ERRORS, is_of_device
from detaug.pipelines.graph import Node
from detaug.pipelines.internals import to_torch
from detaug.pipelines.worker import PipelineWorker
from detaug.video.decoding import decode_frames
from detaug.video.stretches import Stretches, VideoPart

CODECS = {"mpeg4": 2, "h264": 4, "hevc": 8, "vp8": 9, "vp9": 10, "av1": 11}
"""The codecs that DALI decodes with NVDEC, by FFmpeg's names, and their numbers in cuviddec.h (cudaVideoCodec)."""

PIXELS = ("yuv420p", "yuvj420p", "nv12")
"""FFmpeg's names of the formats of pixels with 8 bits and 4:2:0, which all NVDECs decode to."""

_CHROMA_420 = 1  # cuviddec.h


class _Abilities(ctypes.Structure):
    """CUVIDDECODECAPS of cuviddec.h."""

    _fields_ = [
        ("codec", ctypes.c_int),
        ("chroma", ctypes.c_int),
        ("bits_above_8", ctypes.c_uint),
        ("reserved_1", ctypes.c_uint * 3),
        ("is_supported", ctypes.c_ubyte),
        ("engines", ctypes.c_ubyte),
        ("output_formats", ctypes.c_ushort),
        ("max_width", ctypes.c_uint),
        ("max_height", ctypes.c_uint),
        ("max_blocks", ctypes.c_uint),
        ("min_width", ctypes.c_ushort),
        ("min_height", ctypes.c_ushort),
        ("reserved_2", ctypes.c_uint * 13),
    ]


def engines_for(index: VideoIndex, device: torch.device) -> int:
    """Return how many NVDECs of a GPU decode the frames of a video; 0 if they must be decoded on the CPU."""
    codec = CODECS.get(index.coding.codec)
    if codec is None or index.coding.pixels not in PIXELS or index.has_other_packets:
        return 0
    abilities = _ask(codec, device.index or 0)
    height, width = index.size[::-1] if index.coding.turns % 2 else index.size
    fits = (
        abilities.min_width <= width <= abilities.max_width and abilities.min_height <= height <= abilities.max_height
    )
    return int(abilities.engines) if abilities.is_supported and fits else 0


def pipelines_for(engines: int) -> int:
    """Return how many videos to decode at a time: an engine waits where another stream is not ready for it."""
    return engines + engines // 2 + 1


@cache
def _ask(codec: int, device_index: int) -> _Abilities:
    """Return what NVDEC can do with a codec: nothing where it cannot be asked."""
    abilities = _Abilities(codec=codec, chroma=_CHROMA_420)
    try:
        library = ctypes.CDLL("libnvcuvid.so.1")
    except OSError:
        return abilities
    with torch.cuda.device(device_index):
        torch.cuda.synchronize()  # makes the CUDA context that NVDEC is asked in
        if library.cuvidGetDecoderCaps(ctypes.byref(abilities)) != 0:
            abilities.is_supported = 0
    return abilities


class NvdecPipelines:
    """DALI pipelines that decode one part of a video at a time each, called by `pipelines` threads at most."""

    def __init__(self, stretches: Stretches, device: torch.device, pipelines: int) -> None:
        self._stretches, self._device = stretches, device
        self._workers: SimpleQueue[_Worker] = SimpleQueue()
        for _ in range(pipelines):
            self._workers.put(_Worker(device))
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def decode(self, frames: Ints) -> Tensor:
        """Return frames of one video, as positions in the source: (F, H, W, 3) uint8 RGB, upright, on the GPU.

        No stream needs to wait for them. Raises VideoError, an OSError, where they do not decode.
        """
        part = self._stretches.part(frames)
        if engines_for(part.frames, self._device):
            try:
                return self._with_nvdec(part)
            except DALI_ERRORS as error:
                if is_of_device(error):
                    raise
        decoded = np.stack(decode_frames(*part))
        return self._complete(torch.from_numpy(decoded))

    def close(self) -> None:
        """End the pipelines."""
        while not self._workers.empty():
            self._workers.get().close()

    def _with_nvdec(self, part: VideoPart) -> Tensor:
        content, numbers = cut(*part)
        worker = self._workers.get()
        try:
            frames = worker.decode(content, numbers)
        finally:
            self._workers.put(worker)
        upright = self._complete(frames, part.frames.coding.turns)
        if upright.shape[1:3] != part.frames.size:
            (height, width), (h, w) = upright.shape[1:3], part.frames.size
            raise VideoError(f"changes its size: it has frames of {width} x {height} pixels, the first has {w} x {h}")
        return upright

    def _complete(self, frames: Tensor, turns: int = 0) -> Tensor:
        """Return a copy in torch's memory, when it is complete. One stream makes all: it can then reuse memory."""
        with torch.cuda.stream(self._stream):
            upright = torch.rot90(frames, turns, (1, 2))
            copy = torch.empty(upright.shape, dtype=torch.uint8, device=self._device).copy_(upright)
            done = self._stream.record_event()
        done.synchronize()
        return copy


class _Worker:
    """A pipeline, made when it is needed first, and again after an error, which ends it."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pipeline: PipelineWorker | None = None
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def decode(self, content: Bytes, numbers: Ints) -> Tensor:
        """Return frames of a video file that is in memory, when they are complete. They are DALI's."""
        self._pipeline = self._pipeline or PipelineWorker(_graph, 1, 1, self._device)
        try:
            with torch.cuda.stream(self._stream):
                self._pipeline.start({"video": [content], "frames": [numbers.astype(np.int32)]})
                (frames,) = self._pipeline.finish()
            self._stream.synchronize()
            return to_torch(frames[0], self._device)
        except DALI_ERRORS:
            self.close()
            raise

    def close(self) -> None:
        if self._pipeline:
            self._pipeline.close()
        self._pipeline = None


def _graph() -> list[Node]:
    content = fn.external_source(name="video", no_copy=True, dtype=types.UINT8, ndim=1)
    numbers = fn.external_source(name="frames", dtype=types.INT32, ndim=1)
    return [fn.decoders.video(content, device="mixed", frames=numbers, affine=False)]


RATE = 25
"""Frames per second of what is cut out; a player would see it, a decoder does not mind."""


def cut(path: str, index: VideoIndex, numbers: Sequence[int]) -> tuple[Bytes, Ints]:
    """Cut out the frames `numbers`, ascending, and those that are needed to decode them.

    `index`: without other packets. Returns a Matroska file, and the numbers (m,) that the m frames have in it. Raises
    VideoError, and OSError where the file cannot be read.
    """
    av = import_av()
    try:
        with open_video(path) as container:
            packets = _packets(container, index, numbers)
            shown = np.sort([packet.pts for packet in packets])
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
        if sum(packet.pts <= last for packet in packets) == needed:
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
    file, shown = BytesIO(), np.searchsorted(numbers, [packet.pts for packet in packets])
    delay = int((np.arange(len(packets)) - shown).max())  # a frame is shown after it is decoded
    with import_av().open(file, "w", format="matroska") as container:
        stream = container.add_stream_from_template(source, opaque=True)
        for number, (packet, time) in enumerate(zip(packets, shown.tolist(), strict=True)):
            packet.pts, packet.dts = time + delay, number
            packet.time_base, packet.stream = Fraction(1, RATE), stream
            container.mux(packet)
    return file.getvalue()
