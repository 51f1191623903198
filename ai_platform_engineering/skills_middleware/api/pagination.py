"""Pages of the skill catalogue, searched by words."""

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
    """The entries with every word in their name, description or metadata, by name; page 0 is all of them."""
    search_words = words.casefold().split()
    matches: list[SkillEntry] = []
    for entry in entries:
        if origin in (None, entry.origin) and _contains_words(entry, search_words):
            matches.append(entry)
    matches.sort(key=lambda entry: entry.name)  # stable: of the same name the one that is used comes first
    if not page:
        return SkillPage(matches, len(matches), has_more=False)
    start = (page - 1) * size
    end = start + size
    return SkillPage(matches[start:end], len(matches), has_more=end < len(matches))


def _contains_words(entry: SkillEntry, words: Sequence[str]) -> bool:
    if not words:
        return True
    texts = [entry.name]
    if entry.skill is not None:
        texts += [entry.skill.description, *entry.skill.metadata.values()]
    text = " ".join(texts).casefold()
    return all(word in text for word in words)
