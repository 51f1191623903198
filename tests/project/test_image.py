"""The image without a Docker engine: what its Dockerfile says, and its commands as they run there."""

import asyncio
import fnmatch
import os
import re
import shutil
import subprocess
import sysconfig
import tomllib
import venv
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import httpx
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ai_platform_engineering.agents.installed_commands import find_command
from ai_platform_engineering.core.optional_packages import IMAGE_MARK, IMAGE_USER
from ai_platform_engineering.web.page_files import STATIC_FOLDER as STATIC
from network_guard import GUARD_FILE
from tests.conftest import ROOT, need
from tests.support.container_files import (
    KEY,
    SHIPPED,
    SUPERVISOR,
    dockerfile_lines,
    entrypoint,
    image_environment,
    last_stage_lines,
    read_dockerfile,
    read_services,
)
from tests.support.dialects import V03, artifact, text_of
from tests.support.harness import PLAIN, Client
from tests.support.ports import free_port
from tests.support.processes import BIN, run_command, start_command


def test_the_image_is_made_of_named_bases_and_files_of_this_repository() -> None:
    bases = [line.split()[0] for line in dockerfile_lines("FROM")]
    assert {base.split(":")[0] for base in bases} == {"python"}
    assert len(set(bases)) == 1
    assert dockerfile_lines("ADD") == []
    assert not re.search(r"https?://(?!127\.0\.0\.1)", " ".join(rest for _, rest in read_dockerfile()))
    for source in copied_paths():
        assert (ROOT / source).exists(), source
        assert is_in_build_context(source), source


def copied_paths() -> Iterator[str]:
    for line in dockerfile_lines("COPY"):
        words = line.split()
        if not words[0].startswith("--from="):
            yield from words[:-1]


def is_in_build_context(path: str) -> bool:
    """Whether `.dockerignore` lets the file into the build.

    The last line that matches it or a folder above it decides.
    """
    parts = PurePosixPath(path)
    candidates = [str(parts), *(str(parent) for parent in parts.parents if str(parent) != ".")]
    inside = True
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        pattern = line.strip().lstrip("!")
        if (
            pattern
            and not line.startswith("#")
            and any(_matches_ignore_pattern(candidate, pattern) for candidate in candidates)
        ):
            inside = line.startswith("!")
    return inside


def _matches_ignore_pattern(path: str, pattern: str) -> bool:
    if pattern.startswith("**/"):
        return fnmatch.fnmatchcase(path.rpartition("/")[2], pattern[3:])
    return path.count("/") == pattern.count("/") and fnmatch.fnmatchcase(path, pattern)


def test_the_build_sees_the_package_and_no_secret() -> None:
    package = [
        path
        for path in (ROOT / "ai_platform_engineering").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and STATIC not in path.parents
    ]
    assert len(package) > 100
    assert [path for path in package if not is_in_build_context(path.relative_to(ROOT).as_posix())] == []
    for path in (
        ".env",
        ".git/config",
        "ai_platform_engineering/.env",
        "ai_platform_engineering/core/.env.local",
        "tests/conftest.py",
        "ui/node_modules/preact/package.json",
        "ai_platform_engineering/web/static/index.html",  # built in the image
    ):
        assert not is_in_build_context(path), path


def test_what_is_installed_is_locked_with_hashes() -> None:
    installs = [
        command
        for line in dockerfile_lines("RUN")
        for command in re.split(r"&&|;", line)
        if re.search(r"\bpip\b", command)
    ]
    node, packages, own_package = installs
    assert "--only-binary :all: --require-hashes --no-deps -r requirements-node.lock" in node
    assert [line for line in dockerfile_lines("RUN") if "npm ci --ignore-scripts" in line]
    assert "--only-binary :all: --require-hashes --no-deps -r requirements-image.lock" in packages
    assert "--no-index --no-deps --no-build-isolation ." in own_package


