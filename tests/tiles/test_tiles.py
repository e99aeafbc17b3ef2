"""Tiles of large source images, written and read: pixels, objects, order, errors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
import torch
from command import detaug, usage_error
from PIL import Image
from shapely import Polygon, box
from tiled_scenes import write_scenes

import detaug as da
from detaug.coco.outlines import decode_counts
from detaug.coco.rings import mask_of_runs, rings_of_mask
from detaug.converters import check_coco
from detaug.storage.prefetch import Order
from detaug.storage.storage import Upcoming

Scenes = tuple[Path, Path]
SIZE = 100
RECIPE = [da.Resize((SIZE, SIZE)), da.Normalize(dtype="uint8")]


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Scenes:
    """Objects with polygons, with RLE, with a box alone, and a crowd."""
    folder, path = write_scenes(tmp_path_factory.mktemp("scenes"), [(240, 330), (170, 200), (100, 100)], 5, 60)
    document = json.loads(path.read_text())
    for at, entry in enumerate(document["annotations"]):
        height, width = entry["segmentation"]["size"]
        if at % 3 == 0:
            mask = mask_of_runs(np.cumsum(entry["segmentation"]["counts"]), height, width)
            entry["segmentation"] = [ring.ravel().tolist() for ring in rings_of_mask(mask)]
        if at % 3 == 1:
            del entry["segmentation"]
    document["annotations"][2]["iscrowd"] = 1
    path.write_text(json.dumps(document))
    return folder, path


def reader_of(scenes: Scenes) -> da.CocoReader:
    return da.CocoReader(
        *scenes, masks=True, keypoints=True, rotated=True, tight=True, crowds="keep", columns=("note",)
    )  # fmt: skip


def batches(source: da.Source, **options: Any) -> Iterator[da.Batch]:
    options = {"batch_size": 4, "train": False, "device": "cpu", **options}
    with da.Loader(source, RECIPE, **options) as loader:
        yield from loader


@pytest.mark.slow
@pytest.mark.parametrize("more", [{}, {"whole": 90, "empty": 0.5, "seed": 3, "min_visibility": 0.4}], ids=["", "more"])
def test_files_give_the_batches_of_the_reader(more: dict[str, Any], scenes: Scenes, tmp_path: Path) -> None:
    summary = da.tile_coco(scenes[1], scenes[0], tmp_path / "out", size=SIZE, overlap=0.3, **more)
    written = reader_of((summary.images, summary.annotations))
    tiles = da.TileReader(reader_of(scenes), SIZE, 0.3, **more)
    assert summary.tiles == len(tiles) > 15
    assert summary.cut > 4
    for files, cut in zip(batches(written), batches(tiles), strict=True):
        for name in ("images", "labels", "valid", "image_id", "source_size"):
            assert torch.equal(getattr(files, name), getattr(cut, name)), name
        for name in ("boxes", "keypoints", "corners", "matrix"):
            assert torch.allclose(getattr(files, name), getattr(cut, name), atol=2e-3), name
        for name in ("note", "iscrowd"):
            assert np.array_equal(files.columns[name], cut.columns[name]), name
        assert max((files.masks() != cut.masks()).sum((1, 2)).tolist(), default=0) <= 2


def test_the_json_of_tiles_is_right(scenes: Scenes, tmp_path: Path) -> None:
    """Each object is where its own source image has it, and `detaug check` finds nothing."""
    da.tile_coco(scenes[1], scenes[0], tmp_path / "out", size=SIZE, overlap=0.3)
    before, after = (json.loads(path.read_text()) for path in (scenes[1], tmp_path / "out" / "scenes.json"))
    pictures, objects = ({each["id"]: each for each in before[name]} for name in ("images", "annotations"))
    images = {each["id"]: each for each in after["images"]}
    assert after["info"] == before["info"]
    assert after["categories"] == before["categories"]
    for image in after["images"]:
        picture = pictures[image["tile_of"]["id"]]
        assert image["tile_of"]["file_name"] == picture["file_name"]
        assert image["place"] == "harbour"
        assert image["window"][2:] == [image["width"], image["height"]] == [SIZE, SIZE]
    for entry in after["annotations"]:
        item, image = objects[entry["part_of"]], images[entry["image_id"]]
        assert {name: entry[name] for name in ("note", "category_id", "iscrowd")}.items() <= item.items()
        check_entry(entry, item, image["window"])
    kinds = {found.kind for found in check_coco(tmp_path / "out" / "scenes.json", tmp_path / "out/images").findings}
    assert kinds <= {"box-unusual", "image-identical", "corners-outside"}


def test_lists_of_ids_of_source_images_are_left_out(tmp_path: Path) -> None:
    Image.new("RGB", (90, 60), "gray").save(tmp_path / "a.png")
    content = {
        "images": [{"id": 7, "file_name": "a.png", "width": 90, "height": 60}],
        "annotations": [{"id": 5, "image_id": 7, "category_id": 1, "bbox": [10, 10, 30, 30]}],
        "categories": [{"id": 1, "name": "cat"}],
        "captions": [{"image_id": 7, "caption": "a cat"}],
        "cameras": [{"id": 1, "height": 2.5}],
    }
    (tmp_path / "a.json").write_text(json.dumps(content))
    summary = da.tile_coco(tmp_path / "a.json", tmp_path, tmp_path / "out", size=60)
    written = json.loads(summary.annotations.read_text())
    assert "captions" not in written
    assert written["cameras"] == content["cameras"]
    assert "captions left out: it names images or annotations by ids" in str(summary)


def test_a_json_may_have_boxes_alone(tmp_path: Path) -> None:
    keys = ("segmentation", "keypoints", "num_keypoints", "corners", "iscrowd", "area", "note")
    folder, path = write_scenes(tmp_path, [(150, 150)], 4, 60, keys=keys)
    da.tile_coco(path, folder, tmp_path / "out", size=SIZE, min_visibility=0)
    (first, *_) = json.loads((tmp_path / "out/scenes.json").read_text())["annotations"]
    assert [*first] == ["id", "image_id", "category_id", "bbox", "part_of"]


def check_entry(entry: dict[str, Any], item: dict[str, Any], window: list[int]) -> None:
    x, y, width, height = window
    points = np.array(item["keypoints"]).reshape(-1, 3)
    inside = ((points[:, :2] >= (x, y)) & (points[:, :2] < (x + width, y + height))).all(1)
    moved = np.where(inside[:, None], points - (x, y, 0), 0)
    assert np.array_equal(np.reshape(entry["keypoints"], (-1, 3)), moved)
    assert entry["num_keypoints"] == inside.sum()
    assert np.array_equal(np.add(entry["corners"], (x, y)), item["corners"])
    assert ("segmentation" in entry) == ("segmentation" in item)
    if isinstance(item.get("segmentation"), dict):
        whole = mask_of_runs(np.cumsum(item["segmentation"]["counts"]), *item["segmentation"]["size"])
        part = mask_of_runs(np.cumsum(decode_counts(entry["segmentation"]["counts"])), height, width)
        assert np.array_equal(part, whole[y : y + height, x : x + width])
        assert entry["area"] == part.sum()


def test_an_object_is_in_the_tiles_that_show_enough_of_it(tmp_path: Path) -> None:
    """Shapely computes the shares."""
    rng, counted = np.random.default_rng(5), 0
    folder, path = write_scenes(tmp_path, [(300, 300)], 1, 12)
    document = json.loads(path.read_text())
    document["annotations"] = []
    for number in range(1, 40):
        middle, radius = rng.uniform(40, 260, 2), rng.uniform(15, 40, 9)
        turn = np.sort(rng.uniform(0, 2 * np.pi, 9))
        ring = middle + radius[:, None] * np.stack([np.cos(turn), np.sin(turn)], axis=1)
        (x0, y0), (x1, y1) = ring.min(0).tolist(), ring.max(0).tolist()
        entry = {"id": number, "image_id": 50, "category_id": 10, "bbox": [x0, y0, x1 - x0, y1 - y0], "iscrowd": 0}
        document["annotations"].append({**entry, "area": 1, "segmentation": [ring.ravel().tolist()]})
    path.write_text(json.dumps(document))
    tiles = da.TileReader(da.CocoReader(folder, path, masks=True, tight=True), 120, 0.25, 0.3)
    _, counts, _ = tiles.objects()
    in_tiles = {*zip(np.repeat(np.arange(len(tiles)), counts).tolist(), tiles.cut.rows.tolist(), strict=True)}
    for tile, (x, y, width, height) in enumerate(tiles.windows.tolist()):
        for row, entry in enumerate(document["annotations"]):
            outline = Polygon(np.reshape(entry["segmentation"][0], (-1, 2)))
            share = outline.intersection(box(x, y, x + width, y + height)).area / outline.area
            if abs(share - 0.3) > 0.01:
                assert ((tile, row) in in_tiles) == (share > 0.3), (tile, row, share)
                counted += 0.02 < share < 0.98
    assert counted > 40


def sahi_windows(height: int, width: int, size: int, overlap: float) -> list[tuple[int, int, int, int]]:
    """Return x0, y0, x1, y1 as `get_slice_bboxes` of SAHI 0.11 does."""
    found, y_max, y_min, common = [], 0, 0, int(overlap * size)
    while y_max < height:
        x_min = x_max = 0
        y_max = y_min + size
        while x_max < width:
            x_max = x_min + size
            if y_max > height or x_max > width:
                right, bottom = min(width, x_max), min(height, y_max)
                found.append((max(0, right - size), max(0, bottom - size), right, bottom))
            else:
                found.append((x_min, y_min, x_max, y_max))
            x_min = x_max - common
        y_min = y_max - common
    return found


@pytest.mark.parametrize(("size", "overlap"), [(100, 0.2), (64, 0.0), (90, 0.5), (400, 0.2), (170, 0.1)])
def test_windows_are_those_of_sahi(size: int, overlap: float, scenes: Scenes) -> None:
    tiles = da.TileReader(da.CocoReader(*scenes), size, overlap)
    for at, (height, width) in enumerate(tiles.reader.sizes.tolist()):
        own = tiles.windows[tiles.pictures == at]
        expected = sahi_windows(height, width, size, overlap)
        assert [tuple(each) for each in np.c_[own[:, :2], own[:, :2] + own[:, 2:]].tolist()] == expected


def test_grids_cut_in_other_places(scenes: Scenes) -> None:
    one, three = (da.TileReader(da.CocoReader(*scenes), SIZE, 0.2, grids=count) for count in (1, 3))
    of_first = three.windows[three.pictures == 0]
    assert len(np.unique(of_first, axis=0)) == len(of_first) > 2 * (one.pictures == 0).sum()
    assert {0, 27, 54} <= set(of_first[:, 0].tolist())
    assert three.rounds is not None
    assert np.array_equal(three.windows[three.rounds[0]], one.windows)
    assert len([*batches(three)]) == -(-len(three) // 4)  # evaluation has all


def test_which_grid_a_tile_is_in_is_part_of_the_state(scenes: Scenes) -> None:
    tiles = [da.TileReader(reader_of(scenes), SIZE, 0.2, grids=2) for _ in range(2)]
    assert tiles[1].rounds is not None
    tiles[1].rounds = tiles[1].rounds[::-1]
    assert tiles[0].fingerprint != tiles[1].fingerprint


@pytest.mark.parametrize("joined", [False, True], ids=["", "joined"])
def test_an_epoch_has_one_grid(scenes: Scenes, joined: bool) -> None:
    """Each epoch covers all images with another grid, in as many batches, on any world size and after a resume."""
    tiles: Any = da.TileReader(reader_of(scenes), SIZE, 0.2, grids=3)
    rounds = tiles.rounds
    if joined:
        tiles = da.ConcatReader([tiles, da.TileReader(reader_of(scenes), SIZE, 0.2, grids=2)])
        rounds = np.concatenate([np.tile(rounds, (2, 1)), np.tile(tiles.sources[1].rounds, (3, 1))], axis=1)
    options: dict[str, Any] = {"train": True, "device": "cpu", "last_batch": "partial"}
    loader, half = da.Loader(tiles, RECIPE, 8, **options), da.Loader(tiles, RECIPE, 4, shard=(1, 2), **options)
    epochs = [[batch.image_id.numpy() for batch in loader] for _ in range(4)]
    for epoch, found in enumerate(epochs):
        wanted = np.flatnonzero(rounds[epoch % len(rounds)]) + 1
        assert len(found) == len(loader) == -(-rounds.sum(1).max() // 8)
        assert np.array_equal(np.unique(np.concatenate(found)), wanted)
        for batch, part in zip(found, half, strict=True):
            assert np.array_equal(batch[-len(part.image_id) :], part.image_id)
    with da.Loader(tiles, RECIPE, 8, **options) as other:
        state = {**other.state_dict(), "epoch": 2, "step": 1}
        other.load_state_dict(state)
        assert [each.image_id.tolist() for each in other] == [each.tolist() for each in epochs[2][1:]]
    with (
        pytest.raises(da.InputError, match="are not those of this state"),
        da.Loader(da.TileReader(reader_of(scenes), SIZE, 0.2), RECIPE, 8, **options) as others,
    ):
        others.load_state_dict(state)
    loader.close()
    half.close()


def test_a_share_of_the_empty_tiles_is_kept(scenes: Scenes) -> None:
    reader = da.CocoReader(*scenes)
    every = da.TileReader(reader, 40)
    _, counts, _ = every.objects()
    half, again, other = (da.TileReader(reader, 40, empty=0.5, seed=seed) for seed in (0, 0, 1))
    assert len(half) == (counts > 0).sum() + round(0.5 * (counts == 0).sum())
    assert np.array_equal(half.windows, again.windows)
    assert not np.array_equal(half.windows, other.windows)
    assert len(half.objects()[0]) == len(every.objects()[0])


# ---------------------------------------------------------------- pixels


def save_pictures(folder: Path) -> tuple[Path, list[np.ndarray[Any, Any]]]:
    """Write noise as a JPEG on its side, a PNG with a palette, and kinds of TIFF; return what is seen."""
    rng = np.random.default_rng(0)
    shapes = rng.integers(0, 256, (20, 26, 3), np.uint8).repeat(10, 0).repeat(10, 1)
    image = Image.fromarray(shapes)
    exif = Image.Exif()
    exif[0x0112] = 6
    image.rotate(90, expand=True).save(folder / "a.jpg", exif=exif, quality=90)
    image.quantize(64).save(folder / "b.png")
    image.save(folder / "c.tif")
    tifffile.imwrite(folder / "d.tif", shapes, tile=(64, 64), compression="zlib", photometric="rgb")
    tifffile.imwrite(folder / "e.tif", shapes, tile=(64, 64), compression="jpeg", photometric="rgb")
    image.rotate(90, expand=True).save(folder / "f.tif", exif=exif)
    rows = [
        {"id": at, "file_name": name, "height": 200, "width": 260}
        for at, name in enumerate(["a.jpg", "b.png", "c.tif", "d.tif", "e.tif", "f.tif"], 1)
    ]
    path = folder / "noise.json"
    path.write_text(json.dumps({"images": rows, "annotations": [], "categories": [{"id": 1, "name": "x"}]}))
    loader = da.Loader(
        da.CocoReader(folder, path), [da.Resize((200, 260)), da.Normalize(dtype="uint8")], 1, train=False, device="cpu"
    )
    return path, [batch.images[0, :, :200, :260].permute(1, 2, 0).numpy() for batch in loader]


def test_pixels_of_tiles_are_those_of_the_pictures(tmp_path: Path) -> None:
    """As a loader shows the whole source images."""
    path, pictures = save_pictures(tmp_path)
    summary = da.tile_coco(path, tmp_path, tmp_path / "out", size=SIZE)
    tiles = da.TileReader(da.CocoReader(tmp_path, path), SIZE, memory="100kB")
    loaded = [image for batch in batches(tiles) for image in batch.images]
    rows = json.loads(summary.annotations.read_text())["images"]
    for at, (x, y, width, height) in enumerate(tiles.windows.tolist()):
        expected = pictures[tiles.pictures[at]][y : y + height, x : x + width]
        assert np.array_equal(np.asarray(Image.open(summary.images / rows[at]["file_name"]).convert("RGB")), expected)
        assert np.array_equal(loaded[at][:, :height, :width].permute(1, 2, 0).numpy(), expected)


def test_a_picture_that_is_one_tile_is_copied(scenes: Scenes, tmp_path: Path) -> None:
    da.tile_coco(scenes[1], scenes[0], tmp_path / "out", size=SIZE, format="jpeg")
    copy, original = tmp_path / "out/images/flight/002_whole.png", scenes[0] / "flight/002.png"
    assert copy.read_bytes() == original.read_bytes()
    assert (tmp_path / "out/images/flight/001_0_0.jpg").is_file()


def test_bits_are_kept_or_refused(tmp_path: Path) -> None:
    path, _ = save_pictures(tmp_path)
    document = json.loads(path.read_text())
    document["images"] = document["images"][1:2]
    path.write_text(json.dumps(document))
    deep = np.arange(200 * 260, dtype=np.uint16).reshape(200, 260)
    Image.fromarray(deep).save(tmp_path / "b.png")
    summary = da.tile_coco(path, tmp_path, tmp_path / "out", size=SIZE)
    assert np.array_equal(np.asarray(Image.open(summary.images / "b_160_80.png")), deep[80:180, 160:260])
    with pytest.raises(da.DataError, match="pixels of mode I;16, more than 8 bits"):
        next(batches(da.TileReader(da.CocoReader(tmp_path, path), SIZE)))
    order = ("tile", path, tmp_path, "-o", tmp_path / "others", "--size", 100, "--format")
    assert "which jpeg does not keep; --format png does" in usage_error(*order, "jpeg")
    tifffile.imwrite(tmp_path / "b.png", np.stack([deep] * 3, axis=2), photometric="rgb")
    assert 'CocoReader(channels=3, dtype="uint16")' in usage_error(*order, "png")


def test_the_printed_line_loads_tiles_of_16_bits(tmp_path: Path) -> None:
    """Without --channels: gray of 16 bits is kept, cut or copied whole; beside 8-bit RGB no reader loads it."""
    deep = np.arange(200 * 260, dtype=np.uint16).reshape(200, 260)
    rows = [{"id": at, "file_name": f"{at}.png", "height": 200 // at, "width": 260 // at} for at in (1, 2)]
    for row in rows:
        Image.fromarray(deep[: row["height"], : row["width"]]).save(tmp_path / str(row["file_name"]))
    path = tmp_path / "deep.json"
    path.write_text(json.dumps({"images": rows, "annotations": [], "categories": [{"id": 1, "name": "x"}]}))
    said = detaug("tile", path, tmp_path, "-o", tmp_path / "out", "--size", 130).out
    reader = eval(said.partition("load it: ")[2], {"da": da})  # what a person pastes
    loader = da.Loader(reader, [da.Resize((130, 130))], 1, device="cpu", train=False)
    assert max(batch.images.max() for batch in loader) == 200 * 260 - 1
    Image.new("RGB", (130, 100)).save(tmp_path / "2.png")
    mixed = detaug("tile", path, tmp_path, "-o", tmp_path / "mixed", "--size", 130).out
    assert mixed.endswith(
        "some tiles have other bands or more bits: save all source images alike, and tile them again\n"
    )


def test_of_a_tiled_tiff_only_the_touched_tiles_are_read(tmp_path: Path) -> None:
    path, pictures = save_pictures(tmp_path)
    with tifffile.TiffFile(tmp_path / "d.tif") as file:
        page = file.pages[0]
        last, length = page.dataoffsets[-1], page.databytecounts[-1]  # type: ignore[union-attr]
    content = bytearray((tmp_path / "d.tif").read_bytes())
    content[last : last + length] = bytes(length)
    (tmp_path / "d.tif").write_bytes(content)
    tiles = da.TileReader(da.CocoReader(tmp_path, path), SIZE)
    own = np.flatnonzero(tiles.pictures == 3)
    (first,) = tiles.contents(own[:1])
    assert np.array_equal(first, pictures[3][:SIZE, :SIZE])
    with pytest.raises(OSError, match="does not decode"):
        tiles.contents(own[-1:])


def test_a_state_knows_whether_tiffs_are_read_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without tifffile they are decoded whole, and training takes their tiles in another order."""
    path, _ = save_pictures(tmp_path)
    reader = da.CocoReader(tmp_path, path)
    with da.Loader(da.TileReader(reader, SIZE), RECIPE, 4, device="cpu") as loader:
        state = loader.state_dict()
    monkeypatch.setattr("detaug.tiles.pictures.open_tiff", lambda *_: None)
    other = da.Loader(da.TileReader(reader, SIZE), RECIPE, 4, device="cpu")
    with pytest.raises(da.InputError, match="state"):
        other.load_state_dict(state)


