"""The rule for tools that reach other hosts: people named them, an operator allows them, or one is asked.

One run reaches a limited number of hosts and ports, whoever named them: a scan is no check.
"""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ai_platform_engineering.core.call_targets import CallTargets
from ai_platform_engineering.core.host_patterns import AllowedHosts
from ai_platform_engineering.core.named_targets import NamedTargets
from ai_platform_engineering.core.network_settings import NetworkSettings
from ai_platform_engineering.core.policy import PolicyDecision, decide_targets
from ai_platform_engineering.core.run_context import RunContext
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.core.tool_traits import ToolTraits
from ai_platform_engineering.multi_agents.platform_engineer.person_input import (
    PersonInputStore,
    read_conversation_input,
)

_MAX_RUNS = 1000  # whose counts are held; those of the run that was quiet for longest are dropped
_TOO_MANY_HOSTS = "One run reaches at most {limit} hosts (NETWORK_HOST_LIMIT)."
_TOO_MANY_PORTS = "One run checks at most {limit} ports (NETWORK_PORTS_PER_RUN)."


@dataclass(slots=True)
class _RunTargets:
    """What a run has reached: its hosts, and the ports of each call by the call's id."""

    hosts: set[str] = field(default_factory=set)
    ports: dict[str, int] = field(default_factory=dict)


class TargetBudget:
    """Counts the hosts and ports of each run over all its calls and agents in this process."""

    def __init__(self, settings: NetworkSettings) -> None:
        self._settings = settings
        self._runs: OrderedDict[str, _RunTargets] = OrderedDict()

    def spend(self, run_id: str, call_id: str, targets: CallTargets) -> str | None:
        """Counts a call, and returns why it is too much; a call that is asked about again counts once."""
        spent = self._runs.setdefault(run_id, _RunTargets())
        self._runs.move_to_end(run_id)
        if len(self._runs) > _MAX_RUNS:
            self._runs.popitem(last=False)
        hosts = spent.hosts | set(targets.hosts)
        if len(hosts) > self._settings.hosts_per_run:
            return _TOO_MANY_HOSTS.format(limit=self._settings.hosts_per_run)
        ports = {**spent.ports, call_id: targets.ports}
        if sum(ports.values()) > self._settings.ports_per_run:
            return _TOO_MANY_PORTS.format(limit=self._settings.ports_per_run)
        spent.hosts = hosts
        spent.ports = ports
        return None


class TargetRule:
    """Decides about calls that reach other hosts; shared by all agents of a process."""

    def __init__(self, settings: Settings, store: PersonInputStore | None) -> None:
        self._store = store
        self._read_only = settings.people.read_only
        self._allowed = AllowedHosts.parse(settings.network.allowed_hosts)
        self._budget = TargetBudget(settings.network)

    async def decide(
        self,
        traits: ToolTraits,
        call_id: str,
        arguments: Mapping[str, Any],
        run: RunContext,
        defined: NamedTargets,
    ) -> PolicyDecision:
        """The decision about a call; a tool without targets is none of this rule's business.

        `defined` are targets that a workflow's definition names: its author has chosen them.
        """
        if not traits.targets or traits.is_own:
            return PolicyDecision("allow")
        targets = CallTargets.of(traits.targets, arguments)
        person = await read_conversation_input(self._store, run.run_id)
        call_key = f"{run.run_id}/{run.checkpoint_ns}/{call_id}"
        excess = self._budget.spend(person.origin_run or run.thread_id or call_key, call_key, targets)
        if excess is not None:
            return PolicyDecision("deny", excess)
        named = person.named | defined
        return decide_targets(targets, named, self._allowed, read_only=self._read_only)
