"""What a source of skills hands out: files as they are there, with a mark that tells whether they changed."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from ai_platform_engineering.core.skills import Origin
from ai_platform_engineering.skills_middleware.file_rules import SKILL_MD, SkillProblem

MAX_SOURCE_BYTES = 64 * 1024 * 1024  # bytes of all skills of one source: they are kept in memory
LEFT_OUT = SkillProblem(
    SKILL_MD, "", "The skills of this source are too large together, so this one was left out. Remove some."
)


@dataclass(frozen=True, slots=True)
class RawSkill:
    """The files of one skill. `place` is where they are in the source; with problems there may be no files."""

    location: str
    folder: str  # the name that the skill must have
    fingerprint: str
    files: Mapping[str, bytes] = field(default_factory=dict)
    problems: tuple[SkillProblem, ...] = ()
    watched_paths: tuple[str, ...] = ()  # the files and folders on disk that the mark was made of

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
        """What is there now, by place; what did not change is given back as it is known. Blocks: it is called in a thread.
        Raises SourceUnavailable."""


def omit_files(held: RawSkill) -> RawSkill:
    """In the place of a skill that is too much; it comes back when others have gone."""
    return replace(held, files={}, problems=(LEFT_OUT,))
