"""The catalogue of the settings: which folders, which database, which hubs."""

from collections.abc import Mapping

from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.net.connections import UrlChecker
from ai_platform_engineering.skills_middleware.skill_catalog import SkillCatalog
from ai_platform_engineering.skills_middleware.skill_store import SkillStore
from ai_platform_engineering.skills_middleware.sources.folder_source import FolderSource
from ai_platform_engineering.skills_middleware.sources.hub_reader import HubReader, parse_hubs
from ai_platform_engineering.skills_middleware.sources.shipped_source import shipped_source

STORE, HUBS = "skills.db", "skills/hubs"  # below CAIPE_HOME


def build_skill_catalog(settings: Settings, variables: Mapping[str, str]) -> SkillCatalog:
    """Not open yet. Raises ConfigurationError."""
    skills, home = settings.skills, settings.agent.home
    sources = [shipped_source(), *([FolderSource(skills.folder)] if skills.folder else [])]
    reader = HubReader(home / HUBS, variables, UrlChecker(allow_private=skills.allow_private))
    return SkillCatalog(SkillStore(home / STORE), reader, sources, configured=parse_hubs(skills.hubs))
