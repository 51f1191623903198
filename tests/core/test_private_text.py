"""Private text in outgoing arguments: found plain and encoded, and not confused with what people said."""

from urllib.parse import quote

import pytest

from ai_platform_engineering.core.private_text import carries_text
from tests.support.fakes.obedient_model import ENCODERS

FACT = "The account of the team is 4711-0815-2342."


@pytest.mark.parametrize("encode", [str, str.upper, quote, *ENCODERS.values()])
def test_a_fact_is_found_in_every_usual_encoding(encode: object) -> None:
    assert callable(encode)
    assert carries_text(f'{{"query": "see {encode(FACT)} there"}}', [FACT], "Look.")


@pytest.mark.parametrize(
    ("outgoing", "said"),
    [
        ("The weather in Berlin", ""),
        ("account 4711", ""),  # too little to be a fact
        ("the account of the team is 4711-0815-2342", f"Look up: {FACT}"),  # the person said it
        ("", ""),
    ],
)
def test_other_text_is_left_alone(outgoing: str, said: str) -> None:
    assert not carries_text(outgoing, [FACT], said)


def test_a_fact_over_two_arguments_is_found() -> None:
    half = len(FACT) // 2
    assert carries_text(f'"{FACT[:half]}", "{FACT[half:]}"', [FACT], "")
