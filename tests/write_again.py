"""Write what the tests compare: `python tests/write_again.py documents`, or `notebooks`, all or those that are named.

documents: docs/commands.md, docs/findings.md, the table of formats, the images and the printed outputs of all pages.
notebooks: their saved outputs, images as JPEG.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parent / folder) for folder in ("helpers", "project")]
    if sys.argv[1:] == ["documents"]:
        import_module("test_docs").write_again()
    elif sys.argv[1:2] == ["notebooks"]:
        import_module("test_notebooks").write_again(sys.argv[2:])
    else:
        sys.exit("usage: python tests/write_again.py documents | notebooks [FILE ...]")
