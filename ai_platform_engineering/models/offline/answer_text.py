"""Answers for people: one section per request, failures named as failures, and what can be asked instead."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ai_platform_engineering.models.offline.bound_tools import BoundTools, RoutableAgent, RoutableTool
from ai_platform_engineering.models.offline.change_orders import find_ordered_changes
from ai_platform_engineering.models.offline.chat_history import TurnCall
from ai_platform_engineering.models.offline.document_passages import render_passages
from ai_platform_engineering.models.offline.question_parser import MAX_REQUESTS, ParsedQuestion, ParsedRequest
from ai_platform_engineering.models.offline.result_markdown import render_result
from ai_platform_engineering.models.offline.result_tables import render_table
from ai_platform_engineering.models.offline.routing import RequestRoute, ToolMatch
from ai_platform_engineering.models.offline.tool_results import ParsedResult, parse_result
from ai_platform_engineering.models.offline.value_text import format_arguments, humanize_key, truncate_text

_MAX_TITLE_CHARS = 120
_MAX_REASON_CHARS = 1000
_MAX_TABLE_ROWS = 50
_MAX_ABILITIES = 30
_MAX_CITATIONS = 20
_MANY_AGENTS = 4  # above this, one example for each agent is enough

CallResult = tuple[TurnCall, ParsedResult]


def shorten(text: str, max_chars: int = _MAX_TITLE_CHARS) -> str:
    """The text on one line, cut with an ellipsis; a question keeps its mark."""
    line = " ".join(text.split())
    if len(line) <= max_chars:
        return line
    ending = "…?" if line.endswith("?") else "…"
    return line[: max_chars - len(ending)].rstrip() + ending


def capitalise(text: str) -> str:
    return text[:1].upper() + text[1:]


def join_sections(sections: Sequence[tuple[str, str]]) -> str:
    """Titled texts, one after the other; a single one needs no title."""
    filled_sections = [(title, body) for title, body in sections if body]
    if len(filled_sections) == 1:
        return filled_sections[0][1]
    texts = list[str]()
    for title, body in filled_sections:
        texts.append(f"**{title}**\n\n{body}" if title else body)
    return "\n\n".join(texts)


def format_title(request: ParsedRequest, answered_by: str = "") -> str:
    """The title of a request's section, with the name of the agent or the tool that answered it."""
    title = capitalise(shorten(request.text))
    if answered_by:
        return f"{title} ({answered_by})"
    return title


# --- results --------------------------------------------------------------------------------------


def render_calls(calls: Sequence[TurnCall], request: ParsedRequest) -> str:
    """What the calls for one request returned, then the calls that failed."""
    successes = list[CallResult]()
    failures = list[str]()
    for call in calls:
        result = parse_result(call.result or "", call.failed or call.result is None)
        if result.failed:
            failures.append(_render_failure(call, str(result.value)))
        else:
            successes.append((call, result))
    return "\n\n".join([*_render_successes(successes, request), *failures])


def _render_successes(successes: Sequence[CallResult], request: ParsedRequest) -> list[str]:
    """The results as texts; several alike results become a table or a list."""
    results = [result for _, result in successes]
    if len(successes) > 1 and _is_one_tool(successes) and all(result.is_flat for result in results):
        rows = [{**call.arguments, **result.value} for call, result in successes]
        return [render_table(rows, request, _MAX_TABLE_ROWS)]
    if len(successes) > 1 and all(result.introduction for result in results):
        return ["\n".join(f"- {result.introduction}" for result in results)]
    passages = list(filter(None, (render_passages(result.value) for result in results)))
    if passages and len(passages) == len(results):
        return passages
    texts = list[str]()
    for call, result in successes:
        text = render_result(result, request, call.arguments)
        if len(successes) > 1 and call.arguments:
            text = f"`{call.name}` ({format_arguments(call.arguments)}):\n\n{text}"
        texts.append(text)
    return texts


def _is_one_tool(results: Sequence[CallResult]) -> bool:
    return len({call.name for call, _ in results}) == 1


def _render_failure(call: TurnCall, error: str) -> str:
    reason = error.removeprefix(f"{call.name} failed:").removeprefix("Error:").strip().rstrip(".")
    reason = truncate_text(reason or "no result came", _MAX_REASON_CHARS)
    if call.arguments:
        return f"`{call.name}` failed for {format_arguments(call.arguments)}: {reason}."
    return f"`{call.name}` failed: {reason}."


def collect_citations(calls: Sequence[TurnCall]) -> tuple[Mapping[str, str], ...]:
    """The documents among the results, for a structured answer."""
    citations = dict[str, Mapping[str, str]]()
    for call in calls:
        value = parse_result(call.result or "", call.failed).value
        for row in _find_rows(value):
            key = row.get("document_id") or row.get("url")
            if key:
                citations.setdefault(str(key), _make_citation(row, str(key)))
    return tuple(list(citations.values())[:_MAX_CITATIONS])


