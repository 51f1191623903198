"""Variables of cnoe-io/ai-platform-engineering that are not read, and what there is in their place.

`docs/migrating.md` explains them; a test compares it with this table.
"""

import logging
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from ai_platform_engineering.core.legacy_variables import (
    MODEL_VARIABLE,
    PROVIDER_VARIABLE,
    PROVIDERS,
    translate_legacy_variables,
)

logger = logging.getLogger(__name__)

_NAME = "<NAME>"
# A switch can be written in several ways.
_VALUES = {"on": ("true", "1", "yes", "on"), "off": ("false", "0", "no", "off"), "0": ("0", "0.0")}


@dataclass(frozen=True, slots=True)
class UnusedVariable:
    """A variable that is not read; with one of the `harmless` values nothing is lost."""

    name: str  # `<NAME>` stands for an agent's
    instead: str
    harmless: tuple[str, ...] = ()
    of_slack_bot: bool = False

    def matches(self, name: str) -> bool:
        if _NAME not in self.name:
            return name == self.name
        return re.fullmatch(self.name.replace(_NAME, "[A-Z0-9_]+"), name) is not None


def _unused(instead: str, names: str, *, of_slack_bot: bool = False) -> Iterator[UnusedVariable]:
    """Variables with one text; `NAME=value` gives the value with which nothing is lost."""
    for word in names.split():
        name, _, value = word.partition("=")
        harmless = _VALUES.get(value, (value,)) if value else ()
        yield UnusedVariable(name, instead, harmless, of_slack_bot)


