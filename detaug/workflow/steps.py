"""The steps of a workflow, each printed as the command that does it alone, and its time."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from detaug.findings.finding import duration_text


def command_text(*words: object) -> str:
    """Return a command of detaug as a shell takes it; words that are None are left out."""
    return " ".join(["detaug", *(_quoted(word) for word in words if word is not None)])


def _quoted(word: object) -> str:
    """Return a word as a shell takes it: a path that begins like an option as ./-a, line breaks as bash writes them."""
    text = f"./{word}" if isinstance(word, Path) and str(word).startswith("-") else str(word)
    if text.isprintable():
        return shlex.quote(text)
    escaped = "".join(c if c.isprintable() and c not in "'\\" else _escaped(c) for c in text)
    return f"$'{escaped}'"


def _escaped(character: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in os.fsencode(character))


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
