"""Measure `detaug evaluate --label-errors`: the order in which planted errors of annotations come.

    python benchmarks/label_errors.py -o OUT [--images 300] [--steps 900] [--seeds 3] [--drawing errors.jpg]

Draws images with the objects of `detaug demo`, and plants errors in 5 % of the annotations, of each kind: left out,
another class, moved and scaled to an IoU of 0.3 to 0.6, and boxes where nothing is. Half of the images, with their
errors, train the demo's detector; its detections in the other half are compared with the annotations there. Prints the
average precision of the order, of each kind and of all, means of the trainings so far, beside other orders:

- loss: of annotations, - log of the highest score of a detection of their class with an IoU of 0.5, plus 1 - IoU; of
  detections without an annotation of their class, - log(1 - score).
- confidence: of annotations, 1 - the highest score of any detection with an IoU of 0.5; of detections, their score.
- ObjectLab: scores of the paper, from its definitions, with its thresholds 0.95 and 0.5; it has no extra ones.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageDraw
from tta import train_small

import detaug as da
from detaug.converters import voc_to_coco
from detaug.demo.shapes import make_voc
from detaug.evaluation.label_errors import LABEL_ERRORS, LEAST_SUSPICION
from detaug.evaluation.voc_ap import iou_of_boxes
from detaug.scoring.label_errors import draw_label_errors
from detaug.training.predict_batches import predicted_batches

PLANTED = 0.05
Ranking = dict[tuple[str, int], float]
"""The suspicion of ("annotation", its id), and of ("missing", the id of what was left out) or ("nothing", a number)."""


def xyxy(rows: list[dict[str, Any]]) -> np.ndarray:
    boxes = np.array([row["bbox"] for row in rows], float).reshape(-1, 4)
    return np.concatenate([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], 1)


def plant(document: dict[str, Any], rng: np.random.Generator) -> tuple[dict[str, Any], dict[int, str], list[Any]]:
    """Return a document with errors, the kind of error by annotation id, and the annotations that were left out."""
    rows = [dict(row) for row in document["annotations"]]
    sizes = {row["id"]: (row["width"], row["height"]) for row in document["images"]}
    classes = [row["id"] for row in document["categories"]]
    count = round(PLANTED * len(rows))
    chosen = rng.permutation(len(rows))[: 3 * count].reshape(3, count)
    kinds: dict[int, str] = {}
    left_out = [rows[index] for index in chosen[0].tolist()]
    for index in chosen[1].tolist():
        rows[index]["category_id"] = int(
            rng.choice([number for number in classes if number != rows[index]["category_id"]])
        )
        kinds[rows[index]["id"]] = "class"
    for index in chosen[2].tolist():
        rows[index]["bbox"] = moved(rows[index], sizes[rows[index]["image_id"]], rng)
        kinds[rows[index]["id"]] = "location"
    ids, number = list(sizes), max(row["id"] for row in rows)
    for _ in range(count):
        while True:
            image_id = int(rng.choice(ids))
            width, height = sizes[image_id]
            sides = rng.uniform(0.1, 0.4, 2) * (width, height)
            start = rng.uniform(0, 1, 2) * ((width, height) - sides)
            extra = {"image_id": image_id, "bbox": [*start.tolist(), *sides.tolist()]}
            near = [row for row in document["annotations"] if row["image_id"] == image_id]
            if not near or iou_of_boxes(xyxy([extra]), xyxy(near)).max() < 0.1:
                break
        number += 1
        rows.append({**extra, "id": number, "category_id": int(rng.choice(classes)), "iscrowd": 0, "area": 1})
        kinds[number] = "extra"
    gone = {row["id"] for row in left_out}
    return {**document, "annotations": [row for row in rows if row["id"] not in gone]}, kinds, left_out


def moved(row: dict[str, Any], size: tuple[int, int], rng: np.random.Generator) -> list[float]:
    """Return a box with an IoU of 0.3 to 0.6 with that of the row, inside the image."""
    x, y, width, height = row["bbox"]
    while True:
        scale = np.exp(rng.uniform(-0.5, 0.5, 2))
        shift = rng.uniform(-0.5, 0.5, 2) * (width, height)
        start = np.clip(np.array([x, y]) + shift, 0, None)
        sides = np.minimum((width, height) * scale, np.array(size) - start)
        box = [*start.tolist(), *sides.tolist()]
        if (sides > 4).all() and 0.3 <= iou_of_boxes(xyxy([row]), xyxy([{"bbox": box}]))[0, 0] <= 0.6:
            return box


def average_precision(suspicion: Mapping[Any, float], wanted: set[Any]) -> float:
    """Return the mean of the precision at each wanted key; one that is not in the order counts as 0."""
    order = sorted(suspicion, key=lambda key: -suspicion[key])
    hits = np.array([key in wanted for key in order], bool)
    precision = np.cumsum(hits) / np.arange(1, len(order) + 1)
    return float(precision[hits].sum() / len(wanted))


def key_of(detection: np.ndarray, image_id: int, category: int, left_out: list[Any], number: int) -> tuple[str, int]:
    """Return the key of a detection that no annotation explains."""
    own = [row for row in left_out if row["image_id"] == image_id and row["category_id"] == category]
    if own and (overlaps := iou_of_boxes(detection[None], xyxy(own))[0]).max() >= 0.5:
        return "missing", own[int(overlaps.argmax())]["id"]
    return "nothing", number


def rankings(evaluator: Any, document: dict[str, Any], left_out: list[Any]) -> dict[str, dict[str, Ranking]]:
    """Return the orders of each method by kind, and those of all kinds together."""
    every: dict[str, dict[str, Ranking]] = {
        name: {kind: {} for kind in (*LABEL_ERRORS, "all")} for name in ("detaug", "loss", "confidence", "ObjectLab")
    }
    position = {row["id"]: index for index, row in enumerate(document["images"])}
    ids = [row["id"] for row in sorted(document["annotations"], key=lambda row: position[row["image_id"]])]

    def add(name: str, kind: str, key: tuple[str, int], suspicion: float) -> None:
        for ranking in (every[name][kind], every[name]["all"]):
            ranking[key] = max(ranking.get(key, -np.inf), suspicion)

    for number, error in enumerate(evaluator.label_errors()):
        key = ("annotation", ids[error.annotation]) if error.annotation >= 0 else None
        if key is None:
            assert error.shape is not None
            key = key_of(error.shape, error.image_id, error.category_id, left_out, number)
        add("detaug", error.kind, key, error.suspicion)
    number = 0
    for image in document["images"]:
        rows = [row for row in document["annotations"] if row["image_id"] == image["id"]]
        found = evaluator.detections[image["id"]]
        boxes, scores, classes = found.shapes, found.scores, found.category_ids
        iou, own = iou_of_boxes(boxes, xyxy(rows)), np.array([row["category_id"] for row in rows], int)
        same = classes[:, None] == own
        centers = [
            (array[:, :2] + array[:, 2:]) / 2 / (image["width"], image["height"]) for array in (boxes, xyxy(rows))
        ]
        near = 1 - np.linalg.norm(centers[0][:, None] - centers[1], axis=2) / np.sqrt(2)
        alike = 0.9 * iou + 0.1 * near
        for column, row in enumerate(rows):
            key = "annotation", row["id"]
            fits = (iou[:, column] >= 0.5) * scores
            loss = -np.log(max((fits * same[:, column]).max(initial=0), 1e-3))
            loss += 1 - (iou[:, column] * same[:, column]).max(initial=0)
            for kind in ("class", "location", "extra"):
                add("loss", kind, key, loss)
                add("confidence", kind, key, 1 - fits.max(initial=0))
            others = alike[~same[:, column] & (scores >= 0.95), column]
            add("ObjectLab", "class", key, others.max(initial=0))
            own_class = alike[same[:, column] & (scores >= 0.5), column]
            add("ObjectLab", "location", key, 1 - own_class.max() if len(own_class) else 0)
        for box, score, category, overlap, similar in zip(
            boxes, scores, classes, iou * same, alike * same, strict=True
        ):
            number += 1
            key = key_of(box, image["id"], int(category), left_out, number)
            if overlap.max(initial=0) < 0.5:
                add("loss", "missing", key, -np.log(1 - min(score, 1 - 1e-6)))
                add("confidence", "missing", key, score)
            if score >= 0.95:
                add("ObjectLab", "missing", key, 1 - similar.max(initial=0))
    return every


def print_table(results: Mapping[tuple[str, str], list[float]]) -> None:
    columns = [*LABEL_ERRORS, "all"]
    print(f"\n| order | {' | '.join(columns)} |\n|{'---|' * (len(columns) + 1)}")
    for name in dict.fromkeys(name for name, _ in results):
        print(f"| {name} | {' | '.join(f'{np.mean(results[name, kind]):.3f}' for kind in columns)} |", flush=True)


def draw(evaluator: da.CocoEvaluator[Any], reader: da.CocoReader, path: Path) -> None:
    """Draw the two worst label errors of each kind."""
    errors = evaluator.label_errors()
    chosen = [error for kind in LABEL_ERRORS for error in [error for error in errors if error.kind == kind][:2]]
    drawings = draw_label_errors(reader, evaluator.truth, chosen)
    sheet = Image.new("RGB", (4 * 250, 2 * 250), "white")
    pen = ImageDraw.Draw(sheet)
    for index, (error, drawing) in enumerate(zip(chosen, drawings, strict=True)):
        drawing.thumbnail((240, 225))
        corner = (index // 2 * 250, index % 2 * 250)
        pen.text((corner[0] + 2, corner[1] + 4), f"{error.kind} {error.suspicion:.2f}", "black")
        sheet.paste(drawing, (corner[0], corner[1] + 20))
    sheet.save(path, quality=85)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True, help="a folder")
    parser.add_argument("--images", type=int, default=300, help="of each half")
    parser.add_argument("--steps", type=int, default=900)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--drawing", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    folder = arguments.output
    folder.mkdir(parents=True, exist_ok=True)
    make_voc(folder / "VOC", 2 * arguments.images)
    clean = json.loads(Path(voc_to_coco(folder / "VOC", folder / "all.json").output).read_bytes())
    results: dict[tuple[str, str], list[float]] = {}
    for seed in range(arguments.seeds):
        document, kinds, left_out = plant(clean, np.random.default_rng(seed))
        readers = []
        for name, part in (("train", 0), ("val", 1)):
            images = document["images"][part::2]
            ids = {row["id"] for row in images}
            rows = [row for row in document["annotations"] if row["image_id"] in ids]
            half = {**document, "images": images, "annotations": rows}
            (folder / f"{name}.json").write_text(json.dumps(half))
            readers.append(da.CocoReader(folder / "VOC/JPEGImages", folder / f"{name}.json"))
        model = train_small(readers[0], arguments.steps, seed)
        evaluator = da.CocoEvaluator(readers[1])
        for batch, predictions in predicted_batches(model, readers[1], 8):
            evaluator.update(batch, predictions)
        if arguments.drawing and not seed:
            draw(evaluator, readers[1], arguments.drawing)
        own = [row for row in left_out if row["image_id"] in ids]
        wanted = {
            kind: {("annotation", row["id"]) for row in rows if kinds.get(row["id"]) == kind} for kind in LABEL_ERRORS
        }
        wanted["missing"] = {("missing", row["id"]) for row in own}
        wanted["all"] = set().union(*wanted.values())
        for name, by_kind in rankings(evaluator, half, own).items():
            for kind, ranking in by_kind.items():
                results.setdefault((name, kind), []).append(average_precision(ranking, wanted[kind]))
        counts = ", ".join(f"{kind} {len(keys)}" for kind, keys in wanted.items())
        print(
            f"seed {seed}: {len(rows)} annotations; planted {counts}; AP50 {evaluator.compute().AP50:.3f}", flush=True
        )
        order = rankings(evaluator, half, own)["detaug"]["all"]
        written = [key in wanted["all"] for key, suspicion in order.items() if suspicion >= LEAST_SUSPICION]
        print(
            f"{len(written)} with a suspicion of {LEAST_SUSPICION} or more, {sum(written)} of them planted", flush=True
        )
        print_table(results)


if __name__ == "__main__":
    main()
