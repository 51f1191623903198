"""What a scripted model does, described once for the in-process model and for the HTTP servers."""

from __future__ import annotations

import asyncio
import json
import re
import threading
import uuid
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from .gate import Gate, GateTimeout, unique_pieces
from .request import Msg, Request, ScriptError, ToolUse, render, rendered

__all__ = [
    "Attempts", "Book", "Call", "Casting", "Die", "Fail", "Gate", "GateTimeout", "Hang", "Msg", "Player",
    "Request", "Say", "Script", "ScriptError", "Think", "ToolUse", "Turn", "unique_pieces", "words",
]  # fmt: skip


def words(text: str) -> tuple[str, ...]:
    """The text in words with the whitespace that follows each; joined they are the text."""
    return tuple(re.findall(r"\S+\s*|\s+", text))


def tokens(text: str) -> list[str]:
    """The text as models cut it: a word with the space before it, a full stop with the lines after it."""
    return re.findall(r"\.\n*| ?[^ .\n]+|\n+", text)


@dataclass(frozen=True, init=False)
class Say:
    """Visible text, streamed in pieces: one string is sent word by word, several strings are sent as they
    are."""

    pieces: tuple[str, ...]
    split: bool

    def __init__(self, *pieces: str) -> None:
        object.__setattr__(self, "pieces", pieces)
        object.__setattr__(self, "split", len(pieces) == 1)

    @property
    def text(self) -> str:
        """The whole text."""
        return "".join(self.pieces)


@dataclass(frozen=True)
class Think:
    """A reasoning block, streamed word by word."""

    text: str


@dataclass(frozen=True)
class Call:
    """A tool call; `arg_pieces` is its argument JSON as it is streamed, and after piece i the model waits for
    `gated[i]`."""

    name: str
    args: Mapping[str, Any] | None = None
    id: str | None = None
    arg_pieces: tuple[str, ...] | None = None
    gated: tuple[str | None, ...] = ()

    def __post_init__(self) -> None:
        if (
            self.args is not None
            and self.arg_pieces is not None
            and json.loads("".join(self.arg_pieces)) != self.args
        ):
            raise ValueError(f"the argument pieces of {self.name!r} do not join to its arguments")
        if len(self.gated) > len(self.arg_pieces or ()):
            raise ValueError(f"{self.name!r} waits for more texts than it has explicit argument pieces")


@dataclass(frozen=True)
class Fail:
    """The provider refuses the request, or ends a begun stream, with this error; `error` is what the
    in-process model raises."""

    status: int = 500
    code: str | None = None
    message: str = "The scripted provider failed."
    retry_after: float | None = None
    error: Exception | None = None


@dataclass(frozen=True)
class Die:
    """The connection breaks at this point."""


@dataclass(frozen=True)
class Hang:
    """Nothing more comes until the client goes away."""


Item: TypeAlias = Say | Think | Call | Fail | Die | Hang


@dataclass(frozen=True, init=False)
class Turn:
    """One model message; without items it is an empty one, and a `cut` one ends because its length is used
    up."""

    items: tuple[Item, ...]
    id: str | None
    gate: Gate | None
    cut: bool

    def __init__(
        self, *items: Item, id: str | None = None, gate: Gate | None = None, cut: bool = False
    ) -> None:
        object.__setattr__(self, "items", items)
        object.__setattr__(self, "id", id)
        object.__setattr__(self, "gate", gate)
        object.__setattr__(self, "cut", cut)


@dataclass(frozen=True, init=False)
class Attempts:
    """The n-th request for the same position of the same conversation gets the n-th turn; the last
    repeats."""

    turns: tuple[Turn, ...]

    def __init__(self, first: Turn, *more: Turn) -> None:
        object.__setattr__(self, "turns", (first, *more))


Step: TypeAlias = Turn | Attempts | Callable[[Request], Turn | Attempts]


class Casting(ABC):
    """Anything that chooses the script for a request."""

    @abstractmethod
    def choose(self, request: Request) -> Script:
        """The script that answers this request."""

    @property
    def models(self) -> tuple[str, ...]:
        """The model names that are known, empty when any name will do."""
        return ()


class Script(Casting):
    """The turns of a model, chosen statelessly by the number of assistant messages after the last user
    message."""

    def __init__(
        self,
        *steps: Step,
        name: str = "script",
        gate: Gate | None = None,
        exhausted: Literal["repeat", "error"] = "repeat",
    ) -> None:
        if not steps:
            raise ValueError("a script needs at least one turn")
        self.steps, self.name, self.gate, self.exhausted = steps, name, gate, exhausted

    def choose(self, request: Request) -> Script:
        """This script."""
        return self

    def step(self, request: Request) -> Turn | Attempts:
        """What this script does at the position of the request."""
        position = request.position
        if position >= len(self.steps) and self.exhausted == "error":
            raise ScriptError(f"{self.name}: asked for turn {position + 1}, there are {len(self.steps)}")
        step = self.steps[min(position, len(self.steps) - 1)]
        return step if isinstance(step, Turn | Attempts) else step(request)


class Book(Casting):
    """Scripts chosen by the first pattern that is found in the last user text."""

    def __init__(self, scripts: Mapping[str, Script], default: Script | None = None) -> None:
        self.scripts, self.default = dict(scripts), default

    def choose(self, request: Request) -> Script:
        """The script of the first pattern that fits, or the default."""
        for pattern, script in self.scripts.items():
            if re.search(pattern, request.last_user):
                return script
        if self.default is None:
            raise ScriptError(
                f"no script for the user text {request.last_user!r}; patterns: {list(self.scripts)}"
            )
        return self.default

    @staticmethod
    def for_model(castings: Mapping[str, Casting]) -> Casting:
        """Books or scripts chosen by the model name of the request."""
        return _ByModel(castings)