# ---------------------------------------------------------------- order


def test_any_world_size_and_a_resumed_loader_give_the_same(scenes: Scenes) -> None:
    tiles = da.TileReader(reader_of(scenes), SIZE)
    options: dict[str, Any] = {"train": True, "seed": 4}
    whole = [*batches(tiles, batch_size=8, **options)]
    halves = [[*batches(tiles, shard=(rank, 2), **options)] for rank in (0, 1)]
    for one, left, right in zip(whole, *halves, strict=True):
        assert torch.equal(one.images, torch.cat([left.images, right.images]))
        assert torch.equal(one.image_id, torch.cat([left.image_id, right.image_id]))
    with da.Loader(tiles, RECIPE, 8, device="cpu", **options) as loader:
        [*islice(loader, 2)]
        state = loader.state_dict()
    with da.Loader(tiles, RECIPE, 8, device="cpu", **options) as loader:
        loader.load_state_dict(state)
        assert torch.equal(next(iter(loader)).images, whole[2].images)
    others = da.Loader(da.TileReader(reader_of(scenes), SIZE, 0.3), RECIPE, 8, device="cpu", **options)
    with pytest.raises(da.InputError, match="are not those of this state"), others:
        others.load_state_dict(state)


def test_training_takes_the_tiles_of_a_picture_near_each_other(tmp_path: Path) -> None:
    folder, path = write_scenes(tmp_path, [(200, 200)] * 30, 1, 20)
    tiles = da.TileReader(da.CocoReader(folder, path), 60)
    pictures = [tiles.pictures[b.image_id.numpy() - 1] for b in batches(tiles, batch_size=8, train=True)]
    again = [len(set(each) - set(before)) for before, each in pairwise(pictures)]
    assert np.mean(again) < 6  # of 8, in place of 7.8 at random
    assert np.mean([len(set(each)) for each in pictures]) > 3


