"""`caipe slack`: the Slack bot."""

import asyncio
import logging

from ai_platform_engineering.cli.server_address import DEFAULT_URL
from ai_platform_engineering.core.settings import Settings, read_environment


def run_bot(url: str | None, mode: str | None) -> int:
    """Runs until it is told to stop; the exit code."""
    # Imported late, as the others are: no other command needs Slack's libraries.
    from ai_platform_engineering.integrations.slack_bot.app import serve

    settings = Settings.from_variables(
        {**read_environment(), **({"SLACK_INTEGRATION_BOT_MODE": mode} if mode else {})}
    )
    logging.basicConfig(
        level=settings.logging.level, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    logging.getLogger("httpx").setLevel(logging.WARNING)  # a line per request to the supervisor says nothing
    for chatty in ("slack_bolt", "slack_sdk"):  # at DEBUG they would log what people write
        logging.getLogger(chatty).setLevel(max(logging.INFO, logging.getLogger().level))
    key = settings.server.delegate_key
    asyncio.run(serve(settings, url or DEFAULT_URL, key.get_secret_value() if key else None))
    return 0
