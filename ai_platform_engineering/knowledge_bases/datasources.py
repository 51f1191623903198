"""Datasources from what people type: a location, perhaps a name and options, resolved to a source that lists
documents."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import get_args
from urllib.parse import urlsplit

from ai_platform_engineering.core.errors import Refused
from ai_platform_engineering.knowledge_bases.sources.connectors.connector import Connectors, find_connector
from ai_platform_engineering.knowledge_bases.sources.crawler import CrawlLimits
from ai_platform_engineering.knowledge_bases.sources.shipped_documentation import ShippedDocsSource
from ai_platform_engineering.knowledge_bases.sources.source_factory import (
    SourceContext,
    SourceKind,
    create_source,
    resolve_local_path,
)
from ai_platform_engineering.knowledge_bases.sources.source_items import DocumentSource
from ai_platform_engineering.knowledge_bases.sources.uploaded_files import UploadedFiles
from ai_platform_engineering.knowledge_bases.stores.knowledge_store import Datasource
from ai_platform_engineering.knowledge_bases.stores.upload_store import UPLOAD, UploadStore

PUSH = "push"  # the kind of a datasource that programs push documents to, and how its location begins
OPTIONS = ("depth", "max_pages", "prefix", "kind")
_MAX_NAME_CHARS = 64
_NAME = re.compile(rf"[a-z0-9][a-z0-9._-]{{0,{_MAX_NAME_CHARS - 1}}}")
_NOT_IN_NAMES = re.compile(r"[^a-z0-9._-]+")
_MAX_DEPTH = 20
_MAX_PAGES = 100_000


@dataclass(frozen=True, slots=True)
class DatasourceResolver:
    """Makes datasources from locations, and the sources that read them. `uploads`: uploaded files that are in
    a database."""

    context: SourceContext
    shipped_docs: ShippedDocsSource = field(default_factory=ShippedDocsSource)
    uploads: UploadStore | None = None

    def create_source(self, datasource: Datasource) -> DocumentSource:
        """The source that lists and fetches a datasource's documents. Raises CaipeError."""
        if datasource.kind == self.shipped_docs.kind:
            return self.shipped_docs
        if datasource.kind == UPLOAD and self.uploads is not None:
            return UploadedFiles(self.uploads, datasource.name)
        if datasource.kind in self.context.connectors:
            return create_source(datasource.location, self.context, options=datasource.options)
        kind = _parse_kind(datasource.kind)
        return _create_source(datasource.location, self.context, datasource.options, kind)

    def can_read(self, datasource: Datasource) -> bool:
        """Whether what a datasource is read from is here; blocks. A folder may be on another machine, and the
        documentation of another version of this product."""
        if datasource.kind == self.shipped_docs.kind:
            return datasource.options.get("revision") == self.shipped_docs.compute_revision()
        if datasource.kind not in get_args(SourceKind):
            return True
        path = resolve_local_path(datasource.location, _parse_kind(datasource.kind))
        return path is None or path.exists()

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
        source = self._create_new_source(location, options, folders)
        if name is not None:
            check_name(name)
        source_options = {option: value for option, value in options.items() if option != "kind"}
        name = name or _choose_name(source, existing, self.context.connectors)
        return Datasource(name, source.location, source.kind, title, source_options)

    def _create_new_source(
        self, location: str, options: Mapping[str, str], folders: Collection[Path] | None
    ) -> DocumentSource:
        connectors = self.context.connectors
        match = find_connector(location, connectors)
        if match is not None and "kind" not in options:
            connector, _ = match
            _check_options(options, connector.options, f" for {connector.kind}")
            return create_source(location, self.context, options=options)
        _check_options(options, OPTIONS)
        kind = _parse_kind(options.get("kind"))
        if folders is not None:
            _check_folder(location, kind, folders, connectors)
        return _create_source(location, self.context, options, kind)


def read_pushed_name(location: str, name: str | None) -> str | None:
    """The name of the datasource that a location `push:NAME` means; None for another location. Raises
    Refused."""
    scheme, separator, pushed_name = location.strip().partition(":")
    if scheme != PUSH or not separator:
        return None
    if name not in (None, pushed_name):
        raise Refused(f"The location {PUSH}:NAME already contains the name: omit `name`.")
    return pushed_name


def check_name(name: str) -> None:
    """Raises Refused for what cannot be the name of a datasource."""
    if not _NAME.fullmatch(name):
        raise Refused(
            "A name has small letters, digits, dots, hyphens and underscores, at most 64, "
            "and begins with a letter or a digit."
        )


def _check_options(options: Mapping[str, str], allowed: Collection[str], of_kind: str = "") -> None:
    unknown = [option for option in options if option not in allowed]
    if not unknown:
        return
    hint = "There are none."
    if allowed:
        hint = f"The options are: {', '.join(allowed)}."
    raise Refused(f"There is no option {', '.join(unknown)}{of_kind}. {hint}")


def _check_folder(
    location: str, kind: SourceKind | None, folders: Collection[Path], connectors: Connectors
) -> None:
    """Refuses a path outside of the folders, before any look at the disk: the answer must not tell whether it
    exists."""
    path = resolve_local_path(location, kind, connectors)
    if path is None:
        return
    if not any(path.is_relative_to(folder.expanduser().resolve()) for folder in folders):
        raise Refused("The server only reads files in the folders listed in RAG_INGEST_FOLDERS.")


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


def _choose_name(source: DocumentSource, existing: Collection[Datasource], connectors: Connectors) -> str:
    """The name that the location has already, or a free one derived from it."""
    for datasource in existing:
        if datasource.location == source.location:
            return datasource.name
    used_names = {datasource.name for datasource in existing}
    if source.kind in connectors:
        base = _clean_name(source.location)
    else:
        base = _name_from_location(source.location)
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
    return _clean_name("-".join(filter(None, (host, last_segment))))


def _clean_name(words: str) -> str:
    """`confluence:OPS` is confluence-ops."""
    cleaned = _NOT_IN_NAMES.sub("-", words.lower()).strip("-._")
    return cleaned[: _MAX_NAME_CHARS - 4].strip("-._") or "documents"
