"""Find objects in images and videos with a model of `detaug train`, and write a COCO JSON file and drawings."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from detaug.arguments import SCORE, check, is_number, is_whole, renamed
from detaug.coco.file_names import VIDEO_EXTENSIONS
from detaug.coco.rings import keys_of_corners
from detaug.converters import coco_to_cvat, coco_to_label_studio, coco_to_labelme
from detaug.drawing import class_colors, save_picture
from detaug.errors import ConversionError, InputError
from detaug.evaluation.masks import run_lengths
from detaug.files.atomic import write_json
from detaug.files.image_headers import DECODED_FORMATS
from detaug.files.paths import PathLike, absolute, list_files
from detaug.findings.finding import counted, listed, short_name
from detaug.machine.parallel import Progress
from detaug.named_options import option
from detaug.outputs.folder import check_folder, files_together, refuse_other_content
from detaug.outputs.guards import output_files
from detaug.outputs.summary import skip_remedy
from detaug.scoring.pictures import ImageFiles, PredictedImages, VideoFiles
from detaug.sheets import Detections
from detaug.training.predict import TrainedModel, load_model
from detaug.training.tta import TTA

PICTURES = (".jpg", ".png")
"""Of drawings; that of an image of another format is a JPEG, a.webp.jpg of a.webp."""

EXTENSIONS = tuple(sorted({*VIDEO_EXTENSIONS}.union(*DECODED_FORMATS.values())))

Tool = Literal["labelme", "cvat", "label-studio"]
TOOLS: dict[Tool, Callable[..., Any]] = {
    "labelme": coco_to_labelme,
    "cvat": coco_to_cvat,
    "label-studio": partial(coco_to_label_studio, kind="predictions"),
}
"""Writers of pre-labels."""


class Predicted(NamedTuple):
    """The detections, and where they were written."""

    images: int
    objects: int
    output: Path
    folder: Path
    """What the file names of the JSON file are relative to."""
    videos: int = 0
    """The number of videos that the images are frames of."""
    pre_labels: tuple[Path, ...] = ()
    min_score: float = SCORE
    next_steps: tuple[str, ...] = ()
    """For each of the pre-labels, the command that reads them again when they are corrected."""

    def __str__(self) -> str:
        where = f"{counted(self.images, 'frame')} of {counted(self.videos, 'video')}"
        where = where if self.videos else counted(self.images, "image")
        labels = zip(self.pre_labels, self.next_steps, strict=True)
        also = "".join(f"\nwritten: {folder}\n{step}" for folder, step in labels)
        kind = "videos" if self.videos else "images"
        line = f"{counted(self.objects, 'object')} found in {where}"
        if not self.objects:
            line += f", none with a score of {self.min_score:g} or more: a lower {option('min_score')} finds more"
        return f"{line}\nwritten: {self.output}, of {kind} in {self.folder}{also}"


@renamed(every="stride")
def predict_files(
    model: PathLike | TrainedModel,
    paths: Sequence[PathLike],
    output: PathLike,
    *,
    drawings: PathLike | None = None,
    pre_labels: Mapping[Tool, PathLike] | None = None,
    min_score: float = SCORE,
    stride: int = 1,
    batch_size: int = 8,
    device: str | None = None,
    progress: Progress | None = None,
    tta: TTA | None = None,
) -> Predicted:
    """Write the objects that a model finds in images or videos as a COCO JSON file with a `score` of each.

    `paths`: files, folders, and patterns such as "photos/*.jpg", of images or of videos. Of videos each `stride`-th
    frame is taken, and the JSON file is a CocoVID JSON file, as `VideoReader` and `detaug preview --frames` read it.
    `drawings`: a folder for drawings of the images, or frames. `pre_labels`: folders for the files of labeling tools to
    begin with, by the name of the tool; of images only. Files that are there already stay: they are an error before
    anything is predicted. `tta`: see `TrainedModel.predict`. The JSON file is a dataset of its own: `detaug preview`
    and `check` read it, and `convert-coco-to` writes it in other forms. Boxes are cut at the image's edges, and left
    out where nothing is left of them. Raises DataError for images that cannot be read, and InputError for paths without
    any, and for images beside videos.
    """
    for name, number in (("stride", stride), ("batch_size", batch_size)):
        check(name, number, is_whole(number, 1), "a whole number of at least 1")
    check("min_score", min_score, is_number(min_score, 0, 1), "a score in 0..1")
    files = find_files(paths)
    is_video = _are_videos(files)
    check("stride", stride, is_video or stride == 1, "1 for images: it is for the frames of videos")
    folder = absolute(os.path.commonpath([file.parent for file in files]))
    read = [*files, *paths, *([] if isinstance(model, TrainedModel) else [model])]
    (target,) = output_files({"output": output}, *read).values()
    labels = _checked(pre_labels or {}, is_video)
    trained = model if isinstance(model, TrainedModel) else load_model(model, device)
    source = VideoFiles(files, folder, stride) if is_video else ImageFiles(files, folder, trained.class_names)
    names = [] if drawings is None else _drawings(Path(drawings), source, files)
    _try_pre_labels(labels, target, _document(trained, source, []), folder)
    rows = list[dict[str, Any]]()
    together = nullcontext() if drawings is None else files_together(Path(drawings))
    with torch.inference_mode(), together as folder_of_drawings:
        for index, detections in enumerate(source.detections(trained, batch_size, min_score, tta)):
            image = source.images[index]
            rows += _rows(detections, (image["height"], image["width"]))
            if folder_of_drawings is not None:
                _draw(trained, source.read_pixels(index), detections, folder_of_drawings / names[index])
            if progress:
                progress(index + 1, len(source.images))
        write_json(target, _document(trained, source, rows))
    steps = tuple(TOOLS[tool](target, out, images=folder).next_step for tool, out in labels.items())
    videos, written = len(source.videos), tuple(labels.values())
    return Predicted(len(source.images), len(rows), target, folder, videos, written, min_score, steps)


class PredictedMaps(NamedTuple):
    """How many images have a map of classes now, and where."""

    images: int
    folder: Path
    class_names: tuple[str, ...]

    def __str__(self) -> str:
        numbers = listed([f"{number} {short_name(name)}" for number, name in enumerate(self.class_names)])
        return f"written: {self.folder}, {counted(self.images, 'map')} of the classes {numbers}"


def predict_maps(
    model: PathLike | TrainedModel,
    paths: Sequence[PathLike],
    output: PathLike,
    *,
    drawings: PathLike | None = None,
    batch_size: int = 8,
    device: str | None = None,
    progress: Progress | None = None,
) -> PredictedMaps:
    """Write the class that a model of semantic segmentation finds for each pixel of images, a PNG file each.

    `paths`: as `predict_files` takes them, of images. `output`: a folder; an image below it has the name of its image,
    with .png, in the same sub-folders, so that `ClassMap(output)` and `evaluate_maps` read it: with a palette whose
    indices are the classes, in the size of the image as displayed. `drawings`: a folder for images of the classes on
    the images. Nothing is written if an image cannot be read, and no file of someone else is replaced. Raises DataError
    for images that cannot be read, and InputError for paths without any, for videos, for two images whose maps would
    have one name, and for a model that finds boxes.
    """
    check("batch_size", batch_size, is_whole(batch_size, 1), "a whole number of at least 1")
    trained = model if isinstance(model, TrainedModel) else load_model(model, device)
    if trained.finds != "semantic":
        raise InputError("model finds boxes, and no map of classes: call predict_files")
    files = find_files(paths)
    if _are_videos(files):
        raise InputError(f"{files[0]} is a video: write its frames as files, ffmpeg -i VIDEO frames/%06d.png")
    folder = absolute(os.path.commonpath([file.parent for file in files]))
    source = ImageFiles(files, folder, ())
    maps, drawn = Path(output), [] if drawings is None else _drawings(Path(drawings), source, files)
    names = _names_of_maps(maps, source, files)
    colors = class_colors(trained.class_names)
    palette = [part for name in trained.class_names for part in colors[name]]
    with ExitStack() as stack:
        to_maps = stack.enter_context(files_together(maps))
        to_drawings = None if drawings is None else stack.enter_context(files_together(Path(drawings)))
        for index, classes in enumerate(source.classes_of_pixels(trained, batch_size)):
            image = Image.fromarray(classes).convert("P")
            image.putpalette(palette)
            _save(image, to_maps / names[index])
            if to_drawings is not None:
                _save(trained.draw_found(source.read_pixels(index), {"semantic": classes}), to_drawings / drawn[index])
            if progress:
                progress(index + 1, len(files))
    return PredictedMaps(len(files), maps, trained.class_names)


def _names_of_maps(maps: Path, source: PredictedImages, files: Sequence[Path]) -> list[str]:
    """Return the names of the maps to write. Raises ConversionError for one that is someone else's."""
    check_folder(maps)
    names = [os.path.splitext(image["file_name"])[0] + ".png" for image in source.images]
    first: dict[str, Path] = {}
    for name, file in zip(names, files, strict=True):
        other = first.setdefault(name, file)
        if other != file:
            raise InputError(f"{other} and {file} would have the same map; predict one without the other")
    for path in filter(Path.exists, (maps / name for name in names)):
        output_files({"output": path}, *files, extensions=(".png",))
    return names


