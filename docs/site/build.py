"""Build the site: the documents as they are, the API reference and the gallery.

    pip install -e '.[docs]' && python docs/site/build.py [FOLDER]

The pages are in build/site, or in FOLDER. Any warning of Sphinx is an error. Sphinx reads a copy of the documents, in
which the generated pages lie beside the others; their links stay as they are. The first page is landing.md, whose links
begin at the root, with sections of the README.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

from api import write_api
from gallery import write_gallery
from notebook_pages import write_notebooks
from sphinx.cmd.build import main as sphinx

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PROJECT = ["CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"]

NAVIGATION = {
    "Start": ["docs/install", "docs/own-data", "docs/migrating", "docs/comparison", "notebooks/index"],
    "Data": ["docs/data-formats", "docs/object-stores", "docs/many-machines", "docs/custom-source"],
    "Augmentation": ["docs/which-recipe", "docs/ops", "docs/gallery", "docs/custom-op"],
    "Training": [
        *("docs/training", "docs/batches-and-targets", "docs/distributed-and-resume", "docs/evaluation"),
        *("docs/trainers/torchvision_references", "docs/trainers/torchvision_datasets", "docs/trainers/huggingface"),
        *(
            "docs/trainers/rf_detr",
            "docs/trainers/d_fine",
            "docs/trainers/ultralytics",
            "docs/trainers/accelerate_loop",
        ),
        "docs/trainers/lightning_fit",
        "docs/trainers/torch_compile",
    ],
    "Tasks": [
        *("docs/masks", "docs/maps", "docs/points", "docs/views"),
        *("docs/large-pictures", "docs/bands", "docs/video"),
    ],
    "DALI and other frameworks": ["docs/dali-pipelines", "docs/interop"],
    "Reference": ["docs/errors-and-troubleshooting", "docs/commands", "docs/findings", "api"],
    "About": [
        *("docs/performance", "docs/accuracy", "docs/reliability", "docs/design"),
        *("CONTRIBUTING", "CHANGELOG", "SECURITY", "docs/history/guides-2026-11", "docs/history/measurements-2026-11"),
        *("docs/history/reliability-2026-11", "docs/history/training-2026-11"),
    ],
}
"""The one index: the pages of the site by parts. "api" are the pages of the API reference."""

FROM_README = ("Guides", "Limits")
"""The sections of the README that the first page ends with."""

LINK = re.compile(r"\[([^\]]*)\]\((?!https?:)([^)#]+)(#[^)]*)?\)")


def build(folder: Path) -> int:
    """Build the site into `folder` and return Sphinx's exit code."""
    with tempfile.TemporaryDirectory() as temporary:
        source = Path(temporary, "source")
        write_source(source)
        print("drawing the gallery of ops", flush=True)
        write_gallery(source / "docs/gallery.md")
        pages = write_api(source / "api")
        (source / "index.md").write_text(first_page(source, pages), encoding="utf-8")
        print("building the pages", flush=True)
        options = ["--fail-on-warning", "--keep-going", "--quiet", "--jobs", "2"]
        return sphinx([*options, "-c", str(HERE), "-d", f"{temporary}/doctrees", str(source), str(folder)])


def write_source(source: Path) -> None:
    """Copy the documents, and files that they link to, into the folder that Sphinx reads."""
    shutil.copytree(ROOT / "docs", source / "docs", ignore=shutil.ignore_patterns("site", "__pycache__"))
    for name in PROJECT:
        shutil.copyfile(ROOT / name, source / name)
    write_notebooks(ROOT / "notebooks", source / "notebooks")
    for page in [*source.glob("*.md"), *source.glob("docs/**/*.md"), *source.glob("notebooks/*.md")]:
        text = page.read_text(encoding="utf-8")
        original = ROOT / page.relative_to(source)
        page.write_text(rewrite_links(text, original, source), encoding="utf-8")


def rewrite_links(text: str, page: Path, source: Path) -> str:
    """Let links to the README lead to the first page, those to gallery.py to the gallery, to notebooks to their pages.

    Other files that are linked are copied, and folders unlinked.
    """

    def rewrite(match: re.Match[str]) -> str:
        target = (page.parent / match[2]).resolve()
        if target == HERE / "gallery.py":  # the page that it writes
            return f"[{match[1]}]({os.path.relpath(ROOT / 'docs/gallery.md', page.parent)})"
        if target.suffix == ".ipynb":
            return match[0].replace(".ipynb", ".md")
        if target == ROOT / "README.md":
            return match[0].replace("README.md", "index.md")
        if target.is_dir():
            first = sorted(target.glob("*.md"))
            return f"[{match[1]}]({match[2].rstrip('/')}/{first[0].name})" if first else match[1]
        copy = source / target.relative_to(ROOT)
        if not copy.exists():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(target, copy)
        return match[0]

    return LINK.sub(rewrite, text)


def first_page(source: Path, api_pages: list[str]) -> str:
    """Return the landing page with sections of the README and the table of contents of the site."""
    shutil.copyfile(HERE / "flow.svg", source / "flow.svg")
    readme = re.split(r"^(?=## )", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.M)
    sections = [part for title in FROM_README for part in readme if part.startswith(f"## {title}\n")]
    landing = "\n".join([(HERE / "landing.md").read_text(encoding="utf-8"), *sections])
    api = [f"api/{page}" for page in api_pages]
    parts = {
        caption: [name for page in pages for name in (api if page == "api" else [page])]
        for caption, pages in NAVIGATION.items()
    }
    first = rewrite_links(landing, ROOT / "README.md", source)
    return first + "".join(contents(caption, pages) for caption, pages in parts.items())


def contents(caption: str, pages: list[str]) -> str:
    """Return a part of the table of contents, which the pages show at their side."""
    lines = "\n".join(pages)
    return f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{lines}\n```\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "build/site")
    sys.exit(build(parser.parse_args().folder))
