"""Read a JSON file that is a list of images, or an object of them, which may be larger than the memory.

ijson does not give the same values: of an escaped half of a surrogate pair its parser in C makes another character, it
refuses NaN and integers of more than 64 bits, and lists in lists take memory by the square of their depth. Its parser
in Python is 14 to 31 times slower than this module.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from detaug.converters.records.record import list_of, object_of
from detaug.errors import InputError
from detaug.files.paths import require_file
from detaug.files.text import read_json, unique_keys

_CHARACTERS = 1 << 20
"""That are read at a time."""

_SPACE = re.compile(r"[ \t\n\r]*")
_KEY = re.compile(r'[ \t\n\r]*"([^"\\\x00-\x1f]*)"[ \t\n\r]*:')
"""A key without escapes, and the colon: one match is quicker than a call for each of its parts."""


def items_of_json(path: str, name: str) -> Iterator[Any]:
    """Yield the items of the list that a JSON file is, one in memory at a time. `name`: of the document, in errors.

    Raises OSError, InputError and UnicodeDecodeError, when it comes to the fault.
    """
    with _opened(path, "[") as text:
        if text is None:
            list_of(read_json(path), name)
        else:
            for _ in _parts(text, "[]"):
                yield text.item()


def members_of_json(path: str, name: str, inside: Collection[str]) -> Iterator[tuple[str, str, Any]]:
    """Yield ("", key, value) of the object that a JSON file is, one in memory at a time.

    Of an object whose key is one of `inside` each member is yielded by itself: (its key, key, value). For `name` and
    errors see `items_of_json`; of several members of one key all are yielded.
    """
    with _opened(path, "{") as text:
        if text is None:
            object_of(read_json(path), name)
        else:
            yield from _members(text, inside)


@contextmanager
def _opened(path: str, sign: str) -> Iterator[_JsonText | None]:
    """Open a JSON file that begins with a sign; None for one that begins with another."""
    require_file(path)
    with open(path, "rb") as head:
        start = head.read(256)
    encoding = json.detect_encoding(start)
    if start.decode(encoding, "ignore").lstrip()[:1] != sign:
        yield None
        return
    with open(path, encoding=encoding, errors="surrogatepass", newline="") as file:
        try:
            text = _JsonText(file)
            yield text
            text.take("")
        except RecursionError:
            raise InputError("is nested too deeply for a JSON file of annotations") from None


def _members(text: _JsonText, inside: Collection[str]) -> Iterator[tuple[str, str, Any]]:
    for key in _keys(text):
        if key in inside and text.next_is("{"):
            for inner in _keys(text):
                yield key, inner, text.item()
        else:
            yield "", key, text.item()


def _keys(text: _JsonText) -> Iterator[str]:
    """Yield the keys of an object. The text is then at the value, which must be read before the next key."""
    for _ in _parts(text, "{}"):
        yield text.key()


def _parts(text: _JsonText, brackets: str) -> Iterator[None]:
    """Stop at each part between two brackets, which must be read before the next one."""
    text.take(brackets[0])
    if not text.next_is(brackets[1]):
        yield
        while text.skip(","):
            yield
    text.take(brackets[1])


class _JsonText:
    """A text of which the part is in memory that comes next."""

    def __init__(self, file: TextIO) -> None:
        self._file, self._decode = file, json.JSONDecoder(object_pairs_hook=unique_keys).raw_decode
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

    def skip(self, sign: str) -> bool:
        """Go on behind a sign if it comes next; return whether it does."""
        comes = self.next_is(sign)
        self._at += len(sign) if comes else 0
        return comes

    def take(self, sign: str) -> None:
        """Go on behind a sign. Raises InputError if another one comes next."""
        if not self.skip(sign):
            raise self._fault(f"expecting {sign or 'the end'}", self._at)

    def key(self) -> str:
        """Return the key that comes next, and go on behind its colon."""
        if match := _KEY.match(self._text, self._at):
            self._at = match.end()
            return match[1]
        if not self.next_is('"'):
            self.take('"')  # raises its fault
        key: str = self.item()
        self.take(":")
        return key

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

    def _fault(self, what: str, position: int) -> InputError:
        return InputError(f"does not parse as JSON: {what}: character {self._before + position:,}")
