"""`da.fn.augment`: a recipe inside your own DALI pipeline.

A Python function plans each batch with NumPy, as the loader does for many batches at once; DALI paints it from the same
plan. The random numbers come from a DALI operator: they depend on its seed and the number of the batch alone, and
DALI's checkpoints restore them. A counter in Python would start again after a restore.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from nvidia.dali import Pipeline, fn, types
from nvidia.dali.data_node import DataNode
from nvidia.dali.pipeline import do_not_convert

from detaug.arguments import check, checks_names, is_whole
from detaug.coco.key_points import Pairs
from detaug.dali.batch_planner import BatchPlanner, Units
from detaug.errors import InputError
from detaug.ops.op import Op
from detaug.pipelines.graph import Node
from detaug.recipes.recipe import Recipe, make_rendering_recipe


@do_not_convert  # type: ignore[untyped-decorator]
@checks_names
def augment(
    images: Node,
    boxes: Node | None,
    labels: Node | None,
    ops: Iterable[Op],
    *,
    seed: int = 0,
    units: Units = "relative",
    columns: Sequence[Node] = (),
    keypoints: Node | None = None,
    flip_pairs: Pairs | None = None,
    corners: Node | None = None,
    polygons: tuple[Node, Node] | None = None,
    shapes: Node | None = None,
    return_matrix: bool = False,
) -> tuple[Node, ...]:
    """Run a recipe in a DALI pipeline; return images, boxes, labels, then matrix, masks, keypoints, corners, columns.

    Returns images as (H, W, 3) uint8, or as `Normalize` leaves them; boxes (M, 4) float32 XYXY in pixels of these;
    labels and columns in the types that they had; the matrix if it is wanted; masks (M, H, W) uint8, 0 and 1, on the
    CPU, if polygons are given, see `Batch.masks`; keypoints (M, K, 3) float32 in pixels if they are given, see
    `Batch.keypoints`; corners (M, 4, 2) likewise, see `Batch.corners`.

    Wrong boxes, labels and images end the pipeline with an error that names batch and sample. `DaliIterator` raises it
    as an InputError; DALI itself raises a RuntimeError that contains its text.

    Args:
        images: (H, W, 3) uint8 RGB of any reader, on the CPU or on a GPU.
        boxes: (M, 4) XYXY, on the CPU; None: without boxes.
        labels: (M,) whole numbers; None is 1 for each box.
        ops: Any recipe; without a `Resize`, images keep the size that the other ops give them.
        seed: The same one gives the same draws, whatever the prefetch depth, the threads and the executor. Give
            pipelines that run side by side different ones.
        units: Of the boxes: "relative" to the image, 0..1, or "pixels".
        columns: Further nodes with a row for each box, (M,) or (M, K), such as track ids: where a box is dropped, its
            row is too.
        keypoints: (M, K, 3) x, y in `units`, continuous, and visibility 0, 1 or 2.
        flip_pairs: Their positions, from 0, that are swapped in a flipped image, [] for none.
        corners: (M, 4, 2) x, y in `units` of rotated boxes.
        polygons: The outlines of objects, for masks: nodes (P, 3) whole numbers, of which box each ring is and its
            first vertex and the end, and (V, 2) vertices x, y in `units`, as `fn.readers.coco` with polygon_masks=True
            and `da.fn.coco` with polygons=True return them; a box without a ring has the mask of the box.
        shapes: (2,) or more numbers, height and width of each image first, on the CPU, such as
            `fn.peek_image_shape(encoded)`: then the recipe is planned while a GPU decodes.
        return_matrix: Also return (2, 3), or (3, 3) for a recipe with perspective: source pixels -> output pixels, for
            points (x, y, 1). Not for recipes that mix images.

    >>> from nvidia.dali import fn, pipeline_def
    >>> @pipeline_def(batch_size=4, num_threads=2, device_id=None)
    ... def training():
    ...     encoded, boxes, labels, image_ids = da.fn.coco("demo/VOC/JPEGImages", "train.json", shuffle=False)
    ...     return da.fn.augment(fn.decoders.image(encoded), boxes, labels, da.presets.ssd300())
    >>> images, boxes, labels = training().run()
    >>> print(images.shape()[0], [count for count, _ in boxes.shape()])
    (3, 300, 300) [4, 2, 2, 2]
    """
    recipe = checked_recipe(ops, seed, units, masks=polygons is not None)
    if return_matrix and recipe.mixing_op:
        name = type(recipe.mixing_op).__name__
        raise InputError(
            f"return_matrix must be False with {name}, since an image that is mixed of several has no one matrix; "
            "boxes_in_source() of a Loader's batch takes each box back to its own image"
        )
    if return_matrix and (bending := next((op for op in recipe.ops if op.bends), None)):
        raise InputError(
            f"return_matrix must be False with {type(bending).__name__}, since no matrix describes how it bends a "
            "image; to_source() of a Loader's batch takes boxes and points back"
        )
    check("columns", columns, isinstance(columns, list | tuple), "a list of nodes")
    if keypoints is not None and flip_pairs is None:
        raise InputError(
            "keypoints need flip_pairs, which are swapped in a flipped image: such as [(1, 2), (3, 4)], or []"
        )
    points = [node for node in (keypoints, corners) if node is not None]
    options: Any = {
        "shapes": shapes,
        "return_matrix": return_matrix,
        "flip_pairs": None if keypoints is None else flip_pairs,
        "has_corners": corners is not None,
        "polygons": polygons,
    }
    return augment_to("pixels", images, boxes, labels, recipe, seed, units, [*points, *columns], **options)


def augment_to(
    output_units: Units,
    images: Node,
    boxes: Node | None,
    labels: Node | None,
    recipe: Recipe,
    seed: int,
    units: Units,
    columns: Sequence[Node] = (),
    *,
    shapes: Node | None = None,
    return_matrix: bool = False,
    flip_pairs: Pairs | None = None,
    has_corners: bool = False,
    polygons: tuple[Node, Node] | None = None,
    name: str = "da.fn.augment",
) -> tuple[Node, ...]:
    """Return the nodes of `augment`, with the boxes in `output_units`. `name`: of the function, for errors.

    `flip_pairs`: those of the first of the columns, which are keypoints; None: there are none. `has_corners`: the
    first of the columns after these are corners.
    """
    nodes = _nodes_of_boxes(boxes, labels, columns, polygons)
    _check_nodes(images, nodes if shapes is None else {**nodes, "shapes": shapes})
    _check_pipeline(images if shapes is None else shapes)
    images = fn.reinterpret(images, dtype=types.UINT8)  # of any other type, so each image gets a wrong shape
    if shapes is None:
        shapes = images.shape(dtype=types.INT32)
    else:  # the pipeline fails if the images are not of these
        shapes = fn.cat(fn.cast(shapes[:2], dtype=types.INT32), types.Constant([3], dtype=types.INT32, device="cpu"))
        images = fn.reshape(images, shape=shapes, layout="HWC")
    planner = BatchPlanner(
        recipe,
        seed,
        units,
        output_units,
        labels is not None,
        len(columns),
        return_matrix,
        polygons is not None,
        flip_pairs,
        has_corners,
        name,
    )
    planned: Any = fn.python_function(
        shapes,
        fn.random.uniform(range=[0.0, 1.0], shape=[4], seed=seed),
        *nodes.values(),
        function=planner,
        batch_processing=True,
        num_outputs=planner.outputs,
    )
    inputs = dict(zip(recipe.input_names, planned[planner.box_outputs :], strict=True))
    image = recipe.dali_graph(images, feed=inputs.__getitem__)
    image = image if "output" in recipe.stages else fn.reshape(image, layout="HWC")
    return (image, *planned[: planner.box_outputs])


def _check_pipeline(source_of_shapes: Node) -> None:
    """Raise InputError for a pipeline whose settings do not let it run Python functions."""
    pipeline = Pipeline.current()
    if not pipeline.exec_async:
        raise InputError(
            "da.fn needs a pipeline with exec_async=True, DALI's default: without it Python functions of two pipelines "
            "may wait for each other for ever"
        )
    if source_of_shapes.device == "gpu" and not pipeline.exec_dynamic:
        raise InputError(
            "da.fn needs a pipeline with exec_dynamic=True, DALI's default, for images on the GPU: "
            "their sizes are read on the CPU; or give shapes=fn.peek_image_shape(encoded)"
        )


def _nodes_of_boxes(
    boxes: Node | None, labels: Node | None, columns: Sequence[Node], polygons: tuple[Node, Node] | None
) -> dict[str, Node]:
    """Return the nodes that belong to boxes, polygons first, by the names that errors have for them."""
    check("columns", columns, isinstance(columns, list | tuple), "a list of nodes")
    pair = polygons is None or (isinstance(polygons, list | tuple) and len(polygons) == 2)
    check("polygons", polygons, pair, "two nodes: rings (P, 3) and vertices (V, 2)")
    rows = {f"polygons[{number}]": node for number, node in enumerate(polygons or ())}
    rows |= {
        "boxes": boxes,
        "labels": labels,
        **{f"columns[{number}]": column for number, column in enumerate(columns)},
    }
    nodes = {name: node for name, node in rows.items() if node is not None}
    if boxes is None and nodes:
        raise InputError(f"{', '.join(nodes)} must come with boxes, got boxes=None")
    return nodes


def _check_nodes(images: Node, on_cpu: dict[str, Node]) -> None:
    """Raise InputError for what cannot be the images, or the further nodes, of a pipeline."""
    for name, node in {"images": images, **on_cpu}.items():
        check(name, type(node).__name__, isinstance(node, DataNode), "the output of a DALI operator")
    for name, node in on_cpu.items():
        check(name, f"a node on the {node.device.upper()}", node.device == "cpu", "on the CPU")


def checked_recipe(ops: Iterable[Op], seed: int, units: Units, *, masks: bool = False) -> Recipe:
    """Return the recipe of `augment`. Raises InputError for arguments that it cannot have."""
    check("seed", seed, is_whole(seed, 0, 2**63 - 1), "a whole number of at least 0, below 2**63")
    check("units", units, units in ("relative", "pixels"), "'relative' or 'pixels'")
    recipe = make_rendering_recipe(ops)
    recipe.check_masks(masks, "give da.fn.augment polygons=...")
    for op in recipe.ops:
        if (until := getattr(op, "until_epoch", None)) is not None:
            raise InputError(
                f"{type(op).__name__} has until_epoch={until}, but a DALI pipeline does not know the epoch: "
                "leave it out, and make another pipeline for the last epochs"
            )
    return recipe
