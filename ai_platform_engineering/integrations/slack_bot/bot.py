"""The bot: handles messages that people write in Slack, and checks who may answer a request."""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from ai_platform_engineering.a2a.client import A2AClient
from ai_platform_engineering.integrations.slack_bot.blocks import Block
from ai_platform_engineering.integrations.slack_bot.bot_store import BotStore
from ai_platform_engineering.integrations.slack_bot.channel_config import ChannelConfig, ReloadableConfig
from ai_platform_engineering.integrations.slack_bot.incoming_messages import SlackMessage
from ai_platform_engineering.integrations.slack_bot.input_requests import SlackInputRequests
from ai_platform_engineering.integrations.slack_bot.message_reader import MessageReader
from ai_platform_engineering.integrations.slack_bot.sign_ins import SlackSignIns
from ai_platform_engineering.integrations.slack_bot.stream_progress import StreamProgress
from ai_platform_engineering.integrations.slack_bot.turn_rows import (
    ThreadKey,
    TurnRow,
    find_thread,
    thread_owner,
)
from ai_platform_engineering.integrations.slack_bot.turn_runner import TurnRunner
from ai_platform_engineering.integrations.slack_bot.users import SlackUser, UserDirectory
from ai_platform_engineering.integrations.slack_bot.web_api import SlackApi

log = logging.getLogger(__name__)

_HOUR = 3600.0
_NOTHING_TO_STOP = "Nothing is running in this thread."
_TOO_OLD = "This is too old: I no longer have a record of it."
_EMPTY = "How can I help? Write your question after my name, or try `/caipe help`."


