"""Find unreadable images and the reason, and decide whether an epoch continues without them."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Sequence
from io import BytesIO
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError

from detaug.arrays import Bools, Ints
from detaug.errors import DataError, InputError
from detaug.files import heif
from detaug.files.decodable import as_decodable
from detaug.files.image_headers import PILLOW_ERRORS, ImageError, parse_image_header
from detaug.files.large_images import allow_pixels, too_few_bytes
from detaug.findings.finding import on_one_line
from detaug.machine.cores import available_cores
from detaug.machine.threads import Threads
from detaug.pipelines.decoding import decoded, inputs
from detaug.pipelines.errors import DALI_ERRORS, is_of_device, reason_of
from detaug.pipelines.scaled_decoding import decode_scaled
from detaug.pipelines.worker import PipelineWorker
from detaug.sources.decoder import SourceDecoder
from detaug.sources.source import Source

_FILE_OPERATORS = (
    "fn.io.file.read",
    "fn.peek_image_shape",
    "fn.reshape",
    "fn.decoders.image",
    "fn.decoders.image_slice",
)
"""The operators of `decoded`: where they fail, a file may be at fault."""

BadFiles = dict[int, str]
"""The reason why each unusable image is unusable, with its path, by the image's index in the source."""


class BadFilesFound(Exception):
    """Raised inside the loader when a pipeline met files that cannot be used."""

    def __init__(self, files: BadFiles) -> None:
        super().__init__(first_three(files))
        self.files = files


class SkippedImages:
    """The images that were skipped so far, and whether more may be: `Loader`'s `on_error` and `max_skipped`.

    Where none may be, the batches before a bad file are still yielded: others take the place of its image until
    `check_batch` raises the error at the batch that has it.
    """

    def __init__(self, reader: Source, images: Ints, *, skip: bool, max_skipped: float) -> None:
        """Skip the missing ones of `images`, those of the shard. Raises AnnotationError if none may be skipped."""
        self._reader, self._images, self._skip, self._max_skipped = reader, images, skip, max_skipped
        self._indices: dict[int, None] = {}
        self._refused = BadFiles()
        self._warned = set[str]()
        if not skip:
            reader.check_files()
        self._missing = np.intersect1d(images, reader.missing).tolist()
        self.add({index: f"{reader.path(index)} {reader.why_missing(index)}" for index in self._missing})

    @property
    def indices(self) -> list[int]:
        """Return the indices of the skipped images, in the order in which they were found."""
        return list(self._indices)

    @property
    def paths(self) -> tuple[Path, ...]:
        """Return the files of the skipped images, in the same order, each once: tiles of an image share it."""
        return tuple(dict.fromkeys(self._reader.path(index) for index in self._indices))

    def mask(self) -> Bools:
        """Return (n,) flags: True for images that no batch can have."""
        mask = np.zeros(len(self._reader), bool)
        mask[[*self._indices, *self._refused]] = True
        return mask

    def add(self, files: BadFiles) -> None:
        """Skip these images with a warning, or refuse them. Raises DataError if too many were skipped."""
        files = {index: on_one_line(reason) for index, reason in files.items()}
        if not self._skip:
            self._refused |= files
            return
        self._indices |= dict.fromkeys(files)
        if len(self._indices) > self._max_skipped * len(self._images):
            lost = f"{len(self._indices)} of {len(self._images)} images cannot be used"
            limit = f"more than max_skipped={self._max_skipped}"
            raise DataError(f"{lost}, {limit}, the last: {first_three(files)}; {self._reader.remedy}")
        for reason in dict.fromkeys(files.values()):
            if reason not in self._warned:
                self._warned.add(reason)
                warnings.warn(f"{reason}; skipped", stacklevel=2)

    @property
    def refuses(self) -> bool:
        """Return whether files were found that make a batch fail."""
        return bool(self._refused)

    def check_batch(self, indices: Ints) -> None:
        """Raise DataError for a batch of these images if one of them is refused."""
        if bad := {index: self._refused[index] for index in indices.tolist() if index in self._refused}:
            raise bad_files_error(bad, self._reader)

    def forget_refused(self) -> None:
        """Let the next epoch find out again which files cannot be used: they may have been repaired."""
        self._refused.clear()

    def check_allowed(self, indices: Sequence[int]) -> None:
        """Raise InputError for a state that skipped images, if this loader may not."""
        if indices and not self._skip:
            raise InputError(f"this state skipped {len(indices)} images; give the loader on_error='skip' too")

    def restore(self, indices: Iterable[int]) -> None:
        """Skip those of the shard that a saved state skipped, and those that are missing."""
        own = np.array([*indices], np.int64)
        own = own[np.isin(own, self._images)]
        self._indices = dict.fromkeys([*own.tolist(), *self._missing])


