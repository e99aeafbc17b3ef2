"""The maps of a batch, sampled when they are asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from detaug.arguments import check, is_whole
from detaug.arrays import Ints
from detaug.boxes.fields import Field
from detaug.boxes.layers import Drawing, Layers
from detaug.boxes.masks import numbers_of, pixel_grid
from detaug.errors import InputError
from detaug.gpu.grids import pixel_grid_on_gpu
from detaug.gpu.maps import MapsOnGpu, MapTable, sample_on_gpu, to_gpu
from detaug.loading.map_feed import MapsOfImages
from detaug.loading.panoptic_tables import BoxesOfLayers, tables_of_layers
from detaug.maps.files import SourceMap
from detaug.maps.kinds import ClassMap, DepthMap, MapKind, PanopticMap
from detaug.maps.sampling import ShownMaps, sample_maps
from detaug.maps.segments import NO_SEGMENTS, VOID, Segments
from detaug.maps.values import MapValues

K = TypeVar("K")


@dataclass(frozen=True, eq=False)
class MapsOfBatch:
    """The maps of the images that a batch shows."""

    kinds: Mapping[str, MapKind] = field(default_factory=dict)
    images: MapsOfImages = field(default_factory=dict)
    """Maps by name, of each image by its position in the source; nothing of those that are only in `table`."""
    first_rows: Mapping[int, int] | Ints = field(default_factory=dict)
    """The first annotation of each of these images, a row of the source; or of all images."""
    annotations: int = 0
    """How many annotations the source has."""
    table: MapTable | None = None
    """Maps that are on the device."""
    sources: Mapping[str, SourceMap] = field(default_factory=dict)
    """Where the maps in `table` can be read again."""

    def __reduce__(self) -> tuple[type[MapsOfBatch], tuple[Any, ...]]:
        """Take the maps along, instead of the device and the source."""
        images = {image: {name: self.of(image, name) for name in self.kinds} for image in self.images}
        first = {image: int(self.first_rows[image]) for image in images}
        return MapsOfBatch, (self.kinds, images, first, self.annotations)

    def of(self, image: int, name: str) -> MapValues:
        """Return the map of an image, which is read again where it is only on the device."""
        own = self.images[image]
        return own[name] if own else self.sources[name].read(image)

    def segments(self, image: int, name: str) -> Segments | None:
        """Return what the values of the map of an image are."""
        if not self.images[image] and self.table is not None:
            return self.table.segments(name, image)
        return self.of(image, name).segments

    def on_gpu(self, name: str, images: Ints, device: torch.device) -> MapsOnGpu:
        """Return the maps of some images on a device."""
        table = self.table if self.table is not None and self.table.device == device else None
        known = np.zeros(len(images), bool) if table is None else table.known[images]
        if table is not None and known.all():
            return table.maps(name, images)
        others = to_gpu([self.of(image, name) for image in images[~known].tolist()], self.kind(name).dtype, device)
        if table is None or not known.any():
            return others
        there, order = table.maps(name, images[known]), np.argsort(~known, kind="stable").argsort()
        rows, places = (np.concatenate(parts)[order] for parts in zip(there[:2], others[:2], strict=True))
        return MapsOnGpu(rows, places, others.tensors)

    def kind(self, name: str) -> MapKind:
        """Return the kind of a map. Raises InputError for a name that the source does not have."""
        if name not in self.kinds:
            there = f"the source has {', '.join(map(repr, self.kinds))}" if self.kinds else "the source has none"
            raise InputError(f"no map {name!r}: {there}; give it maps={{{name!r}: da.ClassMap(FOLDER)}}")
        return self.kinds[name]

    def classes(self, name: str) -> ClassMap:
        """Return the kind of a map of classes. Raises InputError for another."""
        return self._of(name, ClassMap, "one of classes is needed")

    def panoptic(self, name: str) -> PanopticMap:
        """Return the kind of a map of segments. Raises InputError for another."""
        return self._of(name, PanopticMap, "one of segments is needed")

    def depths(self, name: str) -> DepthMap:
        """Return the kind of a map of depths. Raises InputError for another."""
        return self._of(name, DepthMap, "depths are needed")

    def _of(self, name: str, wanted: type[K], need: str) -> K:
        kind = self.kind(name)
        if not isinstance(kind, wanted):
            raise InputError(f"the map {name!r} is a {type(kind).__name__}, where {need}: da.{wanted.__name__}")
        return kind


class MapPair(NamedTuple):
    """What two averaged images show, as `MixUp` makes them: of each pixel."""

    first: Tensor
    """(N, H, W): the value of the image with the larger share."""
    second: Tensor
    """(N, H, W): that of the other one; that of the first where there is only one."""
    fraction: Tensor
    """(N, H, W) float32: the share of the first, 1 where there is only one."""


class MapsByName(Mapping[str, Tensor]):
    """The maps of a batch: each is sampled once."""

    def __init__(self, batch: MapsOfPixels) -> None:
        self._batch, self._known = batch, dict[str, Tensor]()

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._batch.maps_of_images.kinds:
            raise KeyError(name)
        if name not in self._known:
            self._known[name] = self._batch.map(name)
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._batch.maps_of_images.kinds)

    def __len__(self) -> int:
        return len(self._batch.maps_of_images.kinds)


class MapsOfPixels:
    """The maps of a batch: for each output pixel the value of the source pixel that is seen there.

    Values are never averaged: a pixel has the value of the nearest pixel of the image that it shows, and of two that
    are averaged, of that with the larger share. What an op filled or erased, and padding, has the value of what is not
    known: `ignore` of a `ClassMap`, 0 of a `DepthMap`, -1 of a `PanopticMap`. Ops that change colors change no map.
    """

    images: Tensor
    image_size: Tensor
    labels: Tensor
    rows: Tensor | None
    layer_of_box: Tensor | None
    drawing: Drawing | None
    distortion: Field | None
    maps_of_images: MapsOfBatch

    @cached_property
    def maps(self) -> Mapping[str, Tensor]:
        """Return the maps by name, (N, H, W) on the batch's device.

        uint8 of a `ClassMap`, float32 of a `DepthMap`, int32 of a `PanopticMap`, whose values are rows of annotations.

        >>> maps = {"semantic": da.ClassMap("SegmentationClass", missing="ignore")}  # beside JPEGImages
        >>> reader = da.CocoReader("demo/VOC/JPEGImages", "train.json", maps=maps)
        """
        return MapsByName(self)

    def map(self, name: str, stride: int = 1) -> Tensor:
        """Return (N, H // stride, W // stride): a map at the centers of blocks of this many pixels."""
        return self._sampled(name, stride, pair=False)[0]

    def map_pair(self, name: str, stride: int = 1) -> MapPair:
        """Return what both of two averaged images show, for the loss s loss(first) + (1 - s) loss(second).

        `stride`: as of `map`. Of more than two averaged images, the two with the largest shares.
        """
        return MapPair(*self._sampled(name, stride, pair=True))

    def as_semantic(self, name: str = "semantic") -> tuple[Tensor, Tensor]:
        """Return the images, and (N, H, W) int64, the class of each pixel, as `cross_entropy` takes them.

        `name`: of a `ClassMap`; its `ignore` is the loss's `ignore_index`.
        """
        self.maps_of_images.classes(name)
        return self.images, self.maps[name].long()

    def _masks_of_classes(self, name: str) -> tuple[list[Tensor], list[Tensor]]:
        """Return N masks (M_i, H, W) bool of what a map shows, and their classes (M_i,), from 0.

        One mask for each class of a `ClassMap`; of a `PanopticMap` for each object, in the order of their boxes, and
        then for each class of stuff.
        """
        kind = self.maps_of_images.kind(name)
        if isinstance(kind, PanopticMap):
            values, none = self._sampled(name, 1, pair=False, as_places=True)[0].long(), VOID
        else:
            none, values = self.maps_of_images.classes(name).ignore, self.maps[name].long()
        present = [own[own != none] for own in (image.unique() for image in values)]
        masks = [image == own[:, None, None] for image, own in zip(values, present, strict=True)]
        if isinstance(kind, PanopticMap):
            every = torch.arange(len(kind.class_names), device=values.device)
            labels = self.labels.to(values.device) - 1
            present = [torch.cat([own, every])[places] for own, places in zip(labels, present, strict=True)]
        return masks, present

    def map_in_source(self, name: str, image: int) -> tuple[Tensor, Tensor]:
        """Return the map of an image as its file has it, (H, W), and where the centers of its pixels are in the output.

        These are (H, W, 2) float32 x, y; on the CPU, both. Pixels that the output does not show are as those that are
        not known. A `PanopticMap` has positions in `segments_in_source`. Raises InputError for an image that is mixed
        of several, or bent.
        """
        kind, drawing = self.maps_of_images.kind(name), self.drawing
        assert drawing is not None, "a source with maps keeps the drawing of its batches"
        layers = drawing.layers
        bent = self.distortion is not None and bool(self.distortion.bends[image])
        if layers.mixed[image] or bent:
            raise InputError("the image is mixed of several, or bent: evaluate with a recipe that only resizes")
        own = self.maps_of_images.of(int(layers.image[image, 0]), name)
        y, x = np.mgrid[: own.shape[0], : own.shape[1]] + 0.5
        source = (x - own.offset[0]) / own.scale[0], (y - own.offset[1]) / own.scale[1]
        to_output = np.linalg.inv(layers.to_source[image, 0])
        at_x, at_y, depth = np.tensordot(to_output, np.stack([*source, np.ones_like(x)]), 1)
        points = np.stack([at_x / depth, at_y / depth], axis=2).astype(np.float32)
        (left, top), (right, bottom) = layers.source_bounds[image, 0]
        shown = (source[0] >= left) & (source[0] < right) & (source[1] >= top) & (source[1] < bottom) & (depth > 0)
        shown &= ((points >= 0) & (points < self.image_size[image].flip(0).numpy())).all(2)
        values = np.where(shown, own.pixels().reshape(own.shape), kind.empty).astype(kind.dtype)
        return torch.from_numpy(values), torch.from_numpy(points)

    def segments_in_source(self, name: str, image: int) -> Segments:
        """Return what the values of `map_in_source` of a `PanopticMap` are; of an image without a map, void alone."""
        assert self.drawing is not None, "a source with maps keeps the drawing of its batches"
        shown = int(self.drawing.layers.image[image, 0])
        return self.maps_of_images.segments(shown, name) or NO_SEGMENTS

    def _sampled(self, name: str, stride: int, *, pair: bool, as_places: bool = False) -> tuple[Tensor, ...]:
        check("stride", stride, is_whole(stride, 1), "a whole number of at least 1")
        (height, width), device, maps = self.images.shape[-2:], self.images.device, self.maps_of_images
        shown, images = self._shown_maps(name, as_places=as_places)
        if device.type == "cuda":
            grid = pixel_grid_on_gpu(height, width, stride, device)
            return sample_on_gpu(shown, maps.on_gpu(name, images, device), grid, device, pair=pair)
        own = [maps.of(image, name) for image in images.tolist()]
        return tuple(map(torch.from_numpy, sample_maps(shown, own, pixel_grid(height, width, stride), pair=pair)))

    def _shown_maps(self, name: str, *, as_places: bool) -> tuple[ShownMaps, Ints]:
        """Return what is shown, and the images (K,) whose maps those are."""
        kind, drawing = self.maps_of_images.kind(name), self.drawing
        assert drawing is not None, "a source with maps keeps the drawing of its batches"
        layers, (n, count) = drawing.layers, drawing.layers.image.shape
        # no point of a map goes to the output
        numbers, *further = numbers_of(layers, np.zeros((n, count, 3, 3)))
        scene = numbers.reshape(n * count, -1), *further, count
        tables = self._tables(name, kind, layers, as_places) if isinstance(kind, PanopticMap) else None
        number = layers.image.ravel().copy()
        images, number[number >= 0] = np.unique(number[number >= 0], return_inverse=True)
        return ShownMaps(kind, scene, layers.parts_of_average(), number, tables, self.distortion), images

    def _tables(self, name: str, kind: PanopticMap, layers: Layers, as_places: bool) -> tuple[Ints, NDArray[np.int32]]:
        """Return the tables of the layers of a panoptic map, see `map_loops.sample`."""
        assert self.rows is not None, "a source with maps has rows of annotations"
        rows, own = self.rows.cpu().numpy(), self.maps_of_images
        layer = np.zeros_like(rows) if self.layer_of_box is None else self.layer_of_box.cpu().numpy()
        boxes = BoxesOfLayers(layers, rows, layer)
        annotations = None if as_places else own.annotations
        return tables_of_layers(kind, lambda image: own.segments(image, name), boxes, own.first_rows, annotations)
