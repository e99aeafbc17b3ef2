"""The longer side and padding."""

import albumentations as A
from albumentations.pytorch import ToTensorV2

transform = A.Compose(
    [
        A.LongestMaxSize(max_size=640),
        A.PadIfNeeded(min_height=640, min_width=640, border_mode=0, fill=(114, 114, 114)),
        A.HorizontalFlip(p=0.5),
        A.RandomGamma(p=0.3),
        A.Normalize(mean=(0, 0, 0), std=(1, 1, 1), max_pixel_value=255),
        ToTensorV2(),
    ],
    bbox_params=A.BboxParams(format="yolo", label_fields=["class_labels"]),
)
