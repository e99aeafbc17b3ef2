"""Run the command: `python -m detaug`."""

import sys

from detaug.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
