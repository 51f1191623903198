"""Results as Markdown: facts first, tables for lists, nothing that the result does not say."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ai_platform_engineering.models.offline.lexicon import NEGATIONS, QUESTION_STARTS
from ai_platform_engineering.models.offline.questions import ParsedRequest
from ai_platform_engineering.models.offline.words import akin, is_generic, plain_words, stem, stems

_MOST_JSON = 500_000
_MOST_TEXT = 6000
_MOST_FACTS = 40
_MOST_ROWS = 30
_MOST_COLUMNS = 7
_MOST_CELL = 120
_LONG = 160  # a text from here on is prose, not a fact
_TELLING = ("summary", "message", "answer")  # a result may say itself what it means
_FIRST = (
    "name",
    "key",
    "id",
    "title",
    "status",
    "state",
    "version",
    "value",
    "result",
    "open",
    "ok",
    "valid",
    "count",
    "total",
    "url",
)
Facts = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ParsedResult:
    """What a tool returned, read."""

    value: Any
    failed: bool = False
    told: str = ""  # the sentence with which a tool introduces its data

    @property
    def is_flat(self) -> bool:
        return (
            not self.told
            and isinstance(self.value, Mapping)
            and bool(self.value)
            and all(_is_scalar(one) for one in self.value.values())
        )


def read_result(text: str, failed: bool) -> ParsedResult:
    """The text as data when it is JSON; a result that only holds an error is a failure."""
    told, data = _introduced(text.strip())
    if failed:
        return ParsedResult(told or text.strip(), failed=True)
    value = _json(data)
    if isinstance(value, Mapping) and list(value) == ["result"]:
        value = value["result"]
    if (
        isinstance(value, Mapping)
        and isinstance(error := value.get("error"), str)
        and error
        and len(value) <= 3
    ):
        return ParsedResult(error, failed=True)
    if not isinstance(value, str):
        return ParsedResult(value, False, told)
    return ParsedResult(text.strip())


def _introduced(text: str) -> tuple[str, str]:
    """A sentence for people and the data after it, as some tools return both; else all is data."""
    head, _, rest = text.partition("\n")
    if rest.lstrip().startswith(("{", "[")) and not head.startswith(("{", "[")) and len(head) <= 1000:
        return head.strip(), rest.strip()
    return "", text


def _json(text: str) -> Any:
    if not text.startswith(("{", "[", '"')) or len(text) > _MOST_JSON:
        return text
    decoder = json.JSONDecoder()
    found = list[Any]()
    at = 0
    try:
        # A server that returns a list may send one text per item, one after the other.
        while at < len(text):
            value, at = decoder.raw_decode(text, at)
            found.append(value)
            while at < len(text) and text[at] in " \t\r\n":
                at += 1
    except (ValueError, RecursionError):
        return text
    if len(found) == 1:
        return found[0]
    return found


def render(result: ParsedResult, request: ParsedRequest, arguments: Mapping[str, Any]) -> str:
    """What a result says about a request."""
    value = result.value
    if result.told:
        return _introduced_data(result, request, arguments)
    if isinstance(value, Mapping):
        return _object(value, request, arguments)
    if isinstance(value, list):
        if value:
            return _list(value, request, "result")
        return f"No results{_for(arguments)}."
    if isinstance(value, str):
        if value:
            return bounded(value)
        return f"The result is empty{_for(arguments)}."
    return f"**{shown(value)}**{_for(arguments)}"


def table(rows: Sequence[Mapping[str, Any]], request: ParsedRequest, most: int = _MOST_ROWS) -> str:
    """Objects as a table: the columns that the request asks for and those that name things first."""
    facts = [_flat(row) for row in rows[:most]]
    columns = _columns(facts, request)
    lines = [f"| {' | '.join(_cell(human(column)) for column in columns)} |", f"|{'---|' * len(columns)}"]
    lines += [f"| {' | '.join(_cell(shown(row.get(column))) for column in columns)} |" for row in facts]
    more = f"\n\n… and {len(rows) - most} more." if len(rows) > most else ""
    return "\n".join(lines) + more


def called(arguments: Mapping[str, Any]) -> str:
    """The arguments of a call, for people: host `localhost`, port `8000`."""
    return ", ".join(
        f"{human(name)} `{_cell(shown(value)).replace('`', '')}`" for name, value in arguments.items()
    )


def human(key: str) -> str:
    return key.replace("_", " ").replace("-", " ").strip() or key


def shown(value: Any) -> str:
    if isinstance(value, bool):
        if value:
            return "yes"
        return "no"
    if value is None:
        return "–"
    if isinstance(value, str):
        return " ".join(value.split())
    if isinstance(value, list) and all(_is_scalar(one) for one in value):
        return (
            ", ".join(shown(one) for one in value[:20])
            + (f", … ({len(value)} in all)" if len(value) > 20 else "")
            or "none"
        )
    if isinstance(value, int | float):
        return str(value)
    return json.dumps(value, ensure_ascii=False, default=str)


def bounded(text: str, most: int = _MOST_TEXT) -> str:
    if len(text) <= most:
        return text
    return f"{text[:most].rstrip()} … ({len(text) - most} more characters)"


def _for(arguments: Mapping[str, Any]) -> str:
    if arguments:
        return f" for {called(arguments)}"
    return ""


def _is_scalar(value: Any) -> bool:
    return (
        value is None
        or isinstance(value, bool | int | float)
        or (isinstance(value, str) and len(value) <= _LONG)
    )


def _flat(value: Mapping[str, Any], prefix: str = "", depth: int = 0) -> Facts:
    """Nested objects as one level of facts: `metadata name`."""
    facts: Facts = {}
    for key, one in list(value.items())[:_MOST_FACTS]:
        name = f"{prefix}{key}"
        if isinstance(one, Mapping) and one and depth < 2:
            facts |= _flat(one, f"{name} ", depth + 1)
        else:
            facts[name] = one
    return dict(list(facts.items())[:_MOST_FACTS])


# --- one object --------------------------------------------------------------------------------------------------------


def _object(
    value: Mapping[str, Any], request: ParsedRequest, arguments: Mapping[str, Any], *, led: bool = False
) -> str:
    if not value:
        return f"The result is empty{_for(arguments)}."
    facts = _flat(value)
    lists = {key: one for key, one in facts.items() if _is_table(one)}
    texts = {key: one for key, one in facts.items() if isinstance(one, str) and len(one) > _LONG}
    plain = {
        key: one for key, one in facts.items() if key not in lists and key not in texts and one is not None
    }
    plain = {key: one for key, one in plain.items() if not _echoes(key, one, arguments)}
    parts = [_facts(plain)] if led else [_lead(plain, request, arguments), _rest(plain, request)]
    parts += [
        f"{human(key).capitalize()} ({len(one)}):\n\n{_passages(one) if _is_prose(one) else table(one, request)}"
        for key, one in lists.items()
    ]
    parts += [f"{human(key).capitalize()}:\n\n{_block(one)}" for key, one in texts.items()]
    return (
        "\n\n".join(part for part in parts if part)
        or f"The result says no more than what was asked{_for(arguments)}."
    )


def _introduced_data(result: ParsedResult, request: ParsedRequest, arguments: Mapping[str, Any]) -> str:
    """The tool's own sentence, then its data."""
    if not isinstance(result.value, Mapping):
        if result.value:
            return f"{result.told}\n\n{render(ParsedResult(result.value), request, {})}"
        return result.told
    facts = {key: value for key, value in _flat(result.value).items() if not _echoes(key, value, arguments)}
    for key in [key for key, value in facts.items() if _is_table(value) and len(value) == 1]:
        facts |= _flat(facts.pop(key)[0])  # a table of one line is a few facts more
    facts = {key: value for key, value in facts.items() if not _is_told(key, value, result.told)}
    if facts:
        return f"{result.told}\n\n{_object(facts, request, {}, led=True)}"
    return result.told


