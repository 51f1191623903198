"""What the last check of an agent's tool servers found wrong, on disk for `caipe agents`."""

import hashlib
import json
import logging
from datetime import UTC, datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from ai_platform_engineering.agents.agent_catalog import AgentEntry
from ai_platform_engineering.agents.installed_commands import resolve_commands
from ai_platform_engineering.core.private_files import write_private_file
from ai_platform_engineering.mcp_client.server_environment import server_key

log = logging.getLogger(__name__)

_MAX_FILE_BYTES = 16 * 1024
_MAX_PROBLEM_CHARS = 1000


class CheckRecord(BaseModel):
    """A check that failed. `servers` identifies what was checked, with its credentials."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    servers: str
    problem: str
    checked_at: datetime


class CheckRecords:
    """A file for each agent whose last check failed; one of other servers or credentials counts as none."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._folder = home / "cache" / "checks"

    def read(self, entry: AgentEntry) -> CheckRecord | None:
        """The failed check of these servers."""
        path = self._make_path(entry)
        try:
            if path.stat().st_size > _MAX_FILE_BYTES:
                return None
            record = CheckRecord.model_validate_json(path.read_bytes())
        except (OSError, ValidationError):
            return None
        if record.servers != self._identify_servers(entry):
            return None
        return record

    def write(self, entry: AgentEntry, problem: str | None) -> None:
        """Stores what is wrong; None removes it."""
        path = self._make_path(entry)
        try:
            if problem is None:
                path.unlink(missing_ok=True)
                return
            record = CheckRecord(
                servers=self._identify_servers(entry),
                problem=problem[:_MAX_PROBLEM_CHARS],
                checked_at=datetime.now(UTC),
            )
            write_private_file(path, record.model_dump_json().encode())
        except OSError as error:
            log.warning("a check could not be written down in %s: %s", self._folder, error.strerror)

    def _make_path(self, entry: AgentEntry) -> Path:
        return self._folder / f"{entry.name}.json"

    def _identify_servers(self, entry: AgentEntry) -> str:
        servers = resolve_commands(entry.definition, self._home).mcp_servers
        keys = [server_key(server) for server in servers.values()]
        return hashlib.sha256(json.dumps(keys).encode()).hexdigest()
