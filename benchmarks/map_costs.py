"""Measure what maps of classes and of depths cost: the call alone, and the loader with and without, interleaved.

    python benchmarks/map_costs.py --device cuda --cases ssd300:32 yolo640:32

On generated JPEGs of 500 x 375 and drawn maps of 12 classes with 18 runs in a row, as those of COCO have. "call" times
`Batch.map` on one batch of 32 images, in milliseconds, and "prepared" the part of it before anything goes to the
device. "read" is what a map takes that is in the cache on the disk, and in memory, in microseconds. The other rows are
images/s, with their ratio to the loader without maps, medians and ranges of the turns. Maps are decoded once before.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from compare_versions import SIZE, write_data
from map_cache import draw
from mask_costs import time_of
from PIL import Image
from point_costs import Way, compare

import detaug as da

KINDS = {"semantic": da.ClassMap("maps"), "depth": da.DepthMap("depth")}


@contextmanager
def dataset(images: int) -> Iterator[Path]:
    """Make the images and their maps, which are decoded into the cache."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for kind in ("maps", "depth"):
            (folder / kind).mkdir()
        write_data(folder, images)
        for number, path in enumerate(draw(folder / "maps", images, SIZE, 18)):
            path.rename(path.with_name(f"{number}.png"))
        depths = np.random.default_rng(0).integers(500, 60000, SIZE).astype(np.uint16)
        Image.fromarray(depths).save(folder / "depth/0.png")
        for number in range(1, images):
            (folder / f"depth/{number}.png").hardlink_to(folder / "depth/0.png")
        reader = reader_of(folder, "semantic")
        for index in range(images):
            reader.maps["semantic"].read(index)
        yield folder


def reader_of(folder: Path, *names: str) -> da.CocoReader:
    maps = {name: KINDS[name] for name in names}
    return da.CocoReader(folder, folder / "train.json", maps=maps)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="*", default=["ssd300:32"], metavar="PRESET:BATCH_SIZE")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--images", type=int, default=2000)
    options = parser.parse_args()
    with dataset(options.images) as folder:
        maps = reader_of(folder, "semantic").maps["semantic"]
        for where in ("disk", "memory"):
            start = time.perf_counter()
            kept = [maps.read(index) for index in range(options.images)]
            print(f"read from {where}: {1e6 * (time.perf_counter() - start) / len(kept):.1f} us", flush=True)
        for side in (640, 300):
            recipe = [da.RandomHorizontalFlip(), da.Resize((side, side))]
            with da.Loader(reader_of(folder, *KINDS), recipe, 32, device=options.device) as loader:
                batch = next(iter(loader))
                for name in KINDS:
                    time_of(lambda batch=batch, name=name: batch.map(name), options.device, 5)
                    milliseconds = [
                        time_of(lambda batch=batch, name=name, stride=stride: batch.map(name, stride), options.device)
                        for stride in (1, 4)
                    ]
                    prepared = time_of(lambda batch=batch, name=name: batch._shown_maps(name, as_places=False), "cpu")
                    shown = f"{milliseconds[0]:.3f} ms, stride 4 {milliseconds[1]:.3f}, prepared {prepared:.3f}"
                    print(f"call {name} {side}: {shown}", flush=True)
        for case in options.cases:
            recipe = getattr(da.presets, case.split(":")[0])()
            ways = {
                "without": Way(recipe, {}, lambda batch: batch.boxes),
                "map": Way(recipe, {"maps": {"semantic": KINDS["semantic"]}}, lambda batch: batch.maps["semantic"]),
                "map, stride 4": Way(
                    recipe, {"maps": {"semantic": KINDS["semantic"]}}, lambda batch: batch.map("semantic", 4)
                ),
                "not asked for": Way(recipe, {"maps": {"semantic": KINDS["semantic"]}}, lambda batch: batch.boxes),
            }
            compare(case, ways, lambda _: "without", folder, options)


if __name__ == "__main__":
    main()
