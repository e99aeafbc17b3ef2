"""After torchvision's tutorial of fine-tuning on the Penn-Fudan dataset."""

import os

import torch
from torchvision import tv_tensors
from torchvision.io import read_image
from torchvision.ops.boxes import masks_to_boxes
from torchvision.transforms import v2 as T


class PennFudanDataset(torch.utils.data.Dataset):
    def __init__(self, root, transforms):
        self.root = root
        self.transforms = transforms
        self.imgs = sorted(os.listdir(os.path.join(root, "PNGImages")))
        self.masks = sorted(os.listdir(os.path.join(root, "PedMasks")))

    def __getitem__(self, idx):
        img = read_image(os.path.join(self.root, "PNGImages", self.imgs[idx]))
        mask = read_image(os.path.join(self.root, "PedMasks", self.masks[idx]))
        obj_ids = torch.unique(mask)[1:]
        boxes = masks_to_boxes((mask == obj_ids[:, None, None]).to(dtype=torch.uint8))
        target = {
            "boxes": tv_tensors.BoundingBoxes(boxes, format="XYXY", canvas_size=img.shape[-2:]),
            "labels": torch.ones((len(obj_ids),), dtype=torch.int64),
        }
        return self.transforms(tv_tensors.Image(img), target)

    def __len__(self):
        return len(self.imgs)


def get_transform(train):
    transforms = []
    if train:
        transforms.append(T.RandomHorizontalFlip(0.5))
    transforms.append(T.Resize(size=(480, 640)))
    transforms.append(T.ToDtype(torch.float, scale=True))
    transforms.append(T.ToPureTensor())
    return T.Compose(transforms)


def main():
    dataset = PennFudanDataset("data/PennFudanPed", get_transform(train=True))
    indices = torch.randperm(len(dataset)).tolist()
    dataset = torch.utils.data.Subset(dataset, indices[:-50])
    for images, targets in torch.utils.data.DataLoader(dataset, batch_size=2, collate_fn=list):
        print(len(images), len(targets))


if __name__ == "__main__":
    open("trained", "w").close()
    main()
