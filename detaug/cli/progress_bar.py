"""Draw a progress bar on a terminal, for all commands."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from detaug.findings.finding import duration_text

_EVERY = 0.1
"""Seconds between two bars at least."""


class ProgressBar:
    """A bar on stderr with a text beside it; `end` it before anything else is printed."""

    def __init__(self) -> None:
        self._drawn = False

    def draw(self, done: int, total: int, text: str) -> None:
        """Draw the bar over the one before. Its length changes in steps of 5, so that it does not flicker."""
        columns = shutil.get_terminal_size().columns - 1
        length = min(30, (columns - len(text) - 4) // 5 * 5)
        bar = f"[{'#' * (done * length // max(total, 1)):-<{length}}]  {text}" if length > 0 else text
        click.echo("\r" + bar[:columns].ljust(columns), nl=False, err=True)
        self._drawn = True

    def end(self) -> None:
        """Go on to the next line, if a bar is drawn."""
        if self._drawn:
            click.echo(err=True)
        self._drawn = False


@contextmanager
def progress_bar(label: str, quiet: bool) -> Iterator[Callable[[int, int], None] | None]:
    """Yield a function (done, total) that draws a bar with the time left; None where stderr is not a terminal."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    bar, start, next_time, before = ProgressBar(), time.monotonic(), 0.0, 0

    def show(done: int, total: int) -> None:
        nonlocal start, next_time, before
        now = time.monotonic()
        if done < before:  # again from the start, for the next thing to do with the same files
            start = now
        before = done
        if now >= next_time or done == total:
            left = f"  {duration_text((now - start) * (total - done) / done)} left" if 0 < done < total else ""
            bar.draw(done, total, f"{label}  {done / max(total, 1):.0%}{left}")
            next_time = now + _EVERY

    try:
        yield show
    finally:
        bar.end()
