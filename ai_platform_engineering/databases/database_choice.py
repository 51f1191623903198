"""The choice of the database for checkpoints and store: from settings to a backend and its address."""

import re
from dataclasses import dataclass, field
from urllib.parse import unquote

from pydantic import SecretStr

from ai_platform_engineering.core.errors import ConfigurationError
from ai_platform_engineering.core.setting_types import Backend
from ai_platform_engineering.core.storage_settings import StorageSettings

_SCHEMES: dict[str, Backend] = {
    "memory": "memory",
    "sqlite": "sqlite",
    "postgres": "postgres",
    "postgresql": "postgres",
    "redis": "redis",
    "rediss": "redis",
    "valkey": "redis",
    "valkeys": "redis",
    "mongodb": "mongodb",
    "mongodb+srv": "mongodb",
}
_BACKEND_NAMES: dict[Backend, str] = {
    "memory": "Memory",
    "sqlite": "SQLite",
    "postgres": "PostgreSQL",
    "redis": "Redis",
    "mongodb": "MongoDB",
}
# Strict on purpose: an unusual address is not quoted at all, since a part of it may be the password.
_ADDRESS = re.compile(
    r"[a-z0-9+]+://(?:[^@/?#]*@)?(?P<host>[A-Za-z0-9.-]+(?::\d+)?|\[[0-9A-Fa-f:]+\](?::\d+)?)(?:[/?].*)?"
)


@dataclass(frozen=True, slots=True)
class DatabaseChoice:
    """A backend, its address (empty: the backend's default), and the environment variable that sets it."""

    backend: Backend
    address: str = field(default="", repr=False)
    variable: str = ""

    @property
    def holds_runs(self) -> bool:
        """Whether runs are stored there, too, and not only LangGraph's checkpoints."""
        return self.backend == "postgres" and self.variable == "DATABASE_URL"

    @property
    def label(self) -> str:
        """The database for people: its kind and host, never a password."""
        name = _BACKEND_NAMES[self.backend]
        if self.backend in ("memory", "sqlite"):
            return name
        address = _ADDRESS.fullmatch(self.address)
        if address is None:
            return name
        return f"{name} at {address['host']}"


def choose_checkpoint_database(settings: StorageSettings) -> DatabaseChoice:
    """The checkpointer's backend: the named type, else the first address that is set, else SQLite."""
    if settings.checkpoint_type:
        return _choose_by_type(settings.checkpoint_type, settings)
    if settings.database_url:
        return choose_by_url(settings.database_url)
    if settings.mongodb_uri:
        return DatabaseChoice("mongodb", settings.mongodb_uri.get_secret_value(), "MONGODB_URI")
    if settings.redis_url:
        return DatabaseChoice("redis", _to_redis_scheme(settings.redis_url.get_secret_value()), "REDIS_URL")
    return DatabaseChoice("sqlite")


def choose_store_database(settings: StorageSettings) -> DatabaseChoice:
    """The store's backend: the named type, else the checkpointer's."""
    checkpointer = choose_checkpoint_database(settings)
    if settings.store_type in (None, checkpointer.backend):
        return checkpointer
    assert settings.store_type
    return _choose_by_type(settings.store_type, settings)


def _choose_by_type(backend: Backend, settings: StorageSettings) -> DatabaseChoice:
    """The named backend with its own address, else with that of DATABASE_URL."""
    by_url = None
    if settings.database_url:
        by_url = choose_by_url(settings.database_url)
    if backend == "memory":
        return DatabaseChoice("memory")
    addresses = _backend_addresses(backend, settings)
    for variable, secret in addresses.items():
        if secret:
            address = secret.get_secret_value()
            if backend == "redis":
                address = _to_redis_scheme(address)
            return DatabaseChoice(backend, address, variable)
    if by_url is not None and by_url.backend == backend:
        return by_url
    if backend == "sqlite":
        return DatabaseChoice("sqlite")
    names = " or ".join([*addresses, "DATABASE_URL"])
    raise ConfigurationError(
        f"{_BACKEND_NAMES[backend]} is selected for conversations, but its address is missing. Set {names}."
    )


def _backend_addresses(backend: Backend, settings: StorageSettings) -> dict[str, SecretStr | None]:
    """The backend's own address settings by environment variable, first the one that counts."""
    match backend:
        case "postgres":
            return {"LANGGRAPH_CHECKPOINT_POSTGRES_DSN": settings.postgres_dsn}
        case "redis":
            return {
                "LANGGRAPH_CHECKPOINT_REDIS_URL": settings.redis_dsn,
                "REDIS_URL": settings.redis_url,
            }
        case "mongodb":
            return {
                "LANGGRAPH_CHECKPOINT_MONGODB_URI": settings.mongodb_dsn,
                "MONGODB_URI": settings.mongodb_uri,
            }
        case _:
            return {}


def choose_by_url(url: SecretStr) -> DatabaseChoice:
    """The backend of an address (DATABASE_URL). Raises ConfigurationError."""
    scheme, separator, rest = url.get_secret_value().partition("://")
    scheme = scheme.lower()
    if scheme != "mongodb+srv":
        scheme = scheme.partition("+")[0]  # without the driver, as in `postgresql+asyncpg`
    backend = _SCHEMES.get(scheme) if separator else None
    match backend:
        case None:
            schemes = "postgresql, redis, mongodb, sqlite or memory"
            raise ConfigurationError(f"DATABASE_URL: the address must begin with {schemes} and ://.")
        case "memory":
            return DatabaseChoice("memory", variable="DATABASE_URL")
        case "sqlite":
            path = unquote(rest.partition("?")[0]).removeprefix("/")
            if path in ("", ":memory:"):
                return DatabaseChoice("memory", variable="DATABASE_URL")
            return DatabaseChoice("sqlite", path, "DATABASE_URL")
        case "redis":
            return DatabaseChoice("redis", _to_redis_scheme(f"{scheme}://{rest}"), "DATABASE_URL")
        case _:
            return DatabaseChoice(backend, f"{scheme}://{rest}", "DATABASE_URL")


def _to_redis_scheme(url: str) -> str:
    return re.sub(r"^valkey(s?)://", r"redis\1://", url)
