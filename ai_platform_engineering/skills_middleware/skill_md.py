"""Parses the files of a skill: SKILL.md by the public convention, with problems that say what to do."""

import hashlib
import re
from collections.abc import Mapping

from ai_platform_engineering.core.skills import ScanFinding, Skill, SkillFile
from ai_platform_engineering.skills_middleware.file_rules import (
    SKILL_MD,
    SkillErrors,
    SkillProblem,
    find_size_problems,
    is_expected,
    to_printable,
)
from ai_platform_engineering.skills_middleware.front_matter import (
    FrontMatter,
    split_front_matter,
)

MAX_NAME = 64
MAX_DESCRIPTION = 1024
MAX_COMPATIBILITY = 500
MAX_BODY_LINES = 500
_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_TOOL = re.compile(r"[^\s,()]+(?:\([^()]*\))?")
_KNOWN_FIELDS = ("name", "description", "license", "compatibility", "metadata", "allowed-tools")
_BAD_NAME = (
    "A name has lower-case letters, digits and single hyphens between them, for example incident-triage."
)
_BAD_METADATA = "The value must be pairs of texts, one to a line, for example `author: platform-team`."
_NO_TOOL = "The field names no tool. Name at least one, or leave the field out to allow all."
_UNEXPECTED_FILE = (
    "The file is kept, but not shown to a model: files belong below scripts/, references/ or assets/."
)


def parse_skill(files: Mapping[str, bytes], folder: str | None = None) -> Skill:
    """The skill of files below one folder; oddities of its format are findings. `folder` is the name that
    it must have. Raises SkillErrors."""
    if problems := find_size_problems({path: len(content) for path, content in files.items()}):
        raise SkillErrors(problems)
    front_matter = split_front_matter(_read_skill_md(files))
    fields = _FieldReader(front_matter, folder)
    name = fields.read_name()
    description = fields.read_text("description", MAX_DESCRIPTION, required=True)
    skill_license = fields.read_text("license", MAX_COMPATIBILITY)
    compatibility = fields.read_text("compatibility", MAX_COMPATIBILITY)
    metadata = fields.read_metadata()
    allowed_tools = fields.read_tools()
    if fields.problems:
        raise SkillErrors(fields.problems)
    return Skill(
        name=name,
        description=description or "",
        license=skill_license,
        compatibility=compatibility,
        metadata=metadata,
        allowed_tools=allowed_tools,
        body=front_matter.body,
        version=compute_version(files),
        files=_list_files(files),
        findings=(*_find_text_oddities(front_matter), *_find_unexpected_files(files)),
    )


def compute_version(files: Mapping[str, bytes]) -> str:
    """A digest of the files: the same files have the same version, wherever they are kept."""
    digest = hashlib.sha256()
    for path, content in sorted(files.items()):
        for part in (path.encode(), content):
            digest.update(
                len(part).to_bytes(8, "big") + part
            )  # with lengths: no byte can move to the next part
    return digest.hexdigest()[:12]


def _list_files(files: Mapping[str, bytes]) -> tuple[SkillFile, ...]:
    """The files that are shown to a model, by path."""
    expected_paths = sorted(filter(is_expected, files))
    return tuple(SkillFile(path=path, size=len(files[path])) for path in expected_paths)


def _read_skill_md(files: Mapping[str, bytes]) -> str:
    if SKILL_MD not in files:
        raise SkillErrors([SkillProblem(SKILL_MD, "", f"The file is missing. {_missing_advice(files)}")])
    try:
        text = files[SKILL_MD].decode("utf-8-sig")
    except UnicodeDecodeError:
        message = "The file is not text in UTF-8. Save it in this encoding."
        raise SkillErrors([SkillProblem(SKILL_MD, "", message)]) from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise SkillErrors([SkillProblem(SKILL_MD, "", "The file holds a NUL character. Remove it.", line)])
    return text


