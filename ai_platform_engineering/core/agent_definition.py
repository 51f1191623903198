"""What an agent is: data, from which a sub-agent is built in-process or reached as a service."""

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

from ai_platform_engineering.core.call_targets import TargetKind
from ai_platform_engineering.core.events import SUPERVISOR

_NAME = re.compile(r"[a-z][a-z0-9_-]*")
_VARIABLES = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\|[A-Za-z_][A-Za-z0-9_]*)*")
RESERVED = frozenset({"all", "task", SUPERVISOR, "user_input"})

Permission = Literal["allow", "ask", "deny"]
Effect = Literal["read", "idempotent", "write"]


def _are_variables(names: str) -> str:
    if not _VARIABLES.fullmatch(names):
        raise ValueError("`requires` lists names of variables, alternatives as `A|B`")
    return names


Requirement = Annotated[str, AfterValidator(_are_variables)]


class _FileModel(BaseModel):
    """Part of a definition file; an unknown key is an error. No value is ever printed: it may be a secret."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, hide_input_in_errors=True)

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        return ()


class SandboxAccess(_FileModel):
    """What a tool server in a sandbox may use of this machine, beside its program and its arguments."""

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    network: bool = True


class OAuthConfig(_FileModel):
    """How we get access tokens for a hosted server: `auth: oauth`, or a mapping with more.

    The tokens belong to each person who signs in, or to the installation, for all who ask. Without a client
    id we register with the authorization server.
    """

    type: Literal["oauth"] = "oauth"
    owner: Literal["person", "installation"] = "person"
    client_id: str | None = None
    client_secret: str | None = None
    scopes: tuple[str, ...] = ()

    @field_validator("client_id", "client_secret")
    @classmethod
    def _is_absent_if_empty(cls, value: str | None) -> str | None:
        return value or None  # of a variable that is not set


class McpServer(_FileModel):
    """A tool server, in the form that users know: a command to start, or an address."""

    type: Literal["stdio", "http", "streamable-http"] | None = None
    command: str | None = None
    args: tuple[str, ...] = ()
    env: dict[str, str] = Field(default_factory=dict)
    cwd: str | None = None
    sandbox: SandboxAccess = Field(default_factory=SandboxAccess)
    url: str | None = None
    headers: dict[str, str] = Field(default_factory=dict)
    auth: OAuthConfig | None = None
    # The server is told in `_meta` who asks; only for one that is trusted with it.
    sends_user: bool = False

    @field_validator("auth", mode="before")
    @classmethod
    def _expand_short_form(cls, value: Any) -> Any:
        if value == "oauth":
            return {}
        if isinstance(value, str):
            raise ValueError("`auth` is `oauth`, or a mapping with `type: oauth`")
        return value

    @model_validator(mode="after")
    def _is_one_of_two(self) -> "McpServer":
        if self.auth is not None and self.url is None:
            raise ValueError("`auth` goes with `url`")
        if (self.command is None) == (self.url is None):
            raise ValueError("a server needs either `command` or `url`")
        if self.type is not None and (self.type == "stdio") == (self.command is None):
            raise ValueError("`type: stdio` goes with `command`, the other types go with `url`")
        return self

    @property
    def oauth(self) -> OAuthConfig | None:
        """How access tokens are got; None where none are, also since a header has credentials already."""
        if any(_is_authorization(name) and _has_credentials(value) for name, value in self.headers.items()):
            return None
        return self.auth

    @property
    def sent_headers(self) -> dict[str, str]:
        """The headers of each request; an Authorization whose variable is not set is not one of them."""
        if self.oauth is None:
            return self.headers
        return {name: value for name, value in self.headers.items() if not _is_authorization(name)}

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        return (("env", tuple(self.env)), ("headers", tuple(self.headers)))


def _is_authorization(header: str) -> bool:
    return header.lower() == "authorization"


def _has_credentials(value: str) -> bool:
    """Whether something follows the scheme: `Bearer ${TOKEN:-}` without a token is the scheme alone."""
    return len(value.split()) > 1


class ToolPolicy(_FileModel):
    """Which tools an agent may use, by name pattern: `deny` wins, `ask` needs an approval, `allow` runs.

    With an empty `allow` every other tool is offered, and its server's annotations decide whether it needs
    an approval. `read` and `idempotent` are tools that are safe to call again, whatever their server says;
    `poll` are those that a model may call repeatedly to watch for a change. `targets` says for tools that
    reach other hosts which arguments are hosts, URLs, ports, an HTTP method or data that is sent along.
    """

    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    read: tuple[str, ...] = ()
    idempotent: tuple[str, ...] = ()
    poll: tuple[str, ...] = ()
    targets: dict[str, dict[str, TargetKind]] = Field(default_factory=dict)

    def find_permission(self, tool: str) -> Permission | None:
        """The permission that the policy gives explicitly; None leaves it to the server's annotations."""
        if _matches(tool, self.deny):
            return "deny"
        if _matches(tool, self.ask):
            return "ask"
        if not self.allow:
            return None
        if _matches(tool, self.allow):
            return "allow"
        return "deny"

    def permission(self, tool: str) -> Permission:
        """The permission of a tool; one that the policy does not mention is allowed."""
        return self.find_permission(tool) or "allow"

    def effect(self, tool: str) -> Effect | None:
        """The effect that the policy gives explicitly; None leaves it to the server's annotations."""
        if _matches(tool, self.read):
            return "read"
        if _matches(tool, self.idempotent):
            return "idempotent"
        return None

    def find_targets(self, tool: str) -> Mapping[str, TargetKind] | None:
        """The arguments that the policy names for the tool; None leaves them to the server's metadata."""
        for pattern, kinds in self.targets.items():
            if fnmatchcase(tool, pattern):
                return kinds
        return None

    def is_polled(self, tool: str) -> bool:
        return _matches(tool, self.poll)


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


