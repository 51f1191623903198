"""What Slack shows of a turn besides its messages: the status of the session, and word of what failed."""

from ai_platform_engineering.integrations.slack_bot.blocks import escape_line, truncate
from ai_platform_engineering.integrations.slack_bot.turn_rows import TurnRow
from ai_platform_engineering.integrations.slack_bot.web_api import SlackApi

_STATUS = "is thinking…"
_LOADING_MESSAGES = ["Reading the question…", "Asking the agents…", "Putting it together…"]


async def announce_turn(slack: SlackApi, row: TurnRow) -> None:
    """Sets the status that Slack shows with a stop button.

    Where it cannot, the answer comes without it.
    """
    title = truncate(escape_line(str(row.order.get("text") or "")), 200) or "A question"
    await set_session_status(slack, row, "processing", title=title, initiator=row.user)
    params = {
        "channel_id": row.channel,
        "thread_ts": row.thread_ts,
        "status": _STATUS,
        "loading_messages": _LOADING_MESSAGES,
    }
    await slack.try_call("assistant.threads.setStatus", params)


async def set_session_status(
    slack: SlackApi, row: TurnRow, status: str, *, title: str | None = None, initiator: str | None = None
) -> None:
    params = {
        "channel_id": row.channel,
        "thread_ts": row.thread_ts,
        "status": status,
        "title": title,
        "initiator_user_id": initiator,
    }
    await slack.try_call("agents.sessions.setStatus", params)


async def send_direct_message(slack: SlackApi, row: TurnRow, reason: str) -> None:
    """Tells the user in a direct message that the bot cannot write in the channel."""
    advice = "Whoever runs me will find more in my log."
    if "not_in_channel" in reason:
        advice = "Invite me to the channel, or ask me here."
    text = f"I could not answer you in <#{row.channel}>. {escape_line(reason)} {advice}"
    await slack.try_call("chat.postMessage", {"channel": row.user, "text": text})
