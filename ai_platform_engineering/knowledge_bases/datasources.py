"""Datasources as people give them: a location, perhaps a name and options, and the source that they stand for."""

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
_LONGEST_NAME = 64
_NAME = re.compile(rf"[a-z0-9][a-z0-9._-]{{0,{_LONGEST_NAME - 1}}}")
_NOT_IN_NAMES = re.compile(r"[^a-z0-9._-]+")
_DEEPEST, _MOST_PAGES = 20, 100_000


@dataclass(frozen=True, slots=True)
class DatasourceResolver:
    """What stands behind locations; `docs` is this product's documentation."""

    context: SourceContext
    shipped_docs: ShippedDocsSource = field(default_factory=ShippedDocsSource)

    def create_source(self, datasource: Datasource) -> DocumentSource:
        """Raises CaipeError."""
        if datasource.kind == self.shipped_docs.kind:
            return self.shipped_docs
        return _source(datasource.location, self.context, datasource.options, _kind(datasource.kind))

    def resolve(
        self,
        location: str,
        known: Collection[Datasource],
        *,
        name: str | None,
        title: str,
        options: Mapping[str, str],
        folders: Collection[Path] | None,
    ) -> Datasource:
        """The datasource that a location means, among those that are known. `folders`: only below these may this machine be read.
        Raises CaipeError."""
        if unknown := [option for option in options if option not in OPTIONS]:
            raise Refused(f"There is no option {', '.join(unknown)}. The options are: {', '.join(OPTIONS)}.")
        kind = _kind(options.get("kind"))
        self._check_location(location, kind, folders)
        source = _source(location, self.context, options, kind)
        if name is not None and not _NAME.fullmatch(name):
            raise Refused(
                "A name has small letters, digits, dots, hyphens and underscores, at most 64, and begins with a letter or a digit."
            )
        kept = {option: value for option, value in options.items() if option != "kind"}
        return Datasource(name or _named(source.location, known), source.location, source.kind, title, kept)

    def _check_location(
        self, location: str, kind: SourceKind | None, folders: Collection[Path] | None
    ) -> None:
        """Without a look at the disk: what is not to be read is not told of either."""
        path = resolve_local_path(location, kind) if folders is not None else None
        if path is not None and not any(
            path.is_relative_to(folder.expanduser().resolve()) for folder in folders or ()
        ):
            raise Refused(
                "Files of the server are only read below the folders that RAG_INGEST_FOLDERS names."
            )


def _source(
    location: str, around: SourceContext, options: Mapping[str, str], kind: SourceKind | None
) -> DocumentSource:
    bounds = CrawlLimits(
        _number(options, "depth", CrawlLimits().depth, 0, _DEEPEST),
        _number(options, "max_pages", CrawlLimits().max_pages, 1, _MOST_PAGES),
        options.get("prefix") or None,
    )
    return create_source(location, around, kind=kind, bounds=bounds)


def _kind(given: str | None) -> SourceKind | None:
    found: SourceKind | None = next((kind for kind in get_args(SourceKind) if kind == given), None)
    if given is not None and found is None:
        raise Refused(f"A datasource is one of: {', '.join(get_args(SourceKind))}.")
    return found


def _number(options: Mapping[str, str], name: str, usual: int, least: int, most: int) -> int:
    given = options.get(name, str(usual))
    if not given.isdecimal() or not least <= int(given) <= most:
        raise Refused(f"{name} is a number from {least} to {most}.")
    return int(given)


def _named(location: str, known: Collection[Datasource]) -> str:
    """The name that the location has already, or a free one that tells where it is."""
    if (same := next((one.name for one in known if one.location == location), None)) is not None:
        return same
    plain = _plain(location)
    taken = {one.name for one in known}
    return next(
        name
        for number in range(1, len(taken) + 2)
        if (name := plain if number == 1 else f"{plain}-{number}") not in taken
    )


def _plain(location: str) -> str:
    """`https://docs.example.org/guide/` is docs.example.org-guide, `git@host:team/tools.git` and `/srv/tools` are tools."""
    parts = urlsplit(location) if location.lower().startswith(("http:", "https:")) else None
    path = (parts.path if parts is not None else location.replace(":", "/")).strip("/").removesuffix(".git")
    last = path.rpartition("/")[2]
    words = [parts.hostname or "", last] if parts is not None and not location.endswith(".git") else [last]
    return (
        _NOT_IN_NAMES.sub("-", "-".join(filter(None, words)).lower()).strip("-._")[: _LONGEST_NAME - 4]
        or "documents"
    )
