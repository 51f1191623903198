"""Answers for people: one section per request, failures named as failures, and what can be asked instead."""

from collections.abc import Mapping, Sequence
from typing import Any

from ai_platform_engineering.models.offline.bound_tools import BoundTools, RoutableAgent
from ai_platform_engineering.models.offline.change_orders import find_ordered_changes
from ai_platform_engineering.models.offline.chat_history import TurnCall
from ai_platform_engineering.models.offline.document_passages import (
    Passage,
    find_relevant,
    read_passages,
    render_passages,
)
from ai_platform_engineering.models.offline.installation import NO_MODEL
from ai_platform_engineering.models.offline.question_parser import (
    MAX_REQUESTS,
    ParsedQuestion,
    ParsedRequest,
    SmallTalk,
)
from ai_platform_engineering.models.offline.routing import RequestRoute, ToolMatch
from ai_platform_engineering.models.offline.tool_results import (
    ParsedResult,
    format_arguments,
    parse_result,
    render_result,
    render_table,
    truncate_text,
)
from ai_platform_engineering.models.offline.word_values import extract_search_text

_MAX_TITLE_CHARS = 120
_MAX_REASON_CHARS = 1000
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
        return [render_table([{**call.arguments, **result.value} for call, result in successes])]
    if len(successes) > 1 and all(result.introduction for result in results):
        return ["\n".join(f"- {result.introduction}" for result in results)]
    texts = list[str]()
    for call, result in successes:
        passages = read_passages(result.value)
        if passages is not None:
            texts.append(_render_passages(passages, extract_search_text(request.text)))
            continue
        text = render_result(result, call.arguments)
        if len(successes) > 1 and call.arguments:
            text = f"`{call.name}` ({format_arguments(call.arguments)}):\n\n{text}"
        texts.append(text)
    return texts


def _render_passages(passages: Sequence[Passage], search_text: str) -> str:
    relevant = find_relevant(passages, search_text)
    if relevant:
        return render_passages(relevant)
    return f"I found nothing about “{shorten(search_text)}” in the documents.\n\n{NO_MODEL}"


def _is_one_tool(results: Sequence[CallResult]) -> bool:
    return len({call.name for call, _ in results}) == 1


def _render_failure(call: TurnCall, error: str) -> str:
    reason = error.removeprefix(f"{call.name} failed:").removeprefix("Error:").strip().rstrip(".")
    reason = truncate_text(reason or "no result", _MAX_REASON_CHARS)
    if call.arguments:
        return f"`{call.name}` failed for {format_arguments(call.arguments)}: {reason}."
    return f"`{call.name}` failed: {reason}."


def collect_citations(calls: Sequence[TurnCall], question: ParsedQuestion) -> tuple[Mapping[str, str], ...]:
    """The quoted documents, for a structured answer."""
    citations = dict[str, Mapping[str, str]]()
    for call in calls:
        passages = read_passages(parse_result(call.result or "", call.failed).value) or ()
        for request in question.requests:
            for passage in find_relevant(passages, extract_search_text(request.text)):
                key = str(passage.get("document_id") or passage.get("url") or "")
                citations.setdefault(key, _make_citation(passage, key))
    return tuple(list(citations.values())[:_MAX_CITATIONS])


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
            name += f" ({_first_sentence(slot.description).rstrip('.')})"
        names.append(name)
        examples.append(f"{slot.name}=…")
    question = shorten(request.text.rstrip("?!. "), 80)
    mark = "?" if request.is_question else ""
    return (
        f"`{tool_name}` needs {_join_words(names)}, which your question does not give. "
        f"Ask again, for example: {question} `{' '.join(examples)}`{mark}"
    )


def explain_no_routes(routes: Sequence[RequestRoute]) -> str:
    """That nothing can do this now, and what could: an agent that is not configured, or a language model."""
    sentences = list[str]()
    for route in routes:
        verb = "answer" if route.request.is_question else "do"
        sentences.append(f"I cannot {verb} this: “{shorten(route.request.text)}”.")
        if find_ordered_changes(route.request):
            sentences.append("Nothing was changed.")
        for agent in route.unavailable_agents:
            sentences.append(f"The agent **{agent.name}** could, but it is {agent.unavailable}.")
    return f"{' '.join(sentences)}\n\n{NO_MODEL}" if sentences else ""


def explain_omissions(question: ParsedQuestion, routes: Sequence[RequestRoute]) -> str:
    """What was left out of a long question."""
    sentences = list[str]()
    if question.is_truncated:
        sentences.append("Your question is too long to read in full; a shorter one gets a better answer.")
    if question.omitted_requests:
        sentences.append(
            f"I took the first {MAX_REQUESTS} requests; ask again for the other {question.omitted_requests}."
        )
    omitted_calls = 0
    for route in routes:
        if route.tool_match:
            omitted_calls += route.tool_match.filled.omitted_calls
    if omitted_calls:
        sentences.append(f"I left out {omitted_calls} more calls; ask for them separately.")
    return " ".join(sentences)


# --- what can be asked ----------------------------------------------------------------------------


def reply_to_small_talk(small_talk: SmallTalk, bound_tools: BoundTools) -> str:
    if small_talk == "thanks":
        return "You're welcome."
    if small_talk == "model":
        return NO_MODEL
    abilities = describe_abilities(bound_tools)
    return f"Hello. {abilities}" if small_talk == "greeting" else abilities


def describe_abilities(bound_tools: BoundTools) -> str:
    """What can be asked now, what is not configured yet, and how to set a model."""
    parts = [_describe_ready(bound_tools)]
    if bound_tools.workflows:
        lines = [f"- {workflow}" for workflow in bound_tools.workflows]
        parts.append("Workflows; type the name of one to start it:\n\n" + _join_lines(lines))
    if bound_tools.unavailable_agents:
        lines = [f"- **{agent.name}**: {agent.unavailable}" for agent in bound_tools.unavailable_agents]
        parts.append("Agents that are not ready:\n\n" + _join_lines(lines))
    if bound_tools.can_delegate:
        parts.append(NO_MODEL)
    return "\n\n".join(parts)


def _describe_ready(bound_tools: BoundTools) -> str:
    if not bound_tools.agents and not bound_tools.tools:
        missing = "No agent and no tool is" if bound_tools.can_delegate else "No tool of this agent is"
        return f"{missing} available now, so I cannot answer. `caipe doctor` shows what is missing."
    max_examples = 1 if len(bound_tools.agents) > _MANY_AGENTS else 3
    lines = [_describe_agent(agent, max_examples) for agent in bound_tools.agents]
    for tool in bound_tools.tools:
        lines.append(f"- `{tool.name}`: {_first_sentence(tool.description) or 'no description'}")
    return "You can ask now:\n\n" + _join_lines(lines)


def _join_lines(lines: Sequence[str]) -> str:
    if len(lines) <= _MAX_ABILITIES:
        return "\n".join(lines)
    return "\n".join([*lines[:_MAX_ABILITIES], f"- … and {len(lines) - _MAX_ABILITIES} more"])


def _describe_agent(agent: RoutableAgent, max_examples: int) -> str:
    lines = [f"- **{agent.name}**: {_first_sentence(agent.description) or 'no description'}"]
    for example in agent.examples[:max_examples]:
        lines.append(f"  - “{shorten(example, 160)}”")
    return "\n".join(lines)


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
