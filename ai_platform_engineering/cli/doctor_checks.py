"""Checks of `caipe doctor`: storage, the model, the agents, the sandbox, proxies and certificates."""

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path

from ai_platform_engineering.agents.agent_catalog import AgentCatalog, AgentEntry, load_placed_catalog
from ai_platform_engineering.cli.agent_status import describe_failed_check, missing_commands
from ai_platform_engineering.cli.agent_trust import find_held_tools
from ai_platform_engineering.cli.storage_checks import check_storages
from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.legacy_variables import translate_legacy_variables
from ai_platform_engineering.core.redaction import mask_urls
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.core.unused_variables import find_unused_variables
from ai_platform_engineering.mcp_client.sandbox import Sandbox
from ai_platform_engineering.models.chat_model import create_chat_model, find_provider
from ai_platform_engineering.terminal.doctor_view import DoctorFinding

_CERTIFICATE_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
_PROXY_VARIABLES = ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy")


def run_checks(settings: Settings, variables: Mapping[str, str]) -> list[DoctorFinding]:
    """Runs all checks; the configured databases are tried, nothing else is connected to."""
    return [
        *check_storages(settings),
        *_check_models(settings, variables),
        *_check_legacy_variables(variables),
        *_check_agents(settings, variables),
        *_check_sandbox(settings, variables),
        *_check_proxies(variables),
        *_check_certificates(variables),
    ]


def _check_models(settings: Settings, variables: Mapping[str, str]) -> Iterator[DoctorFinding]:
    name = settings.model.name
    if name is None:
        yield DoctorFinding(
            "note",
            "No model is configured: the embedded offline router answers.",
            'Set LLM_MODEL, for example "openai:gpt-5-mini".',
        )
        return
    for model in (name, *settings.model.fallbacks):
        yield from _check_provider(model, variables)
        try:
            create_chat_model(settings.model, model)
        except CaipeError as error:
            yield DoctorFinding("wrong", str(error))
        else:
            yield DoctorFinding("ok", f"The model {model} is set up (it was not asked anything).")


def _check_provider(model: str, variables: Mapping[str, str]) -> Iterator[DoctorFinding]:
    """What the provider of a model needs and is not set."""
    for names in find_provider(model).variables:
        if any(variables.get(name, "").strip() for name in names.split("|")):
            continue
        readable_names = names.replace("|", " or ")
        remedy = f"Set {readable_names}; for a server without keys any word will do as a key."
        yield DoctorFinding("wrong", f"{readable_names} is not set, and the model {model} needs it.", remedy)


def _check_legacy_variables(variables: Mapping[str, str]) -> Iterator[DoctorFinding]:
    translation = translate_legacy_variables(variables)
    for name, legacy_name in translation.sources.items():
        yield DoctorFinding("ok", f"{name} is read from {legacy_name}.")
    for conflict in translation.conflicts:
        message = f"{conflict.legacy_name} and {conflict.name} do not agree: {conflict.name} counts."
        yield DoctorFinding("note", message, f"Remove {conflict.legacy_name}.")


def _check_agents(settings: Settings, variables: Mapping[str, str]) -> Iterator[DoctorFinding]:
    try:
        catalog = load_placed_catalog(settings, variables)
    except CaipeError as error:
        yield DoctorFinding("wrong", str(error))
        return
    for entry in catalog:
        if entry.status != "disabled":
            yield _check_agent(entry, settings)
    yield from _check_unused_variables(catalog, variables)


def _check_unused_variables(catalog: AgentCatalog, variables: Mapping[str, str]) -> Iterator[DoctorFinding]:
    used_names = {name for entry in catalog for name in entry.variables}
    for of_slack_bot in (False, True):
        for name, instead in find_unused_variables(variables, used_names, of_slack_bot=of_slack_bot):
            yield DoctorFinding("note", f"{name} is set and not used.", f"In its place: {instead}")


def _check_agent(entry: AgentEntry, settings: Settings) -> DoctorFinding:
    name = entry.name
    if entry.warning:
        return DoctorFinding("wrong", f"{name} runs as a service and has no address.", f"{entry.note}.")
    if entry.status == "not_configured":
        return DoctorFinding("note", f"{name} is not configured.", f"To use it, {entry.note}.")
    if entry.placement == "remote":
        message = f"{name} is the service at {mask_urls(entry.address or '')}."
        return DoctorFinding("note", message, "Whether it can be reached: caipe agents")
    missing = missing_commands(entry.definition, settings.agent.home)
    if missing:
        message = f"{name}: {', '.join(missing)} is not on this machine."
        return DoctorFinding("wrong", message, f"Run: caipe agents install {name}")
    held_tools = [change.tool for server in find_held_tools(settings, entry) for change in server.changes]
    if held_tools:
        message = f"{name}: {len(held_tools)} tools are held, since their server has changed them."
        return DoctorFinding("wrong", message, f"Run: caipe agents trust {name}")
    failure = describe_failed_check(entry, settings)
    if failure:
        return DoctorFinding("wrong", f"{name} fails: {failure}.", f"Run: caipe agents test {name}")
    return DoctorFinding("ok", f"{name} is ready. Try its servers with: caipe agents test {name}")


def _check_sandbox(settings: Settings, variables: Mapping[str, str]) -> Iterator[DoctorFinding]:
    mode = settings.mcp.sandbox
    if mode == "off":
        message = "Tool servers run without a sandbox (MCP_SANDBOX=off)."
        yield DoctorFinding("note", message, "Set MCP_SANDBOX to auto or required.")
        return
    sandbox = Sandbox(mode, variables)
    try:
        is_used = asyncio.run(sandbox.is_used())
    except OSError as error:
        yield DoctorFinding("wrong", f"No tool server can be started: {error}.")
        return
    if is_used:
        yield DoctorFinding("ok", "Tool servers run in a sandbox (bubblewrap).")
    else:
        message = f"Tool servers run without a sandbox: {sandbox.problem}."
        remedy = "docs/agents.md says what the sandbox hides, and what bubblewrap needs."
        yield DoctorFinding("note", message, remedy)


def _check_proxies(variables: Mapping[str, str]) -> Iterator[DoctorFinding]:
    proxies = [name for name in _PROXY_VARIABLES if variables.get(name)]
    if not proxies:
        return
    has_bypass = variables.get("NO_PROXY") or variables.get("no_proxy")
    bypass = "NO_PROXY is set" if has_bypass else "NO_PROXY is not set"
    yield DoctorFinding(
        "note",
        f"A proxy is used ({', '.join(proxies)}; {bypass}).",
        "Add internal hosts to NO_PROXY if they cannot be reached.",
    )


def _check_certificates(variables: Mapping[str, str]) -> Iterator[DoctorFinding]:
    for name in _CERTIFICATE_VARIABLES:
        file = variables.get(name)
        if not file:
            continue
        if Path(file).is_file():
            yield DoctorFinding("ok", f"Certificates are checked against {name}.")
        else:
            yield DoctorFinding(
                "wrong",
                f"{name} names a file that is not there.",
                f"Correct {name}: every TLS connection fails with it.",
            )
