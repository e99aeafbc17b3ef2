"""The beginning of a file, as what it may be: text, rows, a table, XML, JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any

HEAD_BYTES = 1 << 16
"""How much of a file is looked at."""
_BEFORE_ROOT = re.compile(r"\s*(<\?|<!--|<!DOCTYPE)")
_ENDS = {"<?": "?>", "<!--": "-->", "<!DOCTYPE": ">"}
_ROOT = re.compile(r"\s*<([\w.:-]+)")


class Sample:
    """The beginning of a file, and what it is as text, rows or JSON."""

    def __init__(self, name: str, head: bytes, document: Any = None) -> None:
        """Keep the beginning. document: the file as parsed, if it is a JSON file and was parsed already."""
        self.name, self.head, self._document = name.lower(), head, document

    @cached_property
    def text(self) -> str:
        """Return the beginning as text; "" where it is none."""
        encoding = "utf-16" if self.head[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
        text = self.head.decode(encoding, "replace")
        return "" if "\0" in text else text

    @cached_property
    def rows(self) -> list[str]:
        """Return the first lines that are not empty; the last one may be cut off."""
        return [line.strip() for line in self.text.splitlines() if line.strip()][:8]

    @cached_property
    def root(self) -> str:
        """Return the name of an XML's root element; "" where there is none."""
        position = 0  # one pattern for all that may come first would try each way to divide it
        while opening := _BEFORE_ROOT.match(self.text, position):
            start, ending = opening.end(), _ENDS[opening[1]]
            if opening[1] == "<!DOCTYPE" and "[" in self.text[start : self.text.find(">", start)]:
                ending = "]>"  # of the declarations in it
            end = self.text.find(ending, start)
            if end < 0:
                return ""
            position = end + len(ending)
        root = _ROOT.match(self.text, position)
        return root[1].lower() if root else ""

    @cached_property
    def document(self) -> Any:
        """Return the JSON file that the file is, or that its first line is; None where it is none."""
        if self._document is not None:
            return self._document
        for text in (self.text, *self.rows[:1]) if self.text.lstrip()[:1] in ("{", "[") else ():
            with suppress(ValueError, RecursionError):
                return json.loads(text)
        return None

    @property
    def keys(self) -> frozenset[str]:
        """Return the keys of a JSON file, or of its first entry if it is a list."""
        first = self.document[0] if isinstance(self.document, list) and self.document else self.document
        return frozenset(first) if isinstance(first, dict) else frozenset()

    def has(self, *keys: str, many: bool = False) -> bool:
        """Return whether a JSON file is an object with these keys, or, with many, a list of such objects."""
        return isinstance(self.document, list) == many and self.keys.issuperset(keys)

    def first(self, key: str = "") -> frozenset[str]:
        """Return the keys of the first entry of a list or object: of the whole, or below a key of its first entry."""
        value = self.document[0] if isinstance(self.document, list) and self.document else self.document
        value = value.get(key) if key and isinstance(value, dict) else value
        entries = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        first = next(iter(entries), None)
        return frozenset(first) if isinstance(first, dict) else frozenset()

    def is_list(self, key: str) -> bool:
        """Return whether a JSON file has a list below a key."""
        return isinstance(self.document[key], list)

    @cached_property
    def columns(self) -> list[str]:
        """Return the names in the head of a table with commas."""
        words = re.split("[,;\t]", self.rows[0]) if self.rows else []
        return [word.strip().strip('"').lower() for word in words]

    def is_table(self, *columns: str) -> bool:
        """Return whether the first line has these names of columns."""
        return set(columns) <= set(self.columns)

    def all_rows(self, fits: Callable[[Sequence[str]], bool], separator: str | None = None) -> bool:
        """Return whether the words of all rows fit."""
        return bool(self.rows) and all(fits(row.rstrip(",").split(separator)) for row in self.rows)


def json_beginning(text: str) -> Any:
    """Return the first entries of a JSON file that is cut off; None where none is whole."""
    return _read_beginning(text.lstrip(), 0)


_SPACE = re.compile(r"[\s,]*")
_DECODER = json.JSONDecoder()


def _read_beginning(text: str, position: int, depth: int = 0) -> Any:
    """Return the beginning of the object or list at a position."""
    is_object = text[position : position + 1] == "{"
    if depth > 3 or text[position : position + 1] not in ("{", "["):
        return None
    result: dict[str, Any] | list[Any] = {} if is_object else []
    position += 1
    with suppress(ValueError, RecursionError):
        while True:
            key: Any = None
            position = _SPACE.match(text, position).end()  # type: ignore[union-attr]
            if is_object:
                key, position = _DECODER.raw_decode(text, position)
                position = text.index(":", position) + 1
                position = _SPACE.match(text, position).end()  # type: ignore[union-attr]
            try:
                value, position = _DECODER.raw_decode(text, position)
            except ValueError:
                value = _read_beginning(text, position, depth + 1)
                position = len(text)
            if isinstance(result, dict):
                result[key] = value
            elif value is not None:
                result.append(value)
            if position >= len(text):
                break
    return result
