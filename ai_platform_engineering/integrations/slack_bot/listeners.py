"""Listeners for what Slack delivers: events, clicks, modals and commands.

Slack waits three seconds for the acknowledgement: a message is stored before it, and the work comes after.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any

from slack_bolt.async_app import AsyncAck, AsyncApp, AsyncRespond

from ai_platform_engineering.a2a.rest_client import rest_api_for_client
from ai_platform_engineering.core.decisions import answer_approve, answer_reject
from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.events import Approval, Form
from ai_platform_engineering.integrations.slack_bot import (
    approval_messages,
    blocks,
    form_inputs,
    modals,
    request_messages,
)
from ai_platform_engineering.integrations.slack_bot.bot import Bot
from ai_platform_engineering.integrations.slack_bot.commands import answer_command
from ai_platform_engineering.integrations.slack_bot.event_tasks import EventTasks
from ai_platform_engineering.integrations.slack_bot.incoming_messages import parse_message
from ai_platform_engineering.integrations.slack_bot.modal_submissions import ModalSubmissions, describe_error
from ai_platform_engineering.integrations.slack_bot.request_messages import RequestButton
from ai_platform_engineering.integrations.slack_bot.sign_in_commands import (
    answer_sign_in_command,
    is_sign_in_command,
)
from ai_platform_engineering.integrations.slack_bot.sign_in_listeners import SignInListeners
from ai_platform_engineering.integrations.slack_bot.suggested_prompts import list_prompts

log = logging.getLogger(__name__)

Body = Mapping[str, Any]
Work = Coroutine[Any, Any, Any]

_TOO_LARGE = (
    "This is too large to fill in here. Reject or decline it, and say in the thread what should be different."
)
_NOT_SHOWN = (
    "This message is of an older version and may not show the whole call, so it approves nothing. "
    "Edit shows the call and runs it; or reject it."
)


class Listeners:
    """Registers all listeners with the Bolt app; their work is waited for when the bot stops."""

    def __init__(self, app: AsyncApp, bot: Bot, tasks: EventTasks) -> None:
        self._bot = bot
        self._submissions = ModalSubmissions(bot)
        self._tasks = tasks
        self._feedback_lock = asyncio.Lock()
        # Stored before it is acknowledged: Slack delivers again what no process has acknowledged.
        for event_type in ("app_mention", "message"):
            app.event(event_type, middleware=[self.store_message])(self.on_message)
        app.event("app_home_opened")(self.on_app_home_opened)
        app.event("agent_session_stopped")(self.on_session_stopped)
        app.command("/caipe")(self.on_command)
        SignInListeners(bot, tasks).register(app)
        for action_id, handler in self._action_handlers().items():
            app.action(action_id)(handler)
        app.options(form_inputs.VALUE_ACTION)(self._submissions.on_options)
        for callback_id, handler in self._view_handlers().items():
            app.view(callback_id)(handler)

    def _action_handlers(self) -> dict[str, Callable[..., Awaitable[None]]]:
        return {
            blocks.STOP_ACTION: self.stop,
            blocks.RETRY_ACTION: self.retry,
            blocks.FEEDBACK_ACTION: self.feedback,
            request_messages.FILL_ACTION: self.open_modal,
            approval_messages.EDIT_ACTION: self.open_modal,
            approval_messages.REJECT_ACTION: self.open_modal,
            approval_messages.APPROVE_ACTION: self.decide,
            approval_messages.ALWAYS_ACTION: self.decide,
            request_messages.DECLINE_ACTION: self.decide,
            request_messages.DROP_ACTION: self.drop,
        }

    def _view_handlers(self) -> dict[str, Callable[..., Awaitable[None]]]:
        return {
            modals.FORM_VIEW: self._submissions.submit_form,
            modals.EDIT_VIEW: self._submissions.submit_edit,
            modals.REJECT_VIEW: self._submissions.submit_rejection,
            modals.REASON_VIEW: self.submit_reason,
        }

    async def drain(self) -> None:
        """Waits for the work that is under way."""
        await self._tasks.drain(self._bot.slack.rate_limiter.clock)

    def _spawn(self, work: Work) -> None:
        self._tasks.spawn(work)

    # --- events ---------------------------------------------------------------------------------------------

    async def store_message(self, event: Body, body: Body, next: Callable[[], Awaitable[Any]]) -> None:
        team = str(body.get("team_id") or event.get("team") or "")
        message = parse_message(event, team, self._bot.bot_user_id)
        if message is not None:
            await self._bot.receive(message, str(body.get("event_id") or ""))
        await next()

    async def on_message(self) -> None:
        """All is done: whoever holds the thread works on the message."""

    async def on_app_home_opened(self, event: Body) -> None:
        if event.get("tab") != "messages":
            return
        self._spawn(self._suggest_prompts(str(event["channel"])))

    async def _suggest_prompts(self, channel: str) -> None:
        prompts = await list_prompts(rest_api_for_client(self._bot.supervisor))
        params = {"channel_id": channel, "title": "How can I help?", "prompts": prompts}
        await self._bot.slack.try_call("assistant.threads.setSuggestedPrompts", params)

    async def on_session_stopped(self, event: Body, body: Body) -> None:
        if await self._bot.store.record_if_new(f"event:{body.get('event_id')}"):
            team = str(body.get("team_id") or "")
            channel = str(event["channel"])
            self._spawn(self._bot.stop(team, channel, str(event["thread_ts"]), str(event["user"])))

    async def on_command(self, ack: AsyncAck, respond: AsyncRespond, body: Body) -> None:
        await ack()
        self._spawn(self._respond_to_command(respond, body))

    async def _respond_to_command(self, respond: AsyncRespond, body: Body) -> None:
        async def send(text: str, message_blocks: Sequence[blocks.Block]) -> None:
            await respond(text=text, blocks=list(message_blocks), response_type="ephemeral")

        if is_sign_in_command(body):
            await answer_sign_in_command(self._bot, body, send)
            return
        message = await answer_command(self._bot, body)
        await respond(**message, response_type="ephemeral")

    # --- buttons --------------------------------------------------------------------------------------------

    async def stop(self, ack: AsyncAck, body: Body, action: Body) -> None:
        await ack()
        message = body["message"]
        thread_ts = str(message.get("thread_ts") or message["ts"])
        channel = str(body["channel"]["id"])
        turn_id = str(action["value"])
        self._spawn(self._bot.stop(_team_id(body), channel, thread_ts, _user_id(body), turn_id))

    async def retry(self, ack: AsyncAck, body: Body, action: Body) -> None:
        await ack()
        turn_id = str(action["value"])
        self._spawn(self._report_refusal(body, self._bot.retry(turn_id, _user_id(body))))

    async def drop(self, ack: AsyncAck, body: Body, action: Body) -> None:
        await ack()
        turn_id = str(action["value"])
        message_ts = str(body["message"]["ts"])
        work = self._bot.drop_request(turn_id, _user_id(body), message_ts)
        self._spawn(self._report_refusal(body, work))

    async def _report_refusal(self, body: Body, work: Coroutine[Any, Any, str | None]) -> None:
        """Awaits the work, which returns None or why it was not done."""
        refusal = await work
        if refusal:
            await self._send_ephemeral(body, refusal)

    async def feedback(self, ack: AsyncAck, body: Body, action: Body) -> None:
        await ack()
        score, _, task_id = str(action["value"]).partition(" ")
        owner = self._bot.conversation_owner(body)
        work = self._store_feedback(body, owner, task_id, {"score": score})
        self._spawn(self._report_refusal(body, work))
        if score == "down":
            await self._open_view(body, modals.reason_modal(task=task_id, owner=owner))

    async def submit_reason(self, ack: AsyncAck, body: Body, view: Body) -> None:
        await ack()
        metadata = json.loads(view["private_metadata"])
        reason = modals.read_reason(view)
        if reason:
            feedback = {"score": "down", "reason": reason}
            self._spawn(self._store_feedback(body, metadata["owner"], metadata["task"], feedback))

    async def _store_feedback(self, body: Body, owner: str, task_id: str, feedback: Body) -> str | None:
        """Stores feedback, one after another so that the last one counts; or returns why not."""
        try:
            async with self._feedback_lock:
                user = await self._bot.users.find_user(_team_id(body), _user_id(body))
                api = rest_api_for_client(self._bot.supervisor.on_behalf_of(user.principal, owner))
                await api("PUT", f"/v1/tasks/{task_id}/feedback", dict(feedback))
        except CaipeError as error:
            log.warning("feedback on %s was not stored: %s", task_id, error)
            return "I could not store your feedback. Try again later."
        return None

    async def open_modal(self, ack: AsyncAck, body: Body, action: Body) -> None:
        await ack()
        pressed = RequestButton.from_value(str(action["value"]))
        turn_id, request_id = pressed.turn_id, pressed.request_id
        try:
            authorized = await self._bot.authorize_answer(turn_id, _user_id(body))
            if isinstance(authorized, str):
                await self._send_ephemeral(body, authorized)
                return
            request = await self._bot.requests.fetch_request(*authorized, request_id)
            if not request.is_pending:
                await self._send_ephemeral(body, self._bot.requests.describe_closed(request))
                return
            view = _build_modal(str(action["action_id"]), request.asked, turn=turn_id, request=request_id)
            if view is None:
                await self._send_ephemeral(body, _TOO_LARGE)
            else:
                await self._open_view(body, view)
        except CaipeError as error:
            await self._send_ephemeral(body, describe_error(error))

    async def decide(self, ack: AsyncAck, body: Body, action: Body) -> None:
        await ack()
        pressed = RequestButton.from_value(str(action["value"]))
        decision = _read_decision(str(action["action_id"]), pressed)
        if decision is None:
            await self._send_ephemeral(body, _NOT_SHOWN)
            return
        self._spawn(self._send_decision(body, pressed.turn_id, pressed.request_id, decision))

    async def _send_decision(self, body: Body, turn_id: str, request_id: str, decision: Body) -> None:
        authorized = await self._bot.authorize_answer(turn_id, _user_id(body))
        if isinstance(authorized, str):
            await self._send_ephemeral(body, authorized)
            return
        try:
            errors = await self._bot.requests.answer(*authorized, request_id, decision)
            if errors:
                await self._send_ephemeral(body, " ".join(errors.values()))
        except CaipeError as error:
            await self._send_ephemeral(body, describe_error(error))

    async def _open_view(self, body: Body, view: blocks.Block) -> None:
        if not await self._bot.slack.try_call("views.open", {"trigger_id": body["trigger_id"], "view": view}):
            message = "Slack took too long to open the form. Click the button again."
            await self._send_ephemeral(body, message)

    async def _send_ephemeral(self, body: Body, text: str) -> None:
        message: Body = body.get("message") or {}
        channel = str(body["channel"]["id"])
        await self._bot.send_ephemeral(channel, _user_id(body), text, message.get("thread_ts"))


def _user_id(body: Body) -> str:
    return str(body["user"]["id"])


def _team_id(body: Body) -> str:
    return str(body["team"]["id"])


def _read_decision(action_id: str, pressed: RequestButton) -> Body | None:
    """The decision of a button; None for an approval that does not name the call that was shown."""
    if action_id == request_messages.DECLINE_ACTION:
        return answer_reject()
    if not pressed.digest:
        return None
    return answer_approve(pressed.digest, always=action_id == approval_messages.ALWAYS_ACTION)


def _build_modal(action_id: str, form_or_approval: Form | Approval, **metadata: str) -> blocks.Block | None:
    """The modal that a button of a request opens; None when it would be too large."""
    if action_id == approval_messages.REJECT_ACTION:
        return modals.reject_modal(f"{form_or_approval.describe()}: it will not be done.", **metadata)
    if isinstance(form_or_approval, Form):
        return modals.form_modal(form_or_approval, **metadata)
    return modals.edit_modal(form_or_approval, **metadata, digest=form_or_approval.digest)
