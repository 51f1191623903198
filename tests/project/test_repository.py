"""Facts about the tree that reviews tend to miss."""

import ast
import contextlib
import functools
import importlib.metadata
import itertools
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import PurePosixPath
from urllib.parse import urlsplit

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ai_platform_engineering.core import settings
from ai_platform_engineering.core.settings_report import describe_settings
from tests.conftest import ROOT, need

PACKAGE = "ai_platform_engineering"
THIS_FILE = "tests/project/test_repository.py"
CODEC = f"{PACKAGE}/a2a/codec.py"
ENVIRONMENT = f"{PACKAGE}/core/environment.py"
MAX_LINES = 450

ARTIFACT_NAMES = {
    "streaming_result",
    "final_result",
    "partial_result",
    "subagent_result",
    "tool_notification_start",
    "tool_notification_end",
    "execution_plan_update",
    "UserInputMetaData",
    "UserInputResolved",
}

REGISTRY_HOSTS = re.compile(
    r"\b(?:(?:test\.)?pypi\.org|(?:files\.)?pythonhosted\.org|registry\.(?:npmjs\.org|yarnpkg\.com)|npmjs\.com"
    r"|ghcr\.io|quay\.io|gcr\.io|docker\.io|hub\.docker\.com|\w+\.pkg\.dev|deb\.debian\.org|crates\.io)\b"
)
MACHINE_PATHS = re.compile(r"(?<![\w.~$}/-])/(?:work|root|home|Users|opt/(?:wheels|pypi))/[\w.-]")


