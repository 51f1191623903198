"""Tool traits: what is known of a tool, by its name and by the metadata that LangChain keeps with it.

This module alone knows the keys of that metadata.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from ai_platform_engineering.core.agent_definition import Effect, Permission
from ai_platform_engineering.core.call_targets import TargetKind

DELEGATION_TOOL = "task"  # its argument names the agent
UNKNOWN_AGENT = "unknown"  # a delegation that names none; it fails
PLANNING_TOOL = "write_todos"
USER_INPUT_TOOL = "CAIPEAgentResponse"  # asks a person with a form
WAIT_TOOL = "wait"
ANSWER_TOOL = "PlatformEngineerResponse"  # the structured answer; LangChain names it after its class
LOAD_SKILL_TOOL = "load_skill"
READ_SKILL_FILE_TOOL = "read_skill_file"
FIND_SKILLS_TOOL = "find_skills"
REMEMBER_FACT_TOOL = "remember_fact"
LIST_FACTS_TOOL = "list_facts"
FORGET_FACT_TOOL = "forget_fact"
RUN_WORKFLOW_TOOL = "run_workflow"
SEARCH_TOOLS_TOOL = "search_tools"
RESULT_PAGE_TOOL = "result_page"
RESULT_QUERY_TOOL = "result_query"
RESULT_GREP_TOOL = "result_grep"

_EFFECTS: Mapping[str, Effect] = {"read": "read", "idempotent": "idempotent", "write": "write"}

# Keys of a tool's metadata.
_EFFECT = "effect"
_PERMISSION = "listed"
_ANNOTATIONS = "annotations"
_OWN = "own"
_KNOWLEDGE = "knowledge"
_POLL = "poll"
_SERVER = "server"
_TARGETS = "targets"


class Tool(Protocol):
    """The parts of a LangChain tool that tell its traits."""

    name: str
    metadata: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class ToolTraits:
    """What is known of a tool."""

    defined_effect: Effect | None = None  # by the agent's definition; None where it says nothing
    permission: Permission | None = None  # by the agent's definition; None where it says nothing
    annotations: Mapping[str, Any] | None = None  # by its MCP server; None for a tool of this program
    is_own: bool = False  # the product needs it itself: nobody is asked about it
    is_knowledge: bool = False  # it searches a knowledge base
    may_poll: bool = False  # it may be repeated to watch for a change
    # By argument: what of a call says where it goes and what it carries; empty for a tool that stays here.
    targets: Mapping[str, TargetKind] = field(default_factory=dict)
    delegates: bool = False
    plans: bool = False
    asks_person: bool = False
    waits: bool = False
    answers: bool = False
    manages_skills: bool = False
    starts_procedure: bool = False  # what it starts decides what the agent does next
    finds_tools: bool = False
    reads_results: bool = False  # those that are stored because they were too long for a message

    @classmethod
    def from_name(cls, name: str) -> "ToolTraits":
        """The traits of a call whose tool is not at hand.

        A third-party tool may have the name of one of the product's, unless that is a control tool.
        """
        return _OWN_TOOLS.get(name, _NO_TRAITS)

    @classmethod
    def from_metadata(cls, name: str, metadata: Mapping[str, Any]) -> "ToolTraits":
        """The traits of a tool; the metadata shows whether it is the product's own."""
        own_traits = _OWN_TOOLS.get(name)
        if own_traits is not None and (own_traits.is_control or metadata.get(_OWN)):
            return own_traits
        annotations = None
        if _ANNOTATIONS in metadata:
            annotations = metadata[_ANNOTATIONS] or {}
        return cls(
            defined_effect=_EFFECTS.get(str(metadata.get(_EFFECT))),
            permission=metadata.get(_PERMISSION),
            annotations=annotations,
            is_own=bool(metadata.get(_OWN)),
            is_knowledge=bool(metadata.get(_KNOWLEDGE)),
            may_poll=bool(metadata.get(_POLL)),
            targets=metadata.get(_TARGETS) or {},
        )

    def to_metadata(self) -> dict[str, Any]:
        """The traits as a tool's metadata, without those that follow from its name."""
        metadata: dict[str, Any] = {_PERMISSION: self.permission, _KNOWLEDGE: self.is_knowledge}
        if self.annotations is not None:
            metadata[_ANNOTATIONS] = dict(self.annotations)
        if self.defined_effect is not None:
            metadata[_EFFECT] = self.defined_effect
        if self.is_own:
            metadata[_OWN] = True
        if self.may_poll:
            metadata[_POLL] = True
        if self.targets:
            metadata[_TARGETS] = dict(self.targets)
        return metadata

    @property
    def is_control(self) -> bool:
        """An agent steers its own work with it: plans, delegates, asks, waits, or looks at what it has.

        No restriction applies to such a tool, and its name is reserved.
        """
        looks_up = self.finds_tools or self.reads_results
        return self.delegates or self.plans or self.asks_person or self.waits or looks_up

    @property
    def is_silent(self) -> bool:
        """Its calls are not shown: what they do is shown as a plan or as a form."""
        return self.plans or self.asks_person

    @property
    def effect(self) -> Effect:
        """What calling it again would do, by its agent's definition, else by its server's annotations.

        A tool without either is taken to write.
        """
        if self.defined_effect is not None:
            return self.defined_effect
        annotations = self.annotations or {}
        if annotations.get("readOnlyHint"):
            return "read"
        if annotations.get("idempotentHint"):
            return "idempotent"
        return "write"

    @property
    def needs_trust(self) -> bool:
        """It changes something or starts a procedure: after text of others' a person decides on each call."""
        return self.effect != "read" or self.starts_procedure

    @property
    def is_destructive(self) -> bool | None:
        """Whether it can destroy or overwrite something; None when its server does not say."""
        destructive: bool | None = (self.annotations or {}).get("destructiveHint")
        return destructive


