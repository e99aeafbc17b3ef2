"""Helmets in frames of football: a CSV file, a config class, transforms as a class attribute."""

import csv
import logging
from collections import defaultdict
from pathlib import Path

import albumentations as A
import cv2
from albumentations.pytorch import ToTensorV2
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(level=logging.INFO)
logger = logging.getLogger(__name__)


class CFG:
    root = Path("/data/nfl")
    image_size = (720, 1280)
    batch_size = 8
    p = 0.5
    mean = (0.485, 0.456, 0.406)
    std = (0.229, 0.224, 0.225)


class HelmetDataset(Dataset):
    train_transform = A.Compose(
        [
            A.Resize(*CFG.image_size),
            A.HorizontalFlip(p=CFG.p),
            A.OneOf([A.GaussianBlur((3, 3), (0.8, 0.8)), A.MedianBlur(3)], p=0.2),
            A.Normalize(mean=CFG.mean, std=CFG.std),
            ToTensorV2(),
        ],
        bbox_params=A.BboxParams("pascal_voc", label_fields=["labels"]),
    )

    def __init__(self, split):
        self.boxes = defaultdict(list)
        with open(CFG.root / f"{split}.csv", newline="") as file:
            for row in csv.DictReader(file):
                left, top = float(row["left"]), float(row["top"])
                box = (left, top, left + float(row["width"]), top + float(row["height"]))
                self.boxes[row["image"]].append(box)
        self.names = sorted(self.boxes)
        logger.info("%d images", len(self.names))

    def __len__(self):
        return len(self.names)

    def __getitem__(self, index):
        image = cv2.imread(str(CFG.root / "images" / self.names[index]))
        boxes = self.boxes[self.names[index]]
        return self.train_transform(image=image, bboxes=boxes, labels=[1] * len(boxes))


def train(loader, epochs):
    for epoch in range(epochs):
        for batch in loader:
            logger.info("epoch %d: %s", epoch, batch["image"].shape)


if __name__ == "__main__":
    open("trained", "w").close()
    train(DataLoader(HelmetDataset("train"), CFG.batch_size), epochs=10)
