"""A resized crop with all eight symmetries."""

import albumentations as A

transform = A.Compose(
    [
        A.RandomResizedCrop(size=(512, 512), scale=(0.3, 1.0), ratio=(0.75, 1.33)),
        A.D4(p=1),
        A.SomeOf([A.ChannelShuffle(p=1), A.InvertImg(p=1), A.ToGray(p=1)], n=2, p=0.3),
        A.Erasing(scale=(0.02, 0.1), p=0.3),
        A.Normalize(),
    ],
    bbox_params=A.BboxParams(format="albumentations", label_fields=["labels"]),
)
