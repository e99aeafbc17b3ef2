"""da.fn.coco gives what CocoReader reads, in its order; and where DALI's own reader agrees with it, and where not."""

from __future__ import annotations

import gc
import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from coco_files import Document, document, write, write_images
from nvidia.dali import Pipeline, fn, pipeline_def
from places import SHARED_DATA
from voc_files import image_bytes, rotated_jpeg

import detaug as da
from detaug.converters import voc_to_coco
from detaug.dali.coco import coco

Reader = Callable[[], tuple[Any, Any, Any, Any]]
Data = tuple[Path, Path]
"""(image folder, JSON)"""


class Sample(NamedTuple):
    """What a reader says of one image, as plain Python: floats are float32's."""

    image_id: int
    labels: list[int]
    boxes: list[list[float]]
    file: bytes


def pipeline(reader: Reader, **arguments: Any) -> Pipeline:
    pipe = Pipeline(**{"batch_size": 4, "num_threads": 2, "device_id": None, **arguments})
    with pipe:
        pipe.set_outputs(*reader())
    pipe.build()
    return pipe


def run(pipe: Pipeline) -> list[Sample]:
    """Return the samples of one batch."""
    arrays = [[np.asarray(each) for each in output] for output in pipe.run()]
    return [
        Sample(image_id.item(), labels.tolist(), boxes.tolist(), encoded.tobytes())
        for encoded, boxes, labels, image_id in zip(*arrays, strict=True)
    ]


def epoch(pipe: Pipeline) -> list[Sample]:
    """Return the samples of one epoch of its shard, without those that fill the last batch."""
    meta = pipe.reader_meta()["reader"]
    shards, shard = meta["number_of_shards"], meta["shard_id"]
    batches = math.ceil(meta["epoch_size_padded"] / shards / pipe.max_batch_size)
    samples = [sample for _ in range(batches) for sample in run(pipe)]
    own = meta["epoch_size"] * (shard + 1) // shards - meta["epoch_size"] * shard // shards
    assert samples[own:] == samples[own - 1 : own] * (len(samples) - own)
    return samples[:own]


def dalis_own(data: Data, **arguments: Any) -> Reader:
    """Return DALI's reader as it is, with boxes as XYXY relative to the image."""
    folder, annotations = map(str, data)
    return lambda: reordered(
        *fn.readers.coco(
            file_root=folder,
            annotations_file=annotations,
            ltrb=True,
            ratio=True,
            image_ids=True,
            name="reader",
            pad_last_batch=True,
            **arguments,
        )
    )


def reordered(*nodes: Any) -> tuple[Any, Any, Any, Any]:
    encoded, boxes, labels, image_ids = nodes
    return encoded, boxes, labels, image_ids


def ours(data: Data, **arguments: Any) -> Reader:
    return lambda: coco(*data, **arguments)


def expected(data: Data) -> list[Sample]:
    """Return what CocoReader reads, in its order."""
    reader = da.CocoReader(*data)
    views = reader.views(np.arange(len(reader)))
    rows = zip(reader.image_ids.tolist(), views.labels, views.boxes.astype(np.float32), strict=True)
    return [
        Sample(image_id, labels[labels > 0].tolist(), boxes[labels > 0].tolist(), reader.path(at).read_bytes())
        for at, (image_id, labels, boxes) in enumerate(rows)
    ]


# ------------------------------------------------------------------------------------------------ data


@pytest.fixture(scope="module")
def microcontroller(tmp_path_factory: pytest.TempPathFactory) -> Data:
    folder = SHARED_DATA / "microcontroller"
    if not folder.is_dir():
        pytest.skip(f"the images of microcontrollers are not at {folder}")
    annotations = tmp_path_factory.mktemp("microcontroller") / "train.json"
    voc_to_coco(folder / "train", annotations)
    return folder / "train", annotations


@pytest.fixture
def listed(tmp_path: Path) -> Data:
    """A JSON with categories listed 3, 7, 20, 5 and image ids that do not ascend."""
    content = document()
    content["categories"] = [{"id": number, "name": f"class {number}"} for number in (3, 7, 20, 5)]
    for row, number in zip(content["annotations"], (3, 7, 20, 5, 7), strict=True):
        row["category_id"] = number
    renumber_images(content, {1: 30, 2: 4, 3: 7})
    return write_images(tmp_path / "images"), write(tmp_path / "train.json", content)


