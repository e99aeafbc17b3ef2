"""Convert YOLO text labels, in Ultralytics' layout, to COCO json."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

from detaug.coco.classes_and_images import header_findings
from detaug.coco.how_to_load import how_to_load, shapes_of
from detaug.coco.parts import part_head, write_part
from detaug.coco.writer import Row, annotation_row, category_rows, write_coco
from detaug.converters.yolo.files import (
    DataYaml,
    SplitImages,
    find_images,
    label_file,
    split_key,
)
from detaug.converters.yolo.labels import LabelBox, LabelLog, RowForm, YoloTask, read_boxes
from detaug.converters.yolo.pairing import Labels, find_labels, relative_to
from detaug.converters.yolo.poses import PoseSigns
from detaug.converters.yolo.without_yaml import read_data_set
from detaug.errors import ConversionError, InputError
from detaug.files.image_headers import ImageError, ImageHeader, read_image_header
from detaug.files.paths import PathLike
from detaug.files.spool import Spool
from detaug.files.text import is_utf8, read_text
from detaug.findings.finding import Finding, has_error, on_one_line
from detaug.machine.parallel import Progress, with_progress
from detaug.outputs.guards import OnError, check_choice, output_files
from detaug.outputs.part import check_part
from detaug.outputs.summary import (
    Summary,
    refuse_no_object_left,
    refuse_nothing_left,
    refuse_other_numbers,
    reported,
    stop_on_errors,
)


def yolo_to_coco(
    data: PathLike,
    output: PathLike,
    split: str = "train",
    *,
    task: YoloTask | None = None,
    on_error: OnError = "stop",
    part: tuple[int, int] | None = None,
    report: PathLike | None = None,
    progress: Progress | None = None,
) -> Summary:
    """Convert one split of a YOLO data set into one COCO json file.

    data: a data.yaml or an obj.data, or the folder that holds one, or a folder with classes.txt or obj.names. A
    data.yaml has path (relative to the yaml's folder; the yaml's folder itself if it does not exist), train, val, test
    (each a folder, a .txt with an image on each line, or a list of these) and names (a list, or a mapping from 0).
    Without one, classes are the lines of the file that obj.data names, obj.names or classes.txt, and splits those of
    obj.data, lists such as train.txt, folders such as train or images/train, or else all images as train.

    The labels of images/a/b.jpg are labels/a/b.txt, by Ultralytics' rule that the last /images/ of a path becomes
    /labels/; without an /images/ they are beside the image. Names of labels may differ in case or Unicode form, end in
    .jpg.txt, or be beside their images, and it is noted. An image without a label file, or with an empty one, has no
    boxes.

    A row is "class cx cy w h", relative to the image as displayed, EXIF orientation applied. A row of a class and at
    least three points is an outline: `segmentation`, and its box is the smallest that holds its points. With kpt_shape
    in the data.yaml, key points follow the box: `keypoints` in COCO's pixels, which count from 0 at their centres.
    Anything else is an error, such as 6 numbers (a prediction with its confidence), and so are coordinates over 1.01 or
    under -0.01. Boxes are pixels, COCO's [x, y, width, height], rounded to 3 decimals and cut at the image's edges; a
    cut of more than 0.01 pixel is reported. Class number 0 becomes category id 1.

    task: "obb" for rows of a class and the four corners of a rotated box, which cannot be told from an outline of four
    points: `corners`, in the order of the row, also outside of the image, and the same points as `segmentation`.
    "pose" needs kpt_shape. None: `task` of the data.yaml, or else what the rows show. Categories get `flip_idx`, and
    as `keypoints` the names of kpt_names; without these point_1, ... if there is a flip_idx: names say which points
    change places in a mirrored image.

    on_error: "stop" at images and label files that cannot be used, after reading all of them, or "skip" these. part:
    (number, of), such as (1, 3), for only the first third of the images; merge_coco joins the jsons of all parts to the
    same bytes as one run writes. report: a json file for every finding. progress: called with (images done, images in
    all). The json's file names are relative to the split's folder, or the deepest one that holds all its images:
    Summary.image_folder.

    Raises ConversionError, an InputError, for input that cannot be converted, and InputError for arguments.

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
    check_choice("on_error", on_error, OnError)
    dataset = _with_task(read_data_set(Path(data)), task)
    source = dataset.path
    paths = output_files({"output": output, "report": report}, source, source.parent, dataset.root)
    images = find_images(dataset, split)
    labels = find_labels(images, dataset.root)
    own = check_part(part)
    names = images.names if own is None else own.items(images.names)
    with closing(Spool(paths["output"].parent)) as stored:
        usable, counts, without_boxes, findings = list[str](), Counter[int](), 0, [*images.findings]
        shapes, poses = set[str](), PoseSigns()
        for name in with_progress(names, progress):
            header, boxes, about = _read_image(dataset, images.folder, name, labels)
            findings += about
            if header and not has_error(about):
                usable.append(name)
                stored.put((header.width, header.height, [*map(tuple, boxes)]))
                counts.update(box.number for box in boxes)
                if not (dataset.key_points or dataset.task):
                    poses.add(boxes, (header.height, header.width))
                shapes |= shapes_of(box.keys for box in boxes)
                without_boxes += not boxes
        class_counts = {name: counts[number] for number, name in enumerate(dataset.class_names)}
        findings += [
            *labels.others,
            *(Finding("", "class-unused", before=name) for name in class_counts if not class_counts[name]),
        ]
        stop_on_errors(findings, on_error, paths.get("report"))
        _refuse_no_labels(images, labels)
        refuse_other_numbers(poses.fault(), source, findings, paths.get("report"))
        if own is None:
            refuse_nothing_left(len(usable), source, findings, paths.get("report"))
            refuse_no_object_left(counts.total(), source, findings, paths.get("report"))
        info = {"description": "YOLO labels, converted by detaug", "split": split}
        rows = _image_rows(usable, stored), _annotation_rows(stored), _category_rows(dataset)
        with reported(findings, paths.get("report")):
            if own is None:
                write_coco(paths["output"], *rows, info)
            else:
                write_part(paths["output"], part_head(own, images.names, dataset.class_names), info, rows, ())
    return Summary(
        output=paths["output"],
        image_folder=images.folder,
        images=len(usable),
        images_without_boxes=without_boxes,
        class_counts=class_counts,
        findings=tuple(findings),
        report=paths.get("report"),
        other_splits=tuple(name for name in dataset.splits if name != split_key(dataset, split)),
        next_step=how_to_load(paths["output"], images.folder, (), shapes),
    )


