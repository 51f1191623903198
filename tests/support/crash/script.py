"""What the model says in a crash test, and the texts and the answer that must come of it; each piece of text
is a point to be held at."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from tests.support.crash.ledger import Ledger, Points
from tests.support.fakes.gate import Gate
from tests.support.fakes.script import Book, Call, Request, Say, Script, Turn

ASKING = "with a question"
UNKNOWN = "unknown"
_TAG = re.compile(r"\bt[0-9a-f]{10}\b")

Text = tuple[str, str]
"""Who says it, and the whole text."""


@dataclass(frozen=True, slots=True)
class Role:
    """What one agent says, turn by turn; the words of a turn are its pieces."""

    name: str
    turns: tuple[str, ...]

    def said(self, turn: int, tag: str, **values: str) -> str:
        return self.turns[turn].format(tag=tag, **values)


SUPERVISOR = Role(
    "supervisor",
    (
        "I make a plan for {tag}.",
        "Two agents work on {tag} now.",
        "I ask about {tag}.",
        "The answer for {tag}: {kept} {scouted} {name}",
    ),
)
KEEPER = Role(
    "keeper",
    ("I look at {tag} first.", "Now I keep {tag} for you.", "Kept {tag} as {receipt} having seen {seen}."),
)
UNSURE = "Nobody knows whether {tag} was kept."
SCOUT = Role("scout", ("I go and scout {tag}.", "Scouted {tag} with {receipt}."))
NAMED = "It is called {name}."


class _At(Gate):
    """Makes a point of each piece of a turn: `keeper:0:2` is before the third piece of the keeper's first
    turn."""

    def __init__(self, points: Points, turn: str, tag: str) -> None:
        super().__init__()
        self._points, self._turn, self._tag, self._number = points, turn, tag, 0

    async def before(self, piece: str) -> None:
        number, self._number = self._number, self._number + 1
        await self._points.passing(f"{self._turn}:{number}", self._tag)


def book(points: Points) -> Book:
    """The model of everybody: the supervisor's questions begin with "Handle", what it delegates with "Keep"
    and "Scout"."""

    def turn(
        role: Role, number: int, *calls: Call, values: Callable[[Request], str] | None = None
    ) -> Callable[[Request], Turn]:
        def make(request: Request) -> Turn:
            tag = tag_of(request.last_user)
            text = values(request) if values else role.said(number, tag)
            filled = [
                Call(call.name, {key: _filled(value, tag) for key, value in (call.args or {}).items()})
                for call in calls
            ]
            return Turn(Say(text), *filled, gate=_At(points, f"{role.name}:{number}", tag))

        return make

    todos = ["[Keeper] Keep", "[Scout] Scout", "Answer"]
    tasks = [
        Call("task", {"description": f"{name.title()} TAG", "subagent_type": agent})
        for name, agent in _AGENTS
    ]
    begin = [
        turn(SUPERVISOR, 0, Call("write_todos", {"title": "Work", "todos": todos})),
        turn(SUPERVISOR, 1, *tasks),
    ]
    ask, end = turn(SUPERVISOR, 2, Call("ask_form", {})), turn(SUPERVISOR, 3, values=_answer)
    keep = [
        turn(KEEPER, 0, Call("look", {"key": "keeper-TAG"})),
        turn(KEEPER, 1, Call("keep", {"key": "keeper-TAG"})),
    ]
    return Book(
        {
            rf"^Handle.*{ASKING}": Script(*begin, ask, end, exhausted="error"),
            "^Handle": Script(*begin, end, exhausted="error"),
            "^Keep": Script(*keep, turn(KEEPER, 2, values=_kept), exhausted="error"),
            "^Scout": Script(
                turn(SCOUT, 0, Call("keep", {"key": "scout-TAG"})),
                turn(SCOUT, 1, values=_scouted),
                exhausted="error",
            ),
        }
    )


_AGENTS = (("keep", "keeper"), ("scout", "scout"))


def question(tag: str, *, asks: bool) -> str:
    return f"Handle {tag} {ASKING}." if asks else f"Handle {tag}."


def tag_of(text: str) -> str:
    found = _TAG.search(text)
    return found[0] if found else ""


def texts(tag: str, ledger: Ledger, *, name: str | None, unknown: bool) -> list[Text]:
    """Every text that a reader must have in the end, once each; the last one is the answer."""
    receipts = {key: written[0] for key, written in ledger.writes.items()}
    kept = KEEPER.said(2, tag, receipt=receipts.get(f"keeper-{tag}", ""), seen=ledger.seen(f"keeper-{tag}"))
    kept = UNSURE.format(tag=tag) if unknown else kept
    scouted = SCOUT.said(1, tag, receipt=receipts.get(f"scout-{tag}", ""))
    said = [SUPERVISOR.said(0, tag), SUPERVISOR.said(1, tag), *([SUPERVISOR.said(2, tag)] if name else [])]
    answer = SUPERVISOR.said(
        3, tag, kept=kept, scouted=scouted, name=NAMED.format(name=name) if name else "Done."
    )
    return [
        *((SUPERVISOR.name, text) for text in said),
        *((KEEPER.name, text) for text in (KEEPER.said(0, tag), KEEPER.said(1, tag), kept)),
        *((SCOUT.name, text) for text in (SCOUT.said(0, tag), scouted)),
        (SUPERVISOR.name, answer),
    ]


def _filled(value: object, tag: str) -> object:
    return value.replace("TAG", tag) if isinstance(value, str) else value


def _kept(request: Request) -> str:
    if UNKNOWN in request.tool_results["keep"][-1]:
        return UNSURE.format(tag=tag_of(request.last_user))
    return KEEPER.said(
        2, tag_of(request.last_user), receipt="{{tool:keep.receipt}}", seen="{{tool:look.seen}}"
    )


def _scouted(request: Request) -> str:
    return SCOUT.said(1, tag_of(request.last_user), receipt="{{tool:keep.receipt}}")


def _answer(request: Request) -> str:
    name = NAMED.format(name="{{tool:ask_form.repo}}") if "ask_form" in request.tool_results else "Done."
    return SUPERVISOR.said(
        3, tag_of(request.last_user), kept="{{tool:keeper}}", scouted="{{tool:scout}}", name=name
    )
