"""What the scripted investigator does as the Confluence agent."""

import re
from typing import Any

from ai_platform_engineering.demo.investigator.report import Report
from ai_platform_engineering.demo.investigator.script_run import CallOutcome, ScriptRun

_PROJECT = re.compile(r"Jira project:? (?P<key>[A-Z][A-Z0-9]+)\b")
_ADVICE = re.compile(r"[^.\n]*\broll back\b[^.\n]*\.", re.IGNORECASE)
_PAGES = 5


def investigate(run: ScriptRun, service: str) -> str:
    """The runbook of the service, and what it says about rolling back."""
    report = Report()
    heading = f"Confluence on {service}:"
    listing = run.read("confluence_search", _is_page_list, query=f"{service} runbook", limit=_PAGES)
    if listing.failed:
        report.add_missing("its runbook", listing.reason)
        return report.render(heading)
    page = _choose(listing.data, service)
    if page is None:
        report.add("no runbook", f"no page has {service} and runbook in its title")
        return report.render(heading)
    report.add("runbook", page.get("title"))
    report.add("runbook link", page.get("url"))
    content = run.read("confluence_get_page", _has_text, page_id=str(page.get("id")))
    if content.failed:
        report.add_missing("the text of the runbook", content.reason)
        return report.render(heading)
    text = _read_text(content.data)
    advice = _ADVICE.search(text)
    report.add("runbook says", advice[0].strip() if advice else "")
    project = _PROJECT.search(text)
    report.add("jira project", project["key"] if project else "")
    return report.render(heading)


def _is_page_list(outcome: CallOutcome) -> bool:
    # An error is a list with one object that has a message.
    return isinstance(outcome.data, list) and all("title" in page for page in outcome.data)


def _has_text(outcome: CallOutcome) -> bool:
    return bool(_read_text(outcome.data))


def _choose(pages: list[Any], service: str) -> dict[str, Any] | None:
    for page in pages:
        title = str(page.get("title", "")).lower()
        if service in title and "runbook" in title:
            return dict(page)
    return None


def _read_text(data: Any) -> str:
    metadata = data.get("metadata") if isinstance(data, dict) else None
    content = metadata.get("content") if isinstance(metadata, dict) else None
    return str(content.get("value", "")) if isinstance(content, dict) else ""
