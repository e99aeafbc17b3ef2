"""Random histories of loaders: whatever happens to one, its next batch is an undisturbed loader's, bit for bit.

Loaders are iterated, broken off, closed, read by threads, saved and restored on other numbers of shards, while a file
breaks and is corrected.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import chain, repeat
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, rule, run_state_machine_as_test
from painted_files import Folder, digests, paint_files

import detaug as da

GLOBAL_BATCH, STEPS = 6, 4
RECIPE = [da.RandomZoomOut(), da.RandomHorizontalFlip(), da.Resize((40, 50)), da.RandomHSV(), da.Normalize()]
BREAKS = "08.png"
SHARDS = [(0, 1), (0, 2), (1, 2), (2, 3)]


def make_loader(folder: Folder, device: str, shard: tuple[int, int] = (0, 1)) -> da.Loader:
    options: dict[str, Any] = {"on_error": "skip", "max_skipped": 1, "return_params": True, "threads": 1}
    size, pipelines = GLOBAL_BATCH // shard[1], 1 + shard[0] % 2
    return da.Loader(da.CocoReader(*folder), RECIPE, size, device=device, shard=shard, pipelines=pipelines, **options)


def broken(content: bytes) -> bytes:
    """Return as many bytes, which are no image: a state is refused where a file has another length."""
    return bytes(len(content))


class Undisturbed:
    """The digests of the images of each step of a loader to which nothing happens."""

    def __init__(self, folder: Folder, device: str) -> None:
        self._batches = chain.from_iterable(repeat(make_loader(folder, device)))
        self._steps: list[list[str]] = []

    def step(self, at: int) -> list[str]:
        """Return a step, counted over all epochs."""
        while len(self._steps) <= at:
            self._steps.append(list(digests(next(self._batches))))
        return self._steps[at]


class World(NamedTuple):
    """A dataset of which one file may break, and what a loader yields of it if it is whole and if it is broken."""

    folder: Folder
    device: str
    whole: Undisturbed
    broken: Undisturbed


class Life:
    """A loader of one shard, and the step that must come next, counted over all epochs."""

    def __init__(self, world: World, shard: tuple[int, int], at: int = 0) -> None:
        self.world, self.shard, self.at = world, shard, at
        self.loader = make_loader(world.folder, world.device, shard)
        self.batches: Iterator[da.Batch] | None = None
        self.last: da.Batch | None = None
        self.gave = False  # whether the iterator gave a batch
        self.closed = False

    def start(self) -> None:
        """Start an epoch, or again in its middle where the iterator before it gave nothing. That one must end."""
        old, self.batches, self.closed = self.batches, iter(self.loader), False
        if old:
            self.at += -self.at % STEPS if self.gave else 0
            with pytest.raises(RuntimeError, match=r"went on to another epoch|closed"):
                next(old)
        self.gave = False

    def opened(self) -> Iterator[da.Batch]:
        if self.batches is None or self.closed:
            self.start()
        assert self.batches
        return self.batches

    def take(self) -> None:
        self.last = next(self.opened())
        self.compare([self.last])

    def take_in_threads(self) -> None:
        """Take the rest of the epoch in three threads that share an iterator."""
        batches, seen = self.opened(), list[da.Batch]()
        threads = [Thread(target=seen.extend, args=(batches,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.compare(seen)
        assert self.batches is None, "an epoch ended too early"

    def compare(self, batches: list[da.Batch]) -> None:
        """Compare the next batches, in any order, with those of the undisturbed loaders."""
        wanted = [self.wanted(self.at + step) for step in range(len(batches))]
        for batch in batches:
            found = list(digests(batch))
            same = [each for each in wanted if found in each]
            assert same, f"step {self.at} of shard {self.shard} is another batch"
            wanted.remove(same[0])
        self.at += len(batches)
        self.gave |= bool(batches)
        if self.at % STEPS == 0:
            assert next(self.opened(), None) is None, "an epoch has more batches"
            self.batches = None

    def wanted(self, step: int) -> list[list[str]]:
        """Return the digests of this shard's part of a step, of the whole and of the broken dataset."""
        size = GLOBAL_BATCH // self.shard[1]
        part = slice(self.shard[0] * size, (self.shard[0] + 1) * size)
        return [each.step(step)[part] for each in (self.world.whole, self.world.broken)]

    def replay(self, broken: bool) -> None:
        """Make the last batch again, or get an error if its file is broken now."""
        if self.last is None:
            return
        lost = broken and 10 + int(BREAKS[:2]) in self.last.image_id
        with pytest.raises(da.DataError, match=BREAKS) if lost else nullcontext():
            assert list(digests(self.loader.replay(self.last))) == list(digests(self.last))

    def state(self) -> str:
        return json.dumps(self.loader.state_dict())

    def load(self, state: str, at: int) -> None:
        self.loader.load_state_dict(json.loads(state))
        self.at, self.batches = at, None

    def close(self) -> None:
        self.loader.close()
        self.closed = True


