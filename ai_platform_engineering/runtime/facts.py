"""Facts that a user asked to be remembered: in the graph's store, per user, until the user has them forgotten."""

import asyncio
import hashlib
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from langgraph.store.base import BaseStore, Item

from ai_platform_engineering.core.errors import Refused
from ai_platform_engineering.core.events import clean_text

MOST, LONGEST = 200, 500


@dataclass(frozen=True, slots=True)
class Fact:
    fact_id: str
    text: str
    added: datetime


class Facts:
    """`store` is asked at each call: it is opened with the server."""

    def __init__(self, store: Callable[[], BaseStore]) -> None:
        self._store = store
        self._adding = asyncio.Lock()

    async def remember(self, user: str, text: str) -> Fact:
        """Keeps a fact; one that is known keeps its id and its place. Raises Refused."""
        plain = _plain(text)
        if not plain:
            raise Refused("There is no fact to remember: the text is empty.")
        if len(plain) > LONGEST:
            raise Refused(
                f"A fact has at most {LONGEST} characters, and this one has {len(plain)}. Say it shorter."
            )
        fact = Fact(_id_of(plain), plain, datetime.now(UTC))
        async with self._adding:
            known = await self.list_facts(user)
            same = next((one for one in known if one.fact_id == fact.fact_id), None)
            if same is not None:
                return same
            if len(known) >= MOST:
                raise Refused(f"{MOST} facts are remembered, and that is the most. Have one forgotten first.")
            await self._store().aput(
                _namespace(user), fact.fact_id, {"text": plain, "added": fact.added.isoformat()}
            )
        return fact

    async def list_facts(self, user: str) -> list[Fact]:
        """The user's facts, oldest first."""
        found = await self._store().asearch(_namespace(user), limit=MOST)
        return sorted(map(_fact, found), key=lambda fact: (fact.added, fact.fact_id))

    async def forget(self, user: str, fact_id: str) -> bool:
        """Whether there was such a fact."""
        if await self._store().aget(_namespace(user), fact_id) is None:
            return False
        await self._store().adelete(_namespace(user), fact_id)
        return True


def _namespace(user: str) -> tuple[str, str]:
    # As a digest: a store takes no empty label and no period, and some find namespaces by how they begin.
    return "facts", hashlib.sha256(user.encode()).hexdigest()


def _id_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _plain(text: str) -> str:
    """One line without control characters: it stands in a list for the model, and on terminals."""
    return " ".join(
        "".join(" " if unicodedata.category(one) == "Cc" else one for one in clean_text(text)).split()
    )


def _fact(item: Item) -> Fact:
    return Fact(item.key, str(item.value["text"]), datetime.fromisoformat(item.value["added"]))
