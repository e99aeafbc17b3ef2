"""Stretches of videos: where they are cut, the order of their clips, and what is held in memory."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from io import BytesIO
from itertools import count
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
import torch
from numbered_videos import CODECS, SIZE, number_in, write_video
from numpy.typing import NDArray
from seeds import slow

import detaug as da
from detaug.files.video_file import Coding, VideoError, VideoIndex, read_index
from detaug.loading.epochs import LANE, OPEN, EpochOrder
from detaug.storage.storage import Upcoming
from detaug.video.nvdec import cut
from detaug.video.stretches import Stretches, StretchesAhead, starts_of_stretches

Ints = NDArray[np.int64]


def index_of(frames: int, keys: int) -> VideoIndex:
    return VideoIndex(np.arange(frames), np.arange(0, frames, keys), 1 / 25, SIZE, Coding("h264", "yuv420p", 0))


@pytest.mark.parametrize(
    ("frames", "keys", "length", "expected"),
    [
        (300, 30, 128, [0, 150]),
        (300, 30, 60, [0, 60, 120, 180, 240]),
        (300, 1, 128, [0, 128, 256]),
        (300, 250, 128, [0, 250]),
        (300, 250, 100, [0, 125, 250]),
        (300, 1000, 100, [0, 100, 200]),
        (7, 1000, 128, [0]),
    ],
)
def test_stretches_begin_at_key_frames(frames: int, keys: int, length: int, expected: list[int]) -> None:
    assert starts_of_stretches(index_of(frames, keys), length) == expected


@pytest.mark.parametrize("name", [*[*CODECS][:3], *slow(*[*CODECS][3:])])
def test_a_part_of_a_file_decodes_to_its_frames(tmp_path: Path, name: str) -> None:
    """FFmpeg's decoder is the second implementation of what the GPU does with the part."""
    write_video(tmp_path / name, 60, CODECS[name])
    index = read_index(str(tmp_path / name))
    for numbers in ([0, 1, 2], [20, 25, 30], [13], [13, 14], [59], [3, 50], [*range(60)], [*range(5, 40, 7)]):
        content, at = cut(str(tmp_path / name), index, numbers)
        with av.open(BytesIO(content.tobytes())) as part:
            found = [number_in(frame.to_ndarray(format="rgb24")) for frame in part.decode(video=0)]
        assert [found[each] for each in at] == numbers
        assert len(found) <= 60


def test_only_what_is_needed_is_cut_out(tmp_path: Path) -> None:
    write_video(tmp_path / "a.mp4", 300, keys=30)
    index = read_index(str(tmp_path / "a.mp4"))
    content, _ = cut(str(tmp_path / "a.mp4"), index, [*range(60, 90)])
    with av.open(BytesIO(content.tobytes())) as part:
        assert 30 <= len([*part.decode(video=0)]) <= 33


