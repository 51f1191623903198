"""What runs ask of people, in Slack: a message per request with its buttons, the answers to the supervisor, and what became of them."""

import asyncio
import contextlib
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from ai_platform_engineering.a2a.client import A2AClient, ClientConversation, RequestRefused
from ai_platform_engineering.a2a.codec import request_from_data
from ai_platform_engineering.a2a.notification_text import title_case
from ai_platform_engineering.a2a.rest_client import rest_api_for_client
from ai_platform_engineering.core.events import Approval, Form, InputResolved, Paused, is_terminal
from ai_platform_engineering.core.transcript import PendingInput, Transcript
from ai_platform_engineering.integrations.slack_bot.blocks import (
    Block,
    actions,
    button,
    context,
    escape_line,
    section,
    truncate,
)
from ai_platform_engineering.integrations.slack_bot.bot_store import BotStore, TurnRow
from ai_platform_engineering.integrations.slack_bot.modals import MAX_FIELDS, mask_secrets, unique_fields
from ai_platform_engineering.integrations.slack_bot.thread_messages import ThreadMessages
from ai_platform_engineering.integrations.slack_bot.users import SlackUser, UserDirectory
from ai_platform_engineering.integrations.slack_bot.web_api import DeliveryUnknown, SlackError, retry_delay

log = logging.getLogger(__name__)

