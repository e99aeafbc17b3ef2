"""The great barrier reef: underwater colors at 720p."""

import albumentations as A
from albumentations.pytorch import ToTensorV2

train = A.Compose(
    [
        A.Resize(height=720, width=1280),
        A.HorizontalFlip(p=0.5),
        A.VerticalFlip(p=0.5),
        A.OneOf([A.RandomBrightnessContrast(p=1), A.CLAHE(clip_limit=(2, 2), p=1), A.RandomGamma(p=1)], p=0.5),
        A.OneOf([A.GaussianBlur(blur_limit=(3, 5), p=1), A.MotionBlur(blur_limit=5, p=1)], p=0.1),
        A.Normalize(),
        ToTensorV2(),
    ],
    bbox_params=A.BboxParams(format="coco", label_fields=["labels"], min_visibility=0.2),
)