def renumber_images(content: Document, ids: dict[int, int]) -> None:
    for image in content["images"]:
        image["id"] = ids[image["id"]]
    for row in content["annotations"]:
        row["image_id"] = ids[row["image_id"]]


@pytest.fixture
def foreign(listed: Data, tmp_path: Path) -> Data:
    """Everything that CocoReader reads and that is unusual: see the names of the files and the values."""
    folder, annotations = listed
    content = json.loads(annotations.read_text())
    names = ["sub/猫 1.jpg", "with blank.jpg", b"caf\xe9.png".decode("utf-8", "surrogateescape"), 'quote".jpg', "z.jpg"]
    for number, name in enumerate(names):
        content["images"].append({"id": 21 - 3 * number, "file_name": name, "width": 100.0, "height": 80})
        (folder / name).write_bytes(image_bytes(kind="PNG" if name.endswith("png") else "JPEG"))
    huge, box = 2**31 + 5, [1.3, 2.7, 10.1, 20.9]
    content["categories"] += [{"id": huge, "name": "huge"}, {"id": 0, "name": "zero"}]
    rows: list[Document] = [
        {"image_id": 21, "category_id": huge, "bbox": box, "iscrowd": None},
        {"image_id": 21, "category_id": 3, "bbox": box, "iscrowd": True},
        {"image_id": 18, "category_id": 0, "bbox": [-0.6, -1, 50, 50.5]},
        {"image_id": 18, "category_id": 20, "bbox": [99.95, 10, 0.05, 20], "iscrowd": 0},
        {"image_id": 15, "category_id": 20, "bbox": [1, 1, 5, 5], "iscrowd": 1},
        {"image_id": 12, "category_id": 5, "bbox": [0, 0, 100.4, 80.4], "segmentation": {"counts": "x"}},
    ]
    content["annotations"] += [{"id": 100 + at, **row} for at, row in enumerate(rows)]
    annotations.write_bytes(json.dumps(content).encode("utf-16"))
    return listed


@pytest.fixture(params=["listed", "foreign", "bccd", "microcontroller"])
def data(request: pytest.FixtureRequest) -> Data:
    found: Data = request.getfixturevalue(request.param)
    return found


# ------------------------------------------------------------------------------------------------ DALI's own reader


@pytest.mark.parametrize("name", ["bccd", "microcontroller"])
def test_dalis_own_reader_agrees_on_converted_voc(name: str, request: pytest.FixtureRequest) -> None:
    """Order, counts, labels, and boxes as float32 bit for bit, with its defaults for crowds and small boxes."""
    data = request.getfixturevalue(name)
    read = epoch(pipeline(dalis_own(data), batch_size=32))
    assert read == expected(data)
    assert sum(len(sample.boxes) for sample in read) == {"bccd": 2805, "microcontroller": 170}[name]


def test_dalis_own_reader_numbers_images_and_categories_otherwise(listed: Data) -> None:
    read = {sample.image_id: sample for sample in expected(listed)}
    assert list(read) == [30, 4, 7]
    assert [sample.labels for sample in read.values()] == [[1, 3], [4, 2, 3], []]

    own = epoch(pipeline(dalis_own(listed)))
    assert [sample.image_id for sample in own] == [4, 7, 30]
    assert [sample.labels for sample in own] == [[3, 4, 2], [], [1, 2]]
    assert [sample.boxes for sample in own] == [read[sample.image_id].boxes for sample in own]

    names = ["a.jpg", "b.jpg", "sub/c.png"]
    category_ids = da.CocoReader(*listed).category_ids
    by_id = epoch(pipeline(dalis_own(listed, images=names, avoid_class_remapping=True)))
    assert by_id == [read[30]._replace(labels=[3, 7]), read[4]._replace(labels=[20, 5, 7]), read[7]]
    assert [[category_ids[label] for label in each.labels] for each in read.values()] == [s.labels for s in by_id]


