"""The requests of runs in Slack: posts a message for each, sends the answers, and shows the decisions."""

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ai_platform_engineering.a2a.client import A2AClient, ClientConversation, RequestRefused
from ai_platform_engineering.a2a.request_data import request_from_data
from ai_platform_engineering.a2a.rest_client import rest_api_for_client
from ai_platform_engineering.core.events import Approval, Form, InputResolved, Paused, is_terminal
from ai_platform_engineering.core.sentences import begin_sentence
from ai_platform_engineering.core.transcript import PendingInput, Transcript
from ai_platform_engineering.integrations.slack_bot.approval_messages import (
    CallDisplay,
    CallFile,
    CallNotShown,
    fits_message,
    render_call,
)
from ai_platform_engineering.integrations.slack_bot.blocks import Block, context, escape_line, truncate
from ai_platform_engineering.integrations.slack_bot.bot_store import BotStore
from ai_platform_engineering.integrations.slack_bot.request_messages import (
    build_request_message,
    build_waiting_message,
    format_date,
    summary_blocks,
)
from ai_platform_engineering.integrations.slack_bot.thread_messages import ThreadMessages
from ai_platform_engineering.integrations.slack_bot.turn_rows import TurnRow
from ai_platform_engineering.integrations.slack_bot.users import SlackUser, UserDirectory
from ai_platform_engineering.integrations.slack_bot.web_api import DeliveryUnknown, SlackError, retry_delay

log = logging.getLogger(__name__)

_MAX_POST_ATTEMPTS = 30  # while nobody knows whether Slack has the message
_MODAL_TIMEOUT = 2.2  # seconds; Slack waits three for the response to a modal
_MIN_MODAL_TIMEOUT = 0.3
_CLOSED = "No longer asked."
_EXPIRED = "Expired: nothing was decided. Write in this thread to get the request again, or `stop`."
_NOTE_PREFIX = "told:"  # notes on what was no answer are stored like requests, under ids with this prefix
_RESOLUTIONS = {
    "approved": "Approved",
    "edited": "Approved with changes",
    "rejected": "Rejected",
    "answered": "Answered",
}


@dataclass(frozen=True, slots=True)
class RequestDetails:
    """A request as the supervisor has it."""

    asked: Form | Approval
    is_pending: bool
    answered_by: str = ""
    answered_at: str = ""


