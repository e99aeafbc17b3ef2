"""A torch DataLoader that gives the batches of a `Loader`, for trainers that take nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch.utils.data import DataLoader, IterableDataset

from detaug.arguments import check
from detaug.errors import InputError
from detaug.loading.loader import Loader

T = TypeVar("T")


def as_dataloader(loader: Loader[T]) -> LoaderAsDataLoader[T]:
    """Return a `torch.utils.data.DataLoader` that yields the batches of a loader, as they are.

    For Fabric's `setup_dataloaders` and for code that asks for a `DataLoader`; Lightning's and Hugging Face's Trainer
    and Accelerate's `prepare` take the loader itself. `len`, `state_dict`, `load_state_dict` and `set_epoch` are those
    of the loader, also behind Fabric's wrapper. The loader decodes in threads of its own and has taken its part of each
    epoch by the process group, so there are no workers and no sampler. Raises InputError unless it is a `Loader`, and
    where another DataLoader is made of the dataset, as Accelerate's `prepare` does on several processes: only the
    batches of rank 0 would be trained on.

    >>> loader = da.Loader(da.CocoReader("demo/VOC/JPEGImages", "train.json"), [da.Resize((64, 64))], 8)
    >>> from detaug.trainers import as_dataloader
    >>> batches = as_dataloader(loader)
    >>> print(isinstance(batches, torch.utils.data.DataLoader), len(batches) == len(loader))
    True True
    """
    check("loader", loader, isinstance(loader, Loader), "a da.Loader")
    return LoaderAsDataLoader(loader)


class LoaderAsDataLoader(DataLoader[T]):
    """What `as_dataloader` returns."""

    def __init__(self, loader: Loader[T]) -> None:
        # A generator of its own, since each iterator draws a seed for workers from the one of the process otherwise.
        super().__init__(_Batches(loader), batch_size=None, collate_fn=_as_it_is, generator=torch.Generator())
        self.loader = loader
        # Of the object, not of its class: Fabric's wrapper copies the former alone.
        self.state_dict, self.load_state_dict = loader.state_dict, loader.load_state_dict
        self.set_epoch = loader.set_epoch

    def __iter__(self) -> Any:
        with self.dataset.taken():  # type: ignore[attr-defined]
            return super().__iter__()


class _Batches(IterableDataset[T]):
    """The batches of a loader, for the one DataLoader that it was made for."""

    def __init__(self, loader: Loader[T]) -> None:
        self._loader, self._is_taken = loader, False

    def __len__(self) -> int:
        return len(self._loader)

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Let an iterator be made."""
        self._is_taken = True
        try:
            yield
        finally:
            self._is_taken = False

    def __iter__(self) -> Iterator[T]:
        if not self._is_taken:
            raise InputError(
                "another DataLoader was made of the dataset of as_dataloader, which would take the batches of one "
                "process for those of all: give the da.Loader itself, as to Accelerate's prepare"
            )
        return iter(self._loader)


def _as_it_is(batch: T) -> T:
    return batch
