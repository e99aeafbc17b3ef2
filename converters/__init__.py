"""Annotation formats on disk, to and from COCO json. Needs neither torch nor DALI."""

from detaug.converters.check import check_coco
from detaug.converters.coco_to_voc import coco_to_voc
from detaug.converters.coco_to_yolo import coco_to_yolo
from detaug.converters.findings import KINDS, ConversionError, Finding
from detaug.converters.merge import merge_coco
from detaug.converters.summary import Summary
from detaug.converters.voc import VocSummary, read_class_names, voc_to_coco
from detaug.converters.yolo import yolo_to_coco

__all__ = [
    "KINDS",
    "ConversionError",
    "Finding",
    "Summary",
    "VocSummary",
    "check_coco",
    "coco_to_voc",
    "coco_to_yolo",
    "merge_coco",
    "read_class_names",
    "voc_to_coco",
    "yolo_to_coco",
]
