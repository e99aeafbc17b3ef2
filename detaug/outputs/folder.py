"""Write a folder of many text files and their images without replacing a file of another content."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from glob import escape
from pathlib import Path

from detaug.errors import ConversionError, InputError
from detaug.files.atomic import replacing, temporary_path, write_atomically
from detaug.files.image_file import digest
from detaug.files.paths import RUN_MARK
from detaug.findings.finding import counted
from detaug.machine.parallel import Progress, with_progress
from detaug.named_options import option
from detaug.outputs.guards import WithImages, check_choice

_MOST_SHOWN = 5


def check_with_images(with_images: str, images: Path | None) -> None:
    """Raise InputError for an unknown choice, for one that needs a folder of images, and if that is not a folder."""
    check_choice("with_images", with_images, WithImages)
    if with_images != "none" and images is None:
        raise InputError(f"with_images {with_images} needs images: the folder that file_name is relative to")
    if images is not None and not images.is_dir():
        raise ConversionError(f"images {images} is not a folder; give the folder that file_name is relative to")


def check_folder(folder: Path) -> None:
    """Raise ConversionError for a folder that cannot be made or written to."""
    if folder.exists() and not folder.is_dir():
        raise ConversionError(f"{folder} is not a folder; give the name of a folder to make")
    existing = folder if folder.exists() else folder.absolute().parent
    if existing.exists() and not existing.is_dir():
        raise ConversionError(f"{existing} is a file, so {folder} cannot be made; give another folder")
    if not existing.is_dir():
        raise ConversionError(f"folder {existing} does not exist; make it first")
    if not os.access(existing, os.W_OK):
        raise ConversionError(f"folder {existing} is not writable; choose another folder")


def checkpoint_path(output: Path) -> Path:
    """Return the file in the folder of a training from which it is resumed."""
    return output / "checkpoint.pt"


def refuse_training(output: Path, *, resume: bool) -> None:
    """Raise InputError for a folder that cannot be written to, or holds a training which is not to be resumed."""
    check_folder(output)
    if checkpoint_path(output).exists() and not resume:
        again = option("resume", python="True")
        raise InputError(f"{output} holds a training; {again} continues it, or choose another {option('output')}")


@contextmanager
def made_run_folder(folder: Path) -> Iterator[None]:
    """Make the folder of a run, and `mark_run` it; after an error remove it if it is empty and was made here."""
    with made_folder(folder):
        mark_run(folder)
        try:
            yield
        except BaseException:
            if os.listdir(folder) == [RUN_MARK]:
                (folder / RUN_MARK).unlink()
            raise


def mark_run(folder: Path) -> None:
    """Let `list_files` leave out the folder of a run, which may lie in that of its dataset.

    Not a folder that has files already: they may be of a dataset.
    """
    if not any(folder.iterdir()):
        (folder / RUN_MARK).touch()


@contextmanager
def made_folder(folder: Path) -> Iterator[None]:
    """Make the folder; remove it after an error, if it was made here."""
    existed = folder.is_dir()
    folder.mkdir(exist_ok=True)
    try:
        yield
    except BaseException:
        if not existed:
            with suppress(OSError):
                folder.rmdir()
        raise


@contextmanager
def locked_folder(folder: Path, *, wait: bool = True) -> Iterator[None]:
    """Hold the lock of the folder, so that one process at a time writes there. It ends with the process.

    Where another process holds it, wait; with wait=False raise ConversionError.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise ConversionError(f"another process is writing to {folder}; choose another folder") from None
        except OSError:
            pass  # a file system without locks
        yield
    finally:
        os.close(descriptor)


def refuse_other_content(texts: Mapping[Path, str], copies: Mapping[Path, Path]) -> None:
    """Raise ConversionError where a file exists with other content: it may be somebody's work.

    texts: path -> content. copies: path -> the image to copy or to link to.
    """
    existing = [path for path in texts if os.path.lexists(path)]
    other = [path for path in existing if not path.is_file() or path.read_bytes() != texts[path].encode()]
    other += [path for path, image in copies.items() if os.path.lexists(path) and not _same_content(path, image)]
    if other:
        names = ", ".join(map(str, other[:_MOST_SHOWN])) + (", ..." if len(other) > _MOST_SHOWN else "")
        exist = "exists" if len(other) == 1 else "exist"
        raise ConversionError(
            f"{counted(len(other), 'file')} {exist} with other content and would be replaced: {names}; "
            "give another folder, or move them away"
        )


def label_files(folder: Path, extension: str) -> Iterator[Path]:
    """Yield the files below a folder that are read as labels: not classes.txt, which tools put beside them."""
    for path in folder.rglob(f"*{extension}"):
        if path.name != "classes.txt" and path.is_file():
            yield path


