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

import detaug as da

ROOT = Path(__file__).parents[1]
NEEDED = {"detaug/py.typed", "detaug/__init__.pyi", "detaug/converters/__init__.py", "detaug/cli/main.py"}


def test_the_citation_has_the_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == da.__version__
    assert citation["license"] == "Apache-2.0"


def test_the_changelog_begins_with_the_version() -> None:
    headings = re.findall(r"^## \[(.*?)\]", (ROOT / "CHANGELOG.md").read_text(), re.M)
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
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    for name in filter(None, listed.stdout.split("\0")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_a_package_runs_the_demo(kind: str, source: Path, tmp_path: Path) -> None:
    """Installed without its requirements, which come from this environment."""
    build = f"from setuptools import build_meta; build_meta.build_{kind}({str(tmp_path)!r})"
    run(sys.executable, "-c", build, folder=source)
    package = next(tmp_path.glob("detaug-*"))
    run(sys.executable, "-m", "twine", "check", "--strict", package, folder=tmp_path)
    if kind == "wheel":
        assert set(zipfile.ZipFile(package).namelist()) >= NEEDED
    site, pip = tmp_path / "site", [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation"]
    run(*pip, "--target", site, package, folder=tmp_path)
    assert [name for name in NEEDED if not (site / name).is_file()] == []
    code = f"import detaug; assert detaug.__file__.startswith({str(site)!r}), detaug.__file__"
    run(sys.executable, "-c", code, folder=tmp_path, PYTHONPATH=str(site))
    run(sys.executable, site / "bin/detaug", "demo", folder=tmp_path, PYTHONPATH=str(site))
    assert any((tmp_path / "demo").rglob("*.jpg"))
