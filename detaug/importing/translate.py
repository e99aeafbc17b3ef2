"""Translate calls to ops, one by one, and what contains them: OneOf, SomeOf, Sequential and others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from detaug.arguments import RGB
from detaug.errors import InputError
from detaug.importing import albumentations_geometry, albumentations_pixels, torchvision_rules
from detaug.importing.albumentations_geometry import maybe
from detaug.importing.calls import COMPOSE, Call, Unknown, is_old
from detaug.importing.given import CropSize, Entry, Given, Holes, LeftOut, PadTo, Rules, Step, unknown_error
from detaug.ops.containers import RandomApply, RandomChoice, RandomOrder
from detaug.ops.normalize import Normalize
from detaug.ops.op import Op
from detaug.ops.resize import Render, Resize
from detaug.ops.resized_crop import RandomResizedCrop

_ALBUMENTATIONS: Rules = albumentations_geometry.GEOMETRY | albumentations_pixels.PIXELS
_RULES = {"albumentations": _ALBUMENTATIONS, "torchvision": torchvision_rules.TORCHVISION}
_NEAREST = {
    "albumentations": albumentations_pixels.NO_COUNTERPART,
    "torchvision": torchvision_rules.NO_COUNTERPART,
}
_ALL_OR_NONE = (*COMPOSE, "Sequential", "RandomApply")
_ONE = ("OneOf", "OneOrOther", "RandomChoice")
_SOME = ("SomeOf", "RandomOrder")
_MOST_SUBSETS = 10
"""Of SomeOf: each is an op of the recipe."""


@dataclass
class Piece:
    """An op of the recipe and the entries of the calls that it comes from."""

    op: Step
    entries: list[Entry]

    @property
    def kind(self) -> str:
        """Return the stage of the op; "render" for all that sets a size."""
        return "render" if isinstance(self.op, PadTo | CropSize) else self.op.stage

    def differs(self, reason: str) -> None:
        """Add a difference to all of its entries."""
        for entry in self.entries:
            entry.differs(reason)

    def leave_out(self, reason: str, nearest: str = "") -> None:
        """Note that none of its calls is in the recipe."""
        for entry in self.entries:
            entry.leave_out(reason, nearest)


@dataclass
class _Child:
    """What a child of a container became; `weight` is its own probability."""

    pieces: list[Piece]
    weight: float


class Translator:
    """Translates calls, and keeps an entry for each op."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self._zero: RGB = (0, 0, 0)
        self.old = False
        """Whether the pipeline is of Albumentations 1.x, and has its defaults."""

    def pipeline(self, call: Call) -> list[Piece]:
        """Return the pieces of a whole pipeline, with those of its `bbox_params`."""
        self.old = call.library == "albumentations" and (call.version < 2 or is_old(call))
        pieces = self._child(call, forced=False).pieces
        params = call.named.get("bbox_params", call.positional[1] if len(call.positional) > 1 else None)
        return pieces + self._box_params(Call(call.library, "BboxParams"), params)

    def _box_params(self, call: Call, params: Any) -> list[Piece]:
        if isinstance(params, Unknown):
            reason = f"{params.text!r} is no constant: the rules for boxes are lost"
            self.entries.append(Entry(call, "nothing", [reason]))
        named = params.named if isinstance(params, Call) else params
        if not isinstance(named, dict) or not named:
            return []
        found = self._op(replace(call, named=named), forced=True).pieces
        if not found and not self.entries[-1].reasons:
            self.entries.pop()  # no rule for boxes
        return found

    def _child(self, call: Call, *, forced: bool) -> _Child:
        """Translate a call. `forced`: it runs with probability 1, since its container has drawn it."""
        call = replace(call, version=1) if self.old else call
        if call.name in (*_ALL_OR_NONE, *_ONE, *_SOME):
            return self._container(call, forced=forced)
        return self._op(call, forced=forced)

    def _op(self, call: Call, *, forced: bool) -> _Child:
        entry = Entry(call)
        self.entries.append(entry)
        found = _RULES[call.library].get(call.name)
        if not found:
            nearest = _NEAREST[call.library].get(call.name, "")
            known = call.name in _NEAREST[call.library]
            entry.leave_out("detaug has no such op" if known else f"unknown op of {call.library}", nearest)
            given = Given(call, (), entry)
            if call.library == "albumentations":
                given.probability(0.5)
            return self._made(entry, [], given, forced=forced)
        given = Given(call, found.parameters, entry, forced=forced, zero=self._zero)
        try:
            made = found.translate(given)
        except LeftOut as left_out:
            entry.leave_out(left_out.reason, left_out.nearest)
            made = []
        except InputError as error:
            raise error if "line " in str(error) else InputError(f"{call}: {error}") from None
        except (TypeError, ValueError, AttributeError) as error:
            raise InputError(f"{call}: an argument is missing or of a wrong kind ({error})") from None
        steps = made if isinstance(made, list) else [made]
        if call.library == "albumentations" and not given.drawn and not entry.left_out:
            given.always()
        self._zero = next((_mean_color(step) for step in steps if isinstance(step, Normalize)), self._zero)
        if not entry.left_out:
            given.check_all_read()
            entry.became = ", ".join(dict.fromkeys(name_of(step) for step in steps))
        return self._made(entry, steps, given, forced=forced)

    def _made(self, entry: Entry, steps: list[Step], given: Given, *, forced: bool) -> _Child:
        """Return the pieces of an op; none for one that never runs."""
        if given.weight == 0 and not forced:
            entry.reasons, entry.left_out, entry.became = [], False, ""
            return _Child([], 0.0)
        entry.parts = max(len(steps), 1)
        return _Child([Piece(step, [entry]) for step in steps], given.weight)

    def _container(self, call: Call, *, forced: bool) -> _Child:
        given = Given(call, _PARAMETERS.get(call.name, ("transforms", "p")), Entry(call))
        usual = 0.5 if call.name in ("OneOf", "OneOrOther", "RandomApply", "Sequential") else 1.0
        usual = 1.0 if (call.library, call.name) == ("torchvision", "Sequential") else usual
        weights = given.get("p") if (call.library, call.name) == ("torchvision", "RandomChoice") else None
        weight = given.number("p", usual) if call.library == "albumentations" or call.name == "RandomApply" else 1.0
        p = 1.0 if forced and call.name not in _SOME else weight
        children = self._children(call, given)
        if call.name in _ALL_OR_NONE:
            pieces = [piece for child in children for piece in self._child(child, forced=False).pieces]
            return _Child(_together(pieces, p), weight)
        if call.name in _ONE:
            found = [self._child(child, forced=call.library == "albumentations") for child in children]
            own = weights or ([p, 1 - p] if call.name == "OneOrOther" else None)
            for child, each in zip(found, own or [], strict=False):
                child.weight = each
            equal = call.library == "torchvision" and not weights
            for child in found if equal else []:
                child.weight = 1.0
            return _Child(_one_of(found, 1.0 if call.name == "OneOrOther" else p), weight)
        forced = call.library == "albumentations" and call.version < 2
        found = [self._child(child, forced=forced) for child in children]
        return _Child(_some_of(call, given, found, p), weight)

    def _children(self, call: Call, given: Given) -> list[Call]:
        """Return the calls in a container. Raises InputError for anything else in it."""
        listed = given.raw("transforms")
        if call.name == "OneOrOther" and listed is None:
            listed = [given.raw("first"), given.raw("second")]
        if isinstance(listed, Unknown):
            raise unknown_error(call, "transforms", listed)
        if isinstance(listed, Call) or not isinstance(listed, list | tuple):
            raise InputError(f"{call}: transforms must be a list of ops, got {type(listed).__name__}")
        return [_as_call(call, each) for each in listed if each is not None]


