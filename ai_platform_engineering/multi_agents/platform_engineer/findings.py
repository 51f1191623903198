"""What a question has found so far, as the answer of a run whose model gives none."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from langchain_core.messages import AIMessage, AnyMessage, ToolMessage

from ai_platform_engineering.core.tool_traits import ToolTraits
from ai_platform_engineering.graph.tool_messages import called_name, plain_result
from ai_platform_engineering.graph.visible_text import visible_text

_MAX_RESULTS = 8
_MAX_CHARS = 300  # of one result
_MAX_MARKS = 5  # of one result
_MARK = re.compile(r"\[kb:[0-9a-f]{4,64}\]")

_STOPPED = "I stopped before I had a complete answer: {reason}."
_FOUND = "What I found so far:"
_FAILED = "What did not work:"
_NOTHING = "I found nothing that I could report."
_MISSING = "What is missing: a conclusion from this. A narrower question may help."


@dataclass(frozen=True, slots=True)
class _Finding:
    """The result of a call in short."""

    source: str  # the tool or the agent
    text: str
    failed: bool


def describe_findings(turn: Sequence[AnyMessage], reason: str) -> str:
    """The results after a question in short, with their sources, what failed and what is missing.

    `reason`: why there is no better answer, in words for people."""
    findings = _list_findings(turn)
    successes = [finding for finding in findings if not finding.failed]
    failures = [finding for finding in findings if finding.failed]
    sections = [_STOPPED.format(reason=reason)]
    if successes:
        sections.append(_render_list(_FOUND, successes))
    if failures:
        sections.append(_render_list(_FAILED, failures))
    if not successes:
        sections.append(_NOTHING)
    sections.append(_MISSING)
    return "\n\n".join(sections)


def _list_findings(turn: Sequence[AnyMessage]) -> list[_Finding]:
    """The last different results of tools and agents; those of tools that only steer are left out."""
    sources = _read_sources(turn)
    findings: dict[_Finding, None] = {}
    for message in turn:
        if not isinstance(message, ToolMessage):
            continue
        traits = ToolTraits.from_name(message.name or "")
        if traits.is_control and not traits.delegates:
            continue
        text = _shorten(plain_result(message))
        if not text:
            continue
        source = sources.get(message.tool_call_id) or message.name or "a tool"
        finding = _Finding(source, text, failed=message.status == "error")
        findings.pop(finding, None)
        findings[finding] = None
    return list(findings)[-_MAX_RESULTS:]


def _read_sources(turn: Sequence[AnyMessage]) -> Mapping[str, str]:
    """The tool or agent by call id."""
    sources: dict[str, str] = {}
    for message in turn:
        if isinstance(message, AIMessage):
            for call in message.tool_calls:
                sources[call["id"] or ""] = called_name(call["name"], call["args"])
    return sources


def _shorten(text: str) -> str:
    """The beginning of a result in one line, with the marks of the documents in all of it."""
    line = " ".join(visible_text(text).split())
    if len(line) <= _MAX_CHARS:
        return line
    short = f"{line[:_MAX_CHARS].rstrip()} …"
    marks = [mark for mark in dict.fromkeys(_MARK.findall(line)) if mark not in short]
    return " ".join([short, *marks[:_MAX_MARKS]])


def _render_list(heading: str, findings: Sequence[_Finding]) -> str:
    lines = [f"- {finding.source}: {finding.text}" for finding in findings]
    return "\n".join([heading, *lines])
