"""Fit pictures and texts into a page."""

from __future__ import annotations

import base64
import io
from typing import Any

from PIL import Image


def data_uri(picture: Image.Image, kind: str, **options: Any) -> str:
    """Encode a picture as "PNG" or "JPEG" in a data URI."""
    encoded = io.BytesIO()
    picture.save(encoded, kind, **options)
    return f"data:image/{kind.lower()};base64,{base64.b64encode(encoded.getvalue()).decode()}"


def shorten(text: str, most: int) -> str:
    """Cut `text` to its first `most` letters."""
    return text if len(text) <= most else f"{text[:most]}..."
