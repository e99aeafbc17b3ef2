"""DETRs of transformers and rfdetr in `detaug train`: their detections, losses, weights and errors."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http.server import ThreadingHTTPServer
from importlib.metadata import metadata, requires
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from command import detaug
from painted_files import Folder, paint_files
from test_pretrained import Quiet
from tiny_detectors import SMALL, d_fine, made, rt_detr_v2
from torch import Tensor

import detaug as da
from detaug.demo.shapes import make_voc
from detaug.errors import InputError
from detaug.packages import PACKAGES
from detaug.training import Detector, TrainOptions, load_model, train
from detaug.training.detectors import make_detector
from detaug.training.detr_models import Outputs, RfDetrDetector, TransformersDetector, best_pairs, make_detr
from detaug.training.model_table import MODELS
from detaug.training.optimization import make_optimizer, make_schedule
from detaug.training.pretrained import pretrained_file
from detaug.training.torch_files import read_torch_file
from detaug.training.weights import load_weights

hf = pytest.importorskip("transformers")
rfdetr_models = pytest.importorskip("rfdetr.models")

MAKE = {"rt-detr-v2-r18": rt_detr_v2, "d-fine-nano": d_fine}


def tiny(name: str, num_classes: int) -> Detector:
    """Return a small model of the family of a name, as `make_detector` gives it."""
    net = made(MAKE[name], num_classes - 1)
    return Detector(TransformersDetector(net, 0.5), (0.0, 0.0, 0.0), (1.0, 1.0, 1.0))


def random_outputs(images: int = 2, queries: int = 7, classes: int = 3) -> Outputs:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(images, queries, classes, generator=generator)
    middles = torch.rand(images, queries, 2, generator=generator)  # some boxes leave the image
    return Outputs(logits, torch.cat([middles, 0.1 + 0.4 * torch.rand(images, queries, 2, generator=generator)], -1))


def test_the_best_pairs_are_those_of_transformers() -> None:
    outputs, size = random_outputs(), (60, 90)
    boxes, scores, labels, queries = best_pairs(outputs.logits, outputs.boxes, size, 7)
    processor = hf.RTDetrImageProcessor()
    theirs = hf.models.rt_detr.modeling_rt_detr.RTDetrObjectDetectionOutput(
        logits=outputs.logits, pred_boxes=outputs.boxes
    )
    wanted = processor.post_process_object_detection(theirs, threshold=0.0, target_sizes=[size] * 2)
    for n, each in enumerate(wanted):
        order = each["scores"].argsort(descending=True, stable=True)
        torch.testing.assert_close(scores[n], each["scores"][order])
        assert (labels[n] - 1).tolist() == each["labels"][order].tolist()
        limits = torch.tensor([90.0, 60.0, 90.0, 60.0])
        torch.testing.assert_close(boxes[n], each["boxes"][order].clamp(min=0).minimum(limits))
    assert (queries < 7).all()


def test_the_best_pairs_are_those_of_rfdetr() -> None:
    outputs, size = random_outputs(), (60, 90)
    boxes, scores, labels, _ = best_pairs(outputs.logits, outputs.boxes, size, 5)
    post = rfdetr_models.PostProcess(num_select=5)
    wanted = post({"pred_logits": outputs.logits, "pred_boxes": outputs.boxes}, torch.tensor([size] * 2))
    for n, each in enumerate(wanted):
        torch.testing.assert_close(scores[n], each["scores"])
        assert (labels[n] - 1).tolist() == each["labels"].tolist()
        torch.testing.assert_close(boxes[n], each["boxes"])


def one_box(label: int = 2) -> list[dict[str, Tensor]]:
    box = torch.tensor([[0.5, 0.25, 0.2, 0.1]])
    return [{"boxes": box, "class_labels": torch.tensor([label]), "labels": torch.tensor([label])}]


NOTHING = {
    "boxes": torch.zeros(0, 4),
    "class_labels": torch.zeros(0, dtype=torch.int64),
    "labels": torch.zeros(0, dtype=torch.int64),
}


@pytest.mark.parametrize("name", MAKE)
def test_losses_are_those_of_transformers_by_kind(name: str) -> None:
    """Their sum is transformers' loss, at the same weights and random numbers; 16 bits change none to another type."""
    model = tiny(name, 4).model.train()
    images, targets = torch.rand(2, 3, 96, 96), [*one_box(), NOTHING]
    torch.manual_seed(1)
    losses = model(images, targets)
    torch.manual_seed(1)
    wanted = made(MAKE[name], 3)
    wanted.load_state_dict(model.net.state_dict())  # type: ignore[union-attr]
    torch.manual_seed(1)
    theirs = wanted(pixel_values=images, labels=targets)
    assert {"loss_vfl", "loss_bbox", "loss_giou"} <= losses.keys()
    assert all(not name[-1].isdigit() and "aux" not in name for name in losses)
    torch.testing.assert_close(torch.stack([*losses.values()]).sum(), theirs.loss)
    with torch.autocast("cpu", torch.bfloat16):
        half = model(images, targets)
    assert {loss.dtype for loss in half.values()} == {torch.float32}
    empty = model(images, [NOTHING, NOTHING])
    assert empty["loss_bbox"] == 0
    assert empty["loss_vfl"] > 0


