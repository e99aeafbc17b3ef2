"""Contact sheets of what a recipe makes of images: draws side by side, or one image op by op.

A sheet shows what training sees: the ops run on the images and boxes of a `CocoReader`, and Normalize is undone
for the eye. Difficult objects are dashed; crowds, which training does not see, are hatched in the source.
`detaug preview` makes these sheets; `detaug.drawing.boxes` does the drawing.
"""

from __future__ import annotations

import inspect
import io
import json
import os
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from detaug import presets
from detaug.drawing.boxes import Tile, in_some_colors, padding, sheet, to_image
from detaug.drawing.text import without_font
from detaug.eager import Samples, batch
from detaug.loading.batch import Batch
from detaug.ops.op import Op
from detaug.ops.pixels import Normalize
from detaug.ops.recipe import Recipe
from detaug.ops.recipe_file import load_recipe
from detaug.sheets.changes import Stage, how_many, what_changed
from detaug.sheets.draws import what_was_drawn
from detaug.sheets.pick import How, objects, pick
from detaug.sources.coco_reader import CocoReader

__all__ = ["batch_sheet", "draws_sheet", "ops_sheet", "preview_file", "samples_sheet", "save_sheet", "steps_sheet"]

Array = NDArray[Any]

XYWH_TO_XYXY = np.array([[1, 0, 1, 0], [0, 1, 0, 1], [0, 0, 1, 0], [0, 0, 0, 1]])


class Photo(NamedTuple):
    """An image of a reader: a caption, (H, W, 3) uint8, (M, 4) XYXY pixels, M class names, M flags, (C, 4) crowds."""

    caption: str
    pixels: Array
    boxes: Array
    class_names: list[str]
    difficult: list[bool]
    crowds: Array


# ---------------------------------------------------------------- public functions


def preview_file(
    annotations: str | os.PathLike[str],
    images: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    preset: str | None = None,
    recipe: str | Path | None = None,
    rows: int = 4,
    columns: int | None = None,
    seed: int = 0,
    steps: bool = False,
    size: int = 300,
    only: str | None = None,
    how: How | None = None,
) -> str:
    """Write a sheet of images of a COCO json, and say what is on it: the work of `detaug preview`.

    preset: the name of a function of `detaug.presets`, "ssd300" if there is no `recipe` either. recipe: a JSON or
    YAML file, see `da.load_recipe`. rows, only, how: see `detaug.sheets.pick.pick`. steps: draw
    `steps_sheet`, which has no `columns`, else `draws_sheet`.
    Raises ValueError or OSError for what cannot be read, is not known or cannot be written; nothing is written.
    """
    check_output(Path(output))
    if steps and columns is not None:
        raise ValueError(f"columns must be left out with steps, which has one for each op; got {columns}")
    if preset is not None and recipe is not None:
        raise ValueError(f"preset and recipe must not both be given, got {preset!r} and {str(recipe)!r}")
    ops = preset_ops(preset or "ssd300") if recipe is None else load_recipe(recipe)
    reader = CocoReader(images, annotations)
    _check_no_image(reader, Path(output))
    picks = pick(reader, rows, how=how or "random", only=only, seed=seed)
    chosen, notes = [each.row for each in picks], [each.note for each in picks]
    named = (preset or "ssd300") if recipe is None else Path(recipe).name
    title = f"{Path(annotations).name}, {named}, seed {seed}"
    draw = steps_sheet if steps else partial(draws_sheet, columns=columns or 4)
    save_sheet(draw(reader, ops, chosen, seed=seed, size=size, notes=notes, title=title), output)
    return f"written: {output}, {len(picks)} of {len(reader)} images{_no_font(reader.class_names)}"


def _no_font(names: Sequence[str]) -> str:
    """What is to be said of class names that cannot be drawn as they are."""
    letters = without_font(names)
    return f"; no font here has {letters[:20]}: install one, such as fonts-noto-cjk" if letters else ""


def preset_ops(name: str) -> list[Op]:
    """The recipe that `detaug.presets` has under this name. Raises ValueError for a name that it has not."""
    recipes = {key: value for key, value in vars(presets).items() if _is_recipe(value)}
    if name not in recipes:
        raise ValueError(f"preset must be one of {', '.join(recipes)}, got {name!r}")
    recipe: list[Op] = recipes[name]()
    return recipe


