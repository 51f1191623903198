"""Answers of the knowledge base as JSON: for a model, where strangers' text is marked and fits, and for people."""

import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from ai_platform_engineering.core.untrusted_text import NOTE, escape_markers, wrap_untrusted
from ai_platform_engineering.knowledge_bases.results import (
    DocumentExcerpt,
    SearchResult,
    WebPage,
    format_citation,
)
from ai_platform_engineering.knowledge_bases.stores.knowledge_store import Datasource, IngestJob

_LONGEST_NAME = 200  # of a title or a heading, for a model
_AROUND = 1500  # characters of an answer that are not the document's text
_LEAST_ROOM = 500


def render_result(result: SearchResult) -> dict[str, Any]:
    return {
        "document_id": result.document_id,
        "title": result.title,
        "link": result.link,
        "datasource": result.datasource,
        "score": round(result.score, 6),
        "snippet": result.snippet,
        "headings": list(result.headings),
        "offset": result.offset,
        "cite": format_citation(result.document_id),
    }


def render_results_for_model(query: str, results: Sequence[SearchResult], longest: int) -> dict[str, Any]:
    """As many of the results as fit, at least one."""
    shown = [
        {
            **render_result(result),
            "title": _named(result.title),
            "link": _linked(result.link),
            "snippet": wrap_untrusted(result.snippet),
            "headings": [_named(heading) for heading in result.headings],
        }
        for result in results
    ]
    while True:
        said = {
            "query": query,
            "results": shown,
            "note": NOTE if shown else "Nothing was found. Other words may help, once.",
        }
        if len(shown) < 2 or len(json.dumps(said, ensure_ascii=False)) <= longest:
            return said
        shown = shown[:-1]


def render_document_for_model(rest: DocumentExcerpt, longest: int) -> dict[str, Any]:
    """As much of the document as fits. The text comes last, so that a cut costs nothing else."""
    text = _fitting(rest.text, longest)
    end = rest.offset + len(text)
    return {
        "document_id": rest.document_id,
        "title": _named(rest.title),
        "link": _linked(rest.link),
        "datasource": rest.datasource,
        "cite": format_citation(rest.document_id),
        "offset": rest.offset,
        "next_offset": end if end < rest.total_chars else None,
        "total_chars": rest.total_chars,
        "note": NOTE,
        "text": wrap_untrusted(text),
    }


def render_page_for_model(page: WebPage, longest: int) -> dict[str, Any]:
    text = _fitting(page.text, longest)
    return {
        "document_id": page.document_id,
        "title": _named(page.title),
        "link": _linked(page.url),
        "cite": format_citation(page.document_id),
        "truncated": len(text) < len(page.text),
        "total_chars": len(page.text),
        "note": NOTE,
        "text": wrap_untrusted(text),
    }


def render_datasources_for_model(datasources: Sequence[Datasource]) -> dict[str, Any]:
    return {"datasources": [_source_for_model(one) for one in datasources]}


def _source_for_model(datasource: Datasource) -> dict[str, Any]:
    shown = render_datasource(datasource)
    return {key: shown[key] for key in ("name", "title", "kind", "location", "documents", "refreshed")}


def render_document(rest: DocumentExcerpt) -> dict[str, Any]:
    named = {
        "document_id": rest.document_id,
        "title": rest.title,
        "link": rest.link,
        "datasource": rest.datasource,
    }
    return {
        **named,
        "offset": rest.offset,
        "text": rest.text,
        "total_chars": rest.total_chars,
        "cite": format_citation(rest.document_id),
    }


def render_datasource(datasource: Datasource) -> dict[str, Any]:
    return {
        "name": datasource.name,
        "title": datasource.title,
        "kind": datasource.kind,
        "location": strip_credentials(datasource.location),
        "options": dict(datasource.options),
        "documents": datasource.documents,
        "chunks": datasource.chunks,
        "embedded": datasource.embedded,
        "refreshed": datasource.refreshed.isoformat() if datasource.refreshed else None,
    }


def render_job(job: IngestJob) -> dict[str, Any]:
    return {
        "id": job.job_id,
        "datasource": job.datasource,
        "state": job.state,
        "total": job.total,
        "done": job.done,
        "skipped": job.skipped,
        "removed": job.removed,
        "failed": [
            {"address": strip_credentials(address), "reason": reason} for address, reason in job.failed
        ],
        "problem": job.problem,
        "created": job.created.isoformat() if job.created else None,
        "ended": job.ended.isoformat() if job.ended else None,
    }


def strip_credentials(location: str) -> str:
    """A location without user and password."""
    if "://" not in location:
        return location
    try:
        parts = urlsplit(location)
    except ValueError:
        return location.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _named(text: str) -> str:
    return escape_markers(" ".join(text.split()))[:_LONGEST_NAME]


def _linked(link: str | None) -> str | None:
    if link is None:
        return None
    return escape_markers(link)[:2000]


def _fitting(text: str, longest: int) -> str:
    """The beginning of a text that fits as JSON, cut at a paragraph, a line or a word where one is near the end."""
    room = max(_LEAST_ROOM, longest - _AROUND)
    end = min(len(text), room)
    while (over := len(json.dumps(escape_markers(text[:end]), ensure_ascii=False)) - room) > 0:
        end = max(1, end - max(over // 2, 1))
        if end == 1:
            break
    if end >= len(text):
        return text
    for separator in ("\n\n", "\n", " "):
        if (place := text.rfind(separator, end * 3 // 4, end)) > 0:
            return text[: place + len(separator)]
    return text[:end]