def _missing_advice(files: Mapping[str, bytes]) -> str:
    for path in files:
        if path.lower() == SKILL_MD.lower():
            return f"Rename {path} to {SKILL_MD}."
    return f"Add a {SKILL_MD} with name and description in its front matter."


class _FieldReader:
    """Reads and checks the fields of the front matter, and collects their problems."""

    def __init__(self, front_matter: FrontMatter, folder: str | None) -> None:
        self._front_matter = front_matter
        self._folder = folder
        self.problems: list[SkillProblem] = []

    def read_name(self) -> str:
        name = self.read_text("name", MAX_NAME, required=True) or ""
        if name and not _NAME.fullmatch(name):
            self._report("name", _BAD_NAME)
        elif name and self._folder is not None and name != self._folder:
            folder = to_printable(self._folder)
            self._report(
                "name", f"The name must be that of the skill's folder, {folder}. Rename one of them."
            )
        return name

    def read_text(self, field: str, max_length: int, *, required: bool = False) -> str | None:
        value = self._front_matter.values.get(field)
        if isinstance(value, tuple | dict):
            self._report(field, "The value must be one text. Put it in quotes.")
            return None
        text = (value or "").strip()
        if not text and required:
            self._report(
                field, f"The field is missing or empty. Write {field}: and 1 to {max_length} characters."
            )
        if len(text) > max_length:
            self._report(field, f"The text has {len(text)} characters and may have {max_length}. Shorten it.")
        return text or None

    def read_metadata(self) -> dict[str, str]:
        value = self._front_matter.values.get("metadata")
        if isinstance(value, str | tuple):
            self._report("metadata", _BAD_METADATA)
            return {}
        return value or {}

    def read_tools(self) -> tuple[str, ...]:
        if "allowed-tools" not in self._front_matter.values:
            return ()
        text = self._front_matter.values["allowed-tools"] or ""
        if isinstance(text, tuple):
            text = " ".join(text)
        if isinstance(text, dict) or _TOOL.sub("", text).strip(", \t\n"):
            self._report("allowed-tools", "Write the names with spaces between them, or as a list.")
            return ()
        tool_names = tuple(dict.fromkeys(_TOOL.findall(text)))
        if not tool_names:  # it would mean every tool, which nobody who writes this means
            self._report("allowed-tools", _NO_TOOL)
        return tool_names

    def _report(self, field: str, message: str) -> None:
        self.problems.append(SkillProblem(SKILL_MD, field, message, self._front_matter.lines.get(field)))


def _find_text_oddities(front_matter: FrontMatter) -> list[ScanFinding]:
    findings: list[ScanFinding] = []
    for key, line in front_matter.lines.items():
        if key not in _KNOWN_FIELDS:
            known_fields = ", ".join(_KNOWN_FIELDS)
            message = f"The field {to_printable(key)} is not one of {known_fields}, and is ignored."
            findings.append(_warning("unknown-field", message, line=line))
    body_lines = front_matter.body.count("\n") + 1
    if not front_matter.body:
        message = "There is no text below the front matter: the skill tells nothing."
        findings.append(_warning("empty-body", message))
    elif body_lines > MAX_BODY_LINES:
        message = (
            f"The text has {body_lines} lines; more than {MAX_BODY_LINES} fill the model's context."
            " Move details to references/."
        )
        findings.append(_warning("long-body", message, line=front_matter.body_line + MAX_BODY_LINES))
    return findings


def _find_unexpected_files(files: Mapping[str, bytes]) -> list[ScanFinding]:
    findings: list[ScanFinding] = []
    for path in sorted(files):
        if path != SKILL_MD and not is_expected(path):
            findings.append(_warning("unexpected-file", _UNEXPECTED_FILE, file=path))
    return findings


def _warning(code: str, message: str, *, file: str = SKILL_MD, line: int | None = None) -> ScanFinding:
    return ScanFinding(code=code, severity="warn", file=file, line=line, message=message)
