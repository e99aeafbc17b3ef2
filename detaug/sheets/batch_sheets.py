"""Contact sheets of samples and batches that have been made already."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from PIL import Image

from detaug.drawing.images import Pictures, to_images
from detaug.drawing.sheet import Tile, in_rows, make_sheet, padding
from detaug.loading.batch import Batch
from detaug.ops.op import Op
from detaug.samples.samples import Samples
from detaug.sheets.colors import find_normalize, in_true_colors
from detaug.sheets.recipe_sheets import check_at_least_one


def samples_sheet(samples: Samples, class_names: Sequence[str] = (), *, columns: int = 4) -> Image.Image:
    """Draw the images of `da.batch(...)` after its ops, with their boxes.

    class_names: the name of each label, index 0 being the background, as `loader.class_names`; without them, labels
    are drawn as numbers.
    """
    check_at_least_one("columns", columns)
    tiles = [_tile(samples, at, class_names) for at in range(len(samples.images))]
    return make_sheet(in_rows(tiles, columns), class_names=class_names[1:])


def ops_sheet(
    samples: Samples, ops: Iterable[Op], class_names: Sequence[str] = (), *, columns: int = 5, size: int = 190
) -> Image.Image:
    """Draw the first image of `da.batch(...)`, then the result of each of `ops` alone, with the op's name below.

    class_names: as `samples_sheet` takes them. size: the longer side of a picture, in pixels.
    Raises InputError where an op cannot stand after those of `samples`: a pixel op before a Resize.
    """
    check_at_least_one("columns", columns)
    ops = list(ops)
    tiles = [_tile(samples, 0, class_names, "before")]
    tiles += [_tile(samples.then(op), 0, class_names, type(op).__name__) for op in ops]
    return make_sheet(in_rows(tiles, columns), cell=(size, size), class_names=class_names[1:])


def batch_sheet(
    batch: Batch, class_names: Sequence[str] = (), *, ops: Iterable[Op] = (), columns: int = 4
) -> Image.Image:
    """Draw the images of a loader's batch, with their boxes; padding is hatched.

    class_names: as `samples_sheet` takes them. ops: the loader's recipe, for the mean and std of its Normalize.
    Without it, images outside 0..1 and 0..255 are stretched, in false colours.
    """
    check_at_least_one("columns", columns)
    pictures = pictures_of(batch, list(ops))
    each = zip(pictures.images, batch.targets(), batch.image_size.tolist(), strict=True)
    tiles = [
        Tile(image, target["boxes"], _names(target["labels"].tolist(), class_names), hatched=padding(image, size))
        for image, target, size in each
    ]
    return make_sheet(in_rows(tiles, columns), title=pictures.note, class_names=class_names[1:])


def pictures_of(batch: Batch, ops: Sequence[Op]) -> Pictures:
    """Return the images of a batch, in true colours if `ops` have the Normalize that was used."""
    arrays = list(batch.images.cpu().numpy())
    if find_normalize(ops) is None:
        return to_images(arrays)
    return Pictures([in_true_colors(each, ops) for each in arrays], "")


def _tile(samples: Samples, at: int, class_names: Sequence[str], caption: str = "") -> Tile:
    image = in_true_colors(samples.images[at], samples.ops)
    return Tile(image, samples.boxes[at], _names(samples.labels[at], class_names), caption=caption)


def _names(labels: Iterable[int], class_names: Sequence[str]) -> list[str]:
    return [class_names[label] if class_names else str(label) for label in labels]
