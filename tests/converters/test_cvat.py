"""CVAT's XML, for images and for video, against a second reading; damaged files."""

from __future__ import annotations

import math
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
from benchmark_scripts import load_script
from format_files import converted, data_set, kinds, refused
from places import REPOSITORY
from pycocotools import mask as coco_mask

META = """<meta><task><id>7</id><name>street</name><size>3</size><mode>annotation</mode>
<start_frame>0</start_frame><stop_frame>9</stop_frame><labels>
<label><name>person</name><color>#c06060</color><type>skeleton</type><attributes></attributes><svg>{svg}</svg></label>
<label><name>nose</name><type>points</type><parent>person</parent></label>
<label><name>foot</name><type>points</type><parent>person</parent></label>
<label><name>car</name><type>any</type></label><label><name>road</name><type>polygon</type></label>
</labels><segments/></task><dumped>2024-05-01 10:00:00</dumped></meta>"""
SVG = (
    '&lt;line x1="1" data-type="edge" data-node-from="2" data-node-to="1"&gt;&lt;/line&gt;'
    '&lt;circle r="1.5" data-node-id="1" data-label-name="nose"&gt;&lt;/circle&gt;'
    '&lt;circle r="1.5" data-node-id="2" data-label-name="foot"&gt;&lt;/circle&gt;'
)
IMAGES = """
<image id="0" name="sub/a.jpg" width="100" height="80">
<box label="car" source="manual" occluded="1" xtl="10.00" ytl="10.50" xbr="40.00" ybr="30.00" z_order="0" group_id="4">
<attribute name="color">red</attribute><attribute name="area"></attribute></box>
<box label="car" occluded="0" xtl="20.00" ytl="20.00" xbr="60.00" ybr="40.00" rotation="30.00" z_order="0"></box>
<polygon label="road" occluded="0" points="10.00,10.00;40.50,12.00;30.00,40.00" z_order="0"></polygon>
<ellipse label="car" occluded="0" cx="50.00" cy="40.00" rx="20.00" ry="10.00" rotation="90.00" z_order="0"></ellipse>
<mask label="car" occluded="0" rle="2, 3, 1, 4, 5" left="30" top="20" width="5" height="3" z_order="0"></mask>
<skeleton label="person" source="manual" z_order="0">
<points label="foot" outside="0" occluded="1" points="70.00,60.00"></points>
<points label="nose" outside="0" occluded="0" points="60.50,10.00"></points></skeleton>
<polyline label="road" occluded="0" points="1.00,1.00;9.00,9.00"></polyline>
<points label="nose" occluded="0" points="1.00,1.00"></points>
<cuboid label="car" xtl1="1" ytl1="1"></cuboid><tag label="rain" source="manual"></tag>
</image><image id="1" name="b.jpg" width="100" height="80"></image>"""


def xml(body: str, meta: str = META.format(svg=SVG)) -> str:
    return (
        f'<?xml version="1.0" encoding="utf-8"?>\n<annotations>\n<version>1.1</version>{meta}{body}\n</annotations>\n'
    )


def box(frame: int, left: float, *, outside: int = 0, keyframe: int = 1, more: str = "") -> str:
    edges = f'xtl="{left:.2f}" ytl="10.00" xbr="{left + 20:.2f}" ybr="30.00"'
    return (
        f'<box frame="{frame}" keyframe="{keyframe}" outside="{outside}" occluded="0" {edges} z_order="0">{more}</box>'
    )


