"""Results of the knowledge base as JSON: for people, and for models, where untrusted text is marked and cut
to fit."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from ai_platform_engineering.core.untrusted_text import NOTE, escape_markers, wrap_untrusted
from ai_platform_engineering.knowledge_bases.results import (
    DocumentExcerpt,
    Explanation,
    SearchResult,
    WebPage,
    format_citation,
)
from ai_platform_engineering.knowledge_bases.stores.job_store import IngestJob
from ai_platform_engineering.knowledge_bases.stores.knowledge_store import Datasource

_MAX_TITLE_CHARS = 200  # of a title or a heading, for a model
_MAX_LINK_CHARS = 2000
_MAX_METADATA = 10  # entries, for a model
_OVERHEAD_CHARS = 1500  # of an answer that are not the document's text
_MIN_TEXT_CHARS = 500
_DATASOURCE_KEYS_FOR_MODEL = (
    "name",
    "title",
    "kind",
    "location",
    "documents",
    "document_kinds",
    "refreshed",
)


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
        "kind": result.kind,
        "more_offsets": list(result.more_offsets),
        "metadata": dict(result.metadata),
        "cite": format_citation(result.document_id),
    }


def render_explanation(explanation: Explanation | None) -> dict[str, Any] | None:
    if explanation is None:
        return None
    return {
        "words": list(explanation.words),
        "exact": list(explanation.exact),
        "word_score": _round_score(explanation.word_score),
        "meaning_score": _round_score(explanation.meaning_score),
    }


def _round_score(score: float | None) -> float | None:
    if score is None:
        return None
    return round(score, 6)


def render_results_for_model(query: str, results: Sequence[SearchResult], max_chars: int) -> dict[str, Any]:
    """As many of the results as fit, at least one."""
    rendered = [_render_result_for_model(result) for result in results]
    note = NOTE
    if not rendered:
        note = "Nothing was found. Other words may help, once."
    while True:
        answer = {"query": query, "results": rendered, "note": note}
        if len(rendered) < 2 or len(json.dumps(answer, ensure_ascii=False)) <= max_chars:
            return answer
        rendered = rendered[:-1]


def _render_result_for_model(result: SearchResult) -> dict[str, Any]:
    rendered = {
        **render_result(result),
        "title": _clean_title(result.title),
        "link": _clean_link(result.link),
        "snippet": wrap_untrusted(result.snippet),
        "headings": [_clean_title(heading) for heading in result.headings],
    }
    del rendered["metadata"]
    if result.metadata:
        rendered["metadata"] = _clean_metadata(result.metadata)
    return rendered


def render_document_for_model(excerpt: DocumentExcerpt, max_chars: int) -> dict[str, Any]:
    """As much of the document as fits. The text comes last, so that a cut costs nothing else."""
    text = _cut_to_fit(excerpt.text, max_chars)
    metadata: dict[str, Any] = {}
    if excerpt.metadata:
        metadata["metadata"] = _clean_metadata(excerpt.metadata)
    return {
        "document_id": excerpt.document_id,
        "title": _clean_title(excerpt.title),
        "link": _clean_link(excerpt.link),
        "datasource": excerpt.datasource,
        "cite": format_citation(excerpt.document_id),
        "offset": excerpt.offset,
        "next_offset": excerpt.next_offset(len(text)),
        "total_chars": excerpt.total_chars,
        **metadata,
        "note": NOTE,
        "text": wrap_untrusted(text),
    }


def render_page_for_model(page: WebPage, max_chars: int) -> dict[str, Any]:
    text = _cut_to_fit(page.text, max_chars)
    return {
        "document_id": page.document_id,
        "title": _clean_title(page.title),
        "link": _clean_link(page.url),
        "cite": format_citation(page.document_id),
        "truncated": len(text) < len(page.text),
        "total_chars": len(page.text),
        "note": NOTE,
        "text": wrap_untrusted(text),
    }


def render_datasources_for_model(datasources: Sequence[Datasource]) -> dict[str, Any]:
    return {"datasources": [_render_datasource_for_model(datasource) for datasource in datasources]}


def _render_datasource_for_model(datasource: Datasource) -> dict[str, Any]:
    rendered = render_datasource(datasource)
    return {key: rendered[key] for key in _DATASOURCE_KEYS_FOR_MODEL}


def render_document(excerpt: DocumentExcerpt) -> dict[str, Any]:
    return {
        "document_id": excerpt.document_id,
        "title": excerpt.title,
        "link": excerpt.link,
        "datasource": excerpt.datasource,
        "offset": excerpt.offset,
        "text": excerpt.text,
        "total_chars": excerpt.total_chars,
        "missing": excerpt.missing,
        "metadata": dict(excerpt.metadata),
        "cite": format_citation(excerpt.document_id),
    }


def render_datasource(datasource: Datasource, *, with_names: bool = False) -> dict[str, Any]:
    """`with_names`: with the names of those who may see it, which are not for everybody."""
    rendered = {
        "name": datasource.name,
        "title": datasource.title,
        "kind": datasource.kind,
        "location": strip_credentials(datasource.location),
        "options": dict(datasource.options),
        "documents": datasource.documents,
        "document_kinds": dict(datasource.document_kinds),
        "chunks": datasource.chunks,
        "embedded": datasource.embedded,
        "refreshed": _format_time(datasource.refreshed),
        "restricted": datasource.visible_to is not None,
        "refresh_every": datasource.refresh_every,
        "next_refresh": _format_time(datasource.refresh_due),
        "refresh_failures": datasource.refresh_failures,
    }
    if with_names and datasource.visible_to is not None:
        rendered["visible_to"] = list(datasource.visible_to)
    return rendered


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
        "cut": [{"address": strip_credentials(address), "missing": missing} for address, missing in job.cut],
        "problem": job.problem,
        "created": _format_time(job.created),
        "ended": _format_time(job.ended),
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


def _format_time(time: datetime | None) -> str | None:
    if time is None:
        return None
    return time.isoformat()


def _clean_title(text: str) -> str:
    return escape_markers(" ".join(text.split()))[:_MAX_TITLE_CHARS]


def _clean_metadata(metadata: Mapping[str, str]) -> dict[str, str]:
    """As much as a model needs: a few short values."""
    items = list(metadata.items())[:_MAX_METADATA]
    return {_clean_title(name): _clean_title(value) for name, value in items}


def _clean_link(link: str | None) -> str | None:
    if link is None:
        return None
    return escape_markers(link)[:_MAX_LINK_CHARS]


def _cut_to_fit(text: str, max_chars: int) -> str:
    """The beginning of a text that fits as JSON, cut at a paragraph, a line or a word where one is near the
    end."""
    room = max(_MIN_TEXT_CHARS, max_chars - _OVERHEAD_CHARS)
    end = min(len(text), room)
    while end > 1:
        excess = len(json.dumps(escape_markers(text[:end]), ensure_ascii=False)) - room
        if excess <= 0:
            break
        end = max(1, end - max(excess // 2, 1))
    if end >= len(text):
        return text
    for separator in ("\n\n", "\n", " "):
        position = text.rfind(separator, end * 3 // 4, end)
        if position > 0:
            return text[: position + len(separator)]
    return text[:end]
