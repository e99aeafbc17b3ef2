"""A detection pipeline of 2.x: resize, crop that keeps a box, flips, colors."""

import albumentations as A

train_transform = A.Compose(
    [
        A.SmallestMaxSize(max_size=640),
        A.AtLeastOneBBoxRandomCrop(height=512, width=512),
        A.HorizontalFlip(p=0.5),
        A.Affine(scale=(0.8, 1.2), rotate=(-15, 15), translate_percent=(-0.1, 0.1), p=0.7),
        A.ColorJitter(brightness=0.2, contrast=0.2, saturation=0.2, hue=0.1, p=0.5),
        A.GaussNoise(std_range=(0.05, 0.1), p=0.2),
        A.Normalize(),
        A.ToTensorV2(),
    ],
    bbox_params=A.BboxParams(format="pascal_voc", label_fields=["labels"], min_visibility=0.1),
)
