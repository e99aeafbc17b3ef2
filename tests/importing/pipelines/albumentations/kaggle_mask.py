"""Faces with masks: only a tensor for training."""

from albumentations import BboxParams, Compose, HorizontalFlip
from albumentations.pytorch import ToTensorV2

transform = Compose([HorizontalFlip(p=0.5), ToTensorV2()], bbox_params=BboxParams("pascal_voc", ["labels"]))
