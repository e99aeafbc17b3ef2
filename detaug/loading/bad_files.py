"""Which images of a batch cannot be used, and why: each is read alone, by DALI as in training."""

from __future__ import annotations

from itertools import islice

import numpy as np
import torch
from PIL import Image

from detaug.loading.pipeline import DALI_ERRORS, Lane
from detaug.sources.coco_reader import CocoReader, Rows, decoded

Faults = dict[int, str]
"""Row -> what is wrong with the image there, with its path."""


class DataError(ValueError):
    """An image that cannot be used, met in the middle of an epoch. Names the file and the remedy.

    >>> import shutil
    >>> from pathlib import Path
    >>> folder = Path(shutil.copytree("demo/VOC/JPEGImages", "broken"))
    >>> _ = (folder / "000001.jpg").write_bytes(b"no JPEG")
    >>> loader = da.Loader(da.CocoReader(folder, "train.json"), da.presets.evaluation((300, 300)), 8, train=False)
    >>> next(iter(loader))
    Traceback (most recent call last):
        ...
    detaug.loading.bad_files.DataError: .../broken/000001.jpg: does not decode (cannot identify ...); detaug check ...
    """


def find_faults(reader: CocoReader, rows: Rows, device: torch.device) -> Faults:
    """The images at `rows` that are gone, do not decode, or have another size than the json says."""
    faults, lane = Faults(), _lane(device)
    for row in np.unique(rows):
        try:
            lane.start(reader.inputs(row[None], device.type))
            (shape,) = lane.finish()
        except DALI_ERRORS as error:  # after which a pipeline is of no more use
            faults[int(row)] = _why(reader, row, error)
            lane = _lane(device)
        else:
            faults |= wrong_sizes(reader, row[None], np.asarray(shape.as_tensor()))
    return faults


def faults_behind(error: Exception, reader: CocoReader, rows: Rows, device: torch.device) -> Faults:
    """The images at `rows` that stopped a pipeline. Raises DataError if it was none of them, which then says so."""
    if faults := find_faults(reader, rows, device):
        return faults
    raise DataError(f"DALI stopped, though each image of the batch decodes alone: {reason(error)}") from error


def wrong_sizes(reader: CocoReader, rows: Rows, shapes: Rows) -> Faults:
    """The images whose file has another size than the json says. `shapes`: (n, 3) (height, width, 3) of the files."""
    wrong = shapes[:, :2] != reader.sizes[rows]
    if not wrong.any():
        return {}
    return {int(rows[at]): _wrong_size(reader, rows[at], *shapes[at, :2]) for at in np.flatnonzero(wrong.any(1))}


def named(faults: Faults) -> str:
    """The first three of them."""
    more = f"; and {len(faults) - 3} more" if len(faults) > 3 else ""
    return "; ".join(islice(faults.values(), 3)) + more


def reason(error: Exception) -> str:
    """The line that matters of DALI's long messages."""
    lines = [line.strip() for line in str(error).partition("encountered:")[2].splitlines() or str(error).splitlines()]
    return next((line for line in lines if line), "no reason given")


def remedy(reader: CocoReader) -> str:
    """The command that makes a json without the broken images."""
    return f"detaug check {reader.annotations} {reader.images} --decode --clean OUT.json leaves out what is broken"


def _lane(device: torch.device) -> Lane:
    return Lane(lambda: [decoded(device.type).shape()], 1, 1, device)


def _why(reader: CocoReader, row: int, error: Exception) -> str:
    """Pillow's reason, which people can read, where it has one too."""
    path = reader.path(row)
    try:
        with Image.open(path) as image:
            image.load()
    except FileNotFoundError:
        return f"{path} is not there any more"
    except (OSError, SyntaxError, ValueError) as failure:
        return f"{path}: does not decode ({failure})"
    width, height = image.size[:: -1 if image.getexif().get(0x0112, 1) >= 5 else 1]
    if (height, width) != tuple(reader.sizes[row]):
        return _wrong_size(reader, row, height, width)
    return f"{path}: does not decode ({reason(error)})"


def _wrong_size(reader: CocoReader, row: int, height: int, width: int) -> str:
    should = reader.sizes[row]
    return (
        f"{reader.path(row)} has {width} x {height} pixels, {reader.annotations} says {should[1]} x {should[0]}, "
        "so its boxes would be misplaced"
    )
