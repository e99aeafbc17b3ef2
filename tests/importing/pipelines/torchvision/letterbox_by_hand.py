"""A size, padding and noise."""

import torch
from torchvision import tv_tensors
from torchvision.transforms import v2

transform = v2.Compose(
    [
        v2.Resize(608, max_size=640),
        v2.CenterCrop(640),
        v2.RandomHorizontalFlip(),
        v2.ColorJitter(0.2, 0.2, 0.2, 0.05),
        v2.ElasticTransform(alpha=20.0),
        v2.ToImage(),
        v2.ToDtype({tv_tensors.Image: torch.float32, "others": None}, scale=True),
    ]
)
