"""A detector small enough to learn some images by heart while one waits."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from detaug import presets
from detaug.loading.batch import Batch
from detaug.loading.loader import Loader
from detaug.sheets import Detections
from detaug.sources.source import Source

SIZE = 128
STRIDE = 8
IMAGES = 8


class CenterDetector(nn.Module):
    """Finds objects by their centers (Zhou et al., Objects as Points, 2019), on a grid of cells of 8 x 8 pixels.

    For each cell: a logit of each class, which is high where an object has its center; and the distances from the
    cell's middle to the left, upper, right and lower side of the box, as logarithms of cells.
    """

    def __init__(self, classes: int) -> None:
        super().__init__()
        sizes = [(3, 16, 2, 1), (16, 32, 2, 1), (32, 48, 2, 1), *[(48, 48, 1, dilation) for dilation in (1, 2, 1)]]
        parts: list[nn.Module] = []
        for inputs, outputs, stride, dilation in sizes:
            parts += [nn.Conv2d(inputs, outputs, 3, stride, dilation, dilation), nn.GroupNorm(8, outputs), nn.ReLU()]
        last = nn.Conv2d(48, classes + 4, 1)
        self.layers = nn.Sequential(*parts, last)
        self.classes = classes

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits (N, classes, H, W) and boxes (N, H, W, 4), XYXY in pixels, of images (N, 3, H * 8, W * 8)."""
        output = self.layers(images)  # few cells have a center, so logits begin at -3
        away = output[:, self.classes :].clamp(-4, 4).exp().movedim(1, -1)
        y, x = middles(output)
        middle = torch.stack(torch.meshgrid(x, y, indexing="xy") * 2, -1)
        signs = torch.tensor([-1, -1, 1, 1], device=images.device)
        return output[:, : self.classes] - 3, (middle + signs * away) * STRIDE

    def loss(self, batch: Batch) -> Tensor:
        """Return the focal loss of the centers, and the distance of the boxes of cells near a center."""
        logits, boxes = self(batch.images)
        image, row = batch.valid.nonzero(as_tuple=True)
        wanted, kind = batch.boxes[image, row], batch.labels[image, row] - 1
        center = (wanted[:, :2] + wanted[:, 2:]) / 2 / STRIDE
        y, x = middles(logits)
        squared = (x - center[:, :1])[:, None] ** 2 + ((y - center[:, 1:])[..., None]) ** 2  # (boxes, H, W)
        heat = torch.zeros_like(logits)
        for index, of_class, distance in zip(image.tolist(), kind.tolist(), squared, strict=True):
            heat[index, of_class] = heat[index, of_class].maximum((-2 * distance).exp())
            heat[index, of_class].view(-1)[distance.argmin()] = 1
        share = logits.sigmoid()
        weight = torch.where(heat == 1, (1 - share) ** 2, share**2 * (1 - heat) ** 4)
        focal = (
            functional.binary_cross_entropy_with_logits(logits, (heat == 1).float(), reduction="none") * weight
        ).sum()
        of_box, down, across = (squared < 1).nonzero(as_tuple=True)
        far = functional.l1_loss(boxes[image[of_box], down, across], wanted[of_box], reduction="sum")
        return (focal + far / STRIDE / 4) / max(1, len(wanted))

    @torch.no_grad()
    def predict(self, images: Tensor) -> list[dict[str, Tensor]]:
        """Return boxes, scores and labels of each image, as torchvision's detectors do: the cells above all around."""
        logits, boxes = self(images)
        scores = logits.sigmoid()
        peaks = scores == functional.max_pool2d(scores, 3, 1, 1)
        detections = []
        for of_image, high, where in zip(scores, peaks, boxes, strict=True):
            label, down, across = (high & (of_image > 0.1)).nonzero(as_tuple=True)
            detections.append(
                {"boxes": where[down, across], "scores": of_image[label, down, across], "labels": label + 1}
            )
        return detections


def middles(grid: Tensor) -> tuple[Tensor, Tensor]:
    """Return y (H,) and x (W,) of the middles of the cells of a grid (..., H, W), in cells."""
    y, x = (torch.arange(size, device=grid.device) + 0.5 for size in grid.shape[-2:])
    return y, x


def learn_by_heart(reader: Source, steps: int, device: torch.device, seed: int) -> list[Detections]:
    """Train on the first images of a reader for this many steps, and return the detections in them."""
    recipe = presets.evaluation((SIZE, SIZE))
    batch = next(iter(Loader(reader, recipe, min(IMAGES, len(reader)), device=device, train=False)))
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = CenterDetector(len(reader.class_names) - 1).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.01, total_steps=steps)
    for _ in range(steps):
        loss = model.loss(batch)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), 10)
        optimizer.step()
        schedule.step()
    return Detections.of(batch, model.predict(batch.images))
