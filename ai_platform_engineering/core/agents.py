"""What an agent is: data, from which a sub-agent is built in-process or reached as a service."""

import re

from pydantic import field_validator

from ai_platform_engineering.core.events import SUPERVISOR, Frozen

_NAME = re.compile(r"[a-z][a-z0-9_-]*")
RESERVED = frozenset({"all", "task", SUPERVISOR, "user_input"})


class AgentDefinition(Frozen):
    name: str
    description: str
    title: str | None = None
    prompt: str = ""
    model: str | None = None
    examples: tuple[str, ...] = ()

    @field_validator("name")
    @classmethod
    def _is_a_name(cls, name: str) -> str:
        if not _NAME.fullmatch(name):
            raise ValueError(f"an agent's name is made of a-z, 0-9, _ and -, and starts with a letter; {name!r} is not")
        if name in RESERVED:
            raise ValueError(f"{name!r} is reserved; choose another name")
        return name
