"""Shelves: perspective and sharpness."""

import albumentations as A
import cv2
from albumentations.pytorch import ToTensorV2

transform = A.Compose(
    [
        A.SafeRotate(limit=5, border_mode=cv2.BORDER_CONSTANT, p=0.5),
        A.RandomResizedCrop(height=512, width=512, scale=(0.5, 1.0), p=1.0),
        A.HorizontalFlip(p=0.5),
        A.Sharpen(alpha=(0.3, 0.3), lightness=(1.0, 1.0), p=0.2),
        A.Equalize(p=0.1),
        A.Solarize(threshold=128, p=0.05),
        A.Normalize(),
        ToTensorV2(),
    ],
    bbox_params=A.BboxParams(format="coco", label_fields=["labels"]),
)
