"""What test_distributed.py runs under torchrun where Lightning, or Accelerate, is installed.

python -m torch.distributed.run ... frameworks_run.py lightning|accelerate IMAGES JSON OUT      writes OUT/RANK.json
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch

import detaug as da


def make_loader(images: str, annotations: str) -> da.Loader:
    return da.Loader(da.CocoReader(images, annotations), [da.Resize((16, 16)), da.Normalize()], 4, device="cpu")


def with_lightning(images: str, annotations: str) -> list[list[int]]:
    """One epoch with its sampler replacement on, one with it off."""
    import lightning

    seen: list[list[int]] = []

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = torch.nn.Conv2d(3, 1, 3)

        def train_dataloader(self) -> da.Loader:
            return make_loader(images, annotations)

        def training_step(self, batch: da.Batch, _: int) -> torch.Tensor:
            seen.append(batch.image_id.tolist())
            return self.model(batch.images).mean()

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), 0.01)

    quiet = {"logger": False, "enable_progress_bar": False, "enable_checkpointing": False}
    for replaced in (True, False):
        trainer = lightning.Trainer(
            accelerator="cpu",
            devices=2,
            strategy="ddp",
            max_epochs=1,
            use_distributed_sampler=replaced,
            enable_model_summary=False,
            **quiet,
        )
        trainer.fit(Module())
    return seen


def with_accelerate(images: str, annotations: str) -> list[list[int]]:
    """Two epochs."""
    from accelerate import Accelerator

    accelerator, model = Accelerator(cpu=True), torch.nn.Conv2d(3, 1, 3)
    own = make_loader(images, annotations)
    model, optimizer, loader = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 0.01), own)
    assert loader is own
    seen = []
    for _ in range(2):
        for batch in loader:
            optimizer.zero_grad()
            accelerator.backward(model(batch.images).mean())
            optimizer.step()
            seen.append(batch.image_id.tolist())
    accelerator.end_training()
    return seen


if __name__ == "__main__":
    name, images, annotations, out = sys.argv[1:]
    seen = {"lightning": with_lightning, "accelerate": with_accelerate}[name](images, annotations)
    Path(out, f"{os.environ['RANK']}.json").write_text(json.dumps(seen))
