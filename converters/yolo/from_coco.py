"""Convert COCO json to YOLO text labels, in Ultralytics' layout."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Literal, get_args

from detaug.converters.coco.export import FolderExport, folder_export
from detaug.converters.coco.rows import CocoRows, clipped, dropped_keys
from detaug.converters.conversion.arguments import OnError, WithImages, check_choice
from detaug.converters.conversion.summary import Summary
from detaug.converters.files.atomic import write_atomically
from detaug.converters.files.parallel import Progress
from detaug.converters.files.paths import PathLike
from detaug.converters.files.text import read_text
from detaug.converters.findings.finding import Finding
from detaug.converters.yolo.files import label_file, load_yaml
from detaug.errors import ConversionError

YoloSplit = Literal["train", "val", "test"]

_MADE_HERE = "# written by detaug convert-coco-to-yolo\n"
_DECIMALS = 9  # so that the boxes of any photograph come back to a thousandth of a pixel


def coco_to_yolo(
    annotations: PathLike,
    output: PathLike,
    *,
    split: YoloSplit = "train",
    images: PathLike | None = None,
    with_images: WithImages = "none",
    on_error: OnError = "stop",
    report: PathLike | None = None,
    progress: Progress | None = None,
) -> Summary:
    """Convert a COCO json file into labels for YOLO.

    Writes output/labels/SPLIT/NAME.txt for each image, empty where it has no boxes, and output/data.yaml with the split
    and the names. A row is "class cx cy w h", relative to the image's width and height in the json, with up to 9
    decimals. Class numbers count from 0, in the order of the category ids.

    split: train, val or test. It is added to a data.yaml that this function wrote before for the same names;
    Ultralytics needs train and val in it. images: the folder that file_name is relative to; with it, a missing image is
    an error. with_images: leave the images where they are, copy them to output/images/SPLIT, where Ultralytics looks
    for them, or make symbolic links there. on_error: "stop" at entries that cannot be used, after reading all of them,
    or "skip" these. report: a json file for every finding. progress: called with (files written, files in all).

    Crowds, which are not single objects, are left out and counted, and so are keys without a place in YOLO (difficult,
    segmentation, ...). YOLO has no order of images; a finding says so where converting back would change it. Existing
    files with other content are an error. data.yaml is written last.

    Raises ConversionError, an InputError, for input that cannot be converted, and InputError for arguments.

    >>> from pathlib import Path
    >>> from detaug.converters import coco_to_yolo
    >>> print(coco_to_yolo("train.json", "yolo", images="demo/VOC/JPEGImages", with_images="link"))
    48 images (4 without boxes), 167 boxes in 6 classes
      ball          47
      car           20
      fish          32
      house         20
      mug           28
      tree          20
     dropped       3  key-dropped: a key of the json has no place in the other format
    each of these, with its file: --report FILE
    written: yolo
    train with it: yolo detect train data=yolo/data.yaml
    >>> print(Path("yolo/labels/train/000001.txt").read_text())
    3 0.882 0.442666667 0.236 0.410666667
    0 0.187 0.689333333 0.102 0.136
    0 0.475 0.697333333 0.094 0.125333333
    5 0.39 0.568 0.408 0.661333333
    """
    check_choice("split", split, YoloSplit)
    export = folder_export(annotations, output, images, with_images, on_error, report)
    rows, findings = _read(export)
    export.stop_on_errors(rows, findings)
    yaml_file = export.folder / "data.yaml"
    image_folder = export.folder / "images" / split
    labels = {Path(label_file(image_folder / rows.file_name(at))): label_text(rows, at, boxes) for at, boxes in rows}
    with export.writing(findings):  # data.yaml has the splits of all runs, so nobody else may write it meanwhile
        yaml_text = _data_yaml(yaml_file, split, list(rows.table.categories.values()))
        export.write(rows, labels, image_folder, progress)
        write_atomically(yaml_file, [yaml_text])
    put = "" if export.brings_images else f", after putting the images into {image_folder} (or --with-images link)"
    train = f"yolo detect train data={shlex.quote(str(yaml_file))}"
    return export.summary(rows, findings, image_folder, f"train with it: {train}{put}")


def _read(export: FolderExport) -> tuple[CocoRows, list[Finding]]:
    rows, findings = export.read()
    crowds = [at for at in rows.boxes.tolist() if rows.table.crowd[at]]
    notes = [f"{rows.table.entry('annotations', at)}a crowd was left out" for at in crowds]
    findings += [Finding(str(export.source), "crowd-dropped", note=note) for note in notes]
    rows = rows.without((), crowds)
    names = [*map(rows.file_name, rows.images.tolist())]
    if names != sorted(names):
        findings.append(Finding(str(export.source), "order-changed"))
    return rows, [*findings, *clipped(rows), *dropped_keys(rows)]


def label_text(rows: CocoRows, at: int, boxes: list[int]) -> str:
    """Return the label file of an image. boxes: positions of its annotations."""
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


def _data_yaml(path: Path, split: str, names: list[str]) -> str:
    """Return the text of data.yaml with this split and those that this command wrote into it before."""
    splits = {split}
    if path.exists():
        splits |= _earlier_splits(path, names)
    return _yaml_text(splits, names)


def _earlier_splits(path: Path, names: list[str]) -> set[str]:
    content, text = load_yaml(path), read_text(path)  # in this order: the first one's errors name the file
    splits = set(get_args(YoloSplit)) & content.keys()
    if not text.startswith(_MADE_HERE):
        raise ConversionError(f"{path} exists and was not made by this command; give another folder, or move it away")
    if text != _yaml_text(splits, names):
        raise ConversionError(f"{path} exists with other names, or was changed; give another folder, or move it away")
    return splits


def _yaml_text(splits: set[str], names: list[str]) -> str:
    lines = [f"{split}: images/{split}\n" for split in get_args(YoloSplit) if split in splits]
    quoted = [f"  {number}: {json.dumps(name, ensure_ascii=False)}\n" for number, name in enumerate(names)]
    return "".join([_MADE_HERE, *lines, "names:\n", *quoted])
