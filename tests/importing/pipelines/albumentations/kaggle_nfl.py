"""Helmets: frames of a video."""

import albumentations as A


def transforms(train: bool = True):
    ops = []
    if train:
        ops.append(A.HorizontalFlip(p=0.5))
        ops += [A.RandomBrightnessContrast(p=0.2), A.MotionBlur(p=0.1), A.ImageCompression(quality_lower=60, p=0.2)]
    ops.append(A.Resize(720, 1280))
    return A.Compose(ops, bbox_params=A.BboxParams(format="coco", label_fields=["ids"]))
