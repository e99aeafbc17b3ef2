"""Ops of users: what is refused when they are made, what identifies them, and how their errors name them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from nvidia.dali import fn
from painted_files import Folder

import detaug as da
from detaug.boxes.views import Views
from detaug.ops.cpu_kernels import CpuKernel
from detaug.pipelines.graph import Node, Nodes

GRAY = np.full((40, 50, 3), 100, np.uint8)

# ------------------------------------------------------------------------------------------- what is refused


def undecorated() -> da.Op:
    class Own(da.GeometricOp):
        share = 0.5

    return Own()


def undecorated_subclass() -> da.Op:
    class Own(da.RandomHorizontalFlip):
        strength: float = 0.3  # a dataclass would take it as an argument, this class does not

    return Own()


@pytest.mark.parametrize("make", [undecorated, undecorated_subclass])
def test_an_op_that_is_no_dataclass_is_refused(make: Callable[[], da.Op]) -> None:
    with pytest.raises(TypeError, match=r"Own is an op but no dataclass: write @dataclass\(frozen=True\) above"):
        make()


def test_an_op_with_an_init_of_its_own_is_refused_where_it_is_written() -> None:
    with pytest.raises(TypeError, match=r"Own defines __init__: write its arguments as fields of a frozen dataclass"):

        @dataclass(frozen=True)
        class Own(da.PixelOp):
            def __init__(self, share: float) -> None: ...


def test_what_is_a_dataclass_is_accepted() -> None:
    class Same(da.RandomHorizontalFlip):
        note: ClassVar[str] = "a class without arguments of its own"

    @dataclass(frozen=True, slots=True)
    class Slots(da.PixelOp):
        share: float = 0.5

    assert repr(Same(p=0.1)).endswith("Same(p=0.1)")
    assert repr(Slots()).endswith("Slots(share=0.5)")


@pytest.mark.parametrize("wrong", [abs, {1, 2}, float("nan"), [1, [b"x"]], {1: 2}, Path("a")], ids=repr)
def test_an_argument_that_no_file_gives_back_is_refused(wrong: Any) -> None:
    with pytest.raises(da.InputError, match=r"Holder.value must be a number, text, None, an op, or a tuple or dict"):
        Holder(wrong)


# -------------------------------------------------------------------------------------------------- identity


@dataclass(frozen=True)
class Holder(da.PixelOp):
    """Holds any argument."""

    value: Any = None
    computed: Any = field(init=False, default=None, repr=False)


@dataclass(frozen=True)
class Pair(da.PixelOp):
    """Contains ops as arguments of their own."""

    first: da.Op
    others: dict[str, Any]


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        (np.float64(0.5), 0.5),
        (np.int8(3), 3),
        (np.str_("text"), "text"),
        (np.array([[1.5, 2.0]]), ((1.5, 2.0),)),
        ([1, [2, np.True_]], (1, (2, True))),
        ({"size": [np.int64(3), 4]}, {"size": (3, 4)}),
        (torch.float16, "float16"),
        (torch.channels_last, "channels_last"),
        (None, None),
    ],
    ids=repr,
)
@pytest.mark.parametrize("name", ["recipe.yaml", "recipe.json"])
def test_arguments_are_plain_and_come_back_from_a_file(given: Any, stored: Any, name: str, tmp_path: Path) -> None:
    op = Holder(given)
    assert repr(op) == f"Holder(value={stored!r})"
    assert op == Holder(stored)
    da.save_recipe([op], tmp_path / name)
    assert da.load_recipe(tmp_path / name, ops=[Holder]) == [op]


@pytest.mark.parametrize("name", ["recipe.yaml", "recipe.json"])
def test_ops_in_ops_come_back_from_a_file(name: str, tmp_path: Path) -> None:
    flips = [da.RandomHorizontalFlip(np.float32(0.5)), da.RandomVerticalFlip()]
    recipe = [
        da.RandomApply(flips, p=np.float64(0.5)),
        da.RandomChoice(flips, probabilities=np.array([1, 3])),
        da.RandomOrder([da.RandomApply(flips), da.RandomRotate90()]),
        da.Resize(np.array([30, 40])),
        Pair(da.GaussianBlur(), {"more": [da.RandomInvert(p=1), {"a": 1}], "p": 0.5}),
    ]
    da.save_recipe(recipe, tmp_path / name)
    loaded = da.load_recipe(tmp_path / name, ops=[Pair])
    assert loaded == recipe
    assert repr(loaded) == repr(recipe)


def test_a_loader_resumes_with_ops_of_ones_own(painted: Folder, tmp_path: Path) -> None:
    """The state goes through JSON file, and the ops are made again, as in another process."""

    def loader() -> da.Loader:
        window = Crop([np.float32(0.5), np.array(0.75)])
        return da.Loader(da.CocoReader(*painted), [da.RandomApply([window]), da.Resize((9, 9))], 4, device="cpu")

    first, again = loader(), loader()
    batches = iter(first)
    next(batches)
    again.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert torch.equal(next(batches).images, next(iter(again)).images)


@dataclass(frozen=True)
class Crop(da.GeometricOp):
    """Crops to fractions of width and height."""

    shares: Any

    def move(self, views: Views, drawn: dict[str, Any]) -> Views:
        return views.crop_to(np.zeros((len(views), 2)), np.tile(np.array(self.shares), (len(views), 1))).clip()


# ------------------------------------------------------------------------------------------------ edited boxes


@dataclass(frozen=True)
class HalveBoxes(da.GeometricOp):
    """Keeps the left half of each box."""

    keep_outlines: bool = True

    def move(self, views: da.Views, drawn: dict[str, Any]) -> da.Views:
        x0, y0, x1, y1 = views.boxes.transpose(2, 0, 1)
        boxes = np.stack([x0, y0, (x0 + x1) / 2, y1], axis=2)
        return replace(views, boxes=boxes, outlines=views.outlines if self.keep_outlines else None)


TURN = da.RandomRotation((90, 90), expand=True)


@pytest.mark.parametrize(
    ("recipe", "box"),
    [
        ([HalveBoxes()], (10, 10, 20, 20)),
        ([HalveBoxes(), TURN], (10, 30, 20, 40)),
        ([TURN, HalveBoxes(keep_outlines=False)], (10, 20, 15, 40)),
        ([TURN, HalveBoxes()], (10, 20, 20, 40)),
    ],
    ids=["alone", "before a turn", "without polygons", "lost after a turn"],
)
def test_an_edit_of_boxes_counts_until_they_have_outlines(recipe: list[da.Op], box: tuple[int, ...]) -> None:
    samples = da.batch([GRAY], boxes=[[[10, 10, 30, 20]]]).then(*recipe)
    resized = samples.then(da.Resize(tuple(samples.images[0].shape[:2])))
    np.testing.assert_allclose(resized.boxes[0], [box], atol=1e-9)


# --------------------------------------------------------------------------------------------------- errors


@dataclass(frozen=True)
class Draws(da.GeometricOp):
    """Draws wrongly."""

    result: str = "none"

    def draw(self, rng: np.random.Generator, n: int) -> Any:
        return {"none": None, "short": {"a": rng.random(n + 1)}}.get(self.result) or int("x")

    def move(self, views: Views, drawn: dict[str, Any]) -> Views:
        return views


@dataclass(frozen=True)
class ReturnsNothing(da.GeometricOp):
    """Forgets the return."""

    def move(self, views: Views, drawn: dict[str, Any]) -> Any:
        views.clip()


@dataclass(frozen=True)
class Plans(da.PixelOp):
    """Plans wrongly."""

    def plan(self, views: Views, drawn: dict[str, Any]) -> Any:
        return views.boxes["x"]


@dataclass(frozen=True)
class MakesNoGraph(da.PixelOp):
    """Fails where the graph is made."""

    def dali_graph(self, image: Node, planned: Nodes, views: Views) -> Node:
        return image.no_such_method()


@dataclass(frozen=True)
class RunsPython(da.PixelOp):
    """Fails in a Python function of DALI's graph."""

    def dali_graph(self, image: Node, planned: Nodes, views: Views) -> Node:
        return fn.python_function(image.cpu(), function=self.change, output_layouts="HWC")

    def change(self, image: np.ndarray) -> np.ndarray:
        raise KeyError("mine")


