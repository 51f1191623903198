"""Regular expressions of forms in words: common kinds have words, and no pattern makes trouble."""

import pytest

from ai_platform_engineering.core.events import Form, InputField
from ai_platform_engineering.core.forms import check_form
from ai_platform_engineering.core.pattern_words import describe_mismatch, describe_pattern


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("[a-z0-9-]+", "lowercase letters, digits and hyphens"),
        ("^[A-Za-z_]*$", "letters and underscores"),
        (r"\w+", "letters, digits and underscores"),
        (r"\d{3,5}", "3 to 5 digits"),
        ("[0-9a-f]{40}", "40 characters: digits and a to f"),
        (
            "[a-z]([a-z0-9-]*[a-z0-9])?",
            "lowercase letters, digits and hyphens, beginning with a lowercase letter and "
            "ending with a lowercase letter or a digit",
        ),
        ("dev|staging|prod", "dev, staging or prod"),
        ("(dev|prod)", "dev or prod"),
        (r"[A-Z]+-\d+", "like ABC-1"),
        (r"\d{4}-\d{2}-\d{2}", "like 1234-12-12"),
        (r"v\d+\.\d+", "like v1.1"),
    ],
)
def test_common_patterns_have_words(pattern: str, words: str) -> None:
    assert describe_pattern(pattern) == words
    assert (describe_mismatch(pattern) or "").endswith(words)


@pytest.mark.parametrize(
    "pattern",
    [
        "(?i)x",
        "[^ ]+",
        ".+",
        r"\p{L}+",
        "(",
        ")",
        "[",
        "[]",
        "[z-a]",
        "a{",
        "(a{4000}){4000}",
        "(" * 250,
        "x" * 600,
    ],
)
def test_other_patterns_have_none(pattern: str) -> None:
    assert describe_pattern(pattern) is None
    assert describe_mismatch(pattern) is None


@pytest.mark.parametrize(
    ("field", "problem"),
    [
        ({"pattern": "[a-z]+"}, "name must consist of lowercase letters."),
        ({"pattern": ".+x", "placeholder": "box"}, "name must look like box."),
        ({"pattern": ".+x", "field_description": "It ends with x."}, "name does not fit: It ends with x."),
        ({"pattern": ".+x"}, "name must match the pattern .+x."),
    ],
)
def test_a_value_that_does_not_fit_is_told_in_words(field: dict[str, str], problem: str) -> None:
    form = Form(fields=(InputField.model_validate({"field_name": "name", **field}),))
    assert check_form(form, {"name": "NO"})[1] == {"name": problem}
