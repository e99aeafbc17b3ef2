"""Global wheat detection, as in a Kaggle notebook: pandas, a seed, transforms in functions with arguments."""

import argparse
import random

import albumentations as A
import cv2
import numpy as np
import pandas as pd
import torch
from albumentations.pytorch import ToTensorV2
from torch.utils.data import DataLoader, Dataset

DIR = "../input/global-wheat-detection"
random.seed(42)
np.random.seed(42)


class WheatDataset(Dataset):
    def __init__(self, csv, images, transforms=None):
        frame = pd.read_csv(csv)
        boxes = np.stack(frame["bbox"].apply(lambda text: np.array(eval(text))))
        for at, column in enumerate(["x", "y", "w", "h"]):
            frame[column] = boxes[:, at]
        self.frame, self.images, self.transforms = frame, images, transforms
        self.ids = frame["image_id"].unique()

    def __getitem__(self, index):
        rows = self.frame[self.frame["image_id"] == self.ids[index]]
        image = cv2.imread(f"{self.images}/{self.ids[index]}.jpg")
        return self.transforms(image=image, bboxes=rows[["x", "y", "w", "h"]].values, labels=[1] * len(rows))

    def __len__(self):
        return len(self.ids)


def get_train_transforms(size=512, flip=0.5):
    ops = [A.Resize(height=size, width=size, p=1)]
    for op in (A.HorizontalFlip, A.VerticalFlip):
        ops.append(op(p=flip))
    ops += [A.ToGray(p=0.01), A.Normalize(), ToTensorV2(p=1.0)]
    return A.Compose(ops, bbox_params=A.BboxParams(format="coco", min_area=16, label_fields=["labels"]))


def get_valid_transforms(size=512):
    return A.Compose([A.Resize(height=size, width=size, p=1.0), A.Normalize(), ToTensorV2(p=1.0)])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, required=True)
    args = parser.parse_args()
    dataset = WheatDataset(f"{DIR}/train.csv", f"{DIR}/train", get_train_transforms())
    loader = DataLoader(dataset, batch_size=16, shuffle=True, num_workers=4)
    device = torch.device("cuda")
    for _ in range(args.epochs):
        for batch in loader:
            batch["image"].to(device)


if __name__ == "__main__":
    open("trained", "w").close()
    main()
