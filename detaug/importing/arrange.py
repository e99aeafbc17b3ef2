"""Arrange translated ops in the order of a recipe: geometry, Resize, flips and crops, pixels, Normalize."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from detaug.arguments import FILL, RGB
from detaug.errors import InputError
from detaug.importing.rules import CropSize, Holes, PadTo
from detaug.importing.translate import Piece, name_of
from detaug.named_options import option
from detaug.ops import color_ops, flips_and_crops
from detaug.ops.affine import RandomAffine, RandomPerspective, RandomRotation
from detaug.ops.camera import RandomGamma
from detaug.ops.containers import RandomApply, RandomChoice, RandomOrder
from detaug.ops.erasing import RandomErasing
from detaug.ops.filters import RandomInvert, RandomPosterize, RandomSolarize
from detaug.ops.flips_and_crops import CenterCrop, RandomCrop
from detaug.ops.normalize import Normalize
from detaug.ops.op import Op
from detaug.ops.resize import Resize
from detaug.ops.resized_crop import RandomResizedCrop
from detaug.ops.sanitize import SanitizeBoundingBoxes
from detaug.recipes.recipe import make_rendering_recipe

Size = int | tuple[int, int]

_FLIPS = (flips_and_crops.RandomHorizontalFlip, flips_and_crops.RandomVerticalFlip)
_RELATIVE = (*_FLIPS, flips_and_crops.RandomZoomOut, flips_and_crops.RandomBoxSafeCrop)
"""Ops that do the same before and after an image is stretched."""
_IN_PIXELS = (flips_and_crops.Pad, flips_and_crops.PadToMultiple, RandomCrop, CenterCrop)
"""Ops whose arguments are pixels."""
_CROPS = (RandomCrop, CenterCrop, flips_and_crops.ScaleJitter)
"""Ops that show their fill only around images that are too small."""
_CONTAINERS = (RandomApply, RandomChoice, RandomOrder)
_POINTWISE = (
    color_ops.ColorOp, RandomGamma, RandomInvert, RandomPosterize, RandomSolarize, SanitizeBoundingBoxes
)  # fmt: skip
"""Pixel ops that look at one pixel at a time, but for the mean gray that contrast is about."""
_TURNING = (RandomAffine, RandomPerspective, RandomRotation)


def _no_size() -> str:
    return (
        "no op sets the size of the images. da.Compose takes the recipe as it is; a Loader needs a size: give one, "
        f"such as {option('size', '640x640', python='(640, 640)')}"
    )


@dataclass
class Arrangement:
    """The ops of a recipe, by where they stand. `add` takes them in the order of the pipeline."""

    before: list[Piece] = field(default_factory=list)
    render: Piece | None = None
    after: list[Piece] = field(default_factory=list)
    pixels: list[Piece] = field(default_factory=list)
    output: Piece | None = None
    crop_size: Piece | None = None
    """A crop that sets the size of some images only."""
    moved_from: int = 0
    """The pixel ops with a smaller index stood before an op that moves pixels by more than a flip."""
    resizes_late: bool = False
    """Whether ops stood before a Resize, so that boxes had pixels of another size there."""

    def add(self, piece: Piece) -> None:
        """Add the next op of the pipeline."""
        if isinstance(piece.op, PadTo):
            self._pad(piece, piece.op)
        elif isinstance(piece.op, CropSize):
            self.crop_size = piece
            self._render(Piece(Resize(piece.op.size), piece.entries), Resize(piece.op.size))
        elif isinstance(piece.op, Holes):
            self._pixels(piece)
        elif piece.op.stage == "view":
            self._view(piece, piece.op)
        elif piece.op.stage == "render":
            self._render(piece, piece.op)
        elif piece.op.stage == "output":
            self._output(piece, piece.op)
        else:
            self._pixels(piece)

    def _view(self, piece: Piece, op: Op) -> None:
        if not _is(op, _FLIPS):
            self.moved_from = len(self.pixels)
        if self.render is None:
            self.before.append(piece)
        elif op.size_after != "any":
            self.after.append(piece)
        elif _any_is(op, _IN_PIXELS):
            piece.leave_out("its pixels are those after Resize, where only flips and crops with p=1 may stand")
        else:
            if reason := self._why_it_differs(op):
                piece.differs(reason)
            if _is_handed(op) and all(_is(moved.op, (*_FLIPS, RandomCrop, CenterCrop)) for moved in self.after):
                # A turn of a flipped image is one to the other side. Flips do the same before a crop.
                self.before += [moved for moved in self.after if _is(moved.op, _FLIPS)]
                self.after = [moved for moved in self.after if not _is(moved.op, _FLIPS)]
            self.before.append(piece)

    def _why_it_differs(self, op: Op) -> str:
        """Return why an op does not do the same before Resize and what came after it; "" where it does."""
        assert self.render
        size = getattr(self.render.op, "size", None)
        keeps_ratio = isinstance(self.render.op, Resize) and isinstance(size, int)
        own_ratio = "" if keeps_ratio else ", in the image's own aspect ratio"
        if any(not _is(piece.op, _FLIPS) for piece in self.after):
            return "" if _is(op, _FLIPS) else f"it runs before Resize and the crop{own_ratio}"
        square = isinstance(size, tuple) and len(set(size)) == 1 and not getattr(self.render.op, "letterbox", None)
        turns = square and _is(op, (*_RELATIVE, flips_and_crops.RandomRotate90))
        return "" if keeps_ratio or _is(op, _RELATIVE) or turns else f"it runs before Resize{own_ratio}"

    def _render(self, piece: Piece, op: Op) -> None:
        self.moved_from = len(self.pixels)
        self.resizes_late |= bool(self.before or self.pixels or self.render)
        if self.render is None:
            self.render = piece
        elif all(_is(moved.op, _FLIPS) for moved in self.after) and isinstance(op, Resize) and op.uniform:
            self._resize_again(piece, op)
        elif not self._keeps_size(op):
            piece.leave_out("a recipe has one Resize, and this is the second one", "Resize")

    def _keeps_size(self, op: Any) -> bool:
        """Return whether images have the size of a second Resize already, by the last crop or by the first Resize."""
        assert self.render
        crops: list[Any] = [piece.op for piece in self.after if not _is(piece.op, _FLIPS)]
        if not crops:
            return bool(op == self.render.op) and not isinstance(op, RandomResizedCrop)
        size = getattr(crops[-1], "size", None)
        return isinstance(op, Resize) and (op.size == size or op.size == (size, size) or (op.size,) * 2 == size)

    def _resize_again(self, piece: Piece, op: Resize) -> None:
        """Take the size of a later Resize: that of an earlier one does not show in the end."""
        assert self.render
        first: Any = self.render.op
        size: Any = op.size
        letterbox = getattr(first, "letterbox", None)
        if letterbox and (len(set(first.size)) > 1 or len(set(size)) > 1):
            piece.differs("the letterbox is that of the last size")
        last = replace(first, size=size) if letterbox or isinstance(first, RandomResizedCrop) else op
        self.render = Piece(last, self.render.entries + piece.entries)

    def _pad(self, piece: Piece, pad: PadTo) -> None:
        """Pad after a Resize whose longer side is known: a letterbox, or a CenterCrop that crops nothing."""
        largest = self._largest_side()
        if largest is None or not self.render:
            piece.leave_out("it pads images whose size is not known", "Resize((H, W), letterbox='center')")
        elif largest == max(pad.size) == min(pad.size) and not self.after:
            resize = Resize(pad.size, letterbox="center" if pad.position == "center" else "top-left", fill=pad.fill)
            self.render = Piece(resize, self.render.entries + piece.entries)
        elif largest <= min(pad.size):
            if pad.position != "center":
                piece.differs("the image lies in the middle")
            self.after.append(Piece(CenterCrop(pad.size, pad.fill), piece.entries))
        else:
            piece.leave_out("the image may be larger than what it is padded to", "CenterCrop")

    def _largest_side(self) -> int | None:
        """Return the longest side of the images so far, where it is known; ops before Resize do not count."""
        if not self.render:
            return None
        op: Any = self.render.op
        crops = [piece.op for piece in self.after if isinstance(piece.op, CenterCrop | RandomCrop)]
        size = crops[-1].size if crops else op.max_size if getattr(op, "max_size", None) else op.__dict__.get("size")
        known = crops or getattr(op, "max_size", None) or isinstance(size, tuple)
        return (max(size) if isinstance(size, tuple) else size) if known and isinstance(size, int | tuple) else None

    def _pixels(self, piece: Piece) -> None:
        normalized = self.output and not _is_plain(self.output.op)
        if normalized and not isinstance(piece.op, RandomErasing | SanitizeBoundingBoxes):
            piece.differs("it runs before Normalize")
        self.pixels.append(piece)

    def _output(self, piece: Piece, op: Op) -> None:
        """Keep one Normalize. One behind a division by 255 has the numbers of both: see `Units`."""
        assert isinstance(op, Normalize)
        if self.output is None:
            self.output = piece
        elif _is_plain(self.output.op):
            assert isinstance(self.output.op, Normalize)
            op = replace(op, dtype=self.output.op.dtype)
            self.output = Piece(op, self.output.entries + piece.entries)
        elif not _is_plain(op):
            piece.leave_out("a recipe has one Normalize, and this is the second one", "Normalize")

    def finish(self, size: Size | None) -> tuple[list[Op], list[str]]:
        """Return the recipe, and notes for the user. `size`: that of the Resize, if no op sets one."""
        notes = self._set_size(size)
        self._note_crop_size()
        self._note_moved_pixels()
        self._set_holes()
        self._bend_last()
        fill = self._one_fill()
        pieces = [*self.before, *([self.render] if self.render else []), *self.after, *self.pixels]
        ops = [with_fill(piece.op, fill) for piece in [*pieces, *([self.output] if self.output else [])]]
        make_rendering_recipe(ops)  # checks the order
        return ops, notes

    def _set_size(self, size: Size | None) -> list[str]:
        """Add a Resize where there is none: to the size of the last crop, which changes nothing, or to `size`."""
        if self.render:
            if size is not None:
                raise InputError(f"{option('size')} is for pipelines that set no size, and this one does: leave it out")
            return []
        crops = [piece.op for piece in self.before if not _is(piece.op, _FLIPS)]
        last = crops[-1] if crops else None
        if size is None and isinstance(last, RandomCrop | CenterCrop) and last.size_after == "fixed":
            size = last.size if isinstance(last.size, tuple) else (last.size, last.size)
        elif size is None:
            return [_no_size()]
        self.render = Piece(Resize(size), [])
        return []

    def _note_crop_size(self) -> None:
        """Note a size that only cropped images have in Albumentations, unless another op sets it in the end."""
        if self.crop_size and self.render and self.render.entries == self.crop_size.entries:
            self.crop_size.differs("images that are not cropped are resized, too")

    def _set_holes(self) -> None:
        """Replace holes in pixels by fractions of the area, where the size of the images is known."""
        last = next((piece.op for piece in reversed(self.after) if isinstance(piece.op, _IN_PIXELS)), None)
        size = getattr(last or (self.render.op if self.render else None), "size", None)
        for index, piece in enumerate(self.pixels):
            if not isinstance(piece.op, Holes):
                continue
            if index < self.moved_from or not isinstance(size, tuple) or isinstance(size[0], tuple):
                piece.leave_out("its holes are in pixels, of images of unknown size", "RandomErasing or GridMask")
            else:
                self.pixels[index] = Piece(piece.op.in_image(*size), piece.entries)
        self.pixels = [piece for piece in self.pixels if not isinstance(piece.op, Holes)]

    def _bend_last(self) -> None:
        """Put the op that bends the image after those that cover parts of it, and leave out another one."""
        bending = [piece for piece in self.pixels if _bends(piece)]
        for piece in bending[1:]:
            piece.leave_out("a recipe bends the finished image once", name_of(bending[0].op))
        self.pixels = [piece for piece in self.pixels if piece not in bending[1:]]
        covering = [index for index, piece in enumerate(self.pixels) if isinstance(piece.op, Op) and piece.op.covers]
        for piece in bending[:1]:
            position = self.pixels.index(piece)
            if covering and covering[-1] > position:
                piece.differs("it runs after the ops that cover parts of the image, which it bends too")
                self.pixels.insert(covering[-1], self.pixels.pop(position))

    def _note_moved_pixels(self) -> None:
        """Note pixel ops that ran before the geometry and now run after it, where that matters."""
        for index, piece in enumerate(self.pixels):
            if self.resizes_late and _has_limits(piece.op):
                if index < self.moved_from:
                    piece.differs("it counts output pixels, not those before Resize")
                elif piece.entries[0].name == "BboxParams":
                    piece.differs("it counts output pixels alone, not those before Resize, too")
        for piece in self.pixels[: self.moved_from]:
            if not _is(piece.op, _POINTWISE):
                piece.differs("it runs after Resize, on output pixels")
            elif self.before and _changes_contrast(piece.op):
                piece.differs("contrast is about the mean gray of the part that is shown, not of the whole image")
        geometry = [piece.op for piece in [*self.before, *self.after, self.render] if piece]
        fills = [fill for op in geometry if (fill := _fill_of(op))]
        if fills:
            gray = len(set(fills[0])) == 1
            self._note_changes_of_fill(any(_any_is(op, _TURNING) for op in geometry), gray)

    def _note_changes_of_fill(self, rotated: bool, gray: bool) -> None:
        """Note pixel ops that change the fill, or not, otherwise than in the pipeline."""
        keep_gray = (color_ops.RandomGrayscale, color_ops.RandomChannelPermutation) if gray else ()
        for index, piece in enumerate(self.pixels):
            if _is(piece.op, (SanitizeBoundingBoxes, *keep_gray)):
                continue
            moved, changes_fill = index < self.moved_from, rotated or not _is(piece.op, (color_ops.ColorOp,))
            if moved and changes_fill and _is(piece.op, _POINTWISE):
                piece.differs("it runs after Resize and changes the fill too")
            elif not moved and not changes_fill:
                piece.differs("it leaves the fill as it is")

    def _one_fill(self) -> RGB:
        """Return the fill of the recipe, that of the first op with one, and note the others."""
        bending = filter(_bends, self.pixels)
        pieces = [piece for piece in [*self.before, self.render, *self.after, *bending] if piece]
        fills = [(piece, fill) for piece in pieces if (fill := _fill_of(piece.op))]
        for piece, fill in fills:
            if fill != fills[0][1]:
                piece.differs(f"its fill is {fills[0][1]}: a recipe has one fill")
        return fills[0][1] if fills else FILL


def arrange(pieces: list[Piece], size: Size | None) -> tuple[list[Op], list[str]]:
    """Return the recipe of these ops, and notes for the user."""
    arrangement = Arrangement()
    for piece in pieces:
        arrangement.add(piece)
    return arrangement.finish(size)


def with_fill(op: Any, fill: RGB) -> Any:
    """Return an op that moves pixels with this fill, also within containers."""
    if isinstance(op, _CONTAINERS) and (op.stage == "view" or op.bends):
        return replace(op, ops=tuple(with_fill(inner, fill) for inner in op.ops))
    shown = op.stage == "view" or op.bends or (op.stage == "render" and op.letterbox)
    filled = hasattr(op, "fill") and shown
    return replace(op, fill=fill) if filled else op


def _has_limits(op: Any) -> bool:
    """Return whether an op drops boxes by their sizes in pixels."""
    return isinstance(op, SanitizeBoundingBoxes) and max(op.min_size, op.min_area) > 1


def _fill_of(op: Any) -> RGB | None:
    """Return the fill that an op shows; for crops it is FILL where the pipeline has none."""
    if isinstance(op, _CONTAINERS):
        return next((fill for inner in op.ops if (fill := _fill_of(inner))), None)
    quarter = isinstance(op, RandomRotation) and op.expand and op.degrees == (90, 90)
    shown = isinstance(op, Op) and op.fills and not quarter
    return tuple(op.fill) if shown and not (isinstance(op, _CROPS) and op.fill == FILL) else None


def _is_handed(op: Any) -> bool:
    """Return whether an op rotates or shears to one side more often than to the other."""
    if isinstance(op, _CONTAINERS):
        return any(map(_is_handed, op.ops))
    angles = (getattr(op, name, 0) for name in ("degrees", "shear"))
    pairs = [pair for value in angles if isinstance(value, tuple) for pair in zip(value[::2], value[1::2], strict=True)]
    return any(low != -high for low, high in pairs)


def _bends(piece: Piece) -> bool:
    return isinstance(piece.op, Op) and piece.op.bends


def _changes_contrast(op: Any) -> bool:
    if isinstance(op, _CONTAINERS):
        return any(map(_changes_contrast, op.ops))
    return isinstance(op, color_ops.ColorJitter | color_ops.RandomPhotometricDistort) and op.contrast not in (0, (1, 1))


def _is(op: Any, kinds: tuple[type, ...]) -> bool:
    """Return whether an op, or each in it, is of these kinds."""
    return all(_is(inner, kinds) for inner in op.ops) if isinstance(op, _CONTAINERS) else isinstance(op, kinds)


def _any_is(op: Any, kinds: tuple[type, ...]) -> bool:
    return any(_any_is(inner, kinds) for inner in op.ops) if isinstance(op, _CONTAINERS) else isinstance(op, kinds)


def _is_plain(op: Any) -> bool:
    """Return whether a Normalize leaves images in 0..1."""
    return tuple(op.mean) == (0, 0, 0) and tuple(op.std) == (1, 1, 1)
