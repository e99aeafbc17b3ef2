"""Ask NVDEC, the part of a GPU that decodes videos, what it can decode."""

from __future__ import annotations

import ctypes
from functools import cache

import torch

from detaug.sources.video_files import VideoIndex

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
    found = _ask(codec, device.index or 0)
    height, width = index.size[::-1] if index.coding.turns % 2 else index.size
    fits = found.min_width <= width <= found.max_width and found.min_height <= height <= found.max_height
    return int(found.engines) if found.is_supported and fits else 0


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
