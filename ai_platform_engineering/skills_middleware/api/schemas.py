"""Requests and responses of the skills REST API. `source`, `visibility` and the like are what existing
clients read; `origin` is our own word."""

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from ai_platform_engineering.core.skills import Origin, ScanFinding, Severity, Skill, SkillFile
from ai_platform_engineering.skills_middleware.file_rules import (
    MAX_FILES,
    SKILL_MD,
    SkillErrors,
    SkillProblem,
)
from ai_platform_engineering.skills_middleware.mas_registry import SyncStatus
from ai_platform_engineering.skills_middleware.scan.skill_scan import has_blocking
from ai_platform_engineering.skills_middleware.skill_catalog import UnavailableSource
from ai_platform_engineering.skills_middleware.skill_resolution import SkillCheck, SkillEntry
from ai_platform_engineering.skills_middleware.skill_store import Hub

SourceName = Literal["default", "agent_skills", "hub"]
SourceFilter = Literal["default", "agent_skills", "hub", "shipped", "folder", "stored"]
Visibility = Literal["global", "team", "personal"]

_SOURCES: Mapping[Origin, SourceName] = {
    "shipped": "default",
    "folder": "default",
    "stored": "agent_skills",
    "hub": "hub",
}
_EMPTY_SKILL = Skill(name="", description="", body="", version="")  # of an entry that could not be parsed


def _check_encodable(text: str) -> str:
    """Refuses a lone surrogate: JSON can hold one, a file cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("the text holds half a character (a lone surrogate)") from None
    return text


ValidText = Annotated[str, AfterValidator(_check_encodable)]
SkillPath = Annotated[ValidText, Field(json_schema_extra={"format": "skill-path"})]


# --- requests -------------------------------------------------------------------------------------------


class _RequestModel(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Base64File(_RequestModel):
    """A file that is not text."""

    base64: str = Field(json_schema_extra={"format": "byte"})


class SkillRequest(_RequestModel):
    """A skill's files. `name`, where it is given, must be the name in the front matter."""

    name: Annotated[ValidText, Field(max_length=64, json_schema_extra={"format": "skill-name"})] | None = None
    content: ValidText = Field(description="The text of SKILL.md.", json_schema_extra={"format": "skill-md"})
    files: dict[SkillPath, ValidText | Base64File] = Field(default_factory=dict, max_length=MAX_FILES)

    def read_files(self) -> dict[str, bytes]:
        """The files of the skill by path. Raises SkillErrors."""
        if SKILL_MD in self.files:
            message = "The text of SKILL.md belongs into `content`. Leave it out of `files`."
            raise SkillErrors([SkillProblem(SKILL_MD, "", message)])
        contents = {SKILL_MD: self.content.encode()}
        for path, file in self.files.items():
            if isinstance(file, str):
                contents[path] = file.encode()
                continue
            try:
                contents[path] = base64.b64decode(file.base64, validate=True)
            except (binascii.Error, ValueError):
                message = "This is not base64. Encode the file again."
                raise SkillErrors([SkillProblem(path[:80], "base64", message)]) from None
        return contents


class ScanRequest(_RequestModel):
    name: str = Field("", max_length=200)
    content: ValidText


class HubRequest(_RequestModel):
    url: ValidText = Field(min_length=1, max_length=2000, json_schema_extra={"format": "git-url"})
    ref: ValidText = Field(
        "",
        max_length=200,
        description="A branch, a tag or a commit.",
        json_schema_extra={"format": "git-ref"},
    )
    path: ValidText = Field(
        "",
        max_length=200,
        description="A folder of the repository.",
        json_schema_extra={"format": "git-path"},
    )


# --- responses ------------------------------------------------------------------------------------------


class _ResponseModel(BaseModel):
    model_config = ConfigDict(frozen=True)


class ProblemItem(_ResponseModel):
    """What is wrong, where. `file` is empty when it is the request itself."""

    file: str
    field: str
    message: str
    line: int | None = None

    @classmethod
    def of(cls, problem: SkillProblem) -> "ProblemItem":
        return cls(file=problem.file, field=problem.field, message=problem.message, line=problem.line)


class ProblemDetails(_ResponseModel):
    """An error by RFC 9457."""

    type: str
    title: str
    status: int
    detail: str
    error: str | None = None
    problems: list[ProblemItem] | None = None


class SkillResponse(_ResponseModel):
    id: str
    name: str
    description: str
    source: SourceName
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
    def of(cls, entry: SkillEntry, *, content: bool = False) -> "SkillResponse":
        skill = entry.skill or _EMPTY_SKILL
        return cls(
            id="/".join(filter(None, (entry.origin, entry.origin_id, entry.name))),
            name=entry.name,
            description=skill.description,
            source=_SOURCES[entry.origin],
            source_id=entry.origin_id or None,
            origin=entry.origin,
            content=_decode_skill_md(entry.files) if content else None,
            ancillary_files=_decode_other_files(entry.files) if content else {},
            metadata=dict(skill.metadata),
            version=skill.version or None,
            license=skill.license,
            compatibility=skill.compatibility,
            allowed_tools=list(skill.allowed_tools),
            files=list(skill.files),
            enabled=entry.enabled,
            used=entry.used,
            shadowed_by=entry.shadowed_by,
            findings=list(skill.findings),
            problems=[ProblemItem.of(problem) for problem in entry.problems],
        )


