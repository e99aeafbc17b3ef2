"""After PyTorch's tutorial of transfer learning, with the first version of torchvision's transforms."""

import os
import time

import torch
from torch import nn, optim
from torch.utils.data import DataLoader
from torchvision import datasets, models, transforms

data_transforms = {
    "train": transforms.Compose(
        [
            transforms.RandomResizedCrop(224),
            transforms.RandomHorizontalFlip(),
            transforms.RandomApply([transforms.ColorJitter(0.4, 0.4)], p=0.5),
            transforms.ToTensor(),
            transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
        ]
    ),
    "val": transforms.Compose(
        [
            transforms.Resize(256),
            transforms.CenterCrop(224),
            transforms.ToTensor(),
            transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
        ]
    ),
}


class Ants(datasets.ImageFolder):
    def __init__(self, root, split):
        super().__init__(os.path.join(root, split), data_transforms[split])
        with open(os.path.join(root, "classes.txt")) as file:
            self.class_names = file.read().split()


def train_model(model, loaders, criterion, optimizer, num_epochs=25):
    since = time.time()
    for _ in range(num_epochs):
        for inputs, labels in loaders["train"]:
            optimizer.zero_grad()
            criterion(model(inputs), labels).backward()
            optimizer.step()
    print(f"Training complete in {time.time() - since:.0f} s")


def main():
    loaders = {split: DataLoader(Ants("data/hymenoptera", split), batch_size=4) for split in ("train", "val")}
    model = models.resnet18(weights="IMAGENET1K_V1")
    model.fc = nn.Linear(model.fc.in_features, 2)
    train_model(model, loaders, nn.CrossEntropyLoss(), optim.SGD(model.parameters(), lr=0.001, momentum=0.9))
    torch.save(model.state_dict(), "model.pt")


if __name__ == "__main__":
    open("trained", "w").close()
    main()
