"""Builds the skill catalogue of the settings: its folders, its database, its hubs."""

from collections.abc import Mapping

from ai_platform_engineering.core.host_patterns import AllowedHosts
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.net.connections import UrlChecker
from ai_platform_engineering.net.git_process import GitLimits
from ai_platform_engineering.net.url_policy import PrivateAccess
from ai_platform_engineering.skills_middleware.skill_catalog import SkillCatalog
from ai_platform_engineering.skills_middleware.skill_store import SkillStore
from ai_platform_engineering.skills_middleware.sources.folder_source import SkillFolder
from ai_platform_engineering.skills_middleware.sources.hub_reader import HubReader, parse_hubs
from ai_platform_engineering.skills_middleware.sources.shipped_source import shipped_source

# Below CAIPE_HOME.
STORE_FILE = "skills.db"
HUBS_FOLDER = "skills/hubs"


def build_skill_catalog(settings: Settings, variables: Mapping[str, str]) -> SkillCatalog:
    """A catalogue that is not open yet. Raises ConfigurationError."""
    skills = settings.skills
    home = settings.agent.home
    sources = [shipped_source()]
    if skills.folder:
        sources.append(SkillFolder(skills.folder))
    private = PrivateAccess(
        skills.allow_private, AllowedHosts.parse(skills.private_hosts), "SKILL_HUBS_PRIVATE_HOSTS"
    )
    reader = HubReader(
        home / HUBS_FOLDER,
        variables,
        UrlChecker(private=private),
        limits=GitLimits(max_bytes=settings.git.max_bytes, max_files=settings.git.max_files),
    )
    store = SkillStore(home / STORE_FILE)
    return SkillCatalog(store, reader, sources, configured=parse_hubs(skills.hubs))
