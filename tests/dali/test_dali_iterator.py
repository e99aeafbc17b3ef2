"""DaliIterator: the same samples as DALI's own iterators, whole epochs, checkpoints, batches that stay as they are."""

from __future__ import annotations

import gc
import itertools
import logging
import subprocess
import sys
import time
import weakref
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from dali_pipelines import make
from nvidia.dali import Pipeline, fn, pipeline_def
from nvidia.dali.plugin.base_iterator import LastBatchPolicy
from nvidia.dali.plugin.pytorch import DALIGenericIterator, DALIRaggedIterator
from painted_files import Folder
from seeds import slow

import detaug as da
from detaug.boxes.views import Views
from detaug.ops.cpu_kernels import CpuKernel

Arrays = list[np.ndarray]

OPS = (da.RandomIoUCrop(), da.RandomHorizontalFlip(), da.Resize((24, 32)))
NAMES = ("images", "boxes", "labels", "image_id", "matrix")
POLICIES = {"partial": LastBatchPolicy.PARTIAL, "fill": LastBatchPolicy.FILL, "drop": LastBatchPolicy.DROP}


def augmented(data: Folder, device: str = "cpu", seed: int = 0, batch_size: int = 4, **arguments: Any) -> Pipeline:
    """Return a pipeline of the painted files, whose outputs are `NAMES`. `shard`, `shuffle`: of the reader."""
    reader = {name: arguments.pop(name) for name in ("shard", "shuffle") if name in arguments}

    def nodes() -> Any:
        encoded, boxes, labels, image_id = da.fn.coco(*data, **reader)
        images = fn.decoders.image(encoded, device="mixed" if device == "cuda" else "cpu")
        images, boxes, labels, matrix = da.fn.augment(images, boxes, labels, OPS, seed=seed, return_matrix=True)
        return images, boxes, labels, image_id, matrix

    return make(nodes, batch_size, device, **arguments)


def fed(*samples: Arrays, batch: int = 4, **arguments: Any) -> Pipeline:
    """Return a pipeline that yields these samples, a list for each output, then raises StopIteration."""

    def batches() -> Iterator[tuple[Arrays, ...]]:
        for start in range(0, len(samples[0]), batch):
            yield tuple(each[start : start + batch] for each in samples)

    source = {"source": batches, "cycle": "raise", "num_outputs": len(samples)}
    return make(lambda: fn.external_source(**source), batch, **arguments)


def images(n: int, size: tuple[int, int] = (8, 12)) -> Arrays:
    return list(np.random.default_rng(0).integers(0, 256, (n, *size, 3), np.uint8))


# ------------------------------------------------------------------------------------------------ epochs


def counting(
    shard: int, shards: int, pad: bool, stick: bool, device: str, files: list[str], batch: int = 4, **arguments: Any
) -> Pipeline:
    """Return a pipeline whose `image_id` numbers the files."""

    def nodes() -> Any:
        encoded, number = fn.readers.file(
            files=files,
            labels=list(range(len(files))),
            name="files",
            shard_id=shard,
            num_shards=shards,
            pad_last_batch=pad,
            stick_to_shard=stick,
        )
        image = fn.resize(fn.decoders.image(encoded), size=(2, 2))
        return image.gpu() if device == "cuda" else image, number

    return make(nodes, batch, device, **arguments)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    ("pad", "stick", "shards", "used"),
    [
        (True, False, 3, 3),
        *slow((True, False, 1, 1)),
        *slow((False, False, 1, 1), (False, False, 3, 3), (True, True, 3, 3), (False, True, 3, 3)),
        *slow((False, False, 3, 1), (True, False, 5, 2), (True, False, 9, 9)),
    ],
)
def test_dalis_iterator_yields_the_same_samples(
    policy: str, pad: bool, stick: bool, shards: int, used: int, device: str, painted: Folder
) -> None:
    """Over 3 epochs, batch by batch; `len` is the number of batches of the next epoch."""
    files = [str(path) for path in sorted(painted[0].glob("*.png"))]
    if policy == "drop" and not pad:
        with pytest.raises(da.InputError, match="last_batch='drop' needs a reader with pad_last_batch=True"):
            da.DaliIterator(counting(0, 1, pad, stick, device, files), NAMES[::3], "files", "drop")
        return
    if policy == "drop" and 21 % shards:
        return  # DALI's repeats images: test_drop_repeats_no_image

    def pipelines() -> list[Pipeline]:
        return [counting(shard, shards, pad, stick, device, files) for shard in range(used)]

    ours = da.DaliIterator(pipelines(), ("images", "image_id"), reader_name="files", last_batch=policy)
    theirs = DALIGenericIterator(
        pipelines(),
        ["images", "image_id"],
        reader_name="files",
        last_batch_policy=POLICIES[policy],
        auto_reset=True,
        prepare_first_batch=False,
    )
    for _ in range(3):
        length, batches = len(ours), [batch.image_id.tolist() for batch in ours]
        expected = [each["image_id"].flatten().tolist() for turn in theirs for each in turn]
        assert batches == [each for each in expected if each]
        assert length == len(batches)
        if policy == "partial" and pad and used == shards:
            assert sorted(itertools.chain(*batches)) == list(range(21))


