"""The skills API: what there is, what people change, and where it comes from."""

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
from ai_platform_engineering.skills_middleware.api.error_responses import ReadOnly, SkillsOff, Unusable
from ai_platform_engineering.skills_middleware.api.pagination import find_page
from ai_platform_engineering.skills_middleware.api.schemas import (
    CheckedShown,
    ContentSent,
    HubSent,
    HubShown,
    HubsShown,
    Meta,
    Refreshed,
    ScanShown,
    SkillSent,
    SkillShown,
    SkillsShown,
    SourceProblem,
    Status,
    Visibility,
    Wanted,
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

Name = Annotated[str, Path(min_length=1, max_length=255, json_schema_extra={"format": "skill-name"})]
FilePath = Annotated[str, Path(min_length=1, max_length=255, json_schema_extra={"format": "skill-path"})]
HubId = Annotated[str, Path(min_length=1, max_length=64)]
From = Annotated[
    Wanted | None,
    Query(description="Where it comes from, when several have the name; without it the one that is used."),
]
Where = Annotated[str, Query(max_length=64, description="Which hub.")]
IfMatch = Annotated[str | None, Header(description="The version that was read, as its ETag says it.")]
Texts = Annotated[bool, Query(description="With the texts of SKILL.md and of the other files.")]

# A file is a stranger's text on our origin: a browser shows it, at most, as text.
_INERT = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "sandbox",
    "Content-Disposition": "attachment",
}


