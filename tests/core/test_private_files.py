"""Private files: what is created in CAIPE_HOME is for its owner alone, whatever the umask says."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from ai_platform_engineering.core.private_files import (
    create_private_folder,
    make_home_private,
    open_private_file,
    write_private_file,
)
from tests.support.fakes.model import ScriptedChatModel
from tests.support.fakes.script import Say, Script, Turn
from tests.support.processes import invoke_caipe
from tests.support.storages import in_folder, supervisor_on


@pytest.fixture(autouse=True)
def _open_umask() -> Iterator[None]:
    old = os.umask(0)
    yield
    os.umask(old)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_every_folder_that_is_created_is_private(tmp_path: Path) -> None:
    """`mkdir(mode=0o700, parents=True)` leaves the folders above open."""
    create_private_folder(tmp_path / "a" / "b" / "c")
    assert [mode(tmp_path / name) for name in ("a", "a/b", "a/b/c")] == [0o700] * 3


def test_a_file_is_private_and_an_open_one_is_closed(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("x")
    for name in ("old", "new"):
        os.close(open_private_file(tmp_path / name))
        assert mode(tmp_path / name) == 0o600
    write_private_file(tmp_path / "folder" / "file", b"x")
    assert (mode(tmp_path / "folder"), mode(tmp_path / "folder" / "file")) == (0o700, 0o600)


def test_an_open_home_is_closed_and_a_missing_one_is_not_made(tmp_path: Path) -> None:
    home = tmp_path / "home"
    make_home_private(home)
    assert not home.exists()
    home.mkdir(mode=0o777)
    make_home_private(home)
    assert mode(home) == 0o700


async def test_whatever_a_server_stores_is_private(tmp_path: Path) -> None:
    home = tmp_path / "new" / "home"
    async with supervisor_on(in_folder(home), ScriptedChatModel(script=Script(Turn(Say("Yes."))))) as client:
        assert (await client.ask("Well?")).answer == "Yes."
        paths = [home.parent, home, *home.rglob("*")]
        assert len([path for path in paths if path.is_file()]) >= 4  # the databases and their logs
        assert {path.name: oct(mode(path)) for path in paths if mode(path) & 0o077} == {}


async def test_a_command_closes_an_open_home(tmp_path: Path) -> None:
    home = tmp_path / "open"
    home.mkdir(mode=0o755)
    await invoke_caipe("doctor", env={"CAIPE_HOME": str(home)})
    assert mode(home) == 0o700