def _find_rows(value: Any) -> Iterator[Mapping[str, Any]]:
    rows = value
    if isinstance(value, Mapping):
        rows = value.get("results")
    if not isinstance(rows, list):
        return
    for row in rows:
        if isinstance(row, Mapping):
            yield row


def _make_citation(row: Mapping[str, Any], key: str) -> Mapping[str, str]:
    citation = {"title": str(row.get("title") or row.get("name") or key)}
    for name in ("url", "document_id"):
        if row.get(name):
            citation[name] = str(row[name])
    return citation


# --- what cannot be done --------------------------------------------------------------------------


def explain_missing_arguments(match: ToolMatch, request: ParsedRequest) -> str:
    """Which argument is missing and how to ask."""
    tool_name = match.tool.name
    filled = match.filled
    if filled.problems:
        return f"I did not run `{tool_name}`: {'; '.join(filled.problems)}."
    names = list[str]()
    examples = list[str]()
    for slot in filled.missing:
        name = f"**{slot.name}**"
        if slot.description:
            name += f" ({_first_sentence(slot.description)})"
        names.append(name)
        examples.append(f"{slot.name}=…")
    pronoun = "it" if len(names) == 1 else "them"
    question = shorten(request.text.rstrip("?!. "), 80)
    mark = "?" if request.is_question else ""
    return (
        f"To run `{tool_name}` I need {_join_words(names)}, and I did not find {pronoun} in your question. "
        f"Ask again with {pronoun}, for example: {question} `{' '.join(examples)}`{mark}"
    )


def explain_no_route(request: ParsedRequest, bound_tools: BoundTools) -> str:
    """That no agent or tool was found for the request."""
    if bound_tools.can_delegate:
        return f"I found no agent for “{shorten(request.text)}”."
    if find_ordered_changes(request):
        return f"None of the tools here can do this: “{shorten(request.text)}”. Nothing was changed."
    return f"I found no tool for “{shorten(request.text)}”."


def explain_omissions(question: ParsedQuestion, routes: Sequence[RequestRoute]) -> str:
    """What was left out of a long question."""
    sentences = list[str]()
    if question.is_truncated:
        sentences.append(
            "Your question is long, so I did not read all of it; a shorter one gets a better answer."
        )
    if question.omitted_requests:
        sentences.append(
            f"I took the first {MAX_REQUESTS} requests; ask again for the other {question.omitted_requests}."
        )
    omitted_calls = 0
    for route in routes:
        if route.tool_match:
            omitted_calls += route.tool_match.filled.omitted_calls
    if omitted_calls:
        sentences.append(
            f"{omitted_calls} more calls were left out; ask for them in a question of their own."
        )
    return " ".join(sentences)


def describe_abilities(bound_tools: BoundTools, *, greeting: bool = False) -> str:
    """What can be asked: the agents or the tools, with examples."""
    if not bound_tools.agents and not bound_tools.tools:
        missing = "No agents and no tools are" if bound_tools.can_delegate else "No tool of this agent is"
        return f"{missing} available now, so I cannot answer. `caipe doctor` shows what is missing."
    max_examples = 3
    if len(bound_tools.agents) > _MANY_AGENTS:
        max_examples = 1
    lines = list[str]()
    targets = list[str]()
    if bound_tools.agents:
        targets.append("agents")
    if bound_tools.tools:
        targets.append("tools")
    for agent in bound_tools.agents:
        lines.append(_describe_agent(agent, max_examples))
    for tool in bound_tools.tools:
        lines.append(_describe_tool(tool))
    if len(lines) > _MAX_ABILITIES:
        lines[_MAX_ABILITIES:] = [f"- … and {len(lines) - _MAX_ABILITIES} more"]
    hello = "Hello. " if greeting else ""
    return (
        f"{hello}I match the words of a question to {_join_words(targets)}. Here is what you can ask:\n\n"
        + "\n".join(lines)
    )


def _describe_agent(agent: RoutableAgent, max_examples: int) -> str:
    lines = [f"- **{agent.name}**: {_first_sentence(agent.description) or 'no description'}"]
    for example in agent.examples[:max_examples]:
        lines.append(f"  - “{shorten(example, 160)}”")
    return "\n".join(lines)


def _describe_tool(tool: RoutableTool) -> str:
    line = f"- `{tool.name}`: {_first_sentence(tool.description) or 'no description'}"
    if tool.required_slots:
        names = [humanize_key(slot.name) for slot in tool.required_slots]
        line += f" Needs {_join_words(names)}."
    return line


def _first_sentence(text: str) -> str:
    line = " ".join(text.split())
    end = line.find(". ")
    if end >= 0:
        line = line[: end + 1]
    return shorten(line, 240)


def _join_words(words: Sequence[str]) -> str:
    if len(words) == 1:
        return words[0]
    return f"{', '.join(words[:-1])} and {words[-1]}"
