"""Numbers that are pixel values, behind ops that change the units: the same pixels as the libraries', or a difference.

Each op runs on images in 0..255, behind a division by 255 and behind Normalize, in its library and as imported.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from imported import import_ops, live

import detaug as da
from detaug.importing.units import FLOATS as FLOAT_UNITS

MEAN, STD = (0.5, 0.4, 0.3), (0.25, 0.2, 0.3)
BEFORE = {
    "A": (
        "",
        "A.ToFloat(255), ",
        f"A.Normalize({MEAN}, {STD}), ",
        f"A.ToFloat(255), A.Normalize({MEAN}, {STD}, 1.0), ",
    ),
    "v2": (
        "v2.ToImage(), ",
        "v2.ToImage(), v2.ToDtype(torch.float32, scale=True), ",
        f"v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize({MEAN}, {STD}), ",
    ),
}
# The op, and in which units (bytes, floats, normalized) its pixels are the same; {} is the number that means white,
# black or the middle there.
GEOMETRY = {
    "A": [
        "A.Pad((1, 2, 3, 4), fill={black}, p=1)",
        "A.Pad(6, fill={white}, p=1)",
        "A.Pad(6, fill=[{white}, {black}, {white}], p=1)",
        "A.Rotate((30, 30), fill={white}, p=1)",
        "A.Rotate((30, 30), p=1)",
        "A.Affine(rotate=(45, 45), fill={white}, p=1)",
        "A.CenterCrop(60, 80, pad_if_needed=True, fill={white})",
        "A.PadIfNeeded(pad_height_divisor=32, pad_width_divisor=32, min_height=None, min_width=None, "
        "position='top_left', border_mode=0, fill={white})",
        "A.LongestMaxSize(64), A.PadIfNeeded(64, 64, border_mode=0, fill={white})",
        "A.LongestMaxSize(64), A.PadIfNeeded(80, 72, border_mode=0)",
        "A.VerticalFlip(p=1)",
    ],
    "v2": [
        "v2.Pad(6, fill={white})",
        "v2.Pad((1, 2, 3, 4))",
        "v2.RandomRotation((45, 45), v2.InterpolationMode.BILINEAR, fill={white})",
        "v2.RandomRotation((45, 45), v2.InterpolationMode.BILINEAR)",
        "v2.RandomAffine((45, 45), interpolation=v2.InterpolationMode.BILINEAR, fill=[{white}, {black}, {white}])",
        "v2.CenterCrop((60, 80))",
        "v2.RandomCrop((50, 70), padding=(3, 1), fill={white})",
        "v2.RandomCrop((51, 69), padding=(1, 2, 4, 1), fill={white})",
    ],
}
PIXELS = {
    "A": [
        "A.Solarize((0.4, 0.4), p=1)",
        "A.InvertImg(p=1)",
        "A.ToGray(p=1)",
        "A.Posterize(3, p=1)",
        "A.Equalize(p=1)",
        "A.RandomGamma((150, 150), p=1)",
        "A.GaussianBlur((5, 5), (1.2, 1.2), p=1)",
        "A.ColorJitter((1.3, 1.3), (1, 1), (1, 1), (0, 0), p=1)",
        "A.ColorJitter((1, 1), (1.4, 1.4), (1, 1), (0, 0), p=1)",
        "A.ColorJitter((1, 1), (1, 1), (0.4, 0.4), (0, 0), p=1)",
        "A.RandomBrightnessContrast((0, 0), (0.3, 0.3), p=1)",
        "A.Sharpen((0.3, 0.3), (1.0, 1.0), p=1)",
        "A.MedianBlur((3, 3), p=1)",
    ],
    "v2": [
        "v2.RandomSolarize({middle}, 1.0)",
        "v2.RandomInvert(1.0)",
        "v2.RandomPosterize(3, 1.0)",
        "v2.RandomAutocontrast(1.0)",
        "v2.RandomGrayscale(1.0)",
        "v2.ColorJitter(brightness=(1.3, 1.3))",
        "v2.ColorJitter(contrast=(1.4, 1.4))",
        "v2.ColorJitter(saturation=(0.4, 0.4))",
        "v2.GaussianBlur(5, (1.2, 1.2))",
    ],
}
NUMBERS: tuple[dict[str, Any], ...] = (
    {"black": 0, "white": 255, "middle": 100},
    {"black": 0.0, "white": 1.0, "middle": 100 / 255},
    {"black": 0.0, "white": 1.5, "middle": 0.2},  # behind Normalize 0 is the mean, and 1.5 a bright value
)
BYTES, FLOATS, NORMALIZED = range(3)


def picture() -> Any:
    """Return (48, 64, 3) uint8: waves that differ in each channel."""
    y, x = np.mgrid[:48, :64]
    waves = [128 + 90 * np.sin(x / 9) * np.cos(y / 7), 40 + 2 * x, 200 - 3 * y]
    return np.stack(waves, axis=2).round().astype(np.uint8)


def theirs(pipeline: Any, library: str) -> Any:
    """Return the image after the library's own op, (H, W, 3)."""
    if library == "A":
        return live("A.Compose")(pipeline)(image=picture())["image"]
    return live("v2.Compose")(pipeline)(picture()).permute(1, 2, 0).numpy()