@dataclass(slots=True)
class Bot:
    slack: SlackApi
    supervisor: A2AClient
    store: BotStore
    users: UserDirectory
    config: ReloadableConfig
    turns: TurnRunner
    requests: SlackInputRequests
    reader: MessageReader
    sign_ins: SlackSignIns
    bot_user_id: str = ""
    begin_thread: Callable[[ThreadKey], None] = field(default=lambda _: None)

    # --- questions ------------------------------------------------------------------------------------------

    async def receive(self, message: SlackMessage, event_id: str) -> None:
        """Stores a message for the process that handles it: at most once, however often and to whomever Slack
        delivers it.

        Raises StorageFailed; Slack has to deliver the message again then.
        """
        channel = self.config.for_channel(message.channel)
        if not channel.enabled or not _is_from_somebody(message, channel):
            return
        follow_up = not message.mentions and not message.direct
        if follow_up and not _is_follow_up(message, channel):
            return
        keys = (f"event:{event_id or message.turn_id}", f"message:{message.turn_id}")
        if await self.store.receive(message, *keys, follow_up=follow_up) == "here":
            self.begin_thread(find_thread(message))

    async def handle(self, message: SlackMessage) -> None:
        """Answers a message of a thread that this process holds; an earlier one may have begun with it."""
        channel = self.config.for_channel(message.channel)
        follow_up = not message.mentions and not message.direct
        if follow_up and await self.store.last_sent_ts(*find_thread(message)) is None:
            return  # the question before it was refused, so the bot takes no part in the thread
        if await self.store.find_turn(message.turn_id) is None:
            await self._respond(message, channel)

    async def _respond(self, message: SlackMessage, channel: ChannelConfig) -> None:
        if message.is_stop() and message.in_thread:
            await self.stop(message.team, message.channel, message.thread_ts, message.user)
            return
        refusal = await self._check_may_answer(message)
        if not refusal:
            refusal = await self._check_limits(message, channel)
        if refusal:
            await self._reply_ephemeral(message, refusal)
            return
        await self._ask(message, channel)

    async def _check_limits(self, message: SlackMessage, channel: ChannelConfig) -> str | None:
        """Why the message is not answered now: quiet hours, no text, or too many questions."""
        now = self.slack.rate_limiter.clock.now()
        quiet = channel.quiet_hours
        if quiet is not None and quiet.includes(datetime.fromtimestamp(now, UTC)):
            until = f"{quiet.end:%H:%M} ({quiet.timezone})"
            return f"I am quiet in this channel until {until}. Ask me in a direct message."
        if message.is_empty():
            return _EMPTY
        limit = channel.questions_per_hour
        oldest = await self.store.record_question(message.channel, message.author, limit)
        if oldest is None:
            return None
        minutes = max(1, round((_HOUR - (now - oldest)) / 60))
        return (
            f"You have asked {limit} questions here in the last hour, which is the limit. "
            f"Ask again in {minutes} min."
        )

    async def _ask(self, message: SlackMessage, channel: ChannelConfig) -> None:
        """Sends a question to the supervisor, with its files and the messages before it in the thread."""
        user = await self.users.find_user(message.team, message.author)
        sent_until = await self.store.last_sent_ts(message.channel, message.thread_ts)
        earlier = await self.reader.read_earlier_messages(message, sent_until, self.bot_user_id)
        files, problems = await self.reader.read_files(message, channel.file_bytes)
        await self.store.record_sent(message.channel, message.thread_ts, message.ts)
        if problems:
            await self._reply_ephemeral(message, " ".join(problems))
        text = await self.reader.to_plain_text(message.text, message.team)
        if not text.strip() and not files:
            return
        if earlier is not None:
            files = (earlier, *files)
        order = {
            "message_id": f"slack:{message.turn_id}",
            "text": text,
            "files": [file.model_dump() for file in files],
            "scope": channel.scope(),
        }
        row = TurnRow(
            turn_id=message.turn_id,
            team=message.team,
            channel=message.channel,
            thread_ts=message.thread_ts,
            user=message.author,
            principal=user.principal,
            order=order,
        )
        await self.turns.start(row)

    async def _check_may_answer(self, message: SlackMessage) -> str | None:
        """Why somebody may not write in a thread that waits for an answer: what they write may be taken as
        one.
        """
        for row in await self.store.list_open_turns(message.channel, message.thread_ts):
            if not await self.requests.is_waiting(row):
                continue
            authorized = await self.authorize_answer(row.turn_id, message.author)
            if isinstance(authorized, str):
                return f"This thread waits for an answer. {authorized}"
        return None

    async def retry(self, turn_id: str, user_id: str) -> str | None:
        """Asks the question of a turn again, once; or returns why not."""
        row = await self.store.find_turn(turn_id)
        if row is None:
            return _TOO_OLD
        new_turn_id = f"{turn_id}:again"
        if not await self.store.record_if_new(f"message:{new_turn_id}"):
            return "This was already retried, below."
        user = await self.users.find_user(row.team, user_id)
        order = {**row.order, "message_id": f"slack:{new_turn_id}"}
        await self.turns.start(_new_turn(row, new_turn_id, user, order))
        return None

    async def drop_request(self, turn_id: str, user_id: str, ts: str) -> str | None:
        """Drops the requests of a run, so that a message that waits is asked instead; or returns why not."""
        authorized = await self.authorize_answer(turn_id, user_id)
        if isinstance(authorized, str):
            return authorized
        row, user = authorized
        is_waiting = row.state == "open" and await self.requests.is_waiting(row)
        if not is_waiting or not await self.store.record_if_new(f"drop:{row.channel}:{ts}"):
            return "There is nothing left to drop here."
        new_turn_id = f"{row.channel}:{ts}:drop"
        scope = self.config.for_channel(row.channel).scope()
        order = {"message_id": f"slack:{new_turn_id}", "text": "drop", "scope": scope}
        await self.turns.start(_new_turn(row, new_turn_id, user, order))
        return None

    async def stop(
        self, team: str, channel: str, thread_ts: str, user_id: str, turn_id: str | None = None
    ) -> None:
        user = await self.users.find_user(team, user_id)
        if not await self.turns.stop(channel, thread_ts, user.principal, turn_id):
            await self.send_ephemeral(channel, user_id, _NOTHING_TO_STOP, thread_ts)

    # --- users ----------------------------------------------------------------------------------------------

    async def authorize_answer(self, turn_id: str, user_id: str) -> tuple[TurnRow, SlackUser] | str:
        """The turn, and the user who may answer its requests; or why they may not."""
        row = await self.store.find_turn(turn_id)
        if row is None:
            return _TOO_OLD
        user = await self.users.find_user(row.team, user_id)
        approvers = self.config.for_channel(row.channel).approvers
        if await self.users.may_answer(approvers, user, row.user):
            return row, user
        names = ", ".join(_format_approver(approver, row.user) for approver in approvers)
        return f"You may not answer this. In this channel it is for {names}."

    async def _reply_ephemeral(self, message: SlackMessage, text: str) -> None:
        await self.send_ephemeral(message.channel, message.user, text, message.reply_thread_ts)

    async def send_ephemeral(
        self, channel: str, user_id: str, text: str, thread_ts: str | None = None
    ) -> None:
        """Sends a message that only one user sees."""
        if user_id:
            params = {"channel": channel, "user": user_id, "text": text, "thread_ts": thread_ts}
            await self.slack.try_call("chat.postEphemeral", params)

    async def send_private(
        self, channel: str, thread_ts: str, user_id: str, text: str, message_blocks: Sequence[Block]
    ) -> None:
        """Sends a message that only one user sees, or a direct one where the bot is not in the channel."""
        content: dict[str, Any] = {"text": text}
        if message_blocks:
            content["blocks"] = list(message_blocks)
        params = {"channel": channel, "user": user_id, "thread_ts": thread_ts or None, **content}
        if not await self.slack.try_call("chat.postEphemeral", params):
            await self.slack.try_call("chat.postMessage", {"channel": user_id, **content})

    async def offer_sign_ins(self, row: TurnRow, agents: Collection[str]) -> None:
        """Offers the sign-ins that agents lack to the person who asked."""
        send = partial(self.send_private, row.channel, row.thread_ts, row.user)
        await self.sign_ins.offer(row, agents, send)

    def conversation_owner(self, body: Mapping[str, Any]) -> str:
        """The owner of the conversation of the thread in which a button was clicked."""
        message: Mapping[str, Any] = body.get("message") or {}
        thread_ts = str(message.get("thread_ts") or message.get("ts"))
        return thread_owner(str(body["team"]["id"]), str(body["channel"]["id"]), thread_ts)


def _is_from_somebody(message: SlackMessage, channel: ChannelConfig) -> bool:
    """Whether a person wrote it, or a bot that is answered."""
    if message.bot and message.bot not in channel.bots:
        return False
    return bool(message.author)


def _is_follow_up(message: SlackMessage, channel: ChannelConfig) -> bool:
    """Whether a message without a mention may be one for the bot."""
    if not channel.follow_ups or not message.in_thread:
        return False
    return not message.is_addressed_to_others() and not message.is_empty()


def _new_turn(row: TurnRow, turn_id: str, user: SlackUser, order: Mapping[str, Any]) -> TurnRow:
    """Another turn in the thread of a turn, for the user who asked for it."""
    return replace(
        row,
        turn_id=turn_id,
        user=user.user_id,
        principal=user.principal,
        order=order,
        task_id=None,
        state="open",
        drawn=StreamProgress(),
    )


def _format_approver(approver: str, requester: str) -> str:
    if approver == "requester":
        return f"<@{requester}>"
    if approver[0] in "UW" and approver.isalnum():
        return f"<@{approver}>"
    if approver[0] == "S" and approver.isalnum():
        return f"<!subteam^{approver}>"
    return approver
