"""Only flips and a size."""

import albumentations as A
from albumentations.pytorch import ToTensorV2

transform = A.Compose(
    [
        A.HorizontalFlip(),
        A.VerticalFlip(),
        A.RandomRotate90(p=0.5),
        A.Resize(width=448, height=448),
        A.Normalize(),
        ToTensorV2(),
    ],
    bbox_params=A.BboxParams("coco", label_fields=["labels"]),
)
