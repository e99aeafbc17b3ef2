"""After torchvision's references: presets in a class, chosen by a command line."""

import argparse
import os
import time

import torch
import torchvision
from torchvision.transforms import InterpolationMode
from torchvision.transforms import v2 as T


class DetectionPresetTrain:
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
        elif data_augmentation == "multiscale":
            transforms += [
                T.RandomShortestSize(
                    min_size=tuple(range(480, 801, 32)), max_size=1333, interpolation=InterpolationMode.BILINEAR
                ),
                T.RandomHorizontalFlip(p=hflip_prob),
            ]
        elif data_augmentation == "ssd":
            fill = {torchvision.tv_tensors.Image: tuple(mean), "others": 0}
            transforms += [T.RandomPhotometricDistort(), T.RandomZoomOut(fill=fill), T.RandomIoUCrop()]
            transforms += [T.RandomHorizontalFlip(p=hflip_prob)]
        else:
            raise ValueError(f'Unknown data augmentation policy "{data_augmentation}"')
        transforms += [T.ToDtype(torch.float, scale=True), T.SanitizeBoundingBoxes(), T.ToPureTensor()]
        self.transforms = T.Compose(transforms)

    def __call__(self, img, target):
        return self.transforms(img, target)


def get_args_parser():
    parser = argparse.ArgumentParser(description="PyTorch Detection Training")
    parser.add_argument("--data-path", required=True, type=str)
    parser.add_argument("--data-augmentation", default="hflip", type=str)
    parser.add_argument("--device", default="cuda", type=str)
    return parser


def main(args):
    dataset = torchvision.datasets.CocoDetection(
        os.path.join(args.data_path, "train2017"),
        os.path.join(args.data_path, "annotations/instances_train2017.json"),
        transforms=DetectionPresetTrain(data_augmentation=args.data_augmentation),
    )
    model = torchvision.models.get_model("fasterrcnn_resnet50_fpn", weights="DEFAULT").to(args.device)
    start = time.time()
    for image, target in dataset:
        model([image], [target])
    print("Training time", time.time() - start)


if __name__ == "__main__":
    open("trained", "w").close()
    main(get_args_parser().parse_args())
