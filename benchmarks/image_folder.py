"""An image folder as 640 x 640 float32 batches: `da.ImageFolder` with 8 threads, OpenCV in a DataLoader of 8 processes.

    python benchmarks/image_folder.py [--count 21453] [--batch-size 32] [--rounds 3] [--device cuda] [--folder FOLDER]

Generates JPEGs of 500 x 375 to 640 x 640 in FOLDER, if it does not have them, and times whole epochs, interleaved:
shuffled, a partial last batch, pixels in 0..1 on the device, workers warm from an epoch before. The DALI toolkit that
this project grew out of took 6.2 s for 21,453 such images on a V100, 16 times OpenCV's rate. Without OpenCV
(`pip install opencv-python-headless`) only detaug is timed.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

import detaug as da

THREADS, SIZE, CLASSES = 8, (640, 640), 20
SMALLEST, LARGEST = (375, 500), (640, 640)

Epoch = Callable[[], int]


def generate(folder: Path, count: int, drawn: int = 64) -> None:
    """Write JPEGs into class folders: `drawn` different pictures, each of them several times."""
    rng = np.random.default_rng(0)
    for at in range(count):
        path = folder / f"class{at % CLASSES:02}" / f"{at:06}.jpg"
        if path.exists():
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        if at < drawn:
            picture(rng).save(path, quality=90)
        else:
            path.write_bytes((folder / f"class{at % drawn % CLASSES:02}" / f"{at % drawn:06}.jpg").read_bytes())


def picture(rng: np.random.Generator) -> Image.Image:
    """Return a smooth picture with some grain, whose file is about as large as a photograph's."""
    height, width = (int(rng.integers(low, high + 1)) for low, high in zip(SMALLEST, LARGEST, strict=True))
    coarse = Image.fromarray(rng.integers(0, 256, (25, 33, 3), np.uint8))
    smooth = np.asarray(coarse.resize((width, height), Image.Resampling.BICUBIC))
    return Image.fromarray((smooth + rng.normal(0, 6, (height, width, 1))).clip(0, 255).astype(np.uint8))


def with_detaug(folder: Path, batch_size: int, device: str) -> Epoch:
    loader = da.Loader(
        da.ImageFolder(folder), [da.Resize(SIZE), da.Normalize()], batch_size, last_batch="partial", device=device,
        pipelines=THREADS // 2, threads=2,
    )  # fmt: skip
    return lambda: sum(len(batch.classes) for batch in loader if batch.classes is not None)


class Images(Dataset[tuple[torch.Tensor, int]]):
    """The images of a source, by OpenCV."""

    def __init__(self, source: da.ImageFolder) -> None:
        assert source.classes is not None
        self.paths, self.classes = [str(source.path(at)) for at in range(len(source))], source.classes.tolist()

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        import cv2

        cv2.setNumThreads(0)
        image = cv2.resize(cv2.cvtColor(cv2.imread(self.paths[index]), cv2.COLOR_BGR2RGB), SIZE[::-1])
        return torch.from_numpy(image).permute(2, 0, 1).float() / 255, self.classes[index]


def with_opencv(folder: Path, batch_size: int, device: str) -> Epoch:
    loader = DataLoader(
        Images(da.ImageFolder(folder)), batch_size, shuffle=True, num_workers=THREADS, persistent_workers=True,
        pin_memory=device == "cuda",
    )  # fmt: skip
    return lambda: sum(len(images.to(device, non_blocking=True)) for images, _ in loader)


def seconds(epoch: Epoch, count: int) -> float:
    start = time.perf_counter()
    images = epoch()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    assert images == count, f"an epoch had {images} of {count} images"
    return time.perf_counter() - start


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=21_453)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--folder", type=Path, help="default: image_folder_COUNT in the working folder")
    return parser.parse_args()


def main() -> None:
    options = parse_options()
    folder = options.folder or Path(f"image_folder_{options.count}")
    generate(folder, options.count)
    if options.device == "cpu":
        da.keep_freed_memory()
    for what in ("first start", "second start"):
        start = time.perf_counter()
        da.ImageFolder(folder)
        print(f"{what} of ImageFolder: {time.perf_counter() - start:.2f} s")
    makers = {"detaug": with_detaug} | ({"OpenCV": with_opencv} if find_spec("cv2") else {})
    epochs = {name: make(folder, options.batch_size, options.device) for name, make in makers.items()}
    for epoch in epochs.values():
        seconds(epoch, options.count)
    rounds = [{name: seconds(epoch, options.count) for name, epoch in epochs.items()} for _ in range(options.rounds)]
    for name in epochs:
        times = [each[name] for each in rounds]
        print(
            f"{name}: {options.count} images in {statistics.median(times):.2f} s ({min(times):.2f}..{max(times):.2f})"
        )
    if "OpenCV" in epochs:
        print(f"OpenCV / detaug: {statistics.median(each['OpenCV'] / each['detaug'] for each in rounds):.2f}")


if __name__ == "__main__":
    main()
