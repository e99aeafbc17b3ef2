"""`detaug demo`: the whole workflow on a drawn dataset: draw, convert, check, augment, show, train, predict."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import torch
from PIL import Image

from detaug import presets
from detaug.arguments import LARGEST_SEED, check, is_number, is_whole
from detaug.check.check import check_coco
from detaug.converters import mot_to_coco, voc_to_coco
from detaug.demo.detector import IMAGES, learn_by_heart
from detaug.demo.people import make_people
from detaug.demo.shapes import make_voc
from detaug.demo.ships import make_ships
from detaug.demo.videos import make_mot
from detaug.drawing import save_picture
from detaug.errors import InputError
from detaug.findings.finding import rate_text
from detaug.loading.devices import resolve_device
from detaug.loading.loader import Loader
from detaug.machine.cores import available_cores
from detaug.named_options import option
from detaug.ops.affine import RandomAffine
from detaug.ops.flips_and_crops import RandomHorizontalFlip
from detaug.ops.resize import Resize
from detaug.sheets import detections_sheet, draws_sheet
from detaug.sheets.recipe_sheets import MIN_SHOWN
from detaug.sources.coco_reader import CocoReader

MARK = ".made-by-detaug-demo"
"""A file in folders that `demo` made and may write again."""

BATCH_SIZE = 8

MOVED = [RandomHorizontalFlip(), RandomAffine(degrees=20, scale=(0.9, 1.3)), Resize((300, 300), letterbox="center")]
"""Of the image of masks, keypoints and rotated boxes."""

GO_ON = f"""\
import detaug as da
loader = da.Loader(da.CocoReader("VOC/JPEGImages", "train.json"), da.presets.ssd300(), batch_size={BATCH_SIZE})
for batch in loader:
    print(batch.images.shape, [len(target["boxes"]) for target in batch.targets()])
