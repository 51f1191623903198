"""`caipe agents install`: packages are what they were when the locks were made, or they are not installed."""

import base64
import functools
import hashlib
import http.server
import io
import json
import re
import shutil
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hatchling.builders.wheel import WheelBuilder
from rich.console import Console

from ai_platform_engineering.agents.agent_catalog import AgentEntry, load_catalog
from ai_platform_engineering.agents.install_locks import (
    LOCKS_FOLDER,
    SUMS_FILE,
    LockRefused,
    check_npm_lock,
    check_platform,
    check_requirements,
    compute_sums,
    find_lock,
)
from ai_platform_engineering.cli.agent_install import install_packages
from ai_platform_engineering.core.agent_definition import AgentDefinition, Install
from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.settings import Settings
from tests.conftest import ROOT, need

INSTALLS = {
    entry.name: entry.definition.install
    for entry in load_catalog({}, agents_config=None)
    if entry.definition.install
}
HOST = re.compile(r"[a-z]+://|\b[\w-]+\.(?:com|org|io|net|dev)\b")


@pytest.mark.parametrize("agent", INSTALLS)
def test_every_server_that_we_name_has_a_lock_with_hashes_and_without_hosts(agent: str) -> None:
    install = INSTALLS[agent]
    lock = find_lock(install)
    if install.pip:
        text = lock.requirements.read_text()
        names = [package.partition("==")[0].replace(".", "-") for package in install.pip if "==" in package]
        assert all(f"\n{name}==" in f"\n{text}" for name in names)
        assert text.count("==") > len(names), "what the packages need is missing"
    else:
        text = lock.npm_files[1].read_text()
        packages = json.loads(text)["packages"]
        assert all(f"node_modules/{package.rpartition('@')[0]}" in packages for package in install.npm)
    assert not HOST.search(text)


def test_the_locks_are_part_of_the_wheel() -> None:
    files = {Path(file.path) for file in WheelBuilder(str(ROOT)).recurse_included_files()}
    locks = {path for path in LOCKS_FOLDER.rglob("*") if path.is_file()}
    assert len(locks) > 10
    assert locks <= files
    assert compute_sums(LOCKS_FOLDER) == (LOCKS_FOLDER / SUMS_FILE).read_text()


def test_another_version_than_the_locked_one_is_refused() -> None:
    for packages in (("mcp-weather-server==0.6.2", "mcp<2"), ("mcp-weather-server==0.6.1",)):
        with pytest.raises(LockRefused, match="No lock of this product covers mcp-weather-server"):
            find_lock(Install(pip=packages))
    with pytest.raises(LockRefused, match="--without-lock"):
        find_lock(Install(npm=("argocd-mcp@0.9.1",)))
    with pytest.raises(LockRefused, match="No lock of this product covers stranger"):
        find_lock(Install(pip=("stranger==1",)))


def test_a_lock_that_was_edited_is_refused(tmp_path: Path) -> None:
    locks = shutil.copytree(LOCKS_FOLDER, tmp_path / "locks")
    install = INSTALLS["weather"]
    assert find_lock(install, locks)
    file = locks / "mcp-weather-server" / "requirements.txt"
    text = file.read_text()
    file.write_text(re.sub(r"sha256:\w{4}", "sha256:0000", text, count=1))
    with pytest.raises(LockRefused, match="was changed after it was made"):
        find_lock(install, locks)
    file.write_text(text)
    (locks / "mcp-weather-server" / "more.txt").write_text("")
    with pytest.raises(LockRefused, match="was changed after it was made"):
        find_lock(install, locks)


GOOD_HASH = f"--hash=sha256:{'0' * 64}"


@pytest.mark.parametrize(
    "line",
    [
        "package==1.0",
        f"package>=1.0 {GOOD_HASH}",
        "package==1.0 --hash=md5:00",
        f"package @ https://example.org/package.whl {GOOD_HASH}",
        "--index-url https://example.org/simple",
        "-e .",
        "-r other.txt",
        f"./package.whl {GOOD_HASH}",
    ],
)
def test_a_requirement_without_version_and_hash_is_refused(line: str) -> None:
    check_requirements(f"# a comment\nfine==1.0 ; python_version < '4' \\\n    {GOOD_HASH}\n")
    with pytest.raises(LockRefused):
        check_requirements(f"fine==1.0 {GOOD_HASH}\n{line}\n")


@pytest.mark.parametrize(
    "package",
    [
        {"version": "1.0"},
        {"version": "1.0", "integrity": "sha1-abc"},
        {"version": "1.0", "integrity": "sha512-abc", "resolved": "https://example.org/x.tgz"},
        {"link": True, "integrity": "sha512-abc"},
    ],
)
def test_an_npm_package_without_hash_or_from_elsewhere_is_refused(package: dict[str, Any]) -> None:
    fine = {"": {"name": "x"}, "node_modules/a": {"version": "1", "integrity": "sha512-abc"}}
    check_npm_lock({"packages": fine})
    with pytest.raises(LockRefused, match="node_modules/b"):
        check_npm_lock({"packages": {**fine, "node_modules/b": package}})


