"""What was trusted of a tool server when it was first seen, and what has changed since; a file per server."""

import contextlib
import fcntl
import hashlib
import json
import logging
from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ai_platform_engineering.core.agent_definition import McpServer
from ai_platform_engineering.core.private_files import create_private_folder, write_private_file
from ai_platform_engineering.mcp_client.tool_types import ToolSpec

log = logging.getLogger(__name__)

_MAX_FILE_BYTES = 4 * 1024 * 1024
_MAX_VERSIONS = 4
"""Of one tool: accounts of one system may show it differently, and each of them was approved."""
# What is beyond these is never trusted.
_MAX_TOOLS = 1000
_MAX_NAME_CHARS = 200
# What people are shown; the digest is of the whole.
_MAX_TEXT_CHARS = 10_000
_LOCK_FILE = ".lock"


class ToolVersion(BaseModel):
    """A tool as its server once described it: the digest of all of it, and what people are shown."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    digest: str
    title: str = ""
    description: str = ""
    hints: dict[str, bool] = Field(default_factory=dict)
    input_schema: str = ""

    @classmethod
    def of(cls, spec: ToolSpec) -> "ToolVersion":
        content = json.dumps(spec.model_dump(mode="json"), sort_keys=True)
        input_schema = json.dumps(spec.inputSchema, sort_keys=True, indent=1, ensure_ascii=False)
        return cls(
            digest=hashlib.sha256(content.encode()).hexdigest(),
            title=(spec.title or "")[:_MAX_TEXT_CHARS],
            description=(spec.description or "")[:_MAX_TEXT_CHARS],
            hints=spec.hints,
            input_schema=input_schema[:_MAX_TEXT_CHARS],
        )


class TrustRecord(BaseModel):
    """The trusted versions of each tool, and the tools that wait for somebody's yes."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    server: str
    trusted: dict[str, tuple[ToolVersion, ...]] = Field(default_factory=dict)
    held: dict[str, ToolVersion] = Field(default_factory=dict)

    def trusts(self, name: str, version: ToolVersion) -> bool:
        return any(trusted.digest == version.digest for trusted in self.trusted.get(name, ()))

    def last_trusted(self, name: str) -> ToolVersion | None:
        """The version of a tool that was trusted last; None for a new tool."""
        versions = self.trusted.get(name, ())
        return versions[-1] if versions else None

    def with_held(self, versions: Mapping[str, ToolVersion]) -> "TrustRecord":
        """The record after the server has shown these tools."""
        held_versions: dict[str, ToolVersion] = {}
        for name, version in islice(versions.items(), _MAX_TOOLS):
            if len(name) <= _MAX_NAME_CHARS and not self.trusts(name, version):
                held_versions[name] = version
        return self.model_copy(update={"held": held_versions})

    def with_approved(self, digests: Collection[str]) -> "TrustRecord":
        """The record after somebody has said yes to the held tools with these digests."""
        trusted = dict(self.trusted)
        held_versions: dict[str, ToolVersion] = {}
        for name, version in self.held.items():
            if version.digest in digests:
                trusted[name] = (*trusted.get(name, ()), version)[-_MAX_VERSIONS:]
            else:
                held_versions[name] = version
        return self.model_copy(update={"trusted": trusted, "held": held_versions})


class TrustFile:
    """The file of one server's record.

    Its name comes from what the definition says of the server, without credentials: who has new ones still
    has the same server.
    """

    def __init__(self, folder: Path, name: str, server: McpServer) -> None:
        self._name = name
        identity = [
            server.command,
            server.args,
            sorted(server.env),
            server.cwd,
            _strip_credentials(server.url),
            sorted(server.headers),
        ]
        digest = hashlib.sha256(json.dumps(identity).encode()).hexdigest()
        self._path = folder / f"{digest[:40]}.json"

    @property
    def version(self) -> tuple[int, int, int] | None:
        """Changes when the file has changed; None when there is none."""
        try:
            status = self._path.stat()
        except OSError:
            return None
        return (status.st_mtime_ns, status.st_size, status.st_ino)

    def read(self) -> TrustRecord | None:
        """The record; None for a server that was never seen. One that cannot be read trusts nothing."""
        try:
            if self._path.stat().st_size <= _MAX_FILE_BYTES:
                return TrustRecord.model_validate_json(self._path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValidationError) as error:
            reason = type(error).__name__
            log.warning("mcp %s: what was trusted of it cannot be read: %s", self._name, reason)
        return TrustRecord(server=self._name)

    def note_tools(self, versions: Mapping[str, ToolVersion]) -> TrustRecord:
        """Notes what the server shows now: all of it is trusted the first time, and held what differs later.

        Raises OSError.
        """
        with self._locked():
            record = self.read()
            is_first = record is None
            noted = (record or TrustRecord(server=self._name)).with_held(versions)
            if is_first:
                noted = noted.with_approved({version.digest for version in noted.held.values()})
            if noted != record:
                self._write(noted)
            return noted

    def approve(self, digests: Collection[str]) -> TrustRecord:
        """Trusts the held tools with these digests. Raises OSError."""
        with self._locked():
            record = (self.read() or TrustRecord(server=self._name)).with_approved(digests)
            self._write(record)
            return record

    def _write(self, record: TrustRecord) -> None:
        write_private_file(self._path, record.model_dump_json().encode())

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Against another process that reads and writes the record at the same time."""
        folder = self._path.parent
        create_private_folder(folder)
        with open(folder / _LOCK_FILE, "a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _strip_credentials(url: str | None) -> str | None:
    if url is None:
        return None
    try:
        parts = urlsplit(url)
    except ValueError:
        return url
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
