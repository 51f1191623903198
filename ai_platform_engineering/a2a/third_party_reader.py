"""Reader of a third-party server's A2A frames: yields our events, each text once, and one answer."""

import hashlib
from collections.abc import Iterable

from a2a.types import Artifact, Message, Part, StreamResponse, Task, TaskState, TaskStatus

from ai_platform_engineering.a2a.codec import FINAL_RESULT, PARTIAL_RESULT, PLAN, TOOL_END, TOOL_START
from ai_platform_engineering.a2a.third_party_messages import (
    MAX_TEXT_LENGTH,
    ThirdPartyMessages,
    truncate_text,
)
from ai_platform_engineering.a2a.third_party_parts import (
    find_last_agent_text,
    read_data,
    read_text,
    read_text_or_data,
    remove_whitespace,
)
from ai_platform_engineering.a2a.third_party_tools import (
    ThirdPartyToolCalls,
    ToolNotification,
    parse_tool_notifications,
    read_artifact_notification,
)
from ai_platform_engineering.core.events import (
    FREE_TEXT_FIELD,
    Answered,
    AnyEvent,
    Cancelled,
    Failed,
    Form,
    InputRequested,
    Paused,
    clean_text,
)

COMPLETE_RESULT = "complete_result"
CURRENT_RESULT = "current_result"  # older servers end their response with an empty one

# Names of artifacts that hold a whole answer; the first that is there counts.
_RESULT_NAMES = (FINAL_RESULT, COMPLETE_RESULT, PARTIAL_RESULT)
_MAX_REASON_LENGTH = 2000

PAUSED_STATES = (TaskState.TASK_STATE_INPUT_REQUIRED, TaskState.TASK_STATE_AUTH_REQUIRED)
ENDED_STATES = (
    TaskState.TASK_STATE_COMPLETED,
    TaskState.TASK_STATE_FAILED,
    TaskState.TASK_STATE_CANCELED,
    TaskState.TASK_STATE_REJECTED,
    *PAUSED_STATES,
)