class SourceProblem(_ResponseModel):
    source: str
    reason: str

    @classmethod
    def of(cls, unavailable: UnavailableSource) -> "SourceProblem":
        source: str = unavailable.origin
        if unavailable.origin_id:
            source += f":{unavailable.origin_id}"
        return cls(source=source, reason=unavailable.reason)


class ListMetadata(_ResponseModel):
    total: int
    page: int
    page_size: int
    has_more: bool
    sources_loaded: list[str]
    unavailable_sources: list[str]
    source_problems: list[SourceProblem]


class SkillListResponse(_ResponseModel):
    skills: list[SkillResponse]
    meta: ListMetadata


class ValidationResponse(_ResponseModel):
    valid: bool
    blocked: bool  # valid, but it would be stored disabled
    name: str | None
    version: str | None
    problems: list[ProblemItem]
    findings: list[ScanFinding]

    @classmethod
    def of(cls, check: SkillCheck) -> "ValidationResponse":
        skill = check.skill
        return cls(
            valid=skill is not None,
            blocked=check.is_blocked,
            name=skill.name if skill else None,
            version=skill.version if skill else None,
            problems=[ProblemItem.of(problem) for problem in check.problems],
            findings=list(check.findings),
        )


class ScanResponse(_ResponseModel):
    passed: bool
    blocked: bool
    scan_status: Literal["passed", "flagged"]
    max_severity: Severity | None
    summary: str
    findings: list[ScanFinding]

    @classmethod
    def of(cls, findings: Sequence[ScanFinding]) -> "ScanResponse":
        blocked = has_blocking(tuple(findings))
        max_severity: Severity | None = None
        if findings:
            max_severity = "block" if blocked else "warn"
        return cls(
            passed=not blocked,
            blocked=blocked,
            scan_status="flagged" if findings else "passed",
            max_severity=max_severity,
            summary=_summarise(findings),
            findings=list(findings),
        )


class RefreshResponse(_ResponseModel):
    """`supervisor_rebuilt`: the supervisor uses what was read. It reads the catalogue at each step, and
    nothing has to be rebuilt."""

    status: Literal["ok", "partial"]
    message: str
    supervisor_rebuilt: bool
    graph_generation: int
    skills_loaded_count: int
    source_problems: list[SourceProblem]


class SupervisorStatusResponse(_ResponseModel):
    mas_registered: bool
    sync_status: SyncStatus
    graph_generation: int
    skills_generation: int
    skills_loaded_count: int
    skills_merged_at: str | None


class HubResponse(_ResponseModel):
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
    ) -> "HubResponse":
        own_entries = [entry for entry in entries if (entry.origin, entry.origin_id) == ("hub", hub.id)]
        own_reasons = [
            source.reason for source in unavailable if (source.origin, source.origin_id) == ("hub", hub.id)
        ]
        return cls(
            id=hub.id,
            url=hub.url.partition("?")[0],  # behind it people write tokens
            ref=hub.ref,
            path=hub.path,
            commit=hub.commit,
            configured=hub.configured,
            skills=len(own_entries),
            problem=next(iter(own_reasons), ""),
        )


class HubListResponse(_ResponseModel):
    hubs: list[HubResponse]


def is_from(entry: SkillEntry, source: SourceFilter | None, source_id: str = "") -> bool:
    """Whether an entry comes from a source, named by its origin or as existing clients name it."""
    return source in (None, entry.origin, _SOURCES[entry.origin]) and source_id in ("", entry.origin_id)


def has_tags(entry: SkillEntry, tags: Sequence[str]) -> bool:
    """Whether an entry has all tags; its own are in the metadata, with commas or spaces between them."""
    if not tags:
        return True
    if entry.skill is None:
        return False
    own_tags = entry.skill.metadata.get("tags", "").replace(",", " ").casefold().split()
    return set(tags) <= set(own_tags)


def _decode_skill_md(files: Mapping[str, bytes]) -> str:
    return _decode(files.get(SKILL_MD, b"")) or ""


def _decode_other_files(files: Mapping[str, bytes]) -> dict[str, str]:
    """The files beside SKILL.md that are text."""
    texts: dict[str, str] = {}
    for path, content in sorted(files.items()):
        text = _decode(content)
        if path != SKILL_MD and text is not None:
            texts[path] = text
    return texts


def _decode(content: bytes) -> str | None:
    """None for what is not text."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None


def _summarise(findings: Sequence[ScanFinding]) -> str:
    if not findings:
        return "Nothing was found."
    plural = "s" if len(findings) > 1 else ""
    return f"{len(findings)} finding{plural}: {findings[0].message}"
