"""Reader of a third-party server's A2A frames: yields our events, each text once, and one answer."""

import hashlib
from collections.abc import Iterable, Sequence
from functools import partial

from a2a.types import Artifact, Message, Part, StreamResponse, Task, TaskState, TaskStatus

from ai_platform_engineering.a2a.codec import PLAN, TOOL_END, TOOL_START
from ai_platform_engineering.a2a.third_party_artifacts import ARTIFACT_PREFIX, ThirdPartyArtifacts
from ai_platform_engineering.a2a.third_party_messages import ThirdPartyMessages, truncate_text
from ai_platform_engineering.a2a.third_party_narration import ThirdPartyNarration
from ai_platform_engineering.a2a.third_party_parts import (
    find_last_text,
    find_turn,
    is_same_text,
    read_text,
    read_text_or_data,
)
from ai_platform_engineering.a2a.third_party_tools import (
    ThirdPartyToolCalls,
    ToolNotification,
    describe_calls,
    parse_tool_notifications,
    read_artifact_notification,
    read_part_notifications,
)
from ai_platform_engineering.a2a.third_party_usage import ThirdPartyUsage
from ai_platform_engineering.core.events import (
    FREE_TEXT_FIELD,
    Answered,
    AnyEvent,
    Cancelled,
    Failed,
    Form,
    InputRequested,
    Paused,
    ToolStarted,
)
from ai_platform_engineering.core.storable_text import clean_text

