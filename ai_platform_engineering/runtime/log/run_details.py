"""What lists show of runs besides their rows: the question, the agents that worked on it, and the tokens.

They are written when a run begins, delegates and ends, never for each piece of text.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ai_platform_engineering.core.events import (
    Answered,
    AnyEvent,
    Cancelled,
    Failed,
    RunStarted,
    ToolStarted,
    Usage,
    is_terminal,
)
from ai_platform_engineering.core.tool_traits import UNKNOWN_AGENT
from ai_platform_engineering.core.transcript import TranscriptState
from ai_platform_engineering.databases.sql_connections import Row, SqlConnection
from ai_platform_engineering.runtime.log.conversation_rows import make_search_text, read_question
from ai_platform_engineering.runtime.log.log_rows import RunRow
from ai_platform_engineering.runtime.log.run_rows import read_run, read_started

MAX_QUESTION_CHARS = 500
MAX_AGENTS = 50  # of one run: a third-party agent may report any names
MAX_AGENT_CHARS = 100

_COLUMNS = "runs.*, run_details.question, run_details.usage"
_OF_OWNER = (
    f"SELECT {_COLUMNS} FROM runs LEFT JOIN run_details ON run_details.run_id = runs.run_id"  # noqa: S608
    " WHERE runs.owner = :owner AND runs.number < :before"
)
_OF_AGENT = (
    f"SELECT {_COLUMNS} FROM run_agents"  # noqa: S608
    # By its id, too: the number of a run that is being deleted may be given again.
    " JOIN runs ON runs.number = run_agents.number AND runs.run_id = run_agents.run_id"
    " LEFT JOIN run_details ON run_details.run_id = runs.run_id"
    " WHERE run_agents.owner = :owner AND run_agents.number < :before AND run_agents.agent = :agent"
)
_END = 2**62  # behind every run


@dataclass(frozen=True, slots=True)
class RunDetails:
    """A run with what lists show of it."""

    row: RunRow
    number: int  # its position: later runs have larger numbers
    question: str = ""
    agents: tuple[str, ...] = ()
    usage: Usage | None = None


@dataclass(frozen=True, slots=True)
class DetailsFilter:
    """Which runs of an owner are listed: in a state, with an agent, with words in their question."""

    owner: str
    state: TranscriptState | None = None
    agent: str | None = None
    query: str = ""

    @property
    def words(self) -> str:
        return make_search_text(self.query.strip())


@dataclass(frozen=True, slots=True)
class DetailsPage:
    """A page of runs, the one that began last first."""

    items: list[RunDetails]
    has_more: bool


def find_agents(events: Iterable[AnyEvent]) -> list[str]:
    """The names of the agents that the events delegate to."""
    names: list[str] = []
    for event in events:
        if isinstance(event, ToolStarted) and event.delegates and event.tool != UNKNOWN_AGENT:
            names.append(event.tool[:MAX_AGENT_CHARS])
    return names


def find_usage(events: Iterable[AnyEvent]) -> Usage | None:
    """What a run has used, as its end tells it."""
    for event in events:
        if isinstance(event, Answered | Failed | Cancelled):
            return event.usage
    return None


def changes_details(events: Iterable[AnyEvent]) -> bool:
    """Whether `store_progress` has anything to do: most events are pieces of text."""
    return any(isinstance(event, ToolStarted) or is_terminal(event) for event in events)


def shorten_question(started: RunStarted) -> str:
    return read_question(started)[:MAX_QUESTION_CHARS]


def store_started(db: SqlConnection, run: RunRow, started: RunStarted) -> None:
    question = shorten_question(started)
    db.execute(
        "INSERT INTO run_details(run_id, question, search_text) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
        (run.run_id, question, make_search_text(question)),
    )


def store_progress(db: SqlConnection, run_id: str, events: Iterable[AnyEvent]) -> None:
    """Stores the agents and the usage that the events tell of."""
    batch = tuple(events)
    _store_agents(db, run_id, find_agents(batch))
    usage = find_usage(batch)
    if usage is not None:
        db.execute("UPDATE run_details SET usage = ? WHERE run_id = ?", (usage.model_dump_json(), run_id))


def _store_agents(db: SqlConnection, run_id: str, agents: Iterable[str]) -> None:
    for agent in agents:
        db.execute(
            "INSERT INTO run_agents(run_id, agent, owner, number)"
            " SELECT run_id, ?2, owner, number FROM runs WHERE run_id = ?1"
            " AND (SELECT count(*) FROM run_agents WHERE run_id = ?1) < ?3 ON CONFLICT DO NOTHING",
            (run_id, agent, MAX_AGENTS),
        )


def add_missing(db: SqlConnection, before: int, most: int) -> int:
    """Adds the details of at most so many runs below a number that an older version stored; returns the last
    number, 0 when there is none left."""
    rows = db.execute(
        "SELECT * FROM runs WHERE number < ? AND NOT EXISTS"
        " (SELECT 1 FROM run_details WHERE run_details.run_id = runs.run_id) ORDER BY number DESC LIMIT ?",
        (before, most),
    ).fetchall()
    for row in rows:
        _add_details(db, read_run(row))
    if not rows:
        return 0
    return int(rows[-1]["number"])


def _add_details(db: SqlConnection, run: RunRow) -> None:
    first = db.execute("SELECT body FROM events WHERE run_id = ? AND seq = 1", (run.run_id,)).fetchone()
    if first is None:
        return
    store_started(db, run, read_started(first))
    agents = db.execute(
        "SELECT json_extract(body, '$.tool') FROM events WHERE run_id = ? AND kind = 'tool_started'"
        " AND json_extract(body, '$.delegates')",
        (run.run_id,),
    ).fetchall()
    names = [str(agent)[:MAX_AGENT_CHARS] for (agent,) in agents if agent != UNKNOWN_AGENT]
    _store_agents(db, run.run_id, names)
    db.execute(
        "UPDATE run_details SET usage = (SELECT json_extract(body, '$.usage') FROM events"
        " WHERE run_id = ?1 AND seq = ?2 AND kind IN ('answered', 'failed', 'cancelled')) WHERE run_id = ?1",
        (run.run_id, run.last_seq),
    )


def list_details(
    db: SqlConnection, details_filter: DetailsFilter, after: int | None, limit: int
) -> DetailsPage:
    """A page of runs; an index has the rows of each owner, state and agent in the order of the list."""
    query = _OF_OWNER
    order = "runs.number"
    if details_filter.agent is not None:
        query = _OF_AGENT
        order = "run_agents.number"
    if details_filter.state is not None:
        query += " AND runs.state = :state"
    if details_filter.words:
        query += " AND run_details.search_text LIKE :pattern ESCAPE '!'"
    values = {
        "owner": details_filter.owner,
        "before": after or _END,
        "agent": details_filter.agent,
        "state": details_filter.state,
        "pattern": f"%{_escape(details_filter.words)}%",
        "limit": limit + 1,
    }
    rows = db.execute(f"{query} ORDER BY {order} DESC LIMIT :limit", values).fetchall()
    agents = _find_agents_of(db, [row["run_id"] for row in rows[:limit]])
    items = [_read_details(row, agents.get(row["run_id"], ())) for row in rows[:limit]]
    return DetailsPage(items, has_more=len(rows) > limit)


def _find_agents_of(db: SqlConnection, run_ids: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """The agents that worked on runs, by run id."""
    placeholders = ", ".join("?" * len(run_ids))
    agents: dict[str, tuple[str, ...]] = {}
    if not run_ids:
        return agents
    query = (
        f"SELECT run_id, agent FROM run_agents WHERE run_id IN ({placeholders})"  # noqa: S608
        " ORDER BY run_id, agent"
    )
    for run_id, agent in db.execute(query, run_ids):
        agents[run_id] = (*agents.get(run_id, ()), agent)
    return agents


def _escape(words: str) -> str:
    """The words as a pattern of LIKE."""
    return words.replace("!", "!!").replace("%", "!%").replace("_", "!_")


def _read_details(row: Row, agents: tuple[str, ...]) -> RunDetails:
    usage = None
    if row["usage"] is not None:
        usage = Usage.model_validate_json(row["usage"])
    return RunDetails(read_run(row), row["number"], row["question"] or "", agents, usage)
