"""The formats that `detaug convert` reads, and the kinds of files that it names but does not read.

ROWS is the one table of them: how files are recognized, the messages about them, `detaug convert`, `detaug formats` and
the table in docs/data-formats.md are made of its rows. A file is of the first form that fits it, so the order counts: a
form that asks for more stands before those that would take its files, too.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from detaug.files.sample import HEAD_BYTES, Sample

LFS = b"version https://git-lfs.github.com/spec/"
"""The first bytes of a pointer of Git LFS."""

_PART = 1 << 24
"""Bytes that `names_segments` reads at once."""

_CONVERT = "convert it: detaug convert FILE -o OUT.json"
_CONVERT_FOLDER = "convert its folder: detaug convert FOLDER -o OUT.json"
_SCRIPT = "write it as a COCO JSON file: docs/own-data.md has a script to begin with"


class Form(NamedTuple):
    """One kind of file."""

    name: str
    fits: Callable[[Sample], bool]
    remedy: str = _CONVERT
    """The nearest way from it to a COCO JSON file."""
    is_broken: bool = False
    """Whether it stands in the place of another file, which was not downloaded."""
    after: str = ""
    """The form behind which it is tried, if that is not its row's place."""
    format: str = ""
    """The name of the format, of those that `detaug convert` reads; ROWS gives it."""


class Format(NamedTuple):
    """One format that `detaug convert` reads."""

    name: str
    """As --from takes it."""
    title: str
    kept: str
    """What becomes part of the JSON file."""
    extensions: tuple[str, ...]
    """Of its annotation files, if they are not recognized and --from names the format."""
    forms: tuple[Form, ...]
    """What its files look like."""
    lost: str = ""
    """What does not become part of the JSON file."""
    reader: str = ""
    """MODULE.FUNCTION in `converters` that returns its records; "" for a converter of its own."""
    has_splits: bool = False
    """Whether the reader takes the name of a split."""
    command: str = ""
    """The command that reads this format alone, with more options."""
    writer: str = ""
    """The command that writes the format from a COCO JSON file."""
    folders: Callable[[Sequence[str]], list[str]] | None = None
    """Of the paths of a folder's files, those that are its annotations: of formats that their folders tell."""
    tried: str = ""
    """The tools whose own code wrote files that were read object by object; "" where a second reading alone tests."""


def _are_numbers(words: Iterable[str]) -> bool:
    try:
        _ = [*map(float, words)]
        return True
    except ValueError:
        return False


def _is_kitti(words: Sequence[str]) -> bool:
    return len(words) in (15, 16) and not _are_numbers(words[:1]) and _are_numbers(words[1:])


def _is_dota(words: Sequence[str]) -> bool:
    header = len(words) == 1 and words[0].startswith(("imagesource:", "gsd:"))
    return header or (len(words) in (9, 10) and _are_numbers(words[:8]) and not _are_numbers(words[8:9]))


BOX_COLUMNS = (
    ("xmin", "ymin", "xmax", "ymax"),
    ("x_min", "y_min", "x_max", "y_max"),
    ("x1", "y1", "x2", "y2"),
    ("bbox_x", "bbox_y", "bbox_width", "bbox_height"),
    ("bbox_x", "bbox_y", "bbox_w", "bbox_h"),
    ("x", "y", "w", "h"),
    ("x", "y", "width", "height"),
    ("x1", "y1", "w", "h"),
    ("x1", "y1", "width", "height"),
    ("xmin", "ymin", "w", "h"),
    ("xmin", "ymin", "width", "height"),
    ("x_min", "y_min", "width", "height"),
    ("left", "top", "width", "height"),
    ("left", "top", "right", "bottom"),
    ("cx", "cy", "w", "h"),
    ("x_center", "y_center", "width", "height"),
)
"""Names of the columns of a box in tables: corners; the left top corner and the sides; the middle and the sides."""
TABLE_RULE = "must have the columns filename, class, xmin, ymin, xmax, ymax, or x, y, w, h instead of the last four"


def _is_table_of_boxes(it: Sample) -> bool:
    """Return whether the first line has names of columns; short names are words of other texts, too."""
    short = BOX_COLUMNS[4:] if it.name.endswith((".csv", ".tsv")) else ()
    return any(it.is_table(*names) for names in (*BOX_COLUMNS[:4], *short))


