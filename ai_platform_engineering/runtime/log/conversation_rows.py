"""Conversations of an owner: their titles, and how they are listed, searched and deleted."""

from dataclasses import dataclass
from datetime import datetime

from ai_platform_engineering.core.events import RunStarted, TextPart
from ai_platform_engineering.core.transcript import TranscriptState
from ai_platform_engineering.databases.sql_connections import Row, SqlConnection
from ai_platform_engineering.files.sqlite_file import microseconds, moment

MAX_TITLE_CHARS = 120
_MAX_QUESTION_CHARS = 500  # of a question that a search looks at
_MAX_SEARCH_CHARS = 20_000  # of all questions of a conversation

_LIST = (
    "SELECT context_id, title, created, updated,"
    " (SELECT state FROM runs WHERE runs.owner = conversations.owner"
    " AND runs.context_id = conversations.context_id ORDER BY number DESC LIMIT 1) AS state"
    " FROM conversations WHERE owner = ?1 AND (updated, context_id) < (?2, ?3)"
    " AND (?4 = '' OR search_text LIKE ?5 ESCAPE '!') ORDER BY updated DESC, context_id DESC LIMIT ?6"
)
_END = (2**62, "")  # behind every conversation


@dataclass(frozen=True, slots=True)
class ConversationRow:
    """A conversation: the runs of an owner in one context. `updated` is when the last of them began, and
    `state` is that of the last one."""

    owner: str
    context_id: str
    title: str
    created: datetime
    updated: datetime
    state: TranscriptState


@dataclass(frozen=True, slots=True)
class ConversationPosition:
    """A position in a list of conversations."""

    updated: datetime
    context_id: str


@dataclass(frozen=True, slots=True)
class ConversationPage:
    """A page of a list of conversations, the one with the newest run first."""

    rows: list[ConversationRow]
    has_more: bool


def read_question(started: RunStarted) -> str:
    """The words of a question."""
    return " ".join(part.text for part in started.parts if isinstance(part, TextPart)).strip()


def make_title(question: str) -> str:
    """The title of a conversation that nobody has named: the beginning of its first question."""
    line = " ".join(question.split())
    if len(line) <= MAX_TITLE_CHARS:
        return line or "(no text)"
    return line[: MAX_TITLE_CHARS - 1].rstrip() + "…"


def make_search_text(text: str) -> str:
    """A text as it is searched: without regard to case."""
    return text[:_MAX_QUESTION_CHARS].casefold()


def _join_search_text(text: str) -> str:
    """SQL: the end of what a search looks at, with more text behind it."""
    joined = f"conversations.search_text || '\n' || {text}"
    excess = f"length({joined}) - {_MAX_SEARCH_CHARS}"
    return f"substr({joined}, CASE WHEN {excess} > 0 THEN {excess} + 1 ELSE 1 END)"


def store_question(db: SqlConnection, now: int, owner: str, context_id: str, started: RunStarted) -> None:
    """Creates the conversation of a run, or moves it to the top of the list."""
    question = read_question(started)
    joined = _join_search_text("excluded.search_text")
    db.execute(
        "INSERT INTO conversations(owner, context_id, title, search_text, created, updated)"  # noqa: S608
        " VALUES (?1, ?2, ?3, ?4, ?5, ?5) ON CONFLICT(owner, context_id) DO UPDATE"
        f" SET updated = excluded.updated, search_text = {joined}",
        (owner, context_id, make_title(question), make_search_text(question), now),
    )


def list_conversations(
    db: SqlConnection, owner: str, query: str, after: ConversationPosition | None, limit: int
) -> ConversationPage:
    position: tuple[int, str] = _END
    if after is not None:
        position = (microseconds(after.updated), after.context_id)
    words = make_search_text(query.strip())
    escaped = words.replace("!", "!!").replace("%", "!%").replace("_", "!_")
    rows = db.execute(_LIST, (owner, *position, words, f"%{escaped}%", limit + 1)).fetchall()
    conversations = [_read_conversation(owner, row) for row in rows[:limit]]
    return ConversationPage(conversations, has_more=len(rows) > limit)


def rename(db: SqlConnection, owner: str, context_id: str, title: str) -> bool:
    """Gives a conversation another title; it is found by both. False when there is none."""
    statement = (
        f"UPDATE conversations SET title = ?3, search_text = {_join_search_text('?4')}"  # noqa: S608
        " WHERE owner = ?1 AND context_id = ?2"
    )
    values = (owner, context_id, title, make_search_text(title))
    return db.execute(statement, values).rowcount > 0


def delete(db: SqlConnection, owner: str, context_id: str) -> int:
    """Hides the ended runs of a conversation, which are then removed as those of retention are."""
    run_ids = db.execute(
        "SELECT run_id FROM runs WHERE owner = ? AND context_id = ? AND status = 'ended'", (owner, context_id)
    ).fetchall()
    db.executemany("INSERT INTO forgotten(run_id) VALUES (?) ON CONFLICT DO NOTHING", run_ids)
    db.executemany("DELETE FROM runs WHERE run_id = ?", run_ids)
    remove_empty(db, owner, context_id)
    return len(run_ids)


def remove_empty(db: SqlConnection, owner: str, context_id: str) -> None:
    """Removes a conversation that has no run any more."""
    db.execute(
        "DELETE FROM conversations WHERE owner = ?1 AND context_id = ?2"
        " AND NOT EXISTS (SELECT 1 FROM runs WHERE owner = ?1 AND context_id = ?2)",
        (owner, context_id),
    )


def remove_all_empty(db: SqlConnection) -> None:
    """Removes the conversations that have no run any more."""
    db.execute(
        "DELETE FROM conversations WHERE NOT EXISTS (SELECT 1 FROM runs"
        " WHERE runs.owner = conversations.owner AND runs.context_id = conversations.context_id)"
    )


def _read_conversation(owner: str, row: Row) -> ConversationRow:
    return ConversationRow(
        owner=owner,
        context_id=row["context_id"],
        title=row["title"],
        created=moment(row["created"]),
        updated=moment(row["updated"]),
        state=row["state"] or "completed",
    )
