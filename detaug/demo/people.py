"""Draw people with COCO's 17 keypoints, for `detaug demo`: in meadows and streets and on beaches.

A body stands in a space of its own: x to its left, y downwards, z out of its chest, in parts of its height. It is
rotated about y, and so seen from the front, from a side or from behind, and its parts are drawn from the farthest to
the nearest. A joint is visible where the nearest part at its pixel is a part that ends in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
from PIL import Image

from detaug.arrays import Array
from detaug.coco.rings import convex_hull, keys_of_mask
from detaug.coco.writer import whole
from detaug.demo.coco import Drawn, write_pictures
from detaug.demo.scenes import SCENES, Role
from detaug.demo.shapes import SIZES, Sprite, View, cut_views, make_sprite, paste, place_sprite, side_of, tight_box
from detaug.demo.textures import Color, Random, photograph, pick
from detaug.demo.things import Sketch, fill, oval, part, times
from detaug.errors import InputError

__all__ = ["make_people"]

PAIRS = ("eye", "ear", "shoulder", "elbow", "wrist", "hip", "knee", "ankle")
NAMES = ["nose", *(f"{side}_{name}" for name in PAIRS for side in ("left", "right"))]
SKELETON = [(16, 14), (14, 12), (17, 15), (15, 13), (12, 13), (6, 12), (7, 13), (6, 7), (6, 8), (7, 9), (8, 10),
            (9, 11), (2, 3), (1, 2), (1, 3), (2, 4), (3, 5), (4, 6), (5, 7)]  # fmt: skip
CATEGORY = {"id": 1, "name": "person", "keypoints": NAMES, "skeleton": [list(bone) for bone in SKELETON]}
PERSON = Role("person", (1, 4), 0.9, (0.2, 0.9))
STAGES = (0, 2, 4)
"""Positions in SCENES of where people are."""

SKIN: tuple[Color, ...] = ((244, 208, 177), (224, 172, 134), (186, 128, 92), (128, 84, 60), (88, 58, 42))
HAIR: tuple[Color, ...] = ((40, 30, 26), (92, 58, 34), (196, 152, 84), (120, 116, 114))
CLOTHES: tuple[Color, ...] = ((204, 62, 58), (242, 182, 60), (58, 112, 180), (70, 140, 100), (236, 232, 224),
                              (120, 84, 150), (52, 60, 78))  # fmt: skip


class Person(NamedTuple):
    """An RGBA image of a person, and (17, 3) its keypoints: x, y in pixels of the image, v."""

    image: Image.Image
    points: Array


def make_people(root: str | Path, images: int = 24, seed: int = 0) -> Path:
    """Draw images with people into the folder `root`/people, and write `root`/people.json; return the JSON file.

    It has COCO's 17 keypoints and skeleton, and the visible pixels of each person as RLE. v is 1 where a part
    of the person or something nearer hides a joint, 0 outside the image. The same seed gives the same files, and
    image n does not depend on how many there are. Raises InputError for less than 1 image.

    >>> import tempfile
    >>> make_people(tempfile.mkdtemp(), images=1).name
    'people.json'
    """
    if images < 1:
        raise InputError(f"images must be at least 1, got {images}; the demo has 24")
    return write_pictures(Path(root), "people", [CATEGORY], (paint_people(n, seed) for n in range(images)))


def paint_people(n: int, seed: int = 0) -> Drawn:
    """Draw image number `n` with its people, from the farthest to the nearest."""
    rng, size = np.random.default_rng([4, seed, n]), SIZES[n % len(SIZES)]
    scene, roles = SCENES[STAGES[n % len(STAGES)]]
    image, horizon = scene(rng, *size)
    things = [role for role in (*roles, PERSON) for _ in range(rng.integers(*role.number))]
    plan = sorted((rng.uniform(*role.depth), role) for role in things)
    sprites, points = list[Sprite](), dict[int, Array]()
    for depth, role in plan:
        if role is PERSON:
            person = draw_person(rng, side_of(rng, role, depth, size))
            sprites.append(place_sprite(rng, "person", person.image, depth, size, horizon))
            points[id(sprites[-1])] = person.points + np.array((*sprites[-1].xy, 0))
        else:
            sprites.append(make_sprite(rng, role, depth, size, horizon))
    views = cut_views(sprites, image.size)
    for view in views:
        paste(image, view.sprite)
    people = [_keys(view, points[id(view.sprite)]) for view in views if view.sprite.name == "person"]
    return Drawn(photograph(image, np.random.default_rng([5, seed, n])), people)


def _keys(view: View, points: Array) -> dict[str, Any]:
    """Return the keys of a person's annotation. `points`: (17, 3), in continuous pixels of the image."""
    height, width = view.seen.shape
    x, y = np.floor(points[:, :2]).astype(int).T
    inside = (x >= 0) & (y >= 0) & (x < width) & (y < height)
    seen = view.seen[y.clip(0, height - 1), x.clip(0, width - 1)]
    points[:, 2] = np.where(inside, np.where(seen, points[:, 2], 1), 0)
    rounded = np.where(inside[:, None], np.round(points - (0.5, 0.5, 0), 1), 0)  # COCO counts pixels from 0
    numbers = [whole(value) for value in rounded.ravel().tolist()]
    box = tight_box(view.seen)
    return {"category_id": 1, "bbox": [*box[:2], box[2] - box[0], box[3] - box[1]], **keys_of_mask(view.seen),
            "num_keypoints": int(inside.sum()), "keypoints": numbers}  # fmt: skip


