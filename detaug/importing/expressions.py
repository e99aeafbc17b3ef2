"""Compute the values of expressions in Python source without executing them."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from detaug.importing.calls import UNPACKED, Call, Changed, Library, Unknown

OPENCV = {
    "BORDER_CONSTANT": 0,
    "BORDER_REPLICATE": 1,
    "BORDER_REFLECT": 2,
    "BORDER_WRAP": 3,
    "BORDER_REFLECT_101": 4,
    "BORDER_REFLECT101": 4,
    "BORDER_DEFAULT": 4,
    "INTER_NEAREST": 0,
    "INTER_LINEAR": 1,
    "INTER_CUBIC": 2,
    "INTER_AREA": 3,
    "INTER_LANCZOS4": 4,
}
"""OpenCV's constants that pipelines use."""

_LIBRARIES: dict[str, Library] = {"albumentations": "albumentations", "torchvision": "torchvision"}
_CONTAINERS_OF_TORCH = ("torch.nn.Sequential", "nn.Sequential")

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: lambda one, other: _is(one, other),
    ast.IsNot: lambda one, other: not _is(one, other),
    ast.In: lambda one, many: one in many,
    ast.NotIn: lambda one, many: one not in many,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "int": int,
    "float": float,
    "tuple": tuple,
    "list": list,
    "round": round,
    "min": min,
    "max": max,
    "bool": bool,
    "str": str,
    "len": len,
}

_READING: dict[type, tuple[str, ...]] = {
    list: ("copy", "count", "index"),
    dict: ("copy", "get", "items", "keys", "values"),
}
_CHANGING: dict[type, tuple[str, ...]] = {
    list: ("append", "clear", "extend", "insert", "pop", "remove", "reverse"),
    dict: ("clear", "pop", "setdefault", "update"),
}
_OF_ANY_LENGTH = ("append", "clear", "copy", "extend")
"""Methods of lists and dicts that are run."""
_MAY_BE_UNKNOWN = {"append": 0, "insert": 1, "get": 1, "setdefault": 1}
"""The argument of a method that is only put into a list or dict, or taken from it."""

_LONGEST = 10_000
"""The most values of a list that is computed, and the most bits of a whole number."""

_CannotCompute = (TypeError, ValueError, ZeroDivisionError, OverflowError, LookupError)