@dataclass(frozen=True, slots=True)
class SkillsApi:
    """Without a catalogue skills are switched off."""

    catalog: SkillCatalog | None
    read_only: Callable[[], bool]

    def writable(self) -> None:
        if self.read_only():
            raise ReadOnly(READ_ONLY)

    # --- reading
    # --------------------------------------------------------------------------------------------------------

    async def list_skills(
        self,
        q: Annotated[str, Query(max_length=200, description="Words of name, description or metadata.")] = "",
        source: From = None,
        tags: Annotated[
            str, Query(max_length=200, description="With commas between them; a skill must have all.")
        ] = "",
        visibility: Annotated[Visibility | None, Query(description="Every skill here is global.")] = None,
        include_content: Texts = False,
        page: Annotated[int, Query(ge=0, le=100_000, description="0: all of them.")] = 0,
        page_size: Annotated[int, Query(ge=1, le=100)] = 50,
    ) -> Response:
        entries = await self._skills.entries()
        wanted = tags.replace(",", " ").casefold().split()
        chosen = [
            one
            for one in entries
            if is_from(one, source) and has_tags(one, wanted) and visibility in (None, "global")
        ]
        found = find_page(chosen, words=q, page=page, size=page_size)
        problems = self._problems()
        meta = Meta(
            total=found.total,
            page=page,
            page_size=page_size if page else found.total,
            has_more=found.has_more,
            sources_loaded=sorted({entry.origin for entry in entries}),
            unavailable_sources=[one.source for one in problems],
            source_problems=problems,
        )
        return _json(
            SkillsShown(
                skills=[SkillShown.of(entry, content=include_content) for entry in found.entries], meta=meta
            )
        )

    async def show_skill(
        self, name: Name, source: From = None, source_id: Where = "", include_content: Texts = True
    ) -> Response:
        return _skill(
            await self._named(name, source, source_id, lambda entry: entry.used), content=include_content
        )

    async def show_file(
        self, name: Name, path: FilePath, source: From = None, source_id: Where = ""
    ) -> Response:
        entry = await self._named(name, source, source_id, lambda entry: entry.used)
        content = entry.files.get(path)
        if content is None:
            there = ", ".join(map(to_printable, sorted(entry.files)[:20])) or "none"
            raise SkillNotFound(
                f"The skill {to_printable(name)} has no file {to_printable(path)}. Its files: {there}."
            )
        return Response(content, media_type=_media_type(content), headers={**_INERT, **_tag(entry)})

    async def validate_skill(self, sent: SkillSent) -> Response:
        return _json(CheckedShown.of(await self._skills.validate(sent.contents(), sent.name)))

    async def scan_content(self, sent: ContentSent) -> Response:
        return _json(ScanShown.of(await asyncio.to_thread(scan_files, {SKILL_MD: sent.content.encode()})))

    async def supervisor_status(self) -> Response:
        mas, catalog = get_mas_instance(), self.catalog
        merged = catalog.changed_at if catalog is not None else None
        status = Status(
            mas_registered=mas is not None,
            sync_status=read_sync_status(catalog),
            graph_generation=mas.graph_generation if mas is not None else 0,
            skills_generation=catalog.generation if catalog is not None else 0,
            skills_loaded_count=len(await catalog.list_usable()) if catalog is not None else 0,
            skills_merged_at=merged.isoformat() if merged is not None else None,
        )
        return _json(status)

    # --- changing
    # -------------------------------------------------------------------------------------------------------

    async def create_skill(self, sent: SkillSent) -> Response:
        entry = await self._skills.create(sent.contents(), sent.name)
        return _skill(entry, 201, content=True, Location=f"/skills/{entry.name}")

    async def update_skill(self, name: Name, sent: SkillSent, if_match: IfMatch = None) -> Response:
        await self._skills.check_stored(name)
        version = await self._expected(name, if_match)
        if sent.name not in (None, name):
            raise Unusable("The name in the address and the name in the request are not the same.")
        return _skill(await self._skills.update(name, sent.contents(), version=version), content=True)

    async def delete_skill(self, name: Name, if_match: IfMatch = None) -> Response:
        await self._skills.delete(name, version=await self._expected(name, if_match))
        return Response(status_code=204)

    async def enable_skill(self, name: Name, source: From = None, source_id: Where = "") -> Response:
        entry = await self._named(name, source, source_id, lambda entry: not entry.enabled)
        return _skill(
            await self._skills.set_enabled(entry.name, entry.origin, True, origin_id=entry.origin_id)
        )

    async def disable_skill(self, name: Name, source: From = None, source_id: Where = "") -> Response:
        entry = await self._named(name, source, source_id, lambda entry: entry.used)
        return _skill(
            await self._skills.set_enabled(entry.name, entry.origin, False, origin_id=entry.origin_id)
        )

    async def refresh_skills(
        self,
        include_hubs: Annotated[
            bool, Query(description="Fetch the newest commits of the hubs, too.")
        ] = False,
    ) -> Response:
        if include_hubs:
            self.writable()
        await self._skills.refresh(hubs=include_hubs)
        problems, mas = self._problems(), get_mas_instance()
        count = len(await self._skills.list_usable())
        failed = f" {len(problems)} sources could not be read." if problems else ""
        refreshed = Refreshed(
            status="partial" if problems else "ok",
            message=f"{count} skills can be used.{failed}",
            supervisor_rebuilt=read_sync_status(self._skills) == "synced",
            graph_generation=mas.graph_generation if mas is not None else 0,
            skills_loaded_count=count,
            source_problems=problems,
        )
        return _json(refreshed)

    # --- hubs
    # -----------------------------------------------------------------------------------------------------------

    async def list_hubs(self) -> Response:
        return _json(HubsShown(hubs=[await self._hub(hub.id) for hub in await self._skills.hubs()]))

    async def add_hub(self, sent: HubSent) -> Response:
        try:
            hub = await self._skills.add_hub(sent.url, sent.ref, sent.path)
        except SkillConflict:
            raise
        except CaipeError as error:  # an address that is refused, a repository that cannot be read
            raise Unusable(str(error)) from None
        return _json(await self._hub(hub.id), 201, Location=f"/skills/hubs/{quote(hub.id)}")

    async def remove_hub(self, hub_id: HubId) -> Response:
        await self._skills.remove_hub(hub_id)
        return Response(status_code=204)

    async def refresh_hub(self, hub_id: HubId) -> Response:
        """What fails is in `problem`, and the skills that were there stay."""
        await self._skills.refresh_hub(hub_id)
        return _json(await self._hub(hub_id))

    # --- what the routes share
    # ------------------------------------------------------------------------------------------

    @property
    def _skills(self) -> SkillCatalog:
        if self.catalog is None:
            raise SkillsOff
        return self.catalog

    def _problems(self) -> list[SourceProblem]:
        return [SourceProblem.of(one) for one in self._skills.unavailable_sources]

    async def _hub(self, hub_id: str) -> HubShown:
        hub = await self._skills.get_hub(hub_id)
        return HubShown.of(hub, await self._skills.entries(), self._skills.unavailable_sources)

    async def _named(
        self, name: str, source: Wanted | None, source_id: str, better: Callable[[SkillEntry], bool]
    ) -> SkillEntry:
        """One of the name: the first that is `better`, else the first."""
        found = [
            entry
            for entry in await self._skills.entries()
            if entry.name == name and is_from(entry, source, source_id)
        ]
        if not found:
            raise SkillNotFound(
                f"There is no skill {to_printable(name)}{' from there' if source or source_id else ''}."
            )
        return next(filter(better, found), found[0])

    async def _expected(self, name: str, if_match: str | None) -> str | None:
        """The version that must still be stored. Raises SkillChanged."""
        if if_match is None or if_match.strip() == "*":
            return None
        stored = _stored(await self._skills.entries(), name)
        if stored is None:
            return None  # the catalogue says why it cannot be changed
        version = stored.skill.version if stored.skill else ""
        # A proxy that compresses marks a tag as weak.
        if version not in {one.strip().removeprefix("W/").strip('"') for one in if_match.split(",")}:
            raise SkillChanged(to_printable(name))
        return version


def _stored(entries: Sequence[SkillEntry], name: str) -> SkillEntry | None:
    return next((entry for entry in entries if (entry.name, entry.origin) == (name, "stored")), None)


def _json(shown: BaseModel, status: int = 200, **headers: str) -> Response:
    return AsciiJSONResponse(shown.model_dump(mode="json"), status, headers)


def _skill(entry: SkillEntry, status: int = 200, *, content: bool = False, **headers: str) -> Response:
    return _json(SkillShown.of(entry, content=content), status, **_tag(entry), **headers)


def _tag(entry: SkillEntry) -> dict[str, str]:
    if entry.skill:
        return {"ETag": f'"{entry.skill.version}"'}
    return {}


def _media_type(content: bytes) -> str:
    try:
        content.decode()
    except UnicodeDecodeError:
        return "application/octet-stream"
    return "text/plain"
