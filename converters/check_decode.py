"""Decode images with DALI, as training does, and name those that do not decode whole.

The one module here that needs DALI and torch: it is imported for `detaug check --decode` only.
"""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from nvidia.dali import Pipeline, fn, types
from PIL import Image

_BATCH = {"cpu": 16, "mixed": 64}
_TAIL_BYTES = 64  # some cameras write a few bytes behind the end of a JPEG
_PILLOW_ERRORS = (OSError, SyntaxError, ValueError, LookupError, TypeError, ArithmeticError, EOFError)


def find_undecodable(paths: Sequence[Path], progress: Callable[[int, int], None] | None = None) -> dict[int, str]:
    """Why images do not decode whole, by position; those that do are not in it.

    Decodes on the CUDA device if there is one, else on all CPU cores. A broken image ends a DALI pipeline: a
    batch that fails runs again image by image, on a new pipeline after each failure.
    """
    decoder = _Decoder()
    broken: dict[int, str] = {}
    for start in range(0, len(paths), decoder.batch_size):
        rows = range(start, min(start + decoder.batch_size, len(paths)))
        broken.update(_broken_of(decoder, rows, paths))
        if progress:
            progress(rows.stop, len(paths))
    return broken


def _broken_of(decoder: _Decoder, rows: Sequence[int], paths: Sequence[Path]) -> dict[int, str]:
    singly = rows if decoder.failure([paths[row] for row in rows]) else ()
    failures = {row: decoder.failure([paths[row]]) for row in singly}
    reasons = {row: _pillow_failure(paths[row]) or failure for row, failure in failures.items() if failure}
    # Decoders on a GPU may fill what is missing with gray and say nothing.
    unended = {row: _pillow_failure(paths[row]) for row in rows if row not in reasons and _has_no_end(paths[row])}
    return reasons | {row: reason for row, reason in unended.items() if reason}


class _Decoder:
    """A DALI pipeline that reads and decodes, built anew after a failure."""

    def __init__(self) -> None:
        self.device = "mixed" if torch.cuda.is_available() else "cpu"
        self.batch_size = _BATCH[self.device]
        self.pipeline = self._build()

    def _build(self) -> Any:
        device_id = torch.cuda.current_device() if self.device == "mixed" else None
        pipeline = Pipeline(self.batch_size, len(os.sched_getaffinity(0)), device_id, prefetch_queue_depth=1)
        with pipeline:
            encoded = fn.io.file.read(fn.external_source(name="path"))
            pipeline.set_outputs(fn.decoders.image(encoded, device=self.device, output_type=types.RGB))
        pipeline.build()
        return pipeline

    def failure(self, paths: Sequence[Path]) -> str:
        """Why a batch does not decode; empty if it does."""
        with _native_messages() as messages:
            try:
                self.pipeline.feed_input("path", [np.frombuffer(os.fsencode(path), np.uint8) for path in paths])
                self.pipeline.run()
            except RuntimeError:
                self.pipeline = self._build()
                return _first_line(messages)
        return ""


@contextmanager
def _native_messages() -> Iterator[IO[bytes]]:
    """Keep what native libraries print to stderr, a dozen lines for each broken image, in a file."""
    sys.stderr.flush()
    stderr = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield file
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)


def _first_line(messages: IO[bytes]) -> str:
    messages.seek(0)
    line = next(iter(messages.read(10_000).decode(errors="replace").splitlines()), "")
    return f"DALI does not decode it: {line.rpartition(' - ')[2]}"


def _has_no_end(path: Path) -> bool:
    """Whether it is a JPEG without an end-of-image marker at its end."""
    with open(path, "rb") as file:
        if file.read(2) != b"\xff\xd8":
            return False
        file.seek(-min(_TAIL_BYTES, os.fstat(file.fileno()).st_size), os.SEEK_END)
        return b"\xff\xd9" not in file.read()


def _pillow_failure(path: Path) -> str:
    try:
        with warnings.catch_warnings(), Image.open(path) as image:
            warnings.simplefilter("ignore")
            image.load()
    except (*_PILLOW_ERRORS, Image.DecompressionBombError) as error:
        return f"does not decode: {error}"
    return ""
