"""Measure convert-tfrecord and convert-webdataset: records a second, the share of the disk's reading speed, memory.

    python benchmarks/convert_shards.py --folder /data/scratch

Writes shards of 100,000 JPEGs of 51 kB with five boxes each into the folder, once as TFRecord with the features of
TensorFlow's Object Detection API and once as WebDataset with json, and converts them with a process for each core: with
the files out of the page cache ("cold") and in it ("warm", as far as memory allows). Each conversion is a new process.
The disk's reading speed is that of reading the same shards from beginning to end, 8 MiB at a time, right before, cold
or warm as well. Memory is the peak of the converting process plus, for each process that it starts, the largest peak
among these. The positions in the json are checked: the bytes there must be the image's. The first line is the speed of
a loop of Python, so that numbers of a busy machine can be told.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import resource
import shutil
import struct
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

BOXES = 5
WIDTH, HEIGHT = 500, 375


def jpeg(filler: bytes, number: int, size: int) -> bytes:
    """Return a JPEG of so many bytes, different for each number: what follows its end marker is noise."""
    head = _HEAD[:2] + b"\xff\xfe\x00\x0a" + struct.pack("<Q", number) + _HEAD[2:]
    start = number * 7919 % (len(filler) - size)
    return head + filler[start : start + size - len(head)]


def _flat_jpeg() -> bytes:
    from PIL import Image

    file = io.BytesIO()
    Image.new("RGB", (WIDTH, HEIGHT), (90, 120, 60)).save(file, "JPEG")
    return file.getvalue()


_HEAD = _flat_jpeg()


def draw_boxes(draw: random.Random) -> list[tuple[float, float, float, float]]:
    """Return boxes, XYXY in pixels."""
    lefts = [(draw.randint(0, WIDTH - 60), draw.randint(0, HEIGHT - 60)) for _ in range(BOXES)]
    return [(x, y, x + draw.randint(10, 60), y + draw.randint(10, 60)) for x, y in lefts]


# ----------------------------------------------------------------------------------------------------------
# The shards


def tfrecord(key: str, image: bytes, boxes: list[tuple[float, float, float, float]]) -> bytes:
    from google_crc32c import value as crc32c

    columns = list(zip(*boxes, strict=True))
    features = {
        "image/encoded": _bytes([image]),
        "image/filename": _bytes([f"{key}.jpg".encode()]),
        "image/source_id": _bytes([key.encode()]),
        "image/format": _bytes([b"jpeg"]),
        "image/width": _ints([WIDTH]),
        "image/height": _ints([HEIGHT]),
        "image/object/class/text": _bytes([f"class {at}".encode() for at in range(BOXES)]),
        "image/object/class/label": _ints([*range(1, BOXES + 1)]),
        "image/object/difficult": _ints([0] * BOXES),
    }
    for name, column, side in zip(("xmin", "ymin", "xmax", "ymax"), columns, (WIDTH, HEIGHT) * 2, strict=True):
        values = struct.pack(f"<{BOXES}f", *(value / side for value in column))
        features[f"image/object/bbox/{name}"] = _message(2, _message(1, values))
    data = _message(1, b"".join(_message(1, _message(1, key.encode()) + _message(2, v)) for key, v in features.items()))
    head = struct.pack("<Q", len(data))

    def crc(content: bytes) -> bytes:
        found = crc32c(content)
        return struct.pack("<I", ((found >> 15 | found << 17) + 0xA282EAD8) & 0xFFFFFFFF)

    return head + crc(head) + data + crc(data)


def _message(number: int, content: bytes) -> bytes:
    length, digits = len(content), []
    while length > 127:
        digits.append(length & 127 | 128)
        length >>= 7
    return bytes([number << 3 | 2, *digits, length]) + content


def _bytes(values: list[bytes]) -> bytes:
    return _message(1, b"".join(_message(1, value) for value in values))


def _ints(values: list[int]) -> bytes:
    """Encode integers below 16,384."""
    return _message(3, _message(1, b"".join(bytes([v]) if v < 128 else bytes([v & 127 | 128, v >> 7]) for v in values)))


def tar_members(key: str, image: bytes, boxes: list[tuple[float, float, float, float]]) -> bytes:
    rows = [{"bbox": [x, y, r - x, b - y], "category": f"class {at}"} for at, (x, y, r, b) in enumerate(boxes)]
    text = json.dumps({"annotations": rows}).encode()
    return b"".join(map(_member, (f"{key}.jpg", f"{key}.json"), (image, text)))


def _member(name: str, content: bytes) -> bytes:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    return info.tobuf(tarfile.USTAR_FORMAT) + content + bytes(-len(content) % 512)


WRITERS = {"tfrecord": (tfrecord, b""), "webdataset": (tar_members, bytes(1024))}


def write_shards(folder: Path, kind: str, records: int, shards: int, size: int) -> list[Path]:
    folder.mkdir(parents=True)
    encode, ending = WRITERS[kind]
    draw, filler = random.Random(0), random.Random(1).randbytes(1 << 22)
    paths = [folder / f"{at:05}.{'tar' if kind == 'webdataset' else kind}" for at in range(shards)]
    for at, path in enumerate(paths):
        with open(path, "wb") as file:
            for number in range(at, records, shards):
                file.write(encode(f"{number:06}", jpeg(filler, number, size), draw_boxes(draw)))
            file.write(ending)
            file.flush()
            os.fsync(file.fileno())
    return paths


# ----------------------------------------------------------------------------------------------------------
# The measurement


def forget(paths: list[Path]) -> None:
    """Take files out of the page cache."""
    for path in paths:
        with open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read_all(paths: list[Path]) -> float:
    """Return the seconds that reading all bytes takes."""
    buffer, start = bytearray(8 << 20), time.perf_counter()
    for path in paths:
        with open(path, "rb", buffering=0) as file:
            while file.readinto(buffer):
                pass
    return time.perf_counter() - start


def convert(kind: str, paths: list[str], output: str, jobs: int) -> None:
    """Convert, and print the seconds and the peak of memory in MB; runs in a process of its own."""
    from detaug.converters import tfrecord_to_coco, webdataset_to_coco

    start = time.perf_counter()
    {"tfrecord": tfrecord_to_coco, "webdataset": webdataset_to_coco}[kind](paths, output, jobs=jobs)
    seconds = time.perf_counter() - start
    status = Path("/proc/self/status").read_text().split()
    own = int(status[status.index("VmHWM:") + 1])  # ru_maxrss begins with the peak of the process that started this one
    child = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    children = min(jobs, len(paths)) if jobs > 1 and len(paths) > 1 else 0
    print(seconds, (own + children * child) / 1024)


def measure(kind: str, paths: list[Path], output: Path, jobs: int) -> tuple[float, float]:
    command = [sys.executable, __file__, "--run", kind, "--jobs", str(jobs), "--output", output, *paths]
    result = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if result.returncode:
        raise SystemExit(result.stderr[-2000:])
    seconds, memory = map(float, result.stdout.split())
    return seconds, memory


def check_positions(output: Path, folder: Path, records: int, size: int) -> None:
    """Compare the bytes at the position of 1,000 images with the image's."""
    filler = random.Random(1).randbytes(1 << 22)
    images = json.loads(output.read_bytes())["images"]
    assert len(images) == records
    for image in random.Random(2).sample(images, min(1000, records)):
        with open(folder / image["shard"], "rb") as file:
            file.seek(image["offset"])
            number = int(image["file_name"].partition(".")[0])
            assert file.read(image["length"]) == jpeg(filler, number, size), image


