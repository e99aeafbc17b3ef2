"""Merge the detections in tiles to those in the source images that the tiles were cut from."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from detaug.arguments import check, checks_names, is_number, is_wholes, to_python
from detaug.arrays import Bools, Floats, Ints
from detaug.boxes.polygons import area, hull
from detaug.coco.table import load_coco
from detaug.errors import InputError
from detaug.evaluation.ground_truth import GroundTruth
from detaug.evaluation.kind import DetectionKind
from detaug.evaluation.predictions import ImageDetections
from detaug.evaluation.rotated import iou_of_quadrangles
from detaug.evaluation.voc_ap import Overlaps, area_of_boxes, iou_of_boxes
from detaug.findings.finding import shown
from detaug.sources.coco_reader import CocoReader, json_of
from detaug.storage.open_storage import named
from detaug.tiles.reader import TileReader
from detaug.tiles.windows import covers

Tiles: TypeAlias = TileReader | CocoReader | str | os.PathLike[str]
"""A `TileReader`, or a JSON file that `detaug tile` wrote, or its reader."""

EDGE = 0.01
"""Of a tile's side: a box that ends so near an edge of the tile inside of the source image may be cut by it."""

COVERED = 0.7
"""The fraction of a cut box that a box in another tile has to cover, to replace it."""

COVERING_SCORE = 0.5
"""The least score of that box, as a fraction of the cut one's: large things are detected everywhere with low scores."""


class TilesOfImages(NamedTuple):
    """T tiles: where each is in its source image."""

    image_ids: list[int]
    """Of the tiles."""
    source_ids: list[int]
    """The image id of each one's source image."""
    windows: Ints
    """(T, 4): x, y, width, height in pixels of the source image."""
    sizes: Ints
    """(T, 2): (height, width) of the tile."""


def tiles_of(tiles: Tiles, truth: GroundTruth, annotations: Path) -> TilesOfImages:
    """Return the tiles of a `TileReader`, or of a JSON file of `detaug tile`. `truth`: of the source images.

    Raises InputError for a JSON file without tiles, for tiles of other source images, and if they leave out parts of
    source images.
    """
    if isinstance(tiles, TileReader):
        ids = tiles.reader.image_ids[tiles.pictures].tolist()
        result, origin = TilesOfImages(tiles.image_ids.tolist(), ids, tiles.windows, tiles.sizes), tiles.origin
    else:
        path, file = json_of(tiles)
        with named(path, file):
            rows, origin = load_coco(file).document["images"], str(path)
            result = _tiles_of_json(rows, path)._replace(source_ids=_source_ids(rows, truth, origin, annotations))
    sizes = dict(zip(truth.image_ids, truth.sizes.tolist(), strict=True))
    of_image: dict[int, list[int]] = {}
    for index, image_id in enumerate(result.source_ids):
        of_image.setdefault(image_id, []).append(index)
    for image_id, members in of_image.items():
        windows = result.windows[members]
        if image_id not in sizes or (windows[:, :2] + windows[:, 2:] > sizes[image_id][::-1]).any():
            raise InputError(f"{origin} has tiles of an image with id {image_id} that {annotations} does not have")
        if not covers(windows, *sizes[image_id]):
            raise InputError(
                f"the tiles of {origin} do not show all of the image with id {image_id}: cut them with empty=1 "
                "(detaug tile --empty 1)"
            )
    if without := [image_id for image_id in truth.image_ids if image_id not in of_image]:
        raise InputError(
            f"{origin} has no tiles of {len(without)} of {len(sizes)} images of {annotations}, the first has the id "
            f"{without[0]}, so they would never be scored; cut tiles of all, with empty=1 (detaug tile --empty 1)"
        )
    return result


def _source_ids(rows: list[dict[str, Any]], truth: GroundTruth, origin: str, annotations: Path) -> list[int]:
    """Return the id of each tile's image: by its name, since merging gives images new ids; without a name by its id."""
    names = dict(zip(truth.image_ids, truth.file_names, strict=True))
    by_name = {name: image_id for image_id, name in names.items()}
    image_ids = []
    for tile_of in (row["tile_of"] for row in rows):
        name, image_id = tile_of.get("file_name"), tile_of["id"]
        if name is not None and names.get(image_id) != name:
            if name not in by_name:
                raise InputError(
                    f"{origin} has tiles of an image {shown(name)} that {annotations} does not have: merge the JSON "
                    "files of the images, and then cut the tiles of the merged one"
                )
            image_id = by_name[name]
        image_ids.append(image_id)
    return image_ids


def _tiles_of_json(rows: list[dict[str, Any]], path: Path) -> TilesOfImages:
    for row in rows:
        origin = row.get("tile_of")
        if not (isinstance(origin, dict) and "id" in origin and is_wholes(row.get("window"), 4, 0)):
            raise InputError(
                f"{path}: the image with id {row.get('id')} has no tile_of and window; give the JSON file that detaug "
                "tile wrote"
            )
    return TilesOfImages(
        [row["id"] for row in rows],
        [row["tile_of"]["id"] for row in rows],
        np.array([row["window"] for row in rows], np.int64).reshape(-1, 4),
        np.array([(row["height"], row["width"]) for row in rows], np.int64).reshape(-1, 2),
    )


