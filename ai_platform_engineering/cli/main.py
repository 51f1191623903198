"""`caipe`: the command line."""

import sys

import click

from ai_platform_engineering.core.settings import environment, export


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="ai-platform-engineering", prog_name="caipe")
def main() -> None:
    """The AI platform engineer."""
    export(environment())  # so that options, proxies and certificates may also come from `.env`


@main.command()
@click.option("--host", help="Where to listen (A2A_HOST, 127.0.0.1).")
@click.option("--port", type=click.IntRange(0, 65535), help="The port (A2A_PORT, 8000).")
def serve(host: str | None, port: int | None) -> None:
    """Start the supervisor."""
    # Imported late: asking a question needs none of the graph's libraries.
    from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.main import run

    run({"A2A_HOST": host, "A2A_PORT": None if port is None else str(port)})


@main.command()
@click.argument("question", nargs=-1)
@click.option("--url", envvar="CAIPE_URL", default="http://127.0.0.1:8000/", show_default=True, help="The supervisor.")
@click.option("--token", envvar="A2A_AUTH_SHARED_KEY", help="The shared key, if the server has one.")
@click.option("--context", "context_id", help="Go on with an earlier conversation.")
@click.option("--json", "as_json", is_flag=True, help="One event per line on stdout.")
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), help="Seconds to wait for the answer.")
def ask(question: tuple[str, ...], url: str, token: str | None, context_id: str | None, as_json: bool, timeout: float | None) -> None:
    """Ask a question. The answer goes to stdout when it is final, progress to stderr; text on stdin is joined to the question."""
    from ai_platform_engineering.cli.ask import ask_once

    piped = "" if sys.stdin is None or sys.stdin.isatty() else sys.stdin.read()
    text = "\n\n".join(part for part in (" ".join(question), piped.strip()) if part)
    if not text:
        raise click.UsageError("There is no question: give it as an argument or on stdin.")
    sys.exit(ask_once(text, url=url, token=token, context_id=context_id, as_json=as_json, timeout=timeout))
