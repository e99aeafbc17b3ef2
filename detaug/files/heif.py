"""AVIF and HEIC, which phones write and DALI does not decode: Pillow reads AVIF, and HEIC with another package."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, BinaryIO

from detaug.packages import needs

AVIF, HEIC = "AVIF", "HEIC"
EXTENSIONS = {AVIF: (".avif",), HEIC: (".heic", ".heif")}
_HEIC_PACKAGES = ("pi_heif", "pillow_heif")
"""Either has libheif in its wheel; the first decodes only."""

_BRANDS = {
    **dict.fromkeys((b"avif", b"avis"), AVIF),
    **dict.fromkeys((b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx"), HEIC),
}


def format_of(head: bytes) -> str | None:
    """Return "AVIF" or "HEIC" for the first bytes of such a file; None for others.

    A file of the brands mif1 or msf1, "HEIF", says among its compatible brands what it holds.
    """
    if head[4:8] != b"ftyp":
        return None
    if head[8:12] in (b"mif1", b"msf1"):
        length = int.from_bytes(head[:4], "big")
        compatible = [head[start : start + 4] for start in range(16, min(length, len(head)), 4)]
        return next((_BRANDS[brand] for brand in compatible if brand in _BRANDS), HEIC)
    return _BRANDS.get(head[8:12])


@cache
def decodes(image_format: str) -> bool:
    """Return whether images of a format, "AVIF" or "HEIC", can be decoded here."""
    from PIL import features  # slow to import, and few images need it

    if image_format == AVIF:
        return bool(features.check("avif"))
    package = next(filter(find_spec, _HEIC_PACKAGES), None)
    if package is None:
        return False
    import_module(package).register_heif_opener()  # for Image.open everywhere
    return True


def why_undecoded(image_format: str) -> str:
    """Return the end of a sentence about a file of a format that is not decoded here."""
    if image_format == HEIC:
        return f"is HEIC, which {needs('pi_heif')}, or save it as JPEG or PNG"
    return "is AVIF, which this version of Pillow does not decode; pip install -U pillow, or save it as JPEG or PNG"


def undecoded_extensions() -> tuple[str, ...]:
    """Return the extensions of the formats that are not decoded here."""
    return tuple(name for image_format, names in EXTENSIONS.items() if not decodes(image_format) for name in names)


def are_among(names: Iterable[str]) -> bool:
    """Return whether some of these files are named as AVIF or HEIC."""
    endings = (*EXTENSIONS[AVIF], *EXTENSIONS[HEIC])
    return any(ending.lower().endswith(endings) for ending in {name[-5:] for name in names})  # few, of many names


def name_fault(image_format: str, name: str) -> str:
    """Return why the loader does not decode an AVIF or HEIC by this name; "" for others, and where it does.

    It opens images of other names with DALI, which reads the files itself.
    """
    endings = EXTENSIONS.get(image_format)
    if endings is None or are_among([name]):
        return ""
    return f"is {image_format}, and its name does not say so; rename it to {endings[0]}, also in the JSON file"


def read_pixels(file: BinaryIO) -> Any:
    """Return an image as Pillow's, RGB, as it is stored. Raises what Pillow raises for a broken one."""
    from PIL import Image

    with Image.open(file, formats=["AVIF", "HEIF"]) as image:
        return image.convert("RGB")
