"""Convert DOTA's label files, four corners of each object, to COCO JSON."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from detaug.converters.formats.text_rows import read_dota
from detaug.converters.records.record import AnnotationFiles
from detaug.converters.records.to_coco import Options, records_to_coco
from detaug.errors import ConversionError
from detaug.files.known_files import what_folder_has
from detaug.files.paths import PathLike, list_files
from detaug.machine.parallel import Progress
from detaug.outputs.guards import OnError
from detaug.outputs.part import check_part
from detaug.outputs.summary import Summary


def dota_to_coco(
    labels: PathLike,
    images: PathLike,
    output: PathLike,
    *,
    classes: Sequence[str] | None = None,
    on_error: OnError = "stop",
    jobs: int = 1,
    part: tuple[int, int] | None = None,
    report: PathLike | None = None,
    progress: Progress | None = None,
) -> Summary:
    """Convert DOTA's label files into one COCO JSON file, with rotated boxes.

    The corners stay as they are, in their order, also where they are not a rectangle or reach outside of the image:
    `corners`, and the same as `segmentation`. `bbox` is the box around them, cut at the image's edges. A difficult of
    more than 1 is 1.

    Raises ConversionError, an InputError, for input that cannot be converted, and InputError for arguments.

    Source: https://captain-whu.github.io/DOTA/dataset.html

    Args:
        labels: The folder of the label files, labelTxt.
        images: The folder of the images; an image without a label file has no objects, and a label file is of the image
            of its stem. A row is "x1 y1 x2 y2 x3 y3 x4 y4 class difficult", pixels of the image; rows of DOTA's heads
            (imagesource:, gsd:) are skipped.
        output: The COCO JSON file to write.
        classes: The class names in the order of their category ids; objects of other classes are dropped and reported.
            Without it all classes, sorted.
        on_error: "stop" at images and label files that cannot be used, after reading all of them, or "skip" these.
        jobs: Processes to read with.
        part: (number, of), such as (1, 3), for only the first third of the images; merge_coco joins the JSON files of
            all parts to the same bytes as one run writes.
        report: A JSON file for every finding.
        progress: Called with (images done, images in all).

    >>> from detaug.converters import coco_to_dota, dota_to_coco
    >>> _ = coco_to_dota("train.json", "dota", images="demo/VOC/JPEGImages", with_images="link")
    >>> print(dota_to_coco("dota/labelTxt", "dota/images", "from-dota.json"))
    48 images (4 without boxes), 167 boxes in 6 classes
      ball          47
      car           20
      fish          32
      house         20
      mug           28
      tree          20
    written: from-dota.json
    load it: da.CocoReader("dota/images", "from-dota.json", rotated=True)
    """
    options = Options(classes, on_error, report, progress, check_part(part), jobs)
    label_folder, image_folder = Path(labels), Path(images)
    for name, folder in (("labels", label_folder), ("images", image_folder)):
        if not folder.is_dir():
            raise ConversionError(
                f"{name} {folder} is not a folder; give DOTA's labelTxt, and the folder of its images"
            )
    files = list_files(label_folder, (".txt",), regular=False)
    if not files:
        raise ConversionError(
            f"{labels} has no label files NAME.txt; give DOTA's labelTxt{what_folder_has(label_folder)}"
        )
    contents = read_dota(AnnotationFiles(label_folder, files, image_folder, Path(output).parent))
    return records_to_coco(contents, image_folder, output, [label_folder], options, "DOTA")