class Recorded(da.CocoReader):
    """Follows what it is told will be read, as an object store does."""

    files = False
    order: Order
    found: list[bool]

    def prefetch(self, upcoming: Iterator[Upcoming]) -> None:
        self.order, self.found = Order(upcoming), []

    def contents(self, indices: Any) -> Any:
        self.order.look_ahead()
        self.found.append(self.order.go_behind(indices))
        return super().contents(indices)


@pytest.mark.parametrize("memory", ["100kB", "500kB", "2GB"])
@pytest.mark.parametrize("train", [False, True])
def test_pictures_in_an_object_store_are_read_in_the_order_that_it_knows(
    memory: str, train: bool, tmp_path: Path
) -> None:
    folder, path = write_scenes(tmp_path, [(200, 230)] * 12, 1, 20)
    reader = Recorded(folder, path)
    reader.files = False
    read = [*batches(da.TileReader(reader, 60, memory=memory), batch_size=8, train=train)]
    plain = [*batches(da.TileReader(da.CocoReader(folder, path), 60), batch_size=8, train=train)]
    assert all(torch.equal(a.images, b.images) for a, b in zip(read, plain, strict=True))
    assert all(reader.found)
    assert reader.found


def test_a_source_of_tiles_can_be_joined(scenes: Scenes) -> None:
    tiles = da.TileReader(da.CocoReader(*scenes), SIZE)
    joined = da.ConcatReader([tiles, tiles])
    first, both = next(batches(tiles)), [*batches(joined)]
    assert torch.equal(both[0].images, first.images)
    with pytest.raises(da.InputError, match="decode their images themselves"):
        da.ConcatReader([tiles, da.CocoReader(*scenes)])


