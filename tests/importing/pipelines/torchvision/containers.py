"""Containers, and ops of pixels."""

import torch
from torchvision.transforms import v2

transform = v2.Compose(
    [
        v2.ToImage(),
        v2.RandomApply([v2.RandomRotation(15), v2.RandomAffine(0, translate=(0.1, 0.1))], p=0.3),
        v2.RandomPerspective(distortion_scale=0.2, p=0.3),
        v2.Resize((512, 512), antialias=True),
        v2.RandomChoice([v2.GaussianBlur(3), v2.RandomInvert(1.0), v2.RandomSolarize(128, p=1.0)], p=[0.5, 0.25, 0.25]),
        v2.RandomOrder([v2.RandomGrayscale(0.2), v2.RandomPosterize(4, p=0.2)]),
        v2.RandomAdjustSharpness(2, p=0.3),
        v2.RandomAutocontrast(p=0.2),
        v2.ToDtype(torch.float32, scale=True),
        v2.Normalize(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225]),
        v2.RandomErasing(p=0.2),
    ]
)
