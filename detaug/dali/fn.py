"""Functions for your own `pipeline_def`, used as `da.fn.coco`, `da.fn.augment` and so on. They return DALI nodes."""

from detaug.dali.augment import augment as augment
from detaug.dali.coco import coco as coco
from detaug.dali.single_ops import flip as flip
from detaug.dali.single_ops import paste as paste
from detaug.dali.single_ops import random_bbox_crop as random_bbox_crop
from detaug.dali.single_ops import resize as resize