def ours(imported: da.ImportedRecipe) -> Any:
    image = np.asarray(da.batch([picture()]).then(*imported.ops).images[0])
    return image if image.shape[-1] == 3 else image.transpose(1, 2, 0)


def pipeline_of(library: str, op: str, units: int) -> str:
    return f"[{BEFORE[library][units]}{op.format(**NUMBERS[min(units, NORMALIZED)])}]"


def cases(table: dict[str, list[str]], most: int) -> list[Any]:
    rows = [
        (library, op, units) for library, ops in table.items() for op in ops for units in range(len(BEFORE[library]))
    ]
    return [pytest.param(*row, id=f"{row[2]}-{row[1]}") for row in rows if row[2] <= most]


def assert_same_pixels(library: str, text: str, units: int) -> None:
    right, got = theirs(live(text), library), ours(import_ops(text))
    assert got.shape == right.shape
    step = 1.0 if units == BYTES else 1 / 255 / (min(STD) if units > FLOATS else 1.0)
    different = np.abs(got.astype(float) - right) > 2.01 * step
    is_turned = "45" in text or "30, 30" in text  # the edge between image and fill is smooth here
    assert different.mean() < (0.06 if is_turned else 0.002)


@pytest.mark.parametrize(("library", "op", "units"), cases(GEOMETRY, 3))
def test_fills_are_those_of_the_library(library: str, op: str, units: int) -> None:
    text = pipeline_of(library, op, units)
    assert import_ops(text).differing == import_ops(text).left_out == 0
    assert_same_pixels(library, text, units)


@pytest.mark.parametrize(("library", "op", "units"), cases(PIXELS, FLOATS))
def test_pixel_ops_are_the_same_on_floats(library: str, op: str, units: int) -> None:
    text = pipeline_of(library, op, units)
    assert import_ops(text).differing == import_ops(text).left_out == 0
    assert_same_pixels(library, text, units)


@pytest.mark.parametrize(("library", "op", "units"), cases(PIXELS, 3)[2:])
def test_pixel_ops_behind_normalize_are_never_called_the_same(library: str, op: str, units: int) -> None:
    text = pipeline_of(library, op, units)
    assert import_ops(text).differing == (units >= NORMALIZED)


@pytest.mark.parametrize("units", [FLOATS, NORMALIZED])
@pytest.mark.parametrize(
    ("op", "numbers", "expected"),
    [
        ("A.Solarize((0.4, 0.4), p=1)", lambda op: op.threshold, 102),
        ("A.ChannelDropout((1, 1), fill=0.4, p=1)", lambda op: op.value, 102),
        ("A.GaussNoise((0.1, 0.1), (0.2, 0.2), p=1)", lambda op: (op.mean, op.sigma), (0.2, 0.1)),
        ("A.CoarseDropout((1, 1), (0.5, 0.5), (0.5, 0.5), fill=0.4, p=1)", lambda op: op.ops[0].value, 102),
        ("A.GridDropout(unit_size_range=(8, 9), fill=0.4, p=1)", lambda op: op.value, 102),
        ("A.Erasing(fill=0.4, p=1)", lambda op: op.value, 102),
        ("A.RandomRain(drop_color=(10, 20, 30), p=1)", lambda op: op.color, (10, 20, 30)),  # always in 0..255
        ("v2.RandomSolarize(0.4)", lambda op: op.threshold, 102),
        ("v2.GaussianNoise(0.2, 0.1)", lambda op: (op.mean, op.sigma), (0.2, 0.1)),
        ("v2.RandomErasing(value=0.4)", lambda op: op.value, 102),
    ],
)
def test_each_number_that_is_a_value_is_converted(op: str, numbers: Any, expected: Any, units: int) -> None:
    """Behind Normalize 0.4 is 0.4 std + mean in each channel; one number is in the middle of the channels."""
    library = op.split(".")[0]
    imported = import_ops(pipeline_of(library, op, units))
    got = numbers(next(each for each in imported.ops if each.stage == "pixels"))
    if units == FLOATS:
        assert np.asarray(got) == pytest.approx(np.broadcast_to(expected, np.shape(got)))
        return
    behind = [round(255 * (0.4 * std + mean)) for mean, std in zip(MEAN, STD, strict=True)]
    if "noise" in op.lower():
        assert got == pytest.approx([number * np.mean(STD) for number in expected], abs=1e-4)
    elif "drop_color" in op:
        assert got == (10, 20, 30)
    else:
        assert np.asarray(got) == pytest.approx(np.mean(behind) if np.isscalar(got) else behind, abs=0.5)