@pytest.mark.parametrize("stick", [True, False])
@pytest.mark.parametrize(("shards", "batch"), [(2, 1), *slow((2, 2), (4, 1), (4, 5), (5, 4), (3, 4))])
def test_drop_repeats_no_image(shards: int, batch: int, stick: bool, painted: Folder, device: str) -> None:
    """21 images: some shards have one more than others, which may be a full batch."""
    files = [str(path) for path in sorted(painted[0].glob("*.png"))]
    pipes = [counting(shard, shards, True, stick, device, files, batch=batch) for shard in range(shards)]
    iterator = da.DaliIterator(pipes, ("images", "image_id"), reader_name="files", last_batch="drop")
    for _ in range(5):
        found = torch.cat([each.image_id.flatten() for each in iterator]).tolist()
        assert len(found) == len({*found}) == 21 // shards // batch * batch * shards


@pytest.mark.parametrize("shards", [2, *slow(1, 3)])
def test_dalis_ragged_iterator_yields_the_same_boxes(shards: int, device: str, painted: Folder) -> None:
    def pipelines() -> list[Pipeline]:
        return [augmented(painted, device, seed=shard, shard=(shard, shards)) for shard in range(shards)]

    ragged = DALIRaggedIterator.SPARSE_LIST_TAG
    tags = {"images": DALIRaggedIterator.DENSE_TAG, **dict.fromkeys(NAMES[1:], ragged)}
    theirs = DALIRaggedIterator(
        pipelines(),
        list(NAMES),
        output_types=list(tags.values()),
        reader_name="reader",
        last_batch_policy=LastBatchPolicy.PARTIAL,
        auto_reset=True,
    )
    ours = da.DaliIterator(pipelines(), NAMES, reader_name="reader")
    for _ in range(2):
        turns = [{name: each[name] for name in NAMES} for turn in theirs for each in turn if len(each["image_id"])]
        batches = list(ours)
        assert len(batches) == len(turns)
        for batch, expected in zip(batches, turns, strict=True):
            assert torch.equal(batch.images, expected["images"].permute(0, 3, 1, 2))
            assert batch.image_id.tolist() == [each.item() for each in expected["image_id"]]
            for target, boxes, labels in zip(batch.targets(), expected["boxes"], expected["labels"], strict=True):
                assert torch.equal(target["boxes"].cpu(), boxes.cpu())
                assert target["labels"].tolist() == labels.tolist()


