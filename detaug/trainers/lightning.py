"""A callback of Lightning that loads the states of loaders from a checkpoint.

Lightning itself does not load them from a checkpoint of the end of an epoch, nor where `configure_optimizers` reads
`trainer.estimated_stepping_batches` (Lightning#20550): the training would go on with the images of epoch 0. It finds
the callback by the entry points of the installed package, and gives it to every Trainer.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any


def callbacks() -> list[Any]:
    """Return the callback for `lightning.pytorch.Trainer`."""
    return [_loader_states("lightning.pytorch")]


def callbacks_of_pytorch_lightning() -> list[Any]:
    """Return the callback for `pytorch_lightning.Trainer`."""
    return [_loader_states("pytorch_lightning")]


def _loader_states(package: str) -> Any:
    class LoaderStates(import_module(package).Callback):  # type: ignore[misc]
        """Goes to the position of a checkpoint before the first batch is taken."""

        states: list[Mapping[str, Any]] = []  # noqa: RUF012
        epoch_ended = False
        """Whether the checkpoint is of the end of an epoch of the Trainer."""

        def setup(self, trainer: Any, _module: Any, stage: str) -> None:
            if stage == "fit" and package == "pytorch_lightning" and "detaug.trainers.rf_detr" in sys.modules:
                sys.modules["detaug.trainers.rf_detr"].check_takes_loader(trainer.datamodule)

        def on_load_checkpoint(self, _trainer: Any, _module: Any, checkpoint: Mapping[str, Any]) -> None:
            fit_loop = checkpoint.get("loops", {}).get("fit_loop", {})
            self.states = fit_loop.get("state_dict", {}).get("combined_loader", [])
            self.epoch_ended = bool(fit_loop.get("epoch_loop.batch_progress", {}).get("is_last_batch"))

        def on_train_start(self, trainer: Any, _module: Any) -> None:
            if not self.states or "detaug.loading.loader" not in sys.modules:
                return
            every = import_module(f"{package}.utilities").CombinedLoader(trainer.train_dataloader).flattened
            with_state = [loader for loader in every if hasattr(loader, "load_state_dict")]
            for own, state in zip(with_state, self.states, strict=True):
                loader = getattr(own, "loader", own)  # that of `as_dataloader`
                if isinstance(loader, sys.modules["detaug.loading.loader"].Loader):
                    loader.load_state_dict(state)
                    if self.epoch_ended and state["step"]:
                        # With limit_train_batches the Trainer's epoch ends before the loader's, and the next begins
                        # with the loader's next one.
                        loader.set_epoch(state["epoch"] + 1)
            self.states = []

    return LoaderStates()