@functools.cache
def tracked() -> tuple[str, ...]:
    """Every file that is in the repository or would be with the next commit."""
    inside = subprocess.run(
        ["git", "rev-parse", "--is-inside-work-tree"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    need("git", inside.stdout.strip() == "true", f"{ROOT} is not a git work tree")
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    return tuple(sorted({name for name in names if name and (ROOT / name).is_file()}))


@functools.cache
def texts() -> dict[str, str]:
    contents: dict[str, str] = {}
    for name in tracked():
        with contextlib.suppress(UnicodeDecodeError):  # a picture has no words
            contents[name] = (ROOT / name).read_text(encoding="utf-8")
    return contents


def package_modules() -> Iterator[tuple[str, str]]:
    for name, text in texts().items():
        if name.startswith(f"{PACKAGE}/") and name.endswith(".py"):
            yield name, text


def parsed_modules(mentioning: re.Pattern[str]) -> Iterator[tuple[str, ast.Module]]:
    """The modules whose text matches: parsing all of them takes seconds."""
    for name, text in package_modules():
        if mentioning.search(text):
            yield name, ast.parse(text)


def found(pattern: re.Pattern[str], *, besides: str = "") -> list[str]:
    return [
        f"{name}:{number}: {line.strip()[:160]}"
        for name, text in texts().items()
        if name not in (THIS_FILE, besides) and pattern.search(text)
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]


def docstrings(tree: ast.Module) -> set[ast.Constant]:
    bodies = [
        node.body
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    return {
        body[0].value
        for body in bodies
        if body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)
    }


def test_there_is_one_file_per_layer_and_no_single_twin() -> None:
    assert [
        name
        for name in tracked()
        if any(part.split(".")[0].endswith("_single") for part in PurePosixPath(name).parts)
    ] == []
    assert found(re.compile(r"\w_single\b")) == []


def test_no_file_names_a_registry_or_a_path_of_one_machine() -> None:
    assert found(REGISTRY_HOSTS) == []
    assert found(MACHINE_PATHS) == []


def test_no_file_names_the_registry_this_machine_uses() -> None:
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    ).stdout
    configured = " ".join([listed, *(value for name, value in os.environ.items() if name.startswith("PIP_"))])
    hosts = {urlsplit(url).hostname for url in re.findall(r"https?://[^\s'\"]+", configured)} - {
        None,
        "localhost",
        "127.0.0.1",
        "::1",
    }
    for host in hosts:
        assert found(re.compile(re.escape(str(host)))) == []


def test_artifact_names_have_one_home() -> None:
    words = re.compile(rf"\b(?:{'|'.join(ARTIFACT_NAMES)})\b")
    strays = [
        f"{name}:{node.lineno}: {node.value[:80]!r}"
        for name, tree in parsed_modules(words)
        if name != CODEC
        for prose in [docstrings(tree)]
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and node not in prose
        and words.search(node.value)
    ]
    assert strays == []


def test_the_environment_is_read_in_one_place() -> None:
    reads = {"environ", "environb", "getenv", "getenvb", "putenv"}
    strays = [
        f"{name}:{node.lineno}"
        for name, tree in parsed_modules(re.compile("|".join(reads)))
        if name != ENVIRONMENT
        for node in ast.walk(tree)
        if (
            isinstance(node, ast.Attribute)
            and node.attr in reads
            and isinstance(node.value, ast.Name)
            and node.value.id == "os"
        )
        or (
            isinstance(node, ast.ImportFrom)
            and node.module == "os"
            and any(alias.name in reads for alias in node.names)
        )
    ]
    assert strays == []


def test_no_source_file_is_long() -> None:
    sizes = {name: len(text.splitlines()) for name, text in package_modules()}
    assert {name: size for name, size in sizes.items() if size > MAX_LINES} == {}


def test_a_class_name_means_one_thing() -> None:
    places: dict[str, list[str]] = {}
    for name, text in package_modules():
        for class_name in re.findall(r"^class (\w+)", text, re.MULTILINE):
            places.setdefault(class_name, []).append(name)
    assert {name: files for name, files in places.items() if len(files) > 1} == {}


def test_rooms_are_named_for_what_they_hold() -> None:
    """`utils` keeps only what others import by that path, and the top of tests only what is specified."""
    specified = {
        "test_binding_streaming_events.py",
        "test_distributed_agents.py",
        "test_distributed_mode_binding.py",
        "test_final_result_content.py",
        "test_rag_tools_hard_stop.py",
        "test_slack_narrative_streaming.py",
        "test_streaming_narration.py",
    }
    tests = {path.name for path in map(PurePosixPath, tracked()) if path.parent == PurePosixPath("tests")}
    assert tests - {"__init__.py", "conftest.py"} == specified
    utils = {path.parts[2] for path in map(PurePosixPath, tracked()) if path.parts[:2] == (PACKAGE, "utils")}
    assert utils == {"__init__.py", "a2a_common"}


def test_init_files_are_empty() -> None:
    assert [
        name
        for name in tracked()
        if PurePosixPath(name).name == "__init__.py" and (ROOT / name).read_text(encoding="utf-8")
    ] == []


STUDIO_LOCK = "tests/fixtures/studio_requirements.txt"
LOCKS = (
    "requirements.lock",
    "requirements-dev.lock",
    "requirements-backends.lock",
    "requirements-image.lock",
    "requirements-uv.lock",
    "requirements-node.lock",
)


@functools.cache
def locked(lock: str) -> dict[str, tuple[Requirement, int]]:
    """Each requirement of a lock with the number of its hashes."""
    joined = re.sub(r"\\\n", " ", (ROOT / lock).read_text(encoding="utf-8"))
    rows: dict[str, tuple[Requirement, int]] = {}
    for line in joined.splitlines():
        line = line.split(" #")[0].strip()
        if not line or line.startswith("#"):
            continue
        assert not line.startswith("-"), f"the lock holds an option: {line}"
        requirement = Requirement(line.split(" --hash=")[0].strip())
        # One package may be locked twice, for different Pythons.
        rows[f"{requirement.name} {requirement.marker or ''}"] = (
            requirement,
            len(re.findall(r"--hash=sha256:[0-9a-f]{64}\b", line)),
        )
    return rows


@pytest.mark.parametrize("lock", [*LOCKS, STUDIO_LOCK])
def test_every_locked_requirement_is_pinned_and_hashed(lock: str) -> None:
    assert locked(lock)
    for requirement, hashes in locked(lock).values():
        assert hashes, f"{requirement} has no hash"
        assert re.fullmatch(r"==[^*,]+", str(requirement.specifier)), f"{requirement} is not one version"


@pytest.mark.parametrize("lock", [*LOCKS, STUDIO_LOCK])
def test_the_lock_names_no_address(lock: str) -> None:
    text = (ROOT / lock).read_text(encoding="utf-8")
    assert "://" not in text
    assert " @ " not in text


def test_the_locks_belong_to_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    groups = project["dependency-groups"]
    check_locked("requirements.lock", [*project["project"]["dependencies"], *groups["build"]])
    check_locked("requirements-dev.lock", groups["dev"])
    check_locked("requirements-uv.lock", groups["installer"])
    check_locked("requirements-node.lock", groups["node"])
    extras = project["project"]["optional-dependencies"]
    clients = [line for name in ("postgres", "redis", "valkey", "mongodb") for line in extras[name]]
    check_locked("requirements-backends.lock", clients)
    own = [*project["project"]["dependencies"], *groups["build"], *groups["embeddings"]]
    check_locked("requirements-image.lock", [*own, *clients])
    check_locked(STUDIO_LOCK, [*project["project"]["dependencies"], *groups["build"], *groups["studio"]])


def check_locked(lock: str, requirements: list[str]) -> None:
    versions = {canonicalize_name(pinned.name): pinned for pinned, _ in locked(lock).values()}
    for line in requirements:
        requirement = Requirement(line)
        pinned = versions.get(canonicalize_name(requirement.name))
        assert pinned, f"{requirement.name} is not locked: run make lock"
        version = str(pinned.specifier).removeprefix("==")
        assert requirement.specifier.contains(version, prereleases=True), (
            f"{requirement} is locked at {version}: run make lock"
        )


def test_what_is_imported_is_a_dependency() -> None:
    """A package that only comes with another one is gone when that one does without it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    requirements = [
        *project["project"]["dependencies"],
        *itertools.chain(*project["project"]["optional-dependencies"].values()),
        *(line for group in project["dependency-groups"].values() for line in group if isinstance(line, str)),
    ]
    declared = {canonicalize_name(Requirement(line).name) for line in requirements}
    distributions = importlib.metadata.packages_distributions()
    imports: dict[str, set[str]] = {}
    for name, text in package_modules():
        for package in re.findall(r"^\s*(?:from|import) ([A-Za-z]\w*)(?=[.\s]).*$", text, re.MULTILINE):
            imports.setdefault(package, set()).add(name)
    third_party = imports.keys() & distributions.keys() - {PACKAGE}
    assert "pydantic" in third_party
    undeclared = {
        name for name in third_party if not declared & set(map(canonicalize_name, distributions[name]))
    }
    assert {name: imports[name] for name in undeclared} == {}


def test_locks_agree_on_versions() -> None:
    """They are installed into one environment, without resolving."""
    versions: dict[str, dict[str, set[str]]] = {}
    for lock in LOCKS:
        for key, (requirement, _) in locked(lock).items():
            pins = versions.setdefault(key.lower(), {})
            pins.setdefault(str(requirement.specifier), set()).add(lock)
    assert {key: pins for key, pins in versions.items() if len(pins) > 1} == {}


def first_screen() -> str:
    return (ROOT / "README.md").read_text(encoding="utf-8").split("\n## ")[0]


def test_the_readme_opens_with_two_commands() -> None:
    blocks = re.findall(r"^```[^\n]*\n(.*?)^```$", first_screen(), re.MULTILINE | re.DOTALL)
    assert [block.strip() for block in blocks] == ["make run", "make test"]
    assert len(first_screen().splitlines()) <= 40


def test_the_readme_names_only_settings_that_exist() -> None:
    section = (ROOT / "README.md").read_text(encoding="utf-8").split("\n## Settings\n")[1].split("\n## ")[0]
    named = set(re.findall(r"^\| `([A-Z][A-Z0-9_]*)` \|", section, re.MULTILINE))
    assert named
    assert named - {row.name for row in describe_settings(settings.Settings(), {}, {})} == set()


@pytest.mark.parametrize(
    "name", [".ci/run", ".ci/first-run", ".ci/lock-servers", ".ci/compose-variables", "ui/sources-sum"]
)
def test_scripts_can_be_run(name: str) -> None:
    assert os.access(ROOT / name, os.X_OK)


def test_the_tests_that_the_security_table_names_exist() -> None:
    text = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| ") and "which test" not in line]
    assert len(rows) > 50
    for row in rows:
        references = re.findall(r"`(tests/[\w/]+\.py)(?:::(test_\w+))?`", row)
        assert references, row
        for path, name in references:
            code = (ROOT / path).read_text(encoding="utf-8")
            assert f"def {name}(" in code or not name, f"{path}::{name}"
