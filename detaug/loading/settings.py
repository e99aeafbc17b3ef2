"""How the loader spreads its work: settings that change its speed and nothing that it yields."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import torch

from detaug.ops.arguments import check


@dataclass(frozen=True)
class Settings:
    """What `detaug tune` looks for."""

    pipelines: int
    """DALI pipelines that take turns."""
    threads: int
    """CPU threads of each."""
    depth: int = 2
    """How often each pipeline has batches in work: with one, it would stand still while its last is collected."""
    together: int = 1
    """Batches that a pipeline works on as one, where it can: what small ones cost adds up."""
    hw_decoder_load: float = 1.0
    """The share of a batch's JPEGs that goes to the GPU's JPEG engine, the rest to its other cores."""

    def __post_init__(self) -> None:
        for name in ("pipelines", "threads", "depth", "together"):
            value = getattr(self, name)
            check(name, value, type(value) is int and value >= 1, "a whole number of at least 1")
        share = isinstance(self.hw_decoder_load, int | float) and 0 <= self.hw_decoder_load <= 1
        check("hw_decoder_load", self.hw_decoder_load, share, "a share in 0..1")


TOGETHER_ON_GPU = 256
"""Images of 300 x 300 that a pipeline works on as one, several batches: they share what a run costs Python.
A larger one, which takes more memory, counts for more: up to 2."""
TOGETHER_ON_CPU = 128
"""The same there, a larger one up to 3: at the end of a batch the threads wait for each other."""
IN_WORK = 768
"""Images of 300 x 300 that a GPU is given at once in batches one by one: with fewer it waits for Python. A larger one
counts for up to 2."""
PIXELS_IN_WORK = 350_000_000
"""Of images made, 4.2 GB as float32; more only if two batches for each pipeline have more."""


def choose_settings(
    device: torch.device,
    batch_size: int,
    pixels: int,
    file: str | os.PathLike[str] | None = None,
    *,
    may_join: bool = True,
    pipelines: int | None = None,
    threads: int | None = None,
) -> Settings:
    """Those given, else those of a file that `detaug tune` wrote, else what suits the device.

    `pixels`: of an image after the recipe. `may_join`: can a pipeline work on several batches together?
    """
    on_cpu = device.type == "cpu"
    chosen = asdict(_on_cpu(batch_size, pixels) if on_cpu else _on_gpu(batch_size, pixels, may_join))
    chosen |= {"together": 1, **read_settings(file)} if file is not None else {}
    chosen |= {name: value for name, value in (("pipelines", pipelines), ("threads", threads)) if value is not None}
    return Settings(**(chosen if may_join else chosen | {"together": 1}))


def _on_cpu(batch_size: int, pixels: int) -> Settings:
    together = _up_to_8(TOGETHER_ON_CPU / (batch_size * _weight(pixels, 3)), least=1)
    return Settings(1, threads=len(os.sched_getaffinity(0)), together=together)


def _on_gpu(batch_size: int, pixels: int, may_join: bool) -> Settings:
    images, most = batch_size * _weight(pixels, 2), PIXELS_IN_WORK / (batch_size * pixels)
    together = _up_to_8(min(TOGETHER_ON_GPU / images, most / 6), least=1) if may_join else 1
    depth = 3 if together > 1 else _up_to_8(min(IN_WORK / images, most) / 2, least=2)
    return Settings(pipelines=2, threads=2, depth=depth, together=together)


def _weight(pixels: int, most: int) -> float:
    """How many images of 300 x 300 one counts for."""
    return min(max(pixels / (300 * 300), 1), most)


def _up_to_8(number: float, least: int) -> int:
    return int(min(max(number, least), 8))


def read_settings(file: str | os.PathLike[str]) -> dict[str, int | float]:
    """Raises FileNotFoundError where there is no file, ValueError for one that `detaug tune` did not write."""
    known = {field.name for field in fields(Settings)}
    remedy = f"detaug tune ANNOTATIONS.json IMAGES -o {os.fspath(file)} writes one"
    try:
        content = json.loads(Path(file).read_bytes())["settings"]
        wrong = sorted(set(content) - known)
    except FileNotFoundError:
        raise FileNotFoundError(f"{os.fspath(file)}: no such file of settings; {remedy}") from None
    except (ValueError, KeyError, TypeError, IsADirectoryError):
        raise ValueError(f"{os.fspath(file)}: not a file of settings; {remedy}") from None
    if wrong:
        raise ValueError(f"{os.fspath(file)}: no settings of this version: {', '.join(wrong)}; run detaug tune again")
    return dict(content)


def write_settings(file: str | os.PathLike[str], settings: Settings) -> None:
    """For `Loader(..., settings=file)`."""
    Path(file).write_text(json.dumps({"settings": asdict(settings)}, indent=2) + "\n", encoding="utf-8")
