"""Boats: a config dataclass with its transforms, and functions of our own among the ops."""

import glob
import random
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.utils.data import Dataset
from torchvision import tv_tensors
from torchvision.io import decode_image
from torchvision.transforms import v2


class Glare(nn.Module):
    """Light on water."""

    def forward(self, image, target):
        if random.random() < 0.1:
            image = (image.float() * 1.2).clamp(0, 255).to(torch.uint8)
        return image, target


def to_rgb(image, target):
    return image[:3], target


@dataclass
class Train:
    size: tuple[int, int] = (384, 640)
    scale: tuple[float, float] = (0.3, 1.0)
    jitter: float = 0.2
    device: torch.device = field(default_factory=lambda: torch.device("cuda" if torch.cuda.is_available() else "cpu"))

    @property
    def transform(self):
        color = v2.ColorJitter(self.jitter, self.jitter, self.jitter)
        return v2.Compose(
            [
                to_rgb,
                v2.RandomIoUCrop(min_scale=self.scale[0], max_scale=self.scale[1]),
                v2.RandomHorizontalFlip(),
                v2.Resize(self.size),
                v2.RandomApply([color], p=0.8),
                Glare(),
                v2.Lambda(lambda image: image),
                nn.Sequential(v2.RandomGrayscale(0.05), v2.RandomInvert(0.01)),
                v2.ToDtype({tv_tensors.Image: torch.float32, "others": None}, scale=True),
                v2.Normalize(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225]),
            ]
        )


@dataclass
class Config:
    root: str = "/data/boats"
    train: Train = field(default_factory=Train)


class Boats(Dataset):
    def __init__(self, config):
        self.files = sorted(glob.glob(f"{config.root}/**/*.jpg", recursive=True))
        self.targets = [torch.load(file.replace(".jpg", ".pt")) for file in self.files]
        self.transform = config.train.transform

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        return self.transform(decode_image(self.files[index]), self.targets[index])


CONFIG = Config()

if __name__ == "__main__":
    open("trained", "w").close()
    for image, target in Boats(CONFIG):
        print(image.shape, target)
