"""The context size comes from the model's profile, unless a setting says another."""

import logging
from collections.abc import Iterator

import pytest
from langchain_core.language_models import BaseChatModel

from ai_platform_engineering.core.events import Usage
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.models import model_profile
from ai_platform_engineering.models.chat_model import create_chat_model
from ai_platform_engineering.models.model_profile import DEFAULT_CONTEXT_TOKENS, find_context_tokens
from tests.support.fakes.script import Book, Say, Script, Turn
from tests.support.providers import OPENAI, Provider, run_behind_provider


@pytest.fixture(autouse=True)
def fresh_log(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    model_profile._log_unknown.cache_clear()
    yield
    model_profile._log_unknown.cache_clear()


def build(name: str) -> BaseChatModel:
    return create_chat_model(Settings.from_variables({"LLM_MODEL": name}).model)


@pytest.mark.parametrize(
    ("name", "tokens"),
    [
        ("openai:gpt-4o", 128_000 - 16_384),
        ("openai:gpt-4", 8_192 // 2),  # it may write as much as it reads
        ("anthropic:claude-sonnet-4-5", 200_000 - 64_000),
    ],
)
def test_the_size_is_the_profiles_without_what_the_model_may_write(
    name: str, tokens: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        assert find_context_tokens(build(name)) == tokens
    assert "context size" not in caplog.text


@pytest.mark.parametrize("name", ["openai:of-our-own", "openai:gpt-image-1"])
def test_an_unknown_model_gets_the_default_and_one_line_in_the_log(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        for _ in range(2):
            assert find_context_tokens(build(name)) == DEFAULT_CONTEXT_TOKENS
    assert caplog.text.count(f"the context size of the model {name.partition(':')[2]} is not known") == 1


@pytest.mark.parametrize(
    ("variables", "is_shortened"), [({}, True), ({"LLM_CONTEXT_TOKENS": "50000"}, False)]
)
async def test_a_small_model_is_sent_less_unless_the_setting_says_more(
    variables: dict[str, str], is_shortened: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Provider, "model", lambda self, name: "openai:gpt-4")
    script = Book(
        {"^Summarise the conversation": Script(Turn(Say("Summary.")))}, default=Script(Turn(Say("Yes.")))
    )
    async with run_behind_provider(OPENAI, script, **variables) as (server, app):
        stream = await app.ask("word " * 8_000)
    assert stream.answer == "Yes."
    longest = max(len(message.text) for message in server.requests[-1].messages)
    assert (longest < 4 * 4_096) == is_shortened


def test_cached_tokens_are_read_in_every_form() -> None:
    usage = Usage()
    usage = usage.plus({"input_tokens": 9, "input_token_details": {"cache_read": 5, "cache_creation": 2}})
    anthropic_details = {"cache_read": 1, "cache_creation": 0, "ephemeral_5m_input_tokens": 3}
    usage = usage.plus({"input_tokens": 4, "input_token_details": anthropic_details})
    usage = usage.plus(Usage(input_tokens=10, cache_read_tokens=7).model_dump())
    assert usage == Usage(input_tokens=23, cache_read_tokens=13, cache_creation_tokens=5)
    assert Usage().plus({"input_tokens": 1, "input_token_details": {"cache_read": 0}}) == Usage(
        input_tokens=1
    )
