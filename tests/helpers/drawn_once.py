"""Images of the demo that the processes of one test run share: drawing one takes up to half a second."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from filelock import FileLock


def drawn_once(draw: Callable[..., Any], folder: Path) -> Callable[..., Any]:
    """Return the function, which draws an image only if no process with this folder has done so."""

    @cache
    def drawn(*arguments: Any) -> Any:
        path = folder / f"{draw.__name__}-{'-'.join(map(str, arguments))}.pickle"
        folder.mkdir(exist_ok=True)
        with FileLock(f"{path}.lock"):
            if not path.exists():
                unfinished = path.with_suffix(".part")  # a killed process leaves it
                unfinished.write_bytes(pickle.dumps(draw(*arguments)))
                os.replace(unfinished, path)
        return pickle.loads(path.read_bytes())

    return drawn