def files_behind(error: Exception, reader: Source, indices: Ints, device: torch.device) -> BadFiles:
    """Return the files that made a pipeline fail. Raises `error` itself if no file is at fault (decision 14)."""
    indices = np.unique(indices)
    if _is_of_files(error) and (files := _unreadable(reader, indices) or _undecodable(reader, indices, device)):
        return files
    raise error


def unreadable_files(error: OSError, reader: Source, indices: Ints) -> BadFiles:
    """Return the files that a source cannot read. Raises `error` itself if it can read them all now."""
    if files := _unreadable(reader, np.unique(indices)):
        return files
    raise error


def _is_of_files(error: Exception) -> bool:
    """Return whether DALI failed where it reads files, and not for want of memory or a fault of the device."""
    text = str(error)  # with the traceback of where the operator was made
    is_decoding = any(f"{name}`" in text for name in _FILE_OPERATORS) or f"in {decode_scaled.__name__}\n" in text
    return is_decoding and not is_of_device(error)


def _unreadable(reader: Source, indices: Ints) -> BadFiles:
    """Return the files that do not exist, that Pillow does not decode, or whose size is not the JSON file's."""
    with Threads(available_cores()) as pool:  # Pillow decodes outside of Python's lock
        reasons = pool.map(lambda index: _why_unreadable(reader, index), indices.tolist())
        return {index: reason for index, reason in zip(indices.tolist(), reasons, strict=True) if reason}


def _why_unreadable(reader: Source, index: int) -> str | None:
    path = reader.path(index)
    try:
        content = reader.read(index)
    except FileNotFoundError as failure:
        return f"{failure.filename or path} does not exist any more"
    except OSError as failure:
        return f"{failure.filename or path} cannot be read ({failure.strerror or failure})"
    height, width = reader.sizes[index].tolist()
    if fault := too_few_bytes(width, height, len(content)):
        return f"{path} {fault}"
    try:
        if reader.pixel_format.is_rgb8:
            with allow_pixels(height * width), Image.open(BytesIO(content)) as image:
                image.load()
    except UnidentifiedImageError:
        return f"{path}: does not decode (cannot identify image file)"
    except (*PILLOW_ERRORS, Image.DecompressionBombError) as failure:
        return f"{path}: does not decode ({failure})"
    try:
        header = parse_image_header(BytesIO(content))
    except ImageError as failure:
        return f"{path} {failure}"
    if fault := heif.name_fault(header.format, os.fspath(path)):
        return f"{path} {fault}"
    size = header.height, header.width
    if size != tuple(reader.sizes[index]):
        return f"{path} {reader.explain_size(index, size)}"
    broken = not reader.pixel_format.is_rgb8 and len(as_decodable(np.frombuffer(content, np.uint8))) == 1
    return f"{path}: does not decode" if broken else None


def _undecodable(reader: Source, indices: Ints, device: torch.device) -> BadFiles:
    """Return the files that only DALI does not decode; none if it decodes no image at all: the fault is not theirs.

    Where it decodes none of them on a GPU, they are at fault if the CPU does not decode them either.
    """
    undecodable, worker = BadFiles(), _decoding_worker(reader, device)
    for index in indices:
        try:
            worker.start(inputs(reader, index[None]))
            worker.finish()
        except DALI_ERRORS as error:  # a pipeline cannot be used after an error
            undecodable[int(index)] = f"{reader.path(index)}: DALI does not decode it ({reason_of(error)})"
            worker.close()
            worker = _decoding_worker(reader, device)
    worker.close()
    if len(undecodable) == len(indices) and device.type == "cuda" and reader.pixel_format.is_rgb8:
        return _undecodable(reader, indices, torch.device("cpu"))
    return undecodable if len(undecodable) < len(indices) or SourceDecoder(reader).works() else BadFiles()


def _decoding_worker(reader: Source, device: torch.device) -> PipelineWorker:
    return PipelineWorker(lambda: [decoded(reader, device.type).shape()], 1, 1, device)


def bad_files_error(files: BadFiles, reader: Source) -> DataError:
    """Return the error that names the first files, and the remedy."""
    return DataError(f"{first_three(files)}; {reader.remedy}")


def first_three(files: BadFiles) -> str:
    """Return the first three reasons, and how many more there are; tiles of an image share one."""
    reasons = dict.fromkeys(files.values())
    more = f"; and {len(reasons) - 3} more" if len(reasons) > 3 else ""
    return "; ".join(islice(reasons, 3)) + more
