"""Convert YOLO text labels, in Ultralytics' layout, to COCO JSON."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from detaug.coco.boxes import BoxNumbers
from detaug.converters.records.images import Images
from detaug.converters.records.placing import Placed
from detaug.converters.records.record import AnnotationFiles, Contents, Record, unreadable
from detaug.converters.records.to_coco import Options, records_to_coco
from detaug.converters.yolo.files import DataYaml, SplitImages, find_images, label_file, split_key
from detaug.converters.yolo.labels import LabelLog, RowForm, YoloTask, read_boxes
from detaug.converters.yolo.pairing import Labels, find_labels, relative_to
from detaug.converters.yolo.poses import fault_of_outlines
from detaug.converters.yolo.without_yaml import read_data_set
from detaug.errors import ConversionError, InputError
from detaug.files.paths import PathLike, stem_of
from detaug.files.text import read_text
from detaug.findings.finding import Finding, on_one_line
from detaug.machine.parallel import Progress
from detaug.outputs.guards import OnError, check_choice, output_files
from detaug.outputs.part import check_part
from detaug.outputs.summary import Summary


def yolo_to_coco(
    data: PathLike,
    output: PathLike,
    split: str = "train",
    *,
    task: YoloTask | None = None,
    classes: Sequence[str] | None = None,
    on_error: OnError = "stop",
    images: PathLike | None = None,
    jobs: int = 1,
    part: tuple[int, int] | None = None,
    report: PathLike | None = None,
    progress: Progress | None = None,
) -> Summary:
    """Convert one split of a YOLO dataset into one COCO JSON file.

    The labels of images/a/b.jpg are labels/a/b.txt, by Ultralytics' rule that the last /images/ of a path becomes
    /labels/; without an /images/ they are beside the image. Names of labels may differ in case or Unicode form, end in
    .jpg.txt, or be beside their images, and it is noted. An image without a label file, or with an empty one, has no
    boxes.

    A row is "class cx cy w h", relative to the image as displayed, EXIF orientation applied. A row of a class and at
    least three points is a polygon: `segmentation`, and its box is the smallest that holds its points. With kpt_shape
    in the data.yaml, keypoints follow the box: `keypoints` in COCO's pixels, which count from 0 at their centers.
    Anything else is an error, such as 6 numbers (a prediction with its confidence), and so are coordinates over 1.01 or
    under -0.01. Boxes are pixels, COCO's [x, y, width, height], rounded to 3 decimals and cut at the image's edges; a
    cut of more than 0.01 pixel is reported. Class number 0 becomes category id 1.

    Raises ConversionError, an InputError, for input that cannot be converted, and InputError for arguments.

    The JSON file's file names are relative to the split's folder, or the deepest one that holds all its images:
    Summary.image_folder.

    Args:
        data: A data.yaml or an obj.data, or the folder that holds one, or a folder with classes.txt or obj.names. A
            data.yaml has path (relative to the yaml's folder; the yaml's folder itself if it does not exist), train,
            val, test (each a folder, a .txt with an image on each line, or a list of these) and names (a list, or a
            mapping from 0). Without one, classes are the lines of the file that obj.data names, obj.names or
            classes.txt, and splits those of obj.data, lists such as train.txt, folders such as train or images/train,
            or else all images as train.
        output: The COCO JSON file to write.
        split: The split of data.yaml to read; None: all images.
        task: "obb" for rows of a class and the four corners of a rotated box, which cannot be told from a polygon of
            four points: `corners`, in the order of the row, also outside of the image, and the same points as
            `segmentation`. "pose" needs kpt_shape. None: `task` of the data.yaml, or else what the rows show.
            Categories get `flip_idx`, and as `keypoints` the names of kpt_names; without these point_1, ... if there is
            a flip_idx: names say which points swap places in a flipped image.
        classes: The class names in the order of their category ids; objects of other classes are dropped and reported.
            Without it those of the data.yaml.
        on_error: "stop" at images and label files that cannot be used, after reading all of them, or "skip" these.
        images: The folder that the splits' folders of images are below, if it is not that of the labels:
            IMAGES/images/train of ROOT/labels/train.
        jobs: Processes to read with.
        part: (number, of), such as (1, 3), for only the first third of the images; merge_coco joins the JSON files of
            all parts to the same bytes as one run writes.
        report: A JSON file for every finding.
        progress: Called with (images done, images in all).

    >>> from detaug.converters import coco_to_yolo, yolo_to_coco
    >>> coco_to_yolo("train.json", "yolo", images="demo/VOC/JPEGImages", with_images="link").boxes
    167
    >>> print(yolo_to_coco("yolo", "from-yolo.json"))
    48 images (4 without boxes), 167 boxes in 6 classes
      ball          47
      car           20
      fish          32
      house         20
      mug           28
      tree          20
    written: from-yolo.json
    load it: da.CocoReader("...yolo/images/train", "from-yolo.json")
    """
    options = Options(classes, on_error, report, progress, check_part(part), jobs)
    folder = None if images is None else Path(images)
    if folder and not folder.is_dir():
        raise ConversionError(f"images {folder} is not a folder; give the one that holds the splits' images")
    dataset = _with_task(read_data_set(Path(data), folder), task)
    inputs = dataset.path, dataset.path.parent, dataset.root
    output_files({"output": output, "report": report}, *inputs)  # before all is read
    contents = _contents(dataset, split)
    return records_to_coco(contents, dataset.images, output, inputs, options, contents.title)


def read_yolo(source: AnnotationFiles, split: str | None = None) -> Contents:
    """Read a split of the dataset that a folder holds, or a data.yaml, as `yolo_to_coco` does."""
    dataset = read_data_set(source.path or source.folder, source.other_images)
    return _contents(_with_task(dataset, None), split or "train")


def _contents(dataset: DataYaml, split: str) -> Contents:
    images = find_images(dataset, split)
    labels = find_labels(images, dataset)
    _refuse_no_labels(images, labels, dataset)
    form = RowForm(len(dataset.class_names), dataset.key_points, dataset.task == "obb")
    return Contents(
        _records(images, labels, dataset),
        total=len(images.names),
        place=partial(_place, form, dataset.class_names, dataset.root),
        class_names=dataset.class_names,
        findings=[*images.findings, *labels.others],
        files=1,  # the name of an image tells its label file
        finder=Images(images.folder, images.names),
        images=images.names,
        title="YOLO labels",
        info={"split": split},
        keeps_folder=True,
        categories=_category_keys(dataset),
        other_splits=[name for name in dataset.splits if name != split_key(dataset, split)],
        fault=None if dataset.key_points or dataset.task else fault_of_outlines,
    )


def _with_task(dataset: DataYaml, task: YoloTask | None) -> DataYaml:
    """Return the dataset with the task that its rows are read for. Raises ConversionError for pose without points."""
    if task is not None:
        check_choice("task", task, YoloTask)
    task = task or dataset.task
    if task == "pose" and not dataset.key_points:
        rule = "task pose needs kpt_shape: [number of keypoints, 2 or 3] in the data.yaml"
        raise ConversionError(f"{dataset.path}: {rule}; write it, or give another task")
    return dataset._replace(task=task, key_points=None if task in ("segment", "obb") else dataset.key_points)


def _refuse_no_labels(images: SplitImages, labels: Labels, dataset: DataYaml) -> None:
    """Raise ConversionError if no label file exists: the layout is another, rather than every image without boxes."""
    folder = os.path.abspath(images.folder)
    has_label = any(labels.of_image(os.path.join(folder, name)) for name in images.names)
    if images.names and not has_label and not labels.findings:
        first = label_file(dataset.in_root(os.path.join(folder, images.names[0])))
        raise ConversionError(
            f"none of the {len(images.names):,} images has a label file; the first would be {on_one_line(first)}"
        )


def _records(images: SplitImages, labels: Labels, dataset: DataYaml) -> Iterator[Record]:
    """Yield the images of a split; the stem is that of the label file, none for an image without one.

    An image without one is called as the label file that is missed, if nothing else is said about it.
    """
    folder = os.path.abspath(images.folder)
    for name in images.names:
        path = os.path.join(folder, name)
        findings = labels.findings.get(path, [])
        if label := labels.of_image(path):
            file = relative_to(dataset.root, label)
            yield Record(file, image=name, stem=stem_of(file), findings=[*findings])
        else:
            missing = "" if findings else labels.name(label_file(dataset.in_root(path)))
            yield Record(name, image=name, called=missing, findings=[*findings])


def _place(
    form: RowForm, class_names: Sequence[str], root: Path, record: Record, size: tuple[int, int], _: BoxNumbers
) -> tuple[list[Placed], list[Placed]]:
    """Return the objects of an image of size (H, W), and no regions: rows are relative to it."""
    if not record.stem and record.called:
        record.findings.append(Finding(record.called, "label-missing"))
    try:
        text = read_text(os.path.join(root, record.file)) if record.stem else ""
    except (OSError, InputError) as error:
        record.findings.append(unreadable(record.file, error))
        return [], []
    boxes = read_boxes(text, form, size, LabelLog(record.file, record.findings))
    objects = [Placed(class_names[box.number], box.box, box.keys, {}, False, None, {}, box.line, None) for box in boxes]
    return objects, []


def _category_keys(dataset: DataYaml) -> dict[str, dict[str, Any]]:
    """Return the further keys of the rows of classes."""
    keys = {}
    for name, names in zip(dataset.class_names, dataset.point_names, strict=True):
        if dataset.key_points:
            count, flips = dataset.key_points[0], dataset.flip_idx
            names = names or [f"point_{number}" for number in range(1, count + 1) if flips]
            keys[name] = {key: value for key, value in (("keypoints", names), ("flip_idx", flips)) if value}
    return keys
