"""Objects of records in pixels of an image that is neither square nor in the unit of the record."""

from __future__ import annotations

import pytest

from detaug.converters.records.placing import Place
from detaug.converters.records.record import Object, Record

SIZE = (80, 100)
"""(H, W)"""


def put(item: Object, scale: tuple[float, float] = (1, 1)) -> tuple[object, list[str]]:
    record = Record("a")
    return Place(SIZE, scale, record).put(item), [finding.kind for finding in record.findings]


@pytest.mark.parametrize("edges", [(50.0, 10, 20, 60), (20.0, 60, 50, 10), (50.0, 60, 20, 10)])
def test_reversed_edges(edges: tuple[float, float, float, float]) -> None:
    placed, kinds = put(Object("cat", edges))
    assert (placed and placed.box, kinds) == ((20, 10, 30, 50), ["box-reversed"])  # type: ignore[attr-defined]


def test_keypoints_have_the_scale_of_their_axis() -> None:
    """COCO counts pixels from 0 at their centers."""
    placed, kinds = put(Object("cat", (0, 0, 50, 50), key_points={"nose": (30, 40, 2), "eye": (5, 5, 0)}), (1, 0.8))
    assert placed
    assert placed.key_points == {"nose": (29.5, 31.5, 2), "eye": (0, 0, 0)}  # type: ignore[attr-defined]
    assert (placed.box, kinds) == ((0, 0, 50, 40), [])  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("value", "flag"),
    [("0", 0), ("1", 1), ("true", 1), ("False", 0), (True, 1), (" no ", 0), (2, 2), (0.25, 0.25), ("partly", "partly")],
)
def test_a_flag_is_a_number(value: object, flag: object) -> None:
    """The text "0", of an attribute of CVAT or VIA, would be true to a program that asks for it."""
    placed, _ = put(Object("cat", (0, 0, 9, 9), columns={"difficult": value, "color": "0"}))
    assert placed
    assert dict(placed.columns) == {"difficult": flag, "color": "0"}  # type: ignore[attr-defined]
    assert type(placed.columns["difficult"]) is type(flag)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("move", "box"),
    [
        ((-50, 0), (0, 30, 10, 20)),
        ((0, -40), (40, 0, 20, 10)),
        ((50, 0), (90, 30, 10, 20)),
        ((0, 40), (40, 70, 20, 10)),
    ],
)
def test_an_outline_is_cut_at_each_edge(move: tuple[float, float], box: tuple[float, ...]) -> None:
    corners = [(40, 30), (60, 30), (60, 50), (40, 50)]
    placed, kinds = put(Object("cat", rings=[[value for x, y in corners for value in (x + move[0], y + move[1])]]))
    assert (placed and placed.box, kinds) == (box, ["outline-cut"])  # type: ignore[attr-defined]
