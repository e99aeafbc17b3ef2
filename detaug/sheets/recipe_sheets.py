"""Contact sheets of a recipe on images of a dataset: several draws side by side, or one image op by op.

The ops run on the images and boxes of a `CocoReader`, as in training, and Normalize is undone for the image.
Difficult objects are dashed; crowds, which training leaves out, are hatched in the source.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import count
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from detaug.arrays import Floats, Ints, padded
from detaug.boxes.shapes import NO_SHAPES, Shapes
from detaug.boxes.views import Views
from detaug.drawing.images import to_image
from detaug.drawing.sheet import Tile, make_sheet
from detaug.errors import InputError
from detaug.ops.normalize import Normalize
from detaug.ops.op import Op
from detaug.ops.resize import OwnSize
from detaug.recipes.recipe import make_rendering_recipe
from detaug.samples.samples import Samples, batch
from detaug.sheets.captions import StepImage, count_boxes, describe_change, describe_draw
from detaug.sheets.maps import SheetMaps
from detaug.sheets.photos import Photo, read_photos
from detaug.sources.coco_reader import CocoReader

MIN_SHOWN = 1 / 3
"""`min_shown` of `detaug preview`: SSD's RandomZoomOut leaves down to a sixteenth of an image for the source."""
GRID = 32
"""Points per side of an image at which it is seen whether the source is there."""


def draws_sheet(
    reader: CocoReader,
    ops: Iterable[Op],
    rows: Sequence[int],
    *,
    columns: int = 4,
    seed: int = 0,
    size: int = 300,
    notes: Sequence[str] = (),
    title: str = "",
    min_shown: float = 0.0,
) -> Image.Image:
    """Draw a row for each image: the source with its boxes, then `columns` draws of the recipe `ops`.

    rows: positions of the images in the JSON file's list. size: the longer side of an image, in pixels. notes: a
    few words on each image, for its caption. The same seed gives the same sheet.
    min_shown: with a fraction above 0, the recipe draws four times as often. Draws that show the source on less than
    this fraction of the image, so that the rest is fill, are left out if there are enough others.
    Raises InputError for an image that cannot be read or does not have the size in the JSON file.
    Keypoints and rotated boxes are drawn if the reader has them. If it has maps, an image has a row for each of them.
    """
    check_at_least_one("columns", columns)
    photos = read_photos(reader, rows, notes)
    result = _draws(photos, list(ops), columns, seed, reader.shapes, min_shown)
    captions = [
        count_boxes(len(result.samples.labels[index]), len(photo.boxes)) for index, photo in enumerate(result.photos)
    ]
    maps, of_draws = SheetMaps(reader, rows), [position for position in range(len(rows)) for _ in range(columns)]
    lines = [list[Tile]() for _ in range(len(rows) * len(maps.names))]
    for number, name in enumerate(maps.names):
        own = maps.of_samples(result.samples, name, of_draws)
        draws = [result.tile(index, caption)._replace(map=own[index]) for index, caption in enumerate(captions)]
        for position, photo in enumerate(photos):
            first = position * columns
            source = photo.tile(maps.of_row(position, name), name)
            lines[position * len(maps.names) + number] = [source, *draws[first : first + columns]]
    headings = ["source", *(f"draw {number}" for number in range(1, columns + 1))]
    return make_sheet(lines, title=title, columns=headings, cell=(size, size), class_names=reader.class_names[1:])


def steps_sheet(
    reader: CocoReader,
    ops: Iterable[Op],
    rows: Sequence[int],
    *,
    seed: int = 0,
    size: int = 300,
    notes: Sequence[str] = (),
    title: str = "",
) -> Image.Image:
    """Draw a row for each image: the source, then the image after each op, with what the op drew and changed.

    Arguments and errors as those of `draws_sheet`. An op before Resize only moves the view; it is drawn as if
    Resize, to the view's own size, came right after it.
    """
    photos, ops = read_photos(reader, rows, notes), list(ops)
    results = [augment(photos, ops[:done], seed, reader.shapes) for done in range(len(ops) + 1)]
    maps, positions = SheetMaps(reader, rows), range(len(photos))
    after = {
        (name, step): maps.of_samples(results[step].samples, name, positions)
        for name in maps.names
        for step in range(1, len(results))
    }
    lines = [
        [
            photo.tile(maps.of_row(index, name), name),
            *(
                step_tile(results, index, step)._replace(map=after[name, step][index])
                for step in range(1, len(results))
            ),
        ]
        for index, photo in enumerate(photos)
        for name in maps.names
    ]
    headings = ["source", *(type(op).__name__ for op in ops)]
    return make_sheet(lines, title=title, columns=headings, cell=(size, size), class_names=reader.class_names[1:])


def _draws(
    photos: Sequence[Photo], ops: Sequence[Op], columns: int, seed: int, shapes: Shapes, min_shown: float
) -> Augmented:
    """Run `ops` `columns` times on each photo; of more draws, those that show enough are rendered."""
    repeated = [photo for photo in photos for _ in range(columns)]
    if not min_shown or make_rendering_recipe(ops).mixing_op:  # whose draws name other images of the batch
        return augment(repeated, ops, seed, shapes)
    planned = augment([photo for photo in repeated for _ in range(4)], ops, seed, shapes).samples
    shown = shown_fractions(planned.plan.views).reshape(len(photos), -1)
    chosen = np.concatenate(
        [first + _first_shown(own, columns, min_shown) for own, first in zip(shown, count(step=4 * columns))]
    )
    params = [{name: values[chosen] for name, values in drawn.items()} for drawn in planned.params]
    result = augment(repeated, ops, seed, shapes)
    return result._replace(samples=result.samples.replay(params))


