"""Bounding boxes as in Albumentations' first guide."""

import albumentations as A

transform = A.Compose(
    [A.RandomCrop(width=450, height=450), A.HorizontalFlip(p=0.5), A.RandomBrightnessContrast(p=0.2)],
    bbox_params=A.BboxParams(format="coco", label_fields=["class_labels"]),
)
