"""Cells: flips, small turns, brightness."""

import albumentations as A
import cv2
from albumentations.pytorch import ToTensorV2


class CFG:
    size = 704
    mean = (0.485, 0.456, 0.406)
    std = (0.229, 0.224, 0.225)


data_transforms = {
    "train": A.Compose(
        [
            A.Resize(CFG.size, CFG.size),
            A.HorizontalFlip(p=0.5),
            A.VerticalFlip(p=0.5),
            A.ShiftScaleRotate(
                shift_limit=0.05, scale_limit=0.05, rotate_limit=10, p=0.5, border_mode=cv2.BORDER_CONSTANT
            ),
            A.RandomBrightnessContrast(p=0.3),
            A.Normalize(CFG.mean, CFG.std),
            ToTensorV2(),
        ],
        bbox_params=A.BboxParams(format="pascal_voc", label_fields=["labels"]),
    ),
    "valid": A.Compose([A.Resize(CFG.size, CFG.size), A.Normalize(CFG.mean, CFG.std), ToTensorV2()]),
}
