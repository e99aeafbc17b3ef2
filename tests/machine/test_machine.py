"""The cores and the memory that a process may use, with the limits of control groups."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from detaug.machine.cores import CGROUPS, available_cores, available_memory

MEASURE = "from detaug.machine.cores import *; print(available_cores(), available_memory())"


@contextlib.contextmanager
def control_group(controller: str, **limits: str) -> Iterator[Path]:
    """Make a control group of version 1 with these limits, or skip the test."""
    group = CGROUPS / controller / f"detaug-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    try:
        for name, value in limits.items():
            (group / f"{controller}.{name}").write_text(value)
        yield group
    finally:
        group.rmdir()


def run_in(group: Path) -> list[int]:
    """Return the cores and the memory that a process in this group finds."""
    code = f"open({str(group / 'cgroup.procs')!r}, 'w').write('0')\n{MEASURE}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return [int(word) for word in done.stdout.split()]


def test_a_quota_of_the_processor_limits_the_cores() -> None:
    with control_group("cpu", cfs_period_us="100000", cfs_quota_us="100000") as group:
        assert run_in(group)[0] == 1


def test_a_limit_of_memory_counts() -> None:
    with control_group("memory", limit_in_bytes=str(300 << 20)) as group:
        assert 100 << 20 < run_in(group)[1] <= 300 << 20


@pytest.mark.parametrize(("quota", "cores"), [("max 100000", None), ("50000 100000", 1), ("100000 100000", 1)])
def test_limits_of_version_2(tmp_path: Path, quota: str, cores: int | None) -> None:
    """The files of a container, which sees its own group as the root."""
    (tmp_path / "cpu.max").write_text(quota + "\n")
    (tmp_path / "memory.max").write_text("1000000\n")
    (tmp_path / "memory.current").write_text("400000\n")
    (tmp_path / "memory.stat").write_text("anon 300000\ninactive_file 50000\n")
    assert available_cores(tmp_path) == (cores or len(os.sched_getaffinity(0)))
    assert available_memory(tmp_path) == 650000


def test_no_quota_of_version_1(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "cpu"):  # of version 2's root, and of the controller's
        folder.mkdir(exist_ok=True)
        (folder / "cpu.cfs_quota_us").write_text("-1\n")
        (folder / "cpu.cfs_period_us").write_text("100000\n")
    assert available_cores(tmp_path) == len(os.sched_getaffinity(0))


def test_without_control_groups_the_machine_decides(tmp_path: Path) -> None:
    assert available_cores(tmp_path) == len(os.sched_getaffinity(0))
    assert available_memory(tmp_path) > 1 << 20
