"""`detaug export`: the ONNX file finds what the model finds, in pixels of the source images; what is refused."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from coco_files import document, write, write_images
from command import detaug, usage_error
from torch import nn

from detaug.errors import InputError

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("torchvision")

from detaug.export import export_onnx, verify_onnx  # noqa: E402
from detaug.export.graph import refuse_other_models  # noqa: E402
from detaug.export.verify import _compare, _pasted  # noqa: E402
from detaug.training.detectors import make_detector  # noqa: E402

pytestmark = pytest.mark.slow

SSDLITE, FCOS, RETINANET = "ssdlite320_mobilenet_v3_large", "fcos_resnet50_fpn", "retinanet_resnet50_fpn_v2"


def model_file(path: Path, name: str, size: Any, **resize: Any) -> Path:
    """Write a model with random weights whose scores differ: statistics of batch norm are those of noise."""
    torch.manual_seed(0)
    model: Any = make_detector(name, 3).model
    for parameter, values in model.named_parameters():
        if "head" in parameter and values.ndim > 1:
            values.data.normal_(0, 0.05)
        elif parameter.endswith("cls_logits.bias"):
            values.data.zero_()  # RetinaNet and FCOS begin with scores near 0.01
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = None
            module.reset_running_stats()
    model.train()
    with torch.no_grad():
        model.head([*model.backbone(torch.randn(4, 3, 320, 320)).values()])
    settings = {"size": size, "max_size": None, "letterbox": None, "fill": (123.0, 117.0, 104.0)} | resize
    names = ("background", "cat", "dog")
    content = {"name": name, "size": size, "class_names": names, "model": model.state_dict(), "resize": settings}
    torch.save(content, path)
    return path


@pytest.fixture(scope="module")
def ssdlite(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("ssdlite")
    model = model_file(folder / "model.pt", SSDLITE, (320, 320))
    export_onnx(model, folder / "model.onnx")
    return model, folder / "model.onnx"


def run(file: Path, images: np.ndarray[Any, Any], sizes: list[list[int]]) -> list[dict[str, torch.Tensor]]:
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    numbers, *outputs = session.run(None, {"images": images, "source_size": np.array(sizes, np.int64)})
    names = [output.name for output in session.get_outputs()][1:]
    for values in outputs:  # after the last detection all is 0
        assert all(not values[image, number:].any() for image, number in enumerate(numbers))
    return [
        {name: torch.from_numpy(values[image, :number]) for name, values in zip(names, outputs, strict=True)}
        for image, number in enumerate(numbers)
    ]


def wanted(trained: Any, images: np.ndarray[Any, Any]) -> list[dict[str, torch.Tensor]]:
    normalize = trained.ops[1]
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (normalize.mean, normalize.std))
    with torch.inference_mode():
        found: list[dict[str, torch.Tensor]] = trained.model((torch.from_numpy(images) - mean) / std)
    return found


@pytest.mark.parametrize(
    ("name", "size", "shape"),
    [
        (SSDLITE, (320, 320), None),
        *((name, 800, (128, 160)) for name in (FCOS, RETINANET)),
    ],
)
def test_the_file_finds_what_the_model_finds(name: str, size: Any, shape: Any, tmp_path: Path) -> None:
    trained = export_onnx(model_file(tmp_path / "model.pt", name, size), tmp_path / "model.onnx", size=shape)
    height, width = shape or size
    rng = np.random.default_rng(0)
    for count in (1, 3):
        images = rng.random((count, 3, height, width), np.float32)
        found = run(tmp_path / "model.onnx", images, [[height, width]] * count)
        for one, other in zip(wanted(trained, images), found, strict=True):
            (sure, unmatched, _), difference = _compare(one, other)
            assert sure > 20
            assert unmatched <= sure // 50  # two boxes with nearly the IoU of the suppression
            assert difference < 0.05
            assert (other["scores"].diff() <= 0).all()
            assert set(other["labels"].tolist()) <= {1, 2}


@pytest.mark.parametrize("letterbox", [None, "center", "top-left"])
def test_boxes_are_in_pixels_of_the_source_images(letterbox: str | None, tmp_path: Path) -> None:
    """A second implementation of the way back, for a wide, a high and a square source image."""
    model = model_file(tmp_path / "model.pt", SSDLITE, (320, 320), letterbox=letterbox)
    trained = export_onnx(model, tmp_path / "model.onnx")
    sizes = [[200, 500], [641, 333], [320, 320]]
    images = np.random.default_rng(1).random((3, 3, 320, 320), np.float32)
    for (height, width), one, other in zip(
        sizes, wanted(trained, images), run(tmp_path / "model.onnx", images, sizes), strict=True
    ):
        scale = min(320 / height, 320 / width)
        shown = [round(height * scale), round(width * scale)] if letterbox else [320, 320]
        left, top = ((320 - shown[1]) // 2, (320 - shown[0]) // 2) if letterbox == "center" else (0, 0)
        moved = (one["boxes"] - torch.tensor([left, top, left, top])) * torch.tensor(
            [width / shown[1], height / shown[0]] * 2
        )
        moved = moved.clamp(min=0).minimum(torch.tensor([width, height, width, height]))
        (sure, unmatched, _), difference = _compare({**one, "boxes": moved}, other)
        assert sure > 20
        assert unmatched == 0
        assert difference < 0.01


def test_metadata_and_shapes(ssdlite: tuple[Path, Path]) -> None:
    content = onnx.load(ssdlite[1])
    data = {entry.key: entry.value for entry in content.metadata_props}
    assert json.loads(data["names"]) == {"0": "background", "1": "cat", "2": "dog"}
    assert (data["task"], json.loads(data["imgsz"]), data["batch"]) == ("detect", [320, 320], "dynamic")
    assert (data["model"], data["letterbox"]) == (SSDLITE, "none: stretched")
    shapes = {
        value.name: [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in content.graph.input
    }
    assert shapes == {"images": ["batch", 3, 320, 320], "source_size": ["batch", 2]}
    assert [value.name for value in content.graph.output] == ["num_dets", "boxes", "scores", "labels"]


def test_a_fixed_batch_and_fewer_detections(ssdlite: tuple[Path, Path], tmp_path: Path) -> None:
    export_onnx(ssdlite[0], tmp_path / "two.onnx", batch=2, max_detections=5)
    images = np.random.default_rng(0).random((2, 3, 320, 320), np.float32)
    all_of, five = (run(file, images, [[320, 320]] * 2) for file in (ssdlite[1], tmp_path / "two.onnx"))
    for one, other in zip(all_of, five, strict=True):
        assert len(other["boxes"]) == 5
        assert torch.equal(one["scores"][:5], other["scores"])
    with pytest.raises(onnxruntime.capi.onnxruntime_pybind11_state.InvalidArgument, match="invalid dimensions"):
        run(tmp_path / "two.onnx", images[:1], [[320, 320]])


@pytest.mark.parametrize("batch", ["dynamic", 2])
def test_verify_scores_both(batch: Any, ssdlite: tuple[Path, Path], tmp_path: Path) -> None:
    path, images = write(tmp_path / "all.json", document()), write_images(tmp_path / "images")
    trained = export_onnx(ssdlite[0], tmp_path / "model.onnx", batch=batch)
    verified = verify_onnx(trained, tmp_path / "model.onnx", path, images)
    assert verified.agrees
    assert (verified.images, verified.unmatched) == (3, 0)
    assert verified.detections > 20
    broken = onnx.load(tmp_path / "model.onnx")  # another bias of the first convolution
    weights = next(each for each in broken.graph.initializer if "backbone" in each.name and len(each.dims) == 4)
    values = onnx.numpy_helper.to_array(weights) * 1.5
    weights.CopyFrom(onnx.numpy_helper.from_array(values.astype(np.float32), weights.name))
    onnx.save(broken, tmp_path / "model.onnx")
    wrong = verify_onnx(trained, tmp_path / "model.onnx", path, images)
    assert wrong.unmatched > 0


def test_the_command(ssdlite: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "val.json", document())
    write_images(tmp_path / "images")
    result = detaug("export", ssdlite[0], "-o", "model.onnx", "--verify", "val.json", "images")
    lines = result.out.splitlines()
    assert (result.code, result.err) == (0, "")
    assert lines[0].startswith("written: model.onnx, ")
    assert lines[0].endswith(" MB, input 320 x 320, batch dynamic")
    assert lines[1].startswith("verified on 3 images: AP ")
    assert "equal within 0.001" in lines[1]
    assert detaug("export", ssdlite[0], "-o", "model.onnx", "--quiet").out == ""  # its own file is replaced


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--size 300x300", "size of ssdlite320_mobilenet_v3_large must be (320, 320), got (300, 300)"),
        ("--batch 0", "must be a number of images, or dynamic, got '0'"),
        ("--max-det 0", "0 is not in the range x>=1"),
        ("-o model.pth", "must end in .onnx"),
    ],
)
def test_wrong_options(words: str, message: str, ssdlite: tuple[Path, Path], tmp_path: Path) -> None:
    output = [] if "-o" in words else ["-o", tmp_path / "x.onnx"]
    arguments = words.replace("model.pth", str(tmp_path / "model.pth")).split()
    assert message in usage_error("export", ssdlite[0], *output, *arguments)
    assert not list(tmp_path.iterdir())


def test_other_files_and_models_are_refused(ssdlite: tuple[Path, Path], tmp_path: Path) -> None:
    (tmp_path / "theirs.onnx").write_bytes(b"of someone else")
    with pytest.raises(InputError, match=r"theirs\.onnx exists and was not written by detaug"):
        export_onnx(ssdlite[0], tmp_path / "theirs.onnx")
    assert (tmp_path / "theirs.onnx").read_bytes() == b"of someone else"
    fcos = model_file(tmp_path / "fcos.pt", FCOS, 800)
    with pytest.raises(InputError, match=r"size must be given for fcos_resnet50_fpn, whose shorter side is 800"):
        export_onnx(fcos, tmp_path / "x.onnx")
    with pytest.raises(InputError, match=r"must be multiples of 32, got \(800, 1333\); such as size=\(800, 1344\)"):
        export_onnx(fcos, tmp_path / "x.onnx", size=(800, 1333))
    name = "fcos_rotated_resnet50_fpn"
    with pytest.raises(InputError, match=rf"{name} is not exported, .* of rotated boxes; export ssd300_vgg16"):
        refuse_other_models(name)
    content = document()
    content["categories"][0]["name"] = "cow"
    trained = export_onnx(ssdlite[0], tmp_path / "y.onnx")
    path, images = write(tmp_path / "a.json", content), write_images(tmp_path / "i")
    with pytest.raises(InputError, match=r"the model finds the classes cat, dog, and .*a\.json has cow, dog"):
        verify_onnx(trained, tmp_path / "y.onnx", path, images)


def test_without_onnx_the_error_names_what_to_install(
    ssdlite: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    message = usage_error("export", ssdlite[0], "-o", tmp_path / "x.onnx")
    assert message == "detaug: detaug export needs the package onnx: pip install 'detaug[export]'\n"


@pytest.mark.parametrize("name", ["rt-detr-v2-r18", "d-fine-nano"])
@pytest.mark.parametrize("letterbox", [None, "center"])
def test_a_detr_finds_the_same(
    name: str, letterbox: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small models of both families; sizes that the model does not take are refused.

    They look at every place of their maps, for one class: without a training places have nearly the same scores, and
    those that are chosen would be chance.
    """
    pytest.importorskip("transformers")
    import tiny_detectors
    from test_detr_models import tiny

    places = 16 * 20 + 8 * 10 + 4 * 5
    monkeypatch.setitem(tiny_detectors.SMALL, "num_queries", places)
    monkeypatch.setattr("detaug.training.predict.make_detector", tiny)
    model = tiny(name, 2).model
    torch.manual_seed(0)
    for parameter, values in model.named_parameters():
        if "class_embed" in parameter or "score_head" in parameter:
            values.data.normal_(0, 0.3)
    resize = {"size": (128, 160), "max_size": None, "letterbox": letterbox, "fill": (0.0, 0.0, 0.0)}
    content = {"name": name, "size": (128, 160), "class_names": ("background", "cat"), "resize": resize}
    torch.save({**content, "model": model.state_dict(), "mean": (0.0,) * 3, "std": (1.0,) * 3}, tmp_path / "model.pt")
    trained = export_onnx(tmp_path / "model.pt", tmp_path / "model.onnx", max_detections=places)
    rng = np.random.default_rng(0)
    for count in (1, 3):
        images = rng.random((count, 3, 128, 160), np.float32)
        found = run(tmp_path / "model.onnx", images, [[256, 320]] * count)  # the letterbox of this shape has no fill
        for one, other in zip(wanted(trained, images), found, strict=True):
            (sure, unmatched, _), difference = _compare({**one, "boxes": one["boxes"] * 2}, other)
            assert sure > 10
            assert unmatched == 0
            assert difference < 0.05
            assert (other["scores"].diff() <= 0).all()
    with pytest.raises(InputError, match="must be multiples of 32"):
        export_onnx(tmp_path / "model.pt", tmp_path / "other.onnx", size=(100, 160))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("masks", [False, True], ids=["boxes", "masks"])
