"""A Trainer of Hugging Face's transformers for a `Loader`, and the callback that resumes it."""

from __future__ import annotations

from typing import Any

from transformers import Trainer
from transformers.trainer_callback import ExportableState, TrainerCallback

from detaug.errors import InputError
from detaug.loading.loader import Loader


class LoaderTrainer(Trainer):  # type: ignore[misc]
    """A Trainer whose `train_dataset` is a loader of batches; its `eval_dataset` may be one, too.

    The batches are those of the loaders as they are: `da.Loader(..., collate=da.Batch.as_hf)`. It has the callback
    `LoaderState`, so that `resume_from_checkpoint` goes on with the images that come next. Raises InputError for
    training data other than a `Loader`.

        trainer = LoaderTrainer(model=model, args=arguments, train_dataset=loader)
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        data = self.train_dataset
        if not (data is None or isinstance(data, Loader)):
            raise InputError(f"train_dataset of LoaderTrainer must be a da.Loader, got a {type(data).__name__}")
        if not any(isinstance(callback, LoaderState) for callback in self.callback_handler.callbacks):
            self.add_callback(LoaderState())

    def get_train_dataloader(self) -> Any:
        """Return the loader."""
        return self.train_dataset

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        """Return the loader, or what the Trainer makes of a dataset."""
        data = self.eval_dataset if eval_dataset is None else eval_dataset
        return data if isinstance(data, Loader) else super().get_eval_dataloader(eval_dataset)


class LoaderState(TrainerCallback, ExportableState):  # type: ignore[misc]
    """Saves the state of the loader in the Trainer's checkpoints, and goes to it when the training is resumed.

    For a Trainer whose `get_train_dataloader` returns a `Loader`. The Trainer itself would skip batches by means that a
    loader does not have, so its argument `ignore_data_skip` becomes True. Raises InputError for another data loader,
    for a checkpoint without a state, and in the middle of an epoch whose number of batches is not a multiple of
    `gradient_accumulation_steps`: the Trainer would shift the steps of the optimizer.

        trainer = LoaderTrainer(model=model, args=arguments, train_dataset=loader)  # has it
        trainer.train(resume_from_checkpoint=True)
    """

    def __init__(self) -> None:
        self._loader: Any = None

    def on_init_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Let the Trainer skip no batches."""
        args.ignore_data_skip = True

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Go to the position of the checkpoint, if the training is resumed from one."""
        args.ignore_data_skip = True  # also where the callback was added later
        self._loader = train_dataloader = kwargs["train_dataloader"]
        if not isinstance(train_dataloader, Loader):
            kind = type(train_dataloader).__name__
            raise InputError(
                f"LoaderState needs a Trainer whose get_train_dataloader returns a da.Loader, got a {kind}"
            )
        if not state.global_step:
            return
        saved = state.stateful_callbacks.get("LoaderState", {}).get("attributes", {}).get("loader")
        if saved is None:
            raise InputError(
                "the checkpoint has no state of the loader: its training ran without LoaderState among the callbacks. "
                "Leave LoaderState out to go on at the start of its epoch"
            )
        accumulated = args.gradient_accumulation_steps
        if len(train_dataloader) % accumulated and 0 < saved["step"] < len(train_dataloader):
            raise InputError(
                f"gradient_accumulation_steps={accumulated} must divide the {len(train_dataloader)} batches of an "
                f"epoch to resume in the middle of it: resume from a checkpoint of the end of an epoch; "
                f"da.Loader(accumulate={accumulated}) makes such epochs"
            )
        train_dataloader.load_state_dict(saved)

    def state(self) -> dict[str, Any]:
        """Return what the Trainer saves in trainer_state.json."""
        return {"args": {}, "attributes": {"loader": self._loader.state_dict()} if self._loader else {}}