def test_images(tmp_path: Path) -> None:
    root = data_set(tmp_path / "task", {"annotations.xml": xml(IMAGES)}, "images/sub/a.jpg", "images/b.jpg", "x.jpg")
    document, summary = converted(root)
    rows = document["annotations"]
    assert [row["name"] for row in document["categories"]] == ["person", "car", "road"]
    assert [(row["file_name"], row.get("tags")) for row in document["images"]] == [
        ("b.jpg", None),
        ("sub/a.jpg", ["rain"]),
    ]
    # A second reading: the boxes of shapes, in the file's order.
    expected = []
    for shape in ET.fromstring(xml(IMAGES)).iter():
        numbers = {key: float(value) for key, value in shape.items() if value.replace(".", "").isdigit()}
        if shape.tag == "box":
            x, y = (numbers["xtl"] + numbers["xbr"]) / 2, (numbers["ytl"] + numbers["ybr"]) / 2
            width, height = numbers["xbr"] - numbers["xtl"], numbers["ybr"] - numbers["ytl"]
            turn = complex(
                math.cos(math.radians(numbers.get("rotation", 0))), math.sin(math.radians(numbers.get("rotation", 0)))
            )
            corners = [complex(a * width, b * height) / 2 * turn for a in (-1, 1) for b in (-1, 1)]
            half = max(each.real for each in corners), max(each.imag for each in corners)
            expected.append([x - half[0], y - half[1], 2 * half[0], 2 * half[1]])
        if shape.tag == "polygon":
            points = np.array([pair.split(",") for pair in shape.get("points", "").split(";")], float)
            expected.append([*points.min(0), *np.ptp(points, axis=0)])
    assert [rows[at]["bbox"] for at in (0, 1, 2)] == [pytest.approx(each, abs=2e-3) for each in expected]
    assert (rows[0]["occluded"], rows[0]["group_id"], rows[0]["color"], rows[0]["attribute_area"]) == (1, 4, "red", "")
    assert rows[1]["corners"][0] == pytest.approx([40 - 17.3205 + 5, 30 - 10 - 8.66025], abs=1e-3)  # clockwise
    assert rows[3]["bbox"] == [40, 20, 20, 40]
    assert rows[3]["area"] == pytest.approx(math.pi * 200, rel=2e-3)
    assert rows[4]["bbox"] == [31, 20, 4, 2]
    assert (rows[5]["keypoints"], rows[5]["bbox"]) == ([60, 9.5, 2, 69.5, 59.5, 1], [60.5, 10, 9.5, 50])
    person = document["categories"][0]
    assert (person["keypoints"], person["skeleton"]) == (["nose", "foot"], [[2, 1]])
    assert kinds(summary) == {"shape-unused": 3, "image-unlisted": 1}
    assert summary.next_step.endswith("masks=True, keypoints=True, rotated=True)")


@pytest.mark.filterwarnings("ignore:__array__:DeprecationWarning")  # of pycocotools
def test_masks_are_runs_along_rows(tmp_path: Path) -> None:
    root = data_set(tmp_path / "task", {"annotations.xml": xml(IMAGES)}, "images/sub/a.jpg", "images/b.jpg")
    document, _ = converted(root)
    encoded = document["annotations"][4]["segmentation"]
    found = coco_mask.decode(encoded | {"counts": encoded["counts"].encode()})
    runs = [0] * 2 + [1] * 3 + [0] * 1 + [1] * 4 + [0] * 5
    assert found[20:23, 30:35].tolist() == [runs[:5], runs[5:10], runs[10:]]
    assert found.sum() == 7


def test_projects_and_several_tasks(tmp_path: Path) -> None:
    def image(name: str, left: int, subset: str = "") -> str:
        shape = f'<box label="car" occluded="0" xtl="{left}" ytl="1" xbr="50" ybr="9"/>'
        return f'<image id="0" name="{name}" {subset} width="100" height="80">{shape}</image>'

    project = xml(image("a.jpg", 1, 'subset="train"') + image("a.jpg", 2, 'subset="val"'))
    files = {
        "p/annotations.xml": project,
        "t1/annotations.xml": xml(image("a.jpg", 3)),
        "t2/annotations.xml": xml(image("a.jpg", 4)),
    }
    images = ["p/images/train/a.jpg", "p/images/val/a.jpg", "t1/images/a.jpg", "t2/images/a.jpg"]
    document, summary = converted(data_set(tmp_path / "set", files, *images))
    names = {row["id"]: row["file_name"] for row in document["images"]}
    assert {names[row["image_id"]]: row["bbox"][0] for row in document["annotations"]} == dict(
        zip(images, (1, 2, 3, 4), strict=True)
    )
    assert kinds(summary).keys() == {"splits-joined", "class-unused"}


