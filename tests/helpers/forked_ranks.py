"""Run a script in forked processes as torchrun does: torch and DALI are imported once, not by the launcher and each.

python forked_ranks.py PROCESSES SCRIPT ARGUMENT...      exits with 1 if one of them fails; the others are ended then
"""

from __future__ import annotations

import os
import runpy
import signal
import sys

import torch._dynamo  # noqa: F401 - the first optimizer imports it, which takes seconds
from torch.distributed import TCPStore

import detaug.training.loop  # noqa: F401


def main(processes: int, arguments: list[str]) -> int:
    """Fork before anything starts a thread; return the exit code."""
    reading, writing = os.pipe()
    running = set()
    for rank in range(processes):
        pid = os.fork()
        if not pid:
            ranks = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": processes, "LOCAL_WORLD_SIZE": processes}
            os.environ |= {name: str(value) for name, value in ranks.items()}
            os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": os.read(reading, 5).decode()}
            os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"  # else the first would make a store of its own
            sys.argv = arguments
            runpy.run_path(arguments[0], run_name="__main__")
            return 0
        running.add(pid)
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    os.write(writing, f"{store.port:05}".encode() * processes)
    failed = False
    while running:
        pid, status = os.wait()
        running.remove(pid)
        if status and not failed:
            failed = True
            for other in running:
                os.kill(other, signal.SIGTERM)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
