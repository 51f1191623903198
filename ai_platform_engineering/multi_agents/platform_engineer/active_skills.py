"""The skills that a question uses and the restrictions that they set, read from the messages of its turn.

The messages hold names and versions only.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from langchain_core.messages import AnyMessage, ToolMessage

from ai_platform_engineering.core.message_metadata import ActiveSkill
from ai_platform_engineering.multi_agents.platform_engineer.turn_messages import current_turn

_REFUSED = (
    "{subject} was not used: the skill in use allows only {names}. Do without it, and say what could not be "
    "done."
)


def find_active_skills(messages: Sequence[AnyMessage]) -> list[ActiveSkill]:
    """The skills of the current question, in the order in which they were loaded, each once."""
    skills: dict[str, ActiveSkill] = {}
    for message in current_turn(messages):
        if not isinstance(message, ToolMessage):
            continue
        skill = ActiveSkill.of(message)
        if skill is not None:
            skills.setdefault(skill.name, skill)
    return list(skills.values())


@dataclass(frozen=True, slots=True)
class SkillRestrictions:
    """The tools and agents that the active skills allow together; None for all.

    A skill without a list of its own neither restricts nor lifts the restrictions of another one.
    """

    names: frozenset[str] | None = None

    @classmethod
    def of(cls, messages: Sequence[AnyMessage]) -> "SkillRestrictions":
        names: set[str] = set()
        for skill in find_active_skills(messages):
            # An entry may have arguments, as in `Bash(git:*)`; only the name counts here.
            names.update(entry.partition("(")[0] for entry in skill.allowed)
        if not names:
            return cls()
        return cls(frozenset(names))

    def allows(self, tool: str) -> bool:
        return self.names is None or tool in self.names

    def allows_agent(self, agent: str) -> bool:
        if self.names is None or agent in self.names:
            return True
        return any(name.startswith(f"{agent}/") for name in self.names)

    def allowed_tools(self, agent: str) -> tuple[str, ...] | None:
        """The only tools that the agent may use; None for all of its own."""
        if self.names is None or agent in self.names:
            return None
        prefix = f"{agent}/"
        return tuple(sorted(name.removeprefix(prefix) for name in self.names if name.startswith(prefix)))

    def refusal(self, subject: str) -> str:
        """The text for the model about a tool or an agent that may not be used."""
        return _REFUSED.format(subject=subject, names=self.list_names())

    def list_names(self) -> str:
        return ", ".join(sorted(self.names or ()))
