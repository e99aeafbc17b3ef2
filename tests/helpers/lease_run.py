"""What test_faults.py runs for a slow disk: whoever opens FILE waits for SECONDS.

python lease_run.py FILE SECONDS      prints a line once it holds the file

The kernel lets an `open` wait while another process has a lease on the file, as it does where a disk is far away.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import time

file = os.open(sys.argv[1], os.O_RDWR)


def give_back(*_: object) -> None:
    time.sleep(float(sys.argv[2]))
    fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    sys.exit()


signal.signal(signal.SIGIO, give_back)
fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print("held", flush=True)
while True:
    signal.pause()