def shown_fractions(views: Views) -> Floats:
    """Return (N,): on which fraction of each image the source is; 1 for mixed images. The rest is fill."""
    if views.drawing is not None:
        return np.ones(len(views))
    centers = (np.arange(GRID) + 0.5) / GRID
    points = np.stack([*(axis.ravel() for axis in np.meshgrid(centers, centers)), np.ones(GRID**2)])
    x, y, scale = (views.matrix @ points).transpose(1, 0, 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        source = np.stack([x / scale, y / scale], axis=2)
    low, high = views.source_bounds[:, :1], views.source_bounds[:, 1:]
    return np.asarray(((source >= low) & (source <= high)).all(2).mean(1))


def _first_shown(fractions: Floats, columns: int, least: float) -> Ints:
    """Return the positions of the first draws that show enough, and if they are too few, of those that show most."""
    enough = np.flatnonzero(fractions >= least)
    chosen = enough if len(enough) >= columns else np.argsort(-fractions, kind="stable")
    return np.sort(chosen[:columns])


def check_at_least_one(name: str, value: int) -> None:
    if value < 1:
        raise InputError(f"{name} must be at least 1, got {value}")


# ---------------------------------------------------------------- photos after ops


class Augmented(NamedTuple):
    """Photos after some ops. A label is the position, from 1, of its object among the objects of all photos."""

    photos: Sequence[Photo]
    samples: Samples

    def tile(self, index: int, caption: str) -> Tile:
        """Return a tile of the photo at `index` after the ops."""
        names = [name for photo in self.photos for name in photo.class_names]
        difficult = [flag for photo in self.photos for flag in photo.difficult]
        objects = self.samples.labels[index] - 1
        return Tile(
            in_true_colors(self.samples.images[index], self.samples.ops),
            self.samples.boxes[index],
            [names[k] for k in objects],
            [difficult[k] for k in objects],
            caption=caption,
            marks=self.samples.marks()[index],
        )

    def step_image(self, index: int) -> StepImage:
        """Return the input of `describe_change` for the photo at `index`."""
        field = self.samples.plan.views.field
        bent = field is not None and bool(field.bends[index])
        return StepImage(self.samples.images[index], len(self.samples.labels[index]), self.samples.matrix[index], bent)

    def last_draw(self, index: int) -> str:
        """Describe the numbers that the last op drew for the photo at `index`.

        "" for Resize, which draws one size for all images.
        """
        op, steps = self.samples.ops[-1], make_rendering_recipe(self.samples.ops).steps
        own = [
            step
            for step, (own_op, drawn_by) in enumerate(steps)
            if step == drawn_by and not isinstance(own_op, OwnSize)
        ]
        drawn = self.samples.plan.drawn[own[-1]]
        words = describe_draw(op, drawn, index) if "size" not in drawn else ""
        return f"drew {words}" if words else ""


def augment(photos: Sequence[Photo], ops: Sequence[Op], seed: int, shapes: Shapes | None = None) -> Augmented:
    """Run `ops` on photos. `shapes`: those of the reader, in which photos have `rows`; None: boxes alone."""
    starts = np.cumsum([1, *(len(photo.boxes) for photo in photos)])
    labels = [start + np.arange(len(photo.boxes)) for start, photo in zip(starts, photos, strict=False)]
    samples = batch([photo.pixels for photo in photos], [photo.boxes for photo in photos], labels, seed=seed)
    rows = padded(np.concatenate([photo.rows for photo in photos]), np.array([len(photo.rows) for photo in photos]), -1)
    views = replace(samples.source_views, rows=rows, shapes=shapes or NO_SHAPES)
    return Augmented(photos, replace(samples, source_views=views).then(*ops))


def step_tile(results: Sequence[Augmented], index: int, step: int) -> Tile:
    """Return a tile of the photo at `index` after `step` ops, which `results[step]` has run."""
    after = results[step]
    if not isinstance(after.samples.ops[-1], Normalize):
        change = describe_change(results[step - 1].step_image(index), after.step_image(index))
        return after.tile(index, f"{change}\n{after.last_draw(index)}")
    pixels = after.samples.images[index]
    return after.tile(index, f"{pixels.min():.2f} to {pixels.max():.2f}")


def in_true_colors(image: NDArray[Any], ops: Iterable[Op]) -> Image.Image:
    """Convert the result of `ops` to an image: (H, W, 3) in 0..255, or (3, H, W) whose Normalize is undone."""
    normalize = find_normalize(ops)
    if normalize is None:
        return to_image(image, white=255, layout="HWC")
    return to_image(image, mean=normalize.mean, std=normalize.std, layout="CHW")


def find_normalize(ops: Iterable[Op]) -> Normalize | None:
    """Return the Normalize of a recipe, if it has one."""
    return next((op for op in ops if isinstance(op, Normalize)), None)