@pytest.mark.parametrize("name", MAKE)
def test_groups_have_every_parameter_once(name: str) -> None:
    model = tiny(name, 4).model
    optimizer = make_optimizer(model, TrainOptions(Path("a.json"), Path("b"), Path("c"), model=name).as_authors)
    assert isinstance(optimizer, torch.optim.AdamW)
    groups = optimizer.param_groups
    seen = [id(parameter) for group in groups for parameter in group["params"]]
    assert sorted(seen) == sorted(id(parameter) for parameter in model.parameters() if parameter.requires_grad)
    backbone = {id(parameter) for name, parameter in model.named_parameters() if "backbone" in name}
    for group in groups:
        factors = {0.5 if id(parameter) in backbone else 1.0 for parameter in group["params"]}
        assert factors == {group["lr_factor"]}
        decays = {1e-4 if parameter.ndim > 1 else 0.0 for parameter in group["params"]}
        assert decays == {group["weight_decay"]}


def test_the_authors_rate_grows_with_the_root_of_the_images() -> None:
    def top(**more: Any) -> float:
        options = TrainOptions(Path("a.json"), Path("b"), Path("c"), warmup_steps=0, **more)
        return make_schedule(options, 100)(0)

    assert top(model="d-fine-nano", batch_size=8) == pytest.approx(8e-4 / 4)  # 128 images / 16
    assert top(model="rf-detr-nano", batch_size=16) == pytest.approx(1e-4)
    assert top(model="ssd300_vgg16", batch_size=16) == pytest.approx(0.001)  # SGD: in proportion
    assert top(model="ssd300_vgg16", optimizer="adamw") == 0.0003
    assert top(model="d-fine-nano", optimizer="sgd") == 0.0003


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    return paint_files(tmp_path_factory.mktemp("painted"), 4)