def test_a_lock_for_other_platforms_is_refused() -> None:
    lock = {"packages": {"node_modules/a": {"optional": True, "os": ["linux"], "cpu": ["x64"]}}}
    check_platform(lock, "linux", "x86_64")
    check_platform({"packages": {"node_modules/a": {}}}, "darwin", "arm64")
    for system, machine in (("darwin", "x86_64"), ("linux", "aarch64")):
        with pytest.raises(LockRefused, match="no program for this machine"):
            check_platform(lock, system, machine)


# --- installing, from packages and registries on this machine --------------------------------------


def make_wheel(folder: Path, name: str, version: str, code: str = "", script: str = "") -> str:
    """Writes a wheel; its hash."""
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": code,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[console_scripts]\n{script} = {name}:main\n" if script else "",
    }
    record = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for file, text in {**files, f"{info}/RECORD": record}.items():
            wheel.writestr(file, text)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def make_entry(**install: Any) -> AgentEntry:
    definition = AgentDefinition(name="demo", description="", install=Install(**install))
    return AgentEntry(definition, "demo.yaml:1", "ready", ())


class Workplace:
    """A folder with locks, packages and a CAIPE_HOME."""

    def __init__(self, folder: Path) -> None:
        self.locks = folder / "locks"
        self.packages = folder / "packages"
        self.home = folder / "home"
        self.packages.mkdir()
        self.output = io.StringIO()

    def write_lock(self, name: str, **files: str) -> None:
        folder = self.locks / name
        folder.mkdir(parents=True)
        for file, text in files.items():
            (folder / file).write_text(text)
        (self.locks / SUMS_FILE).write_text(compute_sums(self.locks))

    def install(self, entry: AgentEntry, variables: dict[str, str], *, locked: bool = True) -> None:
        settings = Settings.from_variables({"CAIPE_HOME": str(self.home)})
        console = Console(file=self.output, width=1000)
        install_packages(console, settings, entry, variables=variables, locked=locked, locks=self.locks)

    @property
    def commands(self) -> list[str]:
        return [line for line in self.output.getvalue().splitlines() if line.startswith("$ ")]


@pytest.fixture
def workplace(tmp_path: Path) -> Workplace:
    return Workplace(tmp_path)


def make_program(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def test_a_shim_that_runs_no_python_is_passed_over_for_one_that_does(
    workplace: Workplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shim = make_program(tmp_path / "shims" / "python3.12", "echo not switched on >&2; exit 127")
    monkeypatch.setenv("PATH", f"{shim.parent}:/usr/bin:/bin")
    entry = make_entry(pip=("demo-mcp==1.0",), python="3.12")
    variables = {"PATH": "/usr/bin:/bin"}
    refusal = "The server needs Python 3.12, and .*/shims/python3.12 does not run. Install python3.12"
    with pytest.raises(CaipeError, match=refusal):
        workplace.install(entry, variables, locked=False)
    make_program(tmp_path / "versions" / "3.12.0" / "bin" / "python3.12", "exit 1")
    working = make_program(tmp_path / "versions" / "3.12.1" / "bin" / "python3.12", "test $1 = -c")
    with pytest.raises(CaipeError, match="demo is not installed"):
        workplace.install(entry, variables, locked=False)
    assert workplace.commands[-1].startswith(f"$ {working} -m venv --clear")


@pytest.mark.full
def test_a_wheel_that_was_exchanged_is_refused_and_nothing_is_left(
    workplace: Workplace, capfd: pytest.CaptureFixture[str]
) -> None:
    server_hash = make_wheel(workplace.packages, "demo_mcp", "1.0", "def main(): print('demo')", "demo-mcp")
    dependency_hash = make_wheel(workplace.packages, "demo_dep", "2.0")
    lock = f"demo-mcp==1.0 --hash=sha256:{server_hash}\ndemo-dep==2.0 --hash=sha256:{dependency_hash}\n"
    workplace.write_lock("demo-mcp", **{"requirements.in": "demo-mcp==1.0\n", "requirements.txt": lock})
    entry = make_entry(pip=("demo-mcp==1.0",))
    variables = {"PATH": "/usr/bin:/bin", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(workplace.packages)}
    workplace.install(entry, variables)
    command = workplace.home / "agents" / "demo" / "venv" / "bin" / "demo-mcp"
    assert command.exists()
    assert all(option in workplace.commands[1] for option in ("--require-hashes", "--only-binary :all:"))
    make_wheel(workplace.packages, "demo_dep", "2.0", "import os; os.system('true')")
    with pytest.raises(CaipeError, match="demo is not installed"):
        workplace.install(entry, variables)
    assert "DO NOT MATCH THE HASHES" in capfd.readouterr().err
    assert not command.exists()


class _Registry(http.server.BaseHTTPRequestHandler):
    """An npm registry with one package."""

    def __init__(self, tarball: list[bytes], *arguments: Any) -> None:
        self._tarball = tarball
        super().__init__(*arguments)

    def do_GET(self) -> None:
        body = self._tarball[0]
        if not self.path.endswith(".tgz"):
            address = f"http://127.0.0.1:{self.server.server_address[1]}/demo-mcp/-/demo-mcp-1.0.0.tgz"
            dist = {"tarball": address, "integrity": integrity(body)}
            version = {"name": "demo-mcp", "version": "1.0.0", "bin": {"demo-mcp": "cli.js"}, "dist": dist}
            package = {"name": "demo-mcp", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}
            body = json.dumps(package).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: Any) -> None:
        pass


def integrity(content: bytes) -> str:
    return f"sha512-{base64.b64encode(hashlib.sha512(content).digest()).decode()}"


def make_tarball(script: str) -> bytes:
    """An npm package that leaves a sign when its install script is run."""
    package = {
        "name": "demo-mcp",
        "version": "1.0.0",
        "bin": {"demo-mcp": "cli.js"},
        "scripts": {"postinstall": "echo > ran"},
    }
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, text in (("package.json", json.dumps(package)), ("cli.js", script)):
            member = tarfile.TarInfo(f"package/{name}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    return buffer.getvalue()


@pytest.fixture
def registry() -> Iterator[tuple[list[bytes], str]]:
    """The package that the registry offers, which can be exchanged, and the registry's address."""
    offered = [make_tarball("#!/usr/bin/env node\n")]
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Registry, offered))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield offered, f"http://127.0.0.1:{server.server_address[1]}/"
    server.shutdown()
    server.server_close()


