"""All skills of all sources at one moment: which is used, which is shadowed, which is switched off or broken."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from ai_platform_engineering.core.skills import Origin, ScanFinding, Skill
from ai_platform_engineering.skills_middleware.file_rules import (
    SKILL_MD,
    SkillErrors,
    SkillProblem,
    to_printable,
)
from ai_platform_engineering.skills_middleware.scan.skill_scan import has_blocking, scan_files
from ai_platform_engineering.skills_middleware.skill_md import parse_skill
from ai_platform_engineering.skills_middleware.sources.skill_source import RawSkill

EnabledSwitches = Mapping[tuple[str, str, str], bool]

RESERVED_NAMES = frozenset(
    {"hubs", "refresh", "scan-content", "validate"}
)  # the REST API has routes of these names


@dataclass(frozen=True, slots=True)
class SkillCheck:
    """What is to be said about a skill's files: the skill, unless there are problems."""

    skill: Skill | None
    problems: tuple[SkillProblem, ...] = ()

    @property
    def findings(self) -> tuple[ScanFinding, ...]:
        if self.skill:
            return self.skill.findings
        return ()

    @property
    def is_blocked(self) -> bool:
        return has_blocking(self.findings)


@dataclass(frozen=True, slots=True)
class SkillEntry:
    """A skill in the catalogue, or what would be one but for its problems. `shadowed_by` is where the one is from that is used instead."""

    name: str
    origin: Origin
    origin_id: str
    skill: Skill | None
    problems: tuple[SkillProblem, ...] = ()
    shadowed_by: Origin | None = None
    files: Mapping[str, bytes] = field(default_factory=dict, repr=False)

    @property
    def enabled(self) -> bool:
        return self.skill is not None and self.skill.enabled

    @property
    def used(self) -> bool:
        return self.enabled and self.shadowed_by is None


@dataclass(frozen=True, slots=True)
class LoadedSkill:
    """A skill as its source holds it, read and scanned once."""

    raw: RawSkill
    check: SkillCheck


@dataclass(frozen=True, slots=True)
class SkillSnapshot:
    """A skill with its files, so that a run keeps what it began with."""

    skill: Skill
    files: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class ResolvedSkills:
    entries: tuple[SkillEntry, ...] = ()
    usable: tuple[Skill, ...] = ()
    snapshots: Mapping[str, SkillSnapshot] = field(default_factory=dict)  # the usable ones by name


def check_files(files: Mapping[str, bytes], folder: str | None = None) -> SkillCheck:
    """Reads and scans."""
    try:
        skill = parse_skill(files, folder)
    except SkillErrors as error:
        return SkillCheck(None, error.problems)
    return SkillCheck(skill.model_copy(update={"findings": (*skill.findings, *scan_files(files))}))


def check_new_skill(files: Mapping[str, bytes], folder: str | None = None) -> SkillCheck:
    """The same for a skill that is to be stored, which people then reach by its name."""
    checked = check_files(files, folder)
    if checked.skill is None or checked.skill.name not in RESERVED_NAMES:
        return checked
    return SkillCheck(
        None,
        (
            SkillProblem(
                SKILL_MD, "name", f"The name {checked.skill.name} is one of the server's own. Choose another."
            ),
        ),
    )


def load_skill(held: RawSkill, origin: Origin, origin_id: str) -> LoadedSkill:
    if held.problems:
        return LoadedSkill(held, SkillCheck(None, held.problems))
    checked = check_files(held.files, held.folder)
    if checked.skill is not None:
        checked = SkillCheck(checked.skill.model_copy(update={"origin": origin, "origin_id": origin_id}))
    return LoadedSkill(held, checked)


def resolve(
    loaded: Iterable[tuple[Origin, str, LoadedSkill]], switches: EnabledSwitches | None
) -> ResolvedSkills:
    """`loaded` in the order in which skills win. Without switches nobody knows what people switched off: then nothing is used."""
    entries: list[SkillEntry] = []
    first: dict[str, Origin] = {}
    kept: dict[str, SkillSnapshot] = {}
    for origin, origin_id, one in loaded:
        entry = _entry(origin, origin_id, one, switches)
        entry = replace(entry, shadowed_by=first.get(entry.name) if entry.skill else None)
        entries.append(entry)
        if entry.used and entry.skill is not None:
            first[entry.name] = origin
            kept[entry.name] = SkillSnapshot(entry.skill, one.raw.files)
    return ResolvedSkills(
        tuple(entries),
        tuple(one.skill for one in sorted(kept.values(), key=lambda one: one.skill.name)),
        kept,
    )


def _entry(
    origin: Origin, origin_id: str, loaded: LoadedSkill, switches: EnabledSwitches | None
) -> SkillEntry:
    skill = loaded.check.skill
    if skill is None:
        return SkillEntry(
            to_printable(loaded.raw.folder),
            origin,
            origin_id,
            None,
            loaded.check.problems,
            files=loaded.raw.files,
        )
    enabled = (
        switches is not None
        and switches.get((origin, origin_id, skill.name), True)
        and not loaded.check.is_blocked
    )
    skill = skill if enabled else skill.model_copy(update={"enabled": False})
    return SkillEntry(skill.name, origin, origin_id, skill, files=loaded.raw.files)
