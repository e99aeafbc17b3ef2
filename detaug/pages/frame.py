"""Render the pages for a browser from the templates beside the modules; every page extends frame.html."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from detaug.outputs.guards import MARK

if TYPE_CHECKING:
    from PIL import Image


def shorten(text: str, most: int) -> str:
    """Cut `text` to its first `most` letters."""
    return text if len(text) <= most else f"{text[:most]}..."


def data_uri(image: Image.Image, kind: str, **options: Any) -> str:
    """Encode an image as "PNG" or "JPEG" in a data URI."""
    encoded = io.BytesIO()
    image.save(encoded, kind, **options)
    return f"data:image/{kind.lower()};base64,{base64.b64encode(encoded.getvalue()).decode()}"


_TEMPLATES = Environment(
    loader=FileSystemLoader(Path(__file__).parents[1]),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_TEMPLATES.filters |= {"thousands": "{:,}".format, "shorten": shorten, "data_uri": data_uri}
_TEMPLATES.globals["mark"] = MARK


def render(template: str, **values: Any) -> Markup:
    """Render a template, a path in the package; values are escaped, unless they come from `render`."""
    return Markup(_TEMPLATES.get_template(template).render(values))
