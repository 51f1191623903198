"""Resolves the skills of all sources: which one of a name is used, which is shadowed, disabled or invalid."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

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

EnabledSwitches = Mapping[tuple[str, str, str], bool]  # by origin, origin id and name

# The REST API has routes of these names.
RESERVED_NAMES = frozenset({"hubs", "refresh", "scan-content", "validate"})


@dataclass(frozen=True, slots=True)
class SkillCheck:
    """The result of parsing and scanning a skill's files: the skill, unless there are problems."""

    skill: Skill | None
    problems: tuple[SkillProblem, ...] = ()

    @property
    def findings(self) -> tuple[ScanFinding, ...]:
        if self.skill is None:
            return ()
        return self.skill.findings

    @property
    def is_blocked(self) -> bool:
        return has_blocking(self.findings)


@dataclass(frozen=True, slots=True)
class SkillEntry:
    """A skill in the catalogue, or one that its problems keep out. `shadowed_by` is the origin of the
    skill of the same name that is used instead."""

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
    """A skill's files as the source has them, and the result of parsing and scanning them once."""

    raw: RawSkill
    check: SkillCheck


@dataclass(frozen=True, slots=True)
class SkillSnapshot:
    """A version of a skill with its files, so that a run goes on with the version it began with."""

    skill: Skill
    files: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class ResolvedSkills:
    """All entries, and the skills that can be used."""

    entries: tuple[SkillEntry, ...] = ()
    usable: tuple[Skill, ...] = ()
    snapshots: Mapping[str, SkillSnapshot] = field(default_factory=dict)  # the usable ones by name


def check_files(files: Mapping[str, bytes], folder: str | None = None) -> SkillCheck:
    """Parses and scans a skill's files."""
    try:
        skill = parse_skill(files, folder)
    except SkillErrors as error:
        return SkillCheck(None, error.problems)
    findings = (*skill.findings, *scan_files(files))
    return SkillCheck(skill.model_copy(update={"findings": findings}))


def check_new_skill(files: Mapping[str, bytes], folder: str | None = None) -> SkillCheck:
    """The same for a skill that is to be stored, which people then reach by its name."""
    check = check_files(files, folder)
    if check.skill is None or check.skill.name not in RESERVED_NAMES:
        return check
    message = f"The name {check.skill.name} is one of the server's own. Choose another."
    return SkillCheck(None, (SkillProblem(SKILL_MD, "name", message),))


def load_skill(raw: RawSkill, origin: Origin, origin_id: str) -> LoadedSkill:
    if raw.problems:
        return LoadedSkill(raw, SkillCheck(None, raw.problems))
    check = check_files(raw.files, raw.folder)
    if check.skill is not None:
        check = SkillCheck(check.skill.model_copy(update={"origin": origin, "origin_id": origin_id}))
    return LoadedSkill(raw, check)


def resolve(
    loaded_skills: Iterable[tuple[Origin, str, LoadedSkill]], switches: EnabledSwitches | None
) -> ResolvedSkills:
    """Of skills with the same name the first usable one is used. Without switches nobody knows what people
    disabled: then none is used."""
    entries: list[SkillEntry] = []
    used_origins: dict[str, Origin] = {}
    snapshots: dict[str, SkillSnapshot] = {}
    for origin, origin_id, loaded in loaded_skills:
        entry = _build_entry(origin, origin_id, loaded, switches, used_origins)
        entries.append(entry)
        if entry.used and entry.skill is not None:
            used_origins[entry.name] = origin
            snapshots[entry.name] = SkillSnapshot(entry.skill, loaded.raw.files)
    usable = tuple(snapshots[name].skill for name in sorted(snapshots))
    return ResolvedSkills(tuple(entries), usable, snapshots)


def _build_entry(
    origin: Origin,
    origin_id: str,
    loaded: LoadedSkill,
    switches: EnabledSwitches | None,
    used_origins: Mapping[str, Origin],
) -> SkillEntry:
    skill = loaded.check.skill
    files = loaded.raw.files
    if skill is None:
        name = to_printable(loaded.raw.folder)
        return SkillEntry(name, origin, origin_id, None, loaded.check.problems, files=files)
    switched_on = switches is not None and switches.get((origin, origin_id, skill.name), True)
    if not switched_on or loaded.check.is_blocked:
        skill = skill.model_copy(update={"enabled": False})
    return SkillEntry(
        skill.name, origin, origin_id, skill, shadowed_by=used_origins.get(skill.name), files=files
    )
