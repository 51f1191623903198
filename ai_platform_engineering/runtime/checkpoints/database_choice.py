"""Which database holds the conversations: from settings to a backend and its address."""

import re
from dataclasses import dataclass, field
from urllib.parse import unquote

from pydantic import SecretStr

from ai_platform_engineering.core.errors import ConfigurationError
from ai_platform_engineering.core.settings import Backend, StorageSettings

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
_LABELS: dict[Backend, str] = {
    "memory": "Memory",
    "sqlite": "SQLite",
    "postgres": "PostgreSQL",
    "redis": "Redis",
    "mongodb": "MongoDB",
}
# Strict on purpose: an address that is written in an odd way is not quoted at all, since a part of it may be the password.
_HOST = re.compile(
    r"[a-z0-9+]+://(?:[^@/?#]*@)?(?P<host>[A-Za-z0-9.-]+(?::\d+)?|\[[0-9A-Fa-f:]+\](?::\d+)?)(?:[/?].*)?"
)


@dataclass(frozen=True, slots=True)
class DatabaseChoice:
    """A backend and where it is; no address means the place the backend has by itself."""

    backend: Backend
    address: str = field(default="", repr=False)
    variable: str = ""

    @property
    def label(self) -> str:
        """The database in words: its kind and host, never a password."""
        found = _HOST.fullmatch(self.address) if self.backend not in ("memory", "sqlite") else None
        if found:
            return f"{_LABELS[self.backend]} at {found['host']}"
        return _LABELS[self.backend]


def choose_checkpoint_database(settings: StorageSettings) -> DatabaseChoice:
    """The checkpointer's backend: the named type, else the first address that is set, else SQLite."""
    if settings.checkpoint_type:
        return _named(settings.checkpoint_type, settings)
    if settings.database_url:
        return _by_scheme(settings.database_url)
    if settings.mongodb_uri:
        return DatabaseChoice("mongodb", settings.mongodb_uri.get_secret_value(), "MONGODB_URI")
    if settings.redis_url:
        return DatabaseChoice("redis", _with_redis_scheme(settings.redis_url.get_secret_value()), "REDIS_URL")
    return DatabaseChoice("sqlite")


def choose_store_database(settings: StorageSettings) -> DatabaseChoice:
    """The store's backend: the named type, else the checkpointer's."""
    checkpointer = choose_checkpoint_database(settings)
    if settings.store_type in (None, checkpointer.backend):
        return checkpointer
    assert settings.store_type
    return _named(settings.store_type, settings)


def _named(backend: Backend, settings: StorageSettings) -> DatabaseChoice:
    general = _by_scheme(settings.database_url) if settings.database_url else None
    candidates: dict[str, SecretStr | None] = {}
    match backend:
        case "memory":
            return DatabaseChoice("memory")
        case "postgres":
            candidates = {"LANGGRAPH_CHECKPOINT_POSTGRES_DSN": settings.postgres_dsn}
        case "redis":
            candidates = {
                "LANGGRAPH_CHECKPOINT_REDIS_URL": settings.redis_dsn,
                "REDIS_URL": settings.redis_url,
            }
        case "mongodb":
            candidates = {
                "LANGGRAPH_CHECKPOINT_MONGODB_URI": settings.mongodb_dsn,
                "MONGODB_URI": settings.mongodb_uri,
            }
        case "sqlite":
            pass
    for variable, address in candidates.items():
        if address:
            text = address.get_secret_value()
            return DatabaseChoice(backend, _with_redis_scheme(text) if backend == "redis" else text, variable)
    if general and general.backend == backend:
        return general
    if backend == "sqlite":
        return DatabaseChoice("sqlite")
    names = " or ".join([*candidates, "DATABASE_URL"])
    raise ConfigurationError(
        f"{_LABELS[backend]} is chosen to keep conversations, but its address is missing. Set {names}."
    )


def _by_scheme(url: SecretStr) -> DatabaseChoice:
    scheme, separator, rest = url.get_secret_value().partition("://")
    # `postgresql+asyncpg` and the like name a driver; the kind of database is all that counts here.
    kind = scheme.lower() if scheme.lower() == "mongodb+srv" else scheme.lower().partition("+")[0]
    backend = _SCHEMES.get(kind) if separator else None
    match backend:
        case None:
            known = "postgresql, redis, mongodb, sqlite or memory"
            raise ConfigurationError(f"DATABASE_URL: the address must begin with {known} and ://.")
        case "memory":
            return DatabaseChoice("memory", variable="DATABASE_URL")
        case "sqlite":
            path = unquote(rest.partition("?")[0]).removeprefix("/")
            if path in ("", ":memory:"):
                return DatabaseChoice("memory", variable="DATABASE_URL")
            return DatabaseChoice("sqlite", path, "DATABASE_URL")
        case "redis":
            return DatabaseChoice("redis", _with_redis_scheme(f"{kind}://{rest}"), "DATABASE_URL")
        case _:
            return DatabaseChoice(backend, f"{kind}://{rest}", "DATABASE_URL")


def _with_redis_scheme(url: str) -> str:
    return re.sub(r"^valkey(s?)://", r"redis\1://", url)
