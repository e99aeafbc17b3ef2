"""Tiles of large images."""

import albumentations as A

transform = A.Compose(
    [
        A.RandomCrop(height=640, width=640, p=1.0),
        A.RandomRotate90(p=0.5),
        A.Transpose(p=0.5),
        A.HorizontalFlip(p=0.5),
    ],
    bbox_params=A.BboxParams(format="yolo", label_fields=["labels"], min_area=64, min_visibility=0.25),
)