def test_video(tmp_path: Path) -> None:
    every = "".join(box(frame, 10 + frame, keyframe=frame % 2) for frame in range(3)) + box(3, 13, outside=1)
    sparse = box(0, 10, more='<attribute name="speed">fast</attribute>') + box(4, 50) + box(6, 0, outside=1)
    skeleton = "".join(
        f'<skeleton frame="{frame}" keyframe="1" z_order="0"><points label="nose" keyframe="1" outside="{frame}" '
        'occluded="0" points="60.50,10.00"/><points label="foot" outside="1" occluded="0" points="70,60"/></skeleton>'
        for frame in (0, 1)
    )
    tracks = (
        f'<track id="0" label="car" source="manual">{every}</track><track id="1" label="car">{sparse}</track>'
        f'<track id="2" label="person">{skeleton}</track>'
    )
    images = [f"images/frame_{frame:06d}.PNG" for frame in range(8)]
    document, summary = converted(data_set(tmp_path / "task", {"annotations.xml": xml(tracks)}, *images))
    assert document["videos"] == [{"id": 1, "name": "street", "width": 100, "height": 80}]
    assert [row["frame_id"] for row in document["images"]] == [*range(8)]
    found: dict[int, dict[int, float]] = {}
    for row in document["annotations"]:
        if row["track_id"] < 2:
            found.setdefault(row["track_id"], {})[row["image_id"] - 1] = row["bbox"][0]
    assert found == {0: {0: 10, 1: 11, 2: 12}, 1: {0: 10, 1: 20, 2: 30, 3: 40, 4: 50, 5: 50}}
    assert [row["speed"] for row in document["annotations"] if "speed" in row] == ["fast"] * 4
    assert kinds(summary) == {"class-unused": 2, "box-empty": 1, "box-repeated": 1, "image-extension": 8}
    assert summary.next_step.startswith("load it: da.ClipReader(")


def test_shapes_between_key_frames(tmp_path: Path) -> None:
    """Boxes move and turn evenly, the shorter way round; of polygons nothing is known, and their frames are counted."""
    turned = box(0, 30).replace("<box", '<box rotation="350"') + box(4, 50).replace("<box", '<box rotation="30"')
    ring = "".join(f'<polygon frame="{frame}" outside="0" points="1,1;9,1;9,{9 + frame}"/>' for frame in (0, 3))
    text = xml(f'<track id="0" label="car">{turned}</track><track id="1" label="person">{ring}</track>')
    images = [f"images/frame_{frame:06d}.png" for frame in range(5)]
    document, summary = converted(data_set(tmp_path / "task", {"annotations.xml": text}, *images))
    found = {row["image_id"] - 1: row["corners"] for row in document["annotations"] if "corners" in row}
    for frame, degrees in enumerate([-10, 0, 10, 20, 30]):
        cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
        x, y = 40 + 5 * frame, 20
        expected = [
            [x + a * cos - b * sin, y + a * sin + b * cos] for a, b in ((-10, -10), (10, -10), (10, 10), (-10, 10))
        ]
        if frame == 1:  # not turned: a plain box
            assert frame not in found
        else:
            np.testing.assert_allclose(found[frame], expected, atol=2e-3)
    plain = [row["bbox"] for row in document["annotations"] if row["image_id"] == 2 and row["track_id"] == 0]
    assert plain == [[35, 10, 20, 20]]
    assert kinds(summary)["track-gap"] == 2


SKELETONS = "".join(f'<skeleton frame="{n}" outside="0" occluded="0" keyframe="1" points="9,9"/>' for n in (10, 13, 16))
_NOSE = '<points frame="10" outside="0" points="60.50,10.00"/><points frame="13" outside="1" points="1,1"/>'
_FOOT = "".join(f'<points frame="{n}" outside="0" occluded="1" points="70,60"/>' for n in (10, 13))
TRACKS_OF_POINTS = f'<track id="0" label="nose">{_NOSE}</track><track id="1" label="foot">{_FOOT}</track>'


@pytest.mark.parametrize("points_first", [False, True])
def test_skeletons_whose_points_are_tracks(tmp_path: Path, points_first: bool) -> None:
    """CVAT 2.1 wrote them so: the points of a skeleton, once more, in tracks inside of its track."""
    parts = (TRACKS_OF_POINTS, SKELETONS) if points_first else (SKELETONS, TRACKS_OF_POINTS)
    text = xml(f'<track id="3" label="person">{"".join(parts)}</track>').replace("<stop_frame>9", "<stop_frame>19")
    images = [f"images/frame_0000{frame}.png" for frame in (10, 13, 16)]
    document, summary = converted(data_set(tmp_path / "task", {"annotations.xml": text}, *images))
    assert [row["frame_id"] for row in document["images"]] == [10, 13, 16]
    assert [row["keypoints"] for row in document["annotations"]] == [[60, 9.5, 2, 69.5, 59.5, 1]]
    assert kinds(summary) == {"class-unused": 2, "box-empty": 1, "image-extension": 3}


