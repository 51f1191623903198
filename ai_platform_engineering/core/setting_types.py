"""The kinds of values that settings have; a value that a kind does not know is refused."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, ValidationError

from ai_platform_engineering.core.errors import ConfigurationError
from ai_platform_engineering.core.host_patterns import AllowedHosts
from ai_platform_engineering.core.model_providers import check_model_name

_ON = frozenset({"true", "1", "yes", "on"})
_OFF = frozenset({"false", "0", "no", "off"})
_MIN_KEY_CHARS = 16
_NO_SOURCES: Mapping[str, str] = MappingProxyType({})


def _parse_flag(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    word = value.strip().lower()
    if word in _ON:
        return True
    if word in _OFF:
        return False
    # Never taken for "off": the switch may be one that protects.
    raise ValueError("a switch is one of true, 1, yes, on or false, 0, no, off")


def check_key(key: SecretStr) -> SecretStr:
    """The key that clients must send. Raises ValueError for one that can be guessed."""
    if len(key.get_secret_value()) < _MIN_KEY_CHARS:
        raise ValueError(
            f"a key has at least {_MIN_KEY_CHARS} characters; make one with `openssl rand -hex 32`"
        )
    return key


def _check_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_valid = False
    if not is_valid:
        raise ValueError("an address begins with http:// or https:// and names a host")
    return url


def _split_names(value: Any) -> Any:
    if isinstance(value, str):
        return tuple(name.strip() for name in value.split(",") if name.strip())
    return value


def _check_host_patterns(patterns: tuple[str, ...]) -> tuple[str, ...]:
    AllowedHosts.parse(patterns)
    return patterns


def _check_path(value: Any) -> Any:
    if isinstance(value, str) and "\n" in value:
        raise ValueError("it holds the text of a file; here it is the name of one")
    return value


def _read_expiry(value: Any) -> Any:
    """Zero minutes are no expiry, as in LangGraph's deployments before."""
    if isinstance(value, str) and value.strip() == "0":
        return None
    return value


def to_lower(value: Any) -> Any:
    if isinstance(value, str):
        return value.lower()
    return value


SandboxMode = Literal["auto", "off", "required"]
Backend = Literal["memory", "sqlite", "postgres", "redis", "mongodb"]
Flag = Annotated[bool, BeforeValidator(_parse_flag)]
Names = Annotated[tuple[str, ...], BeforeValidator(_split_names)]
HostPatterns = Annotated[Names, AfterValidator(_check_host_patterns)]
ModelName = Annotated[str, AfterValidator(check_model_name)]
ModelNames = Annotated[tuple[ModelName, ...], BeforeValidator(_split_names)]
Ports = Annotated[tuple[Annotated[int, Field(ge=1, le=65535)], ...], BeforeValidator(_split_names)]
WebAddress = Annotated[str, AfterValidator(_check_url)]
ConfigPath = Annotated[Path, BeforeValidator(_check_path)]
ExpiryMinutes = Annotated[Annotated[int, Field(ge=1)] | None, BeforeValidator(_read_expiry)]
Key = Annotated[SecretStr, AfterValidator(check_key)]


class InvalidSettings(ConfigurationError):
    """Variables with values that they cannot have; each problem begins with the variable."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__(f"Invalid settings. {'; '.join(problems)}.")
        self.problems = tuple(problems)


def strip_values(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables that are set: an empty value counts as none."""
    return {name: value.strip() for name, value in variables.items() if value.strip()}


class SettingsGroup(BaseModel):
    """Settings that belong together; the alias of a field is its variable."""

    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        hide_input_in_errors=True,
        populate_by_name=True,
        allow_inf_nan=False,  # "inf" would be no limit at all
    )

    @classmethod
    def parse_variables(cls, variables: Mapping[str, str], sources: Mapping[str, str] = _NO_SOURCES) -> Self:
        """The settings of this group alone; an empty value counts as not set. Raises InvalidSettings.

        `sources`: the legacy variables that variables were translated from; errors name them.
        """
        try:
            # By alias alone: an environment may hold a `host` or a `name` of another program.
            return cls.model_validate(strip_values(variables), by_alias=True, by_name=False)
        except ValidationError as error:
            problems: list[str] = []
            # Only the variable and the rule: the value may be a secret.
            for detail in error.errors(include_input=False):
                variable = str(detail["loc"][0])
                problems.append(
                    f"{sources.get(variable, variable)}: {detail['msg'].removeprefix('Value error, ')}"
                )
            raise InvalidSettings(problems) from None
