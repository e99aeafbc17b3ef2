"""Traffic: rain, fog, sun."""

import albumentations as A
from albumentations.pytorch import ToTensorV2

transform = A.Compose(
    [
        A.Resize(640, 640),
        A.HorizontalFlip(p=0.5),
        A.OneOf([A.RandomRain(p=1), A.RandomFog(p=1), A.RandomSunFlare(p=1), A.RandomShadow(p=1)], p=0.3),
        A.RandomBrightnessContrast(brightness_limit=0.3, contrast_limit=0.3, p=0.5),
        A.ImageCompression(quality_range=(50, 90), p=0.3),
        A.ToFloat(max_value=255),
        ToTensorV2(),
    ],
    bbox_params=A.BboxParams(format="yolo", label_fields=["labels"]),
)
