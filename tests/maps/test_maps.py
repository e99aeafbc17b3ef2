"""Maps beside the images: the value of the source pixel that is seen, through every op and every kind of source."""

from __future__ import annotations

import gc
import json
import pickle
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from seeds import slow

import detaug as da
from detaug.errors import DataError, InputError
from detaug.maps.kinds import pixels_of
from detaug.ops.op import Op

BLACK = (0, 0, 0)
SIZE = (160, 200)

RECIPES: dict[str, list[Op]] = {
    "resize": [da.Resize(SIZE)],
    "turned": [da.RandomHorizontalFlip(), da.RandomVerticalFlip(), da.RandomRotate90(), da.Resize(SIZE)],
    "zoomed and cropped": [da.RandomZoomOut(fill=BLACK), da.RandomIoUCrop(), da.Resize(SIZE)],
    "letterbox": [da.Resize(SIZE, letterbox="center", fill=BLACK)],
    "affine": [da.RandomAffine(fill=BLACK), da.Resize(SIZE)],
    "rotated and cropped": [da.RandomRotation(30, fill=BLACK), da.RandomIoUCrop(), da.Resize(SIZE)],
    "perspective": [da.RandomPerspective(fill=BLACK), da.Resize(SIZE)],
    "mosaic": [da.RandomZoomOut(fill=BLACK), da.Resize(SIZE, letterbox="center", fill=BLACK), da.Mosaic()],
    "cutmix": [da.RandomAffine(fill=BLACK), da.Resize(SIZE), da.CutMix()],
    "copypaste": [da.RandomRotation(20, fill=BLACK), da.Resize(SIZE), da.CopyPaste()],
    "erased": [da.Resize(SIZE), da.Mosaic(), da.CopyPaste(), da.RandomErasing(p=1, value=BLACK)],
    "gridmask": [da.Resize(SIZE), da.CopyPaste(), da.CutMix(), da.GridMask(p=1)],
    "lens": [da.Resize(SIZE), da.OpticalDistortion(p=1, fill=BLACK)],
    "elastic": [da.Resize(SIZE), da.ElasticTransform(p=1, fill=BLACK)],
    "mosaic under a lens": [da.Resize(SIZE), da.Mosaic(), da.OpticalDistortion(p=1, fill=BLACK)],
}


@pytest.mark.parametrize("name", RECIPES)
def test_maps_follow_pixels(name: str) -> None:
    assert da.testing.assert_maps_follow_pixels(RECIPES[name]) > 100_000


MOVED: list[Op] = [
    da.RandomHorizontalFlip(),
    da.RandomVerticalFlip(),
    da.RandomRotate90(),
    da.RandomRotation(40, fill=BLACK),
    da.RandomAffine(degrees=20, scale=(0.7, 1.4), translate=(0.1, 0.1), shear=10, fill=BLACK),
    da.RandomPerspective(distortion_scale=0.4, p=1, fill=BLACK),
    da.RandomIoUCrop(),
    da.RandomCrop((150, 180), fill=BLACK),
    da.RandomZoomOut(max_ratio=2, fill=BLACK),
    da.Pad(9, fill=BLACK),
]
RESIZED: list[Op] = [
    da.Resize(SIZE),
    *(da.Resize(SIZE, letterbox=place, fill=BLACK) for place in ("center", "top-left")),
]
COVERED: list[Op] = [
    da.Mosaic(),
    da.CutMix(p=1),
    da.CopyPaste(p=1),
    da.RandomErasing(p=1, value=BLACK),
    da.GridMask(value=BLACK),
    da.SanitizeBoundingBoxes(min_size=8),
]
BENT: list[Op] = [da.OpticalDistortion(p=1, fill=BLACK), da.ElasticTransform(p=1, fill=BLACK)]


def random_chain(seed: int) -> list[Op]:
    """Return up to four ops that move an image, a `Resize`, up to three that cover parts, and seldom one that bends."""
    rng = np.random.default_rng(seed)
    moved, covered, bent = (
        [ops[at] for at in rng.choice(len(ops), rng.integers(0, most, endpoint=True), replace=False)]
        for ops, most in ((MOVED, 4), (COVERED, 3), (BENT, 1))
    )
    return [*moved, RESIZED[rng.integers(len(RESIZED))], *covered, *bent]


@pytest.mark.parametrize("seed", [75, 97, 103, *slow(*range(40))])
def test_maps_follow_random_chains(seed: int) -> None:
    """In the first three, points of a bent image are exactly on the edge of an image, or the seam of two tiles."""
    assert da.testing.assert_maps_follow_pixels(random_chain(seed), seed=seed) > 20_000


def test_a_map_that_stays_behind_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = da.Batch.map
    monkeypatch.setattr(da.Batch, "map", lambda batch, name: real(batch, name).roll(3, 2))
    with pytest.raises(AssertionError, match=r"pixels of the map do not have the value of their color.*wrong\.png"):
        da.testing.assert_maps_follow_pixels([da.Resize(SIZE)], picture=tmp_path / "wrong.png")


class Files:
    """Images with a box, and maps of them."""

    def __init__(self, folder: Path, maps: list[NDArray[Any]], sizes: list[tuple[int, int]] | None = None) -> None:
        self.folder = folder
        for name in ("images", "maps"):
            (folder / name).mkdir(parents=True)
        rows, boxes = [], []
        for index, values in enumerate(maps):
            height, width = sizes[index] if sizes else values.shape
            Image.fromarray(np.full((height, width, 3), 40 * index % 160 + 50, np.uint8)).save(
                folder / f"images/{index}.png"
            )
            Image.fromarray(values).save(folder / f"maps/{index}.png")
            rows.append({"id": index + 1, "file_name": f"{index}.png", "height": height, "width": width})
            box = {"id": index + 1, "image_id": index + 1, "category_id": 1, "bbox": [0, 0, 2, 2], "area": 4}
            boxes.append(box | {"iscrowd": 0})
        self.write({"images": rows, "annotations": boxes, "categories": [{"id": 1, "name": "thing"}]})

    def write(self, content: dict[str, Any]) -> None:
        (self.folder / "boxes.json").write_text(json.dumps(content))

    def reader(self, kind: Any = None, **more: Any) -> da.CocoReader:
        kind = kind or da.ClassMap("maps")
        return da.CocoReader(self.folder / "images", self.folder / "boxes.json", maps={"semantic": kind}, **more)


