"""Creates the connectors from settings; one that lacks its settings says so when it is used."""

from collections.abc import Mapping, Sequence

from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.knowledge_bases.sources.connectors.api_client import ApiAccess, ApiLimits
from ai_platform_engineering.knowledge_bases.sources.connectors.api_source import ListingRules
from ai_platform_engineering.knowledge_bases.sources.connectors.backstage import BackstageConnector
from ai_platform_engineering.knowledge_bases.sources.connectors.confluence import ConfluenceConnector
from ai_platform_engineering.knowledge_bases.sources.connectors.connector import Connectors, SourceConnector
from ai_platform_engineering.knowledge_bases.sources.connectors.github import GitAccess, GitHubConnector
from ai_platform_engineering.knowledge_bases.sources.connectors.jira import JiraConnector
from ai_platform_engineering.knowledge_bases.sources.connectors.retries import RetryLimits
from ai_platform_engineering.knowledge_bases.sources.connectors.s3 import S3Connector
from ai_platform_engineering.knowledge_bases.sources.connectors.slack import SlackConnector
from ai_platform_engineering.net.git_process import GitLimits


def create_connectors(
    settings: Settings,
    access: ApiAccess | None = None,
    rules: ListingRules | None = None,
    *,
    variables: Mapping[str, str] | None = None,
) -> Connectors:
    """All connectors by their kinds. `access` and `rules` are for tests; else the settings decide.
    `variables`: those of the environment, for git."""
    access = access or _create_access(settings)
    rules = rules or ListingRules(hours=settings.sources.listing_hours)
    connectors: Sequence[SourceConnector] = (
        ConfluenceConnector(settings.sources, access, rules),
        JiraConnector(settings.sources, access, rules),
        GitHubConnector(settings.sources, access, rules, _create_git_access(settings, variables or {})),
        SlackConnector(settings.sources, access, rules),
        BackstageConnector(settings.sources, access, rules),
        S3Connector(settings.sources, access, rules),
    )
    return {connector.kind: connector for connector in connectors}


def _create_access(settings: Settings) -> ApiAccess:
    limits = ApiLimits(
        max_bytes=settings.knowledge.fetch_bytes,
        seconds=settings.knowledge.fetch_seconds,
        retries=RetryLimits(wait_seconds=settings.sources.wait_seconds),
    )
    return ApiAccess(limits)


def _create_git_access(settings: Settings, variables: Mapping[str, str]) -> GitAccess:
    limits = GitLimits(max_bytes=settings.git.max_bytes, max_files=settings.git.max_files)
    return GitAccess(settings.agent.home / "cache" / "repositories", variables, limits)
