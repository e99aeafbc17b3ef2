"""`Compose`: a recipe for one image at a time, as the transform of a `Dataset`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from typing_extensions import Self

from detaug.arguments import check, check_names, is_whole
from detaug.boxes.tight import fit_to_shapes
from detaug.coco.key_points import Pairs
from detaug.errors import InputError
from detaug.ops.op import Op
from detaug.recipes.recipe import Recipe, draws_from, make_rendering_recipe
from detaug.recipes.stages import listed
from detaug.samples.annotations import COLUMNS, Target, like_target, read_target, source_views
from detaug.samples.images import like_image, read_image
from detaug.samples.rendering import ArrayRenderer


@dataclass(frozen=True)
class Compose:
    """Runs a recipe on one image and its target on the CPU, for a `torch.utils.data.Dataset`.

    The image is a PIL image (RGB), an array (H, W, 3), or a tensor or tv_tensors.Image (3, H, W), uint8 or floats in
    0..1. It comes back as what it was; after `Normalize` it is a tensor (3, H, W). Pixels are computed in 256 levels.
    The target is a dict for torchvision's detectors: `boxes` (M, 4) XYXY pixels, or BoundingBoxes in their format, and
    `labels`, whole numbers from 1, or names. `area`, `iscrowd`, `difficult`, `truncated`, `occluded`, `category_id`,
    `track_id`, `track_ids` and `scores` have a row for each box, and lose those of dropped boxes; their values stay.
    `keypoints` are (M, K, 3) x, y, visibility, of which those out of view become zeros, or (M, K, 2) or KeyPoints, of
    which all are moved; continuous pixels. Rotated BoundingBoxes stay rotated: the smallest rectangles around them.
    `masks` are (M, H, W), or a tv_tensors.Mask, 0 where an object is not, and keep their values, such as 255; a box
    whose mask is out of view is dropped.

    All other entries stay whole. Raises InputError for images and targets of another shape or type, for boxes outside
    of the image, and for other entries with a value for each pixel, such as maps: a `Loader` moves these.

    Args:
        ops: A recipe; a `Resize` is not needed. Ops that combine images of a batch, such as `Mosaic`, are refused.
        seed: None samples from torch's global generator, so that `torch.manual_seed` repeats, and each worker of a
            `DataLoader` gets other numbers. A number gives the same in each call, and the same as `da.batch` with this
            seed.
        columns: The names of further entries of the target that have a row for each box.
        flip_pairs: For keypoints, pairs of their positions, from 0, that are swapped in a flipped image; [] for none.

    >>> transform = da.Compose([da.RandomHorizontalFlip(p=1), da.Resize((300, 300))])
    >>> image = np.zeros((100, 200, 3), np.uint8)
    >>> target = {"boxes": torch.tensor([[20.0, 10, 60, 50]]), "labels": torch.tensor([3]), "image_id": 7}
    >>> image, target = transform(image, target)
    >>> print(image.shape, target)
    (300, 300, 3) {'boxes': tensor([[210.,  30., 270., 150.]]), 'labels': tensor([3]), 'image_id': 7}
    """

    ops: Sequence[Op]
    seed: int | None = None
    columns: Sequence[str] = ()
    flip_pairs: Pairs | None = None

    def __new__(cls, *_: Any, **named: Any) -> Self:
        """List the arguments where one is given that there is not."""
        check_names(cls.__name__, named, [field.name for field in fields(cls)])
        return super().__new__(cls)

    def __post_init__(self) -> None:
        object.__setattr__(self, "ops", listed(self.ops))  # what was given may be an iterator, or a list that changes
        known = self.seed is None or is_whole(self.seed, 0)
        check("seed", self.seed, known, "None, or a whole number of at least 0: the same one gives the same draws")
        names = isinstance(self.columns, list | tuple) and all(isinstance(name, str) for name in self.columns)
        check("columns", self.columns, names, "a list of names of the target's entries with a row for each box")
        object.__setattr__(self, "columns", tuple(self.columns))
        if op := self._recipe.mixing_op:
            name = type(op).__name__
            raise InputError(f"{name} combines images of a batch, and Compose has one: use a Loader, or da.batch")

    def __call__(self, image: Any, target: Target) -> tuple[Any, Target]:
        """Return the image and its target after the ops."""
        pixels = read_image(image)
        size = pixels.shape[0], pixels.shape[1]
        seed = int(torch.randint(2**63 - 1, ())) if self.seed is None else self.seed
        draws = draws_from(np.random.default_rng(seed))
        columns = (*COLUMNS, *self.columns)
        boxes, labels, shapes = read_target(target, size, columns, self.flip_pairs)
        views = replace(source_views([size], [boxes], [labels], ["target['boxes']"]), shapes=shapes)
        plan = self._recipe.plan(views, draws)
        (rendered,) = self._renderer.render([pixels], plan)
        height, width = rendered.shape[1:]
        changed = like_target(target, fit_to_shapes(plan.views), (height, width), columns)
        return like_image(image, rendered, normalized="output" in self._recipe.stages), changed

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what belongs to this process, for workers that are spawned."""
        return {"ops": self.ops, "seed": self.seed, "columns": self.columns, "flip_pairs": self.flip_pairs}

    @cached_property
    def _recipe(self) -> Recipe:
        return make_rendering_recipe(self.ops)

    @cached_property
    def _renderer(self) -> ArrayRenderer:
        return ArrayRenderer(self._recipe)
