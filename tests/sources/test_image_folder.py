"""ImageFolder: classes by folder and by list, sizes and their cache, files that cannot be used."""

from __future__ import annotations

import errno
import io
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from reference import import_torchvision

import detaug as da
from detaug.files import image_file, image_headers
from detaug.sources import size_cache

FILES = {
    "dog/z.jpg": (30, 40), "dog/a b.PNG": (50, 20), "cat/deep/er/1.jpg": (32, 48), "cat/deep-1/2.png": (48, 32),
    "cat/x.jpg": (20, 30), "cat/deep/1.jpg": (64, 64), "10/é.jpg": (33, 35), "9/1.jpg": (25, 25),
}  # fmt: skip
ORDER = [
    "10/é.jpg", "9/1.jpg", "cat/x.jpg", "cat/deep/1.jpg", "cat/deep-1/2.png", "cat/deep/er/1.jpg", "dog/a b.PNG",
    "dog/z.jpg",
]  # fmt: skip
"""Sorted by class, then folder, then name."""
CLASSES = [0, 1, 2, 2, 2, 2, 3, 3]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for at, (name, (height, width)) in enumerate(FILES.items()):
        path = tmp_path / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (width, height), (20 * at, 0, 0)).save(path)
    return tmp_path / "photos"


def write_list(root: Path, *lines: str) -> Path:
    path = root.parent / "list.txt"
    path.write_text("\n".join(lines))
    return path


# ------------------------------------------------------------------------------------------------- classes


def test_classes_are_the_sorted_folders(root: Path) -> None:
    (root / "cat" / "notes.txt").write_text("no image")
    (root / ".git").mkdir()
    source = da.ImageFolder(root)
    assert list(source.file_names) == ORDER
    assert source.classes is not None
    assert source.classes.tolist() == CLASSES
    assert source.class_names == ("background", "10", "9", "cat", "dog")
    assert source.class_to_idx == {"10": 0, "9": 1, "cat": 2, "dog": 3}
    assert source.sizes.tolist() == [list(FILES[name]) for name in ORDER]
    assert not source.objects()[1].any()
    assert repr(source) == f"ImageFolder({str(root)!r})  # 8 images, 4 classes"


def test_torchvision_finds_the_same(root: Path) -> None:
    try:
        import_torchvision()
        from torchvision.datasets import ImageFolder
    except (ImportError, RuntimeError) as error:
        pytest.skip(f"torchvision, the reference, cannot be imported: {error}")
    theirs, ours = ImageFolder(root), da.ImageFolder(root)
    assert [path for path, _ in theirs.samples] == [str(ours.path(at)) for at in range(8)]
    assert ours.classes is not None
    assert theirs.targets == ours.classes.tolist()
    assert theirs.class_to_idx == ours.class_to_idx


def test_links_are_followed_but_not_in_circles(root: Path) -> None:
    (root / "cat" / "circle").symlink_to(root / "cat")
    (root / "fox").symlink_to(root / "dog")
    source = da.ImageFolder(root)
    assert len(source) == 10
    assert source.class_names[-1] == "fox"


@pytest.mark.parametrize("bom", ["", "\ufeff"])
def test_a_list_with_numbers(root: Path, bom: str) -> None:
    listed = write_list(root, f"{bom}dog/a b.PNG 3", "", "cat/x.jpg\t0 ", "9/1.jpg 3", "cat/x.jpg 1")
    source = da.ImageFolder(root, list_file=listed)
    assert list(source.file_names) == ["dog/a b.PNG", "cat/x.jpg", "9/1.jpg", "cat/x.jpg"]
    assert source.classes is not None
    assert source.classes.tolist() == [3, 0, 3, 1]
    assert source.class_names == ("background", "0", "1", "2", "3")
    assert source.sizes.tolist() == [[50, 20], [20, 30], [25, 25], [20, 30]]