@pytest.mark.parametrize("exec_dynamic", [True, False])
def test_a_source_that_ends_with_a_smaller_batch(exec_dynamic: bool) -> None:
    numbers = [np.array([at]) for at in range(10)]
    iterator = da.DaliIterator(fed(images(10), numbers, exec_dynamic=exec_dynamic), ("images", "image_id"))
    for _ in range(3):
        batches = list(iterator)
        assert [batch.image_id.tolist() for batch in batches] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
        assert np.array_equal(torch.cat([batch.images for batch in batches]).permute(0, 2, 3, 1).numpy(), images(10))
    with pytest.raises(TypeError, match="length of an epoch is not known: give DaliIterator reader_name="):
        len(iterator)


@pytest.mark.parametrize(
    ("taken", "pipelines"), [(2, 1), (5, 2), *slow((3, 1), (6, 1), (1, 2), (2, 2), (3, 2), (6, 2))]
)
def test_a_for_after_a_break_goes_on(
    taken: int, pipelines: int, painted: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    """With the rest of the epoch, without a word of DALI; after the last batch with the next epoch."""
    pipes = [augmented(painted, shard=(rank, pipelines), shuffle=False) for rank in range(pipelines)]
    iterator = da.DaliIterator(pipes, NAMES, reader_name="reader")
    with caplog.at_level(logging.WARNING):
        first = [batch.image_id.tolist() for batch in itertools.islice(iterator, taken)]
        rest = [batch.image_id.tolist() for batch in iterator]
    if taken < 6:
        assert Counter(itertools.chain(*first, *rest)) == Counter(range(10, 31))
    assert [len(list(iterator)) for _ in range(2)] == [6, 6]
    assert caplog.messages == []


@pytest.mark.parametrize("taken", [1, 2, 3])
def test_a_for_after_a_break_goes_on_with_a_source(taken: int) -> None:
    """Also where DALI has asked the source for more than the user has seen."""
    numbers = [np.array([at]) for at in range(10)]
    iterator = da.DaliIterator(fed(images(10), numbers, prefetch_queue_depth=3), ("images", "image_id"))
    first = [batch.image_id.tolist() for batch in itertools.islice(iterator, taken)]
    assert [*first, *(batch.image_id.tolist() for batch in iterator)] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert [len(batch) for batch in iterator] == [4, 4, 2]


@pytest.mark.parametrize(
    ("policy", "taken"),
    [("drop", 5), ("fill", 6), *slow(("fill", 1), ("fill", 5), ("drop", 1), ("drop", 4), ("drop", 6))],
)
def test_a_for_after_a_break_with_other_policies(policy: str, taken: int, painted: Folder) -> None:
    iterator = da.DaliIterator(augmented(painted, shuffle=False), NAMES, reader_name="reader", last_batch=policy)
    batches = 5 if policy == "drop" else 6
    first = len(list(itertools.islice(iterator, taken)))
    assert first == min(taken, batches)
    rest = list(iterator)
    assert len(rest) == (batches - taken if taken < batches else batches)
    assert [batch.image_id[0].item() for batch in iterator] == [10 + 4 * at for at in range(batches)]


# ------------------------------------------------------------------------------------------------ checkpoints


@pytest.mark.parametrize("pipelines", [2, *slow(1, 3)])
@pytest.mark.parametrize("turns", [2, *slow(0, 1, 3, 4, 5, 7, 9)])
def test_a_checkpoint_restores_the_iterator(turns: int, pipelines: int, painted: Folder) -> None:
    """In the middle of an epoch, at its end, in the second one: the same batches follow, bit for bit."""

    def iterator(checkpoints: list[str] | None = None) -> da.DaliIterator:
        made = [
            augmented(
                painted,
                seed=rank,
                shard=(rank, pipelines),
                enable_checkpointing=True,
                checkpoint=checkpoints[rank] if checkpoints else None,
            )
            for rank in range(pipelines)
        ]
        return da.DaliIterator(made, NAMES, reader_name="reader")

    def endless(batches: da.DaliIterator) -> Iterator[da.Batch]:
        while True:
            yield from batches

    stopped = iterator()
    before = endless(stopped)
    for _ in range(turns * pipelines):
        next(before)
    restored = endless(iterator(stopped.checkpoints()))
    for _ in range(8):
        assert same_tensors(next(before), next(restored))


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("shards", [1, 2])
def test_a_checkpoint_of_the_last_batch_restores_the_next_epoch(policy: str, shards: int, painted: Folder) -> None:
    files = [str(path) for path in sorted(painted[0].glob("*.png"))]

    def iterator(checkpoints: list[Any]) -> da.DaliIterator:
        arguments = [{"enable_checkpointing": True, "checkpoint": each} for each in checkpoints]
        pipes = [counting(at, shards, True, True, "cpu", files, **each) for at, each in enumerate(arguments)]
        return da.DaliIterator(pipes, ("images", "image_id"), reader_name="files", last_batch=policy)

    stopped = iterator([None] * shards)
    for _ in range(len(stopped)):
        next(stopped)
    restored = iterator(stopped.checkpoints())
    for _ in range(3):
        expected = [batch.image_id.flatten().tolist() for batch in stopped]
        assert len(expected) == len(stopped)
        assert [batch.image_id.flatten().tolist() for batch in restored] == expected


def test_checkpoints_are_of_whole_turns_and_of_checkpointing_pipelines(painted: Folder) -> None:
    pipes = [augmented(painted, shard=(rank, 2), enable_checkpointing=True) for rank in range(2)]
    iterator = da.DaliIterator(pipes, NAMES, reader_name="reader")
    next(iterator)
    with pytest.raises(da.InputError, match="take checkpoints after every 2 batches"):
        iterator.checkpoints()
    next(iterator)
    assert len(iterator.checkpoints()) == 2
    with pytest.raises(da.InputError, match="enable_checkpointing=True"):
        da.DaliIterator(augmented(painted), NAMES, reader_name="reader").checkpoints()


# ------------------------------------------------------------------------------------------------ batches


@pytest.mark.parametrize(
    ("device", "exec_dynamic"), [("cpu", True), ("cpu", False), pytest.param("cuda", True, marks=pytest.mark.gpu)]
)
@pytest.mark.parametrize("dense", [True, False])
def test_batches_stay_as_they_were(exec_dynamic: bool, dense: bool, device: str, painted: Folder) -> None:
    """While the iterator goes on, after its end, and when others are written into."""
    ops = (*OPS[:2], da.Resize((24, 32)) if dense else da.Resize(24, max_size=40), da.Normalize())

    def nodes() -> Any:
        encoded, boxes, labels, image_id = da.fn.coco(*painted)
        image = fn.decoders.image(encoded, device="mixed" if device == "cuda" else "cpu")
        return *da.fn.augment(image, boxes, labels, ops, return_matrix=True), image_id

    names = ("images", "boxes", "labels", "matrix", "image_id")
    iterator = da.DaliIterator(make(nodes, 4, device, exec_dynamic=exec_dynamic), names, reader_name="reader")
    batches, copies = [], []
    for batch in itertools.chain(iterator, iterator):
        batches.append(batch)
        copies.append(batch.clone())
    torch.cuda.synchronize() if device == "cuda" else None
    del iterator
    for batch, copy in zip(batches, copies, strict=True):
        assert all(torch.equal(getattr(batch, name), getattr(copy, name)) for name in ("images", *names[1:]))
    batches[0].images.zero_()
    assert all(torch.equal(batch.images, copy.images) for batch, copy in zip(batches[1:], copies[1:], strict=True))


def test_the_fields_of_a_batch(device: str, painted: Folder) -> None:
    iterator = da.DaliIterator(augmented(painted, device, shuffle=False), NAMES, reader_name="reader")
    batches = list(iterator)
    last = batches[-1]
    assert (len(batches), len(last), last.counts) == (6, 1, (0,))
    assert last.boxes.shape == (1, 0, 4)
    for batch in batches:
        n, most = len(batch), max(batch.counts)
        assert (batch.images.shape, batch.images.dtype) == ((n, 3, 24, 32), torch.uint8)
        assert (batch.boxes.shape, batch.boxes.dtype) == ((n, most, 4), torch.float32)
        assert (batch.labels.shape, batch.labels.dtype) == ((n, most), torch.int64)
        assert batch.valid.sum(1).tolist() == list(batch.counts)
        assert batch.image_size.tolist() == [[24, 32]] * n
        assert batch.boxes[~batch.valid].abs().sum() == 0
        assert (batch.labels[~batch.valid] == -1).all()
        on_device = (batch.images, batch.boxes, batch.labels, batch.valid)
        assert {tensor.device.type for tensor in on_device} == {device}
        assert batch.source_size is None
        assert batch.extra == {}
        assert same_tensors(batch, batch.clone())
        assert same_tensors(batch.to("cpu"), batch.clone().to("cpu"))


def same_tensors(one: da.Batch, other: da.Batch) -> bool:
    fields = ("images", "boxes", "labels", "valid", "image_id", "image_size", "matrix")
    return all(torch.equal(getattr(one, name), getattr(other, name)) for name in fields)


def test_boxes_lead_back_to_the_source(painted: Folder) -> None:
    """Boxes that no crop cut off are the JSON file's, by `to_source`."""
    reader = da.CocoReader(*painted)
    rows = {number: at for at, number in enumerate(reader.image_ids.tolist())}
    compared = 0
    for batch in da.DaliIterator(augmented(painted), NAMES, reader_name="reader"):
        for back, target in zip(batch.to_source(batch.boxes), batch.targets(), strict=True):
            row = rows[target["image_id"].item()]
            size = np.tile(reader.sizes[row][::-1], 2)
            given = reader.views(np.array([row]))
            inside = ((target["boxes"] > 0.01) & (target["boxes"] < torch.tensor([31.99, 23.99] * 2))).all(1)
            for box, label in zip(back[: len(inside)][inside], target["labels"][inside], strict=True):
                wanted = given.boxes[0][given.labels[0] == label.item()] * size
                assert np.abs(wanted - box.numpy()).max(1).min() < 1e-3
                compared += 1
    assert compared > 10


def test_to_source_without_the_matrix() -> None:
    batch = next(da.DaliIterator(fed(images(4)), ["images"]))
    with pytest.raises(da.InputError, match=r"return_matrix=True.* name it in output_map"):
        batch.to_source(batch.boxes)


def test_outputs_that_a_pipeline_does_not_have_are_none() -> None:
    batch = next(da.DaliIterator(fed(images(4)), ["images"]))
    assert (batch.image_id, batch.source_size, batch.matrix) == (None, None, None)
    assert (batch.boxes.shape, batch.labels.shape, batch.valid.shape, batch.counts) == (
        (4, 0, 4),
        (4, 0),
        (4, 0),
        (0, 0, 0, 0),
    )
    assert [sorted(target) for target in batch.targets()] == [["boxes", "labels"]] * 4
    assert torch.equal(batch.clone().to("cpu").images, batch.images)
    assert repr(batch) == "Batch(images (4, 3, 8, 12) uint8 on cpu, 0 boxes)"


def test_images_of_several_sizes_are_padded_with_zeros() -> None:
    sizes = [(8, 12), (10, 6), (9, 9), (1, 1)]
    given = [np.full((*size, 3), 7, np.uint8) for size in sizes]
    batch = next(da.DaliIterator(fed(given), ["images"]))
    assert batch.images.shape == (4, 3, 10, 12)
    assert batch.image_size.tolist() == [list(size) for size in sizes]
    for image, (height, width) in zip(batch.images, sizes, strict=True):
        assert (image[:, :height, :width] == 7).all()
        assert image.sum() == 3 * 7 * height * width


@pytest.mark.parametrize(
    ("dtype", "padding"),
    [(np.int64, -1), (np.float32, np.nan), (np.int16, -1), (np.uint8, 0), (np.bool_, 0), (np.float64, np.nan)],
)
def test_further_columns_are_padded_in_their_types(dtype: type[np.generic], padding: float) -> None:
    counts = [2, 0, 3, 1]
    boxes = [np.tile(np.float32([0, 0, 4, 4]), (count, 1)) for count in counts]
    labels = [np.arange(count) - 1 for count in counts]
    tracks = [np.ones(count, dtype) for count in counts]
    pairs = [np.ones((count, 2), dtype) for count in counts]
    whole = [np.arange(3).astype(dtype) for _ in counts]
    names = ("images", "boxes", "labels", "track", "pair", "whole")
    pipeline = fed(images(4), boxes, labels, tracks, pairs, whole)
    batch = next(da.DaliIterator(pipeline, names, columns=["track", "pair"]))
    assert batch.counts == (2, 0, 3, 1)
    assert batch.valid.sum(1).tolist() == counts  # labels of 0 and -1 too
    assert batch.labels.tolist() == [[-1, 0, -1], [-1, -1, -1], [-1, 0, 1], [-1, -1, -1]]
    expected = np.where(np.arange(3) < np.array(counts)[:, None], dtype(1), dtype(padding))
    np.testing.assert_array_equal(batch.columns["track"].numpy(), expected)
    assert batch.columns["track"].numpy().dtype == dtype
    np.testing.assert_array_equal(batch.columns["pair"].numpy(), np.repeat(expected[..., None], 2, 2))
    assert np.array_equal(batch.extra["whole"].numpy(), np.stack(whole))
    np.testing.assert_array_equal(batch.clone().columns["track"], batch.columns["track"])
    np.testing.assert_array_equal(batch.to("cpu").columns["pair"], batch.columns["pair"])


def test_channels_may_come_first() -> None:
    given = images(4)
    first = [np.ascontiguousarray(image.transpose(2, 0, 1)) for image in given]
    (batch,) = da.DaliIterator(fed(first), ["images"])
    assert np.array_equal(batch.images.permute(0, 2, 3, 1).numpy(), given)


# ------------------------------------------------------------------------------------------------ bad input


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"output_map": ["images", "boxes"]}, "the pipeline has 1 outputs, output_map has 2 names: images, boxes"),
        ({"output_map": ["image"]}, "output_map must name the images, got .'image',."),
        ({"output_map": ["images", "images"]}, "output_map must hold different names"),
        ({"reader_name": "coco"}, "reader_name 'coco' is not a reader of the pipeline; it has none"),
        ({"last_batch": "keep"}, "last_batch must be 'partial', 'fill' or 'drop', got 'keep'"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(da.InputError, match=message):
        da.DaliIterator(fed(images(4)), **{"output_map": ["images"], **arguments})


def test_wrong_pipelines(painted: Folder) -> None:
    with pytest.raises(da.InputError, match="pipelines must be one or more pipelines, got none"):
        da.DaliIterator([], ["images"])
    with pytest.raises(da.InputError, match="pipelines must be one or more pipelines, got function"):
        da.DaliIterator([augmented], NAMES)  # type: ignore[list-item]
    with pytest.raises(da.InputError, match=r"pipelines must have one batch size, got \[4, 5\]"):
        da.DaliIterator([augmented(painted), augmented(painted, batch_size=5)], NAMES, reader_name="reader")
    with pytest.raises(da.InputError, match="several pipelines need reader_name="):
        da.DaliIterator([augmented(painted), augmented(painted)], NAMES)
    with pytest.raises(da.InputError, match="or epochs never end: the pipeline has 'reader'"):
        da.DaliIterator(augmented(painted), NAMES)
    with pytest.raises(da.InputError, match="'other' is not a reader of the pipeline; it has 'reader'"):
        da.DaliIterator(augmented(painted), NAMES, reader_name="other")


def test_shards_of_other_readers_are_refused(painted: Folder) -> None:
    files = [str(path) for path in sorted(painted[0].glob("*.png"))]
    pipes = [counting(0, 2, True, False, "cpu", files), counting(1, 2, True, False, "cpu", files[:9])]
    with pytest.raises(da.InputError, match=r"must have one epoch_size, got \[9, 21\]"):
        da.DaliIterator(pipes, ["images", "image_id"], reader_name="files")
    pipes = [counting(0, 1, True, False, "cpu", files) for _ in range(2)]
    with pytest.raises(da.InputError, match=r"a shard of its own, got shards \[0, 0\]: give the readers shard="):
        da.DaliIterator(pipes, ["images", "image_id"], reader_name="files")


def test_outputs_that_make_no_tensor_are_refused() -> None:
    ragged = [np.zeros(length) for length in (1, 2, 3, 4)]
    with pytest.raises(da.InputError, match=r"'words' must have one shape in all samples, .* name it in columns="):
        next(da.DaliIterator(fed(images(4), ragged), ["images", "words"]))
    boxes = [np.zeros((2, 4), np.float32)] * 4
    labels = [np.zeros(2), np.zeros(3), np.zeros(2), np.zeros(2)]
    with pytest.raises(da.InputError, match="as many labels as boxes"):
        next(da.DaliIterator(fed(images(4), boxes, labels), ["images", "boxes", "labels"]))


def test_the_error_of_an_own_operator_stays() -> None:
    """Also when boxes are wrong in a later batch, which DALI has planned already."""
    numbers = [np.array([at]) for at in range(16)]
    boxes = [np.float32([[0.2, 0.2, 0.5, 0.5]]) * (1 if at < 12 else 80) for at in range(16)]

    def refuse(number: np.ndarray) -> np.ndarray:
        if number == 5:
            raise ValueError("five is out")
        return number

    def batches() -> Iterator[tuple[Arrays, ...]]:
        for start in range(0, 16, 4):
            yield images(4), boxes[start : start + 4], numbers[start : start + 4]

    def nodes() -> Any:
        given, row, number = fn.external_source(source=batches, num_outputs=3, cycle="raise")
        return *da.fn.augment(given, row, None, []), fn.python_function(number, function=refuse, num_outputs=1)

    pipe = make(nodes, prefetch_queue_depth=4)
    iterator = da.DaliIterator(pipe, ("images", "boxes", "labels", "image_id"))
    next(iterator)
    with pytest.raises(RuntimeError, match="five is out"):
        next(iterator)


def is_freed(alive: weakref.ref[Any]) -> bool:
    """Return whether nothing refers to an object any more, as soon as the threads that run it have ended."""
    for _ in range(100):
        gc.collect()
        if alive() is None:
            return True
        time.sleep(0.1)
    return False


def test_a_pipeline_that_failed_is_freed() -> None:
    """The error must not keep it alive: Python would end it at any time, in one of its own threads."""
    boxes = [np.full((1, 4), np.nan, np.float32)] * 4

    def nodes() -> Any:
        return da.fn.augment(*fn.external_source(lambda: (images(4), boxes), num_outputs=2), None, [])

    pipe = make(nodes)
    alive = weakref.ref(pipe)
    with pytest.raises(da.InputError, match="finite") as error:
        next(da.DaliIterator(pipe, ("images", "boxes", "labels")))
    del pipe, error
    assert is_freed(alive)


@dataclass(frozen=True)
class FailingKernel(da.PixelOp):
    """Fails when the pipeline runs, on the CPU."""

    def cpu_kernel(self, views: Views) -> CpuKernel:
        def kernel(image: torch.Tensor) -> torch.Tensor:
            raise ArithmeticError("a mistake")

        return kernel


@pytest.mark.parametrize("through_iterator", [True, False])
def test_a_pipeline_whose_op_failed_is_freed(through_iterator: bool) -> None:
    def nodes() -> Any:
        source = fn.external_source(lambda: images(4))
        return da.fn.augment(source, None, None, [da.Resize((8, 8)), FailingKernel()])

    pipe = make(nodes)
    alive = weakref.ref(pipe)
    with pytest.raises(RuntimeError, match="a mistake") as error:
        next(da.DaliIterator(pipe, ("images", "boxes", "labels"))) if through_iterator else pipe.run()
    del pipe, error
    assert is_freed(alive)


DROPPED = """
import gc, sys, time
from dataclasses import dataclass
from nvidia.dali import fn, pipeline_def
import detaug as da

@dataclass(frozen=True)
class Collect(da.PixelOp):
    def draw(self, rng, n):
        time.sleep(0.02)
        gc.collect()
        return {}

    def cpu_kernel(self, views):
        def kernel(image):
            time.sleep(0.002)
            gc.collect()
            return image
        return kernel

@pipeline_def(batch_size=4, num_threads=2, device_id=None, prefetch_queue_depth=3)
def pipeline(folder, json):
    encoded, boxes, labels, image_ids = da.fn.coco(folder, json)
    ops = [da.Resize((8, 8)), Collect()]
    return (*da.fn.augment(fn.decoders.image(encoded), boxes, labels, ops), image_ids)

gc.disable()
gc.freeze()  # a collection looks at what is made from here on, and takes less time
for at in range(8):
    iterator = da.DaliIterator(pipeline(*sys.argv[1:]), reader_name="reader")
    next(iterator)
    if at % 2:
        iterator.cycle = iterator
    del iterator
    time.sleep(0.1)
print("ended")
"""


@pytest.mark.slow
def test_a_pipeline_may_be_garbage_while_it_runs(painted: Folder) -> None:
    """Its own threads may be the ones that collect it."""
    command = [sys.executable, "-c", DROPPED, *painted]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stdout) == (0, "ended\n"), done.stderr


