"""Compute the values of expressions in Python source without executing them."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

from detaug.importing.calls import Call, Library, Unknown

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
    ast.Is: operator.eq,
    ast.IsNot: operator.ne,
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

_LONGEST = 64
"""The most values of a list that is made by `*`."""

_CannotCompute = (TypeError, ValueError, ZeroDivisionError, OverflowError, LookupError)


class Scope:
    """The names of a module, class or function, with those around it.

    `settings`: values by dotted name, which come before what the file says.
    """

    def __init__(self, settings: Mapping[str, Any], around: Scope | None = None) -> None:
        self.settings = settings
        self.values: dict[str, Any] = dict(around.values) if around else {}
        self.modules: dict[str, str] = dict(around.modules) if around else {}

    def value(self, node: ast.expr | None) -> Any:
        """Return the value of an expression; `Unknown` if the file alone does not give it."""
        read = getattr(self, f"_{type(node).__name__.lower()}", None) if node else None
        try:
            return read(node) if read else self._unknown(node)
        except _CannotCompute:
            return self._unknown(node)

    def _unknown(self, node: ast.expr | None, setting: str = "") -> Unknown:
        return Unknown(ast.unparse(node), node.lineno, setting) if node else Unknown("", 0, "")

    def _constant(self, node: ast.Constant) -> Any:
        return node.value

    def _name(self, node: ast.Name) -> Any:
        return self._named(node.id, node)

    def _attribute(self, node: ast.Attribute) -> Any:
        name = ast.unparse(node)
        if node.attr in OPENCV:
            return OPENCV[node.attr]
        owner = self.values.get(ast.unparse(node.value))
        if isinstance(owner, Scope) and name not in self.settings:
            return owner._named(node.attr, node)
        return self._named(name, node)

    def _named(self, name: str, node: ast.expr) -> Any:
        if name in self.settings:
            return self.settings[name]
        return self.values[name] if name in self.values else self._unknown(node, name)

    def _list(self, node: ast.List | ast.Tuple) -> Any:
        values: list[Any] = []
        for each in node.elts:
            inner = self.value(each.value) if isinstance(each, ast.Starred) else [self.value(each)]
            values += inner if isinstance(inner, list) else [self._unknown(each)]
        return values

    _tuple = _list

    def _dict(self, node: ast.Dict) -> Any:
        """Return a dict; a key that is no text, such as `tv_tensors.Image`, becomes its code."""
        pairs = [
            (key, self.value(key), self.value(each)) for key, each in zip(node.keys, node.values, strict=True) if key
        ]
        return {key if isinstance(key, str) else ast.unparse(code): each for code, key, each in pairs}

    def _subscript(self, node: ast.Subscript) -> Any:
        name = ast.unparse(node)
        owner, index = self.value(node.value), self.value(node.slice)
        if name in self.settings:
            return self.settings[name]
        unknown = isinstance(owner, Unknown) or not isinstance(owner, list | dict)
        return self._unknown(node, name) if unknown else owner[index]

    def _unaryop(self, node: ast.UnaryOp) -> Any:
        value = self.value(node.operand)
        if isinstance(value, Unknown):
            return value
        return not value if isinstance(node.op, ast.Not) else -value if isinstance(node.op, ast.USub) else +value

    def _binop(self, node: ast.BinOp) -> Any:
        left, right = self.value(node.left), self.value(node.right)
        for each in (left, right):
            if isinstance(each, Unknown):
                return each
        numbers = isinstance(left, int | float) and isinstance(right, int | float)
        joined = isinstance(node.op, ast.Add) and isinstance(left, list) and isinstance(right, list)
        times = isinstance(node.op, ast.Mult) and isinstance(left, list) and isinstance(right, int)
        repeated = times and len(left) * right <= _LONGEST
        return _BINARY[type(node.op)](left, right) if numbers or joined or repeated else self._unknown(node)

    def _compare(self, node: ast.Compare) -> Any:
        left = self.value(node.left)
        for step, each in zip(node.ops, node.comparators, strict=True):
            right = self.value(each)
            for side in (left, right):
                if isinstance(side, Unknown):
                    return side
            if not _COMPARE[type(step)](left, right):
                return False
            left = right
        return True

    def _boolop(self, node: ast.BoolOp) -> Any:
        stops_at = isinstance(node.op, ast.Or)
        value: Any = not stops_at
        for each in node.values:
            value = self.value(each)
            if isinstance(value, Unknown) or bool(value) == stops_at:
                return value
        return value

    def _ifexp(self, node: ast.IfExp) -> Any:
        test = self.value(node.test)
        return test if isinstance(test, Unknown) else self.value(node.body if test else node.orelse)

    def _call(self, node: ast.Call) -> Any:
        name = ast.unparse(node.func)
        positional = self._list(ast.List(node.args))
        named = {each.arg: self.value(each.value) for each in node.keywords if each.arg}
        named |= self._unpacked(node)
        if name == "dict":
            return named
        if library := self.library_of(name):
            return Call(library, name.rpartition(".")[2], tuple(positional), named, node.lineno)
        if name in _CONTAINERS_OF_TORCH:
            return Call("torchvision", "Compose", (positional,), {}, node.lineno)
        if name in _FUNCTIONS and not named and not any(isinstance(each, Unknown) for each in positional):
            return _FUNCTIONS[name](*positional)
        return self._unknown(node)

    def _unpacked(self, node: ast.Call) -> dict[str, Any]:
        """Return the arguments that are given as **dict."""
        values = [self.value(each.value) for each in node.keywords if not each.arg]
        return {key: each for value in values if isinstance(value, dict) for key, each in value.items()}

    def library_of(self, name: str) -> Library | None:
        """Return the library of a dotted name, from the imports; None for names of others and of small letters."""
        root, _, _ = name.partition(".")
        module = self.modules.get(root, "")
        if not name.rpartition(".")[2][:1].isupper():
            return None
        if module.split(".")[0] == "transforms":  # the module of torchvision's references
            return "torchvision"
        return _LIBRARIES.get(module.split(".")[0])
