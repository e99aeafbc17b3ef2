"""`detaug tune`: find the fastest settings of the loader for this machine and this data."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from detaug.arguments import check, is_number
from detaug.bench.loaders import make_loader
from detaug.bench.measure import BenchJob
from detaug.findings.finding import rate_text
from detaug.loading.devices import resolve_device
from detaug.loading.loader import Loader
from detaug.loading.settings import Settings, can_group, decoded_bytes, write_settings
from detaug.machine.cores import available_cores
from detaug.outputs.guards import output_files
from detaug.recipes.kernel_chain import chain_for

WORTH_IT = 1.03
"""The speedup over the defaults from which other settings are chosen; less is noise."""

SHARE_OF_TRIALS = 0.7
"""Fraction of the time of `tune` for trials; the rest is for measuring the best settings again."""


@dataclass(frozen=True)
class Tuned:
    """The result of `tune`."""

    settings: Settings
    rate: float
    """Images per second with them."""
    default_rate: float
    tried: int
    device: str
    batch_size: int
    output: Path | None
    decoded_bytes: int
    """Of the decoded images in flight."""

    def __str__(self) -> str:
        values = "".join(f", {name}={value!r}" for name, value in asdict(self.settings).items())
        gain = self.rate / self.default_rate
        written = f"settings={str(self.output)!r}" if self.output else "the same settings in a file (-o)"
        return (
            f"tried {self.tried} settings at batch {self.batch_size} on {self.device}: "
            f"{rate_text(self.rate)} images/s, {gain:.2f} times the defaults' {rate_text(self.default_rate)}\n"
            f"Settings({values[2:]}), {self.decoded_bytes / 1e9:.2g} GB of decoded images\n"
            f"da.Loader(reader, recipe, {self.batch_size}, {written})"
        )


def tune(
    annotations: str | Path,
    images: str | Path,
    *,
    preset: str = "ssd300",
    batch_size: int = 32,
    device: str | None = None,
    output: str | Path | None = None,
    seconds: float = 90.0,
    say: Callable[[str], None] = lambda line: None,
) -> Tuned:
    """Change one setting after the other and adopt what is faster, for about `seconds` at most.

    At the end the best settings and the defaults are measured again, interleaved; `output` is written for
    `Loader(settings=...)`. Raises InputError, before anything is measured, if it cannot be written.
    """
    output_files({"output": output}, annotations, images)
    check("seconds", seconds, is_number(seconds) and seconds > 0, "a finite number above 0")
    chosen, start = resolve_device(device), time.monotonic()
    loader = make_loader(BenchJob(str(annotations), str(images), preset, batch_size, str(chosen)))
    default = loader.settings
    per_trial = seconds / 45
    rates: dict[Settings, float] = {}

    def rate(settings: Settings) -> float:
        if settings not in rates and time.monotonic() - start < seconds * SHARE_OF_TRIALS:
            rates[settings] = _rate(loader, settings, per_trial)
            say(f"{_short(settings)}: {rate_text(rates[settings])} images/s")
        return rates.get(settings, 0.0)

    best = default
    for name, values in _choices(chosen, can_group(loader.recipe, chain_for(loader.recipe, chosen))).items():
        best = max([best, *(replace(best, **{name: value}) for value in values)], key=rate)
    final_rates = _interleaved_rates(loader, [default, best], per_trial)
    loader.close()
    say("\n".join(f"again, {_short(settings)}: {rate_text(rate)} images/s" for settings, rate in final_rates.items()))
    winner = best if final_rates[best] > WORTH_IT * final_rates[default] else default
    if output:
        write_settings(output, winner)
    written = Path(output) if output else None
    memory = decoded_bytes(loader.reader, winner, [loader.recipe], batch_size, loader.device)
    return Tuned(
        winner, final_rates[winner], final_rates[default], len(rates), str(chosen), batch_size, written, memory
    )


def _choices(device: torch.device, groups: bool) -> dict[str, list[Any]]:
    """Return the values to try of each setting, the setting with the largest effect first."""
    cores = available_cores()
    if device.type == "cpu":
        return {"pipelines": [2, 3], "threads": sorted({max(1, cores // 2), cores, cores + 1}), "depth": [1, 3]}
    threads = [count for count in (1, 2, 3, 4) if count <= cores]
    group_sizes = {"batches_per_group": [1, 2, 4, 8]} if groups else {}
    return {
        "pipelines": [1, 3, 4],
        "threads": threads,
        **group_sizes,
        "depth": [1, 3, 4, 8],
        "hw_decoder_load": [0.65, 0.8, 0.95],
    }


def _interleaved_rates(loader: Loader, candidates: Iterable[Settings], seconds: float) -> dict[Settings, float]:
    """Return the median of three measurements of each candidate."""
    turns: dict[Settings, list[float]] = {settings: [] for settings in candidates}
    for _ in range(3):
        for settings, rates in turns.items():
            rates.append(_rate(loader, settings, seconds))
    return {settings: statistics.median(rates) for settings, rates in turns.items()}


def _rate(loader: Loader, settings: Settings, seconds: float) -> float:
    """Return the images per second of the loader with these settings, after a warm-up that is not timed."""
    loader.close()
    loader.settings = settings
    batches = (batch for _ in iter(int, 1) for batch in loader)
    for _ in range(2 * settings.pipelines * settings.depth * settings.batches_per_group):
        next(batches)
    images, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        images += len(next(batches))
    if loader.device.type == "cuda":
        torch.cuda.synchronize(loader.device)
    return images / (time.perf_counter() - start)


def _short(settings: Settings) -> str:
    return ", ".join(f"{name} {value}" for name, value in asdict(settings).items())
