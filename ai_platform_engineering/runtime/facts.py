"""Facts that users asked to be remembered: in the graph's store, per user, until the user removes them."""

import asyncio
import hashlib
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from langgraph.store.base import BaseStore, Item

from ai_platform_engineering.core.errors import Refused
from ai_platform_engineering.core.storable_text import clean_text

MOST = 200  # facts per user
LONGEST = 500  # characters of a fact


@dataclass(frozen=True, slots=True)
class Fact:
    fact_id: str
    text: str
    added: datetime


class Facts:
    """The facts of all users. `store` is called at each access: the server opens the store later."""

    def __init__(self, store: Callable[[], BaseStore]) -> None:
        self._store = store
        self._lock = asyncio.Lock()  # of two that are added at once, the second one counts the first

    async def remember(self, user: str, text: str) -> Fact:
        """Stores a fact; one that is stored already keeps its id and its time. Raises Refused."""
        line = _to_one_line(text)
        if not line:
            raise Refused("There is no fact to remember: the text is empty.")
        if len(line) > LONGEST:
            raise Refused(
                f"A fact has at most {LONGEST} characters, and this one has {len(line)}. Make it shorter."
            )
        fact = Fact(_fact_id(line), line, datetime.now(UTC))
        async with self._lock:
            facts = await self.list_facts(user)
            for stored_fact in facts:
                if stored_fact.fact_id == fact.fact_id:
                    return stored_fact
            if len(facts) >= MOST:
                raise Refused(f"{MOST} facts are remembered, which is the limit. Ask to forget one first.")
            await self._store().aput(
                _namespace(user), fact.fact_id, {"text": line, "added": fact.added.isoformat()}
            )
        return fact

    async def list_facts(self, user: str) -> list[Fact]:
        """The user's facts, oldest first."""
        items = await self._store().asearch(_namespace(user), limit=MOST)
        return sorted(map(_read_fact, items), key=lambda fact: (fact.added, fact.fact_id))

    async def forget(self, user: str, fact_id: str) -> bool:
        """Removes a fact. False when there is none."""
        if await self._store().aget(_namespace(user), fact_id) is None:
            return False
        await self._store().adelete(_namespace(user), fact_id)
        return True


def _namespace(user: str) -> tuple[str, str]:
    # A digest: stores take no empty label and no period, and some find namespaces by their prefix.
    return "facts", hashlib.sha256(user.encode()).hexdigest()


def _fact_id(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _to_one_line(text: str) -> str:
    """The text as one line without control characters: for the model's list of facts, and terminals."""
    characters: list[str] = []
    for character in clean_text(text):
        is_control = unicodedata.category(character) == "Cc"
        characters.append(" " if is_control else character)
    return " ".join("".join(characters).split())


def _read_fact(item: Item) -> Fact:
    return Fact(item.key, str(item.value["text"]), datetime.fromisoformat(item.value["added"]))