def test_a_list_with_names(root: Path) -> None:
    source = da.ImageFolder(root, list_file=write_list(root, "dog/z.jpg hound", "cat/x.jpg cat", "9/1.jpg hound"))
    assert source.classes is not None
    assert source.classes.tolist() == [1, 0, 1]
    assert source.class_names == ("background", "cat", "hound")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], r"has no lines; each is the path of an image and its class, such as cats/1\.jpg 0"),
        (["cat/x.jpg"], r"line 1 is 'cat/x\.jpg'; it must be a path and a class"),
        (["cat/x.jpg 0", "dog/z.jpg dog"], "line 2 has the class 'dog', line 1 has '0'; give all lines numbers"),
        (["../x.jpg 0"], r"line 1 has the path '\.\./x\.jpg'; it must be relative to root, and below it"),
        (["/etc/x.jpg 0"], "must be relative to root"),
        (["cat/x.jpg -1"], r"line 1 has the class -1; numbers of classes are 0 to K - 1"),
        (["cat/x.jpg 99999999999"], "line 1 has the class 99999999999"),
    ],
)
def test_lists_that_cannot_be_used(root: Path, lines: list[str], message: str) -> None:
    with pytest.raises(da.InputError, match=rf"list\.txt: .*{message}"):
        da.ImageFolder(root, list_file=write_list(root, *lines))


def test_a_list_that_is_not_there(root: Path) -> None:
    with pytest.raises(da.InputError, match=r"no\.txt: cannot be read: No such file"):
        da.ImageFolder(root, list_file=root / "no.txt")


def remove_root(root: Path) -> None:
    shutil.rmtree(root)


def empty_root(root: Path) -> None:
    shutil.rmtree(root)
    root.mkdir()


def empty_class(root: Path) -> None:
    (root / "fish").mkdir()
    (root / "fish" / "notes.txt").touch()


def loose_images(root: Path) -> None:
    shutil.copy(root / "9" / "1.jpg", root / "loose.JPG")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (remove_root, "photos: no such folder; it must hold the images"),
        (empty_root, r"has no class folders; put the images into a sub-folder for each class, .*or give list_file="),
        (empty_class, "1 of 5 class folders have no images, the first is 'fish'; remove it, or put images into it"),
        (loose_images, r"1 images are in no class folder, the first is 'loose\.JPG'; put the images into a sub"),
    ],
)  # fmt: skip
def test_folders_that_cannot_be_used(root: Path, change: Callable[[Path], None], message: str) -> None:
    change(root)
    with pytest.raises(da.InputError, match=message):
        da.ImageFolder(root)


# ---------------------------------------------------------------------------------------- training with it


@pytest.mark.parametrize("listed", [False, True], ids=["folders", "list"])
def test_batches_have_each_images_class(root: Path, listed: bool, device: str) -> None:
    lines = [f"{name} {number}" for name, number in zip(ORDER, CLASSES, strict=True)]
    source = da.ImageFolder(root, list_file=write_list(root, *lines) if listed else None)
    loader = da.Loader(source, [da.Resize((16, 16)), da.Normalize(dtype="uint8")], 3, device=device, seed=1)
    color_class = {20 * list(FILES).index(name): number for name, number in zip(ORDER, CLASSES, strict=True)}
    for batch in loader:
        reds = batch.images[:, 0].float().mean((1, 2)).cpu().numpy()
        assert batch.classes is not None
        assert batch.classes.dtype == torch.int64
        nearest = [min(color_class, key=lambda red: abs(red - seen)) for seen in reds.tolist()]
        assert batch.classes.tolist() == [color_class[red] for red in nearest]
        assert not batch.valid.any()


@pytest.mark.parametrize("op", [da.Mosaic(), da.MixUp(), da.CutMix()])
def test_images_with_a_class_are_not_combined(root: Path, op: da.Op) -> None:
    """Their class would be that of one of them."""
    with pytest.raises(da.InputError, match=rf"{type(op).__name__} combines images.* one class as a whole"):
        da.Loader(da.ImageFolder(root), [da.Resize((16, 16)), op], 4, device="cpu")


def test_a_classifier_trains_on_the_presets(root: Path, device: str) -> None:
    model = torch.nn.Sequential(torch.nn.AvgPool2d(8), torch.nn.Flatten(), torch.nn.Linear(48, 4)).to(device)
    for ops in (da.presets.imagenet(32), da.presets.imagenet_evaluation(32, 40)):
        for batch in da.Loader(da.ImageFolder(root), ops, 4, device=device):
            torch.nn.functional.cross_entropy(model(batch.images), batch.classes).backward()
    assert all(weight.grad is not None for weight in model.parameters())


