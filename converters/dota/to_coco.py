"""Convert DOTA's label files, four corners of each object, to COCO json."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from detaug.converters.coco.boxes import cut_to_image
from detaug.converters.coco.rings import keys_of_corners
from detaug.converters.coco.writer import Box, Row, annotation_row, category_rows, write_coco
from detaug.converters.conversion.arguments import OnError, check_choice, output_files
from detaug.converters.conversion.classes_and_images import alike_classes, header_findings, unused_classes
from detaug.converters.conversion.summary import Summary, refuse_nothing_left, reported, stop_on_errors
from detaug.converters.files.image_headers import IMAGE_EXTENSIONS, ImageError, ImageHeader, read_image_header
from detaug.converters.files.known_files import what_folder_has
from detaug.converters.files.matching import ImageNames, pair_by_stem, settle_claims
from detaug.converters.files.parallel import Progress, with_progress
from detaug.converters.files.paths import PathLike, list_files
from detaug.converters.files.text import is_utf8, joined_spaces, read_text
from detaug.converters.findings.finding import Finding, has_error
from detaug.errors import ConversionError, InputError

_HEADER_KEYS = ("imagesource", "gsd", "acquisition dates")


def dota_to_coco(
    labels: PathLike,
    images: PathLike,
    output: PathLike,
    *,
    classes: Sequence[str] | None = None,
    on_error: OnError = "stop",
    report: PathLike | None = None,
    progress: Progress | None = None,
) -> Summary:
    """Convert DOTA's label files into one COCO json file, with rotated boxes.

    labels: the folder of the label files, labelTxt. images: the folder of the images; an image without a label file has
    no objects, and a label file is of the image of its stem. A row is "x1 y1 x2 y2 x3 y3 x4 y4 class difficult", pixels
    of the image; rows of DOTA's heads (imagesource:, gsd:) are skipped. classes: the class names in the order of their
    category ids; objects of other classes are dropped and reported. Without it all classes, sorted.

    The corners stay as they are, in their order, also where they are no rectangle or reach outside of the image:
    `corners`, and the same as `segmentation`. `bbox` is the box around them, cut at the image's edges. A difficult of 1
    stays. on_error: "stop" at images and label files that cannot be used, after reading all of them, or "skip" these.
    report: a json file for every finding. progress: called with (images done, images in all).
    Source: https://captain-whu.github.io/DOTA/dataset.html

    Raises ConversionError, an InputError, for input that cannot be converted, and InputError for arguments.

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
    check_choice("on_error", on_error, OnError)
    label_folder, image_folder = Path(labels), Path(images)
    for name, folder in (("labels", label_folder), ("images", image_folder)):
        if not folder.is_dir():
            raise ConversionError(
                f"{name} {folder} is not a folder; give DOTA's labelTxt, and the folder of its images"
            )
    paths = output_files({"output": output, "report": report}, label_folder, image_folder)
    of_image, findings = _label_files(label_folder, image_folder)
    reading = with_progress([*of_image.items()], progress)
    results = [_read_image(image_folder, image, label_folder, label, classes) for image, label in reading]
    usable = [result for result in results if result.header and not has_error(result.findings)]
    counts = Counter(item.class_name for result in usable for item in result.objects)
    names = [*classes] if classes is not None else sorted(counts)
    findings += [finding for result in results for finding in result.findings]
    findings += [*unused_classes((name for name in names if not counts[name]), ()), *alike_classes(names)]
    stop_on_errors(findings, on_error, paths.get("report"))
    refuse_nothing_left(len(usable), label_folder, findings, paths.get("report"))
    info = {"description": "DOTA labels, converted by detaug"}
    with reported(findings, paths.get("report")):
        write_coco(paths["output"], _image_rows(usable), _annotation_rows(usable, names), category_rows(names), info)
    return Summary(
        output=paths["output"],
        image_folder=image_folder,
        images=len(usable),
        images_without_boxes=sum(not result.objects for result in usable),
        class_counts={name: counts[name] for name in names},
        findings=tuple(findings),
        report=paths.get("report"),
        next_step=f'load it: da.CocoReader("{image_folder}", "{paths["output"]}", rotated=True)',
    )


class _Object(NamedTuple):
    class_name: str
    box: Box
    keys: dict[str, Any]


class _LabelledImage(NamedTuple):
    name: str
    header: ImageHeader | None
    """None where it cannot be read."""
    objects: list[_Object]
    findings: list[Finding]


