"""The slash commands `/caipe login` and `/caipe logout`: sign-ins to hosted tool servers of agents."""

from collections.abc import Mapping
from typing import Any

from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.integrations.slack_bot.blocks import escape_line, section, truncate
from ai_platform_engineering.integrations.slack_bot.bot import Bot
from ai_platform_engineering.integrations.slack_bot.modal_submissions import describe_error
from ai_platform_engineering.integrations.slack_bot.sign_in_messages import SignInButton, list_blocks
from ai_platform_engineering.integrations.slack_bot.sign_ins import SendPrivate

_MAX_LISTED = 40
_NONE = "No agent needs a sign-in of yours."
_WHICH = "Which agent? `/caipe logout <agent>`; `/caipe login` lists them."


def is_sign_in_command(body: Mapping[str, Any]) -> bool:
    subcommand, _ = _read_command(body)
    return subcommand in ("login", "logout")


async def answer_sign_in_command(bot: Bot, body: Mapping[str, Any], send: SendPrivate) -> None:
    """Lists where the person can sign in, or begins with one agent, or signs out."""
    subcommand, agent = _read_command(body)
    user = await bot.users.find_user(str(body["team_id"]), str(body["user_id"]))
    try:
        if subcommand == "logout":
            text = await _sign_out(bot, user.principal, agent)
            await send(text, [section(text)])
        elif agent:
            target = SignInButton(agent, "")
            await bot.sign_ins.begin(user.principal, target, str(body["channel_id"]), "", send)
        else:
            logins = await bot.sign_ins.list_logins(user.principal)
            await send("Sign-ins", list_blocks(logins[:_MAX_LISTED]) or [section(_NONE)])
    except CaipeError as error:
        text = f":warning: {truncate(describe_error(error), 2_000)}"
        await send(text, [section(text)])


async def _sign_out(bot: Bot, principal: str, agent: str) -> str:
    if not agent:
        return _WHICH
    servers = await bot.sign_ins.sign_out(principal, agent)
    if not servers:
        return "You were not signed in."
    return f"You are signed out of {escape_line(', '.join(servers))}."


def _read_command(body: Mapping[str, Any]) -> tuple[str, str]:
    subcommand, _, rest = str(body.get("text") or "").strip().partition(" ")
    return subcommand.lower(), rest.strip()