class Scope:
    """The names of a module, class or function; `around`: the scope that it sees the names of.

    `settings`: values by dotted name, which come before what the file says. `class_name`: that of a class. Lists, dicts
    and scopes of classes are values that several names may share, as in Python.
    """

    def __init__(self, settings: Mapping[str, Any], around: Scope | None = None, class_name: str = "") -> None:
        self.settings, self.around, self.class_name = settings, around, class_name
        self.values: dict[str, Any] = {}
        self.modules: dict[str, str] = {}
        self.unsteady: frozenset[str] = around.unsteady if around else frozenset()
        """Names that functions give new values, by `global` or `nonlocal`."""

    def chain(self) -> Iterator[Scope]:
        """Yield this scope and those around it."""
        yield self
        if self.around:
            yield from self.around.chain()

    def bind(self, name: str, value: Any) -> None:
        """Give a name a value; what was known of its attributes is gone."""
        for each in [each for each in self.values if each.startswith(f"{name}.")]:
            del self.values[each]
        self.values[name] = value
        self.modules[name] = ""

    def value(self, node: ast.expr | None) -> Any:
        """Return the value of an expression; `Unknown` if the file alone does not give it."""
        read = getattr(self, f"_{type(node).__name__.lower()}", None) if node else None
        try:
            return read(node) if read else self._unknown(node)
        except _CannotCompute:
            return self._unknown(node)

    def _unknown(self, node: ast.expr | None, setting: str = "", **more: tuple[Any, ...]) -> Unknown:
        return Unknown(ast.unparse(node), node.lineno, setting, **more) if node else Unknown("", 0)

    def _constant(self, node: ast.Constant) -> Any:
        return node.value

    def _name(self, node: ast.Name) -> Any:
        return self._named(node.id, node)

    def _attribute(self, node: ast.Attribute) -> Any:
        name = ast.unparse(node)
        if name in self.settings:
            return self.settings[name]
        if node.attr in OPENCV:
            return OPENCV[node.attr]
        owner = self.value(node.value)
        if isinstance(owner, Scope):
            return owner.values.get(node.attr, self._unknown(node, name))
        if isinstance(owner, Call) and node.attr == "transforms":
            return owner.named.get("transforms") or owner.positional[0]
        found = self._named(name, node)
        return replace(found, may_be=may_be(owner)) if isinstance(found, Unknown) else found

    def _named(self, name: str, node: ast.expr) -> Any:
        """Return what a name stands for, dotted or not."""
        root = name.partition(".")[0]
        seen = next((each.values for each in self.chain() if name in each.values or root in each.values), {})
        value = seen.get(name, self._unknown(node, name))
        if name in self.settings:
            return self.settings[name]
        if root in self.unsteady:
            return self._unknown(node, name, may_be=may_be(value))
        return replace(value, line=node.lineno) if value == Unknown(name, 0, name) else value

    def _namedexpr(self, node: ast.NamedExpr) -> Any:
        value = self.value(node.value)
        self.bind(node.target.id, value)
        return value

    def _list(self, node: ast.List) -> list[Any]:
        return self._elements(node.elts)

    def _tuple(self, node: ast.Tuple) -> tuple[Any, ...]:
        return tuple(self._elements(node.elts))

    def _elements(self, nodes: list[ast.expr]) -> list[Any]:
        values: list[Any] = []
        for each in nodes:
            inner = self.value(each.value) if isinstance(each, ast.Starred) else [self.value(each)]
            values += inner if isinstance(inner, list | tuple) else [Changed(ast.unparse(each), each.lineno)]
        return values

    def _dict(self, node: ast.Dict) -> dict[str, Any]:
        """Return a dict; a key that is no text, such as `tv_tensors.Image`, becomes its code."""
        values: dict[str, Any] = {}
        for code, each in zip(node.keys, node.values, strict=True):
            if code:
                values[self.key(code)] = self.value(each)
            else:
                self._unpack(values, each)
        return values

    def key(self, code: ast.expr) -> str:
        """Return the key of a dict: the code, if it is no text."""
        key = self.value(code)
        return key if isinstance(key, str) else ast.unparse(code)

    def _unpack(self, values: dict[str, Any], node: ast.expr) -> None:
        """Add `**node` to the values. What is unknown may replace any of them."""
        unpacked = self.value(node)
        if isinstance(unpacked, dict):
            values.update(unpacked)
        else:
            forget(values, Unknown(f"**{ast.unparse(node)}", node.lineno))

    def _subscript(self, node: ast.Subscript) -> Any:
        name = ast.unparse(node)
        owner, index = self.value(node.value), self.value(node.slice)
        if name in self.settings:
            return self.settings[name]
        listed = isinstance(owner, dict) or (isinstance(owner, list | tuple) and not is_changed(owner))
        return owner[index] if listed else self._unknown(node, name, may_be=may_be(owner))

    def _unaryop(self, node: ast.UnaryOp) -> Any:
        negates = isinstance(node.op, ast.Not)
        value = self.truth(node.operand) if negates else self.value(node.operand)
        if isinstance(value, Unknown):
            return value
        return not value if negates else -value if isinstance(node.op, ast.USub) else +value

    def _binop(self, node: ast.BinOp) -> Any:
        return self.compute(self.value(node.left), node.op, self.value(node.right), node)

    def compute(self, left: Any, op: ast.operator, right: Any, node: ast.AST) -> Any:
        """Return `left op right`, numbers or lists; `node` is the code of it."""
        for each in (left, right):
            if isinstance(each, Unknown):
                return each
        unknown = Unknown(ast.unparse(node), getattr(node, "lineno", 0))
        if isinstance(left, int | float) and isinstance(right, int | float):
            value = _BINARY[type(op)](left, right)
            return unknown if isinstance(value, int) and value.bit_length() > _LONGEST else value
        joined = isinstance(op, ast.Add) and isinstance(left, list | tuple) and type(left) is type(right)
        repeated = isinstance(op, ast.Mult) and isinstance(left, list | tuple) and isinstance(right, int)
        length = len(left) + len(right) if joined else len(left) * right if repeated else _LONGEST + 1
        return unknown if length > _LONGEST else _BINARY[type(op)](left, right)

    def _compare(self, node: ast.Compare) -> Any:
        left = self.value(node.left)
        for step, each in zip(node.ops, node.comparators, strict=True):
            right = self.value(each)
            for side in (left, right):
                if not is_known(side):
                    return side if isinstance(side, Unknown) else self._unknown(node)
            if not _COMPARE[type(step)](left, right):
                return False
            left = right
        return True

    def _boolop(self, node: ast.BoolOp) -> Any:
        stops_at = isinstance(node.op, ast.Or)
        value: Any = not stops_at
        for each in node.values:
            value, truth = self.value(each), self.truth(each)
            if isinstance(truth, Unknown) or truth == stops_at:
                return truth if isinstance(truth, Unknown) else value
        return value

    def truth(self, node: ast.expr) -> bool | Unknown:
        """Return whether a value counts as true, which is unknown of a list that had an unknown change."""
        value = self.value(node)
        unknown = isinstance(value, list | dict) and is_changed(value)
        return value if isinstance(value, Unknown) else self._unknown(node) if unknown else bool(value)

    def _ifexp(self, node: ast.IfExp) -> Any:
        test = self.truth(node.test)
        return test if isinstance(test, Unknown) else self.value(node.body if test else node.orelse)

    def _call(self, node: ast.Call) -> Any:
        name = ast.unparse(node.func)
        owner = self.value(node.func.value) if isinstance(node.func, ast.Attribute) else None
        positional, named = self._elements(node.args), self._keywords(node.keywords)
        if isinstance(owner, list | dict):
            return self._method(owner, node, positional, named)
        if isinstance(owner, Unknown) and name.rpartition(".")[2] not in (*_READING[list], *_READING[dict]):
            forget(owner, self._unknown(node))
        if name == "dict" and all(isinstance(each, dict) for each in positional):
            return {key: each for part in (*positional, named) for key, each in part.items()}
        if library := self.library_of(name):
            return Call(library, name.rpartition(".")[2], tuple(positional), named, node.lineno)
        if name in _CONTAINERS_OF_TORCH:
            return Call("torchvision", "Compose", (positional,), {}, node.lineno)
        copies = name in ("list", "tuple") and all(isinstance(each, list | tuple) for each in positional)
        if name in _FUNCTIONS and not named and (copies or all(map(is_known, positional))):
            return _FUNCTIONS[name](*positional)
        return self._unknown(node, arguments=(*positional, *named.values()), may_be=may_be(owner))

    def _keywords(self, nodes: list[ast.keyword]) -> dict[str, Any]:
        named: dict[str, Any] = {}
        for each in nodes:
            if each.arg:
                named[each.arg] = self.value(each.value)
            else:
                self._unpack(named, each.value)
        return named

    def _method(self, owner: Any, node: ast.Call, positional: list[Any], named: dict[str, Any]) -> Any:
        """Run a method of a list or dict. If what it does is unknown, so are the values after it."""
        method = ast.unparse(node.func).rpartition(".")[2]
        unknown = self._unknown(node)
        known = positional[: _MAY_BE_UNKNOWN.get(method, len(positional))]
        may_run = method in (*_READING[type(owner)], *_CHANGING[type(owner)]) and (
            method in _OF_ANY_LENGTH or not is_changed(owner)
        )
        try:
            if may_run and not any(isinstance(each, Unknown) for each in known) and len(owner) < _LONGEST:
                value = getattr(owner, method)(*positional, **named)
                return list(value) if method in ("items", "keys", "values") else value
        except _CannotCompute:
            pass
        if method not in _READING[type(owner)]:
            forget(owner, unknown)
        return unknown

    def library_of(self, name: str) -> Library | None:
        """Return the library of a dotted name, from the imports; None for names of others and of small letters."""
        root, _, _ = name.partition(".")
        module = next((each.modules[root] for each in self.chain() if root in each.modules), "")
        if not name.rpartition(".")[2][:1].isupper():
            return None
        if module.split(".")[0] == "transforms":  # the module of torchvision's references
            return "torchvision"
        return _LIBRARIES.get(module.split(".")[0])