def _is_recipe(value: Any) -> bool:
    """A function of presets that needs no arguments."""
    if not inspect.isfunction(value) or value.__module__ != presets.__name__ or value.__name__.startswith("_"):
        return False
    return all(each.default is not each.empty for each in inspect.signature(value).parameters.values())


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
) -> Image.Image:
    """A row for each image: the source with its boxes, then `columns` draws of the recipe `ops`.

    rows: positions of the images in the json's list. size: the longer side of a picture, in pixels. notes: a
    few words on each image, for its caption. The same seed gives the same sheet.
    Raises ValueError for an image that cannot be read or has another size than the json says.
    """
    photos = read_photos(reader, rows, notes)
    repeated = [photo for photo in photos for _ in range(at_least_one("columns", columns))]
    run = _run(repeated, list(ops), seed)
    draws = [_draw(run, at) for at in range(len(repeated))]
    lines = [[source_tile(photo), *draws[at : at + columns]] for photo, at in zip(photos, count(step=columns))]
    headings = ["source", *(f"draw {number}" for number in range(1, columns + 1))]
    return sheet(lines, title=title, columns=headings, cell=(size, size))


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
    """A row for each image: the source, then the image after each op, with what the op did to it and what it drew.

    Arguments and errors as those of `draws_sheet`. An op before Resize moves the view only; it is shown as if
    Resize, to the view's own size, came right after it.
    """
    photos, ops = read_photos(reader, rows, notes), list(ops)
    runs = [_run(photos, ops[:done], seed) for done in range(len(ops) + 1)]
    lines = [
        [source_tile(photo), *(_step(runs, at, step) for step in range(1, len(runs)))]
        for at, photo in enumerate(photos)
    ]
    return sheet(lines, title=title, columns=["source", *map(_op_name, ops)], cell=(size, size))


def samples_sheet(samples: Samples, class_names: Sequence[str] = (), *, columns: int = 4) -> Image.Image:
    """The images of `da.batch(...)` after its ops, with their boxes; labels as numbers without `class_names`.

    class_names: the name of each label, index 0 being the background, as `loader.class_names`.
    """
    each = zip(samples.images, samples.boxes, samples.labels, strict=True)
    tiles = [
        Tile(_in_true_colors(image, samples.ops), boxes, _names(labels, class_names)) for image, boxes, labels in each
    ]
    return sheet(_in_rows(tiles, columns))


def ops_sheet(
    samples: Samples, ops: Iterable[Op], class_names: Sequence[str] = (), *, columns: int = 5, size: int = 190
) -> Image.Image:
    """The first image of `da.batch(...)`, then what each of `ops` alone makes of it, with the op's name below.

    class_names: as `samples_sheet` takes them. size: the longer side of a picture, in pixels.
    Raises ValueError where an op cannot stand after those of `samples`: a pixel op before a Resize.
    """
    ops = list(ops)
    tiles = [
        Tile(
            _in_true_colors(each.images[0], each.ops), each.boxes[0], _names(each.labels[0], class_names), caption=text
        )
        for text, each in zip(["before", *map(_op_name, ops)], [samples, *map(samples.then, ops)], strict=True)
    ]
    return sheet(_in_rows(tiles, columns), cell=(size, size))


def batch_sheet(
    batch: Batch, class_names: Sequence[str] = (), *, ops: Iterable[Op] = (), columns: int = 4
) -> Image.Image:
    """The images of a loader's batch, with their boxes, padding hatched; labels as numbers without `class_names`.

    ops: the loader's recipe, for the mean and std of its Normalize. Without it, images outside 0..1
    and 0..255 are stretched, in false colours.
    """
    arrays, normalize = list(batch.images.cpu().numpy()), _normalize(ops := list(ops))
    images, note = (
        in_some_colors(arrays) if normalize is None else ([_in_true_colors(each, ops) for each in arrays], "")
    )
    each = zip(images, batch.targets(), batch.image_size.tolist(), strict=True)
    tiles = [
        Tile(image, target["boxes"], _names(target["labels"].tolist(), class_names), hatched=padding(image, size))
        for image, target, size in each
    ]
    return sheet(_in_rows(tiles, columns), title=note)


