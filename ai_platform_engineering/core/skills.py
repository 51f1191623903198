"""What a skill is: a procedure in Markdown with a name and a description, and files that belong to it."""

from collections.abc import Sequence
from typing import Literal, Protocol

from pydantic import Field

from ai_platform_engineering.core.events import FrozenModel, Text

Severity = Literal["block", "warn"]
Origin = Literal[
    "shipped", "folder", "stored", "hub"
]  # in the order in which they win when two have the same name


class SkillFile(FrozenModel):
    path: Text  # below the skill's folder, with slashes
    size: int


class ScanFinding(FrozenModel):
    """What a scan found; a blocking one keeps a skill disabled."""

    code: Text
    severity: Severity
    file: Text
    line: int | None = None
    message: Text


class Skill(FrozenModel):
    """A skill. `version` is a digest of its folder: the same files have the same version in every origin."""

    name: Text
    description: Text
    body: Text
    version: Text
    license: Text | None = None
    compatibility: Text | None = None
    metadata: dict[str, Text] = Field(default_factory=dict)
    allowed_tools: tuple[Text, ...] = ()  # none: everything
    files: tuple[SkillFile, ...] = ()
    origin: Origin = "shipped"
    origin_id: Text = ""  # which hub
    enabled: bool = True
    findings: tuple[ScanFinding, ...] = ()


class SkillRegistry(Protocol):
    """The skills as the supervisor sees them."""

    async def list_usable(self) -> Sequence[Skill]:
        """Those that may be used now: enabled, and the first of their name."""
        ...

    async def get(self, name: str, version: str | None = None) -> Skill | None:
        """A skill that may be used, or one in a version that a run has begun with."""
        ...

    async def read(self, name: str, version: str, path: str) -> str:
        """A file of a skill. Raises CaipeError."""
        ...
