"""Measure one loader in this process.

python -m detaug.bench.worker MODULE:FUNCTION JOB prints the result as json.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module

from detaug.bench.jobs import Job
from detaug.bench.measure import measure


def main() -> None:
    where, job = sys.argv[1:]
    module, _, function = where.partition(":")
    result = measure(getattr(import_module(module), function), Job(**json.loads(job)))
    print(json.dumps(result), flush=True)
    os._exit(0)  # ends DataLoader's workers and DALI's threads too


if __name__ == "__main__":
    main()
