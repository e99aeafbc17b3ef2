"""Images in S3: a real server, and a proxy in front of it that delays, refuses, resets and cuts answers short."""

from __future__ import annotations

import fcntl
import gc
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from object_server import Fault, FaultyProxy, Request, client, put, upload
from painted_files import Folder, same
from PIL import Image
from seeds import slow
from shard_files import flip_a_bit
from train_run import options, tiny

import detaug as da
from detaug.cli.main import main
from detaug.converters import pack_coco, split_coco
from detaug.loading import epochs
from detaug.sheets.photos import read_photos
from detaug.storage import local_cache, object_store, pieces
from detaug.storage.local_cache import CacheFull, LocalCache
from detaug.storage.pieces import cut_pieces
from detaug.storage.prefetch import Order, plan_downloads
from detaug.storage.storage import Upcoming
from detaug.training import train

pytest.importorskip("obstore", reason="obstore, which reads buckets, has no wheel for Python 3.10")

RECIPE = [da.RandomIoUCrop(), da.RandomHorizontalFlip(), da.Resize((90, 120)), da.Normalize()]
NAMES = (f"bucket{number}" for number in count())


def packed(painted: Folder, folder: Path) -> Path:
    pack_coco(painted[1], painted[0], folder, format="webdataset", shard_size="30kB")
    return folder


@pytest.fixture
def remote(painted: Folder, s3: FaultyProxy, tmp_path: Path) -> Callable[..., da.CocoReader]:
    """Make a reader of the painted files, or their shards, in a bucket of their own."""
    address = upload(painted[0], next(NAMES), "VOC/images")

    def make(shards: bool = False, **options: Any) -> da.CocoReader:
        at = upload(packed(painted, tmp_path / "packed"), next(NAMES)) if shards else address
        return da.CocoReader(at, f"{at}/annotations.json", **{"cache_folder": tmp_path / "cache"} | options)

    return make


def loader(source: da.Source, **arguments: Any) -> da.Loader:
    return da.Loader(source, RECIPE, 4, **{"device": "cpu", "seed": 3} | arguments)


def assert_same(found: da.Loader, painted: Folder, epochs: int = 2, **arguments: Any) -> None:
    files = loader(da.CocoReader(*painted), **arguments)
    for _ in range(epochs):
        assert all(same(a, b) for a, b in zip(files, found, strict=True))


# ------------------------------------------------------------------------------------------- what is read


@pytest.mark.parametrize("shards", [True, *slow(False)])
def test_each_byte_is_downloaded_once(
    shards: bool, remote: Callable[..., da.CocoReader], painted: Folder, s3: FaultyProxy
) -> None:
    reader = remote(shards)
    before = len(s3.objects_read())
    assert_same(loader(reader), painted)
    read = s3.objects_read()[before:]
    assert len(read) == (len(set(read)) if shards else 21)
    assert_same(loader(remote(shards) if not shards else reader), painted)
    assert not [name for name in s3.objects_read()[before + len(read) :] if not name.endswith(".json")]


def test_names_are_addresses(remote: Callable[..., da.CocoReader]) -> None:
    reader = remote()
    assert str(reader.path(3)).startswith("s3://bucket")
    assert str(reader.path(3)).endswith("/VOC/images/03.png")
    assert repr(reader).startswith("CocoReader('s3://bucket")


def test_names_that_begin_at_the_folder_itself(s3: FaultyProxy, painted: Folder, tmp_path: Path) -> None:
    document = json.loads(painted[1].read_bytes())
    for image in document["images"]:
        image["file_name"] = f".//{image['file_name']}"
    address = upload(painted[0], next(NAMES))
    (tmp_path / "other.json").write_text(json.dumps(document))
    assert_same(loader(da.CocoReader(address, tmp_path / "other.json", cache_folder=tmp_path / "cache")), painted, 1)


def test_evaluation_and_pictures_read_a_json_in_a_bucket(remote: Callable[..., da.CocoReader], painted: Folder) -> None:
    def metrics(reader: da.CocoReader, annotations: da.CocoReader | str) -> Any:
        evaluator = da.CocoEvaluator(annotations)
        for batch in da.Loader(reader, [da.Resize((60, 80))], 4, device="cpu", train=False):
            found = [{**target, "scores": torch.ones(len(target["labels"]))} for target in batch.targets()]
            evaluator.update(batch, found)
        return evaluator.compute()

    reader, local = remote(), da.CocoReader(*painted)
    expected = metrics(local, local)
    assert expected.AP50 > 0.9
    assert metrics(reader, reader) == expected
    assert metrics(local, str(reader.annotations)) == expected
    for one, other in zip(read_photos(reader, [0, 5]), read_photos(local, [0, 5]), strict=True):
        assert np.array_equal(one.pixels, other.pixels)
        assert np.array_equal(one.boxes, other.boxes)


