"""The ops that YOLOv8 runs when Albumentations is installed."""

import albumentations as A

T = [
    A.Blur(p=0.01),
    A.MedianBlur(p=0.01),
    A.ToGray(p=0.01),
    A.CLAHE(p=0.01),
    A.RandomBrightnessContrast(p=0.0),
    A.RandomGamma(p=0.0),
    A.ImageCompression(quality_range=(75, 100), p=0.0),
]
transform = A.Compose(T)
