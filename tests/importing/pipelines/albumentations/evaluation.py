"""The transforms of an evaluation."""

import albumentations as A
from albumentations.pytorch import ToTensorV2

SIZE = 800
transform = A.Compose(
    [A.SmallestMaxSize(SIZE), A.Normalize(), ToTensorV2()],
    bbox_params=A.BboxParams(format="coco", label_fields=["labels"]),
)
