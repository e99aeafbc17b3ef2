"""Decode images with DALI, as training does: the process that `decode` starts.

It reads lists of images from stdin, each an ImageFile as JSON, and answers each list with the reasons why some of them
do not decode whole, both as JSON on one line. It is the only module of the converters that needs DALI and torch.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Sequence
from typing import IO, Any

import numpy as np
import torch
from nvidia.dali import Pipeline, fn, types
from PIL import Image

from detaug.check.decode import be_expendable
from detaug.files.decodable import as_decodable
from detaug.files.image_file import ImageFile, opened
from detaug.files.image_headers import PILLOW_ERRORS, ImageError, read_image_header
from detaug.files.large_images import without_pillows_warnings
from detaug.machine.cores import available_cores


def serve(batch_size: int, dtype: str | None = None) -> None:
    """Answer until stdin ends. The first line tells the parent that the process has started.

    dtype: see `find_undecodable`.
    """
    be_expendable()
    Image.MAX_IMAGE_PIXELS = None  # check_coco, which chooses the images, has a limit
    answers = os.fdopen(os.dup(1), "w")
    with tempfile.TemporaryFile() as messages:  # native libraries write a dozen lines for each broken image
        os.dup2(messages.fileno(), 1)
        os.dup2(messages.fileno(), 2)
        decoder = CheckDecoder(batch_size, messages, dtype)
        print(json.dumps("ready"), file=answers, flush=True)
        for line in sys.stdin:
            print(json.dumps(_undecodable(decoder, json.loads(line))), file=answers, flush=True)


def _undecodable(decoder: CheckDecoder, names: list[str]) -> dict[str, str]:
    """Return the reasons why images do not decode whole, by name."""
    images = {name: ImageFile(*json.loads(name)) for name in names}
    singly = images if decoder.failure(list(images.values())) else {}
    failures = {name: failure for name, image in singly.items() if (failure := decoder.failure([image]))}
    says = _pillow_failure if decoder.dtype is None else lambda _: ""  # it knows few types of many bands
    return {name: says(images[name]) or failure for name, failure in failures.items()}


class CheckDecoder:
    """A DALI pipeline that reads and decodes; built again after a failure, which ends a pipeline."""

    def __init__(self, batch_size: int, messages: IO[bytes], dtype: str | None) -> None:
        self.batch_size, self.messages, self.dtype = batch_size, messages, dtype
        self.pipeline = self._build()

    def _build(self) -> Any:
        cuda = torch.cuda.is_available()
        device_id = torch.cuda.current_device() if cuda else None
        threads = available_cores()
        pipeline = Pipeline(self.batch_size, threads, device_id, prefetch_queue_depth=1)
        with pipeline:
            encoded = fn.external_source(name="bytes", dtype=types.UINT8, ndim=1)
            device = "mixed" if cuda and self.dtype is None else "cpu"
            decoded = fn.decoders.image(encoded, device=device, **_OUTPUT[self.dtype])
            pipeline.set_outputs(decoded, fn.peek_image_shape(encoded))  # as the loader does
        pipeline.build()
        return pipeline

    def failure(self, images: Sequence[ImageFile]) -> str:
        """Return why a batch does not decode; "" where it does."""
        self.messages.seek(0)
        self.messages.truncate()
        try:
            contents = [np.frombuffer(image.read(), np.uint8) for image in images]
            self.pipeline.feed_input(
                "bytes", [as_decodable(content, as_rgb=self.dtype is None) for content in contents]
            )
            decoded, shapes = self.pipeline.run()
        except OSError as error:
            return f"cannot be read: {error.strerror or error}"
        except (RuntimeError, MemoryError):
            self.pipeline = self._build()
            self.messages.seek(0)
            lines = self.messages.read(10_000).decode(errors="replace").splitlines()
            message = next((line.rpartition(" - ")[2] for line in lines if line.strip()), "it gives no reason")
            return f"DALI does not decode it: {message}"
        sizes = [(shape[:2], tuple(shapes.at(index)[:2].tolist())) for index, shape in enumerate(decoded.shape())]
        return next(filter(None, map(_size_fault, images, sizes)), "")


_OUTPUT = {
    None: {"output_type": types.RGB},
    "uint8": {"output_type": types.ANY_DATA, "dtype": types.UINT8},
    "uint16": {"output_type": types.ANY_DATA, "dtype": types.UINT16},
    "float32": {"output_type": types.ANY_DATA, "dtype": types.FLOAT},
}


def _size_fault(image: ImageFile, sizes: Sequence[tuple[int, ...]]) -> str:
    """Return why the sizes that DALI finds are not that of the header, which the loader relies on; "" where they are.

    found: (height, width) of the decoded image, and of the header as DALI reads it.
    """
    try:
        header = read_image_header(image)
    except ImageError as error:
        return str(error)
    size = header.height, header.width
    others = [other for other in sizes if other != size]
    return f"DALI finds (height, width) {others[0]}, its header has {size}" if others else ""


def _pillow_failure(file: ImageFile) -> str:
    with without_pillows_warnings():
        try:
            with opened(file) as content, Image.open(content) as image:
                image.load()
        except MemoryError:
            return "does not decode: its pixels need more memory than there is"
        except PILLOW_ERRORS as error:
            return f"does not decode: {error}"
    return ""
