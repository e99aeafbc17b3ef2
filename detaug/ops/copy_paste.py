"""`CopyPaste`: pastes objects of another image, as rectangles or by their masks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from detaug.arguments import check, check_p, check_share, is_number, is_whole
from detaug.arrays import Arrays, Bools, Floats, Ints
from detaug.boxes.masks import PlacedObjects, objects_of, pixel_grid, rasterise
from detaug.boxes.placement import Placement
from detaug.boxes.stencils import Stencil, no_stencils, packed_rows
from detaug.boxes.views import Views
from detaug.coco.rings import box_of_mask
from detaug.gpu.passes import GpuPass
from detaug.gpu.pixel_passes import PastePass
from detaug.ops.mixing import PasteRectangles, partner_of_each, tiles_of, whole_rectangles, with_added

IMAGES = 16
"""Images whose masks are made together: a NumPy call costs much, and masks take memory."""


@dataclass(frozen=True)
class CopyPaste(PasteRectangles):
    """Paste objects of another image of its group (Ghiasi et al. 2021, Simple Copy-Paste).

    Objects keep their position, and the matrix is the image's own. By default the whole box is pasted, enlarged to
    whole pixels, and covered boxes of the image itself shrink as in `CutMix`. With masks only these objects are added,
    and the sides of a covered box move as those of its visible mask do. The paper drops objects that are hidden as a
    whole, which is `max_hidden=1`; MMDetection's rule is `max_hidden=1, min_mask_area=301, max_box_shift=10`.

    Out of an image that `MixUp` averaged, either op pastes what the image shows: in an object's pixels the other
    image's object shines through, and with `masks=True` it gets no label. Place `CopyPaste` before `MixUp`.

    Args:
        p: Probability per image.
        max_boxes: Boxes are sampled this many times from those of the other image, with repetition, so one to
            `max_boxes` objects are pasted.
        min_visibility: Without masks: other objects of that image are added, clipped, if at least this fraction of
            their area is in the pasted rectangles.
        max_hidden: An object of the image itself is dropped if more than this fraction of it is covered; with masks, of
            its mask.
        masks: Whether only the pixels of the objects are pasted, as in the paper; the source needs masks.
        min_mask_area: With masks: a partly hidden object that shows fewer pixels is dropped, unless each side of its
            box moved by at most `max_box_shift` pixels.
        max_box_shift: See `min_mask_area`.

    >>> images = [np.full((100, 100, 3), gray, np.uint8) for gray in (0, 200)]
    >>> samples = da.batch(images, [[[10, 10, 40, 40]], [[50, 60, 90, 90]]], labels=[[1], [2]])
    >>> after = samples.then(da.Resize((100, 100)), da.CopyPaste(p=1))
    >>> for labels, boxes in zip(after.labels, after.boxes):
    ...     print(labels, boxes.round().tolist())
    [1 2] [[10.0, 10.0, 40.0, 40.0], [50.0, 60.0, 90.0, 90.0]]
    [2 1] [[50.0, 60.0, 90.0, 90.0], [10.0, 10.0, 40.0, 40.0]]
    """

    p: float = 0.5
    max_boxes: int = 3
    min_visibility: float = 0.5
    max_hidden: float = 0.7
    masks: bool = False
    min_mask_area: float = 0
    max_box_shift: float = 0

    def check_arguments(self) -> None:
        check_p(self.p)
        check("max_boxes", self.max_boxes, is_whole(self.max_boxes, 1), "a whole number from 1")
        check_share("min_visibility", self.min_visibility)
        check_share("max_hidden", self.max_hidden)
        check("masks", self.masks, isinstance(self.masks, bool), "True or False")
        for name in ("min_mask_area", "max_box_shift"):
            value, rule = getattr(self, name), "a number of pixels, at least 0"
            check(name, value, is_number(value, 0), rule)
            check(name, value, self.masks or value == 0, "0 without masks=True")

    @property
    def uses_masks(self) -> bool:
        return self.masks

    def draw(self, rng: np.random.Generator, n: int) -> Arrays:
        chosen = rng.random((n, self.max_boxes))
        return {"paste": rng.random(n) < self.p, "chosen": chosen, "partner": rng.random(n)}

    def rectangles(self, views: Views, partner: Views, drawn: Arrays) -> Floats:
        boxes, _, counts = partner.packed()
        boxes = np.concatenate([boxes, np.zeros((len(views), 1, 4))], axis=1)  # an empty one where there is none
        boxes = np.take_along_axis(boxes, _chosen(drawn, counts)[..., None], 1)
        # whole pixels, outwards, but for rounding
        around = np.concatenate([np.floor(boxes[..., :2] + 1e-6), np.ceil(boxes[..., 2:] - 1e-6)], axis=2)
        pasted = drawn["paste"] & (counts > 0)
        return np.where(pasted[:, None, None], around.clip(0, np.tile(views.size[:, ::-1], 2)[:, None]), 0)

    def plan(self, views: Views, drawn: Arrays) -> tuple[Views, Arrays]:
        return self._plan_masks(views, drawn) if self.masks else super().plan(views, drawn)

    def gpu_pass(self, views: Views) -> GpuPass:
        """Return the pass that pastes pixels, with `masks`; the kernel that renders whole images pastes rectangles."""
        return PastePass()

    def _plan_masks(self, views: Views, drawn: Arrays) -> tuple[Views, Arrays]:
        """Return the views with the pasted objects, and which pixels are pasted, 32 to a number."""
        own, partner = np.arange(len(views)), partner_of_each(views, drawn["partner"])
        added, seen = views[partner], _SeenMasks(views)
        chosen = _chosen_boxes(added, drawn) & (drawn["paste"] & (partner != own))[:, None]
        pixels = np.zeros((len(views), seen.height, -(-seen.width // 32)), np.uint32)
        window, stencils = np.zeros((len(views), 4)), no_stencils((len(views), 2))
        boxes, share, stays = views.pixel_boxes(), np.ones(views.labels.shape), np.ones(views.labels.shape, bool)
        pasting = np.flatnonzero(chosen.any(1))
        for start in range(0, len(pasting), IMAGES):
            some = pasting[start : start + IMAGES]
            image, place = np.nonzero(chosen[some])
            pasted = np.zeros((len(some), seen.height, seen.width), np.bool_)
            for number, column, mask in zip(image, place, seen.of(partner[some[image]], place), strict=True):
                chosen[some[number], column] = mask.any()
                pasted[number] |= mask
            for index, mask in zip(some.tolist(), pasted, strict=True):
                if mask.any():
                    window[index], stencils[index, 1] = box_of_mask(mask), Stencil.of(mask)
                    pixels[index] = packed_rows(mask, pixels.shape[2])
            image, place = np.nonzero((views.labels[some] >= 0) & _meet(boxes[some], window[some, None]))
            for number, column, mask in zip(image, place, seen.of(some[image], place), strict=True):
                box = some[number], column
                boxes[box], share[box], stays[box] = self._left(mask, pasted[number], boxes[box])
        covered = views.shrink_boxes(boxes, share, 1 - self.max_hidden).keep(stays)
        images = np.stack([own, partner], axis=1)
        source = np.stack([whole_rectangles(views), window], axis=1)
        joined = with_added(views, covered, added.keep(chosen), images, source, stencil=stencils)
        return joined, tiles_of(views, images, source, source[..., :2]) | {"pixels": pixels}

    def _left(self, mask: Bools, pasted: Bools, box: Floats) -> tuple[Floats, float, bool]:
        """Return the box XYXY of an object under pasted pixels, the fraction of its mask left, and whether it stays.

        `mask`, `pasted`: (H, W).
        """
        left = mask & ~pasted
        before, after = np.count_nonzero(mask), np.count_nonzero(left)
        if before == after:
            return box, 1.0, True
        if not after:
            return box, 0.0, False
        old, new = np.array(box_of_mask(mask)), np.array(box_of_mask(left))
        shrunk = np.where(old == new, box, new.clip(np.tile(box[:2], 2), np.tile(box[2:], 2)))
        stays = after >= self.min_mask_area or np.abs(shrunk - box).max() <= self.max_box_shift + 1e-6
        return shrunk, after / before, bool(stays)


def _chosen(drawn: Arrays, counts: Ints) -> Ints:
    """Return (N, K) which boxes were drawn, of `counts` (N,) each."""
    return np.floor(drawn["chosen"] * counts[:, None]).astype(np.int64)


def _chosen_boxes(partner: Views, drawn: Arrays) -> Bools:
    """Return (N, M): whether each box was drawn."""
    real = partner.labels >= 0
    number = np.cumsum(real, axis=1) - 1
    return np.asarray(real & (number[..., None] == _chosen(drawn, real.sum(1))[:, None]).any(2))


def _meet(boxes: Floats, window: Floats) -> Bools:
    """Return (N, M): whether boxes (N, M, 4) meet windows (N, 1, 4), XYXY."""
    return np.asarray(
        (np.maximum(boxes[..., :2], window[..., :2]) < np.minimum(boxes[..., 2:], window[..., 2:])).all(2)
    )


class _SeenMasks:
    """The masks of boxes as the views show them, of the size of the largest view."""

    def __init__(self, views: Views) -> None:
        self._views = views
        self.height, self.width = views.size.max(0).astype(int).tolist()

    def of(self, images: Ints, places: Ints) -> Bools:
        """Return (K, H, W): the masks of boxes, at these places of these images."""
        objects = self._objects.part(self._number[images, places])
        return rasterise(self._views.shapes.mask_table, objects, pixel_grid(self.height, self.width, 1))

    @cached_property
    def _objects(self) -> PlacedObjects:
        return objects_of(Placement.of_views(self._views))

    @cached_property
    def _number(self) -> Ints:
        """Return (N, M): the number of each real box among all."""
        return np.cumsum(self._views.labels >= 0).reshape(self._views.labels.shape) - 1
