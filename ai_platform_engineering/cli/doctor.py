"""`caipe doctor`: the settings and where each came from, the model, the agents, proxies and certificates, and how to mend each."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rich.console import Console

from ai_platform_engineering.agents.agent_catalog import load_placed_catalog
from ai_platform_engineering.cli.agents import missing_commands
from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.settings import SettingRow, Settings, describe_settings
from ai_platform_engineering.models.chat_model import create_chat_model

_MARKS = {"ok": "✅", "note": "ℹ️ ", "wrong": "❌"}
_KEYS = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}
_CERTIFICATES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
_PROXIES = ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy")


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    state: Literal["ok", "note", "wrong"]
    message: str
    remedy: str = ""


def examine(console: Console, variables: Mapping[str, str], from_file: Mapping[str, str]) -> int:
    """Prints what is found; 1 when something is wrong."""
    try:
        settings = Settings.from_variables(variables)
    except CaipeError as error:
        _show(
            console,
            DoctorFinding("wrong", str(error), "Correct these variables in the environment or in .env."),
        )
        return 1
    console.print("Settings", style="bold")
    for row in describe_settings(settings, variables, from_file):
        console.print(
            _line(row), markup=False, highlight=False, style="dim" if row.source == "default" else ""
        )
    findings = [*_model(settings, variables), *_agents(settings, variables), *_network(variables)]
    console.print("\nFindings", style="bold")
    for finding in findings:
        _show(console, finding)
    if any(finding.state == "wrong" for finding in findings):
        return 1
    return 0


def _model(settings: Settings, variables: Mapping[str, str]) -> Iterator[DoctorFinding]:
    name = settings.model.name
    if name is None:
        yield DoctorFinding(
            "note",
            "No model is configured: the embedded offline router answers.",
            'Set LLM_MODEL, for example "openai:gpt-5-mini".',
        )
        return
    provider = name.partition(":")[0]
    key = _KEYS.get(provider)
    if key and not variables.get(key):
        yield DoctorFinding(
            "wrong",
            f"{key} is not set, and LLM_MODEL={name} needs it.",
            f"Set {key}; for a server without keys any word will do.",
        )
    for wanted in (name, *settings.model.fallbacks):
        try:
            create_chat_model(settings.model, wanted)
        except CaipeError as error:
            yield DoctorFinding("wrong", str(error))
        else:
            yield DoctorFinding("ok", f"The model {wanted} is set up (it was not asked anything).")


def _agents(settings: Settings, variables: Mapping[str, str]) -> Iterator[DoctorFinding]:
    try:
        catalog = load_placed_catalog(settings, variables)
    except CaipeError as error:
        yield DoctorFinding("wrong", str(error))
        return
    for entry in catalog:
        if entry.status == "disabled":
            continue
        if entry.status == "not_configured":
            yield DoctorFinding("note", f"{entry.name} is not configured.", f"To use it, {entry.note}.")
        elif entry.placement == "remote":
            yield DoctorFinding(
                "note",
                f"{entry.name} is the service at {entry.address}.",
                "Whether it can be reached: caipe agents",
            )
        elif missing := missing_commands(entry.definition, settings.agent.home):
            yield DoctorFinding(
                "wrong",
                f"{entry.name}: {', '.join(missing)} is not on this machine.",
                f"Run: caipe agents install {entry.name}",
            )
        else:
            yield DoctorFinding(
                "ok", f"{entry.name} is ready. Try its servers with: caipe agents test {entry.name}"
            )


def _network(variables: Mapping[str, str]) -> Iterator[DoctorFinding]:
    proxies = [name for name in _PROXIES if variables.get(name)]
    if proxies:
        bypass = (
            "NO_PROXY is set"
            if variables.get("NO_PROXY") or variables.get("no_proxy")
            else "NO_PROXY is not set"
        )
        yield DoctorFinding(
            "note",
            f"A proxy is used ({', '.join(proxies)}; {bypass}).",
            "Add internal hosts to NO_PROXY if they cannot be reached.",
        )
    for name in _CERTIFICATES:
        given = variables.get(name)
        if given and not Path(given).is_file():
            yield DoctorFinding(
                "wrong",
                f"{name} names a file that is not there.",
                f"Correct {name}: every TLS connection fails with it.",
            )
        elif given:
            yield DoctorFinding("ok", f"Certificates are checked against {name}.")


def _line(row: SettingRow) -> str:
    return f"  {row.name:32} {row.value:40} {row.source}"


def _show(console: Console, finding: DoctorFinding) -> None:
    console.print(f"{_MARKS[finding.state]} {finding.message}", markup=False, highlight=False)
    if finding.remedy:
        console.print(f"   {finding.remedy}", style="dim", markup=False, highlight=False)