def test_the_image_holds_git_the_sandbox_the_clients_of_all_databases_and_the_embedding_model() -> None:
    system_packages = " ".join(last_stage_lines("RUN"))
    assert re.search(r"apt-get install [^&]*\bbubblewrap\b[^&]*\bgit\b", system_packages)
    locked = set(re.findall(r"^([a-z0-9-]+)==", (ROOT / "requirements-image.lock").read_text(), re.MULTILINE))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    needed = [*project["project"]["dependencies"], *project["dependency-groups"]["embeddings"]]
    for extra in ("postgres", "redis", "valkey", "mongodb"):
        needed += extras[extra]
    assert {canonicalize_name(Requirement(line).name) for line in needed} <= locked


def test_the_image_is_marked_for_hints_that_are_true_in_it() -> None:
    (line,) = [line for line in dockerfile_lines("RUN") if "touch" in line]
    environment = next(line.split()[-1] for line in dockerfile_lines("COPY") if "--from=build" in line)
    assert line.endswith(f"touch {environment}/{IMAGE_MARK}")
    (user,) = last_stage_lines("USER")
    assert user == IMAGE_USER
    arguments = {line.partition("=")[0] for line in dockerfile_lines("ARG")}
    assert {"AGENTS", "WITH_NODE"} <= arguments


def test_the_container_does_not_run_as_root() -> None:
    (user,) = last_stage_lines("USER")
    number = user.split(":")[0]
    assert number.isdigit()
    assert int(number) > 0
    assert [line for line in last_stage_lines("RUN") if f"useradd --uid {number} " in line]
    words = [word for word, _ in read_dockerfile()]
    assert max(at for at, word in enumerate(words) if word in ("RUN", "COPY")) < words.index("USER")


def test_the_base_has_the_python_that_tool_servers_need() -> None:
    versions = {entry.definition.install.python for entry in SHIPPED.values() if entry.definition.install} - {
        None
    }
    assert versions
    assert {f"python:{version}-slim" for version in versions} == {
        line.split()[0] for line in dockerfile_lines("FROM")
    }


def test_the_programs_of_built_in_tool_servers_are_on_the_path(tmp_path: Path) -> None:
    servers, path = tmp_path / "servers", tmp_path / "bin"
    path.mkdir()
    programs = []
    for name, entry in SHIPPED.items():
        if entry.definition.install:
            folder = (
                servers
                / "agents"
                / name
                / ("venv/bin" if entry.definition.install.pip else "node_modules/.bin")
            )
            folder.mkdir(parents=True)
            for server in entry.definition.mcp_servers.values():
                program = folder / str(server.command)
                program.write_text("#!/bin/sh\n")
                program.chmod(0o755)
                assert find_command(servers, name, program.name) == str(
                    program
                )  # where `caipe agents install` puts it
                programs.append(program.name)
    (line,) = [line for line in last_stage_lines("RUN") if "caipe agents install" in line]
    script = line.replace("/opt/servers", str(servers)).replace("/usr/local/bin", str(path))

    def build(agents: str) -> int:
        return subprocess.run(
            ["/bin/sh", "-c", script], env={"PATH": "/usr/bin:/bin", "AGENTS": agents}, check=False
        ).returncode

    assert build("") == 0
    assert len(programs) >= 10
    assert [name for name in programs if shutil.which(name, path=str(path)) is None] == []
    assert (
        build("argocd") != 0
    )  # there is no `caipe` on that path: an agent that cannot be installed stops the build


# What runs


def make_image_environment(folder: Path) -> Path:
    """The interpreter of an environment that is marked as the image's, and has the packages of this one."""
    venv.create(folder, with_pip=False)
    (site_packages,) = folder.glob("lib/python*/site-packages")
    (site_packages / "image.pth").write_text(f"{ROOT}\n{sysconfig.get_path('purelib')}\n")
    (folder / IMAGE_MARK).touch()
    return folder / "bin" / "python"


