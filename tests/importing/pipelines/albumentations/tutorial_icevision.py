"""A crop that keeps boxes or a plain resize, then colors."""

import albumentations as A

presize, size = 512, 384
aug_tfms = A.Compose(
    [
        A.OneOrOther(
            A.Compose([A.SmallestMaxSize(presize), A.RandomSizedBBoxSafeCrop(size, size, p=1)]),
            A.LongestMaxSize(size),
            p=0.5,
        ),
        A.HorizontalFlip(p=0.5),
        A.ShiftScaleRotate(rotate_limit=20),
        A.RGBShift(r_shift_limit=10, g_shift_limit=10, b_shift_limit=10),
        A.RandomBrightnessContrast(),
        A.Blur(blur_limit=(1, 3)),
        A.PadIfNeeded(size, size, border_mode=0, value=(124, 116, 104)),
    ]
)
