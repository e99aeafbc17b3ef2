"""Wheel and sdist: complete, and the installed package runs the demo."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml
from places import REPOSITORY

import detaug as da

NEEDED = {"detaug/py.typed", "detaug/__init__.pyi", "detaug/converters/__init__.py", "detaug/cli/main.py"}
NEEDED |= {str(path.relative_to(REPOSITORY)) for path in REPOSITORY.glob("detaug/*/*.html")}


def test_the_citation_has_the_version() -> None:
    citation = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text())
    assert citation["version"] == da.__version__
    assert citation["license"] == "Apache-2.0"


def test_the_changelog_begins_with_the_version() -> None:
    headings = re.findall(r"^## \[(.*?)\]", (REPOSITORY / "CHANGELOG.md").read_text(), re.M)
    assert da.__version__ in headings[:2]


def run(*command: object, folder: Path, **variables: str) -> None:
    done = subprocess.run(
        [str(part) for part in command], cwd=folder, env=os.environ | variables, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tracked files: a build leaves files beside them."""
    folder = tmp_path_factory.mktemp("source")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    for name in filter(None, listed.stdout.split("\0")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(REPOSITORY / name, folder / name, follow_symlinks=False)
    return folder


def installed(kind: str, source: Path, folder: Path) -> Path:
    """Build a package, check it, and return the folder into which it is installed without its requirements."""
    folder.mkdir()
    build = f"from setuptools import build_meta; build_meta.build_{kind}({str(folder)!r})"
    run(sys.executable, "-c", build, folder=source)
    package = next(folder.glob("detaug-*"))
    run(sys.executable, "-m", "twine", "check", "--strict", package, folder=folder)
    if kind == "wheel":
        assert set(zipfile.ZipFile(package).namelist()) >= NEEDED
    site, pip = folder / "site", [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation"]
    run(*pip, "--no-compile", "--target", site, package, folder=folder)
    return site


FEW_IMAGES = """
import sys
from functools import partial
import detaug.demo.demo as module
from detaug.cli.main import main

assert module.__file__.startswith(sys.argv[1]), module.__file__
module.demo = partial(module.demo, images=6, seconds=0, steps=2)
sys.exit(main(["demo"]))
"""
"""The command; it has no options for that, and test_demo.py and test_docs.py draw all images."""


@pytest.mark.slow
def test_packages_have_the_same_files_and_run_the_demo(source: Path, tmp_path: Path) -> None:
    """Wheel and sdist. The requirements come from this environment."""
    sites = [installed(kind, source, tmp_path / kind) for kind in ("wheel", "sdist")]
    of_wheel, of_sdist = (
        {str(path.relative_to(site)): path.read_bytes() for path in site.glob("detaug/**/*") if path.is_file()}
        for site in sites
    )
    assert of_wheel.keys() >= NEEDED
    assert of_sdist == of_wheel
    environment = {"PYTHONPATH": str(sites[1])}
    run(sys.executable, sites[1] / "bin/detaug", "--version", folder=tmp_path, **environment)
    run(sys.executable, "-c", FEW_IMAGES, sites[1], folder=tmp_path, **environment)
    assert any((tmp_path / "demo").rglob("*.jpg"))
