"""The supervisor with a knowledge base in a folder of the test, which keeps count of what reaches it."""

import atexit
import contextlib
import shutil
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from langchain_core.language_models import BaseChatModel
from langchain_core.tools import BaseTool

from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.knowledge_bases.access import ANYBODY, Viewer
from ai_platform_engineering.knowledge_bases.datasources import DatasourceResolver
from ai_platform_engineering.knowledge_bases.knowledge_base import KnowledgeBase
from ai_platform_engineering.knowledge_bases.reading.document_readers import DocumentReaders
from ai_platform_engineering.knowledge_bases.results import DocumentExcerpt, SearchResult
from ai_platform_engineering.knowledge_bases.sources.fetcher import Fetcher, FetchLimits
from ai_platform_engineering.knowledge_bases.sources.shipped_documentation import ShippedDocsSource
from ai_platform_engineering.knowledge_bases.sources.source_factory import SourceContext
from ai_platform_engineering.knowledge_bases.stores.embedded.embedded_store import EmbeddedStore
from ai_platform_engineering.mcp_client.session_pool import McpSessionPool
from ai_platform_engineering.mcp_servers.knowledge_base.server import create_app as knowledge_server
from ai_platform_engineering.multi_agents.platform_engineer.knowledge_source import (
    InProcessKnowledge,
    KnowledgeSource,
    RemoteKnowledge,
)
from ai_platform_engineering.multi_agents.platform_engineer.local_agents import LocalAgent
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.main import create_app
from ai_platform_engineering.runtime.storage import Storage
from tests.support.harness import FAST, PLAIN, Client, serve_app
from tests.support.knowledge import add_datasource, write_files

DOCS = {
    "slim": "# SLIM\n\nagntcy SLIM is a secure, low-latency, interactive messaging layer for agents.\n",
    "groups": (
        "# Groups\n\nAgents on SLIM talk in groups. "
        "A moderator of the group invites agents and removes them.\n"
    ),
    "keys": (
        "# Keys\n\nMessages on SLIM are encrypted from end to end: "
        "a node that passes them on cannot read them.\n"
    ),
    "lunch": "# Lunch\n\nThe canteen opens at noon.\n",
}


_ingested_docs: list[Path] = []  # the folder of a knowledge base with DOCS, once there is one


@dataclass
class Counts:
    """What reached the knowledge base, over restarts."""

    searches: list[tuple[str, int | None]] = field(default_factory=list)  # words, limit
    fetches: list[str] = field(default_factory=list)

    @property
    def queries(self) -> list[str]:
        return [query for query, _ in self.searches]


class CountingKnowledgeBase(KnowledgeBase):
    """The real one; it notes what it is asked."""

    counts: Counts

    async def search(self, query: str, *args: Any, **more: Any) -> list[SearchResult]:
        self.counts.searches.append((query, more.get("limit")))
        return await super().search(query, *args, **more)

    async def fetch_document(
        self, document_id: str, offset: int = 0, viewer: Viewer = ANYBODY
    ) -> DocumentExcerpt:
        self.counts.fetches.append(document_id)
        return await super().fetch_document(document_id, offset, viewer)


@dataclass
class KnowledgeFolder:
    """A knowledge base in a folder, opened anew for each server."""

    home: Path
    env: Mapping[str, str] = field(default_factory=dict)
    counts: Counts = field(default_factory=Counts)
    knowledge: KnowledgeSource | None = None  # of the server that runs

    @classmethod
    async def of(cls, home: Path, env: Mapping[str, str] | None = None, **texts: str) -> "KnowledgeFolder":
        """With these Markdown documents, or a few about SLIM.

        The few are read once in a process, and copied: the workers that read them take a second to start.
        """
        library = cls(home, env or {})
        if texts:
            await library._ingest(texts)
            return library
        if not _ingested_docs:
            folder = Path(tempfile.mkdtemp(prefix="caipe-knowledge-"))
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
            await cls(folder, env or {})._ingest(DOCS)
            _ingested_docs.append(folder)
        shutil.copytree(_ingested_docs[0], home, dirs_exist_ok=True)
        return library

    async def _ingest(self, texts: Mapping[str, str]) -> None:
        async with self.open_knowledge_base() as kb:
            job = await add_datasource(kb, write_files(self.home / "docs", **texts), name="agntcy")
            assert job.state == "done"

    def build_knowledge_base(self) -> CountingKnowledgeBase:
        settings = Settings.from_variables(self.env).knowledge
        fetcher = Fetcher(
            FetchLimits(max_bytes=settings.fetch_bytes, seconds=settings.fetch_seconds), allow_private=True
        )
        places = DatasourceResolver(SourceContext(fetcher, self.home / "cache", {}), ShippedDocsSource(None))
        kb = CountingKnowledgeBase(
            EmbeddedStore(self.home / "knowledge"),
            None,
            places,
            DocumentReaders(count=1),
            max_answer_chars=settings.max_output_chars,
        )
        kb.counts = self.counts
        return kb

    @contextlib.asynccontextmanager
    async def open_knowledge_base(self) -> AsyncIterator[CountingKnowledgeBase]:
        kb = self.build_knowledge_base()
        await kb.open()
        try:
            yield kb
        finally:
            await kb.aclose()

    @contextlib.asynccontextmanager
    async def run_supervisor(
        self,
        model: BaseChatModel | None,
        *,
        agents: Sequence[LocalAgent] = (),
        tools: Sequence[BaseTool] = (),
        router: BaseChatModel | None = None,
        storage: Storage | None = None,
        env: Mapping[str, str] | None = None,
        elsewhere: bool = False,
    ) -> AsyncIterator[Client]:
        """The supervisor with this knowledge base, in its process or at RAG_SERVER_URL."""
        settings = Settings.from_variables({**FAST, **self.env, **(env or {})})
        async with self._open_knowledge(settings, elsewhere) as knowledge:
            app = create_app(
                settings,
                knowledge=knowledge,
                agents=agents,
                tools=tools,
                model=model,
                router=router,
                storage=storage,
            )
            async with serve_app(app) as url, httpx.AsyncClient(timeout=120, verify=PLAIN) as http:
                await knowledge.wait_until_open()
                self.knowledge = knowledge
                yield Client(url, http)

    @contextlib.asynccontextmanager
    async def _open_knowledge(self, settings: Settings, elsewhere: bool) -> AsyncIterator[KnowledgeSource]:
        if not elsewhere:
            yield InProcessKnowledge(self.build_knowledge_base(), settings.knowledge)
            return
        async with serve_app(knowledge_server(self.build_knowledge_base(), settings.server)) as url:
            sessions = McpSessionPool(connect_timeout=30, call_timeout=30, cache_dir=None, environment={})
            yield RemoteKnowledge(sessions, settings.knowledge.model_copy(update={"server_url": f"{url}mcp"}))

    async def wrapper(self, name: str) -> Any:
        """The tool of the server that runs."""
        assert self.knowledge is not None
        return next(tool for tool in await self.knowledge.tools() if tool.name == name)
