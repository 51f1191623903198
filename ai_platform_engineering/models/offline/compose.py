"""Answers for people: one section per request, failures named as failures, and what can be asked instead."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ai_platform_engineering.models.offline.conversation import TurnCall
from ai_platform_engineering.models.offline.documents import passages
from ai_platform_engineering.models.offline.questions import MOST_REQUESTS, ParsedQuestion, ParsedRequest
from ai_platform_engineering.models.offline.render import bounded, called, human, read_result, render, table
from ai_platform_engineering.models.offline.routing import RequestRoute, ToolMatch, changes_ordered
from ai_platform_engineering.models.offline.tools import BoundTools, RoutableTool

_MOST_SHOWN = 120
_MOST_LISTED = 30
_MOST_CITED = 20


@dataclass(frozen=True, slots=True)
class RoutedCall:
    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RouterReply:
    """What the model says and calls in one turn; an answer has no calls."""

    text: str = ""
    calls: tuple[RoutedCall, ...] = ()
    citations: tuple[Mapping[str, str], ...] = field(default=())


def shortened(text: str, most: int = _MOST_SHOWN) -> str:
    flat = " ".join(text.split())
    if len(flat) <= most:
        return flat
    return f"{flat[: most - 1].rstrip()}…"


def capitalised(text: str) -> str:
    return text[:1].upper() + text[1:]


def sections(parts: Sequence[tuple[str, str]]) -> str:
    """Titled texts, one after the other; a single one needs no title."""
    told = [(title, body) for title, body in parts if body]
    if len(told) == 1:
        return told[0][1]
    return "\n\n".join(f"**{title}**\n\n{body}" if title else body for title, body in told)


def title_of(request: ParsedRequest, by: str = "") -> str:
    return capitalised(shortened(request.text)) + (f" ({by})" if by else "")


# --- results -----------------------------------------------------------------------------------------------------------


def body_of(done: Sequence[TurnCall], request: ParsedRequest) -> str:
    """What the calls for one request returned; several alike results become a table."""
    read = [(one, read_result(one.result or "", one.failed or one.result is None)) for one in done]
    good = [(one, result) for one, result in read if not result.failed]
    parts = [_failed(one, str(result.value)) for one, result in read if result.failed]
    if (
        len(good) > 1
        and len({one.name for one, _ in good}) == 1
        and all(result.is_flat for _, result in good)
    ):
        return "\n\n".join(
            [table([{**one.arguments, **result.value} for one, result in good], request, 50), *parts]
        )
    if len(good) > 1 and all(result.told for _, result in good):
        return "\n\n".join(["\n".join(f"- {result.told}" for _, result in good), *parts])
    found = [passages(result.value) for _, result in good]
    if found and all(found):
        return "\n\n".join([*(text for text in found if text), *parts])
    several = len(good) > 1
    shown = [_one(one, render(result, request, one.arguments), several) for one, result in good]
    return "\n\n".join([*shown, *parts])


def _one(done: TurnCall, text: str, several: bool) -> str:
    if several and done.arguments:
        return f"`{done.name}` ({called(done.arguments)}):\n\n{text}"
    return text


def _failed(done: TurnCall, reason: str) -> str:
    why = (
        reason.removeprefix(f"{done.name} failed:").removeprefix("Error:").strip().rstrip(".")
        or "no result came"
    )
    subject = f" for {called(done.arguments)}" if done.arguments else ""
    return f"`{done.name}` failed{subject}: {bounded(why, 1000)}."


def citations(done: Sequence[TurnCall]) -> tuple[Mapping[str, str], ...]:
    """The documents among the results, for a structured answer."""
    found = dict[str, Mapping[str, str]]()
    for one in done:
        value = read_result(one.result or "", one.failed).value
        rows = value.get("results") if isinstance(value, Mapping) else value
        for row in rows if isinstance(rows, list) else ():
            if isinstance(row, Mapping) and (key := row.get("document_id") or row.get("url")):
                kept = {name: str(row[name]) for name in ("url", "document_id") if row.get(name)}
                found.setdefault(str(key), {"title": str(row.get("title") or row.get("name") or key), **kept})
    return tuple(list(found.values())[:_MOST_CITED])


# --- what cannot be done -----------------------------------------------------------------------------------------------


def lacking(use: ToolMatch, request: ParsedRequest) -> str:
    """Which argument is missing and how to ask."""
    tool, filled = use.tool, use.filled
    if filled.problems:
        return f"I did not run `{tool.name}`: {'; '.join(filled.problems)}."
    names = [
        "**" + slot.name + "**" + (f" ({_about(slot.description)})" if slot.description else "")
        for slot in filled.missing
    ]
    example = " ".join(f"{slot.name}=…" for slot in filled.missing)
    return (
        f"To run `{tool.name}` I need {_listed(names)}, and I did not find {'it' if len(names) == 1 else 'them'} in your question. "
        f"Ask again with {'it' if len(names) == 1 else 'them'}, for example: {shortened(request.text.rstrip('?!. '), 80)} `{example}`"
    )


def not_routed(request: ParsedRequest, offer: BoundTools) -> str:
    what = "agent" if offer.delegates else "tool"
    if changes_ordered(request) and not offer.delegates:
        return f"None of the tools here can do this: “{shortened(request.text)}”. Nothing was changed."
    return f"I found no {what} for “{shortened(request.text)}”."


def remarks(question: ParsedQuestion, routes: Sequence[RequestRoute]) -> str:
    """What was left out of a long question."""
    said = list[str]()
    if question.cut:
        said.append("Your question is long, so I did not read all of it; a shorter one gets a better answer.")
    if question.left_out:
        said.append(
            f"I took the first {MOST_REQUESTS} requests; ask again for the other {question.left_out}."
        )
    calls = sum(route.use.filled.left_out for route in routes if route.use)
    if calls:
        said.append(f"{calls} more calls were left out; ask for them in a question of their own.")
    return " ".join(said)


def abilities(offer: BoundTools, *, greeting: bool = False) -> str:
    """What can be asked: the agents or the tools, with examples."""
    few = len(offer.agents) > 4
    agents = [
        f"- **{one.name}**: {_about(one.description) or 'no description'}{_examples(one.examples, few)}"
        for one in offer.agents
    ]
    tools = [
        f"- `{tool.name}`: {_about(tool.description) or 'no description'}{_takes(tool)}"
        for tool in offer.tools
    ]
    if not agents and not tools:
        what = "No agents and no tools are" if offer.delegates else "No tool of this agent is"
        return f"{what} available now, so I cannot answer. `caipe doctor` shows what is missing."
    lead = (
        ("Hello. " if greeting else "")
        + "I match the words of a question to "
        + _listed([*(["agents"] if agents else []), *(["tools"] if tools else [])], "and")
    )
    listed = [*agents, *tools]
    more = f"\n- … and {len(listed) - _MOST_LISTED} more" if len(listed) > _MOST_LISTED else ""
    return f"{lead}. Here is what you can ask:\n\n" + "\n".join(listed[:_MOST_LISTED]) + more


def _examples(examples: Sequence[str], few: bool) -> str:
    return "".join(f"\n  - “{shortened(example, 160)}”" for example in examples[: 1 if few else 3])


def _takes(tool: RoutableTool) -> str:
    if tool.required:
        return f" Needs {_listed([human(slot.name) for slot in tool.required])}."
    return ""


def _about(text: str) -> str:
    """The first sentence of a description."""
    flat = " ".join(text.split())
    end = flat.find(". ")
    return shortened(flat if end < 0 else flat[: end + 1], 240)


def _listed(names: Sequence[str], word: str = "and") -> str:
    if len(names) == 1:
        return names[0]
    return f"{', '.join(names[:-1])} {word} {names[-1]}"