def evaluate(reader: da.Source, *ops: Op, **more: Any) -> da.Batch:
    recipe = ops or (da.Resize((48, 64)),)
    return next(iter(da.Loader(reader, recipe, batch_size=len(reader), train=False, device="cpu", **more)))


def coded(seed: int = 0, count: int = 3) -> list[NDArray[np.uint8]]:
    """Return maps in which each pixel has another value than its neighbors."""
    rng = np.random.default_rng(seed)
    return [rng.integers(0, 200, [(48, 64), (64, 48), (50, 70)][at % 3], np.uint8) for at in range(count)]


@pytest.mark.parametrize(
    "ops",
    [
        (da.Resize((37, 91)),),
        (da.RandomHorizontalFlip(p=1), da.RandomAffine(degrees=25, scale=(0.7, 1.4)), da.Resize((60, 60))),
        (da.RandomPerspective(p=1), da.Resize((60, 60))),
    ],
)
def test_each_pixel_has_the_value_of_the_nearest_one(tmp_path: Path, ops: tuple[Op, ...]) -> None:
    """By NumPy in double precision, from the batch's matrix; points within 1/100 pixel of an edge are left out."""
    maps = coded()
    loader = da.Loader(Files(tmp_path, maps).reader(), ops, batch_size=3, device="cpu", seed=3)
    for batch in loader:
        values, compared = batch.maps["semantic"].numpy(), 0
        for index, image_id in enumerate(batch.image_id.tolist()):
            truth = maps[image_id - 1]
            matrix = np.eye(3)
            matrix[: batch.matrix.shape[1]] = batch.matrix[index].double().numpy()
            y, x = np.mgrid[: values.shape[1], : values.shape[2]] + 0.5
            at_x, at_y, depth = np.tensordot(np.linalg.inv(matrix), np.stack([x, y, np.ones_like(x)]), 1)
            at_x, at_y = at_x / depth, at_y / depth
            inside = (at_x > 0.01) & (at_x < truth.shape[1] - 0.01) & (at_y > 0.01) & (at_y < truth.shape[0] - 0.01)
            clear = (abs(at_x - at_x.round()) > 0.01) & (abs(at_y - at_y.round()) > 0.01) & inside & (depth > 0)
            wanted = truth[at_y[clear].astype(int), at_x[clear].astype(int)]
            assert (values[index][clear] == wanted).all()
            outside = (at_x < -0.01) | (at_x > truth.shape[1] + 0.01) | (at_y < -0.01) | (at_y > truth.shape[0] + 0.01)
            assert (values[index][outside] == 255).all()
            compared += clear.sum()
        assert compared > 3000


def test_ties_go_to_one_side(tmp_path: Path) -> None:
    """At half the size each center lies on the corner of four pixels: the right one of the lower two is taken."""
    maps = coded()[:1]
    batch = evaluate(Files(tmp_path, maps).reader(), da.Resize((24, 32)))
    assert (batch.maps["semantic"][0].numpy() == maps[0][1::2, 1::2]).all()
    assert batch.map("semantic", stride=2).shape == (1, 12, 16)


