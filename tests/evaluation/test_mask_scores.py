"""Scores of masks are pycocotools', on RLE that it makes itself; masks go back to the pixels of the source."""

from __future__ import annotations

import copy
import io
import json
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from pycocotools import mask as coco_mask
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
from seeds import seeds
from test_evaluator import NAMES, blank_batch

import detaug as da
from detaug.coco.outlines import encode_many_counts
from detaug.evaluation.masks import run_lengths
from detaug.loading import source_pixels

Masks = NDArray[np.bool_]
SIZE = 120


def blobs(rng: np.random.Generator, n: int, height: int, width: int) -> Masks:
    """Return (n, height, width): two overlapping ellipses each, some with a hole, some at the border."""
    y, x = np.mgrid[:height, :width] + 0.5
    made = np.zeros((n, height, width), np.bool_)
    for mask in made:
        center = rng.uniform(0, (height, width))
        for _ in range(2):
            radius, shift = rng.uniform(4, 30, 2), rng.uniform(-8, 8, 2)
            mask |= (((y - center[0] - shift[0]) / radius[0]) ** 2 + ((x - center[1] - shift[1]) / radius[1]) ** 2) < 1
        if rng.random() < 0.4:
            mask &= np.hypot(y - center[0], x - center[1]) > 3
    return made


def compressed(mask: Masks) -> dict[str, Any]:
    runs = coco_mask.encode(np.asfortranarray(mask.astype(np.uint8)))
    return {"size": runs["size"], "counts": runs["counts"].decode()}


def uncompressed(mask: Masks) -> dict[str, Any]:
    flat = mask.ravel(order="F").tolist()
    counts, value = [0], False
    for each in flat:
        if each != value:
            counts.append(0)
            value = each
        counts[-1] += 1
    return {"size": [*mask.shape], "counts": counts}


def entry_of(mask: Masks, image_id: int, segmentation: Any = None, **others: Any) -> dict[str, Any]:
    rows, columns = (np.flatnonzero(mask.any(axis)) for axis in (1, 0))
    box = [columns[0], rows[0], columns[-1] + 1 - columns[0], rows[-1] + 1 - rows[0]]
    return {
        "image_id": image_id,
        "bbox": [int(each) for each in box],
        "area": int(mask.sum()),
        "segmentation": compressed(mask) if segmentation is None else segmentation,
        "category_id": 7,
        "iscrowd": 0,
        **others,
    }


def write(path: Path, images: list[tuple[int, int, int]], entries: list[dict[str, Any]]) -> Path:
    """Write a JSON file of images (id, height, width) and annotations."""
    rows = [{"id": at, "file_name": f"{at}.png", "height": h, "width": w} for at, h, w in images]
    categories = [{"id": 9, "name": "nine"}, {"id": 7, "name": "seven"}, {"id": 8, "name": "never"}]
    numbered = [{"id": at, **each} for at, each in enumerate(entries, 1)]
    path.write_text(json.dumps({"images": rows, "annotations": numbered, "categories": categories}))
    return path


def random_scene(path: Path, seed: int) -> tuple[list[int], list[dict[str, torch.Tensor]], list[dict[str, Any]]]:
    """Write 12 images with outlines of all kinds; return ids, predictions, and the same as COCO's results."""
    rng = np.random.default_rng(seed)
    ids = [int(each) for each in rng.permutation(500)[:12]]
    entries, predictions, results = list[dict[str, Any]](), [], []
    for image_id in ids:
        objects = blobs(rng, int(rng.integers(0, 6)), SIZE, SIZE)
        objects = objects[objects.any((1, 2))]
        for mask in objects:
            kind, more = rng.integers(4), {"category_id": int(rng.choice([7, 9]))}
            if kind == 0:
                entries.append(entry_of(mask, image_id, uncompressed(mask), **more, iscrowd=int(rng.random() < 0.4)))
            elif kind == 1:
                entries.append(entry_of(mask, image_id, **more, area=float(rng.uniform(100, 20000))))
            else:
                angle = np.sort(rng.uniform(0, 2 * np.pi, (kind - 1, 9)), axis=1)
                center, radius = rng.uniform(30, 90, (kind - 1, 1, 2)), rng.uniform(5, 30, (kind - 1, 9, 1))
                rings = center + radius * np.stack([np.cos(angle), np.sin(angle)], 2)
                polygons = rings.round(2).reshape(kind - 1, -1).tolist()
                runs = coco_mask.merge(coco_mask.frPyObjects(polygons, SIZE, SIZE))
                objects = np.concatenate([objects, coco_mask.decode(runs)[None].astype(np.bool_)])
                entries.append(entry_of(objects[-1], image_id, polygons, **more))
        found = blobs(rng, 22, SIZE, SIZE)  # more than 255 of all images: pycocotools cannot take them at once
        for mask in objects:
            shift = rng.integers(-8, 9, 2)
            found = np.concatenate([found, np.roll(mask, shift, (0, 1))[None], mask[None]])
        scores, labels = (rng.integers(1, 9, len(found)) / 8).tolist(), rng.choice([1, 3], len(found)).tolist()
        wanted: Any = torch.from_numpy(found)
        if rng.random() < 0.5:  # as Mask R-CNN returns them
            wanted = torch.where(wanted, 0.75, 0.25)[:, None]
        columns = {"scores": torch.tensor(scores, dtype=torch.float64), "labels": torch.tensor(labels)}
        predictions.append({"masks": wanted, **columns})
        for mask, score, label in zip(found, scores, labels, strict=True):
            row = {"image_id": image_id, "category_id": {1: 7, 3: 9}[label]}
            results.append({**row, "segmentation": compressed(mask), "score": score})
    write(path, [(at, SIZE, SIZE) for at in ids], entries)
    return ids, predictions, results


