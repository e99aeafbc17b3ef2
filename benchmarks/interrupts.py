"""Interrupt loaders by Ctrl-C at random moments, also while they are made, and look at what is left of them.

    python benchmarks/interrupts.py [--interrupts 200] [--source files shards videos] [--device cpu]

Most loaders go on after an interrupt, the others are closed and made again. At the end the process must have as many
threads and file descriptors as before, and a new loader must yield the same images; else it exits with 1. Python
ignores a Ctrl-C that meets a callback of a weak reference, such as that of a thread which has ended. Such a Ctrl-C is
sent again after ten seconds, and counted. A source that takes ten times as long as it should, for it hangs, ends the
process with the tracebacks of all threads.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread

import numpy as np
import torch
from soak import held, make_data
from videos import write_video

import detaug as da

SOURCES = ["files", "shards", "videos"]
AGAIN = 10.0
"""Seconds after which an ignored Ctrl-C is sent again."""
HANGS = 3.0
"""Seconds for each interrupt, beside two minutes, after which a source hangs."""


class Sender(Thread):
    """Sends SIGINT to this process after some seconds, again and again until one is caught."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.caught, self.ignored, self._seconds = Event(), -1, seconds

    def run(self) -> None:
        while not self.caught.wait(self._seconds):
            self.ignored, self._seconds = self.ignored + 1, AGAIN
            os.kill(os.getpid(), signal.SIGINT)


def makers(folder: Path, device: str) -> dict[str, Callable[[], da.Loader]]:
    """Write images, shards and videos, and return what makes a loader of each."""
    make_data(folder)
    (folder / "videos").mkdir()
    for at in range(3):
        write_video(folder / f"videos/{at}.mp4", (96, 128), 12, at)
    small = [da.RandomZoomOut(), da.RandomIoUCrop(), da.Resize((32, 32)), da.GaussianBlur(), da.Mosaic()]

    def of_json(images: Path) -> da.Loader:
        reader = da.CocoReader(images, next(images.glob("*.json")))
        return da.Loader(reader, small, 8, device=device, pipelines=2, threads=2)

    def of_videos() -> da.Loader:
        return da.Loader(da.VideoReader(folder / "videos", frames=4, step=40), [da.Resize((32, 32))], 2, device=device)

    return {
        "files": lambda: of_json(folder / "images"),
        "shards": lambda: of_json(folder / "shards"),
        "videos": of_videos,
    }


def epoch(make: Callable[[], da.Loader]) -> list[torch.Tensor]:
    with make() as loader:
        return [batch.images.cpu() for batch in loader]


def interrupt(make: Callable[[], da.Loader], times: int, rng: np.random.Generator) -> int:
    """Take batches until a Ctrl-C, this many times; return how many were ignored."""
    loader, ignored = make(), 0
    for at in range(times):
        sender = Sender(rng.random() * (0.03, 0.25)[at % 2])
        try:
            sender.start()
            if rng.random() < 0.3:
                loader.close()
                loader = make()
            while True:
                for _ in loader:
                    pass
        except KeyboardInterrupt:
            sender.caught.set()
        sender.join()
        ignored += sender.ignored
    loader.close()
    return ignored


def left(device: str, before: dict[str, float] | None = None) -> dict[str, float]:
    """Return the numbers of threads and of file descriptors; wait up to a minute until they are those of `before`."""
    for _ in range(30):
        time.sleep(2)
        now = {name: number for name, number in held(device).items() if name in ("threads", "file descriptors")}
        if now == (before or now):
            break
    return now


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--interrupts", type=int, default=200)
    parser.add_argument("--source", nargs="+", choices=SOURCES, default=SOURCES)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it, and pass that on
    failed, rng = False, np.random.default_rng(options.seed)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a video on a GPU may be decoded by PyAV, which is one
        every = makers(Path(folder), options.device)
        for name in options.source:
            faulthandler.dump_traceback_later(120 + HANGS * options.interrupts, exit=True)
            expected, before = epoch(every[name]), left(options.device)
            ignored, after = interrupt(every[name], options.interrupts, rng), left(options.device, before)
            same = all(map(torch.equal, epoch(every[name]), expected))
            failed |= not same or after != before
            print(f"{name}: {options.interrupts} interrupts, {ignored} ignored by Python; before {before}", end="")
            print(f", after {after}; same images: {same}", flush=True)
            faulthandler.cancel_dump_traceback_later()
    return failed


if __name__ == "__main__":
    sys.exit(main())
