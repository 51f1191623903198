"""What is installed and not ready: agents that lack variables, workflows that lack agents."""

from dataclasses import dataclass

# One sentence for everything that only a language model could do.
NO_MODEL = (
    "No language model is configured, so I can only match words, in English, to what is ready. To ask "
    "anything, set `LLM_MODEL` in the environment or in `.env`, for example to `openai:gpt-5-mini` with "
    "`OPENAI_API_KEY`, and restart."
)


@dataclass(frozen=True, slots=True)
class UnavailableAgent:
    """An agent that is not offered, and what it takes: "not configured: set ARGOCD_TOKEN"."""

    name: str
    description: str
    reason: str


@dataclass(frozen=True, slots=True)
class Installation:
    """What the router can name and not use, beside the tools that are bound to it."""

    unavailable_agents: tuple[UnavailableAgent, ...] = ()
    workflows: tuple[str, ...] = ()  # titles; one that cannot start says what it needs


NOTHING_ELSE = Installation()
