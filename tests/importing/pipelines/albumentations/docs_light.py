"""A light pipeline for many images."""

import albumentations as A

light = A.Compose(
    [A.RandomBrightnessContrast(p=1), A.RandomGamma(p=1), A.CLAHE(p=1)],
    p=1,
    bbox_params=A.BboxParams(format="pascal_voc", label_fields=["category_id"]),
)
