"""Rules for the files of a skill: paths, number and sizes; the same for folders, the API and repositories."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from ai_platform_engineering.core.errors import CaipeError

SKILL_MD = "SKILL.md"
EXPECTED_FOLDERS = ("scripts", "references", "assets")
LICENSE_FILES = frozenset({"LICENSE", "LICENSE.md", "LICENSE.txt"})

MAX_SKILL_MD_BYTES = 64 * 1024
MAX_FILE_BYTES = 256 * 1024
MAX_SKILL_BYTES = 2 * 1024 * 1024
MAX_FILES = 100
MAX_DEPTH = 4
_MAX_PATH = 255
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffd]")


@dataclass(frozen=True, slots=True, order=True)
class SkillProblem:
    """Why a skill cannot be used, and what to do about it. `field` is a key of the front matter, or empty."""

    file: str
    field: str
    message: str
    line: int | None = None

    def __str__(self) -> str:
        where = self.file if self.line is None else f"{self.file}:{self.line}"
        if self.field:
            return f"{where}: {self.field}: {self.message}"
        return f"{where}: {self.message}"


class SkillErrors(CaipeError):
    """A skill that breaks the rules of its format."""

    code = "skill_invalid"

    def __init__(self, problems: Iterable[SkillProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__(" ".join(map(str, self.problems)))


def find_path_problem(path: str) -> str | None:
    """Why a path cannot be below a skill's folder; None when it can."""
    if not path or len(path) > _MAX_PATH:
        return f"A path has 1 to {_MAX_PATH} characters. Shorten it."
    if _UNPRINTABLE.search(path):
        return "The path holds characters that are not text. Rename the file."
    if "\\" in path or path.startswith("/") or re.match(r"[A-Za-z]:", path):
        return "The path must be relative and written with slashes, for example references/guide.md."
    parts = path.split("/")
    if any(part in ("", ".", "..") for part in parts):
        return (
            "The path must not hold `.`, `..` or empty parts."
            " Write where the file is below the skill's folder."
        )
    if len(parts) > MAX_DEPTH:
        return f"The file lies too deep: a path has at most {MAX_DEPTH} parts. Move it up."
    return None


def to_printable(path: str) -> str:
    """A path or name for messages: one short line of printable characters."""
    printable = _UNPRINTABLE.sub("?", path)
    if len(printable) <= 80:
        return printable
    return f"{printable[:77]}..."


def find_size_problems(sizes: Mapping[str, int]) -> list[SkillProblem]:
    """Problems with the paths, the number and the sizes of files, before they are read."""
    problems: list[SkillProblem] = []
    for path in sizes:
        if path_problem := find_path_problem(path):
            problems.append(SkillProblem(to_printable(path), "", path_problem))
    if len(sizes) > MAX_FILES:
        message = f"The skill has {len(sizes)} files and may have {MAX_FILES}. Remove some."
        problems.append(SkillProblem(SKILL_MD, "", message))
    if sum(sizes.values()) > MAX_SKILL_BYTES:
        limit = MAX_SKILL_BYTES // 1024
        message = f"The skill's files are larger than {limit} KB together. Remove or shorten some."
        problems.append(SkillProblem(SKILL_MD, "", message))
    for path, size in sizes.items():
        limit = MAX_SKILL_MD_BYTES if path == SKILL_MD else MAX_FILE_BYTES
        if size > limit:
            message = f"The file is larger than {limit // 1024} KB. Shorten or split it."
            problems.append(SkillProblem(to_printable(path), "", message))
    return problems


def is_expected(path: str) -> bool:
    """Whether the convention has a place for the file; only such files are shown to a model."""
    parts = PurePosixPath(path).parts
    return path in LICENSE_FILES or (len(parts) > 1 and parts[0] in EXPECTED_FOLDERS)


def is_hidden(path: str) -> bool:
    """Whether editors, file systems or interpreters left the file; such files of folders and repositories
    are skipped."""
    return any(part.startswith(".") or part == "__pycache__" for part in path.split("/"))
