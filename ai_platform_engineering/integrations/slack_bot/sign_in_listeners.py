"""Listeners for sign-ins: the button of an offer, the modal for the address, and the commands."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from slack_bolt.async_app import AsyncAck, AsyncApp

from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.integrations.slack_bot.blocks import Block
from ai_platform_engineering.integrations.slack_bot.bot import Bot
from ai_platform_engineering.integrations.slack_bot.event_tasks import EventTasks
from ai_platform_engineering.integrations.slack_bot.modal_submissions import describe_error
from ai_platform_engineering.integrations.slack_bot.sign_in_messages import (
    ADDRESS_BLOCK,
    LINK_ACTION,
    PASTE_ACTION,
    PASTE_VIEW,
    SIGN_IN_ACTION,
    PasteMetadata,
    SignInButton,
    paste_modal,
    read_pasted_answer,
    signed_in_blocks,
)

Body = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SignInListeners:
    bot: Bot
    tasks: EventTasks

    def register(self, app: AsyncApp) -> None:
        app.action(SIGN_IN_ACTION)(self.begin)
        app.action(LINK_ACTION)(self.open_link)
        app.action(PASTE_ACTION)(self.open_modal)
        app.view(PASTE_VIEW)(self.finish)

    async def open_link(self, ack: AsyncAck) -> None:
        """Slack itself opens the page."""
        await ack()

    async def begin(self, ack: AsyncAck, body: Body, action: Body) -> None:
        await ack()
        target = SignInButton.from_value(str(action["value"]))
        self.tasks.spawn(self._begin(body, target))

    async def _begin(self, body: Body, target: SignInButton) -> None:
        """For the person who presses, whoever the button was for."""
        channel, thread_ts, user_id = _place(body)
        user = await self.bot.users.find_user(str(body["team"]["id"]), user_id)
        send = partial(self.bot.send_private, channel, thread_ts, user_id)
        try:
            await self.bot.sign_ins.begin(user.principal, target, channel, thread_ts, send)
        except CaipeError as error:
            await send(describe_error(error), ())

    async def open_modal(self, ack: AsyncAck, body: Body, action: Body) -> None:
        await ack()
        metadata = PasteMetadata(**json.loads(str(action["value"])))
        params = {"trigger_id": body["trigger_id"], "view": paste_modal(metadata)}
        if not await self.bot.slack.try_call("views.open", params):
            channel, thread_ts, user_id = _place(body)
            message = "Slack took too long to open the form. Click the button again."
            await self.bot.send_private(channel, thread_ts, user_id, message, ())

    async def finish(self, ack: AsyncAck, body: Body, view: Body) -> None:
        """For the person who sends the modal: the supervisor refuses a sign-in that somebody else began."""
        metadata = PasteMetadata(**json.loads(view["private_metadata"]))
        user_id = str(body["user"]["id"])
        user = await self.bot.users.find_user(str(body["team"]["id"]), user_id)
        try:
            server = await self.bot.sign_ins.finish(user.principal, metadata, read_pasted_answer(view))
        except CaipeError as error:
            await ack(response_action="errors", errors={ADDRESS_BLOCK: describe_error(error)[:150]})
            return
        await ack()
        blocks: Sequence[Block] = signed_in_blocks(server, metadata.turn_id)
        text = f"You are signed in to {server}."
        self.tasks.spawn(self.bot.send_private(metadata.channel, metadata.thread_ts, user_id, text, blocks))


def _place(body: Body) -> tuple[str, str, str]:
    """The channel, the thread if there is one, and the user of a click; ephemeral messages have no more."""
    container: Body = body.get("container") or {}
    message: Body = body.get("message") or {}
    thread_ts = container.get("thread_ts") or message.get("thread_ts") or ""
    return str(body["channel"]["id"]), str(thread_ts), str(body["user"]["id"])
