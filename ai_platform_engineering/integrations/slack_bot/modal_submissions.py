"""Submitted modals that answer a request: the values of a form, edited arguments, or a rejection.

Errors of the supervisor are shown at their fields, and the modal stays open.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from slack_bolt.async_app import AsyncAck

from ai_platform_engineering.a2a.client import Unreachable
from ai_platform_engineering.core.decisions import answer_edit, answer_reject
from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.events import Approval, Form
from ai_platform_engineering.integrations.slack_bot import blocks, form_inputs, modals
from ai_platform_engineering.integrations.slack_bot.bot import Bot
from ai_platform_engineering.integrations.slack_bot.secret_masks import MaskChanged, restore_secrets
from ai_platform_engineering.integrations.slack_bot.turn_rows import TurnRow
from ai_platform_engineering.integrations.slack_bot.users import SlackUser

log = logging.getLogger(__name__)

Body = Mapping[str, Any]
BuildAnswer = Callable[[TurnRow, SlackUser, str], Awaitable[Body]]

_AWAY = "The supervisor cannot be reached, so this was not accepted. Try again later."


@dataclass(frozen=True, slots=True)
class ModalSubmissions:
    bot: Bot

    async def on_options(self, ack: AsyncAck, body: Body) -> None:
        """Offers the options of a field that has more of them than Slack lists."""
        metadata = json.loads(body["view"]["private_metadata"])
        authorized = await self.bot.authorize_answer(metadata["turn"], str(body["user"]["id"]))
        if isinstance(authorized, str):
            await ack(options=[])
            return
        options = []
        try:
            request = await self.bot.requests.fetch_request(*authorized, metadata["request"])
        except CaipeError as error:
            log.warning("%s", error)
        else:
            if isinstance(request.asked, Form):
                typed = str(body.get("value") or "")
                options = form_inputs.find_options(request.asked, str(body["block_id"]), typed)
        await ack(options=options)

    async def submit_form(self, ack: AsyncAck, body: Body, view: Body) -> None:
        async def read_values(row: TurnRow, user: SlackUser, request_id: str) -> Body:
            request = await self.bot.requests.fetch_request(row, user, request_id)
            if isinstance(request.asked, Form):
                return form_inputs.read_values(request.asked, view)
            return {}

        await self._submit(ack, body, view, read_values)

    async def submit_edit(self, ack: AsyncAck, body: Body, view: Body) -> None:
        arguments, errors = modals.read_arguments(view)
        if errors:
            await ack(response_action="errors", errors=errors)
            return

        async def build_edit(row: TurnRow, user: SlackUser, request_id: str) -> Body:
            request = await self.bot.requests.fetch_request(row, user, request_id)
            original = None
            if isinstance(request.asked, Approval):
                original = request.asked.arguments
            try:
                restored = restore_secrets(arguments, original)
            except MaskChanged as error:
                raise CaipeError(str(error)) from None
            digest = str(json.loads(view["private_metadata"]).get("digest") or "")
            return answer_edit(restored, digest)

        await self._submit(ack, body, view, build_edit)

    async def submit_rejection(self, ack: AsyncAck, body: Body, view: Body) -> None:
        rejection = answer_reject(modals.read_reason(view))

        async def build_rejection(_: TurnRow, __: SlackUser, ___: str) -> Body:
            return rejection

        await self._submit(ack, body, view, build_rejection)

    async def _submit(self, ack: AsyncAck, body: Body, view: Body, build_answer: BuildAnswer) -> None:
        started = asyncio.get_running_loop().time()
        metadata = json.loads(view["private_metadata"])
        request_id = metadata["request"]
        try:
            authorized = await self.bot.authorize_answer(metadata["turn"], str(body["user"]["id"]))
            if isinstance(authorized, str):
                # Modals do not render mentions.
                refusal = await self.bot.reader.to_plain_text(authorized, str(body["team"]["id"]))
                await _show_errors(ack, view, {"": refusal})
                return
            answer = await build_answer(*authorized, request_id)
            errors = await self.bot.requests.answer_from_modal(*authorized, request_id, answer, started)
        except CaipeError as error:
            errors = {"": describe_error(error)}
        if errors:
            await _show_errors(ack, view, errors)
        else:
            await ack()


async def _show_errors(ack: AsyncAck, view: Body, errors: Mapping[str, str]) -> None:
    """Shows errors at their fields, or in place of a modal that has none."""
    errors_by_block = modals.place_errors(view, errors)
    if errors_by_block:
        await ack(response_action="errors", errors=errors_by_block)
    else:
        await ack(response_action="update", view=modals.notice_modal(" ".join(errors.values())))


def describe_error(error: CaipeError) -> str:
    """An error for people; it does not name the address of the supervisor."""
    if isinstance(error, Unreachable):
        return _AWAY
    return blocks.escape_line(str(error))