COLLECTED = """
import gc, sys
import numpy as np
from nvidia.dali import fn, pipeline_def
import detaug as da

gc.freeze()  # a collection looks at what is made from here on, and takes less time
gc.set_threshold(300, 1, 1)
images, boxes = [np.zeros((20, 30, 3), np.uint8)] * 4, [np.full((1, 4), 7, np.float32)] * 4  # not relative

@pipeline_def(batch_size=4, num_threads=2, device_id=None)
def pipeline():
    nodes = fn.external_source(lambda: (images, boxes), num_outputs=2)
    return da.fn.augment(*nodes, None, [da.Resize((8, 8))])

for _ in range(300):
    try:
        next(da.DaliIterator(pipeline(), ("images", "boxes", "labels")))
    except da.InputError:
        pass
print("ended")
"""


@pytest.mark.slow
def test_a_pipeline_that_failed_may_be_garbage_in_a_thread_of_dali() -> None:
    """The garbage collector may run in DALI's own code there."""
    done = subprocess.run([sys.executable, "-c", COLLECTED], capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (0, "ended\n", "")


def test_sizes_may_have_channels_and_an_evaluator_needs_ids(painted: Folder) -> None:
    """`fn.peek_image_shape` returns (height, width, channels)."""
    files = [str(path) for path in sorted(painted[0].glob("*.png"))]

    @pipeline_def(batch_size=4, num_threads=1, device_id=None)
    def decoded() -> Any:
        encoded, _ = fn.readers.file(files=files, name="files")
        shape = fn.peek_image_shape(encoded)
        return fn.resize(fn.decoders.image(encoded), size=(8, 8)), shape, fn.cat(shape, shape)

    with pytest.raises(
        da.InputError, match=r"output 'source_size' must be \(height, width\) of each image, got 6 numbers"
    ):
        next(iter(da.DaliIterator(decoded(), ("images", "shape", "source_size"), reader_name="files")))
    with pytest.raises(da.InputError, match="the output 'size' is called 'source_size' now"):
        da.DaliIterator(decoded(), ("images", "size", "twice"), reader_name="files")
    batch = next(iter(da.DaliIterator(decoded(), ("images", "source_size", "twice"), reader_name="files")))
    assert batch.source_size.tolist() == da.CocoReader(*painted).sizes[:4].tolist()
    found = [{"boxes": torch.zeros(0, 4), "scores": torch.zeros(0), "labels": torch.zeros(0, dtype=torch.int64)}] * 4
    with pytest.raises(
        da.InputError, match="the batch has no image_id or no source_size: return both from the pipeline"
    ):
        da.CocoEvaluator(painted[1]).update(batch, found)
