"""The maps of images on contact sheets: as their files have them, and after the ops of a recipe."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from detaug.boxes.fields import Field
from detaug.boxes.layers import Drawing
from detaug.drawing.maps import MapMarks, depth_limits
from detaug.drawing.sheet import Tile, in_rows, make_sheet
from detaug.errors import InputError
from detaug.loading.batch import Batch
from detaug.loading.batch_maps import MapsOfBatch, MapsOfPixels
from detaug.maps.kinds import ClassMap, PlainMap
from detaug.samples.samples import Samples
from detaug.sheets.photos import read_photos
from detaug.sources.coco_reader import CocoReader

Limits = tuple[float, float]


class SheetMaps:
    """The maps of some images of a reader, but for panoptic ones, which are not drawn."""

    def __init__(self, reader: CocoReader, rows: Sequence[int]) -> None:
        self.kinds: Mapping[str, PlainMap] = {
            name: own.kind for name, own in reader.maps.items() if isinstance(own.kind, PlainMap)
        }
        self._of_rows = [{name: reader.maps[name].read(row) for name in self.kinds} for row in rows]
        self._limits = {
            name: depth_limits(own[name].pixels() for own in self._of_rows)
            for name, kind in self.kinds.items()
            if not isinstance(kind, ClassMap)
        }

    @property
    def names(self) -> list[str]:
        """Return the names of the maps, each of which has a row of its own; "" for a reader without maps."""
        return [*self.kinds] or [""]

    def of_row(self, position: int, name: str) -> MapMarks | None:
        """Return the map of the image at a position among the rows."""
        if not name:
            return None
        own = self._of_rows[position][name]
        values = own.pixels().reshape(own.shape) if own.pixels().size else np.full((1, 1), self.kinds[name].empty)
        return map_marks(self.kinds[name], values, self._limits.get(name))

    def of_samples(self, samples: Samples, name: str, rows: Sequence[int]) -> list[MapMarks | None]:
        """Return the map of each sample. rows: the position of its image among the rows."""
        if not name:
            return [None] * len(samples)
        of_images = {index: self._of_rows[row] for index, row in enumerate(rows)}
        values = _maps_of_samples(samples, MapsOfBatch(self.kinds, of_images), name)
        return [map_marks(self.kinds[name], own, self._limits.get(name)) for own in values]


@dataclass(frozen=True, eq=False)
class _MapOfSample(MapsOfPixels):
    images: Tensor
    image_size: Tensor
    drawing: Drawing
    distortion: Field | None
    maps_of_images: MapsOfBatch


def _maps_of_samples(samples: Samples, maps: MapsOfBatch, name: str) -> Iterable[NDArray[Any]]:
    """Yield (H, W) the map of each sample, which may differ in size."""
    views = samples.plan.views
    drawing = views.drawing_or_whole().of_source(np.arange(len(samples)))
    for index, image in enumerate(samples.images):
        size = image.shape[:2] if image.shape[2] == 3 else image.shape[1:]
        one = np.array([index])
        field = None if views.field is None else views.field[one]
        sample = _MapOfSample(torch.empty(1, 1, *size), torch.tensor([size]), drawing[one], field, maps)
        yield sample.map(name)[0].numpy()


def map_marks(kind: PlainMap, values: NDArray[Any], limits: Limits | None) -> MapMarks:
    """Return a map to draw. limits: of depths, see `depth_limits`."""
    if not isinstance(kind, ClassMap):
        return MapMarks(values, kind.empty, limits=limits or depth_limits([values]))
    numbers = np.unique(values).tolist()
    return MapMarks(values, kind.empty, {number: kind.class_name(number) for number in numbers})


def maps_of_batch(batch: Batch, name: str | None) -> list[MapMarks | None]:
    """Return the map of each image of a batch: that of this name, by default its first one of classes, or else the
    first one; None for a batch without maps. Raises InputError for a name that it does not have, or has a panoptic map.
    """
    kinds = {name: kind for name, kind in batch.maps_of_images.kinds.items() if isinstance(kind, PlainMap)}
    if name is not None and name not in kinds:
        names = ", ".join(kinds) or "which has none"
        raise InputError(f"map must be one of the batch's maps of classes or depths, {names}; got {name!r}")
    if not kinds:
        return [None] * len(batch)
    name = name or next((key for key, kind in kinds.items() if isinstance(kind, ClassMap)), next(iter(kinds)))
    values = list(batch.maps[name].cpu().numpy())
    limits = None if isinstance(kinds[name], ClassMap) else depth_limits(values)
    return [map_marks(kinds[name], own, limits) for own in values]


def maps_sheet(reader: CocoReader, name: str, predicted: Mapping[int, NDArray[Any]], title: str = "") -> Image.Image:
    """Draw two images per row, each with its map of classes on the left and the classes predicted on the right.

    name: of the map. predicted: (H, W) the classes of the pixels of each image, by its id.
    """
    kind = reader.maps[name].kind
    assert isinstance(kind, ClassMap)
    rows = [np.flatnonzero(reader.image_ids == image_id).item() for image_id in predicted]
    maps, names, tiles = SheetMaps(reader, rows), [*(kind.classes or ())], list[Tile]()
    for number, (photo, values) in enumerate(zip(read_photos(reader, rows), predicted.values(), strict=True)):
        height, width = photo.pixels.shape[:2]
        tiles.append(Tile(photo.pixels, caption=f"{width} x {height}", map=maps.of_row(number, name)))
        tiles.append(Tile(photo.pixels, map=map_marks(kind, values, None)))
    columns = ["annotated", "found"] * min(2, len(rows))
    return make_sheet(in_rows(tiles, 4), title=title, columns=columns, class_names=names)