def _is_retinanet(it: Sample) -> bool:
    """Return whether rows are path,x1,y1,x2,y2,class, or path,,,,, of an image without objects."""

    def fits(row: Sequence[str]) -> bool:
        is_box = len(row) == 6 and not _are_numbers(row[:1]) and _are_numbers(row[1:5]) and row[5] != ""
        return is_box or (len(row) in (1, 6) and not any(row[1:]))

    comma = max(",;\t", key=it.rows[0].count) if it.rows else ","
    rows = [*csv.reader(it.rows, delimiter=comma)] if it.name.endswith(".csv") else []
    return all(map(fits, rows)) and any(len(row) == 6 for row in rows)


def _is_yolo(words: Sequence[str]) -> bool:
    """Return whether words may be a class number and relative numbers: a box, a polygon or keypoints."""
    if len(words) < 5 or not (words[0].isdecimal() and _are_numbers(words)):
        return False
    return all(-0.01 <= number <= 1.01 or number == 2 for number in map(float, words[1:]))


def _is_createml(it: Sample) -> bool:
    entries = it.document if isinstance(it.document, list) else []
    lists = [entry.get("annotations", entry.get("annotation")) for entry in entries[:50] if isinstance(entry, dict)]
    return any(
        isinstance(annotation, dict) and "coordinates" in annotation
        for annotations in lists
        if isinstance(annotations, list)
        for annotation in annotations
    )


def _is_wider_face(it: Sample) -> bool:
    """Return whether rows are a path, a count and that many rows of ten numbers; none or one of zeros for 0."""
    rows = [row.split() for row in it.rows[:3]]
    images = [row[-1].lower().endswith((".jpg", ".jpeg", ".png")) for row in rows]
    if len(rows) < 2 or not images[0] or len(rows[1]) != 1 or not rows[1][0].isdecimal():
        return False
    if rows[1] == ["0"] and (len(rows) == 2 or images[2]):
        return True
    return len(rows) == 3 and len(rows[2]) in (4, 10) and _are_numbers(rows[2])


def _is_mot(it: Sample) -> bool:
    if it.all_rows(lambda words: len(words) in (9, 10) and _are_numbers(words), ","):
        return True
    rows = [row.replace(",", " ").split() for row in it.rows] if it.name == "gt.txt" else []
    return bool(rows) and all(7 <= len(words) <= 10 and _are_numbers(words) for words in rows)


def is_panoptic(it: Sample) -> bool:
    """Return whether the annotations of a JSON file are images of segments, COCO's panoptic form."""
    return it.has("images", "annotations") and "segments_info" in it.first("annotations")


def names_segments(path: Path) -> bool:
    """Return whether a JSON file of any size has a key "segments_info", which only COCO's panoptic form has."""
    key, before = b'"segments_info"', b""
    with path.open("rb") as file:
        while part := file.read(_PART):
            if key in before + part:
                return True
            before = (before + part)[-len(key) :]  # the key may begin in one part and end in the next
    return False


def _is_visdrone_video(it: Sample) -> bool:
    """Return whether rows are VisDrone's of a video: frame, track, box, a score of 0 or 1, class, and two more."""
    rows = [row.rstrip(",").split(",") for row in it.rows]
    fit = all(len(row) == 10 and all(word.strip().lstrip("-").isdecimal() for word in row) for row in rows)
    # MOT's own have -1 at the end, where they have ten numbers, and CVAT's a fraction or -1.
    return bool(rows) and fit and it.name != "gt.txt" and all(row[6] in "01" and int(row[8]) >= 0 for row in rows)


def _is_boxes_in_rows(it: Sample) -> bool:
    """Return whether rows are a path of an image and boxes left,top,right,bottom,class."""
    boxes = [re.fullmatch(r"\S+\.(jpe?g|png)((?:\s+[0-9]+(?:,[0-9]+){4})*)", row, re.IGNORECASE) for row in it.rows]
    return bool(boxes) and all(boxes) and any(box[2] for box in boxes if box)


def _is_kitti_tracking(words: Sequence[str]) -> bool:
    return len(words) in (17, 18) and _are_numbers([*words[:2], *words[3:]]) and not _are_numbers(words[2:3])


