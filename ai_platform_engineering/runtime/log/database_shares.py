"""Shared conversations in the run log on a database."""

from datetime import datetime

from ai_platform_engineering.files.sqlite_file import microseconds
from ai_platform_engineering.runtime.log import shares
from ai_platform_engineering.runtime.log.log_database import LogDatabase
from ai_platform_engineering.runtime.log.shares import ConversationPart, Share


class DatabaseShares:
    """The shares of a run log."""

    _database: LogDatabase

    async def add_share(self, share: Share, most: int) -> bool:
        return await self._database.submit(lambda db, now: shares.add(db, share, most))

    async def list_shares(self, owner: str, context_id: str | None, now: datetime) -> list[Share]:
        return await self._database.read(lambda db: shares.list_of_owner(db, owner, context_id, now))

    async def find_share(self, share_id: str, now: datetime) -> Share | None:
        query = "SELECT * FROM shares WHERE share_id = ? AND expires_at > ?"
        rows = await self._database.query(query, share_id, microseconds(now))
        if not rows:
            return None
        return shares.read_share(rows[0])

    async def remove_share(self, owner: str, share_id: str) -> bool:
        return await self._database.submit(lambda db, now: shares.remove(db, owner, share_id))

    async def read_conversation(
        self, owner: str, context_id: str, *, before: int | None = None, limit: int
    ) -> ConversationPart | None:
        return await self._database.read(
            lambda db: shares.read_conversation(db, owner, context_id, before, limit)
        )