def merged(
    tiles: TilesOfImages, by_tile: Mapping[int, ImageDetections], kind: DetectionKind[Any], min_iou: float
) -> dict[int, ImageDetections]:
    """Return the detections in source images, by image id. `by_tile`: of tiles, in pixels of their source images."""
    sizes = dict(zip(kind.truth.image_ids, kind.truth.sizes.tolist(), strict=True))
    of_image: dict[int, list[int]] = {}
    for index, (image_id, source_id) in enumerate(zip(tiles.image_ids, tiles.source_ids, strict=True)):
        if image_id in by_tile:
            of_image.setdefault(source_id, []).append(index)
    result = {}
    for source_id, members in of_image.items():
        parts = [by_tile[tiles.image_ids[index]] for index in members]
        columns = [np.concatenate([part[field] for part in parts]) for field in range(4)]
        shapes, scores, category_ids, boxes = columns
        numbers = np.repeat(members, [len(part.scores) for part in parts])
        where = Where(boxes, numbers, tiles.windows[numbers], sizes[source_id])
        compared = shapes if kind.merged_by_shape else boxes
        kept = merged_rows(where, scores, category_ids, Compared(compared, kind.iou, kind.area), min_iou)
        result[source_id] = ImageDetections(*(column[kept] for column in columns))
    return result


class Where(NamedTuple):
    """Where D detections in tiles of one source image are."""

    boxes: Floats
    """(D, 4) XYXY in pixels of the source image."""
    tile: Ints
    """(D,): the number of the tile."""
    windows: Ints
    """(D, 4): x, y, width, height of that tile."""
    size: Sequence[int]
    """(height, width) of the source image."""


class Compared(NamedTuple):
    """What of D detections is compared: the boxes, or the corners of rotated ones."""

    shapes: NDArray[Any]
    """(D, ...)"""
    iou: Overlaps
    area: Callable[[NDArray[Any]], Floats]

    def iou_with(self, index: int, others: Ints) -> Floats:
        """Return (len(others),): the IoU of one with others."""
        return np.asarray(self.iou(self.shapes[index : index + 1], self.shapes[others])[0])


def merged_rows(where: Where, scores: Floats, labels: Ints, compared: Compared, min_iou: float) -> Ints:
    """Return which of D detections are left, best first."""
    left = _without_covered(where, scores, labels, compared)
    order = left[np.argsort(-scores[left], kind="stable")]
    stays = np.ones(len(order), bool)
    for label in np.unique(labels[order]).tolist():
        rows = order[labels[order] == label]
        stays[labels[order] == label] = _best(rows, where, compared, min_iou)
    return order[stays]


def _is_cut(where: Where) -> Bools:
    """Return (D,): whether a box ends at an edge of its tile that is not an edge of the source image."""
    boxes, _, windows, size = where
    start, end = windows[:, :2], windows[:, :2] + windows[:, 2:]
    near = EDGE * windows[:, 2:]
    at_start = (boxes[:, :2] - start <= near) & (start > 0)
    at_end = (end - boxes[:, 2:] <= near) & (end < np.array([size[1], size[0]]))
    return np.asarray((at_start | at_end).any(1))


def _without_covered(where: Where, scores: Floats, labels: Ints, compared: Compared) -> Ints:
    """Return the detections without cut ones that one of the same class in another tile covers."""
    tile, cut, area = where.tile, _is_cut(where), compared.area(compared.shapes)
    stays = ~cut
    # the largest first: one that stays may cover smaller ones
    for index in np.flatnonzero(cut)[np.argsort(-area[cut], kind="stable")].tolist():
        better = stays & (labels == labels[index]) & (tile != tile[index]) & (scores >= COVERING_SCORE * scores[index])
        others = np.flatnonzero(better)
        iou = compared.iou_with(index, others)
        # the IoU, which is shared / (sum of the areas - shared), solved for what is shared
        shared = iou * (area[index] + area[others]) / (1 + iou)
        stays[index] = not (shared >= (COVERED - 1e-9) * area[index]).any()
    return np.flatnonzero(stays)


def _best(rows: Ints, where: Where, compared: Compared, min_iou: float) -> Bools:
    """Return (R,): which of `rows`, detections of one class, best first, stay.

    A better one in another tile with a larger IoU removes one. Those in one tile do not suppress each other: that is
    the detector's own decision.
    """
    boxes, tile = where.boxes[rows], where.tile[rows]
    stays = np.ones(len(rows), bool)
    for index in range(len(boxes)):
        if not stays[index]:
            continue
        later = np.arange(index + 1, len(boxes))
        near = (boxes[later, :2] < boxes[index, 2:]).all(1) & (boxes[later, 2:] > boxes[index, :2]).all(1)
        later = later[near & (tile[later] != tile[index]) & stays[later]]
        stays[later[compared.iou_with(rows[index], rows[later]) > min_iou]] = False
    return stays


