"""What statements of Python do to names, attributes and items: assign, change in place, delete."""

from __future__ import annotations

import ast
from typing import Any

from detaug.importing.calls import Call, Unknown
from detaug.importing.expressions import Scope, forget, is_changed


def assign(target: ast.expr, value: Any, scope: Scope) -> list[tuple[str, Any]]:
    """Give the target of an assignment a value; return the name of each part of it, with the value."""
    if isinstance(target, ast.Tuple | ast.List):
        parts = _parts(target, value)
        return [pair for each, part in zip(target.elts, parts, strict=True) for pair in assign(each, part, scope)]
    if isinstance(target, ast.Starred):
        return assign(target.value, value, scope)
    if isinstance(target, ast.Attribute):
        _set_attribute(target, value, scope)
    elif isinstance(target, ast.Subscript):
        _set_item(target, value, scope)
    else:
        scope.bind(ast.unparse(target), value)
    return [(ast.unparse(target).removeprefix("self."), value)]


def _parts(target: ast.Tuple | ast.List, value: Any) -> list[Any]:
    """Return the values of `a, b = value`; unknown ones if they do not come one by one."""
    starred = any(isinstance(each, ast.Starred) for each in target.elts)
    listed = isinstance(value, list | tuple) and not is_changed(value)
    if listed and len(value) == len(target.elts) and not starred:
        return list(value)
    arguments = value.arguments if isinstance(value, Unknown) else ()
    return [Unknown(ast.unparse(each), each.lineno, ast.unparse(each), arguments) for each in target.elts]


def _set_attribute(target: ast.Attribute, value: Any, scope: Scope) -> None:
    owner = scope.value(target.value)
    if isinstance(owner, Scope):
        owner.bind(target.attr, value)
    elif isinstance(owner, Call):
        known = target.attr in ("transforms", "p")
        owner.named[target.attr] = value if known else Unknown(ast.unparse(target), target.lineno)
    else:
        scope.bind(ast.unparse(target), value)


def _set_item(target: ast.Subscript, value: Any, scope: Scope) -> None:
    owner, index = scope.value(target.value), scope.value(target.slice)
    if isinstance(owner, dict) and not isinstance(index, Unknown):
        owner[scope.key(target.slice)] = value
    elif isinstance(owner, list) and _is_place(index, owner):
        owner[index] = value
    else:
        forget(owner, Unknown(ast.unparse(target), target.lineno))


def change(node: ast.AugAssign, scope: Scope) -> list[tuple[str, Any]]:
    """Run `target += value` or another operator; lists and dicts change in place. Returns what `assign` returns."""
    before, value = scope.value(node.target), scope.value(node.value)
    if isinstance(before, list) and isinstance(node.op, ast.Add):
        if isinstance(value, Unknown):
            forget(before, value)
        else:
            before.extend(value)
        return []
    forget(before, Unknown(ast.unparse(node), node.lineno))
    if isinstance(before, list | dict):
        return []
    return assign(node.target, scope.compute(before, node.op, value, node), scope)


def delete(target: ast.expr, scope: Scope) -> None:
    """Run `del target`."""
    unknown = Unknown(f"del {ast.unparse(target)}", target.lineno)
    if not isinstance(target, ast.Subscript):
        assign(target, unknown, scope)
        return
    owner, index = scope.value(target.value), scope.value(target.slice)
    if (isinstance(owner, list) and _is_place(index, owner)) or (isinstance(owner, dict) and index in owner):
        del owner[index]
    else:
        forget(owner, unknown)


def _is_place(index: Any, owner: list[Any]) -> bool:
    return isinstance(index, int) and -len(owner) <= index < len(owner) and not is_changed(owner)
