"""`da.fn.paste`, `random_bbox_crop`, `flip` and `resize`: single ops under the names of DALI's pairs."""

from __future__ import annotations

from collections.abc import Sequence

from nvidia.dali.pipeline import do_not_convert

from detaug.arguments import FILL, RGB, checks_names
from detaug.dali.augment import augment_to, checked_recipe
from detaug.dali.batch_planner import Units
from detaug.ops.flips_and_crops import RandomHorizontalFlip, RandomVerticalFlip, RandomZoomOut
from detaug.ops.iou_crop import RandomIoUCrop
from detaug.ops.op import Op
from detaug.ops.resize import Resize
from detaug.pipelines.graph import Node

Three = tuple[Node, Node, Node]
"""images (H, W, 3) uint8, boxes (M, 4) float32 XYXY in the units that they came in, labels (M,)."""


@do_not_convert  # type: ignore[untyped-decorator]
@checks_names
def paste(
    images: Node,
    boxes: Node,
    labels: Node,
    *,
    max_ratio: float = 4.0,
    p: float = 0.5,
    fill: RGB = FILL,
    seed: int = 0,
    units: Units = "relative",
) -> Three:
    """Paste each image onto a larger canvas, with its boxes: `RandomZoomOut`, in the place of fn.paste and bbox_paste.

    Returns images, boxes in the same units, labels. The canvas has up to `max_ratio` times the image's sides.

    Args:
        images: (H, W, 3) uint8 RGB, on the CPU or on a GPU.
        boxes: (M, 4) XYXY in `units`, on the CPU.
        labels: (M,) whole numbers.
        max_ratio: Largest sides of the canvas, as a multiple of the image's.
        p: Probability per image.
        fill: RGB 0..255 of the canvas.
        seed: The same one gives the same draws. Give pipelines that run side by side different ones.
        units: Of the boxes: "relative" to the image, 0..1, or "pixels".

    >>> from nvidia.dali import fn, pipeline_def
    >>> @pipeline_def(batch_size=2, num_threads=1, device_id=None)
    ... def pipeline():
    ...     encoded, boxes, labels, image_ids = da.fn.coco("demo/VOC/JPEGImages", "train.json", shuffle=False)
    ...     return da.fn.paste(fn.decoders.image(encoded), boxes, labels, max_ratio=2.0, p=1.0)
    >>> images, boxes, labels = pipeline().run()
    >>> print(images.shape())
    [(681, 907, 3), (640, 961, 3)]
    """
    return _apply("paste", [RandomZoomOut(max_ratio, p, fill)], images, boxes, labels, seed, units)


@do_not_convert  # type: ignore[untyped-decorator]
@checks_names
def random_bbox_crop(
    images: Node,
    boxes: Node,
    labels: Node,
    *,
    thresholds: Sequence[float] = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9),
    scaling: tuple[float, float] = (0.3, 1.0),
    aspect_ratio: tuple[float, float] = (0.5, 2.0),
    allow_no_crop: bool = True,
    seed: int = 0,
    units: Units = "relative",
) -> Three:
    """Crop to a window that overlaps a box: `RandomIoUCrop`, in the place of fn.random_bbox_crop and fn.slice.

    Returns images, boxes in the same units, labels. A box whose center is outside of the window is dropped.

    Args:
        images: (H, W, 3) uint8 RGB, on the CPU or on a GPU.
        boxes: (M, 4) XYXY in `units`, on the CPU.
        labels: (M,) whole numbers.
        thresholds: See `RandomIoUCrop`.
        scaling: See `RandomIoUCrop`.
        aspect_ratio: See `RandomIoUCrop`.
        allow_no_crop: See `RandomIoUCrop`.
        seed: The same one gives the same draws. Give pipelines that run side by side different ones.
        units: Of the boxes: "relative" to the image, 0..1, or "pixels".

    >>> from nvidia.dali import fn, pipeline_def
    >>> @pipeline_def(batch_size=2, num_threads=1, device_id=None)
    ... def pipeline():
    ...     encoded, boxes, labels, image_ids = da.fn.coco("demo/VOC/JPEGImages", "train.json", shuffle=False)
    ...     return da.fn.random_bbox_crop(fn.decoders.image(encoded), boxes, labels)
    >>> images, boxes, labels = pipeline().run()
    >>> print(images.shape(), labels.shape())
    [(301, 342, 3), (249, 151, 3)] [(3,), (1,)]
    """
    op = RandomIoUCrop(tuple(thresholds), scaling, aspect_ratio, allow_no_crop=allow_no_crop)
    return _apply("random_bbox_crop", [op], images, boxes, labels, seed, units)