"""


@dataclass(frozen=True)
class Speed:
    """The images that a loader made, the seconds they took, and the epochs; after one epoch of warm-up."""

    images: int
    seconds: float
    epochs: int

    def __str__(self) -> str:
        rate = f"{rate_text(self.images / self.seconds)} images per second"
        epochs = f"{self.epochs} epoch{'s' * (self.epochs != 1)}"
        return f"{rate}: {self.images:,} in {self.seconds:.2f} s, {epochs}, after one to warm up"


def demo(
    out: str | os.PathLike[str] = "demo",
    *,
    device: torch.device | str | None = None,
    seed: int = 0,
    images: int = 60,
    seconds: float = 1.0,
    steps: int = 120,
    say: Callable[[str], None] = print,
) -> Path:
    """Make the folder `out` with a drawn VOC dataset (VOC), its train.json and sheet.png, and more; return it.

    masks.json is train.json with masks. People with keypoints (people, people.json) and ships with rotated boxes
    (ships, ships.json) are COCO datasets; shapes.png shows all three. Two videos are in MOTChallenge's layout (MOT),
    with clips.json. prediction.png shows what a small detector finds in the images that it has learned by heart.

    device: as `Loader` takes it. seed: of the images and of the draws. images: their number in VOC; a fifth of
    them is the split `val`. seconds: least time for measuring the loader's speed, at least one epoch. steps: of the
    detector's training. say: called with each line of the report.
    Raises InputError, before anything is written, if `out` exists and was not made by this function. If it was,
    its files are made again and others in it stay. The folder is written when all is done, or not at all.
    """
    check("seed", seed, is_whole(seed, 0, LARGEST_SEED), f"a whole number in 0..{LARGEST_SEED}")  # torch's range
    check("images", images, is_whole(images, 1), "an integer of at least 1; the demo has 60")
    check("seconds", seconds, is_number(seconds, 0), "a finite number of at least 0")
    check("steps", steps, is_whole(steps, 1), "an integer of at least 1")
    out, device = Path(out), resolve_device(device)
    target = Path(os.path.abspath(out))
    _check_out(target)
    with _new_folder(target) as folder:
        _draw_and_convert(folder, out, images, seed, say)
        _check(folder, out, say)
        reader = CocoReader(folder / "VOC/JPEGImages", folder / "train.json")
        loader = Loader(reader, presets.ssd300(), min(BATCH_SIZE, len(reader)), device=device, seed=seed)
        say(f"augment  presets.ssd300() on {_name(device)}, batches of {loader.batch_size} at 300 x 300")
        say(f"         {time_loader(loader, seconds)} (decode, augment, collate; no model)")
        rows = range(min(4, len(reader)))  # of different scenes
        sheet = draws_sheet(reader, presets.ssd300(), rows, seed=seed, title="presets.ssd300()", min_shown=MIN_SHOWN)
        save_picture(sheet, folder / "sheet.png")
        say(f"show     {out / 'sheet.png'}, sources with their boxes at the left, draws of the recipe beside them")
        _draw_shapes(folder, images, seed)
        say(f"         {out / 'shapes.png'}, masks, keypoints and rotated boxes: masks.json, people.json, ships.json")
        mot_to_coco(make_mot(folder / "MOT", seed=seed), folder / "clips.json")
        say(f"videos   {out / 'MOT'}, two with tracks, and {out / 'clips.json'} for da.ClipReader")
        say(f"train    a small detector, {steps} steps on {min(IMAGES, len(reader))} images")
        save_picture(detections_sheet(reader, learn_by_heart(reader, steps, device, seed)), folder / "prediction.png")
        say(f"predict  {out / 'prediction.png'}, what it finds in them, beside the annotated boxes")
    say(f"\nContinue in the folder {out}:\n\n{GO_ON}")
    return out


def time_loader(loader: Loader, seconds: float) -> Speed:
    """Iterate over one epoch to warm up, then over whole epochs for at least `seconds`, at least one."""
    _run_epoch(loader)
    start, images, epochs = time.perf_counter(), 0, 0
    while epochs == 0 or time.perf_counter() - start < seconds:
        images, epochs = images + _run_epoch(loader), epochs + 1
    return Speed(images, time.perf_counter() - start, epochs)


def _run_epoch(loader: Loader) -> int:
    """Return the number of images in an epoch; on a GPU, wait until the last one is done."""
    images = sum(len(batch) for batch in loader)
    if loader.device.type == "cuda":
        torch.cuda.synchronize(loader.device)
    return images


def _draw_and_convert(folder: Path, out: Path, images: int, seed: int, say: Callable[[str], None]) -> None:
    say(f"draw     {images} images with boxes: a Pascal VOC dataset, {out / 'VOC'}")
    make_voc(folder / "VOC", images, seed)
    summary = voc_to_coco(folder / "VOC", folder / "train.json", split="train")
    counts = ", ".join(f"{name} {count}" for name, count in summary.class_counts.items())
    say(f"convert  the split train to COCO JSON: {out / 'train.json'}")
    say(f"         {summary.images} images, {summary.boxes} boxes ({counts})")


def _draw_shapes(folder: Path, images: int, seed: int) -> None:
    """Make the datasets of masks, keypoints and rotated boxes, and draw an image of each, one below the other."""
    make_people(folder, max(1, images * 2 // 5), seed)
    make_ships(folder, max(1, images // 5), seed)
    voc_to_coco(folder / "VOC", folder / "masks.json", split="train", masks=True)
    readers = {
        "masks": CocoReader(folder / "VOC/JPEGImages", folder / "masks.json", masks=True),
        "keypoints": CocoReader(folder / "people", folder / "people.json", keypoints=True),
        "rotated boxes": CocoReader(folder / "ships", folder / "ships.json", rotated=True),
    }
    sheets = [draws_sheet(reader, MOVED, [0], seed=seed, title=title) for title, reader in readers.items()]
    whole = Image.new("RGB", (max(sheet.width for sheet in sheets), sum(sheet.height for sheet in sheets)), "white")
    for sheet, top in zip(sheets, accumulate([0, *(sheet.height for sheet in sheets)]), strict=False):
        whole.paste(sheet, (0, top))
    save_picture(whole, folder / "shapes.png")


def _check(folder: Path, out: Path, say: Callable[[str], None]) -> None:
    summary = check_coco(folder / "train.json", folder / "VOC/JPEGImages")
    counts = ", ".join(f"{kind} {count}" for kind, count in summary.kind_counts.items())
    say(f"check    {summary.errors} errors, {summary.warnings} warnings ({counts or 'nothing found'})")
    say(f"         more on them: detaug check {out / 'train.json'} {out / 'VOC/JPEGImages'}")


def _name(device: torch.device) -> str:
    if device.type == "cuda":
        return f"{device}, {torch.cuda.get_device_name(device)}"
    reason = "the CPU was asked for" if torch.cuda.is_available() else "no GPU was found"
    return f"the CPU ({reason}; {available_cores()} threads)"


# ---------------------------------------------------------------- the folder


def _check_out(out: Path) -> None:
    """Raise InputError before the work begins if `out` cannot be written."""
    if not out.parent.is_dir():
        raise InputError(f"folder {out.parent} does not exist; make it first")
    if not os.access(out.parent, os.W_OK):
        raise InputError(f"folder {out.parent} cannot be written to; choose another {option('out')}")
    if not _is_ours(out):
        raise InputError(
            f"{out} exists and was not made by detaug demo; nothing was written: choose another {option('out')}"
        )


def _is_ours(out: Path) -> bool:
    """Return whether `out` does not exist, is an empty folder, or has the mark."""
    if out.is_dir():
        return (out / MARK).is_file() or not any(out.iterdir())
    return not os.path.lexists(out)


@contextmanager
def _new_folder(out: Path) -> Iterator[Path]:
    """Yield a new folder beside `out`; when the block ends without error, rename it to `out` or merge it into `out`."""
    folder = out.with_name(f".{out.name}.{os.getpid()}.partial")
    folder.mkdir()
    try:
        (folder / MARK).write_text("detaug demo made this folder and may write its files again.\n")
        yield folder
        _merge(folder, out)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _merge(folder: Path, out: Path) -> None:
    """Move every file of `folder` into `out`. Raises InputError, before that, for a folder in the place of a file."""
    if not out.exists():
        folder.rename(out)
        return
    targets = {path: out / path.relative_to(folder) for path in sorted(folder.rglob("*"))}
    for path, target in targets.items():
        if os.path.lexists(target) and target.is_dir() != path.is_dir():
            here, there = ("file", "folder") if target.is_dir() else ("folder", "file")
            raise InputError(
                f"{target} is a {there}, and detaug demo makes a {here} of this name; nothing was written: move it "
                f"away, or choose another {option('out')}"
            )
    for path, target in targets.items():
        target.mkdir(exist_ok=True) if path.is_dir() else path.replace(target)
