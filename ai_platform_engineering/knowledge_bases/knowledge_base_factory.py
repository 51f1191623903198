"""Creates the knowledge base from settings: its store, its embeddings and its HTTP fetcher."""

from collections.abc import Mapping

from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.knowledge_bases.datasources import DatasourceResolver
from ai_platform_engineering.knowledge_bases.knowledge_base import KnowledgeBase
from ai_platform_engineering.knowledge_bases.owner_file import KNOWLEDGE_FOLDER
from ai_platform_engineering.knowledge_bases.sources.fetcher import Fetcher, FetchLimits
from ai_platform_engineering.knowledge_bases.sources.source_factory import SourceContext
from ai_platform_engineering.knowledge_bases.stores.knowledge_store import KnowledgeStore


def create_knowledge_base(settings: Settings, variables: Mapping[str, str]) -> KnowledgeBase:
    """The configured knowledge base, not open yet. Raises ConfigurationError."""
    # Imported late: the index and the model bring large libraries.
    from ai_platform_engineering.knowledge_bases.indexing.embeddings import create_embedder

    knowledge = settings.knowledge
    home = settings.agent.home
    limits = FetchLimits(max_bytes=knowledge.fetch_bytes, seconds=knowledge.fetch_seconds)
    fetcher = Fetcher(limits, allow_private=knowledge.allow_private)
    resolver = DatasourceResolver(SourceContext(fetcher, home / "cache" / "repositories", variables))
    return KnowledgeBase(
        create_store(settings),
        create_embedder(knowledge, home),
        resolver,
        max_answer_chars=knowledge.max_output_chars,
        with_shipped_docs=True,
    )


def create_store(settings: Settings) -> KnowledgeStore:
    """A store in a folder of this program's home, or in the PostgreSQL database that RAG_DATABASE_URL
    names."""
    if settings.knowledge.database_url is None:
        from ai_platform_engineering.knowledge_bases.stores.embedded.embedded_store import EmbeddedStore

        return EmbeddedStore(settings.agent.home / KNOWLEDGE_FOLDER)
    from ai_platform_engineering.knowledge_bases.stores.postgres.postgres_store import PostgresStore

    return PostgresStore(settings.knowledge.database_url.get_secret_value())
