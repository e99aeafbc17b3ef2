"""RT-DETR: perspective, colors, at 640."""

import albumentations as A

transform = A.Compose(
    [
        A.Perspective(p=0.1),
        A.HorizontalFlip(p=0.5),
        A.RandomBrightnessContrast(p=0.5),
        A.HueSaturationValue(p=0.1),
        A.Resize(640, 640),
    ],
    bbox_params=A.BboxParams(
        format="pascal_voc", label_fields=["category"], clip=True, min_area=25, min_width=1, min_height=1
    ),
)
