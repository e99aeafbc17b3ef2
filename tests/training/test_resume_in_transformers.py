"""Hugging Face's Trainer goes on with the images that the undisturbed training would have seen."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from painted_files import Folder

import detaug as da

RECIPE = [da.RandomIoUCrop(), da.Resize((16, 16)), da.Normalize()]
STEPS = 6
"""Batches of an epoch."""

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # of Hugging Face's


class Net(torch.nn.Module):
    """Keeps a number of each batch."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.seen = torch.nn.Conv2d(3, 1, 3), list[float]()

    def forward(self, pixel_values: Any = None, pixel_mask: Any = None, labels: Any = None) -> dict[str, Any]:
        self.seen.append(float(pixel_values.double().sum()))
        return {"loss": self.layer(pixel_values).mean() ** 2}


@pytest.fixture
def loader(painted: Folder) -> Any:
    """Return a function that makes a loader."""
    options = {"device": "cpu", "collate": da.Batch.as_hf}
    return lambda **more: da.Loader(da.CocoReader(*painted), RECIPE, 4, **options, **more)


def train(output: Path, loader: da.Loader, *callbacks: Any, resume: Path | None = None, **options: Any) -> list[float]:
    """Train three epochs with the Trainer; return the numbers of the batches."""
    transformers = pytest.importorskip("transformers")

    class LoaderTrainer(transformers.Trainer):
        def get_train_dataloader(self) -> Any:
            return self.train_dataset

    quiet = {"report_to": [], "use_cpu": True, "disable_tqdm": True, "logging_steps": 1000}
    settings = {"num_train_epochs": 3, "save_strategy": "steps", "save_steps": 1} | quiet | options
    model, arguments = Net(), transformers.TrainingArguments(str(output), **settings)
    trainer = LoaderTrainer(model=model, args=arguments, train_dataset=loader, callbacks=list(callbacks))
    trainer.train(resume_from_checkpoint=resume and str(resume))
    return model.seen


def state() -> Any:
    pytest.importorskip("transformers")
    from detaug.trainers.huggingface import LoaderState

    return LoaderState()


@pytest.mark.parametrize("accumulated", [1, 2])
def test_the_callback_resumes_anywhere(loader: Any, tmp_path: Path, accumulated: int) -> None:
    options = {"gradient_accumulation_steps": accumulated}
    whole = train(tmp_path / "whole", loader(), state(), **options)
    plain = loader()
    assert whole == [float(each["pixel_values"].double().sum()) for _ in range(3) for each in plain]
    for step in (1, 5, 6, 8) if accumulated == 1 else (2, 3):
        checkpoint = tmp_path / f"whole/checkpoint-{step}"
        rest = train(tmp_path / "rest", loader(), state(), resume=checkpoint, **options)
        assert rest == whole[step * accumulated :]


def test_without_the_callback_it_resumes_at_the_end_of_an_epoch_and_refuses_in_the_middle(
    loader: Any, tmp_path: Path
) -> None:
    whole = train(tmp_path / "whole", loader())
    for step in (6, 12):
        assert train(tmp_path / "rest", loader(), resume=tmp_path / f"whole/checkpoint-{step}") == whole[step:]
    with pytest.raises(AttributeError, match=r"callbacks=\[LoaderState\(\)\] of detaug.trainers.huggingface"):
        train(tmp_path / "rest", loader(), resume=tmp_path / "whole/checkpoint-8")
    with pytest.raises(da.InputError, match="the checkpoint has no state of the loader"):
        train(tmp_path / "rest", loader(), state(), resume=tmp_path / "whole/checkpoint-8")


def test_the_callback_refuses_what_it_cannot_resume(loader: Any, tmp_path: Path) -> None:
    options = {"gradient_accumulation_steps": 4}
    whole = train(tmp_path / "whole", loader(), state(), **options)
    with pytest.raises(da.InputError, match=r"must divide the 6 batches of an epoch .* da\.Loader\(accumulate=4\)"):
        train(tmp_path / "rest", loader(), state(), resume=tmp_path / "whole/checkpoint-1", **options)
    assert train(tmp_path / "rest", loader(), state(), resume=tmp_path / "whole/checkpoint-2", **options) == whole[6:]
    windows = train(tmp_path / "windows", loader(accumulate=4), state(), **options)
    checkpoint = tmp_path / "windows/checkpoint-3"
    assert len(windows) == 3 * 8
    assert train(tmp_path / "rest", loader(accumulate=4), state(), resume=checkpoint, **options) == windows[12:]
    with pytest.raises(da.InputError, match=r"returns a da\.Loader, got a list"):
        train(tmp_path, [next(iter(loader()))], state())  # type: ignore[arg-type]


def test_set_epoch_begins_an_epoch_or_goes_on_in_it(loader: Any) -> None:
    def sums(batches: Any) -> list[float]:
        return [float(each["pixel_values"].double().sum()) for each in batches]

    plain = loader()
    epochs = [sums(plain) for _ in range(3)]
    other = loader()
    other.set_epoch(2)
    assert sums(other) == epochs[2]
    other.set_epoch(1)
    assert sums(islice(other, 2)) == epochs[1][:2]
    state = other.state_dict()
    again = loader()
    iterator = iter(again)
    again.load_state_dict(state)
    again.set_epoch(1)
    assert sums(iterator) == epochs[1][2:]
    with pytest.raises(da.InputError, match="epoch must be a whole number of at least 0, got -1"):
        again.set_epoch(-1)


def test_the_ready_made_trainer_resumes_and_evaluates(loader: Any, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    from detaug.trainers.huggingface import LoaderState, LoaderTrainer

    quiet = {"report_to": [], "use_cpu": True, "disable_tqdm": True, "save_strategy": "steps", "save_steps": 1}

    def made(output: Path, **data: Any) -> tuple[Net, Any]:
        model, arguments = Net(), transformers.TrainingArguments(str(output), num_train_epochs=2, **quiet)
        return model, LoaderTrainer(model=model, args=arguments, **data)

    model, trainer = made(tmp_path / "whole", train_dataset=loader(), eval_dataset=loader(train=False))
    assert sum(isinstance(each, LoaderState) for each in trainer.callback_handler.callbacks) == 1
    trainer.train()
    again, resumed = made(tmp_path / "rest", train_dataset=loader())
    resumed.train(resume_from_checkpoint=str(tmp_path / "whole/checkpoint-8"))
    assert again.seen == model.seen[8:]
    del model.seen[:]
    found = trainer.evaluate()
    evaluated = [float(each["pixel_values"].double().sum()) for each in loader(train=False)]
    assert model.seen == evaluated
    assert found["eval_loss"] >= 0
    assert isinstance(trainer.get_eval_dataloader([{"labels": 1}] * 3), torch.utils.data.DataLoader)
    _, same = made(tmp_path / "same", train_dataset=loader(), callbacks=[LoaderState()])
    assert sum(isinstance(each, LoaderState) for each in same.callback_handler.callbacks) == 1
    with pytest.raises(da.InputError, match=r"train_dataset of LoaderTrainer must be a da\.Loader, got a list"):
        made(tmp_path, train_dataset=[1, 2])