def test_a_reader_is_evaluated_with_the_json_that_it_read(
    remote: Callable[..., da.CocoReader], s3: FaultyProxy
) -> None:
    """Not with one that is in its place by now, and without the network."""
    reader = remote()
    bucket, name = str(reader.annotations).removeprefix("s3://").split("/", 1)
    put(bucket, name, b"{}")
    s3.fault = lambda _: Fault(status=500, message="away")
    evaluator = da.CocoEvaluator(reader)
    assert len(evaluator.detections) == 0
    assert evaluator.annotations == reader.annotations_file


@pytest.mark.usefixtures("s3")
def test_errors_of_a_json_in_a_bucket_name_it(painted: Folder, tmp_path: Path) -> None:
    """The copy in the cache is never named, and the remedy for a copy works."""
    bucket = next(NAMES)
    address = upload(painted[0], bucket, "VOC")
    document = json.loads(painted[1].read_bytes())

    def error(changes: dict[str, Any], read: Callable[..., Any] = da.CocoReader, **options: Any) -> str:
        changed = {**document, "annotations": [{**each, **changes} for each in document["annotations"]]}
        put(bucket, "VOC/a.json", json.dumps(changed).encode())
        (tmp_path / "a.json").write_text(json.dumps(changed))
        with pytest.raises(da.AnnotationError) as caught:
            read(address, f"{address}/a.json", cache_folder=tmp_path / "cache", **options)
        text = str(caught.value)
        assert text.startswith(f"{address}/a.json:")
        assert str(tmp_path) not in text
        assert f"detaug check {address}" not in text
        return text

    ring = {"segmentation": [[1, 2, 3]]}
    for text, code in ((error({"category_id": 99}), 1), (error(ring, masks=True), 1), (error({"bbox": [1]}), 1)):
        assert "with a copy of it, detaug check a.json IMAGES lists them all" in text
        assert main(["check", str(tmp_path / "a.json"), str(painted[0])]) == code
    assert "no annotation has a segmentation" in error({}, masks=True)
    assert "no videos" in error({}, da.ClipReader, frames=2)
    with pytest.raises(da.AnnotationError, match=f"no such folder; .* that {address}/annotations.json names"):
        da.CocoReader(tmp_path / "none", f"{address}/annotations.json", cache_folder=tmp_path / "cache")


