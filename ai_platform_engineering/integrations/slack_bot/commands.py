"""The slash command `/caipe`: lists agents, workflows and requests that wait for an answer."""

import contextlib
from collections.abc import Iterable, Mapping
from typing import Any

from ai_platform_engineering.a2a.client import RequestRefused
from ai_platform_engineering.a2a.request_data import request_from_data
from ai_platform_engineering.a2a.rest_client import read_all_pages, rest_api_for_client
from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.integrations.slack_bot.blocks import Block, escape_line, section, truncate
from ai_platform_engineering.integrations.slack_bot.bot import Bot
from ai_platform_engineering.integrations.slack_bot.web_api import DeliveryUnknown, SlackError

_MAX_LINES = 40
_MAX_BLOCK_TEXT = 2_900
_STATUS_MARKS = {"ready": ":large_green_circle:", "degraded": ":large_yellow_circle:"}
_HELP = """Mention me in a channel, write to me in a thread I take part in, or send me a direct message.
• `/caipe agents`: the agents and their state
• `/caipe workflows`: procedures I can run; write a workflow's name to start it
• `/caipe pending`: requests that wait in this channel, and yours that wait elsewhere
• `/caipe login`: the services that agents use in your name; `/caipe login <agent>`, `/caipe logout <agent>`
• `/caipe help`: this
In a thread, `stop` alone stops what I am doing."""


async def answer_command(bot: Bot, body: Mapping[str, Any]) -> dict[str, Any]:
    """The message that answers a command."""
    subcommand = str(body.get("text") or "").strip().lower()
    try:
        lines = await _run_command(bot, subcommand, body)
    except CaipeError as error:
        lines = [f":warning: {truncate(escape_line(str(error)), 2_000)}"]
    return {"text": truncate("\n".join(lines), 3000), "blocks": _build_blocks(lines)}


async def _run_command(bot: Bot, subcommand: str, body: Mapping[str, Any]) -> list[str]:
    match subcommand:
        case "agents":
            return await _list_agents(bot)
        case "workflows":
            return await _list_workflows(bot)
        case "pending":
            return await _list_pending(
                bot, str(body["team_id"]), str(body["channel_id"]), str(body["user_id"])
            )
        case "help" | "":
            return [_HELP]
        case _:
            return [f"Unknown command `{truncate(escape_line(subcommand), 50)}`.", _HELP]


def _build_blocks(lines: Iterable[str]) -> list[Block]:
    blocks: list[Block] = []
    text = ""
    for line in lines:
        if len(text) + len(line) > _MAX_BLOCK_TEXT:
            blocks.append(section(text))
            text = ""
        text = f"{text}\n{line}".strip()
    if text:
        blocks.append(section(text))
    return blocks


async def _list_agents(bot: Bot) -> list[str]:
    api = rest_api_for_client(bot.supervisor)
    tools: Mapping[str, list[str]] = (await api("GET", "/tools"))["tools"]
    components: Mapping[str, Mapping[str, Any]] = {}
    with contextlib.suppress(RequestRefused):  # a supervisor that is not ready says so with an error
        components = (await api("GET", "/ready"))["components"]
    lines = []
    for name, tool_names in sorted(tools.items()):
        if name != "supervisor":
            lines.append(_describe_agent(name, tool_names, components.get(f"agent {name}") or {}))
    return ["*Agents*", *(lines[:_MAX_LINES] or ["There are none."])]


def _describe_agent(name: str, tools: list[str], component: Mapping[str, Any]) -> str:
    mark = _STATUS_MARKS.get(str(component.get("status") or "ready"), ":red_circle:")
    description = escape_line(str(component.get("message") or ""))
    if not description and len(tools) == 1:
        description = "1 tool"
    elif not description:
        description = f"{len(tools)} tools"
    return f"{mark} *{truncate(escape_line(name), 60)}* {truncate(description, 200)}"


async def _list_workflows(bot: Bot) -> list[str]:
    api = rest_api_for_client(bot.supervisor)
    workflows = (await api("GET", "/workflows"))["workflows"]
    lines = [_describe_workflow(workflow) for workflow in workflows[:_MAX_LINES]]
    return ["*Workflows*", *(lines or ["There are none."])]


def _describe_workflow(workflow: Mapping[str, Any]) -> str:
    title = escape_line(str(workflow.get("title") or workflow["name"]))
    description = str(workflow.get("description") or "")
    missing = ", ".join(map(str, workflow.get("missing") or ()))
    if missing:
        description = f"(unavailable: needs {missing})"
    return f"• *{truncate(title, 60)}* {truncate(escape_line(description), 200)}"


async def _list_pending(bot: Bot, team: str, channel: str, user_id: str) -> list[str]:
    """The requests that wait in this channel, and those of this user's questions elsewhere."""
    user = await bot.users.find_user(team, user_id)
    lines: list[str] = []
    for row in await bot.store.list_open_turns():
        if row.channel != channel and row.user != user_id:
            continue
        api = rest_api_for_client(bot.supervisor.on_behalf_of(user.principal, row.owner))
        for request in await read_all_pages(api, "/v1/requests", "requests"):
            if request["task_id"] != row.task_id:
                continue
            description = truncate(escape_line(request_from_data(request["asked"]).describe()), 100)
            link = await _link_thread(bot, row.channel, row.thread_ts)
            lines.append(f"• {link}: {description} (asked by <@{row.user}>)")
    return ["*Waiting for an answer*", *(lines[:_MAX_LINES] or ["Nothing is waiting."])]


async def _link_thread(bot: Bot, channel: str, ts: str) -> str:
    try:
        response = await bot.slack.call("chat.getPermalink", {"channel": channel, "message_ts": ts}) or {}
    except (SlackError, DeliveryUnknown):  # the name of the channel will do
        response = {}
    if response.get("permalink"):
        return f"<{response['permalink']}|the thread>"
    return f"a thread in <#{channel}>"
