"""A source of a few lines that shows images of another one: its batches are those of a file with these images."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from painted_files import Folder, same
from video_files import paint_videos

import detaug as da
from detaug.sources.derived import DerivedSource

RECIPE = [da.RandomHorizontalFlip(), da.RandomAffine(10), da.RandomIoUCrop(), da.Resize((90, 120))]
SHAPES: dict[str, Any] = {"keypoints": True, "rotated": True, "masks": True}


class EverySecond(DerivedSource):
    """Every second image, in the order of the ids."""

    def __init__(self, reader: da.Source) -> None:
        super().__init__([reader], np.argsort(reader.image_ids)[::2])


def every_second(folder: Folder) -> Folder:
    """Write these images and their annotations as a JSON file of their own."""
    document = json.loads(folder[1].read_text())
    images = sorted(document["images"], key=lambda image: image["id"])[::2]
    ids = {image["id"] for image in images}
    annotations = [entry for entry in document["annotations"] if entry["image_id"] in ids]
    path = folder[1].with_name("every-second.json")
    path.write_text(json.dumps(document | {"images": images, "annotations": annotations}))
    return folder[0], path


@pytest.fixture
def shaped(painted: Folder) -> Folder:
    """Painted files, in a shuffled order, whose objects have keypoints, polygons and a class of each image."""
    document = json.loads(painted[1].read_text())
    for entry in document["annotations"]:
        x, y, w, h = entry["bbox"]
        entry["keypoints"] = [x, y, 2, x + w, y, 2, x, y + h, 1]
        entry["segmentation"] = [[x + w / 2, y, x + w, y + h / 2, x + w / 2, y + h, x, y + h / 2]]
        entry["note"] = f"object {entry['id']}"
    for category in document["categories"]:
        category |= {"keypoints": ["left_eye", "right_eye", "nose"], "skeleton": [[1, 2]]}
    for at, image in enumerate(document["images"]):
        image["category_id"] = 7 * (at % 3 + 1)
    np.random.default_rng(0).shuffle(document["images"])
    painted[1].write_text(json.dumps(document))
    return painted


def same_objects(a: da.Batch, b: da.Batch) -> bool:
    tensors: Any = [(each.keypoints, each.corners, each.masks(), each.classes) for each in (a, b)]
    notes = np.array_equal(a.columns["note"], b.columns["note"])
    return notes and all(torch.equal(*pair) for pair in zip(*tensors, strict=True))


def test_some_images_give_the_batches_of_their_own_file(shaped: Folder, device: str) -> None:
    source = EverySecond(da.CocoReader(*shaped, columns=["note"], **SHAPES))
    files = da.CocoReader(*every_second(shaped), columns=["note"], **SHAPES)
    assert (source.class_names, source.category_ids) == (files.class_names, files.category_ids)
    assert [source.path(index) for index in range(len(source))] == [files.path(index) for index in range(len(files))]
    loaders = [da.Loader(each, RECIPE, 4, device=device, seed=3) for each in (source, files)]
    for _ in range(2):
        assert all(same(a, b) and same_objects(a, b) for a, b in zip(*loaders, strict=True))


@pytest.mark.parametrize("make", [da.StackReader, da.ConcatReader, lambda sources: da.TileReader(sources[0], 60)])
def test_some_images_of_other_derived_sources(make: Any, painted: Folder) -> None:
    source = make([da.CocoReader(*painted)])
    some = EverySecond(source)
    rows = np.argsort(source.image_ids)[::2]
    for one, other in zip(some.contents(np.arange(len(some))), source.contents(rows), strict=True):
        assert np.array_equal(one, other)
    loader = da.Loader(some, RECIPE, 4, device="cpu", train=False)
    assert torch.cat([batch.image_id for batch in loader]).tolist() == source.image_ids[rows].tolist()


def test_clips_stay_where_all_their_frames_do(tmp_path: Path) -> None:
    videos = paint_videos(tmp_path / "videos", fps=10)
    source = EverySecond(da.ClipReader(videos.folder, videos.json, frames=3, stride=2))
    files = da.ClipReader(*every_second((videos.folder, videos.json)), frames=3)
    assert np.array_equal(source.clips, files.clips)
    loaders: list[Any] = [da.Loader(each, [da.Resize((90, 110))], 2, device="cpu", seed=3) for each in (source, files)]
    for a, b in zip(*loaders, strict=True):
        assert all(torch.equal(getattr(a, name), getattr(b, name)) for name in ("images", "boxes", "valid"))
        assert torch.equal(a.frame, b.frame)
        assert torch.equal(a.time, b.time)
        assert np.array_equal(a.columns["track_id"], b.columns["track_id"])


def test_clips_that_are_cut_apart_are_an_error(tmp_path: Path) -> None:
    videos = paint_videos(tmp_path / "videos")
    reader = da.ClipReader(videos.folder, videos.json, frames=3)
    with pytest.raises(da.InputError, match="no clip has all its frames"):
        EverySecond(reader)
    with pytest.raises(da.InputError, match="images of clips can be taken once each"):
        DerivedSource([reader], np.zeros(2, np.int64))
    with pytest.raises(da.InputError, match="DerivedSource takes sources of images, not of clips"):
        DerivedSource([reader, reader], np.arange(2))


def test_a_state_is_of_the_images_that_are_shown(painted: Folder) -> None:
    reader = da.CocoReader(*painted)
    source = EverySecond(reader)
    whole, stopped, again = (da.Loader(source, RECIPE, 4, device="cpu", seed=3) for _ in range(3))
    next(iter(stopped))
    again.load_state_dict(stopped.state_dict())
    assert all(same(a, b) for a, b in zip([*whole][1:], again, strict=True))
    other = da.Loader(DerivedSource([reader], np.arange(11)), RECIPE, 4, device="cpu", seed=3)
    with pytest.raises(da.InputError, match="are not those of this state"):
        other.load_state_dict(stopped.state_dict())


def test_an_image_may_be_shown_twice(painted: Folder) -> None:
    reader = da.CocoReader(*painted)
    source = DerivedSource([reader], np.array([4, 4, 2]))
    assert source.image_ids.tolist() == [1, 2, 3]
    assert [source.path(index) for index in range(3)] == [reader.path(index) for index in (4, 4, 2)]


def test_only_images_that_are_shown_can_be_missing(painted: Folder) -> None:
    (painted[0] / "05.png").unlink()
    reader = da.CocoReader(*painted)
    assert len(da.Loader(EverySecond(reader), RECIPE, 4, device="cpu")) == 3
    with pytest.raises(da.InputError, match=r"1 of 21 images are not in .*, the first is '05\.png'"):
        da.Loader(DerivedSource([reader], np.array([3, 5])), RECIPE, 2, device="cpu")
