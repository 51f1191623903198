"""Checks of `caipe doctor --live`: a question to each model, and a read-only call to each agent."""

import asyncio
from collections.abc import Mapping

from ai_platform_engineering.agents.agent_catalog import AgentEntry, load_placed_catalog
from ai_platform_engineering.cli.agent_probe import probe_agent
from ai_platform_engineering.cli.agent_status import check_remote_agents
from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.graph.failures import describe_error
from ai_platform_engineering.models.chat_model import create_chat_model
from ai_platform_engineering.terminal.doctor_view import DoctorFinding

_QUESTION = "Answer with the word ok."
_MAX_SECONDS = 60.0


async def ask_models(settings: Settings) -> list[DoctorFinding]:
    """Asks the configured model and its fallbacks one short question each."""
    if settings.model.name is None:
        message = "No model is configured: the embedded offline router answers."
        return [DoctorFinding("note", message, 'Set LLM_MODEL, for example "openai:gpt-5-mini".')]
    return [await _ask_model(settings, name) for name in (settings.model.name, *settings.model.fallbacks)]


async def _ask_model(settings: Settings, name: str) -> DoctorFinding:
    loop = asyncio.get_running_loop()
    started_at = loop.time()
    try:
        model = await asyncio.to_thread(create_chat_model, settings.model, name)
        async with asyncio.timeout(min(settings.model.timeout, _MAX_SECONDS)):
            await model.ainvoke(_QUESTION)
    except Exception as error:  # noqa: BLE001 - each provider has errors of its own
        return DoctorFinding("wrong", f"The model {name} does not answer. {describe_error(error)[0]}")
    return DoctorFinding("ok", f"The model {name} answered in {loop.time() - started_at:.1f} s.")


async def try_agents(settings: Settings, variables: Mapping[str, str]) -> list[DoctorFinding]:
    """Tries each configured agent, one after the other."""
    try:
        catalog = load_placed_catalog(settings, variables)
    except CaipeError:
        return []  # the check of the agents tells it
    ready = [entry for entry in catalog if entry.status == "ready"]
    remote_problems = await check_remote_agents(settings, [entry for entry in ready if entry.address])
    findings: list[DoctorFinding] = []
    for entry in ready:
        if entry.placement == "remote":
            findings.append(_describe_service(entry, remote_problems.get(entry.name)))
        else:
            findings.append(await _try_agent(settings, variables, entry))
    return findings


def _describe_service(entry: AgentEntry, problem: str | None) -> DoctorFinding:
    if problem:
        return DoctorFinding("wrong", f"The service of {entry.name} does not work: {problem}")
    return DoctorFinding("ok", f"The service of {entry.name} answers.")


async def _try_agent(settings: Settings, variables: Mapping[str, str], entry: AgentEntry) -> DoctorFinding:
    probe = await probe_agent(settings, variables, entry)
    problems = probe.list_problems()
    if problems:
        return DoctorFinding("wrong", f"{entry.name} does not work: {'; '.join(problems)}.")
    tools = ", ".join(call.tool for call in probe.calls)
    if tools:
        return DoctorFinding("ok", f"{entry.name} works: {tools} was called.")
    return DoctorFinding("ok", f"{entry.name} lists its tools; none could be called to test it.")
