"""Faster R-CNN with flips of 2.x, and a list that is joined from two."""

import albumentations as A
from albumentations.pytorch import ToTensorV2

geometry = [A.HorizontalFlip(p=0.5), A.VerticalFlip(p=0.2), A.RandomResizedCrop(size=(640, 640), scale=(0.4, 1.0))]
output = [A.Normalize(mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0)), ToTensorV2()]
transform = A.Compose(
    [*geometry, A.ChannelShuffle(p=0.1), A.ToGray(p=0.1)] + output,
    bbox_params=A.BboxParams(format="pascal_voc", label_fields=["labels"], min_area=100),
)
