"""Shared conversations in the run log in memory."""

from datetime import datetime

from ai_platform_engineering.runtime.log.memory_queries import StoredConversation, StoredRun
from ai_platform_engineering.runtime.log.shares import ConversationPart, Share, too_many_shares


class MemoryShares:
    """The shares of a run log in memory."""

    _conversations: dict[tuple[str, str], StoredConversation]
    _runs: dict[str, StoredRun]

    def __init__(self) -> None:
        self._shares: dict[str, Share] = {}

    async def add_share(self, share: Share, most: int) -> bool:
        if (share.owner, share.context_id) not in self._conversations:
            return False
        if len(await self.list_shares(share.owner, None, share.created)) >= most:
            raise too_many_shares(most)
        self._shares[share.share_id] = share
        return True

    async def list_shares(self, owner: str, context_id: str | None, now: datetime) -> list[Share]:
        shares = [share for share in self._shares.values() if share.owner == owner and share.expires_at > now]
        return [share for share in shares if context_id in (None, share.context_id)]

    async def find_share(self, share_id: str, now: datetime) -> Share | None:
        share = self._shares.get(share_id)
        if share is None or share.expires_at <= now:
            return None
        return share

    async def remove_share(self, owner: str, share_id: str) -> bool:
        share = self._shares.get(share_id)
        if share is None or share.owner != owner:
            return False
        del self._shares[share_id]
        return True

    async def read_conversation(
        self, owner: str, context_id: str, *, before: int | None = None, limit: int
    ) -> ConversationPart | None:
        conversation = self._conversations.get((owner, context_id))
        if conversation is None:
            return None
        key = (owner, context_id)
        runs = [run for run in reversed(self._runs.values()) if run.conversation == key]
        if before is not None:
            runs = [run for run in runs if run.number < before]
        next_before = None
        if len(runs) > limit:
            next_before = runs[limit - 1].number
        return ConversationPart(conversation.title, [run.row for run in runs[:limit]], next_before)

    def _remove_ended_shares(self) -> None:
        """Removes the shares of conversations that are gone."""
        shares: dict[str, Share] = {}
        for share_id, share in self._shares.items():
            if (share.owner, share.context_id) in self._conversations:
                shares[share_id] = share
        self._shares = shares