# ---------------------------------------------------------------- one person


def draw_person(rng: Random, side: int) -> Person:
    """Draw a person, about `side` pixels high or, with arms spread, wide."""
    finer = 2 if side > 150 else 3
    joints = pose(rng)
    low, high = joints[:, :2].min(0) - 0.1, joints[:, :2].max(0) + 0.1
    scale = 1 / (high - low).max()
    joints = (joints - (*(low + high) / 2, 0)) * scale + (0.5, 0.5, 0)
    sketch = Sketch(Image.new("RGBA", (side * finer, side * finer)), rng)
    nearest = np.full((side * finer,) * 2, -1)  # the part that is the nearest at each pixel
    ends = [set[int]() for _ in NAMES]
    for number, body_part in enumerate(dress(rng, joints, scale)):
        part(sketch, body_part.outline, body_part.color, bulge=0.6)
        nearest[np.asarray(fill(body_part.outline, len(nearest))) > 0] = number
        for joint in body_part.joints:
            ends[joint].add(number)
    place = (joints[:, :2] * side * finer).astype(int)
    visible = [int(nearest[y, x]) in own for (x, y), own in zip(place.tolist(), ends, strict=True)]
    sprite = sketch.canvas.reduce(finer)
    left, top, right, bottom = cast("tuple[int, int, int, int]", sprite.getchannel("A").getbbox())
    points = np.column_stack([joints[:, :2] * side - (left, top), 1.0 + np.array(visible)])
    return Person(sprite.crop((left, top, right, bottom)), points)


def pose(rng: Random) -> Array:
    """Return (17, 3) the joints of a body, x to the right, y downwards, z to the viewer, in parts of its height."""
    joints: dict[str, Array] = {"nose": np.array((0, 0.1, 0.07))}
    stride, kind = rng.uniform(-30, 30), rng.integers(4)
    for side, sign in (("left", 1), ("right", -1)):
        shoulder, hip = np.array((sign * 0.105, 0.205, 0)), np.array((sign * 0.062, 0.51, 0))
        out = ((8, 25), (30, 75), (80, 110), (125, 160))[(kind + (rng.random() < 0.4)) % 4]
        raised, swing = rng.uniform(*out), -sign * stride + rng.uniform(-10, 10)
        elbow = shoulder + 0.16 * _direction(sign * raised, swing)
        wrist = elbow + 0.15 * _direction(sign * (raised + rng.uniform(-40, 70)), swing + rng.uniform(5, 50))
        leg = sign * rng.uniform(2, 14)
        knee = hip + 0.225 * _direction(leg, sign * stride + rng.uniform(0, 10))
        ankle = knee + 0.215 * _direction(leg, sign * stride - rng.uniform(2, 25))
        eye, ear = np.array((sign * 0.028, 0.078, 0.054)), np.array((sign * 0.068, 0.09, 0))
        own = (eye, ear, shoulder, elbow, wrist, hip, knee, ankle)
        joints |= {f"{side}_{name}": joint for name, joint in zip(PAIRS, own, strict=True)}
    turn = np.radians(rng.uniform(-50, 50) + 180 * (rng.random() < 0.2))
    lean = np.radians(rng.uniform(-7, 7))
    about_y = np.array(((np.cos(turn), 0, np.sin(turn)), (0, 1, 0), (-np.sin(turn), 0, np.cos(turn))))
    about_z = np.array(((np.cos(lean), -np.sin(lean), 0), (np.sin(lean), np.cos(lean), 0), (0, 0, 1)))
    return np.asarray(np.stack([joints[name] for name in NAMES]) @ about_y.T @ about_z.T)