def test_video_of_images(tmp_path: Path) -> None:
    track = f'<track id="0" label="car">{box(0, 10)}{box(2, 30)}</track>'
    root = data_set(tmp_path / "task", {"annotations.xml": xml(track)}, "z.jpg", "x.jpg", "y.jpg")
    document, summary = converted(root)
    assert [(row["file_name"], row["frame_id"]) for row in document["images"]] == [
        ("x.jpg", 0),
        ("y.jpg", 1),
        ("z.jpg", 2),
    ]
    assert [row["bbox"][0] for row in document["annotations"]] == [10, 20, 30]
    assert kinds(summary) == {"frames-by-order": 1, "class-unused": 2}
    missing = data_set(tmp_path / "more", {"annotations.xml": xml(track.replace('"2"', '"5"'))}, "frame_000000.PNG")
    assert "no image in" in refused(missing)
    assert "has the name 'frame_000005.PNG'" in refused(missing)


_PEAK = """if True:
    import sys
    import numpy, lxml.etree
    from detaug.converters import convert_to_coco
    from detaug.files import spool
    from detaug.converters.records import to_coco
    spool._MOST_WAITING, spool._IN_MEMORY = 100, 1 << 14  # as for a long video
    convert_to_coco(sys.argv[1], sys.argv[1] + ".json", format="cvat")
    print(*[line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")])"""


@pytest.mark.slow
def test_tracks_are_not_kept_in_memory(tmp_path: Path) -> None:
    """The elements of the XML are in C's memory, so that of a process of its own is measured."""
    peaks = []
    for frames in (500, 2500):
        load_script("convert_speed").write_set(tmp_path / f"{frames}", "cvat/video", frames)
        command = [sys.executable, "-c", _PEAK, str(tmp_path / f"{frames}")]
        peaks.append(int(subprocess.run(command, check=True, capture_output=True, cwd=REPOSITORY).stdout))
    # Bytes per frame, which has ten boxes: 600 to 1,200, and 7,000 if a track is in memory as a whole.
    assert (peaks[1] - peaks[0]) * 1024 / 2000 < 2500


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('xtl="10.00"', 'xtl="left"', "object 0: xtl, ytl, xbr and ybr must be a finite number, got 'left'"),
        ('xtl="10.00"', "", "must be a finite number, got None"),
        ('label="road"', 'label=" "', "object 2: label must be text, got ' '"),
        ("10.00,10.00;40.50,12.00;", "", "points must be at least 3 of x,y;x,y;..., got '30.00,40.00'"),
        ("2, 3, 1, 4, 5", "2, 3, 1, 4, 50", "the runs of a mask (rle) must fill its 5 x 3 pixels, they are 60"),
        ("2, 3, 1, 4, 5", "-2, 3, 1, 8, 5", "must fill its 5 x 3 pixels"),
        ("2, 3, 1, 4, 5", "2.5, 3.5, 1, 4, 4", "the runs of a mask (rle) must be whole numbers"),
        ('name="b.jpg"', "", "an image has no name"),
        ("</annotations>", "", "annotations.xml: does not parse: Premature end of data"),
        ("<annotations>", '<!DOCTYPE a [<!ENTITY x "y">]><annotations>', "annotations.xml: has a DOCTYPE"),
    ],
)  # fmt: skip
def test_what_is_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    text = xml(IMAGES).replace(old, new, 1)
    assert text != xml(IMAGES)
    root = data_set(tmp_path / "task", {"annotations.xml": text}, "images/sub/a.jpg", "images/b.jpg")
    assert message in refused(root, format="cvat")


def test_images_and_videos_are_converted_apart(tmp_path: Path) -> None:
    track = f'<track id="0" label="car">{box(0, 10)}{box(2, 30)}</track>'
    frames = [f"frame_00000{n}.jpg" for n in range(3)]
    both = data_set(
        tmp_path / "both", {"a/a.xml": xml(IMAGES), "b/b.xml": xml(track)}, "a/sub/a.jpg", "a/b.jpg", *frames
    )
    assert "is a frame of a video and a/b.jpg is not; convert the files" in refused(both)


