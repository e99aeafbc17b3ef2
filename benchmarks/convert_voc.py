"""Convert Pascal VOC to COCO JSON with five programs, interleaved on one machine.

    python benchmarks/convert_voc.py

Draws 5,000 XML files with about 36,000 boxes and JPEGs of 500 x 375 pixels into a temporary folder, installs globox,
Datumaro and supervision in a virtual environment there, and prints the seconds of each:

plain loop       lxml and json.dump, 25 lines, nothing checked, no image opened: the floor for one process
detaug           voc_to_coco: image headers read, every check on, the file synced to the disk
globox, Datumaro, supervision     as their manuals say; supervision decodes every image

Each conversion runs in a new process, which times it without imports and start. The programs take turns, so that a
slow minute of the machine affects all of them. The boxes in the results are counted to check that each did the work.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable
from pathlib import Path

PACKAGES = ("globox==2.9.0", "datumaro==1.13.12", "supervision==0.31.2", "lxml", "pillow")
CLASSES = ("aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow")
WIDTH, HEIGHT = 500, 375


# ----------------------------------------------------------------------------------------------------------
# The programs: (root of the dataset, JSON to write)


def plain_loop(root: Path, output: Path) -> None:
    from lxml import etree

    images, annotations, ids = [], [], {}
    for image_id, path in enumerate(sorted((root / "Annotations").iterdir()), 1):
        xml = etree.parse(str(path)).getroot()
        width, height = int(xml.findtext("size/width")), int(xml.findtext("size/height"))
        images.append({"id": image_id, "file_name": xml.findtext("filename"), "width": width, "height": height})
        for item in xml.iter("object"):
            xmin, ymin, xmax, ymax = (float(item.findtext(f"bndbox/{corner}")) for corner in CORNERS)
            category_id = ids.setdefault(item.findtext("name"), len(ids) + 1)
            box = [xmin - 1, ymin - 1, xmax - xmin + 1, ymax - ymin + 1]
            row = {"id": len(annotations) + 1, "image_id": image_id, "category_id": category_id, "bbox": box}
            annotations.append(row | {"area": box[2] * box[3], "iscrowd": 0})
    categories = [{"id": number, "name": name} for name, number in ids.items()]
    with open(output, "w", encoding="utf-8") as file:
        json.dump({"images": images, "annotations": annotations, "categories": categories}, file)


CORNERS = ("xmin", "ymin", "xmax", "ymax")


def detaug(root: Path, output: Path, jobs: int = 1) -> None:
    from detaug.converters import voc_to_coco

    voc_to_coco(root, output, jobs=jobs)


def detaug_2(root: Path, output: Path) -> None:
    detaug(root, output, jobs=2)


def globox(root: Path, output: Path) -> None:
    from globox import AnnotationSet

    AnnotationSet.from_pascal_voc(root / "Annotations").save_coco(output, auto_ids=True)


def datumaro(root: Path, output: Path) -> None:
    from datumaro.components.dataset import Dataset

    folder = output.with_suffix("")
    Dataset.import_from(str(root), "voc_detection").export(str(folder), "coco_instances", save_media=False)
    next(folder.glob("annotations/*.json")).replace(output)


def supervision(root: Path, output: Path) -> None:
    import supervision as sv

    data = sv.DetectionDataset.from_pascal_voc(str(root / "JPEGImages"), str(root / "Annotations"))
    data.as_coco(annotations_path=str(output))


PROGRAMS: dict[str, Callable[[Path, Path], None]] = {
    "plain loop": plain_loop,
    "detaug": detaug,
    "detaug --jobs 2": detaug_2,
    "globox": globox,
    "Datumaro": datumaro,
    "supervision": supervision,
}
IMPORTS = {"plain loop": "lxml.etree", "globox": "globox", "Datumaro": "datumaro", "supervision": "supervision"}


# ----------------------------------------------------------------------------------------------------------
# The dataset


def draw_data_set(root: Path, count: int) -> int:
    """Write the dataset; return the number of its boxes."""
    draw, boxes = random.Random(0), 0
    for name in ("Annotations", "JPEGImages", "ImageSets/Main"):
        (root / name).mkdir(parents=True)
    jpeg = flat_jpeg()
    for number in range(count):
        stem, objects = f"{number:06}", draw.randint(1, 13) + (number % 5 == 0)
        boxes += objects
        text = "".join(object_xml(draw) for _ in range(objects))
        (root / f"Annotations/{stem}.xml").write_text(annotation_xml(stem, text))
        comment = b"\xff\xfe\x00\x08" + stem.encode()  # so that no two files have the same bytes
        (root / f"JPEGImages/{stem}.jpg").write_bytes(jpeg[:2] + comment + jpeg[2:])
    (root / "ImageSets/Main/train.txt").write_text("".join(f"{number:06}\n" for number in range(count)))
    return boxes


def flat_jpeg() -> bytes:
    from PIL import Image

    file = io.BytesIO()
    Image.new("RGB", (WIDTH, HEIGHT), (90, 120, 60)).save(file, "JPEG")
    return file.getvalue()


def object_xml(draw: random.Random) -> str:
    xmin, ymin = draw.randint(1, WIDTH - 20), draw.randint(1, HEIGHT - 20)
    xmax, ymax = draw.randint(xmin + 10, WIDTH), draw.randint(ymin + 10, HEIGHT)
    return (
        f"\t<object>\n\t\t<name>{draw.choice(CLASSES)}</name>\n\t\t<pose>Unspecified</pose>\n"
        f"\t\t<truncated>{draw.randint(0, 1)}</truncated>\n\t\t<difficult>0</difficult>\n\t\t<bndbox>\n"
        f"\t\t\t<xmin>{xmin}</xmin>\n\t\t\t<ymin>{ymin}</ymin>\n\t\t\t<xmax>{xmax}</xmax>\n"
        f"\t\t\t<ymax>{ymax}</ymax>\n\t\t</bndbox>\n\t</object>\n"
    )


def annotation_xml(stem: str, objects: str) -> str:
    return (
        f"<annotation>\n\t<folder>VOC</folder>\n\t<filename>{stem}.jpg</filename>\n\t<size>\n"
        f"\t\t<width>{WIDTH}</width>\n\t\t<height>{HEIGHT}</height>\n\t\t<depth>3</depth>\n\t</size>\n"
        f"\t<segmented>0</segmented>\n{objects}</annotation>\n"
    )


# ----------------------------------------------------------------------------------------------------------
# The measurement


def run_one(name: str, root: Path, output: Path) -> None:
    """Import, convert, and print the seconds of the conversion, in a process of its own."""
    __import__(IMPORTS.get(name, "detaug.converters"))
    start = time.perf_counter()
    PROGRAMS[name](root, output)
    print(time.perf_counter() - start)


def make_environment(folder: Path) -> Path:
    """Make a virtual environment with the other programs; return its Python."""
    venv.create(folder, with_pip=True)
    python = folder / "bin/python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
    return python


def measure(name: str, python: Path, folder: Path, boxes: int) -> float:
    output = folder / "out.json"
    command = [python, __file__, "--run", name, "--folder", folder]
    environment = os.environ | {"PYTHONWARNINGS": "ignore"}
    result = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if result.returncode:
        raise SystemExit(f"{name} failed:\n{result.stderr[-2000:]}")
    found = len(json.loads(output.read_bytes())["annotations"])
    if found != boxes:
        raise SystemExit(f"{name} wrote {found:,} of {boxes:,} boxes")
    output.unlink()
    return float(result.stdout.splitlines()[-1])


def print_table(seconds: dict[str, list[float]], count: int) -> None:
    base = statistics.median(seconds["detaug"])
    print("| program | best, s | median, s | images per second | times detaug's time |\n|---|---|---|---|---|")
    for name, times in seconds.items():
        median = statistics.median(times)
        print(f"| {name} | {min(times):.2f} | {median:.2f} | {count / median:,.0f} | {median / base:.2f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=5000, help="how many to draw")
    parser.add_argument("--rounds", type=int, default=5, help="conversions with each program")
    parser.add_argument("--python", type=Path, help="of an environment that has the other programs already")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        run_one(options.run, options.folder / "VOC", options.folder / "out.json")
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        others = options.python or make_environment(folder / "environment")
        boxes = draw_data_set(folder / "VOC", options.images)
        print(f"{options.images:,} images, {boxes:,} boxes, {len(os.sched_getaffinity(0))} cores\n")
        seconds: dict[str, list[float]] = {program: [] for program in PROGRAMS}
        for _ in range(options.rounds):
            for program in PROGRAMS:
                python = Path(sys.executable) if program.startswith("detaug") else others
                seconds[program].append(measure(program, python, folder, boxes))
        print_table(seconds, options.images)


if __name__ == "__main__":
    main()
