"""Text in any script, for `detaug.drawing.boxes`.

Text is set in Pillow's own font where that has the letters (basic Latin). Otherwise a font of the system is
looked for, with fontconfig and then at the usual paths (Noto, WenQuanYi, DejaVu). A letter that no font has
is written as its code point, `U+732B`, never as an empty frame; `apt install fonts-noto-cjk` or its like
mends that. Right-to-left scripts are shaped where Pillow has libraqm, as its wheels do.
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


def typeset(text: str, height: int) -> tuple[str, ImageFont.FreeTypeFont]:
    """`text` as it can be drawn, and a font of `height` pixels that has its letters."""
    text = _spell_out(unicodedata.normalize("NFC", text), _unprintable)
    path, index = find_font(text)
    font = open_font(path, index, height)
    missing = missing_letters(text, path, index)
    return _spell_out(text, lambda letter: letter in missing), font


def without_font(texts: Iterable[str]) -> str:
    """The printable letters of `texts` that are drawn as code points, because no font here has them."""
    letters = {letter for text in texts for letter in missing_letters(text, *find_font(text))}
    return "".join(sorted(filter(str.isprintable, letters)))


def _spell_out(text: str, is_odd: Callable[[str], bool]) -> str:
    """`text` with its odd letters written as code points: "a\\n" as "a U+000A"."""
    return " ".join("".join(f" U+{ord(c):04X} " if is_odd(c) else c for c in text).split())


def cut(text: str, font: ImageFont.FreeTypeFont, width: float) -> str:
    """`text`, or as much of it as fits `width` with two dots at its end, or nothing."""
    if font.getlength(text) <= width:
        return text
    kept = bisect_right(range(len(text)), width, key=lambda n: font.getlength(text[:n] + "..")) - 1
    return text[:kept].rstrip(" .") + ".." if kept > 0 else ""


def wrap(text: str, font: ImageFont.FreeTypeFont, width: float) -> list[str]:
    """`text` in lines of at most `width`, broken between words; a word that is wider has a line of its own."""
    lines: list[str] = []
    for word in text.split():
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and font.getlength(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


def _unprintable(letter: str) -> bool:
    """Control characters, surrogates and unassigned code points."""
    return unicodedata.category(letter) in ("Cc", "Cs", "Cn")


@lru_cache(maxsize=1024)
def find_font(text: str) -> tuple[str, int]:
    """(path, face) of the first font that has all letters of `text`, else of that which lacks the fewest."""
    best, fewest = ("", 0), len(missing_letters(text, "", 0))
    for path, index in chain(fontconfig(text), ((path, 0) for path in FONT_PATHS)) if fewest else ():
        lacking = len(missing_letters(text, path, index))
        if lacking < fewest:
            best, fewest = (path, index), lacking
        if not fewest:
            break
    return best


def fontconfig(text: str) -> Iterator[tuple[str, int]]:
    """What fontconfig, if it is there, takes for the best sans-serif font with these letters."""
    letters = " ".join(f"{ord(c):x}" for c in sorted(set(text)) if not c.isspace())
    command = ["fc-match", "--format", "%{file}\n%{index}", f"sans:charset={letters}"]
    try:
        answer = subprocess.run(command, capture_output=True, timeout=10, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return
    path, _, index = os.fsdecode(answer).partition("\n")
    yield path, int(index or 0) & 0xFFFF


@lru_cache(maxsize=1024)
def missing_letters(text: str, path: str, index: int) -> frozenset[str]:
    """The letters of `text` for which the font has no glyph; all of them if it cannot be opened.

    Asked without shaping, which puts a circle under a lone vowel sign, whether the font has the sign or not.
    """
    letters = {c for c in text if not c.isspace() and unicodedata.category(c) != "Cf"}
    if path and not Path(path).is_file():
        return frozenset(letters)
    try:
        font = open_font(path, index, 16).font_variant(layout_engine=ImageFont.Layout.BASIC)
        nothing = _glyph(font, NONCHARACTER)
    except OSError:
        return frozenset(letters)
    return frozenset(c for c in letters if _glyph(font, c) == nothing)


def _glyph(font: ImageFont.FreeTypeFont, letter: str) -> tuple[tuple[int, int], bytes]:
    mask = font.getmask(letter)
    return mask.size, bytes(mask)


@lru_cache(maxsize=256)
def open_font(path: str, index: int, height: int) -> ImageFont.FreeTypeFont:
    """The font at `path`, or Pillow's own for an empty one."""
    if path:
        return ImageFont.truetype(path, height, index)
    font = ImageFont.load_default(height)
    if not isinstance(font, ImageFont.FreeTypeFont):
        raise OSError("Pillow must have FreeType to draw text; install its wheel, pip install pillow")
    return font
