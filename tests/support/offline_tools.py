"""Tools for the tests of the offline model: they record their calls and answer with random values."""

import secrets
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from langchain_core.tools import BaseTool, StructuredTool
from pydantic import BaseModel, Field, create_model

from ai_platform_engineering.core.agent_definition import AgentDefinition
from ai_platform_engineering.models.offline_model import OfflineModel
from ai_platform_engineering.multi_agents.platform_engineer.local_agents import LocalAgent
from tests.support.harness import agent

RECORD_TYPES = Literal["A", "AAAA", "CNAME", "MX", "NS", "TXT", "PTR"]
STATES = Literal["open", "closed"]

# name, what it says of itself, its arguments: a type, or a type and a default
Spec = tuple[str, str, dict[str, Any]]
NETUTILS: tuple[Spec, ...] = (
    ("dns_lookup", "Look up DNS records of a name.", {"name": str, "record_type": (RECORD_TYPES, "A")}),
    ("reverse_dns", "Find the host name of an IP address.", {"address": str}),
    (
        "check_port",
        "Check whether a TCP port of a host is open.",
        {"host": str, "port": (int, Field(ge=1, le=65535))},
    ),
    ("http_check", "Check whether a web address answers.", {"url": str}),
    ("tls_certificate", "Look at the TLS certificate of a service.", {"host": str, "port": (int, 443)}),
    (
        "cidr_info",
        "Explain a network: range, addresses and hosts.",
        {"cidr": str, "contains": (str | None, None)},
    ),
    ("ip_info", "Explain an IP address: version and kind.", {"address": str}),
    ("subnet_overlap", "Compare two networks.", {"a": str, "b": str}),
)
ARGOCD: tuple[Spec, ...] = (
    ("list_applications", "List the applications.", {"limit": (int, 20)}),
    ("get_application", "One application with its health and sync status.", {"application_name": str}),
    ("sync_application", "Sync an application.", {"application_name": str}),
    ("delete_application", "Delete an application.", {"application_name": str}),
)
JIRA: tuple[Spec, ...] = (
    ("get_issue", "Read one issue.", {"issue_key": str}),
    ("search_issues", "Search issues.", {"query": str, "status": (STATES, "open"), "limit": (int, 20)}),
    ("create_issue", "Create an issue.", {"project": str, "summary": str}),
)
SPECS: dict[str, tuple[Spec, ...]] = {"netutils": NETUTILS, "argocd": ARGOCD, "jira": JIRA}
ABOUT = {
    "netutils": "Network checks: DNS, ports, web addresses, certificates and networks.",
    "argocd": "Argo CD: applications, their health and sync status.",
    "jira": "Jira: issues and tickets.",
}
EXAMPLES = {
    "netutils": ("Is port 443 open on example.org?", "What does 10.0.0.0/22 contain?"),
    "argocd": ("Which applications are out of sync?",),
    "jira": ("Show the ticket OPS-1.",),
}
OUTPUTS: dict[str, dict[str, Any]] = {
    "check_port": {"open": True},
    "cidr_info": {"addresses": 0, "note": ""},
    "subnet_overlap": {"overlap": True},
}


@dataclass(slots=True)
class Recorder:
    """Who was called with what, and what the answers were."""

    calls: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)  # a random word per answer
    failing: frozenset[str] = frozenset()

    def tools(self, owner: str) -> tuple[BaseTool, ...]:
        return tuple(self._tool(owner, *spec) for spec in SPECS[owner])

    def agents(self, *names: str) -> list[LocalAgent]:
        """Agents that have the offline model themselves."""
        return [
            replace(
                agent(name, OfflineModel(), *self.tools(name)),
                definition=AgentDefinition(name=name, description=ABOUT[name], examples=EXAMPLES[name]),
            )
            for name in names
        ]

    def _tool(self, owner: str, name: str, about: str, arguments: dict[str, Any]) -> BaseTool:
        async def run(**call_arguments: Any) -> dict[str, Any]:
            # What was left to its default was not chosen by the model.
            defaults = {key: kind[1] for key, kind in arguments.items() if isinstance(kind, tuple)}
            self.calls.append(
                (
                    owner,
                    name,
                    {key: value for key, value in call_arguments.items() if defaults.get(key) != value},
                )
            )
            if name in self.failing:
                raise RuntimeError("secret detail")
            token = secrets.token_hex(6)
            self.tokens.append(token)
            return {**call_arguments, **OUTPUTS.get(name, {}), "token": token}

        schema: dict[str, Any] = {
            key: kind if isinstance(kind, tuple) else (kind, ...) for key, kind in arguments.items()
        }
        model: type[BaseModel] = create_model(name, **schema)
        return StructuredTool(name=name, description=about, args_schema=model, coroutine=run)
