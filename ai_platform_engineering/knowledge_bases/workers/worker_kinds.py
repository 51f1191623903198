"""The kinds of workers. Each is a process of its own: usearch and onnxruntime crash in one, and a reader of
hostile documents shares none with anything else."""

from typing import Literal

WorkerKind = Literal["index", "embedding", "reader"]

_PACKAGE = "ai_platform_engineering.knowledge_bases"
SERVICE_MODULES: dict[str, str] = {
    "index": f"{_PACKAGE}.stores.embedded.index_service",
    "embedding": f"{_PACKAGE}.indexing.embedding_service",
    "reader": f"{_PACKAGE}.reading.reader_service",
}
