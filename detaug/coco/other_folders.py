"""Find the folder that is meant where another one was given for the images of a JSON file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def other_folder_with(names: Sequence[str], folder: Path, annotations: Path) -> Path | None:
    """Return a folder that has all these images: above `folder`, one or two levels below, or beside the JSON file."""
    below = (path for pattern in ("*/", "*/*/") for path in sorted(folder.glob(pattern)))
    guesses = (folder.parent, annotations.parent, *below)
    return next((guess for guess in guesses if all((guess / name).is_file() for name in names)), None)


def hint_where(name: str, folder: Path, annotations: Path) -> str:
    """Return the end of a message that says which other folder has the image; "" if none has."""
    other = other_folder_with([name], folder, annotations)
    return f"; {other} has it" if other else ""
