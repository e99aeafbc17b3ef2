"""`ClipReader` and `ClipBatch`: one draw a clip, boxes on their pixels in every frame, objects in their rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from painted import BLACK, RESAMPLED
from seeds import seeds, slow
from video_files import Videos, paint_videos

import detaug as da
from detaug.converters import pack_coco
from detaug.recipes.recipe_file import library
from detaug.sources.clips import clips_of_videos
from detaug.testing import read_box

RESIZE = da.Resize((90, 110))
SIZES = [RESIZE, da.RandomResizedCrop((90, 90), scale=(0.5, 1))]
GEOMETRY = [
    da.RandomHorizontalFlip(), da.RandomVerticalFlip(), da.RandomRotate90(), da.RandomZoomOut(1.5, fill=BLACK),
    da.RandomIoUCrop(), da.RandomBoxSafeCrop(), da.RandomCrop((80, 80), fill=BLACK), da.RandomSizeCrop(60, 90, None),
    da.RandomAffine(15, translate=(0.1, 0.1), scale=(0.8, 1.2), fill=BLACK), da.RandomPerspective(0.2, fill=BLACK),
    da.RandomRotation(20, fill=BLACK), da.RandomChoice([da.RandomHorizontalFlip(1.0), da.RandomVerticalFlip(1.0)]),
]  # fmt: skip


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Videos:
    return paint_videos(tmp_path_factory.mktemp("videos"), fps=10)


@pytest.fixture
def own_videos(tmp_path: Path) -> Videos:
    return paint_videos(tmp_path / "videos")


def reader(videos: Videos, **arguments: Any) -> da.ClipReader:
    return da.ClipReader(videos.folder, videos.json, **{"frames": 4, "stride": 2, **arguments})


def loader(source: da.Source, recipe: list[da.Op], **arguments: Any) -> da.Loader:
    return da.Loader(source, recipe, 3, **{"device": "cpu", **arguments})


def same(a: da.ClipBatch, b: da.ClipBatch) -> bool:
    names = [name for name, value in vars(a).items() if isinstance(value, torch.Tensor)]
    return all(torch.equal(getattr(a, name), getattr(b, name)) for name in names)


def assert_boxes_on_pixels(batch: da.ClipBatch, tolerance: float) -> int:
    """Every box lies on its rectangle in every frame; returns how many were read.

    Rotated rectangles that the border of the image cuts are left out: a thin tip of one is too faint to read.
    """
    images, read = batch.images.cpu().numpy(), 0
    turned = (batch.matrix[:, :2, :2].abs() > 1e-6).all(2).all(1)
    for place in zip(*np.nonzero(batch.valid.cpu().numpy()), strict=True):
        clip, frame, _ = place
        box, size = batch.boxes[place].cpu(), batch.image_size[clip].flip(0)
        if turned[clip] and not ((box[:2] > 0).all() and (box[2:] < size).all()):
            continue
        seen = read_box(images[clip, frame, int(batch.labels[place]) - 1].astype(float))
        assert np.abs(seen - batch.boxes[place].cpu().numpy()).max() <= tolerance, f"{batch.boxes[place]} but {seen}"
        read += 1
    return read


# ------------------------------------------------------------------------------------------- which frames


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((3, 1, 1, "drop"), [[0, 1, 2], [1, 2, 3], [2, 3, 4]]),
        ((3, 2, 1, "drop"), [[0, 2, 4]]),
        ((2, 1, 2, "drop"), [[0, 1], [2, 3]]),
        ((2, 1, 2, "pad"), [[0, 1], [2, 3], [4, 4]]),
        ((2, 1, 2, "shift"), [[0, 1], [2, 3], [3, 4]]),
        ((3, 2, 3, "pad"), [[0, 2, 4], [3, 4, 4]]),
        ((3, 2, 3, "shift"), [[0, 2, 4]]),
        ((3, 3, 1, "shift"), [[0, 3, 4]]),
        ((1, 7, 2, "drop"), [[0], [2], [4]]),
    ],
)
def test_clips_of_a_video_of_five_frames(arguments: tuple[Any, ...], expected: list[list[int]]) -> None:
    clips = clips_of_videos(np.ones(5, np.int64), np.arange(5), *arguments)
    assert clips.tolist() == expected
    shuffled = clips_of_videos(np.ones(5, np.int64), np.array([4, 2, 0, 1, 3]), *arguments)
    assert np.array([4, 2, 0, 1, 3])[shuffled].tolist() == expected


def test_an_epoch_has_each_clip_once_in_the_json_s_numbers(videos: Videos, device: str) -> None:
    source = reader(videos, stride=3, step=2, last="shift")
    batches = list(loader(source, [RESIZE], train=False, device=device))
    got = [(int(v), *f) for b in batches for v, f in zip(b.video_id, b.frame.tolist(), strict=True)]
    starts = {1: (0, 2, 4), 2: (0,), 3: (0, 1)}  # of 14, 9 and 11 frames: a clip spans 10; that of 9 is padded
    expected = [(v, *(min(s + 3 * k, 8 if v == 2 else 99) for k in range(4))) for v in starts for s in starts[v]]
    assert got == expected
    for batch in batches:
        assert batch.image_id.tolist() == (100 * batch.video_id[:, None] + batch.frame).tolist()
        assert torch.allclose(batch.time, batch.frame.double() / 10)


@pytest.mark.slow
@pytest.mark.parametrize("train", [True, False])
def test_shards_and_a_resumed_epoch(videos: Videos, train: bool) -> None:
    source = reader(videos)
    recipe = [da.RandomIoUCrop(), RESIZE, da.GaussianNoise(p=1) if train else da.ColorJitter(0.4, 0.4)]
    whole = list(loader(source, recipe, train=train))
    parts = [da.Loader(source, recipe, 1, device="cpu", train=train, shard=(rank, 3)) for rank in range(3)]
    for batch, *of_ranks in zip(whole, *parts, strict=False):
        pixels = [each.images for each in of_ranks]
        assert torch.equal(batch.images[: len(pixels)], torch.cat(pixels))
        assert torch.equal(batch.image_id, torch.cat([each.image_id for each in of_ranks]))
    first, second = loader(source, recipe, train=train), loader(source, recipe, train=train)
    steps = iter(first)
    for _ in range(2):
        next(steps)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert all(same(a, b) for a, b in zip(whole[2:], second, strict=True))
    with pytest.raises(da.InputError, match="not those of this state"):
        loader(reader(videos, stride=1), recipe, train=train).load_state_dict(first.state_dict())


# ------------------------------------------------------------------------------------------- boxes and pixels


def chain(seed: int) -> list[da.Op]:
    rng = np.random.default_rng(seed)
    return [*(GEOMETRY[at] for at in rng.permutation(len(GEOMETRY))[: rng.integers(1, 4)]), SIZES[rng.integers(2)]]


@pytest.mark.parametrize("seed", seeds(2, 40))
def test_boxes_lie_on_their_rectangles_in_every_frame(videos: Videos, seed: int, device: str) -> None:
    source, recipe = reader(videos), chain(seed)
    batches = loader(source, recipe, seed=seed, device=device, return_params=True)
    assert sum(assert_boxes_on_pixels(batch, RESAMPLED + 0.3) for batch in batches) > 0
    for batch in batches:
        assert_one_geometry(batch)


def assert_one_geometry(batch: da.ClipBatch) -> None:
    """The frames of a clip drew the same, and a box that nothing cut off is the JSON file's, by `matrix`."""
    assert batch.params is not None
    for drawn in batch.params:
        for array in drawn.values():
            by_clip = array.reshape(len(batch), batch.images.shape[1], -1)
            assert (by_clip == by_clip[:, :1]).all()