@pytest.mark.parametrize(
    ("arguments", "labels"),
    [
        ({}, [1, 2]),
        ({"size_threshold": 0.0}, [1, 1, 2]),
        ({"include_iscrowd": False}, [1]),
        ({"include_iscrowd": False, "size_threshold": 0.0}, [1, 1]),
        ({"skip_empty": True, "include_iscrowd": False, "size_threshold": 0.0}, [1, 1]),
    ],
)
def test_dalis_own_reader_keeps_crowds_and_drops_thin_boxes(
    arguments: dict[str, Any], labels: list[int], tmp_path: Path
) -> None:
    content = document()
    content["annotations"][0]["iscrowd"] = 1
    content["annotations"].append(content["annotations"][1] | {"id": 9, "bbox": [5, 5, 0.05, 20]})
    data = write_images(tmp_path / "images"), write(tmp_path / "train.json", content)
    read = epoch(pipeline(dalis_own(data, **arguments)))
    assert len(read) == (2 if "skip_empty" in arguments else 3)
    assert sorted(read[0].labels) == labels
    agrees = arguments == {"include_iscrowd": False, "size_threshold": 0.0}
    assert (read == expected(data)) == agrees


@pytest.mark.parametrize("row", [{"iscrowd": None}, {"iscrowd": True}, {"category_id": 2**31}])
def test_dalis_own_reader_loses_annotations_without_an_error(row: Document, tmp_path: Path) -> None:
    content = document()
    content["annotations"][1].update(row)
    content["categories"][1]["id"] = row.get("category_id", 2)
    for each in content["annotations"]:
        each["category_id"] = content["categories"][each["category_id"] != 1]["id"]
    data = write_images(tmp_path / "images"), write(tmp_path / "train.json", content)
    assert sum(len(sample.boxes) for sample in epoch(pipeline(dalis_own(data)))) < 4
    assert epoch(pipeline(ours(data, shuffle=False))) == expected(data)


def test_dalis_own_reader_passes_boxes_outside_on(tmp_path: Path) -> None:
    content = document()
    content["annotations"][0]["bbox"] = [-1, 0, 102, 80]
    data = write_images(tmp_path / "images"), write(tmp_path / "train.json", content)
    first = np.array(epoch(pipeline(dalis_own(data)))[0].boxes[0])
    assert np.allclose(first, [-0.01, 0, 1.01, 1])
    assert expected(data)[0].boxes[0] == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("where", "at", "row", "labels"),
    [
        ("annotations", 0, {"category_id": 9}, [[0, 1], [2, 1, 2], []]),
        ("annotations", 0, {"image_id": 9}, [[1], [2, 1, 2], []]),
        ("images", 1, {"file_name": "a.jpg"}, [[2, 1, 2], [2, 1, 2], []]),
        ("annotations", 0, {"bbox": [90, 70, 30, 30]}, [[2, 1], [2, 1, 2], []]),
    ],
)
def test_dalis_own_reader_reads_mistakes_without_an_error(
    where: str, at: int, row: Document, labels: list[list[int]], tmp_path: Path
) -> None:
    content = document()
    content[where][at].update(row)
    data = write_images(tmp_path / "images"), write(tmp_path / "train.json", content)
    assert [sample.labels for sample in epoch(pipeline(dalis_own(data)))] == labels
    with pytest.raises(da.AnnotationError, match=f"{where}\\[{at}\\]"):
        pipeline(ours(data))


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-8"])
def test_dalis_own_reader_refuses_encodings_and_sizes_with_a_point(encoding: str, tmp_path: Path) -> None:
    content = document()
    content["images"][0]["width"] = 100.0 if encoding == "utf-8" else 100
    data = write_images(tmp_path / "images"), tmp_path / "train.json"
    data[1].write_bytes(json.dumps(content).encode(encoding))
    with pytest.raises(RuntimeError, match="coco"):
        pipeline(dalis_own(data))
    assert epoch(pipeline(ours(data, shuffle=False))) == expected(data)


def test_dalis_own_reader_fails_at_the_batch_of_a_missing_file(listed: Data) -> None:
    (listed[0] / "a.jpg").unlink()  # the last one, by its id
    pipe = pipeline(dalis_own(listed, prefetch_queue_depth=1), batch_size=1, prefetch_queue_depth=1)
    assert run(pipe)[0].image_id == 4
    with pytest.raises(RuntimeError, match=r"a\.jpg"):
        [run(pipe) for _ in range(2)]


# ------------------------------------------------------------------------------------------------ da.fn.coco