async def test_hints_in_the_image_are_true_there(tmp_path: Path) -> None:
    caipe = [
        str(make_image_environment(tmp_path / "image")),
        "-c",
        "from ai_platform_engineering.cli.main import main; main()",
    ]
    env = {"PATH": str(tmp_path), "LLM_MODEL": "ollama:llama3"}
    embeddings, doctor, agent = await asyncio.gather(
        run_command(*caipe, "kb", "embeddings", "install", env=env),
        run_command(*caipe, "doctor", env=env),
        run_command(*caipe, "agents", "install", "argocd", env=env),
    )
    assert (embeddings.code, embeddings.err) == (
        0,
        "The image includes the embedding model: there is nothing to install.\n",
    )
    assert (
        "its package is not installed. Build an image from this one: FROM caipe, USER root, RUN "
        f"caipe extras install ollama, USER {IMAGE_USER} (docs/containers.md)"
    ) in doctor.out
    assert agent.code == 1
    assert "docker build --build-arg WITH_NODE=1 ." in agent.err
    assert "WITH_NODE=1 docker compose build" in agent.err


@pytest.mark.full
async def test_a_supervisor_writes_to_its_volume_and_its_temporary_folder_alone(tmp_path: Path) -> None:
    """As in the compose file: a root that cannot be written, a volume, `/tmp`, and another user than root."""
    sandbox = shutil.which("bwrap")
    need("bubblewrap", sandbox is not None, "it is not on the PATH")
    assert sandbox is not None
    supervisor = read_services({"A2A_AUTH_SHARED_KEY": KEY})[SUPERVISOR]
    assert supervisor["read_only"] is True
    assert [mount.partition(":")[0] for mount in supervisor["tmpfs"]] == ["/tmp"]
    volume, temporary = tmp_path / "volume", tmp_path / "temporary"
    writable = [volume, temporary, Path(os.environ[GUARD_FILE])]
    for folder in (volume, temporary):
        folder.mkdir()
    user, group = IMAGE_USER.split(":")
    container = [sandbox, "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--die-with-parent"]
    container += ["--unshare-user", "--uid", user, "--gid", group]
    container += [word for path in writable for word in ("--bind", str(path), str(path))]
    probe = subprocess.run([*container, "true"], capture_output=True, text=True, check=False)
    need("bubblewrap", probe.returncode == 0, probe.stderr.strip())
    port = free_port()
    env = {
        **image_environment(),
        **supervisor["environment"],
        "A2A_HOST": "127.0.0.1",
        "A2A_PORT": str(port),
        "CAIPE_HOME": str(volume),
        "HOME": str(volume),
        "TMPDIR": str(temporary),
        "ENABLE_RAG": "true",
    }
    command = [str(BIN / word) if word == "caipe" else word for word in entrypoint()]
    async with (
        start_command(*container, "--", *command, *supervisor["command"], env=env) as program,
        httpx.AsyncClient(timeout=120, verify=PLAIN) as http,
    ):
        await program.wait_for_stderr("serving on")
        client = Client(f"http://127.0.0.1:{port}/", http, {"Authorization": f"Bearer {KEY}"})
        task = V03.sent(await client.call(V03.send, V03.message("What does 10.0.0.0/22 contain?")))
        async with asyncio.timeout(120):
            while "knowledge" not in (components := await read_components(client)):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
    assert "1,024 addresses" in text_of(artifact(task, "final_result"))
    assert components["storage"] == {"status": "ok", "backend": "sqlite", "message": ""}
    assert components["knowledge"] == {"status": "ok", "embeddings": True}
    assert (volume / "supervisor" / "runs.db").exists()
    for word in ("Read-only file system", "Permission denied", "Traceback"):
        assert word not in program.err


async def read_components(client: Client) -> dict[str, Any]:
    response = await client.http.get(client.url + "ready", headers=client.headers)
    components: dict[str, Any] = response.json()["components"]
    return components
