"""`caipe slack`: starts the Slack bot."""

import logging

import click

from ai_platform_engineering.cli.options import exit_code, run_and_exit
from ai_platform_engineering.core.environment import read_environment
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.core.unused_variables import warn_of_unused_variables


@click.command()
@click.option(
    "--url", envvar="CAIPE_URL", help="The server to use. Default: the one at A2A_HOST and A2A_PORT."
)
@click.option(
    "--mode",
    type=click.Choice(["socket", "http"]),
    help="How Slack reaches the bot (SLACK_INTEGRATION_BOT_MODE, socket).",
)
def slack(url: str | None, mode: str | None) -> None:
    """Start the Slack bot (docs/slack.md)."""
    # Imported late: no other command needs Slack's libraries.
    from ai_platform_engineering.integrations.slack_bot.app import serve

    async def run() -> int:
        variables = dict(read_environment())
        if mode:
            variables["SLACK_INTEGRATION_BOT_MODE"] = mode
        settings = Settings.from_variables(variables)
        _configure_logging(settings.logging.level)
        warn_of_unused_variables(variables, of_slack_bot=True)
        delegate_key = settings.server.delegate_key
        key = delegate_key.get_secret_value() if delegate_key else None
        await serve(settings, url or settings.server.local_url, key)
        return exit_code(failed=False)

    run_and_exit(run)


def _configure_logging(level: str) -> None:
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)  # a line per request to the supervisor is noise
    for library in ("slack_bolt", "slack_sdk"):  # at DEBUG they would log what people write
        logging.getLogger(library).setLevel(max(logging.INFO, logging.getLogger().level))
