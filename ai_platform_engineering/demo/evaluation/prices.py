"""Prices of models from a file: there are no built-in ones, since they change and differ by contract."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ai_platform_engineering.core.errors import ConfigurationError
from ai_platform_engineering.core.events import Usage
from ai_platform_engineering.files.yaml_file import YamlFileError, load_yaml

_PER_TOKENS = 1_000_000
Price = Annotated[float, Field(ge=0, le=1_000_000)]


class ModelPrice(BaseModel):
    """Prices of a million tokens; those of a prompt cache are as the input's unless they are given."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    input: Price
    output: Price
    cache_read: Price | None = None
    cache_creation: Price | None = None

    def cost_of(self, usage: Usage) -> float:
        cached = usage.cache_read_tokens or 0
        created = usage.cache_creation_tokens or 0
        plain = max(0, usage.input_tokens - cached - created)
        cached_price = self.input if self.cache_read is None else self.cache_read
        created_price = self.input if self.cache_creation is None else self.cache_creation
        total = plain * self.input + cached * cached_price + created * created_price
        return (total + usage.output_tokens * self.output) / _PER_TOKENS


class PriceTable(BaseModel):
    """Prices by the name of the model, as in LLM_MODEL."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    currency: str = Field("USD", min_length=1, max_length=10)
    models: Mapping[str, ModelPrice]


def read_prices(path: Path) -> PriceTable:
    """Raises ConfigurationError."""
    try:
        return PriceTable.model_validate(load_yaml(path))
    except YamlFileError as error:
        raise ConfigurationError(f"{path} {error}.") from None
    except ValidationError as error:
        detail = error.errors(include_url=False)[0]
        where = ".".join(map(str, detail["loc"])) or "the file"
        raise ConfigurationError(
            f"{path}: {where}: {detail['msg']}. It holds `currency` and `models`; a model has `input` and "
            "`output`, and may have `cache_read` and `cache_creation`, each the price of a million tokens."
        ) from None
