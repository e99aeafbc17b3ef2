"""Translate ops one by one, and what contains them: OneOf, SomeOf, Sequential and others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from detaug.errors import InputError
from detaug.findings.finding import listed, shown
from detaug.importing import albumentations_geometry, albumentations_pixels, albumentations_weather, torchvision_rules
from detaug.importing.albumentations_geometry import maybe
from detaug.importing.library_ops import ALL_OR_NONE, COMPOSE, CONTAINERS, ONE, SOME, LibraryOp
from detaug.importing.rules import ALWAYS, Arguments, CropSize, Entry, Holes, LeftOut, PadTo, Rules, Step
from detaug.importing.units import BYTES
from detaug.ops.containers import RandomApply, RandomChoice, RandomOrder
from detaug.ops.erasing import RandomErasing
from detaug.ops.op import Op
from detaug.ops.resize import Render, Resize
from detaug.ops.resized_crop import RandomResizedCrop
from detaug.ops.sanitize import SanitizeBoundingBoxes

_ALBUMENTATIONS: Rules = (
    albumentations_geometry.GEOMETRY | albumentations_pixels.PIXELS | albumentations_weather.WEATHER
)
RULES = {"albumentations": _ALBUMENTATIONS, "torchvision": torchvision_rules.TORCHVISION}
_NEAREST = {
    "albumentations": albumentations_pixels.NO_COUNTERPART,
    "torchvision": torchvision_rules.NO_COUNTERPART,
}
_ANY_UNITS = (RandomErasing, SanitizeBoundingBoxes, Holes)
"""Pixel ops that look at no pixel: what they write is in the units of the place."""
_MOST_SUBSETS = 10
"""Of SomeOf: each is an op of the recipe."""


@dataclass
class Piece:
    """An op of the recipe and the entries of the ops that it comes from."""

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
        """Note that none of its ops is in the recipe."""
        for entry in self.entries:
            entry.leave_out(reason, nearest)


@dataclass
class _Child:
    """What a child of a container became; `weight` is its own probability."""

    pieces: list[Piece]
    weight: float


class Translator:
    """Translates ops, and keeps an entry for each."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self._units, self._surely = BYTES, True

    def pipeline(self, pipeline: LibraryOp) -> list[Piece]:
        """Return the pieces of a whole pipeline, with those of its `bbox_params`."""
        pieces = self._child(pipeline, forced=False).pieces
        self._note_targets(pipeline.arguments)
        params = pipeline.arguments.get("bbox_params")
        params = params.arguments if isinstance(params, LibraryOp) else params
        if not isinstance(params, Mapping) or not params:
            return pieces
        rules_for_boxes = self._op(LibraryOp("albumentations", "BboxParams", params), forced=True).pieces
        if not rules_for_boxes and not self.entries[-1].reasons:
            self.entries.pop()
        return pieces + rules_for_boxes

    def _note_targets(self, arguments: Mapping[str, Any]) -> None:
        """Note what a pipeline augments beside an image, its boxes and its masks."""
        if others := arguments.get("additional_targets"):
            entry = Entry("additional_targets", "albumentations")
            names = listed(others) if isinstance(others, Mapping) else shown(others)
            reason = f"a recipe augments one image with its objects, not also {names}"
            entry.leave_out(reason, "StackReader, several images as the bands of one")
            self.entries.append(entry)
        if arguments.get("keypoint_params"):
            entry = Entry("KeypointParams", "albumentations", "CocoReader(keypoints=True)")
            entry.differs("flips swap left and right keypoints, and those outside the image stay, with visibility 0")
            self.entries.append(entry)

    def _child(self, op: LibraryOp, *, forced: bool) -> _Child:
        """Translate an op. `forced`: it runs with probability 1, since its container has drawn it."""
        container = op.name in CONTAINERS and not op.unreadable
        return (self._container if container else self._op)(op, forced=forced)

    def _op(self, op: LibraryOp, *, forced: bool) -> _Child:
        entry = Entry(op.name, op.library)
        self.entries.append(entry)
        arguments = Arguments(op, entry, forced=forced, units=self._units, surely=self._surely)
        try:
            steps = _translated(op, arguments)
        except LeftOut as reason:
            entry.leave_out(reason.reason, reason.nearest)
            steps = []
            if op.library == "albumentations":
                arguments.probability()
        if not entry.left_out:
            self._note_units(entry, steps)
            arguments.check_all_read()
            entry.became = ", ".join(dict.fromkeys(map(name_of, steps)))
        if arguments.weight == 0 and not forced:  # it never runs
            entry.reasons, entry.left_out, entry.became = [], False, ""
            return _Child([], 0.0)
        self._units = BYTES if op.name == "FromFloat" else arguments.units
        self._surely &= not op.unreadable
        entry.parts = max(len(steps), 1)
        return _Child([Piece(step, [entry]) for step in steps], arguments.weight)

    def _note_units(self, entry: Entry, steps: Iterable[Step]) -> None:
        """Note pixel ops on floats in 0..255, which the library takes for 0..1: it clips and inverts there."""
        changing = [step for step in steps if isinstance(step, Op) and not isinstance(step, _ANY_UNITS)]
        changes = any(step.stage == "pixels" for step in changing)
        if changes and self._units.most == 1 and self._units.scale == BYTES.scale:
            entry.differs("images are floats in 0..255 there, which the library takes for 0..1")

    def _container(self, op: LibraryOp, *, forced: bool) -> _Child:
        arguments = Arguments(op, Entry(op.name, op.library))
        albumentations = op.library == "albumentations"
        listed = op.arguments.get("transforms")
        if not isinstance(listed, list) or not all(isinstance(child, LibraryOp) for child in listed):
            wrong = (
                [child for child in listed if not isinstance(child, LibraryOp)]
                if isinstance(listed, list)
                else [listed]
            )
            raise InputError(f"{op.name}: transforms must be a list of ops, got {wrong[0]!r:.60}")
        has_p = albumentations or op.name == "RandomApply"
        weight = arguments.number("p", 1.0 if op.name in (*COMPOSE, *SOME) else 0.5) if has_p else 1.0
        p = 1.0 if forced and op.name not in SOME else weight
        if op.name in ALL_OR_NONE:
            pieces = [piece for child in listed for piece in self._child(child, forced=False).pieces]
            return _Child(_together(pieces, p), weight)
        if op.name in ONE:
            children = self._alternatives(listed, forced=albumentations)
            shares = None if albumentations else arguments.get("p") or [1.0] * len(children)
            if op.name == "OneOrOther":
                shares, p = [p, 1 - p], 1.0
            for child, share in zip(children, shares or [], strict=False):
                child.weight = share
            return _Child(_one_of(children, p), weight)
        children = [self._child(child, forced=albumentations and op.version < 2) for child in listed]
        return _Child(_some_of(op, arguments, children, p), weight)

    def _alternatives(self, listed: Sequence[LibraryOp], *, forced: bool) -> list[_Child]:
        """Translate ops of which one runs: each gets pixels of the same units. After it come the first new ones."""
        before, children, after = self._units, [], [self._units]
        for child in listed:
            self._units = before
            children.append(self._child(child, forced=forced))
            after.append(self._units)
        self._units = next((units for units in after if units != before), before)
        return children


