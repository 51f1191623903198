"""Builds the skill catalogue of the settings: its folders, its database, its hubs."""

import logging
from collections.abc import Mapping

from ai_platform_engineering.core.errors import ConfigurationError, DatabaseUnavailable
from ai_platform_engineering.core.host_patterns import AllowedHosts
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.core.storage_settings import REQUIRED
from ai_platform_engineering.databases.database_choice import choose_checkpoint_database
from ai_platform_engineering.databases.database_clients import import_optional
from ai_platform_engineering.net.connections import UrlChecker
from ai_platform_engineering.net.git_process import GitLimits
from ai_platform_engineering.net.url_policy import PrivateAccess
from ai_platform_engineering.skills_middleware.skill_catalog import SkillCatalog
from ai_platform_engineering.skills_middleware.skill_database import SkillDatabase, SqliteSkillDatabase
from ai_platform_engineering.skills_middleware.skill_store import SkillStore
from ai_platform_engineering.skills_middleware.sources.folder_source import SkillFolder
from ai_platform_engineering.skills_middleware.sources.hub_reader import HubReader, parse_hubs
from ai_platform_engineering.skills_middleware.sources.shipped_source import shipped_source

log = logging.getLogger(__name__)

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
    store = SkillStore(_create_database(settings))
    return SkillCatalog(store, reader, sources, configured=parse_hubs(skills.hubs))


def _create_database(settings: Settings) -> SkillDatabase:
    """The PostgreSQL that servers share, or a file in this one's home. Raises ConfigurationError."""
    choice = choose_checkpoint_database(settings.storage)
    if not choice.holds_runs:
        return SqliteSkillDatabase(settings.agent.home / STORE_FILE)
    try:
        import_optional("psycopg", "postgres", choice)
    except DatabaseUnavailable as error:
        if settings.storage.required:
            raise ConfigurationError(error.describe(REQUIRED)) from None
        log.warning("%s", error.describe("Skills are kept in CAIPE_HOME."))
        return SqliteSkillDatabase(settings.agent.home / STORE_FILE)
    from ai_platform_engineering.databases.postgres_check import check_postgres_address
    from ai_platform_engineering.skills_middleware.postgres_skills import PostgresSkillDatabase

    check_postgres_address(choice.address, choice.variable)
    return PostgresSkillDatabase(choice.address, choice.label, settings.storage.timeout_seconds)
