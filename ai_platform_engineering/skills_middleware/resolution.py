"""All skills of all sources at one moment: which is used, which is shadowed, which is switched off or broken."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from ai_platform_engineering.core.skills import Finding, Origin, Skill
from ai_platform_engineering.skills_middleware.file_rules import MAIN, Problem, SkillErrors, shown
from ai_platform_engineering.skills_middleware.scan.scan import blocks, scan
from ai_platform_engineering.skills_middleware.skill_md import parse
from ai_platform_engineering.skills_middleware.sources.source import Held

Switches = Mapping[tuple[str, str, str], bool]

RESERVED = frozenset({"hubs", "refresh", "scan-content", "validate"})  # the REST API has routes of these names


@dataclass(frozen=True, slots=True)
class Checked:
    """What is to be said about a skill's files: the skill, unless there are problems."""

    skill: Skill | None
    problems: tuple[Problem, ...] = ()

    @property
    def findings(self) -> tuple[Finding, ...]:
        return self.skill.findings if self.skill else ()

    @property
    def blocked(self) -> bool:
        return blocks(self.findings)


@dataclass(frozen=True, slots=True)
class Entry:
    """A skill in the catalogue, or what would be one but for its problems. `shadowed_by` is where the one is from that is used instead."""

    name: str
    origin: Origin
    origin_id: str
    skill: Skill | None
    problems: tuple[Problem, ...] = ()
    shadowed_by: Origin | None = None
    files: Mapping[str, bytes] = field(default_factory=dict, repr=False)

    @property
    def enabled(self) -> bool:
        return self.skill is not None and self.skill.enabled

    @property
    def used(self) -> bool:
        return self.enabled and self.shadowed_by is None


@dataclass(frozen=True, slots=True)
class Loaded:
    """A skill as its source holds it, read and scanned once."""

    held: Held
    checked: Checked


@dataclass(frozen=True, slots=True)
class Kept:
    """A skill with its files, so that a run keeps what it began with."""

    skill: Skill
    files: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Shelf:
    entries: tuple[Entry, ...] = ()
    usable: tuple[Skill, ...] = ()
    kept: Mapping[str, Kept] = field(default_factory=dict)  # the usable ones by name


def check(files: Mapping[str, bytes], folder: str | None = None) -> Checked:
    """Reads and scans."""
    try:
        skill = parse(files, folder)
    except SkillErrors as error:
        return Checked(None, error.problems)
    return Checked(skill.model_copy(update={"findings": (*skill.findings, *scan(files))}))


def check_new(files: Mapping[str, bytes], folder: str | None = None) -> Checked:
    """The same for a skill that is to be stored, which people then reach by its name."""
    checked = check(files, folder)
    if checked.skill is None or checked.skill.name not in RESERVED:
        return checked
    return Checked(None, (Problem(MAIN, "name", f"The name {checked.skill.name} is one of the server's own. Choose another."),))


def load(held: Held, origin: Origin, origin_id: str) -> Loaded:
    if held.problems:
        return Loaded(held, Checked(None, held.problems))
    checked = check(held.files, held.folder)
    if checked.skill is not None:
        checked = Checked(checked.skill.model_copy(update={"origin": origin, "origin_id": origin_id}))
    return Loaded(held, checked)


def arranged(loaded: Iterable[tuple[Origin, str, Loaded]], switches: Switches | None) -> Shelf:
    """`loaded` in the order in which skills win. Without switches nobody knows what people switched off: then nothing is used."""
    entries: list[Entry] = []
    first: dict[str, Origin] = {}
    kept: dict[str, Kept] = {}
    for origin, origin_id, one in loaded:
        entry = _entry(origin, origin_id, one, switches)
        entry = replace(entry, shadowed_by=first.get(entry.name) if entry.skill else None)
        entries.append(entry)
        if entry.used and entry.skill is not None:
            first[entry.name] = origin
            kept[entry.name] = Kept(entry.skill, one.held.files)
    return Shelf(tuple(entries), tuple(one.skill for one in sorted(kept.values(), key=lambda one: one.skill.name)), kept)


def _entry(origin: Origin, origin_id: str, loaded: Loaded, switches: Switches | None) -> Entry:
    skill = loaded.checked.skill
    if skill is None:
        return Entry(shown(loaded.held.folder), origin, origin_id, None, loaded.checked.problems, files=loaded.held.files)
    enabled = switches is not None and switches.get((origin, origin_id, skill.name), True) and not loaded.checked.blocked
    skill = skill if enabled else skill.model_copy(update={"enabled": False})
    return Entry(skill.name, origin, origin_id, skill, files=loaded.held.files)
