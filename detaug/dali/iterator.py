"""`DaliIterator`: batches from your own DALI pipelines."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from nvidia.dali import Pipeline, types
from nvidia.dali.plugin.base_iterator import LastBatchPolicy, _DaliBaseIterator
from torch import Tensor
from torch.utils.dlpack import from_dlpack
from typing_extensions import Self

from detaug.arguments import check, checks_names
from detaug.arrays import Ints, padded
from detaug.errors import InputError
from detaug.loading.batch import Batch
from detaug.loading.batch_targets import pad_boxes
from detaug.pipelines.errors import failed_op
from detaug.pipelines.python_functions import no_errors_at_exit

LastBatch = Literal["partial", "fill", "drop"]

_POLICIES = {"partial": LastBatchPolicy.PARTIAL, "fill": LastBatchPolicy.FILL, "drop": LastBatchPolicy.DROP}

TensorList = Any
"""An output of a DALI pipeline: a tensor for each sample, on the CPU or on a GPU."""

Rows = list[NDArray[Any]]

FIELDS = ("images", "boxes", "labels", "image_id", "matrix", "source_size")
"""The names of outputs that are fields of `Batch`."""


class DaliIterator(_DaliBaseIterator):  # type: ignore[misc]  # DALI's: epochs, last batches, checkpoints
    """Yields `Batch` from DALI pipelines; each `for` is an epoch.

    Args:
        pipelines: One pipeline, or several of one batch size, whose batches come in turns.
        output_map: The names of their outputs. "images" (H, W, 3) or (3, H, W), "boxes" (M, 4) XYXY pixels, as
            `da.fn.augment` returns them, "labels" (M,), "image_id", "matrix" and "source_size" (height, width of the
            source image) become the batch's; fields that have no output are None. Any other name is in `Batch.extra`,
            (N, ...), or in `Batch.columns`.
        reader_name: The name of the reader that decides how long an epoch is. None: until a pipeline raises
            StopIteration, as `fn.external_source` does at its end.
        last_batch: Of an epoch, needs the reader: "partial" yields every image once, "fill" full batches, as DALI's
            `LastBatchPolicy`; "drop" leaves incomplete batches out, and those that only longer shards have, and needs a
            reader with `pad_last_batch=True`, as `da.fn.coco` is. `checkpoints()` returns those of the pipelines, for
            pipelines that are made with `enable_checkpointing=True`; `pipeline_def`'s argument `checkpoint` restores
            them.
        columns: The names of outputs with a row for each box, such as the columns of `da.fn.augment`. They are in
            `Batch.columns`, (N, M, ...), padded with -1, with NaN in floats, and with 0 in types without negative
            numbers.

    >>> from nvidia.dali import fn, pipeline_def
    >>> @pipeline_def(batch_size=20, num_threads=2, device_id=None)
    ... def training():
    ...     encoded, boxes, labels, image_ids = da.fn.coco("demo/VOC/JPEGImages", "train.json", shuffle=False)
    ...     augmented = da.fn.augment(fn.decoders.image(encoded), boxes, labels, da.presets.ssd300())
    ...     return *augmented, image_ids
    >>> for batch in da.DaliIterator(training(), reader_name="reader"):
    ...     print(tuple(batch.images.shape), batch.counts[:6])
    (20, 3, 300, 300) (3, 2, 4, 6, 0, 4)
    (20, 3, 300, 300) (2, 2, 5, 3, 3, 5)
    (8, 3, 300, 300) (3, 3, 6, 5, 1, 4)
    """

    _counter: int
    """DALI's: how many images of each shard the epoch has taken."""

    @checks_names
    def __init__(
        self,
        pipelines: Pipeline | Sequence[Pipeline],
        output_map: Sequence[str] = ("images", "boxes", "labels", "image_id"),
        reader_name: str | None = None,
        last_batch: LastBatch = "partial",
        columns: Sequence[str] = (),
    ) -> None:
        check("last_batch", last_batch, last_batch in _POLICIES, "'partial', 'fill' or 'drop'")
        self.output_map, self.columns = tuple(output_map), tuple(columns)
        others = [name for name in self.output_map if name not in FIELDS]
        check(
            "columns", columns, set(self.columns) <= set(others), f"names of output_map other than {', '.join(FIELDS)}"
        )
        pipelines = [pipelines] if isinstance(pipelines, Pipeline) else list(pipelines)
        _check_pipelines(pipelines, self.output_map, reader_name)
        if reader_name and last_batch == "drop":
            _check_padded(pipelines[0], reader_name)
        self._ready: deque[Batch] = deque()
        super().__init__(
            pipelines,
            reader_name=reader_name,
            auto_reset=True,
            last_batch_policy=_POLICIES[last_batch],
            prepare_first_batch=False,
        )

    def __next__(self) -> Batch:
        with no_errors_at_exit():
            while not self._ready:
                self._ready.extend(self._next_of_each_pipeline())
        return self._ready.popleft()

    def __iter__(self) -> Self:
        """Start an epoch, or go on with one that was left before its end."""
        has_begun = self._ever_consumed or self._counter > 0  # the latter in a restored iterator
        if has_begun and not self._ready:
            ended = 0 < self._size <= self._counter
            if ended or self._advance_and_check_drop_last(dry_run=True, end_iteration=False):
                self.reset()
        return self

    def reset(self) -> None:
        """Go to the next epoch, past the batches of the longest shard that "drop" leaves out."""
        if self._last_batch_policy == LastBatchPolicy.DROP and self._reader_name:
            longest = -(-self._size_no_pad // self._shards_num)
            if not self._ever_scheduled:
                self._schedule_runs(release_outputs=False)
            for _ in range(int(self._counter), longest, self.batch_size):
                for pipeline in self._pipes:
                    with pipeline._check_api_type_scope(types.PipelineAPIType.ITERATOR):
                        pipeline.share_outputs()
                self._schedule_runs()
            self._counter = max(self._counter, self._size)
        super().reset()

    def __len__(self) -> int:
        """Return the number of batches of an epoch; needs `reader_name`."""
        if not self._reader_name:
            raise TypeError("the length of an epoch is not known: give DaliIterator reader_name=")
        if self._last_batch_policy == LastBatchPolicy.PARTIAL:
            shards = self._shard_sizes_per_gpu_initial[self._shards_id]
            return int(np.ceil(shards / self.batch_size).sum())
        return int(super().__len__()) * len(self._pipes)

    def checkpoints(self) -> list[str]:
        """Return a checkpoint of each pipeline. Raises InputError between the batches of several pipelines."""
        if not self._enable_checkpointing:
            raise InputError("checkpoints need pipelines that are made with enable_checkpointing=True")
        if self._ready:
            raise InputError(f"take checkpoints after every {len(self._pipes)} batches, one of each pipeline")
        return list(super().checkpoints())

    def _next_of_each_pipeline(self) -> list[Batch]:
        self._ever_consumed = True
        outputs = self._outputs()
        batches = [
            make_batch(
                dict(zip(self.output_map, own_outputs, strict=True)),
                count,
                self.columns,
                copy=not pipeline.exec_dynamic,
            )
            for pipeline, own_outputs, count in zip(self._pipes, outputs, self._counts(outputs), strict=True)
            if count > 0
        ]
        self._schedule_runs()
        self._advance_and_check_drop_last()
        return batches

    def _outputs(self) -> list[Any]:
        """Return the outputs of each pipeline. Raises the error of an op or of boxes in the place of DALI's."""
        try:
            return list(self._get_outputs())
        except RuntimeError as error:
            if failed := next(filter(None, (failed_op(pipeline, error) for pipeline in self._pipes)), None):
                raise failed from failed.__cause__
            raise

    def _counts(self, outputs: list[Any]) -> list[int]:
        """Return how many samples of each pipeline's next batch belong to the epoch."""
        full = [len(own_outputs[0]) for own_outputs in outputs]
        if not self._reader_name or self._last_batch_policy != LastBatchPolicy.PARTIAL:
            return full
        _, left = self._remove_padded()
        left -= self.batch_size  # it counts from the end of this batch
        return [int(count) for count in np.minimum(left, full)]


def _check_pipelines(pipelines: list[Pipeline], output_map: tuple[str, ...], reader_name: str | None) -> None:
    """Raise InputError for pipelines that cannot be iterated over together."""
    kinds = {type(pipeline).__name__ for pipeline in pipelines if not isinstance(pipeline, Pipeline)}
    if not pipelines or kinds:
        raise InputError(f"pipelines must be one or more pipelines, got {min(kinds, default='none')}")
    if len(sizes := {pipeline.max_batch_size for pipeline in pipelines}) > 1:
        raise InputError(f"pipelines must have one batch size, got {sorted(sizes)}")
    if len(set(output_map)) < len(output_map):
        raise InputError(f"output_map must hold different names, got {output_map}")
    if "size" in output_map:
        raise InputError("the output 'size' is called 'source_size' now: (height, width) of the source images")
    if "images" not in output_map:
        raise InputError(f"output_map must name the images, got {output_map}")
    if len(pipelines) > 1 and not reader_name:
        raise InputError("several pipelines need reader_name=, the name of the reader that each of them has")
    for pipeline in pipelines:
        pipeline.build()
        if pipeline.num_outputs != len(output_map):
            raise InputError(
                f"the pipeline has {pipeline.num_outputs} outputs, output_map has {len(output_map)} names: "
                f"{', '.join(output_map)}"
            )
        known = ", ".join(map(repr, pipeline.reader_meta()))
        if reader_name and reader_name not in pipeline.reader_meta():
            raise InputError(f"reader_name {reader_name!r} is not a reader of the pipeline; it has {known or 'none'}")
        if not reader_name and known and not pipeline._input_callbacks:  # of fn.external_source
            raise InputError(f"reader_name must be the name of a reader, or epochs never end: the pipeline has {known}")
    if reader_name:
        _check_readers([pipeline.reader_meta(reader_name) for pipeline in pipelines])


def _check_readers(readers: list[dict[str, int]]) -> None:
    """Raise InputError unless the readers have different shards of one dataset."""
    for name in ("epoch_size", "number_of_shards", "pad_last_batch", "stick_to_shard"):
        if len(values := {reader[name] for reader in readers}) > 1:
            raise InputError(f"the readers of the pipelines must have one {name}, got {sorted(values)}")
    if len({reader["shard_id"] for reader in readers}) < len(readers):
        raise InputError(
            f"each pipeline must read a shard of its own, got shards {[reader['shard_id'] for reader in readers]}: "
            "give the readers shard=(rank, number of pipelines)"
        )


def _check_padded(pipeline: Pipeline, reader_name: str) -> None:
    """Raise InputError unless each epoch of the reader begins with a batch of its own."""
    reader = pipeline.reader_meta(reader_name)
    if not reader["pad_last_batch"] and reader["epoch_size"] % (reader["number_of_shards"] * pipeline.max_batch_size):
        raise InputError(
            "last_batch='drop' needs a reader with pad_last_batch=True; without it, the images that an epoch leaves "
            "out begin the next one, which then repeats others"
        )


def make_batch(outputs: dict[str, TensorList], count: int, columns: Collection[str], *, copy: bool) -> Batch:
    """Return a batch of the first `count` samples of outputs by name.

    `columns`: the names of those that have a row for each box. `copy`: DALI will use their memory again.
    """
    images, image_size = _images(outputs["images"], count, copy=copy)
    rows = {name: _rows(output, count) for name, output in outputs.items() if name != "images"}
    boxes, labels, counts = _boxes(rows.get("boxes", []), rows.get("labels", []), count)
    device = images.device
    return Batch(
        images=images,
        boxes=boxes.to(device),
        labels=labels.to(device),
        valid=(torch.arange(labels.shape[1], device="cpu") < torch.from_numpy(counts)[:, None]).to(device),
        image_id=_stacked(rows, "image_id", (count,), np.int64),
        source_size=_sizes(rows, count),
        image_size=image_size,
        matrix=_stacked(rows, "matrix", (count, -1, 3), np.float32),
        counts=tuple(counts.tolist()),
        columns={name: _column(name, rows[name], counts) for name in columns},
        extra={name: _extra(name, own_rows) for name, own_rows in rows.items() if name not in (*FIELDS, *columns)},
    )


def _images(output: TensorList, count: int, *, copy: bool) -> tuple[Tensor, Tensor]:
    """Return (N, 3, H, W), padded with zeros at the right and the bottom, and the (N, 2) sizes before padding."""
    channels_last = output.layout() == "HWC" or (not output.layout() and output.shape()[0][-1] == 3)
    if output.is_dense_tensor():
        tensor = from_dlpack(output.as_tensor())[:count]
        images = tensor.clone() if copy else tensor
        images = images.permute(0, 3, 1, 2) if channels_last else images
        return images, torch.tensor([images.shape[2:]] * count, device="cpu")
    tensors = [from_dlpack(output[index]) for index in range(count)]
    tensors = [image.permute(2, 0, 1) if channels_last else image for image in tensors]
    sizes = torch.tensor([image.shape[1:] for image in tensors], device="cpu")
    canvas = tensors[0].new_zeros((count, 3, *sizes.amax(0).tolist()))
    for index, image in enumerate(tensors):
        canvas[index, :, : image.shape[1], : image.shape[2]] = image
    return canvas, sizes


def _rows(output: TensorList, count: int) -> Rows:
    """Return copies of the first `count` samples. TensorList.at would take three times as long as its items do."""
    on_cpu = output.as_cpu()
    if on_cpu.is_dense_tensor():
        return list(np.array(on_cpu.as_array())[:count])
    return [np.array(on_cpu[index]) for index in range(count)]


def _boxes(boxes: Rows, labels: Rows, n: int) -> tuple[Tensor, Tensor, Ints]:
    """Return (N, M, 4) and (N, M), padded, and the (N,) counts."""
    boxes = boxes or [np.zeros((0, 4))] * n
    labels = labels or [np.ones(len(own_boxes)) for own_boxes in boxes]
    counts = np.array([len(own_boxes) for own_boxes in boxes])
    if [label.size for label in labels] != counts.tolist():
        raise InputError("each image must have as many labels as boxes: is the output 'labels' that of da.fn.augment?")
    room = np.full(n, counts.max(initial=0))
    joined = np.concatenate(boxes).reshape(-1, 4), np.concatenate(labels).reshape(-1).astype(np.int64)
    padded_boxes, padded_labels = pad_boxes(*joined, counts, room)
    return torch.from_numpy(padded_boxes.reshape(n, -1, 4)), torch.from_numpy(padded_labels.reshape(n, -1)), counts


def _stacked(rows: dict[str, Rows], name: str, shape: tuple[int, ...], dtype: type[np.generic]) -> Any:
    """Return an output with equal shapes as a tensor; None if the pipeline does not have it."""
    return torch.from_numpy(np.stack(rows[name]).reshape(shape).astype(dtype)) if name in rows else None


def _sizes(rows: dict[str, Rows], count: int) -> Any:
    """Return the output "source_size" as (N, 2). It may be that of fn.peek_image_shape, which has the channels too."""
    size = _stacked(rows, "source_size", (count, -1), np.int64)
    if size is None:
        return None
    if size.shape[1] not in (2, 3):
        raise InputError(f"output 'source_size' must be (height, width) of each image, got {size.shape[1]} numbers")
    return size[:, :2]


def _column(name: str, rows: Rows, counts: Ints) -> Tensor:
    """Return (N, M, ...): an output with a row for each box, padded."""
    for own_rows, count in zip(rows, counts.tolist(), strict=True):
        if own_rows.shape[:1] != (count,):
            raise InputError(f"output {name!r} must have a row for each of {count} boxes, got shape {own_rows.shape}")
    padding = {"b": 0, "u": 0, "f": np.nan}.get(rows[0].dtype.kind, -1)
    return torch.from_numpy(np.ascontiguousarray(padded(np.concatenate(rows), counts, padding)))


def _extra(name: str, rows: Rows) -> Tensor:
    """Return (N, ...)."""
    if shapes := {own_rows.shape for own_rows in rows} - {rows[0].shape}:
        raise InputError(
            f"output {name!r} must have one shape in all samples, got shapes {rows[0].shape} and {min(shapes)}: name "
            "it in columns= if it has a row for each box"
        )
    return torch.from_numpy(np.stack(rows))
