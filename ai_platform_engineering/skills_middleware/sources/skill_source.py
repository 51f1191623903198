"""The interface of a skill source, and the unparsed files of a skill that it reads."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from ai_platform_engineering.core.skills import Origin
from ai_platform_engineering.skills_middleware.file_rules import SKILL_MD, SkillProblem

MAX_SOURCE_BYTES = 64 * 1024 * 1024  # of all skills of one source: they are kept in memory
SOURCE_TOO_LARGE = SkillProblem(
    SKILL_MD, "", "The skills of this source are too large together, so this one was left out. Remove some."
)


@dataclass(frozen=True, slots=True)
class RawSkill:
    """The files of one skill, not parsed; with problems there may be no files."""

    location: str  # where the files are in the source
    folder: str  # the name that the skill must have
    fingerprint: str  # changes when the files change
    files: Mapping[str, bytes] = field(default_factory=dict)
    problems: tuple[SkillProblem, ...] = ()
    watched_paths: tuple[str, ...] = ()  # the files and folders on disk that the fingerprint was made of

    @property
    def size(self) -> int:
        return sum(map(len, self.files.values()))


class SkillSource(Protocol):
    """Where skills come from."""

    @property
    def origin(self) -> Origin: ...

    @property
    def origin_id(self) -> str:
        """Which hub; empty for the others."""

    @property
    def watched(self) -> bool:
        """Whether it can change while the process runs."""

    def read_skills(self, known: Mapping[str, RawSkill]) -> dict[str, RawSkill]:
        """The skills by location; one that did not change is the same object as in `known`. Blocks: it is
        called in a thread. Raises SourceUnavailable."""


def omit_files(raw: RawSkill) -> RawSkill:
    """A skill of a source that is too large, without its files; it is read again when others are removed."""
    return replace(raw, files={}, problems=(SOURCE_TOO_LARGE,))
