"""Read masks that annotations hold as PNG in base64 text."""

from __future__ import annotations

import base64
import io
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from detaug.converters.records.record import ObjectError
from detaug.files.image_headers import PILLOW_ERRORS
from detaug.files.large_images import ANY_NUMBER, ENORMOUS, allow_pixels

_PNG = b"\x89PNG"
"""The first bytes of a PNG."""

_LARGEST_PNG = 64 << 20  # bytes


def mask_of_png(text: Any, name: str, *, packed: bool = False) -> NDArray[np.bool_]:
    """Return a mask (h, w): where a PNG is not black, or not transparent if a part of it is. Raises ObjectError.

    packed: the PNG may be packed with zlib once more.
    """
    from PIL import Image  # slow to import, and only masks need it

    try:
        data = base64.b64decode(text if isinstance(text, str) else "", validate=True)
        data = zlib.decompressobj().decompress(data, _LARGEST_PNG) if packed and not data.startswith(_PNG) else data
        with allow_pixels(ANY_NUMBER), Image.open(io.BytesIO(data), formats=("PNG",)) as image:
            if image.width * image.height > ENORMOUS:
                raise ObjectError(f"{name} must have at most {ENORMOUS:,} pixels, got {image.width} x {image.height}")
            alpha = image.getchannel("A") if image.mode == "RGBA" else None
            if alpha is not None and not packed and alpha.getextrema()[0] == 255:  # nothing is transparent
                alpha = None
            return np.asarray(alpha or image.convert("L")) > 0
    except (*PILLOW_ERRORS, zlib.error) as error:
        raise ObjectError(f"{name} must be a PNG as base64 text: {str(error)[:60]}") from None