def find_files(paths: Sequence[PathLike]) -> list[Path]:
    """Return the images and videos that paths, folders and patterns lead to, each once. Raises InputError for none."""
    files: dict[Path, None] = {}
    for path in [os.fspath(path) for path in paths]:
        names = [path] if os.path.exists(path) else sorted(glob.glob(path, recursive=True))
        named = [file for name in names for file in _files_at(Path(name))]
        if not named and os.path.isfile(path):
            kind = os.path.splitext(path)[1] or "without an extension"
            raise InputError(f"{path}: {kind} is not read, only {', '.join(sorted(EXTENSIONS))}; save it as PNG")
        if not named:
            raise InputError(f"{path} is not an image or video, a folder of them, or a pattern of their names")
        files.update(dict.fromkeys(map(absolute, named)))
    return list(files)


def _files_at(path: Path) -> Iterator[Path]:
    if path.is_dir():
        yield from (path / name for name in list_files(path, EXTENSIONS))
    elif path.suffix.lower() in EXTENSIONS:
        yield path


def _are_videos(files: Sequence[Path]) -> bool:
    """Return whether files are videos. Raises InputError for images beside videos."""
    videos = [file for file in files if file.suffix.lower() in VIDEO_EXTENSIONS]
    if videos and len(videos) < len(files):
        pattern = f"'*{videos[0].suffix}'"
        raise InputError(
            f"images and videos need a JSON file each, and {videos[0]} is a video: give images alone, and videos "
            f"alone, with patterns such as {pattern}"
        )
    return bool(videos)


