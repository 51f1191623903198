"""Results of tools as Markdown: facts first, tables for lists, nothing that the result does not say."""

import re
from collections.abc import Mapping
from typing import Any

from ai_platform_engineering.models.offline.lexicon import NEGATIONS, QUESTION_STARTS
from ai_platform_engineering.models.offline.question_parser import ParsedRequest
from ai_platform_engineering.models.offline.result_tables import (
    USUAL_KEYS,
    Facts,
    flatten_object,
    is_named_in,
    render_list,
    render_objects,
)
from ai_platform_engineering.models.offline.tool_results import MAX_FACT_CHARS, ParsedResult
from ai_platform_engineering.models.offline.value_text import (
    format_arguments,
    format_cell,
    format_value,
    humanize_key,
    is_object_list,
    is_prose,
    render_block,
    truncate_text,
)
from ai_platform_engineering.models.offline.word_matching import (
    are_synonyms,
    is_generic,
    split_words,
    stem,
    stem_words,
)

_SUMMARY_KEYS = ("summary", "message", "answer")  # a result may say itself what it means


def render_result(result: ParsedResult, request: ParsedRequest, arguments: Mapping[str, Any]) -> str:
    """What a result says about a request."""
    value = result.value
    if result.introduction:
        return _render_introduced_data(result, request, arguments)
    if isinstance(value, Mapping):
        return _render_object(value, request, arguments)
    if isinstance(value, list):
        if value:
            return render_list(value, request)
        return f"No results{_for_arguments(arguments)}."
    if isinstance(value, str):
        if value:
            return truncate_text(value)
        return f"The result is empty{_for_arguments(arguments)}."
    return f"**{format_value(value)}**{_for_arguments(arguments)}"


def _for_arguments(arguments: Mapping[str, Any]) -> str:
    if not arguments:
        return ""
    return f" for {format_arguments(arguments)}"


def _render_object(value: Mapping[str, Any], request: ParsedRequest, arguments: Mapping[str, Any]) -> str:
    if not value:
        return f"The result is empty{_for_arguments(arguments)}."
    facts = flatten_object(value)
    plain_facts = _find_plain_facts(facts, arguments)
    parts = [_render_lead(plain_facts, request, arguments), _render_other_facts(plain_facts, request)]
    parts += _render_details(facts, request)
    text = "\n\n".join(filter(None, parts))
    return text or f"The result says no more than what was asked{_for_arguments(arguments)}."


def _find_plain_facts(facts: Facts, arguments: Mapping[str, Any]) -> Facts:
    """The facts that are neither tables nor prose, nor echoes of the arguments."""
    plain_facts: Facts = {}
    for key, value in facts.items():
        if value is None or is_object_list(value) or is_prose(value):
            continue
        if not _echoes_argument(key, value, arguments):
            plain_facts[key] = value
    return plain_facts


def _render_details(facts: Facts, request: ParsedRequest) -> list[str]:
    """The tables, then the prose."""
    tables = list[str]()
    texts = list[str]()
    for key, value in facts.items():
        title = humanize_key(key).capitalize()
        if is_object_list(value):
            tables.append(f"{title} ({len(value)}):\n\n{render_objects(value, request)}")
        elif is_prose(value):
            texts.append(f"{title}:\n\n{render_block(value)}")
    return tables + texts


def _render_introduced_data(
    result: ParsedResult, request: ParsedRequest, arguments: Mapping[str, Any]
) -> str:
    """The tool's own sentence, then its data."""
    introduction = result.introduction
    if not isinstance(result.value, Mapping):
        if not result.value:
            return introduction
        return f"{introduction}\n\n{render_result(ParsedResult(result.value), request, {})}"
    facts = _find_new_facts(result.value, introduction, arguments)
    if not facts:
        return introduction
    flat_facts = flatten_object(facts)
    parts = [_render_facts(_find_plain_facts(flat_facts, {})), *_render_details(flat_facts, request)]
    data = "\n\n".join(filter(None, parts)) or "The result says no more than what was asked."
    return f"{introduction}\n\n{data}"


