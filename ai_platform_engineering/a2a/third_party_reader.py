"""Frames of an A2A server that is not ours -> our events: each text once, one answer, whatever the server sends."""

import hashlib
from collections.abc import Iterable

from a2a.types import Artifact, Message, Part, StreamResponse, Task, TaskState, TaskStatus

from ai_platform_engineering.a2a.codec import FINAL_RESULT, PARTIAL_RESULT, PLAN, TOOL_END, TOOL_START
from ai_platform_engineering.a2a.third_party_messages import MAX_SHOWN, ThirdPartyMessages, truncate_text
from ai_platform_engineering.a2a.third_party_parts import (
    ToolNotification,
    data_texts,
    failed_status,
    find_last_agent_text,
    parse_tool_notifications,
    read_text,
    read_text_or_data,
    remove_whitespace,
    tool_name,
)
from ai_platform_engineering.core.events import (
    Answered,
    AnyEvent,
    Cancelled,
    Failed,
    Form,
    InputField,
    InputRequested,
    Paused,
    ToolFinished,
    ToolStarted,
    clean_text,
)

COMPLETE_RESULT = "complete_result"
CURRENT_RESULT = "current_result"  # the older form ends its response with an empty one

_RESULTS = (
    FINAL_RESULT,
    COMPLETE_RESULT,
    PARTIAL_RESULT,
)  # each holds a whole answer; the first that is there counts
_MAX_REASON = 2000

S = TaskState
_DONE = (S.TASK_STATE_COMPLETED, S.TASK_STATE_FAILED, S.TASK_STATE_CANCELED, S.TASK_STATE_REJECTED)
PAUSED = (S.TASK_STATE_INPUT_REQUIRED, S.TASK_STATE_AUTH_REQUIRED)
ENDED = (*_DONE, *PAUSED)


