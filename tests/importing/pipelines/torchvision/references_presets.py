"""The class of presets: a list that grows by the name of the recipe."""

import torch
from torchvision.transforms import v2 as T


class DetectionPresetTrain:
    """Transforms by their name."""

    def __init__(self, *, data_augmentation, hflip_prob=0.5, mean=(123.0, 117.0, 104.0)):
        transforms = [T.ToImage()]
        if data_augmentation == "hflip":
            transforms += [T.RandomHorizontalFlip(p=hflip_prob)]
        elif data_augmentation == "lsj":
            transforms += [
                T.ScaleJitter(target_size=(1024, 1024), antialias=True),
                T.RandomCrop(size=(1024, 1024), pad_if_needed=True, fill=mean),
                T.RandomHorizontalFlip(p=hflip_prob),
            ]
        elif data_augmentation == "ssd":
            transforms += [
                T.RandomPhotometricDistort(),
                T.RandomZoomOut(fill=list(mean)),
                T.RandomIoUCrop(),
                T.RandomHorizontalFlip(p=hflip_prob),
            ]
        transforms += [T.ToDtype(torch.float, scale=True), T.SanitizeBoundingBoxes()]
        self.transforms = T.Compose(transforms)
