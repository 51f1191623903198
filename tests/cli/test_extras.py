"""Extras and completion: what is installed from which lock, and what is written where."""

import re
import tomllib
from pathlib import Path

import pytest
from langchain.chat_models import base as langchain_models
from packaging.requirements import Requirement

from ai_platform_engineering.cli.extras import EXTRAS, LOCKS_FOLDER
from ai_platform_engineering.core.model_providers import LANGCHAIN_PROVIDERS, PROVIDERS
from tests.conftest import ROOT
from tests.support.processes import BIN, run_command

OK, FAILED, USAGE = 0, 1, 2
PACKAGE = re.compile(r"^([A-Za-z0-9._-]+)==", re.MULTILINE)


def locked_packages(lock: Path) -> list[str]:
    return PACKAGE.findall(lock.read_text())


def test_every_extra_has_a_lock_with_a_hash_for_each_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    base = set(locked_packages(ROOT / "requirements.lock"))
    assert set(EXTRAS) == set(project["optional-dependencies"])
    assert {path.stem for path in LOCKS_FOLDER.glob("*.txt")} == set(EXTRAS)
    for name, requirements in project["optional-dependencies"].items():
        text = (LOCKS_FOLDER / f"{name}.txt").read_text()
        packages = locked_packages(LOCKS_FOLDER / f"{name}.txt")
        assert base.isdisjoint(packages), name  # they stay as they are installed
        for requirement in map(Requirement, requirements):
            assert requirement.name in {*packages, *base}, name
        blocks = re.split(r"^(?=[A-Za-z0-9])", text, flags=re.MULTILINE)[1:]
        assert all("--hash=sha256:" in block for block in blocks), name
        assert "://" not in text, name


def test_every_provider_of_langchain_is_known() -> None:
    prefixes = {*PROVIDERS, *LANGCHAIN_PROVIDERS}
    assert set(langchain_models._BUILTIN_PROVIDERS) <= prefixes
    assert {provider.extra for provider in PROVIDERS.values()} - {None} <= set(EXTRAS)


async def test_extras_are_listed_and_an_unknown_one_is_a_usage_error() -> None:
    listed = await run_command("caipe", "extras")
    assert listed.code == OK
    assert re.search(r"^bedrock +(installed)? +models: bedrock: *$", listed.out, re.MULTILINE)
    wrong = await run_command("caipe", "extras", "install", "openai")
    assert wrong.code == USAGE
    assert "bedrock" in wrong.err


async def test_an_index_that_cannot_be_reached_leaves_the_extra_out() -> None:
    nowhere = "http://127.0.0.1:1/simple"
    env = {"PIP_INDEX_URL": nowhere, "UV_DEFAULT_INDEX": nowhere, "PIP_RETRIES": "0", "UV_HTTP_RETRIES": "0"}
    env |= {"PIP_NO_CACHE_DIR": "1", "UV_NO_CACHE": "1", "PIP_CONFIG_FILE": "/dev/null"}
    done = await run_command("caipe", "extras", "install", "ollama", env=env)
    assert done.code == FAILED
    assert "the extra ollama is not installed." in done.err
    assert "--require-hashes" in done.err


@pytest.mark.parametrize(("shell", "start_file"), [("bash", ".bashrc"), ("zsh", ".zshrc"), ("fish", None)])
async def test_completion_is_installed_once(shell: str, start_file: str | None, tmp_path: Path) -> None:
    for _ in range(2):
        done = await run_command("caipe", "completion", "install", env={"SHELL": f"/usr/bin/{shell}"})
        assert done.code == OK, done.err
    path = Path(re.search(r"Wrote (.*)\.\n", done.err)[1])  # type: ignore[index]
    assert path.is_relative_to(tmp_path)
    assert f"_CAIPE_COMPLETE={shell}_complete" in path.read_text()
    if start_file is not None:
        assert (tmp_path / start_file).read_text().count(str(path)) == 2  # tested, then read
    shown = await run_command("caipe", "completion", "show", "--shell", shell)
    assert shown.out.strip() == path.read_text().strip()


async def test_commands_are_completed() -> None:
    env = {"_CAIPE_COMPLETE": "bash_complete", "COMP_WORDS": "caipe ext", "COMP_CWORD": "1"}
    # Executed: the name of a forked process is another.
    done = await run_command("python", str(BIN / "caipe"), "ext", env=env)
    assert done.out.strip() == "plain,extras"


async def test_an_unknown_shell_is_asked_for() -> None:
    done = await run_command("caipe", "completion", "install", env={"SHELL": "/bin/tcsh"})
    assert (done.code, done.out) == (FAILED, "")
    assert done.err == "Your shell is not supported or not set in SHELL. Choose one: --shell bash|zsh|fish\n"