def test_objects_keep_their_rows(videos: Videos, device: str) -> None:
    """An object that is away, or out of the view, is masked and comes back in its row."""
    source = reader(videos, frames=6)
    gone = back = 0
    for batch in loader(source, [da.RandomCrop((70, 70)), RESIZE], device=device):
        tracks, mask = batch.track_id.cpu().numpy(), batch.valid.cpu().numpy()
        labels = batch.labels.cpu().numpy()
        assert ((tracks >= 0) == mask).all()
        assert (labels[mask] * 10 == tracks[mask]).all()
        assert (batch.boxes.cpu().numpy()[~mask] == 0).all()
        for clip, row in np.ndindex(len(batch), mask.shape[2]):
            seen = tracks[clip, mask[clip, :, row], row]
            assert len(set(seen.tolist())) <= 1
            at = np.flatnonzero(mask[clip, :, row])
            gone += len(at) < 6
            back += len(at) > 1 and len(at) < at[-1] - at[0] + 1
        assert mask.any((1, 2)).any()
        assert mask.any(1).sum(1).max() == mask.shape[2]  # no row is empty in all clips
    assert gone > 10
    assert back > 0


def test_what_is_in_the_json_comes_out(videos: Videos, device: str) -> None:
    batches = list(loader(reader(videos, stride=1), [da.Resize((96, 128))], train=False, device=device))
    for batch in batches:
        for clip, frame in np.ndindex(*batch.image_id.shape):
            given = videos.boxes[int(batch.image_id[clip, frame])]
            height, width = batch.source_size[clip].tolist()
            expected = given[given[:, 0] >= 0] * np.tile([128 / width, 96 / height], 2)
            seen = batch.boxes[clip, frame][batch.valid[clip, frame]].cpu().numpy()
            assert np.allclose(seen, expected, atol=1e-4)
            assert torch.equal(batch.labels[clip, frame][batch.valid[clip, frame]].cpu(), given_labels(given))


