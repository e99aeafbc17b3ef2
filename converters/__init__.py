"""Convert annotation formats on disk to and from COCO json, merge, split and check it. Needs neither torch nor DALI."""

from detaug.converters.check.check import check_coco
from detaug.converters.coco.merge import merge_coco
from detaug.converters.coco.split import SplitSummary, split_coco
from detaug.converters.conversion.classes import read_class_names
from detaug.converters.conversion.summary import Summary
from detaug.converters.findings.errors import AnnotationError, ConversionError, InputError
from detaug.converters.findings.finding import Finding
from detaug.converters.findings.kinds import KINDS
from detaug.converters.mot.to_coco import mot_to_coco
from detaug.converters.shards.pack import pack_coco
from detaug.converters.shards.to_coco import tfrecord_to_coco, webdataset_to_coco
from detaug.converters.voc.from_coco import coco_to_voc
from detaug.converters.voc.to_coco import VocSummary, voc_to_coco
from detaug.converters.yolo.from_coco import coco_to_yolo
from detaug.converters.yolo.to_coco import yolo_to_coco

__all__ = [
    "KINDS",
    "AnnotationError",
    "ConversionError",
    "Finding",
    "InputError",
    "SplitSummary",
    "Summary",
    "VocSummary",
    "check_coco",
    "coco_to_voc",
    "coco_to_yolo",
    "merge_coco",
    "mot_to_coco",
    "pack_coco",
    "read_class_names",
    "split_coco",
    "tfrecord_to_coco",
    "voc_to_coco",
    "webdataset_to_coco",
    "yolo_to_coco",
]
