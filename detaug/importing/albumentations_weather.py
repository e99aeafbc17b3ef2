"""Rules for Albumentations' ops of weather and light. Source: the code of 1.3.1, 1.4.15 and 2.0.8 (MIT)."""

from __future__ import annotations

from detaug.importing.rules import Arguments, Rules, rule
from detaug.ops.op import Op
from detaug.ops.weather import RandomFog, RandomShadow

WEATHER: Rules = {}


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