class ThirdPartyReader:
    """Reads one turn of one task. `ended` says that nothing more is to come; then `ending` gives the closing events."""

    def __init__(self, agent: str) -> None:
        self.task_id: str | None = None
        self.context_id: str | None = None
        self.state: TaskState | None = None
        self.ended = False
        self._agent, self._screen = agent, ThirdPartyMessages(agent)
        self._results: dict[str, dict[str, str]] = {name: {} for name in _RESULTS}
        self._data: dict[str, list[str]] = {}
        self._worded: set[str] = set()  # artifacts with text of their own, not only names of files
        self._open: list[tuple[str, str]] = []  # calls without an end: id, tool
        self._told: set[tuple[str, str]] = set()  # status messages and notifications that were taken in
        self._narration = self._heard = self._remembered = ""
        self._lone: str | None = None  # a message that is the whole turn
        self._last = TaskStatus()
        self._closed = False

    def read(self, frame: StreamResponse) -> list[AnyEvent]:
        """The events of a frame; after the end there are none."""
        if self.ended:
            return []
        match frame.WhichOneof("payload"):
            case "task":
                self._name(frame.task.id, frame.task.context_id)
                return self._snapshot(frame.task)
            case "message":
                return self._message(frame.message)
            case "status_update":
                self._name(frame.status_update.task_id, frame.status_update.context_id)
                return self._status(frame.status_update.status)
            case "artifact_update":
                update = frame.artifact_update
                self._name(update.task_id, update.context_id)
                return self._artifact(update.artifact, append=update.append, last=update.last_chunk)
            case _:
                return []

    def closing_events(self) -> list[AnyEvent]:
        """The closing events, once."""
        if not self.ended or self._closed:
            return []
        self._closed = True
        if self._lone is not None:
            return self._completed()
        match self.state:
            case S.TASK_STATE_COMPLETED:
                return self._completed()
            case S.TASK_STATE_CANCELED:
                return self._broken_off(Cancelled(agent=self._agent, trace_id="", partial=self._partial()))
            case S.TASK_STATE_INPUT_REQUIRED:
                return self._paused()
            case S.TASK_STATE_AUTH_REQUIRED:
                why = f"The agent {self._agent} wants credentials that it was not given."
                return self._failed(
                    f"{why} {read_text_or_data(self._last.message.parts)}".strip(), retryable=False
                )
            case S.TASK_STATE_REJECTED:
                return self._failed(
                    read_text_or_data(self._last.message.parts)
                    or f"The agent {self._agent} refused the request.",
                    retryable=False,
                )
            case _:
                return self._failed(
                    read_text_or_data(self._last.message.parts)
                    or f"The agent {self._agent} failed and did not say why."
                )

    # --- frames ---------------------------------------------------------------------------------------------------------

    def _name(self, task_id: str, context_id: str) -> None:
        self.task_id, self.context_id = task_id or self.task_id, context_id or self.context_id

    def _snapshot(self, task: Task) -> list[AnyEvent]:
        over = task.status.state in ENDED
        events: list[AnyEvent] = []
        for artifact in task.artifacts:
            events += self._artifact(artifact, snapshot=True, over=over)
        there = {_key(artifact) for artifact in task.artifacts}
        for key in (
            self._screen.keys("artifact:") if over and there else ()
        ):  # a task without artifacts says nothing about them
            events += self._screen.discard(key) if key not in there else []
        self._remembered = find_last_agent_text(task.history) or self._remembered
        return events + self._status(task.status, snapshot=True)

    def _message(self, message: Message) -> list[AnyEvent]:
        if self.task_id is not None:  # it is no lone answer: the task still owes its end
            return self._said(read_text(message.parts), message.message_id)
        self._name(message.task_id, message.context_id)
        self.ended, self._lone = True, read_text_or_data(message.parts)
        return self._screen.add("message", self._base(message.message_id or "message"), self._lone)

    def _status(self, status: TaskStatus, *, snapshot: bool = False) -> list[AnyEvent]:
        if status.state in S.values() and status.state != S.TASK_STATE_UNSPECIFIED:
            self.state = status.state
        if status.state in ENDED:
            self.ended, self._last = True, status
            return []
        text = read_text(status.message.parts)
        if snapshot and text == self._heard:
            return []
        self._heard = text or self._heard
        return self._said(text, status.message.message_id)

    def _said(self, text: str, message_id: str) -> list[AnyEvent]:
        if not text.strip() or (message_id and (message_id, text) in self._told):
            return []
        self._told.add((message_id, text))
        if calls := self._tells_of(text):
            return [
                *self._end_narration(),
                *(event for call in calls for event in self._tool(call, message_id)),
            ]
        return self._narrate(text, message_id)

    def _artifact(
        self,
        artifact: Artifact,
        *,
        append: bool = False,
        last: bool = False,
        snapshot: bool = False,
        over: bool = False,
    ) -> list[AnyEvent]:
        key, name = _key(artifact), artifact.name
        if name == PLAN:
            return []
        if name in (TOOL_START, TOOL_END):
            return self._notification(artifact)
        behind = snapshot and not over  # a stored task may lag behind its stream
        self._take_data(key, artifact.parts, append=append)
        if name in _RESULTS:
            old = self._results[name].get(key, "")
            new = old + read_text(artifact.parts) if append else read_text(artifact.parts)
            if not (behind and old.startswith(new)):
                self._results[name][key] = truncate_text(new)
            return []
        old = self._screen.text(key)
        text = read_text(artifact.parts, fresh=not (append and old))
        if not text and (last or snapshot or append or name == CURRENT_RESULT):
            return []  # a mark of the end, not a replacement by nothing
        if any(part.text for part in artifact.parts):
            self._worded.add(key)
        if self._screen.adopt(text, "status:", key):
            return []
        base = self._base(artifact.artifact_id or "artifact")
        if append and not old:
            base += "+"  # it goes on where an earlier turn of the task stopped, which had the plain id
        if append:
            return [*self._end_narration(), *self._screen.add(key, base, text)]
        if behind and old.startswith(text):
            return []
        return [*self._end_narration(), *self._screen.put(key, base, text)]

    def _notification(self, artifact: Artifact) -> list[AnyEvent]:
        text = read_text(artifact.parts)
        if (artifact.artifact_id, text) in self._told:
            return []
        self._told.add((artifact.artifact_id, text))
        calls = parse_tool_notifications(text)
        if not calls and (name := tool_name(artifact)):
            calls = [ToolNotification(name, ended=artifact.name == TOOL_END, failed=failed_status(artifact))]
        return [
            *self._end_narration(),
            *(event for call in calls for event in self._tool(call, artifact.artifact_id)),
        ]

    def _take_data(self, key: str, parts: Iterable[Part], *, append: bool) -> None:
        if not append:
            self._data.pop(key, None)
        for text in data_texts(parts):
            if sum(len(one) for values in self._data.values() for one in values) + len(text) <= MAX_SHOWN:
                self._data.setdefault(key, []).append(text)

    # --- texts and tools --------------------------------------------------------------------------------------------------

    def _base(self, name: str) -> str:
        return clean_text(f"{self.task_id}/{name}" if self.task_id else name)

    def _narrate(self, text: str, message_id: str) -> list[AnyEvent]:
        if self._screen.just_said(text):
            return []
        events = self._end_narration()
        base = self._base(message_id or "status")
        self._narration = self._screen.new_id(f"status:{base}")
        return [*events, *self._screen.add(self._narration, base, text)]

    def _end_narration(self) -> list[AnyEvent]:
        """A narration stays open until something follows: the last one may turn out to be the answer."""
        return self._screen.end(self._narration, "narration")

    def _tells_of(self, text: str) -> list[ToolNotification]:
        calls = parse_tool_notifications(text)
        running = {tool.casefold() for _, tool in self._open}
        if all(call.certain or call.tool.casefold() in running for call in calls):
            return calls
        return []

    def _tool(self, call: ToolNotification, source: str) -> list[AnyEvent]:
        if not call.ended:
            return [self._start(call.tool, source)]
        started: list[AnyEvent] = []
        found = next((pair for pair in self._open if pair[1].casefold() == call.tool.casefold()), None)
        if found is None:
            started = [self._start(call.tool, source)]
            found = self._open[-1]
        self._open.remove(found)
        call_id, tool = found
        if not call.failed:
            return [*started, ToolFinished(agent=self._agent, call_id=call_id, tool=tool)]
        why = call.why or f"{tool} failed."
        return [
            *started,
            ToolFinished(agent=self._agent, call_id=call_id, tool=tool, outcome="error", error=why),
        ]

    def _start(self, tool: str, source: str) -> ToolStarted:
        call_id = self._screen.new_id(self._base(source or "call"))
        self._open.append((call_id, tool))
        return ToolStarted(agent=self._agent, call_id=call_id, tool=tool)

    # --- endings ----------------------------------------------------------------------------------------------------------

    def _completed(self) -> list[AnyEvent]:
        pieces = self._answer()
        if not pieces:
            return self._failed(f"The agent {self._agent} finished without a result.")
        events = [event for piece in pieces for event in self._reveal(piece, "answer")]
        said = read_text(self._last.message.parts)
        if said.strip() and said not in pieces:
            events += self._reveal(said, "closing")
        text = truncate_text("\n\n".join(self._answer()))  # again: the last words may have continued a text
        return [*events, *self._close(text), Answered(agent=self._agent, text=text, trace_id="")]

    def _answer(self) -> list[str]:
        """The texts that make the answer: the first source that has any."""
        if self._lone:
            return [self._lone]
        if whole := self._whole():
            return [whole]
        artifacts = self._screen.texts("artifact:")
        if any(self._screen.text(key).strip() for key in self._worded):
            return artifacts
        told = read_text(self._last.message.parts), self._remembered, *self._screen.texts("status:")[-1:]
        data = "\n".join(text for values in self._data.values() for text in values)
        body = next(
            (text for text in (*told, data, read_text_or_data(self._last.message.parts)) if text.strip()), ""
        )
        if body:  # names of files alone are no reason to leave out what was said
            return [body, *artifacts]
        return artifacts

    def _whole(self) -> str:
        texts = (
            "\n\n".join(text for text in self._results[name].values() if text.strip()) for name in _RESULTS
        )
        return next((text for text in texts if text), "")

    def _partial(self) -> str | None:
        return self._whole() or truncate_text("\n\n".join(self._screen.texts("artifact:"))) or None

    def _reveal(self, text: str, key: str) -> list[AnyEvent]:
        """Shows a text that was not shown; one that only grew is continued."""
        if self._screen.holds(text, "artifact:"):
            return []
        for begun in self._screen.keys("artifact:")[-1:]:
            if text.startswith(self._screen.text(begun)):
                return self._screen.put(begun, begun, text)
        events = self._end_narration()
        return [*events, *self._screen.add(self._screen.new_id(f"{key}:"), self._base(key), text)]

    def _close(self, answer: str | None = None) -> list[AnyEvent]:
        """Ends what is open; the message that is the answer says so."""
        events: list[AnyEvent] = []
        chosen = self._screen.saying(answer) if answer else None
        for key in self._screen.keys(""):
            events += self._screen.end(key, "answer" if key == chosen else "narration")
        for call_id, tool in self._open:
            events.append(ToolFinished(agent=self._agent, call_id=call_id, tool=tool, outcome="unknown"))
        return events

    def _failed(self, message: str, *, retryable: bool = True) -> list[AnyEvent]:
        reason = clean_text(message[:_MAX_REASON])
        return self._broken_off(
            Failed(
                agent=self._agent,
                message=reason,
                trace_id="",
                code="agent_failed",
                retryable=retryable,
                partial=self._partial(),
            )
        )

    def _broken_off(self, event: Failed | Cancelled) -> list[AnyEvent]:
        shown = self._reveal(event.partial, "partial") if event.partial else []
        return [*shown, *self._close(), event]

    def _paused(self) -> list[AnyEvent]:
        asked = (
            read_text_or_data(self._last.message.parts)
            or "".join(self._screen.texts("status:")[-1:])
            or f"The agent {self._agent} asks for more."
        )
        status = self._last
        marks = (
            self.task_id or "",
            status.message.message_id,
            f"{status.timestamp.seconds}.{status.timestamp.nanos}",
            asked,
        )
        request_id = hashlib.sha256("\x00".join(marks).encode()).hexdigest()[:32]
        form = Form(
            response=asked,
            fields=(InputField(field_name="answer", field_label="Answer", field_type="textarea"),),
        )
        whole = self._whole()
        shown = (
            self._reveal(whole, "partial")
            if whole and remove_whitespace(whole) != remove_whitespace(asked)
            else []
        )
        requested = InputRequested(agent=self._agent, request_id=request_id, asked=form)
        return [
            *shown,
            *self._close(),
            requested,
            Paused(agent=self._agent, text=asked, requests=(request_id,)),
        ]


def _key(artifact: Artifact) -> str:
    return f"artifact:{artifact.artifact_id}"