# ---------------------------------------------------------------- errors


def test_tiles_of_tiles_are_places_in_them(scenes: Scenes, tmp_path: Path) -> None:
    da.tile_coco(scenes[1], scenes[0], tmp_path / "large", size=120, overlap=0)
    large = tmp_path / "large" / Path(scenes[1]).name
    da.tile_coco(large, tmp_path / "large/images", tmp_path / "small", size=60, overlap=0)
    rows = json.loads((tmp_path / "small" / large.name).read_text())["images"]
    assert rows
    for row in rows:
        x, y, width, height = row["window"]
        with Image.open(tmp_path / "large/images" / row["tile_of"]["file_name"]) as picture:
            part = np.asarray(picture)[y : y + height, x : x + width]
        with Image.open(tmp_path / "small/images" / row["file_name"]) as tile:
            assert np.array_equal(np.asarray(tile), part)


def test_a_broken_picture_leaves_nothing(scenes: Scenes, tmp_path: Path) -> None:
    path, _ = save_pictures(tmp_path)
    content = (tmp_path / "a.jpg").read_bytes()
    (tmp_path / "a.jpg").write_bytes(content[: len(content) // 2])
    before = sorted(tmp_path.iterdir())
    error = usage_error("tile", path, tmp_path, "-o", tmp_path / "out", "--size", 100)
    assert error.startswith(f"detaug: {tmp_path / 'a.jpg'} does not decode (")
    assert "detaug check" in error
    assert sorted(tmp_path.iterdir()) == before
    tiles = da.TileReader(da.CocoReader(tmp_path, path), SIZE)
    with pytest.raises(da.DataError, match=r"a\.jpg cannot be read \(does not decode"):
        next(batches(tiles))
    loader = da.Loader(tiles, RECIPE, 4, device="cpu", train=False, on_error="skip", max_skipped=1.0)
    with pytest.warns(UserWarning, match="skipped") as warned:
        ids = [i for batch in loader for i in batch.image_id.tolist()]
    assert ids == (np.flatnonzero(tiles.pictures > 0) + 1).tolist()
    assert loader.skipped == (tmp_path / "a.jpg",)  # once, as the warning
    assert len(warned) == 1
    with pytest.raises(da.DataError) as raised:
        [*da.Loader(tiles, RECIPE, 4, device="cpu", train=False, on_error="skip", max_skipped=0.0)]
    assert str(raised.value).count("a.jpg") == 1


def test_a_picture_of_another_size_is_named(tmp_path: Path) -> None:
    path, _ = save_pictures(tmp_path)
    Image.new("RGB", (260, 210)).save(tmp_path / "c.tif")
    error = usage_error("tile", path, tmp_path, "-o", tmp_path / "out", "--size", 100)
    assert f"{tmp_path / 'c.tif'} has 260 x 210 pixels" in error


def test_a_folder_that_another_process_wrote_stays(scenes: Scenes, tmp_path: Path) -> None:
    """It appears while the tiles are cut. The unfinished folder of a killed run is named."""
    killed = tmp_path / ".out.0123456789abcdef.partial"
    killed.mkdir()

    def other(*_: int) -> None:
        (tmp_path / "out").mkdir(exist_ok=True)
        (tmp_path / "out/tile.txt").write_text("theirs")

    with pytest.raises(da.InputError, match=r"another process has written \S+out meanwhile.*give another folder"):
        da.tile_coco(scenes[1], scenes[0], tmp_path / "out", size=128, progress=other)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["tile.txt"]
    assert [*tmp_path.glob(".*")] == [killed]
    summary = str(da.tile_coco(scenes[1], scenes[0], tmp_path / "new", size=128))
    assert "left of a run" not in summary
    (tmp_path / ".next.0.partial").mkdir()
    summary = str(da.tile_coco(scenes[1], scenes[0], tmp_path / "next", size=128))
    assert f"{tmp_path}/.next.0.partial is left of a run that was killed; remove it" in summary.splitlines()


def test_a_folder_with_files_is_refused(scenes: Scenes, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("work")
    assert f"{tmp_path} is not empty" in usage_error("tile", *scenes[::-1], "-o", tmp_path)
    (tmp_path / "new").mkdir()
    assert detaug("tile", *scenes[::-1], "-o", tmp_path / "new", "-q", "--size", 100) == (0, "", "")


def test_two_pictures_with_one_name_are_refused(tmp_path: Path) -> None:
    path, _ = save_pictures(tmp_path)
    (tmp_path / "a.jpg").rename(tmp_path / "b.jpg")
    path.write_text(path.read_text().replace("a.jpg", "b.jpg"))
    error = usage_error("tile", path, tmp_path, "-o", tmp_path / "out", "--size", 100)
    assert "b.jpg and b.png would both have the tile b_0_0.png; rename one" in error


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"size": 0}, "size must be one number of pixels"),
        ({"size": (10, 20, 30)}, "size must be one number of pixels"),
        ({"overlap": 1.0}, "overlap must be a fraction"),
        ({"empty": 2}, "empty must be a fraction"),
        ({"min_visibility": -1}, "min_visibility must be a fraction"),
        ({"whole": 0}, "whole must be None"),
        ({"grids": 0}, "grids must be a whole number"),
        ({"memory": "much"}, "memory must be bytes"),
        ({"seed": -1}, "seed must be a whole number"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, Any], message: str, scenes: Scenes) -> None:
    with pytest.raises(da.InputError, match=message):
        da.TileReader(da.CocoReader(*scenes), **arguments)