def given_labels(boxes: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.flatnonzero(boxes[:, 0] >= 0) + 1)


def recipe_of(op: da.Op) -> list[da.Op]:
    return [op, RESIZE] if op.stage == "view" else [RESIZE, op]


EXAMPLES = {
    "RandomErasing": da.RandomErasing(p=1), "GridMask": da.GridMask(p=1), "ColorJitter": da.ColorJitter(0.5, 0.5, 0.5),
    "RandAugment": da.RandAugment(), "TrivialAugmentWide": da.TrivialAugmentWide(), "JPEG": da.JPEG(p=1),
    "RandomPhotometricDistort": da.RandomPhotometricDistort(), "RandomHSV": da.RandomHSV(),
    "GaussianBlur": da.GaussianBlur(p=1), "RandomPosterize": da.RandomPosterize(4), "CLAHE": da.CLAHE(p=1),
    "RandomChannelPermutation": da.RandomChannelPermutation(), "RandomGrayscale": da.RandomGrayscale(),
    "RandomGamma": da.RandomGamma(p=1), "ChannelDropout": da.ChannelDropout(), "MotionBlur": da.MotionBlur(),
    "Defocus": da.Defocus(), "Downscale": da.Downscale(), "RandomShadow": da.RandomShadow(),
    "RandomFog": da.RandomFog(), "OpticalDistortion": da.OpticalDistortion((-0.2, 0.2)),
    "ElasticTransform": da.ElasticTransform(),
    "RandomOrder": da.RandomOrder([da.RandomHorizontalFlip(), da.RandomRotate90()]),
    "RandomApply": da.RandomApply([da.RandomIoUCrop()]),
}  # fmt: skip


@pytest.mark.parametrize("name", [*list(EXAMPLES)[:4], *slow(*list(EXAMPLES)[4:])])
def test_a_still_picture_stays_still(own_videos: Videos, name: str, device: str) -> None:
    """All frames of a clip that shows one image come out equal, bit for bit."""
    for path in own_videos.folder.glob("v*/*.png"):
        path.write_bytes((path.parent / "000.png").read_bytes())
    for batch in loader(reader(own_videos), recipe_of(EXAMPLES[name]), device=device):
        assert (batch.images == batch.images[:, :1]).all()


@pytest.mark.parametrize(
    "op",
    [da.GaussianNoise(p=1), da.RandomApply([da.SaltAndPepperNoise(p=1)], p=1), da.RandomRain(density=2, p=1)],
    ids=repr,
)
def test_noise_has_one_strength_and_differs_among_frames(own_videos: Videos, op: da.Op, device: str) -> None:
    for path in own_videos.folder.glob("v*/*.png"):
        path.write_bytes((path.parent / "000.png").read_bytes())
    for batch in loader(reader(own_videos), [RESIZE, op], device=device):
        plain = batch.images.float()
        for one in range(1, 4):
            assert (plain[:, 0] != plain[:, one]).float().mean() > 0.01
        changed = (plain - plain.median(1, keepdim=True).values).abs().mean((2, 3, 4))
        assert torch.allclose(changed, changed.mean(1, keepdim=True).expand_as(changed), rtol=0.4)


