"""Measure test-time augmentation: AP, and seconds beside one view, of several `da.TTA`.

    python benchmarks/tta.py -o OUT [--steps 900] [--seeds 3] [--image tta.jpg]   # the demo's detector, on drawn images
    python benchmarks/tta.py -o OUT --model run/best.pt --data val.json IMAGES    # a model of detaug train

Without --model, it draws 300 images for the training and 60 others to score, and trains the small detector of `detaug
demo` at 160 x 160, a training for each seed. Prints a row for each `TTA`: views, AP, AP50, AP75, and the seconds for
the images in units of those without it, measured one after the other on the same machine. --image draws an image's
views with the detections in each, and the merged ones.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import Tensor, nn

import detaug as da
from detaug.converters import voc_to_coco
from detaug.demo.detector import STRIDE, CenterDetector
from detaug.demo.shapes import make_voc
from detaug.training import TrainedModel
from detaug.training.predict_batches import predicted_batches

SIZE, UNSEEN = 160, 60
ROWS = {
    "one view": None,
    "flip": da.TTA(scales=(1,)),
    "3 scales": da.TTA(flip=False),
    "3 scales, flip": da.TTA(),
    "3 scales, flip, NMS": da.TTA(merge="nms"),
}


class Predicting(nn.Module):
    """The demo's detector with the interface of torchvision's."""

    def __init__(self, detector: CenterDetector) -> None:
        super().__init__()
        self.detector = detector

    def forward(self, images: Tensor) -> list[dict[str, Tensor]]:
        return self.detector.predict(images)


def train_small(reader: da.CocoReader, steps: int, seed: int) -> TrainedModel:
    torch.manual_seed(seed)
    recipe = [
        da.RandomZoomOut(max_ratio=1.5),
        da.RandomHorizontalFlip(),
        da.Resize((SIZE, SIZE)),
        da.RandomPhotometricDistort(),
        da.Normalize(),
    ]
    loader = da.Loader(reader, recipe, 8, device="cpu", seed=seed)
    detector = CenterDetector(len(reader.class_names) - 1)
    optimizer = torch.optim.AdamW(detector.parameters(), 0.004)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.004, total_steps=steps)
    step = 0
    while step < steps:
        for batch in loader:
            loss = detector.loss(batch)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(detector.parameters(), 10)
            optimizer.step()
            schedule.step()
            step += 1
            if step == steps:
                break
    ops = (da.Resize((SIZE, SIZE)), da.Normalize())
    names, device = tuple(reader.class_names), torch.device("cpu")
    return TrainedModel(Predicting(detector.eval()), ops, names, device, stride=STRIDE)


def drawn_data(folder: Path) -> tuple[da.CocoReader, da.CocoReader]:
    """Return readers of the images to train on, and of unseen ones."""
    make_voc(folder / "VOC", 300 + UNSEEN)
    document = json.loads(Path(voc_to_coco(folder / "VOC", folder / "all.json").output).read_bytes())
    names = sorted(row["file_name"] for row in document["images"])
    readers = []
    for part, own in (("train", {*names[:-UNSEEN]}), ("val", {*names[-UNSEEN:]})):
        images = [row for row in document["images"] if row["file_name"] in own]
        ids = {row["id"] for row in images}
        rows = [row for row in document["annotations"] if row["image_id"] in ids]
        (folder / f"{part}.json").write_text(json.dumps({**document, "images": images, "annotations": rows}))
        readers.append(da.CocoReader(folder / "VOC/JPEGImages", folder / f"{part}.json"))
    return readers[0], readers[1]


def scores_of(model: TrainedModel, reader: da.CocoReader) -> dict[str, tuple[float, float, float, float]]:
    """Return AP, AP50, AP75 and seconds by the name of the row."""
    result = {}
    for name, tta in ROWS.items():
        evaluator, start = da.CocoEvaluator(reader), time.perf_counter()
        for batch, predictions in predicted_batches(model, reader, 8, tta):
            evaluator.update(batch, predictions)
        seconds = time.perf_counter() - start
        metrics = evaluator.compute()
        result[name] = metrics.AP, metrics.AP50, metrics.AP75, seconds
    return result


def draw_views(model: TrainedModel, path: Path, output: Path) -> None:
    """Draw six views with their detections in two rows, and the merged detections at the right."""
    pixels = np.asarray(Image.open(path).convert("RGB"))
    tiles = []
    for ops in model.views(da.TTA()):
        view = da.batch([pixels]).then(*(op for op in ops if not isinstance(op, da.Normalize))).images[0]
        own = replace(model, ops=(da.Resize(view.shape[:2]), da.Normalize()))
        tiles.append((own.draw(view), "flipped, " * (len(ops) == 3) + f"{view.shape[1]} x {view.shape[0]}"))
    (merged,) = model.predict(pixels, tta=da.TTA())
    arrays = {name: values.numpy() for name, values in merged.items()}
    tiles.append((model.draw_found(pixels, arrays), "merged, in the image"))
    side, line = 230, 20
    sheet = Image.new("RGB", (3 * side + 2 * side + line, 2 * (side + line)), "white")
    pen = ImageDraw.Draw(sheet)
    for index, (image, text) in enumerate(tiles):
        corner = (index // 2 * side, index % 2 * (side + line)) if index < 6 else (3 * side + line // 2, 0)
        sides = (side - 6, side - 6) if index < 6 else (2 * side, round(2 * side * image.height / image.width))
        sheet.paste(image.resize(sides, Image.Resampling.LANCZOS), (corner[0], corner[1] + line))
        pen.text((corner[0] + 2, corner[1] + 5), text, "black")
    sheet.save(output, quality=85)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True, help="a folder")
    parser.add_argument("--steps", type=int, default=900)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--image", type=Path)
    parser.add_argument("--model", type=Path, nargs="*", default=[])
    parser.add_argument("--data", nargs=2, help="FILE.json IMAGES")
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    if arguments.model:
        reader = da.CocoReader(arguments.data[1], arguments.data[0])
        runs = [scores_of(da.load_model(path), reader) for path in arguments.model]
    else:
        train, reader = drawn_data(arguments.output)
        models = [train_small(train, arguments.steps, seed) for seed in range(arguments.seeds)]
        if arguments.image:
            draw_views(models[0], reader.path(2), arguments.image)
        runs = [scores_of(model, reader) for model in models]
    print(f"{len(reader)} images, {len(runs)} models; means, and the lowest and the highest AP\n")
    print("| views | AP | AP50 | AP75 | time |\n|---|---|---|---|---|")
    for name in ROWS:
        numbers = np.array([run[name] for run in runs])
        ratio = (numbers[:, 3] / np.array([run["one view"][3] for run in runs])).mean()
        ap, ap50, ap75, _ = numbers.mean(0)
        limits = f"{numbers[:, 0].min():.3f} to {numbers[:, 0].max():.3f}"
        print(f"| {name} | {ap:.3f} ({limits}) | {ap50:.3f} | {ap75:.3f} | {ratio:.1f} |")


if __name__ == "__main__":
    main()
