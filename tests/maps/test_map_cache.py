"""Decoded maps that are kept on the disk: used while they are valid, never otherwise, and no different."""

from __future__ import annotations

import fcntl
import gc
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import PIL
import pytest
import torch
from full_disk import disk_for_files_of
from numpy.typing import NDArray
from panoptic_files import PaintedPanoptic
from PIL import Image

import detaug as da
from detaug.errors import InputError
from detaug.maps import files, kept, run_file
from detaug.maps.kinds import Pixels

Read = list[str]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a cache folder of its own, in which each map is written when it is decoded."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(kept, "BLOCK", 1)
    return tmp_path / "home" / "detaug" / "maps"


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> Read:
    """Return a list to which the name of each map that is decoded is added."""
    names: Read = []
    original = files.pixels_of

    def pixels_of(path: Path) -> Pixels:
        names.append(path.name)
        return original(path)

    monkeypatch.setattr(files, "pixels_of", pixels_of)
    return names


def write(folder: Path, maps: list[NDArray[np.uint8]]) -> Path:
    """Write images, and their maps in a folder beside them."""
    for name in ("images", "maps"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for index, values in enumerate(maps):
        Image.fromarray(np.full((*values.shape[:2], 3), 90, np.uint8)).save(folder / f"images/{index}.png")
        Image.fromarray(values).save(folder / f"maps/{index}.png")
    return folder


def drawn(count: int = 3, seed: int = 0, size: tuple[int, int] = (7, 9)) -> list[NDArray[np.uint8]]:
    rng = np.random.default_rng(seed)
    return [rng.integers(0, 4, (size[0] + index % 2, size[1]), np.uint8) for index in range(count)]


def reader(folder: Path, **options: Any) -> da.MapReader:
    return da.MapReader(folder / "images", folder / "maps", **options)


def values(source: da.Source, name: str = "semantic") -> list[NDArray[Any]]:
    """Return the values of each map, in the kind of the batch."""
    maps = [source.maps[name].read(index) for index in range(len(source))]
    return [own.pixels().reshape(own.shape) for own in maps]


def assert_equal(found: list[NDArray[Any]], wanted: list[NDArray[Any]]) -> None:
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


def cached(home: Path) -> Path:
    (path,) = home.iterdir()
    return path


def batches(source: da.Source) -> list[dict[str, Any]]:
    """Return the batches of two epochs, as another process has them."""
    ops = [da.RandomHorizontalFlip(), da.Resize((40, 56)), da.Mosaic()]
    loader = da.Loader(source, ops, 3, device="cpu", seed=1)
    return [
        {"boxes": batch.boxes, **{name: batch.map(name) for name in batch.maps}} for _ in range(2) for batch in loader
    ]


def assert_same_batches(found: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> None:
    for one, other in zip(found, wanted, strict=True):
        for name, tensor in one.items():
            assert tensor.dtype == other[name].dtype
            assert torch.equal(tensor, other[name])


def colored(folder: Path, **options: Any) -> da.Source:
    write(folder, [np.stack([own, 0 * own, own], 2) for own in drawn(4)])
    return reader(folder, table={(n, 0, n): 3 - n for n in range(4)}, **options)


def boxes_of(folder: Path) -> Path:
    """Write the JSON file of a folder of `write`: a box in each image."""
    rows = []
    for path in sorted((folder / "images").iterdir()):
        with Image.open(path) as image:
            rows.append({"id": len(rows) + 1, "file_name": path.name, "width": image.width, "height": image.height})
    boxes = [{"id": n + 1, "image_id": n + 1, "category_id": 1, "bbox": [1, 1, 5, 4]} for n in range(len(rows))]
    content = {"images": rows, "annotations": boxes, "categories": [{"id": 1, "name": "one"}]}
    (folder / "boxes.json").write_text(json.dumps(content))
    return folder / "boxes.json"


def tiles(folder: Path, **options: Any) -> da.Source:
    write(folder, drawn(4, size=(60, 90)))
    maps = {"semantic": da.ClassMap(folder / "maps", ignore=0)}
    return da.TileReader(da.CocoReader(folder / "images", boxes_of(folder), maps=maps, **options), 32)


def joined(folder: Path, **options: Any) -> da.Source:
    write(folder / "a", drawn(3))
    write(folder / "b", drawn(3, 1))
    return da.ConcatReader(
        [reader(folder / name, classes=list(classes), **options) for name, classes in (("a", "klmn"), ("b", "nmlk"))]
    )


def sparse(folder: Path, **options: Any) -> da.Source:
    write(folder, drawn(4))
    (folder / "maps" / "1.png").unlink()
    return reader(folder, missing="ignore", **options)


SOURCES: dict[str, Callable[..., da.Source]] = {
    "plain": lambda folder, **options: reader(write(folder, drawn(4)), **options),
    "table": lambda folder, **options: reader(write(folder, drawn(4)), table={0: 9, 1: 8, 2: 0, 3: 4}, **options),
    "colors": colored,
    "tiles": tiles,
    "joined": joined,
    "without some": sparse,
    "panoptic": lambda folder, **options: PaintedPanoptic(folder).reader(**options),
    "panoptic tiles": lambda folder, **options: da.TileReader(PaintedPanoptic(folder).reader(**options), 64),
}


@pytest.mark.parametrize("name", SOURCES)
def test_the_next_source_decodes_nothing_and_batches_are_the_same(
    tmp_path: Path, home: Path, decoded: Read, name: str
) -> None:
    wanted = batches(SOURCES[name](tmp_path / "plain", cache=False))
    assert not home.exists()
    first = SOURCES[name](tmp_path / "kept")
    assert_same_batches(batches(first), wanted)
    assert home.exists()
    decoded.clear()
    assert_same_batches(batches(first), wanted)
    assert_same_batches(batches(pickle.loads(pickle.dumps(first))), wanted)
    assert decoded == []


@pytest.mark.parametrize("cache", [False, True])
def test_runs_of_any_length(tmp_path: Path, cache: bool) -> None:
    lengths = (1, 65534, 65535, 65536, 131069, 131070, 131071)
    maps = [np.repeat(np.uint8([5, 6, 7]), length).reshape(3, -1) for length in lengths]
    write(tmp_path, maps)
    for _ in range(2):
        assert_equal(values(reader(tmp_path, cache=cache)), maps)


SCRIPT = """
import sys, torch, detaug as da
from PIL import Image
opened, original = [], Image.open
Image.open = lambda path, *rest: opened.append(str(path)) or original(path, *rest)
reader = da.MapReader("images", "maps")
loader = da.Loader(reader, [da.Resize((64, 64)), da.Mosaic()], 2, device="cpu", seed=3)
torch.save([batch.maps["semantic"] for batch in loader], sys.argv[1])
print(sum("/maps/" in path for path in opened))
"""


def run(script: str, folder: Path, *arguments: str) -> str:
    command = [sys.executable, "-W", "error", "-c", script, *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


@pytest.mark.slow
def test_a_second_process_opens_no_map(tmp_path: Path, home: Path) -> None:
    write(tmp_path, drawn(4, size=(500, 700)))  # of which each is a block
    assert int(run(SCRIPT, tmp_path, "first.pt")) >= 4  # two threads may need one map at a time
    assert run(SCRIPT, tmp_path, "second.pt") == "0\n"
    for one, other in zip(torch.load(tmp_path / "first.pt"), torch.load(tmp_path / "second.pt"), strict=True):
        assert torch.equal(one, other)
    size = 4 * 3 * 350_000
    assert cached(home).stat().st_size < size, "3 bytes for a run, and most runs have several pixels"


def test_a_resumed_loader_reads_what_is_kept(tmp_path: Path, decoded: Read) -> None:
    write(tmp_path, drawn(8))

    def loader() -> da.Loader:
        return da.Loader(reader(tmp_path), [da.Resize((16, 16)), da.Mosaic()], 2, device="cpu", seed=1)

    first = loader()
    wanted = [batch.maps["semantic"] for batch in first]
    again, half = loader(), loader()
    next(iter(half))
    decoded.clear()
    again.load_state_dict(half.state_dict())
    for batch, map_ in zip(again, wanted[1:], strict=True):
        assert torch.equal(batch.maps["semantic"], map_)
    assert decoded == []


def rewrite(path: Path, pixels: NDArray[np.uint8]) -> None:
    """Write a map whose file has another length, or another date."""
    before = path.stat()
    Image.fromarray(pixels).save(path)
    if path.stat().st_size == before.st_size:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    else:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("same_length", [False, True])
def test_a_map_that_changed_is_decoded_again(tmp_path: Path, decoded: Read, same_length: bool) -> None:
    maps = drawn()
    values(reader(write(tmp_path, maps)))
    maps[1] = (maps[1] + 1) % 4 if same_length else np.zeros_like(maps[1])
    if same_length:  # without compression
        for own in (drawn()[1], maps[1]):
            Image.fromarray(own).save(tmp_path / "maps/1.png", compress_level=0)
            values(reader(tmp_path))
            os.utime(tmp_path / "maps/1.png", ns=(5, 5))
    else:
        rewrite(tmp_path / "maps/1.png", maps[1])
    decoded.clear()
    for names in (["1.png"], []):
        assert_equal(values(reader(tmp_path)), maps)
        assert decoded == names
        decoded.clear()


def test_a_map_of_another_image_size_is_refused(tmp_path: Path) -> None:
    values(reader(write(tmp_path, drawn())))
    Image.new("RGB", (50, 10)).save(tmp_path / "images/2.png")
    with pytest.raises(InputError, match=r"2\.png has 9 x 7 pixels, where the image has 50 x 10"):
        values(reader(tmp_path))


@pytest.mark.parametrize(
    "options",
    [{"table": {0: 3, 1: 2, 2: 1, 3: 0}}, {"table": {0: 3, 1: 2, 2: 1}, "ignore": 3}, {"ignore": 3}],
    ids=["table", "table and ignore", "ignore"],
)
def test_other_rules_decode_again(tmp_path: Path, home: Path, decoded: Read, options: dict[str, Any]) -> None:
    values(reader(write(tmp_path, drawn())))
    wanted = values(reader(tmp_path, cache=False, **options))
    decoded.clear()
    for count in (3, 3):
        assert_equal(values(reader(tmp_path, **options)), wanted)
        assert len(decoded) == count
    assert len([*home.iterdir()]) == 2


def test_names_of_classes_decode_nothing_again_and_their_number_does(tmp_path: Path, decoded: Read) -> None:
    values(reader(write(tmp_path, drawn()), classes=list("abcd")))
    decoded.clear()
    values(reader(tmp_path, classes=list("wxyz"), missing="ignore"))
    assert decoded == []
    with pytest.raises(InputError, match="where its ClassMap has 3 classes"):
        values(reader(tmp_path, classes=list("abc")))


def test_other_versions_decode_again(tmp_path: Path, decoded: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    values(reader(write(tmp_path, drawn())))
    decoded.clear()
    copy = shutil.copytree(Path(files.__file__).parent, tmp_path / "code")
    monkeypatch.setattr(files, "__file__", str(copy / "files.py"))
    values(reader(tmp_path))
    assert decoded == []
    with (copy / "kinds.py").open("a") as file:
        file.write("\n")
    values(reader(tmp_path))
    assert len(decoded) == 3
    monkeypatch.setattr(PIL, "__version__", "1.0")
    values(reader(tmp_path))
    assert len(decoded) == 6


def test_another_json_file_of_segments(tmp_path: Path, decoded: Read) -> None:
    data = PaintedPanoptic(tmp_path)
    wanted = values(data.reader(cache=False), "panoptic")
    assert_equal(values(data.reader(), "panoptic"), wanted)
    path = tmp_path / "panoptic.json"
    content = json.loads(path.read_text())
    for entry in content["annotations"]:
        entry["segments_info"].reverse()
    path.write_text(json.dumps(content))
    decoded.clear()
    assert_equal(values(data.reader(), "panoptic"), wanted)
    assert decoded == []
    content["annotations"][2]["segments_info"].pop()
    path.write_text(json.dumps(content))
    with pytest.raises(InputError, match="which segments_info of the JSON file does not have"):
        values(data.reader(), "panoptic")


@pytest.mark.parametrize("damage", ["cut", "flipped"])
def test_a_file_that_is_damaged_at_any_byte_is_used_as_far_as_it_is_right(
    tmp_path: Path, home: Path, decoded: Read, damage: str
) -> None:
    maps = drawn(2, size=(2, 5))
    values(reader(write(tmp_path, maps)))
    path = cached(home)
    content = path.read_bytes()
    for at in range(len(content)):
        changed = bytes([content[at] ^ 1]) + content[at + 1 :]
        path.write_bytes(content[:at] + (b"" if damage == "cut" else changed))
        decoded.clear()
        assert_equal(values(reader(tmp_path)), maps)
        assert decoded, "what is damaged is not used"
        decoded.clear()
        assert_equal(values(reader(tmp_path)), maps)
        assert decoded == [], "what was missing is in the file again"
    path.write_bytes(content + b"unfinished")
    decoded.clear()
    assert_equal(values(reader(tmp_path)), maps)
    assert decoded == []


WRITER = """
import sys, random
from pathlib import Path
import numpy as np
from PIL import Image
import detaug as da
from detaug.maps import kept
kept.BLOCK = 5000
reader = da.MapReader("images", "maps")
order = list(range(len(reader)))
random.Random(int(sys.argv[1])).shuffle(order)
print("ready", flush=True)
sys.stdin.readline()
for index in 2 * order:
    found = reader.maps["semantic"].read(index)
    with Image.open(Path("maps", reader.path(index).name)) as image:
        assert (found.pixels().reshape(found.shape) == np.asarray(image)).all()
    print(index, flush=True)
"""


@pytest.mark.slow
def test_processes_write_and_read_one_file_together(tmp_path: Path, home: Path, decoded: Read) -> None:
    drawn_maps = drawn(200, size=(30, 40))
    write(tmp_path, drawn_maps)
    maps = [drawn_maps[index] for index in sorted(range(200), key=str)]
    pipe = subprocess.PIPE
    commands = [[sys.executable, "-c", WRITER, str(seed)] for seed in range(3)]
    writers = [subprocess.Popen(command, cwd=tmp_path, stdin=pipe, stdout=pipe, text=True) for command in commands]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    assert writers[0].stdout is not None
    for _ in range(60):
        writers[0].stdout.readline()
    writers[0].send_signal(signal.SIGKILL)
    assert [len(writer.communicate()[0].split()) for writer in writers[1:]] == [400, 400]
    writers[0].communicate()
    assert_equal(values(reader(tmp_path)), maps)
    assert decoded == []
    runs = sum(int((np.diff(own.ravel()) != 0).sum()) + 1 for own in maps)
    assert cached(home).stat().st_size < 3 * runs + 200 * 100, "each map is there once"


def test_a_file_that_another_process_is_writing_is_left_alone(tmp_path: Path, home: Path, decoded: Read) -> None:
    maps = drawn(4)
    source = reader(write(tmp_path, maps))
    source.maps["semantic"].read(0)
    content = cached(home).read_bytes()
    with cached(home).open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        for _ in range(2):
            for index in range(3):
                source.maps["semantic"].read(index)
        assert cached(home).read_bytes() == content
    assert_equal(values(source), maps)
    assert len(decoded) == 4
    assert_equal(values(reader(tmp_path)), maps)
    assert len(decoded) == 4, "what waited was written with the next map"


def test_the_end_waits_for_a_process_that_is_writing(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, decoded: Read
) -> None:
    maps = drawn(4)
    values(reader(write(tmp_path, maps[:1])))
    monkeypatch.setattr(kept, "BLOCK", 1 << 20)
    source = reader(write(tmp_path, maps))
    values(source)
    with cached(home).open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        monkeypatch.setattr(kept.time, "sleep", lambda seconds: fcntl.flock(file, fcntl.LOCK_UN))
        del source
        gc.collect()
    decoded.clear()
    assert_equal(values(reader(tmp_path)), maps)
    assert decoded == []


def test_maps_that_another_source_wrote_are_not_written_again(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "BLOCK", 1 << 20)
    source = reader(write(tmp_path, drawn()))
    values(source)
    monkeypatch.setattr(kept, "BLOCK", 1)
    values(reader(tmp_path))
    content = cached(home).read_bytes()
    del source
    gc.collect()
    assert cached(home).read_bytes() == content


def test_sources_read_what_another_one_wrote_after_they_began(tmp_path: Path, decoded: Read) -> None:
    maps = drawn()
    one, other = reader(write(tmp_path, maps)), reader(tmp_path)
    one.maps["semantic"].read(0)
    other.maps["semantic"].read(1)
    decoded.clear()
    one.maps["semantic"].read(1)
    other.maps["semantic"].read(0)
    assert decoded == []


@pytest.mark.parametrize("place", ["/dev/null", "/proc", "a file"])
def test_no_folder_to_write_in_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, decoded: Read, place: str
) -> None:
    (tmp_path / "a file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / place))
    maps = drawn()
    source = reader(write(tmp_path, maps))
    for _ in range(2):
        assert_equal(values(source), maps)
    assert len(decoded) == 3, "they are kept in memory"


def test_a_file_that_cannot_be_written_is_read(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, decoded: Read
) -> None:
    maps = drawn(5)
    source = reader(write(tmp_path, maps))
    for index in range(3):
        source.maps["semantic"].read(index)
    content, original = cached(home).read_bytes(), os.open

    def read_only(path: Any, flags: int, *rest: Any) -> int:
        if flags & (os.O_RDWR | os.O_CREAT):
            raise OSError(30, "Read-only file system", path)
        return original(path, flags, *rest)

    monkeypatch.setattr(os, "open", read_only)
    decoded.clear()
    again = reader(tmp_path)
    for _ in range(2):
        assert_equal(values(again), maps)
    assert decoded == ["3.png", "4.png"]
    assert cached(home).read_bytes() == content


def test_a_full_disk_is_no_error(tmp_path: Path, home: Path, decoded: Read) -> None:
    maps = drawn(6, size=(20, 30))
    write(tmp_path, maps)
    reader(tmp_path)  # the sizes of the images are cached too
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with disk_for_files_of(4000):
            source = reader(tmp_path)
            for _ in range(2):
                assert_equal(values(source), maps)
            assert len(decoded) == 6
    size = cached(home).stat().st_size
    assert 0 < size < 4000
    decoded.clear()
    assert_equal(values(reader(tmp_path)), maps)
    assert 0 < len(decoded) < 6
    decoded.clear()
    assert_equal(values(reader(tmp_path)), maps)
    assert decoded == []


@pytest.mark.parametrize("name", ["LEAST_FREE", "MOST"])
def test_the_limits_of_the_disk(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, decoded: Read, name: str
) -> None:
    maps = drawn(6, size=(20, 30))
    monkeypatch.setattr(run_file, name, {"LEAST_FREE": 1 << 60, "MOST": 4000}[name])
    source = reader(write(tmp_path, maps))
    for _ in range(2):
        assert_equal(values(source), maps)
    assert len(decoded) == 6
    assert cached(home).stat().st_size < (1 if name == "LEAST_FREE" else 4000)


def test_what_was_not_used_for_longest_is_removed(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    maps = drawn(3, size=(20, 30))
    written: dict[int, Path] = {}
    for number in range(3):
        values(reader(write(tmp_path / str(number), maps)))
        (written[number],) = {*home.iterdir()} - {*written.values()}
        os.utime(written[number], (number, number))
    values(reader(tmp_path / "0"))
    monkeypatch.setattr(run_file, "MOST", int(3.5 * written[0].stat().st_size))
    values(reader(write(tmp_path / "3", maps)))
    assert written[0].exists()
    assert not written[1].exists()
    assert written[2].exists()


def test_a_file_that_is_removed_while_it_is_used(tmp_path: Path, home: Path, decoded: Read) -> None:
    maps = drawn(4)
    source = reader(write(tmp_path, maps))
    for index in range(2):
        source.maps["semantic"].read(index)
    cached(home).unlink()
    for _ in range(2):
        assert_equal(values(source), maps)
    assert len(decoded) == 4, "what was open is read, and the others stay in memory"
    assert [*home.iterdir()] == []


def test_a_file_that_is_removed_and_made_again_while_it_is_used(tmp_path: Path, home: Path, decoded: Read) -> None:
    maps = drawn(6)
    source = reader(write(tmp_path, maps))
    for index in range(3):
        source.maps["semantic"].read(index)
    path = cached(home)
    path.unlink()
    reader(tmp_path).maps["semantic"].read(5)
    content = path.read_bytes()
    assert_equal(values(source), maps)
    assert path.read_bytes() == content, "the new file is not the one that is open"
    values(reader(tmp_path))
    decoded.clear()
    assert_equal(values(reader(tmp_path)), maps)
    assert decoded == []


def test_where_most_maps_changed_the_file_begins_anew(tmp_path: Path, home: Path, decoded: Read) -> None:
    write(tmp_path, drawn(4, size=(20, 30)))
    values(reader(tmp_path))
    size = cached(home).stat().st_size
    for seed in range(1, 8):
        maps = drawn(4, seed, size=(20, 30))
        for index, own in enumerate(maps):
            Image.fromarray(own).save(tmp_path / f"maps/{index}.png")
            os.utime(tmp_path / f"maps/{index}.png", ns=(seed, seed))
        assert_equal(values(reader(tmp_path)), maps)
        assert not home.exists() or sum(path.stat().st_size for path in home.iterdir()) < 3 * size
    values(reader(tmp_path))
    decoded.clear()
    assert_equal(values(reader(tmp_path)), maps)
    assert decoded == []


def test_maps_that_cannot_be_used_are_not_kept(tmp_path: Path, decoded: Read) -> None:
    maps = drawn()
    write(tmp_path, maps)
    good = (tmp_path / "maps/1.png").read_bytes()
    (tmp_path / "maps/1.png").write_bytes(good[:-30])
    for _ in range(2):
        source = reader(tmp_path)
        with pytest.raises(InputError, match=r"1\.png: does not decode"):
            source.maps["semantic"].read(1)
    (tmp_path / "maps/1.png").write_bytes(good)
    assert_equal(values(source), maps)


def test_a_map_that_is_removed_is_named(tmp_path: Path) -> None:
    source = reader(write(tmp_path, drawn()))
    values(source)
    source = reader(tmp_path)
    (tmp_path / "maps/1.png").unlink()
    with pytest.raises(da.DataError, match=r"1\.png cannot be read \(No such file or directory\)"):
        next(iter(da.Loader(source, [da.Resize((8, 8))], 3, train=False, device="cpu")))


def test_few_maps_get_no_file(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, decoded: Read) -> None:
    monkeypatch.setattr(kept, "BLOCK", 1 << 20)
    source = reader(write(tmp_path, drawn()))
    for _ in range(2):
        values(source)
    del source
    gc.collect()
    assert not home.exists()
    assert len(decoded) == 3


def test_the_rest_is_written_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, decoded: Read) -> None:
    maps = drawn(5, size=(20, 30))
    monkeypatch.setattr(kept, "BLOCK", 2000)  # two of them
    source = reader(write(tmp_path, maps))
    values(source)
    del source
    gc.collect()
    decoded.clear()
    assert_equal(values(reader(tmp_path)), maps)
    assert decoded == []


def test_the_rest_is_written_when_the_process_ends(tmp_path: Path, decoded: Read) -> None:
    maps = drawn(5, size=(20, 30))
    write(tmp_path, maps)
    read = (
        "from detaug.maps import kept; kept.BLOCK = 2000; import detaug as da; reader = da.MapReader('images', 'maps')"
    )
    run(f"{read}; print([reader.maps['semantic'].read(index).shape for index in range(5)])", tmp_path)
    assert_equal(values(reader(tmp_path)), maps)
    assert decoded == []


class Doubled(da.ClassMap):
    """A map of a user with a rule of its own."""

    def values_of(self, pixels: Pixels, path: Path) -> NDArray[Any]:
        return 2 * super().values_of(pixels, path)


def test_kinds_by_users_are_not_kept(tmp_path: Path, home: Path) -> None:
    maps = drawn()
    write(tmp_path, maps)
    for kind, factor in ((da.ClassMap, 1), (Doubled, 2)):
        source = da.CocoReader(tmp_path / "images", boxes_of(tmp_path), maps={"own": kind(tmp_path / "maps")})
        assert_equal(values(source, "own"), [factor * own for own in maps])
    assert cached(home)


def test_depths_are_not_kept(tmp_path: Path, home: Path) -> None:
    write(tmp_path, drawn())
    maps = {"depth": da.DepthMap(tmp_path / "maps")}
    values(da.CocoReader(tmp_path / "images", boxes_of(tmp_path), maps=maps), "depth")
    assert not home.exists()


def test_tiles_of_an_image_have_its_pixels_once(tmp_path: Path) -> None:
    """Many tiles of a scene in a batch would need its memory many times."""
    tiles(tmp_path)
    maps = {"semantic": da.ClassMap(tmp_path / "maps", ignore=0)}
    for _ in range(2):
        source = da.CocoReader(tmp_path / "images", tmp_path / "boxes.json", maps=maps)
        own = da.TileReader(source, 32).maps["semantic"]
        parts = [own.read(index) for index in range(4)]
        assert len({id(part.runs) for part in parts}) == 1
