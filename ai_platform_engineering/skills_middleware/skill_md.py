"""From the files of a skill to the skill: SKILL.md by the public convention, and problems that say what to
do."""

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from ai_platform_engineering.core.skills import ScanFinding, Skill, SkillFile
from ai_platform_engineering.skills_middleware import front_matter
from ai_platform_engineering.skills_middleware.file_rules import (
    SKILL_MD,
    SkillErrors,
    SkillProblem,
    find_size_problems,
    is_expected,
    to_printable,
)
from ai_platform_engineering.skills_middleware.front_matter import FrontMatter

MAX_NAME = 64
MAX_DESCRIPTION = 1024
MAX_COMPATIBILITY = 500
MAX_BODY_LINES = 500
_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_TOOL = re.compile(r"[^\s,()]+(?:\([^()]*\))?")
_KNOWN = ("name", "description", "license", "compatibility", "metadata", "allowed-tools")


def parse_skill(files: Mapping[str, bytes], folder: str | None = None) -> Skill:
    """The skill of files below one folder, with what is odd about its format as findings; `folder` is its
    name, where it has one. Raises SkillErrors."""
    if problems := find_size_problems({path: len(content) for path, content in files.items()}):
        raise SkillErrors(problems)
    top = front_matter.split_front_matter(_text(files))
    fields = _Fields(top, folder)
    read: dict[str, Any] = {
        "name": fields.name(),
        "description": fields.text("description", MAX_DESCRIPTION, required=True),
        "license": fields.text("license", MAX_COMPATIBILITY),
        "compatibility": fields.text("compatibility", MAX_COMPATIBILITY),
        "metadata": fields.metadata(),
        "allowed_tools": fields.tools(),
    }
    if fields.problems:
        raise SkillErrors(fields.problems)
    found = tuple(
        SkillFile(path=path, size=len(content))
        for path, content in sorted(files.items())
        if is_expected(path)
    )
    return Skill(
        **read,
        body=top.body,
        version=compute_version(files),
        files=found,
        findings=(*_odd_text(top), *_odd_files(files)),
    )


def compute_version(files: Mapping[str, bytes]) -> str:
    """The same files have the same version, wherever they are kept."""
    digest = hashlib.sha256()
    for path, content in sorted(files.items()):
        for part in (path.encode(), content):
            digest.update(
                len(part).to_bytes(8, "big") + part
            )  # with lengths: nothing can move from one to the next
    return digest.hexdigest()[:12]


def render_skill_md(skill: Skill) -> str:
    """The SKILL.md that gives this skill."""
    fields = {
        "name": skill.name,
        "description": skill.description,
        "license": skill.license,
        "compatibility": skill.compatibility,
        "metadata": dict(skill.metadata),
        "allowed-tools": " ".join(skill.allowed_tools),
    }
    return front_matter.render_front_matter(
        {key: value for key, value in fields.items() if value}, skill.body
    )


def _text(files: Mapping[str, bytes]) -> str:
    if SKILL_MD not in files:
        other = next((path for path in files if path.lower() == SKILL_MD.lower()), None)
        said = (
            f"Rename {other} to {SKILL_MD}."
            if other
            else f"Add a {SKILL_MD} with name and description in its front matter."
        )
        raise SkillErrors([SkillProblem(SKILL_MD, "", f"The file is missing. {said}")])
    try:
        text = files[SKILL_MD].decode("utf-8-sig")
    except UnicodeDecodeError:
        raise SkillErrors(
            [SkillProblem(SKILL_MD, "", "The file is not text in UTF-8. Save it in this encoding.")]
        ) from None
    if "\0" in text:
        raise SkillErrors(
            [
                SkillProblem(
                    SKILL_MD,
                    "",
                    "The file holds a NUL character. Remove it.",
                    text.count("\n", 0, text.index("\0")) + 1,
                )
            ]
        )
    return text


class _Fields:
    """The fields of the front matter, each checked once; what is wrong with them is collected."""

    def __init__(self, top: FrontMatter, folder: str | None) -> None:
        self._top, self._folder = top, folder
        self.problems: list[SkillProblem] = []

    def name(self) -> str:
        name = self.text("name", MAX_NAME, required=True) or ""
        if name and not _NAME.fullmatch(name):
            self._wrong(
                "name",
                "A name has lower-case letters, digits and single hyphens between them, for example incident-triage.",
            )
        elif name and self._folder is not None and name != self._folder:
            self._wrong(
                "name",
                f"The name must be that of the skill's folder, {to_printable(self._folder)}. Rename one of them.",
            )
        return name

    def text(self, field: str, longest: int, *, required: bool = False) -> str | None:
        value = self._top.values.get(field)
        if isinstance(value, tuple | dict):
            self._wrong(field, "The value must be one text. Put it in quotes.")
            return None
        text = (value or "").strip()
        if not text and required:
            self._wrong(
                field, f"The field is missing or empty. Write {field}: and 1 to {longest} characters."
            )
        if len(text) > longest:
            self._wrong(field, f"The text has {len(text)} characters and may have {longest}. Shorten it.")
        return text or None

    def metadata(self) -> dict[str, str]:
        value = self._top.values.get("metadata")
        if isinstance(value, str | tuple):
            self._wrong(
                "metadata",
                "The value must be pairs of texts, one to a line, for example `author: platform-team`.",
            )
            return {}
        return value or {}

    def tools(self) -> tuple[str, ...]:
        if "allowed-tools" not in self._top.values:
            return ()
        value = self._top.values["allowed-tools"]
        text = " ".join(value) if isinstance(value, tuple) else value or ""
        if isinstance(text, dict) or _TOOL.sub("", text).strip(", \t\n"):
            self._wrong("allowed-tools", "Write the names with spaces between them, or as a list.")
            return ()
        names = tuple(dict.fromkeys(_TOOL.findall(text)))
        if not names:  # it would mean every tool, which nobody who writes this means
            self._wrong(
                "allowed-tools",
                "The field names no tool. Name at least one, or leave the field out to allow all.",
            )
        return names

    def _wrong(self, field: str, message: str) -> None:
        self.problems.append(SkillProblem(SKILL_MD, field, message, self._top.lines.get(field)))


def _odd_text(top: FrontMatter) -> list[ScanFinding]:
    found = [
        _odd(
            "unknown-field",
            f"The field {to_printable(key)} is not one of {', '.join(_KNOWN)}, and is ignored.",
            line=line,
        )
        for key, line in top.lines.items()
        if key not in _KNOWN
    ]
    length = top.body.count("\n") + 1
    if not top.body:
        found.append(_odd("empty-body", "There is no text below the front matter: the skill tells nothing."))
    elif length > MAX_BODY_LINES:
        advice = f"The text has {length} lines; more than {MAX_BODY_LINES} fill the model's context. Move details to references/."
        found.append(_odd("long-body", advice, line=top.body_line + MAX_BODY_LINES))
    return found


def _odd_files(files: Mapping[str, bytes]) -> list[ScanFinding]:
    said = "The file is kept, but not shown to a model: files belong below scripts/, references/ or assets/."
    return [
        _odd("unexpected-file", said, file=path)
        for path in sorted(files)
        if path != SKILL_MD and not is_expected(path)
    ]


def _odd(code: str, message: str, *, file: str = SKILL_MD, line: int | None = None) -> ScanFinding:
    return ScanFinding(code=code, severity="warn", file=file, line=line, message=message)
