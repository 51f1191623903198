"""Settings of the knowledge base: where it is, what it reads, and how much of it one question may use."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, SecretStr

from ai_platform_engineering.core.setting_types import (
    Flag,
    HostPatterns,
    Names,
    SettingsGroup,
    WebAddress,
    to_lower,
)


class KnowledgeSettings(SettingsGroup):
    """The knowledge base: where it is, and how much of it one question may use."""

    enabled: Flag | None = Field(None, alias="ENABLE_RAG")  # not set: when it holds documents
    server_url: WebAddress | None = Field(None, alias="RAG_SERVER_URL")
    server_token: SecretStr | None = Field(None, alias="RAG_SERVER_TOKEN")
    search_calls: int = Field(5, alias="SEARCH_MAX_CALLS", ge=1)
    fetch_calls: int = Field(10, alias="FETCH_DOCUMENT_MAX_CALLS", ge=1)
    max_results: int = Field(3, alias="RAG_MAX_SEARCH_RESULTS", ge=1)
    max_output_chars: int = Field(10_000, alias="RAG_MAX_OUTPUT_CHARS", ge=100)
    database_url: SecretStr | None = Field(None, alias="RAG_DATABASE_URL")
    embeddings: Annotated[Literal["auto", "off", "embedded", "endpoint"], BeforeValidator(to_lower)] = Field(
        "auto", alias="RAG_EMBEDDINGS"
    )
    embedded_model: Literal["granite-embedding-30m-english", "all-MiniLM-L6-v2"] | None = Field(
        None, alias="RAG_EMBEDDED_MODEL"
    )  # not set: the first of these that is installed
    embeddings_url: WebAddress | None = Field(None, alias="EMBEDDINGS_BASE_URL")
    embeddings_model: str = Field("text-embedding-3-small", alias="EMBEDDINGS_MODEL")
    embeddings_key: SecretStr | None = Field(None, alias="EMBEDDINGS_API_KEY")
    allow_private: Flag = Field(False, alias="RAG_ALLOW_PRIVATE_ADDRESSES")
    # Hosts that may be in private networks, for each use.
    page_hosts: HostPatterns = Field((), alias="RAG_FETCH_URL_PRIVATE_HOSTS")
    web_hosts: HostPatterns = Field((), alias="RAG_WEB_PRIVATE_HOSTS")
    git_hosts: HostPatterns = Field((), alias="RAG_GIT_PRIVATE_HOSTS")
    # The REST routes may read files of this machine below these folders.
    ingest_folders: Names = Field((), alias="RAG_INGEST_FOLDERS")
    # Of one batch of pushed documents.
    push_bytes: int = Field(4 * 1024 * 1024, alias="RAG_PUSH_MAX_BYTES", gt=0)
    push_documents: int = Field(100, alias="RAG_PUSH_MAX_DOCUMENTS", ge=1, le=1000)
    # Of one uploaded file, no larger than a file of a folder that is read; and of all of them.
    upload_bytes: int = Field(20 * 1024 * 1024, alias="RAG_UPLOAD_MAX_BYTES", gt=0, le=20 * 1024 * 1024)
    uploads_bytes: int = Field(1024 * 1024 * 1024, alias="RAG_UPLOADS_MAX_BYTES", gt=0)
    uploads_files: int = Field(5000, alias="RAG_UPLOADS_MAX_FILES", ge=1)
    fetch_bytes: int = Field(10 * 1024 * 1024, alias="RAG_FETCH_MAX_BYTES", gt=0)
    fetch_seconds: float = Field(30.0, alias="RAG_FETCH_TIMEOUT_SECONDS", gt=0)
    search_seconds: float = Field(30.0, alias="RAG_SEARCH_TIMEOUT_SECONDS", gt=0)
    # Workers: processes for the index, the embedded model and the readers of documents.
    worker_idle_seconds: float = Field(300.0, alias="RAG_WORKER_IDLE_SECONDS", gt=0)
    worker_calls: int = Field(16, alias="RAG_WORKER_MAX_CALLS", ge=1)
    readers: int = Field(2, alias="RAG_READERS", ge=1, le=16)
    embedding_threads: int | None = Field(None, alias="RAG_EMBEDDING_THREADS", ge=1)  # not set: all cores
