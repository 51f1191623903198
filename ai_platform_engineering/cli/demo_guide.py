"""What `caipe demo` prints when it is up: where the page is, what to ask first, and how to go on."""

from collections.abc import Sequence

from ai_platform_engineering.core.terminals import command_name

FIRST_QUESTION = "why is checkout failing?"


def describe_first_steps(
    *, company: str, url: str, agents: Sequence[str], runbooks: int, model: str | None, is_found: bool
) -> list[str]:
    """`is_found`: commands find the demo's server without `--url`."""
    command = command_name()
    option = "" if is_found else f" --url {url}"
    model_line = f"model      {model}: ask whatever you like"
    if model is None:
        model_line = (
            "model      none: a scripted investigator plays the story below, the router answers the rest;"
            " set LLM_MODEL for a model"
        )
    return [
        "",
        f"The demo is up: {company}, a made-up company with its systems on this machine.",
        f"page       {url}",
        f"systems    {', '.join(agents) or 'none'}",
        f"runbooks   {runbooks or 'none'} in the knowledge base",
        model_line,
        "",
        f"Ask on the page, or in another terminal with: {command} chat{option}",
        f"  1. {FIRST_QUESTION}",
        "  2. create a ticket",
        f"  3. roll back checkout      (then look: {command} demo status)",
        f'Or one question: {command} ask{option} "{FIRST_QUESTION}"',
        "",
        f"Let a system fail:      {command} demo fault argocd --errors 0.2 --latency 2",
        f"Back to the beginning:  {command} demo reset",
        "Stop:                   Ctrl-C (the next start begins anew; conversations are kept)",
    ]
