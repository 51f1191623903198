"""Every command of README.md and docs/ works as it is written, in a clone and from an installed wheel."""

import os
import shlex
import socket
import subprocess
import sys
import venv
from collections.abc import AsyncIterator
from pathlib import Path

import click
import pytest
import pytest_asyncio
from hatchling.builders.wheel import WheelBuilder

from ai_platform_engineering.cli.main import main
from tests.conftest import ROOT, need
from tests.support.documented_commands import (
    SKIP_REASONS,
    CommandBlock,
    Workplace,
    list_blocks,
    list_folders,
    list_mentions,
    serves,
)

BLOCKS = [block for block in list_blocks() if not block.skip]
ASKING = [block for block in BLOCKS if not serves(block)]
SERVING = [block for block in BLOCKS if serves(block)]
_SKILL = "---\nname: {name}\ndescription: Checks a certificate.\n---\n\nLook at its expiry.\n"


def make_workplace(folder: Path, bin_folder: Path) -> Workplace:
    """A folder with those that the commands name; each can be read as documents and as a skill."""
    for name in list_folders():
        (folder / name).mkdir(parents=True)
        (folder / name / "certificates.md").write_text("# Certificates\n\nWe rotate certificates in May.\n")
        (folder / name / "SKILL.md").write_text(_SKILL.format(name=name))
    first, second = _find_free_ports()
    return Workplace(folder, f"{bin_folder}{os.pathsep}{os.environ['PATH']}", first, second)


def _find_free_ports() -> tuple[int, int]:
    with socket.create_server(("127.0.0.1", 0)) as first, socket.create_server(("127.0.0.1", 0)) as second:
        return first.getsockname()[1], second.getsockname()[1]


def make_clone(folder: Path) -> Workplace:
    """A folder with the .venv of this checkout, and without its `.env`."""
    folder.mkdir()
    (folder / ".venv").symlink_to(Path(sys.prefix))
    return make_workplace(folder, Path(sys.prefix) / "bin")


def install_wheel(folder: Path) -> Workplace:
    """The wheel in an environment of its own; the packages that it needs are those of this one."""
    folder.mkdir()
    [wheel] = WheelBuilder(str(ROOT)).build(directory=str(folder), versions=["standard"])
    venv.create(folder / "installed", symlinks=True)
    [site_packages] = (folder / "installed").glob("lib/*/site-packages")
    [dependencies] = {path for path in sys.path if path.endswith("site-packages")}
    (site_packages / "dependencies.pth").write_text(f"{dependencies}\n")
    python = folder / "installed" / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-index", "--no-deps"]
    subprocess.run([*install, "--quiet", wheel], check=True)
    return make_workplace(folder / "elsewhere", folder / "installed" / "bin")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def clone(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Workplace]:
    """A clone in which a server answers."""
    workplace = make_clone(tmp_path_factory.mktemp("documented") / "clone")
    async with workplace.serve("caipe serve"):
        yield workplace


@pytest.mark.sample(4)
@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("block", ASKING, ids=str)
async def test_the_commands_of_a_block_run_in_a_clone(clone: Workplace, block: CommandBlock) -> None:
    need("curl", "curl" not in str(block.commands) or _has_curl(), "it is not installed")
    assert await clone.run_all(block.commands) == []


@pytest.mark.parametrize("block", SERVING, ids=str)
async def test_the_servers_of_a_block_start_in_a_clone(tmp_path: Path, block: CommandBlock) -> None:
    assert await make_clone(tmp_path / "clone").run_all(block.commands) == []


@pytest.mark.full
async def test_the_commands_run_from_an_installed_wheel(tmp_path: Path) -> None:
    workplace = install_wheel(tmp_path / "wheel")
    failures: list[str] = []
    for block in SERVING:
        failures += await workplace.run_all(_without_make(block))
    async with workplace.serve("caipe serve"):
        for block in ASKING:
            failures += await workplace.run_all(_without_make(block))
    assert failures == []


def _without_make(block: CommandBlock) -> list[str]:
    """The commands as somebody types them who has no clone: `caipe` is on the PATH."""
    commands = [command for command in block.commands if not command.startswith("make ")]
    return [command.replace(".venv/bin/caipe", "caipe") for command in commands]


def test_what_is_not_run_says_why() -> None:
    reasons = {block.skip for block in list_blocks()} - {""}
    assert reasons <= set(SKIP_REASONS)
    assert len(BLOCKS) >= 8


def test_commands_in_sentences_name_commands_and_options_that_exist() -> None:
    wrong = {mention: problem for mention in list_mentions() if (problem := _find_problem(mention[1]))}
    assert wrong == {}


def _find_problem(text: str) -> str | None:
    """Why the command line cannot be meant as it is written; its values are not looked at."""
    command: click.Command = main
    for word in shlex.split(text.replace("\\|", "|"))[1:]:
        if word.startswith("-"):
            options = {name for parameter in command.params for name in parameter.opts}
            if word.split("=")[0] not in options | {"--help"}:
                return f"there is no option {word}"
        elif isinstance(command, click.Group):
            subcommand = command.commands.get(word)
            if subcommand is None and not command.invoke_without_command:
                return f"there is no command {word}"
            command = subcommand or command
    return None


def _has_curl() -> bool:
    return any((Path(folder) / "curl").exists() for folder in os.environ["PATH"].split(os.pathsep))