@pytest.mark.parametrize("flipped", [False, True])
@pytest.mark.parametrize("size", [(96, 128), (64, 128), (128, 256), (114, 171)])
def test_ties_go_to_one_side_also_where_a_scale_is_no_binary_fraction(
    tmp_path: Path, size: tuple[int, int], flipped: bool
) -> None:
    """In whole numbers: the source pixel of a center is floor((2 x + 1) side / (2 sides)), ties to the right."""
    values = np.random.default_rng(0).integers(0, 200, size, np.uint8)
    ops = [da.RandomHorizontalFlip(p=1)] * flipped + [da.Resize((160, 200), letterbox="center")]
    loader = da.Loader(Files(tmp_path, [values]).reader(), ops, 1, device="cpu")
    found = next(iter(loader)).maps["semantic"][0].numpy()
    rows, columns = np.flatnonzero((found < 255).any(1)), np.flatnonzero((found < 255).any(0))
    inside = found[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    at_y, at_x = (
        (2 * np.arange(shown) + 1) * side // (2 * shown) for shown, side in zip(inside.shape, size, strict=True)
    )
    if flipped:  # of the right neighbor's view
        at_x = size[1] - 1 + (-((2 * np.arange(inside.shape[1]) + 1) * size[1]) // (2 * inside.shape[1])) + 1
    assert (inside == values[at_y[:, None], at_x]).all()


@pytest.mark.parametrize("scale", [2, 3])
def test_maps_of_another_size(tmp_path: Path, scale: int) -> None:
    maps = coded()
    smaller = [np.repeat(np.repeat(each, scale, 0), scale, 1) for each in maps]
    own = evaluate(Files(tmp_path / "a", maps, [each.shape for each in smaller]).reader())
    same = evaluate(Files(tmp_path / "b", smaller).reader())
    assert torch.equal(own.maps["semantic"], same.maps["semantic"])


def test_a_map_whose_sides_are_rounded(tmp_path: Path) -> None:
    """Each axis has its own scale."""
    values = np.arange(24 * 33, dtype=np.int64).reshape(24, 33) % 200
    batch = evaluate(Files(tmp_path, [values.astype(np.uint8)], [(48, 64)]).reader(), da.Resize((48, 64)))
    rows, columns = ((2 * np.arange(n) + 1) * own // (2 * n) for n, own in ((48, 24), (64, 33)))
    assert (batch.maps["semantic"][0].numpy() == values[rows[:, None], columns]).all()


# ------------------------------------------------------------------------------------------------- files


def test_palettes_and_bits_are_numbers(tmp_path: Path) -> None:
    values = np.arange(48 * 64, dtype=np.int64).reshape(48, 64) % 2
    files = Files(tmp_path, [values.astype(np.uint8)] * 4)
    palette = Image.fromarray((values * 7).astype(np.uint8), "P")
    palette.putpalette([3 * number % 256 for number in range(768)])
    palette.save(tmp_path / "maps/1.png")
    Image.fromarray(values.astype(bool)).save(tmp_path / "maps/2.png")
    (tmp_path / "maps/3.png").unlink()
    np.save(tmp_path / "maps/3.npy", values)
    batch = evaluate(files.reader(), da.Resize((48, 64)))
    for index, factor in enumerate((1, 7, 1, 1)):
        assert (batch.maps["semantic"][index].numpy() == values * factor).all()


def test_tables(tmp_path: Path) -> None:
    values = np.array([[7, 8, 0], [255, 33, 11]], np.uint8)
    files = Files(tmp_path, [values])
    size = da.Resize((2, 3))
    cityscapes = evaluate(files.reader(da.ClassMap("maps", table="cityscapes")), size)
    assert cityscapes.maps["semantic"][0].tolist() == [[0, 1, 255], [255, 18, 2]]
    own = evaluate(files.reader(da.ClassMap("maps", table={7: 1, 8: 1, 0: 0, 33: 9, 11: 255})), size)
    assert own.maps["semantic"][0].tolist() == [[1, 1, 0], [255, 9, 255]]
    ade = evaluate(files.reader(da.ClassMap("maps", table="ade20k")), size)
    assert ade.maps["semantic"][0].tolist() == [[6, 7, 255], [255, 32, 10]]
    colors = np.array([[(128, 64, 128), (0, 0, 1)], [(0, 1, 0), (0, 0, 1)]], np.uint8)
    Image.fromarray(colors).resize((3, 2), Image.Resampling.NEAREST).save(tmp_path / "maps/0.png")
    table = {(128, 64, 128): 4, (0, 0, 1): 5, (0, 1, 0): 255}
    assert set(evaluate(files.reader(da.ClassMap("maps", table=table)), size).maps["semantic"].unique().tolist()) == {
        4, 5, 255,
    }  # fmt: skip


def broken(path: Path) -> str:
    path.write_bytes(path.read_bytes()[:-30])
    return "0.png: does not decode"


def colored(path: Path) -> str:
    Image.open(path).convert("RGB").save(path)
    return "0.png has colors where numbers of classes are expected; give ClassMap.table="


def turned(path: Path) -> str:
    Image.open(path).transpose(Image.Transpose.ROTATE_90).save(path)
    return "0.png has 48 x 64 pixels, where the image has 64 x 48, as if .* EXIF"


def of_another(path: Path) -> str:
    Image.fromarray(np.zeros((30, 64), np.uint8)).save(path)
    return "0.png has 64 x 30 pixels, where the image has 64 x 48, so it is not of it"


def sixteen_bits(path: Path) -> str:
    Image.fromarray(np.full((48, 64), 300, np.uint16)).save(path)
    return r"0.png has the value 300, where a class is in 0..255; give ClassMap.table="


def unnamed(path: Path) -> str:
    Image.fromarray(np.full((48, 64), 200, np.uint8)).save(path)
    return r"0.png has the value 200, where its ClassMap has 200 classes, 0..199, and ignores 255"


@pytest.mark.parametrize("damage", [broken, colored, turned, of_another, sixteen_bits, unnamed])
def test_a_map_that_cannot_be_used_is_named_or_skipped(tmp_path: Path, damage: Any) -> None:
    files = Files(tmp_path, coded())
    message = damage(tmp_path / "maps/0.png")
    reader = files.reader(da.ClassMap("maps", classes=[f"class {number}" for number in range(200)]))
    with pytest.raises(DataError, match=f"{message}.*; replace the file, or leave its image out of the JSON file"):
        evaluate(reader)
    with pytest.warns(UserWarning, match="skipped"):
        batch = evaluate(reader, on_error="skip", max_skipped=0.5)
    assert batch.image_id.tolist() == [2, 3]
    assert (batch.maps["semantic"].flatten(1) < 255).any(1).all()


def test_images_without_a_map(tmp_path: Path) -> None:
    files = Files(tmp_path, coded())
    (tmp_path / "maps/1.png").unlink()
    reader = files.reader()
    with pytest.raises(InputError, match=r"1 of 3 images have no map, the first: .*1.png has no map 'semantic' in"):
        evaluate(reader)
    with pytest.warns(UserWarning, match="skipped"):
        assert evaluate(reader, on_error="skip", max_skipped=0.5).image_id.tolist() == [1, 3]
    lenient = evaluate(files.reader(da.ClassMap("maps", missing="ignore")))
    assert [bool((each == 255).all()) for each in lenient.maps["semantic"]] == [False, True, False]


@pytest.mark.parametrize(
    ("maps", "message"),
    [
        ({"a": "maps"}, "must be a da.ClassMap, da.PanopticMap or da.DepthMap"),
        (["maps"], "maps must be a dict, such as"),
        ({"a": da.ClassMap("nowhere")}, "the map 'a': no such folder: nowhere, .*nowhere"),
        ({"a": da.ClassMap("maps", suffix="_x")}, "none of 3 images has a map 'a' there; it would be 0_x.png"),
    ],
)
def test_wrong_maps(tmp_path: Path, maps: Any, message: str) -> None:
    Files(tmp_path, coded())
    with pytest.raises(InputError, match=message):
        da.CocoReader(tmp_path / "images", tmp_path / "boxes.json", maps=maps)


@pytest.mark.parametrize(
    "arguments",
    [
        {"ignore": 256}, {"ignore": True}, {"table": "coco"}, {"table": {1: 256}}, {"table": {}}, {"missing": "no"},
        {"table": {1: 1, (1, 2, 3): 2}}, {"classes": ["a", "a"]}, {"classes": "abc"}, {"erased": 1}, {"suffix": None},
    ],
)  # fmt: skip
def test_wrong_arguments_of_class_maps(arguments: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=f"^{next(iter(arguments))} must be"):
        da.ClassMap("maps", **arguments)


@pytest.mark.parametrize("arguments", [{"scale": 0}, {"scale": "1"}, {"invalid": None}, {"missing": ""}])
def test_wrong_arguments_of_depth_maps(arguments: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=f"^{next(iter(arguments))} must be"):
        da.DepthMap("depth", **arguments)


def test_two_files_for_an_image(tmp_path: Path) -> None:
    files = Files(tmp_path, coded())
    np.save(tmp_path / "maps/2.npy", np.zeros((50, 70), np.uint8))
    with pytest.raises(InputError, match=r"2.npy and .*2.png are both the map 'semantic' of 2.png"):
        files.reader()
    batch = evaluate(files.reader(da.ClassMap("maps", suffix=".png")))
    assert (batch.maps["semantic"] < 255).any()


def gray_files(folder: Path, *names: str) -> Path:
    """Write gray images of one size, and return their folder."""
    folder.mkdir(parents=True)
    for name in names:
        Image.fromarray(np.zeros((40, 50), np.uint8)).save(folder / name)
    return folder


@pytest.mark.parametrize("suffix", ["", "_mask"])
def test_a_map_is_not_an_image(tmp_path: Path, suffix: str) -> None:
    mixed = gray_files(tmp_path / "mixed", "a.jpg", "a_mask.png")
    with pytest.raises(InputError, match=r"a_mask.png is one of the images, .* move the maps to a folder of their own"):
        da.MapReader(mixed, mixed, suffix=suffix)
    (mixed / "masks").mkdir()
    (mixed / "a_mask.png").rename(mixed / "masks/a_mask.png")
    assert len(da.MapReader(gray_files(tmp_path / "images", "a.jpg"), mixed / "masks", suffix="_mask")) == 1


@pytest.mark.parametrize(("images", "suffix"), [(("a.jpg", "a.png"), ""), (("a_left.png", "a_right.png"), "_gt")])
def test_a_map_of_two_images(tmp_path: Path, images: tuple[str, str], suffix: str) -> None:
    folder, maps = gray_files(tmp_path / "images", *images), gray_files(tmp_path / "maps", f"a{suffix}.png")
    with pytest.raises(InputError, match=rf"is the map 'semantic' of two images, {' and '.join(images)}; rename one"):
        da.MapReader(folder, maps, suffix=suffix)
    (folder / images[1]).rename(folder / f"b{Path(images[1]).suffix}")
    gray_files(tmp_path / "others", "b.png")
    (tmp_path / "others/b.png").rename(maps / f"b{suffix}.png")
    assert len(da.MapReader(folder, maps, suffix=suffix)) == 2


def test_layout_of_cityscapes(tmp_path: Path) -> None:
    for split, city, number in (("train", "aachen", 1), ("train", "bonn", 1), ("val", "ulm", 2)):
        for kind, ending in (("leftImg8bit", "leftImg8bit"), ("gtFine", "gtFine_labelIds")):
            path = tmp_path / kind / split / city / f"{city}_00000{number}_000019_{ending}.png"
            path.parent.mkdir(parents=True)
            value = np.full((16, 32), 26 if city == "bonn" else 7, np.uint8)
            Image.fromarray(np.stack([value] * 3, 2) if ending == "leftImg8bit" else value).save(path)
    reader = da.MapReader(
        tmp_path / "leftImg8bit", tmp_path / "gtFine", suffix="_gtFine_labelIds", table="cityscapes",
        classes=[f"class {number}" for number in range(19)],
    )  # fmt: skip
    batch = evaluate(reader, da.Resize((8, 16)))
    assert [int(each.unique()) for each in batch.maps["semantic"]] == [0, 13, 0]
    assert batch.boxes.shape == (3, 0, 4)
    images, classes = batch.as_semantic()
    assert images.shape == (3, 3, 8, 16)
    assert classes.dtype == torch.int64


# ------------------------------------------------------------------------------------- sources and mixing


def test_joined_sources_have_the_classes_of_all_by_name(tmp_path: Path) -> None:
    one, other = np.zeros((48, 64), np.uint8), np.ones((48, 64), np.uint8)
    other[0] = 9
    readers = [
        Files(tmp_path / "a", [one]).reader(da.ClassMap("maps", classes=["road", "sky"])),
        Files(tmp_path / "b", [other]).reader(da.ClassMap("maps", classes=["tree", "road"], ignore=9)),
        da.CocoReader(tmp_path / "a/images", tmp_path / "a/boxes.json"),
    ]
    batch = evaluate(da.ConcatReader(readers), da.Resize((48, 64)))
    first, second, third = batch.maps["semantic"]
    assert int(first.unique()) == int(second[1:].unique()) == 0
    assert int(second[0].unique()) == int(third.unique()) == 255
    void = Files(tmp_path / "e", [one]).reader(da.ClassMap("maps", classes=["void", "road"], ignore=0))
    assert evaluate(da.ConcatReader([readers[0], void])).maps["semantic"][1].unique().tolist() == [255]
    unnamed_classes = Files(tmp_path / "c", [one]).reader()
    with pytest.raises(InputError, match=r"must have classes=, or none"):
        da.ConcatReader([readers[0], unnamed_classes])
    with pytest.raises(InputError, match="must be of one kind"):
        da.ConcatReader([readers[0], Files(tmp_path / "d", [one]).reader(da.DepthMap("maps"))])


def test_tiles_have_the_parts_of_the_map(tmp_path: Path) -> None:
    maps = coded()
    reader = da.TileReader(Files(tmp_path, maps).reader(), 32, whole=40)
    for batch in da.Loader(reader, [da.Resize((32, 32), letterbox="top-left")], 4, train=False, device="cpu"):
        for index, (tile, size) in enumerate(zip(batch.image_id.tolist(), batch.image_size.tolist(), strict=True)):
            x, y, width, height = reader.windows[tile - 1].tolist()
            if (height, width) == tuple(size):
                wanted = maps[reader.pictures[tile - 1]][y : y + height, x : x + width]
                assert (batch.maps["semantic"][index].numpy()[:height, :width] == wanted).all()
            assert (
                batch.maps["semantic"][index, size[0] :].numel() == 0
                or (batch.maps["semantic"][index, size[0] :] == 255).all()
            )


def two(tmp_path: Path, **more: Any) -> da.CocoReader:
    return Files(tmp_path, [np.full((48, 64), value, np.uint8) for value in (3, 5)]).reader(da.ClassMap("maps", **more))


@pytest.mark.filterwarnings("ignore:MixUp:UserWarning")
def test_of_averaged_images_the_larger_share_counts(tmp_path: Path) -> None:
    loader = da.Loader(two(tmp_path), [da.Resize((48, 64)), da.MixUp(p=1)], 2, device="cpu")
    seen = set()
    for _ in range(4):
        for batch in loader:
            pair = batch.map_pair("semantic")
            for index, image in enumerate(batch.images[:, 0].float().mean((1, 2)).tolist()):
                share = (image - 50) / 40  # of the second image, which is brighter
                seen.add(int(batch.maps["semantic"][index].unique()))
                if abs(share - 0.5) > 0.02:
                    assert batch.maps["semantic"][index].unique().tolist() == [5 if share > 0.5 else 3]
                    assert pair.first[index].unique().tolist() == [5 if share > 0.5 else 3]
                    assert pair.second[index].unique().tolist() == [3 if share > 0.5 else 5]
                    assert float(pair.fraction[index].unique()) == pytest.approx(max(share, 1 - share), abs=0.02)
    assert seen == {3, 5}


def seen_in_average(batch: da.Batch, image: int, y: int, x: int) -> dict[int, float]:
    """Return the share of each layer at a pixel: of each part of the average the last one that fills it is seen."""
    layers = batch.drawing.layers
    ends = np.unique(np.round(layers.interval[image], 9))
    shares: dict[int, float] = {}
    for start, end in pairwise(ends):
        for layer in range(layers.image.shape[1]):
            left, top, right, bottom = layers.rectangle[image, layer]
            low, high = layers.interval[image, layer]
            if left <= x + 0.5 < right and top <= y + 0.5 < bottom and low <= (start + end) / 2 < high:
                last = layer
        shares[last] = shares.get(last, 0) + end - start
    return shares


@pytest.mark.filterwarnings("ignore:MixUp:UserWarning")
@pytest.mark.parametrize("erases", [False, True])
def test_of_averages_of_averages_the_largest_share_counts(tmp_path: Path, erases: bool) -> None:
    """Below an averaged image there is a hole, where it has several layers: what they fill of it is not seen."""
    values = (3, 5, 7, 11, 13)
    files = Files(tmp_path, [np.full((48, 64), value, np.uint8) for value in values])
    holes = [da.RandomErasing(p=1)] if erases else []
    recipe = [da.Resize((48, 64)), da.Mosaic(p=1), da.MixUp(p=1), *holes, da.CutMix(p=1), da.MixUp(p=1)]
    batch = next(iter(da.Loader(files.reader(), recipe, batch_size=5, device="cpu", seed=1)))
    first, second, fraction = (tensor.numpy() for tensor in batch.map_pair("semantic"))
    several = 0
    for image in range(5):
        for y in range(1, 48, 3):
            for x in range(1, 64, 3):
                shares = seen_in_average(batch, image, y, x)
                ranked = sorted(shares, key=lambda layer: (shares[layer], layer), reverse=True)
                sources = batch.drawing.layers.image[image, ranked[:2]].tolist()
                wanted = [values[source] if source >= 0 else 255 for source in sources]
                assert (first[image, y, x], second[image, y, x]) == (wanted[0], wanted[-1])
                assert abs(fraction[image, y, x] - shares[ranked[0]]) < 1e-6
                several += len(ranked) > 2
    assert several > 500
    assert (first == 255).any() == erases


def test_an_average_of_too_many_images_is_refused(tmp_path: Path) -> None:
    recipe = [da.Resize((8, 8)), *[da.MixUp(p=1, alpha=0.2)] * 7]
    with pytest.raises(InputError, match=r"more than 62 parts, .* use fewer MixUp"):
        _ = evaluate(two(tmp_path), *recipe).maps["semantic"]


@pytest.mark.parametrize("alpha", [0.2, 1, 32])
def test_an_average_of_halves_is_warned_of_once(tmp_path: Path, alpha: float) -> None:
    """Of Beta(alpha, alpha), half of all weights are within 0.25 of a half at 1; at 0.2 a quarter is."""
    ops = [da.Resize((48, 64)), da.MixUp(alpha=alpha)]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        list(da.Loader(two(tmp_path), da.Stages([(0, ops), (1, ops)]), 2, device="cpu"))
    messages = [str(each.message) for each in caught]
    assert len(messages) == int(alpha >= 1)
    assert all("MixUp" in message and "batch.map_pair(name)" in message for message in messages)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        da.Loader(da.CocoReader(tmp_path / "images", tmp_path / "boxes.json"), ops, 2, device="cpu")


def test_what_is_alone_is_its_own_pair(tmp_path: Path) -> None:
    pair = evaluate(two(tmp_path)).map_pair("semantic")
    assert torch.equal(pair.first, pair.second)
    assert (pair.fraction == 1).all()


@pytest.mark.parametrize("op", [da.RandomErasing(p=1), da.GridMask(p=1)])
def test_what_is_erased_is_ignored_or_kept(tmp_path: Path, op: Op) -> None:
    ignored = next(iter(da.Loader(two(tmp_path / "a"), [da.Resize((48, 64)), op], 2, device="cpu")))
    kept = next(iter(da.Loader(two(tmp_path / "b", erased="keep"), [da.Resize((48, 64)), op], 2, device="cpu")))
    assert set(ignored.maps["semantic"].unique().tolist()) == {3, 5, 255}
    assert set(kept.maps["semantic"].unique().tolist()) == {3, 5}
    assert torch.equal(kept.images, ignored.images)


@pytest.mark.parametrize("op", [da.RandomRotation((30, 31)), da.RandomZoomOut(p=1)])
def test_the_fill_of_a_pasted_image_is_ignored_also_where_what_is_erased_is_kept(tmp_path: Path, op: Op) -> None:
    """It covers what lies below it, as what is erased does, and is not erased.

    A rotated image fills its rectangle with its own fill; around one that is zoomed out there is a hole.
    """
    ops = [op, da.Resize((48, 64)), da.Mosaic(), da.CutMix(p=1)]
    ignored, kept = (
        next(iter(da.Loader(Files(tmp_path / each, coded(count=8)).reader(da.ClassMap("maps", erased=each)), ops, 8)))
        for each in ("ignore", "keep")
    )
    assert torch.equal(kept.maps["semantic"], ignored.maps["semantic"])
    assert (kept.maps["semantic"] == 255).any()


def test_maps_after_resuming_replaying_and_in_another_process(tmp_path: Path) -> None:
    reader = Files(tmp_path, coded(count=9)).reader()

    def loader(source: da.Source) -> da.Loader:
        return da.Loader(source, [da.RandomIoUCrop(), da.Resize((32, 32)), da.Mosaic()], 3, return_params=True, seed=1)

    batches = [each.clone() for each in loader(reader)]
    first = loader(reader)
    next(iter(first))
    again = loader(pickle.loads(pickle.dumps(reader)))
    again.load_state_dict(first.state_dict())
    for batch, wanted in zip(again, batches[1:], strict=True):
        assert torch.equal(batch.maps["semantic"], wanted.maps["semantic"])
    replayed = first.replay(batches[1])
    assert torch.equal(replayed.maps["semantic"], batches[1].maps["semantic"])
    saved = pickle.loads(pickle.dumps(batches[1]))
    assert torch.equal(saved.maps["semantic"], batches[1].maps["semantic"])


def test_a_batch_without_maps_says_so(tmp_path: Path) -> None:
    reader = da.CocoReader(
        *(lambda files: (files.folder / "images", files.folder / "boxes.json"))(Files(tmp_path, coded()))
    )
    batch = evaluate(reader)
    assert dict(batch.maps) == {}
    with pytest.raises(InputError, match=r"no map 'semantic': the source has none; give it maps="):
        batch.as_semantic()
    with pytest.raises(KeyError):
        batch.maps["semantic"]


# ------------------------------------------------------------------------- what has no maps refuses them


def one_box(**more: Any) -> dict[str, Any]:
    return {"boxes": torch.tensor([[0.0, 0, 2, 2]]), "labels": torch.tensor([1]), **more}


@pytest.mark.parametrize(
    "entry",
    [
        torch.zeros(48, 64), np.zeros((1, 48, 64)), np.zeros((48, 64, 3)), Image.new("L", (64, 48)),
        {"semantic": np.zeros((48, 64))}, [torch.zeros(48, 64)],
    ],
    ids=["tensor", "one band", "colors", "PIL", "dict", "list"],
)  # fmt: skip
def test_compose_refuses_what_would_stay_behind(entry: Any) -> None:
    transform, image = da.Compose([da.RandomHorizontalFlip(p=1)]), np.zeros((48, 64, 3), np.uint8)
    with pytest.raises(InputError, match=r"target\['depth'\] would stay behind: .*; leave it out, or read maps with"):
        transform(image, one_box(depth=entry))
    kept = {"size": torch.tensor([48, 64]), "text": "a", "rows": torch.zeros(64, 48), "ids": [1, 2]}
    assert transform(image, one_box(**kept))[1].keys() == one_box(**kept).keys()
    named = da.Compose([da.RandomHorizontalFlip(p=1)], columns=["rows"])  # has a row for each box
    assert named(np.zeros((1, 5, 3), np.uint8), one_box(boxes=torch.tensor([[0.0, 0, 1, 1]]), rows=np.ones((1, 5))))


@pytest.mark.parametrize("call", [da.batch, da.ClipReader, da.VideoReader, da.ImageFolder, da.Compose, da.Loader])
def test_what_has_no_maps_says_who_has(call: Any) -> None:
    with pytest.raises(TypeError, match=r"no argument 'maps'; .*; maps are of images: give maps= to a da.CocoReader"):
        call(maps={"semantic": da.ClassMap("maps")})


def test_clips_refuse_maps(tmp_path: Path) -> None:
    """A source of one's own can have both; the remedy is a reader of the frames."""
    reader = Files(tmp_path, coded()).reader()
    content = json.loads((tmp_path / "boxes.json").read_text())
    content["videos"] = [{"id": 1, "name": "video"}]
    for index, image in enumerate(content["images"]):
        image.update(video_id=1, frame_id=index, width=64, height=48)
    (tmp_path / "clips.json").write_text(json.dumps(content))
    clips = da.ClipReader(tmp_path / "images", tmp_path / "clips.json", frames=2)
    clips.maps = reader.maps
    with pytest.raises(InputError, match=r"clips.json: a source of clips must have no maps, got 'semantic'; read the"):
        da.Loader(clips, [da.Resize((48, 64))], 1)
    assert evaluate(reader).maps["semantic"].shape == (3, 48, 64)


def test_stacked_sources_have_maps_of_other_names(tmp_path: Path) -> None:
    files = Files(tmp_path, coded())
    (tmp_path / "further").mkdir()
    for index, values in enumerate(coded(seed=1)):
        Image.fromarray(values).save(tmp_path / f"further/{index}.png")
    reader = files.reader()
    with pytest.raises(InputError, match=r"the map 'semantic' must be of one stacked source, got it of .*another name"):
        da.StackReader([reader, files.reader(da.ClassMap("further"))])
    maps = {"further": da.ClassMap("further")}
    other = da.CocoReader(tmp_path / "images", tmp_path / "boxes.json", maps=maps)
    stacked = evaluate(da.StackReader([reader, other])).maps
    assert torch.equal(stacked["semantic"], evaluate(reader).maps["semantic"])
    assert torch.equal(stacked["further"], evaluate(other).maps["further"])


def test_maps_of_packed_images_are_in_the_folder_where_they_were(tmp_path: Path) -> None:
    pytest.importorskip("webdataset", reason="shards are an extra")
    from detaug.converters import pack_coco

    files = Files(tmp_path / "data", coded())
    pack_coco(tmp_path / "data/boxes.json", tmp_path / "data/images", tmp_path / "shards")
    packed = tmp_path / "shards", tmp_path / "shards/boxes.json"
    with pytest.raises(InputError, match=r"the map 'semantic': no such folder: .*; give the folder's whole path"):
        da.CocoReader(*packed, maps={"semantic": da.ClassMap("nowhere")})
    reader = da.CocoReader(*packed, maps={"semantic": da.ClassMap(tmp_path / "data/maps")})
    assert torch.equal(evaluate(reader).maps["semantic"], evaluate(files.reader()).maps["semantic"])


# ---------------------------------------------------------------------------------------- depth, targets


def test_depth_is_interpolated_where_it_is_known(tmp_path: Path) -> None:
    """A plane stays a plane; where the nearest pixel is not known there is none."""
    y, x = np.mgrid[:48, :64] + 0.5
    plane = (2000 + 10 * x + 20 * y).astype(np.uint16)
    plane[10:20, 30:40] = 0
    files = Files(tmp_path, [plane])
    batch = evaluate(files.reader(da.DepthMap("maps")), da.Resize((96, 128)))
    depth = batch.maps["semantic"][0].numpy()
    assert depth.dtype == np.float32
    assert (depth[20:40, 60:80] == 0).all()
    assert (depth == 0).sum() == 400
    at_y, at_x = (np.mgrid[:96, :128] + 0.5) / 2
    inside = (depth > 0) & (at_x > 1) & (at_x < 63) & (at_y > 1) & (at_y < 47)
    away = inside & ~((at_x > 29) & (at_x < 41) & (at_y > 9) & (at_y < 21))
    assert np.abs(depth - (2 + 0.01 * at_x + 0.02 * at_y))[away].max() < 0.0011
    assert depth[inside].min() > 2


@pytest.mark.parametrize(("unknown", "seen"), [((1, 1), 0.0), ((0, 0), 1.0), ((0, 1), 1.0), ((1, 0), 1.0)])
def test_of_pixels_at_one_distance_the_nearest_is_that_of_classes(
    tmp_path: Path, unknown: tuple[int, int], seen: float
) -> None:
    depth = np.full((4, 4), 1000, np.uint16)
    depth[unknown[0] :: 2, unknown[1] :: 2] = 0
    batch = evaluate(Files(tmp_path, [depth]).reader(da.DepthMap("maps")), da.Resize((2, 2)))
    assert batch.maps["semantic"].unique().tolist() == [seen]


def test_units_of_depth(tmp_path: Path) -> None:
    whole, meters = np.full((48, 64), 1500, np.uint16), np.full((48, 64), 1.5, np.float32)
    meters[0, 0], meters[0, 1], meters[0, 2] = np.nan, -1, np.inf
    files = Files(tmp_path, [whole])
    size = da.Resize((48, 64))
    assert evaluate(files.reader(da.DepthMap("maps")), size).maps["semantic"].unique().tolist() == [1.5]
    scaled = evaluate(files.reader(da.DepthMap("maps", scale=1 / 256)), size)
    assert scaled.maps["semantic"].unique().item() == pytest.approx(1500 / 256)
    (tmp_path / "maps/0.png").unlink()
    np.save(tmp_path / "maps/0.npy", meters)
    read = evaluate(files.reader(da.DepthMap("maps")), size).maps["semantic"][0]
    assert read[0, :3].tolist() == [0, 0, 0]
    assert read[1:].unique().tolist() == [1.5]


@pytest.mark.parametrize(
    ("dtype", "stored", "scale", "meters"),
    [
        (np.uint16, 40_000, 2, 80_000),
        (np.uint8, 200, 1000, 200_000),
        (np.float16, 3000, 100, 300_000),
        (np.float16, 1000, 0.001, 1),
        (np.float32, 1500, 0.001, 1.5),
        (np.float64, 1e300, None, 0),
    ],
)
def test_a_scale_holds_for_all_files_and_does_not_overflow(
    tmp_path: Path, dtype: Any, stored: float, scale: float | None, meters: float
) -> None:
    files = Files(tmp_path, [np.zeros((4, 6), np.uint8)])
    (tmp_path / "maps/0.png").unlink()
    np.save(tmp_path / "maps/0.npy", np.full((4, 6), stored, dtype))
    read = evaluate(files.reader(da.DepthMap("maps", scale=scale)), da.Resize((4, 6))).maps["semantic"]
    assert read.unique().tolist() == [pytest.approx(meters, rel=1e-7)]


def test_targets_of_trainers(tmp_path: Path) -> None:
    values = np.array([[0, 1, 1], [9, 0, 2]], np.uint8)
    files = Files(tmp_path, [values])
    batch = evaluate(files.reader(da.ClassMap("maps", ignore=9)), da.Resize((2, 3)))
    yolo = batch.as_yolo("semantic")
    assert yolo["semantic_mask"].dtype == torch.int32
    assert yolo["semantic_mask"][0].tolist() == [[0, 1, 1], [255, 0, 2]]
    former = batch.as_mask2former(map="semantic")
    assert former["class_labels"][0].tolist() == [0, 1, 2]
    assert former["mask_labels"][0].tolist() == [[[1, 0, 0], [0, 1, 0]], [[0, 1, 1], [0, 0, 0]], [[0, 0, 0], [0, 0, 1]]]
    with pytest.raises(InputError, match="is a DepthMap, where one of classes is needed"):
        evaluate(files.reader(da.DepthMap("maps")), da.Resize((2, 3))).as_semantic()


# ------------------------------------------------------------------------------------------------ scores


def test_scores_are_those_of_a_confusion_matrix_by_hand(tmp_path: Path) -> None:
    """Predictions at a third of the size, with letterboxes, against NumPy's counts in the pixels of the files."""
    rng = np.random.default_rng(0)
    maps = [np.repeat(np.repeat(rng.integers(0, 4, (8, 8), np.uint8), 6, 0), 8, 1) for _ in range(3)]
    for each in maps:
        each[0:6] = 255
    reader = Files(tmp_path, maps).reader(da.ClassMap("maps", classes=["a", "b", "c", "d"]))
    batch = evaluate(reader, da.Resize((96, 128)))
    found = rng.integers(0, 4, (3, 48, 64))
    evaluator = da.SemanticEvaluator()
    evaluator.update(batch, torch.from_numpy(found))
    metrics = evaluator.compute()
    truth, known = np.stack(maps), np.stack(maps) != 255
    right = (found == truth) & known
    iou = [(right & (truth == c)).sum() / (known & ((truth == c) | (found == c))).sum() for c in range(4)]
    assert list(metrics.iou) == ["a", "b", "c", "d"]
    assert [*metrics.iou.values()] == pytest.approx(iou)
    assert metrics.mIoU == pytest.approx(np.mean(iou))
    assert metrics.accuracy == pytest.approx(right.sum() / known.sum())
    assert metrics.pixels == known.sum()
    scores = torch.nn.functional.one_hot(torch.from_numpy(truth.astype(np.int64) % 255), 4).permute(0, 3, 1, 2).float()
    perfect = da.SemanticEvaluator()
    perfect.update(batch, torch.nn.functional.interpolate(scores, size=(96, 128), mode="nearest"))
    assert perfect.compute().mIoU == 1
    assert "mIoU 1.000" in str(perfect.compute())


@pytest.mark.parametrize("ignore", [255, 0, 1])
def test_a_prediction_of_what_is_ignored_is_wrong_and_of_no_class(tmp_path: Path, ignore: int) -> None:
    """It is in the union of the true class alone, as in mmsegmentation's intersect_and_union."""
    a, b = [each for each in range(3) if each != ignore][:2]
    truth = np.array([[a, a, a, b], [b, ignore, ignore, ignore]], np.uint8)
    found = torch.tensor([[a, ignore, 7, b], [a, ignore, a, b]])
    reader = Files(tmp_path, [truth]).reader(da.ClassMap("maps", ignore=ignore))
    evaluator = da.SemanticEvaluator(3)
    evaluator.update(evaluate(reader, da.Resize(truth.shape)), found[None])
    metrics = evaluator.compute()
    iou = {str(a): 1 / 4, str(b): 1 / 2}
    assert {name: value for name, value in metrics.iou.items() if value == value} == iou
    assert (metrics.mIoU, metrics.accuracy, metrics.pixels) == (3 / 8, 2 / 5, 5)


def test_predictions_go_back_through_a_letterbox(tmp_path: Path) -> None:
    maps = [np.zeros((40, 80), np.uint8)]
    maps[0][:, 40:] = 1
    batch = evaluate(Files(tmp_path, maps).reader(), da.Resize((80, 80), letterbox="center"))
    evaluator = da.SemanticEvaluator(num_classes=2)
    found = batch.maps["semantic"].long()
    assert (found == 255).sum() == 40 * 80
    evaluator.update(batch, found.where(found != 255, 0))
    assert evaluator.compute().mIoU == 1
    evaluator.update(batch, 1 - found.where(found != 255, 0))
    assert evaluator.compute().accuracy == 0.5


def test_wrong_predictions(tmp_path: Path) -> None:
    batch = evaluate(two(tmp_path))
    with pytest.raises(InputError, match="num_classes must be given"):
        da.SemanticEvaluator().update(batch, torch.zeros(2, 4, 4))
    with pytest.raises(InputError, match=r"predictions must be \(2, 6, h, w\) scores"):
        da.SemanticEvaluator(num_classes=6).update(batch, torch.zeros(2, 5, 4, 4))
    with pytest.raises(InputError, match="has the class 3, num_classes is 2"):
        da.SemanticEvaluator(num_classes=2).update(batch, torch.zeros(2, 4, 4))
    with pytest.raises(InputError, match="nothing to score"):
        da.SemanticEvaluator(num_classes=2).compute()
    mixed = next(iter(da.Loader(two(tmp_path / "b"), [da.Resize((48, 64)), da.Mosaic()], 2, device="cpu")))
    with pytest.raises(InputError, match="evaluate with a recipe that only resizes"):
        da.SemanticEvaluator(num_classes=6).update(mixed, torch.zeros(2, 4, 4))


def test_depth_scores_are_those_of_numpy(tmp_path: Path) -> None:
    """Predictions at half of the output's size, which has that of the files; means over images, not over pixels."""
    rng = np.random.default_rng(0)
    small = [rng.uniform(500, 9000, (24, 32)) for _ in range(2)]
    true = [np.repeat(np.repeat(each, 2, 0), 2, 1).astype(np.uint16) for each in small]
    true[0][:30] = 0
    batch = evaluate(Files(tmp_path, true).reader(da.DepthMap("maps")), da.Resize((48, 64)))
    predicted = [each * rng.uniform(0.6, 1.6, each.shape) / 1000 for each in (np.full((48, 64), 3000.0), true[1])]
    evaluator = da.DepthEvaluator(map="semantic", max_depth=8)
    evaluator.update(batch, torch.from_numpy(np.stack(predicted)))
    metrics = evaluator.compute()
    rows = []
    for found, own in zip(predicted, true, strict=True):
        known = (own > 0) & (own <= 8000)
        p, t = found[known].clip(1e-3, 8), own[known] / 1000
        ratio, logs = np.maximum(p / t, t / p), np.log(p) - np.log(t)
        rows.append([
            *((ratio < 1.25**power).mean() for power in (1, 2, 3)),
            (abs(p - t) / t).mean(), np.sqrt(((p - t) ** 2).mean()), 100 * logs.std(),
        ])  # fmt: skip
    found = metrics.delta1, metrics.delta2, metrics.delta3, metrics.abs_rel, metrics.rmse, metrics.silog
    assert found == pytest.approx(np.mean(rows, 0), rel=1e-5)
    assert metrics.images == 2
    with pytest.raises(InputError, match=r"predictions must be \(2, h, w\) or"):
        evaluator.update(batch, torch.zeros(2, 3, 4, 4))
    with pytest.raises(InputError, match="predictions must be finite"):
        evaluator.update(batch, torch.full((2, 4, 4), torch.nan))
    with pytest.raises(InputError, match="nothing to score"):
        da.DepthEvaluator().compute()
    with pytest.raises(InputError, match="is a ClassMap, where depths are needed"):
        da.DepthEvaluator(map="semantic").update(evaluate(two(tmp_path / "b")), torch.zeros(2, 4, 4))


def test_depths_of_smaller_predictions_are_interpolated(tmp_path: Path) -> None:
    y, x = np.mgrid[:48, :64] + 0.5
    plane = (2000 + 10 * x + 20 * y).astype(np.uint16)
    batch = evaluate(Files(tmp_path, [plane]).reader(da.DepthMap("maps")), da.Resize((96, 128)))
    small_y, small_x = np.mgrid[:24, :32] * 2 + 1.0
    evaluator = da.DepthEvaluator(map="semantic")
    evaluator.update(batch, torch.from_numpy(2 + 0.01 * small_x + 0.02 * small_y)[None, None])
    assert evaluator.compute().rmse < 0.005  # only the rim is not interpolated


def test_a_link_to_a_folder_above_is_not_followed(tmp_path: Path) -> None:
    Files(tmp_path, coded())
    for name in ("images", "maps"):
        (tmp_path / name / "again").symlink_to(tmp_path / name)
    reader = da.MapReader(tmp_path / "images", tmp_path / "maps")
    assert list(reader.file_names) == ["0.png", "1.png", "2.png"]
    assert evaluate(reader).maps["semantic"].shape == (3, 48, 64)


def test_an_image_whose_header_is_broken_is_named_with_what_to_do(tmp_path: Path) -> None:
    Files(tmp_path, coded())
    (tmp_path / "images/1.png").write_bytes(b"")
    with pytest.raises(
        InputError, match=r"1 of 3 images cannot be used, .*1.png, which .*; replace the file, or remove"
    ):
        evaluate(da.MapReader(tmp_path / "images", tmp_path / "maps"))


class Slow:
    """Garbage, at whose end another thread goes on."""

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        time.sleep(0)


def test_many_threads_read_arrays(tmp_path: Path) -> None:
    """NumPy parses headers with `ast`, which is for one thread alone before Python 3.11.8 and 3.12.2.

    It shows where the garbage collector runs in a parser, and changes threads.
    """
    path = tmp_path / "depth.npy"
    np.save(path, np.ones((3, 4), np.float32))

    def read(_: int) -> float:
        Slow()
        return float(pixels_of(path).values.sum())

    threshold = gc.get_threshold()
    gc.set_threshold(20)
    try:
        with ThreadPoolExecutor(4) as pool:
            assert {*pool.map(read, range(8000))} == {12}
    finally:
        gc.set_threshold(*threshold)