def _translated(op: LibraryOp, arguments: Arguments) -> Sequence[Step]:
    """Return what the rule of an op makes of it. Raises LeftOut, and InputError for arguments of a wrong kind."""
    if op.unreadable:
        raise LeftOut(op.unreadable, "an op of your own (docs/custom-op.md)")
    rule = RULES[op.library].get(op.name)
    if rule is None:
        known = op.name in _NEAREST[op.library]
        reason = "detaug has no such op" if known else f"unknown op of {op.library}"
        raise LeftOut(reason, _NEAREST[op.library].get(op.name, ""))
    try:
        steps = rule(arguments)
        if op.library == "albumentations":
            arguments.always()
    except InputError as error:
        if str(error).startswith(f"{op.name}: "):
            raise
        raise LeftOut(str(error)) from None  # an op of ours refuses the argument
    except (TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{op.name}: an argument is missing or of a wrong kind ({error})") from None
    return steps if isinstance(steps, list) else [steps]


def name_of(step: Step) -> str:
    """Return the name of an op of a recipe."""
    names = {PadTo: "Resize", CropSize: "Resize", Holes: "RandomErasing"}
    return names.get(type(step), type(step).__name__)


# ------------------------------------------------------------------------------------------ containers


def _by_kind(pieces: list[Piece]) -> tuple[dict[str, list[Piece]], list[Piece]]:
    """Return the pieces that move pixels and those that change them, by kind, and the rest, which sets sizes."""
    groups = {kind: [piece for piece in pieces if piece.kind == kind] for kind in ("view", "pixels")}
    rest = [piece for piece in pieces if piece.kind not in groups]
    return {kind: group for kind, group in groups.items() if group}, rest


def _differ(pieces: Iterable[Piece], reason: str) -> None:
    for piece in pieces:
        piece.differs(reason)


def _together(pieces: list[Piece], p: float) -> list[Piece]:
    """Return pieces that all run, or none of them, with probability `p`."""
    if p == 1 or not pieces:
        return pieces
    groups, sizes = _by_kind(pieces)
    if len(groups) > 1:
        _differ(pieces, "geometric ops and pixel ops of its group are drawn apart from each other")
    joined = [piece for group in groups.values() for piece in _joined(group, lambda ops: RandomApply(ops, p))]
    return joined + _always(sizes, p)


def _joined(group: list[Piece], make: Callable[[Any], Op]) -> list[Piece]:
    """Return one piece that `make` makes of the ops, or nothing where it refuses them."""
    try:
        return [Piece(make([piece.op for piece in group]), [entry for piece in group for entry in piece.entries])]
    except InputError as error:
        for piece in group:
            piece.leave_out(f"it cannot be in a group ({error})")
        return []


def _always(pieces: list[Piece], p: float) -> list[Piece]:
    """Return the pieces that set a size, which each image gets: one size only."""
    if p != 1:
        _differ(pieces, ALWAYS)
    sizes = [piece for piece in pieces if isinstance(piece.op, Render | CropSize)]
    first = next((piece for piece in sizes if isinstance(piece.op, Resize | CropSize)), sizes[0] if sizes else None)
    for piece in sizes:
        if first and _size(piece) != _size(first):
            piece.leave_out("a recipe has one size, that of the other op in its group", name_of(piece.op))
    return [piece for piece in pieces if piece is first or piece not in sizes]


def _size(piece: Piece) -> Any:
    return type(piece.op) is RandomResizedCrop, getattr(piece.op, "size", None)


def _one_of(children: list[_Child], p: float) -> list[Piece]:
    """Return one of the children, drawn by their weights, with probability `p`; those left out keep their fraction."""
    total = sum(child.weight for child in children)
    if total <= 0:
        return []
    groups, sizes = _by_kind([piece for child in children for piece in child.pieces])
    if len(groups) > 1:
        reason = "geometric ops and pixel ops of its group are drawn apart from each other: both may run"
        _differ([piece for child in children for piece in child.pieces], reason)
    chosen = [piece for kind in groups for piece in _choice(children, kind, p / total)]
    return chosen + _always(sizes, 1.0 if len(sizes) == len(children) else 0.5)


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
    probabilities = None if len(set(weights)) == 1 else tuple(weights)
    return _joined([piece for piece, _ in chosen], lambda ops: maybe(RandomChoice(ops, probabilities), p))


def _some_of(op: LibraryOp, arguments: Arguments, children: list[_Child], p: float) -> list[Piece]:
    """Return what `n` of the children do, in their order or in a random one."""
    in_order, number = op.name == "SomeOf", len(children)
    translated = [child for child in children if child.pieces]
    n = min(int(arguments.number("n", number if op.library == "torchvision" else 1)), number)
    pieces = [piece for child in translated for piece in child.pieces]
    if arguments.get("replace", op.version < 2) and in_order and n > 1:
        _differ(pieces, f"{n} different ops of the group run, none twice")
    if n < number and not in_order:
        _differ(pieces, "the ops of the group run in their order, not in a random one")
    weighs = op.library == "albumentations" and op.version < 2 and len({child.weight for child in children}) > 1
    if n == 1 < number:
        return _one_of(children if weighs else [replace(child, weight=1.0) for child in children], p)
    if weighs and n < number:
        _differ(pieces, "each op of the group is drawn as often as the others, not by its p")
    if n >= number:
        return _together(pieces if in_order else _ordered(pieces), p)
    subsets = list(combinations(translated, n))
    if len({piece.kind for piece in pieces}) == 1 and len(translated) == number and len(subsets) <= _MOST_SUBSETS:
        return _subsets(pieces, subsets, p)
    share = round(p * n / number, 9)
    _differ(pieces, f"each op of the group runs with probability {share:g}, apart from the others")
    return [piece for child in translated for piece in _together(child.pieces, share)]


def _ordered(pieces: list[Piece]) -> list[Piece]:
    """Return the pieces in a random order, by kind."""
    groups, rest = _by_kind(pieces)
    if len(groups) > 1 or (groups and rest):
        _differ(pieces, "geometric ops run before pixel ops; the order within each kind is random")
    return [piece for group in groups.values() for piece in _joined(group, RandomOrder)] + rest


def _subsets(pieces: list[Piece], subsets: Sequence[Iterable[_Child]], p: float) -> list[Piece]:
    """Return one of the subsets of ops, drawn with equal chance."""

    def choose(_: list[Op]) -> Op:
        groups: list[list[Any]] = [[piece.op for child in subset for piece in child.pieces] for subset in subsets]
        choices = [group[0] if len(group) == 1 else RandomApply(group, 1.0) for group in groups]
        return maybe(RandomChoice(choices), p)

    return _joined(pieces, choose)
