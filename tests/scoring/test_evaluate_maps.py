"""`detaug evaluate --map` and `evaluate_maps`: files that a model predicted score as NumPy and panopticapi count."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import detaug, usage_error
from numpy.typing import NDArray
from panoptic_files import PaintedPanoptic, as_color
from PIL import Image
from test_panoptic_scores import Painted, reference

import detaug as da
from detaug.errors import InputError
from detaug.scoring import MapEvaluation, evaluate_maps

SIZE = (12, 16)
NAMES = ["sky", "road", "tree"]


class Files:
    """`images`, `maps`, an empty folder `found`, and boxes.json, which lists the images."""

    def __init__(self, folder: Path, maps: list[NDArray[Any]], size: tuple[int, int] = SIZE) -> None:
        self.folder = folder
        for name in ("images", "maps", "found"):
            (folder / name).mkdir(parents=True)
        rows = []
        for index, values in enumerate(maps):
            Image.fromarray(np.zeros((*size, 3), np.uint8)).save(folder / f"images/{index}.png")
            save(folder / f"maps/{index}.png", values)
            rows.append({"id": index + 1, "file_name": f"{index}.png", "height": size[0], "width": size[1]})
        box = {"id": 1, "image_id": 1, "category_id": 1, "bbox": [0, 0, 2, 2], "area": 4, "iscrowd": 0}
        content = {"images": rows, "annotations": [box], "categories": [{"id": 1, "name": "thing"}]}
        (folder / "boxes.json").write_text(json.dumps(content))

    def score(self, truth: Any, *annotations: Path, **more: Any) -> MapEvaluation:
        return evaluate_maps(truth, self.folder / "found", self.folder / "images", *annotations, **more)

    def order(self, *more: Any, listed: bool = False) -> list[Any]:
        """Return the arguments of the command."""
        json_file = [self.folder / "boxes.json"] if listed else []
        return ["evaluate", *json_file, self.folder / "images", "--predictions", self.folder / "found", *more]


def save(path: Path, values: NDArray[Any]) -> None:
    Image.fromarray(values).save(path)


def as_palette(path: Path, values: NDArray[Any]) -> None:
    """Write numbers as indices of a palette whose colors say nothing."""
    image = Image.fromarray(values.astype(np.uint8), "P")
    image.putpalette(np.random.default_rng(0).integers(0, 256, 768).tolist())
    image.save(path)


def as_array(path: Path, values: NDArray[Any]) -> None:
    np.save(path.with_suffix(".npy"), values.astype(np.int64))


WRITERS: dict[str, Callable[[Path, NDArray[Any]], None]] = {
    "8 bits": lambda path, values: save(path, values.astype(np.uint8)),
    "16 bits": lambda path, values: save(path, values.astype(np.uint16)),
    "palette": as_palette,
    "array": as_array,
    "tiff": lambda path, values: save(path.with_suffix(".tif"), values.astype(np.uint8)),
}


@pytest.mark.parametrize("scale", [1, 2])
@pytest.mark.parametrize("form", WRITERS)
def test_classes_score_as_a_confusion_matrix_of_numpy(tmp_path: Path, form: str, scale: int) -> None:
    """In all forms of files; at half of the size, each pixel stands for four. 255 is wrong where it is predicted."""
    rng = np.random.default_rng(0)
    maps = [rng.choice([0, 1, 2, 4, 255], SIZE).astype(np.uint8) for _ in range(5)]
    files, confusion = Files(tmp_path, maps), np.zeros((256, 256), np.int64)
    for index, true in enumerate(maps):
        small = rng.choice([0, 1, 4, 255], (SIZE[0] // scale, SIZE[1] // scale), p=[0.4, 0.3, 0.2, 0.1])
        WRITERS[form](tmp_path / f"found/{index}.png", small)
        found = small.repeat(scale, 0).repeat(scale, 1)
        np.add.at(confusion, (true[true != 255], found[true != 255]), 1)
    classes = ",".join([*NAMES, "never", "house"])
    report, order = tmp_path / "report.json", ["--map", f"semantic={tmp_path}/maps,classes={classes}", "--report"]
    result = detaug(*files.order(*order, report))
    assert (result.code, result.err) == (0, "")
    counted, right = confusion[:5, :5], confusion.diagonal()[:5]
    is_of = confusion[:5].sum(1)
    with np.errstate(invalid="ignore"):
        iou, recall = right / (is_of + counted.sum(0) - right), right / is_of
    content = json.loads(report.read_text())
    metrics = content["metrics"]
    assert [*metrics["iou"].values()] == [*iou[:3].tolist(), None, iou[4]]
    assert metrics["mIoU"] == pytest.approx(np.nanmean(iou), rel=1e-12)
    assert metrics["mean_accuracy"] == pytest.approx(np.nanmean(recall), rel=1e-12)
    assert metrics["accuracy"] == right.sum() / is_of.sum()
    assert (metrics["pixels"], content["no_class"]) == (is_of.sum(), confusion[:5, 255].sum())
    assert (content["kind"], content["images"], content["without_map"]) == ("semantic", 5, 0)
    lines = result.out.splitlines()
    assert lines[1] == f"5 images scored, {content['no_class']:,} pixels predicted as no class, which is wrong"
    assert lines[3:6] == ["class     IoU", f"sky  {iou[0]:8.3f}", f"road {iou[1]:8.3f}"]
    assert lines[6:] == [f"tree {iou[2]:8.3f}", "never       -", f"house{iou[4]:8.3f}", f"written: {report}"]


def test_without_names_the_numbers_that_occur_are_classes(tmp_path: Path) -> None:
    files = Files(tmp_path, [np.full(SIZE, 7, np.uint8)])
    found = np.full(SIZE, 7, np.uint8)
    found[0] = 200
    save(tmp_path / "found/0.png", found)
    score = files.score(da.ClassMap(tmp_path / "maps"))
    assert score.metrics.iou == {"7": 11 / 12, "200": 0}
    assert score.metrics.mIoU == 11 / 24
    assert str(score).splitlines()[1:] == ["1 image scored", "", "class     IoU", "7       0.917", "200     0.000"]


def test_predictions_of_one_bit_have_the_classes_0_and_1(tmp_path: Path) -> None:
    found = np.random.default_rng(0).integers(0, 2, SIZE).astype(bool)
    files = Files(tmp_path, [found.astype(np.uint8)])
    save(tmp_path / "found/0.png", found)
    with Image.open(tmp_path / "found/0.png") as image:
        assert image.mode == "1"
    assert files.score(da.ClassMap(tmp_path / "maps", classes=["a", "b"])).metrics.iou == {"a": 1, "b": 1}


def test_the_classes_of_a_table_are_those_of_the_predictions(tmp_path: Path) -> None:
    """A prediction of the numbers before the table is found by one that is no class."""
    values = np.full(SIZE, 33, np.uint8)
    values[:6] = 7
    files = Files(tmp_path, [values])
    truth = da.ClassMap(tmp_path / "maps", table="cityscapes")
    save(tmp_path / "found/0.png", np.where(values == 33, 18, 0).astype(np.uint8))
    assert files.score(truth).metrics.iou == {"0": 1, "18": 1}
    save(tmp_path / "found/0.png", values)
    with pytest.raises(
        InputError, match=r"has the value 33, where the maps have 19 classes, 0..18; predict these, or 255"
    ):
        files.score(truth)


COLORS = {(10, 20, 30): 0, (40, 20, 30): 1, (10, 20, 31): 2}


def test_predictions_in_colors_are_read_by_the_table_of_colors(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    colors = np.array([*COLORS], np.uint8)
    true, found = rng.integers(0, 3, (2, *SIZE))
    files = Files(tmp_path, [colors[true]])
    truth = da.ClassMap(tmp_path / "maps", table=COLORS, classes=NAMES)
    scores = []
    for values in (colors[found], found.astype(np.uint8)):
        save(tmp_path / "found/0.png", values)
        scores.append(files.score(truth).metrics)
    assert scores[0] == scores[1]
    assert scores[0].accuracy == (true == found).mean() < 0.5
    as_palette(tmp_path / "found/0.png", found)
    with pytest.raises(InputError, match=r"found/0.png has a palette, where the maps have colors"):
        files.score(truth)
    save(tmp_path / "found/0.png", colors[found] + 1)
    with pytest.raises(InputError, match=r"found/0.png has the value \(11, 21, 31\)|\(41, 21, 31\)|\(11, 21, 32\)"):
        files.score(truth)


@pytest.mark.parametrize(
    ("file", "values", "message"),
    [
        (
            "0.png",
            np.full(SIZE, 3, np.uint8),
            "has the value 3, where the maps have 3 classes, 0..2; predict these, or",
        ),
        ("0.npy", np.full(SIZE, -1), "has the value -1, where the maps have 3 classes"),
        ("0.npy", np.full(SIZE, 256), "has the value 256, where the maps have 3 classes"),
        ("0.npy", np.zeros(SIZE, np.float32), "has 12 x 16 values of type float32, where a prediction has the number"),
        ("0.npy", np.zeros((3, *SIZE), np.int64), "has 3 x 12 x 16 values of type int64"),
        ("0.png", np.zeros((*SIZE, 3), np.uint8), "has 12 x 16 x 3 values of type uint8, where a prediction has"),
        (
            "0.png",
            np.zeros(SIZE[::-1], np.uint8),
            "has 12 x 16 pixels, where the image has 16 x 12, as if the image's EXIF",
        ),
        ("0.png", np.zeros((12, 24), np.uint8), "has 24 x 12 pixels, where the image has 16 x 12, so it is not of it"),
    ],
)
def test_predictions_that_are_no_classes_are_named(
    tmp_path: Path, file: str, values: NDArray[Any], message: str
) -> None:
    files = Files(tmp_path, [np.zeros(SIZE, np.uint8)])
    path = tmp_path / "found" / file
    np.save(path, values) if file.endswith("npy") else save(path, values)
    error = usage_error(*files.order("--map", f"semantic={tmp_path / 'maps'},classes={','.join(NAMES)}"))
    assert f"{path} {message}" in error


@pytest.mark.parametrize("listed", [False, True])
def test_images_without_a_map_are_counted_and_those_without_a_prediction_are_one_error(
    tmp_path: Path, listed: bool
) -> None:
    files = Files(tmp_path, [np.full(SIZE, index, np.uint8) for index in range(3)])
    order = files.order("--map", f"semantic={tmp_path / 'maps'}", listed=listed)
    (tmp_path / "maps/1.png").unlink()
    for index in (0, 2):
        save(tmp_path / f"found/{index}.png", np.full(SIZE, index, np.uint8))
    result = detaug(*order)
    assert result.out.splitlines()[:2] == [
        "mIoU 1.000  accuracy 1.000  mean accuracy 1.000",
        "2 images scored, 1 without a map",
    ]
    assert [line.split() for line in result.out.splitlines()[-2:]] == [["0", "1.000"], ["2", "1.000"]]
    (tmp_path / "found/2.png").unlink()
    error = usage_error(*order)
    assert f"{tmp_path / 'found'}: 1 of 2 images have no prediction there, the first: 2.png; it would be 2.png" in error
    save(tmp_path / "found/2.jpg", np.zeros(SIZE, np.uint8))
    assert f"{tmp_path / 'found/2.jpg'} is JPEG or WebP, which changes numbers; save PNG" in usage_error(*order)
    (tmp_path / "maps/2.png").rename(tmp_path / "maps/2.webp")
    assert f"{tmp_path / 'maps/2.webp'} is JPEG or WebP, which changes numbers" in usage_error(*order)
    for path in (tmp_path / "maps").iterdir():
        path.rename(path.with_name(f"{path.stem}_mask.png"))
    error = usage_error(*order)
    assert "none of 3 images has a map 'semantic' there; it would be 0.png; give ClassMap(suffix=)" in error
    assert "missing=" not in error


def test_a_json_file_chooses_the_images(tmp_path: Path) -> None:
    files = Files(tmp_path, [np.zeros(SIZE, np.uint8)] * 3)
    for index, value in enumerate((0, 0, 1)):
        save(tmp_path / f"found/{index}.png", np.full(SIZE, value, np.uint8))
    truth, listed = da.ClassMap(tmp_path / "maps"), tmp_path / "boxes.json"
    assert files.score(truth, listed).metrics.accuracy == 2 / 3
    content = json.loads(listed.read_text())
    content["images"] = content["images"][:2]
    listed.write_text(json.dumps(content))
    assert files.score(truth, listed).metrics.accuracy == 1
    content["annotations"] = [{"image_id": 1, "file_name": "0.png", "segments_info": []}]
    content["categories"] = [{"id": 1, "name": "thing", "isthing": 1}]
    content["images"] = content["images"][:1]
    listed.write_text(json.dumps(content))
    assert files.score(truth, listed).counts["images"] == 1
    content["images"][0]["height"] = "12"
    listed.write_text(json.dumps(content))
    with pytest.raises(InputError, match=r"images\[0\] must be an object with file_name, height and width"):
        files.score(truth, listed)
    (tmp_path / "images/2.png").write_bytes(b"")
    with pytest.raises(InputError, match=r"images/2.png is empty \(0 bytes\); replace the file, or remove it"):
        files.score(truth)


def test_maps_without_a_class_that_is_known(tmp_path: Path) -> None:
    files = Files(tmp_path, [np.full(SIZE, 255, np.uint8)])
    save(tmp_path / "found/0.png", np.zeros(SIZE, np.uint8))
    with pytest.raises(InputError, match=r"maps: nothing to score: all pixels have the value 255, which is ignored"):
        files.score(da.ClassMap(tmp_path / "maps"))


def write_segments(data: Painted, categories: bool = True) -> Path:
    """Write the predicted segments as Mask2Former and others do, and return the JSON file."""
    folder = data.folder / "found"
    folder.mkdir()
    entries = []
    for index, (numbers, labels) in enumerate(data.found):
        save(folder / f"{index}.png", as_color(numbers))
        infos = [{"id": number, "category_id": label} for number, label in labels.items()]
        entries.append({"image_id": index + 1, "file_name": f"{index}.png", "segments_info": infos})
    content: dict[str, Any] = {"annotations": entries[::-1]}
    if categories:
        content["categories"] = json.loads((data.folder / "panoptic.json").read_text())["categories"]
    (data.folder / "found.json").write_text(json.dumps(content))
    return data.folder / "found.json"


def test_segments_score_as_panopticapi_counts(tmp_path: Path) -> None:
    for seed in range(12):
        data = Painted(tmp_path / str(seed), seed)
        found, report = write_segments(data, categories=seed % 2 == 0), tmp_path / f"{seed}-report.json"
        images = [data.folder / "images"]
        if seed % 3:
            images.insert(0, data.folder / ("panoptic.json" if seed % 3 == 1 else "things.json"))
        more = "--map", f"panoptic={data.folder / 'panoptic'}", "--predictions", found, "--report", report
        result = detaug("evaluate", *images, *more)
        assert (result.code, result.err) == (0, "")
        metrics, wanted = json.loads(report.read_text())["metrics"], reference(data)
        for name, value in wanted.items():
            kind, _, own = name.partition(" of ")
            got = metrics[f"{kind}_by_class"][own] if own else metrics[kind]
            assert got == pytest.approx(value, rel=1e-12, abs=0), name
        lines = [line.split() for line in result.out.splitlines()]
        wanted = {
            part: [f"{metrics[f'{name}_{part}']:.3f}" for name in ("PQ", "SQ", "RQ")] for part in ("things", "stuff")
        }
        assert lines[3:6] == [["class", "PQ", "SQ", "RQ"], *(["all", part, *own] for part, own in wanted.items())]
        assert ["snow", "-", "-", "-"] in lines
        if seed == 0:
            of_dogs = [f"{metrics[f'{name}_by_class']['dog']:.3f}" for name in ("PQ", "SQ", "RQ")]
            assert ["dog", *of_dogs] in lines


def test_segments_at_another_size(tmp_path: Path) -> None:
    data = Painted(tmp_path, 3)
    before = data.found
    data.found = [(numbers.repeat(3, 0).repeat(3, 1), labels) for numbers, labels in before]
    score = evaluate_maps(da.PanopticMap(tmp_path / "panoptic"), write_segments(data), tmp_path / "images")
    data.found = before
    assert pytest.approx(reference(data)["PQ"], rel=1e-12) == score.metrics.PQ


def test_segments_with_category_ids_of_their_own(tmp_path: Path) -> None:
    data = Painted(tmp_path, 3)
    found = write_segments(data)
    content = json.loads(found.read_text())
    for row in content["categories"]:
        row["id"] += 50
    for entry in content["annotations"]:
        entry["segments_info"] = [{**row, "category_id": row["category_id"] + 50} for row in entry["segments_info"]]
    found.write_text(json.dumps(content))
    with pytest.raises(InputError, match="which the ground truth does not have; predict the ids of its categories"):
        evaluate_maps(da.PanopticMap(tmp_path / "panoptic"), found, tmp_path / "images")


def test_panoptic_files_that_do_not_belong_together(tmp_path: Path) -> None:
    data = PaintedPanoptic(tmp_path, 3)
    shutil.copytree(tmp_path / "panoptic", tmp_path / "found")
    order = ["evaluate", tmp_path / "images", "--map", f"panoptic={tmp_path / 'panoptic'}", "--predictions"]
    (tmp_path / "found.json").write_text(json.dumps({"annotations": data.entries[:2]}))
    message = (
        "1 of 3 images have no prediction there, the first: 2.png; the JSON file of the maps has no annotation with"
    )
    assert message in usage_error(*order, tmp_path / "found.json")
    for wrong in ("found", "none.json"):
        assert "predictions must be the JSON file of panoptic maps" in usage_error(*order, tmp_path / wrong)
    (tmp_path / "other.json").write_text(json.dumps({"annotations": data.entries}))
    assert f"{tmp_path / 'other'}: no such folder; it must hold the predictions" in usage_error(
        *order, tmp_path / "other.json"
    )
    (tmp_path / "found.json").write_text(json.dumps({"annotations": data.entries}))
    assert detaug(*order, tmp_path / "found.json").out.startswith("PQ 1.000")
    for mine in ("panoptic.json", "found.json"):
        error = usage_error(*order, tmp_path / "found.json", "--report", tmp_path / mine, "-q")
        assert f"report must be another file than {tmp_path / mine}, which is an input" in error
    for entry in data.entries:
        entry["segments_info"] = [{**each, "iscrowd": 1} for each in entry["segments_info"]]
    data.write()
    assert "nothing to score: no map has a segment that is not a crowd" in usage_error(*order, tmp_path / "found.json")
    elsewhere = tmp_path / "elsewhere.json"
    shutil.move(tmp_path / "panoptic.json", elsewhere)
    assert "no such JSON file" in usage_error(*order, tmp_path / "found.json")
    assert "nothing to score" in usage_error("evaluate", elsewhere, *order[1:], tmp_path / "found.json")
    order[3] += f",annotations={elsewhere}"
    assert "nothing to score" in usage_error(*order, tmp_path / "found.json")


def depth_scores(found: NDArray[Any], true: NDArray[Any], most: float) -> list[float]:
    """Return delta1, delta2, delta3, abs_rel, rmse and silog of an image, meters."""
    known = (true > 0) & (true <= most)
    p, t = found[known].clip(1e-3, most), true[known]
    ratio, logs = np.maximum(p / t, t / p), np.log(p) - np.log(t)
    deltas = [(ratio < 1.25**power).mean() for power in (1, 2, 3)]
    return [*deltas, (abs(p - t) / t).mean(), np.sqrt(((p - t) ** 2).mean()), 100 * logs.std()]


@pytest.mark.parametrize(("scale", "unit"), [("", 0.001), (",scale=0.001", 0.001), (",scale=1/256", 1 / 256)])
@pytest.mark.parametrize("dtype", [np.uint16, np.float32])
def test_depths_score_as_numpy_counts(tmp_path: Path, dtype: Any, scale: str, unit: float) -> None:
    """Whole numbers have the scale of the maps, floats are meters, whatever it is."""
    rng = np.random.default_rng(0)
    maps = [rng.integers(300, 9000, SIZE).astype(np.uint16) for _ in range(3)]
    maps[1][:3] = 0
    files, rows = Files(tmp_path, maps), []
    for index, true in enumerate(maps):
        found = (true * rng.uniform(0.6, 1.6, SIZE) + 100).round().astype(np.uint16)
        if dtype == np.float32:
            np.save(tmp_path / f"found/{index}.npy", (found * unit).astype(np.float32))
        else:
            save(tmp_path / f"found/{index}.png", found)
        rows.append(depth_scores(found * unit, true * unit, 8))
    more = "--map", f"depth={tmp_path / 'maps'}{scale}", "--max-depth", 8, "--report", tmp_path / "report.json"
    result = detaug(*files.order(*more))
    content = json.loads((tmp_path / "report.json").read_text())
    assert [content["metrics"].pop(name) for name in ("delta1", "delta2", "delta3")] == pytest.approx(
        np.mean(rows, 0)[:3], abs=1e-12
    )
    assert [content["metrics"][name] for name in ("abs_rel", "rmse", "silog")] == pytest.approx(
        np.mean(rows, 0)[3:], rel=1e-5
    )
    assert (content["kind"], content["images"], content["without_depth"]) == ("depth", 3, 0)
    assert result.out.splitlines()[1:] == ["3 images scored", f"written: {tmp_path / 'report.json'}"]


def test_depths_of_another_size_are_interpolated_where_they_are_known(tmp_path: Path) -> None:
    y, x = np.mgrid[: SIZE[0], : SIZE[1]] + 0.5
    plane = 2000 + 10 * x + 20 * y
    plane[[0, -1]], plane[:, [0, -1]] = 0, 0  # beyond the centers of the smaller map's pixels
    files = Files(tmp_path, [plane.astype(np.uint16)])
    y, x = np.mgrid[: SIZE[0] // 2, : SIZE[1] // 2] * 2 + 1.0
    small = 2 + 0.01 * x + 0.02 * y
    np.save(tmp_path / "found/0.npy", small)
    assert files.score(da.DepthMap(tmp_path / "maps")).metrics.rmse < 1e-6
    small[2, 3] = np.nan
    np.save(tmp_path / "found/0.npy", small)
    with pytest.raises(InputError, match=r"found/0.npy has no depth, a number above 0, at 16 pixels where the map has"):
        files.score(da.DepthMap(tmp_path / "maps"))


def test_depths_that_are_not_known(tmp_path: Path) -> None:
    maps = [np.full(SIZE, 1000, np.uint16), np.zeros(SIZE, np.uint16)]
    maps[0][0, :5] = 65535
    files = Files(tmp_path, maps)
    for index in range(2):
        save(tmp_path / f"found/{index}.png", maps[0])
    order = files.order("--map", f"depth={tmp_path / 'maps'},invalid=65535")
    assert "2 images scored, 1 without a known depth" in detaug(*order).out
    order[-1] = f"depth={tmp_path / 'maps'}"
    assert "rmse 0.000" in detaug(*order).out
    save(tmp_path / "maps/0.png", np.full(SIZE, 1000, np.uint16))
    order[-1] += ",invalid=65535"
    error = usage_error(*order)
    assert f"{tmp_path / 'found/0.png'} has no depth, a number above 0, at 5 pixels where the map has one" in error
    order[-1] = f"depth={tmp_path / 'maps'},scale=1000"
    assert "no map has a depth in 0.001..8 m; give DepthMap(scale=)" in usage_error(*order, "--max-depth", 8)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--map semantic=maps --predictions found", "Missing argument 'IMAGES': give FILE.json IMAGES; with --map"),
        ("images", "Missing argument 'IMAGES': give FILE.json IMAGES; with --map, IMAGES alone will do"),
        ("boxes.json images", "give --model MODEL.pt or --detections FILE.json; for maps --map and --predictions"),
        ("images --map semantic=maps", "--map needs --predictions FOLDER, of panoptic maps --predictions FILE.json"),
        ("images --predictions found", "--predictions is for maps: give --map NAME=FOLDER, too"),
        ("boxes.json images --max-depth 3", "--max-depth is for maps of depths: give --map depth=FOLDER and"),
        ("images --map semantic=maps --predictions found --max-depth 3", "--max-depth is for maps of depths: leave it"),
        ("images --map depth=maps --predictions found --max-depth 0.001", "--max-depth"),
        ("images --map depth=maps --predictions found --max-depth nan", "--max-depth must be None, or of a DepthMap"),
        ("images --map a=maps --map b=maps --predictions found", "--map must be given once"),
        ("images --map semantic=none --predictions found", "no such folder: none"),
        ("images --map semantic=maps --predictions none", "none: no such folder; it must hold the predictions"),
        ("none --map semantic=maps --predictions found", "none: no such folder; it must hold the images"),
        ("boxes.json --map semantic=maps --predictions found", "boxes.json: no such folder; it must hold the images"),
        ("images boxes.json --map semantic=maps --predictions found", "is a folder in the place of the JSON file"),
        ("images --map semantic=maps --predictions found --report x.txt", "--report x.txt must end in .json"),
        ("images --map semantic=maps,scale=2 --predictions found", "must have keys of classes, ignore, missing"),
        (
            "images --map panoptic=maps,ignore=2 --predictions found",
            "must have keys of annotations, missing, suffix and",
        ),
        ("s3://bucket/images --map semantic=maps --predictions found", "is in a bucket; give a path on a disk"),
    ],
)
def test_wrong_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: str, message: str) -> None:
    Files(tmp_path, [np.zeros(SIZE, np.uint8)])
    monkeypatch.chdir(tmp_path)
    assert message in usage_error("evaluate", *arguments.split())


OF_BOXES = {
    "detections": "d.json", "min-score": 0.4, "tile": 9, "overlap": 0.1, "max-detections": 200,
    "html": "a.html", "sheet": "a.png", "output": "a.json", "batch-size": 8, "device": "cpu",
}  # fmt: skip


@pytest.mark.parametrize("name", OF_BOXES)
def test_options_of_boxes_are_refused(tmp_path: Path, name: str) -> None:
    files = Files(tmp_path, [np.zeros(SIZE, np.uint8)])
    error = usage_error(*files.order("--map", f"semantic={tmp_path / 'maps'}", f"--{name}", OF_BOXES[name]))
    assert f"--{name} is for boxes: leave it out, or --map" in error


def test_wrong_arguments_in_python(tmp_path: Path) -> None:
    files = Files(tmp_path, [np.zeros(SIZE, np.uint8)])
    with pytest.raises(InputError, match=r"truth must be a da.ClassMap, da.PanopticMap or da.DepthMap, got 'maps'"):
        files.score("maps")
    for kind in (da.ClassMap, da.PanopticMap):
        with pytest.raises(InputError, match=r"max_depth must be None, or of a DepthMap a number above 0.001, got 8"):
            files.score(kind(tmp_path / "maps"), max_depth=8)


def test_quiet_and_progress(tmp_path: Path) -> None:
    files = Files(tmp_path, [np.zeros(SIZE, np.uint8)] * 2)
    for index in range(2):
        save(tmp_path / f"found/{index}.png", np.zeros(SIZE, np.uint8))
    order = files.order("--map", f"semantic={tmp_path / 'maps'}", "-q", "--report", tmp_path / "report.json")
    assert detaug(*order) == (0, "", "")
    assert json.loads((tmp_path / "report.json").read_text())["metrics"]["mIoU"] == 1
    calls: list[tuple[int, int]] = []
    files.score(da.ClassMap(tmp_path / "maps"), progress=lambda done, total: calls.append((done, total)))
    assert calls == [(2, 2)]