@checks_names
def merge_tiles(
    predictions: Sequence[Mapping[str, Tensor]],
    windows: ArrayLike,
    size: Sequence[int],
    *,
    sizes: ArrayLike | None = None,
    min_iou: float = 0.5,
) -> dict[str, Tensor]:
    """Merge detections in the tiles of one source image: boxes (K, 4) XYXY in its pixels, scores, labels, best first.

    A box that ends at an edge of its tile, but not of the source image, goes if a box of its class in another tile
    covers it: there the object is whole. Then of two boxes of a class in different tiles with an IoU above `min_iou`
    the one with the lower score goes. Of rotated boxes the corners decide both. An object that is whole in no tile
    keeps a box for each part. Raises InputError for other shapes, and where some tiles lack what others have.

    Args:
        predictions: T dicts, as torchvision's detectors return them, of tiles in pixels of the tile: boxes or corners
            (K, 4, 2) of rotated ones, or both, scores and labels; also keypoints (K, P, 2 or 3). Others, as masks, are
            left out.
        windows: (T, 4) x, y, width, height of each tile in the source image, as `TileReader.windows`.
        size: (height, width) of the source image.
        sizes: (T, 2) those of the tiles, as `TileReader.sizes`, if some show their window at another scale (`whole`);
            None is the windows' own.
        min_iou: Of two boxes of a class in different tiles with a larger IoU the one with the lower score goes.

    >>> cut = {"boxes": torch.tensor([[80.0, 20, 100, 40]]), "scores": torch.ones(1), "labels": torch.tensor([1])}
    >>> whole = {**cut, "boxes": torch.tensor([[0.0, 20, 30, 40]])}
    >>> print(da.merge_tiles([cut, whole], [[0, 0, 100, 100], [80, 0, 100, 100]], (100, 180))["boxes"])
    tensor([[ 80.,  20., 110.,  40.]])
    """
    frames = np.asarray(windows)
    check("windows", frames.shape, frames.shape == (len(predictions), 4), f"of shape ({len(predictions)}, 4)")
    check("predictions", predictions, len(predictions) > 0, "of at least one tile")
    check("size", size, is_wholes(to_python(size), 2, 1), "(height, width) of the source image")
    # (height, width) of the windows
    shown = frames[:, :1:-1] if sizes is None else np.asarray(sizes)
    right = shown.shape == (len(frames), 2) and bool((shown > 0).all())
    check("sizes", sizes, right, f"of shape ({len(frames)}, 2), above 0")
    check("min_iou", min_iou, is_number(min_iou, 0, 1), "in 0..1")
    names = [
        name for name in ("boxes", "corners", "keypoints") if any(name in prediction for prediction in predictions)
    ]
    lacking = [
        index for index, prediction in enumerate(predictions) if not {"scores", "labels", *names} <= {*prediction}
    ]
    if names[:1] in ([], ["keypoints"]) or lacking:
        raise InputError("predictions must all have boxes or corners, scores and labels, and keypoints if some have")
    scores, labels = (torch.cat([prediction[name] for prediction in predictions]) for name in ("scores", "labels"))
    counts = [len(prediction["scores"]) for prediction in predictions]
    scales = frames[:, 2:] / shown[:, ::-1]
    pairs = [*zip(predictions, frames, scales, strict=True)]
    shapes = {
        name: torch.cat([_moved(prediction[name], frame, scale) for prediction, frame, scale in pairs])
        for name in names
    }
    tile = np.repeat(np.arange(len(counts)), counts)
    arrays = {name: tensor.double().cpu().numpy() for name, tensor in {**shapes, "scores": scores}.items()}
    boxes = arrays["boxes"] if "boxes" in arrays else hull(arrays["corners"])
    compared = Compared(boxes, iou_of_boxes, area_of_boxes)
    if "corners" in arrays:
        compared = Compared(arrays["corners"], iou_of_quadrangles, area)
    where = Where(boxes, tile, frames[tile], size)
    kept = merged_rows(where, arrays["scores"], labels.cpu().numpy(), compared, min_iou)
    rows = torch.from_numpy(kept).to(scores.device)
    return {name: tensor[rows] for name, tensor in {**shapes, "scores": scores, "labels": labels}.items()}


def _moved(shapes: Tensor, window: Ints, scale: Floats) -> Tensor:
    """Return boxes (K, 4) or points (K, P, 2 or 3) in the source image. `scale`: (2,) of x and y."""
    corner, by = (shapes.new_tensor(numbers.tolist()) for numbers in (window[:2], scale))
    if shapes.ndim == 2:
        return shapes * by.repeat(2) + corner.repeat(2)
    return torch.cat([shapes[..., :2] * by + corner, shapes[..., 2:]], -1)
