"""Drones: a config in JSON beside the script, and transforms as an attribute of an object, as YOLO's."""

import json
import random
from pathlib import Path

import albumentations as A
import numpy as np
from helpers_of_drones import read_image
from torch.utils.data import Dataset

CONFIG = json.loads((Path(__file__).parent / "drones.json").read_text())


class SkyNoise(A.ImageOnlyTransform):
    """An op of our own."""

    def apply(self, img, **params):
        sky = img[: len(img) // 3].astype(np.float32)
        img[: len(img) // 3] = (sky + random.gauss(0, 4)).clip(0, 255)
        return img


class Augmentations:
    def __init__(self, size=CONFIG["size"]):
        self.transform = A.Compose(
            [
                A.RandomResizedCrop(size=(size, size), scale=tuple(CONFIG["scale"]), p=1.0),
                A.D4(p=1.0),
                SkyNoise(p=0.3),
                A.SomeOf([A.ChannelShuffle(p=1), A.InvertImg(p=1), A.ToGray(p=1)], n=1, p=CONFIG["colors"]),
                A.Normalize(normalization="standard"),
            ],
            bbox_params=A.BboxParams(format="yolo", label_fields=["classes"], min_visibility=0.0, min_area=9.0),
        )

    def __call__(self, image, labels):
        return self.transform(image=image, bboxes=labels[:, 1:], classes=labels[:, 0])


class Drones(Dataset):
    def __init__(self, folder=CONFIG["images"], augment=True):
        self.files = sorted(Path(folder).glob("*.jpg"))
        if not self.files:
            raise FileNotFoundError(f"no images in {folder}")
        self.labels = [np.loadtxt(file.with_suffix(".txt"), ndmin=2) for file in self.files]
        self.augment = Augmentations() if augment else None

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        return self.augment(read_image(self.files[index]), self.labels[index])


def main():
    open("trained", "w").close()
    for item in Drones():
        print(item["image"].shape)


if __name__ == "__main__":
    main()
