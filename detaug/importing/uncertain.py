"""Statements that may run or not, or more than once: what they change is unknown."""

from __future__ import annotations

from copy import copy, deepcopy
from dataclasses import replace
from typing import Any

from detaug.importing.calls import Unknown
from detaug.importing.expressions import Scope, containers, forget

Snapshot = list[tuple[Any, Any]]


def snapshot(scope: Scope) -> Snapshot:
    """Return each list and dict that a scope holds, with a copy of it."""
    return [(each, copy(each)) for each in containers(scope)]


class Fork:
    """A copy of a scope, `scope`, in which statements run that may not run in fact."""

    def __init__(self, scope: Scope) -> None:
        self._original = scope
        self.scope = deepcopy(scope)
        self._pairs = list(zip(containers(scope), containers(self.scope), strict=True))
        self._before: list[Any] = [copy(each) for _, each in self._pairs]
        self._originals = {id(each): original for original, each in self._pairs}

    def note(self, snapshot: Snapshot) -> None:
        """Note in the copy what changed in the original since a snapshot."""
        copies = {id(original): each for original, each in self._pairs}
        for original, before in snapshot:
            each = copies.get(id(original))
            if isinstance(each, list) and _is_changed(original, before):
                forget(each, Unknown("a list that changes later", 0))
            elif isinstance(each, dict):
                changed = (name for name in before if not _alike(original.get(name), before[name]))
                each |= {name: Unknown(name, 0, name) for name in changed}

    def join(self, condition: Unknown) -> None:
        """Note in the original what the statements changed, which depends on `condition`."""
        for (original, after), before in zip(self._pairs, self._before, strict=True):
            if isinstance(original, list) and isinstance(after, list):
                self._join_list(original, after, before, condition)
            elif isinstance(original, dict) and isinstance(after, dict):
                self._join_dict(original, after, before, condition)
        self._original.modules = {**self.scope.modules, **self._original.modules}

    def _join_list(self, original: list[Any], after: list[Any], before: list[Any], condition: Unknown) -> None:
        if _is_changed(after, before):
            forget(original, replace(condition, may_be=self._held(after, before)))

    def _join_dict(
        self, original: dict[str, Any], after: dict[str, Any], before: dict[str, Any], condition: Unknown
    ) -> None:
        for key in {**before, **after}:
            if key not in after or key not in before or not _alike(after[key], before[key]):
                held = (*self._held(after.get(key), before.get(key)), *containers(original.get(key)))
                original[key] = replace(condition, may_be=held)

    def _held(self, *values: Any) -> tuple[Any, ...]:
        """Return the lists and dicts of the original that copied values hold."""
        held = [each for value in values for each in containers(value)]
        return tuple(self._originals[id(each)] for each in held if id(each) in self._originals)


def _is_changed(after: list[Any], before: list[Any]) -> bool:
    return len(after) != len(before) or not all(map(_alike, after, before))


def _alike(one: Any, other: Any) -> bool:
    """Return whether a value is still the same one; what it holds may differ."""
    return one is other or (type(one) is type(other) and isinstance(one, str | int | float) and one == other)
