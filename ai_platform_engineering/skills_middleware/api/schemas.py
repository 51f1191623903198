"""Skills as the REST API shows them. `source`, `visibility` and the like are what existing clients read;
`origin` is our own word."""

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from ai_platform_engineering.core.skills import Origin, ScanFinding, Severity, SkillFile
from ai_platform_engineering.skills_middleware.file_rules import (
    MAX_FILES,
    SKILL_MD,
    SkillErrors,
    SkillProblem,
)
from ai_platform_engineering.skills_middleware.mas_registry import SyncStatus
from ai_platform_engineering.skills_middleware.skill_catalog import UnavailableSource
from ai_platform_engineering.skills_middleware.skill_resolution import SkillCheck, SkillEntry
from ai_platform_engineering.skills_middleware.skill_store import Hub

Source = Literal["default", "agent_skills", "hub"]
Wanted = Literal["default", "agent_skills", "hub", "shipped", "folder", "stored"]
Visibility = Literal["global", "team", "personal"]

_SOURCES: Mapping[Origin, Source] = {
    "shipped": "default",
    "folder": "default",
    "stored": "agent_skills",
    "hub": "hub",
}


def _whole(text: str) -> str:
    """JSON can hold half a character, which no file can."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("the text holds half a character (a lone surrogate)") from None
    return text


Whole = Annotated[str, AfterValidator(_whole)]
SkillPath = Annotated[Whole, Field(json_schema_extra={"format": "skill-path"})]


# --- what is sent
# ---------------------------------------------------------------------------------------------------------------------


class _Sent(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Bytes(_Sent):
    """A file that is not text."""

    base64: str = Field(json_schema_extra={"format": "byte"})


class SkillSent(_Sent):
    """A skill's files. `name`, where it is given, must be the name in the front matter."""

    name: Annotated[Whole, Field(max_length=64, json_schema_extra={"format": "skill-name"})] | None = None
    content: Whole = Field(description="The text of SKILL.md.", json_schema_extra={"format": "skill-md"})
    files: dict[SkillPath, Whole | Bytes] = Field(default_factory=dict, max_length=MAX_FILES)

    def contents(self) -> dict[str, bytes]:
        """Raises SkillErrors."""
        if SKILL_MD in self.files:
            raise SkillErrors(
                [
                    SkillProblem(
                        SKILL_MD, "", "The text of SKILL.md belongs into `content`. Leave it out of `files`."
                    )
                ]
            )
        found = {SKILL_MD: self.content.encode()}
        for path, file in self.files.items():
            try:
                found[path] = (
                    file.encode() if isinstance(file, str) else base64.b64decode(file.base64, validate=True)
                )
            except (binascii.Error, ValueError):
                raise SkillErrors(
                    [SkillProblem(path[:80], "base64", "This is not base64. Encode the file again.")]
                ) from None
        return found


class ContentSent(_Sent):
    name: str = Field("", max_length=200)
    content: Whole


class HubSent(_Sent):
    url: Whole = Field(min_length=1, max_length=2000, json_schema_extra={"format": "git-url"})
    ref: Whole = Field(
        "",
        max_length=200,
        description="A branch, a tag or a commit.",
        json_schema_extra={"format": "git-ref"},
    )
    path: Whole = Field(
        "",
        max_length=200,
        description="A folder of the repository.",
        json_schema_extra={"format": "git-path"},
    )


# --- what is answered
# -----------------------------------------------------------------------------------------------------------------


class _Shown(BaseModel):
    model_config = ConfigDict(frozen=True)


class ProblemItem(_Shown):
    """What is wrong, where. `file` is empty when it is the request itself."""

    file: str
    field: str
    message: str
    line: int | None = None

    @classmethod
    def of(cls, problem: SkillProblem) -> "ProblemItem":
        return cls(file=problem.file, field=problem.field, message=problem.message, line=problem.line)


class ProblemShown(_Shown):
    """An error by RFC 9457."""

    type: str
    title: str
    status: int
    detail: str
    error: str | None = None
    problems: list[ProblemItem] | None = None


class SkillShown(_Shown):
    id: str
    name: str
    description: str
    source: Source
    source_id: str | None
    origin: Origin
    content: str | None  # and the texts of its files, where they were asked for
    ancillary_files: dict[str, str]
    metadata: dict[str, str]
    visibility: Visibility = "global"
    team_ids: list[str] = []
    owner_user_id: str | None = None
    version: str | None
    license: str | None
    compatibility: str | None
    allowed_tools: list[str]
    files: list[SkillFile]
    enabled: bool
    used: bool
    shadowed_by: Origin | None
    findings: list[ScanFinding]
    problems: list[ProblemItem]

    @classmethod
    def of(cls, entry: SkillEntry, *, content: bool = False) -> "SkillShown":
        skill = entry.skill
        return cls(
            id="/".join(filter(None, (entry.origin, entry.origin_id, entry.name))),
            name=entry.name,
            description=skill.description if skill else "",
            source=_SOURCES[entry.origin],
            source_id=entry.origin_id or None,
            origin=entry.origin,
            content=_text(entry.files.get(SKILL_MD, b"")) or "" if content else None,
            ancillary_files=_texts(entry.files) if content else {},
            metadata=dict(skill.metadata) if skill else {},
            version=skill.version if skill else None,
            license=skill.license if skill else None,
            compatibility=skill.compatibility if skill else None,
            allowed_tools=list(skill.allowed_tools) if skill else [],
            files=list(skill.files) if skill else [],
            enabled=entry.enabled,
            used=entry.used,
            shadowed_by=entry.shadowed_by,
            findings=list(skill.findings) if skill else [],
            problems=[ProblemItem.of(problem) for problem in entry.problems],
        )


