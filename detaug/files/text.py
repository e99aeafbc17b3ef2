"""Read text files, and check text that is to be written."""

from __future__ import annotations

import json
import math
import os
import re
import unicodedata
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Hashable
from typing import Any, TypeVar

from detaug.errors import InputError
from detaug.files.formats import LFS
from detaug.files.known_files import what_is
from detaug.files.paths import PathLike, require_file

K = TypeVar("K", bound=Hashable)

MAX_TEXT_BYTES = 8 << 20

_CONTROL = re.compile("[^\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def read_text(path: PathLike) -> str:
    """Read a text file in UTF-8, with or without BOM, of at most 8 MiB. Raises OSError and InputError."""
    data = _read(path, MAX_TEXT_BYTES).removeprefix(BOM_UTF8)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InputError(f"must be UTF-8 text, got byte {data[error.start]:#x} at {error.start:,}") from None


def read_file(path: PathLike, most: float = math.inf) -> bytes:
    """Read a regular file. Raises OSError, and InputError for one of more bytes than `most`."""
    length = require_file(path).st_size
    if length > most:
        raise InputError(f"is larger than {int(most) >> 20} MiB")
    with open(path, "rb", buffering=0) as file:
        data = file.read(length + 1)  # one call of the system, where readall has four
        return data if len(data) == length else data + file.readall()


def _read(path: PathLike, most: float = math.inf) -> bytes:
    data = read_file(path, most)
    if data.startswith(LFS):
        raise InputError(what_is(os.path.basename(path), data))
    return data


def unique_keys(pairs: list[tuple[K, Any]]) -> dict[K, Any]:
    """Return an object of a JSON file: an object_pairs_hook. Raises InputError for a key that occurs twice."""
    entry = dict(pairs)
    if len(entry) < len(pairs):
        ((repeated, _),) = Counter(key for key, _ in pairs).most_common(1)
        raise InputError(f"key {str(repeated)[:60]!r} must occur once in an object; a parser keeps only the last one")
    return entry


def parse_yaml(text: str) -> Any:
    """Return the plain values of YAML. Raises yaml.YAMLError and ValueError, such as for a key that occurs twice."""
    import yaml  # type: ignore[import-untyped]  # slow to import

    class UniqueKeyLoader(yaml.SafeLoader):  # type: ignore[misc]
        def flatten_mapping(self, node: Any) -> None:  # is called before a mapping is constructed, and to merge it
            if id(node) not in checked:
                checked.add(id(node))
                keys = [key for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
                unique_keys([(self.construct_object(key), None) for key in keys if not key.tag.endswith(":merge")])
            super().flatten_mapping(node)

    checked: set[int] = set()

    return yaml.load(text, UniqueKeyLoader)


def read_json(path: PathLike) -> Any:
    """Parse a JSON file in UTF-8, UTF-16 or UTF-32, with or without BOM. Raises OSError and InputError."""
    data = _read(path)
    try:
        return json.loads(data, object_pairs_hook=unique_keys)
    except RecursionError:
        raise InputError("is nested too deeply for a JSON file of annotations") from None
    except ValueError as error:
        raise InputError(f"does not parse as JSON: {error}") from None


def lines_of(text: str) -> list[str]:
    """Return the lines of a text, which end with LF, CRLF or CR: unlike str.splitlines, names may contain U+2028."""
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def is_plain(text: str) -> bool:
    """Return whether text fits on one line of UTF-8 and XML: no control or line break, no lone surrogate."""
    return not _CONTROL.search(text)


def is_utf8(name: str) -> bool:
    """Return whether a file name is valid UTF-8: Python reads other bytes as lone surrogates."""
    return name.isascii() or not any("\ud800" <= char <= "\udfff" for char in name)


def joined_spaces(text: str) -> str:
    """Return text without spaces around it and with one space between words, as converters write class names."""
    return " ".join(text.split())


def name_key(name: str) -> str:
    """Return a key that is equal for names that differ at most in case, spaces or Unicode form."""
    return joined_spaces(unicodedata.normalize("NFKC", name).casefold())


def decimal(value: float, decimals: int) -> str:
    """Return a number with at most this many decimals, without zeros at the end."""
    return re.sub(r"\.?0+$", "", f"{value:.{decimals}f}")
