"""Datasources from what people type: a location, perhaps a name and options, resolved to a source that lists
documents."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args
from urllib.parse import urlsplit

from ai_platform_engineering.core.errors import Refused
from ai_platform_engineering.knowledge_bases.sources.crawler import CrawlLimits
from ai_platform_engineering.knowledge_bases.sources.shipped_documentation import ShippedDocsSource
from ai_platform_engineering.knowledge_bases.sources.source_factory import (
    SourceContext,
    SourceKind,
    create_source,
    resolve_local_path,
)
from ai_platform_engineering.knowledge_bases.sources.source_items import DocumentSource
from ai_platform_engineering.knowledge_bases.stores.knowledge_store import Datasource

OPTIONS = ("depth", "max_pages", "prefix", "kind")
_MAX_NAME_CHARS = 64
_NAME = re.compile(rf"[a-z0-9][a-z0-9._-]{{0,{_MAX_NAME_CHARS - 1}}}")
_NOT_IN_NAMES = re.compile(r"[^a-z0-9._-]+")
_MAX_DEPTH = 20
_MAX_PAGES = 100_000


@dataclass(frozen=True, slots=True)
class DatasourceResolver:
    """Makes datasources from locations, and the sources that read them."""

    context: SourceContext
    shipped_docs: ShippedDocsSource = field(default_factory=ShippedDocsSource)

    def create_source(self, datasource: Datasource) -> DocumentSource:
        """The source that lists and fetches a datasource's documents. Raises CaipeError."""
        if datasource.kind == self.shipped_docs.kind:
            return self.shipped_docs
        kind = _parse_kind(datasource.kind)
        return _create_source(datasource.location, self.context, datasource.options, kind)

    def resolve(
        self,
        location: str,
        existing: Collection[Datasource],
        *,
        name: str | None,
        title: str,
        options: Mapping[str, str],
        folders: Collection[Path] | None,
    ) -> Datasource:
        """The datasource of a location; an existing one with the same location keeps its name.

        `folders`: only files of this machine below these may be read; None allows all. Raises CaipeError."""
        unknown_options = [option for option in options if option not in OPTIONS]
        if unknown_options:
            raise Refused(
                f"There is no option {', '.join(unknown_options)}. The options are: {', '.join(OPTIONS)}."
            )
        kind = _parse_kind(options.get("kind"))
        if folders is not None:
            _check_folder(location, kind, folders)
        source = _create_source(location, self.context, options, kind)
        if name is not None and not _NAME.fullmatch(name):
            raise Refused(
                "A name has small letters, digits, dots, hyphens and underscores, at most 64, "
                "and begins with a letter or a digit."
            )
        source_options = {option: value for option, value in options.items() if option != "kind"}
        name = name or _choose_name(source.location, existing)
        return Datasource(name, source.location, source.kind, title, source_options)


def _check_folder(location: str, kind: SourceKind | None, folders: Collection[Path]) -> None:
    """Refuses a path outside of the folders, before any look at the disk: the answer must not tell whether it
    exists."""
    path = resolve_local_path(location, kind)
    if path is None:
        return
    if not any(path.is_relative_to(folder.expanduser().resolve()) for folder in folders):
        raise Refused("Files of the server are only read below the folders that RAG_INGEST_FOLDERS names.")


def _create_source(
    location: str, context: SourceContext, options: Mapping[str, str], kind: SourceKind | None
) -> DocumentSource:
    defaults = CrawlLimits()
    limits = CrawlLimits(
        depth=_parse_number(options, "depth", defaults.depth, 0, _MAX_DEPTH),
        max_pages=_parse_number(options, "max_pages", defaults.max_pages, 1, _MAX_PAGES),
        prefix=options.get("prefix") or None,
    )
    return create_source(location, context, kind=kind, limits=limits)


def _parse_kind(text: str | None) -> SourceKind | None:
    if text is None:
        return None
    kinds: tuple[SourceKind, ...] = get_args(SourceKind)
    for kind in kinds:
        if kind == text:
            return kind
    raise Refused(f"A datasource is one of: {', '.join(kinds)}.")


def _parse_number(options: Mapping[str, str], name: str, default: int, least: int, most: int) -> int:
    text = options.get(name, str(default))
    if not text.isdecimal() or not least <= int(text) <= most:
        raise Refused(f"{name} is a number from {least} to {most}.")
    return int(text)


def _choose_name(location: str, existing: Collection[Datasource]) -> str:
    """The name that the location has already, or a free one derived from it."""
    for datasource in existing:
        if datasource.location == location:
            return datasource.name
    used_names = {datasource.name for datasource in existing}
    base = _name_from_location(location)
    name = base
    number = 1
    while name in used_names:
        number += 1
        name = f"{base}-{number}"
    return name


def _name_from_location(location: str) -> str:
    """`https://docs.example.org/guide/` is docs.example.org-guide, `git@host:team/tools.git` and `/srv/tools`
    are tools."""
    host = ""
    path = location.replace(":", "/")
    if location.lower().startswith(("http:", "https:")):
        parts = urlsplit(location)
        path = parts.path
        if not location.endswith(".git"):
            host = parts.hostname or ""
    last_segment = path.strip("/").removesuffix(".git").rpartition("/")[2]
    words = "-".join(filter(None, (host, last_segment))).lower()
    return _NOT_IN_NAMES.sub("-", words).strip("-._")[: _MAX_NAME_CHARS - 4] or "documents"
