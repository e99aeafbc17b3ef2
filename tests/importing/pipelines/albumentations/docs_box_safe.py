"""The crop that keeps all boxes, resized."""

import albumentations as A

transform = A.Compose(
    [A.RandomSizedBBoxSafeCrop(width=448, height=336, erosion_rate=0.2), A.HorizontalFlip(p=0.5)],
    bbox_params=A.BboxParams(format="coco", label_fields=["category_ids"]),
)
