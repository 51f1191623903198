"""Which skills a question uses, and what they hold it to: read from the messages of its turn, which hold names and versions alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AnyMessage, ToolMessage

from ai_platform_engineering.multi_agents.platform_engineer.middleware.call_limits import current_turn

SKILL = "skill"  # in what a result carries beside its text: the skill that is in use from here on
SKILL_FILE = "skill_file"  # the file of a skill that stands here when a model reads it
_REFUSED = "{what} was not used: the skill in use allows only {names}. Do without it, and say what could not be done."


@dataclass(frozen=True, slots=True)
class ActiveSkill:
    name: str
    version: str
    allowed: tuple[str, ...] = ()  # tools and agents; none: everything

    def to_metadata(self) -> dict[str, Any]:
        return {SKILL: {"name": self.name, "version": self.version, "allowed": list(self.allowed)}}


def find_active_skills(messages: Sequence[AnyMessage]) -> list[ActiveSkill]:
    """The skills of the question that is worked on, in the order in which they were loaded, each once."""
    found: dict[str, ActiveSkill] = {}
    for message in current_turn(messages):
        carried = message.additional_kwargs.get(SKILL) if isinstance(message, ToolMessage) else None
        if isinstance(carried, dict):
            name = str(carried["name"])
            found.setdefault(
                name, ActiveSkill(name, str(carried["version"]), tuple(carried.get("allowed") or ()))
            )
    return list(found.values())


@dataclass(frozen=True, slots=True)
class SkillRestrictions:
    """What the skills in use allow together. A skill without a list neither holds to anything nor frees from what another one holds to."""

    names: frozenset[str] | None = None

    @classmethod
    def of(cls, messages: Sequence[AnyMessage]) -> "SkillRestrictions":
        lists = [one.allowed for one in find_active_skills(messages) if one.allowed]
        return cls(frozenset(name.partition("(")[0] for names in lists for name in names) if lists else None)

    def allows(self, tool: str) -> bool:
        return self.names is None or tool in self.names

    def allows_agent(self, agent: str) -> bool:
        return self.names is None or any(name == agent or name.startswith(f"{agent}/") for name in self.names)

    def allowed_tools(self, agent: str) -> tuple[str, ...] | None:
        """The only tools that the agent may use; None for all of its own."""
        if self.names is None or agent in self.names:
            return None
        return tuple(sorted(name.partition("/")[2] for name in self.names if name.startswith(f"{agent}/")))

    def refusal(self, what: str) -> str:
        return _REFUSED.format(what=what, names=self.list_names())

    def list_names(self) -> str:
        return ", ".join(sorted(self.names or ()))
