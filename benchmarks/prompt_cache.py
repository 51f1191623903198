"""A run of many model calls: how much of each request repeats the one before, and what marking it costs.

    PYTHONPATH=tests/support/guard .venv/bin/python -m benchmarks.prompt_cache [--calls 60]

The supervisor on scripted servers that keep a prompt cache by the rules of their provider, over HTTP through
the providers' libraries. Every call reads one result of 1,200 characters. Nothing leaves loopback.
"""

import argparse
import asyncio
import copy
import itertools
import json
import logging
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.tools import StructuredTool

from ai_platform_engineering.models.prompt_cache import add_breakpoints, make_cache_key
from tests.support.fakes.prompt_cache import anthropic_blocks, bedrock_blocks, common_length
from tests.support.fakes.request import Request
from tests.support.fakes.script import Call, Say, Script, Turn
from tests.support.providers import ANTHROPIC, BEDROCK, DIALECTS, OPENAI, Provider, run_behind_provider

_REPEATS = 200
_RESULT = "lorem ipsum " * 100


@dataclass(frozen=True, slots=True)
class Row:
    """What the requests of one run have in common. Shares are of the characters of all requests."""

    provider: Provider
    calls: int
    prefix: float  # identical to the beginning of the preceding request
    smallest_prefix: float  # of the preceding request that comes again, in the worst call
    read: float  # from the cache, as the server's rules allow it
    microseconds: float | None  # of CPU for the fields of the last request; None where the library adds them


async def measure(provider: Provider, calls: int) -> Row:
    async def look(number: int) -> str:
        return f"{number}: {_RESULT}"

    tool = StructuredTool.from_function(coroutine=look, name="look", description="Looks.")
    turns = [Turn(Call("look", {"number": number})) for number in range(calls - 1)]
    limits = {"MODEL_CALL_LIMIT": str(calls + 5), "LLM_PROMPT_CACHE": "on"}
    script = Script(*turns, Turn(Say("Done.")))
    async with run_behind_provider(provider, script, tools=[tool], **limits) as (server, client):
        stream = await client.ask("Look at everything.")
    assert stream.answer.strip() == "Done.", stream.answer
    assert len(server.requests) == calls
    return _count(provider, server.requests)


def _count(provider: Provider, requests: Sequence[Request]) -> Row:
    texts = [_read_prompt(provider, request.raw) for request in requests]
    total = sum(map(len, texts))
    prefixes = [common_length(before, text) for before, text in itertools.pairwise(texts)]
    repeated = [prefix / len(before) for prefix, before in zip(prefixes, texts, strict=False)]
    read = sum(request.cache.read * len(text) for request, text in zip(requests, texts, strict=True))
    return Row(
        provider,
        len(requests),
        sum(prefixes) / total,
        min(repeated),
        read / total,
        _measure_cpu(provider, requests[-1].raw),
    )


def _read_prompt(provider: Provider, body: dict[str, Any]) -> str:
    """The request in the order in which the provider reads it, without marks."""
    if provider is ANTHROPIC:
        return "".join(text for text, _ in anthropic_blocks(body))
    if provider is BEDROCK:
        return "".join(text for text, _ in bedrock_blocks(body))
    return "".join(json.dumps(item) for item in [body.get("tools"), *body["messages"]])


def _measure_cpu(provider: Provider, body: dict[str, Any]) -> float | None:
    if provider is OPENAI:
        return _time(lambda: make_cache_key(body["messages"]))
    if provider is ANTHROPIC:
        plain = json.loads(json.dumps(body).replace(', "cache_control": {"type": "ephemeral"}', ""))
        return _time(lambda: add_breakpoints(copy.copy(plain)))
    return None


def _time(call: Callable[[], object]) -> float:
    start = time.process_time()
    for _ in range(_REPEATS):
        call()
    return (time.process_time() - start) / _REPEATS * 1e6


async def run(calls: int) -> None:
    print(
        f"{'provider':10} {'calls':>5} {'same prefix':>12} {'worst call':>11} {'from cache':>11} {'CPU':>9}"
    )
    for provider in DIALECTS:
        row = await measure(provider, calls)
        cpu = "library" if row.microseconds is None else f"{row.microseconds:.0f} µs"
        shares = f"{row.prefix:12.1%} {row.smallest_prefix:11.1%} {row.read:11.1%}"
        print(f"{provider.name:10} {row.calls:5} {shares} {cpu:>9}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calls", type=int, default=60)
    logging.disable(logging.WARNING)
    asyncio.run(run(parser.parse_args().calls))
    return 0


if __name__ == "__main__":
    sys.exit(main())
