"""The locks of the tool servers that shipped agents name: every package that they need, with its hash."""

import hashlib
import json
import platform
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ai_platform_engineering.core.agent_definition import Install
from ai_platform_engineering.core.errors import CaipeError

LOCKS_FOLDER = Path(__file__).parent / "locks"
SUMS_FILE = "SHA256SUMS"
_HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")
_PINNED = re.compile(r"[A-Za-z0-9][\w.-]*(\[[\w,.-]+\])?==[\w.!+-]+(\s*;.*)?")

# The names of machines in npm packages.
_NPM_MACHINES = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64"}


class LockRefused(CaipeError):
    """A lock is missing, or is not what it was when it was made."""

    code = "lock_refused"


@dataclass(frozen=True, slots=True)
class InstallLock:
    """The lock of one set of packages: a requirements file for pip, or a package-lock.json for npm."""

    folder: Path
    install: Install

    @property
    def requirements(self) -> Path:
        return self.folder / "requirements.txt"

    @property
    def npm_files(self) -> tuple[Path, Path]:
        return (self.folder / "package.json", self.folder / "package-lock.json")


def lock_name(install: Install) -> str:
    """The name of the folder of a lock: that of its first package."""
    package = (install.pip or install.npm)[0]
    return re.split(r"[=<>\[]|(?<=.)@", package)[0].strip("@").replace("/", "-")


def find_lock(install: Install, locks: Path = LOCKS_FOLDER) -> InstallLock:
    """The lock that covers exactly these packages, checked. Raises LockRefused."""
    folder = locks / lock_name(install)
    if not folder.is_dir():
        raise LockRefused(_describe_missing(install))
    _check_sums(locks, folder)
    lock = InstallLock(folder, install)
    if _read_packages(lock) != set(install.pip or install.npm):
        raise LockRefused(_describe_missing(install))
    if install.pip:
        check_requirements(lock.requirements.read_text(encoding="utf-8"))
    else:
        npm_lock = json.loads(lock.npm_files[1].read_text(encoding="utf-8"))
        check_npm_lock(npm_lock)
        check_platform(npm_lock, sys.platform, platform.machine())
    return lock


def compute_sums(locks: Path) -> str:
    """The digests of all files of the locks, a line for each."""
    lines: list[str] = []
    for file in sorted(path for path in locks.rglob("*") if path.is_file() and path.name != SUMS_FILE):
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        lines.append(f"{digest}  {file.relative_to(locks).as_posix()}\n")
    return "".join(lines)


def check_requirements(text: str) -> None:
    """Only pinned packages with hashes, and nothing that names another place. Raises LockRefused."""
    joined = text.replace("\\\n", " ")
    for line in joined.splitlines():
        requirement = line.partition(" #")[0].strip()
        if not requirement or requirement.startswith("#"):
            continue
        package = requirement.partition(" --hash=")[0].strip()
        if not _PINNED.fullmatch(package) or not _HASH.search(requirement):
            raise LockRefused(f"The lock has a line without a version and a hash: {package[:80]}")


def check_npm_lock(lock: dict[str, Any]) -> None:
    """Every package has its hash, and none names another place. Raises LockRefused."""
    for path, package in lock.get("packages", {}).items():
        if not path:
            continue
        integrity = str(package.get("integrity", ""))
        if not integrity.startswith("sha512-") or "resolved" in package or package.get("link"):
            raise LockRefused(f"The lock has a package without a hash, or from elsewhere: {path[:80]}")


def check_platform(lock: dict[str, Any], system: str, machine: str) -> None:
    """Refuses a lock whose program is locked for other platforms alone. Raises LockRefused."""
    platforms: list[str] = []
    for package in lock.get("packages", {}).values():
        if not package.get("optional") or not package.get("os"):
            continue
        systems = package["os"]
        machines = package.get("cpu", [])
        if system in systems and (not machines or _NPM_MACHINES.get(machine.lower(), machine) in machines):
            return
        platforms.append("/".join((*systems, *machines)))
    if platforms:
        raise LockRefused(
            f"The lock has no program for this machine ({system}, {machine}), but for {', '.join(platforms)}."
            " If you trust the package index with whatever it offers today, add --without-lock."
        )


def _check_sums(locks: Path, folder: Path) -> None:
    try:
        sums = set((locks / SUMS_FILE).read_text(encoding="utf-8").splitlines())
    except OSError:
        sums = set()
    for line in compute_sums(folder).splitlines():
        digest, _, name = line.partition("  ")
        if f"{digest}  {folder.name}/{name}" not in sums:
            raise LockRefused(
                f"The lock {folder.name}/{name} was changed after it was made. Install this product again."
            )


def _read_packages(lock: InstallLock) -> set[str]:
    """The packages that the lock was made for, as a definition names them."""
    if lock.install.pip:
        text = (lock.folder / "requirements.in").read_text(encoding="utf-8")
        return set(filter(None, text.splitlines()))
    project = json.loads(lock.npm_files[0].read_text(encoding="utf-8"))
    return {f"{name}@{version}" for name, version in project["dependencies"].items()}


def _describe_missing(install: Install) -> str:
    packages = ", ".join(install.pip or install.npm)
    return (
        f"No lock of this product covers {packages}, so that nobody could tell what would be installed."
        " Install the packages yourself and name the command in the definition, or, if you trust the package"
        " index with whatever it offers today, add --without-lock."
    )