FILL_ACTION = "caipe_fill"
DECLINE_ACTION = "caipe_decline"
DROP_ACTION = "caipe_drop"
APPROVE_ACTION = "caipe_approve"
ALWAYS_ACTION = "caipe_always"
EDIT_ACTION = "caipe_edit"
REJECT_ACTION = "caipe_reject_it"
_LONGEST_ARGUMENTS, _LONGEST_HEADLINE = 2_800, 300
_ATTEMPTS = 30  # to post a request while Slack breaks off
_SOON, _AT_LEAST = 2.2, 0.3  # seconds; Slack waits three for what a modal is to say
_GONE = "No longer asked."
_EXPIRED = "Expired: nothing was decided. Write in this thread to be asked again, or `stop`."
_TOLD = "told:"  # a word on what was no answer is kept beside the requests, under an id that begins so
_WORDS = {
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
    modal_timeout: float = _SOON
    in_modals: set[str] = field(
        default_factory=set
    )  # requests whose answers are on their way, and whose errors a modal shows

    async def post_requests(self, row: TurnRow, messages: ThreadMessages, seen: Transcript, seq: int) -> None:
        """A message for each request that has none, and a word on what could not be taken as an answer; `seq` is the last event's."""
        for request in seen.requests:
            await self._show(row, messages, request)
        if seen.wrong or seen.held is not None:
            await self._tell(
                row, messages, seen, f"wrong-{seq}" if seen.wrong else f"held-{len(seen.held or '')}"
            )

    async def _show(self, row: TurnRow, messages: ThreadMessages, request: PendingInput) -> None:
        for number in range(_ATTEMPTS):
            known = await self.store.record_request(request.request_id, row.turn_id)
            if known:
                return
            if known == "":  # a process died between showing it and knowing so, or Slack broke off
                await messages.remove_unknown(lambda ts: self.store.is_posted(row.channel, ts))
            try:
                ts = await messages.post(*build_request_message(request, row.turn_id))
                await self.store.record_request_message(request.request_id, row.channel, ts)
            except DeliveryUnknown:
                if number == _ATTEMPTS - 1:
                    raise
                await messages.slack.rate_limiter.clock.sleep(retry_delay(number))

    async def _tell(self, row: TurnRow, messages: ThreadMessages, seen: Transcript, what: str) -> None:
        """Says once what was no answer, if no modal says it."""
        in_modal = bool(seen.wrong) and seen.wrong.keys() <= self.in_modals
        self.in_modals -= seen.wrong.keys()
        told = f"{_TOLD}{row.task_id}:{what}"
        if await self.store.record_request(told, row.turn_id) is not None:
            return
        if not in_modal:
            ts = await messages.post(*build_waiting_message(seen, row.turn_id))
            await self.store.record_request_message(told, row.channel, ts)
        if in_modal or seen.held is None:  # there is no button that must go
            await self.store.close_request(told)

    async def mark_resolved(
        self,
        row: TurnRow,
        messages: ThreadMessages,
        event: InputResolved,
        request: PendingInput | None,
        at: float,
    ) -> None:
        """The buttons give way to who decided, and when."""
        when = _moment(at)
        word = _WORDS.get(event.resolution)
        if word:
            said = f"{word} by {self.users.format_mention(event.by)} {when}"
        elif event.resolution == "expired":
            said = _EXPIRED
        else:
            said = _GONE
        await self._replace(messages, event.request_id, request, said)
        for told in await self.store.list_open_requests(row.turn_id):
            if told.startswith(_TOLD):
                await self._replace(messages, told, None, _GONE)

    async def is_waiting(self, row: TurnRow) -> bool:
        """Somebody is asked for something in this turn."""
        return any(not one.startswith(_TOLD) for one in await self.store.list_open_requests(row.turn_id))

    async def close_open(self, row: TurnRow, messages: ThreadMessages) -> None:
        """The turn is over: nobody waits for what is still open."""
        for request_id in await self.store.list_open_requests(row.turn_id):
            await self._replace(messages, request_id, None, _GONE)

    async def _replace(
        self, messages: ThreadMessages, request_id: str, request: PendingInput | None, said: str
    ) -> None:
        ts = await self.store.close_request(request_id)
        if ts is None:
            return
        summary = _summary(request) if request is not None else []
        with contextlib.suppress(SlackError, DeliveryUnknown):  # who deleted the message needs no word on it
            await messages.update(ts, truncate(said, 300), [*summary, context(said)])

    # --- answers ------------------------------------------------------------------------------------------------------

    async def fetch_request(self, row: TurnRow, person: SlackUser, request_id: str) -> RequestDetails:
        """Raises RequestRefused and Unreachable."""
        found = await rest_api_for_client(self.supervisor.on_behalf_of(person.principal, row.owner))(
            "GET", f"/v1/requests/{request_id}"
        )
        return RequestDetails(
            request_from_data(found["asked"]),
            found["status"] == "pending",
            str(found.get("by") or ""),
            str(found.get("at") or ""),
        )

    def describe_closed(self, pending: RequestDetails) -> str:
        what = escape_line(pending.asked.describe())
        if not pending.answered_by:
            return f"{what[:1].upper()}{what[1:]} is not asked any more."
        return f"{what[:1].upper()}{what[1:]} was already answered by {self.users.format_mention(pending.answered_by)}{_at(pending.answered_at)}."

    async def answer(
        self, row: TurnRow, person: SlackUser, request_id: str, given: Mapping[str, Any]
    ) -> Mapping[str, str]:
        """What is wrong with it by field; nothing when it was taken. Raises RequestRefused and Unreachable."""
        if row.task_id is None:
            raise RequestRefused("There is nothing to answer here any more.")
        talk = ClientConversation(row.owner, row.task_id)
        client = self.supervisor.on_behalf_of(person.principal, row.owner)
        async with contextlib.aclosing(client.answer({request_id: dict(given)}, talk)) as events:  # type: ignore[type-var]
            async for event in events:
                if is_terminal(event) or (
                    isinstance(event, InputResolved) and event.request_id == request_id
                ):
                    return {}
                if (
                    isinstance(event, Paused) and talk.seq > talk.seq_at_send
                ):  # sent back, or asked again since it had expired
                    return event.wrong.get(request_id, {})
        return {}

    async def answer_from_modal(
        self, row: TurnRow, person: SlackUser, request_id: str, given: Mapping[str, Any], since: float
    ) -> Mapping[str, str]:
        """The same within the time that Slack gives from `since` on, by the loop. An answer that takes longer goes on, and what is wrong
        with it is said in the thread."""
        self.in_modals.add(request_id)
        work = asyncio.ensure_future(self.answer(row, person, request_id, given))
        wrong: Mapping[str, str] = {}
        try:
            done, _ = await asyncio.wait(
                {work}, timeout=max(_AT_LEAST, since + self.modal_timeout - asyncio.get_running_loop().time())
            )
            if not done:
                work.add_done_callback(_logged)
            wrong = work.result() if done else {}
        finally:
            if not wrong:
                self.in_modals.discard(request_id)
        return wrong


def _logged(work: asyncio.Future[Mapping[str, str]]) -> None:
    if not work.cancelled() and (error := work.exception()) is not None:
        log.warning("an answer was not taken: %s", error)


def build_waiting_message(seen: Transcript, turn_id: str) -> tuple[str, list[Block]]:
    """What could not be taken as an answer, and how to be rid of the question."""
    said = escape_line(seen.waiting_for) or "I still wait for an answer."
    drop = [actions(button("Drop it and start anew", DROP_ACTION, turn_id))] if seen.held is not None else []
    return truncate(said, _LONGEST_HEADLINE), [section(said), *drop]


def build_request_message(request: PendingInput, turn_id: str) -> tuple[str, list[Block]]:
    """The notification and the blocks of a request."""
    buttons = _buttons(request.asked, f"{turn_id} {request.request_id}")
    until = (
        [context(f"Until {_moment(request.asked.expires_at.timestamp())}")]
        if request.asked.expires_at
        else []
    )
    headline = truncate(_headline(request), _LONGEST_HEADLINE)
    return headline, [
        *_summary(request),
        *_hints(request.asked),
        *until,
        *([actions(*buttons)] if buttons else []),
    ]


def _headline(request: PendingInput) -> str:
    agent = title_case(request.agent)
    if isinstance(request.asked, Approval):
        return f"{escape_line(agent)} wants to run {escape_line(request.asked.tool)}"
    return f"{escape_line(agent)} asks: {escape_line(request.asked.describe())}"


def _summary(request: PendingInput) -> list[Block]:
    asked = request.asked
    if isinstance(asked, Approval):
        shown = [
            section(
                f":lock: *{escape_line(title_case(request.agent))}* wants to run `{escape_line(asked.tool)}`"
            )
        ]
        if asked.arguments:
            shown.append(section(f"```\n{truncate(_arguments(asked.arguments), _LONGEST_ARGUMENTS)}\n```"))
        return [*shown, *([context(escape_line(asked.reason))] if asked.reason.strip() else [])]
    about = "\n".join(
        escape_line(text) for text in (asked.response, asked.description) if text and text.strip()
    )
    title = escape_line(asked.title or "") or "I need a few details"
    return [section(f":memo: *{title}*\n{about}".strip())]


def _hints(asked: Form | Approval) -> list[Block]:
    """How a form is answered, while it is open."""
    if isinstance(asked, Approval):
        return []
    if asked.takes_text:
        return [context("You can also answer with a message in this thread.")]
    fields = ", ".join(escape_line(one.field_label or one.field_name) for one in asked.fields)
    large = (
        []
        if _fits(asked)
        else [
            context("It has more fields than a form can show here. Decline it, and ask for less at a time.")
        ]
    )
    return [*([context(f"Asks for: {fields}")] if fields else []), *large]


def _fits(asked: Form) -> bool:
    return len(unique_fields(asked)) <= MAX_FIELDS


def _buttons(asked: Form | Approval, value: str) -> list[Block]:
    if isinstance(asked, Form):
        sure = _confirm("Decline", "The run goes on without these details.", "Decline")
        fill = [button("Fill in", FILL_ACTION, value, style="primary")] if _fits(asked) else []
        return [*fill, button("Decline", DECLINE_ACTION, value, confirm=sure)]
    sure = _confirm("Approve", f"Run {asked.tool} with these arguments?", "Approve")
    always = _confirm(
        "Always approve", f"Run {asked.tool} without asking in this thread, whatever its arguments?", "Always"
    )
    offered = {
        "approve": [
            button("Approve", APPROVE_ACTION, value, style="primary", confirm=sure),
            button("Always here", ALWAYS_ACTION, value, confirm=always),
        ],
        "edit": [button("Edit", EDIT_ACTION, value)],
        "reject": [button("Reject", REJECT_ACTION, value, style="danger")],
    }
    return [one for decision in dict.fromkeys(asked.allowed) for one in offered[decision]]


def _confirm(title: str, text: str, yes: str) -> Block:
    def words(said: str, longest: int) -> Block:
        return {"type": "plain_text", "text": truncate(said, longest)}

    return {
        "title": words(title, 100),
        "text": words(text, 300),
        "confirm": words(yes, 30),
        "deny": words("Back", 30),
    }


def _arguments(arguments: Mapping[str, Any]) -> str:
    shown = json.dumps(mask_secrets(arguments), indent=2, ensure_ascii=False)
    return shown.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("```", "'''")


def _moment(seconds: float) -> str:
    return f"<!date^{int(seconds)}^{{date_short_pretty}} {{time}}|{datetime.fromtimestamp(int(seconds), UTC):%Y-%m-%d %H:%M} UTC>"


def _at(moment: str) -> str:
    try:
        return f" {_moment(datetime.fromisoformat(moment).timestamp())}"
    except ValueError:
        return ""
