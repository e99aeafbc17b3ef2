"""Objects per second and peak memory of `detaug convert`, for each text format.

    python benchmarks/convert_speed.py
    python benchmarks/convert_speed.py --formats labelme cvat --images 20000 100000

Writes a dataset of each format into a temporary folder: images of 500 x 375 pixels, which are links to a few files,
with 10 objects each, boxes, or polygons in formats that have no boxes; and converts it in a new process. Printed are
objects per second of CPU time, user and system, of the conversion without imports, so that other load does not count;
the seconds by the clock; the largest resident memory of the process (ru_maxrss), less that after the imports; by how
many bytes it grows with each image more than in the row before; and a digest of the JSON file, which is the same before
and after a change that keeps the bytes.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from PIL import Image

WIDTH, HEIGHT, OBJECTS = 500, 375, 10
CLASSES = ("bicycle", "boat", "bottle", "bus", "car", "cat", "chair", "cow")
LINKS = 10_000  # of one image file: file systems have limits

CHILD = """
import hashlib, json, resource, sys, time
from pathlib import Path
from detaug.converters import convert_to_coco
import detaug.converters.formats.convert, detaug.converters.records.to_coco, numpy, lxml.etree
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
before, start, clock = peak(), time.process_time(), time.perf_counter()
summary = convert_to_coco(sys.argv[1], sys.argv[2], format=sys.argv[3])
cost = time.process_time() - start, time.perf_counter() - clock, peak() - before
print(json.dumps([*cost, summary.boxes, hashlib.sha256(Path(sys.argv[2]).read_bytes()).hexdigest()[:12]]))
"""


class Box(NamedTuple):
    """Left, top, width, height in whole pixels."""

    name: str
    x: int
    y: int
    w: int
    h: int


def boxes_of(number: int) -> list[Box]:
    chance = random.Random(number)
    found = []
    for _ in range(OBJECTS):
        width, height = chance.randint(10, 200), chance.randint(10, 150)
        x, y = chance.randint(0, WIDTH - width), chance.randint(0, HEIGHT - height)
        found.append(Box(chance.choice(CLASSES), x, y, width, height))
    return found


Labels = Iterator[tuple[str, list[Box]]]
"""(name of an image without its extension, objects)"""


def text_files(folder: Path, suffix: str, labels: Labels, row: Callable[[Box], str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, boxes in labels:
        (folder / f"{name}{suffix}").write_text("".join(row(box) + "\n" for box in boxes))


def corners(box: Box) -> list[list[int]]:
    x0, y0, x1, y1 = box.x, box.y, box.x + box.w, box.y + box.h
    return [[x0, y0], [x1, y0], [x1, y1], [x0, y1]]


def kitti(root: Path, labels: Labels) -> None:
    text_files(
        root / "label", ".txt", labels,
        lambda box: f"{box.name} 0.00 0 0 {box.x} {box.y} {box.x + box.w} {box.y + box.h} 0 0 0 0 0 0 0",
    )  # fmt: skip


def visdrone(root: Path, labels: Labels) -> None:
    number = {name: at for at, name in enumerate(CLASSES, 1)}
    text_files(
        root / "annotations", ".txt", labels,
        lambda box: f"{box.x},{box.y},{box.w},{box.h},1,{number[box.name]},0,0",
    )  # fmt: skip


def dota(root: Path, labels: Labels) -> None:
    text_files(
        root / "labelTxt", ".txt", labels,
        lambda box: f"{' '.join(str(value) for point in corners(box) for value in point)} {box.name} 0",
    )  # fmt: skip


def yolo(root: Path, labels: Labels) -> None:
    (root / "classes.txt").write_text("\n".join(CLASSES))

    def row(box: Box) -> str:
        x, y = (box.x + box.w / 2) / WIDTH, (box.y + box.h / 2) / HEIGHT
        return f"{CLASSES.index(box.name)} {x:.6f} {y:.6f} {box.w / WIDTH:.6f} {box.h / HEIGHT:.6f}"

    text_files(root / "labels", ".txt", labels, row)


def voc(root: Path, labels: Labels) -> None:
    folder = root / "Annotations"
    folder.mkdir()
    for name, boxes in labels:
        objects = "".join(
            f"<object><name>{box.name}</name><bndbox><xmin>{box.x + 1}</xmin><ymin>{box.y + 1}</ymin>"
            f"<xmax>{box.x + box.w}</xmax><ymax>{box.y + box.h}</ymax></bndbox></object>"
            for box in boxes
        )
        size = f"<size><width>{WIDTH}</width><height>{HEIGHT}</height><depth>3</depth></size>"
        (folder / f"{name}.xml").write_text(f"<annotation><filename>{name}.jpg</filename>{size}{objects}</annotation>")


def labelme(root: Path, labels: Labels) -> None:
    for name, boxes in labels:
        usual = {"group_id": None, "description": "", "shape_type": "polygon", "flags": {}, "mask": None}
        shapes = [{"label": box.name, "points": corners(box), **usual} for box in boxes]
        document = {"version": "5.5.0", "flags": {}, "shapes": shapes, "imagePath": f"{name}.jpg", "imageData": None}
        text = json.dumps(document | {"imageHeight": HEIGHT, "imageWidth": WIDTH}, indent=2)
        (root / "images" / f"{name}.json").write_text(text)


def cvat(root: Path, labels: Labels) -> None:
    with (root / "annotations.xml").open("w") as file:
        file.write("<annotations><version>1.1</version>\n")
        for number, (name, boxes) in enumerate(labels):
            file.write(f'<image id="{number}" name="{name}.jpg" width="{WIDTH}" height="{HEIGHT}">\n')
            for box in boxes:
                edges = f'xtl="{box.x}" ytl="{box.y}" xbr="{box.x + box.w}" ybr="{box.y + box.h}"'
                file.write(f'<box label="{box.name}" source="manual" occluded="0" {edges} z_order="0"></box>\n')
            file.write("</image>\n")
        file.write("</annotations>\n")


def cvat_video(root: Path, labels: Labels) -> None:
    """Write OBJECTS tracks, each with a box in every frame, as CVAT does: one track after the other."""
    frames = [boxes for _, boxes in labels]
    with (root / "annotations.xml").open("w") as file:
        file.write("<annotations><version>1.1</version>\n")
        for track in range(OBJECTS):
            file.write(f'<track id="{track}" label="{CLASSES[track % len(CLASSES)]}" source="manual">\n')
            for frame, boxes in enumerate(frames):
                box = boxes[track]
                edges = f'xtl="{box.x}" ytl="{box.y}" xbr="{box.x + box.w}" ybr="{box.y + box.h}"'
                file.write(f'<box frame="{frame}" keyframe="1" outside="0" occluded="0" {edges} z_order="0"></box>\n')
            file.write("</track>\n")
        file.write("</annotations>\n")


def csv_table(root: Path, labels: Labels, *, scattered: bool = False) -> None:
    found = ([name, box] for name, boxes in labels for box in boxes)
    if scattered:
        found = iter(random.Random(0).sample(rows := [*found], len(rows)))
    with (root / "labels.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["filename", "width", "height", "class", "xmin", "ymin", "xmax", "ymax"])
        for name, box in found:
            table.writerow([f"{name}.jpg", WIDTH, HEIGHT, box.name, box.x, box.y, box.x + box.w, box.y + box.h])


def label_studio(root: Path, labels: Labels) -> None:
    tasks = []
    for number, (name, boxes) in enumerate(labels):
        results = []
        for at, box in enumerate(boxes):
            x, y, width, height = (
                100 * value for value in (box.x / WIDTH, box.y / HEIGHT, box.w / WIDTH, box.h / HEIGHT)
            )
            value = {"x": x, "y": y, "width": width, "height": height, "rotation": 0, "rectanglelabels": [box.name]}
            size = {"original_width": WIDTH, "original_height": HEIGHT, "image_rotation": 0}
            kind = {"id": f"r{at}", "type": "rectanglelabels", "from_name": "label", "to_name": "image"}
            results.append({**kind, "value": value, **size})
        annotation = {"id": number, "result": results, "was_cancelled": False, "ground_truth": False}
        tasks.append({"id": number, "data": {"image": f"/data/upload/1/{name}.jpg"}, "annotations": [annotation]})
    (root / "export.json").write_text(json.dumps(tasks))


def via(root: Path, labels: Labels) -> None:
    images = {}
    for name, boxes in labels:
        shapes = ({"name": "rect", "x": box.x, "y": box.y, "width": box.w, "height": box.h} for box in boxes)
        regions = [
            {"shape_attributes": shape, "region_attributes": {"class": box.name}}
            for shape, box in zip(shapes, boxes, strict=True)
        ]
        images[name] = {"filename": f"{name}.jpg", "size": 1, "regions": regions, "file_attributes": {}}
    (root / "via.json").write_text(json.dumps({"_via_img_metadata": images}))


def via_csv(root: Path, labels: Labels) -> None:
    head = ["filename", "file_size", "file_attributes", "region_count", "region_id"]
    with (root / "via.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow([*head, "region_shape_attributes", "region_attributes"])
        for name, boxes in labels:
            for at, box in enumerate(boxes):
                shape = json.dumps({"name": "rect", "x": box.x, "y": box.y, "width": box.w, "height": box.h})
                table.writerow([f"{name}.jpg", 1, "{}", OBJECTS, at, shape, json.dumps({"class": box.name})])


def via_3(root: Path, labels: Labels) -> None:
    files, metadata = {}, {}
    for at, (name, boxes) in enumerate(labels, 1):
        files[str(at)] = {"fid": str(at), "fname": f"{name}.jpg", "type": 2, "loc": 1, "src": ""}
        for number, box in enumerate(boxes):
            xy, values = [2, box.x, box.y, box.w, box.h], {"1": box.name}
            metadata[f"{at}_{number}"] = {"vid": str(at), "flg": 0, "z": [], "xy": xy, "av": values}
    document = {
        "project": {"pid": "__VIA_PROJECT_ID__", "data_format_version": "3.1.1"},
        "config": {},
        "attribute": {"1": {"aname": "class", "type": 4}},
        "file": files,
        "metadata": metadata,
        "view": {key: {"fid_list": [key]} for key in files},
    }
    (root / "via.json").write_text(json.dumps(document))


def createml(root: Path, labels: Labels) -> None:
    entries = []
    for name, boxes in labels:
        found = [
            {"label": b.name, "coordinates": {"x": b.x + b.w / 2, "y": b.y + b.h / 2, "width": b.w, "height": b.h}}
            for b in boxes
        ]
        entries.append({"image": f"{name}.jpg", "annotations": found})
    (root / "createml.json").write_text(json.dumps(entries))


def wider_face(root: Path, labels: Labels) -> None:
    lines = []
    for name, boxes in labels:
        lines += [f"{name}.jpg", str(len(boxes)), *(f"{b.x} {b.y} {b.w} {b.h} 0 0 0 0 0 0" for b in boxes)]
    (root / "faces.txt").write_text("\n".join(lines))


def crowdhuman(root: Path, labels: Labels) -> None:
    with (root / "annotation.odgt").open("w") as file:
        for name, boxes in labels:
            found = [{"tag": "person", "fbox": [b.x, b.y, b.w, b.h], "vbox": [b.x, b.y, b.w, b.h]} for b in boxes]
            file.write(json.dumps({"ID": name, "gtboxes": found}) + "\n")


def supervisely(root: Path, labels: Labels) -> None:
    folder = root / "ann"
    folder.mkdir()
    for name, boxes in labels:
        objects = [
            {
                "classTitle": b.name,
                "geometryType": "polygon",
                "tags": [],
                "points": {"exterior": corners(b), "interior": []},
            }
            for b in boxes
        ]
        text = json.dumps({"size": {"height": HEIGHT, "width": WIDTH}, "tags": [], "objects": objects})
        (folder / f"{name}.jpg.json").write_text(text)


def imagefolder(root: Path, labels: Labels) -> None:
    with (root / "images/metadata.jsonl").open("w") as file:
        for name, boxes in labels:
            found = {"bbox": [[b.x, b.y, b.w, b.h] for b in boxes], "category": [CLASSES.index(b.name) for b in boxes]}
            file.write(json.dumps({"file_name": f"{name}.jpg", "objects": found}) + "\n")


def mot(root: Path, labels: Labels) -> None:
    """Write one sequence, whose frames are numbered from 1."""
    (root / "images").rename(root / "img1")
    with_numbers = sorted((root / "img1").iterdir(), reverse=True)
    for path in with_numbers:
        path.rename(path.with_stem(f"{int(path.stem) + 1:06}"))
    (root / "gt").mkdir()
    with (root / "gt/gt.txt").open("w") as file:
        for frame, (_, boxes) in enumerate(labels, 1):
            for track, box in enumerate(boxes, 1):
                number = CLASSES.index(box.name) + 1
                file.write(f"{frame},{track},{box.x + 1},{box.y + 1},{box.w},{box.h},1,{number},1\n")


WRITERS = {
    "labelme": labelme, "cvat": cvat, "cvat/video": cvat_video, "csv": csv_table,
    "csv/scattered": partial(csv_table, scattered=True), "label-studio": label_studio, "via": via, "via/csv": via_csv,
    "via/3": via_3, "kitti": kitti,
    "visdrone": visdrone, "createml": createml, "wider-face": wider_face, "crowdhuman": crowdhuman,
    "supervisely": supervisely, "imagefolder": imagefolder, "dota": dota, "yolo": yolo, "voc": voc,
    "mot": mot,
}  # fmt: skip
"""By the name of the format, and which form of it."""


def write_images(folder: Path, count: int) -> None:
    folder.mkdir()
    file = io.BytesIO()
    Image.new("RGB", (WIDTH, HEIGHT), "gray").save(file, "JPEG")
    for number in range(count):
        path = folder / f"{number:06}.jpg"
        if number % LINKS:
            os.link(folder / f"{number - number % LINKS:06}.jpg", path)
        else:
            path.write_bytes(file.getvalue())


def write_set(root: Path, name: str, count: int) -> None:
    root.mkdir()
    write_images(root / {"supervisely": "img", "voc": "JPEGImages"}.get(name, "images"), count)
    WRITERS[name](root, ((f"{number:06}", boxes_of(number)) for number in range(count)))


def measure(name: str, count: int, folder: Path) -> tuple[float, float, float, int, str]:
    """Return seconds of CPU time and by the clock, MB of memory, the number of objects, and the JSON file's digest."""
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        root = Path(temporary) / "set"
        # In a process of its own: ru_maxrss of a process begins with the memory of the one that starts it.
        subprocess.run(
            [sys.executable, __file__, "--write", root, "--formats", name, "--images", str(count)], check=True
        )
        command = [sys.executable, "-c", CHILD, root, Path(temporary) / "out.json", name.split("/")[0]]
        found = subprocess.run(command, capture_output=True, text=True)
        if found.returncode:
            raise SystemExit(f"{name}: {found.stderr}")
        cpu, clock, memory, objects, digest = json.loads(found.stdout)
        return cpu, clock, memory, objects, digest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--formats", nargs="+", choices=WRITERS, default=[*WRITERS])
    parser.add_argument("--images", nargs="+", type=int, default=[1_000, 10_000])
    parser.add_argument("--folder", type=Path, help="where the datasets are written; default: the temporary folder")
    parser.add_argument("--write", type=Path, metavar="ROOT", help="only write a dataset; for the script itself")
    given = parser.parse_args()
    if given.write:
        write_set(given.write, given.formats[0], given.images[0])
        return
    heads = (
        f"{'format':<14}{'images':>9}{'objects':>10}{'objects/s':>11}{'seconds':>9}{'MB':>8}{'bytes/image':>13}  JSON"
    )
    print(heads, flush=True)
    for name in given.formats:
        growth, before = "", (0, 0.0)
        for count in given.images:
            cpu, clock, memory, objects, digest = measure(name, count, given.folder)
            if before[0]:
                growth = f"{(memory - before[1]) * 2**20 / (count - before[0]):,.0f}"
            before = count, memory
            line = f"{name:<14}{count:>9,}{objects:>10,}{objects / cpu:>11,.0f}{clock:>9.1f}{memory:>8.0f}{growth:>13}"
            print(f"{line:<74}  {digest}", flush=True)


if __name__ == "__main__":
    main()