def save_sheet(picture: Image.Image, path: str | os.PathLike[str]) -> Path:
    """Write a picture, whole or not at all, in the format of its extension: .png, .jpg, .webp.

    Raises ValueError for another extension, OSError where the folder cannot be written to.
    """
    path = Path(path)
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{target.name}.{os.getpid()}.partial")
    encoded = io.BytesIO()
    picture.save(encoded, **picture_format(path))
    try:
        temporary.write_bytes(encoded.getvalue())
        temporary.replace(target)
    except BaseException as error:  # KeyboardInterrupt too: leave nothing behind
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise OSError(error.errno, error.strerror, str(path)) from None
        raise
    return path


def check_output(path: Path) -> None:
    """Refuse now what would fail after seconds of work: ValueError for a path that is no place for a picture."""
    picture_format(path)
    if path.is_dir():
        raise ValueError(f"output {path} is a folder; give the name of a picture")
    if not path.parent.is_dir():
        raise ValueError(f"output folder {path.parent} does not exist; make it first")
    if not os.access(path.parent, os.W_OK):
        raise ValueError(f"output folder {path.parent} cannot be written to")


def _check_no_image(reader: CocoReader, output: Path) -> None:
    folder, target = os.path.realpath(reader.images), os.path.realpath(output)
    if os.path.relpath(target, folder) in reader.file_names:
        raise ValueError(f"output {output} is an image of {reader.annotations}; give another name")


def picture_format(path: Path) -> dict[str, Any]:
    """How Pillow is to write a file of this name. Raises ValueError for an extension that is not a picture's."""
    formats: dict[str, dict[str, Any]] = {
        ".png": {"format": "PNG", "optimize": True},
        ".jpg": {"format": "JPEG", "quality": 88, "subsampling": 0},
        ".webp": {"format": "WEBP", "quality": 88},
    }
    extension = path.suffix.lower().replace(".jpeg", ".jpg")
    if extension not in formats:
        raise ValueError(f"{path} must end in {', '.join(formats)}, got {path.suffix or 'no extension'!r}")
    return formats[extension]


# ---------------------------------------------------------------- images of a reader


def read_photos(reader: CocoReader, rows: Sequence[int], notes: Sequence[str] = ()) -> list[Photo]:
    """The images at `rows` of the json's list. Raises ValueError where there is none, or one cannot be used."""
    if not len(rows):
        raise ValueError("rows must name at least one image, got none")
    marks = _marks(reader.annotations)
    return [
        _photo(reader, row, note, *marks.get(int(reader.image_ids[row]), ([], [])))
        for row, note in zip(rows, notes or [""] * len(rows), strict=True)
    ]


def _photo(reader: CocoReader, row: int, note: str, difficult: list[bool], crowds: list[list[float]]) -> Photo:
    boxes, labels = objects(reader, row)
    height, width = reader.sizes[row]
    name, size = Path(reader.file_names[row]).name, f"{width} x {height}"
    caption = f"{note}, {name}" if note else f"{name}, {size}"
    areas = np.array(crowds).reshape(-1, 4) @ XYWH_TO_XYXY
    return Photo(
        caption, _pixels(reader, row), boxes, [reader.class_names[label] for label in labels], difficult, areas
    )


def _marks(path: Path) -> dict[int, tuple[list[bool], list[list[float]]]]:
    """By image id: is the object difficult, for each that is no crowd, in the reader's order; XYWH of the crowds."""
    marks: dict[int, tuple[list[bool], list[list[float]]]] = {}
    for row in json.loads(path.read_bytes())["annotations"]:
        flags, crowds = marks.setdefault(row["image_id"], ([], []))
        if row.get("iscrowd"):
            crowds.append(row["bbox"])
        else:
            flags.append(bool(row.get("difficult")))
    return marks


