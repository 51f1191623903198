"""Checks of `caipe doctor` on what is kept: databases, the folder of this program, git, embeddings."""

import asyncio
import errno
import os
import shutil
import tempfile
from collections.abc import Iterator

from ai_platform_engineering.core.errors import CaipeError, DatabaseUnavailable
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.core.terminals import command_name
from ai_platform_engineering.databases.database_choice import choose_checkpoint_database
from ai_platform_engineering.runtime.storage import STORAGE_NAME, check_storage
from ai_platform_engineering.terminal.doctor_view import DoctorFinding

_REFUSAL = "The server does not start without it (STORAGE_REQUIRED)."
_MIN_FREE_BYTES = 50_000_000
_NO_DOCUMENTS = "The server starts without documents."


def check_home(settings: Settings) -> Iterator[DoctorFinding]:
    """Whether CAIPE_HOME can be written, and its disk has room; nothing is created outside of it."""
    home = settings.agent.home
    remedy = "Make it writable, or set CAIPE_HOME to a writable folder."
    try:
        existing = home
        while not existing.exists() and existing != existing.parent:
            existing = existing.parent
        if existing == home:
            with tempfile.TemporaryFile(dir=home):
                pass
        elif not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, f"{existing} cannot be written")
        free_bytes = shutil.disk_usage(existing).free
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        yield DoctorFinding("wrong", f"CAIPE_HOME={home} cannot be written: {reason}.", remedy)
        return
    if free_bytes < _MIN_FREE_BYTES:
        message = f"The disk of CAIPE_HOME={home} is full: {free_bytes // 1_000_000} MB free."
        yield DoctorFinding("wrong", message, "Free some space: without it no question is taken.")
    else:
        yield DoctorFinding("ok", f"CAIPE_HOME={home} can be written.")


def check_storages(settings: Settings) -> Iterator[DoctorFinding]:
    """Tries every configured database with a real call, within STORAGE_TIMEOUT_SECONDS each."""
    yield from _check_conversations(settings)
    if settings.knowledge.enabled is not False and settings.knowledge.server_url is None:
        yield from _check_knowledge(settings)
    if shutil.which("git") is None:
        message = "git is not on this machine: documents and skills of git repositories cannot be fetched."
        yield DoctorFinding("note", message, "Install git.")


def _check_conversations(settings: Settings) -> Iterator[DoctorFinding]:
    try:
        label = asyncio.run(check_storage(settings.storage, settings.agent.home, STORAGE_NAME))
    except DatabaseUnavailable as error:
        consequence = "The server starts without it, and forgets conversations when it stops."
        if settings.storage.required:
            consequence = _REFUSAL
        yield DoctorFinding("wrong", f"{error.problem} {consequence}", error.remedy)
    except CaipeError as error:
        yield DoctorFinding("wrong", f"{error} The server does not start.")
    else:
        if choose_checkpoint_database(settings.storage).backend == "memory":
            yield DoctorFinding(
                "note", "Conversations are kept in memory, as configured, and are lost when the server stops."
            )
        else:
            yield DoctorFinding("ok", f"Conversations are kept in {label}, which works.")


def _check_knowledge(settings: Settings) -> Iterator[DoctorFinding]:
    from ai_platform_engineering.knowledge_bases.indexing.embedded_models import choose_model
    from ai_platform_engineering.knowledge_bases.stores.postgres.postgres_store import PostgresStore

    knowledge = settings.knowledge
    if knowledge.database_url is not None:
        store = PostgresStore(
            knowledge.database_url.get_secret_value(), connect_seconds=settings.storage.timeout_seconds
        )
        try:
            asyncio.run(store.check())
        except CaipeError as error:
            yield DoctorFinding("wrong", f"{error}", _REFUSAL if settings.storage.required else _NO_DOCUMENTS)
        else:
            yield DoctorFinding("ok", "The database of RAG_DATABASE_URL can be used.")
    is_embedded = knowledge.embeddings == "embedded" or (
        knowledge.embeddings == "auto" and not knowledge.embeddings_url
    )
    if is_embedded and not choose_model(knowledge.embedded_model).is_installed():
        message = "Documents are found by their words alone: the embedding model is not installed."
        yield DoctorFinding("note", message, f"Run: {command_name()} kb embeddings install")