def _label_files(labels: Path, images: Path) -> tuple[dict[str, str | None], list[Finding]]:
    """Return each image with its label file, None without one; and findings about label files without an image."""
    names = ImageNames(list_files(images, IMAGE_EXTENSIONS))
    files = list_files(labels, (".txt",), regular=False)
    if not files:
        raise ConversionError(f"{labels} has no label files NAME.txt; give DOTA's labelTxt{what_folder_has(labels)}")
    pairs = pair_by_stem(files, names)
    losers = settle_claims(pairs)
    found: dict[str, str | None] = dict.fromkeys(names.names)
    findings = []
    for pair in pairs:
        assert pair.label is not None
        if pair.label in losers:
            findings.append(Finding(pair.label, "image-shared", after=pair.images[0]))
        elif pair.images:
            found[pair.images[0]] = pair.label
        else:
            findings.append(Finding(pair.label, "label-unused"))
    if not any(found.values()):
        raise ConversionError(f"{images} has the image of none of the {len(files):,} label files; give their folder")
    return found, findings


def _read_image(
    images: Path, name: str, labels: Path, label: str | None, classes: Sequence[str] | None
) -> _LabelledImage:
    if not is_utf8(name):
        return _LabelledImage(name, None, [], [Finding(name, "file-name-not-utf8")])
    try:
        header = read_image_header(os.path.join(images, name))
    except ImageError as error:
        return _LabelledImage(name, None, [], [Finding(name, error.kind, note=str(error))])
    findings = [*header_findings(name, name, header)]
    if label is None:
        findings.append(Finding(name, "label-missing"))
        return _LabelledImage(name, header, [], findings)
    try:
        text = read_text(labels / label)
    except (OSError, InputError) as error:
        note = f"cannot be read: {error.strerror}" if isinstance(error, OSError) else str(error)
        findings.append(Finding(label, "label-unreadable", note=note))
        return _LabelledImage(name, header, [], findings)
    return _LabelledImage(name, header, [*_objects(text, label, header, classes, findings)], findings)


def _objects(
    text: str, label: str, header: ImageHeader, classes: Sequence[str] | None, findings: list[Finding]
) -> Iterator[_Object]:
    for line, row in enumerate(text.splitlines(), 1):
        if not row.strip() or row.partition(":")[0].strip().lower() in _HEADER_KEYS:
            continue
        words = row.split()
        fault = _fault(words)
        if fault:
            findings.append(Finding(label, "row-invalid", None, line, row[:60], note=fault))
            continue
        name, numbers = joined_spaces(words[8]), [float(word) for word in words[:8]]
        if classes is not None and name not in classes:
            findings.append(Finding(label, "class-not-listed", None, line, before=name))
            continue
        edges = min(numbers[::2]), min(numbers[1::2]), max(numbers[::2]), max(numbers[1::2])
        box, kind = cut_to_image(edges, (header.height, header.width))
        if kind and kind != "box-clipped":  # a rotated box at the edge has corners outside
            findings.append(Finding(label, kind, None, line, numbers))
        if box:
            yield _Object(name, box, keys_of_corners(numbers) | {"difficult": int(words[9:] == ["1"])})


def _fault(words: Sequence[str]) -> str:
    rule = "must be x1 y1 x2 y2 x3 y3 x4 y4 class difficult"
    if len(words) not in (9, 10):
        return f"{rule}, got {len(words)} words"
    try:
        fits = all(math.isfinite(float(word)) and abs(float(word)) < 1e9 and "_" not in word for word in words[:8])
    except ValueError:
        fits = False
    if not fits:
        return f"{rule}, with eight finite numbers, got {' '.join(words[:8])[:60]!r}"
    if words[9:] and not words[9].isdecimal():
        return f"{rule}; difficult must be a whole number, got {words[9][:20]!r}"
    return ""


def _image_rows(results: Sequence[_LabelledImage]) -> Iterator[Row]:
    for image_id, result in enumerate(results, 1):
        assert result.header is not None
        width, height = result.header.width, result.header.height
        yield {"id": image_id, "file_name": result.name, "width": width, "height": height}


def _annotation_rows(results: Sequence[_LabelledImage], names: Sequence[str]) -> Iterator[Row]:
    ids = {name: number for number, name in enumerate(names, 1)}
    objects = ((image_id, item) for image_id, result in enumerate(results, 1) for item in result.objects)
    for annotation_id, (image_id, item) in enumerate(objects, 1):
        yield annotation_row(annotation_id, image_id, ids[item.class_name], item.box) | item.keys