UNUSED_VARIABLES = (
    # server
    *_unused("agents are reached over HTTP only", "A2A_TRANSPORT=p2p SLIM_ENDPOINT"),
    *_unused("A2A is the only protocol", "AGENT_PROTOCOL=a2a"),
    *_unused("DISTRIBUTED_AGENTS places agents, and the model plans", "ROUTING_MODE SINGLE_GRAPH_MODE"),
    *_unused("A2A_AUTH_DELEGATE_KEY: its holder names the user", "ENABLE_USER_INFO_TOOL=off"),
    *_unused("`headers` of an agent's MCP server, the same for all users", "FORWARD_JWT_TO_MCP=off"),
    *_unused("there is no route for metrics", "METRICS_ENABLED=off"),
    *_unused(
        "nothing is sent to Langfuse; `caipe show` shows a run and its trace id",
        "ENABLE_TRACING=off LANGFUSE_PUBLIC_KEY LANGFUSE_SECRET_KEY LANGFUSE_HOST LANGFUSE_SESSION_ID "
        "LANGFUSE_USER_ID",
    ),
    # models
    *_unused(
        "models always stream",
        "LLM_STREAMING=on OPENAI_STREAMING=on AZURE_OPENAI_STREAMING=on AWS_BEDROCK_STREAMING=on "
        "GROQ_STREAMING=on ENABLE_STREAMING=on",
    ),
    *_unused(
        "OpenAI's models are called through chat completions",
        "OPENAI_USE_RESPONSES=off AZURE_OPENAI_USE_RESPONSES=off",
    ),
    *_unused(
        "there is no setting for it",
        "OPENAI_REASONING_EFFORT OPENAI_REASONING_SUMMARY OPENAI_VERBOSITY OPENAI_USER "
        "AZURE_OPENAI_REASONING_EFFORT AZURE_OPENAI_REASONING_SUMMARY AZURE_OPENAI_VERBOSITY "
        "LLM_REASONING_EFFORT_MAP_JSON ANTHROPIC_THINKING_ENABLED=off AWS_BEDROCK_THINKING_ENABLED=off "
        "VERTEXAI_THINKING_ENABLED=off AWS_BEDROCK_ENABLE_PROMPT_CACHE=off",
    ),
    *_unused(
        "OPENAI_CUSTOM_HEADERS of OpenAI's own library: lines `Name: value`",
        "OPENAI_DEFAULT_HEADERS",
    ),
    *_unused(
        "Bedrock is called through its Converse API",
        "AWS_BEDROCK_CLIENT=converse AWS_BEDROCK_USE_CONVERSE_API=on",
    ),
    *_unused("LLM_TIMEOUT_SECONDS", "AWS_BEDROCK_READ_TIMEOUT AWS_BEDROCK_CONNECT_TIMEOUT"),
    *_unused(
        "only LLM_CONTEXT_TOKENS limits what a model gets",
        "MIN_MESSAGES_TO_KEEP ENABLE_AUTO_COMPRESSION=on",
    ),
    *_unused("TOOL_RESULT_MAX_CHARS", "MAX_TOOL_OUTPUT_LENGTH SUMMARIZE_TOOL_OUTPUTS=off"),
    # agents
    *_unused(
        "checks run in the background and never remove an agent",
        "AGENT_CONNECTIVITY_MAX_RETRIES AGENT_CONNECTIVITY_RETRY_DELAY AGENT_CONNECTIVITY_STARTUP_DELAY=0 "
        "AGENT_CONNECTIVITY_ENABLE_BACKGROUND=on AGENT_CONNECTIVITY_FAST_CHECK_TIMEOUT",
    ),
    *_unused(
        "AGENTS_CONFIG: a definition with the `url` of the MCP server",
        "MCP_MODE=stdio MCP_HOST MCP_PORT <NAME>_MCP_MODE=stdio <NAME>_MCP_HOST <NAME>_MCP_PORT "
        "<NAME>_MCP_PATH AGENT_GATEWAY_URL",
    ),
    *_unused("NODE_EXTRA_CA_CERTS: the file of your certificate authority", "ARGOCD_VERIFY_SSL=on"),
    *_unused("REQUESTS_CA_BUNDLE: the file of your certificate authority", "ATLASSIAN_VERIFY_SSL=on"),
    *_unused("ARGOCD_TOKEN", "ARGOCD_AUTH_TOKEN"),
    *_unused("ATLASSIAN_EMAIL", "JIRA_EMAIL CONFLUENCE_USERNAME"),
    *_unused("ATLASSIAN_TOKEN", "CONFLUENCE_API_TOKEN"),
    *_unused("JIRA_PROJECTS_FILTER", "JIRA_PROJECTS"),
    *_unused(
        "GITHUB_TOKEN",
        "GITHUB_APP_ID GITHUB_APP_PRIVATE_KEY GITHUB_APP_PRIVATE_KEY_PATH GITHUB_APP_INSTALLATION_ID",
    ),
    *_unused("AWS_PROFILE: an agent has one account", "AWS_ACCOUNT_LIST"),
    *_unused("the agent has only MCP servers", "USE_AWS_CLI_AS_TOOL=off"),
    *_unused("WEBEX_TOKEN", "WEBEX_ACCESS_TOKEN"),
    *_unused("a token names its workspace", "SLACK_TEAM_ID"),
    *_unused("SLACK_INTEGRATION_APP_TOKEN, for `caipe slack`", "SLACK_APP_TOKEN"),
    *_unused("SLACK_INTEGRATION_SIGNING_SECRET, for `caipe slack`", "SLACK_SIGNING_SECRET"),
    # storage, knowledge, skills
    *_unused(
        "the database that the URI names",
        "MONGODB_DATABASE LANGGRAPH_CHECKPOINT_MONGODB_DB_NAME LANGGRAPH_CHECKPOINT_MONGODB_COLLECTION "
        "LANGGRAPH_CHECKPOINT_MONGODB_WRITES_COLLECTION",
    ),
    *_unused(
        "the store uses the address of the checkpoints",
        "LANGGRAPH_STORE_REDIS_URL LANGGRAPH_STORE_POSTGRES_DSN LANGGRAPH_STORE_MONGODB_URI",
    ),
    *_unused("facts are kept until `caipe facts forget`", "LANGGRAPH_STORE_TTL_MINUTES"),
    *_unused("use a separate database for each deployment", "LANGGRAPH_STORE_KEY_PREFIX"),
    *_unused(
        "REMEMBER_FACTS: what a user asks to be remembered",
        "ENABLE_FACT_EXTRACTION=off FACT_EXTRACTION_MODEL LANGGRAPH_STORE_EMBEDDINGS_DIMS",
    ),
    *_unused("RAG_EMBEDDINGS, and EMBEDDINGS_BASE_URL for an endpoint", "EMBEDDINGS_PROVIDER"),
    *_unused("RAG_DATABASE_URL", "MILVUS_URI"),
    *_unused("there is no entity graph", "ENABLE_GRAPH_RAG=off NEO4J_ADDR"),
    *_unused("a changed skill is used by the next question", "SKILLS_CACHE_TTL"),
    *_unused("every skill is scanned, and a blocked one stays off", "SKILL_SCANNER_GATE=strict"),
    *_unused("A2A_AUTH_SHARED_KEY, sent as a bearer token", "CAIPE_CATALOG_API_KEY_HEADER"),
    # Slack bot
    *_unused(
        "SLACK_INTEGRATION_BOT_CONFIG: a file in another format",
        "CAIPE_BOT_CONFIG SLACK_INTEGRATION_SILENCE_ENV=off",
        of_slack_bot=True,
    ),
    *_unused(
        "`instructions` of a channel in SLACK_INTEGRATION_BOT_CONFIG",
        "SLACK_INTEGRATION_PROMPT_QANDA SLACK_INTEGRATION_PROMPT_OVERTHINK_QANDA "
        "SLACK_INTEGRATION_PROMPT_MENTION SLACK_INTEGRATION_PROMPT_DM SLACK_INTEGRATION_PROMPT_AI_ALERTS "
        "SLACK_INTEGRATION_PROMPT_HUMBLE_FOLLOWUP SLACK_INTEGRATION_PROMPT_RESPONSE_STYLE",
        of_slack_bot=True,
    ),
    *_unused(
        "A2A_AUTH_DELEGATE_KEY",
        "SLACK_INTEGRATION_ENABLE_AUTH=off SLACK_INTEGRATION_AUTH_TOKEN_URL SLACK_INTEGRATION_AUTH_CLIENT_ID "
        "SLACK_INTEGRATION_AUTH_CLIENT_SECRET SLACK_INTEGRATION_AUTH_SCOPE SLACK_INTEGRATION_AUTH_AUDIENCE",
        of_slack_bot=True,
    ),
    *_unused("the app's name in Slack", "SLACK_INTEGRATION_APP_NAME", of_slack_bot=True),
    *_unused("links come from Slack", "SLACK_WORKSPACE_URL", of_slack_bot=True),
)