def _pixels(reader: CocoReader, row: int) -> Array:
    path, (height, width) = reader.path(row), reader.sizes[row].tolist()
    try:
        with Image.open(path) as file:
            pixels = np.asarray(ImageOps.exif_transpose(file).convert("RGB"))
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise ValueError(f"{path} does not decode ({error}); detaug check --decode finds all such images") from None
    if pixels.shape[:2] != (height, width):
        has = f"{pixels.shape[1]} x {pixels.shape[0]}"
        raise ValueError(f"{path} has {has} pixels, {reader.annotations} says {width} x {height}; convert it again")
    return pixels


# ---------------------------------------------------------------- ops on them


class Run(NamedTuple):
    """Photos after some ops. A label is the position, from 1, of its object among the objects of all photos."""

    photos: Sequence[Photo]
    samples: Samples

    def tile(self, at: int, caption: str) -> Tile:
        """The photo at `at` after the ops."""
        names = [name for photo in self.photos for name in photo.class_names]
        difficult = [flag for photo in self.photos for flag in photo.difficult]
        kept = self.samples.labels[at] - 1
        return Tile(
            _in_true_colors(self.samples.images[at], self.samples.ops),
            self.samples.boxes[at],
            [names[k] for k in kept],
            [difficult[k] for k in kept],
            caption=caption,
        )

    def stage(self, at: int) -> Stage:
        """What of the photo at `at` is compared to tell what an op did to it."""
        return Stage(self.samples.images[at], len(self.samples.labels[at]), self.samples.matrix[at])

    def last_draw(self, at: int) -> str:
        """What the last op drew for the photo at `at`; not said of Resize, which draws its size for all of them."""
        own = [step for step, (_, drawn_by) in enumerate(Recipe(self.samples.ops).steps) if step == drawn_by]
        op = self.samples.ops[-1]
        words = what_was_drawn(op, self.samples.plan.drawn[own[-1]], at) if op.stage != "render" else ""
        return f"drew {words}" if words else ""


def _run(photos: Sequence[Photo], ops: Sequence[Op], seed: int) -> Run:
    starts = np.cumsum([1, *(len(photo.boxes) for photo in photos)])
    labels = [start + np.arange(len(photo.boxes)) for start, photo in zip(starts, photos, strict=False)]
    samples = batch([photo.pixels for photo in photos], [photo.boxes for photo in photos], labels, seed=seed)
    return Run(photos, samples.then(*ops))


def _in_true_colors(image: Array, ops: Sequence[Op]) -> Image.Image:
    """(H, W, 3) in 0..255, or what Normalize makes of it, as it was before."""
    normalize = _normalize(ops)
    if normalize is None:
        return to_image(image, white=255, layout="HWC")
    return to_image(image, mean=normalize.mean, std=normalize.std, layout="CHW")


def _normalize(ops: Sequence[Op]) -> Normalize | None:
    return next((op for op in ops if isinstance(op, Normalize)), None)


# ---------------------------------------------------------------- tiles


def source_tile(photo: Photo) -> Tile:
    """A photo as it is annotated: difficult objects are dashed, crowds hatched."""
    return Tile(photo.pixels, photo.boxes, photo.class_names, photo.difficult, photo.crowds, photo.caption)


def _draw(run: Run, at: int) -> Tile:
    return run.tile(at, how_many(len(run.samples.labels[at]), len(run.photos[at].boxes)))


def _step(runs: Sequence[Run], at: int, step: int) -> Tile:
    after = runs[step]
    if not isinstance(after.samples.ops[-1], Normalize):
        return after.tile(at, f"{what_changed(runs[step - 1].stage(at), after.stage(at))}\n{after.last_draw(at)}")
    pixels = after.samples.images[at]
    return after.tile(at, f"{pixels.min():.2f} to {pixels.max():.2f}")


def _op_name(op: Op) -> str:
    return type(op).__name__


def _names(labels: Iterable[int], class_names: Sequence[str]) -> list[str]:
    return [class_names[label] if class_names else str(label) for label in labels]


def at_least_one(name: str, value: int) -> int:
    """`value`; raises ValueError if it is below 1."""
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {value}")
    return value


def _in_rows(tiles: Sequence[Tile], columns: int) -> list[Sequence[Tile]]:
    return [tiles[at : at + columns] for at in range(0, len(tiles), at_least_one("columns", columns))]
