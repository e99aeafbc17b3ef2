"""Faster R-CNN: a list that grows."""

import albumentations as A
from albumentations.pytorch import ToTensorV2


def get_train_aug():
    return A.Compose(
        [
            A.OneOf(
                [A.Blur(blur_limit=3, p=0.5), A.MotionBlur(blur_limit=3, p=0.5), A.MedianBlur(blur_limit=3, p=0.5)],
                p=0.5,
            ),
            A.ToGray(p=0.1),
            A.RandomBrightnessContrast(p=0.1),
            A.ColorJitter(p=0.1),
            A.RandomGamma(p=0.1),
            ToTensorV2(p=1.0),
        ],
        bbox_params=A.BboxParams(format="pascal_voc", label_fields=["labels"]),
    )
