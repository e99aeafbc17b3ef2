"""Traffic signs: arguments are parsed on import, transforms are built in a loop and kept in a dict."""

import argparse
import json
import os

import albumentations as A
import cv2
import torch
from albumentations.pytorch import ToTensorV2

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--size", type=int, default=640)
parser.add_argument("--data", default=os.environ.get("TRAFFIC", "data/traffic"))
args = parser.parse_args()

STRENGTH = {"color": 0.3, "blur": 0.1}
NORMALIZE = [A.Normalize(mean=(0, 0, 0), std=(1, 1, 1), max_pixel_value=255.0), ToTensorV2()]
LETTERBOX = [
    A.LongestMaxSize(max_size=args.size),
    A.PadIfNeeded(args.size, args.size, border_mode=cv2.BORDER_CONSTANT, fill=114),
]
extra = []
for name, p in STRENGTH.items():
    if name == "color":
        extra.append(A.RandomBrightnessContrast(brightness_limit=0, contrast_limit=0.2, p=p))
    else:
        extra.append(A.GaussianBlur(blur_limit=(5, 5), sigma_limit=(1, 2), p=p))

TRANSFORMS = {
    split: A.Compose(
        LETTERBOX + ([A.HorizontalFlip(p=0.5), *extra] if split == "train" else []) + NORMALIZE,
        bbox_params=A.BboxParams(format="coco", label_fields=["labels"]),
    )
    for split in ("train", "val")
}


class Signs(torch.utils.data.Dataset):
    def __init__(self, split):
        with open(os.path.join(args.data, f"{split}.json")) as file:
            coco = json.load(file)
        self.images = coco["images"]
        self.transform = TRANSFORMS[split]

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.transform(image=cv2.imread(self.images[index]["file_name"]), bboxes=[], labels=[])


if __name__ == "__main__":
    open("trained", "w").close()
    loader = torch.utils.data.DataLoader(Signs("train"), batch_size=4)
    for step, batch in enumerate(loader):
        print(step, batch["image"].shape)