@do_not_convert  # type: ignore[untyped-decorator]
@checks_names
def flip(
    images: Node,
    boxes: Node,
    labels: Node,
    *,
    horizontal: float = 0.5,
    vertical: float = 0.0,
    seed: int = 0,
    units: Units = "relative",
) -> Three:
    """Flip images and boxes, each with its probability: in the place of fn.flip and fn.bb_flip.

    Returns images, boxes in the same units, labels.

    Args:
        images: (H, W, 3) uint8 RGB, on the CPU or on a GPU.
        boxes: (M, 4) XYXY in `units`, on the CPU.
        labels: (M,) whole numbers.
        horizontal: Probability of a flip left to right.
        vertical: Probability of a flip top to bottom.
        seed: The same one gives the same draws. Give pipelines that run side by side different ones.
        units: Of the boxes: "relative" to the image, 0..1, or "pixels".

    >>> from nvidia.dali import fn, pipeline_def
    >>> @pipeline_def(batch_size=2, num_threads=1, device_id=None)
    ... def pipeline():
    ...     encoded, boxes, labels, image_ids = da.fn.coco("demo/VOC/JPEGImages", "train.json", shuffle=False)
    ...     return da.fn.flip(fn.decoders.image(encoded), boxes, labels, horizontal=1.0)
    >>> images, boxes, labels = pipeline().run()
    >>> print(np.array(boxes.at(0)).round(2)[0])
    [0.   0.24 0.24 0.65]
    """
    ops: list[Op] = [RandomHorizontalFlip(horizontal), RandomVerticalFlip(vertical)]
    return _apply("flip", ops, images, boxes, labels, seed, units)


@do_not_convert  # type: ignore[untyped-decorator]
@checks_names
def resize(
    images: Node,
    boxes: Node,
    labels: Node,
    size: int | tuple[int, int] | Sequence[tuple[int, int]],
    *,
    max_size: int | None = None,
    seed: int = 0,
    units: Units = "relative",
) -> Three:
    """Resize images and boxes: `Resize`, in the place of fn.resize.

    Returns images, boxes in the same units, labels. Relative boxes stay as they are.

    Args:
        images: (H, W, 3) uint8 RGB, on the CPU or on a GPU.
        boxes: (M, 4) XYXY in `units`, on the CPU.
        labels: (M,) whole numbers.
        size: (H, W), a list of these to sample from, or one number for the shorter side.
        max_size: The largest longer side, where `size` is the shorter one.
        seed: The same one gives the same draws. Give pipelines that run side by side different ones.
        units: Of the boxes: "relative" to the image, 0..1, or "pixels".

    >>> from nvidia.dali import fn, pipeline_def
    >>> @pipeline_def(batch_size=2, num_threads=1, device_id=None)
    ... def pipeline():
    ...     encoded, boxes, labels, image_ids = da.fn.coco("demo/VOC/JPEGImages", "train.json", shuffle=False)
    ...     return da.fn.resize(fn.decoders.image(encoded), boxes, labels, (300, 300))
    >>> images, boxes, labels = pipeline().run()
    >>> print(images.shape())
    [(300, 300, 3), (300, 300, 3)]
    """
    return _apply("resize", [Resize(size, max_size=max_size)], images, boxes, labels, seed, units)


def _apply(name: str, ops: list[Op], images: Node, boxes: Node, labels: Node, seed: int, units: Units) -> Three:
    recipe = checked_recipe(ops, seed, units)
    image, after, kept = augment_to(units, images, boxes, labels, recipe, seed, units, name=f"da.fn.{name}")
    return image, after, kept