class History(RuleBasedStateMachine):
    """Two loaders of one dataset."""

    world: World
    states = Bundle("states")
    which = st.integers(0, 1)
    """The loader that something happens to."""

    def __init__(self) -> None:
        super().__init__()
        self.lives = [Life(self.world, SHARDS[at]) for at in (0, 2)]
        self.file = self.world.folder[0] / BREAKS
        self.content = self.file.read_bytes()

    @rule(which=which, batches=st.integers(1, 3))
    def take(self, which: int, batches: int) -> None:
        for _ in range(batches):
            self.lives[which].take()

    @rule(which=which)
    def take_in_threads(self, which: int) -> None:
        self.lives[which].take_in_threads()

    @rule(which=which)
    def break_off(self, which: int) -> None:
        self.lives[which].start()

    @rule(which=which)
    def close(self, which: int) -> None:
        self.lives[which].close()

    @rule(which=which)
    def replay(self, which: int) -> None:
        self.lives[which].replay(broken=self.file.read_bytes() != self.content)

    @rule(target=states, which=which)
    def save(self, which: int) -> tuple[str, int]:
        return self.lives[which].state(), self.lives[which].at

    @rule(which=which, state=states)
    def load(self, which: int, state: tuple[str, int]) -> None:
        self.lives[which].load(*state)

    @rule(which=which, state=states, shard=st.sampled_from(SHARDS))
    def move(self, which: int, state: tuple[str, int], shard: tuple[int, int]) -> None:
        self.lives[which].loader.close()
        self.lives[which] = Life(self.world, shard)
        self.lives[which].load(*state)

    @rule()
    def break_file(self) -> None:
        self.write(broken(self.content))

    @rule()
    def mend_file(self) -> None:
        """Correct it, and resume, which gives up what is in flight: a batch may have met the broken file already."""
        self.write(self.content)
        for life in self.lives:
            life.load(life.state(), life.at)

    def write(self, content: bytes) -> None:
        """Replace the file whole: a loader may be reading it."""
        new = self.file.with_suffix(".new")
        new.write_bytes(content)
        new.replace(self.file)

    def teardown(self) -> None:
        for life in self.lives:
            life.take()
            life.loader.close()
        self.write(self.content)


@pytest.mark.filterwarnings("ignore:.*skipped")
@pytest.mark.parametrize("examples", [4, pytest.param(40, marks=pytest.mark.slow)])
def test_no_history_changes_a_batch(tmp_path: Path, device: str, examples: int) -> None:
    folder, *models = (
        paint_files(new) for new in map(tmp_path.joinpath, ("used", "whole", "broken")) if not new.mkdir()
    )
    (tmp_path / "broken" / BREAKS).write_bytes(broken((tmp_path / "whole" / BREAKS).read_bytes()))
    world = World(folder, device, *(Undisturbed(model, device) for model in models))
    machine = type("HistoryOfWorld", (History,), {"world": world})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=12,
            deadline=None,
            phases=[Phase.reuse, Phase.generate],  # to shrink a failure takes minutes
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