def warn_of_unused_variables(
    variables: Mapping[str, str], used_names: Collection[str] = (), *, of_slack_bot: bool = False
) -> None:
    """Logs which variables are set and not used: names, and never a value. Once, at the start."""
    lines = [
        f"{name}: {instead}"
        for name, instead in find_unused_variables(variables, used_names, of_slack_bot=of_slack_bot)
    ]
    if not of_slack_bot:
        for conflict in translate_legacy_variables(variables).conflicts:
            lines.append(f"{conflict.legacy_name}: {conflict.name} is set as well, and counts")
    if lines:
        listed = "\n  ".join(lines)
        logger.warning(
            "Some variables are set and not used (docs/migrating.md). In their place:\n  %s", listed
        )


def find_unused_variables(
    variables: Mapping[str, str], used_names: Collection[str] = (), *, of_slack_bot: bool = False
) -> Iterator[tuple[str, str]]:
    """The variables that are set and not read, with what there is in their place; never a value.

    `used_names` are those that the definitions of agents name.
    """
    has_provider = any(name.endswith(PROVIDER_VARIABLE) for name in variables)
    for name in sorted(variables):
        value = variables[name].strip().lower()
        if not value or name in used_names:
            continue
        instead = _find_replacement(name, value, of_slack_bot=of_slack_bot)
        if instead is None and not of_slack_bot and not has_provider:
            instead = _PROVIDER_VARIABLES.get(name)
        if instead is not None:
            yield name, instead


def _find_replacement(name: str, value: str, *, of_slack_bot: bool) -> str | None:
    for variable in UNUSED_VARIABLES:
        if variable.of_slack_bot == of_slack_bot and variable.matches(name):
            return variable.instead if value not in variable.harmless else None
    return None


def _list_provider_variables() -> Iterator[tuple[str, str]]:
    """Variables that only LLM_PROVIDER gives a meaning."""
    for provider in PROVIDERS.values():
        yield provider.model, f"{MODEL_VARIABLE}, or set {PROVIDER_VARIABLE}"
        yield provider.temperature, "LLM_TEMPERATURE"
        if provider.context_tokens:
            yield provider.context_tokens, "LLM_CONTEXT_TOKENS"


_PROVIDER_VARIABLES = dict(_list_provider_variables())