def test_it_gives_what_coco_reader_reads(data: Data) -> None:
    """In its order, over two epochs, in one shard or divided into two."""
    samples = expected(data)
    whole = pipeline(ours(data, shuffle=False), batch_size=8)
    shards = [pipeline(ours(data, shuffle=False, shard=(rank, 2)), batch_size=8) for rank in range(2)]
    for _ in range(2):
        assert epoch(whole) == samples
        assert [sample for shard in shards for sample in epoch(shard)] == samples


def test_shuffled_it_gives_every_image_once_in_each_epoch(data: Data) -> None:
    """Over two shards with one seed; in another order in each epoch, and other images in each shard."""
    samples = sorted(expected(data))
    shards = [pipeline(ours(data, shard=(rank, 2), seed=5), batch_size=8) for rank in range(2)]
    epochs = [[epoch(shard) for shard in shards] for _ in range(6)]
    for first, second in epochs:
        assert sorted(first + second) == samples
        assert abs(len(first) - len(second)) <= 1
    assert len({tuple(sample.image_id for sample in first + second) for first, second in epochs}) > 1
    assert len({frozenset(sample.image_id for sample in first) for first, _ in epochs}) > 1


def test_foreign_values_are_read(foreign: Data) -> None:
    """The fixture has what it says: CocoReader, whose samples the tests above compare with, reads all of it."""
    samples = {sample.image_id: sample for sample in expected(foreign)}
    assert list(samples) == [30, 4, 7, 21, 18, 15, 12, 9]
    assert da.CocoReader(*foreign).category_ids == (-1, 0, 3, 5, 7, 20, 2**31 + 5)
    assert [samples[number].labels for number in (21, 18, 15, 12, 9)] == [[6], [1, 5], [], [3], []]
    assert samples[18].boxes[0][:2] == [0, 0]
    assert samples[12].boxes == [[0, 0, 1, 1]]


