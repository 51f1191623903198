"""What Slack tells the bot: events, clicks, modals and commands. Each is acknowledged first; the work comes after."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

from slack_bolt.async_app import AsyncAck, AsyncApp, AsyncRespond

from ai_platform_engineering.a2a.client import Unreachable
from ai_platform_engineering.a2a.rest_client import rest_api_for_client
from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.events import Approval, Form
from ai_platform_engineering.core.forms import REJECT
from ai_platform_engineering.integrations.slack_bot import blocks, input_requests, modals
from ai_platform_engineering.integrations.slack_bot.bot import Bot
from ai_platform_engineering.integrations.slack_bot.bot_store import TurnRow
from ai_platform_engineering.integrations.slack_bot.commands import answer_command
from ai_platform_engineering.integrations.slack_bot.incoming_messages import parse_message
from ai_platform_engineering.integrations.slack_bot.rate_limits import wait_then_cancel
from ai_platform_engineering.integrations.slack_bot.suggested_prompts import SUGGESTED_PROMPTS
from ai_platform_engineering.integrations.slack_bot.users import SlackUser

log = logging.getLogger(__name__)

Body = Mapping[str, Any]
Work = Coroutine[Any, Any, Any]

_TOO_LARGE = "This is too large to be filled in here. Reject or decline it, and say in the thread what should be different."

_AWAY = "The supervisor cannot be reached, so this was not taken in. Try again in a while."
_DECISIONS: Mapping[str, Body] = {
    input_requests.APPROVE_ACTION: {"type": "approve"},
    input_requests.ALWAYS_ACTION: {"type": "approve", "always": True},
    input_requests.DECLINE_ACTION: {"type": REJECT},
}


class Listeners:
    """Registers everything with the app. Work outlives its acknowledgement and is waited for when the bot stops."""

    def __init__(self, app: AsyncApp, bot: Bot) -> None:
        self._bot = bot
        self._working = set[asyncio.Task[None]]()
        self._rating = asyncio.Lock()
        app.event("app_mention")(self.on_message)
        app.event("message")(self.on_message)
        app.event("app_home_opened")(self.on_app_home_opened)
        app.event("agent_session_stopped")(self.on_session_stopped)
        app.command("/caipe")(self.on_command)
        for action, handler in self._actions().items():
            app.action(action)(handler)
        app.options(modals.VALUE_ACTION)(self.on_options)
        for view, submitted in self._views().items():
            app.view(view)(submitted)

    def _actions(self) -> dict[str, Callable[..., Awaitable[None]]]:
        return {
            blocks.STOP_ACTION: self.stop,
            blocks.RETRY_ACTION: self.retry,
            blocks.FEEDBACK_ACTION: self.feedback,
            input_requests.FILL_ACTION: self.open_modal,
            input_requests.EDIT_ACTION: self.open_modal,
            input_requests.REJECT_ACTION: self.open_modal,
            input_requests.APPROVE_ACTION: self.decide,
            input_requests.ALWAYS_ACTION: self.decide,
            input_requests.DECLINE_ACTION: self.decide,
            input_requests.DROP_ACTION: self.drop,
        }

    def _views(self) -> dict[str, Callable[..., Awaitable[None]]]:
        return {
            modals.FORM_VIEW: self.submit_form,
            modals.EDIT_VIEW: self.submit_edit,
            modals.REJECT_VIEW: self.submit_rejection,
            modals.REASON_VIEW: self.submit_reason,
        }

    async def resume(self) -> None:
        """Goes on with what an earlier process has heard."""
        for said in await self._bot.store.list_unhandled():
            self._spawn(self._bot.resume_message(said))

    async def drain(self) -> None:
        await wait_then_cancel(self._bot.slack.rate_limiter.clock, list(self._working))

    def _spawn(self, work: Work) -> None:
        task = asyncio.create_task(self._safely(work))
        self._working.add(task)
        task.add_done_callback(self._working.discard)

    async def _safely(self, work: Work) -> None:
        try:
            await work
        except CaipeError as error:
            log.warning("%s", error)
        except Exception as error:
            log.exception("an event could not be worked on: %s", type(error).__name__)

    # --- events -------------------------------------------------------------------------------------------------------

    async def on_message(self, event: Body, body: Body) -> None:
        team = str(body.get("team_id") or event.get("team") or "")
        if (said := parse_message(event, team, self._bot.bot_user_id)) is not None:
            self._spawn(self._bot.handle_message(said, str(body.get("event_id") or "")))

    async def on_app_home_opened(self, event: Body) -> None:
        if event.get("tab") == "messages":
            prompts = {
                "channel_id": event["channel"],
                "title": "What can I do for you?",
                "prompts": [dict(one) for one in SUGGESTED_PROMPTS],
            }
            self._spawn(self._attempt("assistant.threads.setSuggestedPrompts", prompts))

    async def _attempt(self, method: str, params: Body) -> None:
        await self._bot.slack.try_call(method, params)

    async def on_session_stopped(self, event: Body, body: Body) -> None:
        if await self._bot.store.record_if_new(f"event:{body.get('event_id')}"):
            team = str(body.get("team_id") or "")
            self._spawn(
                self._bot.stop(team, str(event["channel"]), str(event["thread_ts"]), str(event["user"]))
            )

    async def on_command(self, ack: AsyncAck, respond: AsyncRespond, body: Body) -> None:
        await ack()
        self._spawn(self._respond(respond, body))

    async def _respond(self, respond: AsyncRespond, body: Body) -> None:
        await respond(**await answer_command(self._bot, body), response_type="ephemeral")

    # --- buttons ------------------------------------------------------------------------------------------------------

    async def stop(self, ack: AsyncAck, body: Body, action: Body) -> None:
        await ack()
        channel = str(body["channel"]["id"])
        message = body["message"]
        team = str(body["team"]["id"])
        thread_ts = str(message.get("thread_ts") or message["ts"])
        self._spawn(self._bot.stop(team, channel, thread_ts, str(body["user"]["id"]), str(action["value"])))

    async def retry(self, ack: AsyncAck, body: Body, action: Body) -> None:
        await ack()
        self._spawn(self._told(body, self._bot.retry(str(action["value"]), str(body["user"]["id"]))))

    async def drop(self, ack: AsyncAck, body: Body, action: Body) -> None:
        await ack()
        self._spawn(
            self._told(
                body,
                self._bot.drop_request(
                    str(action["value"]), str(body["user"]["id"]), str(body["message"]["ts"])
                ),
            )
        )

    async def _told(self, body: Body, work: Coroutine[Any, Any, str | None]) -> None:
        """Does it, or says why not."""
        if refusal := await work:
            await self._whisper(body, refusal)

    async def feedback(self, ack: AsyncAck, body: Body, action: Body) -> None:
        await ack()
        score, _, task_id = str(action["value"]).partition(" ")
        owner = self._bot.conversation_owner(body)
        self._spawn(self._told(body, self._rate(body, owner, task_id, {"score": score})))
        if score == "down":
            await self._open(body, modals.reason_modal(task=task_id, owner=owner))

    async def _rate(self, body: Body, owner: str, task_id: str, said: Body) -> str | None:
        """Stores it, one after another so that the last word counts; or why not."""
        try:
            async with self._rating:
                person = await self._bot.users.find_user(str(body["team"]["id"]), str(body["user"]["id"]))
                api = rest_api_for_client(self._bot.supervisor.on_behalf_of(person.principal, owner))
                await api("PUT", f"/v1/tasks/{task_id}/feedback", dict(said))
        except CaipeError as error:
            log.warning("feedback on %s was not stored: %s", task_id, error)
            return "I could not store what you think of it. Try again in a while."
        return None

    async def open_modal(self, ack: AsyncAck, body: Body, action: Body) -> None:
        await ack()
        turn_id, _, request_id = str(action["value"]).partition(" ")
        try:
            allowed = await self._bot.authorize_answer(turn_id, str(body["user"]["id"]))
            if isinstance(allowed, str):
                await self._whisper(body, allowed)
                return
            pending = await self._bot.requests.fetch_request(*allowed, request_id)
            if not pending.is_pending:
                await self._whisper(body, self._bot.requests.describe_closed(pending))
                return
            view = _modal(str(action["action_id"]), pending.asked, turn=turn_id, request=request_id)
            if view is None:
                await self._whisper(body, _TOO_LARGE)
            else:
                await self._open(body, view)
        except CaipeError as error:
            await self._whisper(body, _in_words(error))

    async def decide(self, ack: AsyncAck, body: Body, action: Body) -> None:
        await ack()
        turn_id, _, request_id = str(action["value"]).partition(" ")
        self._spawn(self._decide(body, turn_id, request_id, _DECISIONS[str(action["action_id"])]))

    async def _decide(self, body: Body, turn_id: str, request_id: str, given: Body) -> None:
        allowed = await self._bot.authorize_answer(turn_id, str(body["user"]["id"]))
        if isinstance(allowed, str):
            await self._whisper(body, allowed)
            return
        try:
            wrong = await self._bot.requests.answer(*allowed, request_id, given)
            if wrong:
                await self._whisper(body, " ".join(wrong.values()))
        except CaipeError as error:
            await self._whisper(body, _in_words(error))

    async def _open(self, body: Body, view: blocks.Block) -> None:
        if not await self._bot.slack.try_call("views.open", {"trigger_id": body["trigger_id"], "view": view}):
            await self._whisper(body, "Slack took too long to open the form. Click the button once more.")

    async def _whisper(self, body: Body, text: str) -> None:
        message: Body = body.get("message") or {}
        await self._bot.send_ephemeral(
            str(body["channel"]["id"]), str(body["user"]["id"]), text, message.get("thread_ts")
        )

    # --- modals -------------------------------------------------------------------------------------------------------

    async def on_options(self, ack: AsyncAck, body: Body) -> None:
        """The choices of a field with more than Slack lists."""
        said = json.loads(body["view"]["private_metadata"])
        allowed = await self._bot.authorize_answer(said["turn"], str(body["user"]["id"]))
        if isinstance(allowed, str):
            await ack(options=[])
            return
        try:
            asked = (await self._bot.requests.fetch_request(*allowed, said["request"])).asked
        except CaipeError as error:
            log.warning("%s", error)
            await ack(options=[])
            return
        found = (
            modals.find_options(asked, str(body["block_id"]), str(body.get("value") or ""))
            if isinstance(asked, Form)
            else []
        )
        await ack(options=found)

    async def submit_form(self, ack: AsyncAck, body: Body, view: Body) -> None:
        async def values(row: TurnRow, person: SlackUser, request_id: str) -> Body:
            asked = (await self._bot.requests.fetch_request(row, person, request_id)).asked
            if isinstance(asked, Form):
                return modals.read_values(asked, view)
            return {}

        await self._submit(ack, body, view, values)

    async def submit_edit(self, ack: AsyncAck, body: Body, view: Body) -> None:
        arguments, wrong = modals.read_arguments(view)
        if wrong:
            await ack(response_action="errors", errors=wrong)
            return

        async def edited(row: TurnRow, person: SlackUser, request_id: str) -> Body:
            asked = (await self._bot.requests.fetch_request(row, person, request_id)).asked
            kept = asked.arguments if isinstance(asked, Approval) else None
            return {"type": "edit", "arguments": modals.restore_secrets(arguments, kept)}

        await self._submit(ack, body, view, edited)

    async def submit_rejection(self, ack: AsyncAck, body: Body, view: Body) -> None:
        reason = modals.read_reason(view)
        await self._submit(
            ack, body, view, _always({"type": REJECT, **({"message": reason} if reason else {})})
        )

    async def _submit(
        self,
        ack: AsyncAck,
        body: Body,
        view: Body,
        given: Callable[[TurnRow, SlackUser, str], Awaitable[Body]],
    ) -> None:
        """Sends an answer; what the supervisor finds wrong stands at its field, and the modal stays open."""
        said, began = json.loads(view["private_metadata"]), asyncio.get_running_loop().time()
        try:
            allowed = await self._bot.authorize_answer(said["turn"], str(body["user"]["id"]))
            if isinstance(allowed, str):
                await _refuse(
                    ack, view, {"": await self._bot.reader.to_plain_text(allowed, str(body["team"]["id"]))}
                )  # it draws no mentions
                return
            values = await given(*allowed, said["request"])
            wrong = await self._bot.requests.answer_from_modal(*allowed, said["request"], values, began)
        except CaipeError as error:
            wrong = {"": _in_words(error)}
        if wrong:
            await _refuse(ack, view, wrong)
        else:
            await ack()

    async def submit_reason(self, ack: AsyncAck, body: Body, view: Body) -> None:
        await ack()
        said, reason = json.loads(view["private_metadata"]), modals.read_reason(view)
        if reason:
            self._spawn(self._rate(body, said["owner"], said["task"], {"score": "down", "reason": reason}))


def _in_words(error: CaipeError) -> str:
    """What went wrong, for people: the address of a server is none of their business."""
    if isinstance(error, Unreachable):
        return _AWAY
    return blocks.escape_line(str(error))


async def _refuse(ack: AsyncAck, view: Body, wrong: Mapping[str, str]) -> None:
    if errors := modals.place_errors(view, wrong):
        await ack(response_action="errors", errors=errors)
    else:
        await ack(response_action="update", view=modals.notice_modal(" ".join(wrong.values())))


def _always(given: Body) -> Callable[[TurnRow, SlackUser, str], Awaitable[Body]]:
    async def give(_: TurnRow, __: SlackUser, ___: str) -> Body:
        return given

    return give


def _modal(action: str, asked: Form | Approval, **metadata: str) -> blocks.Block | None:
    if action == input_requests.REJECT_ACTION:
        return modals.reject_modal(f"{asked.describe()}: it will not be done.", **metadata)
    if isinstance(asked, Form):
        return modals.form_modal(asked, **metadata)
    return modals.edit_modal(asked, **metadata)