@dataclass(frozen=True)
class RunsDali(da.PixelOp):
    """Fails in an operator of DALI."""

    def dali_graph(self, image: Node, planned: Nodes, views: Views) -> Node:
        return fn.crop(image, crop=(9000, 9000))


@dataclass(frozen=True)
class Kernel(da.PixelOp):
    """Fails in its kernel for the CPU."""

    def cpu_kernel(self, views: Views) -> CpuKernel:
        def change(image: torch.Tensor) -> torch.Tensor:
            raise ArithmeticError("a mistake of my own")

        return change


FAILING: list[tuple[da.Op, str, type[Exception]]] = [
    (Draws(), r"Draws \(1st op of the recipe\) failed in draw: ValueError: invalid literal", ValueError),
    (Draws("short"), r"Draws \(1st .*\) failed in draw: TypeError: draw must return arrays of n rows", TypeError),
    (ReturnsNothing(), r"ReturnsNothing \(1st .*\) failed in move: TypeError: move must return Views", TypeError),
    (Plans(), r"Plans \(2nd op of the recipe\) failed in plan: IndexError: ", IndexError),
    (MakesNoGraph(), r"MakesNoGraph \(2nd .*\) failed in dali_graph: AttributeError: .*no_such_method", AttributeError),
    (
        RunsPython(),
        r"RunsPython \(2nd .*\) failed in dali_graph, in fn.python_function: .*KeyError: 'mine'",
        RuntimeError,
    ),
    (
        RunsDali(),
        r"RunsDali \(2nd .*\) failed in dali_graph, in fn.crop: Slice can't be placed out of bounds",
        RuntimeError,
    ),
    (Kernel(), r"Kernel \(2nd .*\) failed in cpu_kernel: ArithmeticError: a mistake of my own", ArithmeticError),
]


