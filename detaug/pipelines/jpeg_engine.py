"""The image decoders of a GPU: whether it has a JPEG engine, and a decoder that stays."""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from threading import Thread

import torch
from nvidia.dali import Pipeline, fn, types

from detaug.errors import InputError
from detaug.pipelines.errors import DALI_ERRORS
from detaug.pipelines.internals import build_copy

OVERRIDE = "DETAUG_JPEG_ENGINE"
"""The environment variable that says 0 or 1 in the place of the GPU."""

_NVJPEG_BACKEND_HARDWARE = 3  # nvjpeg.h


def has_jpeg_engine(device: torch.device) -> bool:
    """Return whether JPEGs are decoded by a JPEG engine: A100 and H100 have one, T4, V100 and most RTX cards do not.

    Asks nvJPEG. Where it cannot be asked, True: DALI then finds out by itself. Raises InputError for a value of
    DETAUG_JPEG_ENGINE other than 0 and 1.
    """
    override = os.environ.get(OVERRIDE, "")
    if override not in ("", "0", "1"):
        raise InputError(f"{OVERRIDE} must be 0 or 1, got {override!r}")
    if override:
        return override == "1"
    return not torch.cuda.is_available() or _ask_nvjpeg(device.index or 0)


@cache
def _ask_nvjpeg(device_index: int) -> bool:
    """Return whether nvJPEG makes a handle for its hardware backend; it refuses where there is no engine."""
    library = _load_nvjpeg()
    if library is None:
        return True
    handle = ctypes.c_void_p()
    with torch.cuda.device(device_index):
        torch.cuda.synchronize()  # makes the CUDA context that nvJPEG needs
        status = library.nvjpegCreateEx(_NVJPEG_BACKEND_HARDWARE, None, None, 0, ctypes.byref(handle))
        if status == 0:
            library.nvjpegDestroy(handle)
    return bool(status == 0)


def _load_nvjpeg() -> ctypes.CDLL | None:
    """Return the nvJPEG that came with DALI, or None."""
    package = find_spec("nvidia.nvjpeg")
    folders = [Path(location) / "lib" for location in (package.submodule_search_locations or [])] if package else []
    for file in (file for folder in folders for file in folder.glob("libnvjpeg.so.*")):
        try:
            return ctypes.CDLL(str(file))
        except OSError:
            continue
    return None


@cache
def keep_decoder(device: torch.device) -> Thread:
    """Begin to make an image decoder for this GPU that stays, in a thread. Join it before you make another one.

    The first decoder of a process takes 1.7 s on an H200: nvImageCodec loads its libraries and opens the JPEG engine,
    and closes them with its last decoder. Another one takes 0.5 s. Where the first one fails, the loader's own decoders
    do too, where the error can be raised.
    """

    def make() -> None:
        with suppress(*DALI_ERRORS):
            pipeline = Pipeline(1, 1, device.index, seed=0, prefetch_queue_depth=1)
            with pipeline:
                encoded = fn.external_source(name="encoded", dtype=types.UINT8, ndim=1)
                image = fn.decoders.image(encoded, device="mixed", device_memory_padding=0, host_memory_padding=0)
                pipeline.set_outputs(image)
            build_copy(pipeline)

    thread = Thread(target=make, name="detaug-first-decoder")
    thread.start()
    return thread
