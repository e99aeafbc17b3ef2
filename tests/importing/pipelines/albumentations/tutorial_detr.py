"""Fine-tuning DETR with Hugging Face."""

import albumentations as A

MAX_SIZE = 480
train_augment_and_transform = A.Compose(
    [
        A.Compose(
            [
                A.SmallestMaxSize(max_size=MAX_SIZE, p=1.0),
                A.RandomSizedBBoxSafeCrop(height=MAX_SIZE, width=MAX_SIZE, p=1.0),
            ],
            p=0.2,
        ),
        A.OneOf(
            [A.Blur(blur_limit=7, p=0.5), A.MotionBlur(blur_limit=7, p=0.5), A.Defocus(radius=(1, 5), p=0.1)], p=0.1
        ),
        A.Perspective(p=0.1),
        A.HorizontalFlip(p=0.5),
        A.RandomBrightnessContrast(p=0.5),
        A.HueSaturationValue(p=0.1),
    ],
    bbox_params=A.BboxParams(format="coco", label_fields=["category"], clip=True, min_area=25),
)
validation_transform = A.Compose(
    [A.NoOp()], bbox_params=A.BboxParams(format="coco", label_fields=["category"], clip=True)
)
