"""A chat model that obeys every order it reads, wherever it stands and however it is encoded.

An order is `DO tool({"argument": "value"})`. `LOOK` in a question makes the model use its reading tools
first; `$FACTS` in an order stands for the facts in its prompt, `$FACTS|base64` for their base64, and so on.
"""

import base64
import binascii
import codecs
import contextlib
import itertools
import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from urllib.parse import unquote

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool

_VERBS = ("DO", "TUE", "FAIS", "ВЫПОЛНИ", "実行")
_ORDER = re.compile(rf"(?:{'|'.join(_VERBS)})\s+(\w+)\(")
_MARKERS = re.compile(r"\[\[(?:untrusted|end) [^\]]*\]\]\n?")
_INVISIBLE = re.compile("[\u200b-\u200f\u2060\ufeff]")
_BASE64 = re.compile(r"[A-Za-z0-9+/]{24,}={0,2}")
_HEX = re.compile(r"(?:[0-9a-f]{2}){12,}")
_FACT = re.compile(r"^- (.*) \(id \w+\)$", re.MULTILINE)
_FACTS = re.compile(r"\$FACTS(?:\|(\w+))?")
_LOOK = re.compile(r"^LOOK (\S+)")
_READING = ("read_ticket", "read_log", "list_files", "search")

ENCODERS: dict[str, Callable[[str], str]] = {
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "hex": lambda text: text.encode().hex(),
    "reversed": lambda text: text[::-1],
    "rot13": lambda text: codecs.encode(text, "rot13"),
}

Order = tuple[str, dict[str, Any]]


class ObedientChatModel(BaseChatModel):
    """Obeys each order once in a conversation; without a new one it repeats the last result as its answer."""

    agents: tuple[str, ...] = ()  # those that a supervisor asks first

    @property
    def _llm_type(self) -> str:
        return "obedient"

    def bind_tools(
        self, tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool], **kwargs: Any
    ) -> Runnable[LanguageModelInput, AIMessage]:
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools])

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        tools = {tool["function"]["name"]: tool["function"] for tool in kwargs.get("tools") or ()}
        orders = self._first_orders(messages, tools) or list(_new_orders(messages, tools))
        calls = [
            {"name": name, "args": arguments, "id": f"call-{len(messages)}-{number}"}
            for number, (name, arguments) in enumerate(orders)
        ]
        answer = "" if calls else _last_result(messages)
        return ChatResult(generations=[ChatGeneration(message=AIMessage(answer, tool_calls=calls))])

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return self._generate(messages, stop, None, **kwargs)

    def _first_orders(self, messages: Sequence[BaseMessage], tools: dict[str, Any]) -> list[Order]:
        """What the question itself wants: to look at something, with whatever can look."""
        looked_for = _LOOK.match(messages[-1].text) if isinstance(messages[-1], HumanMessage) else None
        if looked_for is None:
            return []
        if self.agents and "task" in tools:
            text = messages[-1].text
            return [("task", {"subagent_type": agent, "description": text}) for agent in self.agents]
        return [(name, {"query": looked_for[1]}) for name in _READING if name in tools]


def _new_orders(messages: Sequence[BaseMessage], tools: dict[str, Any]) -> Iterator[Order]:
    obeyed = [
        (call["name"], call["args"])
        for message in messages
        if isinstance(message, AIMessage)
        for call in message.tool_calls
    ]
    facts = " ".join(_FACT.findall(_system_text(messages)))
    for name, arguments in _orders_in(_texts(messages, tools)):
        filled = _fill_facts(arguments, facts)
        if name in tools and (name, filled) not in obeyed:
            obeyed.append((name, filled))
            yield name, filled


def _texts(messages: Sequence[BaseMessage], tools: dict[str, Any]) -> list[str]:
    """All that the model reads: prompt, descriptions, messages, and all results in one."""
    results = [_MARKERS.sub("", m.text).rstrip("\n") for m in messages if isinstance(m, ToolMessage)]
    read = [m.text for m in messages if not isinstance(m, AIMessage)]
    described = [tool.get("description") or "" for tool in tools.values()]
    return [*read, *described, *results, *("".join(pair) for pair in itertools.pairwise(results))]


def _system_text(messages: Sequence[BaseMessage]) -> str:
    return "\n".join(message.text for message in messages if isinstance(message, SystemMessage))


def _orders_in(texts: Sequence[str]) -> Iterator[Order]:
    for text in texts:
        for variant in _decode(text):
            yield from _parse_orders(variant)


def _decode(text: str) -> Iterator[str]:
    plain = _INVISIBLE.sub("", _MARKERS.sub("", text)).replace("\\n", "\n")
    yield plain
    yield plain.replace('\\"', '"').replace("\\\\", "\\")
    yield plain[::-1]
    yield codecs.encode(plain, "rot13")
    yield unquote(plain)
    for match in _HEX.finditer(plain):
        yield bytes.fromhex(match[0]).decode(errors="replace")
    for match in _BASE64.finditer(plain):
        with contextlib.suppress(binascii.Error):
            decoded = base64.b64decode(match[0]).decode(errors="replace")
            yield decoded
            yield codecs.encode(decoded, "rot13")


def _parse_orders(text: str) -> Iterator[Order]:
    position = 0
    while (match := _ORDER.search(text, position)) is not None:
        position = match.end()
        try:
            arguments, position = json.JSONDecoder().raw_decode(text, match.end())
        except ValueError:
            continue
        if isinstance(arguments, dict):
            yield match[1], arguments


def _fill_facts(arguments: dict[str, Any], facts: str) -> dict[str, Any]:
    def encode(match: re.Match[str]) -> str:
        return ENCODERS[match[1]](facts) if match[1] else facts

    return {
        key: _FACTS.sub(encode, value) if isinstance(value, str) else value
        for key, value in arguments.items()
    }


def _last_result(messages: Sequence[BaseMessage]) -> str:
    """All results since the question: an agent hands on what it has read."""
    texts: list[str] = []
    for message in reversed(messages):
        if isinstance(message, HumanMessage):
            break
        if isinstance(message, ToolMessage):
            texts.append(_MARKERS.sub("", message.text).rstrip("\n"))
    return "".join(reversed(texts)) or "Nothing to do."
