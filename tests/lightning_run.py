"""What test_distributed.py runs where Lightning is installed: training that goes on from a checkpoint.

python lightning_run.py IMAGES JSON CHECKPOINT
"""

from __future__ import annotations

import json
import sys

import lightning
import torch

import detaug as da


class Module(lightning.LightningModule):
    def __init__(self, reader: da.CocoReader) -> None:
        super().__init__()
        self.reader, self.model, self.seen = reader, torch.nn.Conv2d(3, 1, 3), []

    def train_dataloader(self) -> da.Loader:
        return da.Loader(self.reader, [da.Resize((16, 16)), da.Normalize()], 4, device="cpu")

    def training_step(self, batch: da.Batch, _: int) -> torch.Tensor:
        self.seen.append(batch.image_id.tolist())
        return self.model(batch.images).mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.01)


def fit(reader: da.CocoReader, steps: int, **settings: str) -> tuple[lightning.Trainer, list[list[int]]]:
    quiet = {"logger": False, "enable_progress_bar": False, "enable_checkpointing": False, "barebones": False}
    trainer = lightning.Trainer(accelerator="cpu", devices=1, max_steps=steps, enable_model_summary=False, **quiet)
    module = Module(reader)
    trainer.fit(module, **settings)
    return trainer, module.seen


reader = da.CocoReader(*sys.argv[1:3])
whole = fit(reader, 14)[1]
trainer, seen = fit(reader, 8)  # two steps into the second epoch
trainer.save_checkpoint(sys.argv[3])
rest = fit(reader, 14, ckpt_path=sys.argv[3])[1]
print(json.dumps({"whole": whole, "seen": seen, "rest": rest}))
