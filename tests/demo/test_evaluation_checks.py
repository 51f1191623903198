"""What counts as naming a fact, blaming something and not knowing; the figures; what is wrong with files."""

from pathlib import Path

import pytest

from ai_platform_engineering.core.errors import ConfigurationError
from ai_platform_engineering.core.events import Usage
from ai_platform_engineering.demo.estate.estate import build_estate
from ai_platform_engineering.demo.evaluation.answer_text import blames, finds_pattern, names, says_unknown
from ai_platform_engineering.demo.evaluation.case_files import InvalidCases, fill_cases, read_case_files
from ai_platform_engineering.demo.evaluation.comparison import compare_results
from ai_platform_engineering.demo.evaluation.estate_facts import collect_facts
from ai_platform_engineering.demo.evaluation.prices import ModelPrice, read_prices
from ai_platform_engineering.demo.evaluation.results import (
    AttemptFailure,
    AttemptResult,
    CaseResult,
    EvaluationResult,
    EvaluationSettings,
    load_result,
)
from ai_platform_engineering.demo.evaluation.statistics import fisher_p_value, wilson_interval
from tests.demo.test_estate import Clock

GOOD = """
title: A title
question: Which version of checkout runs?
checks:
  - contains: "{checkout.version}"
"""


@pytest.mark.parametrize(
    ("text", "phrase", "is_named"),
    [
        ("It runs **v1.2.0**.", "v1.2.0", True),
        ("It runs version 1.2.0", "v1.2.0", True),
        ("It runs v1.2.01", "v1.2.0", False),
        ("It runs 11.2.0 and 1.2.0.1", "v1.2.0", False),
        ("`TAX_REGION_V2` is missing", "TAX_REGION", False),
        ("`TAX_REGION`\nis set", "tax_region is set", True),
        ("it isn’t set", "isn't set", True),
        (r"TAX\_REGION\_V2 in a ticket", "TAX_REGION_V2", True),
        ("checkouts", "checkout", False),
    ],
)
def test_a_fact_must_stand_by_itself(text: str, phrase: str, is_named: bool) -> None:
    assert names(text, phrase) is is_named


@pytest.mark.parametrize(
    ("text", "is_blamed"),
    [
        ("The root cause is payments.", True),
        ("checkout fails because of payments", True),
        ("checkout fails because the payments service times out", True),
        ("payments is down.", True),
        ("payments broke checkout", True),
        ("checkout fails due to a missing setting; payments is healthy", False),
        ("payments is not the cause.", False),
        ("The cause is in checkout, but payments was checked, too.", False),
        ("checkout fails because X is not set. payments and cart run.", False),
        ("payments isn't at fault", False),
    ],
)
def test_only_a_clause_that_names_it_as_the_cause_blames_it(text: str, is_blamed: bool) -> None:
    assert blames(text, "payments") is is_blamed


@pytest.mark.parametrize(
    ("text", "is_unknown"),
    [
        ("I cannot answer that.", True),
        ("None of the systems has figures on revenue.", True),
        ("There is no service recommendations.", True),
        ("I couldn't find any application of that name.", True),
        ("That is unknown.", True),
        ("I found nothing about revenue.", True),
        ("It lost 300 euros.", False),
        ("recommendations runs v1.2.0.", False),
        ("All pods run.", False),
    ],
)
def test_saying_that_it_is_not_known(text: str, is_unknown: bool) -> None:
    assert says_unknown(text) is is_unknown


def test_a_pattern_is_matched_on_one_line_and_without_emphasis() -> None:
    assert finds_pattern("It runs\n**v1.2.0**", r"runs 1\.2\.0")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "1: a case must be a mapping"),
        ("- a\n- b\n", "1: a case must be a mapping"),
        ("title: [\n", "2: is not valid YAML"),
        (GOOD.replace("question", "quesion"), "3: unknown key `quesion`; did you mean `question`?"),
        (GOOD.replace("checks:", "checks: []\nchekcs:"), "5: unknown key `chekcs`; did you mean `checks`?"),
        (
            GOOD.replace("checkout.version", "checkout.verison"),
            "5: the estate has no fact {checkout.verison}; did",
        ),
        (GOOD.replace('contains: "{checkout.version}"', "matches: '(a'"), "5: the pattern cannot be used"),
        (GOOD.replace('contains: "{checkout.version}"', "matches: '(?=a)'"), "5: the pattern cannot be used"),
        (GOOD.replace('contains: "{checkout.version}"', "contains: 3"), "5: "),
        (
            GOOD.replace('contains: "{checkout.version}"', "turn: 1"),
            "5: a check has exactly one of `contains`",
        ),
        (GOOD + "    unchanged: true\n", "5: a check has exactly one of"),
        (GOOD + "    turn: 2\n", "1: a check is about turn 2, and there are 1"),
        (GOOD + "  - unchanged: true\n    turn: 1\n", "6: `turn` is for checks of an answer's text"),
        (GOOD + "  - service: {name: cart}\n", "6: a service needs `health`, `version` or `replicas`"),
        (
            GOOD + "  - service: {name: cart, helth: Healthy}\n",
            "6: unknown key `helth`; did you mean `health`?",
        ),
        (GOOD + "approvals: maybe\n", "6: `approvals`"),
        (GOOD + "title: again\n", "6: `title` is written twice"),
        (GOOD + "timeout: -1\n", "6: `timeout`"),
        (
            GOOD + "examples: {right: It runs v0.0.1, wrong: [nothing]}\n",
            "6: this right answer does not pass",
        ),
        (
            GOOD + "examples:\n  right: '{checkout.version}'\n  wrong: ['It is {checkout.version}']\n",
            "8: this wrong answer passes all checks",
        ),
    ],
)
def test_mistakes_are_named_with_file_and_line(tmp_path: Path, content: str, problem: str) -> None:
    folder = tmp_path / "cases"
    folder.mkdir()
    (folder / "wrong.yaml").write_text(content, encoding="utf-8")
    facts = collect_facts(build_estate(1, Clock()))

    with pytest.raises(InvalidCases) as caught:
        fill_cases(read_case_files(folder), facts)

    assert f"cases/wrong.yaml:{problem}" in str(caught.value)


