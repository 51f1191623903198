"""Checks of `caipe doctor`: the model, the agents, proxies and certificates."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from ai_platform_engineering.agents.agent_catalog import AgentEntry, load_placed_catalog
from ai_platform_engineering.cli.agent_status import missing_commands
from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.models.chat_model import create_chat_model
from ai_platform_engineering.terminal.doctor_view import DoctorFinding

_KEY_VARIABLES = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}
_CERTIFICATE_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
_PROXY_VARIABLES = ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy")


def run_checks(settings: Settings, variables: Mapping[str, str]) -> list[DoctorFinding]:
    """Runs all checks; none of them opens a connection."""
    return [
        *_check_models(settings, variables),
        *_check_agents(settings, variables),
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
    provider = name.partition(":")[0]
    key = _KEY_VARIABLES.get(provider)
    if key and not variables.get(key):
        yield DoctorFinding(
            "wrong",
            f"{key} is not set, and LLM_MODEL={name} needs it.",
            f"Set {key}; for a server without keys any word will do.",
        )
    for model in (name, *settings.model.fallbacks):
        try:
            create_chat_model(settings.model, model)
        except CaipeError as error:
            yield DoctorFinding("wrong", str(error))
        else:
            yield DoctorFinding("ok", f"The model {model} is set up (it was not asked anything).")


def _check_agents(settings: Settings, variables: Mapping[str, str]) -> Iterator[DoctorFinding]:
    try:
        catalog = load_placed_catalog(settings, variables)
    except CaipeError as error:
        yield DoctorFinding("wrong", str(error))
        return
    for entry in catalog:
        if entry.status != "disabled":
            yield _check_agent(entry, settings.agent.home)


def _check_agent(entry: AgentEntry, home: Path) -> DoctorFinding:
    name = entry.name
    if entry.status == "not_configured":
        return DoctorFinding("note", f"{name} is not configured.", f"To use it, {entry.note}.")
    if entry.placement == "remote":
        message = f"{name} is the service at {entry.address}."
        return DoctorFinding("note", message, "Whether it can be reached: caipe agents")
    missing = missing_commands(entry.definition, home)
    if missing:
        message = f"{name}: {', '.join(missing)} is not on this machine."
        return DoctorFinding("wrong", message, f"Run: caipe agents install {name}")
    return DoctorFinding("ok", f"{name} is ready. Try its servers with: caipe agents test {name}")


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
