"""The processors and the memory that this process may use, with the limits of a container."""

from __future__ import annotations

import os
from collections.abc import Iterator
from math import ceil
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")


def available_cores(cgroups: Path = CGROUPS) -> int:
    """Return the number of processors that this process may use: its affinity, and the quota of its control groups."""
    cores = len(os.sched_getaffinity(0))
    quotas = [*_core_quotas(cgroups)]
    return max(1, min([cores, *map(ceil, quotas)]))


def available_memory(cgroups: Path = CGROUPS) -> int:
    """Return the bytes of memory that are free for this process: of the machine, and of its control groups."""
    with open("/proc/meminfo", encoding="ascii") as lines:
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    return max(0, min([free, *_free_in_groups(cgroups)]))


def _core_quotas(cgroups: Path) -> Iterator[float]:
    for group in _groups(cgroups, "cpu"):
        quota = _read(group / "cpu.max") or [*_read(group / "cpu.cfs_quota_us"), *_read(group / "cpu.cfs_period_us")]
        if len(quota) == 2 and quota[0] not in ("max", "-1"):
            yield int(quota[0]) / int(quota[1])


def _free_in_groups(cgroups: Path) -> Iterator[int]:
    for group in _groups(cgroups, "memory"):
        limit = _read(group / "memory.max") or _read(group / "memory.limit_in_bytes")
        used = _read(group / "memory.current") or _read(group / "memory.usage_in_bytes")
        if limit and used and limit[0] != "max":
            yield int(limit[0]) - int(used[0]) + _file_cache(group)


def _file_cache(group: Path) -> int:
    """Return the bytes of files in memory, which count as used but are given up when memory is needed."""
    words = _read(group / "memory.stat")
    rows = dict(zip(words[::2], words[1::2], strict=True))
    return int(rows.get("inactive_file", "0"))


def _groups(cgroups: Path, controller: str) -> Iterator[Path]:
    """Yield the folders of the control groups that this process is in, with their parents: of version 2 and 1."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(",") or not controllers:
            root = cgroups / controller if controllers else cgroups
            group = root / path.lstrip("/")
            yield from (folder for folder in (group, *group.parents) if folder == root or root in folder.parents)


def _read(path: Path) -> list[str]:
    """Return the words of a file; none if it cannot be read."""
    try:
        return path.read_text(encoding="ascii").split()
    except OSError:
        return []