@pytest.mark.slow
@pytest.mark.parametrize("name", MAKE)
@pytest.mark.filterwarnings("ignore:.*lr_scheduler.step.*")
def test_a_training_saves_a_model_that_predicts(
    name: str, folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images, json_file = folder
    size = (MODELS[name].smallest,) * 2
    options = TrainOptions(
        json_file, images, tmp_path / "run", val=json_file, model=name, epochs=2, batch_size=2, device="cpu",
        size=size, eval_every=1,
    )  # fmt: skip
    result = train(options, make_model=tiny, say=lambda line: None)
    assert result["steps"] == 4
    lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert {"loss", "loss_vfl", "loss_bbox", "loss_giou"} <= lines[0].keys()
    monkeypatch.setattr("detaug.training.predict.make_detector", tiny)
    model = load_model(tmp_path / "run/model.pt", "cpu")
    (found,) = model.predict(str(images / "00.png"), min_score=0.0)
    assert found["boxes"].shape[1] == 4
    assert set(found["labels"].tolist()) <= set(range(1, len(model.class_names)))
    resumed = train(replace(options, resume=True), make_model=tiny, say=lambda line: None)
    assert resumed["steps"] == 4  # nothing was left to do


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*lr_scheduler.step.*")
@pytest.mark.parametrize("name", MAKE)
def test_a_detr_learns_eight_drawn_images(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Boxes, labels and the way from them to the model's targets and back are right.

    AP50 is 0.45 to 0.95 after so few steps, since sums of several threads differ from run to run.
    """
    monkeypatch.setitem(SMALL, "freeze_backbone_batch_norms", False)  # as `make_detr`: frozen ones learn nothing
    monkeypatch.setattr("detaug.training.options.check_size", lambda *_: None)  # these have fewer queries
    make_voc(tmp_path / "VOC", 8)
    json_file, recipe = tmp_path / "boxes.json", tmp_path / "plain.yaml"
    assert detaug("convert-voc", tmp_path / "VOC", "-o", json_file).code == 0
    da.save_recipe([da.Resize((128, 128)), da.Normalize()], recipe)
    options = TrainOptions(
        json_file, tmp_path / "VOC/JPEGImages", tmp_path / "run", val=json_file, model=name, epochs=150,
        batch_size=8, recipe=recipe, device="cpu", eval_every=150, lr=0.003, size=(128, 128),
    )  # fmt: skip
    result = train(options, make_model=tiny, say=lambda line: None)
    assert result["evaluation"]["AP50"] > 0.3


@pytest.mark.slow
@pytest.mark.parametrize(("name", "millions"), [("rt-detr-v2-r18", 20.2), ("d-fine-nano", 3.8), ("d-fine-small", 10.3)])
def test_models_have_as_many_parameters_as_the_authors(name: str, millions: float) -> None:
    """20, 4 and 10 million in the tables of RT-DETR and D-FINE, for COCO's 80 classes."""
    model = make_detr(name, 81).model
    assert sum(parameter.numel() for parameter in model.parameters()) / 1e6 == pytest.approx(millions, abs=0.06)


@pytest.fixture(scope="module", params=["rf-detr-nano", "rf-detr-seg-nano"])
def rf_detr(request: pytest.FixtureRequest) -> tuple[str, RfDetrDetector]:
    model = make_detector(request.param, 4).model
    assert isinstance(model, RfDetrDetector)
    return request.param, model


@pytest.mark.slow
def test_rf_detr_learns_and_finds(rf_detr: tuple[str, RfDetrDetector]) -> None:
    name, model = rf_detr
    row = MODELS[name]
    assert isinstance(row.size, tuple)
    assert row.size == (model.config.resolution,) * 2
    masks = torch.zeros(1, *row.size, dtype=torch.bool)
    masks[:, 50:100, 80:160] = True
    target = {**one_box()[0], "masks": masks} if row.finds == "segm" else one_box()[0]
    losses = model.train()(torch.rand(1, 3, *row.size), [target])
    kinds = {"loss_ce", "loss_bbox", "loss_giou"} | ({"loss_mask_ce", "loss_mask_dice"} if "masks" in target else set())
    assert losses.keys() == kinds
    torch.stack([*losses.values()]).sum().backward()
    assert all(loss.isfinite() for loss in losses.values())
    with torch.inference_mode():
        (found,) = model.eval()(torch.rand(1, 3, *row.size))
    assert found["labels"].min() >= 1
    assert found["labels"].max() <= 3  # never RF-DETR's class more than the dataset
    assert ("masks" in found) == (row.finds == "segm")
    if "masks" in found:
        assert found["masks"].shape[1:] == (1, *row.size)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_groups_are_those_of_rf_detr(rf_detr: tuple[str, RfDetrDetector]) -> None:
    param_groups = pytest.importorskip("rfdetr.training.param_groups")
    _, model = rf_detr
    numbers = SimpleNamespace(
        lr=1.0, lr_encoder=1.5, weight_decay=0.1, lr_vit_layer_decay=0.8, lr_component_decay=0.7,
        out_feature_indexes=model.config.out_feature_indexes,
    )  # fmt: skip
    wanted = {
        id(parameter): (group["lr"], group.get("weight_decay", 0.1))
        for group in param_groups.get_param_dict(numbers, model.net)
        for parameter in group["params"]
    }
    got = {
        id(parameter): (group["lr_factor"], group["weight_decay"])
        for group in model.parameter_groups(0.1)
        for parameter in group["params"]
    }
    assert got.keys() == wanted.keys()
    for key, numbers_of in wanted.items():
        assert got[key] == pytest.approx(numbers_of)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Serve a folder as Hugging Face's hub, from the loopback; its cache is empty."""
    from huggingface_hub import constants

    folder = tmp_path / "hub"
    folder.mkdir()

    class Hub(Quiet):
        def send_head(self) -> Any:
            self.path = self.path.replace("/resolve/main", "").split("?")[0]
            return super().send_head()

        def end_headers(self) -> None:
            self.send_header("X-Repo-Commit", "0" * 40)
            self.send_header("ETag", '"1"')
            super().end_headers()

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Hub, directory=str(folder))) as http:
        thread = Thread(target=http.serve_forever)
        thread.start()
        address = f"http://127.0.0.1:{http.server_port}"
        monkeypatch.setattr(constants, "ENDPOINT", address)
        template = "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", address + template)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        yield folder
        http.shutdown()
        thread.join()


