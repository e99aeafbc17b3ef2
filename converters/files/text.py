"""Text files, and text that fits on one line of them."""

from __future__ import annotations

import re
from pathlib import Path

_CONTROL = re.compile("[^\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def is_plain(text: str) -> bool:
    """Whether text can stand on one line of UTF-8, in XML too: no control or line break, no lone surrogate."""
    return not _CONTROL.search(text)


MAX_TEXT_BYTES = 8 << 20


def read_text(path: Path) -> str:
    """A text file, UTF-8 with or without BOM, of at most 8 MiB. Raises OSError, ValueError."""
    with open(path, "rb") as file:
        data = file.read(MAX_TEXT_BYTES + 1)
    if len(data) > MAX_TEXT_BYTES:
        raise ValueError(f"is larger than {MAX_TEXT_BYTES >> 20} MiB")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"must be UTF-8 text, got byte {data[error.start]:#x} at {error.start:,}") from None