def test_a_video_that_breaks_off_is_left_out_as_a_whole(tmp_path: Path) -> None:
    """Each frame may have objects in tracks that come later: half of them would be wrong labels."""
    tracks = xml(f'<track id="0" label="car">{box(0, 10)}</track><track id="1" label="car">{box(0, 50)}</track>')
    files = {"a/annotations.xml": tracks[: tracks.index("50.00")], "b/annotations.xml": tracks}
    images = ["a/frame_000000.PNG", "b/frame_000000.PNG"]
    document, summary = converted(data_set(tmp_path / "set", files, *images), on_error="skip")
    assert [row["file_name"] for row in document["images"]] == ["frame_000000.PNG"]
    assert summary.image_folder.name == "b"
    assert kinds(summary)["xml-broken"] == 1


def test_a_track_of_polygons_that_ends_has_a_gap_too(tmp_path: Path) -> None:
    shapes = "".join(
        f'<polygon frame="{frame}" outside="{outside}" keyframe="1" points="1,1;30,1;30,30"/>'
        for frame, outside in ((0, 0), (3, 1), (4, 0))
    )
    text = f'<annotations><track id="0" label="car">{shapes}</track></annotations>'
    images = [f"images/frame_{number:06}.png" for number in range(5)]
    document, summary = converted(data_set(tmp_path / "task", {"annotations.xml": text}, *images))
    assert len(document["annotations"]) == 2
    assert kinds(summary)["track-gap"] == 2


def test_a_track_without_an_end_goes_on(tmp_path: Path) -> None:
    """As CVAT shows it: until the last frame of the task, whatever its shape is; `outside` ends it."""
    ring = '<polygon frame="3" outside="0" points="1,1;30,1;30,30"/>'
    ended = box(0, 40) + box(1, 40, outside=1)
    bodies = (box(0, 10) + box(1, 20), ring, ended)
    tracks = "".join(f'<track id="{n}" label="car">{body}</track>' for n, body in enumerate(bodies))
    meta = META.format(svg=SVG).replace("<stop_frame>9", "<stop_frame>4")
    images = [f"images/frame_{number:06}.png" for number in range(7)]
    document, _ = converted(data_set(tmp_path / "task", {"annotations.xml": xml(tracks, meta)}, *images))
    found: dict[int, list[tuple[int, float]]] = {}
    for row in document["annotations"]:
        found.setdefault(row["track_id"], []).append((row["image_id"] - 1, row["bbox"][0]))
    assert found[0] == [(0, 10), *((frame, 20) for frame in range(1, 5))]
    assert found[1] == [(3, 1), (4, 1)]
    assert found[2] == [(0, 40)]


@pytest.mark.parametrize(
    "meta",
    [
        "<meta><job><id>3</id><start_frame>0</start_frame><stop_frame>1</stop_frame></job></meta>",
        "<meta><project><tasks><task><id>8</id><stop_frame>2</stop_frame></task><task><id>9</id>"
        "<start_frame>0</start_frame><stop_frame>1</stop_frame></task></tasks></project></meta>",
    ],
)
def test_the_last_frame_of_a_job_and_of_a_task_of_a_project(tmp_path: Path, meta: str) -> None:
    track = f'<track id="0" label="car" task_id="9">{box(0, 10)}</track>'
    images = [f"images/frame_{number:06}.png" for number in range(3)]
    document, _ = converted(data_set(tmp_path / "task", {"annotations.xml": xml(track, meta)}, *images))
    assert [row["image_id"] for row in document["annotations"]] == [1, 2]


def test_tags_are_no_classes_and_keep_their_attributes(tmp_path: Path) -> None:
    labels = "<label><name>scene</name><type>tag</type></label><label><name>car</name><type>any</type></label>"
    tags = "".join(
        f'<tag label="{name}"><attribute name="weather">{text}</attribute>{more}</tag>'
        for name, text, more in (("scene", "rain", '<attribute name="width">7</attribute>'), ("other", "fog", ""))
    )
    shape = '<box label="car" xtl="1" ytl="1" xbr="9" ybr="9"/>'
    body = f'<image id="0" name="a.jpg" width="100" height="80">{tags}{shape}</image>'
    text = xml(body, f"<meta><task><labels>{labels}</labels></task></meta>")
    document, summary = converted(data_set(tmp_path / "task", {"annotations.xml": text}, "a.jpg"))
    (image,) = document["images"]
    assert (image["tags"], image["weather"], image["attribute_width"]) == (["scene", "other"], ["rain", "fog"], "7")
    assert ([row["name"] for row in document["categories"]], kinds(summary)) == (["car"], {})