class SourceProblem(_Shown):
    source: str
    reason: str

    @classmethod
    def of(cls, one: UnavailableSource) -> "SourceProblem":
        return cls(source=f"{one.origin}:{one.origin_id}" if one.origin_id else one.origin, reason=one.reason)


class Meta(_Shown):
    total: int
    page: int
    page_size: int
    has_more: bool
    sources_loaded: list[str]
    unavailable_sources: list[str]
    source_problems: list[SourceProblem]


class SkillsShown(_Shown):
    skills: list[SkillShown]
    meta: Meta


class CheckedShown(_Shown):
    valid: bool
    blocked: bool  # valid, but it would be stored disabled
    name: str | None
    version: str | None
    problems: list[ProblemItem]
    findings: list[ScanFinding]

    @classmethod
    def of(cls, checked: SkillCheck) -> "CheckedShown":
        skill = checked.skill
        return cls(
            valid=skill is not None,
            blocked=checked.is_blocked,
            name=skill.name if skill else None,
            version=skill.version if skill else None,
            problems=[ProblemItem.of(problem) for problem in checked.problems],
            findings=list(checked.findings),
        )


class ScanShown(_Shown):
    passed: bool
    blocked: bool
    scan_status: Literal["passed", "flagged"]
    max_severity: Severity | None
    summary: str
    findings: list[ScanFinding]

    @classmethod
    def of(cls, findings: Sequence[ScanFinding]) -> "ScanShown":
        worst: Severity | None = next(
            (one.severity for one in sorted(findings, key=lambda one: one.severity)), None
        )
        said = (
            f"{len(findings)} finding{'s' if len(findings) > 1 else ''}: {findings[0].message}"
            if findings
            else "Nothing was found."
        )
        blocked = worst == "block"
        return cls(
            passed=not blocked,
            blocked=blocked,
            scan_status="flagged" if findings else "passed",
            max_severity=worst,
            summary=said,
            findings=list(findings),
        )


class Refreshed(_Shown):
    """`supervisor_rebuilt`: the supervisor uses what was read. It reads the catalogue at each step, and
    nothing has to be rebuilt."""

    status: Literal["ok", "partial"]
    message: str
    supervisor_rebuilt: bool
    graph_generation: int
    skills_loaded_count: int
    source_problems: list[SourceProblem]


class Status(_Shown):
    mas_registered: bool
    sync_status: SyncStatus
    graph_generation: int
    skills_generation: int
    skills_loaded_count: int
    skills_merged_at: str | None


class HubShown(_Shown):
    id: str
    url: str
    ref: str
    path: str
    commit: str
    configured: bool
    skills: int
    problem: str

    @classmethod
    def of(
        cls, hub: Hub, entries: Sequence[SkillEntry], unavailable: Sequence[UnavailableSource]
    ) -> "HubShown":
        return cls(
            id=hub.id,
            url=hub.url.partition("?")[0],  # behind it people write tokens
            ref=hub.ref,
            path=hub.path,
            commit=hub.commit,
            configured=hub.configured,
            skills=sum((entry.origin, entry.origin_id) == ("hub", hub.id) for entry in entries),
            problem=next(
                (one.reason for one in unavailable if (one.origin, one.origin_id) == ("hub", hub.id)), ""
            ),
        )


class HubsShown(_Shown):
    hubs: list[HubShown]


def _texts(files: Mapping[str, bytes]) -> dict[str, str]:
    return {
        path: text
        for path, content in sorted(files.items())
        if path != SKILL_MD and (text := _text(content)) is not None
    }


def _text(content: bytes) -> str | None:
    """None for what is not text."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None


def is_from(entry: SkillEntry, wanted: Wanted | None, source_id: str = "") -> bool:
    """Whether an entry comes from a source, in either way of naming it."""
    return wanted in (None, entry.origin, _SOURCES[entry.origin]) and source_id in ("", entry.origin_id)


def has_tags(entry: SkillEntry, tags: Sequence[str]) -> bool:
    """Tags stand in the metadata, with commas or spaces between them."""
    if not tags:
        return True
    own = entry.skill.metadata.get("tags", "").replace(",", " ").casefold().split() if entry.skill else []
    return set(tags) <= set(own)
