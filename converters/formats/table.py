"""The formats that `detaug convert` reads."""

from __future__ import annotations

from typing import NamedTuple


class Format(NamedTuple):
    """One format. `known_files.FORMS` has what its files look like."""

    name: str
    """As --from takes it."""
    title: str
    kept: str
    """What becomes part of the json."""
    extensions: tuple[str, ...]
    """Of its annotation files, if they are not recognised and --from names the format."""
    lost: str = ""
    """What does not."""
    reader: str = ""
    """MODULE.FUNCTION in `converters` that returns its records; "" for a converter of its own."""
    has_splits: bool = False
    """Whether the reader takes the name of a split."""
    command: str = ""
    """The command of that converter, which has more options."""
    tried: str = ""
    """The tools whose own code wrote files that were read object by object; "" where a second reading alone tests."""


FORMATS = (
    Format("coco", "COCO json", "everything: it needs no conversion", (".json",), command="check"),
    Format(
        "voc", "Pascal VOC", "boxes, outlines, masks, rotated boxes (roLabelImg, DIOR-R), flags", (".xml",),
        "parts of objects",
        command="convert-voc",
        tried="supervision 0.31.2; Datumaro 1.13.12, which counts pixels from 0: `--origin zero`",
    ),
    Format(
        "yolo", "YOLO", "boxes, outlines, key points, rotated boxes", (".yaml", ".yml", ".data", ".txt"),
        reader="yolo.to_coco.read_yolo", has_splits=True,
        command="convert-yolo",
        tried="Datumaro 1.13.12 (obj.data); supervision 0.31.2 (a data.yaml with nothing but names)",
    ),
    Format(
        "labelme", "LabelMe", "boxes, outlines, masks, circles, rotated boxes, points of a group as keypoints, flags",
        (".json",), "lines, lone points", "formats.labelme.read_labelme",
        tried="the writer of LabelMe 6.3.1, every kind of shape that has a place; supervision 0.31.2",
    ),
    Format(
        "labelme-web", "LabelMe web tool (XML)", "boxes, outlines, attributes", (".xml",), "masks (segm)",
        "formats.labelme_web.read_labelme_web",
    ),
    Format(
        "segment-anything", "Segment Anything (SA-1B)", "masks, all of one class; their scores", (".json",),
        reader="formats.segment_anything.read_segment_anything",
    ),
    Format(
        "cvat", "CVAT for images or video",
        "boxes, rotated boxes, outlines, cuboids as outlines, ellipses, masks, skeletons as keypoints, tracks, "
        "attributes, tags",
        (".xml",), "lines, points in no skeleton", "formats.cvat.read_cvat",
        tried="the writer of Datumaro 1.13.12, boxes and outlines; not CVAT's own, which is part of its server",
    ),
    Format(
        "csv", "CSV table", "boxes, other columns; of Open Images groups as crowds", (".csv",),
        reader="formats.csv_tables.read_csv",
        tried="Datumaro 1.13.12 (Open Images)",
    ),
    Format(
        "label-studio", "Label Studio",
        "boxes, rotated boxes, outlines, ellipses, brushes and bitmasks as masks, points in a region as keypoints, "
        "choices",
        (".json",), "lone points, relations, videos", "formats.label_studio.read_label_studio",
        tried="the converter of label-studio-sdk 2.1.2: tasks from COCO, JSON-MIN, masks by its brush; it reads ours",
    ),
    Format(
        "via", "VGG Image Annotator", "boxes, outlines, circles, ellipses, attributes", (".json", ".csv"),
        "lines, points", "formats.via.read_via",
    ),
    Format(
        "kitti", "KITTI", "boxes, truncation, place in space as columns; DontCare as crowds", (".txt",),
        reader="formats.text_rows.read_kitti",
        tried="Datumaro 1.13.12",
    ),
    Format(
        "visdrone", "VisDrone", "boxes, truncation, occlusion; ignored regions as crowds", (".txt",),
        reader="formats.text_rows.read_visdrone",
    ),
    Format(
        "createml", "Create ML", "boxes", (".json",), reader="formats.createml.read_createml",
        tried="supervision 0.31.2",
    ),
    Format(
        "wider-face", "WIDER FACE", "boxes, attributes; invalid faces as crowds", (".txt",),
        reader="formats.wider_face.read_wider_face",
    ),
    Format(
        "crowdhuman", "CrowdHuman", "full boxes; visible boxes and heads as columns; what is to be ignored as crowds",
        (".odgt",), reader="formats.crowdhuman.read_crowdhuman",
    ),
    Format(
        "supervisely", "Supervisely",
        "boxes, rotated boxes, outlines with holes, bitmaps as masks, graphs as keypoints, tags",
        (".json",), "lines, points", "formats.supervisely.read_supervisely",
        tried="supervisely 6.74.51: rectangle, polygon with a hole, bitmap, graph with its skeleton, tags",
    ),
    Format(
        "imagefolder", "Hugging Face imagefolder", "boxes, outlines, masks, keypoints, other lists as columns",
        (".jsonl", ".csv"),
        reader="formats.imagefolder.read_imagefolder",
        tried="datasets 5.2.0, which loads the same `metadata.jsonl`",
    ),
    Format(
        "dota", "DOTA", "corners of rotated boxes, difficult", (".txt",), reader="formats.text_rows.read_dota",
        command="convert-dota",
    ),
    Format(
        "mot", "MOTChallenge", "boxes and tracks, visibility", (".txt",), "detections (det)", "mot.to_coco.read_mot",
        command="convert-mot",
    ),
    Format(
        "tfrecord", "TFRecord", "boxes, flags; images stay in their shards", (".tfrecord", ".record"), "masks",
        command="convert-tfrecord",
    ),
    Format(
        "webdataset", "WebDataset", "boxes, outlines; images stay in their shards", (".tar",),
        command="convert-webdataset",
    ),
)  # fmt: skip
"""In the order of demand."""

BY_NAME = {each.name: each for each in FORMATS}
