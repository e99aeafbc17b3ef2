"""Run the command: `python -m detaug`."""

from detaug.cli.main import main

main()
