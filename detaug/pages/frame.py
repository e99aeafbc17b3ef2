"""The frame of the pages for a browser.

A page is one file that loads nothing: SVG for charts, small pictures inside, no scripts. Names are escaped.
"""

from __future__ import annotations

import base64
import io
from html import escape
from typing import TYPE_CHECKING, Any

from detaug.outputs.guards import MARK

if TYPE_CHECKING:
    from PIL import Image

STYLE = """
:root { color-scheme: light dark; --ink: #1c1e22; --paper: #fff; --faint: #5a5f68; --line: #c8ccd2; --box: #f1f2f4;
  --bar: #0072b2; } @media (prefers-color-scheme: dark) { :root { --ink: #e6e8eb; --paper: #16181c; --faint: #a4aab4;
  --line: #4a4f58; --box: #24272d; --bar: #56b4e9; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 2em auto;
  max-width: 1080px; padding: 0 1em; } h1 { font-size: 1.5em; overflow-wrap: anywhere; }
h2 { font-size: 1.15em; margin: 2em 0 .3em; } h3 { font-size: 1em; margin: 0 0 .3em; }
.row { display: flex; flex-wrap: wrap; gap: 22px; } td { padding: 0 10px 0 0; }
td:first-child { overflow-wrap: anywhere; min-width: 8em; } td + td + td { text-align: right; }
td svg { display: block; width: min(400px, 40vw); height: 13px; }
figure { margin: 0; width: 242px; max-width: 100%; overflow-wrap: anywhere; font-size: 13px; line-height: 1.35; }
svg, img { max-width: 100%; height: auto; }
figure img { display: block; border: 1px solid var(--line); margin-bottom: 4px; }
.none { width: 240px; padding: 30px 12px; box-sizing: border-box; background: var(--box); margin-bottom: 4px; }
.error, .warning { font-weight: 600; padding: 1px 7px; border-radius: 3px; color: #fff; font-size: 13px; }
.error { background: #a8320a; } .warning { background: #00588f; } .faint { color: var(--faint); }
svg text { font: 12px system-ui, sans-serif; fill: var(--ink); } svg rect { fill: var(--bar); }
svg line { stroke: var(--line); } .map { image-rendering: pixelated; }
"""

POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def head(title: str, command: str) -> str:
    """Return the beginning of a page with its heading; `command` made it. It ends with `END`."""
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>\n'
        f'<meta name="generator" content="{MARK} {command}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}"><style>{STYLE}</style></head><body>\n'
        f"<h1><bdi>{escape(title)}</bdi></h1>"
    )


END = "</body></html>\n"


def data_uri(picture: Image.Image, kind: str, **options: Any) -> str:
    """Encode a picture as "PNG" or "JPEG" in a data URI."""
    encoded = io.BytesIO()
    picture.save(encoded, kind, **options)
    return f"data:image/{kind.lower()};base64,{base64.b64encode(encoded.getvalue()).decode()}"


def shorten(text: str, most: int) -> str:
    """Cut `text` to its first `most` letters."""
    return text if len(text) <= most else f"{text[:most]}..."
