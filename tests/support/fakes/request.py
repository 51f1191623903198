"""What a model was asked, in one form for all providers, and the templates that are filled from it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from .prompt_cache import CacheUse

DELEGATION_TOOL = "task"
_MARKED = re.compile(r"\[\[untrusted (\w+): [^\]]*\]\]\n?(.*?)\n?\[\[end \1\]\]", re.DOTALL)
_TEMPLATE = re.compile(r"\{\{(user|tool:[^{}]+)\}\}")


class ScriptError(Exception):
    """The script has no answer to this request; the message says what was looked for and what there was."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class ToolUse:
    """One tool call in an assistant message."""

    name: str
    args: Mapping[str, Any]
    id: str


@dataclass(frozen=True)
class Msg:
    """One message of the conversation; `tool` is the name of the tool a result belongs to."""

    role: Literal["user", "assistant", "tool"]
    text: str = ""
    tool_calls: tuple[ToolUse, ...] = ()
    tool_call_id: str | None = None
    tool: str | None = None


@dataclass(frozen=True)
class Request:
    """One request to a model: system text, conversation without system messages, names of the bound tools."""

    system: str = ""
    messages: tuple[Msg, ...] = ()
    tools: tuple[str, ...] = ()
    model: str = ""
    stream: bool = False
    raw: Any = field(default=None, repr=False, compare=False)
    cache: CacheUse = field(default=CacheUse(), repr=False, compare=False)

    @property
    def last_user(self) -> str:
        """Text of the last user message."""
        return next((m.text for m in reversed(self.messages) if m.role == "user"), "")

    @property
    def since_user(self) -> tuple[Msg, ...]:
        """The messages after the last user message."""
        last = max((n for n, m in enumerate(self.messages) if m.role == "user"), default=-1)
        return self.messages[last + 1 :]

    @property
    def position(self) -> int:
        """How many assistant messages there are after the last user message."""
        return sum(m.role == "assistant" for m in self.since_user)

    @property
    def conversation(self) -> str:
        """A key that is equal for requests with the same model and messages."""
        return repr((self.model, self.messages))

    @property
    def tool_results(self) -> dict[str, list[str]]:
        """Results since the last user message, by tool name; a delegation also by the agent it went to."""
        calls = {call.id: call for m in self.messages for call in m.tool_calls}
        results: dict[str, list[str]] = {}
        for message in self.since_user:
            if message.role != "tool" or message.tool is None:
                continue
            results.setdefault(message.tool, []).append(message.text)
            call = calls.get(message.tool_call_id or "")
            if call and call.name == DELEGATION_TOOL and call.args.get("subagent_type"):
                results.setdefault(str(call.args["subagent_type"]), []).append(message.text)
        return results

    @property
    def approximate_tokens(self) -> int:
        """A quarter of the characters of the system text, the messages and the tool arguments."""
        args = sum(len(json.dumps(call.args)) for m in self.messages for call in m.tool_calls)
        return (len(self.system) + sum(len(m.text) for m in self.messages) + args) // 4

    @property
    def cache_read_tokens(self) -> int:
        return int(self.approximate_tokens * self.cache.read)

    @property
    def cache_created_tokens(self) -> int:
        return int(self.approximate_tokens * self.cache.created)


def named(messages: Iterable[Msg]) -> tuple[Msg, ...]:
    """The messages with the tool name filled in where a result only has the id of its call.

    Results are without the lines that mark them as untrusted, as scripts repeat them."""
    names: dict[str, str] = {}
    done: list[Msg] = []
    for message in messages:
        names |= {call.id: call.name for call in message.tool_calls}
        if message.role == "tool" and message.tool is None:
            message = replace(message, tool=names.get(message.tool_call_id or ""))
        if message.role == "tool":
            message = replace(message, text=without_markers(message.text))
        done.append(message)
    return tuple(done)


def without_markers(text: str) -> str:
    """A result without the lines that mark it as untrusted."""
    return _MARKED.sub(r"\2", text)


def text_of(content: Any) -> str:
    """The text of a message content that is a string, a list of blocks or nothing."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "".join(p if isinstance(p, str) else str(p.get("text") or "") for p in parts)


def parsed_args(text: str) -> dict[str, Any]:
    """Tool arguments as an object, empty where the text is not a JSON object."""
    try:
        value = json.loads(text or "{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def render(text: str, request: Request, escape: Callable[[str], str] = str) -> str:
    """Fill `{{user}}`, `{{tool:NAME}}` and `{{tool:NAME.field}}`; anything else in braces stays as it is."""
    return _TEMPLATE.sub(lambda found: escape(_resolve(found[1], request)), text)


def rendered(value: Any, request: Request) -> Any:
    """The same value with the templates of all its strings filled."""
    match value:
        case str():
            return render(value, request)
        case Mapping():
            return {key: rendered(item, request) for key, item in value.items()}
        case list() | tuple():
            return [rendered(item, request) for item in value]
        case _:
            return value


def _resolve(expression: str, request: Request) -> str:
    if expression == "user":
        return request.last_user
    name, _, path = expression.removeprefix("tool:").partition(".")
    results = request.tool_results
    if not results.get(name):
        raise ScriptError(
            f"{{{{{expression}}}}}: no result of {name!r} after the last user message; results there: "
            f"{sorted(results)}"
        )
    text = results[name][-1]
    return _field(expression, path, text) if path else text


def _field(expression: str, path: str, text: str) -> str:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict | list):
        found = re.search(rf"(?<![\w-]){re.escape(path)}(?:\s*=\s*|:\s+)[\"']?([^\s,;\"']+)", text)
        if not found:
            raise ScriptError(f"{{{{{expression}}}}}: no '{path}=' and no '{path}: ' in the result {text!r}")
        return found[1].rstrip(".)!?")
    for step in path.split("."):
        try:
            value = value[int(step)] if isinstance(value, list) else value[step]
        except (KeyError, IndexError, TypeError, ValueError):
            raise ScriptError(
                f"{{{{{expression}}}}}: no {step!r} on the way to {path!r} in the result {text!r}"
            ) from None
    return value if isinstance(value, str) else json.dumps(value)
