"""The bot: what it does with what people say and click in Slack."""

import asyncio
import logging
from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any
from weakref import WeakValueDictionary

from ai_platform_engineering.a2a.client import A2AClient
from ai_platform_engineering.integrations.slack_bot.bot_store import BotStore, TurnRow, thread_owner
from ai_platform_engineering.integrations.slack_bot.channel_config import ChannelConfig, ReloadableConfig
from ai_platform_engineering.integrations.slack_bot.incoming_messages import MessageReader, SlackMessage
from ai_platform_engineering.integrations.slack_bot.input_requests import SlackInputRequests
from ai_platform_engineering.integrations.slack_bot.slack_stream import StreamProgress
from ai_platform_engineering.integrations.slack_bot.turns import TurnRunner
from ai_platform_engineering.integrations.slack_bot.users import SlackUser, UserDirectory
from ai_platform_engineering.integrations.slack_bot.web_api import SlackApi

log = logging.getLogger(__name__)

_HOUR = 3600.0
_NOTHING_TO_STOP = "Nothing is going on in this thread."
_TOO_OLD = "This is too old: I do not know of it any more."
_EMPTY = "What can I do for you? Write your question after my name, or ask `/caipe help`."


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
    bot_user_id: str = ""  # the bot's own user id
    _asked: dict[tuple[str, str], deque[float]] = field(default_factory=lambda: defaultdict(deque))
    _hearing: WeakValueDictionary[tuple[str, str], asyncio.Lock] = field(
        default_factory=WeakValueDictionary
    )  # by thread

    # --- questions ----------------------------------------------------------------------------------------------------

    async def handle_message(self, heard: SlackMessage, event_id: str) -> None:
        """A message that somebody wrote. Each one is answered at most once, however often Slack tells of it; those of a thread in order."""
        async with self._in_order(heard):
            channel = self.config.for_channel(heard.channel)
            if not channel.enabled or not await self._is_for_us(heard, channel):
                return
            if await self.store.record_if_new(
                f"event:{event_id or heard.turn_id}", f"message:{heard.turn_id}", message=heard
            ):
                await self._work_on(heard, channel)

    async def resume_message(self, heard: SlackMessage) -> None:
        """A message that an earlier process has heard, and perhaps not asked."""
        async with self._in_order(heard):
            if await self.store.find_turn(heard.turn_id) is None:
                await self._work_on(heard, self.config.for_channel(heard.channel))
            await self.store.mark_handled(heard)

    def _in_order(self, heard: SlackMessage) -> asyncio.Lock:
        return self._hearing.setdefault((heard.channel, heard.thread_ts), asyncio.Lock())

    async def _work_on(self, heard: SlackMessage, channel: ChannelConfig) -> None:
        try:
            await self._take(heard, channel)
        except Exception:
            await self.store.mark_handled(heard)  # it would go wrong again
            raise
        await self.store.mark_handled(heard)

    async def _take(self, heard: SlackMessage, channel: ChannelConfig) -> None:
        if heard.is_stop() and heard.in_thread:
            await self.stop(heard.team, heard.channel, heard.thread_ts, heard.user)
            return
        if refusal := await self._not_theirs(heard) or self._refusal(heard, channel):
            await self.send_ephemeral(
                heard.channel, heard.user, refusal, heard.thread_ts if heard.in_thread else None
            )
            return
        await self._ask(heard, channel)

    async def _is_for_us(self, heard: SlackMessage, channel: ChannelConfig) -> bool:
        if heard.bot and heard.bot not in channel.bots:
            return False
        if not heard.user and not heard.bot:
            return False
        if heard.mentions or heard.direct:
            return True
        if (
            not channel.follow_ups
            or not heard.in_thread
            or heard.is_addressed_to_others()
            or heard.is_empty()
        ):
            return False
        return await self.store.last_sent_ts(heard.channel, heard.thread_ts) is not None

    def _refusal(self, heard: SlackMessage, channel: ChannelConfig) -> str | None:
        """Why there is no answer now, for the person alone."""
        now = self.slack.rate_limiter.clock.now()
        quiet = channel.quiet_hours
        if quiet is not None and quiet.includes(datetime.fromtimestamp(now, UTC)):
            return f"I am quiet in this channel until {quiet.end:%H:%M} ({quiet.timezone}). Ask me in a direct message."
        if heard.is_empty():
            return _EMPTY
        asked = self._asked[heard.channel, heard.user or heard.bot]
        while asked and now - asked[0] >= _HOUR:
            asked.popleft()
        if len(asked) >= channel.questions_per_hour:
            minutes = max(1, round((_HOUR - (now - asked[0])) / 60))
            return f"You have asked {len(asked)} questions here in the last hour, and that is the most. Ask again in {minutes} min."
        asked.append(now)
        return None

    async def _ask(self, heard: SlackMessage, channel: ChannelConfig) -> None:
        person = await self.users.find_user(heard.team, heard.user or heard.bot)
        given = await self.store.last_sent_ts(heard.channel, heard.thread_ts)
        earlier = await self.reader.read_earlier_messages(heard, given, self.bot_user_id)
        files, problems = await self.reader.read_files(heard, channel.file_bytes)
        await self.store.record_sent(heard.channel, heard.thread_ts, heard.ts)
        if problems:
            await self.send_ephemeral(
                heard.channel, heard.user, " ".join(problems), heard.thread_ts if heard.in_thread else None
            )
        text = await self.reader.to_plain_text(heard.text, heard.team)
        if not text.strip() and not files:
            return
        order = {
            "message_id": f"slack:{heard.turn_id}",
            "text": text,
            "files": [one.model_dump() for one in (*((earlier,) if earlier else ()), *files)],
            "scope": channel.scope(),
        }
        who = heard.user or heard.bot
        row = TurnRow(heard.turn_id, heard.team, heard.channel, heard.thread_ts, who, person.principal, order)
        await self.turns.start(row)

    async def _not_theirs(self, heard: SlackMessage) -> str | None:
        """In a thread that waits for an answer, what somebody writes may be one: only those may write who may answer."""
        for row in await self.store.list_open_turns(heard.channel, heard.thread_ts):
            if await self.requests.is_waiting(row) and isinstance(
                allowed := await self.authorize_answer(row.turn_id, heard.user or heard.bot), str
            ):
                return f"This thread waits for an answer. {allowed}"
        return None

    async def retry(self, turn_id: str, user: str) -> str | None:
        """The same question again, once, for whoever asks for it; or why not."""
        row = await self.store.find_turn(turn_id)
        again = f"{turn_id}:again"
        if row is None:
            return _TOO_OLD
        if not await self.store.record_if_new(f"message:{again}"):
            return "This was already tried again, below."
        person = await self.users.find_user(row.team, user)
        order = {**row.order, "message_id": f"slack:{again}"}
        new = replace(
            row,
            turn_id=again,
            user=user,
            principal=person.principal,
            order=order,
            task_id=None,
            state="open",
            drawn=StreamProgress(),
        )
        await self.turns.start(new)
        return None

    async def drop_request(self, turn_id: str, user: str, ts: str) -> str | None:
        """What a run asks is dropped, and what was said meanwhile is asked in its place; or why not."""
        allowed = await self.authorize_answer(turn_id, user)
        if isinstance(allowed, str):
            return allowed
        row, person = allowed
        if (
            row.state != "open"
            or not await self.requests.is_waiting(row)
            or not await self.store.record_if_new(f"drop:{row.channel}:{ts}")
        ):
            return "There is nothing to drop here any more."
        order = {
            "message_id": f"slack:{row.channel}:{ts}:drop",
            "text": "drop",
            "scope": self.config.for_channel(row.channel).scope(),
        }
        new = replace(
            row, turn_id=f"{row.channel}:{ts}:drop", user=user, principal=person.principal, order=order
        )
        await self.turns.start(replace(new, task_id=None, state="open", drawn=StreamProgress()))
        return None

    async def stop(
        self, team: str, channel: str, thread_ts: str, user: str, turn_id: str | None = None
    ) -> None:
        person = await self.users.find_user(team, user)
        if not await self.turns.stop(channel, thread_ts, person.principal, turn_id):
            await self.send_ephemeral(channel, user, _NOTHING_TO_STOP, thread_ts)

    # --- people -------------------------------------------------------------------------------------------------------

    async def authorize_answer(self, turn_id: str, user: str) -> tuple[TurnRow, SlackUser] | str:
        """The turn and the person who wants to answer what it asks, or why not."""
        row = await self.store.find_turn(turn_id)
        if row is None:
            return _TOO_OLD
        person, approvers = (
            await self.users.find_user(row.team, user),
            self.config.for_channel(row.channel).approvers,
        )
        if await self.users.may_answer(approvers, person, row.user):
            return row, person
        allowed = ", ".join(self._approver(name, row.user) for name in approvers)
        return f"You may not answer this. In this channel it is for {allowed}."

    def _approver(self, name: str, requester: str) -> str:
        if name == "requester":
            return f"<@{requester}>"
        if name[0] in "UW" and name.isalnum():
            return f"<@{name}>"
        if name[0] == "S" and name.isalnum():
            return f"<!subteam^{name}>"
        return name

    async def send_ephemeral(self, channel: str, user: str, text: str, thread_ts: str | None = None) -> None:
        """For one person's eyes."""
        if user:
            await self.slack.try_call(
                "chat.postEphemeral", {"channel": channel, "user": user, "text": text, "thread_ts": thread_ts}
            )

    def conversation_owner(self, body: Mapping[str, Any]) -> str:
        """Who owns the conversation of the thread in which something was clicked."""
        message: Mapping[str, Any] = body.get("message") or {}
        return thread_owner(
            str(body["team"]["id"]),
            str(body["channel"]["id"]),
            str(message.get("thread_ts") or message.get("ts")),
        )
