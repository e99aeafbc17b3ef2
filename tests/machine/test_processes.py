"""Functions called in other processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from functools import partial
from operator import neg
from pathlib import Path

import pytest

from detaug.machine.parallel import map_in_processes

SCRIPT_WITHOUT_A_GUARD = """
import os, sys, threading
from operator import neg
from detaug.machine.parallel import map_in_processes
print("once")
threading.Thread(target=threading.Event().wait, daemon=True).start()
print([*map_in_processes(neg, range(5), 2)])
"""


def children() -> set[str]:
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


def test_results_come_in_order_from_other_processes() -> None:
    before = children()
    slow_first = [0.3, 0, 0, 0.1, 0, 0]
    assert list(map_in_processes(time.sleep, slow_first, 2)) == [None] * 6
    words = [f"{at} word" for at in range(40)]
    assert list(map_in_processes(str.split, words, 3)) == [word.split() for word in words]
    assert children() == before


def test_the_callers_script_is_not_run_again() -> None:
    command = [sys.executable, "-W", "error", "-c", SCRIPT_WITHOUT_A_GUARD]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["once", "[0, -1, -2, -3, -4]"]


def test_modules_in_the_working_folder_are_not_those_of_this_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "detaug").mkdir()
    for name in ("detaug/__init__.py", "json.py"):
        (tmp_path / name).write_text("raise SystemExit('of another program')")
    monkeypatch.chdir(tmp_path)
    assert [*map_in_processes(neg, [1, 2], 1)] == [-1, -2]
    (tmp_path / "own.py").write_text("from operator import neg\ndef twice(x): return -2 * neg(x)")
    (tmp_path / "detaug").rename(tmp_path / "elsewhere")
    (tmp_path / "json.py").unlink()
    command = [sys.executable, "-c", SCRIPT_WITHOUT_A_GUARD.replace("(neg,", "(own.twice,").replace("os,", "own, os,")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["once", "[0, 2, 4, 6, 8]"]  # -c of this program has the folder


def test_a_killed_process_is_an_error() -> None:
    before = children()
    with pytest.raises(EOFError):
        list(map_in_processes(signal.raise_signal, [signal.SIGKILL], 2))
    assert children() == before


def test_an_error_in_another_process_keeps_its_traceback() -> None:
    with pytest.raises(RuntimeError, match=r"Traceback[\s\S]*invalid literal for int"):
        list(map_in_processes(partial(int, base=10), ["1", "two"], 2))


def test_whoever_stops_early_leaves_no_process() -> None:
    before = children()
    results = map_in_processes(time.sleep, [0] * 3 + [0.2] * 1000, 2)
    next(results)
    results.close()
    assert children() == before
