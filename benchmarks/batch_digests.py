"""Print a digest of the batches that the loader makes of presets and further recipes.

    python benchmarks/batch_digests.py --device cpu -o before.json
    python benchmarks/batch_digests.py --device cpu --compare before.json

The same seeds must give the same batches, bit for bit: run it before and after a change of the loader, on one machine,
and compare. It imports public names only, so that it runs with any version.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from inspect import signature
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

import detaug as da

BATCHES = 10
RENAMED = {"valid": "mask", "source_size": "size"}
"""Fields of `Batch` that earlier versions call otherwise."""
SIZES = ((240, 320), (320, 240), (375, 500), (300, 300))


def write_images(folder: Path, images: int = 61, seed: int = 0) -> da.CocoReader:
    """Write smooth random JPEGs and a JSON file with up to six boxes per image."""
    rng = np.random.default_rng(seed)
    content: dict[str, list[dict[str, Any]]] = {"images": [], "annotations": [], "categories": []}
    content["categories"] = [{"id": 7 * label, "name": f"class {label}"} for label in (1, 2, 3)]
    for number in range(1, images + 1):
        height, width = SIZES[number % len(SIZES)]
        small = rng.integers(0, 256, (height // 20, width // 20, 3), dtype=np.uint8)
        Image.fromarray(small).resize((width, height)).save(folder / f"{number}.jpg", quality=90)
        content["images"].append({"id": number, "file_name": f"{number}.jpg", "width": width, "height": height})
        for _ in range(rng.integers(0, 7)):
            w, h = rng.uniform(5, width / 2), rng.uniform(5, height / 2)
            box = [rng.uniform(0, width - w), rng.uniform(0, height - h), w, h]
            row = {"image_id": number, "category_id": 7 * int(rng.integers(1, 4)), "bbox": box, "area": w * h}
            content["annotations"].append(row | {"id": len(content["annotations"]) + 1, "iscrowd": 0})
    (folder / "train.json").write_text(json.dumps(content), encoding="utf-8")
    return da.CocoReader(folder, folder / "train.json")


def write_clips(reader: da.CocoReader) -> da.ClipReader:
    """Write a JSON file in which images of one size are the frames of a video, and return its clips."""
    path = Path(reader.annotations_file)
    content = json.loads(path.read_text(encoding="utf-8"))
    content["videos"] = [{"id": at + 1, "name": f"video {at}", "fps": 25} for at in range(len(SIZES))]
    for at, image in enumerate(content["images"], 1):
        image |= {"video_id": at % len(SIZES) + 1, "frame_id": at // len(SIZES)}
    places: dict[int, int] = {}
    for each in content["annotations"]:
        places[each["image_id"]] = each["track_id"] = places.get(each["image_id"], 0) + 1
    path.with_name("clips.json").write_text(json.dumps(content), encoding="utf-8")
    return da.ClipReader(path.parent, path.with_name("clips.json"), frames=3, stride=2)


def digest(batches: Iterator[da.Batch]) -> str:
    """Return one hash of images, boxes, labels and all that a batch says of its images."""
    total = hashlib.sha256()
    for batch in batches:
        renamed = [getattr(batch, new if hasattr(batch, new) else old) for new, old in RENAMED.items()]
        tensors = (batch.images, batch.boxes, batch.labels, renamed[0], batch.image_id, renamed[1])
        for tensor in (*tensors, batch.image_size, batch.matrix):
            total.update(str((tuple(tensor.shape), tensor.dtype)).encode())
            total.update(tensor.cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
        for drawn in batch.params or ():
            total.update(b"".join(sorted(np.ascontiguousarray(values).tobytes() for values in drawn.values())))
    return total.hexdigest()[:16]


def several_epochs(loader: da.Loader) -> Iterator[da.Batch]:
    """Yield batches of this epoch and of the next ones."""
    while True:
        yield from loader


def resumed(loader: da.Loader, again: da.Loader) -> Iterator[da.Batch]:
    """Yield four batches of one loader, and the rest of another that was given its state."""
    yield from islice(loader, 4)
    again.load_state_dict(loader.state_dict())
    yield from several_epochs(again)


def recipes() -> dict[str, list[da.Op]]:
    """Return the presets, and recipes that take the other ways through the loader."""
    flip, resize, normalize = da.RandomHorizontalFlip(), da.Resize((160, 160)), da.Normalize()
    layout = "memory_format" if "memory_format" in signature(da.Normalize).parameters else "layout"
    last = da.Normalize(**{layout: "channels_last"})
    colors = [da.ColorJitter(0.2, 0.2, 0.2, 0.1), da.GaussianBlur(5)]
    return {
        "ssd300": da.presets.ssd300(),
        "retinanet": da.presets.retinanet(),
        "yolo640": da.presets.yolo640(),
        "evaluation": da.presets.evaluation((300, 300)),
        "mixing": [flip, resize, da.MixUp(), da.CutMix(), da.CopyPaste(), normalize],
        "mixing twice": [flip, resize, da.Mosaic(p=0.7), da.Mosaic(), da.RandomErasing(p=1), da.MixUp(), normalize],
        "affine and mosaic": [da.RandomAffine(10), da.RandomPerspective(p=0.3), resize, da.Mosaic(), da.CopyPaste()],
        "affine": [da.RandomAffine(10, translate=(0.1, 0.1), scale=(0.8, 1.2)), resize, normalize],
        "perspective": [da.RandomPerspective(), da.RandomIoUCrop(), resize, da.SanitizeBoundingBoxes()],
        "auto_augment": [da.RandAugment(), resize, normalize],
        "containers": [da.RandomChoice([flip, da.RandomZoomOut()]), resize, da.RandomApply(colors), normalize],
        "erasing": [flip, resize, da.RandomErasing(), da.GridMask(), da.RandomPosterize(4)],
        "multi_scale": [flip, da.RandomShortestSize((128, 160, 192), 256), da.RandomHSV(), normalize],
        "channels_last": [da.Resize(160, max_size=256), da.RandomPhotometricDistort(), last],
    }


def cases(reader: da.CocoReader, broken: da.CocoReader, device: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield a name and a function that makes batches."""

    def loader(ops: list[da.Op], which: da.CocoReader = reader, **options: Any) -> da.Loader:
        return da.Loader(which, ops, 8, device=device, seed=3, return_params=True, **options)

    every = recipes()
    for name, ops in every.items():
        yield name, lambda ops=ops, name=name: several_epochs(loader(ops, train=name != "evaluation"))
    for name in ("ssd300", "retinanet", "yolo640", "affine"):
        ops = every[name]
        yield f"{name} cache", lambda ops=ops: several_epochs(loader(ops, cache="device"))
        yield f"{name} shard 1 of 2", lambda ops=ops: several_epochs(loader(ops, shard=(1, 2)))
        yield f"{name} resume", lambda ops=ops: resumed(loader(ops), loader(ops, pipelines=1))
        skip: dict[str, Any] = {"which": broken, "on_error": "skip", "max_skipped": 1}
        yield f"{name} skip", lambda ops=ops, skip=skip: several_epochs(loader(ops, **skip))
        yield f"{name} skip, evaluation", lambda ops=ops, skip=skip: iter(loader(ops, train=False, **skip))
    moving = [da.RandomIoUCrop(), da.RandomRotation(5), every["erasing"][0], da.Resize((96, 128)), da.RandomErasing()]
    yield "clips", lambda: several_epochs(loader(moving, which=write_clips(reader)))
    samplers = {"sampler": da.RepeatFactorSampler(0.5), "aspect_ratio_grouping": True}
    yield "sampler and groups", lambda: several_epochs(loader(every["retinanet"], **samplers))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default=None, help="cpu, cuda or cuda:N")
    parser.add_argument("-o", "--output", type=Path, help="write the digests as JSON")
    parser.add_argument("--compare", type=Path, help="compare with digests that were written before")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        for name in ("good", "broken"):
            Path(folder, name).mkdir()
        reader, broken = (write_images(Path(folder, name)) for name in ("good", "broken"))
        for number in (5, 23, 24):
            Path(folder, "broken", f"{number}.jpg").write_bytes(b"no JPEG")
        found = {}
        for name, make in cases(reader, broken, options.device):
            found[name] = digest(islice(make(), BATCHES))
            print(found[name], name, flush=True)
    if options.output:
        options.output.write_text(json.dumps(found, indent=1), encoding="utf-8")
    if options.compare:
        before = json.loads(options.compare.read_text(encoding="utf-8"))
        other = [name for name in before if found.get(name) != before[name]]
        print(f"{len(before) - len(other)} of {len(before)} are equal", *other, sep="\n")
        sys.exit(bool(other))


if __name__ == "__main__":
    main()