_PARAMETERS = {
    **dict.fromkeys(COMPOSE, ("transforms", "bbox_params", "keypoint_params", "additional_targets", "p")),
    **dict.fromkeys(_SOME, ("transforms", "n", "replace", "p")),
    "OneOrOther": ("first", "second", "transforms", "p"),
}


def _as_call(container: Call, value: Any) -> Call:
    """Return a child of a container; `dict(type="Blur", ...)` is MMDetection's way of writing it."""
    if isinstance(value, Unknown):
        raise unknown_error(container, "an op", value)
    if isinstance(value, dict) and isinstance(value.get("type"), str):
        named = {name: each for name, each in value.items() if name != "type"}
        return Call(container.library, value["type"].rpartition(".")[2], (), named, None, container.version)
    if not isinstance(value, Call):
        raise InputError(f"{container}: transforms must be ops, got {value!r}")
    return value


def _mean_color(normalize: Normalize) -> RGB:
    """Return the colour in 0..255 that becomes 0."""
    red, green, blue = (round(255 * each) for each in normalize.mean)
    return red, green, blue


def name_of(step: Step) -> str:
    """Return the name of an op of a recipe."""
    names = {PadTo: "Resize", CropSize: "Resize", Holes: "RandomErasing"}
    return names.get(type(step), type(step).__name__)


# ------------------------------------------------------------------------------------------ containers


def _together(pieces: list[Piece], p: float) -> list[Piece]:
    """Return pieces that all run, or none of them, with probability `p`."""
    if p == 1 or not pieces:
        return pieces
    kinds = [kind for kind in ("view", "pixels") if any(piece.kind == kind for piece in pieces)]
    groups = [[piece for piece in pieces if piece.kind == kind] for kind in kinds]
    if len(groups) > 1:
        for piece in pieces:
            piece.differs("geometric ops and pixel ops of its group are drawn apart from each other")
    joined = [piece for group in groups for piece in _joined(group, lambda ops: RandomApply(ops, p))]
    sizes = [piece for piece in pieces if piece.kind not in kinds]
    return joined + _always(sizes, p)


def _joined(group: list[Piece], make: Any) -> list[Piece]:
    """Return one piece that `make` makes of the ops, or nothing where it refuses them."""
    try:
        return [Piece(make([piece.op for piece in group]), [entry for piece in group for entry in piece.entries])]
    except InputError as error:
        for piece in group:
            piece.leave_out(f"it cannot be in a group ({error})")
        return []