@pytest.mark.filterwarnings("ignore")
def test_weights_of_the_hub_are_fetched_once(hub: Path, tmp_path: Path) -> None:
    """All but the last layers, which other classes need anew, are those of the file."""
    from safetensors.torch import save_file

    served = hub / "ustc-community/dfine-nano-coco"
    served.mkdir(parents=True)
    net = made(d_fine, 80)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(1.0)
    state = {name: value.clone() for name, value in net.state_dict().items() if "num_batches_tracked" not in name}
    save_file(state, served / "model.safetensors")
    said: list[str] = []
    path = pretrained_file("d-fine-nano", "coco", said.append)
    assert "fetching model.safetensors from http://127.0.0.1:" in said[0]
    (served / "model.safetensors").unlink()
    assert pretrained_file("d-fine-nano", "coco", said.append) == path
    detector, missing, _ = load_weights(tiny("d-fine-nano", 4), path)
    assert missing
    assert all("class_embed" in name or "score_head" in name for name in missing)
    own = detector.model.state_dict()
    for name, value in state.items():
        if f"net.{name}" not in missing:
            torch.testing.assert_close(own[f"net.{name}"], value)


@pytest.mark.filterwarnings("ignore")
def test_the_hub_without_the_file_is_one_error(hub: Path) -> None:
    with pytest.raises(InputError, match=r"cannot fetch model.safetensors from http://127.*give it as weights"):
        pretrained_file("rt-detr-v2-r18", "coco", lambda line: None)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("damaged", [False, True])