def _is_mots(words: Sequence[str]) -> bool:
    return len(words) == 6 and all(map(str.isdecimal, words[:5])) and not _are_numbers(words[5:])


MAP_FOLDERS = frozenset(
    ("SegmentationClass", "SegmentationObject", "SegmentationClassVisualization", "SegmentationClassNpy", "annotations")
) | {"annotation", "labels", "masks", "mask", "instances", "panoptic", "gtFine", "gtCoarse", "stuffthingmaps"}
"""Names of folders with maps, and no images."""


def _in_folder(names: Sequence[str], *folders: str) -> list[str]:
    return [name for name in names if name.endswith(".png") and not {*folders}.isdisjoint(name.split("/")[:-1])]


def _voc_masks(names: Sequence[str]) -> list[str]:
    """Return the masks of objects, if all have a map of classes."""
    masks = _in_folder(names, "SegmentationObject")
    return (
        masks if {"SegmentationClass".join(name.rsplit("SegmentationObject", 1)) for name in masks} <= {*names} else []
    )


def _cityscapes(names: Sequence[str]) -> list[str]:
    return [name for name in names if re.search(r"_gt(Fine|Coarse)_instanceIds\.png$", name)]


def _semantic(names: Sequence[str]) -> list[str]:
    """Return the maps of the first kind of folder that has the map of an image."""
    for folder in ("SegmentationClass", "annotations", "labels", "masks", "mask", "annotation", "stuffthingmaps"):
        maps = _in_folder(names, folder)
        stems = {name.rpartition("/")[2].rpartition(".")[0] for name in maps}
        images = (name.rpartition("/")[2].rpartition(".") for name in names if folder not in name.split("/"))
        if any(stem in stems and extension.lower() in ("jpg", "jpeg", "png") for stem, _, extension in images):
            return maps
    return []


_COCO_LISTS = ("images", "annotations", "categories")
_CORNERS_OF_TABLE = ("x1", "y1", "x2", "y2", "x3", "y3", "x4", "y4")

