"""What a source of skills hands out: files as they are there, with a mark that tells whether they changed."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from ai_platform_engineering.core.skills import Origin
from ai_platform_engineering.skills_middleware.file_rules import MAIN, Problem

MAX_SOURCE = 64 * 1024 * 1024  # bytes of all skills of one source: they are kept in memory
LEFT_OUT = Problem(MAIN, "", "The skills of this source are too large together, so this one was left out. Remove some.")


@dataclass(frozen=True, slots=True)
class Held:
    """The files of one skill. `place` is where they are in the source; with problems there may be no files."""

    place: str
    folder: str  # the name that the skill must have
    mark: str
    files: Mapping[str, bytes] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    watched: tuple[str, ...] = ()  # the files and folders on disk that the mark was made of

    @property
    def size(self) -> int:
        return sum(map(len, self.files.values()))


class Source(Protocol):
    """Where skills come from."""

    @property
    def origin(self) -> Origin: ...

    @property
    def origin_id(self) -> str:
        """Which hub; empty for the others."""

    @property
    def watched(self) -> bool:
        """Whether it can change while the process runs."""

    def held(self, known: Mapping[str, Held]) -> dict[str, Held]:
        """What is there now, by place; what did not change is given back as it is known. Blocks: it is called in a thread.
        Raises SourceUnavailable."""


def no_room(held: Held) -> Held:
    """In the place of a skill that is too much; it comes back when others have gone."""
    return replace(held, files={}, problems=(LEFT_OUT,))
