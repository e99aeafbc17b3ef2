"""Convert COCO JSON to YOLO text labels, in Ultralytics' layout."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any, Literal, get_args

from detaug.arguments import check
from detaug.coco.key_points import Pairs
from detaug.coco.rows import clipped, dropped_keys
from detaug.converters.export.folder_export import FolderExport, folder_export
from detaug.converters.yolo.files import label_file, load_yaml
from detaug.converters.yolo.label_rows import KEYS, OF_CATEGORIES, LabelRows, label_rows, label_text
from detaug.converters.yolo.labels import YoloTask
from detaug.errors import ConversionError
from detaug.files.atomic import write_atomically
from detaug.files.paths import PathLike
from detaug.files.text import read_text
from detaug.findings.finding import Finding
from detaug.machine.parallel import Progress
from detaug.named_options import option
from detaug.outputs.folder import label_files
from detaug.outputs.guards import OnError, WithImages, check_choice
from detaug.outputs.summary import Summary

YoloSplit = Literal["train", "val", "test"]

_MADE_HERE = "# written by detaug convert-coco-to-yolo\n"


def coco_to_yolo(
    annotations: PathLike,
    output: PathLike,
    *,
    task: YoloTask = "detect",
    flip_pairs: Pairs | None = None,
    split: YoloSplit = "train",
    images: PathLike | None = None,
    with_images: WithImages = "none",
    on_error: OnError = "stop",
    report: PathLike | None = None,
    progress: Progress | None = None,
) -> Summary:
    """Convert a COCO JSON file into labels for YOLO.

    Writes output/labels/SPLIT/NAME.txt for each image, empty where it has no boxes, and output/data.yaml with the split
    and the names. A row is "class cx cy w h", relative to the image's width and height in the JSON file, with up to 9
    decimals. Class numbers count from 0, in the order of the category ids.

    Crowds, which are not single objects, are left out and counted, and so are keys without a place in rows of the task
    (difficult, ...). YOLO has no order of images; a finding says so where converting back would change it. Existing
    files with other content are an error, and so are other labels of the split. data.yaml is written last.

    Raises ConversionError, an InputError, for input that cannot be converted, and InputError for arguments.

    Args:
        annotations: The COCO JSON file.
        output: The folder to write into.
        task: What rows are. "segment": the class and the polygon of an object, one ring; several are joined by bridges
            of no width, and masks and rings that overlap are traced along the edges of their pixels. "pose": the box,
            and x, y, visibility of each keypoint; data.yaml gets kpt_shape, kpt_names, and flip_idx from the
            categories' `flip_idx` or the names. "obb": four corners: `corners`, a `segmentation` of four points, or the
            smallest rectangle around it. An object without a polygon gets that of its box, and what reaches past its
            image is cut; both are counted.
        flip_pairs: For "pose", the pairs of keypoints that swap when an image is flipped, such as [(1, 2)], by names or
            positions from 0; [] if none do. None: by flip_idx or the names of the JSON file. Where these do not tell, a
            finding says so, and data.yaml gets no flip_idx: Ultralytics then leaves flips out.
        split: "train", "val" or "test". It is added to a data.yaml that this function wrote before for the same names;
            Ultralytics needs train and val in it.
        images: The folder that file_name is relative to; with it, a missing image is an error.
        with_images: Leave the images where they are, copy them to output/images/SPLIT, where Ultralytics looks for
            them, or make symbolic links there.
        on_error: "stop" at entries that cannot be used, after reading all of them, or "skip" these.
        report: A JSON file for every finding.
        progress: Called with (files written, files in all).

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
     dropped       3  key-dropped: a key of the JSON file has no place in the other format: annotations.difficult, ...
    each of these, with its file: report="FILE"
    written: yolo
    train with it: yolo detect train data=yolo/data.yaml
    >>> print(Path("yolo/labels/train/000001.txt").read_text())
    3 0.882 0.442666667 0.236 0.410666667
    0 0.187 0.689333333 0.102 0.136
    0 0.475 0.697333333 0.094 0.125333333
    5 0.39 0.568 0.408 0.661333333
    """
    check_choice("task", task, YoloTask)
    check_choice("split", split, YoloSplit)
    export = folder_export(annotations, output, images, with_images, on_error, report)
    check("flip_pairs", flip_pairs, flip_pairs is None or task == "pose", "left out without task 'pose'")
    written, findings = _read(export, task, flip_pairs)
    rows = written.rows
    export.stop_on_errors(rows, findings)
    yaml_file = export.folder / "data.yaml"
    image_folder = export.folder / "images" / split
    labels = {
        Path(label_file(image_folder / rows.file_name(image))): label_text(written, boxes) for image, boxes in rows
    }
    with export.writing(findings):  # data.yaml has the splits of all runs, so nobody else may write it meanwhile
        yaml_text = _data_yaml(yaml_file, split, list(rows.table.categories.values()), written.yaml)
        export.write(rows, labels, image_folder, progress, labels=label_files(export.folder / "labels" / split, ".txt"))
        write_atomically(yaml_file, [yaml_text])
    put = (
        ""
        if export.brings_images
        else f", after putting the images into {image_folder} (or {option('with_images', 'link')})"
    )
    train = f"yolo {task} train data={shlex.quote(str(yaml_file))}"
    return export.summary(rows, findings, image_folder, f"train with it: {train}{put}")


def _read(export: FolderExport, task: YoloTask, flip_pairs: Pairs | None) -> tuple[LabelRows, list[Finding]]:
    rows, findings = export.read()
    crowds = [box for box in rows.boxes.tolist() if rows.table.crowd[box]]
    notes = [f"{rows.table.entry('annotations', box)}a crowd was left out" for box in crowds]
    findings += [Finding(str(export.source), "crowd-dropped", note=note) for note in notes]
    rows = rows.without((), crowds)
    names = [*map(rows.file_name, rows.images.tolist())]
    if names != sorted(names):
        findings.append(Finding(str(export.source), "order-changed"))
    try:
        written = label_rows(rows, task, flip_pairs)
    except ConversionError as error:  # nothing of the task is left, perhaps since those that have it are invalid
        export.stop_on_errors(rows, [*findings, *error.findings])
        raise
    of_categories = frozenset(key for key, name in OF_CATEGORIES.items() if name in written.yaml)
    dropped = dropped_keys(rows, KEYS[task], of_categories=of_categories)
    return written, [*findings, *written.findings, *clipped(rows), *dropped]


def _data_yaml(path: Path, split: str, names: list[str], more: dict[str, Any]) -> str:
    """Return the text of data.yaml with this split and those that this command wrote into it before."""
    splits = {split}
    if path.exists():
        splits |= _earlier_splits(path, names, more)
    return _yaml_text(splits, names, more)


def _earlier_splits(path: Path, names: list[str], more: dict[str, Any]) -> set[str]:
    content, text = load_yaml(path), read_text(path)  # in this order: the first one's errors name the file
    splits = set(get_args(YoloSplit)) & content.keys()
    if not text.startswith(_MADE_HERE):
        raise ConversionError(f"{path} exists and was not made by this command; give another folder, or move it away")
    if text != _yaml_text(splits, names, more):
        raise ConversionError(
            f"{path} exists with another task or other names, or was changed; give another folder, or move it away"
        )
    return splits


def _yaml_text(splits: set[str], names: list[str], more: dict[str, Any]) -> str:
    lines = [f"{split}: images/{split}\n" for split in get_args(YoloSplit) if split in splits]
    quoted = [f"  {number}: {_text(name)}\n" for number, name in enumerate(names)]
    point_names = [f"  {number}: {_text(names)}\n" for number, names in more.get("kpt_names", {}).items()]
    keys = [f"{key}: {value}\n" for key, value in more.items() if key != "kpt_names"]
    more_lines = [*keys, "kpt_names:\n", *point_names] if point_names else keys
    return "".join([_MADE_HERE, *lines, "names:\n", *quoted, *more_lines])


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