def rows(options: argparse.Namespace, kind: str, folder: Path) -> Iterator[str]:
    paths = write_shards(folder, kind, options.records, options.shards, options.bytes)
    total, cores = sum(path.stat().st_size for path in paths), len(os.sched_getaffinity(0))
    for name, jobs in (("cold", cores), ("warm", cores)):
        forget(paths) if name == "cold" else read_all(paths)
        disk = read_all(paths)
        if name == "cold":
            forget(paths)
        seconds, memory = measure(kind, paths, folder / "out.json", jobs)
        check_positions(folder / "out.json", folder, options.records, options.bytes)
        yield (
            f"| {kind}, {name}, {jobs} processes | {options.records / seconds:,.0f} | {total / seconds / 1e6:,.0f} | "
            f"{total / disk / 1e6:,.0f} | {disk / seconds:.2f} | {memory:,.0f} |"
        )


def python_speed() -> float:
    """Return the millions of steps a second of an empty loop in one process: about 50 on an idle core."""
    start = time.perf_counter()
    for _ in range(20_000_000):
        pass
    return 20 / (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="where to write the shards, 5 GB at a time")
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--shards", type=int, default=20)
    parser.add_argument("--bytes", type=int, default=51_000, help="of an image")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    parser.add_argument("--jobs", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--output", help=argparse.SUPPRESS)
    parser.add_argument("paths", nargs="*", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        convert(options.run, options.paths, options.output, options.jobs)
        return
    if options.folder is None:
        parser.error("--folder is needed")
    print(f"{options.records:,} records of {options.bytes:,} bytes in {options.shards} shards\n")
    print(f"a loop of Python: {python_speed():.0f} million steps/s\n")
    print("| run | records/s | MB/s | reading, MB/s | share of reading | peak memory, MB |\n|---|---|---|---|---|---|")
    for kind in WRITERS:
        folder = options.folder / f"convert_shards_{kind}"
        try:
            for row in rows(options, kind, folder):
                print(row, flush=True)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