def test_a_file_that_was_cut_off_since(tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.mkv", 300, keys=30)
    index = read_index(str(path))
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(VideoError, match=r"has no frame 299 any more|cannot be read around frame 290"):
        cut(str(path), index, [290, 299])
    path.unlink()
    with pytest.raises(FileNotFoundError):
        cut(str(path), index, [290, 299])


# ------------------------------------------------------------------------------------------- the order


def order_of(clips: int, each: int, batch: int, shard: tuple[int, int] = (0, 1), **options: Any) -> EpochOrder:
    """Return the order of clips of one image, `each` of which make a stretch."""
    items = np.arange(clips)
    names: Any = {"seed": 3, "train": True, "groups": np.zeros(clips, int), "factors": None, "rounds": None, **options}
    names = {"stretches": items // each, **names}
    return EpochOrder(clips=items[:, None], batch_size=batch, shard=shard, **names)


@pytest.mark.parametrize(("clips", "batch"), [(1, 8), (5, 8), (100, 8), (1000, 24), (1000, 12), (1003, 32)])
def test_every_clip_comes_once(clips: int, batch: int) -> None:
    for last in ("partial", "fill"):
        steps = order_of(clips, 7, batch, last_batch=last).steps(2)
        assert sorted(np.concatenate(steps)[:clips]) == [*range(clips)]
    factors = np.resize([0.5, 1, 2], clips)
    drawn = np.concatenate(order_of(clips, 7, batch, factors=factors, last_batch="partial").steps(2))
    times = np.bincount(drawn, minlength=clips)
    assert (np.abs(times - factors) < 1).all() or clips <= batch


def test_epochs_and_seeds_have_other_orders() -> None:
    orders = [order_of(1000, 8, 16, seed=seed).steps(epoch) for seed in (0, 1) for epoch in (0, 1)]
    first = {tuple(np.concatenate(each)[:16].tolist()) for each in orders}
    assert len(first) == 4


def test_shards_share_one_order() -> None:
    whole = order_of(1000, 8, 64).steps(1)
    for world in (2, 4, 8):
        parts = [order_of(1000, 8, 64 // world, (rank, world)).batches(1) for rank in range(world)]
        for step, batches in zip(whole, zip(*parts, strict=True), strict=True):
            assert (np.concatenate(batches) == step).all()


def test_shards_have_other_stretches() -> None:
    """So no two GPUs decode the same, but for the stretches where one's part ends and another's begins."""
    parts = [order_of(8000, 8, 16, (rank, 4), last_batch="drop").batches(0) for rank in range(4)]
    stretches = [np.unique(np.concatenate(batches) // 8) for batches in parts]
    assert sum(map(len, stretches)) <= 1000 + 8 * LANE


def test_few_stretches_are_open_at_a_time() -> None:
    order = np.concatenate(order_of(8000, 8, LANE, last_batch="drop").steps(0)) // 8
    _, first = np.unique(order, return_index=True)
    last = len(order) - 1 - np.unique(order[::-1], return_index=True)[1]
    steps = np.arange(0, len(order), LANE)
    is_open = (first <= steps[:, None]) & (steps[:, None] <= last)
    assert is_open.sum(1).max() <= 2 * OPEN
    assert is_open.sum(1).mean() <= 1.1 * OPEN


def test_the_clips_of_a_batch_are_of_several_stretches() -> None:
    batches = np.stack(order_of(8000, 8, LANE, last_batch="drop").steps(0)) // 8
    of_each = [len(np.unique(batch)) for batch in batches]
    assert np.mean(of_each) == pytest.approx(5.5, abs=0.3)  # docs/video.md says so
    neighbours = np.abs(np.diff(np.unique(batches.reshape(-1), return_index=True)[1]))
    assert np.median(neighbours) > 1000  # parts of a video that follow each other come far from each other


# ------------------------------------------------------------------------------------------- what is held


class Decoder:
    """Decodes to the numbers of the frames, and counts."""

    def __init__(self) -> None:
        self.decoded: list[int] = []
        self.fails: set[int] = set()
        self._lock = threading.Lock()

    def __call__(self, frames: Ints) -> torch.Tensor:
        with self._lock:
            self.decoded += frames.tolist()
        if bad := self.fails.intersection(frames.tolist()):
            raise VideoError(f"does not decode around frame {min(bad)}")
        return torch.from_numpy(frames.copy())[:, None, None, None]


def stretches_of(videos: int = 20, frames: int = 64, clip: int = 4, length: int = 32) -> Stretches:
    numbers = np.tile(np.arange(frames), videos)
    clips = np.arange(videos * frames).reshape(-1, clip)
    names = [f"{video}.mp4" for video in range(videos)]
    video_of = np.repeat(np.arange(videos), frames)
    return Stretches(names, [index_of(frames, 8)] * videos, video_of, numbers, clips, length)


def upcoming(stretches: Stretches, order: Iterable[Ints]) -> Iterator[Upcoming]:
    for clips in order:
        indices = stretches.clips[clips].reshape(-1)
        yield Upcoming(indices, np.ones(len(indices), bool))


def numbers_of(frames: list[torch.Tensor]) -> list[int]:
    return [int(frame) for frame in frames]


def test_each_stretch_is_decoded_once_and_dropped_after_its_last_clip() -> None:
    stretches, decoder = stretches_of(), Decoder()
    order = order_of(len(stretches.clips), 8, 8, stretches=stretches.of_clips, last_batch="drop")
    epochs = [np.concatenate(order.steps(epoch)) for epoch in range(2)]
    ahead = StretchesAhead(stretches, decoder, threads=3)
    ahead.start(upcoming(stretches, epochs))
    for clips in epochs:
        for at in range(0, len(clips), 8):
            indices = stretches.clips[clips[at : at + 8]].reshape(-1)
            assert numbers_of(ahead.get(indices)) == indices.tolist()
            assert len(ahead._held) <= 2 * OPEN + 3
    ahead.close()
    assert {*np.bincount(decoder.decoded)} <= {1, 2}  # once in both epochs, if it is open where one ends


def test_fewer_stretches_than_are_decoded_ahead_stay_for_all_epochs() -> None:
    stretches, decoder = stretches_of(videos=1), Decoder()
    ahead = StretchesAhead(stretches, decoder, threads=9)
    ahead.start(upcoming(stretches, (np.random.default_rng(epoch).permutation(16) for epoch in count())))
    for epoch in range(20):
        indices = stretches.clips[np.random.default_rng(epoch).permutation(16)].reshape(-1)
        assert numbers_of(ahead.get(indices)) == indices.tolist()
    ahead.close()
    assert sorted(decoder.decoded) == [*range(64)]


def test_clips_that_were_not_announced_are_decoded_too() -> None:
    stretches, decoder = stretches_of(), Decoder()
    ahead = StretchesAhead(stretches, decoder, threads=2)
    indices = stretches.clips[[7, 3, 100, 7]].reshape(-1)
    assert numbers_of(ahead.get(indices)) == indices.tolist()
    assert not ahead._held
    ahead.close()


def test_a_bad_frame_spoils_its_clip_alone() -> None:
    stretches, decoder = stretches_of(), Decoder()
    decoder.fails = {9}
    ahead = StretchesAhead(stretches, decoder, threads=2)
    ahead.start(upcoming(stretches, [np.arange(16)]))
    for clip in (0, 1, 3):
        assert numbers_of(ahead.get(stretches.clips[clip])) == stretches.clips[clip].tolist()
    with pytest.raises(VideoError, match="frame 9"):
        ahead.get(stretches.clips[2])
    ahead.close()


def test_another_order_forgets_the_first() -> None:
    stretches, decoder = stretches_of(), Decoder()
    ahead = StretchesAhead(stretches, decoder, threads=2)
    ahead.start(upcoming(stretches, [np.arange(100)]))
    ahead.start(upcoming(stretches, [np.arange(200, 300)]))
    indices = stretches.clips[200:208].reshape(-1)
    assert numbers_of(ahead.get(indices)) == indices.tolist()
    assert all(each >= 25 for each in ahead._held)
    ahead.close()


@pytest.mark.parametrize("stretch", [0, -1, 1.5, True, "128"])
def test_arguments(tmp_path: Path, stretch: Any) -> None:
    write_video(tmp_path / "a.mp4", 20)
    with pytest.raises(da.InputError, match="stretch must be a whole number of at least 1"):
        da.VideoReader(tmp_path, frames=4, stretch=stretch, cache=False)


def test_a_state_belongs_to_its_stretches(tmp_path: Path) -> None:
    write_video(tmp_path / "a.mp4", 200, keys=5)

    def loader(stretch: int) -> da.Loader[da.ClipBatch]:
        reader = da.VideoReader(tmp_path, frames=4, stretch=stretch, cache=False)
        return da.Loader(reader, [da.Resize(SIZE)], 8, device="cpu")

    state = loader(20).state_dict()
    loader(20).load_state_dict(state)
    with pytest.raises(da.InputError, match="same stretch"):
        loader(40).load_state_dict(state)