@pytest.mark.parametrize("world_size", [1, 2, 3, 8])
@pytest.mark.parametrize("batch_size", [1, 3, 8])
def test_all_shards_have_equal_steps(world_size: int, batch_size: int, foreign: Data) -> None:
    shards = [pipeline(ours(foreign, shard=(rank, world_size)), batch_size=batch_size) for rank in range(world_size)]
    padded = {pipe.reader_meta()["reader"]["epoch_size_padded"] // world_size for pipe in shards}
    assert padded == {math.ceil(8 / world_size)}
    for _ in range(2):
        assert sorted(sample for pipe in shards for sample in epoch(pipe)) == sorted(expected(foreign))


def test_the_seed_decides_the_order(foreign: Data) -> None:
    def order(**arguments: Any) -> list[int]:
        return [sample.image_id for sample in epoch(pipeline(ours(foreign, **arguments), num_threads=1))]

    assert order(seed=1) == order(seed=1)
    assert len({tuple(order(seed=seed)) for seed in (*range(4), 2**31, 2**63 - 1)}) == 6


@pytest.mark.parametrize("pipelines", [1, 2, 3])
def test_dali_iterator_leaves_repeated_images_out(pipelines: int, foreign: Data) -> None:
    def training(rank: int) -> Any:
        encoded, boxes, labels, image_ids = coco(*foreign, shard=(rank, pipelines), name="coco")
        images = fn.decoders.image(encoded)
        return *da.fn.augment(images, boxes, labels, [da.Resize((20, 25))]), image_ids

    made = [pipeline(lambda rank=rank: training(rank), batch_size=3) for rank in range(pipelines)]  # type: ignore[misc]
    batches = da.DaliIterator(made, reader_name="coco")
    labels = {sample.image_id: sample.labels for sample in expected(foreign)}
    for _ in range(3):
        rows = [
            row for batch in batches for row in zip(batch.image_id.tolist(), batch.labels, batch.valid, strict=True)
        ]
        assert len(rows) == len(labels)
        assert {image_id: each[mask].tolist() for image_id, each, mask in rows} == labels


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("batches", [1, 3, 4])
def test_a_checkpoint_restores_the_place_in_the_epoch(shuffle: bool, batches: int, foreign: Data) -> None:
    def make(**arguments: Any) -> Pipeline:
        return pipeline(ours(foreign, shuffle=shuffle), batch_size=3, enable_checkpointing=True, **arguments)

    whole, stopped = make(), make()
    before = [run(stopped) for _ in range(batches)]
    restored = make(checkpoint=stopped.checkpoint())
    assert [run(whole) for _ in range(8)] == [*before, *(run(restored) for _ in range(8 - batches))]


@pytest.mark.parametrize("arguments", [{"exec_dynamic": False}, {"prefetch_queue_depth": 3}, {"num_threads": 1}])
def test_executors_and_threads_change_nothing(arguments: dict[str, Any], foreign: Data) -> None:
    assert epoch(pipeline(ours(foreign, shuffle=False), **arguments)) == expected(foreign)


def test_conditionals_may_be_enabled(foreign: Data) -> None:
    @pipeline_def(batch_size=8, num_threads=2, device_id=None, enable_conditionals=True)
    def training() -> Any:
        encoded, boxes, labels, image_ids = coco(*foreign, shuffle=False)
        return encoded, boxes, labels, image_ids

    pipe = training()
    pipe.build()
    assert epoch(pipe) == expected(foreign)
    foreign[1].unlink()
    with pytest.raises(da.AnnotationError, match=r"train\.json: no such file"):
        training()


def test_the_annotations_stay_in_memory_as_long_as_the_pipeline(listed: Data) -> None:
    def files() -> list[str]:
        links = [os.path.join("/proc/self/fd", name) for name in os.listdir("/proc/self/fd")]
        return [path for path in links if os.path.islink(path) and "annotations.json" in os.readlink(path)]

    gc.collect()
    before = files()
    pipes = [pipeline(ours(listed)) for _ in range(3)]
    assert len(files()) == len(before) + 3
    del pipes
    gc.collect()
    assert files() == before


# ------------------------------------------------------------------------------------------------ bad input


@pytest.mark.parametrize("size", [(120, 80), (80, 120)])
def test_exif_orientation_is_applied(size: tuple[int, int], tmp_path: Path) -> None:
    """The JSON file has the size after the rotation, as the decoder gives it; any other is an error of the pipeline."""
    content = document()
    content["images"], content["annotations"] = content["images"][:1], content["annotations"][:2]
    content["images"][0] |= {"width": size[0], "height": size[1]}
    (tmp_path / "a.jpg").write_bytes(rotated_jpeg(6, size=(80, 120)))
    data = tmp_path, write(tmp_path / "train.json", content)
    pipe = pipeline(ours(data), batch_size=1)
    if size == (120, 80):
        assert epoch(pipe) == expected(data)
    else:
        with pytest.raises(RuntimeError, match="fails where the image has another size than the JSON file says"):
            run(pipe)


def test_missing_files_are_refused(listed: Data) -> None:
    (listed[0] / "b.jpg").unlink()
    with pytest.raises(da.AnnotationError, match=r"1 of 3 images are not in .*, the first is 'b.jpg'"):
        pipeline(ours(listed))


def test_what_coco_reader_refuses_is_refused(tmp_path: Path) -> None:
    content = document()
    content["annotations"][3]["bbox"] = [90, 70, 30, 30]
    data = write_images(tmp_path / "images"), write(tmp_path / "train.json", content)
    with pytest.raises(da.AnnotationError, match="reaches 20 pixels outside its image"):
        pipeline(ours(data))


@pytest.mark.parametrize("number", [2**31, 2**63 - 1])
def test_image_ids_that_dali_cannot_hold_are_refused(number: int, tmp_path: Path) -> None:
    content = document()
    renumber_images(content, {1: 1, 2: number, 3: 3})
    data = write_images(tmp_path / "images"), write(tmp_path / "train.json", content)
    with pytest.raises(da.InputError, match=f"image ids up to 2147483647, got {number}; renumber the images"):
        pipeline(ours(data))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"shard": (2, 2)}, r"shard must be \(rank, world size\), rank < world size, got \(2, 2\)"),
        ({"shard": 1}, r"shard must be \(rank, world size\), .*, got 1"),
        ({"shard": (0, 4)}, "must have an image for each of 4 shards, got 3"),
        ({"seed": -1}, "seed must be a whole number of at least 0, got -1"),
        ({"seed": None}, "seed must be a whole number of at least 0, got None"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], message: str, listed: Data) -> None:
    with pytest.raises(da.InputError, match=message):
        pipeline(ours(listed, **arguments))


def test_outside_of_a_pipeline(listed: Data) -> None:
    with pytest.raises(da.InputError, match=r"da\.fn\.coco must be called inside a pipeline_def"):
        coco(*listed)