def traits_of(tool: Tool) -> ToolTraits:
    return ToolTraits.from_metadata(tool.name, tool.metadata or {})


def server_of(tool: Tool) -> str | None:
    """The name of the MCP server that a tool belongs to; None for a tool of this program."""
    return (tool.metadata or {}).get(_SERVER)


def mark_as_own(tool: Tool) -> None:
    """Attaches its traits to a tool of the product."""
    tool.metadata = _OWN_TOOLS[tool.name].to_metadata()


_NO_TRAITS = ToolTraits()
_READS = ToolTraits(defined_effect="read", is_own=True)
_REPEATABLE = ToolTraits(defined_effect="idempotent", is_own=True)
_READS_RESULTS = ToolTraits(defined_effect="read", is_own=True, reads_results=True)
_SKILLS = ToolTraits(defined_effect="read", is_own=True, manages_skills=True)

# The tools of the product. A delegation counts as reading: its agent's own calls have the effects.
_OWN_TOOLS: Mapping[str, ToolTraits] = {
    DELEGATION_TOOL: ToolTraits(defined_effect="read", is_own=True, delegates=True),
    PLANNING_TOOL: ToolTraits(defined_effect="read", is_own=True, plans=True),
    USER_INPUT_TOOL: ToolTraits(defined_effect="read", is_own=True, asks_person=True),
    WAIT_TOOL: ToolTraits(defined_effect="read", is_own=True, waits=True),
    ANSWER_TOOL: ToolTraits(defined_effect="read", is_own=True, answers=True),
    LOAD_SKILL_TOOL: replace(_SKILLS, starts_procedure=True),
    READ_SKILL_FILE_TOOL: _SKILLS,
    FIND_SKILLS_TOOL: _SKILLS,
    REMEMBER_FACT_TOOL: _REPEATABLE,
    LIST_FACTS_TOOL: _READS,
    FORGET_FACT_TOOL: _REPEATABLE,
    RUN_WORKFLOW_TOOL: replace(_READS, starts_procedure=True),
    SEARCH_TOOLS_TOOL: replace(_READS, finds_tools=True),
    RESULT_PAGE_TOOL: _READS_RESULTS,
    RESULT_QUERY_TOOL: _READS_RESULTS,
    RESULT_GREP_TOOL: _READS_RESULTS,
}

# A server's tool with such a name would run as one of the product's, and nobody would be asked about it.
RESERVED_TOOL_NAMES = frozenset(name for name, traits in _OWN_TOOLS.items() if traits.is_control)
