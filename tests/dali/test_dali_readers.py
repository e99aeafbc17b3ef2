"""da.fn.augment behind each of DALI's readers: painted rectangles, boxes and labels stay together."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from nvidia.dali import Pipeline, fn, tfrecord, types
from painted import BLACK, RESAMPLED
from painted_files import write_coco
from record_files import (
    SIDES,
    Sample,
    painted_samples,
    write_caffe2_lmdb,
    write_recordio,
    write_tfrecord,
    write_webdataset,
)

import detaug as da
from detaug.dali.augment import augment
from detaug.dali.coco import coco
from detaug.testing import read_box

Array = NDArray[Any]
Nodes = tuple[Any, Any, Any]
"""The nodes of a reader: encoded images, boxes, labels."""

OPS = (da.RandomHorizontalFlip(0.5), da.RandomZoomOut(2.0, p=0.5, fill=BLACK), da.Resize((96, 128)))


def make_pipeline(reader: Callable[[], Nodes], device: str, **arguments: Any) -> Pipeline:
    """Return a pipeline that reads, decodes, augments, and also returns the matrix."""
    pipe = Pipeline(batch_size=4, num_threads=2, device_id=0 if device == "cuda" else None)
    with pipe:
        encoded, boxes, labels = reader()
        images = fn.decoders.image(encoded, device="mixed" if device == "cuda" else "cpu")
        pipe.set_outputs(*augment(images, boxes, labels, OPS, seed=3, return_matrix=True, **arguments))
    pipe.build()
    return pipe


def run(pipe: Pipeline, batches: int = 4) -> list[tuple[Array, ...]]:
    """Return (image, boxes, labels, matrix) of each sample of some batches."""
    outputs = [[output.as_cpu() for output in pipe.run()] for _ in range(batches)]
    return [tuple(map(np.asarray, sample)) for batch in outputs for sample in zip(*batch, strict=True)]


def check(results: list[tuple[Array, ...]], samples: list[Sample]) -> None:
    """Read a box off the pixels for each box that was returned; the samples come in order, again and again."""
    moved = 0
    for at, (image, boxes, labels, matrix) in enumerate(results):
        sample = samples[at % len(samples)]
        assert labels.tolist() == sample.labels.tolist()
        assert (image.shape, boxes.shape, boxes.dtype) == ((96, 128, 3), (len(labels), 4), np.float32)
        for box, label, source in zip(boxes, labels, sample.pixels, strict=True):
            assert np.abs(read_box(image[:, :, int(label) - 1].astype(float)) - box).max() <= RESAMPLED
            assert np.abs(mapped(matrix, source) - box).max() <= 1e-2
        moved += matrix[0, 0] < 0 or abs(matrix[:, 2]).max() > 0
    assert 0 < moved < len(results)


def mapped(matrix: Array, box: Array) -> Array:
    """Return the XYXY box in output pixels of a box in source pixels, by the returned matrix."""
    corners = np.stack([box[:2], box[2:]]) @ matrix[:2, :2].T + matrix[:2, 2]
    return np.concatenate([corners.min(0), corners.max(0)])


@pytest.fixture(scope="module")
def samples() -> list[Sample]:
    return painted_samples()


def write_images(folder: Path, samples: list[Sample]) -> list[str]:
    """Write the images as files; return their paths."""
    for at, sample in enumerate(samples):
        (folder / f"{at}.png").write_bytes(sample.encoded)
    return [str(folder / f"{at}.png") for at in range(len(samples))]


def rows_of_four(values: Any) -> Any:
    return fn.reshape(values, shape=[-1, 4])


# ------------------------------------------------------------------------------------------------ readers


def write_json(folder: Path, samples: list[Sample]) -> tuple[Path, Path]:
    """Write the images and a COCO JSON file with category ids 7, 14, 21."""
    sizes = [(96, 128), (128, 96), (150, 150)]
    rows = [(f"{at}.png", sizes[at % 3], sample.pixels) for at, sample in enumerate(samples)]
    write_images(folder, samples)
    _, path = write_coco(folder, rows)
    content = json.loads(path.read_text())
    labels = np.concatenate([sample.labels for sample in samples]).tolist()
    for row, label in zip(content["annotations"], labels, strict=True):
        row["category_id"] = 7 * label
    path.write_text(json.dumps(content))
    return folder, path


def test_coco(device: str, samples: list[Sample], tmp_path: Path) -> None:
    folder, annotations = write_json(tmp_path, samples)
    pipe = make_pipeline(lambda: coco(folder, annotations, shuffle=False)[:3], device)
    check(run(pipe), [*samples, samples[-1]])  # which fills the last batch of an epoch


@pytest.mark.parametrize("units", ["relative", "pixels"])
def test_dalis_own_coco(units: str, device: str, samples: list[Sample], tmp_path: Path) -> None:
    folder, annotations = map(str, write_json(tmp_path, samples))

    def reader() -> Any:
        return fn.readers.coco(file_root=folder, annotations_file=annotations, ltrb=True, ratio=units == "relative")

    check(run(make_pipeline(reader, device, units=units)), samples)


def test_tfrecord(device: str, samples: list[Sample], tmp_path: Path) -> None:
    path = str(write_tfrecord(tmp_path / "train.tfrecord", samples))
    features = {
        "image/encoded": tfrecord.FixedLenFeature((), tfrecord.string, ""),
        "image/object/class/label": tfrecord.VarLenFeature(tfrecord.int64, -1),
        **{f"image/object/bbox/{side}": tfrecord.VarLenFeature(tfrecord.float32, 0.0) for side in SIDES},
    }

    def reader() -> Nodes:
        read = fn.readers.tfrecord(path=path, index_path=f"{path}.idx", features=features)
        boxes = fn.stack(*(read[f"image/object/bbox/{side}"] for side in SIDES), axis=1)
        return read["image/encoded"], boxes, read["image/object/class/label"]

    check(run(make_pipeline(reader, device)), samples)


def test_webdataset(device: str, samples: list[Sample], tmp_path: Path) -> None:
    path = str(write_webdataset(tmp_path / "train.tar", samples))

    def reader() -> Nodes:
        read = fn.readers.webdataset(
            paths=path, ext=["png", "boxes", "labels"], dtypes=[types.UINT8, types.FLOAT, types.INT32]
        )
        encoded, boxes, labels = read
        return encoded, rows_of_four(boxes), labels

    check(run(make_pipeline(reader, device)), samples)


def test_mxnet_recordio(device: str, samples: list[Sample], tmp_path: Path) -> None:
    path = str(write_recordio(tmp_path / "train.rec", samples))

    def reader() -> Nodes:
        encoded, label = fn.readers.mxnet(path=path, index_path=f"{path}.idx")
        rows = fn.reshape(label[2:], shape=[-1, 5])
        return encoded, rows[:, 1:5], rows[:, 0]

    check(run(make_pipeline(reader, device)), samples)


def test_caffe2_lmdb(device: str, samples: list[Sample], tmp_path: Path) -> None:
    pytest.importorskip("lmdb", reason="the module lmdb, which writes the file for the test, is not installed")
    path = str(write_caffe2_lmdb(tmp_path / "lmdb", samples))

    def reader() -> Nodes:
        encoded, labels, boxes = fn.readers.caffe2(path=path, label_type=2, additional_inputs=1)
        return encoded, rows_of_four(boxes), labels

    check(run(make_pipeline(reader, device)), samples)


def test_external_source(device: str, samples: list[Sample]) -> None:
    """With batches of 4 and 3 images, then StopIteration; boxes in pixels and labels of another type."""
    columns = ([np.frombuffer(each.encoded, np.uint8) for each in samples], [each.pixels for each in samples])
    labels = [each.labels.astype(np.uint8) for each in samples]

    def feed() -> Iterator[tuple[list[Array], ...]]:
        for part in (slice(0, 4), slice(4, 7)):
            yield columns[0][part], columns[1][part], labels[part]

    def reader() -> Any:
        return fn.external_source(feed, num_outputs=3, cycle="raise", ndim=[1, 2, 1])

    pipe = make_pipeline(reader, device, units="pixels")
    for _ in range(2):
        results = run(pipe, batches=2)
        assert len(results) == 7
        assert {labels.dtype for _, _, labels, _ in results} == {np.dtype(np.uint8)}
        check(results, samples)
        with pytest.raises(StopIteration):
            pipe.run()
        pipe.reset()


def test_files_without_boxes(device: str, samples: list[Sample], tmp_path: Path) -> None:
    """The pixels move as the matrix says."""
    files = write_images(tmp_path, samples)
    pipe = make_pipeline(lambda: (fn.readers.file(files=files)[0], None, None), device)
    results = run(pipe)
    for at, (image, boxes, labels, matrix) in enumerate(results):
        assert (boxes.shape, labels.shape) == ((0, 4), (0,))
        sample = samples[at % len(samples)]
        for box, label in zip(sample.pixels, sample.labels, strict=True):
            seen = read_box(image[:, :, label - 1].astype(float))
            assert np.abs(seen - mapped(matrix, box)).max() <= RESAMPLED
    assert any(matrix[0, 0] < 0 for _, _, _, matrix in results)