def _always(pieces: list[Piece], p: float) -> list[Piece]:
    """Return the pieces that set a size, which each image gets: one size only."""
    for piece in pieces:
        if p != 1:
            piece.differs("it runs on each image: sizes and Normalize are no matter of chance")
    sizes = [piece for piece in pieces if isinstance(piece.op, Render | CropSize)]
    first = next((piece for piece in sizes if isinstance(piece.op, Resize | CropSize)), sizes[0] if sizes else None)
    for piece in sizes:
        if first and _size(piece) != _size(first):
            piece.leave_out("a recipe has one size, that of the other op in its group", name_of(piece.op))
    return [piece for piece in pieces if piece is first or piece not in sizes]


def _size(piece: Piece) -> Any:
    return type(piece.op) is RandomResizedCrop, getattr(piece.op, "size", None)


def _one_of(children: list[_Child], p: float) -> list[Piece]:
    """Return one of the children, drawn by their weights, with probability `p`; those left out keep their share."""
    total = sum(child.weight for child in children)
    if total <= 0:
        return []
    pieces = [piece for child in children for piece in child.pieces]
    sizes = [piece for piece in pieces if piece.kind not in ("view", "pixels")]
    kinds = [kind for kind in ("view", "pixels") if any(piece.kind == kind for piece in pieces)]
    if len(kinds) > 1:
        for piece in pieces:
            piece.differs("geometric ops and pixel ops of its group are drawn apart from each other: both may run")
    found = [piece for kind in kinds for piece in _choice(children, kind, p / total)]
    return found + _always(sizes, 1.0 if len(sizes) == len(children) else 0.5)


def _choice(children: list[_Child], kind: str, scale: float) -> list[Piece]:
    """Return one of the children's ops of a kind; each child has the probability of its weight times `scale`."""
    chosen: list[tuple[Piece, float]] = []
    for child in children:
        group = [piece for piece in child.pieces if piece.kind == kind]
        joined = group if len(group) == 1 else _joined(group, lambda ops: RandomApply(ops, 1.0)) if group else []
        chosen += [(piece, child.weight) for piece in joined if child.weight > 0]
    if not chosen:
        return []
    weights = [weight for _, weight in chosen]
    p = min(round(sum(weights) * scale, 9), 1.0)
    if len(chosen) == 1:
        return _joined([chosen[0][0]], lambda ops: maybe(ops[0], p))
    given = None if len(set(weights)) == 1 else tuple(weights)
    return _joined([piece for piece, _ in chosen], lambda ops: maybe(RandomChoice(ops, given), p))


def _some_of(call: Call, given: Given, found: list[_Child], p: float) -> list[Piece]:
    """Return what `n` of the children do, in their order or in a random one."""
    in_order, number = call.name == "SomeOf", len(found)
    children = [child for child in found if child.pieces]
    usual = number if call.library == "torchvision" else 1
    n = min(int(given.number("n", usual)), number)
    repeats = bool(given.get("replace", call.version < 2)) and in_order and n > 1
    pieces = [piece for child in children for piece in child.pieces]
    for piece in pieces:
        if repeats:
            piece.differs(f"{n} different ops of the group run, none twice")
        if n < number and not in_order:
            piece.differs("the ops of the group run in their order, not in a random one")
    if n == 1 < number:
        return _one_of([replace(child, weight=1.0) for child in found], p)
    if n >= number:
        order = pieces if in_order else _ordered(pieces)
        return _together(order, p)
    subsets = list(combinations(children, n))
    if len({piece.kind for piece in pieces}) == 1 and len(children) == number and len(subsets) <= _MOST_SUBSETS:
        return _subsets(pieces, subsets, p)
    share = round(p * n / number, 9)
    for piece in pieces:
        piece.differs(f"each op of the group runs with probability {share:g}, apart from the others")
    return [new for child in children for new in _together(child.pieces, share)]


def _ordered(pieces: list[Piece]) -> list[Piece]:
    """Return the pieces in a random order, by kind."""
    kinds = [kind for kind in ("view", "pixels") if any(piece.kind == kind for piece in pieces)]
    rest = [piece for piece in pieces if piece.kind not in kinds]
    if len(kinds) > 1 or (kinds and rest):
        for piece in pieces:
            piece.differs("geometric ops run before pixel ops; the order within each kind is random")
    groups = [[piece for piece in pieces if piece.kind == kind] for kind in kinds]
    return [piece for group in groups for piece in _joined(group, RandomOrder)] + rest


def _subsets(pieces: list[Piece], subsets: Sequence[Iterable[_Child]], p: float) -> list[Piece]:
    """Return one of the subsets of ops, drawn with equal chance."""

    def choose(_: list[Op]) -> Op:
        groups: list[list[Any]] = [[piece.op for child in subset for piece in child.pieces] for subset in subsets]
        parts = [group[0] if len(group) == 1 else RandomApply(group, 1.0) for group in groups]
        return maybe(RandomChoice(parts), p)

    return _joined(pieces, choose)
