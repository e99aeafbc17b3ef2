"""Find fonts for text in any script, and fit text to a width.

Pillow's own font is used where it has the letters (basic Latin). Otherwise a font of the system is
searched, with fontconfig and then at the usual paths (Noto, WenQuanYi, DejaVu). A letter that no font has
is written as its code point, `U+732B`, never as an empty frame; installing a font such as fonts-noto-cjk
helps. Right-to-left scripts are shaped where Pillow has libraqm, as its wheels do.
"""

from __future__ import annotations

import os
import subprocess
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from PIL import ImageFont

NONCHARACTER = "\U0010ffff"  # in no font: drawing it shows the font's "no such letter" glyph

FONT_PATHS = (
    "/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf",
    "/usr/share/fonts/dejavu-sans-fonts/DejaVuSans.ttf",
    "/usr/share/fonts/TTF/DejaVuSans.ttf",
    "/usr/share/fonts/opentype/noto/NotoSansCJK-Regular.ttc",
    "/usr/share/fonts/noto-cjk/NotoSansCJK-Regular.ttc",
    "/usr/share/fonts/google-noto-cjk/NotoSansCJK-Regular.ttc",
    "/usr/share/fonts/google-noto-sans-cjk-fonts/NotoSansCJK-Regular.ttc",
    "/usr/share/fonts/truetype/wqy/wqy-microhei.ttc",
    "/usr/share/fonts/truetype/wqy/wqy-zenhei.ttc",
    "/usr/share/fonts/truetype/droid/DroidSansFallbackFull.ttf",
    "/usr/share/fonts/truetype/noto/NotoSans-Regular.ttf",
    "/usr/share/fonts/truetype/noto/NotoSansArabic-Regular.ttf",
    "/usr/share/fonts/truetype/noto/NotoNaskhArabic-Regular.ttf",
    "/usr/share/fonts/truetype/noto/NotoSansHebrew-Regular.ttf",
    "/usr/share/fonts/truetype/noto/NotoSansDevanagari-Regular.ttf",
    "/usr/share/fonts/truetype/noto/NotoSansThai-Regular.ttf",
    "/usr/share/fonts/truetype/freefont/FreeSans.ttf",
    "/usr/share/fonts/truetype/unifont/unifont.ttf",
)


class Face(NamedTuple):
    """A font file and the position of the font in it; an empty path is Pillow's own font."""

    path: str
    number: int


class Typeset(NamedTuple):
    """Text without undrawable letters, and the font for it."""

    text: str
    font: ImageFont.FreeTypeFont


def typeset(text: str, height: int) -> Typeset:
    """Return the text as it can be drawn, and a font of `height` pixels that has its letters."""
    text = _spell_out(unicodedata.normalize("NFC", text), _unprintable)
    face = find_font(text)
    missing = missing_letters(text, face)
    return Typeset(_spell_out(text, lambda letter: letter in missing), open_font(face, height))


def letters_without_font(texts: Iterable[str]) -> str:
    """Return the printable letters that no font of this machine has, so that they are drawn as code points."""
    letters = {letter for text in texts for letter in missing_letters(text, find_font(text))}
    return "".join(sorted(filter(str.isprintable, letters)))


def _spell_out(text: str, is_odd: Callable[[str], bool]) -> str:
    """Write odd letters as code points: "a\\n" becomes "a U+000A"."""
    return " ".join("".join(f" U+{ord(c):04X} " if is_odd(c) else c for c in text).split())


def cut(text: str, font: ImageFont.FreeTypeFont, width: float) -> str:
    """Cut `text` to `width`, with two dots at its end; "" if nothing fits."""
    if font.getlength(text) <= width:
        return text
    length = bisect_right(range(len(text)), width, key=lambda n: font.getlength(text[:n] + "..")) - 1
    return text[:length].rstrip(" .") + ".." if length > 0 else ""


def wrap(text: str, font: ImageFont.FreeTypeFont, width: float) -> list[str]:
    """Break `text` between words into lines of at most `width`; a wider word has a line of its own."""
    lines: list[str] = []
    for word in text.split():
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and font.getlength(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


def _unprintable(letter: str) -> bool:
    """Return whether a letter is a control character, a surrogate or an unassigned code point."""
    return unicodedata.category(letter) in ("Cc", "Cs", "Cn")


@lru_cache(maxsize=1024)
def find_font(text: str) -> Face:
    """Return the first font that has all letters of `text`, else the font that lacks the fewest."""
    best = Face("", 0)
    fewest = len(missing_letters(text, best))
    for face in chain(fontconfig(text), (Face(path, 0) for path in FONT_PATHS)) if fewest else ():
        lacking = len(missing_letters(text, face))
        if lacking < fewest:
            best, fewest = face, lacking
        if not fewest:
            break
    return best


def fontconfig(text: str) -> Iterator[Face]:
    """Ask fontconfig, if it is installed, for the best sans-serif font with these letters."""
    letters = " ".join(f"{ord(c):x}" for c in sorted(set(text)) if not c.isspace())
    command = ["fc-match", "--format", "%{file}\n%{index}", f"sans:charset={letters}"]
    try:
        answer = subprocess.run(command, capture_output=True, timeout=10, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return
    path, _, number = os.fsdecode(answer).partition("\n")
    yield Face(path, int(number or 0) & 0xFFFF)


@lru_cache(maxsize=1024)
def missing_letters(text: str, face: Face) -> frozenset[str]:
    """Return the letters of `text` for which the font has no glyph; all of them if it cannot be opened."""
    letters = {c for c in text if not c.isspace() and unicodedata.category(c) != "Cf"}
    if face.path and not Path(face.path).is_file():
        return frozenset(letters)
    try:
        # Without shaping, which puts a circle under a lone vowel sign, whether the font has the sign or not.
        font = open_font(face, 16).font_variant(layout_engine=ImageFont.Layout.BASIC)
        nothing = _glyph(font, NONCHARACTER)
    except OSError:
        return frozenset(letters)
    return frozenset(c for c in letters if _glyph(font, c) == nothing)


def _glyph(font: ImageFont.FreeTypeFont, letter: str) -> tuple[tuple[int, int], bytes]:
    mask = font.getmask(letter)
    return mask.size, bytes(mask)


@lru_cache(maxsize=256)
def open_font(face: Face, height: int) -> ImageFont.FreeTypeFont:
    """Open a font, Pillow's own for an empty path."""
    if face.path:
        return ImageFont.truetype(face.path, height, face.number)
    font = ImageFont.load_default(height)
    if not isinstance(font, ImageFont.FreeTypeFont):
        raise OSError("Pillow must have FreeType to draw text; install its wheel, pip install pillow")
    return font
