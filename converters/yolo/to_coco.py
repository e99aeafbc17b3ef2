"""YOLO text labels, in Ultralytics' layout, to COCO json.

from detaug.converters import yolo_to_coco
summary = yolo_to_coco("coco8/data.yaml", "val.json", split="val")
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, get_args

from detaug.converters.coco.writer import Row, whole, write_coco
from detaug.converters.conversion.choices import OnError, Progress
from detaug.converters.conversion.images import header_findings
from detaug.converters.conversion.outputs import output_files
from detaug.converters.conversion.summary import Summary, report_and_stop
from detaug.converters.files.image_headers import ImageError, ImageHeader, read_image_header
from detaug.converters.files.paths import PathLike
from detaug.converters.files.text import read_text
from detaug.converters.findings.errors import ConversionError
from detaug.converters.findings.finding import Finding
from detaug.converters.voc.pairs import MIN_SIDE, Corners
from detaug.converters.yolo.files import (
    DataYaml,
    SplitImages,
    find_data_yaml,
    find_images,
    label_file,
    read_data_yaml,
    unused_labels,
)

_LARGEST = 1.01  # as Ultralytics: what is larger is not relative to the image
_DECIMALS = 3  # of a pixel: what the customary six decimals of a side hold
_ROUNDING = 0.01  # pixels that a box may leave its image by for the decimals it is written with


def yolo_to_coco(
    data: PathLike,
    output: PathLike,
    split: str = "train",
    *,
    on_error: OnError = "stop",
    report: PathLike | None = None,
    progress: Progress | None = None,
) -> Summary:
    """Convert one split of a YOLO data set into one COCO json file.

    data: a data.yaml, or the folder that holds it: path (relative to the yaml's folder; if that is not there,
    the yaml's folder itself), train, val, test (each a folder, a .txt with an image a line, or a list of
    these) and names (a list, or a mapping from 0). The labels of images/a/b.jpg are labels/a/b.txt, by
    Ultralytics' rule that the last /images/ of a path becomes /labels/; where there is none they are beside the
    image. An image without a label file, or with an empty one, has no boxes.

    A row is "class cx cy w h", relative to the image as displayed, EXIF orientation applied. A row of a class
    and three points or more is a polygon: its box is the smallest that holds its points. Anything else, 6
    numbers (a prediction with its confidence) among it, is an error, and so are coordinates over 1.01 or
    under -0.01. Boxes are pixels, COCO's [x, y, width, height], rounded to 3 decimals and cut at the image's edges;
    a cut of more than 0.01 pixel is reported. Class number 0 becomes category id 1.

    on_error: "stop" at images and label files that cannot be used, after looking at all of them, or "skip"
    these. report: a json file for every finding (see findings.KINDS). progress: called with (images done,
    images in all). The json's file names are relative to the split's folder, or the deepest one that holds
    all its images: Summary.image_folder.

    Raises ConversionError, a ValueError, for input that cannot be converted, and ValueError for arguments.

    >>> from detaug.converters import coco_to_yolo, yolo_to_coco
    >>> coco_to_yolo("train.json", "yolo", images="demo/VOC/JPEGImages", with_images="link").boxes
    168
    >>> print(yolo_to_coco("yolo", "from-yolo.json"))
    48 images (4 without boxes), 168 boxes in 6 classes
      ball          39
      car           29
      fish          31
      house         18
      mug           27
      tree          24
    written: from-yolo.json
    load it: da.CocoReader("...yolo/images/train", "from-yolo.json")
    """
    if on_error not in get_args(OnError):
        raise ValueError(f"on_error must be one of {', '.join(get_args(OnError))}, got {on_error!r}")
    source = find_data_yaml(Path(data))
    paths = output_files({"output": output, "report": report}, source)
    dataset = read_data_yaml(source)
    images = find_images(dataset, split)
    results = _read_all(dataset, images, progress)
    _refuse_no_labels(images, results)
    findings = [*images.findings, *(finding for result in results for finding in result.findings)]
    findings += [Finding(path, "label-unused") for path in unused_labels(images.folder, images.names)]
    usable = [result for result in results if result.header and not result.failed]
    counts = Counter(number for result in usable for number, _ in result.boxes)
    findings += [
        Finding("", "class-unused", before=name) for n, name in enumerate(dataset.class_names) if not counts[n]
    ]
    report_and_stop(findings, on_error, paths.get("report"))
    if not usable:
        raise ConversionError(f"{source}: no image is left to write; nothing was written", findings)
    _write(paths["output"], usable, dataset, split)
    return Summary(
        paths["output"],
        images.folder,
        len(usable),
        sum(not result.boxes for result in usable),
        {name: counts[number] for number, name in enumerate(dataset.class_names)},
        tuple(findings),
        paths.get("report"),
    )


class _Labelled(NamedTuple):
    """One image: boxes are (class number, COCO's box in pixels)."""

    name: str
    header: ImageHeader | None
    boxes: list[tuple[int, Corners]]
    findings: list[Finding]

    @property
    def failed(self) -> bool:
        return any(finding.effect == "error" for finding in self.findings)


def _read_all(dataset: DataYaml, images: SplitImages, progress: Progress | None) -> list[_Labelled]:
    results = []
    for name in images.names:
        results.append(_read_image(dataset, images.folder, name))
        if progress and (len(results) % 64 == 0 or len(results) == len(images.names)):
            progress(len(results), len(images.names))
    return results


def _refuse_no_labels(images: SplitImages, results: Sequence[_Labelled]) -> None:
    """Not one label file is there: this is another layout, not a data set without objects."""
    missing = [finding for result in results for finding in result.findings if finding.kind == "label-missing"]
    if results and len(missing) == len(results):
        first = label_file(os.path.join(images.folder, images.names[0]))
        raise ConversionError(f"none of the {len(results):,} images has a label file; the first would be {first}")


def _read_image(dataset: DataYaml, folder: Path, name: str) -> _Labelled:
    path = os.path.join(folder, name)
    try:
        name.encode()
        header = read_image_header(path)
    except ImageError as error:
        return _Labelled(name, None, [], [Finding(name, error.kind, note=str(error))])
    except UnicodeEncodeError:
        return _Labelled(name, None, [], [Finding(name, "file-name-not-utf8")])
    findings = [*header_findings(name, name, header)]
    return _Labelled(name, header, _read_labels(label_file(path), dataset, header, findings), findings)


def _read_labels(
    path: str, dataset: DataYaml, header: ImageHeader, findings: list[Finding]
) -> list[tuple[int, Corners]]:
    label = _short(path, dataset.root)
    try:
        lines = read_text(Path(path)).split("\n")
    except FileNotFoundError:
        findings.append(Finding(label, "label-missing"))
        return []
    except (OSError, ValueError) as error:
        findings.append(Finding(label, "label-unreadable", note=str(error)))
        return []
    log = _Log(label, findings)
    return [*_boxes(lines, len(dataset.class_names), (header.height, header.width), log)]


def _short(path: str, root: Path) -> str:
    """Relative to the data set's root, if below it."""
    relative = os.path.relpath(path, root)
    return path if relative.startswith("..") else Path(relative).as_posix()


class _Log(NamedTuple):
    """The findings of one label file."""

    file: str
    findings: list[Finding]

    def add(self, kind: str, line: int, before: object = None, after: object = None, note: str = "") -> None:
        self.findings.append(Finding(self.file, kind, None, line, before, after, note))


class _BadRowError(ValueError):
    """A row that cannot be read: the kind of finding and why."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def _boxes(lines: Sequence[str], classes: int, size: tuple[int, int], log: _Log) -> Iterator[tuple[int, Corners]]:
    """The boxes of a label file, in pixels of an image of size (H, W)."""
    seen = set()
    for line, text in enumerate(lines, 1):
        if not text.strip():
            continue
        try:
            number, numbers = _row(text.split(), classes)
        except _BadRowError as error:
            log.add(error.kind, line, text[:60], note=str(error))
            continue
        if len(numbers) > 4:
            log.add("polygon-boxed", line, before=len(numbers) // 2)
        box = _placed(numbers, size, line, log)
        if box is None:
            continue
        if (number, box) in seen:
            log.add("box-repeated", line, numbers, list(box))
        seen.add((number, box))
        yield number, box


def _row(words: Sequence[str], classes: int) -> tuple[int, list[float]]:
    """(class number, the numbers behind it) of a row. Raises _BadRowError."""
    try:
        numbers = [float(word) for word in words]
    except ValueError:
        raise _BadRowError("row-invalid", f"must be numbers, got {' '.join(words)[:60]!r}") from None
    if "_" in "".join(words) or not all(map(math.isfinite, numbers)):
        raise _BadRowError("row-invalid", f"must be finite numbers, got {' '.join(words)[:60]!r}")
    if len(numbers) != 5 and (len(numbers) < 7 or len(numbers) % 2 == 0):
        rule = "must be a class and 4 numbers, or a class and 3 points or more"
        raise _BadRowError("row-invalid", f"{rule}, got {len(numbers)} numbers")
    number, coordinates = numbers[0], numbers[1:]
    if number != int(number) or not 0 <= number < classes:
        raise _BadRowError(
            "class-unknown", f"class must be a whole number from 0 to {classes - 1}, got {words[0][:20]}"
        )
    if not all(1 - _LARGEST <= coordinate <= _LARGEST for coordinate in coordinates):
        rule = "coordinates must be relative to the image, from 0 to 1"
        raise _BadRowError("row-not-relative", f"{rule}, got {max(coordinates, key=abs):g}; divide pixels by its size")
    return int(number), coordinates


def _placed(numbers: list[float], size: tuple[int, int], line: int, log: _Log) -> Corners | None:
    """COCO's box in pixels, inside an image of size (H, W); None, with a finding, where nothing is left of it."""
    sides = (size[1], size[0]) * 2
    edges = [round(edge * side, _DECIMALS) for edge, side in zip(_edges(numbers), sides, strict=True)]
    inside = [min(max(edge, 0), side) for edge, side in zip(edges, sides, strict=True)]
    past = max(abs(edge - cut) for edge, cut in zip(edges, inside, strict=True))
    if inside[2] - inside[0] < MIN_SIDE or inside[3] - inside[1] < MIN_SIDE:
        log.add("box-empty" if edges == inside else "box-outside", line, numbers)
        return None
    left, top, right, bottom = inside
    box = (left, top, round(right - left, _DECIMALS), round(bottom - top, _DECIMALS))
    if past > _ROUNDING:
        log.add("box-clipped", line, numbers, [*map(whole, box)])
    return box


def _edges(numbers: list[float]) -> Corners:
    """(left, top, right, bottom) of a row's "cx cy w h", or of the points x1 y1 x2 y2 ... of its polygon."""
    if len(numbers) == 4:
        x, y, width, height = numbers
        return x - width / 2, y - height / 2, x + width / 2, y + height / 2
    return min(numbers[::2]), min(numbers[1::2]), max(numbers[::2]), max(numbers[1::2])


# ----------------------------------------------------------------------------------------------------------
# The result


def _write(path: Path, results: Sequence[_Labelled], dataset: DataYaml, split: str) -> None:
    categories = ({"id": number, "name": name} for number, name in enumerate(dataset.class_names, 1))
    info = {"description": "YOLO labels, converted by detaug", "split": split}
    write_coco(path, _image_rows(results), _annotation_rows(results), categories, info)


def _image_rows(results: Sequence[_Labelled]) -> Iterator[Row]:
    for image_id, result in enumerate(results, 1):
        assert result.header is not None
        yield {
            "id": image_id,
            "file_name": result.name,
            "width": result.header.width,
            "height": result.header.height,
        }


def _annotation_rows(results: Sequence[_Labelled]) -> Iterator[Row]:
    boxes = ((image_id, *box) for image_id, result in enumerate(results, 1) for box in result.boxes)
    for annotation_id, (image_id, number, box) in enumerate(boxes, 1):
        yield {
            "id": annotation_id,
            "image_id": image_id,
            "category_id": number + 1,
            "bbox": [*map(whole, box)],
            "area": whole(box[2] * box[3]),
            "iscrowd": 0,
        }
