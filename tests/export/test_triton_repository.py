"""`detaug export --triton`: DALI's pipeline runs without detaug, and the ensemble finds what the model finds."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command import detaug, usage_error
from PIL import Image

import detaug as da
from detaug.demo.shapes import make_voc
from detaug.errors import InputError

pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("torchvision")

from test_export_onnx import SSDLITE, model_file, run  # noqa: E402

from detaug.export import write_triton  # noqa: E402
from detaug.export.verify import _compare  # noqa: E402

pytestmark = pytest.mark.slow

RUN = """
import sys
from pathlib import Path
import numpy as np
from nvidia.dali import Pipeline

pipeline = Pipeline.deserialize(filename=sys.argv[1])
pipeline.build()
pipeline.feed_input("encoded", [np.fromfile(path, np.uint8) for path in sys.argv[3:]])
images, sizes = (np.stack([np.array(out.at(at)) for at in range(len(sys.argv) - 3)]) for out in pipeline.run())
np.savez(sys.argv[2], images=images, sizes=sizes)
assert not any(name.split(".")[0] == "detaug" for name in sys.modules)
"""
"""Decodes and resizes image files by the pipeline of a repository, in a process that does not import detaug."""


@pytest.fixture(scope="module")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Files of several sizes, of which one is turned by its EXIF orientation."""
    folder = tmp_path_factory.mktemp("photographs")
    make_voc(folder, 3)
    files = sorted((folder / "JPEGImages").glob("*.jpg"))
    turned = Image.open(files[0]).rotate(90, expand=True)
    exif = Image.Exif()
    exif[0x0112] = 6  # shown after a turn by 90 degrees clockwise, which is how it was taken
    turned.save(files[1], exif=exif, quality=95)
    wide = Image.open(files[2])
    wide.resize((wide.width * 2, wide.height)).save(files[2], quality=95)
    return files


def repository(folder: Path, **resize: Any) -> tuple[Path, Any]:
    trained = write_triton(
        model_file(folder / "model.pt", SSDLITE, (320, 320), **resize), folder / "repository", batch=4
    )
    return folder / "repository", trained


@pytest.mark.parametrize("letterbox", [None, "center", "top-left"])
def test_the_pipeline_is_that_of_the_evaluation(letterbox: str | None, photographs: list[Path], tmp_path: Path) -> None:
    folder, trained = repository(tmp_path, letterbox=letterbox)
    out = tmp_path / "out.npz"
    pipeline = folder / "preprocess/1/model.dali"
    subprocess.run([sys.executable, "-c", RUN, str(pipeline), str(out), *map(str, photographs)], check=True)
    content = np.load(out)
    resize, normalize = trained.ops
    mean, std = (np.array(values).reshape(3, 1, 1) for values in (normalize.mean, normalize.std))
    pixels = [np.asarray(Image.open(path).convert("RGB")) for path in photographs]
    pixels[1] = np.rot90(pixels[1], -1)  # as EXIF says
    assert content["sizes"].tolist() == [[*image.shape[:2]] for image in pixels]
    for image, got in zip(pixels, content["images"], strict=True):
        (wanted,) = da.batch([np.ascontiguousarray(image)], device="cpu").then(resize, normalize).images
        difference = np.abs(got - (np.asarray(wanted) * std + mean)) * 255
        assert difference.mean() < 0.2
        assert np.quantile(difference, 0.999) <= 2  # a row beside the fill of a letterbox may be another one
    found = run(folder / "detector/1/model.onnx", content["images"], content["sizes"].tolist())
    for path, other in zip(photographs, found, strict=True):
        (one,) = trained.predict(str(path), min_score=0.0)
        (sure, unmatched, _), _ = _compare(one, other)
        assert sure > 10
        assert unmatched <= sure // 5  # other pixels by up to 2 of 255, and scores of random weights


def test_the_configs_are_of_tritons_format(tmp_path: Path) -> None:
    """They parse as ModelConfig; names, types and shapes are those of the files."""
    onnx = pytest.importorskip("onnx")
    text_format = pytest.importorskip("google.protobuf.text_format")
    spec = importlib.util.find_spec("tritonclient")
    if spec is None or spec.submodule_search_locations is None:
        pytest.skip("tritonclient is not installed")
    path = Path(spec.submodule_search_locations[0]) / "grpc/model_config_pb2.py"  # grpc/__init__.py needs grpc
    module_spec = importlib.util.spec_from_file_location("model_config_pb2", path)
    assert module_spec is not None
    assert module_spec.loader is not None
    model_config: Any = importlib.util.module_from_spec(module_spec)
    module_spec.loader.exec_module(model_config)
    folder, _ = repository(tmp_path)
    configs = {
        name: text_format.Parse((folder / name / "config.pbtxt").read_text(), model_config.ModelConfig())
        for name in ("preprocess", "detector", "image_detector")
    }
    assert {path.name for path in folder.iterdir()} == {*configs}
    for name, config in configs.items():
        assert config.name == name
        assert config.max_batch_size == 4
    assert [config.backend or config.platform for config in configs.values()] == ["dali", "onnxruntime", "ensemble"]
    graph = onnx.load(folder / "detector/1/model.onnx").graph
    types = {1: model_config.TYPE_FP32, 7: model_config.TYPE_INT64}
    for wanted, tensors in ((configs["detector"].input, graph.input), (configs["detector"].output, graph.output)):
        assert [tensor.name for tensor in wanted] == [tensor.name for tensor in tensors]
        for tensor, value in zip(wanted, tensors, strict=True):
            assert tensor.data_type == types[value.type.tensor_type.elem_type]
            rank = len(value.type.tensor_type.shape.dim) - 1
            assert len(tensor.reshape.shape if tensor.HasField("reshape") else tensor.dims) == rank
    assert [*configs["detector"].input[0].dims] == [3, 320, 320]
    steps = configs["image_detector"].ensemble_scheduling.step
    assert [step.model_name for step in steps] == ["preprocess", "detector"]
    assert {*steps[0].output_map} == {*steps[1].input_map} == {"images", "source_size"}
    assert {*steps[1].output_map} == {output.name for output in configs["image_detector"].output}
    assert {*steps[0].input_map} == {tensor.name for tensor in configs["image_detector"].input} == {"encoded"}


def test_nothing_is_left_or_replaced(tmp_path: Path) -> None:
    folder, _ = repository(tmp_path)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(InputError, match="repository exists and is not empty; give the name of a new folder"):
        write_triton(tmp_path / "model.pt", folder)
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    torch.save({"a": 1}, tmp_path / "other.pt")
    with pytest.raises(InputError, match="is not a model"):
        write_triton(tmp_path / "other.pt", tmp_path / "new")
    assert {path.name for path in tmp_path.iterdir()} == {"model.pt", "other.pt", "repository"}


def test_the_command(tmp_path: Path) -> None:
    model = model_file(tmp_path / "model.pt", SSDLITE, (320, 320))
    result = detaug("export", model, "--triton", tmp_path / "repository")
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith(f"written: {tmp_path / 'repository'}, ")
    assert result.out.endswith(" MB, input 320 x 320, batch 8\n")
    assert "give -o MODEL.onnx, or --triton FOLDER" in usage_error("export", model)
    words = ["--triton", tmp_path / "b", "--batch", "dynamic"]
    assert "--batch must be a number with --triton" in usage_error("export", model, *words)
    assert not (tmp_path / "b").exists()
