"""`detaug train --pretrained`: weights fetched by torchvision from a server of the tests, and those of backbones."""

from __future__ import annotations

import gc
import hashlib
import io
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import torch
from painted_files import Folder, paint_files
from reference import require_torchvision
from torch import nn

import detaug as da
from detaug.cli.main import main
from detaug.training.detectors import make_detector
from detaug.training.pretrained import pretrained_file
from detaug.training.weights import load_weights

models = require_torchvision("torchvision.models")
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # torch closes no connection
NAME = "ssdlite320_mobilenet_v3_large"

Serve = Callable[..., str]


class Quiet(SimpleHTTPRequestHandler):
    """Serves a folder and logs nothing."""

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Return a function that serves a model as torchvision's weights, from the loopback; torch's cache is empty."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    before = []
    folder = tmp_path / "served"
    folder.mkdir()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as http:
        thread = Thread(target=http.serve_forever)
        thread.start()

        def function(weights: Any, model: nn.Module, checksum: str = "") -> str:
            content = io.BytesIO()
            torch.save(model.state_dict(), content)
            name = f"weights-{checksum or hashlib.sha256(content.getvalue()).hexdigest()[:8]}.pth"
            (folder / name).write_bytes(content.getvalue())
            before.append((weights.value, weights.value.url))
            object.__setattr__(weights.value, "url", f"http://127.0.0.1:{http.server_port}/{name}")
            return name

        yield function
        for value, url in before:
            object.__setattr__(value, "url", url)
        http.shutdown()
        thread.join()


def test_weights_are_fetched_once(serve: Serve, tmp_path: Path) -> None:
    name = serve(models.get_model_weights(NAME).DEFAULT, nn.Linear(2, 3))
    said: list[str] = []
    path = pretrained_file(NAME, "coco", said.append)
    assert path == tmp_path / "torch/hub/checkpoints" / name
    (first,) = said
    assert first.startswith("SSDLite320_MobileNet_V3_Large_Weights.COCO_V1: fetching 13 MB from http://127.0.0.1:")
    assert first.endswith(f"{name}, kept as {path}")
    (tmp_path / "served" / name).unlink()
    assert pretrained_file(NAME, "coco", said.append) == path
    assert said[1:] == [f"SSDLite320_MobileNet_V3_Large_Weights.COCO_V1: {path}"]


@pytest.mark.parametrize("fault", ["missing", "checksum", "network"])
def test_what_cannot_be_fetched(serve: Serve, tmp_path: Path, fault: str) -> None:
    """The error says what to bring and where to: with that file it works."""
    weights = models.get_model_weights(NAME).DEFAULT
    name = serve(weights, nn.Linear(2, 3), "0" * 8 if fault == "checksum" else "")
    file = tmp_path / "served" / name
    content = file.read_bytes()
    if fault == "missing":
        file.unlink()
    if fault == "network":
        object.__setattr__(weights.value, "url", f"http://127.0.0.1:9/{name}")
    message = r"cannot fetch http://127\.0\.0\.1:\d+/weights-\w+\.pth .*; bring the file to "
    with pytest.raises(da.InputError, match=message) as caught:
        pretrained_file(NAME, "coco", lambda _: None)
    place = Path(str(caught.value).rpartition(" ")[2])
    del caught
    gc.collect()  # here: of the connections that torch does not close
    assert not place.exists()
    place.write_bytes(content)
    assert pretrained_file(NAME, "coco", lambda _: None) == place


def test_the_narrow_backbone() -> None:
    with pytest.raises(da.InputError, match="take pretrained 'coco'"):
        pretrained_file(NAME, "backbone", lambda _: None)