def _find_new_facts(value: Mapping[str, Any], introduction: str, arguments: Mapping[str, Any]) -> Facts:
    """The facts that neither the arguments nor the introduction say."""
    facts: Facts = {}
    single_rows = list[Any]()
    for key, fact in flatten_object(value).items():
        if _echoes_argument(key, fact, arguments):
            continue
        if is_object_list(fact) and len(fact) == 1:
            single_rows.append(fact[0])
        else:
            facts[key] = fact
    for row in single_rows:
        facts |= flatten_object(row)  # a table of one line is a few facts more
    return {key: fact for key, fact in facts.items() if not _is_in_introduction(key, fact, introduction)}


def _is_in_introduction(key: str, value: Any, introduction: str) -> bool:
    """Whether the sentence says it already."""
    if isinstance(value, bool):
        return value and humanize_key(key).removeprefix("is ") in introduction
    if isinstance(value, list):
        return len(value) <= 1 and all(_is_in_introduction(key, item, introduction) for item in value)
    if isinstance(value, Mapping):
        return all(_is_in_introduction(name, item, introduction) for name, item in value.items())
    forms = {format_value(value)}
    if isinstance(value, int):
        forms = {str(value), f"{value:,}"}
    return any(_contains_form(introduction, form) for form in forms)


def _contains_form(introduction: str, form: str) -> bool:
    if len(form) > MAX_FACT_CHARS:
        return False
    return re.search(rf"(?<![\w.]){re.escape(form)}(?!\w)", introduction) is not None


def _echoes_argument(key: str, value: Any, arguments: Mapping[str, Any]) -> bool:
    """Whether the result repeats an argument: the call says that already."""
    return key in arguments and str(arguments[key]) == str(value)


def _render_lead(facts: Facts, request: ParsedRequest, arguments: Mapping[str, Any]) -> str:
    """The result's own summary and the key facts, in one line."""
    key_facts = list[str]()
    for key in _find_key_facts(facts, request):
        key_facts.append(f"**{humanize_key(key)}: {format_value(facts[key])}**")
    verdict = _find_verdict(facts, request) + "; ".join(key_facts)
    line = ". ".join(filter(None, (_find_summary(facts).rstrip("."), verdict)))
    subject = format_arguments(arguments)
    if line and subject:
        return f"{line} ({subject})"
    return line


def _find_summary(facts: Facts) -> str:
    for key in _SUMMARY_KEYS:
        summary = facts.get(key)
        if summary and isinstance(summary, str):
            return summary
    return ""


def _render_other_facts(facts: Facts, request: ParsedRequest) -> str:
    other_facts = dict(facts)
    for key in _find_key_facts(facts, request):
        del other_facts[key]
    for key in _SUMMARY_KEYS:
        if isinstance(other_facts.get(key), str):
            del other_facts[key]
    return _render_facts(other_facts)


def _render_facts(facts: Facts) -> str:
    lines = list[str]()
    for key, value in facts.items():
        lines.append(f"- {humanize_key(key)}: {format_cell(format_value(value))}")
    return "\n".join(lines)


def _find_key_facts(facts: Facts, request: ParsedRequest) -> list[str]:
    """The facts that the request asks for by name, else those that usually matter, else the first two."""
    keys = [key for key in facts if key not in _SUMMARY_KEYS]
    named_keys = [key for key in keys if is_named_in(key, request)]
    if not named_keys:
        named_keys = [key for key in keys if _has_synonym(key, request)]
    if named_keys:
        return named_keys[:3]
    usual_keys = [key for key in keys if key in USUAL_KEYS]
    return (usual_keys or keys)[:2]


def _has_synonym(key: str, request: ParsedRequest) -> bool:
    request_words = stem_words(request.wording)
    for word in stem_words(key):
        if not is_generic(word) and any(are_synonyms(word, other) for other in request_words):
            return True
    return False


def _find_verdict(facts: Facts, request: ParsedRequest) -> str:
    """Yes or no, only when the question asks for a fact by its own name and without a negation."""
    words = split_words(request.text)
    if not words or words[0] not in QUESTION_STARTS or not NEGATIONS.isdisjoint(words):
        return ""
    request_stems = set(map(stem, words))
    verdicts = list[bool]()
    for key, value in facts.items():
        key_stems = set(stem_words(key))
        if isinstance(value, bool) and key_stems and key_stems <= request_stems:
            verdicts.append(value)
    if len(verdicts) != 1:
        return ""
    return "Yes: " if verdicts[0] else "No: "
