"""Say what to write instead of what other data loaders take."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Any, NoReturn, ParamSpec, TypeVar

from detaug.arguments import check_names

P = ParamSpec("P")
R = TypeVar("R")

_DALI_THREADS = "DALI's threads decode; pipelines=N and threads=N set them, and are best left out"

OTHER_NAMES = {
    "num_workers": _DALI_THREADS,
    "persistent_workers": _DALI_THREADS,
    "worker_init_fn": _DALI_THREADS,
    "prefetch_factor": _DALI_THREADS,
    "shuffle": "train=True shuffles, train=False keeps the JSON file's order",
    "drop_last": "write last_batch='drop'",
    "pin_memory": "batches are on the device already",
    "collate_fn": "write collate=FUNCTION, which gets a da.Batch",
    "generator": "write seed=NUMBER",
    "batch_sampler": "write sampler=FUNCTION, such as da.RepeatFactorSampler(0.001)",
    "transform": "give the ops as the second argument",
    "transforms": "give the ops as the second argument",
    "dataset": "give a da.CocoReader(images=FOLDER, annotations=FILE) as the first argument",
}
"""Arguments of torch.utils.data.DataLoader and of datasets, and what `Loader` has in their place."""


def explain_other_names(function: Callable[P, R]) -> Callable[P, R]:
    """Let `function` raise a TypeError that names the right way where an argument of another loader is given.

    For any other unknown name it lists the arguments, as `checks_names` does; one wrapper, since warnings count frames.
    """
    known = [name for name in signature(function).parameters if name != "self"]

    @wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        for name in OTHER_NAMES.keys() & kwargs.keys():
            raise TypeError(f"Loader has no argument {name}: {OTHER_NAMES[name]}")
        check_names("Loader", kwargs, known)
        return function(*args, **kwargs)

    return checked


class _NoDataset:
    """An attribute that is not there until one is set: trainers that look at it get theirs, `loader.dataset = ...`."""

    def __get__(self, loader: object, owner: type | None = None) -> _NoDataset:
        if loader is None:
            return self
        raise AttributeError(
            "a Loader has no dataset to skip batches of: to resume the Trainer of Hugging Face's transformers in the "
            "middle of an epoch, give it callbacks=[LoaderState()] of detaug.trainers.huggingface; in a loop with "
            "Accelerate, load the loader's state instead"
        )


class NoDataLoader:
    """What a `Loader` does not have, and what to write instead."""

    def __next__(self) -> NoReturn:
        raise TypeError("a Loader is not an iterator, since each `for` is an epoch: use next(iter(loader))")

    def __getitem__(self, _: object) -> NoReturn:
        raise TypeError("a Loader is not a Dataset, it yields batches itself: write `for batch in loader`")

    dataset: Any = _NoDataset()
    """Accelerate's `skip_first_batches`, and so the Trainer of transformers, asks for it."""

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Loader belongs to its process: save loader.state_dict(), and make a loader where it is used")