def _is_told(key: str, value: Any, told: str) -> bool:
    """The sentence says it already."""
    if isinstance(value, bool):
        return value and human(key).removeprefix("is ") in told
    if isinstance(value, list):
        return len(value) <= 1 and all(_is_told(key, one, told) for one in value)
    if isinstance(value, Mapping):
        return all(_is_told(name, one, told) for name, one in value.items())
    forms = {str(value), f"{value:,}"} if isinstance(value, int) else {shown(value)}
    return any(
        re.search(rf"(?<![\w.]){re.escape(form)}(?!\w)", told) is not None
        for form in forms
        if len(form) <= _LONG
    )


def _is_table(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(one, Mapping) for one in value)


def _echoes(key: str, value: Any, arguments: Mapping[str, Any]) -> bool:
    """The result repeats what it was asked: the call says that already."""
    return key in arguments and str(arguments[key]) == str(value)


def _lead(facts: Facts, request: ParsedRequest, arguments: Mapping[str, Any]) -> str:
    told = next((str(facts[key]) for key in _TELLING if isinstance(facts.get(key), str) and facts[key]), "")
    keys = _key_facts(facts, request)
    said = "; ".join(f"**{human(key)}: {shown(facts[key])}**" for key in keys)
    subject = called(arguments)
    line = ". ".join(part for part in (told.rstrip("."), f"{_verdict(facts, request)}{said}") if part)
    if line and subject:
        return f"{line} ({subject})"
    return line


