"""The handlers of the skills REST API: reading skills, changing them, and hubs."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import quote

from fastapi import Header, Path, Query
from pydantic import BaseModel
from starlette.responses import Response

from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.policy import READ_ONLY
from ai_platform_engineering.runtime.server.ascii_json import AsciiJSONResponse
from ai_platform_engineering.skills_middleware.api.error_responses import (
    ReadOnly,
    SkillsDisabled,
    UnprocessableRequest,
)
from ai_platform_engineering.skills_middleware.api.pagination import find_page
from ai_platform_engineering.skills_middleware.api.schemas import (
    HubListResponse,
    HubRequest,
    HubResponse,
    ListMetadata,
    RefreshResponse,
    ScanRequest,
    ScanResponse,
    SkillListResponse,
    SkillRequest,
    SkillResponse,
    SourceFilter,
    SourceProblem,
    SupervisorStatusResponse,
    ValidationResponse,
    Visibility,
    has_tags,
    is_from,
)
from ai_platform_engineering.skills_middleware.file_rules import SKILL_MD, to_printable
from ai_platform_engineering.skills_middleware.mas_registry import get_mas_instance, read_sync_status
from ai_platform_engineering.skills_middleware.scan.skill_scan import scan_files
from ai_platform_engineering.skills_middleware.skill_catalog import (
    SkillCatalog,
    SkillChanged,
    SkillConflict,
    SkillNotFound,
)
from ai_platform_engineering.skills_middleware.skill_resolution import SkillEntry

NameParam = Annotated[str, Path(min_length=1, max_length=255, json_schema_extra={"format": "skill-name"})]
FilePathParam = Annotated[str, Path(min_length=1, max_length=255, json_schema_extra={"format": "skill-path"})]
HubIdParam = Annotated[str, Path(min_length=1, max_length=64)]
SourceParam = Annotated[
    SourceFilter | None,
    Query(description="Where it comes from, when several have the name; without it the one that is used."),
]
SourceIdParam = Annotated[str, Query(max_length=64, description="Which hub.")]
IfMatchHeader = Annotated[str | None, Header(description="The version that was read, as its ETag says it.")]
IncludeContentParam = Annotated[bool, Query(description="With the texts of SKILL.md and of the other files.")]

# A file is third-party text on our origin: a browser shows it, at most, as text.
_FILE_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "sandbox",
    "Content-Disposition": "attachment",
}


@dataclass(frozen=True, slots=True)
class SkillsApi:
    """The handlers over a catalogue; without one skills are switched off."""

    catalog: SkillCatalog | None
    read_only: Callable[[], bool]

    def require_writable(self) -> None:
        if self.read_only():
            raise ReadOnly(READ_ONLY)

    # --- reading --------------------------------------------------------------------------------------------

    async def list_skills(
        self,
        q: Annotated[str, Query(max_length=200, description="Words of name, description or metadata.")] = "",
        source: SourceParam = None,
        tags: Annotated[
            str, Query(max_length=200, description="With commas between them; a skill must have all.")
        ] = "",
        visibility: Annotated[Visibility | None, Query(description="Every skill here is global.")] = None,
        include_content: IncludeContentParam = False,
        page: Annotated[int, Query(ge=0, le=100_000, description="0: all of them.")] = 0,
        page_size: Annotated[int, Query(ge=1, le=100)] = 50,
    ) -> Response:
        all_entries = await self._get_catalog().entries()
        entries: list[SkillEntry] = []
        if visibility in (None, "global"):
            tag_names = tags.replace(",", " ").casefold().split()
            entries = [
                entry for entry in all_entries if is_from(entry, source) and has_tags(entry, tag_names)
            ]
        skill_page = find_page(entries, words=q, page=page, size=page_size)
        problems = self._source_problems()
        metadata = ListMetadata(
            total=skill_page.total,
            page=page,
            page_size=page_size if page else skill_page.total,
            has_more=skill_page.has_more,
            sources_loaded=sorted({entry.origin for entry in all_entries}),
            unavailable_sources=[problem.source for problem in problems],
            source_problems=problems,
        )
        skills = [SkillResponse.of(entry, content=include_content) for entry in skill_page.entries]
        return _json_response(SkillListResponse(skills=skills, meta=metadata))

    async def show_skill(
        self,
        name: NameParam,
        source: SourceParam = None,
        source_id: SourceIdParam = "",
        include_content: IncludeContentParam = True,
    ) -> Response:
        entry = await self._find_entry(name, source, source_id, lambda entry: entry.used)
        return _skill_response(entry, content=include_content)

    async def show_file(
        self,
        name: NameParam,
        path: FilePathParam,
        source: SourceParam = None,
        source_id: SourceIdParam = "",
    ) -> Response:
        entry = await self._find_entry(name, source, source_id, lambda entry: entry.used)
        content = entry.files.get(path)
        if content is None:
            paths = ", ".join(map(to_printable, sorted(entry.files)[:20])) or "none"
            raise SkillNotFound(
                f"The skill {to_printable(name)} has no file {to_printable(path)}. Its files: {paths}."
            )
        headers = {**_FILE_HEADERS, **_etag_header(entry)}
        return Response(content, media_type=_detect_media_type(content), headers=headers)

    async def validate_skill(self, request: SkillRequest) -> Response:
        check = await self._get_catalog().validate(request.read_files(), request.name)
        return _json_response(ValidationResponse.of(check))

    async def scan_content(self, request: ScanRequest) -> Response:
        findings = await asyncio.to_thread(scan_files, {SKILL_MD: request.content.encode()})
        return _json_response(ScanResponse.of(findings))

    async def supervisor_status(self) -> Response:
        catalog = self.catalog
        generation = 0
        usable_count = 0
        changed_at: str | None = None
        if catalog is not None:
            generation = catalog.generation
            if catalog.changed_at is not None:
                changed_at = catalog.changed_at.isoformat()
            usable_count = len(await catalog.list_usable())
        status = SupervisorStatusResponse(
            mas_registered=get_mas_instance() is not None,
            sync_status=read_sync_status(catalog),
            graph_generation=_read_graph_generation(),
            skills_generation=generation,
            skills_loaded_count=usable_count,
            skills_merged_at=changed_at,
        )
        return _json_response(status)

    # --- changing -------------------------------------------------------------------------------------------

    async def create_skill(self, request: SkillRequest) -> Response:
        entry = await self._get_catalog().create(request.read_files(), request.name)
        return _skill_response(entry, 201, content=True, Location=f"/skills/{entry.name}")

    async def update_skill(
        self, name: NameParam, request: SkillRequest, if_match: IfMatchHeader = None
    ) -> Response:
        await self._get_catalog().check_stored(name)
        version = await self._find_expected_version(name, if_match)
        if request.name not in (None, name):
            raise UnprocessableRequest(
                "The name in the address and the name in the request are not the same."
            )
        entry = await self._get_catalog().update(name, request.read_files(), version=version)
        return _skill_response(entry, content=True)

    async def delete_skill(self, name: NameParam, if_match: IfMatchHeader = None) -> Response:
        version = await self._find_expected_version(name, if_match)
        await self._get_catalog().delete(name, version=version)
        return Response(status_code=204)

    async def enable_skill(
        self, name: NameParam, source: SourceParam = None, source_id: SourceIdParam = ""
    ) -> Response:
        entry = await self._find_entry(name, source, source_id, lambda entry: not entry.enabled)
        return await self._set_enabled(entry, enabled=True)

    async def disable_skill(
        self, name: NameParam, source: SourceParam = None, source_id: SourceIdParam = ""
    ) -> Response:
        entry = await self._find_entry(name, source, source_id, lambda entry: entry.used)
        return await self._set_enabled(entry, enabled=False)

    async def refresh_skills(
        self,
        include_hubs: Annotated[
            bool, Query(description="Fetch the newest commits of the hubs, too.")
        ] = False,
    ) -> Response:
        if include_hubs:
            self.require_writable()
        catalog = self._get_catalog()
        await catalog.refresh(hubs=include_hubs)
        problems = self._source_problems()
        usable_count = len(await catalog.list_usable())
        message = f"{usable_count} skills can be used."
        if problems:
            message += f" {len(problems)} sources could not be read."
        response = RefreshResponse(
            status="partial" if problems else "ok",
            message=message,
            supervisor_rebuilt=read_sync_status(catalog) == "synced",
            graph_generation=_read_graph_generation(),
            skills_loaded_count=usable_count,
            source_problems=problems,
        )
        return _json_response(response)

    # --- hubs -----------------------------------------------------------------------------------------------

    async def list_hubs(self) -> Response:
        hubs: list[HubResponse] = []
        for hub in await self._get_catalog().hubs():
            hubs.append(await self._describe_hub(hub.id))
        return _json_response(HubListResponse(hubs=hubs))

    async def add_hub(self, request: HubRequest) -> Response:
        catalog = self._get_catalog()
        try:
            hub = await catalog.add_hub(request.url, request.ref, request.path)
        except SkillConflict:
            raise
        except CaipeError as error:  # an address that is refused, a repository that cannot be read
            raise UnprocessableRequest(str(error)) from None
        return _json_response(await self._describe_hub(hub.id), 201, Location=f"/skills/hubs/{quote(hub.id)}")

    async def remove_hub(self, hub_id: HubIdParam) -> Response:
        await self._get_catalog().remove_hub(hub_id)
        return Response(status_code=204)

    async def refresh_hub(self, hub_id: HubIdParam) -> Response:
        """What fails is in `problem`, and the skills that were there stay."""
        await self._get_catalog().refresh_hub(hub_id)
        return _json_response(await self._describe_hub(hub_id))

    # --- shared by the handlers -----------------------------------------------------------------------------

    def _get_catalog(self) -> SkillCatalog:
        if self.catalog is None:
            raise SkillsDisabled
        return self.catalog

    def _source_problems(self) -> list[SourceProblem]:
        return [SourceProblem.of(source) for source in self._get_catalog().unavailable_sources]

    async def _describe_hub(self, hub_id: str) -> HubResponse:
        catalog = self._get_catalog()
        hub = await catalog.get_hub(hub_id)
        return HubResponse.of(hub, await catalog.entries(), catalog.unavailable_sources)

    async def _set_enabled(self, entry: SkillEntry, *, enabled: bool) -> Response:
        changed_entry = await self._get_catalog().set_enabled(
            entry.name, entry.origin, enabled, origin_id=entry.origin_id
        )
        return _skill_response(changed_entry)

    async def _find_entry(
        self,
        name: str,
        source: SourceFilter | None,
        source_id: str,
        is_preferred: Callable[[SkillEntry], bool],
    ) -> SkillEntry:
        """The first preferred entry of the name, else the first. Raises SkillNotFound."""
        candidates: list[SkillEntry] = []
        for entry in await self._get_catalog().entries():
            if entry.name == name and is_from(entry, source, source_id):
                candidates.append(entry)
        if not candidates:
            where = " from there" if source or source_id else ""
            raise SkillNotFound(f"There is no skill {to_printable(name)}{where}.")
        return next(filter(is_preferred, candidates), candidates[0])

    async def _find_expected_version(self, name: str, if_match: str | None) -> str | None:
        """The version that must still be stored. Raises SkillChanged."""
        if if_match is None or if_match.strip() == "*":
            return None
        entry = _find_stored(await self._get_catalog().entries(), name)
        if entry is None:
            return None  # the catalogue says why it cannot be changed
        version = entry.skill.version if entry.skill else ""
        if version not in _parse_etags(if_match):
            raise SkillChanged(to_printable(name))
        return version


def _find_stored(entries: Sequence[SkillEntry], name: str) -> SkillEntry | None:
    for entry in entries:
        if (entry.name, entry.origin) == (name, "stored"):
            return entry
    return None


def _parse_etags(if_match: str) -> set[str]:
    # A proxy that compresses marks an ETag as weak.
    return {etag.strip().removeprefix("W/").strip('"') for etag in if_match.split(",")}


def _read_graph_generation() -> int:
    """How often the supervisor built its graph; 0 without a supervisor."""
    mas = get_mas_instance()
    if mas is None:
        return 0
    return mas.graph_generation


def _json_response(model: BaseModel, status: int = 200, **headers: str) -> Response:
    return AsciiJSONResponse(model.model_dump(mode="json"), status, headers)


def _skill_response(
    entry: SkillEntry, status: int = 200, *, content: bool = False, **headers: str
) -> Response:
    response = SkillResponse.of(entry, content=content)
    return _json_response(response, status, **_etag_header(entry), **headers)


def _etag_header(entry: SkillEntry) -> dict[str, str]:
    if entry.skill is None:
        return {}
    return {"ETag": f'"{entry.skill.version}"'}


def _detect_media_type(content: bytes) -> str:
    try:
        content.decode()
    except UnicodeDecodeError:
        return "application/octet-stream"
    return "text/plain"