class _ByModel(Casting):
    def __init__(self, castings: Mapping[str, Casting]) -> None:
        self._castings = dict(castings)

    def choose(self, request: Request) -> Script:
        if request.model not in self._castings:
            raise ScriptError(
                f"no script for the model {request.model!r}; models: {list(self._castings)}", status=404
            )
        return self._castings[request.model].choose(request)

    @property
    def models(self) -> tuple[str, ...]:
        return tuple(self._castings)


@dataclass(frozen=True)
class Text:
    """A piece of visible text."""

    text: str


@dataclass(frozen=True)
class Reasoning:
    """A piece of reasoning."""

    text: str


@dataclass(frozen=True)
class CallOpened:
    """A tool call begins."""

    index: int
    id: str
    name: str


@dataclass(frozen=True)
class CallArgs:
    """A piece of the arguments of the call that is open."""

    index: int
    text: str


Piece: TypeAlias = Text | Reasoning | CallOpened | CallArgs


class Refused(Exception):
    """The script refuses at this point."""

    def __init__(self, fail: Fail) -> None:
        super().__init__(fail.message)
        self.fail = fail


class Broken(ConnectionError):
    """The script breaks the connection at this point."""


@dataclass(frozen=True)
class Playback:
    """One turn with its templates filled, ready to be sent."""

    request: Request
    items: tuple[Item, ...]
    gate: Gate | None
    id: str | None
    cut: bool = False

    async def pieces(self, *, gated: bool = True) -> AsyncGenerator[Piece, None]:
        """The pieces in order; gates hold only replies that are streamed, as nothing else can be seen in
        parts."""
        gate, calls = self.gate if gated else None, 0
        for item in self.items:
            await asyncio.sleep(0)
            match item:
                case Say():
                    for text in item.pieces:
                        await (gate.before(text) if gate and text.strip() else asyncio.sleep(0))
                        yield Text(text)
                case Think():
                    for text in words(item.text):
                        yield Reasoning(text)
                case Call():
                    yield CallOpened(calls, item.id or "", item.name)
                    for number, text in enumerate(item.arg_pieces or ()):
                        yield CallArgs(calls, text)
                        awaited = item.gated[number] if number < len(item.gated) else None
                        await (gate.wait_seen(awaited) if gate and awaited else asyncio.sleep(0))
                    calls += 1
                case Fail():
                    raise Refused(item)
                case Die():
                    raise Broken("The connection broke in the middle of the reply.")
                case Hang():
                    await asyncio.Event().wait()


class Player:
    """What the fakes have in common: it records requests and finds what to answer."""

    def __init__(self, casting: Casting) -> None:
        self.casting = casting
        self.requests: list[Request] = []
        self.abandoned: list[Request] = []
        self.refusals: list[str] = []
        self._attempts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def cue(self, request: Request) -> Playback:
        """The turn for this request; a `ScriptError` is also noted in `refusals`."""
        try:
            script = self.casting.choose(request)
            turn = self._turn(script.step(request), request)
            gate = turn.gate or script.gate
            if gate is None and any(isinstance(item, Call) and any(item.gated) for item in turn.items):
                raise ScriptError(f"{script.name}: a call waits for what was seen, but there is no gate")
            return Playback(
                request, tuple(_filled(item, request) for item in turn.items), gate, turn.id, turn.cut
            )
        except ScriptError as error:
            self.refusals.append(str(error))
            raise

    def _turn(self, step: Turn | Attempts, request: Request) -> Turn:
        if isinstance(step, Turn):
            return step
        with self._lock:
            self._attempts[request.conversation] += 1
            return step.turns[min(self._attempts[request.conversation], len(step.turns)) - 1]


def _filled(item: Item, request: Request) -> Item:
    match item:
        case Say():
            texts = tuple(render(text, request) for text in item.pieces)
            return Say(*(words(texts[0]) if item.split else texts))
        case Think():
            return Think(render(item.text, request))
        case Call():
            if item.arg_pieces is None:
                pieces = _quarters(json.dumps(rendered(item.args or {}, request), ensure_ascii=False))
            else:
                pieces = tuple(render(text, request, _escaped) for text in item.arg_pieces)
            return replace(item, args=None, id=item.id or f"call_{uuid.uuid4().hex[:24]}", arg_pieces=pieces)
        case _:
            return item


def _quarters(text: str) -> tuple[str, ...]:
    size = -(-len(text) // 4)
    return tuple(text[start : start + size] for start in range(0, len(text), size))


def _escaped(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def joined(pieces: Sequence[Piece]) -> tuple[str, str, list[tuple[CallOpened, str]]]:
    """A whole reply: its text, its reasoning, and its calls with their argument text."""
    text = "".join(p.text for p in pieces if isinstance(p, Text))
    reasoning = "".join(p.text for p in pieces if isinstance(p, Reasoning))
    opened = [p for p in pieces if isinstance(p, CallOpened)]
    return (
        text,
        reasoning,
        [
            (o, "".join(p.text for p in pieces if isinstance(p, CallArgs) and p.index == o.index))
            for o in opened
        ],
    )
