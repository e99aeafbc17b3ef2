"""Measure one loader in this process.

main() with the arguments MODULE:FUNCTION JOB prints the result as JSON: the measurements, or the message of an
error in the input as {"error": MESSAGE}. A bug ends with a traceback and exit code 1.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module

from detaug.bench.measure import BenchJob, Result, measure
from detaug.errors import InputError


def main() -> None:
    where, job = sys.argv[1], BenchJob(**json.loads(sys.argv[2]))
    module, _, function = where.partition(":")
    result: Result
    try:
        result = measure(getattr(import_module(module), function), job)
    except (InputError, OSError) as error:
        result = {"error": str(error)}
    print(json.dumps(result), flush=True)
    os._exit(0)  # ends DataLoader's workers and DALI's threads too