def _rest(facts: Facts, request: ParsedRequest) -> str:
    first = {*_key_facts(facts, request), *(key for key in _TELLING if isinstance(facts.get(key), str))}
    return _facts({key: value for key, value in facts.items() if key not in first})


def _facts(facts: Facts) -> str:
    return "\n".join(f"- {human(key)}: {_cell(shown(value))}" for key, value in facts.items())


def _key_facts(facts: Facts, request: ParsedRequest) -> list[str]:
    """The facts that the request asks for by name, else those that usually matter, else the first two."""
    keys = [key for key in facts if key not in _TELLING]
    direct = [key for key in keys if _is_asked(key, request)]
    alike = [key for key in keys if _is_akin(key, request)]
    usual = [key for key in keys if key in _FIRST]
    return (direct or alike or usual or keys)[: 3 if direct or alike else 2]


def _is_asked(key: str, request: ParsedRequest) -> bool:
    asked = set(stems(request.wording))
    return any(word in asked and not is_generic(word) for word in stems(key))


def _is_akin(key: str, request: ParsedRequest) -> bool:
    return any(
        akin(word, one) for word in stems(key) for one in stems(request.wording) if not is_generic(word)
    )


def _verdict(facts: Facts, request: ParsedRequest) -> str:
    """Yes or no, only when the question asks for a fact by its own name and without a negation."""
    words = plain_words(request.text)
    if not words or words[0] not in QUESTION_STARTS or NEGATIONS & set(words):
        return ""
    asked = {stem(word) for word in words}
    found = [
        value
        for key, value in facts.items()
        if isinstance(value, bool) and set(stems(key)) and set(stems(key)) <= asked
    ]
    if len(found) == 1:
        return "Yes: " if found[0] else "No: "
    return ""


# --- lists and texts ---------------------------------------------------------------------------------------------------


def _list(values: Sequence[Any], request: ParsedRequest, name: str) -> str:
    if _is_table(values):
        if _is_prose(values):
            return _passages(values)
        return f"{len(values)} {name}{'s' if len(values) != 1 else ''}:\n\n{table(values, request)}"
    lines = [f"- {_cell(shown(value))}" for value in values[:_MOST_ROWS]]
    more = [f"- … and {len(values) - _MOST_ROWS} more"] if len(values) > _MOST_ROWS else []
    return "\n".join(lines + more)


def _is_prose(rows: Sequence[Mapping[str, Any]]) -> bool:
    return any(isinstance(one, str) and len(one) > _LONG for row in rows for one in row.values())


def _passages(rows: Sequence[Mapping[str, Any]]) -> str:
    """Objects with prose in them, such as search results: a name and the text, not a table."""
    done = list[str]()
    for row in rows[:_MOST_ROWS]:
        facts = _flat(row)
        prose = [key for key, value in facts.items() if isinstance(value, str) and len(value) > _LONG]
        title = next(
            (
                str(facts[key])
                for key in ("title", "name", "key", "document_id", "id", "url")
                if facts.get(key)
            ),
            "",
        )
        link = next(
            (
                str(facts[key])
                for key in ("url", "link", "source")
                if str(facts.get(key) or "").startswith("http")
            ),
            "",
        )
        head = f"**{_cell(title)}**" if title else ""
        head += f" ({link})" if link and link != title else ""
        texts = " ".join(bounded(" ".join(str(facts[key]).split()), 600) for key in prose[:2])
        others = (
            "; ".join(
                f"{human(key)}: {_cell(shown(facts[key]))}" for key in list(facts)[:4] if key not in prose
            )
            if not prose
            else ""
        )
        done.append(f"- {': '.join(part for part in (head, texts or others) if part)}")
    return "\n".join(done)


def _columns(rows: Sequence[Facts], request: ParsedRequest) -> list[str]:
    names = list(dict.fromkeys(key for row in rows for key in row))
    filled = [name for name in names if any(row.get(name) not in (None, "", [], {}) for row in rows)] or names
    plain = [
        name for name in filled if all(_is_scalar(row.get(name)) or _is_words(row.get(name)) for row in rows)
    ] or filled
    wanted = [name for name in plain if name.split(" ")[-1] in _FIRST or _is_asked(name, request)]
    chosen = set([*wanted, *(name for name in plain if name not in wanted)][:_MOST_COLUMNS])
    return [name for name in plain if name in chosen]


def _is_words(value: Any) -> bool:
    return isinstance(value, list) and all(_is_scalar(one) for one in value)


def _cell(text: str) -> str:
    short = text if len(text) <= _MOST_CELL else f"{text[: _MOST_CELL - 1]}…"
    return short.replace("|", "\\|").replace("\n", " ")


def _block(text: str) -> str:
    if "\n" not in text:
        return bounded(text, 2000)
    fence = "~~~~" if "```" in text else "```"
    return f"{fence}\n{bounded(text, 2000)}\n{fence}"
