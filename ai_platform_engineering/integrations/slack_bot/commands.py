"""`/caipe`: which agents and workflows there are, and what waits for whom."""

import contextlib
from collections.abc import Iterable, Mapping
from typing import Any

from ai_platform_engineering.a2a.client import RequestRefused
from ai_platform_engineering.a2a.codec import request_from_data
from ai_platform_engineering.a2a.rest_client import rest_api_for_client
from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.integrations.slack_bot.blocks import Block, escape_line, section, truncate
from ai_platform_engineering.integrations.slack_bot.bot import Bot
from ai_platform_engineering.integrations.slack_bot.web_api import DeliveryUnknown, SlackError

_MOST = 40  # lines
_HELP = """Mention me in a channel, write to me in a thread I take part in, or send me a direct message.
• `/caipe agents`: the agents, and what each can do now
• `/caipe workflows`: what I can do step by step; write a workflow's name to start it
• `/caipe pending`: what waits for an answer in this channel, and what of yours waits elsewhere
• `/caipe help`: this
In a thread, `stop` alone stops what I am doing."""


async def answer_command(bot: Bot, body: Mapping[str, Any]) -> dict[str, Any]:
    """The message that answers a command."""
    word = str(body.get("text") or "").strip().lower()
    try:
        match word:
            case "agents":
                lines = await _agents(bot)
            case "workflows":
                lines = await _workflows(bot)
            case "pending":
                lines = await _pending(
                    bot, str(body["team_id"]), str(body["channel_id"]), str(body["user_id"])
                )
            case "help" | "":
                lines = [_HELP]
            case _:
                lines = [f"I do not know `{truncate(escape_line(word), 50)}`.", _HELP]
    except CaipeError as error:
        lines = [f":warning: {truncate(escape_line(str(error)), 2_000)}"]
    return {"text": truncate("\n".join(lines), 3000), "blocks": _blocks(lines)}


def _blocks(lines: Iterable[str]) -> list[Block]:
    blocks: list[Block] = []
    text = ""
    for line in lines:
        if len(text) + len(line) > 2_900:
            blocks.append(section(text))
            text = ""
        text = f"{text}\n{line}".strip()
    return [*blocks, *([section(text)] if text else [])]


async def _agents(bot: Bot) -> list[str]:
    api = rest_api_for_client(bot.supervisor)
    tools: Mapping[str, list[str]] = (await api("GET", "/tools"))["tools"]
    states: Mapping[str, Mapping[str, Any]] = {}
    with contextlib.suppress(RequestRefused):  # a supervisor that is not ready says so with an error
        states = (await api("GET", "/ready"))["components"]
    lines = [
        _agent(name, names, states.get(f"agent {name}") or {})
        for name, names in sorted(tools.items())
        if name != "supervisor"
    ]
    return ["*Agents*", *(lines[:_MOST] or ["There are none."])]


def _agent(name: str, tools: list[str], state: Mapping[str, Any]) -> str:
    mark = {"ready": ":large_green_circle:", "degraded": ":large_yellow_circle:"}.get(
        str(state.get("status") or "ready"), ":red_circle:"
    )
    about = (
        escape_line(str(state.get("message") or "")) or f"{len(tools)} tool{'' if len(tools) == 1 else 's'}"
    )
    return f"{mark} *{truncate(escape_line(name), 60)}* {truncate(about, 200)}"


async def _workflows(bot: Bot) -> list[str]:
    found = (await rest_api_for_client(bot.supervisor)("GET", "/workflows"))["workflows"]
    return ["*Workflows*", *([_workflow(one) for one in found[:_MOST]] or ["There are none."])]


def _workflow(one: Mapping[str, Any]) -> str:
    missing = ", ".join(map(str, one.get("missing") or ()))
    about = f"(not now: it needs {missing})" if missing else str(one.get("description") or "")
    return f"• *{truncate(escape_line(str(one.get('title') or one['name'])), 60)}* {truncate(escape_line(about), 200)}"


async def _pending(bot: Bot, team: str, channel: str, user: str) -> list[str]:
    person = await bot.users.find_user(team, user)
    rows = [row for row in await bot.store.list_open_turns() if row.channel == channel or row.user == user]
    lines: list[str] = []
    for row in rows:
        found = (
            await rest_api_for_client(bot.supervisor.on_behalf_of(person.principal, row.owner))(
                "GET", "/v1/requests"
            )
        )["requests"]
        mine = [one for one in found if one["task_id"] == row.task_id]
        for one in mine:
            asked = request_from_data(one["asked"])
            link = await _link(bot, row.channel, row.thread_ts)
            lines.append(f"• {link}: {truncate(escape_line(asked.describe()), 100)} (asked by <@{row.user}>)")
    return ["*Waiting for an answer*", *(lines[:_MOST] or ["Nothing waits."])]


async def _link(bot: Bot, channel: str, ts: str) -> str:
    try:
        answer = await bot.slack.call("chat.getPermalink", {"channel": channel, "message_ts": ts}) or {}
    except (SlackError, DeliveryUnknown):  # nobody need be told: there is another way to say it
        answer = {}
    if answer.get("permalink"):
        return f"<{answer['permalink']}|the thread>"
    return f"a thread in <#{channel}>"