@pytest.mark.parametrize(("units", "factor"), [(BYTES, 1.4), (FLOATS, 1.4), (NORMALIZED, 1.1)])
def test_what_brightness_adds_is_a_share_of_the_largest_value(units: int, factor: float) -> None:
    (jitter, *_) = import_ops(pipeline_of("A", "A.RandomBrightnessContrast((0.2, 0.2), (0, 0), p=1)", units)).ops
    assert jitter.brightness == pytest.approx((factor, factor))  # type: ignore[attr-defined]


@pytest.mark.parametrize(("before", "variance"), [([], 650.25), ([{"__class_fullname__": "ToFloat"}], 0.01)])
def test_the_variance_of_albumentations_1_is_of_values(before: list[Any], variance: float) -> None:
    noise = {"__class_fullname__": "GaussNoise", "var_limit": [variance, variance], "p": 1.0}
    saved = {"__class_fullname__": "Compose", "transforms": [*before, noise]}
    (op, *_) = da.import_recipe({"__version__": "1.3.1", "transform": saved}).ops
    assert op.sigma == pytest.approx(0.1)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("ops", "differing"),
    [
        ("[v2.ToDtype(torch.float32), v2.Normalize((127.5, 102, 76.5), (63.75, 51, 76.5)), v2.Pad(6)]", 1),
        ("[v2.ToDtype(torch.float32), v2.Pad(6, fill=200), v2.Normalize((127.5, 102, 76.5), (63.75, 51, 76.5))]", 1),
    ],
)
def test_floats_in_0_to_255_keep_their_units(ops: str, differing: int) -> None:
    """ToDtype alone differs, which does not divide; what follows has other numbers."""
    ops = ops.replace("[", "[v2.ToImage(), ", 1)
    imported = import_ops(ops)
    assert imported.differing == differing
    assert_same_pixels("v2", ops, NORMALIZED)
    assert import_ops("[v2.ToDtype(torch.float32), v2.RandomInvert(1.0)]").differing == 2


def test_back_to_bytes_is_told_and_fills_are_bytes_again() -> None:
    for back in ("v2.ToDtype(torch.uint8, scale=True)", "v2.ToPILImage()"):
        imported = import_ops(f"[v2.ToDtype(torch.float32, scale=True), {back}, v2.Pad(6, fill=200)]")
        assert [entry.status for entry in imported.entries] == ["same", "differs", "same"]
        assert imported.ops[0].fill == (200, 200, 200)  # type: ignore[attr-defined]
    assert import_ops("[v2.ToPILImage(), v2.ToDtype(torch.uint8)]").differing == 0


def test_half_floats_stay_halves_behind_normalize() -> None:
    ops = f"[v2.ToDtype(torch.float16, scale=True), v2.Normalize({MEAN}, {STD})]"
    assert import_ops(ops).ops == (da.Normalize(MEAN, STD, dtype="float16"),)


def test_a_fill_beyond_white_is_told() -> None:
    imported = import_ops(f"[A.Normalize({MEAN}, {STD}), A.Pad(6, fill=255, p=1)]")
    assert "is (16384, 13107, 19584) in 0..255; the fill here is the nearest color" in str(imported)
    assert imported.ops[0].fill == (255, 255, 255)  # type: ignore[attr-defined]


def test_a_fill_behind_a_function_is_told() -> None:
    """What the function does to pixels is not read: it may divide them."""
    for ops, differing in (
        ("[v2.Lambda(lambda image: image / 255), v2.Pad(6, fill=1.0)]", 1),
        ("[v2.Lambda(lambda image: image / 255), v2.Pad(6)]", 0),
        ("[v2.Pad(6, fill=1.0), v2.Lambda(lambda image: image / 255)]", 0),
    ):
        assert (import_ops(ops).differing, import_ops(ops).left_out) == (differing, 1)


def test_one_of_several_has_the_units_before_it() -> None:
    ops = f"[A.OneOf([A.Normalize({MEAN}, {STD}), A.Pad(6, fill=200)]), A.Pad(2)]"
    fills = [op.fill for op in (each.op for each in _pieces(ops)) if hasattr(op, "fill")]
    assert fills == [(200, 200, 200), (128, 102, 76)]


def _pieces(ops: str) -> Any:
    from detaug.importing.library_ops import read_pipeline
    from detaug.importing.translate import Translator

    pieces = Translator().pipeline(read_pipeline(live(ops)))
    for piece in pieces:
        while hasattr(piece.op, "ops"):
            piece.op = piece.op.ops[0]
    return pieces


def test_units_by_hand() -> None:
    """Each channel with a mean and a std of its own; two Normalize one after the other."""
    once = FLOAT_UNITS.divided((0.5, 0.4, 0.2), (0.1, 0.2, 0.6))
    assert once.color((1, 0, 0.5)) == (153, 102, 128)  # 0.6, 0.4 and 0.5 of white
    assert once.level(0) == pytest.approx((128 + 102 + 51) / 3)
    assert once.step(0.5) == pytest.approx(0.15)
    twice = once.divided((1, 2, 0.5), (2, 4, 0.5))
    assert twice.scale == pytest.approx((0.2, 0.8, 0.3))
    assert twice.offset == pytest.approx((0.6, 0.8, 0.5))