class ThirdPartyReader:
    """Reads the frames of one turn of one task.

    When `ended` is true, `closing_events` gives the last events."""

    def __init__(self, agent: str) -> None:
        self.task_id: str | None = None
        self.context_id: str | None = None
        self.state: TaskState | None = None
        self.ended = False
        self._agent = agent
        self._messages = ThirdPartyMessages(agent)
        self._tool_calls = ThirdPartyToolCalls(agent)
        self._results: dict[str, dict[str, str]] = {name: {} for name in _RESULT_NAMES}
        self._data_texts: dict[str, list[str]] = {}
        self._text_artifacts: set[str] = (
            set()
        )  # keys of artifacts with text of their own, not only names of files
        self._processed: set[tuple[str, str]] = set()  # id and text of status messages and notifications
        self._narration_key = ""
        self._last_status_text = ""
        self._history_text = ""  # the agent's last text in the task's history
        self._only_message: str | None = None  # the answer of an agent that sends a message and no task
        self._end_status = TaskStatus()
        self._closed = False

    def read(self, frame: StreamResponse) -> list[AnyEvent]:
        """The events of a frame; none after the end."""
        if self.ended:
            return []
        match frame.WhichOneof("payload"):
            case "task":
                self._set_ids(frame.task.id, frame.task.context_id)
                return self._read_task(frame.task)
            case "message":
                return self._read_message(frame.message)
            case "status_update":
                self._set_ids(frame.status_update.task_id, frame.status_update.context_id)
                return self._read_status(frame.status_update.status)
            case "artifact_update":
                update = frame.artifact_update
                self._set_ids(update.task_id, update.context_id)
                return self._read_artifact(update.artifact, append=update.append, last=update.last_chunk)
            case _:
                return []

    def closing_events(self) -> list[AnyEvent]:
        """The last events of the turn, once: texts not shown yet, ends of messages and calls, the outcome."""
        if not self.ended or self._closed:
            return []
        self._closed = True
        if self._only_message is not None:
            return self._complete()
        end_text = read_text_or_data(self._end_status.message.parts)
        match self.state:
            case TaskState.TASK_STATE_COMPLETED:
                return self._complete()
            case TaskState.TASK_STATE_CANCELED:
                return self._stop(Cancelled(agent=self._agent, trace_id="", partial=self._partial_result()))
            case TaskState.TASK_STATE_INPUT_REQUIRED:
                return self._pause()
            case TaskState.TASK_STATE_AUTH_REQUIRED:
                reason = f"The agent {self._agent} wants credentials that it was not given."
                return self._fail(f"{reason} {end_text}".strip(), retryable=False)
            case TaskState.TASK_STATE_REJECTED:
                reason = end_text or f"The agent {self._agent} refused the request."
                return self._fail(reason, retryable=False)
            case _:
                return self._fail(end_text or f"The agent {self._agent} failed and did not say why.")

    # --- frames ---------------------------------------------------------------------------------------------

    def _set_ids(self, task_id: str, context_id: str) -> None:
        self.task_id = task_id or self.task_id
        self.context_id = context_id or self.context_id

    def _read_task(self, task: Task) -> list[AnyEvent]:
        is_over = task.status.state in ENDED_STATES
        events: list[AnyEvent] = []
        for artifact in task.artifacts:
            events += self._read_artifact(artifact, in_task=True, may_lag=not is_over)
        if is_over and task.artifacts:  # a task without artifacts says nothing about them
            events += self._discard_removed_artifacts(task)
        self._history_text = find_last_agent_text(task.history) or self._history_text
        return events + self._read_status(task.status, in_task=True)

    def _discard_removed_artifacts(self, task: Task) -> list[AnyEvent]:
        events: list[AnyEvent] = []
        present_keys = {_artifact_key(artifact) for artifact in task.artifacts}
        for key in self._messages.keys("artifact:"):
            if key not in present_keys:
                events += self._messages.discard(key)
        return events

    def _read_message(self, message: Message) -> list[AnyEvent]:
        if self.task_id is not None:  # not the answer: the task still has to end
            return self._read_status_text(read_text(message.parts), message.message_id)
        self._set_ids(message.task_id, message.context_id)
        self.ended = True
        self._only_message = read_text_or_data(message.parts)
        id_base = self._id_base(message.message_id or "message")
        return self._messages.append("message", id_base, self._only_message)

    def _read_status(self, status: TaskStatus, *, in_task: bool = False) -> list[AnyEvent]:
        if status.state in TaskState.values() and status.state != TaskState.TASK_STATE_UNSPECIFIED:
            self.state = status.state
        if status.state in ENDED_STATES:
            self.ended = True
            self._end_status = status
            return []
        text = read_text(status.message.parts)
        if in_task and text == self._last_status_text:
            return []
        self._last_status_text = text or self._last_status_text
        return self._read_status_text(text, status.message.message_id)

    def _read_status_text(self, text: str, message_id: str) -> list[AnyEvent]:
        if not text.strip():
            return []
        if message_id and (message_id, text) in self._processed:
            return []
        self._processed.add((message_id, text))
        notifications = self._tool_calls.read_notifications(text)
        if notifications:
            return self._read_notifications(notifications, message_id)
        return self._narrate(text, message_id)

    def _read_artifact(
        self,
        artifact: Artifact,
        *,
        append: bool = False,
        last: bool = False,
        in_task: bool = False,
        may_lag: bool = False,
    ) -> list[AnyEvent]:
        """`may_lag`: the artifact is from a stored task, which may be behind its stream."""
        if artifact.name == PLAN:
            return []
        if artifact.name in (TOOL_START, TOOL_END):
            return self._read_tool_artifact(artifact)
        key = _artifact_key(artifact)
        self._store_data(key, artifact.parts, append=append)
        if artifact.name in _RESULT_NAMES:
            self._store_result(artifact, append=append, may_lag=may_lag)
            return []
        old_text = self._messages.text(key)
        text = read_text(artifact.parts, is_start=not (append and old_text))
        if not text and (last or in_task or append or artifact.name == CURRENT_RESULT):
            return []  # a mark of the end, not a replacement by nothing
        if any(part.text for part in artifact.parts):
            self._text_artifacts.add(key)
        if self._messages.rekey_latest(text, "status:", key):
            return []
        id_base = self._id_base(artifact.artifact_id or "artifact")
        if append:
            if not old_text:
                id_base += "+"  # it continues an artifact of an earlier turn, which had the plain id
            return [*self._end_narration(), *self._messages.append(key, id_base, text)]
        if may_lag and old_text.startswith(text):
            return []
        return [*self._end_narration(), *self._messages.replace(key, id_base, text)]

    def _store_result(self, artifact: Artifact, *, append: bool, may_lag: bool) -> None:
        key = _artifact_key(artifact)
        old_text = self._results[artifact.name].get(key, "")
        text = read_text(artifact.parts)
        if append:
            text = old_text + text
        if may_lag and old_text.startswith(text):
            return
        self._results[artifact.name][key] = truncate_text(text)

    def _read_tool_artifact(self, artifact: Artifact) -> list[AnyEvent]:
        text = read_text(artifact.parts)
        if (artifact.artifact_id, text) in self._processed:
            return []
        self._processed.add((artifact.artifact_id, text))
        notifications = parse_tool_notifications(text)
        if not notifications:
            notification = read_artifact_notification(artifact)
            if notification is not None:
                notifications = [notification]
        return self._read_notifications(notifications, artifact.artifact_id)

    def _read_notifications(self, notifications: list[ToolNotification], source: str) -> list[AnyEvent]:
        events = self._end_narration()
        for notification in notifications:
            events += self._tool_calls.read_events(notification, lambda: self._new_call_id(source))
        return events

    def _store_data(self, key: str, parts: Iterable[Part], *, append: bool) -> None:
        if not append:
            self._data_texts.pop(key, None)
        for text in read_data(parts):
            size = sum(sum(map(len, texts)) for texts in self._data_texts.values())
            if size + len(text) <= MAX_TEXT_LENGTH:
                self._data_texts.setdefault(key, []).append(text)

    # --- texts ----------------------------------------------------------------------------------------------

    def _id_base(self, name: str) -> str:
        if self.task_id:
            return clean_text(f"{self.task_id}/{name}")
        return clean_text(name)

    def _new_call_id(self, source: str) -> str:
        return self._messages.new_id(self._id_base(source or "call"))

    def _narrate(self, text: str, message_id: str) -> list[AnyEvent]:
        if self._messages.is_latest_text(text):
            return []
        events = self._end_narration()
        id_base = self._id_base(message_id or "status")
        self._narration_key = self._messages.new_id(f"status:{id_base}")
        return [*events, *self._messages.append(self._narration_key, id_base, text)]

    def _end_narration(self) -> list[AnyEvent]:
        """Ends the narration.

        It stays open until something follows: the last one may turn out to be the answer."""
        return self._messages.end(self._narration_key, "narration")

    def _show(self, text: str, key: str) -> list[AnyEvent]:
        """Shows a text that was not shown; if it continues the last artifact, only the rest."""
        if self._messages.contains(text, "artifact:"):
            return []
        for last_key in self._messages.keys("artifact:")[-1:]:
            if text.startswith(self._messages.text(last_key)):
                return self._messages.replace(last_key, last_key, text)
        events = self._end_narration()
        new_key = self._messages.new_id(f"{key}:")
        return [*events, *self._messages.append(new_key, self._id_base(key), text)]

    # --- the end of the turn --------------------------------------------------------------------------------

    def _complete(self) -> list[AnyEvent]:
        answer_texts = self._find_answer_texts()
        if not answer_texts:
            return self._fail(f"The agent {self._agent} finished without a result.")
        events: list[AnyEvent] = []
        for text in answer_texts:
            events += self._show(text, "answer")
        end_text = read_text(self._end_status.message.parts)
        if end_text.strip() and end_text not in answer_texts:
            events += self._show(end_text, "closing")
        # Again: the text of the last status may have continued an artifact.
        answer = truncate_text("\n\n".join(self._find_answer_texts()))
        return [*events, *self._close(answer), Answered(agent=self._agent, text=answer, trace_id="")]

    def _find_answer_texts(self) -> list[str]:
        """The texts that make the answer: from the first source that has any."""
        if self._only_message:
            return [self._only_message]
        result = self._find_result()
        if result:
            return [result]
        artifact_texts = self._messages.texts("artifact:")
        if any(self._messages.text(key).strip() for key in self._text_artifacts):
            return artifact_texts
        text = self._find_text_outside_artifacts()
        if text:  # names of files alone are no reason to leave it out
            return [text, *artifact_texts]
        return artifact_texts

    def _find_text_outside_artifacts(self) -> str:
        end_parts = self._end_status.message.parts
        data_texts: list[str] = []
        for texts in self._data_texts.values():
            data_texts += texts
        candidates = (
            read_text(end_parts),
            self._history_text,
            *self._messages.texts("status:")[-1:],
            "\n".join(data_texts),
            read_text_or_data(end_parts),
        )
        return next((text for text in candidates if text.strip()), "")

    def _find_result(self) -> str:
        for name in _RESULT_NAMES:
            result = "\n\n".join(text for text in self._results[name].values() if text.strip())
            if result:
                return result
        return ""

    def _partial_result(self) -> str | None:
        return self._find_result() or truncate_text("\n\n".join(self._messages.texts("artifact:"))) or None

    def _close(self, answer: str | None = None) -> list[AnyEvent]:
        """Ends open messages and tool calls; the message with the answer ends with the role answer."""
        events: list[AnyEvent] = []
        answer_key = self._messages.find_key(answer) if answer else None
        for key in self._messages.keys(""):
            events += self._messages.end(key, "answer" if key == answer_key else "narration")
        return events + self._tool_calls.end_events()

    def _fail(self, message: str, *, retryable: bool = True) -> list[AnyEvent]:
        return self._stop(
            Failed(
                agent=self._agent,
                message=clean_text(message[:_MAX_REASON_LENGTH]),
                trace_id="",
                code="agent_failed",
                retryable=retryable,
                partial=self._partial_result(),
            )
        )

    def _stop(self, event: Failed | Cancelled) -> list[AnyEvent]:
        """Ends the turn without an answer; its partial result is shown."""
        events: list[AnyEvent] = []
        if event.partial:
            events += self._show(event.partial, "partial")
        return [*events, *self._close(), event]

    def _pause(self) -> list[AnyEvent]:
        """Ends the turn with a form that has one field for the answer to the agent's question."""
        question = (
            read_text_or_data(self._end_status.message.parts)
            or "".join(self._messages.texts("status:")[-1:])
            or f"The agent {self._agent} asks for more."
        )
        form = Form(response=question, fields=(FREE_TEXT_FIELD,))
        events: list[AnyEvent] = []
        result = self._find_result()
        if result and remove_whitespace(result) != remove_whitespace(question):
            events += self._show(result, "partial")
        request_id = self._request_id(question)
        return [
            *events,
            *self._close(),
            InputRequested(agent=self._agent, request_id=request_id, asked=form),
            Paused(agent=self._agent, text=question, requests=(request_id,)),
        ]

    def _request_id(self, question: str) -> str:
        """The same id whenever the same pause is read."""
        status = self._end_status
        timestamp = f"{status.timestamp.seconds}.{status.timestamp.nanos}"
        identity = (self.task_id or "", status.message.message_id, timestamp, question)
        return hashlib.sha256("\x00".join(identity).encode()).hexdigest()[:32]


def _artifact_key(artifact: Artifact) -> str:
    return f"artifact:{artifact.artifact_id}"