def _is(one: Any, other: Any) -> bool:
    return one is other or (not isinstance(one, list | dict) and one == other)


def forget(owner: Any, unknown: Unknown) -> None:
    """Note that the values of a list, of a dict or of a class may have changed."""
    if isinstance(owner, Scope):
        forget(owner.values, unknown)
    elif isinstance(owner, dict):
        owner.update(dict.fromkeys([*owner, UNPACKED], unknown))
    elif isinstance(owner, list):
        changed = Changed(unknown.text, unknown.line, unknown.setting, unknown.arguments, unknown.may_be)
        owner += [] if changed in owner else [changed]
    elif isinstance(owner, Unknown):
        for each in owner.may_be:
            forget(each, unknown)


def is_changed(value: Any) -> bool:
    """Return whether a list or dict had an unknown change."""
    return UNPACKED in value or any(isinstance(each, Changed) for each in value)


def is_known(value: Any) -> bool:
    """Return whether nothing in a value is unknown."""
    return not isinstance(value, Unknown) and all(is_known(each) for each in _held(value))


def may_be(value: Any) -> tuple[Any, ...]:
    """Return the lists and dicts that a change of a value may change."""
    return value.may_be if isinstance(value, Unknown) else tuple(containers(value))


def containers(value: Any, seen: set[int] | None = None) -> Iterator[list[Any] | dict[str, Any]]:
    """Yield each list and dict that a value holds, in the same order for a copy of it."""
    seen = set() if seen is None else seen
    if id(value) in seen:
        return
    if isinstance(value, list | dict | Scope | Call | Unknown):
        seen.add(id(value))
    if isinstance(value, list | dict):
        yield value
    for each in _held(value):
        yield from containers(each, seen)


def _held(value: Any) -> Iterable[Any]:
    if isinstance(value, Scope):
        return value.values, value.around
    if isinstance(value, Call):
        return *value.positional, value.named
    if isinstance(value, Unknown):
        return *value.arguments, *value.may_be
    return list(value.values()) if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