def _checked(pre_labels: Mapping[Tool, PathLike], is_video: bool) -> dict[Tool, Path]:
    """Return the folders of labeling tools. Raises InputError for an unknown tool, for a file, and for videos."""
    for tool, out in pre_labels.items():
        check("pre_labels", tool, tool in TOOLS, f"one of {', '.join(TOOLS)}")
        check_folder(Path(out))
        if is_video:
            raise InputError("pre_labels are of images: write the frames as files, ffmpeg -i VIDEO frames/%06d.png")
    return {tool: Path(out) for tool, out in pre_labels.items()}


def _try_pre_labels(labels: Mapping[Tool, Path], target: Path, document: dict[str, Any], folder: Path) -> None:
    """Raise ConversionError now for what would fail after the predictions: names, and files that would be replaced.

    Writes pre-labels without objects into a temporary folder. document: the JSON file without objects.
    """
    if not labels:
        return
    with TemporaryDirectory() as temporary:
        empty = Path(temporary) / "empty.json"
        write_json(empty, document)
        for tool, out in labels.items():
            trial = Path(temporary) / tool
            try:
                TOOLS[tool](empty, trial, images=folder)
            except ConversionError as error:
                text = str(error).replace(os.fspath(empty), os.fspath(target))
                raise ConversionError(text.replace(skip_remedy(), "predict these apart from each other")) from None
            texts = {
                out / file.relative_to(trial): file.read_text("utf-8") for file in trial.rglob("*") if file.is_file()
            }
            if target.resolve() in {path.resolve() for path in texts}:
                raise ConversionError(f"output {target} is a file of the pre-labels of {tool}; give another name")
            refuse_other_content(texts, {})


