"""Let DALI remember the functions in which a node is made, and not their lines of code.

It asks the file system about each file of the stack, for each node: a sixth of the time of building a pipeline. The
names are enough for errors that name the op. The whole stack is for readers, who look at it outside of tests.
"""

from __future__ import annotations

import sys
import traceback
from types import FrameType, SimpleNamespace
from typing import NamedTuple

import pytest
from nvidia.dali._utils import dali_trace


class Frame(NamedTuple):
    """What DALI reads of a traceback.FrameSummary."""

    filename: str
    lineno: int
    name: str
    line: str


def extract_stack(limit: int) -> list[Frame]:
    """Return the last frames of the caller's stack, as traceback.extract_stack does."""
    frame: FrameType | None = sys._getframe(1)
    frames = []
    while frame and len(frames) < limit:
        frames.append(Frame(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name, ""))
        frame = frame.f_back
    return frames[::-1]


def shorten_traces(patch: pytest.MonkeyPatch) -> None:
    """Replace the module that DALI asks for the stack."""
    module = SimpleNamespace(extract_stack=extract_stack, FrameSummary=traceback.FrameSummary)
    patch.setattr(dali_trace, "traceback", module)
