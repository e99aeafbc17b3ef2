"""Read a json that is a list of images, which may be larger than the memory."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, TextIO

from detaug.converters.files.paths import require_file
from detaug.converters.files.text import read_json
from detaug.converters.records.record import list_of
from detaug.errors import InputError

_CHARACTERS = 1 << 20
"""That are read at a time."""

_SPACE = re.compile(r"[ \t\n\r]*")


def items_of_json(path: str, name: str) -> Iterator[Any]:
    """Yield the items of the list that a json is, one in memory at a time. `name`: of the document, in errors.

    Raises OSError, InputError and UnicodeDecodeError, when it comes to the fault.
    """
    require_file(path)
    with open(path, "rb") as head:
        start = head.read(256)
    encoding = json.detect_encoding(start)
    if start.decode(encoding, "ignore").lstrip()[:1] != "[":
        yield from list_of(read_json(path), name)
        return
    with open(path, encoding=encoding, errors="surrogatepass", newline="") as file:
        try:
            yield from _items(_Text(file))
        except RecursionError:
            raise InputError("is nested too deeply for a json of annotations") from None


def _items(text: _Text) -> Iterator[Any]:
    text.take("[")
    if text.next_is("]"):
        text.take("]")
    else:
        yield text.item()
        while text.next_is(","):
            text.take(",")
            yield text.item()
        text.take("]")
    text.take("")


class _Text:
    """A text of which the part is in memory that comes next."""

    def __init__(self, file: TextIO) -> None:
        self._file, self._decode = file, json.JSONDecoder().raw_decode
        self._text, self._at, self._before = "", 0, 0

    def _fill(self) -> bool:
        """Read as much again as is in memory; return whether there is more."""
        more = self._file.read(max(_CHARACTERS, len(self._text) - self._at))
        if more:
            self._before += self._at
            self._text, self._at = self._text[self._at :] + more, 0
        return bool(more)

    def next_is(self, sign: str) -> bool:
        """Return whether a sign comes next, after spaces; "" is the end."""
        while True:
            self._at = _SPACE.match(self._text, self._at).end()  # type: ignore[union-attr]  # it fits everything
            if self._at < len(self._text) or not self._fill():
                return self._text[self._at : self._at + 1] == sign

    def take(self, sign: str) -> None:
        """Go on behind a sign. Raises InputError if another one comes next."""
        if not self.next_is(sign):
            raise self._fault(f"expecting {sign or 'the end'}", self._at)
        self._at += len(sign)

    def item(self) -> Any:
        """Return the value that comes next, and go on behind it."""
        self.next_is("")
        while True:
            try:
                value, end = self._decode(self._text, self._at)
            except json.JSONDecodeError as error:
                if not self._fill():
                    raise self._fault(error.msg, error.pos) from None
                continue
            if end + 2 < len(self._text) or not self._fill():  # 12 may go on as 12.5 or 12e+3
                self._at = end
                return value

    def _fault(self, what: str, at: int) -> InputError:
        return InputError(f"does not parse as json: {what}: character {self._before + at:,}")
