"""A strong pipeline of 1.x."""

import albumentations as A

strong = A.Compose(
    [
        A.RandomRotate90(),
        A.Flip(),
        A.Transpose(),
        A.OneOf([A.GaussNoise(), A.ISONoise()], p=0.2),
        A.OneOf([A.MotionBlur(p=0.2), A.MedianBlur(blur_limit=3, p=0.1), A.Blur(blur_limit=3, p=0.1)], p=0.2),
        A.ShiftScaleRotate(shift_limit=0.0625, scale_limit=0.2, rotate_limit=45, p=0.2),
        A.OneOf([A.OpticalDistortion(p=0.3), A.GridDistortion(p=0.1), A.PiecewiseAffine(p=0.3)], p=0.2),
        A.OneOf([A.CLAHE(clip_limit=2), A.Sharpen(), A.Emboss(), A.RandomBrightnessContrast()], p=0.3),
        A.HueSaturationValue(p=0.3),
    ]
)
