"""Convert Pascal VOC to COCO JSON. Numbered decisions are those of the design page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from detaug.arguments import renamed
from detaug.converters.records.record import AnnotationFiles, Contents
from detaug.converters.records.to_coco import Options, records_to_coco
from detaug.converters.voc.folders import Folders, find_folders
from detaug.converters.voc.masks import FOLDER
from detaug.converters.voc.placing import Difficult, VocRules
from detaug.converters.voc.reading import contents_of
from detaug.converters.voc.xml import Origin
from detaug.errors import ConversionError
from detaug.files.paths import PathLike
from detaug.machine.parallel import Progress
from detaug.named_options import option
from detaug.outputs.guards import OnError, check_choice, output_files
from detaug.outputs.part import check_part
from detaug.outputs.summary import Summary

Unlabeled = Literal["keep", "skip"]

VocSummary = Summary

TITLE = "Pascal VOC"


@renamed(unlabelled="unlabeled")
def voc_to_coco(
    root: PathLike,
    output: PathLike,
    split: str | None = None,
    classes: Sequence[str] | None = None,
    *,
    origin: Origin = "one",
    difficult: Difficult = "keep",
    unlabeled: Unlabeled = "keep",
    on_error: OnError = "stop",
    images: PathLike | None = None,
    annotations: PathLike | None = None,
    masks: bool = False,
    jobs: int = 1,
    part: tuple[int, int] | None = None,
    report: PathLike | None = None,
    progress: Progress | None = None,
) -> VocSummary:
    """Convert a Pascal VOC dataset into one COCO JSON file.

    The <polygon> of an object (<x1>, <y1>, ... of supervision, Roboflow and RectLabel) becomes `segmentation`, x - 1
    and y - 1 for origin "one"; without a <bndbox> the box is the one around it. roLabelImg's <robndbox> (cx, cy, w, h
    in continuous pixels, and an angle in radians, clockwise) becomes `corners`, also outside of the image, with the
    same points as `segmentation` and the box around them. Other elements of objects are counted.

    Boxes are pixels, COCO's [x, y, width, height], of the image as displayed, with EXIF orientation applied (decision
    2), and lie inside it. The same input gives the same bytes, with any number of jobs (decision 4). The file is
    written whole or not at all.

    Raises ConversionError, an InputError, for input that cannot be converted, and InputError for arguments.

    Args:
        root: The devkit's folder (Annotations, JPEGImages, ImageSets/Main), or a folder with images beside their XML,
            subfolders included.
        output: The COCO JSON file to write.
        split: A file of ImageSets/Main, without .txt.
        classes: The class names in the order of their category ids; objects of other classes are dropped and reported.
            Without it all classes, sorted.
        origin: "one" for pixels counted from 1 and boxes that include their last pixel, the devkit's rule (decision 1);
            "zero" for corners counted from 0 with an exclusive end.
        difficult: "keep" it as an attribute, make a "crowd" (iscrowd 1), or "drop" the object (decision 5).
        unlabeled: "keep" an image without XML as an image without boxes, or "skip" it.
        on_error: "stop" at files that cannot be used, after reading all of them, or "skip" these.
        images, annotations: Other folders for either.
        masks: Read the masks of objects, ROOT/SegmentationObject/NAME.png, as `segmentation`, RLE. The n-th object of
            the XML has the number n in them; where its box is elsewhere, masks go to the boxes that they fit.
        jobs: Processes to read with.
        part: (number, of), such as (1, 3), for only the first third of the images; merge_coco joins the JSON files of
            all parts to the same bytes as one run writes.
        report: A JSON file for every finding.
        progress: Called with (files done, files in all).

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
    _check(origin, difficult, unlabeled)
    options = Options(classes, on_error, report, progress, check_part(part), jobs)
    inputs = [path for path in (root, images, annotations) if path is not None]
    output_files({"output": output, "report": report}, *inputs)
    folders = find_folders(
        Path(root), None if images is None else Path(images), None if annotations is None else Path(annotations)
    )
    contents = _contents(folders, split, origin, difficult, unlabeled, masks=masks)
    return records_to_coco(contents, folders.images, output, inputs, options, TITLE)


def read_voc(
    source: AnnotationFiles,
    split: str | None = None,
    *,
    origin: Origin = "one",
    difficult: Difficult = "keep",
    unlabeled: Unlabeled = "keep",
    masks: bool = False,
) -> Contents:
    """Read the XML files of the source's folder, of which they are all, as `voc_to_coco` does."""
    _check(origin, difficult, unlabeled)
    if source.path not in (None, source.folder):
        raise ConversionError(f"{source.path} is the Pascal VOC XML of one image; give its folder, {source.folder}")
    return _contents(find_folders(source.folder, source.other_images), split, origin, difficult, unlabeled, masks=masks)


def _check(origin: Origin, difficult: Difficult, unlabeled: Unlabeled) -> None:
    check_choice("origin", origin, Origin)
    check_choice("difficult", difficult, Difficult)
    check_choice("unlabeled", unlabeled, Unlabeled)


def _contents(
    folders: Folders, split: str | None, origin: Origin, difficult: Difficult, unlabeled: Unlabeled, *, masks: bool
) -> Contents:
    if masks and not (folders.root / FOLDER).is_dir():
        raise ConversionError(f"{folders.root / FOLDER} is not a folder; leave {option('masks')} out")
    return contents_of(folders, split, VocRules(origin, difficult, masks), keeps_unlabeled=unlabeled == "keep")