@dataclass(slots=True)
class SlackInputRequests:
    supervisor: A2AClient
    store: BotStore
    users: UserDirectory
    max_file_bytes: int = 200_000  # of a call that is attached, as it is too long for a message
    modal_timeout: float = _MODAL_TIMEOUT

    async def post_requests(
        self, row: TurnRow, messages: ThreadMessages, transcript: Transcript, seq: int
    ) -> None:
        """Posts a message for each request that has none, and a note on what was no answer.

        `seq` is the number of the last event.
        """
        for request in transcript.requests:
            await self._post_request(row, messages, request)
        if transcript.wrong:
            await self._post_note(row, messages, transcript, f"wrong-{seq}")
        elif transcript.held is not None:
            await self._post_note(row, messages, transcript, f"held-{len(transcript.held)}")

    async def _post_request(self, row: TurnRow, messages: ThreadMessages, request: PendingInput) -> None:
        display: CallDisplay = None
        for attempt in range(_MAX_POST_ATTEMPTS):
            message_ts = await self.store.record_request(request.request_id, row.turn_id)
            if message_ts:
                return
            if message_ts == "":  # it was posted, and nobody knows whether Slack has it
                await messages.remove_unknown(lambda ts: self.store.is_posted(row.channel, ts))
            if display is None:
                display = await self._attach_call(row, messages, request)
            try:
                ts = await messages.post(*build_request_message(request, row.turn_id, display, row.owner))
                await self.store.record_request_message(request.request_id, row.channel, ts)
            except DeliveryUnknown:
                if attempt == _MAX_POST_ATTEMPTS - 1:
                    raise
                await messages.slack.rate_limiter.clock.sleep(retry_delay(attempt))

    async def _attach_call(
        self, row: TurnRow, messages: ThreadMessages, request: PendingInput
    ) -> CallDisplay:
        """Attaches a call that is too long for a message; None for what fits one."""
        if not isinstance(request.asked, Approval) or fits_message(request, request.asked):
            return None
        content = render_call(request, request.asked).encode()
        if len(content) > self.max_file_bytes:
            return CallNotShown(
                f"it has {len(content):,} bytes, and files of at most {self.max_file_bytes:,} are attached"
            )
        name = f"call-{request.request_id}.json"
        try:
            ts = await messages.attach(name, content)
        except (SlackError, DeliveryUnknown) as error:
            log.warning("a call could not be attached, so it cannot be approved in Slack: %s", error)
            return CallNotShown(
                f"it is too long for a message, and could not be attached: {error}".rstrip(".")
            )
        await self.store.record_posted(row.channel, ts)
        return CallFile(name)

    async def _post_note(
        self, row: TurnRow, messages: ThreadMessages, transcript: Transcript, cause: str
    ) -> None:
        """Says once what was no answer, unless a modal says it."""
        in_modal = bool(transcript.wrong) and await self.store.take_modal_answers(transcript.wrong.keys())
        note_id = f"{_NOTE_PREFIX}{row.task_id}:{cause}"
        if await self.store.record_request(note_id, row.turn_id) is not None:
            return
        if not in_modal:
            ts = await messages.post(*build_waiting_message(transcript, row.turn_id))
            await self.store.record_request_message(note_id, row.channel, ts)
        if in_modal or transcript.held is None:  # there is no button to remove later
            await self.store.close_request(note_id)

    async def mark_resolved(
        self,
        row: TurnRow,
        messages: ThreadMessages,
        event: InputResolved,
        request: PendingInput | None,
        at: float,
    ) -> None:
        """Replaces the buttons of a request by who decided, and when."""
        resolution = _RESOLUTIONS.get(event.resolution)
        if resolution:
            outcome = f"{resolution} by {self.users.format_mention(event.by)} {format_date(at)}"
        elif event.resolution == "expired":
            outcome = _EXPIRED
        else:
            outcome = _CLOSED
        await self._close(messages, event.request_id, request, outcome)
        for request_id in await self.store.list_open_requests(row.turn_id):
            if request_id.startswith(_NOTE_PREFIX):
                await self._close(messages, request_id, None, _CLOSED)

    async def is_waiting(self, row: TurnRow) -> bool:
        """Whether the turn has an open request."""
        request_ids = await self.store.list_open_requests(row.turn_id)
        return any(not request_id.startswith(_NOTE_PREFIX) for request_id in request_ids)

    async def close_open(self, row: TurnRow, messages: ThreadMessages) -> None:
        """Closes the requests of a turn that has ended: nobody waits for them any more."""
        for request_id in await self.store.list_open_requests(row.turn_id):
            await self._close(messages, request_id, None, _CLOSED)

    async def _close(
        self, messages: ThreadMessages, request_id: str, request: PendingInput | None, outcome: str
    ) -> None:
        ts = await self.store.close_request(request_id)
        if ts is None:
            return
        blocks: list[Block] = []
        if request is not None:
            blocks = summary_blocks(request)
        blocks.append(context(outcome))
        with contextlib.suppress(SlackError, DeliveryUnknown):  # somebody may have deleted the message
            await messages.update(ts, truncate(outcome, 300), blocks)

    # --- answers --------------------------------------------------------------------------------------------

    async def fetch_request(self, row: TurnRow, user: SlackUser, request_id: str) -> RequestDetails:
        """Raises RequestRefused and Unreachable."""
        api = rest_api_for_client(self.supervisor.on_behalf_of(user.principal, row.owner))
        request = await api("GET", f"/v1/requests/{request_id}")
        return RequestDetails(
            request_from_data(request["asked"]),
            request["status"] == "pending",
            str(request.get("by") or ""),
            str(request.get("at") or ""),
        )

    def describe_closed(self, request: RequestDetails) -> str:
        """Why a request cannot be answered any more, for the person who tried to."""
        subject = begin_sentence(escape_line(request.asked.describe()))
        if not request.answered_by:
            return f"{subject} is no longer open."
        who = self.users.format_mention(request.answered_by)
        return f"{subject} was already answered by {who}{_format_answer_time(request.answered_at)}."

    async def answer(
        self, row: TurnRow, user: SlackUser, request_id: str, answer: Mapping[str, Any]
    ) -> Mapping[str, str]:
        """Sends an answer and returns the errors by field; none when it was accepted.

        Raises RequestRefused and Unreachable.
        """
        if row.task_id is None:
            raise RequestRefused("There is nothing left to answer here.")
        conversation = ClientConversation(row.owner, row.task_id)
        client = self.supervisor.on_behalf_of(user.principal, row.owner)
        source = client.answer({request_id: dict(answer)}, conversation)
        async with contextlib.aclosing(source) as events:  # type: ignore[type-var]
            async for event in events:
                resolved = isinstance(event, InputResolved) and event.request_id == request_id
                if resolved or is_terminal(event):
                    return {}
                # A new pause: the answer was sent back, or the request is asked again since it had expired.
                if isinstance(event, Paused) and conversation.seq > conversation.seq_at_send:
                    return event.wrong.get(request_id, {})
        return {}

    async def answer_from_modal(
        self, row: TurnRow, user: SlackUser, request_id: str, answer: Mapping[str, Any], since: float
    ) -> Mapping[str, str]:
        """The errors of an answer, within the time that Slack gives a modal, from `since` on by the loop's
        clock.

        An answer that takes longer goes on in the background, and its errors are posted in the thread.
        """
        await self.store.begin_modal_answer(request_id)
        sending = asyncio.ensure_future(self.answer(row, user, request_id, answer))
        seconds_left = since + self.modal_timeout - asyncio.get_running_loop().time()
        errors: Mapping[str, str] = {}
        try:
            await asyncio.wait({sending}, timeout=max(_MIN_MODAL_TIMEOUT, seconds_left))
            if sending.done():
                errors = sending.result()
            else:
                sending.add_done_callback(_log_failure)
        finally:
            if not errors:
                await self.store.end_modal_answer(request_id)
        return errors


def _log_failure(sending: asyncio.Future[Mapping[str, str]]) -> None:
    if sending.cancelled():
        return
    error = sending.exception()
    if error is not None:
        log.warning("an answer was not accepted: %s", error)


def _format_answer_time(iso_time: str) -> str:
    try:
        return f" {format_date(datetime.fromisoformat(iso_time).timestamp())}"
    except ValueError:
        return ""