@pytest.mark.parametrize(
    "command",
    ["check s3://b/a.json .", "preview gs://b/a.json . -o a.png", "split s3://b/a.json --ratios 1,1", "convert s3://b"],
)
def test_a_command_that_reads_a_disk_says_so(command: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(command.split()) == 2
    assert re.match(r"detaug: (s3|gs)://b(/a.json)? is in a bucket; give a path on a disk", capfd.readouterr().err)
    with pytest.raises(da.InputError, match=r"s3://bucket/a.json is in a bucket; .* of a copy"):
        split_coco(Path("s3://bucket/a.json"), [tmp_path / "b.json", tmp_path / "c.json"], [1, 1])  # it is s3:/bucket


@pytest.mark.parametrize(
    "read",
    [
        lambda: da.ImageFolder("s3://b/a"),
        lambda: da.VideoReader("s3://b/a"),
        lambda: da.VideoReader(["s3://b/a"]),
        lambda: da.VideoReader("s3://b/a", annotations="a.json"),
    ],
)
def test_a_reader_that_reads_a_disk_says_so(read: Callable[[], da.Source]) -> None:
    with pytest.raises(da.InputError, match=r"^s3://b/a is in a bucket; give a path on a disk"):
        read()


@pytest.mark.slow
def test_training_evaluates_on_a_bucket(remote: Callable[..., da.CocoReader], painted: Folder, tmp_path: Path) -> None:
    reader = remote()
    files = str(reader.images), str(reader.annotations)
    more = {"val": files[1], "val_images": files[0], "eval_every": 1, "epochs": 1}
    found = train(options(*files, tmp_path / "run", **more), make_model=tiny(), say=lambda _: None)
    local = {**more, "val": painted[1], "val_images": painted[0]}
    expected = train(options(*painted, tmp_path / "local", **local), make_model=tiny(), say=lambda _: None)
    assert found["evaluation"] == expected["evaluation"]
    assert (tmp_path / "run/predictions.jpg").is_file()


def test_names_that_mean_more_in_a_url(s3: FaultyProxy, painted: Folder, tmp_path: Path) -> None:
    """All characters are the names' own, as in boto3: %20 is no space, ? begins no query."""
    document = json.loads(painted[1].read_bytes())
    names = ["a b", "a#b", "a%20b", "a+b", "ä日", "a?b", "a%", "a\\b"]
    for image, name in zip(document["images"], names, strict=False):
        (painted[0] / image["file_name"]).rename(painted[0] / f"{name}.png")
        image["file_name"] = f"{name}.png"
    painted[1].write_text(json.dumps(document))
    address = upload(painted[0], next(NAMES), "a b/c#d/e%20f/g?h=ä/i ")
    put(address.split("/")[2], "a b/c#d/annotations.json", painted[1].read_bytes())
    annotations = f"{address.split('#')[0]}#d/annotations.json"
    assert_same(loader(da.CocoReader(f"{address}/", annotations, cache_folder=tmp_path / "cache")), painted, epochs=1)


@pytest.mark.slow
def test_an_image_that_changed_in_the_cache_is_downloaded_again(
    s3: FaultyProxy, painted: Folder, tmp_path: Path
) -> None:
    address = upload(packed(painted, tmp_path / "packed"), next(NAMES))
    files = (address, f"{address}/annotations.json")
    list(loader(da.CocoReader(*files, cache_folder=tmp_path / "cache")))
    pieces = [path for path in (tmp_path / "cache").glob("??/*") if path.stat().st_size > 1000]
    for path in pieces:
        with path.open("r+b") as piece:  # not cut to nothing on the way: pipelines that end may still read it
            piece.write(bytes(path.stat().st_size))
    assert_same(loader(da.CocoReader(*files, cache_folder=tmp_path / "cache")), painted)
    assert pieces
    assert all(any(path.read_bytes()) for path in pieces)


def test_an_image_that_changed_in_the_store_is_skipped(s3: FaultyProxy, painted: Folder, tmp_path: Path) -> None:
    address = upload(packed(painted, tmp_path / "packed"), next(NAMES))
    row = json.loads((tmp_path / "packed" / "annotations.json").read_bytes())["images"][13]
    flip_a_bit(tmp_path / "packed" / row["shard"], row["offset"] + row["length"] // 2)
    put(address.split("/")[2], row["shard"], (tmp_path / "packed" / row["shard"]).read_bytes())
    reader = da.CocoReader(address, f"{address}/annotations.json", cache_folder=tmp_path / "cache")
    skipping = loader(reader, train=False, on_error="skip", max_skipped=1.0)
    with pytest.warns(UserWarning, match=rf"{row['shard']}/13\.png cannot be read \(its bytes, from"):
        assert sum(map(len, skipping)) == 20
    with pytest.raises(da.DataError, match=r"CRC-32C .*; put the object there again"):
        list(loader(reader, train=False))


@pytest.mark.slow
def test_files_beside_shards(remote: Callable[..., da.CocoReader], painted: Folder, tmp_path: Path) -> None:
    folder = packed(painted, tmp_path / "both")
    document = json.loads((folder / "annotations.json").read_bytes())
    for image in document["images"][::3]:
        for key in ("shard", "offset", "length", "crc32c"):
            del image[key]
        (folder / image["file_name"]).write_bytes((painted[0] / image["file_name"]).read_bytes())
    (folder / "annotations.json").write_text(json.dumps(document))
    address = upload(folder, next(NAMES))
    assert_same(loader(da.CocoReader(address, folder / "annotations.json", cache_folder=tmp_path / "cache")), painted)


@pytest.mark.slow
def test_many_objects_are_listed(
    remote: Callable[..., da.CocoReader], painted: Folder, s3: FaultyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("detaug.storage.bucket.LIST_FROM", 10)
    before = len(s3.requests)
    reader = remote()
    assert sum(request.method == "HEAD" for request in s3.requests[before:]) == 1  # the JSON file's
    assert_same(loader(reader), painted)


@pytest.mark.slow
def test_the_loader_reads_ahead(remote: Callable[..., da.CocoReader], s3: FaultyProxy) -> None:
    """All images are downloaded while nobody has begun an epoch."""
    reader = remote()
    before = len(s3.objects_read())
    batches = loader(reader, pipelines=1)
    until(lambda: len(s3.objects_read()) - before >= 21)
    first = s3.objects_read()[before:]
    order = [f"{int(i) - 10:02}.png" for batch in batches for i in batch.image_id]
    assert {Path(name).name for name in first} == set(order[:21])


@pytest.mark.slow
def test_training_reads_ahead_after_an_evaluation(
    remote: Callable[..., da.CocoReader], painted: Folder, s3: FaultyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two loaders of one reader take turns; the cache has room for a part of the images."""
    monkeypatch.setattr("detaug.storage.prefetch.WINDOW_SHARE", 0.9)
    reader = remote(cache_size=sum(path.stat().st_size for path in painted[0].glob("*.png")) // 2)
    training, evaluation = loader(reader, pipelines=1), loader(reader, pipelines=1, train=False)
    for loop in (training, evaluation):
        list(loop)
    batches = iter(training)
    next(batches)
    before = len(s3.objects_read())
    until(lambda: len(s3.objects_read()) > before)


@pytest.mark.slow
def test_joined_readers_are_asked_from_several_threads(
    remote: Callable[..., da.CocoReader], painted: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("detaug.loading.epochs.ranks_of_machine", slowly(epochs.ranks_of_machine))
    joined = loader(da.ConcatReader([remote(), remote(shards=True)]))
    files = loader(da.ConcatReader([da.CocoReader(*painted), da.CocoReader(*painted)]))
    for _ in range(3):
        assert all(same(a, b) for a, b in zip(files, joined, strict=True))


def slowly(function: Callable[..., Any]) -> Callable[..., Any]:
    def slow_function(*arguments: Any) -> Any:
        time.sleep(0.05)
        return function(*arguments)

    return slow_function


@pytest.mark.slow
def test_a_small_cache_keeps_what_is_needed_next(
    remote: Callable[..., da.CocoReader], painted: Folder, tmp_path: Path
) -> None:
    size = sum(path.stat().st_size for path in painted[0].glob("*.png"))
    reader = remote(cache_size=size // 2)
    most = [0]
    batches = loader(reader)
    files = loader(da.CocoReader(*painted))
    for _ in range(3):
        for a, b in zip(files, batches, strict=True):
            assert same(a, b)
            most.append(cached_bytes(tmp_path / "cache"))
    assert size // 4 < max(most) <= size // 2


@pytest.mark.slow
def test_evaluation_and_a_state(remote: Callable[..., da.CocoReader], painted: Folder) -> None:
    assert_same(loader(remote(), train=False), painted, train=False)
    whole, stopped = loader(remote()), loader(remote())
    for step, _ in enumerate(stopped):
        if step == 2:
            break
    again = loader(remote())
    again.load_state_dict(stopped.state_dict())
    assert all(same(a, b) for a, b in zip([*whole][3:], again, strict=True))


@pytest.mark.slow
def test_shards_of_a_machine_share_the_downloads(
    remote: Callable[..., da.CocoReader], painted: Folder, s3: FaultyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    readers = [remote(), remote()]
    before = len(s3.objects_read())
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    loaders = []
    for rank, reader in enumerate(readers):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("LOCAL_RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", "2")
        loaders.append(loader(reader, shard=(rank, 2)))
    for _ in range(3):
        for _ in zip(*loaders, strict=True):
            pass
    assert len(s3.objects_read()) - before == 21


# ------------------------------------------------------------------------------------------- networks


def sometimes(fault: Fault, every: int = 3) -> Callable[[Request], Fault | None]:
    """Return a rule by which each `every`th request for an object fails."""
    number = count(1)
    return lambda request: fault if request.method == "GET" and next(number) % every == 0 else None


@pytest.mark.parametrize(
    "fault",
    [Fault(cut_after=100), *slow(Fault(status=503, message="Slow down"), Fault(cut_after=0), Fault(seconds=0.05))],
    ids=["cut short", "503", "reset", "slow"],
)
@pytest.mark.parametrize("shards", [False, *slow(True)])
def test_a_bad_network_changes_no_pixel(
    fault: Fault, shards: bool, remote: Callable[..., da.CocoReader], painted: Folder, s3: FaultyProxy
) -> None:
    reader = remote(shards)
    s3.fault = sometimes(fault)
    assert_same(loader(reader), painted)


@pytest.mark.slow
def test_a_server_that_does_not_answer_is_asked_again(
    remote: Callable[..., da.CocoReader], painted: Folder, s3: FaultyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_store, "SILENT_SECONDS", 1)
    reader = remote()
    s3.fault = sometimes(Fault(seconds=4), every=7)
    assert_same(loader(reader), painted, epochs=1)


@pytest.mark.slow
@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_a_server_that_stays_away_is_named_and_nothing_skipped(
    on_error: Any, remote: Callable[..., da.CocoReader], s3: FaultyProxy
) -> None:
    reader = remote()
    s3.fault = lambda request: Fault(status=503, message="Slow down")
    with pytest.raises(da.DataError, match=r"s3://.*/VOC/images/\d\d.png: cannot be read .*Slow down"):
        list(loader(reader, on_error=on_error, max_skipped=1.0))


@pytest.mark.slow
def test_the_loader_goes_on_when_the_network_is_back(
    remote: Callable[..., da.CocoReader], painted: Folder, s3: FaultyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = remote()
    s3.fault = lambda request: Fault(status=503, message="Slow down")
    with pytest.raises(da.DataError):
        next(iter(loader(reader)))
    s3.fault = lambda request: None
    assert_same(loader(reader), painted)


# ------------------------------------------------------------------------------------------- refusals


def test_an_object_that_is_gone_is_skipped_or_named(
    remote: Callable[..., da.CocoReader], painted: Folder, s3: FaultyProxy
) -> None:
    reader = remote()
    bucket = reader.path(0).parts[1]
    client().delete_object(Bucket=bucket, Key="VOC/images/13.png")
    with pytest.raises(da.DataError, match=r"s3://.*13.png does not exist any more; put the object"):
        list(loader(reader))
    with pytest.warns(UserWarning, match=r"s3://.*13.png does not exist any more; skipped"):
        batches = list(loader(reader, on_error="skip", max_skipped=1.0))
    assert 23 not in [int(i) for batch in batches for i in batch.image_id]
    with pytest.warns(UserWarning, match="skipped"):
        evaluated = list(loader(reader, on_error="skip", max_skipped=1.0, train=False))
    assert [int(i) for batch in evaluated for i in batch.image_id] == [i for i in range(10, 31) if i != 23]


@pytest.mark.slow
def test_an_object_that_changed_is_named(remote: Callable[..., da.CocoReader], painted: Folder) -> None:
    reader = remote()
    put(reader.path(0).parts[1], "VOC/images/13.png", (painted[0] / "12.png").read_bytes())
    with pytest.raises(da.DataError, match=r"s3://.*13.png does not exist any more|changed"):
        list(loader(reader))


@pytest.mark.slow
def test_a_new_reader_downloads_what_changed(remote: Callable[..., da.CocoReader], painted: Folder) -> None:
    reader = remote()
    assert_same(loader(reader), painted, epochs=1)
    with Image.open(painted[0] / "13.png") as image:
        Image.eval(image, lambda value: 255 - value).save(painted[0] / "13.png")
    put(reader.path(0).parts[1], "VOC/images/13.png", (painted[0] / "13.png").read_bytes())
    assert_same(loader(remote()), painted, epochs=1)


@pytest.mark.slow
def test_missing_objects_are_named_when_the_reader_is_made(
    remote: Callable[..., da.CocoReader], painted: Folder
) -> None:
    bucket = remote().path(0).parts[1]
    client().delete_object(Bucket=bucket, Key="VOC/images/13.png")
    reader = remote()
    assert reader.missing.tolist() == [13]
    with pytest.raises(da.AnnotationError, match=r"1 of 21 images .*'13.png'; .* that file_name is relative to"):
        loader(reader)


@pytest.mark.parametrize("status", [403, *slow(401)])
def test_refused_credentials_are_named_and_no_image_is_blamed(
    status: int, remote: Callable[..., da.CocoReader], s3: FaultyProxy
) -> None:
    reader = remote()
    refused = Fault(status=status, message="The provided token has expired.")
    number = count()
    s3.fault = lambda request: refused if next(number) > 5 else None
    with pytest.raises(da.DataError, match=r"s3://.*png: access denied .*token has expired.*credentials"):
        list(loader(reader, on_error="skip", max_skipped=1.0))
    with pytest.raises(da.DataError, match=r"s3://.*annotations.json: access denied"):
        remote()


@pytest.mark.parametrize(
    ("status", "code", "remedy"),
    [
        (400, "ExpiredToken", r"access denied \(400: .*\); renew the credentials"),
        (400, "InvalidToken", "access denied .*; renew the credentials"),
        (403, "RequestTimeTooSkewed", "access denied .*; set this machine's clock"),
        (403, "AccessDenied", "access denied .*; check the credentials in the environment, and what they may read"),
        (400, "InvalidRequest", r"cannot be read \(400: .*\); check bucket, endpoint and network$"),
    ],
)
def test_the_remedy_is_that_of_the_stores_code(
    status: int, code: str, remedy: str, remote: Callable[..., da.CocoReader], s3: FaultyProxy
) -> None:
    reader = remote()
    fault = Fault(status=status, message="It says why.", code=code)
    s3.fault = lambda request: fault if request.method == "GET" else None
    with pytest.raises(da.DataError, match=remedy):
        list(loader(reader, on_error="skip", max_skipped=1.0))


def test_a_bad_request_without_a_reason_may_be_expired_credentials(
    remote: Callable[..., da.CocoReader], s3: FaultyProxy
) -> None:
    s3.fault = lambda request: Fault(status=400) if request.method == "HEAD" else None
    with pytest.raises(da.DataError, match=r"network, or renew the credentials .* once they are expired"):
        remote()


@pytest.mark.slow
def test_what_is_not_there_is_named(s3: FaultyProxy, painted: Folder, tmp_path: Path) -> None:
    def reader(images: str, annotations: str | Path) -> da.CocoReader:
        return da.CocoReader(images, annotations, cache_folder=tmp_path / "cache")

    with pytest.raises(da.AnnotationError, match=r"s3://no-such-bucket/a\.json: no such object"):
        reader("s3://no-such-bucket", "s3://no-such-bucket/a.json")
    with pytest.raises(da.AnnotationError, match="21 of 21 images are not in s3://no-such-bucket"):
        reader("s3://no-such-bucket", painted[1])
    with pytest.raises(da.InputError, match="http:// is not supported; s3:// and gs:// are"):
        reader("http://host/images", painted[1])
    bucket = next(NAMES)
    upload(painted[0], bucket)
    put(bucket, "broken.json", b"{")
    with pytest.raises(da.AnnotationError, match=rf"^s3://{bucket}/broken.json"):
        reader(f"s3://{bucket}", f"s3://{bucket}/broken.json")


@pytest.mark.slow
def test_missing_credentials_are_named(
    remote: Callable[..., da.CocoReader], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(da.InputError, match="no credentials for S3 were found: set AWS_ACCESS_KEY_ID"):
        remote()
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws/credentials").write_text("[default]\naws_access_key_id = a\naws_secret_access_key = b\n")
    assert len(remote()) == 21


def test_a_missing_package_is_named(remote: Callable[..., da.CocoReader], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(da.InputError, match=r"pip install 'detaug\[cloud\]'"):
        remote()


# ------------------------------------------------------------------------------------------- the cache


def test_the_proxy_says_nothing_of_a_client_that_is_gone(capfd: pytest.CaptureFixture[str]) -> None:
    """As a loader that is dropped with requests on their way; what it says would be in the output of a later test."""
    before = {*threading.enumerate()}
    with closing(FaultyProxy(0)) as proxy:
        proxy.fault = lambda _: Fault(status=500, message="x" * 5_000_000)
        with socket.create_connection(("127.0.0.1", int(proxy.address.rpartition(":")[2]))) as client:
            client.sendall(b"GET /bucket/name HTTP/1.1\r\n\r\n")
            until(lambda: bool(proxy.requests))
        until(lambda: not any("process_request" in each.name for each in {*threading.enumerate()} - before))
    assert capfd.readouterr().err == ""


def cached_bytes(folder: Path) -> int:
    """Count while no thread makes room: else a piece may count that went before another one came."""
    with open(folder / "bytes_used", "a+b") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return sum(path.stat().st_size for path in folder.glob("??/*") if path.suffix != local_cache.PARTIAL)


def until(done: Callable[[], bool], seconds: float = 120) -> None:
    """Fail if it takes longer than a busy machine needs."""
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_cache_that_cannot_be_written_is_named(remote: Callable[..., da.CocoReader], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(da.InputError, match=r"cache_folder .*file/cache cannot be written"):
        remote(cache_folder=tmp_path / "file" / "cache")
    with pytest.raises(da.InputError, match="cache_size must be bytes such as 256MB"):
        remote(cache_size="much")


@pytest.mark.slow
def test_a_full_disk_is_named(
    remote: Callable[..., da.CocoReader], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    reader = remote()
    monkeypatch.setattr("detaug.storage.local_cache._overwrite", full)
    with pytest.raises(da.DataError, match=r"cache_folder .*: No space left on device; free some space"):
        list(loader(reader, on_error="skip", max_skipped=1.0))
    assert cached_bytes(tmp_path / "cache") == 0


@pytest.mark.slow
def test_damaged_cache_files_are_downloaded_again(
    remote: Callable[..., da.CocoReader], painted: Folder, tmp_path: Path
) -> None:
    assert_same(loader(remote()), painted, epochs=1)
    files = sorted((tmp_path / "cache").glob("??/*"))
    files[0].write_bytes(files[0].read_bytes()[:-1])
    files[1].write_bytes(b"")
    files[2].unlink()
    (tmp_path / "cache" / "bytes_used").write_text("nonsense")
    assert_same(loader(remote()), painted)


@pytest.mark.parametrize(
    ("top", "folder", "file"), [(0o777, 0o777, 0o666), (0o1770, 0o770, 0o660), (0o700, 0o700, 0o600)]
)
def test_who_may_write_to_the_cache_folder_may_write_to_all_of_it(
    tmp_path: Path, top: int, folder: int, file: int
) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    cache.chmod(top)
    before = os.umask(0o022)
    try:
        LocalCache(cache, 1000).fill("aaa", 10, lambda: memoryview(bytes(10)), iter(()))
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o7777 for path in cache.rglob("*")}
    assert modes == {"aa": folder, "aaa": file, "bytes_used": file}


def test_a_cache_folder_of_another_user_is_named_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = LocalCache(tmp_path, 1000)

    def refuse(path: Path, *_: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(
        da.DataError, match=r"Permission denied for .*aaa\.partial; another user made it: .* chmod"
    ) as raised:
        cache.fill("aaa", 10, lambda: memoryview(bytes(10)), iter(()))
    assert "space" not in str(raised.value)


def test_a_cache_that_is_opened_during_a_download_keeps_its_size(tmp_path: Path) -> None:
    first = LocalCache(tmp_path, 1000)

    def fetch() -> memoryview:
        with pytest.raises(CacheFull):
            LocalCache(tmp_path, 1000).fill("bbb", 600, lambda: memoryview(bytes(600)), iter(()))
        return memoryview(b"a" * 600)

    first.fill("aaa", 600, fetch, iter(()))
    assert first.used() == cached_bytes(tmp_path) == 600
    assert bytes(first.read("aaa", 600)) == b"a" * 600
    with pytest.raises(ZeroDivisionError):
        first.fill("bbb", 100, lambda: memoryview(bytes(1 // 0)), iter(()))
    assert LocalCache(tmp_path, 1000).used() == first.used() == cached_bytes(tmp_path) == 600


def test_a_failed_download_gives_its_bytes_back(tmp_path: Path) -> None:
    """Else the cache would be full of nothing, until a process opens it and counts again."""
    cache = LocalCache(tmp_path, 1000)
    for _ in range(5):
        with pytest.raises(ZeroDivisionError):
            cache.fill("aaa", 400, lambda: memoryview(bytes(1 // 0)), iter(()))
        assert cache.used() == cached_bytes(tmp_path) == 0
    cache.fill("bbb", 900, lambda: memoryview(bytes(900)), iter(()))
    assert cache.used() == cached_bytes(tmp_path) == 900


@pytest.mark.slow
def test_other_data_goes_first(remote: Callable[..., da.CocoReader], painted: Folder, tmp_path: Path) -> None:
    assert_same(loader(remote()), painted, epochs=1)
    size = cached_bytes(tmp_path / "cache")
    reader = remote(shards=True, cache_size=size * 2)
    assert_same(loader(reader), painted)
    assert cached_bytes(tmp_path / "cache") <= size * 2


READ = """
import sys
import detaug as da
reader = da.CocoReader(sys.argv[1], sys.argv[1] + "/annotations.json", cache_folder=sys.argv[2], cache_size=sys.argv[3])
print("ready", flush=True)
for _ in range(int(sys.argv[4])):
    for batch in da.Loader(reader, [da.Resize((9, 9))], 4, device="cpu"):
        pass
print("done", flush=True)
"""


def reading(address: str, folder: Path, size: int = 10**9, epochs: int = 1) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", READ, address, str(folder), str(size), str(epochs)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_processes_that_are_killed_leave_a_cache_that_works(
    remote: Callable[..., da.CocoReader], painted: Folder, s3: FaultyProxy, tmp_path: Path
) -> None:
    address = os.fspath(remote().images)
    s3.fault = sometimes(Fault(seconds=0.2), every=2)
    for seconds in (0.1, 0.3, 0.6, 0.9):
        process = reading(address, tmp_path / "cache", epochs=50, size=4000)
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        time.sleep(seconds)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    s3.fault = lambda request: None
    assert_same(loader(remote(cache_size=4000)), painted)
    assert cached_bytes(tmp_path / "cache") <= 4000
    until(lambda: not list((tmp_path / "cache").glob("??/*.partial")))  # this process reads ahead


@pytest.mark.slow
def test_two_processes_fill_one_cache(
    remote: Callable[..., da.CocoReader], painted: Folder, s3: FaultyProxy, tmp_path: Path
) -> None:
    address = os.fspath(remote().images)
    before = len(s3.objects_read())
    processes = [reading(address, tmp_path / "cache") for _ in range(2)]
    for process in processes:
        out, errors = process.communicate()
        assert out == "ready\ndone\n", errors
    assert len([name for name in s3.objects_read()[before:] if name.endswith(".png")]) == 21


WAIT = """
import sys
from threading import Thread
import detaug as da
reader = da.CocoReader(sys.argv[1], sys.argv[1] + "/annotations.json", cache_folder=sys.argv[2])
print("ready", flush=True)
sys.stdin.readline()
def read():
    loader = da.Loader(reader, [da.Resize((9, 9))], 4, device="cpu")
    print("made", flush=True)
    next(iter(loader))
Thread(target=read, daemon=True).start()
sys.stdin.readline()
"""


@pytest.mark.slow
def test_a_process_ends_while_a_server_does_not_answer(
    remote: Callable[..., da.CocoReader], s3: FaultyProxy, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", WAIT, os.fspath(remote().images), str(tmp_path / "cache")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(command, text=True, **pipes)
    assert process.stdout
    assert process.stdout.readline() == "ready\n"
    s3.fault = sometimes(Fault(seconds=60), every=1)
    before = len(s3.objects_read())
    assert process.stdin
    process.stdin.write("go\n")
    process.stdin.flush()
    assert process.stdout.readline() == "made\n"
    until(lambda: len(s3.objects_read()) > before)
    assert process.communicate("end\n", timeout=300) == ("", "")
    assert process.returncode == 0


@pytest.mark.slow
def test_a_dropped_reader_stops_downloading(remote: Callable[..., da.CocoReader], s3: FaultyProxy) -> None:
    before = {*threading.enumerate()}
    s3.fault = sometimes(Fault(seconds=0.02), every=1)
    batches = loader(remote())
    next(iter(batches))
    batches.close()
    del batches
    gc.collect()
    until(lambda: not any(thread.name.startswith("detaug") for thread in {*threading.enumerate()} - before))


# ------------------------------------------------------------------------------------------- the plan


def test_neighbours_are_one_piece_where_all_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "PIECE_BYTES", 100)
    objects, starts = np.array([1, 0, 0, 0, 1]), np.array([5, 130, 0, 50, 40])
    lengths = np.array([30, 60, 40, 90, 10])
    table = cut_pieces(objects, starts, lengths, room=10**6)
    assert table.of_image.tolist() == [2, 1, 0, 0, 2]
    assert (table.start.tolist(), table.length.tolist()) == ([0, 130, 5], [140, 60, 45])
    assert table.offset.tolist() == [0, 0, 0, 50, 35]
    alone = cut_pieces(objects, starts, lengths, room=200)
    assert sorted(alone.length.tolist()) == sorted(lengths.tolist())
    assert (alone.start[alone.of_image] + alone.offset).tolist() == starts.tolist()
    assert alone.object[alone.of_image].tolist() == objects.tolist()


def test_a_few_images_far_apart_are_pieces_of_their_own() -> None:
    starts, lengths = np.array([0, 1_000_000, 2_000_000]), np.array([1000, 1000, 1000])
    assert cut_pieces(np.zeros(3, int), starts, lengths, room=10**9).length.tolist() == [1000] * 3
    close = np.array([0, 2000, 4000])
    assert cut_pieces(np.zeros(3, int), close, lengths, room=10**9).length.tolist() == [5000]


def test_the_window_comes_first_and_what_is_needed_last_goes() -> None:
    order, all_mine = np.array([3, 1, 3, 0, 2, 4, 1, 3]), np.ones(8, bool)
    present, lengths = np.array([False, True, False, False, True, True]), np.full(6, 10)
    found = plan_downloads(order, all_mine, present, lengths, limit=160, free=0)
    assert found.download.tolist() == [3]  # the window has 3 and 1
    assert found.removable.tolist() == [5, 4]  # never, last
    found = plan_downloads(order, all_mine, present, lengths, limit=160, free=30)
    assert found.download.tolist() == [3, 0, 2]


def test_an_order_goes_on_behind_images_that_were_passed_over() -> None:
    """A loader that keeps decoded images reads only the others."""
    epoch = Upcoming(np.array([7, 3, 9, 1, 3, 4, 8, 2, 5, 0]), np.array([True, True, False] + [True] * 7))
    order = Order(iter([epoch, epoch]))
    order.look_ahead()
    assert not order.go_behind(np.array([9]))  # another process reads it
    assert not order.go_behind(np.array([3, 7]))
    assert order.go_behind(np.array([7, 1]))
    assert order.epochs[0].indices.tolist() == [3, 4, 8, 2, 5, 0]
    assert order.go_behind(np.array([4, 2, 0]))
    assert order.left == 10


def test_an_order_goes_on_in_the_next_epoch_if_the_end_of_this_one_was_passed_over() -> None:
    """Else a loader whose last images of an epoch are kept would have nothing downloaded ahead any more."""
    epoch = Upcoming(np.array([7, 3, 9, 1]), np.ones(4, bool))
    order = Order(iter([epoch, epoch, epoch]))
    order.look_ahead()
    assert order.go_behind(np.array([7, 3]))  # 9 and 1 are kept
    assert order.go_behind(np.array([7, 9]))
    assert [each.indices.tolist() for each in order.epochs] == [[1]]
    order.look_ahead()
    assert order.go_behind(np.array([1]))
    assert order.left == 4


@pytest.mark.slow
@pytest.mark.parametrize("shards", [True, False])
def test_a_loader_that_keeps_images_downloads_only_the_others(
    shards: bool, remote: Callable[..., da.CocoReader], painted: Folder, s3: FaultyProxy
) -> None:
    """The reader's own cache holds a quarter of the files, so that each epoch downloads again."""
    size = sum(path.stat().st_size for path in painted[0].glob("*.png")) // 4
    kept = loader(remote(shards, cache_size=size), cache={"device": "600kB"})
    assert_same(kept, painted, epochs=3)
    before = len(s3.objects_read())
    assert len([*kept]) == 6
    assert 10 < kept.cached_images < 16
    assert before < len(s3.objects_read())
    everything = loader(remote(shards, cache_size=size), cache="device")
    assert_same(everything, painted, epochs=3)
    before = len(s3.objects_read())
    assert len([*everything]) == 6
    assert len(s3.objects_read()) - before <= 2  # epochs that began to be planned before all were kept


def test_what_another_process_needs_is_kept_and_not_downloaded() -> None:
    order, mine = np.array([0, 1, 2, 3]), np.array([True, False, True, False])
    found = plan_downloads(order, mine, np.array([False, True, False, True]), np.full(4, 10), limit=80, free=40)
    assert found.download.tolist() == [0, 2]
    assert found.removable.tolist() == [3, 1]