def _drawings(drawings: Path, source: PredictedImages, files: Sequence[Path]) -> list[str]:
    """Return the names of the images to write. Raises ConversionError for one that is someone else's."""
    check_folder(drawings)
    names = [image["file_name"] for image in source.images]
    drawn = [name if name.lower().endswith(PICTURES) else name + ".jpg" for name in names]
    taken = {*names}
    for name, other in zip(names, drawn, strict=True):
        if name != other and other in taken:
            raise InputError(f"{name} and {other} would have the same drawing; predict one without the other")
    for picture in filter(Path.exists, (drawings / name for name in drawn)):
        output_files({"drawings": picture}, *files, extensions=PICTURES)
    return drawn


def _rows(detections: Detections, size: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Yield what the JSON file has of each object, without its id."""
    height, width = size
    runs = None if detections.masks is None else run_lengths(torch.from_numpy(detections.masks))
    for index, (x0, y0, x1, y1) in enumerate(detections.boxes.round(3).tolist()):
        sides = round(x1 - x0, 3), round(y1 - y0, 3)
        row = {
            "image_id": detections.image_id,
            "category_id": detections.labels[index],
            "bbox": [x0, y0, *sides],
            "area": round(sides[0] * sides[1], 3),
            "iscrowd": 0,
            # 0.9, not 0.8999999761581421; no two become equal
            "score": float(str(np.float32(detections.scores[index]))),
        }
        if runs is not None:
            assert detections.masks is not None
            row["area"] = int(detections.masks[index].sum())
            row["segmentation"] = {"size": [height, width], "counts": runs[index]}
        if detections.corners is not None:
            row |= keys_of_corners(detections.corners[index].round(3).ravel())
        if detections.keypoints is not None:
            points = (detections.keypoints[index] - 0.5).round(3)  # COCO counts pixels from 0 at their centers
            row["keypoints"] = [number for x, y in points.tolist() for number in (x, y, 2)]
            row["num_keypoints"] = len(points)
        yield row


def _draw(model: TrainedModel, pixels: NDArray[np.uint8], detections: Detections, path: Path) -> None:
    arrays = {
        "boxes": detections.boxes,
        "labels": np.array(detections.labels, np.int64),
        "scores": np.array(detections.scores),
    }
    more = {"masks": detections.masks, "keypoints": detections.keypoints, "corners": detections.corners}
    shapes = {name: values for name, values in more.items() if values is not None}
    _save(model.draw_found(pixels, {**arrays, **shapes}), path)


def _save(image: Image.Image, path: Path) -> None:
    """Write an image in the sub-folder that its source is in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    save_picture(image, path)


def _document(model: TrainedModel, source: PredictedImages, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the JSON file of the dataset."""
    categories = [{"id": label, "name": name} for label, name in enumerate(model.class_names) if label]
    if model.keypoints is not None:
        for index, category in enumerate(categories):
            names, skeleton, _ = model.keypoints.of_class(index, model.keypoints.count)
            category |= {"keypoints": list(names), "skeleton": [[a + 1, b + 1] for a, b in skeleton]}
    annotations = [{"id": number, **row} for number, row in enumerate(rows, 1)]
    videos = {"videos": source.videos} if source.videos else {}
    return {**videos, "images": source.images, "annotations": annotations, "categories": categories}