def test_weights_of_rf_detr_have_their_checksum(
    hub: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damaged: bool
) -> None:
    weights = pytest.importorskip("rfdetr.assets.model_weights")
    monkeypatch.setenv("RF_HOME", str(tmp_path / "kept"))
    torch.save({"model": {"class_embed.bias": torch.ones(91)}, "args": Namespace(lr=1)}, hub / "nano.pth")
    md5 = hashlib.md5((hub / "nano.pth").read_bytes()).hexdigest()
    if damaged:
        md5 = "0" * 32
    from huggingface_hub import constants

    asset = weights.ModelWeightAsset("rf-detr-nano.pth", f"{constants.ENDPOINT}/nano.pth", md5)
    monkeypatch.setattr(weights.ModelWeights, "from_filename", classmethod(lambda cls, name: asset))
    if damaged:
        with pytest.raises(InputError, match=r"cannot fetch http://127.*its MD5 is .* and must be 0000"):
            pretrained_file("rf-detr-nano", "coco", lambda line: None)
        assert not [path for path in (tmp_path / "kept").rglob("*") if path.is_file()]
        return
    path = pretrained_file("rf-detr-nano", "coco", lambda line: None)
    assert read_torch_file(path)["model"]["class_embed.bias"].shape == (91,)
    (hub / "nano.pth").unlink()
    assert pretrained_file("rf-detr-nano", "coco", lambda line: None) == path


def test_backbones_alone_are_torchvisions() -> None:
    with pytest.raises(InputError, match="the backbone of rf-detr-nano has no weights of its own; take pretrained"):
        pretrained_file("rf-detr-nano", "backbone", lambda line: None)


@pytest.mark.parametrize(
    ("name", "size", "message"),
    [
        ("d-fine-nano", 320, r"size of d-fine-nano must be \(H, W\), got 320; such as \(320, 320\)"),
        ("d-fine-nano", (250, 320), r"must be multiples of 32 from 256, got \(250, 320\); such as \(256, 320\)"),
        ("rt-detr-v2-r18", (96, 640), r"must be multiples of 32 from 128, got \(96, 640\); such as \(128, 640\)"),
        ("rf-detr-small", (384, 384), r"size of rf-detr-small must be \(512, 512\), got \(384, 384\); leave it out"),
    ],
)
def test_other_sizes_are_refused(name: str, size: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        TrainOptions(Path("a.json"), Path("b"), Path("c"), model=name, size=size)
    remedy = message.rpartition("such as ")[2]
    if remedy != message:
        better: Any = tuple(map(int, re.findall(r"\d+", remedy)))
        TrainOptions(Path("a.json"), Path("b"), Path("c"), model=name, size=better)


def test_the_smallest_sizes_have_a_place_for_each_query() -> None:
    for name, strides in {"rt-detr-v2-r18": (8, 16, 32), "d-fine-nano": (16, 32), "d-fine-small": (8, 16, 32)}.items():
        smallest = MODELS[name].smallest
        assert sum((smallest // stride) ** 2 for stride in strides) >= 300
        assert sum(((smallest - 32) // stride) ** 2 for stride in strides) < 300


@pytest.mark.parametrize(("name", "package"), [("d-fine-nano", "transformers"), ("rf-detr-nano", "rfdetr")])
def test_a_missing_package_is_named(name: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InputError, match=rf"{name} needs the package {package}: pip install 'detaug\[{package}\]'"):
        make_detector(name, 3)


def test_the_named_extras_bring_the_packages() -> None:
    extras = metadata("detaug").get_all("Provides-Extra") or []
    assert {"transformers", "rfdetr"} <= {*extras}
    for module in ("rfdetr", "torch_linear_assignment"):
        package = PACKAGES[module]
        assert any(re.match(rf"{package.name}\b.*extra == .rfdetr.", each) for each in requires("detaug") or ())


def test_the_matching_of_rf_detr_on_a_gpu_runs() -> None:
    """rfdetr imports its solver in the first step on a GPU, and never on a CPU."""
    assignment = pytest.importorskip("rfdetr.models._assignment")
    cost = torch.tensor([[5.0, 1], [2, 3], [9, 9]])
    ((of_image,),) = assignment.assign_many_bucketed([cost], [2], 1)
    assert [each.tolist() for each in of_image] == [[0, 1], [1, 0]]