class MakesNoKernel(Kernel):
    """Fails where the kernel is made."""

    def cpu_kernel(self, views: Views) -> CpuKernel:
        raise LookupError("no kernel")


FAILING.append((MakesNoKernel(), r"MakesNoKernel \(2nd .*\) failed in cpu_kernel: LookupError: no k", LookupError))


def recipe_with(op: da.Op) -> list[da.Op]:
    return [op, da.Resize((9, 9))] if op.stage == "view" else [da.Resize((9, 9)), op]


@pytest.mark.parametrize(("op", "message", "cause"), FAILING, ids=lambda each: type(each).__name__)
def test_an_op_that_fails_names_itself(op: da.Op, message: str, cause: type[Exception]) -> None:
    with pytest.raises(da.OpError, match=message) as caught:
        _ = da.batch([GRAY] * 2).then(*recipe_with(op)).images
    assert isinstance(caught.value.__cause__, cause)


@pytest.mark.parametrize(("op", "message", "cause"), FAILING, ids=lambda each: type(each).__name__)
def test_an_op_that_fails_in_a_loader_blames_no_file(
    op: da.Op, message: str, cause: type[Exception], painted: Folder
) -> None:
    with pytest.raises(da.OpError, match=message) as caught:
        list(da.Loader(da.CocoReader(*painted), recipe_with(op), 4, device="cpu", on_error="skip", max_skipped=1))
    assert isinstance(caught.value.__cause__, cause)
    assert "detaug check" not in str(caught.value)


@pytest.mark.parametrize("op", [ReturnsNothing(), RunsPython()], ids=lambda op: type(op).__name__)
def test_an_op_in_a_container_names_both(op: da.Op) -> None:
    message = rf"RandomApply \(\d\w+ op of the recipe\): {type(op).__name__} \(1st op in it\) failed in "
    with pytest.raises(da.OpError, match=message):
        _ = da.batch([GRAY] * 2).then(*recipe_with(da.RandomApply([op], p=1))).images


def test_the_second_of_two_equal_ops_is_the_one_that_is_named() -> None:
    recipe = [da.RandomInvert(), da.RandomInvert(), Add(0)]
    with pytest.raises(da.OpError, match=r"Add \(5th op of the recipe\) failed in cpu_kernel: ZeroDivisionError"):
        _ = da.batch([GRAY]).then(da.Resize((9, 9)), Add(200), *recipe).images


@dataclass(frozen=True)
class Add(da.PixelOp):
    """Fails for 0."""

    value: int

    def cpu_kernel(self, views: Views) -> CpuKernel:
        return lambda image: image // self.value if self.value else image + 1 // self.value


@dataclass(frozen=True)
class AddBox(da.GeometricOp):
    """Adds a box to each view; `with_row`: also its row in the columns of the source, in which it has none."""

    with_row: bool

    def move(self, views: da.Views, drawn: dict[str, Any]) -> da.Views:
        more: dict[str, Any] = {"boxes": [[[0.1, 0.1, 0.5, 0.5]]], "labels": [[1]], "visible": [[1.0]]}
        more |= {"rows": [[-1]]} if self.with_row else {}
        repeated = {name: np.repeat(np.array(each), len(views), axis=0) for name, each in more.items()}
        joined = {name: np.concatenate([getattr(views, name), each], axis=1) for name, each in repeated.items()}
        return replace(views, **joined)


def test_an_op_that_adds_boxes_says_so_of_all_that_belongs_to_them(painted: Folder) -> None:
    def load(with_row: bool) -> da.Batch:
        recipe = [AddBox(with_row), da.Resize((40, 40))]
        return next(iter(da.Loader(da.CocoReader(*painted, columns=["id"]), recipe, 4, device="cpu")))

    with pytest.raises(da.InputError, match=r"rows of the views must have a row for each of .* views\.select_boxes"):
        load(with_row=False)
    batch = load(with_row=True)
    assert ((batch.columns["id"] < 0).sum(1) >= 1).all()
    assert (batch.valid & (batch.image_id_of_box < 0)).sum(1).tolist() == [1] * 4


def test_an_added_box_is_refused_where_it_would_get_the_label_of_another() -> None:
    image, boxes = np.zeros((40, 40, 3), np.uint8), [[1.0, 1, 9, 9], [5, 5, 20, 20]]
    samples = da.batch([image], [boxes], columns={"name": [["a", "b"]]}).then(AddBox(with_row=True))
    assert len(samples.boxes[0]) == 3
    with pytest.raises(da.InputError, match=r"an op added a box, .* use it in a Loader"):
        samples.columns  # noqa: B018
    with pytest.raises(da.InputError, match="an op added a box"):
        da.Compose([AddBox(with_row=True)])(image, {"boxes": np.array(boxes), "labels": ["a", "b"]})