COCO_PANOPTIC, VOC_XML = "a COCO panoptic JSON file", "a Pascal VOC XML"
COCO_JSON, YOLO_LABELS, DATA_YAML = "a COCO JSON file", "a YOLO label file", "a data.yaml of YOLO"
SHARD_FORMS = ("a TFRecord shard", "a tar")
ROWS: tuple[Form | Format, ...] = (
    Form(
        "a pointer of Git LFS, not the file itself",
        lambda it: it.head.startswith(LFS),
        "get the file: git lfs pull",
        is_broken=True,
    ),
    Form("a zip archive", lambda it: it.head.startswith(b"PK\x03\x04"), "unpack it first: unzip"),
    Form("a 7z archive", lambda it: it.head.startswith(b"7z\xbc\xaf\x27\x1c"), "unpack it first: 7z x"),
    Form("a RAR archive", lambda it: it.head.startswith(b"Rar!\x1a\x07"), "unpack it first: unrar x"),
    Form("a web page", lambda it: it.root == "html", "download the file itself", is_broken=True),
    Format(
        "cvat",
        "CVAT for images or video",
        "boxes, rotated boxes, polygons, cuboids as polygons, ellipses, masks, skeletons as keypoints, tracks, "
        "attributes, tags",
        (".xml",),
        (
            Form(
                "CVAT's own XML",
                lambda it: it.root == "annotations" and re.search(r"<(image|track|meta)\b", it.text) is not None,
            ),
        ),
        lost="lines, points in no skeleton",
        reader="formats.cvat.read_cvat",
        writer="convert-coco-to-cvat",
        tried="the writer of Datumaro 1.13.12, boxes and polygons; not CVAT's own, which is part of its server",
    ),
    Form("HRSC2016's XML", lambda it: it.root == "hrsc_image", _SCRIPT),
    Form("dlib's XML", lambda it: it.root == "dataset" and "<images" in it.text, _SCRIPT),
    Format(
        "labelme-web",
        "LabelMe web tool (XML)",
        "boxes, polygons, attributes",
        (".xml",),
        (
            Form(
                "the XML of the LabelMe web tool",
                lambda it: (
                    it.root == "annotation" and "<pt>" in it.text and not re.search("<(bndbox|robndbox)", it.text)
                ),
                _CONVERT_FOLDER,
            ),
        ),
        lost="masks (segm)",
        reader="formats.labelme_web.read_labelme_web",
    ),
    Format(
        "voc",
        "Pascal VOC",
        "boxes, polygons, masks, rotated boxes (roLabelImg, DIOR-R), flags",
        (".xml",),
        (
            Form(
                VOC_XML,
                lambda it: it.root == "annotation",
                "convert its folder: detaug convert-voc FOLDER",
            ),
        ),
        lost="parts of objects",
        reader="voc.to_coco.read_voc",
        has_splits=True,
        command="convert-voc",
        writer="convert-coco-to-voc",
        tried="supervision 0.31.2; Datumaro 1.13.12, which counts pixels from 0: `--origin zero`",
    ),
    Format(
        "labelme",
        "LabelMe",
        "boxes, polygons, masks, circles, rotated boxes, points of a group as keypoints, flags",
        (".json",),
        (
            Form(
                "a LabelMe JSON file",
                lambda it: it.has("shapes") and bool({"imagePath", "imageHeight", "version"} & it.keys),
                _CONVERT_FOLDER,
            ),
        ),
        lost="lines, lone points",
        reader="formats.labelme.read_labelme",
        writer="convert-coco-to-labelme",
        tried="the writer of LabelMe 6.3.1, every kind of shape that has a place; supervision 0.31.2",
    ),
    Format(
        "via",
        "VGG Image Annotator",
        "boxes, polygons, circles, ellipses, attributes",
        (".json", ".csv"),
        (
            Form(
                "a VIA project",
                lambda it: (
                    it.has("_via_img_metadata")
                    or it.has("project", "metadata", "view", "file")
                    or it.has("project", "config", "attribute", "file")  # its beginning
                    or {"filename", "regions"} <= it.first()
                ),
            ),
            Form(
                "a table of VIA",
                lambda it: it.is_table("region_shape_attributes"),
                after="a table of keras-retinanet",  # with columns of boxes, too, it is a table of boxes
            ),
        ),
        lost="lines, points",
        reader="formats.via.read_via",
    ),
    Format(
        "label-studio",
        "Label Studio",
        "boxes, rotated boxes, polygons, ellipses, brushes and bitmasks as masks, points in a region as keypoints, "
        "choices",
        (".json",),
        (
            Form(
                "an export of Label Studio in its own JSON file",
                lambda it: (
                    it.has("data", "annotations", many=True)
                    or it.has("data", "completions", many=True)
                    or it.has("annotation_id", "annotator", many=True)
                ),
            ),
        ),
        lost="lone points, relations, videos",
        reader="formats.label_studio.read_label_studio",
        writer="convert-coco-to-label-studio",
        tried="the converter of label-studio-sdk 2.1.2: tasks from COCO, JSON-MIN, masks by its brush; it reads ours",
    ),
    Form(
        "a list of tasks for Label Studio, which has no annotations",
        lambda it: it.has("data", "predictions", many=True),
        "import it into Label Studio, correct and submit its tasks, and export them as JSON",
    ),
    Form(
        "an export of Label Studio as CSV, which does not have whole shapes",
        lambda it: it.is_table("annotation_id", "annotator"),
        "export the project as JSON",
    ),
    Format(
        "createml",
        "Create ML",
        "boxes",
        (".json",),
        (Form("a CreateML JSON", _is_createml),),
        reader="formats.createml.read_createml",
        tried="supervision 0.31.2",
    ),
    Form(
        "a list of detections (COCO results), which has no images",
        lambda it: it.has("image_id", "category_id", "score", many=True),
        "give the JSON file of the annotations, with images, annotations and categories",
    ),
    Form(
        "a VoTT JSON",
        lambda it: it.has("asset", "regions") or "asset" in it.first("assets"),
        "export from VoTT as Pascal VOC for detaug convert-voc",
    ),
    Format(
        "segment-anything",
        "Segment Anything (SA-1B)",
        "masks, all of one class; their scores",
        (".json",),
        (
            Form(
                "a JSON file of Segment Anything (SA-1B)",
                lambda it: it.has("image", "annotations") and "segmentation" in it.first("annotations"),
                _CONVERT_FOLDER,
            ),
        ),
        reader="formats.segment_anything.read_segment_anything",
    ),
    Form(
        "a Supervisely JSON file of a video",
        lambda it: it.has("frames", "framesCount"),
        "convert the project to one of images in Supervisely, and export that",
    ),
    Format(
        "supervisely",
        "Supervisely",
        "boxes, rotated boxes, polygons with holes, bitmaps as masks, graphs as keypoints, tags",
        (".json",),
        (
            Form(
                "a Supervisely JSON file",
                lambda it: it.has("objects", "size") and ("classTitle" in it.first("objects") or it.has("tags")),
                _CONVERT_FOLDER,
            ),
            Form(
                "the meta.json of a Supervisely project",
                lambda it: it.name == "meta.json" and it.has("classes", "tags"),
                _CONVERT_FOLDER,
            ),
        ),
        lost="lines, points",
        reader="formats.supervisely.read_supervisely",
        tried="supervisely 6.74.51: rectangle, polygon with a hole, bitmap, graph with its skeleton, tags",
    ),
    Format(
        "crowdhuman",
        "CrowdHuman",
        "full boxes; visible boxes and heads as columns; what is to be ignored as crowds",
        (".odgt",),
        (Form("an annotation list of CrowdHuman (odgt)", lambda it: "gtboxes" in it.keys),),
        reader="formats.crowdhuman.read_crowdhuman",
    ),
    Format(
        "imagefolder",
        "Hugging Face imagefolder",
        "boxes, polygons, masks, keypoints, other lists as columns",
        (".jsonl", ".csv"),
        (
            Form(
                "a metadata.jsonl of Hugging Face",
                lambda it: it.has("file_name", "objects") and it.name.endswith(".jsonl"),
            ),
            Form("a metadata.csv of Hugging Face", lambda it: it.is_table("file_name", "objects")),
        ),
        reader="formats.imagefolder.read_imagefolder",
        tried="datasets 5.2.0, which loads the same `metadata.jsonl`",
    ),
    Form(
        "a Parquet file",
        lambda it: it.head.startswith(b"PAR1"),
        "write its table as metadata.jsonl beside the images: pandas.read_parquet(FILE).to_json('metadata.jsonl', "
        "orient='records', lines=True)",
    ),
    Form(
        "YouTube-VIS's JSON file, whose annotations are of videos",
        lambda it: it.has("videos", "annotations") and not it.has("images"),
        _SCRIPT,
    ),
    Form(
        "BDD100K's JSON file",
        lambda it: it.has("name", "frames") or "labels" in it.first("frames") or it.has("name", "labels", many=True),
        _SCRIPT,
    ),
    Form("Cityscapes' JSON of polygons", lambda it: it.has("imgHeight", "imgWidth", "objects"), _SCRIPT),
    Form(
        "a JSON file of V7 Darwin",
        lambda it: (
            it.has("item", "annotations") or (it.has("image", "annotations") and "name" in it.first("annotations"))
        ),
        "export it as COCO from V7",
    ),
    Form(
        "a JSON file of SuperAnnotate",
        lambda it: (
            it.has("metadata", "instances")
            or (it.has("type", "points", many=True) and not it.keys.isdisjoint(("classId", "className")))
        ),
        "convert it with superannotate's export_annotation(..., dataset_format='COCO')",
    ),
    Form("a list of tasks of Scale AI", lambda it: it.has("task_id", "params", many=True), _SCRIPT),
    Form(
        "an ODVG JSON of Grounding DINO",
        lambda it: it.has("filename") and not it.keys.isdisjoint(("detection", "grounding")),
        _SCRIPT,
    ),
    Form(
        "an NDJSON of Ultralytics",
        lambda it: it.has("type", "task", "class_names"),
        "convert_ndjson_to_yolo of ultralytics.data.converter writes it as YOLO's dataset",
    ),
    Form("an old export of Labelbox", lambda it: it.has("External ID", "Label", many=True), _SCRIPT),
    Form(
        "a JSON file of FiftyOne",
        lambda it: "filepath" in it.first("samples") or (it.has("classes", "labels") and not it.is_list("labels")),
        "export it as COCO: dataset.export(DIR, dataset_type=fo.types.COCODetectionDataset)",
    ),
    Form(
        "a Datumaro JSON file",
        lambda it: it.has("items", "categories"),
        "datum convert -f coco makes a COCO JSON file of it",
    ),
    Form("an output manifest of SageMaker Ground Truth", lambda it: "source-ref" in it.keys, _SCRIPT),
    Form("an export of Labelbox", lambda it: "data_row" in it.keys, _SCRIPT),
    Form(
        "Open Images' table of masks, which are files of their own",
        lambda it: it.is_table("maskpath", "imageid"),
        "convert the table of the boxes, with XMin, XMax, YMin and YMax",
    ),
    Form(
        "a table of four corners (x1, y1, ..., x4, y4)",
        lambda it: it.is_table(*_CORNERS_OF_TABLE),
        "write a text file of DOTA for each image, with rows x1 y1 x2 y2 x3 y3 x4 y4 class difficult",
    ),
    Format(
        "csv",
        "CSV table",
        "boxes, other columns; of Open Images groups as crowds",
        (".csv",),
        (
            Form("a table of Open Images", lambda it: it.is_table("imageid", "labelname", "xmin")),
            Form("a table of boxes (CSV)", _is_table_of_boxes),
            Form("a table of keras-retinanet", _is_retinanet),
        ),
        reader="formats.csv_tables.read_csv",
        writer="convert-coco-to-csv",
        tried="Datumaro 1.13.12 (Open Images)",
    ),
    Format(
        "coco-panoptic",
        "COCO panoptic",
        "boxes and masks of things, crowds",
        (".json",),
        (Form(COCO_PANOPTIC, is_panoptic),),
        lost="stuff, which stays in the PNGs",
        reader="formats.coco_panoptic.read_coco_panoptic",
    ),
    Format(
        "voc-masks",
        "Pascal VOC's SegmentationObject",
        "boxes and masks of objects, their classes from SegmentationClass",
        (),
        (),
        reader="formats.label_maps.read_voc_masks",
        has_splits=True,
        folders=_voc_masks,
    ),
    Format(
        "cityscapes",
        "Cityscapes (instanceIds)",
        "boxes and masks of objects; groups as crowds, what is ignored as crowds of each class",
        (),
        (),
        lost="stuff, which stays in the maps",
        reader="formats.label_maps.read_cityscapes",
        has_splits=True,
        folders=_cityscapes,
    ),
    Format(
        "semantic",
        "folders of class maps (ADE20K, Mapillary, SegmentationClass)",
        "images and classes, to load with `maps=`",
        (),
        (),
        lost="objects, which it does not have",
        reader="formats.label_maps.read_semantic",
        has_splits=True,
        folders=_semantic,
    ),
    Format(
        "coco",
        "COCO JSON",
        "everything: it needs no conversion",
        (".json",),
        (
            Form(
                COCO_JSON,
                lambda it: (
                    (it.has(*_COCO_LISTS) and all(map(it.is_list, _COCO_LISTS)))
                    or (len(it.head) == HEAD_BYTES and it.has("images") and {"file_name", "id"} <= it.first("images"))
                ),
                "it needs no conversion: detaug check FILE.json IMAGES",
            ),
        ),
        command="check",
    ),
    Format(
        "tfrecord",
        "TFRecord",
        "boxes, flags; images stay in their shards",
        (".tfrecord", ".record"),
        (
            Form(
                "a TFRecord shard",
                lambda it: ".tfrecord" in it.name or ".record" in it.name,
                "detaug convert-tfrecord",
            ),
        ),
        lost="masks",
        command="convert-tfrecord",
        writer="pack --format tfrecord",
    ),
    Format(
        "webdataset",
        "WebDataset",
        "boxes, polygons; images stay in their shards",
        (".tar",),
        (
            Form(
                "a tar",
                lambda it: it.head[257:262] == b"ustar",
                "detaug convert-webdataset reads WebDataset shards",
            ),
        ),
        command="convert-webdataset",
        writer="pack",
    ),
    Format(
        "yolo",
        "YOLO",
        "boxes, polygons, keypoints, rotated boxes",
        (".yaml", ".yml", ".data", ".txt"),
        (
            Form(
                DATA_YAML,
                lambda it: it.name.endswith((".yaml", ".yml")) and re.search(r"(?m)^names:", it.text) is not None,
                "detaug convert-yolo FILE",
            ),
            Form(
                "a .data file of Darknet",
                lambda it: it.name.endswith(".data") and re.search(r"(?m)^\s*names\s*=", it.text) is not None,
                "detaug convert-yolo FILE",
            ),
            Form(
                YOLO_LABELS,
                lambda it: it.all_rows(_is_yolo),
                "convert the dataset: detaug convert FOLDER -o OUT.json",
            ),
        ),
        reader="yolo.to_coco.read_yolo",
        has_splits=True,
        command="convert-yolo",
        writer="convert-coco-to-yolo",
        tried="Datumaro 1.13.12 (obj.data); supervision 0.31.2 (a data.yaml with nothing but names)",
    ),
    Format(
        "kitti",
        "KITTI",
        "boxes, truncation, place in space as columns; DontCare as crowds",
        (".txt",),
        (Form("a KITTI label file", lambda it: it.all_rows(_is_kitti), _CONVERT_FOLDER),),
        reader="formats.text_rows.read_kitti",
        tried="Datumaro 1.13.12",
    ),
    Format(
        "dota",
        "DOTA",
        "corners of rotated boxes, difficult",
        (".txt",),
        (
            Form(
                "a DOTA label file",
                lambda it: it.all_rows(_is_dota),
                "convert the folder: detaug convert-dota LABELS IMAGES -o OUT.json",
            ),
        ),
        reader="formats.text_rows.read_dota",
        command="convert-dota",
        writer="convert-coco-to-dota",
    ),
    Format(
        "visdrone",
        "VisDrone",
        "boxes, truncation, occlusion; ignored regions as crowds",
        (".txt",),
        (
            Form(
                "a VisDrone label file",
                lambda it: it.all_rows(lambda words: len(words) == 8 and _are_numbers(words), ","),
                _CONVERT_FOLDER,
            ),
        ),
        reader="formats.text_rows.read_visdrone",
    ),
    Form(
        "a file of VisDrone's videos (VID, MOT)",
        _is_visdrone_video,
        "make a folder of each video in MOT's layout for detaug convert-mot: gt/gt.txt is this file without the rows "
        "of class 0, gt/labels.txt has the 11 names of the classes",
    ),
    Form("a tracking label file of KITTI", lambda it: it.all_rows(_is_kitti_tracking), _SCRIPT),
    Form("a file of masks of MOTS", lambda it: it.all_rows(_is_mots), _SCRIPT),
    Form(
        "a list of boxes of keras-yolo3 and YOLOv4",
        _is_boxes_in_rows,
        "export the dataset in another format, such as YOLO's or VOC's",
    ),
    Format(
        "wider-face",
        "WIDER FACE",
        "boxes, attributes; invalid faces as crowds",
        (".txt",),
        (Form("a list of faces of WIDER FACE", _is_wider_face),),
        reader="formats.wider_face.read_wider_face",
    ),
    Format(
        "mot",
        "MOTChallenge",
        "boxes and tracks, visibility",
        (".txt",),
        (Form("a MOTChallenge file of boxes", _is_mot, "detaug convert-mot reads it as gt/gt.txt of a sequence"),),
        lost="detections (det)",
        reader="mot.to_coco.read_mot",
        command="convert-mot",
    ),
)
"""In the order in which their forms are tried."""

FORMATS = tuple(sorted((row for row in ROWS if isinstance(row, Format)), key=lambda row: row.name))
"""Those that `detaug convert` reads, by name."""
BY_NAME = {row.name: row for row in FORMATS}


def _forms_in_order() -> tuple[Form, ...]:
    forms: list[Form] = []
    for row in ROWS:
        forms += [form._replace(format=row.name) for form in row.forms] if isinstance(row, Format) else [row]
    for form in [form for form in forms if form.after]:
        forms.remove(form)
        forms.insert(1 + [other.name for other in forms].index(form.after), form)
    return tuple(forms)


FORMS = _forms_in_order()
"""All forms, in the order in which they are tried."""
