"""Run the command: `detaug` and `python -m detaug`."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, and return its exit code: 130 for a Ctrl-C, also while Python still imports."""
    try:
        from detaug.cli.main import main as run

        return run(arguments)
    except KeyboardInterrupt:
        sys.stderr.write("detaug: interrupted\n")
        return 130


if __name__ == "__main__":
    sys.exit(main())