def _direction(out: float, forward: float) -> Array:
    """Return the direction of a limb that hangs, turned outwards and forwards by degrees."""
    a, b = np.radians((out, forward))
    return np.array((np.sin(a), np.cos(a) * np.cos(b), np.cos(a) * np.sin(b)))


class BodyPart(NamedTuple):
    """A part of a body: its depth, larger is nearer; the keypoints that end in it; (P, 2) its outline; its color."""

    depth: float
    joints: tuple[int, ...]
    outline: Array
    color: Color


class Body:
    """The parts of a body, of joints by name, (3,) in the unit square, with radii in parts of its height."""

    def __init__(self, joints: Array, scale: float) -> None:
        self.points = dict(zip(NAMES, joints, strict=True))
        self.scale = scale
        self.parts: list[BodyPart] = []

    def add(self, names: str, radii: Sequence[float], color: Color, nearer: float = 0) -> None:
        """Add a part: the hull of circles around points. `nearer`: than these, in parts of the height."""
        ends = [self.points[name] for name in names.split()]
        circles = [oval(x, y, r * self.scale, r * self.scale) for (x, y, _), r in zip(ends, radii, strict=True)]
        depth = float(np.mean([z for *_, z in ends])) + nearer * self.scale
        joints = tuple(NAMES.index(name) for name in names.split() if name in NAMES)
        self.parts.append(BodyPart(depth, joints, convex_hull(np.concatenate(circles)), color))


def dress(rng: Random, joints: Array, scale: float) -> list[BodyPart]:
    """Return the parts of a body, from the farthest to the nearest."""
    skin, hair = pick(rng, *SKIN), pick(rng, *HAIR)
    shirt, trousers, shoes = (CLOTHES[index] for index in rng.permutation(len(CLOTHES))[:3])
    sleeve, leg = pick(rng, skin, shirt), pick(rng, skin, trousers, trousers)
    body = Body(joints, scale)
    points = body.points
    points["head"] = (points["left_ear"] + points["right_ear"]) / 2
    points["throat"] = 0.6 * points["head"] + 0.2 * (points["left_shoulder"] + points["right_shoulder"])
    ahead = points["nose"] - points["head"]
    points["crown"] = points["head"] - 0.35 * ahead + (0, -0.022 * scale, 0)
    body.add("left_shoulder right_shoulder left_hip right_hip", (0.045, 0.045, 0.055, 0.055), shirt)
    body.add("left_hip right_hip", (0.06, 0.06), trousers, 0.001)
    body.add("throat head", (0.034, 0.034), times(skin, 0.85), -0.02)
    body.add("crown", (0.078,), hair, -0.03)
    body.add("head", (0.068,), skin)
    body.add("nose", (0.01,), times(skin, 0.8))
    for side in ("left", "right"):
        toe, hand = f"{side}_toe", f"{side}_hand"
        points[hand] = points[f"{side}_wrist"] + 0.25 * (points[f"{side}_wrist"] - points[f"{side}_elbow"])
        points[toe] = points[f"{side}_ankle"] + (ahead * (0.8, 0, 0.8)) + (0, 0.02 * scale, 0)
        body.add(f"{side}_ear", (0.016,), times(skin, 0.9))
        body.add(f"{side}_eye", (0.009,), (30, 28, 34))
        body.add(f"{side}_shoulder {side}_elbow", (0.042, 0.032), shirt, 0.01)
        body.add(f"{side}_elbow {side}_wrist", (0.03, 0.021), sleeve, 0.005)
        body.add(f"{side}_wrist {hand}", (0.022, 0.024), skin, 0.006)
        body.add(f"{side}_hip {side}_knee", (0.058, 0.042), trousers)
        body.add(f"{side}_knee {side}_ankle", (0.04, 0.027), leg)
        body.add(f"{side}_ankle {toe}", (0.026, 0.022), shoes, 0.001)
    return sorted(body.parts, key=lambda body_part: body_part.depth)
