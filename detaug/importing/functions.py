"""The parameters of a function in Python source: their defaults, and the calls that give others."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

from detaug.errors import InputError
from detaug.importing.calls import Unknown
from detaug.importing.expressions import Scope

Function = ast.FunctionDef | ast.AsyncFunctionDef
_MOST_RUNS = 500
"""The most calls of a file's functions that are followed."""


@dataclass(frozen=True, eq=False)
class Defined:
    """A function, as the value of its name."""

    node: Function
    scope: Scope
    """Where it is defined."""
    arguments: dict[str, Any]
    """The values of its parameters."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Defined:
        return replace(self, scope=deepcopy(self.scope, memo))

    def inside(self, scope: Scope, arguments: dict[str, Any]) -> Scope:
        """Return the scope of its body, within a copy of where it is defined; a method sees no names of its class."""
        inner = Scope(scope.settings, scope.around if scope.class_name else scope)
        for name, value in arguments.items():
            inner.bind(name, value)
        return inner


class Calls:
    """The calls of a file by the function that they call. Those of a class are also its base classes'."""

    def __init__(self, tree: ast.Module) -> None:
        self._calls: dict[str, list[ast.Call]] = defaultdict(list)
        self._left = _MOST_RUNS
        self._derived: dict[str, set[str]] = defaultdict(set)
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                self._add(node)
            elif isinstance(node, ast.ClassDef):
                for base in node.bases:
                    self._derived[_last(base)].add(node.name)

    def _add(self, node: ast.Call) -> None:
        if _last(node.func) == "partial" and node.args:
            self._calls[_last(node.args[0])].append(ast.Call(node.args[0], node.args[1:], node.keywords))
        self._calls[_last(node.func)].append(node)

    def count(self) -> None:
        """Count a call that is followed. Raises InputError if it is one too many."""
        self._left -= 1
        if self._left < 0:
            raise InputError("too many calls to follow: copy the pipeline, and what it needs, to a file of its own")

    def of(self, function: Function, class_name: str) -> list[ast.Call]:
        """Return the calls of a function, or of a method; those of a class call its `__init__`."""
        names = {function.name}
        if class_name and function.name == "__init__":
            names |= {class_name, *self._derived[class_name]}
        found = [call for name in names for call in self._calls[name]]
        return [call for call in found if function.name == "__init__" or _is_method(call) == bool(class_name)]


def called(node: ast.stmt, scope: Scope) -> Iterator[tuple[Defined, ast.Call]]:
    """Yield the functions of the file that a statement calls by name; of a compound one, its head does."""
    for part in _own_expressions(node):
        for call in ast.walk(part):
            if isinstance(call, ast.Call) and not any(isinstance(each, ast.Call) for each in ast.walk(call.func)):
                function = scope.value(call.func)
                function = function.values.get("__init__") if isinstance(function, Scope) else function
                if isinstance(function, Defined):
                    yield function, call


def _own_expressions(node: ast.stmt) -> Iterator[ast.AST]:
    if not isinstance(node, Function | ast.ClassDef):
        yield from (each for each in ast.iter_child_nodes(node) if isinstance(each, ast.expr | ast.withitem))


def _last(name: ast.expr) -> str:
    return ast.unparse(name).rpartition(".")[2]


def _is_method(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute)


def defaults(function: Function, scope: Scope, calls: list[ast.Call]) -> dict[str, Any]:
    """Return the value of each parameter: its default, or an unknown one where a call gives another or it has none."""
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    nodes: dict[str, ast.expr | None] = dict.fromkeys(each.arg for each in [*positional, *arguments.kwonlyargs])
    nodes |= dict(zip([each.arg for each in positional][::-1], arguments.defaults[::-1], strict=False))
    nodes |= dict(zip([each.arg for each in arguments.kwonlyargs], arguments.kw_defaults, strict=True))
    bound = [each.arg for each in positional][1 if scope.class_name and not _is_static(function) else 0 :]
    given = {name for call in calls for name in _given(call, bound, nodes)}
    rest = [each.arg for each in (arguments.vararg, arguments.kwarg) if each]
    known = {name: scope.value(node) for name, node in nodes.items() if node and name not in given}
    return {name: known.get(name, Unknown(name, 0, name)) for name in [*nodes, *rest]}


def _is_static(function: Function) -> bool:
    return any(_last(each) == "staticmethod" for each in function.decorator_list)


def _given(call: ast.Call, positional: list[str], nodes: dict[str, ast.expr | None]) -> list[str]:
    """Return the parameters to which a call gives another value than their default."""
    if any(isinstance(each, ast.Starred) for each in call.args) or not all(each.arg for each in call.keywords):
        return list(nodes)
    pairs = [*zip(positional, call.args, strict=False), *((each.arg or "", each.value) for each in call.keywords)]
    return [name for name, value in pairs if not _same(value, nodes.get(name))]


def _same(one: ast.expr, other: ast.expr | None) -> bool:
    return other is not None and ast.dump(one) == ast.dump(other)
