"""The public names of detaug. The stub `detaug/__init__.pyi` is the one list of them."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

_STUB = Path(__file__).parents[1] / "__init__.pyi"


@cache
def public_names() -> dict[str, str]:
    """Return the module that each public name is imported from, without importing it."""
    stub = ast.parse(_STUB.read_text(encoding="utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in imports for alias in node.names}