_MAX_REASON_LENGTH = 2000
_MAX_PROCESSED = 20_000  # messages that are recognised when a server repeats them

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
        self._narration = ThirdPartyNarration(self._messages)
        self._tool_calls = ThirdPartyToolCalls(agent)
        self._artifacts = ThirdPartyArtifacts(self._messages, self._narration)
        self._processed: dict[tuple[str, str], None] = {}  # id and text of status messages and notifications
        self._last_status_text = ""
        self._last_status_id = ""
        self._has_gap = False  # status messages were missed while the task was polled
        self._history_text = ""  # the agent's last text in the task's history
        self._only_message: str | None = None  # the answer of an agent that sends a message and no task
        self._end_status = TaskStatus()
        self._usage = ThirdPartyUsage()
        self._closed = False

    def read(self, frame: StreamResponse) -> list[AnyEvent]:
        """The events of a frame; none after the end."""
        if self.ended:
            return []
        self._usage.read(frame)
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
                partial_result = self._artifacts.partial_result
                usage = self._usage.total
                return self._stop(
                    Cancelled(agent=self._agent, trace_id="", partial=partial_result, usage=usage)
                )
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
        messages, is_whole = find_turn(task.history)
        is_gapless = is_whole or any(self._was_processed(message) for message in messages)
        # Where status messages were missed, the rest of a text in tokens would be fragments.
        self._has_gap = self._has_gap or (bool(messages) and not is_gapless)
        events = self._read_history(messages)
        for artifact in task.artifacts:
            events += self._read_artifact(artifact, in_task=True, may_lag=not is_over)
        if is_over and task.artifacts:  # a task without artifacts says nothing about them
            events += self._artifacts.discard_removed(task)
        may_be_fragment = self._has_gap or (not messages and self._narration.in_tokens)
        return events + self._read_status(task.status, in_task=True, may_be_fragment=may_be_fragment)

    def _read_history(self, messages: Sequence[Message]) -> list[AnyEvent]:
        """What the task's status said before, as far as it was not read from a stream."""
        self._history_text = find_last_text(messages) or self._history_text
        events: list[AnyEvent] = []
        for message in messages:
            if not message.message_id or self._was_processed(message):
                continue
            if self._has_gap:
                events += self._read_calls(message)
            else:
                events += self._read_status_message(message)
        return events

    def _read_calls(self, message: Message) -> list[AnyEvent]:
        """The tool calls of a message whose text may be a fragment."""
        self._mark_processed(message.message_id, read_text(message.parts))
        return self._read_tool_parts(message.parts, message.message_id)

    def _read_message(self, message: Message) -> list[AnyEvent]:
        if self.task_id is not None:  # not the answer: the task still has to end
            return self._read_status_message(message)
        self._set_ids(message.task_id, message.context_id)
        self.ended = True
        self._only_message = read_text_or_data(message.parts)
        id_base = self._id_base(message.message_id or "message")
        return self._messages.append("message", id_base, self._only_message)

    def _read_status(
        self, status: TaskStatus, *, in_task: bool = False, may_be_fragment: bool = False
    ) -> list[AnyEvent]:
        if status.state in TaskState.values() and status.state != TaskState.TASK_STATE_UNSPECIFIED:
            self.state = status.state
        if status.state in ENDED_STATES:
            self.ended = True
            self._end_status = status
            return []
        text = read_text(status.message.parts)
        if in_task and text and text == self._last_status_text:
            return []
        self._last_status_text = text or self._last_status_text
        if may_be_fragment:
            return self._read_calls(status.message)
        return self._read_status_message(status.message)

    def _read_status_message(self, message: Message) -> list[AnyEvent]:
        # The same id again and again is one whose text changes: a token may come twice.
        is_repeated = self._was_processed(message) and message.message_id != self._last_status_id
        if message.message_id and is_repeated:
            return []
        self._last_status_id = message.message_id
        text = read_text(message.parts)
        self._mark_processed(message.message_id, text)
        notifications = self._tool_calls.read_notifications(text)
        if notifications:
            return self._read_notifications(notifications, message.message_id)
        events = self._narration.read(text, self._id_base(message.message_id or "status"))
        return events + self._read_tool_parts(message.parts, message.message_id)

    def _was_processed(self, message: Message) -> bool:
        return (message.message_id, read_text(message.parts)) in self._processed

    def _mark_processed(self, source_id: str, text: str) -> None:
        self._processed[(source_id, text)] = None
        if len(self._processed) > _MAX_PROCESSED:
            del self._processed[next(iter(self._processed))]

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
        id_base = self._id_base(artifact.artifact_id or "artifact")
        is_mark = last or in_task or append
        events = self._artifacts.read(artifact, id_base, append=append, is_mark=is_mark, may_lag=may_lag)
        tool_events = self._read_tool_parts(artifact.parts, artifact.artifact_id)
        if any(isinstance(event, ToolStarted) for event in tool_events):
            self._artifacts.mark_as_call(artifact)
        return events + tool_events

    def _read_tool_artifact(self, artifact: Artifact) -> list[AnyEvent]:
        text = read_text(artifact.parts)
        if (artifact.artifact_id, text) in self._processed:
            return []
        self._mark_processed(artifact.artifact_id, text)
        notifications = parse_tool_notifications(text)
        if not notifications:
            notification = read_artifact_notification(artifact)
            if notification is not None:
                notifications = [notification]
        return self._read_notifications(notifications, artifact.artifact_id)

    def _read_notifications(self, notifications: list[ToolNotification], source: str) -> list[AnyEvent]:
        events: list[AnyEvent] = []
        for notification in notifications:
            new_call_id = partial(self._new_call_id, notification.source_id or source)
            events += self._tool_calls.read_events(notification, new_call_id)
        if events:
            return [*self._narration.end_run(), *events]
        return events

    def _read_tool_parts(self, parts: Iterable[Part], source: str) -> list[AnyEvent]:
        return self._read_notifications(read_part_notifications(parts), source)

    # --- texts ----------------------------------------------------------------------------------------------

    def _id_base(self, name: str) -> str:
        if self.task_id:
            return clean_text(f"{self.task_id}/{name}")
        return clean_text(name)

    def _new_call_id(self, source: str) -> str:
        return self._messages.new_id(self._id_base(source or "call"))

    def _show(self, text: str, key: str) -> list[AnyEvent]:
        """Shows a text that was not shown; if it continues the last artifact, only the rest."""
        if self._messages.contains(text, ARTIFACT_PREFIX):
            return []
        for last_key in self._messages.keys(ARTIFACT_PREFIX)[-1:]:
            if text.startswith(self._messages.text(last_key)):
                return self._messages.replace(last_key, last_key, text)
        events = self._narration.end_run()
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
        answered = Answered(agent=self._agent, text=answer, trace_id="", usage=self._usage.total)
        return [*events, *self._close(answer), answered]

    def _find_answer_texts(self) -> list[str]:
        """The texts that make the answer: from the first source that has any."""
        if self._only_message:
            return [self._only_message]
        if self._artifacts.result:
            return [self._artifacts.result]
        artifact_texts = self._artifacts.texts
        if self._artifacts.has_text:
            return artifact_texts
        text = self._find_text_outside_artifacts()
        if text:  # names of files alone are no reason to leave it out
            return [text, *artifact_texts]
        return artifact_texts

    def _find_text_outside_artifacts(self) -> str:
        end_parts = self._end_status.message.parts
        candidates = (
            read_text(end_parts),
            self._narration.last_text,
            self._history_text,
            self._artifacts.data_text,
            read_text_or_data(end_parts),
        )
        return next((text for text in candidates if text.strip()), "")

    def _close(self, answer: str | None = None) -> list[AnyEvent]:
        """Ends open messages and tool calls; the message with the answer ends with the role answer."""
        events: list[AnyEvent] = []
        answer_key = self._messages.find_key(answer) if answer else None
        for key in self._messages.keys(""):
            events += self._messages.end(key, "answer" if key == answer_key else "narration")
        return events + self._tool_calls.end_events()

    def _fail(self, message: str, *, retryable: bool = True) -> list[AnyEvent]:
        events = self._narration.take_back(message)
        failure = Failed(
            agent=self._agent,
            message=clean_text(message[:_MAX_REASON_LENGTH]),
            trace_id="",
            code="agent_failed",
            retryable=retryable,
            partial=self._artifacts.partial_result,
            usage=self._usage.total,
        )
        return events + self._stop(failure)

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
            or describe_calls(self._end_status.message.parts)
            or self._narration.last_text
            or f"The agent {self._agent} asks for more."
        )
        form = Form(response=question, fields=(FREE_TEXT_FIELD,))
        events = self._narration.take_back(question)
        result = self._artifacts.result
        if result and not is_same_text(result, question):
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
