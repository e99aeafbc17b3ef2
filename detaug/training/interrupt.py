"""Let Ctrl-C stop a training between two steps, where its state can be saved."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import distributed as dist


class InterruptedTrainingError(KeyboardInterrupt):
    """Ctrl-C stopped a training between two steps, and its checkpoint is saved."""


@dataclass
class Interrupt:
    """Whether Ctrl-C was pressed."""

    pressed: bool = False


@contextmanager
def deferred_interrupt() -> Iterator[Interrupt]:
    """Yield an `Interrupt` that the first Ctrl-C sets; the second one raises KeyboardInterrupt at once.

    All of them raise it at once where this process cannot decide: outside of the main thread, under torchrun, whose
    processes would stop at different steps, and where the program handles or ignores the signal already.
    """
    interrupt = Interrupt()

    def on_signal(number: int, frame: Any) -> None:
        if interrupt.pressed:
            signal.default_int_handler(number, frame)
        interrupt.pressed = True

    is_main = threading.current_thread() is threading.main_thread()
    is_free = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not (is_main and is_free) or dist.is_initialized():
        yield interrupt
        return
    signal.signal(signal.SIGINT, on_signal)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
