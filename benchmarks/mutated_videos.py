"""Read the frames of damaged videos of many formats, check their JSON file, and take epochs: nothing may die or hang.

    python benchmarks/mutated_videos.py [--videos 1000] [--first 0] [--piece 50] [--seed 0] [--keep FOLDER]

Makes small MP4, MKV, WebM, AVI, MOV and MPEG files of eight codecs, some with sound, and changes each in one to three
ways: those of mutated_images.py, and in the headers other numbers, bytes, and parts at other places. Each piece runs in
a process of its own, with 12 GB of address space at most: da.VideoReader of the folder, an epoch in order and one in
random order, `detaug check` of a CocoVID JSON file with the frames that the reader found, and an epoch of that JSON,
all on the CPU with on_error="skip". Prints for each piece how it ended, and the findings. If a process dies, raises
an error or takes too long, each video of its piece is tried again, alone, and those that cause it are named, and copied
to `--keep`; the exit code is 1. A mutation depends on its number, the seed, and what FFmpeg's encoders wrote.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from mutated_images import NUMBERS, WAYS, Rng, pieces

import detaug as da
from detaug.converters import check_coco

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/helpers"))
from numbered_videos import CODECS, write_video

SECONDS, SECONDS_ALONE = 600, 60
"""For a piece, and for one video; 10 and 3 are usual."""
ADDRESS_SPACE = 12 << 30
FRAMES = 24
RECIPE = [da.Resize((32, 48)), da.Normalize()]


# ---------------------------------------------------------------------------------------------- mutations


def write_originals(folder: Path) -> None:
    """Write an intact video of each kind."""
    os.environ["SVT_LOG"] = "1"  # errors only
    for name, codec in CODECS.items():
        write_video(folder / name, FRAMES, codec, keys=6)
    write_video(folder / "sound.mp4", FRAMES, keys=6, sound=True)
    write_video(folder / "rates.mkv", stamps=np.cumsum(np.arange(FRAMES) % 5 * 10 + 10).tolist())


def mutated(content: bytes, extension: str, rng: Rng) -> bytes:
    """Return a video changed in one to three ways."""
    data = bytearray(content)
    ways = [*WAYS, *((_box_number, _box_flip, _box_moved) * 2 if extension in (".mp4", ".mov") else (_header,))]
    for _ in range(int(rng.choice([1, 2, 3], p=[0.6, 0.25, 0.15]))):
        ways[int(rng.integers(len(ways)))](data, rng)
    return bytes(data)


def _moov(data: bytearray) -> slice:
    """Return where the header of an MP4 is; all of it, where there is none."""
    at = data.find(b"moov")
    return slice(at + 4, at - 4 + int.from_bytes(data[at - 4 : at], "big")) if at >= 4 else slice(0, len(data))


def _place(data: bytearray, rng: Rng) -> int:
    part = _moov(data)
    return int(rng.integers(part.start, max(part.start + 1, min(part.stop, len(data)))))


def _box_number(data: bytearray, rng: Rng) -> None:
    """Write a number that is often at a limit over four bytes of a header: a length, a count, a size, a time."""
    at = _place(data, rng)
    data[at : at + 4] = NUMBERS[int(rng.integers(len(NUMBERS)))].to_bytes(4, "big")


def _box_flip(data: bytearray, rng: Rng) -> None:
    for _ in range(int(rng.integers(1, 8))):
        if (at := _place(data, rng)) < len(data):
            data[at] ^= 1 << int(rng.integers(8))


def _box_moved(data: bytearray, rng: Rng) -> None:
    """Write the bytes of a part of the header to another place of it."""
    source, target = _place(data, rng), _place(data, rng)
    part = data[source : source + int(rng.integers(4, 64))]
    data[target : target + len(part)] = part


def _header(data: bytearray, rng: Rng) -> None:
    """Change a byte of the first 600, where Matroska, AVI and MPEG have sizes, rates and codecs."""
    at = int(rng.integers(max(1, min(len(data), 600))))
    data[at : at + 1] = bytes([int(rng.integers(256))])


# ---------------------------------------------------------------------------------------------- a run


def write_videos(originals: Path, folder: Path, first: int, count: int, seed: int) -> None:
    """Write mutations first, first + 1, ..."""
    sources = sorted(originals.iterdir())
    for number in range(first, first + count):
        source, rng = sources[number % len(sources)], np.random.default_rng((seed, number))
        content = mutated(source.read_bytes(), source.suffix, rng)
        (folder / f"{number:06}{source.suffix}").write_bytes(content)


def write_json(reader: da.VideoReader, path: Path) -> None:
    """Write a CocoVID JSON file of the first frames of each video, with a box in each."""
    videos, images = [], []
    for at, file in enumerate(reader.video_files):
        videos.append({"id": at + 1, "file_name": Path(file).name})
        rows = np.flatnonzero(reader.frames.video_ids == at + 1)[:4]
        for row in rows.tolist():
            height, width = reader.sizes[row].tolist()
            place = {"video_id": at + 1, "frame_id": int(reader.frames.frame_ids[row])}
            images.append({"id": row + 1, "file_name": f"{row}", "height": height, "width": width, **place})
    boxes = [{"id": each["id"], "image_id": each["id"], "category_id": 1, "bbox": [0, 0, 1, 1]} for each in images]
    categories = [{"id": 1, "name": "thing"}]
    path.write_text(json.dumps({"videos": videos, "images": images, "annotations": boxes, "categories": categories}))


def epoch(reader: da.VideoReader, **options: Any) -> tuple[int, int]:
    """Return the number of clips that came, and of clips that were skipped."""
    loader: da.Loader[da.ClipBatch]
    with da.Loader(reader, RECIPE, 4, device="cpu", on_error="skip", max_skipped=1.0, **options) as loader:
        try:
            return sum(map(len, loader)), len(loader.skipped)
        except da.DataError as error:
            if "no image is left" not in str(error):
                raise
            return 0, len(loader.skipped)


def run_piece(folder: Path, seed: int) -> None:
    """Read the videos of a folder, check the JSON file of their frames, and print the findings."""
    try:
        reader = da.VideoReader(folder, frames=4, last="pad", cache=False)
    except da.InputError as error:
        print(f"no video can be used: {error}", flush=True)
        return
    whole = len(reader.video_files) - len(np.unique(reader.frames.video_ids[reader.missing]))
    clips, skipped = epoch(reader, train=False)
    print(f"{whole} of {len(reader.video_files)} videos have an index; {clips} clips, {skipped} skipped", flush=True)
    epoch(da.VideoReader(folder, frames=3, stride=5, step=2, last="shift", cache=False), seed=seed)
    write_json(reader, path := folder.with_name("videos.json"))
    summary = check_coco(path, folder)
    clips, skipped = epoch(da.VideoReader(folder, annotations=path, frames=2, last="pad", cache=False), train=False)
    print(
        f"check: {summary.kind_counts or 'no findings'}; {clips} clips of the JSON file, {skipped} skipped", flush=True
    )


def run_alone(originals: Path, first: int, count: int, seed: int, seconds: float) -> str:
    """Run a piece in a process of its own; return "" or what went wrong."""
    arguments = ["--first", first, "--videos", count, "--seed", seed, "--piece-of", originals]
    command = [sys.executable, __file__, *map(str, arguments)]
    try:
        run = subprocess.run(command, timeout=seconds, check=False, capture_output=True, text=True, errors="replace")
    except subprocess.TimeoutExpired:
        return f"takes more than {seconds} s"
    print(run.stdout if count > 1 else "", end="")
    last = run.stderr.strip().rpartition("\n")[2]
    return f"exit code {run.returncode}: {last}" if run.returncode else ""


def blame(originals: Path, first: int, count: int, options: argparse.Namespace) -> None:
    """Try each video of a piece alone; print and keep those that end their process."""
    for number in range(first, first + count):
        if wrong := run_alone(originals, number, 1, options.seed, SECONDS_ALONE):
            kind = sorted(originals.iterdir())[number % len(list(originals.iterdir()))]
            print(f"video {number}, of {kind.name}: {wrong}", flush=True)
            if options.keep:
                options.keep.mkdir(parents=True, exist_ok=True)
                write_videos(originals, options.keep, number, 1, options.seed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--videos", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="the number of the first mutation")
    parser.add_argument("--piece", type=int, default=50, help="videos of one process")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="where to copy videos that end a process")
    parser.add_argument("--piece-of", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    with TemporaryDirectory() as name:
        folder = Path(name, "videos")
        folder.mkdir()
        if options.piece_of:
            resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
            warnings.simplefilter("ignore")  # each skipped video is one; they are counted
            write_videos(options.piece_of, folder, options.first, options.videos, options.seed)
            run_piece(folder, options.seed)
            return
        write_originals(folder)
        sys.exit(run_pieces(folder, options))


def run_pieces(originals: Path, options: argparse.Namespace) -> int:
    """Run all pieces; return the exit code."""
    failed = False
    for first, count in pieces(options.first, options.videos, options.piece):
        start = time.monotonic()
        wrong = run_alone(originals, first, count, options.seed, SECONDS)
        seconds = time.monotonic() - start
        print(f"videos {first} to {first + count - 1}: {wrong or 'ended well'}, {seconds:.0f} s", flush=True)
        if wrong:
            failed = True
            blame(originals, first, count, options)
    return int(failed)


if __name__ == "__main__":
    main()
