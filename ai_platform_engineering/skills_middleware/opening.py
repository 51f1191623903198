"""The catalogue of the settings: which folders, which database, which hubs."""

from collections.abc import Mapping

from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.skills_middleware.catalog import SkillCatalog
from ai_platform_engineering.skills_middleware.folder import FolderSource
from ai_platform_engineering.skills_middleware.hubs import HubReader, configured_hubs
from ai_platform_engineering.skills_middleware.shipped import shipped
from ai_platform_engineering.skills_middleware.store import SkillStore
from ai_platform_engineering.utils.connecting import Gate

STORE, HUBS = "skills.db", "skills/hubs"  # below CAIPE_HOME


def skill_catalog(settings: Settings, variables: Mapping[str, str]) -> SkillCatalog:
    """Not open yet. Raises ConfigurationError."""
    skills, home = settings.skills, settings.agent.home
    sources = [shipped(), *([FolderSource(skills.folder)] if skills.folder else [])]
    reader = HubReader(home / HUBS, variables, Gate(allow_private=skills.allow_private))
    return SkillCatalog(SkillStore(home / STORE), reader, sources, configured=configured_hubs(skills.hubs))
