"""The images in which a model finds objects: image files, or frames of video files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from detaug.arrays import Bytes
from detaug.errors import DataError
from detaug.files.image_headers import read_image_sizes
from detaug.loading.bad_files import first_three
from detaug.loading.loader import Loader
from detaug.sheets import Detections
from detaug.sources.source import Source
from detaug.training.predict import TrainedModel, pixels_of
from detaug.training.predict_batches import predicted_batches
from detaug.training.semantic_models import classes_in_source
from detaug.training.tta import TTA
from detaug.video.reader import VideoReader

AT_ONCE = 32
"""Frames that are decoded at once: fewer would decode more of them twice, since decoding begins at key frames."""


class PredictedImages(Protocol):
    """What a model looks at."""

    images: list[dict[str, Any]]
    """The images of the JSON file, with `file_name`s relative to a folder."""
    videos: list[dict[str, Any]]
    """The videos of the JSON file, if the images are frames."""

    def detections(
        self, model: TrainedModel, batch_size: int, min_score: float, tta: TTA | None = None
    ) -> Iterator[Detections]:
        """Yield what the model finds in each image, in their order."""
        ...

    def read_pixels(self, index: int) -> NDArray[np.uint8]:
        """Return an image as (H, W, 3) RGB."""
        ...


class ImageFiles(Source):
    """Image files without objects. Raises DataError if one cannot be read."""

    remedy = "leave such files out"

    def __init__(self, files: Sequence[Path], folder: Path, class_names: Sequence[str]) -> None:
        self._files = files
        sizes = read_image_sizes([os.fspath(file) for file in files])
        faults = {index: f"{files[index]} {size}" for index, size in enumerate(sizes) if isinstance(size, str)}
        if faults:
            raise DataError(f"{first_three(faults)}; {self.remedy}")
        super().__init__([size for size in sizes if not isinstance(size, str)], class_names[1:])
        rows = zip(self.image_ids.tolist(), files, self.sizes.tolist(), strict=True)
        self.videos: list[dict[str, Any]] = []
        self.images = [
            {"id": number, "file_name": file.relative_to(folder).as_posix(), "width": width, "height": height}
            for number, file, (height, width) in rows
        ]

    def path(self, index: int) -> Path:
        return self._files[index]

    def detections(
        self, model: TrainedModel, batch_size: int, min_score: float, tta: TTA | None = None
    ) -> Iterator[Detections]:
        for batch, predictions in predicted_batches(model, self, batch_size, tta):
            yield from Detections.of(batch, predictions, min_score)

    def classes_of_pixels(self, model: TrainedModel, batch_size: int) -> Iterator[NDArray[np.uint8]]:
        """Yield (H, W) the class of each pixel of each image, in their order."""
        with torch.inference_mode():
            for batch in Loader(self, model.ops, batch_size, device=model.device, train=False, shard=(0, 1)):
                scores = model.model(batch.images)
                yield from (classes_in_source(batch, scores, index).numpy() for index in range(len(batch)))

    def read_pixels(self, index: int) -> NDArray[np.uint8]:
        return pixels_of(self.path(index))


class VideoFiles:
    """Each `stride`-th frame of video files. Raises InputError for a file that is not a video that can be used."""

    def __init__(self, files: Sequence[Path], folder: Path, stride: int) -> None:
        self._reader = VideoReader(files, frames=AT_ONCE, stride=stride, step=AT_ONCE * stride, last="pad")
        self._reader.check_files()
        video_ids, numbers, _ = self._reader.frames
        rows = np.unique(self._reader.clips)
        self._rows = rows[numbers[rows] % stride == 0]  # the last frame is in the last clip, too
        self._decoded: dict[int, Bytes] = {}
        names = [file.relative_to(folder).as_posix() for file in files]
        self.videos = [{"id": number, "file_name": name} for number, name in enumerate(names, 1)]
        self.images = [
            {
                "id": int(self._reader.image_ids[row]),
                "file_name": f"{names[video - 1]}/{number:06}.jpg",
                "width": width,
                "height": height,
                "video_id": video,
                "frame_id": number,
            }
            for row, video, number, (height, width) in zip(
                self._rows.tolist(),
                video_ids[self._rows].tolist(),
                numbers[self._rows].tolist(),
                self._reader.sizes[self._rows].tolist(),
                strict=True,
            )
        ]

    def detections(
        self, model: TrainedModel, batch_size: int, min_score: float, tta: TTA | None = None
    ) -> Iterator[Detections]:
        left = {image["id"] for image in self.images}
        for frames, predictions in predicted_batches(model, self._reader, batch_size, tta):
            for detections in Detections.of(frames, predictions, min_score):
                if detections.image_id in left:
                    left.remove(detections.image_id)
                    yield detections

    def read_pixels(self, index: int) -> NDArray[np.uint8]:
        row = int(self._rows[index])
        if row not in self._decoded:
            rows = self._rows[index : index + AT_ONCE]
            self._decoded = dict(zip(rows.tolist(), self._reader.contents(rows), strict=True))
        return self._decoded[row]