def refuse_left_labels(labels: Iterable[Path], texts: Iterable[Path]) -> None:
    """Raise ConversionError for label files that are not among the `texts` to write: they would be read, too."""
    written = set(map(os.path.abspath, texts))
    left = sorted(path for path in labels if os.path.abspath(path) not in written)
    if left:
        raise ConversionError(
            f"{counted(len(left), 'label file')} of another conversion would be part of the dataset, such as "
            f"{left[0]}; give another folder, or move them away"
        )


def _same_content(path: Path, image: Path) -> bool:
    if not path.is_file():
        return False
    return path.samefile(image) or (path.stat().st_size == image.stat().st_size and digest(path) == digest(image))


@contextmanager
def removed_after_error(paths: Iterable[Path]) -> Iterator[None]:
    """Remove those of the files that the block made, and their folders, if it ends with an error, also with Ctrl-C.

    Half of an export would be taken for a whole one: images without label files are images without objects.
    """
    made = [path for path in paths if not os.path.lexists(path)]
    folders = {folder for path in made for folder in path.parents if not folder.exists()}
    try:
        yield
    except BaseException:
        for path in made:
            with suppress(OSError):
                path.unlink(missing_ok=True)
        for folder in sorted(folders, key=lambda folder: len(folder.parts), reverse=True):
            with suppress(OSError):
                folder.rmdir()
        raise


def write_texts(texts: Mapping[Path, str], progress: Progress | None = None) -> None:
    """Write each file whole or not at all, in the order given. Existing files stay as they are."""
    for folder in {path.parent for path in texts}:
        folder.mkdir(parents=True, exist_ok=True)
    for path, text in with_progress(list(texts.items()), progress):
        if not path.exists():
            write_atomically(path, [text], sync=False)


def bring_images(copies: Mapping[Path, Path], with_images: WithImages) -> None:
    """Copy images, or make symbolic links to them. Existing files stay as they are."""
    for path, image in copies.items():
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path, sync=False) as temporary:
                if with_images == "copy":
                    shutil.copyfile(image, temporary)
                else:
                    temporary.symlink_to(image.resolve())


@contextmanager
def appearing_folder(folder: Path, files: Sequence[str] = ()) -> Iterator[Path]:
    """Yield a folder that gets the name `folder` at the end, and is removed after an error.

    files: of a part, which are moved into `folder`, beside those of other parts; none of them may exist.
    """
    real = Path(os.path.realpath(folder))
    with made_folder(real) if files else nullcontext():
        _refuse_existing(folder, files)
        unfinished = temporary_path(real / "part" if files else real)
        unfinished.mkdir()
        try:
            yield unfinished
            _refuse_existing(folder, files)
            for name in files:
                (real / name).parent.mkdir(parents=True, exist_ok=True)
                os.replace(unfinished / name, real / name)
            if files:
                shutil.rmtree(unfinished)
            else:
                os.replace(unfinished, real)
        except BaseException as error:
            shutil.rmtree(unfinished, ignore_errors=True)
            if isinstance(error, OSError) and error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise ConversionError(
                    f"another process has written {folder} meanwhile, and that stays; give another folder"
                ) from None
            if isinstance(error, OSError) and error.errno:  # the name of a file in it says nothing
                raise OSError(error.errno, error.strerror, os.fspath(folder)) from None
            raise


@contextmanager
def files_together(folder: Path) -> Iterator[Path]:
    """Yield a folder whose files replace those of the same names in `folder` at the end; after an error none does."""
    with made_folder(folder):
        unfinished = temporary_path(folder / "part")
        unfinished.mkdir()
        try:
            yield unfinished
            for path in [path for path in unfinished.rglob("*") if path.is_file()]:
                target = folder / path.relative_to(unfinished)
                target.parent.mkdir(parents=True, exist_ok=True)
                os.replace(path, target)
        except OSError as error:
            if os.fspath(unfinished) in str(error.filename):  # a name that is gone says nothing
                raise OSError(error.errno, error.strerror, os.fspath(folder)) from None
            raise
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)


def unfinished_folders(folder: Path) -> list[Path]:
    """Return what `appearing_folder` left where a process was killed; one that is running has such a folder, too."""
    real = Path(os.path.realpath(folder))
    return sorted(real.parent.glob(f".{escape(real.name[:32])}.*.partial"))


def _refuse_existing(folder: Path, files: Sequence[str]) -> None:
    for name in files:
        if os.path.lexists(folder / name):
            raise ConversionError(f"{folder / name} exists; give another folder, or remove what an earlier run wrote")
