"""`OpticalFlow`: images that move by known pixels have that flow, after crops, flips and resizes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from places import REPOSITORY

import detaug as da
from detaug.recipes.recipe import make_rendering_recipe
from detaug.video.flow import frames_of

FRAMES, SIZE = 6, (192, 256)


def texture(height: int, width: int, seed: int) -> NDArray[np.uint8]:
    """Return a smooth image without a plain part."""
    coarse = np.random.default_rng(seed).integers(0, 256, (height // 8, width // 8, 3), dtype=np.uint8)
    return np.asarray(Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC))


def write_clip(folder: Path, frames: list[NDArray[np.uint8]]) -> da.ClipReader:
    """Write a CocoVID dataset of one video."""
    (folder / "v").mkdir(parents=True)
    height, width = frames[0].shape[:2]
    images = []
    for at, frame in enumerate(frames):
        Image.fromarray(frame).save(folder / f"v/{at}.png")
        names = {"file_name": f"v/{at}.png", "height": height, "width": width}
        images.append({"id": at + 1, "video_id": 1, "frame_id": at, **names})
    box = {"id": 1, "image_id": 1, "category_id": 1, "bbox": [2, 2, 50, 50], "area": 2500, "iscrowd": 0, "track_id": 1}
    categories, videos = [{"id": 1, "name": "thing"}], [{"id": 1, "fps": 10}]
    document = {"videos": videos, "images": images, "annotations": [box], "categories": categories}
    (folder / "videos.json").write_text(json.dumps(document))
    return da.ClipReader(folder, folder / "videos.json", frames=len(frames), cache=False)


@pytest.fixture(scope="module")
def moving(tmp_path_factory: pytest.TempPathFactory) -> da.ClipReader:
    """An image that moves by (3, -2) pixels from each frame to the next."""
    height, width = SIZE
    large = texture(height + 64, width + 64, 1)
    frames = [large[32 + 2 * at :][:height, 32 - 3 * at :][:, :width] for at in range(FRAMES)]
    return write_clip(tmp_path_factory.mktemp("moving"), frames)


def clip(reader: da.Source, ops: list[da.Op], **options: Any) -> da.ClipBatch:
    loader: da.Loader[da.ClipBatch] = da.Loader(reader, ops, 1, device="cuda", **options)
    with loader:
        return next(iter(loader))


CHAINS: dict[str, tuple[list[da.Op], tuple[float, float]]] = {
    "as it is": ([da.Resize(SIZE)], (3, -2)),
    "flipped to the other side": ([da.RandomHorizontalFlip(p=1), da.Resize(SIZE)], (-3, -2)),
    "flipped upside down": ([da.RandomVerticalFlip(p=1), da.Resize(SIZE)], (3, 2)),
    "twice as large": ([da.Resize((2 * SIZE[0], 2 * SIZE[1]))], (6, -4)),
    "wider": ([da.Resize((SIZE[0], 2 * SIZE[1]))], (6, -2)),
    "a part": ([da.Resize(SIZE), da.CenterCrop((96, 128))], (3, -2)),
    "a part, blurred by DALI": ([da.Resize(SIZE), da.CenterCrop((96, 128)), da.GaussianBlur(p=1)], (3, -2)),
    "turned": ([da.RandomRotation((90, 90)), da.Resize(SIZE)], (-2, -3)),
    "in other colors": ([da.Resize(SIZE), da.RandomPhotometricDistort()], (3, -2)),
}


@pytest.mark.gpu
@pytest.mark.parametrize("name", [*CHAINS])
@pytest.mark.parametrize(
    "last", [None, da.Normalize(), da.Normalize(da.presets.IMAGENET_MEAN, da.presets.IMAGENET_STD)]
)
def test_a_picture_that_moves(moving: da.ClipReader, name: str, last: da.Op | None) -> None:
    ops, expected = CHAINS[name]
    batch = clip(moving, [*ops, da.OpticalFlow(), *([last] if last else [])])
    assert batch.flow is not None
    height, width = batch.images.shape[-2:]
    assert batch.flow.shape == (1, FRAMES - 1, 2, height // 4, width // 4)
    assert batch.flow.dtype == torch.float32
    inner = batch.flow[0, :, :, 4:-4, 4:-4].float().cpu()
    assert inner.flatten(2).median(2).values.numpy() == pytest.approx(np.tile(expected, (FRAMES - 1, 1)), abs=0.25)


@pytest.mark.gpu
@pytest.mark.parametrize("preset", [0, 0.5, 1])
@pytest.mark.parametrize("grid", [1, 2, 4])
def test_presets_and_grids(moving: da.ClipReader, preset: float, grid: int) -> None:
    batch = clip(moving, [da.Resize((190, 254)), da.OpticalFlow(preset, grid)])
    assert batch.flow is not None
    assert batch.flow.shape[-2:] == (-(-190 // grid), -(-254 // grid))
    inner = batch.flow[0, :, :, 16 // grid : -16 // grid, 16 // grid : -16 // grid]
    found = inner.flatten(2).median(2).values.cpu().numpy()
    assert found == pytest.approx(np.tile((3 * 254 / 256, -2 * 190 / 192), (FRAMES - 1, 1)), abs=0.25)


@pytest.mark.gpu
def test_vectors_are_where_the_object_is_in_the_first_of_two_frames(tmp_path: Path) -> None:
    """An object moves by 16 pixels on a still background."""
    height, width = SIZE
    frames = []
    for at in range(3):
        frame = texture(height, width, 1).copy()
        frame[64:128, 80 + 16 * at : 144 + 16 * at] = texture(64, 64, 2)
        frames.append(frame)
    batch = clip(write_clip(tmp_path, frames), [da.Resize(SIZE), da.OpticalFlow(preset=0)])
    assert batch.flow is not None
    for at in range(2):
        across = batch.flow[0, at, 0, 20:28].median(0).values.cpu().numpy()
        (moves,) = np.nonzero(across > 8)
        assert abs(moves[0] * 4 - (80 + 16 * at)) <= 8
        assert abs(moves[-1] * 4 + 3 - (143 + 16 * at)) <= 8
        assert np.median(across[moves]) == pytest.approx(16, abs=1)


@pytest.mark.gpu
def test_the_loader_of_the_documentation(tmp_path: Path) -> None:
    """Of docs/video.md: the first frame of each clip, and its flow."""
    written = write_clip(tmp_path, [texture(*SIZE, 3)] * 23)
    reader = da.ClipReader(written.images, written.annotations, frames=16, cache=False)
    assert len(reader.clips) == 8
    page = REPOSITORY.joinpath("docs/video.md").read_text(encoding="utf-8")
    code = page.partition("## Optical flow")[2].partition("```py\n")[2].partition("```")[0]
    assert len(code.splitlines()) == 4
    names: dict[str, Any] = {"da": da, "reader": reader}
    exec(code, names)
    assert names["first"].shape == (8, 3, 224, 224)
    assert names["flow"].shape == (8, 15, 2, 56, 56)
    names["loader"].close()


@pytest.mark.gpu
def test_each_clip_of_a_batch_has_its_flow(moving: da.ClipReader, tmp_path: Path) -> None:
    still = write_clip(tmp_path, [texture(*SIZE, 3)] * FRAMES)
    readers: list[tuple[da.Source, float]] = [(still, 0), (moving, 3)]
    for reader, expected in readers:
        short = da.ClipReader(reader.images, reader.annotations, frames=2, cache=False)  # type: ignore[attr-defined]
        loader: da.Loader[da.ClipBatch] = da.Loader(short, [da.Resize(SIZE), da.OpticalFlow()], 4, device="cuda")
        with loader:
            sizes = []
            for batch in [*loader, *loader]:
                assert batch.flow is not None
                found = batch.flow[:, 0, 0].flatten(1).median(1).values.cpu().numpy()
                assert found == pytest.approx(np.full(len(batch), expected), abs=0.25)
                sizes.append(len(batch))
        assert sizes == [4, 4] * 2


@pytest.mark.gpu
def test_flow_on_another_stream_and_in_a_replay(moving: da.ClipReader) -> None:
    ops = [da.RandomHorizontalFlip(), da.Resize(SIZE), da.OpticalFlow(), da.Normalize()]
    loader: da.Loader[da.ClipBatch] = da.Loader(moving, ops, 1, device="cuda", return_params=True)
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with loader, torch.cuda.stream(stream):
        for _ in range(4):
            (batch,) = loader
            again = loader.replay(batch)
            assert batch.flow is not None
            assert again.flow is not None
            assert torch.equal(batch.flow, again.flow)
            assert batch.to("cpu").flow is not None
    stream.synchronize()


@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8"])
@pytest.mark.parametrize("memory_format", ["contiguous", "channels_last"])
def test_normalised_frames_become_those_before(moving: da.ClipReader, dtype: Any, memory_format: Any) -> None:
    plain = {} if dtype == "uint8" else {"mean": da.presets.IMAGENET_MEAN, "std": da.presets.IMAGENET_STD}
    normalize = da.Normalize(**plain, dtype=dtype, memory_format=memory_format)
    options: Any = {"batch_size": 1, "device": "cpu"}
    (before,) = da.Loader(moving, [da.Resize(SIZE)], **options)
    (after,) = da.Loader(moving, [da.Resize(SIZE), normalize], **options)
    assert torch.equal(frames_of(after.images[0], normalize), before.images[0].permute(0, 2, 3, 1))


def test_what_it_cannot_do_is_said(moving: da.ClipReader, tmp_path: Path) -> None:
    ops = [da.Resize(SIZE), da.OpticalFlow()]
    with pytest.raises(da.InputError, match="OpticalFlow is computed on a GPU, and this loader is on the CPU"):
        da.Loader(moving, ops, 1, device="cpu")
    images = da.CocoReader(moving.images, moving.annotations, cache=False)
    with pytest.raises(da.InputError, match="OpticalFlow needs clips of at least 2 frames"):
        da.Loader(images, ops, 1, device="cpu")
    single = da.ClipReader(moving.images, moving.annotations, frames=1, cache=False)
    with pytest.raises(da.InputError, match="OpticalFlow needs clips of at least 2 frames"):
        da.Loader(single, ops, 1, device="cpu")
    with pytest.raises(da.InputError, match=r"OpticalFlow \(2nd\) must be the last op before Normalize"):
        da.Loader(moving, [da.Resize(SIZE), da.OpticalFlow(), da.RandomInvert()], 1, device="cpu")
    with pytest.raises(da.InputError, match="OpticalFlow needs a Loader of clips on a GPU"):
        make_rendering_recipe(ops)
    with pytest.raises(da.InputError, match="OpticalFlow needs a Loader of clips on a GPU"):
        da.Compose(ops)(Image.new("RGB", (8, 8)), {})


@pytest.mark.parametrize(
    ("arguments", "message"), [({"preset": 2}, "preset must be 0, 0.5 or 1"), ({"grid": 3}, "1, 2")]
)
def test_arguments(arguments: Any, message: str) -> None:
    with pytest.raises(da.InputError, match=message):
        da.OpticalFlow(**arguments)
