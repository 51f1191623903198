"""Supervisors for the views of the web page: one with agents that ask, a workflow, skills and a knowledge
base; and one that nobody has configured."""

import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.knowledge_bases.rest_api import KnowledgeApi
from ai_platform_engineering.multi_agents.platform_engineer.knowledge_source import InProcessKnowledge
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.main import (
    build_app,
    create_app,
)
from tests.support.asking_agent import Repos, ask_until_paused
from tests.support.client_stage import ClientStage
from tests.support.fakes.embedding import WordVectors
from tests.support.fakes.model import ScriptedChatModel
from tests.support.harness import FAST, PLAIN, Client, serve_app
from tests.support.knowledge import create_knowledge_base
from tests.support.skill_files import build_catalog, skill_files, write_skill
from tests.support.workflow_processes import write_workflow

WORKFLOW: Mapping[str, Any] = {
    "name": "create-repository",
    "title": "Create a repository",
    "description": "Creates a repository after somebody has approved the call.",
    "form": {
        "response": "I need a name.",
        "fields": [
            {"name": "repo", "label": "Repository", "pattern": "[a-z0-9-]+", "max_length": 80},
            {"name": "private", "label": "Private", "type": "boolean", "default": True},
        ],
    },
    "steps": [
        {
            "name": "create",
            "title": "Create the repository",
            "agent": "github",
            "tool": "create_repo",
            "arguments": {"name": "{{ input.repo }}", "private": "{{ input.private }}"},
        }
    ],
    "answer": "Made {{ input.repo }}.",
}


@dataclass
class ViewStage:
    """The server's address, and what its tools were called with."""

    folder: Path
    clients: ClientStage = field(default_factory=ClientStage)
    url: str = ""

    @property
    def repos(self) -> Repos:
        return self.clients.repos

    async def ask_until_paused(self, text: str) -> str:
        """Asks a question that ends with a request; the id of its conversation."""
        async with httpx.AsyncClient(timeout=120, verify=PLAIN) as http:
            stream = await ask_until_paused(Client(self.url, http), text)
        return str(stream.frames[0].update["contextId"])


@contextlib.asynccontextmanager
async def serve_views(folder: Path, env: Mapping[str, str] | None = None) -> AsyncIterator[ViewStage]:
    """The supervisor with everything that the views show."""
    stage = ViewStage(folder)
    workflows = folder / "workflows"
    write_workflow(workflows, WORKFLOW)
    triage = skill_files("triage", "# Triage\n\nLook first.", references__guide="Be calm.")
    write_skill(folder / "skills" / "folder" / "triage", triage)
    variables = {
        **FAST,
        "ENABLE_RAG": "true",
        "CAIPE_HOME": str(folder / "home"),
        "WORKFLOWS_CONFIG": str(workflows),
        "RAG_INGEST_FOLDERS": str(folder),
        **(env or {}),
    }
    settings = Settings.from_variables(variables)
    kb = create_knowledge_base(folder / "kb", WordVectors(), private=True)
    api = KnowledgeApi.from_settings(kb, settings.knowledge, settings.agent.home)
    app = create_app(
        settings,
        agents=stage.clients.agents,
        tools=stage.clients.tools,
        model=ScriptedChatModel(script=stage.clients.book),
        knowledge=InProcessKnowledge(kb, settings.knowledge),
        skills=build_catalog(folder / "skills"),
        routes=api.routes(),
    )
    async with serve_app(app) as url:
        stage.url = url
        yield stage


@contextlib.asynccontextmanager
async def serve_unconfigured(folder: Path, env: Mapping[str, str] | None = None) -> AsyncIterator[str]:
    """A supervisor with the shipped agents, no model and no credentials; its address."""
    variables = {**FAST, "CAIPE_HOME": str(folder), **(env or {})}
    app = build_app(Settings.from_variables(variables), variables)
    async with serve_app(app) as url:
        yield url
