"""Find objects in image files with a model of `detaug train`, and write them as a COCO json and as pictures."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from detaug.arguments import SCORE
from detaug.converters.conversion.arguments import output_files
from detaug.converters.conversion.folder import check_folder, made_folder
from detaug.converters.files.atomic import write_json
from detaug.converters.files.image_headers import DECODED_FORMATS, read_image_sizes
from detaug.converters.files.paths import absolute, list_files
from detaug.converters.findings.finding import counted
from detaug.drawing import save_picture
from detaug.errors import DataError, InputError
from detaug.evaluation.masks import run_lengths
from detaug.loading.bad_files import first_three
from detaug.loading.loader import Loader
from detaug.sheets import Detections
from detaug.sources.source import Source
from detaug.training.predict import TrainedModel, load_model, pixels_of

PathLike = str | os.PathLike[str]
Progress = Callable[[int, int], None]

PICTURES = (".jpg", ".png")
"""Of drawings; one of an image of another format is a JPEG."""

EXTENSIONS = tuple(sorted(set().union(*DECODED_FORMATS.values())))


class Predicted(NamedTuple):
    """What was found, and where it was written."""

    images: int
    objects: int
    output: Path
    folder: Path
    """What the file names of the json are relative to."""

    def __str__(self) -> str:
        found = f"{counted(self.objects, 'object')} found in {counted(self.images, 'image')}"
        return f"{found}\nwritten: {self.output}, of images in {self.folder}"


def predict_files(
    model: PathLike | TrainedModel,
    paths: Sequence[PathLike],
    output: PathLike,
    *,
    drawings: PathLike | None = None,
    min_score: float = SCORE,
    batch_size: int = 8,
    device: str | None = None,
    progress: Progress | None = None,
) -> Predicted:
    """Write the objects that a model finds in images as a COCO json with a `score` of each.

    `paths`: images, folders, and patterns such as "photos/*.jpg". `drawings`: a folder for pictures of them.
    The json is a data set of its own: `detaug preview` and `check` read it, and `convert-coco-to` writes it in the
    form of a labelling tool, to be corrected there. Boxes are cut at the image's edges.
    Raises DataError for images that cannot be read, and InputError for paths without an image.
    """
    files = find_images(paths)
    folder = absolute(os.path.commonpath([each.parent for each in files]))
    read = [*files, *paths, *([] if isinstance(model, TrainedModel) else [model])]
    (target,) = output_files({"output": output}, *read).values()
    pictures = None if drawings is None else _drawings(Path(drawings), files, folder)
    trained = model if isinstance(model, TrainedModel) else load_model(model, device)
    source, rows = _Files(files, _sizes(files), trained.class_names), list[dict[str, Any]]()
    with torch.inference_mode(), nullcontext() if drawings is None else made_folder(Path(drawings)):
        for at, found in enumerate(_detections(trained, source, batch_size, min_score)):
            rows += _rows(found, trained, source.sizes[at].tolist())
            if pictures is not None:
                _draw(trained, source, at, found, pictures[at])
            if progress:
                progress(at + 1, len(files))
    write_json(target, _document(trained, source, folder, rows))
    return Predicted(len(files), len(rows), target, folder)


def find_images(paths: Sequence[PathLike]) -> list[Path]:
    """Return the images that paths, folders and patterns lead to, each once. Raises InputError if one leads to none."""
    found: dict[Path, None] = {}
    for path in [os.fspath(each) for each in paths]:
        names = [path] if os.path.exists(path) else sorted(glob.glob(path, recursive=True))
        each = [file for name in names for file in _images_at(Path(name))]
        if not each:
            raise InputError(f"{path} is no image, no folder with images and no pattern of their names")
        found.update(dict.fromkeys(map(absolute, each)))
    return list(found)


def _images_at(path: Path) -> Iterator[Path]:
    if path.is_dir():
        yield from (path / name for name in list_files(path, EXTENSIONS))
    elif path.suffix.lower() in EXTENSIONS:
        yield path


def _drawings(drawings: Path, files: Sequence[Path], folder: Path) -> list[Path]:
    """Return the pictures to write. Raises ConversionError for one that is someone else's."""
    check_folder(drawings)
    names = [each.relative_to(folder) for each in files]
    pictures = [
        drawings / name.with_suffix(name.suffix if name.suffix.lower() in PICTURES else ".jpg") for name in names
    ]
    for picture in filter(Path.exists, pictures):
        output_files({"drawings": picture}, *files, extensions=PICTURES)
    return pictures


