"""Convert Pascal VOC to COCO json. Numbered decisions are those of the design page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

from detaug.coco.how_to_load import how_to_load
from detaug.coco.parts import part_head, write_part
from detaug.coco.writer import Row, annotation_row, category_rows, write_coco
from detaug.converters.voc.data_set import PairReader, VocDataSet, read_data_set
from detaug.converters.voc.folders import find_folders
from detaug.converters.voc.masks import FOLDER
from detaug.converters.voc.pairs import (
    DIFFICULT,
    OCCLUDED,
    TRUNCATED,
    Difficult,
    Unlabelled,
    VocRules,
)
from detaug.converters.voc.xml import Origin
from detaug.errors import ConversionError, InputError
from detaug.files.paths import PathLike
from detaug.files.spool import Spool
from detaug.machine.parallel import Progress
from detaug.outputs.guards import OnError, check_classes, output_files
from detaug.outputs.part import check_part
from detaug.outputs.summary import (
    Summary,
    left_out_classes,
    refuse_no_object_left,
    refuse_nothing_left,
    refuse_other_classes,
    reported,
    stop_on_errors,
)

VocSummary = Summary


def voc_to_coco(
    root: PathLike,
    output: PathLike,
    split: str | None = None,
    classes: Sequence[str] | None = None,
    *,
    origin: Origin = "one",
    difficult: Difficult = "keep",
    unlabelled: Unlabelled = "keep",
    on_error: OnError = "stop",
    images: PathLike | None = None,
    annotations: PathLike | None = None,
    masks: bool = False,
    jobs: int = 1,
    part: tuple[int, int] | None = None,
    report: PathLike | None = None,
    progress: Progress | None = None,
) -> VocSummary:
    """Convert a Pascal VOC data set into one COCO json file.

    root: the devkit's folder (Annotations, JPEGImages, ImageSets/Main), or a folder with images beside their XML,
    subfolders included. images, annotations: other folders for either. split: a file of ImageSets/Main, without .txt.
    classes: the class names in the order of their category ids; objects of other classes are dropped and reported.
    Without it all classes, sorted.

    origin: "one" for pixels counted from 1 and boxes that include their last pixel, the devkit's rule (decision 1);
    "zero" for corners counted from 0 with an exclusive end. difficult: "keep" it as an attribute, make a "crowd"
    (iscrowd 1), or "drop" the object (decision 5). unlabelled: "keep" an image without XML as an image without boxes,
    or "skip" it. masks: read the masks of objects, ROOT/SegmentationObject/NAME.png, as `segmentation`, run lengths.
    The n-th object of the XML has the number n in them; where its box is elsewhere, masks go to the boxes that they
    fit. on_error: "stop" at files that cannot be used, after reading all of them, or "skip" these. jobs: processes to
    read with. part: (number, of), such as (1, 3), for only the first third of the images; merge_coco joins the jsons of
    all parts to the same bytes as one run writes. report: a json file for every finding. progress: called with (files
    done, files in all).

    The <polygon> of an object (<x1>, <y1>, ... of supervision, Roboflow and RectLabel) becomes `segmentation`, x - 1
    and y - 1 for origin "one"; without a <bndbox> the box is the one around it. roLabelImg's <robndbox> (cx, cy, w, h
    in continuous pixels, and an angle in radians, clockwise) becomes `corners`, also outside of the image, with the
    same points as `segmentation` and the box around them. Other elements of objects are counted.

    Boxes are pixels, COCO's [x, y, width, height], of the image as displayed, with EXIF orientation applied
    (decision 2), and lie inside it. The same input gives the same bytes, with any number of jobs (decision 4). The file
    is written whole or not at all.

    Raises ConversionError, an InputError, for input that cannot be converted, and InputError for arguments.

    >>> from detaug.converters import voc_to_coco
    >>> summary = voc_to_coco("demo/VOC", "val.json", split="val")
    >>> print(summary)
    12 images (0 without boxes), 36 boxes in 6 classes
      ball           9
      car            5
      fish           9
      house          4
      mug            4
      tree           5
    written: val.json
    load it: da.CocoReader("demo/VOC/JPEGImages", "val.json")
    """
    check_classes(classes)
    rules = VocRules(origin, difficult, unlabelled, on_error, None if classes is None else tuple(classes), masks)
    if jobs < 1:
        raise InputError(f"jobs must be at least 1, got {jobs}")
    paths = output_files({"output": output, "report": report}, root, images, annotations)
    folders = find_folders(Path(root), _optional_path(images), _optional_path(annotations))
    if masks and not (folders.root / FOLDER).is_dir():
        raise ConversionError(f"{folders.root / FOLDER} is not a folder; leave masks out (--masks)")
    own = check_part(part)
    with closing(Spool(paths["output"].parent)) as stored:
        dataset = read_data_set(PairReader(folders, rules, stored, jobs, progress), split, own)
        findings, counts = dataset.findings, dataset.counts
        stop_on_errors(findings, rules.on_error, paths.get("report"))
        class_counts = {name: counts[name] for name in rules.classes or sorted(counts)}
        if own is None:
            refuse_nothing_left(len(dataset.pairs), root, findings, paths.get("report"))
            refuse_other_classes(class_counts, root, findings, paths.get("report"))
            refuse_no_object_left(counts.total(), root, findings, paths.get("report"))
        info = {"description": "Pascal VOC, converted by detaug", "origin": rules.origin, "difficult": rules.difficult}
        rows = _image_rows(dataset), _annotation_rows(dataset, [*class_counts], rules), category_rows(class_counts)
        with reported(findings, paths.get("report")):
            if own is None:
                write_coco(paths["output"], *rows, info)
            else:
                left_out = left_out_classes(findings)
                head = part_head(own, dataset.names, rules.classes or (), left_out)
                write_part(paths["output"], head, info, rows, ())
    return VocSummary(
        output=paths["output"],
        image_folder=folders.images,
        images=len(dataset.pairs),
        images_without_boxes=dataset.without_boxes,
        class_counts=class_counts,
        findings=tuple(findings),
        report=paths.get("report"),
        next_step=how_to_load(paths["output"], folders.images, (), dataset.shapes),
    )


def _optional_path(path: PathLike | None) -> Path | None:
    return None if path is None else Path(path)


def _image_rows(dataset: VocDataSet) -> Iterator[Row]:
    for image_id, result in enumerate(dataset.results(), 1):
        yield {"id": image_id, "file_name": result.image, "width": result.width, "height": result.height}


_FLAG_KEYS = tuple(
    {
        "difficult": int(bool(bits & DIFFICULT)),
        "truncated": int(bool(bits & TRUNCATED)),
        "occluded": int(bool(bits & OCCLUDED)),
    }
    for bits in range(8)
)
"""Of the row of a box, by its bits."""


def _annotation_rows(dataset: VocDataSet, class_names: Sequence[str], rules: VocRules) -> Iterator[Row]:
    category_ids = {name: category_id for category_id, name in enumerate(class_names, 1)}
    annotation_id = 0
    for image_id, result in enumerate(dataset.results(), 1):
        boxes = zip(*[iter(result.xywh)] * 4, strict=True)
        columns = (result.names, boxes, result.flags, result.poses, result.keys)
        for name, box, bits, pose, keys in zip(*columns, strict=True):
            annotation_id += 1
            crowd = rules.difficult == "crowd" and bool(bits & DIFFICULT)
            row = annotation_row(annotation_id, image_id, category_ids[name], box, iscrowd=crowd)
            yield {**row, **_FLAG_KEYS[bits], "pose": pose, **keys}
