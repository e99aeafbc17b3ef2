"""Settings of Sphinx. `build.py` runs it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

from api import to_rst
from sphinx.util import inspect

import detaug

project = "detaug"
version = release = detaug.__version__
copyright = "the detaug authors"
root_doc = "index"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton", "sphinx_design"]
html_theme = "furo"
html_title = f"detaug {version}"
html_static_path = [str(Path(__file__).parent / "static")]
html_css_files = ["site.css"]
html_search_scorer = str(Path(__file__).parent / "scorer.js")
html_show_sphinx = False
html_copy_source = False
pygments_style = "friendly"
pygments_dark_style = "github-dark"

myst_enable_extensions = ["colon_fence", "attrs_block"]
myst_heading_anchors = 4
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
autodoc_inherit_docstrings = False
python_maximum_signature_line_length = 72
python_use_unqualified_type_names = True
add_module_names = False
toc_object_entries_show_parents = "hide"
highlight_language = "python"
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
copybutton_selector = "div:not(.highlight-text):not(.highlight-diff) > div.highlight > pre"  # no outputs, no diffs


def process_docstring(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Convert our docstrings, which are plain text with Markdown's backticks, to reStructuredText."""
    lines[:] = to_rst("\n".join(lines)).split("\n")


def process_signature(app: Any, what: str, name: str, thing: Any, options: Any, signature: str, result: str) -> Any:
    """Give ops and Compose the signature of their `__init__`: their `__new__`, which Sphinx sees first, takes anything.

    `Views` has none, since users get them and do not make them.
    """
    if thing is detaug.Views:
        return "", None
    if what != "class" or not issubclass(thing, (detaug.Op, detaug.Compose)):
        return None
    own = inspect.signature(thing.__init__, bound_method=True)
    return inspect.stringify_signature(own.replace(return_annotation=own.empty), unqualified_typehints=True), result


def setup(app: Any) -> None:
    app.connect("autodoc-process-signature", process_signature)
    app.connect("autodoc-process-docstring", process_docstring)
