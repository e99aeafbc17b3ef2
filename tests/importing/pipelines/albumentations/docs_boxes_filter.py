"""Boxes that are dropped by area and visibility, after a crop in the middle."""

import albumentations as A

transform = A.Compose(
    [A.CenterCrop(height=280, width=280, p=1.0)],
    bbox_params=A.BboxParams(format="coco", label_fields=["class_labels"], min_area=4500, min_visibility=0.3),
)
