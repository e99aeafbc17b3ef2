"""Contact sheets of samples, batches and clips that have been made already; animations of clips."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from detaug.drawing.images import RgbImages, stretched, to_images
from detaug.drawing.sheet import Tile, in_rows, make_sheet, padding
from detaug.errors import InputError
from detaug.files.atomic import write_atomically
from detaug.loading.batch import Batch
from detaug.loading.clip_batch import ClipBatch
from detaug.ops.op import Op
from detaug.outputs.guards import MARK
from detaug.samples.samples import Samples
from detaug.sheets.maps import maps_of_batch
from detaug.sheets.recipe_sheets import check_at_least_one, find_normalize, in_true_colors


def samples_sheet(samples: Samples, class_names: Sequence[str] = (), *, columns: int = 4) -> Image.Image:
    """Draw the images of `da.batch(...)` after its ops, with their boxes.

    class_names: the name of each label, index 0 being the background, as `loader.class_names`; without them, labels
    are drawn as numbers.
    """
    check_at_least_one("columns", columns)
    tiles = [_tile(samples, index, class_names) for index in range(len(samples.images))]
    return make_sheet(in_rows(tiles, columns), class_names=class_names[1:])


def ops_sheet(
    samples: Samples, ops: Iterable[Op], class_names: Sequence[str] = (), *, columns: int = 5, size: int = 190
) -> Image.Image:
    """Draw the first image of `da.batch(...)`, then the result of each of `ops` alone, with the op's name below.

    class_names: as `samples_sheet` takes them. size: the longer side of an image, in pixels.
    Raises InputError where an op cannot stand after those of `samples`: a pixel op before a Resize.
    """
    check_at_least_one("columns", columns)
    ops = list(ops)
    tiles = [_tile(samples, 0, class_names, "before")]
    tiles += [_tile(samples.then(op), 0, class_names, type(op).__name__) for op in ops]
    return make_sheet(in_rows(tiles, columns), cell=(size, size), class_names=class_names[1:])


def batch_sheet(
    batch: Batch,
    class_names: Sequence[str] = (),
    *,
    ops: Iterable[Op] = (),
    columns: int = 4,
    bands: Sequence[int] = (),
    map: str | None = None,
    title: str = "",
) -> Image.Image:
    """Draw the images of a loader's batch, with their boxes, rotated ones if it has such, keypoints and one map.

    Padding is hatched.

    class_names: as `samples_sheet` takes them. ops: the loader's recipe, for the mean and std of its Normalize.
    Without it, images outside 0..1 and 0..255 are stretched, in false colors. bands: positions of one band, or of
    three for red, green and blue, to show from their 2nd to their 98th percentile; by default the first three of
    images that are neither gray nor RGB. map: the name of the map to draw; by default the first one of classes, or
    else the first one. title: a line above the images.
    """
    check_at_least_one("columns", columns)
    rgb = pictures_of(batch, list(ops), bands)
    maps = maps_of_batch(batch, map)
    per_image = zip(rgb.images, batch.targets(), batch.image_size.tolist(), batch.marks(), maps, strict=True)
    tiles = [
        Tile(
            image,
            target["boxes"],
            _names(target["labels"].tolist(), class_names),
            hatched=padding(image, size),
            marks=marks,
            map=own_map,
        )
        for image, target, size, marks, own_map in per_image
    ]
    title = ", ".join(filter(None, [title, rgb.note]))
    return make_sheet(in_rows(tiles, columns), title=title, class_names=class_names[1:])


def pictures_of(batch: Batch, ops: Sequence[Op], bands: Sequence[int] = ()) -> RgbImages:
    """Return the images of a batch, in true colors if `ops` have the Normalize that was used.

    For `bands` see `batch_sheet`.
    """
    arrays = list(batch.images.cpu().numpy())
    if bands or batch.images.shape[1] not in (1, 3):
        return stretched(arrays, bands)
    if find_normalize(ops) is None:
        return to_images(arrays)
    return RgbImages([in_true_colors(array, ops) for array in arrays], "")


def _tile(samples: Samples, index: int, class_names: Sequence[str], caption: str = "") -> Tile:
    image = in_true_colors(samples.images[index], samples.ops)
    return Tile(
        image,
        samples.boxes[index],
        _names(samples.labels[index], class_names),
        caption=caption,
        marks=samples.marks()[index],
    )


def _names(labels: Iterable[int], class_names: Sequence[str]) -> list[str]:
    return [class_names[label] if class_names else str(label) for label in labels]


USUAL_RATE = 10.0
"""Frames per second of an animation where those of the video are not known."""

MOST_RATE = 25.0
"""Frames per second of an animation at most: browsers show a GIF with more of them slowly."""


def clip_sheet(
    batch: ClipBatch, class_names: Sequence[str] = (), *, ops: Iterable[Op] = (), size: int = 240, title: str = ""
) -> Image.Image:
    """Draw a row for each clip, its frames from left to right. A track has one color in all frames.

    class_names, ops: as `batch_sheet` takes them. size: the longer side of an image, in pixels.
    """
    rows, note = _clip_tiles(batch, class_names, list(ops))
    return make_sheet(rows, title=", ".join(filter(None, (title, note))), cell=(size, size))


def save_animation(
    batch: ClipBatch,
    path: str | os.PathLike[str],
    class_names: Sequence[str] = (),
    *,
    ops: Iterable[Op] = (),
    size: int = 240,
    title: str = "",
) -> Path:
    """Write the clips beside each other as an animated GIF, whole or not at all, at the speed of the first one.

    Arguments as those of `clip_sheet`. Raises InputError for a name that does not end in .gif.
    """
    if Path(path).suffix.lower() != ".gif":
        raise InputError(f"{os.fspath(path)} must end in .gif")
    rows, note = _clip_tiles(batch, class_names, list(ops))
    title, cell = ", ".join(filter(None, (title, note))), (size, size)
    pages = [make_sheet([list(frame)], title=title, cell=cell) for frame in zip(*rows, strict=True)]
    first, *others = _of_one_size(pages)
    steps = np.diff(batch.time[0].numpy())
    steps = steps[steps > 0]  # a clip may end with repeated frames
    rate = min(MOST_RATE, float(1 / np.median(steps))) if len(steps) else USUAL_RATE
    encoded, duration = io.BytesIO(), round(1000 / rate)
    first.save(encoded, "GIF", save_all=True, append_images=others, duration=duration, loop=0, comment=MARK)
    write_atomically(path, [encoded.getbuffer()])
    return Path(path)


def _clip_tiles(batch: ClipBatch, class_names: Sequence[str], ops: Sequence[Op]) -> tuple[list[list[Tile]], str]:
    """Return the tiles of each clip, and a note on their colors."""
    clips, frames = batch.frame.shape
    rgb, marks = pictures_of(batch.as_images(), ops), batch.marks()
    tiles = [
        _frame_tile(batch, clip, frame, rgb.images[clip * frames + frame], class_names)._replace(
            marks=marks[clip * frames + frame]
        )
        for clip in range(clips)
        for frame in range(frames)
    ]
    return [tiles[start : start + frames] for start in range(0, len(tiles), frames)], rgb.note


def _frame_tile(batch: ClipBatch, clip: int, frame: int, image: Image.Image, class_names: Sequence[str]) -> Tile:
    seen = batch.valid[clip, frame]
    labels, tracks = (values[clip, frame][seen].tolist() for values in (batch.labels, batch.track_id))
    classes = [class_names[label] if class_names else str(label) for label in labels]
    names = [name if track < 0 else f"{name} {track}" for name, track in zip(classes, tracks, strict=True)]
    caption = f"video {int(batch.video_id[clip])}, frame {int(batch.frame[clip, frame])}"
    hatched = padding(image, batch.image_size[clip].tolist())
    return Tile(image, batch.boxes[clip, frame][seen].cpu(), names, hatched=hatched, caption=caption)


def _of_one_size(pages: Sequence[Image.Image]) -> list[Image.Image]:
    """Return the pages on paper of the largest one's size: their legends may differ in length."""
    size = max(page.width for page in pages), max(page.height for page in pages)
    papers = [Image.new("RGB", size, "white") for _ in pages]
    for paper, page in zip(papers, pages, strict=True):
        paper.paste(page, (0, size[1] - page.height))
    return papers
