"""Wheat heads with crops at several scales."""

import albumentations as A

SIZE = 1024
transform = A.Compose(
    [
        A.RandomSizedCrop(min_max_height=(600, 1000), height=SIZE, width=SIZE, p=0.7),
        A.HorizontalFlip(p=0.5),
        A.RandomRotate90(p=0.5),
        A.Resize(SIZE // 2, SIZE // 2),
        A.CoarseDropout(max_holes=4, max_height=32, max_width=32, min_holes=2, fill_value=128, p=0.3),
    ],
    bbox_params=A.BboxParams(format="yolo", label_fields=["labels"], min_area=16),
)
