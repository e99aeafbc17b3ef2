"""Scanned pages: noise, compression, gray."""

import albumentations as A
import cv2
from albumentations.pytorch import ToTensorV2

transform = A.Compose(
    [
        A.LongestMaxSize(max_size=1280),
        A.PadIfNeeded(1280, 1280, border_mode=cv2.BORDER_CONSTANT, value=(255, 255, 255)),
        A.Rotate(limit=2, border_mode=cv2.BORDER_CONSTANT, value=(255, 255, 255), p=0.5),
        A.GaussianBlur(blur_limit=(3, 3), p=0.2),
        A.ToGray(p=0.5),
        A.Downscale(scale_min=0.5, scale_max=0.9, p=0.1),
        A.Normalize(mean=[0.5, 0.5, 0.5], std=[0.5, 0.5, 0.5]),
        ToTensorV2(),
    ]
)
