"""Reads the weights of an embedded model from its package; both formats are a JSON header and plain numbers,
so nothing in them is executed."""

import hashlib
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ai_platform_engineering.core.errors import ConfigurationError
from ai_platform_engineering.knowledge_bases.indexing.embedded_models import EmbeddedModel

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float32]

_LENGTH = struct.Struct("<Q")
_HMSEMB_MAGIC = b"HMSEMB01"
# Of a layer: our name for a matrix, and BERT's names for it; several are stacked.
_BERT_LAYER: Mapping[str, tuple[str, ...]] = {
    "qkv": ("attention.self.query", "attention.self.key", "attention.self.value"),
    "ao": ("attention.output.dense",),
    "aln": ("attention.output.LayerNorm",),
    "f1": ("intermediate.dense",),
    "f2": ("output.dense",),
    "fln": ("output.LayerNorm",),
}


@dataclass(frozen=True, slots=True)
class QuantizedMatrix:
    """A matrix of int8 numbers; each block of a row has a factor of its own."""

    values: "npt.NDArray[np.int8]"  # rows, blocks, numbers of a block
    scales: "Floats"  # rows, blocks


@dataclass(frozen=True, slots=True)
class ModelWeights:
    """The weights of a BERT-like encoder, with its shape and its tokenizer.

    Names of tensors: `word_emb`, `pos_emb`, `type_emb`, `emb_ln`, and for each layer `l0.qkv`, `l0.ao`
    (attention output), `l0.aln` (its norm), `l0.f1`, `l0.f2` (feed forward) and `l0.fln`; `.w` and `.b` are
    weight and bias."""

    tensors: "Mapping[str, Floats | QuantizedMatrix]"
    tokenizer: bytes
    layers: int
    heads: int
    hidden: int
    norm_epsilon: float
    first_position: int
    pooling: Literal["cls", "mean"]


def load_weights(model: EmbeddedModel) -> ModelWeights:
    """Raises ConfigurationError for weights that are not the pinned ones."""
    content = read_pinned_weights(model)
    if model.format == "hmsemb":
        return _read_hmsemb(content)
    folder = model.find_weights().parent
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return _read_safetensors(content, config, (folder / "tokenizer.json").read_bytes())


def read_pinned_weights(model: EmbeddedModel) -> bytes:
    """The bytes of the file, whose hash is checked. Raises ConfigurationError."""
    content = model.find_weights().read_bytes()
    if hashlib.sha256(content).hexdigest() != model.sha256:
        raise ConfigurationError(
            f"The weights of the embedding model {model.name} are not the published ones. Install its "
            "package again."
        )
    return content


def read_tokenizer(model: EmbeddedModel, content: bytes) -> bytes:
    """The tokenizer's JSON; `content`: of the file with the weights."""
    if model.format == "hmsemb":
        header, start = _read_header(content, len(_HMSEMB_MAGIC))
        return content[start : start + header["tokenizer_len"]]
    return (model.find_weights().parent / "tokenizer.json").read_bytes()


def _read_header(content: bytes, offset: int) -> tuple[dict[str, Any], int]:
    """A JSON object with its length in front, and where it ends."""
    start = offset + _LENGTH.size
    (length,) = _LENGTH.unpack_from(content, offset)
    return json.loads(content[start : start + length]), start + length


def _read_hmsemb(content: bytes) -> ModelWeights:
    """The format of Holographic Memory: header, tokenizer, then the tensors one after the other."""
    import numpy as np

    header, start = _read_header(content, len(_HMSEMB_MAGIC))
    offset = start + header["tokenizer_len"]
    tensors: dict[str, Floats | QuantizedMatrix] = {}
    for entry in header["tensors"]:
        data = content[offset : offset + entry["len"]]
        offset += entry["len"]
        if entry["dtype"] == "f32":
            tensors[entry["name"]] = np.frombuffer(data, "<f4").reshape(entry["shape"])
            continue
        rows, columns = entry["shape"]
        values = np.frombuffer(data, np.int8, rows * columns).reshape(rows, -1, entry["group"])
        scales = np.frombuffer(data, "<f4", offset=rows * columns).reshape(rows, -1)
        tensors[entry["name"]] = QuantizedMatrix(values, scales)
    shape = header["arch"]
    return ModelWeights(
        tensors=tensors,
        tokenizer=content[start : start + header["tokenizer_len"]],
        layers=shape["layers"],
        heads=shape["heads"],
        hidden=shape["hidden"],
        norm_epsilon=shape["layer_norm_eps"],
        first_position=shape["position_offset"],
        pooling=header["meta"]["pooling"],
    )


def _read_safetensors(content: bytes, config: dict[str, Any], tokenizer: bytes) -> ModelWeights:
    """BERT with mean pooling, as sentence-transformers publishes it."""
    import numpy as np

    header, start = _read_header(content, 0)

    def read(name: str) -> "Floats":
        entry = header[name]
        begin, end = entry["data_offsets"]
        return np.frombuffer(content[start + begin : start + end], "<f4").reshape(entry["shape"])

    tensors: dict[str, Floats | QuantizedMatrix] = {
        "word_emb": read("embeddings.word_embeddings.weight"),
        "pos_emb": read("embeddings.position_embeddings.weight"),
        "type_emb": read("embeddings.token_type_embeddings.weight"),
        "emb_ln.w": read("embeddings.LayerNorm.weight"),
        "emb_ln.b": read("embeddings.LayerNorm.bias"),
    }
    for layer in range(config["num_hidden_layers"]):
        for name, parts in _BERT_LAYER.items():
            for suffix, kind in (("w", "weight"), ("b", "bias")):
                pieces = [read(f"encoder.layer.{layer}.{part}.{kind}") for part in parts]
                tensors[f"l{layer}.{name}.{suffix}"] = np.concatenate(pieces)
    return ModelWeights(
        tensors=tensors,
        tokenizer=tokenizer,
        layers=config["num_hidden_layers"],
        heads=config["num_attention_heads"],
        hidden=config["hidden_size"],
        norm_epsilon=config["layer_norm_eps"],
        first_position=0,
        pooling="mean",
    )
