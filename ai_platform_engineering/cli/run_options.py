"""Options of the commands that show runs: which run or conversation, and how long a lost server is tried."""

import click

# A server that is restarted, or a laptop that sleeps for a moment, is back within this time.
_RECONNECT_SECONDS = 90.0

TASK_ARGUMENT = click.argument("task_id")

CONTEXT_OPTION = click.option(
    "--context",
    "context_id",
    metavar="ID",
    help="An earlier conversation: its id, the beginning of its id, or a run's trace id.",
)

RECONNECT_OPTION = click.option(
    "--reconnect",
    type=click.FloatRange(min=0),
    default=_RECONNECT_SECONDS,
    show_default=True,
    envvar="CAIPE_RECONNECT_SECONDS",
    metavar="SECONDS",
    help="How long to keep trying when the server goes away during a run.",
)
