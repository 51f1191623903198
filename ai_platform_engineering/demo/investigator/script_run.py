"""Scripts that call tools: a script runs from its beginning at each turn, and finds what it called before."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ai_platform_engineering.models.offline.chat_history import TurnCall
from ai_platform_engineering.models.offline.router_reply import RoutedCall, RouterReply

_READ_ATTEMPTS = 3  # a system of the demo may be told to fail now and then
_MAX_REASON_CHARS = 200


class PendingCalls(Exception):
    """Calls that a script needs before it can go on."""

    def __init__(self, calls: Sequence[RoutedCall], narration: str = "", delay_seconds: float = 0.0) -> None:
        super().__init__()
        self.reply = RouterReply(narration, tuple(calls), delay_seconds=delay_seconds)


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """What a call returned, or why it failed."""

    text: str
    failed: bool = False

    @property
    def data(self) -> Any:
        """The result as JSON; None when it failed or is no JSON."""
        if self.failed:
            return None
        try:
            return json.loads(self.text)
        except ValueError:
            return None

    @property
    def reason(self) -> str:
        """Why it failed, on one line."""
        return " ".join(self.text.split())[:_MAX_REASON_CHARS]


UsableRule = Callable[[CallOutcome], bool]


class ScriptRun:
    """The calls of this turn so far, for a script. Methods raise PendingCalls for those not made yet."""

    def __init__(self, calls: Sequence[TurnCall]) -> None:
        self._calls = [call for call in calls if call.result is not None]

    def read(self, tool: str, is_usable: UsableRule, /, **arguments: Any) -> CallOutcome:
        """A call that only reads; one that fails or gives nothing usable is repeated, then it has failed."""
        return self.read_all([(RoutedCall(tool, arguments), is_usable)])[0]

    def read_all(self, calls: Sequence[tuple[RoutedCall, UsableRule]]) -> list[CallOutcome]:
        """As `read`, all at once."""
        pending: list[RoutedCall] = []
        outcomes: list[CallOutcome] = []
        for call, is_usable in calls:
            earlier_calls = self._find(call)
            outcome = _outcome(earlier_calls[-1]) if earlier_calls else CallOutcome("", failed=True)
            if not outcome.failed and not is_usable(outcome):
                # Some servers return the error of their system as a result.
                outcome = replace(outcome, failed=True)
            if outcome.failed and len(earlier_calls) < _READ_ATTEMPTS:
                pending.append(call)
            outcomes.append(outcome)
        if pending:
            raise PendingCalls(pending)
        return outcomes

    def call_once(self, calls: Sequence[RoutedCall], narration: str = "") -> list[CallOutcome]:
        """Calls that are made once, whatever comes of them; `narration` is said when they are made."""
        pending: list[RoutedCall] = []
        outcomes: list[CallOutcome] = []
        for call in calls:
            earlier_calls = self._find(call)
            if earlier_calls:
                outcomes.append(_outcome(earlier_calls[-1]))
            else:
                pending.append(call)
        if pending:
            raise PendingCalls(pending, narration)
        return outcomes

    def poll(
        self, call: RoutedCall, is_done: Callable[[CallOutcome], bool], *, times: int, seconds: float
    ) -> CallOutcome:
        """Repeats a call until its outcome is the one that is waited for, or that many times."""
        earlier_calls = self._find(call)
        if not earlier_calls:
            raise PendingCalls([call])
        outcome = _outcome(earlier_calls[-1])
        if is_done(outcome) or len(earlier_calls) >= times:
            return outcome
        raise PendingCalls([call], delay_seconds=seconds)

    def change(self, name: str, arguments: Mapping[str, Any]) -> CallOutcome:
        """A call that changes something: made once, whatever comes of it.

        Its arguments are not compared: a person may have edited them.
        """
        for call in self._calls:
            if call.name == name:
                return _outcome(call)
        raise PendingCalls([RoutedCall(name, arguments)])

    def split_at(self, name: str) -> tuple["ScriptRun", "ScriptRun"]:
        """The calls before the first one of a tool, and those after it."""
        names = [call.name for call in self._calls]
        position = names.index(name) if name in names else len(names)
        return ScriptRun(self._calls[:position]), ScriptRun(self._calls[position + 1 :])

    def _find(self, call: RoutedCall) -> list[TurnCall]:
        expected = dict(call.arguments)
        return [
            other for other in self._calls if other.name == call.name and dict(other.arguments) == expected
        ]


def _outcome(call: TurnCall) -> CallOutcome:
    return CallOutcome(call.result or "", call.failed)


def play(script: Callable[[ScriptRun], str], calls: Sequence[TurnCall]) -> RouterReply:
    """The reply of a script: the calls that it needs next, or its text."""
    try:
        return RouterReply(script(ScriptRun(calls)))
    except PendingCalls as pending:
        return pending.reply
