"""The steps of a workflow, each printed as the command that does it alone, and its time."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from detaug.findings.finding import duration_text


def command_text(*words: object) -> str:
    """Return a command of detaug as a shell takes it; words that are None are left out."""
    return shlex.join(["detaug", *(str(word) for word in words if word is not None)])


@dataclass
class Steps:
    """Prints the steps, and keeps their commands for the README of the run."""

    say: Callable[[str], None]
    commands: list[str] = field(default_factory=list)

    def report(self, result: object) -> None:
        """Print what a step printed alone, below its command."""
        self.say("\n".join(f"  {line}" for line in str(result).splitlines()))

    @contextmanager
    def step(self, *words: object) -> Iterator[None]:
        """Print a step's command before the block, and its time after it."""
        self.commands.append(command_text(*words))
        self.say(f"\n$ {self.commands[-1]}")
        start = time.monotonic()
        yield
        self.say(f"  {duration_text(time.monotonic() - start)}")