def _with_task(dataset: DataYaml, task: YoloTask | None) -> DataYaml:
    """Return the data set with the task that its rows are read for. Raises ConversionError for pose without points."""
    if task is not None:
        check_choice("task", task, YoloTask)
    task = task or dataset.task
    if task == "pose" and not dataset.key_points:
        rule = "task pose needs kpt_shape: [number of key points, 2 or 3] in the data.yaml"
        raise ConversionError(f"{dataset.path}: {rule}; write it, or give another task")
    return dataset._replace(task=task, key_points=None if task in ("segment", "obb") else dataset.key_points)


def _refuse_no_labels(images: SplitImages, labels: Labels) -> None:
    """Raise ConversionError if no label file exists: the layout is another, rather than every image without boxes."""
    folder = os.path.abspath(images.folder)
    has_label = any(labels.of_image(os.path.join(folder, name)) for name in images.names)
    if images.names and not has_label and not labels.findings:
        first = label_file(images.folder / images.names[0])
        raise ConversionError(
            f"none of the {len(images.names):,} images has a label file; the first would be {on_one_line(first)}"
        )


def _read_image(
    dataset: DataYaml, folder: Path, name: str, labels: Labels
) -> tuple[ImageHeader | None, list[LabelBox], list[Finding]]:
    """Return the header of an image, None where it cannot be read, its boxes, and findings."""
    path = os.path.join(folder, name)
    if not is_utf8(name):
        return None, [], [Finding(name, "file-name-not-utf8")]
    try:
        header = read_image_header(path)
    except ImageError as error:
        return None, [], [Finding(name, error.kind, note=str(error))]
    findings = [*header_findings(name, name, header)]
    path = os.path.join(os.path.abspath(folder), name)
    about_label = labels.findings.get(path, [])
    findings += about_label
    if label := labels.of_image(path):
        return header, _read_labels(label, dataset, header, findings), findings
    if not about_label:
        findings.append(Finding(labels.name(label_file(path)), "label-missing"))
    return header, [], findings


def _read_labels(path: str, dataset: DataYaml, header: ImageHeader, findings: list[Finding]) -> list[LabelBox]:
    label = relative_to(dataset.root, path)
    try:
        text = read_text(path)
    except OSError as error:
        findings.append(Finding(label, "label-unreadable", note=f"cannot be read: {error.strerror}"))
        return []
    except InputError as error:
        findings.append(Finding(label, "label-unreadable", note=str(error)))
        return []
    form = RowForm(len(dataset.class_names), dataset.key_points, dataset.task == "obb")
    return [*read_boxes(text, form, (header.height, header.width), LabelLog(label, findings))]


def _image_rows(names: Sequence[str], stored: Spool) -> Iterator[Row]:
    for image_id, (name, (width, height, _)) in enumerate(zip(names, stored, strict=True), 1):
        yield {"id": image_id, "file_name": name, "width": width, "height": height}


def _annotation_rows(stored: Spool) -> Iterator[Row]:
    boxes = ((image_id, *box) for image_id, (_, _, boxes) in enumerate(stored, 1) for box in boxes)
    for annotation_id, (image_id, number, box, keys) in enumerate(boxes, 1):
        yield annotation_row(annotation_id, image_id, number + 1, box) | keys


def _category_rows(dataset: DataYaml) -> Iterator[Row]:
    for row, names in zip(category_rows(dataset.class_names), dataset.point_names, strict=True):
        keys: dict[str, object] = {}
        if dataset.key_points:
            count, flips = dataset.key_points[0], dataset.mirrored
            names = names or [f"point_{number}" for number in range(1, count + 1) if flips]
            keys = {name: value for name, value in (("keypoints", names), ("flip_idx", flips)) if value}
        yield {**row, **keys}
