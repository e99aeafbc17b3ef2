"""A torch DataLoader of our batches: equal to the loader's, with its state, in Fabric, Lightning and Accelerate."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from painted_files import Folder
from torch.utils.data import DataLoader

import detaug as da
from detaug.errors import InputError
from detaug.trainers import as_dataloader

RECIPE = [da.RandomIoUCrop(), da.Resize((16, 16)), da.Normalize()]

quiet = pytest.mark.filterwarnings("ignore")  # of other libraries


def make(painted: Folder, **more: Any) -> da.Loader[Any]:
    return da.Loader(da.CocoReader(*painted), RECIPE, 4, device="cpu", **more)


def sums(batches: Iterable[da.Batch]) -> list[float]:
    return [batch.images.double().sum().item() for batch in batches]


def test_the_batches_are_those_of_the_loader(painted: Folder) -> None:
    wanted, batches = make(painted), as_dataloader(make(painted))
    assert isinstance(batches, DataLoader)
    assert len(batches) == len(wanted)
    for _ in range(2):
        before = torch.get_rng_state()
        assert sums(batches) == sums(wanted)
        assert torch.get_rng_state().equal(before)  # DataLoader itself would draw a number for each iterator


def test_what_a_collate_function_returns_is_not_changed(painted: Folder) -> None:
    """DataLoader's own function would make a list of a tuple."""
    batches = as_dataloader(make(painted, collate=lambda batch: (batch.images, {"labels": batch.labels.numpy()})))
    images, targets = next(iter(batches))
    assert isinstance(next(iter(batches)), tuple)
    assert images.shape == (4, 3, 16, 16)
    assert type(targets["labels"]).__name__ == "ndarray"


def test_a_state_goes_on_in_the_middle_of_an_epoch(painted: Folder) -> None:
    wanted = make(painted)
    every = [*sums(wanted), *sums(wanted)]
    batches = as_dataloader(make(painted))
    first = sums(islice(batches, 2))
    again = as_dataloader(make(painted))
    again.load_state_dict(batches.state_dict())
    assert [*first, *sums(again), *sums(again)] == every
    again.set_epoch(1)
    assert sums(again) == every[len(wanted) :]


def test_what_is_no_loader(painted: Folder) -> None:
    with pytest.raises(InputError, match=r"loader must be a da\.Loader, got"):
        as_dataloader([1, 2])  # type: ignore[arg-type]


def test_another_dataloader_of_its_data_is_refused(painted: Folder) -> None:
    batches = as_dataloader(make(painted))
    for _ in range(2):  # before and after an epoch
        with pytest.raises(InputError, match=r"give the da\.Loader itself, as to Accelerate's prepare"):
            next(iter(DataLoader(batches.dataset, batch_size=None)))
        assert len(sums(batches)) == len(batches)


@quiet
def test_accelerate_is_to_have_the_loader_itself(painted: Folder) -> None:
    accelerate = pytest.importorskip("accelerate")
    accelerator = accelerate.Accelerator(cpu=True)
    with pytest.raises(InputError, match=r"give the da\.Loader itself, as to Accelerate's prepare"):
        next(iter(accelerator.prepare(as_dataloader(make(painted)))))
    assert sums(accelerator.prepare(make(painted))) == sums(make(painted))


@quiet
def test_fabric_sets_it_up(painted: Folder) -> None:
    lightning = pytest.importorskip("lightning")
    fabric = lightning.Fabric(accelerator="cpu", devices=1)
    wanted = make(painted)
    every = [*sums(wanted), *sums(wanted)]
    batches = fabric.setup_dataloaders(as_dataloader(make(painted)))
    assert len(batches) == len(wanted)
    first = sums(islice(batches, 2))
    again = fabric.setup_dataloaders(as_dataloader(make(painted)))
    again.load_state_dict(batches.state_dict())
    assert [*first, *sums(again), *sums(again)] == every
    again.set_epoch(1)
    assert sums(again) == every[len(wanted) :]


@quiet
@pytest.mark.slow
def test_lightning_resumes_it(painted: Folder, tmp_path: Path) -> None:
    """From a checkpoint in the middle of the second epoch, as from one of a loader itself."""
    lightning = pytest.importorskip("lightning")

    class Net(lightning.LightningModule):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.seen = torch.nn.Conv2d(3, 1, 3), list[float]()

        def training_step(self, batch: da.Batch, _: int) -> Any:
            self.seen.append(batch.images.double().sum().item())
            return self.layer(batch.images).mean() ** 2

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.01)

    def fit(steps: int, checkpoint: Path | None = None) -> tuple[Any, list[float]]:
        options = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
        trainer = lightning.Trainer(max_steps=steps, default_root_dir=tmp_path, enable_checkpointing=False, **options)
        net = Net()
        trainer.fit(net, as_dataloader(make(painted)), ckpt_path=checkpoint)
        return trainer, net.seen

    length = len(make(painted))
    trainer, first = fit(length + 2)
    trainer.save_checkpoint(tmp_path / "middle.ckpt")
    _, rest = fit(3 * length, tmp_path / "middle.ckpt")
    loader = make(painted)
    assert [*first, *rest] == [number for _ in range(3) for number in sums(loader)]
