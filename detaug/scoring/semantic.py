"""Score a model of semantic segmentation against the maps of a COCO JSON file, and show where it is wrong."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from detaug.arrays import Ints
from detaug.drawing import save_picture
from detaug.errors import InputError
from detaug.evaluation.map_predictions import classes_at
from detaug.evaluation.pycoco import score_text
from detaug.evaluation.semantic import SemanticCounts, SemanticMetrics
from detaug.files.atomic import write_json
from detaug.files.paths import PathLike
from detaug.findings.finding import counted, short_name
from detaug.loading.loader import Loader
from detaug.machine.parallel import Progress
from detaug.maps.kinds import ClassMap
from detaug.maps.named import refuse_other_classes
from detaug.outputs.guards import output_files
from detaug.scoring.reports import file_names, most_confused, without_nan
from detaug.sheets import maps_sheet
from detaug.sources.coco_reader import CocoReader
from detaug.training.predict import load_model
from detaug.training.semantic_models import MAP, classes_in_source

MOST_IMAGES = 8
"""Images in `SemanticEvaluation.worst`."""


@dataclass(frozen=True, eq=False)
class SemanticEvaluation:
    """The scores of a model of semantic segmentation, and where it is wrong."""

    model: str
    """The file."""
    reader: CocoReader
    metrics: SemanticMetrics
    confusion: Ints
    """(C, C): pixels by their class and the class that was found."""
    right: dict[int, float]
    """The fraction of the pixels of known classes that is right, of each image that has some, by its id."""
    drawn: dict[int, NDArray[np.uint8]]
    """(H, W), the classes that were found in some images, by their ids."""
    worst: dict[int, NDArray[np.uint8]]
    """Those of the images with the smallest fractions of pixels that are right, below 1, the worst first."""

    def rows(self) -> list[tuple[str, float, float, int]]:
        """Return the name of each class, its IoU, the fraction of its pixels that is right, and their number.

        NaN where it does not occur.
        """
        pixels = self.confusion.sum(1)
        with np.errstate(invalid="ignore"):
            right = (self.confusion.diagonal() / pixels).tolist()
        columns = zip(self.metrics.iou.items(), right, pixels.tolist(), strict=True)
        return [(name, iou, share, number) for (name, iou), share, number in columns]

    def confused(self, count: int) -> list[tuple[str, str, float]]:
        """Return the pairs of classes that are confused most: of the pixels, as found, their fraction of the former."""
        names, pixels = [*self.metrics.iou], self.confusion.sum(1)
        pairs = most_confused(self.confusion, count)
        return [(names[a], names[b], float(self.confusion[a, b] / pixels[a])) for a, b in pairs]

    def __str__(self) -> str:
        rows = [(short_name(name), iou, right, pixels) for name, iou, right, pixels in self.rows()]
        width = max(len(name) for name in ("class", *(row[0] for row in rows)))
        lines = [str(self.metrics), f"{counted(len(self.right), 'image')} with pixels of known classes", ""]
        lines.append(f"{'class':{width}}    IoU  right        pixels")
        for name, iou, right, pixels in rows:
            lines.append(f"{name:{width}}  {score_text(iou):>5}  {score_text(right):>5}  {pixels:>12,}")
        if pairs := self.confused(3):
            shown = (f"{short_name(a)} as {short_name(b)} {share:.1%}" for a, b, share in pairs)
            lines += ["", "confused: " + ", ".join(shown)]
        return "\n".join(lines)

    def draw_sheet(self, path: PathLike) -> None:
        """Draw the classes found in the images `drawn` beside their maps to an image file."""
        title = f"{Path(self.model).name}, {Path(self.reader.annotations_file).name}"
        save_picture(maps_sheet(self.reader, MAP, self.drawn, title), path)

    def write_report(self, path: PathLike) -> None:
        """Write all numbers as JSON, whole or not at all; null for those of what does not occur."""
        (target,) = output_files({"report": path}, self.reader.annotations_file).values()
        names = file_names(self.reader)
        right = {names[image_id]: share for image_id, share in self.right.items()}
        write_json(
            target,
            {
                "kind": "semantic",
                "model": self.model,
                "metrics": without_nan(asdict(self.metrics)),
                "class_names": [*self.metrics.iou],
                "confusion": self.confusion.tolist(),
                "right_of_image": right,
            },
        )


def evaluate_semantic(
    model: PathLike,
    annotations: PathLike,
    images: PathLike,
    map: ClassMap,
    *,
    batch_size: int = 8,
    device: str | None = None,
    progress: Progress | None = None,
    draw: int = 0,
) -> SemanticEvaluation:
    """Score a model.pt of `detaug train` that finds the class of each pixel, in the pixels of the maps.

    `map`: of the images; with names of classes, they must be those of the model, and its numbers must mean what they
    mean in the maps of the training: `ignore` and `table` are the same, or it has both a table and names. `draw`: the
    number of images, evenly spaced, whose found classes are kept in `SemanticEvaluation.drawn`. Raises InputError for
    other classes, and for images that have no pixel of a known class.
    """
    trained = load_model(model, device)
    if trained.finds != "semantic":
        raise InputError(f"{os.fspath(model)} finds boxes, and a map is of pixels: leave the map out")
    of_training = trained.map or replace(map, classes=trained.class_names)  # an older file does not have it
    refuse_other_classes(map, of_training, f"the map {os.fspath(map.folder)}")
    reader = CocoReader(images, annotations, maps={MAP: map})
    chosen = np.linspace(0, len(reader) - 1, min(draw, len(reader))).astype(int)
    ids = {*reader.image_ids[chosen].tolist()}
    counts = SemanticCounts(len(trained.class_names), trained.class_names, trained.device)
    right, drawn, worst = dict[int, float](), dict[int, NDArray[np.uint8]](), dict[int, NDArray[np.uint8]]()
    # All images, also in a process of several: `detaug train PATH` under torchrun evaluates on its first rank.
    loader = Loader(reader, trained.ops, batch_size, device=trained.device, train=False, shard=(0, 1))
    with torch.inference_mode():
        done = 0
        for batch in loader:
            scores = trained.model(batch.images)
            for index, image_id in enumerate(batch.image_id.tolist()):
                truth, points = batch.map_in_source(MAP, index)
                predicted = classes_at(scores[index], points, batch.images.shape[-2:])
                of_image = counts.add(truth, predicted, map.ignore, MAP)
                known = int(of_image.sum())
                if known:
                    right[image_id] = int(of_image.diagonal().sum()) / known
                below = right[[*worst][-1]] if len(worst) == MOST_IMAGES else 1.0
                is_among_worst = right.get(image_id, 1.0) < below
                if image_id in ids or is_among_worst:
                    classes = classes_in_source(batch, scores, index).numpy()  # costly: of all pixels of the source
                    if image_id in ids:
                        drawn[image_id] = classes
                    if is_among_worst:
                        worst[image_id] = classes
                        order = sorted(worst, key=right.__getitem__)[:MOST_IMAGES]
                        worst = {image_id: worst[image_id] for image_id in order}
            done += len(batch)
            if progress:
                progress(done, len(reader))
    if not right:
        raise InputError(f"{map.folder}: all pixels have the value {map.ignore}, which is ignored; is it ignore=?")
    return SemanticEvaluation(os.fspath(model), reader, counts.metrics(), counts.confusion, right, drawn, worst)