@pytest.mark.full
def test_an_npm_package_that_was_exchanged_is_refused_and_no_script_runs(
    workplace: Workplace, registry: tuple[list[bytes], str], tmp_path: Path
) -> None:
    npm = shutil.which("npm")
    need("npm", npm is not None, "a package is installed with it")
    offered, address = registry
    project = {"name": "demo-mcp", "private": True, "dependencies": {"demo-mcp": "1.0.0"}}
    package = {
        "version": "1.0.0",
        "integrity": integrity(offered[0]),
        "hasInstallScript": True,
        "bin": {"demo-mcp": "cli.js"},
    }
    lock = {
        "name": "demo-mcp",
        "lockfileVersion": 3,
        "packages": {"": project, "node_modules/demo-mcp": package},
    }
    files = {"package.json": json.dumps(project), "package-lock.json": json.dumps(lock)}
    workplace.write_lock("demo-mcp", **files)
    entry = make_entry(npm=("demo-mcp@1.0.0",))
    variables = {
        "PATH": f"{Path(npm or '').parent}:/usr/bin:/bin",
        "HOME": str(tmp_path),
        "npm_config_registry": address,
        "npm_config_cache": str(tmp_path / "cache"),
    }
    workplace.install(entry, variables)
    modules = workplace.home / "agents" / "demo" / "node_modules"
    assert (modules / ".bin" / "demo-mcp").exists()
    assert not (modules / "demo-mcp" / "ran").exists()
    assert "npm ci --ignore-scripts" in workplace.commands[0]
    offered[0] = make_tarball("#!/usr/bin/env node\nrequire('child_process')\n")
    variables["npm_config_cache"] = str(tmp_path / "other-cache")
    with pytest.raises(CaipeError, match="demo is not installed"):
        workplace.install(entry, variables)
    assert not modules.exists()


def test_the_installers_get_none_of_our_keys(
    workplace: Workplace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is run, seen by a program that stands where npm would be."""
    programs = tmp_path / "programs"
    programs.mkdir()
    npm = programs / "npm"
    npm.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/arguments\nenv > {tmp_path}/environment\nexit 1\n')
    npm.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    variables = {"PATH": "/usr/bin:/bin", "OPENAI_API_KEY": "canary", "npm_config_registry": "x"}
    entry = make_entry(npm=INSTALLS["argocd"].npm)
    workplace.locks = LOCKS_FOLDER
    with pytest.raises(CaipeError, match="nothing of it was kept"):
        workplace.install(entry, variables)
    assert (tmp_path / "arguments").read_text().startswith("ci --ignore-scripts --omit=dev")
    environment = (tmp_path / "environment").read_text()
    assert "npm_config_registry=x" in environment
    assert "canary" not in environment
    with pytest.raises(CaipeError):
        workplace.install(entry, variables, locked=False)
    assert (tmp_path / "arguments").read_text().startswith("install --ignore-scripts")
    assert "without a lock" in workplace.output.getvalue()