def test_it_is_sampled_by_class_and_concatenated(root: Path) -> None:
    source = da.ImageFolder(root)
    weights = da.ClassBalancedSampler()(source)
    assert weights[0] == weights[1] > weights[-1] > weights[2]
    both = da.ConcatReader([source, da.ImageFolder(root, list_file=write_list(root, "dog/z.jpg dog"))])
    assert both.classes is not None
    assert both.classes.tolist() == [*CLASSES, 3]


def test_a_state_resumes_exactly(root: Path) -> None:
    ops = da.presets.imagenet(16)
    whole, stopped, again = (da.Loader(da.ImageFolder(root), ops, 2, seed=5, device="cpu") for _ in range(3))
    next(iter(stopped))
    again.load_state_dict(stopped.state_dict())
    expected = [batch.images for batch in whole][1:]
    assert all(torch.equal(a, b.images) for a, b in zip(expected, again, strict=True))


# ------------------------------------------------------------------------------------------- bad files


def make_empty(path: Path) -> None:
    path.write_bytes(b"")


def make_text(path: Path) -> None:
    path.write_bytes(b"no image")


def make_gif(path: Path) -> None:
    Image.new("RGB", (9, 9)).save(path, "GIF")


@pytest.mark.parametrize(
    ("break_it", "why"),
    [
        (make_empty, r"is empty \(0 bytes\)"),
        (make_text, "is not an image that can be read"),
        (make_gif, "is GIF, which DALI does not decode; save it as JPEG or PNG"),
    ],
)
def test_an_image_without_a_usable_header(root: Path, break_it: Callable[[Path], None], why: str) -> None:
    break_it(root / "cat" / "x.jpg")
    source = da.ImageFolder(root)
    assert source.missing.tolist() == [2]
    with pytest.raises(da.InputError, match=rf"1 of 8 images cannot be used, the first is .*cat/x\.jpg, which {why}; "):
        da.Loader(source, [da.Resize((8, 8))], 4, device="cpu")
    with pytest.warns(UserWarning, match=rf"cat/x\.jpg {why}; skipped"):
        loader = da.Loader(source, [da.Resize((8, 8))], 4, device="cpu", train=False, on_error="skip", max_skipped=0.5)
    assert sum(map(len, loader)) == 7


def test_listed_images_that_are_not_there(root: Path) -> None:
    source = da.ImageFolder(root, list_file=write_list(root, "cat/x.jpg 0", "cat/no.jpg 0"))
    with pytest.raises(da.InputError, match=r"1 of 2 images .*cat/no\.jpg, which cannot be read: No such file or dir"):
        source.check_files()
    with pytest.raises(da.InputError, match="1 of 1 images cannot be used"):
        da.ImageFolder(root, list_file=write_list(root, "cat/no.jpg 0"))


def test_a_link_to_nothing_is_named(root: Path) -> None:
    (root / "cat" / "y.jpg").symlink_to(root / "nothing.jpg")
    with pytest.raises(da.InputError, match=r"1 of 9 images .*cat/y\.jpg, which cannot be read: No such file"):
        da.ImageFolder(root).check_files()


def test_an_image_that_breaks_off_is_named(root: Path) -> None:
    path = root / "cat" / "deep" / "1.jpg"
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    Image.fromarray(noise).save(path)
    path.write_bytes(path.read_bytes()[:700])
    with pytest.raises(da.DataError, match=r"cat/deep/1\.jpg: does not decode .*; remove it, or save it again"):
        list(da.Loader(da.ImageFolder(root), [da.Resize((8, 8))], 4, device="cpu", train=False))


