"""The tool calls of a run: their ids, unique in the run, and the delegations that namespaces belong to."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ai_platform_engineering.core.tool_traits import ToolTraits
from ai_platform_engineering.graph.emitted_run import EmittedRun
from ai_platform_engineering.graph.text_streams import Namespace
from ai_platform_engineering.graph.tool_messages import called_name

_TOOLS_NODE = "tools"
_TOOLS_SEGMENT = "tools:"  # what a task of that node starts has the namespace segment `tools:<task id>`


@dataclass(slots=True)
class TrackedCall:
    """A tool call of one namespace; `task_id` tells a repeated run of the same call from a new call with a
    reused id. `raw_id` is the model's own id of it."""

    call_id: str
    raw_id: str
    tool: str
    delegates: bool
    arguments: Mapping[str, Any]
    task_id: str | None = None
    step_id: str | None = None
    started: bool = False
    finished: bool = False

    @property
    def is_open(self) -> bool:
        return self.started and not self.finished


def is_tool_task(task: Mapping[str, Any]) -> bool:
    """A task of the node `tools` runs one call."""
    return task.get("name") == _TOOLS_NODE and "input" in task


def calls_of_task(task: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    task_input = task["input"]
    if isinstance(task_input, list):
        return [call for call in task_input if call]
    if isinstance(task_input, Mapping) and task_input.get("tool_call"):
        return [task_input["tool_call"]]
    return []


class ToolCalls:
    """One per turn of a run.

    A call that the log already holds is recognised by its id and goes on where it was.
    """

    def __init__(
        self, emitted: EmittedRun, claim_step: Callable[[str], str | None], *, is_takeover: bool
    ) -> None:
        """After a pause the calls that were open go on; after a crash all calls are counted again from the
        first.

        `claim_step` gives the plan's step of the supervisor's next delegation with an id.
        """
        self._emitted = emitted
        self._claim_step = claim_step
        self._used_ids = set[str]()
        self._paused_ids = set[str]()
        if not is_takeover:
            self._used_ids = emitted.ended_call_ids()
            self._paused_ids = emitted.open_call_ids()
        self._calls: dict[tuple[Namespace, str], TrackedCall] = {}
        self._delegations: dict[str, TrackedCall] = {}  # by namespace segment

    def get(self, ns: Namespace, raw_id: str) -> TrackedCall | None:
        return self._calls.get((ns, raw_id))

    def register(
        self,
        ns: Namespace,
        raw_id: str,
        name: str,
        arguments: Mapping[str, Any],
        task_id: str | None = None,
    ) -> TrackedCall:
        """A new call.

        Inner ids are prefixed with the delegation's, ids that a provider uses again are counted.
        """
        call_id = self._next_id(self.base_id(ns, raw_id))
        delegates = ToolTraits.from_name(name).delegates
        call = TrackedCall(call_id, raw_id, called_name(name, arguments), delegates, arguments, task_id)
        if delegates and not ns:
            call.step_id = self._claim_step(raw_id)
        emitted = self._emitted.call(call_id)
        if emitted is not None:
            call.started = True
            call.finished = emitted.outcome is not None
            call.step_id = emitted.step_id
        self._calls[ns, raw_id] = call
        return call

    def register_task(self, ns: Namespace, task_id: str, raw_call: Mapping[str, Any]) -> TrackedCall:
        """The call that a task runs. One that was begun before a crash and has no result is the same call."""
        call = self.get(ns, raw_call["id"])
        if call is not None and call.task_id is None and not call.finished:
            call.task_id = task_id
        elif call is None or call.task_id != task_id:
            call = self.register(ns, raw_call["id"], raw_call["name"], raw_call["args"], task_id)
        if call.delegates:
            self._delegations[f"{_TOOLS_SEGMENT}{task_id}"] = call
        return call

    def enter(self, ns: Namespace, delegation: TrackedCall) -> None:
        """Says that the graph in this namespace works on a delegation."""
        segments = [segment for segment in ns if segment.startswith(_TOOLS_SEGMENT)]
        self._delegations[segments[-1]] = delegation

    def delegation(self, ns: Namespace) -> TrackedCall | None:
        """The innermost delegation that a namespace belongs to."""
        for segment in reversed(ns):
            if segment in self._delegations:
                return self._delegations[segment]
        return None

    def find_delegation(self, ns: Namespace, call_id: str) -> TrackedCall | None:
        """The delegation of a graph by the id of its call, also behind the ids of outer delegations."""
        for (call_ns, raw_id), call in self._calls.items():
            if call_ns == ns and call.delegates and f"/{call_id}".endswith(f"/{raw_id}"):
                return call
        return None

    def is_inside_tool(self, ns: Namespace) -> bool:
        """A tool may run an agent of its own: only what that asks of people concerns anybody else."""
        return any(segment.startswith(_TOOLS_SEGMENT) and segment not in self._delegations for segment in ns)

    def segments(self, delegation: TrackedCall) -> list[str]:
        return [segment for segment, call in self._delegations.items() if call is delegation]

    def open_inside(self, delegation: TrackedCall) -> Iterator[tuple[Namespace, TrackedCall]]:
        """The calls of a delegation's agent that have no result, the latest first."""
        for (ns, _), call in reversed(self._calls.items()):
            if call.is_open and call.call_id.startswith(f"{delegation.call_id}/"):
                yield ns, call

    def base_id(self, ns: Namespace, raw_id: str) -> str:
        delegation = self.delegation(ns)
        if delegation is None:
            return raw_id
        return f"{delegation.call_id}/{raw_id}"

    def _next_id(self, base: str) -> str:
        for paused_id in self._paused_ids - self._used_ids:
            if base in (paused_id, without_count(paused_id)):
                self._used_ids.add(paused_id)
                return paused_id
        call_id = base
        count = 1
        while call_id in self._used_ids:
            count += 1
            call_id = f"{base}#{count}"
        self._used_ids.add(call_id)
        return call_id


def without_count(call_id: str) -> str:
    """The id that the model gave, when the call has a counted one."""
    base, _, count = call_id.rpartition("#")
    if count.isdigit():
        return base
    return call_id
