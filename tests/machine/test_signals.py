"""SIGTERM, SIGHUP and Ctrl-C stop a command: no partial file stays, no child lives on, no traceback is printed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from coco_files import document, write, write_images
from command import PYTHON_WITH_USUAL_SIGNALS
from places import REPOSITORY

from detaug.demo.shapes import make_voc
from detaug.machine.child_process import child_process

STOPS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)

# Runs a command that sends itself a signal before its third file gets its name.
STOPPED = """
import os, signal, sys
from detaug.cli.main import main
replace, calls = os.replace, []
def stop(*paths):
    calls.append(paths)
    if len(calls) == 3:
        os.kill(os.getpid(), int(sys.argv[1]))
    return replace(*paths)
os.replace = stop
sys.exit(main(sys.argv[2:]))
"""


@pytest.fixture
def data(tmp_path: Path) -> list[str]:
    images = write_images(tmp_path / "images")
    return [str(write(tmp_path / "train.json", document())), str(images)]


def start(*command: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*PYTHON_WITH_USUAL_SIGNALS, *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
        start_new_session=True,
    )


@pytest.mark.parametrize("stop", STOPS)
def test_a_stopped_command_leaves_no_file(data: list[str], tmp_path: Path, stop: int) -> None:
    out = tmp_path / "out"
    process = start("-c", STOPPED, str(int(stop)), "pack", *data, "-o", str(out), "--shard-size", "1000")
    printed, errors = process.communicate()
    assert (process.returncode, printed, errors) == (130, "", "\ndetaug: interrupted\n")
    assert not list(out.glob(".*"))


def test_signals_that_are_ignored_stay_ignored(data: list[str], tmp_path: Path) -> None:
    ignore = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
    arguments = ("pack", *data, "-o", str(tmp_path / "out"), "--quiet")
    process = start("-c", ignore + STOPPED, str(int(signal.SIGHUP)), *arguments)
    assert (*process.communicate(), process.returncode) == ("", "", 0)


@pytest.mark.parametrize("words", [["-m", "detaug"], ["-c", "import sys; from {} import {} as run; sys.exit(run())"]])
def test_ctrl_c_while_python_imports(words: list[str], tmp_path: Path) -> None:
    """Click is the first library that the command imports; the second command is that of the script that pip makes."""
    (tmp_path / "click.py").write_text("import signal\nsignal.raise_signal(signal.SIGINT)\n")
    entry = re.findall(r'(?m)^detaug = "(.+):(.+)"$', (REPOSITORY / "pyproject.toml").read_text())[0]
    command = [*PYTHON_WITH_USUAL_SIGNALS, *(word.format(*entry) for word in words), "formats"]
    path = os.pathsep.join([str(tmp_path), str(REPOSITORY)])
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "detaug: interrupted\n")


def test_a_process_that_has_just_begun_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = []

    class Interrupted(subprocess.Popen[bytes]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            begun.append(self)
            signal.raise_signal(signal.SIGINT)  # its caller has not got it yet

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        monkeypatch.setattr(subprocess, "Popen", Interrupted)
        with pytest.raises(KeyboardInterrupt), child_process("input()", stdin=subprocess.PIPE):
            pass
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert [each.returncode for each in begun] == [-signal.SIGKILL]


def test_a_process_that_ends_before_it_has_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal to the whole group, as a terminal sends it, ends it between fork and exec."""

    class EndsEarly(subprocess.Popen[bytes]):
        def __init__(self, *arguments: Any, start_new_session: bool, **options: Any) -> None:
            super().__init__(*arguments, **options)

        def poll(self) -> int | None:
            code = super().poll()
            if code is None:
                os.kill(self.pid, signal.SIGKILL)
            return code

    monkeypatch.setattr(subprocess, "Popen", EndsEarly)
    with child_process("input()", stdin=subprocess.PIPE) as process:
        pass
    assert process.returncode == -signal.SIGKILL


def children(pid: int) -> set[int]:
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            rest = path.read_text().rpartition(") ")[2].split()
        except OSError:  # it ended
            continue
        if int(rest[1]) == pid and rest[0] != "Z":
            found.add(int(path.parent.name))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("command", ["bench {} --only decode --seconds 600", "check {} --decode"])
def test_processes_of_a_stopped_command_end(tmp_path: Path, command: str, stop: int) -> None:
    make_voc(tmp_path / "VOC", 20)
    path, images = tmp_path / "train.json", tmp_path / "VOC/JPEGImages"
    subprocess.run(
        [sys.executable, "-m", "detaug", "convert-voc", tmp_path / "VOC", "-o", path], check=True, cwd=REPOSITORY
    )
    process = start("-m", "detaug", *command.format(f"{path} {images}").split())
    while not (started := children(process.pid)):
        assert process.poll() is None
        time.sleep(0.01)
    os.killpg(process.pid, stop)  # as a terminal and a scheduler do
    _, errors = process.communicate()
    assert (process.returncode, "Traceback" in errors) == (130, False), errors
    assert errors.endswith("detaug: interrupted\n")
    for _ in range(100):  # a process that was killed stays listed until the system has cleared it away
        left = [Path(f"/proc/{pid}/cmdline") for pid in started if Path(f"/proc/{pid}").exists()]
        if not left:
            break
        time.sleep(0.1)
    assert not left, [path.read_text() for path in left if path.exists()]
