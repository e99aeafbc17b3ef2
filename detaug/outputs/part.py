"""Part I of N of a dataset: consecutive images of its order, so that several machines share the work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from detaug.errors import InputError

T = TypeVar("T")


class Part(NamedTuple):
    """Part `number`, from 1, of `of`."""

    number: int
    of: int

    def items(self, items: Sequence[T]) -> Sequence[T]:
        """Return the items of this part: in order, and as many as in the others or one more or less."""
        start, end = (len(items) * number // self.of for number in (self.number - 1, self.number))
        return items[start:end]

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"


def check_part(part: tuple[int, int] | None) -> Part | None:
    """Return the part of (number, of). Raises InputError."""
    if part is None:
        return None
    number, of = part
    if not 1 <= number <= of:
        raise InputError(f"part must be I/N with I from 1 to N, got {number}/{of}")
    return Part(number, of)