BACKBONES = {
    "ssd300_vgg16": ("VGG16_Weights.IMAGENET1K_FEATURES", lambda: models.vgg16(weights=None)),
    "retinanet_resnet50_fpn_v2": ("ResNet50_Weights.IMAGENET1K_V1", lambda: models.resnet50(weights=None)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BACKBONES)
def test_the_backbone_is_that_of_torchvision(serve: Serve, name: str) -> None:
    """Where torchvision puts the weights of the classifier when it makes the detector itself."""
    weights_name, make = BACKBONES[name]
    weights, classifier = models.get_weight(weights_name), make()
    serve(weights, classifier)
    theirs = getattr(models.detection, name)(weights=None, weights_backbone=weights, num_classes=4).state_dict()
    loaded, missing, _ = load_weights(make_detector(name, 4), pretrained_file(name, "backbone", lambda _: None))
    own = loaded.model.state_dict()
    of_classifier = [each for each in own if each not in missing and "num_batches_tracked" not in each]
    others = ("fc.", "classifier.")
    given = [each for each in classifier.state_dict() if not (each.startswith(others) or "num_batches" in each)]
    assert len(of_classifier) == len(given)
    assert all(own[each].equal(theirs[each]) for each in of_classifier)


@pytest.mark.slow
def test_weights_of_a_segmentation_model(serve: Serve, tmp_path: Path) -> None:
    """The backbone is where torchvision puts it; of all weights, the last layers alone depend on the classes."""
    name, segmentation = "lraspp_mobilenet_v3_large", models.segmentation
    weights = models.get_weight("MobileNet_V3_Large_Weights.IMAGENET1K_V1")
    serve(weights, models.mobilenet_v3_large(weights=None))
    theirs = segmentation.lraspp_mobilenet_v3_large(weights=None, weights_backbone=weights, num_classes=4).state_dict()
    loaded, missing, _ = load_weights(make_detector(name, 4), pretrained_file(name, "backbone", lambda _: None))
    own = loaded.model.state_dict()
    of_backbone = [each for each in theirs if each.startswith("backbone.") and "num_batches" not in each]
    assert len(of_backbone) > 200
    assert all(own[f"net.{each}"].equal(theirs[each]) for each in of_backbone)
    assert all(each.startswith("net.classifier.") for each in missing)
    whole = segmentation.lraspp_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=21)
    serve(models.get_model_weights(name).DEFAULT, whole)
    loaded, missing, _ = load_weights(make_detector(name, 4), pretrained_file(name, "coco", lambda _: None))
    assert {each.split(".")[2] for each in missing} == {"low_classifier", "high_classifier"}
    own = loaded.model.state_dict()
    kept = [each for each in own if each not in missing]
    assert all(own[each].equal(whole.state_dict()[each.removeprefix("net.")]) for each in kept)
    torch.save(make_detector("fcos_resnet50_fpn", 4).model.state_dict(), tmp_path / "other.pth")
    with pytest.raises(da.InputError, match=r"other\.pth does not fit the model"):
        load_weights(make_detector(name, 4), tmp_path / "other.pth")


@pytest.mark.slow
def test_a_backbone_of_the_detector_and_of_another_model(tmp_path: Path) -> None:
    model = make_detector("retinanet_resnet50_fpn_v2", 4).model
    torch.save(model.backbone.state_dict(), tmp_path / "backbone.pth")
    loaded, missing, _ = load_weights(make_detector("retinanet_resnet50_fpn_v2", 9), tmp_path / "backbone.pth")
    assert all(each.startswith("head.") for each in missing)
    assert loaded.model.backbone.body.layer4[2].conv3.weight.equal(model.backbone.body.layer4[2].conv3.weight)
    for other in (models.resnet101, models.resnet18, models.mobilenet_v2):
        torch.save(other(weights=None).state_dict(), tmp_path / "other.pth")
        with pytest.raises(da.InputError, match=r"other\.pth does not fit the model"):
            load_weights(make_detector("retinanet_resnet50_fpn_v2", 9), tmp_path / "other.pth")


@pytest.mark.slow
def test_the_command_starts_from_the_weights(
    serve: Serve, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    """The head is made for the classes of the JSON file, the rest is torchvision's."""
    painted: Folder = paint_files(tmp_path_factory.mktemp("painted"))
    theirs = getattr(models.detection, NAME)(weights=None, weights_backbone=None, num_classes=91)
    serve(models.get_model_weights(NAME).DEFAULT, theirs)
    settings = f"--model {NAME} --epochs 1 --batch-size 21 --lr 1e-9 --pretrained coco --device cpu"
    output = ("-o", str(tmp_path / "run"))
    assert main(["train", str(painted[1]), str(painted[0]), *settings.split(), *output]) == 0
    printed = capsys.readouterr().out
    assert "fetching 13 MB from" in printed
    assert "weights are initialized at random" in printed
    trained = torch.load(tmp_path / "run/model.pt", weights_only=True)["model"]
    name = "backbone.features.0.0.0.weight"
    torch.testing.assert_close(trained[name], theirs.state_dict()[name], atol=1e-5, rtol=0)