def _sizes(files: Sequence[Path]) -> list[tuple[int, int]]:
    sizes = read_image_sizes([os.fspath(each) for each in files])
    faults = {at: f"{files[at]} {size}" for at, size in enumerate(sizes) if isinstance(size, str)}
    if faults:
        raise DataError(f"{first_three(faults)}; {_Files.remedy}")
    return [size for size in sizes if not isinstance(size, str)]


class _Files(Source):
    """Image files without objects."""

    remedy = "leave such files out"

    def __init__(self, files: Sequence[Path], sizes: Sequence[tuple[int, int]], class_names: Sequence[str]) -> None:
        super().__init__(sizes, class_names[1:])
        self.files_of_images = files

    def path(self, index: int) -> Path:
        return self.files_of_images[index]


def _detections(model: TrainedModel, source: Source, batch_size: int, min_score: float) -> Iterator[Detections]:
    for batch in Loader(source, model.ops, batch_size, device=model.device, train=False):
        yield from Detections.of(batch, model.model(batch.images), min_score)


def _rows(found: Detections, model: TrainedModel, size: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Yield what the json has of each object, without its id."""
    height, width = size
    boxes = found.boxes.clip(0, [width, height] * 2).round(3)
    runs = None if found.masks is None else run_lengths(torch.from_numpy(found.masks))
    for at, (x0, y0, x1, y1) in enumerate(boxes.tolist()):
        sides = round(x1 - x0, 3), round(y1 - y0, 3)
        row = {
            "image_id": found.image_id,
            "category_id": found.labels[at],
            "bbox": [x0, y0, *sides],
            "area": round(sides[0] * sides[1], 3),
            "iscrowd": 0,
            "score": round(found.scores[at], 4),
        }
        if runs is not None:
            row["segmentation"] = {"size": [height, width], "counts": runs[at]}
        if found.keypoints is not None:
            points = (found.keypoints[at] - 0.5).round(3)  # COCO counts pixels from 0 at their centres
            row["keypoints"] = [number for x, y in points.tolist() for number in (x, y, 2)]
            row["num_keypoints"] = len(points)
        yield row


def _draw(model: TrainedModel, source: _Files, at: int, found: Detections, path: Path) -> None:
    arrays = {"boxes": found.boxes, "labels": np.array(found.labels, np.int64), "scores": np.array(found.scores)}
    more = {"masks": found.masks, "keypoints": found.keypoints}
    picture = model.draw_found(
        pixels_of(source.path(at)), {**arrays, **{name: each for name, each in more.items() if each is not None}}
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    save_picture(picture, path)


def _document(model: TrainedModel, source: _Files, folder: Path, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the json of the data set."""
    images = [
        {"id": image_id, "file_name": path.relative_to(folder).as_posix(), "width": width, "height": height}
        for image_id, path, (height, width) in zip(
            source.image_ids.tolist(), source.files_of_images, source.sizes.tolist(), strict=True
        )
    ]
    categories = [{"id": at, "name": name} for at, name in enumerate(model.class_names) if at]
    if model.keypoints is not None:
        for at, category in enumerate(categories):
            names, skeleton, _ = model.keypoints.of_class(at, model.keypoints.count)
            category |= {"keypoints": list(names), "skeleton": [[a + 1, b + 1] for a, b in skeleton]}
    annotations = [{"id": at, **row} for at, row in enumerate(rows, 1)]
    return {"images": images, "annotations": annotations, "categories": categories}
