"""Frames that are decoded ahead come in the order in which they are asked for, whatever that is."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import chain, repeat

import numpy as np
import pytest
from numpy.typing import NDArray

from detaug.arrays import Ints
from detaug.storage.storage import Upcoming
from detaug.video import frames_ahead
from detaug.video.frames_ahead import FramesAhead, Run

VIDEO_OF = np.repeat([0, 1, 2], 10)
KEYS = np.ones(30, np.int64)


class Decoder:
    """Decodes a frame to its number, and keeps the runs; frames in `broken` do not decode."""

    def __init__(self, *broken: int) -> None:
        self.runs: list[Run] = []
        self.broken = broken
        self.lock = threading.Lock()

    def __call__(self, run: Run) -> list[NDArray[np.uint8]]:
        with self.lock:
            self.runs.append(run)
        if found := set(run) & set(self.broken):
            raise OSError(f"frame {min(found)} does not decode")
        return [np.array([frame], np.uint8) for frame in run]


def ahead(decoder: Decoder, length: int = 1) -> FramesAhead:
    return FramesAhead(decoder, VIDEO_OF, np.arange(30), KEYS, np.full(30, length), 4)


def upcoming(*orders: list[int]) -> Iterator[Upcoming]:
    return iter([Upcoming(np.array(order), np.ones(len(order), bool)) for order in orders])


def values(frames: list[NDArray[np.uint8]]) -> list[int]:
    return [int(frame[0]) for frame in frames]


def clips(*starts: int) -> Ints:
    return (np.array(starts)[:, None] + np.arange(4)).reshape(-1)


def test_each_run_is_decoded_once() -> None:
    decoder = Decoder()
    frames, order = ahead(decoder), clips(10, 0, 24, 3, 14, 20)
    frames.start(upcoming(order.tolist(), order[::-1].tolist()))
    for at in range(0, 24, 8):
        assert values(frames.get(order[at : at + 8])) == order[at : at + 8].tolist()
    runs = [tuple(each.tolist()) for each in order.reshape(-1, 4)]
    with decoder.lock:  # threads have begun with the second order
        assert [decoder.runs.count(run) for run in runs] == [1] * 6


@pytest.mark.parametrize(
    "order",
    [[5], [5, 5, 5], [9, 10], [3, 2, 1], [0, 1, 2, 3, 4, 5, 6, 7, 8, 9], [0, 4, 8, 10, 14, 29, 28], []],
)
def test_any_frames_may_be_asked_for(order: list[int]) -> None:
    frames = ahead(Decoder())
    frames.start(upcoming([1, 2, 3], [7]))
    assert values(frames.get(np.array(order, np.int64))) == order


def test_frames_that_are_passed_over() -> None:
    decoder = Decoder()
    frames = ahead(decoder)
    frames.start(upcoming(clips(0, 10, 20, 4, 14).tolist()))
    assert values(frames.get(clips(20))) == clips(20).tolist()
    assert values(frames.get(clips(14))) == clips(14).tolist()
    assert values(frames.get(clips(0))) == clips(0).tolist()
    assert decoder.runs.count((0, 1, 2, 3)) <= 2


def test_no_more_is_decoded_than_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames_ahead, "BYTES_AHEAD", 100)
    decoder = Decoder()
    frames = ahead(decoder, length=20)
    frames.start(upcoming(clips(*range(24)).tolist()))
    assert values(frames.get(clips(0))) == [0, 1, 2, 3]
    for _, future in frames._ahead:
        future.result()
    assert len(decoder.runs) <= 4  # two that wait, since the second begins below the limit; one that was taken


def test_an_error_comes_where_the_frame_does() -> None:
    frames = ahead(Decoder(11))
    frames.start(upcoming(clips(0, 10, 20).tolist()))
    assert values(frames.get(clips(0))) == [0, 1, 2, 3]
    with pytest.raises(OSError, match="frame 11 does not decode"):
        frames.get(clips(10, 20))
    assert values(frames.get(clips(20))) == clips(20).tolist()


def test_epochs_without_frames_are_not_searched_for_ever() -> None:
    nothing = Upcoming(np.arange(8), np.zeros(8, bool))
    frames = ahead(Decoder())
    frames.start(chain(upcoming(clips(0).tolist()), repeat(nothing)))
    assert values(frames.get(clips(0, 4))) == clips(0, 4).tolist()


def test_another_order_takes_the_place_of_the_first() -> None:
    decoder = Decoder()
    frames = ahead(decoder)
    frames.start(upcoming(clips(0, 4, 10).tolist()))
    frames.start(upcoming(clips(20, 24).tolist()))
    assert values(frames.get(clips(20, 24))) == clips(20, 24).tolist()
    assert decoder.runs.count((20, 21, 22, 23)) == 1


def test_long_clips_are_decoded_from_several_key_frames() -> None:
    decoder = Decoder()
    keys = np.concatenate([np.repeat([1, 2, 3, 4], 9), np.repeat(np.arange(5, 29), 1)])
    frames = FramesAhead(decoder, np.zeros(60, np.int64), np.arange(60), keys, np.ones(60), 60)
    assert [int(each[0]) for each in frames.get(np.arange(60))] == [*range(60)]
    assert sorted((run[0], len(run)) for run in decoder.runs) == [
        *((0, 9), (9, 9), (18, 9), (27, 9)),
        *((36, 8), (44, 8), (52, 8)),  # every frame a key frame
    ]
