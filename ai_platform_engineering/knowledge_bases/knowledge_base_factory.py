"""Creates the knowledge base from settings: its store, its embeddings and its HTTP fetcher."""

from collections.abc import Mapping, Sequence
from functools import partial

from ai_platform_engineering.core.host_patterns import AllowedHosts
from ai_platform_engineering.core.knowledge_settings import KnowledgeSettings
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.knowledge_bases.datasources import DatasourceResolver
from ai_platform_engineering.knowledge_bases.indexing.embeddings import (
    create_embedder,
    create_embedder_of_index,
)
from ai_platform_engineering.knowledge_bases.knowledge_base import KnowledgeBase
from ai_platform_engineering.knowledge_bases.owner_file import KNOWLEDGE_FOLDER
from ai_platform_engineering.knowledge_bases.reading.document_readers import DocumentReaders
from ai_platform_engineering.knowledge_bases.sources.connectors.connector_factory import create_connectors
from ai_platform_engineering.knowledge_bases.sources.fetcher import Fetcher, FetchLimits
from ai_platform_engineering.knowledge_bases.sources.source_factory import SourceContext
from ai_platform_engineering.knowledge_bases.stores.knowledge_store import KnowledgeStore
from ai_platform_engineering.knowledge_bases.workers.worker_process import WorkerOptions
from ai_platform_engineering.net.git_process import GitLimits
from ai_platform_engineering.net.url_policy import PrivateAccess


def create_knowledge_base(settings: Settings, variables: Mapping[str, str]) -> KnowledgeBase:
    """The configured knowledge base, not open yet. Raises ConfigurationError."""
    knowledge = settings.knowledge
    home = settings.agent.home
    limits = FetchLimits(max_bytes=knowledge.fetch_bytes, seconds=knowledge.fetch_seconds)
    allow_private = partial(_allow_private, knowledge)
    page_fetcher = Fetcher(limits, private=allow_private("RAG_FETCH_URL_PRIVATE_HOSTS", knowledge.page_hosts))
    web_fetcher = Fetcher(limits, private=allow_private("RAG_WEB_PRIVATE_HOSTS", knowledge.web_hosts))
    git_fetcher = Fetcher(limits, private=allow_private("RAG_GIT_PRIVATE_HOSTS", knowledge.git_hosts))
    git_limits = GitLimits(max_bytes=settings.git.max_bytes, max_files=settings.git.max_files)
    options = create_worker_options(settings)
    readers = DocumentReaders(options, count=knowledge.readers)
    context = SourceContext(
        web_fetcher,
        home / "cache" / "repositories",
        variables,
        git_limits=git_limits,
        read_links=readers.read_links,
        git_fetcher=git_fetcher,
        connectors=create_connectors(settings, variables=variables),
    )
    store = create_store(settings, options)
    return KnowledgeBase(
        store,
        create_embedder(knowledge, home, options),
        DatasourceResolver(context, uploads=store.uploads),
        readers,
        max_answer_chars=knowledge.max_output_chars,
        with_shipped_docs=True,
        create_embedder=lambda name: create_embedder_of_index(name, knowledge, home, options),
        page_fetcher=page_fetcher,
    )


def _allow_private(knowledge: KnowledgeSettings, variable: str, hosts: Sequence[str]) -> PrivateAccess:
    """What one use of the network may reach in private networks; `variable` lists its hosts."""
    return PrivateAccess(knowledge.allow_private, AllowedHosts.parse(hosts), variable)


def create_worker_options(settings: Settings) -> WorkerOptions:
    """How the workers of the settings are run."""
    knowledge = settings.knowledge
    return WorkerOptions(knowledge.worker_idle_seconds, knowledge.worker_calls, settings.redactor)


def create_store(settings: Settings, options: WorkerOptions) -> KnowledgeStore:
    """A store in a folder of this program's home, or in the PostgreSQL database that RAG_DATABASE_URL
    names."""
    if settings.knowledge.database_url is None:
        from ai_platform_engineering.knowledge_bases.stores.embedded.embedded_store import EmbeddedStore

        return EmbeddedStore(
            settings.agent.home / KNOWLEDGE_FOLDER,
            options,
            search_seconds=settings.knowledge.search_seconds,
        )
    from ai_platform_engineering.knowledge_bases.stores.postgres.postgres_store import PostgresStore

    return PostgresStore(
        settings.knowledge.database_url.get_secret_value(), connect_seconds=settings.storage.timeout_seconds
    )
