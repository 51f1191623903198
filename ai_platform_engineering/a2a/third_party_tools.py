"""Tool calls of a third-party agent: lines of text such as "🔧 Calling tool: search", and data parts."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from a2a.types import Artifact, Part
from google.protobuf.json_format import MessageToDict

from ai_platform_engineering.a2a.codec import TOOL_END
from ai_platform_engineering.a2a.protobuf_values import restore_integers
from ai_platform_engineering.core.events import AnyEvent, ToolFinished, ToolStarted
from ai_platform_engineering.core.storable_text import clean_text

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
_MAX_ID_LENGTH = 200
_MAX_CALLS = 1000  # of one turn; further ones are not shown
_MAX_ARGUMENTS_LENGTH = 20_000  # as JSON; longer ones are not shown
_MAX_RESULT_LENGTH = 4000
_MAX_ERROR_LENGTH = 500
# The metadata that marks a data part: "adk_type" (Google's Agent Development Kit), "kagent_type", "type".
_TYPE_KEY = re.compile(r"(?:[a-z]+_)?type")
_CALL = "function_call"
_RESPONSE = "function_response"


@dataclass(frozen=True, slots=True)
class ToolNotification:
    """The start or the end of a tool call, as the agent tells it. `source_id`: the agent's own id for it."""

    tool: str
    ended: bool = False
    failed: bool = False
    reason: str = ""
    certain: bool = True  # "✅ Sync completed" may also be plain speech
    source_id: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    result: str | None = None


@dataclass(frozen=True, slots=True)
class _RunningCall:
    call_id: str
    tool: str
    source_id: str


class ThirdPartyToolCalls:
    """The tool calls of one turn that have started and not ended; turns notifications into tool events."""

    def __init__(self, agent: str) -> None:
        self._agent = agent
        self._running: list[_RunningCall] = []
        self._started_ids: set[str] = set()  # of all calls for which the agent has ids
        self._started = 0

    def read_notifications(self, text: str) -> list[ToolNotification]:
        """The notifications in a status text; none if a line may be prose and its tool is not running."""
        notifications = parse_tool_notifications(text)
        running = {call.tool.casefold() for call in self._running}
        for notification in notifications:
            if not notification.certain and notification.tool.casefold() not in running:
                return []
        return notifications

    def read_events(self, notification: ToolNotification, new_call_id: Callable[[], str]) -> list[AnyEvent]:
        """The events of a notification; the end of a call that was never announced also starts it."""
        is_known = bool(notification.source_id) and notification.source_id in self._started_ids
        call = self._find_running(notification)
        if is_known and (call is None or not notification.ended):
            return []  # told again
        events: list[AnyEvent] = []
        if call is None or not notification.ended:
            if self._started >= _MAX_CALLS:
                return []
            call = self._start(notification, new_call_id())
            events.append(
                ToolStarted(
                    agent=self._agent,
                    call_id=call.call_id,
                    tool=call.tool,
                    arguments=dict(notification.arguments),
                )
            )
        if notification.ended:
            self._running.remove(call)
            events.append(self._finish(call, notification))
        return events

    def end_events(self) -> list[AnyEvent]:
        """Ends the calls that are still running, with an unknown outcome."""
        return [
            ToolFinished(agent=self._agent, call_id=call.call_id, tool=call.tool, outcome="unknown")
            for call in self._running
        ]

    def _start(self, notification: ToolNotification, call_id: str) -> _RunningCall:
        call = _RunningCall(call_id, notification.tool, notification.source_id)
        self._running.append(call)
        self._started += 1
        if call.source_id:
            self._started_ids.add(call.source_id)
        return call

    def _finish(self, call: _RunningCall, notification: ToolNotification) -> ToolFinished:
        if not notification.failed:
            return ToolFinished(
                agent=self._agent, call_id=call.call_id, tool=call.tool, result=notification.result
            )
        error = notification.reason or f"{call.tool} failed."
        return ToolFinished(
            agent=self._agent, call_id=call.call_id, tool=call.tool, outcome="error", error=error
        )

    def _find_running(self, notification: ToolNotification) -> _RunningCall | None:
        """The call that a notification is about: by the agent's id, or by the tool's name without one."""
        for call in self._running:
            if notification.source_id:
                if call.source_id == notification.source_id:
                    return call
            elif call.tool.casefold() == notification.tool.casefold():
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


def read_part_notifications(parts: Iterable[Part]) -> list[ToolNotification]:
    """The calls and results of tools in data parts; such parts are marked as ones by their metadata."""
    notifications: list[ToolNotification] = []
    for part in parts:
        kind = _find_tool_kind(part)
        if kind is None:
            continue
        data = _read_value(part)
        if not isinstance(data, Mapping) or not isinstance(data.get("name"), str):
            continue
        tool = clean_text(_clean_tool_name(data["name"])[:_MAX_NAME_LENGTH])
        source_id = str(data.get("id") or "")[:_MAX_ID_LENGTH]
        if kind == _CALL:
            arguments = _read_arguments(data.get("args"))
            notifications.append(ToolNotification(tool, source_id=source_id, arguments=arguments))
        else:
            notifications.append(_read_response(tool, source_id, data.get("response")))
    return notifications


def describe_calls(parts: Iterable[Part]) -> str:
    """The calls in data parts in words: for a task that waits until somebody answers one."""
    calls = [call for call in read_part_notifications(parts) if not call.ended]
    return "\n".join(f"{call.tool} {json.dumps(call.arguments, ensure_ascii=False)}" for call in calls)


def is_tool_part(part: Part) -> bool:
    """Whether a data part tells of a tool call; then it is no data of an answer."""
    return _find_tool_kind(part) is not None


def _find_tool_kind(part: Part) -> str | None:
    if part.WhichOneof("content") != "data":
        return None
    for key, value in part.metadata.fields.items():
        if _TYPE_KEY.fullmatch(key) and value.string_value in (_CALL, _RESPONSE):
            return value.string_value
    return None


def _read_value(part: Part) -> Any:
    try:
        return restore_integers(MessageToDict(part.data))
    except (ValueError, TypeError, RecursionError):  # protobuf holds numbers that JSON does not know
        return None


def _read_arguments(arguments: Any) -> Mapping[str, Any]:
    if isinstance(arguments, Mapping) and len(json.dumps(arguments)) <= _MAX_ARGUMENTS_LENGTH:
        return arguments
    return {}


def _read_response(tool: str, source_id: str, response: Any) -> ToolNotification:
    """The end of a call; a response with an `error`, or one that MCP marks as an error, is a failure."""
    error = None
    result = response
    if isinstance(response, Mapping):
        error = response.get("error")
        if response.get("isError") is True:
            error = error or response.get("content") or "It failed."
        if set(response) == {"result"}:
            result = response["result"]
    if error:
        reason = _shorten(_to_text(error), _MAX_ERROR_LENGTH)
        return ToolNotification(tool, ended=True, failed=True, reason=reason, source_id=source_id)
    preview = _shorten(_to_text(result), _MAX_RESULT_LENGTH)
    return ToolNotification(tool, ended=True, source_id=source_id, result=preview)


def _to_text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return clean_text(value)
    return clean_text(json.dumps(value, ensure_ascii=False, sort_keys=True))


def _shorten(text: str, max_length: int) -> str:
    if len(text) <= max_length:
        return text
    return f"{text[:max_length]}…"


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
