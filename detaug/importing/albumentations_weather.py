"""Rules for Albumentations' ops of weather and light. Source: the code of 1.3.1, 1.4.15 and 2.0.8 (MIT)."""

from __future__ import annotations

from detaug.importing.rules import Arguments, Rules, rule
from detaug.importing.units import BYTES
from detaug.ops.op import Op
from detaug.ops.weather import RandomFog, RandomRain, RandomShadow

WEATHER: Rules = {}
DENSITIES = {"drizzle": 1 / 4, "heavy": 1.0, "torrential": 2.0}
"""Streaks for each pixel of the height, by the type of rain; 1/3 for others."""


@rule(WEATHER, "RandomShadow")
def _shadow(args: Arguments) -> Op:
    """Return RandomShadow. `num_shadows_lower` and `_upper` of the first 1.x are `num_shadows_limit`."""
    count = args.number("num_shadows_lower", 1), args.number("num_shadows_upper", 2)
    fewest, most = map(int, args.span("num_shadows_limit", count))
    region, corners = args.get("shadow_roi", (0.0, 0.5, 1.0, 1.0)), args.get("shadow_dimension", 5)
    intensity = args.span("shadow_intensity_range", (0.5, 0.5))
    return RandomShadow(region, (fewest, most), corners, intensity, args.probability())


@rule(WEATHER, "RandomFog")
def _fog(args: Arguments) -> Op:
    """Return RandomFog. `fog_coef_lower` and `_upper` of 1.x are `fog_coef_range`."""
    density = args.number("fog_coef_lower", 0.3), args.number("fog_coef_upper", 1.0)
    low, high = args.span("fog_coef_range", density)
    args.differs("the fog is smooth; Albumentations' is made of discs with edges")
    if args.op.version < 2:
        args.differs("the fog is that of 2.0, which is blurred less")
    return RandomFog((max(low, 0.01), max(high, 0.01)), args.number("alpha_coef", 0.08), args.probability())


@rule(WEATHER, "RandomRain")
def _rain(args: Arguments) -> Op:
    """Return RandomRain. Albumentations' slant is in pixels, not in degrees as its text says.

    `slant_lower` and `_upper` of 1.x are `slant_range`. Its numbers of streaks and their lengths go with the area.
    """
    slant = args.span("slant_range", (args.number("slant_lower", -10), args.number("slant_upper", 10)))
    density = DENSITIES.get(args.get("rain_type"), 1 / 3)
    args.differs("streaks are antialiased, and their shares add up where they cross")
    if args.op.version < 2:
        args.differs("the rain is that of 2.0, of which only the streaks are blurred")
    color = args.color("drop_color", units=BYTES) if args.get("drop_color") else (200, 200, 200)
    width, blur, brightness = (
        args.get("drop_width", 1),
        args.get("blur_value", 7),
        args.number("brightness_coefficient", 0.7),
    )
    length = args.get("drop_length", None if args.op.version >= 2 else 20)
    return RandomRain(slant, length, width, color, blur, brightness, density, args.probability())
