"""Loaders in the trainers of other libraries: in the place of their data loaders, and their checkpoints."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from detaug.trainers.dataloader import as_dataloader as as_dataloader

__all__ = ["as_dataloader"]


def __getattr__(name: str) -> Any:
    """Import late: Lightning imports this package whenever it makes a Trainer."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from detaug.trainers import dataloader

    return getattr(dataloader, name)
