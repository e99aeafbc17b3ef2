"""Aerial images: any direction."""

import albumentations as A
import cv2
from albumentations.pytorch import ToTensorV2

transform = A.Compose(
    [
        A.Rotate(limit=(-180, 180), border_mode=cv2.BORDER_CONSTANT, rotate_method="ellipse", p=1.0),
        A.HorizontalFlip(p=0.5),
        A.VerticalFlip(p=0.5),
        A.Resize(800, 800),
        A.Normalize(),
        ToTensorV2(),
    ],
    bbox_params=A.BboxParams(format="pascal_voc", label_fields=["labels"], min_visibility=0.3),
)
