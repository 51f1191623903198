"""Shared conversations: links with which others read one. Only a digest of a link's token is stored."""

import hashlib
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from ai_platform_engineering.core.errors import Refused
from ai_platform_engineering.databases.sql_connections import Row, SqlConnection, lock_key
from ai_platform_engineering.files.sqlite_file import microseconds, moment
from ai_platform_engineering.runtime.log.log_rows import RunRow
from ai_platform_engineering.runtime.log.run_rows import read_run

_RUNS = "SELECT * FROM runs WHERE owner = ? AND context_id = ? AND number < ? ORDER BY number DESC LIMIT ?"

_END = 2**62  # behind every run


@dataclass(frozen=True, slots=True)
class Share:
    """A conversation that others may read until it expires. Its id is no token: nothing is read with it."""

    share_id: str
    owner: str
    context_id: str
    created: datetime
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class ConversationPart:
    """A part of a conversation, its newest run first; `next_before` is where the next part begins."""

    title: str
    rows: list[RunRow]
    next_before: int | None


class ShareStore(Protocol):
    """Where shares are stored."""

    async def add_share(self, share: Share, most: int) -> bool:
        """Stores a share. False when there is no such conversation; raises Refused when its owner shares
        `most` already."""
        ...

    async def list_shares(self, owner: str, context_id: str | None, now: datetime) -> list[Share]:
        """The shares of an owner that have not expired, of one conversation or all, the oldest first. There
        are never more than `add_share` lets in."""
        ...

    async def find_share(self, share_id: str, now: datetime) -> Share | None:
        """A share that has not expired."""
        ...

    async def remove_share(self, owner: str, share_id: str) -> bool:
        """Ends a share. False when the owner has none with this id."""
        ...

    async def read_conversation(
        self, owner: str, context_id: str, *, before: int | None = None, limit: int
    ) -> ConversationPart | None:
        """A part of a conversation, the runs before a position; None when there is no such conversation."""
        ...


def digest_token(token: str) -> str:
    """The id of a share, of its token: one cannot be found from the other."""
    return hashlib.sha256(token.encode()).hexdigest()


def too_many_shares(most: int) -> Refused:
    return Refused(f"You share {most} conversations already. End one of them first.")


def add(db: SqlConnection, share: Share, most: int) -> bool:
    """Raises Refused."""
    key = (share.owner, share.context_id)
    lock_key(db, "shares", share.owner)
    if not db.execute("SELECT 1 FROM conversations WHERE owner = ? AND context_id = ?", key).fetchone():
        return False
    created = microseconds(share.created)
    db.execute("DELETE FROM shares WHERE owner = ? AND expires_at <= ?", (share.owner, created))
    [count] = db.execute("SELECT count(*) FROM shares WHERE owner = ?", (share.owner,)).fetchone()
    if count >= most:
        raise too_many_shares(most)
    db.execute(
        "INSERT INTO shares(share_id, owner, context_id, created, expires_at) VALUES (?, ?, ?, ?, ?)",
        (share.share_id, *key, created, microseconds(share.expires_at)),
    )
    return True


def list_of_owner(db: SqlConnection, owner: str, context_id: str | None, now: datetime) -> list[Share]:
    rows = db.execute(
        "SELECT * FROM shares WHERE owner = ?1 AND (?2 IS NULL OR context_id = ?2) AND expires_at > ?3"
        " ORDER BY created, share_id",
        (owner, context_id, microseconds(now)),
    )
    return [read_share(row) for row in rows]


def remove(db: SqlConnection, owner: str, share_id: str) -> bool:
    statement = "DELETE FROM shares WHERE owner = ? AND share_id = ?"
    return db.execute(statement, (owner, share_id)).rowcount > 0


def remove_ended(db: SqlConnection, now: int) -> None:
    """Removes the shares that have expired, and those of conversations that are gone."""
    db.execute(
        "DELETE FROM shares WHERE expires_at <= ? OR NOT EXISTS (SELECT 1 FROM conversations"
        " WHERE conversations.owner = shares.owner AND conversations.context_id = shares.context_id)",
        (now,),
    )


def remove_of_conversation(db: SqlConnection, owner: str, context_id: str) -> None:
    db.execute("DELETE FROM shares WHERE owner = ? AND context_id = ?", (owner, context_id))


def read_conversation(
    db: SqlConnection, owner: str, context_id: str, before: int | None, limit: int
) -> ConversationPart | None:
    conversation = db.execute(
        "SELECT title FROM conversations WHERE owner = ? AND context_id = ?", (owner, context_id)
    ).fetchone()
    if conversation is None:
        return None
    rows = db.execute(_RUNS, (owner, context_id, before or _END, limit + 1)).fetchall()
    next_before = None
    if len(rows) > limit:
        next_before = rows[limit - 1]["number"]
    return ConversationPart(conversation["title"], [read_run(row) for row in rows[:limit]], next_before)


def read_share(row: Row) -> Share:
    return Share(
        share_id=row["share_id"],
        owner=row["owner"],
        context_id=row["context_id"],
        created=moment(row["created"]),
        expires_at=moment(row["expires_at"]),
    )
