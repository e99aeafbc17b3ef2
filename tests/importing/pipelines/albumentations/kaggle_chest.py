"""Chest X-rays: gray images, small turns."""

import albumentations as A
import cv2
from albumentations.pytorch import ToTensorV2

augment = A.Compose(
    [
        A.LongestMaxSize(1024),
        A.PadIfNeeded(1024, 1024, border_mode=cv2.BORDER_CONSTANT, value=0),
        A.HorizontalFlip(p=0.5),
        A.Rotate(limit=10, border_mode=cv2.BORDER_CONSTANT, value=0, p=0.3),
        A.RandomBrightnessContrast(0.1, 0.1, p=0.5),
        A.GaussNoise(var_limit=(5.0, 30.0), p=0.2),
        A.Normalize(mean=0.5, std=0.25),
        ToTensorV2(),
    ],
    bbox_params=A.BboxParams(format="pascal_voc", label_fields=["labels"]),
)
