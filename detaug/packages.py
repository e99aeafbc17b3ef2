"""Optional packages: one error for a missing one, with what to install."""

from __future__ import annotations

from importlib.util import find_spec
from typing import NamedTuple

from detaug.errors import MissingPackageError


class _Package(NamedTuple):
    name: str
    """What pip installs."""
    extra: str | None = ""
    """The extra of detaug that has it; "" for the default install, None for neither."""


LEFT_OUT = "torch", "nvidia.dali", "numba"
"""Modules of the default install that the light one, requirements/light.txt, leaves out."""

PACKAGES = {
    "click": _Package("click"),
    "jinja2": _Package("jinja2"),
    "lxml": _Package("lxml"),
    "msgspec": _Package("msgspec"),
    "numba": _Package("numba"),
    "numpy": _Package("numpy"),
    "nvidia.dali": _Package("nvidia-dali-cuda120"),
    "PIL": _Package("pillow"),
    "pycocotools": _Package("pycocotools"),
    "torch": _Package("torch"),
    "yaml": _Package("pyyaml"),
    "av": _Package("av", "video"),
    "google_crc32c": _Package("google-crc32c", "shards"),
    "imagecodecs": _Package("imagecodecs", "tiff"),
    "jpeglib": _Package("jpeglib", "lossless"),
    "obstore": _Package("obstore", "cloud"),
    "onnx": _Package("onnx", "export"),
    "onnxruntime": _Package("onnxruntime", "export"),
    "pi_heif": _Package("pi-heif", "heif"),
    "rfdetr": _Package("rfdetr", "rfdetr"),
    "safetensors": _Package("safetensors", "transformers"),
    "tensorboard": _Package("tensorboard", None),
    "tifffile": _Package("tifffile", "tiff"),
    "torch_linear_assignment": _Package("torch-hungarian", "rfdetr"),
    "torchvision": _Package("torchvision", "train"),
    "transformers": _Package("transformers", "transformers"),
    "ultrafast_pycocotools": _Package("ultrafast-pycocotools", "fast-eval"),
}
"""By the name of the module."""


def require(what: str, *modules: str, otherwise: str = "") -> None:
    """Raise an error if a module is not installed.

    Args:
        what: The subject of the error: a command, an option, a kind of file.
        modules: Keys of `PACKAGES`. They are not imported.
        otherwise: What to do without the package, for the end of the error.

    Raises:
        MissingPackageError: with the packages that are missing, and the command that installs them.

    >>> from detaug.packages import require
    >>> require("reading images", "PIL", "numpy")
    """
    missing = [module for module in modules if not is_installed(module)]
    if missing:
        raise MissingPackageError(f"{what} {needs(*missing)}{otherwise and f', or {otherwise}'}")


def needs(*modules: str) -> str:
    """Return the end of a sentence: which packages are needed, and how to install them."""
    names = ", ".join(PACKAGES[module].name for module in modules)
    return f"needs the package{'s'[: len(modules) > 1]} {names}: {install(*modules)}"


def install(*modules: str) -> str:
    """Return the command that installs the packages of modules.

    A light install stays one: `pip install 'detaug[shards]'` would bring torch and DALI, too.
    """
    extras = list(dict.fromkeys(PACKAGES[module].extra for module in modules))
    stays_light = "" not in extras and not all(map(is_installed, LEFT_OUT))
    if stays_light or None in extras:
        return f"pip install {' '.join(PACKAGES[module].name for module in modules)}"
    names = ",".join(filter(None, extras))
    return f"pip install 'detaug[{names}]'" if names else "pip install detaug"


def is_installed(module: str) -> bool:
    """Return whether a module can be found. It is not imported, but a package that it is in."""
    try:
        return find_spec(module) is not None
    except (ModuleNotFoundError, ValueError):  # without its package; a module without a spec
        return False


def missing_module(error: ModuleNotFoundError) -> str | None:
    """Return the key of `PACKAGES` that an import failed for; None for a module of another package."""
    name = "nvidia.dali" if error.name == "nvidia" else error.name
    return next((module for module in PACKAGES if f"{name}.".startswith(f"{module}.")), None)