class Install(_FileModel):
    """The packages with an agent's commands, for an environment of their own.

    MCP servers need different versions of the same packages.
    """

    pip: tuple[str, ...] = ()
    npm: tuple[str, ...] = ()
    python: str | None = None

    @model_validator(mode="after")
    def _is_one_of_two(self) -> "Install":
        if bool(self.pip) == bool(self.npm):
            raise ValueError("`install` needs either `pip` or `npm`, a list of packages")
        return self


class CheckCall(_FileModel):
    """A read-only call that shows whether an agent's credentials work, for `caipe agents test`."""

    tool: str
    arguments: dict[str, Any] = Field(default_factory=dict)


def check_agent_name(name: str) -> str:
    """The name, if an agent may have it. Raises ValueError."""
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"an agent's name is made of a-z, 0-9, _ and -, and starts with a letter; {name!r} is not"
        )
    if name in RESERVED:
        raise ValueError(f"{name!r} is reserved; choose another name")
    return name


def variable_prefix(name: str) -> str:
    """How variables of the agent begin: `my-agent` has `MY_AGENT_LLM_MODEL`."""
    return name.upper().replace("-", "_")


def enabling_variable(name: str) -> str:
    """The variable that switches the agent on or off."""
    return f"ENABLE_{variable_prefix(name)}"


class AgentDefinition(_FileModel):
    name: str
    description: str
    title: str | None = None
    prompt: str = ""
    mcp_servers: dict[str, McpServer] = Field(default_factory=dict, alias="mcpServers")
    url: str | None = None
    tools: ToolPolicy = Field(default_factory=ToolPolicy)
    requires: tuple[Requirement, ...] = ()
    examples: tuple[str, ...] = ()
    model: str | None = None
    install: Install | None = None
    check: CheckCall | None = None

    @field_validator("name")
    @classmethod
    def _is_a_name(cls, name: str) -> str:
        return check_agent_name(name)

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        return (("name", self.name),)
