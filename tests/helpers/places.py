"""Where the repository, the programs that tests start, and the real data are."""

from __future__ import annotations

from pathlib import Path

HELPERS = Path(__file__).parent
TESTS = HELPERS.parent
REPOSITORY = TESTS.parent

SHARED_DATA = REPOSITORY.parent / "shared" / "data"
"""Images and label files that are not part of the project; tests that need them skip without them."""
