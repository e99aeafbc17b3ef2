"""What test_distributed.py runs where Lightning is installed: training that goes on from checkpoints.

python lightning_run.py IMAGES JSON FOLDER
"""

from __future__ import annotations

import json
import sys

import lightning
import torch

import detaug as da

EPOCHS, STEPS = 3, 6


class Module(lightning.LightningModule):
    def __init__(self, reader: da.CocoReader, estimate: bool) -> None:
        super().__init__()
        self.reader, self.model, self.estimate, self.seen = reader, torch.nn.Conv2d(3, 1, 3), estimate, []

    def train_dataloader(self) -> da.Loader:
        return da.Loader(self.reader, [da.Resize((16, 16)), da.Normalize()], 4, device="cpu")

    def training_step(self, batch: da.Batch, _: int) -> torch.Tensor:
        self.seen.append(batch.image_id.tolist())
        return self.model(batch.images).mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        if self.estimate:
            assert self.trainer.estimated_stepping_batches == EPOCHS * STEPS
        return torch.optim.SGD(self.parameters(), 0.01)


class SaveAt(lightning.Callback):
    """Saves a checkpoint after some steps, and one at the end of each epoch."""

    def __init__(self, folder: str, steps: tuple[int, ...]) -> None:
        self.folder, self.steps = folder, steps

    def on_train_batch_end(self, trainer: lightning.Trainer, *_: object) -> None:
        if trainer.global_step in self.steps:
            trainer.save_checkpoint(f"{self.folder}/{trainer.global_step}.ckpt")

    def on_train_epoch_end(self, trainer: lightning.Trainer, _: lightning.LightningModule) -> None:
        trainer.save_checkpoint(f"{self.folder}/{trainer.global_step}.ckpt")


def fit(estimate: bool, *callbacks: lightning.Callback, limit: float = 1.0, **settings: str) -> list[list[int]]:
    quiet = {
        "logger": False,
        "enable_progress_bar": False,
        "enable_checkpointing": False,
        "enable_model_summary": False,
    }
    quiet |= {"limit_train_batches": limit, "callbacks": list(callbacks)}
    trainer = lightning.Trainer(accelerator="cpu", devices=1, max_epochs=EPOCHS, **quiet)
    module = Module(reader, estimate)
    trainer.fit(module, **settings)
    return module.seen


reader = da.CocoReader(*sys.argv[1:3])
results = []
for estimate in (False, True):
    whole = fit(estimate, SaveAt(sys.argv[3], (2, 8)))
    rest = {at: fit(estimate, ckpt_path=f"{sys.argv[3]}/{at}.ckpt") for at in (2, 6, 8, 12)}
    results.append({"whole": whole, "rest": rest})
whole = fit(False, SaveAt(sys.argv[3], (2, 6)), limit=4)
rest = {at: fit(False, limit=4, ckpt_path=f"{sys.argv[3]}/{at}.ckpt") for at in (2, 4, 6, 8)}
results.append({"whole": whole, "rest": rest})
print(json.dumps(results))
