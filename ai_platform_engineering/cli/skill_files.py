"""Skills in files of this machine: reading, checking, and sending them to the skills API."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.skills_middleware.file_rules import SKILL_MD
from ai_platform_engineering.skills_middleware.skill_resolution import SkillCheck, check_new_skill
from ai_platform_engineering.skills_middleware.sources.folder_source import read_skill_folder
from ai_platform_engineering.skills_middleware.sources.skill_source import RawSkill
from ai_platform_engineering.terminal.screen import sanitize_line
from ai_platform_engineering.terminal.skill_view import print_findings, print_problem, print_validity

_FLAT_SUFFIX = f"--{SKILL_MD}"


@dataclass(frozen=True, slots=True)
class CheckedSkill:
    """The files of a skill and the result of their check."""

    raw: RawSkill
    check: SkillCheck


def read_skills_at(path: Path) -> list[CheckedSkill]:
    """Reads and checks the skill at a path, or those in a folder of skills. Raises CaipeError."""
    return [CheckedSkill(raw, _check(raw)) for raw in _read_raw_skills(path)]


def _read_raw_skills(path: Path) -> list[RawSkill]:
    path = path.expanduser().absolute()
    if path.name == SKILL_MD:
        path = path.parent
    if path.is_file():
        folder = path.name.removesuffix(_FLAT_SUFFIX) if path.name.endswith(_FLAT_SUFFIX) else ""
        return [RawSkill(path.name, folder, "", {SKILL_MD: path.read_bytes()})]
    if (path / SKILL_MD).exists():
        return [read_skill_folder(path)]
    folders = sorted(file.parent for file in path.glob(f"*/{SKILL_MD}"))
    if not folders:
        raise CaipeError(f"There is no {SKILL_MD} in {sanitize_line(str(path))} or in its folders.")
    return [read_skill_folder(folder) for folder in folders]


def _check(raw: RawSkill) -> SkillCheck:
    if raw.problems:
        return SkillCheck(None, raw.problems)
    return check_new_skill(raw.files, raw.folder or None)


def print_checks(skills: Sequence[CheckedSkill], *, verdicts: bool) -> None:
    """Prints problems and findings; with verdicts also whether each skill that could be read is valid."""
    for skill in skills:
        check = skill.check
        if check.skill is not None and verdicts:
            print_validity(check.skill.name, check.skill.version, blocked=check.is_blocked)
        for problem in check.problems:
            print_problem(str(problem))
        print_findings([finding.model_dump() for finding in check.findings])


def request_body(raw: RawSkill) -> dict[str, Any]:
    """The body of a POST or PUT that stores the skill; files that are not UTF-8 are sent as Base64."""
    files: dict[str, Any] = {}
    for path, content in raw.files.items():
        try:
            files[path] = content.decode()
        except UnicodeDecodeError:
            files[path] = {"base64": base64.b64encode(content).decode()}
    return {"content": files.pop(SKILL_MD), "files": files}