def test_a_fault_of_the_process_names_no_image(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_handles(*_: Any, **__: Any) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(image_file, "open", no_handles, raising=False)
    with pytest.raises(OSError, match=r"^\[Errno 24\] Too many open files$"):
        da.ImageFolder(root)


# ------------------------------------------------------------------------------------------- sizes and cache


def forbid_reading(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list to which the paths of read headers are added."""
    read: list[str] = []
    original = image_headers.read_image_header
    monkeypatch.setattr(image_headers, "read_image_header", lambda path: read.append(path) or original(path))  # type: ignore[func-returns-value]
    return read


@pytest.mark.parametrize("listed", [False, True], ids=["folders", "list"])
def test_headers_are_read_once(root: Path, listed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    list_file = write_list(root, *(f"{name} 0" for name in ORDER)) if listed else None
    first, read = da.ImageFolder(root, list_file=list_file), forbid_reading(monkeypatch)
    again = da.ImageFolder(root, list_file=list_file)
    assert read == []
    assert again.sizes.tolist() == first.sizes.tolist()
    assert again.fingerprint == first.fingerprint
    da.ImageFolder(root, list_file=list_file, cache=False)
    assert len(read) == 8


def test_changed_files_are_read_again(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    da.ImageFolder(root)
    Image.new("RGB", (77, 66)).save(root / "cat" / "x.jpg")
    shutil.move(root / "dog" / "z.jpg", root / "cat" / "a.jpg")
    same_length = (root / "9" / "1.jpg").read_bytes()
    (root / "9" / "1.jpg").write_bytes(same_length)
    os.utime(root / "9" / "1.jpg", ns=(1, 1))
    read = forbid_reading(monkeypatch)
    source = da.ImageFolder(root)
    assert sorted(read) == [str(root / name) for name in ("9/1.jpg", "cat/a.jpg", "cat/x.jpg")]
    sizes = dict(zip(source.file_names, source.sizes.tolist(), strict=True))
    assert sizes["cat/x.jpg"] == [66, 77]
    assert sizes["cat/a.jpg"] == [30, 40]
    assert sizes["dog/a b.PNG"] == [50, 20]
    read.clear()
    da.ImageFolder(root)
    assert read == []


@pytest.mark.parametrize("joined", [False, True])
def test_an_image_that_changed_in_secret_can_be_used_after_a_touch(root: Path, joined: bool) -> None:
    """Its length and the time of its change are those of the image whose size is stored."""

    def rewrite(size: tuple[int, int]) -> None:
        encoded = io.BytesIO()
        Image.new("RGB", size).save(encoded, "BMP")
        path.write_bytes(encoded.getvalue().ljust(9000, b"\0"))
        os.utime(path, ns=(1, 1))

    def load() -> int:
        source = da.ImageFolder(root)
        assert source.sizes.tolist().count([50, 40]) + source.sizes.tolist().count([40, 50]) == 1
        loader = da.Loader(
            da.ConcatReader([source, source]) if joined else source, [da.Resize((8, 8))], 8, device="cpu"
        )
        return len(list(loader))

    path = root / "cat" / "x.jpg"
    path.unlink()
    path = path.with_suffix(".bmp")
    rewrite((40, 50))
    load()
    rewrite((50, 40))
    message = (
        r"x\.bmp has 50 x 40 pixels, it had 40 x 50 when its size was read; touch the file, and make the ImageFolder"
    )
    with pytest.raises(da.DataError, match=message):
        load()
    path.touch()
    assert load() == 1 + joined


def test_a_damaged_cache_is_not_used(root: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    da.ImageFolder(root)
    (cache,) = home.rglob("*.npz")
    cache.write_bytes(cache.read_bytes()[:-30])
    read = forbid_reading(monkeypatch)
    assert da.ImageFolder(root).sizes.tolist() == [list(FILES[name]) for name in ORDER]
    assert len(read) == 8


def test_a_faulty_image_is_looked_at_again(root: Path) -> None:
    good = (root / "cat" / "x.jpg").read_bytes()
    make_text(root / "cat" / "x.jpg")
    for _ in range(2):
        assert da.ImageFolder(root).missing.tolist() == [2]
    (root / "cat" / "x.jpg").write_bytes(good)
    assert da.ImageFolder(root).missing.tolist() == []


def test_no_cache_folder_is_no_error(root: Path, home: Path) -> None:
    home.write_text("a file where the folder should be")
    assert len(da.ImageFolder(root)) == 8


def test_many_headers_are_read_by_several_processes(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_text(root / "cat" / "x.jpg")
    one = size_cache.read_image_sizes([str(root / name) for name in ORDER])
    monkeypatch.setattr(image_headers, "FEW", 4)
    monkeypatch.setattr(image_headers, "_CHUNK", 3)
    monkeypatch.setattr(image_headers, "available_cores", lambda: 2)
    assert size_cache.read_image_sizes([str(root / name) for name in ORDER]) == one


def test_the_orientation_counts(root: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (40, 30)).save(root / "9" / "1.jpg", exif=exif)
    source = da.ImageFolder(root)
    assert source.sizes[1].tolist() == [40, 30]
    (batch,) = da.Loader(source, [da.Resize((8, 8))], 8, device="cpu", train=False)
    assert len(batch) == 8
