"""Pages of the catalogue, searched by words."""

from collections.abc import Sequence
from dataclasses import dataclass

from ai_platform_engineering.core.skills import Origin
from ai_platform_engineering.skills_middleware.skill_resolution import SkillEntry


@dataclass(frozen=True, slots=True)
class SkillPage:
    entries: Sequence[SkillEntry]
    total: int  # before paging
    has_more: bool


def find_page(
    entries: Sequence[SkillEntry],
    *,
    words: str = "",
    origin: Origin | None = None,
    page: int = 1,
    size: int = 50,
) -> SkillPage:
    """The entries that hold every word in their name, description or metadata, by name; page 0 is all of
    them."""
    wanted = words.casefold().split()
    found = [entry for entry in entries if origin in (None, entry.origin) and _holds(entry, wanted)]
    found.sort(key=lambda entry: entry.name)  # stable: of the same name the one that wins comes first
    first = (page - 1) * size if page else 0
    shown = found[first : first + size] if page else found
    return SkillPage(shown, len(found), bool(page) and first + size < len(found))


def _holds(entry: SkillEntry, words: Sequence[str]) -> bool:
    if not words:
        return True
    about = (
        [entry.name]
        if entry.skill is None
        else [entry.name, entry.skill.description, *entry.skill.metadata.values()]
    )
    text = " ".join(about).casefold()
    return all(word in text for word in words)
