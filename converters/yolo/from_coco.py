"""COCO json to YOLO text labels, in Ultralytics' layout.

from detaug.converters import coco_to_yolo
summary = coco_to_yolo("train.json", "yolo", images="images", with_images="link")
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import get_args

from detaug.converters.coco.rows import (
    CocoRows,
    check_class_names,
    clipped,
    dropped_keys,
    leave_out,
    read_coco_rows,
    stem_findings,
)
from detaug.converters.conversion.choices import OnError, Progress, WithImages
from detaug.converters.conversion.folder import (
    check_folder,
    check_with_images,
    place_images,
    refuse_other_content,
    write_texts,
)
from detaug.converters.conversion.images import missing_images
from detaug.converters.conversion.outputs import output_files
from detaug.converters.conversion.summary import Summary, report_and_stop
from detaug.converters.files.atomic import write_atomically
from detaug.converters.files.paths import PathLike
from detaug.converters.files.text import read_text
from detaug.converters.findings.errors import ConversionError
from detaug.converters.findings.finding import Finding
from detaug.converters.yolo.files import label_file, load_yaml

_MADE_HERE = "# written by detaug convert-coco-to-yolo\n"
_DECIMALS = 9  # so that the boxes of any photograph come back to a thousandth of a pixel
_SPLITS = ("train", "val", "test")


def coco_to_yolo(
    annotations: PathLike,
    output: PathLike,
    *,
    split: str = "train",
    images: PathLike | None = None,
    with_images: WithImages = "none",
    on_error: OnError = "stop",
    report: PathLike | None = None,
    progress: Progress | None = None,
) -> Summary:
    """Convert a COCO json file into labels for YOLO.

    Writes output/labels/SPLIT/NAME.txt for each image, empty where it has no boxes, and output/data.yaml with
    the split and the names. A row is "class cx cy w h", relative to the image's width and height in the json,
    with up to 9 decimals. Class numbers count from 0, in the order of the category ids.

    split: train, val or test. A data.yaml that an earlier run made, for the same names, gets the split added;
    Ultralytics wants train and val in it. images: the folder that file_name is relative to; with it, an image
    that is not there is an error. with_images: leave the images where they are, copy them to
    output/images/SPLIT, where Ultralytics looks for them, or make symbolic links there. on_error: "stop" at
    entries that cannot be used, after looking at all of them, or "skip" these. report: a json file for every
    finding (see findings.KINDS). progress: called with (files written, files in all).

    Crowds are left out, since they are no single objects, and counted; keys without a place in YOLO
    (difficult, segmentation, ...) too. No file is replaced by other content; data.yaml is written last.

    Raises ConversionError, a ValueError, for input that cannot be converted, and ValueError for arguments.

    >>> from pathlib import Path
    >>> from detaug.converters import coco_to_yolo
    >>> print(coco_to_yolo("train.json", "yolo", images="demo/VOC/JPEGImages", with_images="link"))
    48 images (4 without boxes), 168 boxes in 6 classes
      ball          39
      car           29
      fish          31
      house         18
      mug           27
      tree          24
     dropped       3  key-dropped: a key of the json has no place in the other format
    each of these, with its file: --report FILE
    written: yolo
    train with it: yolo detect train data=yolo/data.yaml
    >>> print(Path("yolo/labels/train/000001.txt").read_text())
    5 0.376 0.438666667 0.304 0.493333333
    5 0.877 0.488 0.246 0.533333333
    3 0.203 0.464 0.406 0.613333333
    0 0.402 0.872 0.144 0.192
    """
    source, folder, image_folder = Path(annotations), Path(output), None if images is None else Path(images)
    for name, value, choices in (("split", split, _SPLITS), ("on_error", on_error, get_args(OnError))):
        if value not in choices:
            raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}")
    check_with_images(with_images, image_folder)
    paths = output_files({"report": report}, source)
    check_folder(folder)
    rows, findings = _usable(source, image_folder)
    report_and_stop(findings, on_error, paths.get("report"))
    if not len(rows.images):
        raise ConversionError(f"{source}: no image is left to write; nothing was written", findings)
    data_yaml = _data_yaml(folder / "data.yaml", split, list(rows.table.categories.values()))
    places = {at: folder / "images" / split / rows.file_name(at) for at in rows.images.tolist()}
    texts = {Path(label_file(str(places[at]))): _labels(rows, at, boxes) for at, boxes in rows}
    copies = {}
    if image_folder and with_images != "none":
        copies = {place: image_folder / rows.file_name(at) for at, place in places.items()}
    refuse_other_content(texts, copies)
    place_images(copies, with_images)
    write_texts(texts, progress)
    write_atomically(folder / "data.yaml", [data_yaml])
    return Summary(
        folder,
        folder / "images" / split,
        len(rows.images),
        rows.images_without_boxes(),
        rows.class_counts(),
        tuple(findings),
        paths.get("report"),
        _next_step(folder, split, bool(copies)),
    )


def _next_step(folder: Path, split: str, has_images: bool) -> str:
    images = (
        "" if has_images else f", after putting the images into {folder / 'images' / split} (or --with-images link)"
    )
    return f"train with it: yolo detect train data={folder / 'data.yaml'}{images}"


def _usable(source: Path, images: Path | None) -> tuple[CocoRows, list[Finding]]:
    rows, findings = read_coco_rows(source)
    check_class_names(rows)
    names = {at: rows.file_name(at) for at in rows.images.tolist()}
    rows, more = leave_out(rows, [*stem_findings(rows), *missing_images(names, images)])
    crowds = [at for at in rows.boxes.tolist() if rows.table.crowd[at]]
    notes = [f"{rows.table.entry('annotations', at)}a crowd was left out" for at in crowds]
    more += [Finding(str(source), "crowd-dropped", note=note) for note in notes]
    rows = rows.without((), crowds)
    return rows, [*findings, *more, *clipped(rows), *dropped_keys(rows)]


def _labels(rows: CocoRows, at: int, boxes: list[int]) -> str:
    height, width = rows.table.sizes[at].tolist()
    numbers = {category_id: number for number, category_id in enumerate(rows.table.categories)}
    lines = []
    for box_at in boxes:
        left, top, right, bottom = rows.table.boxes[box_at].tolist()
        row = ((left + right) / 2 / width, (top + bottom) / 2 / height, (right - left) / width, (bottom - top) / height)
        lines.append(f"{numbers[int(rows.table.category_ids[box_at])]} {' '.join(map(_number, row))}\n")
    return "".join(lines)


def _number(value: float) -> str:
    return re.sub(r"\.?0+$", "", f"{value:.{_DECIMALS}f}")


# ----------------------------------------------------------------------------------------------------------
# data.yaml


def _data_yaml(path: Path, split: str, names: list[str]) -> str:
    """The text of data.yaml with this split, and with those that an earlier run wrote into it."""
    splits = {split}
    if path.exists():
        splits |= _earlier_splits(path, names)
    return _yaml_text(splits, names)


def _earlier_splits(path: Path, names: list[str]) -> set[str]:
    text, content = read_text(path), load_yaml(path)
    splits = set(_SPLITS) & content.keys()
    if not text.startswith(_MADE_HERE):
        raise ConversionError(f"{path} exists and was not made by this command; give another folder, or move it away")
    if text != _yaml_text(splits, names):
        raise ConversionError(f"{path} exists with other names, or was changed; give another folder, or move it away")
    return splits


def _yaml_text(splits: set[str], names: list[str]) -> str:
    lines = [f"{split}: images/{split}\n" for split in _SPLITS if split in splits]
    quoted = [f"  {number}: {json.dumps(name, ensure_ascii=False)}\n" for number, name in enumerate(names)]
    return "".join([_MADE_HERE, *lines, "names:\n", *quoted])
