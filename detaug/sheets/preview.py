"""`detaug preview`: write a contact sheet of a recipe on images or clips of a COCO JSON file."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

from detaug import presets
from detaug.coco.annotations import read_annotations
from detaug.coco.table import load_coco
from detaug.drawing.images import PICTURES, save_picture
from detaug.drawing.text import letters_without_font
from detaug.errors import InputError
from detaug.files.paths import PathLike
from detaug.loading.clip_batch import ClipBatch
from detaug.loading.loader import Loader
from detaug.maps.kinds import MapKind
from detaug.ops.op import Op
from detaug.ops.resize import Resize
from detaug.outputs.guards import IMAGES_ORDER, check_json_and_folder, output_files
from detaug.pixel_format import DType
from detaug.recipes.recipe_file import import_ops, load_recipe
from detaug.recipes.stages import Stages
from detaug.sheets.batch_sheets import batch_sheet, clip_sheet, save_animation
from detaug.sheets.photos import How, select_images
from detaug.sheets.recipe_sheets import MIN_SHOWN, draws_sheet, steps_sheet
from detaug.sources.clip_reader import ClipReader
from detaug.sources.coco_reader import CocoReader
from detaug.video.reader import VideoReader

R = TypeVar("R", bound=CocoReader)

DEFAULT_PRESET = "ssd300"

MOST_PIXELS = 200_000_000
"""Of a sheet, without captions: about 2 GB of memory while it is drawn."""


def preview_file(
    annotations: str | os.PathLike[str],
    images: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    preset: str | None = None,
    recipe: str | Path | None = None,
    ops: str | None = None,
    epoch: int = 0,
    rows: int = 4,
    columns: int | None = None,
    seed: int = 0,
    steps: bool = False,
    size: int = 300,
    only: str | None = None,
    how: How | None = None,
    maps: Mapping[str, MapKind] | None = None,
) -> str:
    """Write a sheet of images of a COCO JSON file, and return a line on it: the work of `detaug preview`.

    preset: the name of a function of `detaug.presets`, "ssd300" if there is no `recipe` either. recipe: a JSON or
    YAML file, see `da.load_recipe`; ops: a module with ops of one's own that it names; epoch: whose recipe of `Stages`
    is shown. rows, only, how: see `select_images`. steps: draw
    `steps_sheet`, which has no `columns`, instead of `draws_sheet`. maps: as `CocoReader` takes them; each has rows of
    its own.
    Raises InputError or OSError, before anything is written, for a wrong argument and for a file that cannot be read.
    """
    output_files({"output": output}, annotations, images, recipe, extensions=PICTURES)
    if steps and columns is not None:
        raise InputError(f"columns must be left out with steps, which has one for each op; got {columns}")
    chain, named = _recipe(preset, recipe, ops, epoch)
    reader, advice = _with_shapes(CocoReader, annotations, images, maps=maps)
    _check_pixels(min(rows, len(reader)) * max(1, len(reader.maps)), 1 + (len(chain) if steps else columns or 4), size)
    selected = select_images(reader, rows, how=how or "random", only=only, seed=seed)
    title = f"{Path(annotations).name}, {named}, seed {seed}"
    draw = steps_sheet if steps else partial(draws_sheet, columns=columns or 4, min_shown=MIN_SHOWN)
    chosen, notes = [choice.row for choice in selected], [choice.note for choice in selected]
    save_picture(draw(reader, chain, chosen, seed=seed, size=size, notes=notes, title=title), output)
    return f"written: {output}, {len(selected)} of {len(reader)} images{advice}{_font_advice(reader.class_names)}"


def preview_bands(
    annotations: str | os.PathLike[str],
    images: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    channels: int,
    dtype: DType,
    bands: Sequence[int] = (),
    recipe: str | Path | None = None,
    ops: str | None = None,
    epoch: int = 0,
    rows: int = 4,
    columns: int | None = None,
    seed: int = 0,
    size: int = 300,
    maps: Mapping[str, MapKind] | None = None,
) -> str:
    """Write a sheet of random images of other bands than 8-bit RGB, after a recipe, and return a line on it.

    channels, dtype: as `CocoReader` takes them; bands: as `batch_sheet` does. Without a recipe the images are fitted
    into squares of `size`. maps: as `CocoReader` takes them; the first one of classes is drawn. The other arguments
    and errors as those of `preview_file`.
    """
    output_files({"output": output}, annotations, images, recipe, extensions=PICTURES)
    fit: list[Op] = [Resize((size, size), letterbox="center")]
    chain, named = (fit, "no recipe") if recipe is None else _recipe(None, recipe, ops, epoch)
    reader, advice = _with_shapes(CocoReader, annotations, images, channels=channels, dtype=dtype, maps=maps)
    shown, columns = min(rows * (columns or 4), len(reader)), columns or 4
    _check_pixels(-(-shown // columns), columns, size)
    with Loader(reader, chain, shown, device="cpu", seed=seed) as loader:
        batch = next(iter(loader))
    title = f"{Path(annotations).name}, {named}, seed {seed}"
    bands = bands or range(3 if channels >= 3 else 1)
    sheet = batch_sheet(batch, reader.class_names, ops=chain, columns=columns, bands=bands, title=title)
    save_picture(sheet, output)
    return f"written: {output}, {shown} of {len(reader)} images{advice}{_font_advice(reader.class_names)}"


def _with_shapes(make: Callable[..., R], annotations: PathLike, images: PathLike, **more: Any) -> tuple[R, str]:
    """Make a reader of the keypoints, rotated boxes and masks that a file has. Polygons of four points are not masks.

    Where the pairs of sides are not known, flipped images keep the names of their points: the image is of use, and
    the end of the line about it says so.
    """
    check_json_and_folder(Path(annotations), Path(images), IMAGES_ORDER)
    objects = [entry for entry in load_coco(Path(annotations)).document["annotations"] if isinstance(entry, dict)]
    quadrangles = bool(objects) and all(map(_is_quadrangle, objects))
    more |= {
        "rotated": quadrangles or any("corners" in entry for entry in objects),
        "masks": not quadrangles and any(entry.get("segmentation") for entry in objects),
        "keypoints": any(entry.get("keypoints") for entry in objects),
    }
    reader = make(images, annotations, **more)
    points = reader.shapes.keypoints
    if points is None or not points.flips_unknown:
        return reader, ""
    advice = "; keypoints do not swap in flipped images, since their sides are not known: detaug check says more"
    return make(images, annotations, flip_pairs=(), **more), advice


def _is_quadrangle(entry: dict[str, Any]) -> bool:
    """Return whether the outline of an annotation is one ring of four points."""
    rings = entry.get("segmentation")
    return isinstance(rings, list) and len(rings) == 1 and isinstance(rings[0], list) and len(rings[0]) == 8


def preview_clips(
    annotations: str | os.PathLike[str],
    images: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    frames: int,
    stride: int = 1,
    preset: str | None = None,
    recipe: str | Path | None = None,
    ops: str | None = None,
    epoch: int = 0,
    rows: int = 4,
    seed: int = 0,
    size: int = 300,
) -> str:
    """Write a sheet of random clips of a CocoVID JSON file, after a recipe, and return a line on it.

    output: an image with a row for each clip, or a .gif, in which they move. frames, stride: as `ClipReader` takes
    them. The other arguments and errors as those of `preview_file`.
    """
    moves = Path(output).suffix.lower() == ".gif"
    output_files({"output": output}, annotations, images, recipe, extensions=(*PICTURES, ".gif"))
    chain, named = _recipe(preset, recipe, ops, epoch)
    reader, advice = _reader_of_clips(annotations, images, frames, stride)
    _check_pixels(min(rows, len(reader.clips)), frames, size)
    with Loader(reader, chain, min(rows, len(reader.clips)), device="cpu", seed=seed) as loader:
        batch = cast(ClipBatch, next(iter(loader)))
    title = f"{Path(annotations).name}, {named}, seed {seed}"
    if moves:
        save_animation(batch, output, reader.class_names, ops=chain, size=size, title=title)
    else:
        save_picture(clip_sheet(batch, reader.class_names, ops=chain, size=size, title=title), output)
    return f"written: {output}, {len(batch)} of {len(reader.clips)} clips{advice}{_font_advice(reader.class_names)}"


def _check_pixels(rows: int, columns: int, size: int) -> None:
    """Raise InputError for a sheet that would need gigabytes."""
    pixels = rows * columns * size**2
    if pixels > MOST_PIXELS:
        sheet = f"{rows:,} x {columns:,} images of {size:,} x {size:,} pixels"
        raise InputError(
            f"a sheet may have {MOST_PIXELS:,} pixels, {sheet} have {pixels:,}; give a smaller size or fewer rows"
        )


def _reader_of_clips(
    annotations: PathLike, images: PathLike, frames: int, stride: int
) -> tuple[ClipReader | VideoReader, str]:
    data = read_annotations(Path(annotations))
    if data.video_files and not (Path(images) / data.file_names[0]).is_file():
        return VideoReader(images, annotations=annotations, frames=frames, stride=stride, step=1), ""
    return _with_shapes(ClipReader, annotations, images, frames=frames, stride=stride)


def _recipe(preset: str | None, recipe: str | Path | None, ops: str | None, epoch: int) -> tuple[list[Op], str]:
    """Return the recipe, of stages that of an epoch, and its name. `ops`: a module with ops of one's own."""
    if ops is not None and recipe is None:
        raise InputError(f"ops are for a recipe: give the recipe that names the ops of {ops}")
    if preset is not None and recipe is not None:
        raise InputError(f"preset and recipe must not both be given, got {preset!r} and {str(recipe)!r}")
    if recipe is not None:
        chain, name = load_recipe(recipe, import_ops(ops) if ops else ()), Path(recipe).name
        if isinstance(chain, Stages) and chain.by == "step" and epoch:
            raise InputError(
                f"epoch must be left out for {name}, whose stages are by step, got {epoch}: the first stage is shown; "
                "save the ops of another one as a recipe"
            )
        if isinstance(chain, Stages):
            return [*chain.at(epoch)], f"{name}, epoch {epoch}"
    else:
        chain, name = preset_ops(preset or DEFAULT_PRESET), preset or DEFAULT_PRESET
    if epoch:
        raise InputError(f"epoch must be left out for {name}, a recipe without stages, got {epoch}")
    return chain, name


def preset_ops(name: str) -> list[Op]:
    """Return the recipe of this name in `detaug.presets`. Raises InputError for an unknown name."""
    recipes = {key: value for key, value in vars(presets).items() if _is_recipe(value)}
    if name not in recipes:
        raise InputError(f"preset must be one of {', '.join(recipes)}, got {name!r}")
    recipe: list[Op] = recipes[name]()
    return recipe


def _is_recipe(value: Any) -> bool:
    """Return whether it is a public function of `presets` that needs no arguments."""
    if not inspect.isfunction(value) or value.__module__ != presets.__name__ or value.__name__.startswith("_"):
        return False
    return all(parameter.default is not parameter.empty for parameter in inspect.signature(value).parameters.values())


def _font_advice(names: Sequence[str]) -> str:
    letters = letters_without_font(names)
    return f"; no font here has {letters[:20]}: install one, such as fonts-noto-cjk" if letters else ""
