"""Tool calls of a third-party agent, parsed from lines of text such as "🔧 Calling tool: search"."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from a2a.types import Artifact

from ai_platform_engineering.a2a.codec import TOOL_END
from ai_platform_engineering.core.events import AnyEvent, ToolFinished, ToolStarted, clean_text

_AGENT_PREFIX = r"(?:[^\s:*][^:*\n]{0,80}:\s+)??"
_START_LINE = re.compile(
    rf"🔧\s*{_AGENT_PREFIX}Calling (?:tool:\s*(?P<tool>\S.{{0,200}}?)|(?:Agent )?(?P<plain>\S{{1,200}}?))"
    r"\s*(?:\.{2,}|…)?"
)
_END_LINE = re.compile(
    rf"(?P<mark>[✅❌])\s*{_AGENT_PREFIX}"
    r"(?:(?P<word_tool>Tool )(?P<tool>\S.{0,200}?)|(?P<plain>\S{1,200})) "
    r"(?P<verb>completed|failed)\b(?P<reason>.*)"
)
_MAX_NAME_LENGTH = 200


@dataclass(frozen=True, slots=True)
class ToolNotification:
    """A line that tells of the start or the end of a tool call."""

    tool: str
    ended: bool = False
    failed: bool = False
    reason: str = ""
    certain: bool = True  # "✅ Sync completed" may also be plain speech


class ThirdPartyToolCalls:
    """The tool calls of one turn that have started and not ended; turns notifications into tool events."""

    def __init__(self, agent: str) -> None:
        self._agent = agent
        self._running: list[tuple[str, str]] = []  # call id, tool

    def read_notifications(self, text: str) -> list[ToolNotification]:
        """The notifications in a status text; none if a line may be prose and its tool is not running."""
        notifications = parse_tool_notifications(text)
        running = {tool.casefold() for _, tool in self._running}
        for notification in notifications:
            if not notification.certain and notification.tool.casefold() not in running:
                return []
        return notifications

    def read_events(self, notification: ToolNotification, new_call_id: Callable[[], str]) -> list[AnyEvent]:
        """The events of a notification; the end of a call that was never announced also starts it."""
        if not notification.ended:
            return [self._start(notification.tool, new_call_id())]
        events: list[AnyEvent] = []
        call = self._find_running(notification.tool)
        if call is None:
            events.append(self._start(notification.tool, new_call_id()))
            call = self._running[-1]
        self._running.remove(call)
        call_id, tool = call
        if not notification.failed:
            events.append(ToolFinished(agent=self._agent, call_id=call_id, tool=tool))
            return events
        error = notification.reason or f"{tool} failed."
        events.append(
            ToolFinished(agent=self._agent, call_id=call_id, tool=tool, outcome="error", error=error)
        )
        return events

    def end_events(self) -> list[AnyEvent]:
        """Ends the calls that are still running, with an unknown outcome."""
        return [
            ToolFinished(agent=self._agent, call_id=call_id, tool=tool, outcome="unknown")
            for call_id, tool in self._running
        ]

    def _start(self, tool: str, call_id: str) -> ToolStarted:
        self._running.append((call_id, tool))
        return ToolStarted(agent=self._agent, call_id=call_id, tool=tool)

    def _find_running(self, tool: str) -> tuple[str, str] | None:
        for call in self._running:
            if call[1].casefold() == tool.casefold():
                return call
        return None


def parse_tool_notifications(text: str) -> list[ToolNotification]:
    """The notifications in a text; none if any of its lines says something else."""
    notifications: list[ToolNotification] = []
    for line in text.splitlines():
        if not line.strip():
            continue
        notification = _parse_line(line.strip())
        if notification is None:
            return []
        notifications.append(notification)
    return notifications


def read_artifact_notification(artifact: Artifact) -> ToolNotification | None:
    """The notification in the metadata of a tool artifact, if it names a tool."""
    fields = artifact.metadata.fields
    tool_name = fields["tool_name"].string_value if "tool_name" in fields else ""
    if not tool_name:
        return None
    tool = clean_text(_clean_tool_name(tool_name)[:_MAX_NAME_LENGTH])
    if not tool:
        return None
    failed = "status" in fields and fields["status"].string_value == "failed"
    return ToolNotification(tool, ended=artifact.name == TOOL_END, failed=failed)


def _parse_line(line: str) -> ToolNotification | None:
    if start := _START_LINE.fullmatch(line):
        return ToolNotification(_clean_tool_name(start["tool"] or start["plain"]))
    if end := _END_LINE.fullmatch(line):
        return ToolNotification(
            _clean_tool_name(end["tool"] or end["plain"]),
            ended=True,
            failed=end["mark"] == "❌" or end["verb"] == "failed",
            reason=end["reason"].strip(" :.-–"),
            certain=bool(end["word_tool"]),
        )
    return None


def _clean_tool_name(name: str) -> str:
    return name.replace("**", "").strip(" `.…") or "tool"