def by_hand(truth: Path, results: Any, **params: Any) -> list[float]:
    with redirect_stdout(io.StringIO()):
        coco = COCO(str(truth))
        scoring = COCOeval(coco, coco.loadRes(copy.deepcopy(results)), "segm")  # it changes them
        for name, value in params.items():
            setattr(scoring.params, name, value)
        scoring.evaluate()
        scoring.accumulate()
        scoring.summarize()
    return [float(each) for each in scoring.stats]


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # of pycocotools' decode
@pytest.mark.parametrize("seed", seeds(2, 30))
def test_masks_score_as_in_pycocotools(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ids, predictions, results = random_scene(tmp_path / "truth.json", seed)
    evaluator = da.CocoEvaluator(tmp_path / "truth.json", kind="segm")
    for at in range(0, 12, 4):
        evaluator.update(blank_batch(ids[at : at + 4], size=(SIZE, SIZE)), predictions[at : at + 4])
    expected = by_hand(tmp_path / "truth.json", results)
    assert 0 < expected[0] < expected[1] < 1
    by_class = {
        name: by_hand(tmp_path / "truth.json", results, catIds=[at]) for at, name in ((7, "seven"), (9, "nine"))
    }
    for engine in ("the installed one", "pycocotools"):
        metrics = evaluator.compute()
        assert [getattr(metrics, name) for name in NAMES] == expected, engine
        assert metrics.AP_by_class == pytest.approx({name: each[0] for name, each in by_class.items()} | {"never": -1})
        assert metrics.AP50_by_class == pytest.approx({name: e[1] for name, e in by_class.items()} | {"never": -1})
        monkeypatch.setitem(sys.modules, "ultrafast_pycocotools", None)
    assert str(metrics).startswith(f"AP {metrics.AP:.3f}  AP50")
    evaluator.save(tmp_path / "results.json")
    order = {at: number for number, at in enumerate(ids)}
    assert json.loads((tmp_path / "results.json").read_text()) == sorted(
        results, key=lambda row: order[row["image_id"]]
    )
    assert by_hand(tmp_path / "truth.json", str(tmp_path / "results.json")) == expected


# --------------------------------------------------------------------------------------- through recipes


BLACK = (0.0, 0.0, 0.0)
EXACT: dict[str, list[da.Op]] = {
    "the same size": [da.Resize((90, 140))],
    "mirrored": [da.RandomHorizontalFlip(p=1), da.Resize((90, 140))],
    "rotated by 90 degrees": [da.RandomRotate90(p=1), da.Resize(90)],
    "padded": [da.Resize((150, 140), letterbox="center")],
    "twice": [da.Resize((180, 280))],
}
NEAR: dict[str, list[da.Op]] = {
    "stretched": [da.Resize((200, 190))],
    "letterbox": [da.Resize((170, 170), letterbox="center")],
    "smaller": [da.Resize((80, 120))],
    "turned": [da.RandomRotation((30, 30), expand=True, fill=BLACK), da.Resize((300, 300))],
    "perspective": [da.RandomPerspective(distortion_scale=0.2, p=1, fill=BLACK), da.Resize((300, 300))],
}


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A folder of 6 images of 140 x 90 and their JSON file: masks as RLE."""
    folder, rng = tmp_path_factory.mktemp("scene"), np.random.default_rng(3)
    entries = []
    for image_id in range(1, 7):
        Image.new("RGB", (140, 90)).save(folder / f"{image_id}.png")
        masks = blobs(rng, 4, 90, 140)
        entries += [entry_of(mask, image_id) for mask in masks if mask.sum() > 200]
    return folder, write(folder / "scene.json", [(at, 90, 140) for at in range(1, 7)], entries)


def perfect(batch: da.Batch) -> list[dict[str, torch.Tensor]]:
    return [{**each, "scores": torch.ones(len(each["labels"]))} for each in batch.targets(masks=True)]


@pytest.mark.parametrize("recipe", [*EXACT, *NEAR])
def test_masks_scored_against_themselves(recipe: str, scene: tuple[Path, Path], tmp_path: Path, device: str) -> None:
    reader = da.CocoReader(*scene, masks=True)
    evaluator, off = (da.CocoEvaluator(reader, kind="segm") for _ in range(2))
    for batch in da.Loader(reader, {**EXACT, **NEAR}[recipe], 4, device=device, train=False):
        found = perfect(batch)
        evaluator.update(batch, found)
        off.update(batch, [{**each, "masks": each["masks"].flip(2)} for each in found])
    metrics = evaluator.compute()
    assert metrics.images == 6
    assert off.compute().AP < 0.5
    if recipe in NEAR:
        assert metrics.AP > 0.9
        return
    assert pytest.approx((1, 1), abs=1e-12) == (metrics.AP, metrics.AR100)
    evaluator.save(tmp_path / "results.json")
    rows, truth = json.loads((tmp_path / "results.json").read_text()), json.loads(scene[1].read_text())["annotations"]
    assert [row["segmentation"] for row in rows] == [each["segmentation"] for each in truth]


def test_outlines_scored_against_themselves(tmp_path: Path) -> None:
    """pycocotools rasterizes polygons a fifth of a pixel differently."""
    from detaug.demo import make_people

    path = make_people(tmp_path, images=2)
    reader = da.CocoReader(tmp_path / "people", path, masks=True)
    evaluator = da.CocoEvaluator(reader, kind="segm")
    for batch in da.Loader(reader, da.presets.evaluation(480), 1, train=False, device="cpu"):
        evaluator.update(batch, perfect(batch))
    assert pytest.approx(1) == evaluator.compute().AP


CROPPED: dict[str, list[da.Op]] = {"cropped": [da.CenterCrop((60, 60)), da.Resize((130, 110))]}


@pytest.mark.parametrize("recipe", ["turned", "smaller", "letterbox", "cropped"])
def test_masks_to_source_interpolates_probabilities(
    recipe: str, scene: tuple[Path, Path], device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against a second implementation, a pixel at a time, and in parts of one mask."""
    reader = da.CocoReader(*scene, masks=True)
    batch = next(iter(da.Loader(reader, {**NEAR, **CROPPED}[recipe], 2, device=device, train=False)))
    height, width = batch.images.shape[-2:]
    rng = np.random.default_rng(0)
    coarse = torch.from_numpy(rng.random((2, 3, 9, 9)))
    masks = [torch.nn.functional.interpolate(each[None], (height, width), mode="bicubic")[0] for each in coarse]
    masks = [each.clamp(0, 1).float() for each in masks]
    moved = batch.masks_to_source([each.to(device) for each in masks])
    assert [(each.dtype, each.device.type, tuple(each.shape)) for each in moved] == [
        (torch.bool, device, (3, 90, 140))
    ] * 2
    for at, matrix in enumerate(batch.matrix.double().numpy()):
        for y, x in rng.integers(0, (90, 140), (300, 2)).tolist():
            u, v = (matrix @ [x + 0.5, y + 0.5, 1])[:2]
            if not (0 < u < width and 0 < v < height):
                assert not moved[at][:, y, x].any()
                continue
            left, top = int(np.floor(u - 0.5)), int(np.floor(v - 0.5))
            value = np.zeros(3)
            for row, column in ((top, left), (top, left + 1), (top + 1, left), (top + 1, left + 1)):
                weight = (1 - abs(u - 0.5 - column)) * (1 - abs(v - 0.5 - row))
                value += weight * masks[at][:, np.clip(row, 0, height - 1), np.clip(column, 0, width - 1)].numpy()
            sure = abs(value - 0.5) > 1e-3
            assert (moved[at][:, y, x].cpu().numpy() == (value > 0.5))[sure].all()
    assert 0.05 < float(torch.cat(moved).float().mean()) < 0.9
    monkeypatch.setattr(source_pixels, "PIXELS_AT_ONCE", 1)
    again = batch.masks_to_source([each.to(device) for each in masks])
    assert all(torch.equal(a, b) for a, b in zip(moved, again, strict=True))


# ------------------------------------------------------------------------------------------- RLE


@pytest.mark.parametrize("shape", [(5, 40, 30), (3, 1, 1), (1, 700, 900), (0, 4, 4)])
def test_run_lengths_are_pycocotools(shape: tuple[int, int, int], device: str) -> None:
    rng = np.random.default_rng(0)
    masks = [rng.random(shape) < 0.5, np.zeros(shape, np.bool_), np.ones(shape, np.bool_), blobs(rng, *shape)]
    together = np.concatenate(masks)
    expected = [compressed(mask)["counts"] for mask in together]
    assert run_lengths(torch.from_numpy(together).to(device)) == expected


def test_long_run_lengths_are_pycocotools() -> None:
    rng = np.random.default_rng(1)
    lengths = [np.exp(rng.uniform(0, 17, n)).astype(np.int64) for n in (1, 2, 3, 4, 9, 300)]
    expected = []
    for each in lengths:
        runs = coco_mask.frPyObjects({"size": [int(each.sum()), 1], "counts": each.tolist()}, int(each.sum()), 1)
        expected.append(runs["counts"].decode())
    first = np.cumsum([0, *map(len, lengths)])
    assert encode_many_counts(np.concatenate(lengths), first) == expected


# --------------------------------------------------------------------------------------- the JSON file's rules


def found_masks(masks: Masks) -> list[dict[str, torch.Tensor]]:
    columns = {"scores": torch.ones(len(masks)), "labels": torch.ones(len(masks), dtype=torch.int64)}
    return [{"masks": torch.from_numpy(masks), **columns}]


def square(x0: int, y0: int, x1: int, y1: int) -> Masks:
    mask = np.zeros((SIZE, SIZE), np.bool_)
    mask[y0:y1, x0:x1] = True
    return mask


@pytest.mark.parametrize("keys", [{}, {"segmentation": None}, {"segmentation": []}, {"segmentation": [[1, 2, 3, 4]]}])
def test_an_object_without_an_outline_has_the_mask_of_its_box(keys: dict[str, Any], tmp_path: Path) -> None:
    entry = entry_of(square(10, 20, 50, 60), 1)
    del entry["segmentation"], entry["area"]
    path = write(tmp_path / "truth.json", [(1, SIZE, SIZE)], [entry | keys])
    evaluator = da.CocoEvaluator(path, kind="segm")
    evaluator.update(blank_batch([1], size=(SIZE, SIZE)), found_masks(square(10, 20, 50, 60)[None]))
    metrics = evaluator.compute()
    assert (metrics.AP, metrics.APm, metrics.APs) == (pytest.approx(1), pytest.approx(1), -1)


def test_without_detections_all_metrics_are_0(tmp_path: Path) -> None:
    path = write(tmp_path / "truth.json", [(1, SIZE, SIZE)], [entry_of(square(10, 20, 50, 60), 1)])
    evaluator = da.CocoEvaluator(path, kind="segm")
    evaluator.update(
        blank_batch([1], size=(SIZE, SIZE)), [{name: torch.tensor([]) for name in ("masks", "scores", "labels")}]
    )
    metrics = evaluator.compute()
    assert (metrics.AP, metrics.AR100, metrics.AP_by_class) == (0, 0, {"seven": 0, "never": -1, "nine": -1})


# --------------------------------------------------------------------------------------------- wrong input


WRONG: dict[str, tuple[torch.Tensor, str]] = {
    "not pasted": (torch.rand(1, 1, 28, 28), r"masks\[0\] must be \(K, 120, 120\) or \(K, 1, 120, 120\), in pixels of"),
    "logits": (torch.full((1, SIZE, SIZE), -3.0), r"probabilities in 0\.\.1, got -3\.\.-3; give logits as logits\.sig"),
    "NaN": (torch.full((1, SIZE, SIZE), torch.nan), r"probabilities in 0\.\.1, got nan\.\.nan"),
    "levels": (
        torch.arange(SIZE * SIZE).reshape(1, SIZE, SIZE) % 3,
        r"must be bool, .* got several in 0\.\.2; give",
    ),
    "two masks for one score": (torch.zeros(2, SIZE, SIZE), r"must have masks \(K, H, W\) or \(K, 1, H, W\), scores"),
    "three channels": (torch.zeros(1, 3, SIZE, SIZE), r"must have masks \(K, H, W\) or \(K, 1, H, W\), scores"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_masks_are_refused(name: str, tmp_path: Path) -> None:
    masks, message = WRONG[name]
    path = write(tmp_path / "truth.json", [(1, SIZE, SIZE)], [entry_of(square(10, 20, 50, 60), 1)])
    evaluator = da.CocoEvaluator(path, kind="segm")
    columns = {"scores": torch.ones(1), "labels": torch.ones(1, dtype=torch.int64)}
    with pytest.raises(da.InputError, match=message):
        evaluator.update(blank_batch([1], size=(SIZE, SIZE)), [{"masks": masks, **columns}])


def test_an_image_of_another_size_than_the_jsons_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "truth.json", [(1, 90, 140)], [entry_of(blobs(np.random.default_rng(0), 1, 90, 140)[0], 1)])
    evaluator = da.CocoEvaluator(path, kind="segm")
    with pytest.raises(da.InputError, match=r"image_id 1 is 120 x 120 pixels, and 140 x 90 in the JSON file"):
        evaluator.update(blank_batch([1], size=(SIZE, SIZE)), found_masks(square(1, 1, 9, 9)[None]))


def test_mixed_images_are_refused(scene: tuple[Path, Path]) -> None:
    reader = da.CocoReader(*scene, masks=True)
    (batch,) = da.Loader(reader, [da.Resize((90, 140)), da.Mosaic(p=1)], 6, device="cpu")
    with pytest.raises(da.InputError, match="where a mask lies in its source is not known: evaluate without Mosaic"):
        da.CocoEvaluator(reader, kind="segm").update(batch, perfect(batch))


def test_voc2007_and_wrong_outlines_are_refused(tmp_path: Path) -> None:
    mask = square(10, 20, 50, 60)
    path = write(tmp_path / "truth.json", [(1, SIZE, SIZE)], [entry_of(mask, 1)])
    evaluator = da.CocoEvaluator(path, kind="segm")
    evaluator.update(blank_batch([1], size=(SIZE, SIZE)), found_masks(mask[None]))
    with pytest.raises(da.InputError, match="voc2007 is for boxes and rotated boxes, not for masks"):
        evaluator.compute(voc2007=True)
    write(path, [(1, SIZE, SIZE)], [entry_of(mask, 1, {"size": [3, 3], "counts": [9]})])
    with pytest.raises(da.AnnotationError, match="the size of the RLE is"):
        da.CocoEvaluator(path, kind="segm")


@pytest.mark.parametrize("outline", [[[1, 1, 5, 1, 5, 5]], None, "text"])
def test_results_with_polygons_are_refused(outline: Any, tmp_path: Path) -> None:
    truth = write(tmp_path / "truth.json", [(1, 10, 10)], [entry_of(square(1, 1, 5, 5)[:10, :10], 1)])
    row = {"image_id": 1, "category_id": 7, "score": 0.5, "segmentation": outline}
    (tmp_path / "found.json").write_text(json.dumps([row]))
    with pytest.raises(da.InputError, match="segmentation must be RLE"):
        da.CocoEvaluator(truth, kind="segm").load(tmp_path / "found.json")


@pytest.mark.parametrize("counts", [[3, 4], [100, 1], [-3, 103], [], "junk", "zzzz", ""])
def test_results_with_run_lengths_of_another_size_are_refused(counts: Any, tmp_path: Path) -> None:
    truth = write(tmp_path / "truth.json", [(1, 10, 10)], [entry_of(square(1, 1, 5, 5)[:10, :10], 1)])
    row = {"image_id": 1, "category_id": 7, "score": 0.5, "segmentation": {"size": [10, 10], "counts": counts}}
    (tmp_path / "found.json").write_text(json.dumps([row]))
    with pytest.raises(da.InputError, match=r"\[0\] has another form \(the counts of the RLE"):
        da.CocoEvaluator(truth, kind="segm").load(tmp_path / "found.json")
