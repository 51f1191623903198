"""The tools that are bound to the model: tools with their argument slots, and the agents behind `task`."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any

from ai_platform_engineering.core.tool_traits import ToolTraits
from ai_platform_engineering.models.offline.argument_slots import ArgumentSlot, read_slots
from ai_platform_engineering.models.offline.installation import NOTHING_ELSE, Installation, UnavailableAgent
from ai_platform_engineering.models.offline.lexicon import CHANGES, NOUNS_IN_NAMES, PRODUCTS, word_set
from ai_platform_engineering.models.offline.word_matching import Profile, ProfileField, split_words

_USER_INPUT = "user_input"  # a step of workflow files that asks a person; never a tool for work
# Of the knowledge base's tools: a document's id or a page to read is chosen by a model, not by words.
_TOOLS_FOR_MODELS = frozenset({"fetch_document", "fetch_url"})
_MAX_TOOLS = 200
_MAX_AGENTS = 100
_MAX_DESCRIPTION = 4000
_READING_VERBS = word_set("get list show describe find search check read fetch lookup view count query info")
_RESOLVABLE_NAMES = word_set("name host hostname dns domain address ip")


# --- changes --------------------------------------------------------------------------------------


def _group_change_verbs() -> dict[str, frozenset[str]]:
    kinds_by_verb: dict[str, set[str]] = {}
    for kind, verbs in CHANGES.items():
        for verb in verbs.split():
            kinds_by_verb.setdefault(verb, set()).add(kind)
    return {verb: frozenset(kinds) for verb, kinds in kinds_by_verb.items()}


_CHANGE_KINDS_BY_VERB = _group_change_verbs()


def find_change_kinds(word: str) -> frozenset[str]:
    """The kinds of change that a verb names; only its plain form, since `runs` and `updates` are things."""
    return _CHANGE_KINDS_BY_VERB.get(word, frozenset())


def _is_reading_name(words: Sequence[str]) -> bool:
    """Whether the name of a tool says that it only reads.

    A reading verb in front settles it: `get_deployment_logs`, `argocd_list_sync_windows`; but not in
    `get_or_create_label`.
    """
    for link, word in pairwise(words):
        if link in ("or", "and") and find_change_kinds(word):
            return False
    first_verb = next(filter(_is_verb, words), "")
    if first_verb == "resolve":
        return bool(_RESOLVABLE_NAMES & set(words))
    return first_verb in _READING_VERBS


def _is_verb(word: str) -> bool:
    if word in _READING_VERBS:
        return True
    return bool(find_change_kinds(word)) and word not in NOUNS_IN_NAMES


# --- tools and agents -----------------------------------------------------------------------------


@dataclass(frozen=True)
class RoutableTool:
    """A tool that requests can be routed to."""

    name: str
    description: str
    slots: tuple[ArgumentSlot, ...]

    @cached_property
    def profile(self) -> Profile:
        options = list[str]()
        slot_names = list[str]()
        descriptions = [self.description]
        for slot in self.slots:
            options.extend(map(str, slot.options))
            slot_names.append(slot.name)
            descriptions.append(slot.description)
        return (
            ProfileField.from_texts(2.0, [self.name]),
            ProfileField.from_texts(1.0, slot_names),
            ProfileField.from_texts(1.0, options),
            ProfileField.from_texts(0.8, descriptions, 1500),
        )

    @cached_property
    def change_kinds(self) -> frozenset[str]:
        """What the tool changes, by the verbs in its name; empty for a tool that only reads."""
        words = split_words(self.name)
        if _is_reading_name(words):
            return frozenset()
        kinds = set[str]()
        for index, word in enumerate(words):
            if index == 0 or word not in NOUNS_IN_NAMES:
                kinds.update(find_change_kinds(word))
        return frozenset(kinds)

    @property
    def required_slots(self) -> tuple[ArgumentSlot, ...]:
        return tuple(slot for slot in self.slots if slot.required)


@dataclass(frozen=True)
class RoutableAgent:
    """An agent that requests can be delegated to."""

    name: str
    description: str
    tool_names: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()
    unavailable: str = ""  # why it cannot be asked: "not configured: set ARGOCD_TOKEN"

    @cached_property
    def profile(self) -> Profile:
        name_parts = re.split(r"[_-]", self.name)
        product_words = [words for product, words in PRODUCTS.items() if product in name_parts]
        return (
            ProfileField.from_texts(3.0, [self.name, "".join(name_parts)]),
            ProfileField.from_texts(1.5, self.tool_names),
            ProfileField.from_texts(1.3, product_words),
            ProfileField.from_texts(1.0, [self.description]),
            ProfileField.from_texts(0.8, self.examples),
        )


@dataclass(frozen=True)
class BoundTools:
    """Everything that is bound to the model for this call."""

    tools: tuple[RoutableTool, ...] = ()
    agents: tuple[RoutableAgent, ...] = ()
    can_plan: bool = False
    has_answer_tool: bool = False
    unavailable_agents: tuple[RoutableAgent, ...] = ()
    workflows: tuple[str, ...] = ()

    @property
    def can_delegate(self) -> bool:
        return bool(self.agents) or self.can_plan


def read_bound_tools(
    tool_schemas: Sequence[Mapping[str, Any]], installation: Installation = NOTHING_ELSE
) -> BoundTools:
    """Reads tools in OpenAI's form, as `bind_tools` keeps them; the supervisor's with what is installed."""
    can_plan = False
    has_answer_tool = False
    tools = list[RoutableTool]()
    delegation_description: str | None = None
    for function in _iterate_functions(tool_schemas):
        name = str(function["name"])
        traits = ToolTraits.from_name(name)
        can_plan = can_plan or traits.plans
        has_answer_tool = has_answer_tool or traits.answers
        if traits.delegates and delegation_description is None:
            delegation_description = str(function.get("description") or "")
        if not traits.is_control and not traits.answers and name != _USER_INPUT:
            tools.append(_read_tool(json.dumps(function, default=str)))
    agents = tuple(read_agents(delegation_description or ""))
    if not agents and not can_plan:
        return BoundTools(tuple(tools[:_MAX_TOOLS]), has_answer_tool=has_answer_tool)
    return BoundTools(
        tools=tuple(tool for tool in tools[:_MAX_TOOLS] if tool.name not in _TOOLS_FOR_MODELS),
        agents=agents,
        can_plan=can_plan,
        has_answer_tool=has_answer_tool,
        unavailable_agents=tuple(map(_read_unavailable, installation.unavailable_agents)),
        workflows=installation.workflows,
    )


def _read_unavailable(agent: UnavailableAgent) -> RoutableAgent:
    # Loosely related words of a description are no reason to send somebody off to configure an agent.
    is_product = not set(re.split(r"[_-]", agent.name)).isdisjoint(PRODUCTS)
    description = "" if is_product else agent.description
    return RoutableAgent(agent.name, description, unavailable=agent.reason)


def _iterate_functions(tool_schemas: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    for tool_schema in tool_schemas:
        function = tool_schema.get("function", tool_schema)
        if isinstance(function, Mapping) and function.get("name"):
            yield function


@lru_cache(maxsize=500)
def _read_tool(function_json: str) -> RoutableTool:
    """The tool of a function in JSON; cached, because the same ones come with every call of the model."""
    function = json.loads(function_json)
    name = str(function["name"])
    description = str(function.get("description") or "")[:_MAX_DESCRIPTION]
    schema = function.get("parameters") or {}
    slots = read_slots(schema, f"{name} {description[:300]}")
    return RoutableTool(name, description, tuple(slots))


# --- the description of the delegation tool -------------------------------------------------------


_AGENT_START = re.compile(r"^[-*] +`?([a-z][a-z0-9_-]{0,80})`?: *", re.MULTILINE)
_SECTION_START = re.compile(r"\b(tools|examples?|for example)\s{0,3}:\s{0,3}", re.IGNORECASE)
_QUOTED_EXAMPLE = re.compile(r"[\"“]([^\"”]{3,200})[\"”]")


def read_agents(description: str) -> list[RoutableAgent]:
    """The agents in the delegation tool's description.

    Each has the form `- name: what it does. Tools: a, b. Examples: … | …`.
    """
    agents = list[RoutableAgent]()
    starts = list(_AGENT_START.finditer(description))
    for start, text in _split_at(starts[:_MAX_AGENTS], description):
        agents.append(_read_agent(start[1], text[:_MAX_DESCRIPTION]))
    return agents


def _split_at(starts: Sequence[re.Match[str]], text: str) -> Iterator[tuple[re.Match[str], str]]:
    """Each match with the text between it and the next one."""
    for index, start in enumerate(starts):
        end = len(text)
        if index + 1 < len(starts):
            end = starts[index + 1].start()
        yield start, text[start.end() : end]


def _read_agent(name: str, text: str) -> RoutableAgent:
    section_starts = list(_SECTION_START.finditer(text))
    description = text
    if section_starts:
        description = text[: section_starts[0].start()]
    tool_names = list[str]()
    examples = list[str]()
    for start, section in _split_at(section_starts, text):
        if start[1].lower() == "tools":
            tool_names += filter(None, re.split(r"[,\s.]+", section.strip()))
        else:
            examples += filter(None, _read_examples(section.strip()))
    return RoutableAgent(name, " ".join(description.split()), tuple(tool_names), tuple(examples))


def _read_examples(section: str) -> list[str]:
    """The examples between bars or on lines; else those in quotes; else those between semicolons."""
    separator = r" \| |\n"
    if " | " not in section and "\n" not in section:
        quoted_examples = _QUOTED_EXAMPLE.findall(section)
        if quoted_examples:
            return quoted_examples
        separator = ";"
    return [example.strip(" \n-") for example in re.split(separator, section)]