def test_rf_detr_is_traced_on_a_copy(masks: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The graph is equal to the model, which stays as it was; the class more than the dataset is never found."""
    config = pytest.importorskip("rfdetr.config")
    from detaug.training import Detector
    from detaug.training.detr_models import RfDetrDetector

    def small(_name: str, num_classes: int) -> Detector:
        torch.manual_seed(0)
        own = {"resolution": 96, "positional_encoding_size": 6, "group_detr": 1, "dec_layers": 1, "num_queries": 20}
        of_file = {"num_classes": num_classes - 1, "pretrain_weights": None, "device": "cpu", "num_select": 20}
        kind = config.RFDETRSegNanoConfig if masks else config.RFDETRNanoConfig
        return Detector(RfDetrDetector(kind(**own, **of_file), num_classes - 1))

    monkeypatch.setattr("detaug.training.predict.make_detector", small)
    model: Any = small("", 3).model
    for parameter, values in model.named_parameters():
        if "class_embed" in parameter:
            values.data.normal_(0, 0.1 if masks else 1.0)
    resize = {"size": (96, 96), "max_size": None, "letterbox": None, "fill": (0.0, 0.0, 0.0)}
    name = "rf-detr-seg-nano" if masks else "rf-detr-nano"
    content = {"name": name, "size": (96, 96), "class_names": ("background", "cat", "dog"), "resize": resize}
    torch.save({**content, "model": model.state_dict()}, tmp_path / "model.pt")
    trained = export_onnx(tmp_path / "model.pt", tmp_path / "model.onnx")
    for count in (1, 2):
        images = np.random.default_rng(count).random((count, 3, 96, 96), np.float32)
        for one, other in zip(
            wanted(trained, images), run(tmp_path / "model.onnx", images, [[192, 288]] * count), strict=True
        ):
            other["boxes"] = other["boxes"] / torch.tensor([3.0, 2, 3, 2])
            (sure, unmatched, _), difference = _compare(one, other)
            assert sure > 10
            assert unmatched == 0
            assert difference < 0.05
            assert set(other["labels"].tolist()) <= {1, 2}
            if masks:
                assert torch.equal(other["mask_boxes"], torch.tensor([0.0, 0, 288, 192]).expand_as(other["boxes"]))
                pasted = _pasted(other["masks"], other["mask_boxes"], (96, 96), trained.model)
                assert 0.05 < (one["masks"] >= 0.5).float().mean() < 0.95
                torch.testing.assert_close(pasted, one["masks"], atol=0.01, rtol=0)
    assert not trained.model.traced  # type: ignore[union-attr]
