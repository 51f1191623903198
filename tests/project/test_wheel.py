"""A distribution holds the web page, or is not built: tried in a small copy of the project."""

import shutil
import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

from tests.conftest import ROOT

STATIC = "ai_platform_engineering/web/static"
BUILT = (f"{STATIC}/index.html", f"{STATIC}/assets/app-ABCDEFGH.js")
# Stands for npm: it writes what the build of the page would.
NPM = f"""#!/bin/sh
echo "$@" >>../npm-calls
[ "$1" = run ] || exit 0
mkdir -p ../{STATIC}/assets
echo page >../{BUILT[0]}
echo script >../{BUILT[1]}
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    for name in (
        "pyproject.toml",
        "hatch_build.py",
        "README.md",
        "LICENSE",
        "ui/sources-sum",
        "ui/build.mjs",
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    for name in ("ai_platform_engineering/__init__.py", "docs/web.md", "ui/src/app.tsx", "ui/package.json"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("")
    (folder / "ui" / "package-lock.json").write_text("{}")
    return folder


def build_page(project: Path) -> None:
    """As `make page` does."""
    for name in BUILT:
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text("built")
    checksum = subprocess.run(
        [project / "ui" / "sources-sum"], capture_output=True, text=True, check=True
    ).stdout
    (project / STATIC / f".built-{checksum.strip()}").touch()


def build_wheel(project: Path, version: str = "standard") -> set[str]:
    [wheel] = WheelBuilder(str(project)).build(directory=str(project / "dist"), versions=[version])
    return set(zipfile.ZipFile(wheel).namelist())


def without_npm(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Path:
    """A PATH with what the checksum needs, and no npm; the folder to put one in."""
    programs = folder / "programs"
    programs.mkdir()
    for name in ("sh", "find", "sort", "xargs", "cat", "cksum", "cut", "dirname", "mkdir"):
        (programs / name).symlink_to(shutil.which(name) or name)
    monkeypatch.setenv("PATH", str(programs))
    return programs


def test_a_built_page_is_part_of_the_wheel_and_needs_no_npm(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_page(project)
    without_npm(monkeypatch, tmp_path)
    assert set(BUILT) <= build_wheel(project)


def test_a_wheel_without_the_page_is_not_built(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_npm(monkeypatch, tmp_path)
    with pytest.raises(RuntimeError, match="there is no npm to build it"):
        build_wheel(project)
    # For work on the sources it is not needed.
    assert build_wheel(project, "editable").isdisjoint(BUILT)


def test_a_page_of_older_sources_is_built_again(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_page(project)
    (project / "ui" / "src" / "app.tsx").write_text("changed")
    npm = without_npm(monkeypatch, tmp_path) / "npm"
    npm.write_text(NPM)
    npm.chmod(0o755)
    assert set(BUILT) <= build_wheel(project)
    assert (project / BUILT[1]).read_text() == "script\n"
    calls = (project / "npm-calls").read_text().splitlines()
    assert [call.split()[0] for call in calls] == ["ci", "run"]
    build_wheel(project)  # now it belongs to the sources
    assert len((project / "npm-calls").read_text().splitlines()) == 2


def test_a_source_distribution_holds_the_sources_and_the_page(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_page(project)
    (project / ".gitignore").write_text((ROOT / ".gitignore").read_text())
    (project / "ui" / "node_modules").mkdir()
    (project / "ui" / "node_modules" / "large.js").write_text("")
    without_npm(monkeypatch, tmp_path)
    [archive] = SdistBuilder(str(project)).build(directory=str(project / "dist"), versions=["standard"])
    with tarfile.open(archive) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
        opened.extractall(tmp_path / "unpacked", filter="data")
    assert {*BUILT, "ui/src/app.tsx", "ui/package-lock.json", "hatch_build.py"} <= names
    assert "ui/node_modules/large.js" not in names
    # A wheel is made from it without npm.
    [unpacked] = (tmp_path / "unpacked").iterdir()
    assert set(BUILT) <= build_wheel(unpacked)
