"""Convert annotation formats on disk to and from COCO JSON, merge, split and check it. Needs neither torch nor DALI."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from detaug.check.check import check_coco as check_coco
    from detaug.coco.classes_and_images import read_class_names as read_class_names
    from detaug.coco.merge import merge_coco as merge_coco
    from detaug.coco.split import SplitSummary as SplitSummary
    from detaug.coco.split import split_coco as split_coco
    from detaug.converters.dota.from_coco import coco_to_dota as coco_to_dota
    from detaug.converters.dota.to_coco import dota_to_coco as dota_to_coco
    from detaug.converters.formats.convert import convert_to_coco as convert_to_coco
    from detaug.converters.from_coco.csv_tables import coco_to_csv as coco_to_csv
    from detaug.converters.from_coco.cvat import coco_to_cvat as coco_to_cvat
    from detaug.converters.from_coco.label_studio import coco_to_label_studio as coco_to_label_studio
    from detaug.converters.from_coco.labelme import coco_to_labelme as coco_to_labelme
    from detaug.converters.mot.to_coco import mot_to_coco as mot_to_coco
    from detaug.converters.shards.pack import pack_coco as pack_coco
    from detaug.converters.shards.to_coco import tfrecord_to_coco as tfrecord_to_coco
    from detaug.converters.shards.to_coco import webdataset_to_coco as webdataset_to_coco
    from detaug.converters.voc.from_coco import coco_to_voc as coco_to_voc
    from detaug.converters.voc.to_coco import VocSummary as VocSummary
    from detaug.converters.voc.to_coco import voc_to_coco as voc_to_coco
    from detaug.converters.yolo.from_coco import coco_to_yolo as coco_to_yolo
    from detaug.converters.yolo.to_coco import yolo_to_coco as yolo_to_coco
    from detaug.errors import AnnotationError as AnnotationError
    from detaug.errors import ConversionError as ConversionError
    from detaug.errors import InputError as InputError
    from detaug.findings.finding import Finding as Finding
    from detaug.findings.kinds import KINDS as KINDS
    from detaug.outputs.summary import Summary as Summary

_MODULE_OF = {
    "AnnotationError": "detaug.errors",
    "ConversionError": "detaug.errors",
    "Finding": "detaug.findings.finding",
    "InputError": "detaug.errors",
    "KINDS": "detaug.findings.kinds",
    "SplitSummary": "detaug.coco.split",
    "Summary": "detaug.outputs.summary",
    "VocSummary": "detaug.converters.voc.to_coco",
    "check_coco": "detaug.check.check",
    "coco_to_csv": "detaug.converters.from_coco.csv_tables",
    "coco_to_cvat": "detaug.converters.from_coco.cvat",
    "coco_to_dota": "detaug.converters.dota.from_coco",
    "coco_to_label_studio": "detaug.converters.from_coco.label_studio",
    "coco_to_labelme": "detaug.converters.from_coco.labelme",
    "coco_to_voc": "detaug.converters.voc.from_coco",
    "coco_to_yolo": "detaug.converters.yolo.from_coco",
    "convert_to_coco": "detaug.converters.formats.convert",
    "dota_to_coco": "detaug.converters.dota.to_coco",
    "merge_coco": "detaug.coco.merge",
    "mot_to_coco": "detaug.converters.mot.to_coco",
    "pack_coco": "detaug.converters.shards.pack",
    "read_class_names": "detaug.coco.classes_and_images",
    "split_coco": "detaug.coco.split",
    "tfrecord_to_coco": "detaug.converters.shards.to_coco",
    "voc_to_coco": "detaug.converters.voc.to_coco",
    "webdataset_to_coco": "detaug.converters.shards.to_coco",
    "yolo_to_coco": "detaug.converters.yolo.to_coco",
}

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    """Import a format's modules when something of them is used: a command needs one of many."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    return __all__