def test_ops_that_combine_images_are_refused(videos: Videos) -> None:
    for op in (da.Mosaic(), da.CutMix(), da.MixUp(), da.CopyPaste()):
        with pytest.raises(da.InputError, match=f"{type(op).__name__} combines images, and the reader has clips"):
            loader(reader(videos), [RESIZE, op])


def test_every_op_is_tried_here() -> None:
    tried = (
        {type(op).__name__ for op in GEOMETRY + SIZES}
        | set(EXAMPLES)
        | {"GaussianNoise", "SaltAndPepperNoise", "RandomRain"}
    )
    mixing = {name for name, each in library().items() if getattr(each, "mixes", False)}
    alike = {
        "OpticalFlow",
        "Resize",
        "Normalize",
        "Pad",
        "PadToMultiple",
        "CenterCrop",
        "ScaleJitter",
        "RandomShortestSize",
    }
    alike |= {"SanitizeBoundingBoxes", "RandomAdjustSharpness", "RandomAutocontrast", "RandomEqualize", "RandomInvert"}
    alike |= {"MedianBlur"}
    assert set(library()) - tried - mixing - alike <= {"RandomSolarize", "RandomPosterize"}


# ------------------------------------------------------------------------------------------- batches


def test_as_images(videos: Videos, device: str) -> None:
    source = reader(videos)
    for batch in loader(source, [da.RandomIoUCrop(), RESIZE, da.Normalize()], device=device):
        images = batch.as_images()
        assert len(images) == 12
        assert sum(images.counts) == int(batch.valid.sum())
        assert images.image_id_of_box is not None
        own_images = images.image_id[:, None].expand(images.valid.shape)
        assert torch.equal(images.image_id_of_box, torch.where(images.valid.cpu(), own_images, -1))
        for at, target in enumerate(images.targets()):
            mask = batch.valid[at // 4, at % 4]
            assert torch.equal(target["boxes"], batch.boxes[at // 4, at % 4][mask])
            assert torch.equal(target["labels"], batch.labels[at // 4, at % 4][mask])
            assert target["image_id"] == batch.image_id[at // 4, at % 4]
        assert images._repr_png_()[:4] == batch._repr_png_()[:4] == b"\x89PNG"
        assert same(batch.clone(), batch)


def test_replay_cache_and_settings_change_nothing(videos: Videos, device: str) -> None:
    source, recipe = reader(videos), [da.RandomIoUCrop(), RESIZE, da.GaussianNoise(p=0.5)]
    plain = loader(source, recipe, device=device, return_params=True)
    other = loader(source, recipe, device=device, pipelines=1, cache="device")
    for _ in range(4):
        for a, b in zip(plain, other, strict=True):
            assert same(a, b)
    assert other.cached_images == 34
    assert same(plain.replay(a), a)


def test_ragged_sizes_are_padded(videos: Videos, device: str) -> None:
    batch = next(iter(loader(reader(videos), [da.Resize(60), da.Normalize()], device=device)))
    height, width = batch.image_size.amax(0).tolist()
    assert batch.images.shape[-2:] == (-(-height // 32) * 32, -(-width // 32) * 32)


# ------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize("train", [True, False])
def test_a_broken_frame_takes_its_clips_with_it(own_videos: Videos, train: bool, device: str) -> None:
    (own_videos.folder / "v1" / "004.png").write_bytes(b"no image")
    source = reader(own_videos, frames=3, stride=1)
    broken = int(np.flatnonzero(source.image_ids == 204)[0])
    with pytest.raises(da.DataError, match=r"v1/004\.png: does not decode"):
        list(loader(source, [RESIZE], train=train, device=device))
    batches = loader(source, [RESIZE], train=train, device=device, on_error="skip", max_skipped=0.1)
    with pytest.warns(UserWarning, match=r"v1/004\.png.*skipped"):
        first = list(batches)
    ids = torch.cat([each.image_id for each in [*first, *batches]]).tolist()
    assert all(204 not in clip for clip in ids)
    good = (~(source.clips == broken).any(1)).sum()
    assert good == len(source.clips) - 3
    if not train:
        assert len(ids) == 2 * good


def changed(videos: Videos, change: Any) -> Videos:
    document = json.loads(videos.json.read_text())
    change(document)
    videos.json.write_text(json.dumps(document))
    return videos


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.pop("videos"), "no videos; a CocoVID JSON file has a list of them"),
        (lambda d: d["images"][3].pop("video_id"), r"images\[3\].*video_id None is not the id of a video"),
        (lambda d: d["images"][3].update(video_id=9), r"images\[3\].*video_id 9 is not the id of a video"),
        (lambda d: d["images"][3].update(frame_id=-1), r"images\[3\].*frame_id must be a whole number.*got -1"),
        (lambda d: d["images"][3].update(d["images"][3], video_id=1, frame_id=0), "frame_id|a frame of"),
        (lambda d: d["images"][3].update(width=500), "a frame of 500 x .* pixels in a video of"),
        (lambda d: d["images"][0].update(width=500), r"images\[0\].*a frame of 500 x .* pixels in a video of"),
        (lambda d: d["annotations"][2].pop("track_id"), r"annotations\[2\].*track_id must be a whole number, got None"),
        (lambda d: [a.update(track_id=1) for a in d["annotations"]], "track_id 1 is taken by another box of the frame"),
        (lambda d: d["videos"].append({"id": 1}), r"videos\[3\] \(id 1\): id 1 is taken by videos\[0\]"),
        (lambda d: d["videos"].append("x"), r"videos\[3\] \(id None\): must be an object"),
    ],
    ids=lambda each: each[:40] if isinstance(each, str) else "",
)
def test_errors_in_the_json(own_videos: Videos, change: Any, message: str) -> None:
    with pytest.raises(da.AnnotationError, match=message):
        reader(changed(own_videos, change))


def test_a_json_without_tracks(own_videos: Videos, device: str) -> None:
    def drop(document: dict[str, Any]) -> None:
        for each in document["annotations"]:
            del each["track_id"]

    batches = loader(reader(changed(own_videos, drop)), [RESIZE], device=device)
    for batch in batches:
        assert (batch.track_id == -1).all()
        assert assert_boxes_on_pixels(batch, RESAMPLED + 0.3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"frames": 0}, "frames must be a whole number of at least 1, got 0"),
        ({"stride": 1.5}, "stride must be a whole number of at least 1, got 1.5"),
        ({"step": True}, "step must be a whole number of at least 1, got True"),
        ({"last": "wrap"}, "last must be 'drop', 'pad' or 'shift', got 'wrap'"),
        ({"frames": 20}, "a clip spans 39 frames, the longest video has 14; give fewer frames"),
    ],
)
def test_wrong_arguments(videos: Videos, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(da.InputError, match=message):
        reader(videos, **arguments)


def test_videos_without_boxes(own_videos: Videos) -> None:
    document = json.loads(own_videos.json.read_text())
    own_videos.json.write_text(json.dumps(document | {"annotations": []}))
    (first, *_) = loader(reader(own_videos), [RESIZE])
    assert (first.boxes.shape, first.track_id.shape, first.valid.any()) == ((3, 4, 0, 4), (3, 4, 0), False)
    assert len(first.as_images().targets()) == 12


def test_columns_of_clips_without_boxes(own_videos: Videos) -> None:
    def name_objects(document: dict[str, Any]) -> None:
        for each in document["annotations"]:
            each["name"] = f"object {each['id']}"

    source = reader(changed(own_videos, name_objects), columns=["id", "name"])
    (first, *_) = loader(source, [RESIZE, da.SanitizeBoundingBoxes(min_size=1e4)])
    assert {name: column.shape for name, column in first.as_images().columns.items()} == {
        "track_id": (12, 0),
        "id": (12, 0),
        "name": (12, 0),
    }


def test_an_evaluator_says_how_it_takes_clips(videos: Videos) -> None:
    (batch, *_) = da.Loader[da.ClipBatch](reader(videos), [da.Resize((32, 32))], 2, device="cpu", train=False)
    with pytest.raises(da.InputError, match=r"got a ClipBatch: give batch.as_images\(\)"):
        da.CocoEvaluator(videos.json).update(batch, [])  # type: ignore[arg-type]


def test_packed_clips_are_loaded_as_clips(videos: Videos, tmp_path: Path) -> None:
    summary = pack_coco(videos.json, videos.folder, tmp_path / "shards")
    assert str(summary).splitlines()[-1].startswith(f'load it: da.ClipReader("{tmp_path / "shards"}"')
