"""Runs an embedded model on onnxruntime, from the weights of an installed package; nothing is downloaded, and
torch is not needed."""

import ctypes
import logging
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ai_platform_engineering.core.private_files import create_private_folder
from ai_platform_engineering.knowledge_bases.indexing.embedded_models import EmbeddedModel
from ai_platform_engineering.knowledge_bases.indexing.model_graph import GRAPH_VERSION, save_graph
from ai_platform_engineering.knowledge_bases.indexing.model_weights import (
    load_weights,
    read_pinned_weights,
    read_tokenizer,
)

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

log = logging.getLogger(__name__)

# It replaces a sum and a norm by one operator that takes ten times as long.
_DISABLED_OPTIMIZERS = ["SkipLayerNormFusion"]


class TextEncoder:
    """A model; it is loaded with the first text, and its graph is built once and stored in the folder
    `cache`. Threads may use it at the same time, each on one core."""

    def __init__(self, model: EmbeddedModel, cache: Path) -> None:
        self._model = model
        self._cache = cache
        self._load_lock = threading.Lock()
        self._loaded: tuple[Any, Any] | None = None

    def load(self) -> tuple[Any, Any]:
        """The session and the tokenizer. Raises ConfigurationError."""
        with self._load_lock:
            if self._loaded is None:
                tokenizer = _open_tokenizer(self._model)
                self._loaded = (_open_session(self._model, self._cache), tokenizer)
            return self._loaded

    def embed(self, text: str) -> "npt.NDArray[np.float32]":
        """The vector of a text. One at a time: several would be padded to the longest, and are no faster."""
        import numpy as np

        session, tokenizer = self.load()
        ids = tokenizer.encode(text).ids
        inputs = {"input_ids": np.array([ids], np.int64), "position_ids": np.arange(len(ids), dtype=np.int64)}
        vector: npt.NDArray[np.float32] = session.run(None, inputs)[0][0]
        return vector

    def embed_all(self, texts: Sequence[str]) -> "list[npt.NDArray[np.float32]]":
        return [self.embed(text) for text in texts]


def return_memory() -> None:
    """Gives memory that was freed back to the system, where the C library can: glibc keeps it otherwise."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _open_tokenizer(model: EmbeddedModel) -> Any:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_buffer(read_tokenizer(model, read_pinned_weights(model)))
    tokenizer.enable_truncation(model.max_tokens)
    tokenizer.no_padding()
    return tokenizer


def _open_session(model: EmbeddedModel, cache: Path) -> Any:
    import onnxruntime  # type: ignore[import-untyped]

    options = onnxruntime.SessionOptions()
    # Threads of the caller alone: then a question's thread has its own priority.
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.enable_cpu_mem_arena = False  # five times the memory, and no faster
    path = cache / f"{model.name}-{model.sha256[:12]}-{GRAPH_VERSION}.onnx"
    if not path.exists():
        _build_graph(model, path)
    return onnxruntime.InferenceSession(
        str(path), options, providers=["CPUExecutionProvider"], disabled_optimizers=_DISABLED_OPTIMIZERS
    )


def _build_graph(model: EmbeddedModel, path: Path) -> None:
    weights = load_weights(model)
    create_private_folder(path.parent)
    log.info("building the graph of the embedding model, once: %s", path.name)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        new_path = Path(folder) / path.name
        save_graph(weights, new_path)
        new_path.replace(path)
