"""Checks of `caipe doctor`: storage, the model, the agents, the sandbox, proxies and certificates."""

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path

from ai_platform_engineering.agents.agent_catalog import AgentCatalog, AgentEntry, load_placed_catalog
from ai_platform_engineering.cli.agent_status import describe_failed_check, describe_missing_program
from ai_platform_engineering.cli.agent_trust import find_held_tools
from ai_platform_engineering.cli.live_checks import ask_models, try_agents
from ai_platform_engineering.cli.storage_checks import check_home, check_storages
from ai_platform_engineering.core.environment import find_missing_variables
from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.legacy_variables import translate_legacy_variables
from ai_platform_engineering.core.model_providers import find_provider
from ai_platform_engineering.core.redaction import mask_urls
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.core.terminals import command_name
from ai_platform_engineering.core.unused_variables import find_unused_variables
from ai_platform_engineering.mcp_client.sandbox import Sandbox
from ai_platform_engineering.models.chat_model import create_chat_model, describe_missing_variables
from ai_platform_engineering.terminal.doctor_view import DoctorFinding

_CERTIFICATE_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
_PROXY_VARIABLES = ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy")


def run_checks(settings: Settings, variables: Mapping[str, str], *, live: bool) -> list[DoctorFinding]:
    """Runs all checks; the configured databases are tried, and nothing else is connected to unless `live`."""
    if live:
        model_findings = asyncio.run(ask_models(settings))
        agent_findings = asyncio.run(try_agents(settings, variables))
    else:
        model_findings = list(_check_models(settings))
        agent_findings = []
    return [
        *check_home(settings),
        *check_storages(settings),
        *model_findings,
        *agent_findings,
        *_check_legacy_variables(variables),
        *_check_agents(settings, variables),
        *_check_sandbox(settings, variables),
        *_check_proxies(variables),
        *_check_certificates(variables),
    ]


def _check_models(settings: Settings) -> Iterator[DoctorFinding]:
    name = settings.model.name
    if name is None:
        yield DoctorFinding(
            "note",
            "No model is configured: the embedded offline router answers.",
            'Set LLM_MODEL, for example "openai:gpt-5-mini".',
        )
        return
    for model in (name, *settings.model.fallbacks):
        yield _check_model(settings, model)


def _check_model(settings: Settings, model: str) -> DoctorFinding:
    missing = find_missing_variables(find_provider(model))
    if missing:
        return DoctorFinding("wrong", describe_missing_variables(model, missing))
    try:
        create_chat_model(settings.model, model)
    except CaipeError as error:
        return DoctorFinding("wrong", str(error))
    return DoctorFinding("ok", f"The model {model} is set up. To try it: {command_name()} doctor --live")


def _check_legacy_variables(variables: Mapping[str, str]) -> Iterator[DoctorFinding]:
    translation = translate_legacy_variables(variables)
    for name, legacy_name in translation.sources.items():
        yield DoctorFinding("ok", f"{name} is read from {legacy_name}.")
    for conflict in translation.conflicts:
        message = f"{conflict.legacy_name} and {conflict.name} differ: {conflict.name} is used."
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
            yield DoctorFinding("note", f"{name} is set but not used.", f"Use instead: {instead}")


def _check_agent(entry: AgentEntry, settings: Settings) -> DoctorFinding:
    name = entry.name
    if entry.warning:
        return DoctorFinding("wrong", f"{name} runs as a service and has no address.", f"{entry.note}.")
    if entry.status == "not_configured":
        return DoctorFinding("unused", f"{name} is not configured.", f"To use it, {entry.note}.")
    if entry.placement == "remote":
        message = f"{name} is the service at {mask_urls(entry.address or '')}."
        return DoctorFinding("note", message, f"To see whether it can be reached: {command_name()} agents")
    missing = describe_missing_program(entry, settings)
    if missing:
        return DoctorFinding("wrong", f"{name}: {missing}.")
    held_tools = [change.tool for server in find_held_tools(settings, entry) for change in server.changes]
    if held_tools:
        message = f"{name}: {len(held_tools)} tools are held because their server changed them."
        return DoctorFinding("wrong", message, f"Run: {command_name()} agents trust {name}")
    failure = describe_failed_check(entry, settings)
    if failure:
        return DoctorFinding(
            "wrong", f"{name} fails: {failure}.", f"Run: {command_name()} agents test {name}"
        )
    return DoctorFinding("ok", f"{name} is ready. To try it: {command_name()} agents test {name}")


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
                f"{name} names a file that does not exist.",
                f"Correct {name}: TLS connections fail until then.",
            )