def test_a_folder_without_cases_and_an_unknown_case_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="holds no case"):
        read_case_files(tmp_path)
    (tmp_path / "versions.yaml").write_text(GOOD, encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"has no case version\. Did you mean versions\?"):
        read_case_files(tmp_path, ["version"])
    (tmp_path / "versions.json").write_text("{}", encoding="utf-8")
    with pytest.raises(ConfigurationError, match="two cases versions"):
        read_case_files(tmp_path)


def test_intervals_and_p_values_are_those_of_the_textbook() -> None:
    low, high = wilson_interval(5, 10)
    assert (round(low, 3), round(high, 3)) == (0.237, 0.763)
    assert wilson_interval(0, 0) == (0.0, 1.0)
    assert wilson_interval(3, 3)[1] == pytest.approx(1.0)
    assert round(wilson_interval(3, 3)[0], 3) == 0.439
    # Fisher's tea: three of four cups against one of four.
    assert round(fisher_p_value(3, 4, 1, 4), 4) == 0.4857
    assert round(fisher_p_value(0, 10, 10, 10), 6) == 0.000011
    assert fisher_p_value(3, 3, 3, 3) == 1.0


def test_costs_follow_the_prices_of_the_file_and_nothing_else(tmp_path: Path) -> None:
    usage = Usage(input_tokens=1000, output_tokens=100, cache_read_tokens=400, cache_creation_tokens=200)
    plain = ModelPrice(input=10, output=100)
    cached = ModelPrice(input=10, output=100, cache_read=1, cache_creation=20)
    assert plain.cost_of(usage) == pytest.approx(0.02)
    assert cached.cost_of(usage) == pytest.approx((400 * 10 + 400 * 1 + 200 * 20 + 100 * 100) / 1e6)

    file = tmp_path / "prices.yaml"
    file.write_text("currency: EUR\nmodels:\n  openai:x: {input: 1, output: 2}\n", encoding="utf-8")
    assert read_prices(file).models["openai:x"].output == 2
    for content in (
        "models: 3",
        "models: {a: {input: 1}}",
        "models: {a: {input: -1, output: 1}}",
        "- x",
        "{",
    ):
        file.write_text(content, encoding="utf-8")
        with pytest.raises(ConfigurationError, match=r"prices\.yaml"):
            read_prices(file)


def make_result(passes: dict[str, list[bool]], version: str = "1") -> EvaluationResult:
    cases: list[CaseResult] = []
    for name, outcomes in passes.items():
        attempts = [
            AttemptResult(
                seed=1, end="completed", failures=() if passed else (AttemptFailure(text="x", check=1),)
            )
            for passed in outcomes
        ]
        cases.append(CaseResult(name=name, attempts=tuple(attempts)))
    settings = EvaluationSettings(model="m", repeat=1, seed=1, concurrency=1, timeout=1)
    return EvaluationResult(version=version, started_at="", settings=settings, cases=tuple(cases))


def test_a_comparison_tells_better_from_worse_and_chance_from_change(tmp_path: Path) -> None:
    before = make_result({"a": [False] * 10, "b": [True, True, False], "c": [True], "gone": [True]})
    before.save(tmp_path / "before.json")
    after = make_result({"a": [True] * 10, "b": [True, False, False], "c": [True], "new": [True]}, "2")

    comparison = compare_results(load_result(tmp_path / "before.json"), after)

    by_name = {case.name: case for case in comparison.cases}
    assert (by_name["a"].direction, by_name["a"].is_significant) == ("better", True)
    assert (by_name["b"].direction, by_name["b"].is_significant) == ("worse", False)
    assert by_name["c"].direction == "same"
    assert (comparison.only_before, comparison.only_after) == (("gone",), ("new",))
    assert comparison.differing_settings == ("version 1 → 2",)


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"format": 99}', "\x00"])
def test_a_file_that_is_no_result_is_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "result.json"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"result\.json"):
        load_result(file)
