"""Let Ctrl-C, or the SIGTERM of a scheduler, stop a training between two steps, where its state can be saved."""

from __future__ import annotations

import os
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

    SIGTERM and SIGHUP do the same where they raise KeyboardInterrupt too, as in the command. All raise it at once where
    this process cannot decide: outside of the main thread, under torchrun, whose processes would stop at different
    steps, and where the program handles or ignores the signal already.
    """
    interrupt = Interrupt()

    def on_signal(number: int, frame: Any) -> None:
        if interrupt.pressed:
            signal.default_int_handler(number, frame)
        interrupt.pressed = True
        os.write(2, b"\nstopping after this step; once more stops at once\n")  # print is not safe in a handler

    is_main = threading.current_thread() is threading.main_thread()
    possible = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    free = [
        signal_number for signal_number in possible if signal.getsignal(signal_number) is signal.default_int_handler
    ]
    changed = free if is_main and not dist.is_initialized() else []
    for signal_number in changed:
        signal.signal(signal_number, on_signal)
    try:
        yield interrupt
    finally:
        for signal_number in changed:
            signal.signal(signal_number, signal.default_int_handler)
