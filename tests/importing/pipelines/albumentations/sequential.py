"""A group with a probability, and ops in it."""

import albumentations as A

transform = A.Compose(
    [
        A.Sequential([A.HorizontalFlip(p=1), A.Rotate(limit=30, border_mode=0, p=1)], p=0.5),
        A.Resize(512, 512),
        A.Sequential([A.ToGray(p=1), A.GaussianBlur(blur_limit=0, sigma_limit=(0.5, 1.5), p=0.5)], p=0.2),
        A.RandomOrder([A.ChannelShuffle(p=0.2), A.InvertImg(p=0.1)], n=2),
        A.Normalize(),
    ]
)
