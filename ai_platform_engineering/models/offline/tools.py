"""What is offered to the model: tools with their arguments, and the agents that the delegation tool lists."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any

from ai_platform_engineering.core.tool_traits import DELEGATION_TOOL, PLANNING_TOOL, USER_INPUT_TOOL
from ai_platform_engineering.models.offline.lexicon import CHANGES, NOUNS_IN_NAMES, PRODUCTS, word_set
from ai_platform_engineering.models.offline.schemas import ArgumentSlot, read_slots
from ai_platform_engineering.models.offline.words import Profile, ProfileField, plain_words

ANSWER = "PlatformEngineerResponse"
_NOT_FOR_WORK = frozenset({USER_INPUT_TOOL, DELEGATION_TOOL, PLANNING_TOOL, ANSWER, "user_input"})
_MOST_TOOLS = 200
_MOST_AGENTS = 100
_MOST_TEXT = 4000


@dataclass(frozen=True)
class RoutableTool:
    name: str
    description: str
    slots: tuple[ArgumentSlot, ...]

    @cached_property
    def profile(self) -> Profile:
        options = [str(option) for slot in self.slots for option in slot.options]
        return (
            ProfileField.of(2.0, [self.name]),
            ProfileField.of(1.0, [slot.name for slot in self.slots]),
            ProfileField.of(1.0, options),
            ProfileField.of(0.8, [self.description, *(slot.description for slot in self.slots)], 1500),
        )

    @cached_property
    def changes(self) -> frozenset[str]:
        """What the tool changes, by the verbs in its name; empty for a tool that only reads."""
        words = plain_words(self.name)
        if _reads(words):
            return frozenset()
        verbs = [word for at, word in enumerate(words) if not at or word not in NOUNS_IN_NAMES]
        return frozenset(group for word in verbs for group in changes_of(word))

    @property
    def required(self) -> tuple[ArgumentSlot, ...]:
        return tuple(slot for slot in self.slots if slot.required)


_READING = word_set("get list show describe find search check read fetch lookup view count query info")
_RESOLVABLE = word_set("name host hostname dns domain address ip")


def _reads(words: Sequence[str]) -> bool:
    """A reading verb in front settles it: `get_deployment_logs`, `argocd_list_sync_windows`; but not in `get_or_create_label`."""
    first = next(
        (word for word in words if word in _READING or (changes_of(word) and word not in NOUNS_IN_NAMES)), ""
    )
    more = [word for link, word in pairwise(words) if link in ("or", "and") and changes_of(word)]
    return not more and (first in _READING or (first == "resolve" and bool(_RESOLVABLE & set(words))))


def changes_of(word: str) -> frozenset[str]:
    """The kinds of change that a verb names; only its plain form, since `runs` and `updates` are things."""
    return _CHANGES.get(word, frozenset())


_CHANGES = {
    verb: frozenset(group for group, others in CHANGES.items() if verb in others.split())
    for verbs in CHANGES.values()
    for verb in verbs.split()
}


@dataclass(frozen=True)
class RoutableAgent:
    name: str
    description: str
    tools: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()

    @cached_property
    def profile(self) -> Profile:
        known = [words for product, words in PRODUCTS.items() if product in re.split(r"[_-]", self.name)]
        return (
            ProfileField.of(3.0, [self.name, self.name.replace("-", "").replace("_", "")]),
            ProfileField.of(1.5, self.tools),
            ProfileField.of(1.3, known),
            ProfileField.of(1.0, [self.description]),
            ProfileField.of(0.8, self.examples),
        )


@dataclass(frozen=True)
class BoundTools:
    """Everything that is bound to the model for this call."""

    tools: tuple[RoutableTool, ...] = ()
    agents: tuple[RoutableAgent, ...] = ()
    plans: bool = False
    structured: bool = False

    @property
    def delegates(self) -> bool:
        return bool(self.agents) or self.plans


def offered(bound: Sequence[Mapping[str, Any]]) -> BoundTools:
    """Reads tools in OpenAI's form, as `bind_tools` keeps them."""
    functions = [
        function
        for tool in bound
        if isinstance(function := tool.get("function", tool), Mapping) and function.get("name")
    ]
    names = {str(function["name"]) for function in functions}
    delegation = next(
        (
            str(function.get("description") or "")
            for function in functions
            if function["name"] == DELEGATION_TOOL
        ),
        "",
    )
    tools = [
        _tool(json.dumps(function, default=str))
        for function in functions
        if function["name"] not in _NOT_FOR_WORK
    ]
    return BoundTools(
        tuple(tools[:_MOST_TOOLS]), tuple(read_agents(delegation)), PLANNING_TOOL in names, ANSWER in names
    )


_AGENT = re.compile(r"^[-*] +`?([a-z][a-z0-9_-]{0,80})`?: *", re.MULTILINE)
_SECTION = re.compile(r"\b(tools|examples?|for example)\s{0,3}:\s{0,3}", re.IGNORECASE)
_QUOTED = re.compile(r"[\"“]([^\"”]{3,200})[\"”]")


def read_agents(description: str) -> list[RoutableAgent]:
    """The agents in the delegation tool's description: `- name: what it does. Tools: a, b. Examples: … | …`."""
    starts = list(_AGENT.finditer(description))[:_MOST_AGENTS]
    ends = [start.start() for start in starts[1:]] + [len(description)]
    return [
        _agent(start[1], description[start.end() : end][:_MOST_TEXT])
        for start, end in zip(starts, ends, strict=False)
    ]


def _agent(name: str, text: str) -> RoutableAgent:
    marks = list(_SECTION.finditer(text))
    about = text[: marks[0].start()] if marks else text
    tools, examples = list[str](), list[str]()
    for mark, end in zip(marks, [*(mark.start() for mark in marks[1:]), len(text)], strict=False):
        said = text[mark.end() : end].strip()
        if mark[1].lower() == "tools":
            tools += [part for part in re.split(r"[,\s.]+", said) if part]
        else:
            bars = " | " in said or "\n" in said
            examples += (not bars and _QUOTED.findall(said)) or [
                part.strip(" \n-") for part in re.split(r" \| |\n" if bars else ";", said)
            ]
    return RoutableAgent(
        name, " ".join(about.split()), tuple(tools), tuple(example for example in examples if example)
    )


@lru_cache(maxsize=500)
def _tool(written: str) -> RoutableTool:
    """The tool of a function in JSON; the same ones come with every call of the model."""
    function = json.loads(written)
    name, description = str(function["name"]), str(function.get("description") or "")[:_MOST_TEXT]
    schema = function.get("parameters") or {}
    return RoutableTool(name, description, tuple(read_slots(schema, f"{name} {description[:300]}")))
