"""A Lightning data module with arguments for the size."""

import albumentations as A
from albumentations.pytorch import ToTensorV2


def make_transform(size=(512, 512), p=0.5):
    height, width = size
    return A.Compose(
        [
            A.Resize(height=height, width=width, p=1),
            A.HorizontalFlip(p=p),
            A.RandomBrightnessContrast(p=p),
            A.ImageCompression(quality_lower=85, quality_upper=95, p=0.2),
            A.Normalize(),
            ToTensorV2(),
        ],
        p=1.0,
        bbox_params=A.BboxParams(format="pascal_voc", min_area=0, min_visibility=0, label_fields=["labels"]),
    )
