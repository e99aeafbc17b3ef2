"""Write the notebooks as pages: text, code, and the outputs that are saved in them."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

KINDS = {"image/png": "png", "image/jpeg": "jpg"}


def write_notebooks(notebooks: Path, folder: Path) -> None:
    """Write a page for each notebook, its images, and index.md, which lists them."""
    folder.mkdir(exist_ok=True)
    names = []
    for path in sorted(notebooks.glob("*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        parts = [part for number, cell in enumerate(cells) for part in _parts(cell, folder, f"{path.stem}-{number}")]
        (folder / f"{path.stem}.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")
        names.append(path.stem)
    listed = "\n".join(names)
    index = f"# Notebooks\n\nThey run from top to bottom, on drawn data or on yours.\n\n```{{toctree}}\n{listed}\n```\n"
    (folder / "index.md").write_text(index, encoding="utf-8")


def _parts(cell: dict[str, Any], folder: Path, name: str) -> list[str]:
    """Return a cell in Markdown. `name`: of its images, without number and extension."""
    text = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        for title, content in cell.get("attachments", {}).items():
            text = text.replace(f"attachment:{title}", _picture(content, folder, f"{name}-{title.partition('.')[0]}"))
        return [text]
    parts = [_fenced("python", text)]
    for number, output in enumerate(cell["outputs"]):
        data = output.get("data", {})
        printed = "".join(output.get("text", "") or data.get("text/plain", ""))
        if KINDS.keys() & data.keys():
            parts.append(f"![output]({_picture(data, folder, f'{name}-{number}')})")
        elif printed.strip():
            parts.append(_fenced("text", printed.rstrip()))
    return parts


def _fenced(language: str, text: str) -> str:
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}{language}\n{text}\n{fence}"


def _picture(data: dict[str, str], folder: Path, name: str) -> str:
    """Write the image of an output, and return its file name."""
    kind = next(kind for kind in KINDS if kind in data)
    file = f"{name}.{KINDS[kind]}"
    (folder / file).write_bytes(base64.b64decode("".join(data[kind])))
    return file
