"""Variables in definitions, the status that follows from them, and that no value is ever shown."""

import json
import logging
import secrets
from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ai_platform_engineering.agents.agent_catalog import load_catalog, load_placed_catalog
from ai_platform_engineering.agents.variables import (
    BadReference,
    VariableReference,
    expand_text,
    find_names,
    parse_template,
)
from ai_platform_engineering.core.errors import ConfigurationError
from ai_platform_engineering.core.settings import Settings
from tests.support.agent_files import GOOD, load_files

# Variables


@pytest.mark.parametrize(
    ("text", "variables", "expected", "missing"),
    [
        ("plain", {}, "plain", ()),
        ("${A}", {"A": "1"}, "1", ()),
        ("x${A}y${B}z", {"A": "1", "B": "2"}, "x1y2z", ()),
        ("${A}", {}, "", ("A",)),
        ("${A}", {"A": ""}, "", ("A",)),
        ("${A}", {"A": " \n"}, "", ("A",)),
        ("${A}", {"A": " padded\n"}, "padded", ()),
        ("${A:-x}", {}, "x", ()),
        ("${A:-x}", {"A": ""}, "x", ()),
        ("${A:-x}", {"A": "1"}, "1", ()),
        ("${A:-}", {}, "", ()),
        ("${A:-a:-b}", {}, "a:-b", ()),
        ("${A:-${B}}", {"B": "2"}, "2", ()),
        ("${A:-${B}}", {}, "", ("A|B",)),
        ("${A:-${B:-${C}}}/x", {}, "/x", ("A|B|C",)),
        ("${A:-https://${B:-host}}", {}, "https://host", ()),
        ("${A:-${B} ${C}}", {}, " ", ("A|B", "A|C")),
        ("$${A}", {"A": "1"}, "${A}", ()),
        ("$$${A}", {"A": "1"}, "$${A}", ()),
        ("${A:-$${B}", {}, "${B", ()),
        ("$A $$ } { $", {"A": "1"}, "$A $$ } { $", ()),
        ("${A}", {"A": "${B}", "B": "2"}, "${B}", ()),
        ("${URL}/path", {"URL": "https://x/"}, "https://x/path", ()),
        ("${URL}path", {"URL": "https://x/"}, "https://x/path", ()),
    ],
)
def test_variables_are_filled_in(
    text: str, variables: dict[str, str], expected: str, missing: tuple[str, ...]
) -> None:
    filled = expand_text(text, variables)
    assert (filled.text, filled.missing) == (expected, missing)


@pytest.mark.parametrize(
    "text", ["${", "${}", "${A", "${1}", "${A-x}", "${A:x}", "${ A}", "${A:-${}}", "${A:-${B}", "${env:A}"]
)
def test_what_looks_like_a_variable_and_is_none_is_refused(text: str) -> None:
    with pytest.raises(BadReference):
        parse_template(text)


@given(st.text(alphabet="${}:-aA \n"))
def test_escaped_text_comes_back_as_it_was(text: str) -> None:
    assert expand_text(text.replace("${", "$${"), {}).text == text


variable_names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)
plain_texts = st.text(alphabet="abc $.}\n", min_size=1, max_size=8)
inner_texts = st.text(alphabet="abc $.\n", min_size=1, max_size=8)  # a brace would close the default


def templates(
    texts: st.SearchStrategy[str], depth: int
) -> st.SearchStrategy[tuple[str | VariableReference, ...]]:
    defaults = st.none() if depth == 0 else st.one_of(st.none(), templates(inner_texts, depth - 1))
    return st.lists(st.one_of(texts, st.builds(VariableReference, variable_names, defaults)), max_size=4).map(
        _joined
    )


def _joined(parts: list[str | VariableReference]) -> tuple[str | VariableReference, ...]:
    """No two plain texts in a row, and none that ends in `$`, which would escape what follows."""
    joined: list[str | VariableReference] = []
    for part in parts:
        if isinstance(part, str):
            part = part.rstrip("$")
            if not part or (joined and isinstance(joined[-1], str)):
                continue
        joined.append(part)
    return tuple(joined)


def written(template: tuple[str | VariableReference, ...]) -> str:
    def load_entry(part: str | VariableReference) -> str:
        if isinstance(part, str):
            return part.replace("${", "$${")
        return f"${{{part.name}}}" if part.default is None else f"${{{part.name}:-{written(part.default)}}}"

    return "".join(map(load_entry, template))


@given(templates(plain_texts, 2))
def test_a_template_that_is_written_down_is_read_back(template: tuple[str | VariableReference, ...]) -> None:
    assert parse_template(written(template)) == template


@given(templates(plain_texts, 2), st.text(min_size=1).filter(lambda value: value == value.strip().strip("/")))
def test_with_all_variables_set_nothing_is_missing_and_no_default_is_used(
    template: tuple[str | VariableReference, ...], value: str
) -> None:
    filled = expand_text(written(template), dict.fromkeys(find_names(template), value))
    assert filled.missing == ()
    assert filled.text == "".join(part if isinstance(part, str) else value for part in template)


def test_variables_are_filled_in_in_texts_and_not_in_keys() -> None:
    text = """\
name: demo
title: ${WORD}
description: A ${WORD}.
prompt: Say ${WORD} and $${WORD}.
mcpServers:
  ${WORD}:
    command: ${WORD}-server
    args: [--word, "${WORD}"]
    env: {"${WORD}": "${WORD}"}
examples: ["What is ${WORD}?"]
tools: {allow: ["${WORD}_*"]}
"""
    [definition] = load_files({"a.yaml": text}, {"WORD": "salt"}).ready
    server = definition.mcp_servers["${WORD}"]
    assert (definition.title, definition.description, definition.prompt) == (
        "salt",
        "A salt.",
        "Say salt and ${WORD}.",
    )
    assert (server.command, server.args, server.env) == (
        "salt-server",
        ("--word", "salt"),
        {"${WORD}": "salt"},
    )
    assert (definition.examples, definition.tools.allow) == (("What is salt?",), ("salt_*",))


def test_what_is_missing_is_told_with_the_line_that_wants_it() -> None:
    text = """\
name: demo
description: d
prompt: |
  One.
  Two ${IN_PROMPT} three.
  Again ${IN_PROMPT} and ${IN_PROMPT_TOO}.
mcpServers:
  a:
    command: x
    env:
      A: ${TOKEN}
      B: "${FIRST:-${SECOND}}"
      C: ${OPTIONAL:-}
requires:
  - NEEDED
  - EITHER|OR
  - TOKEN
  - GIVEN|NOT_GIVEN
"""
    entry = load_files({"a.yaml": text}, {"GIVEN": "x"}).get("demo")
    assert entry
    assert entry.status == "not_configured"
    assert entry.missing == (
        ("IN_PROMPT", "a.yaml:5"),
        ("IN_PROMPT_TOO", "a.yaml:6"),
        ("TOKEN", "a.yaml:11"),
        ("FIRST|SECOND", "a.yaml:12"),
        ("NEEDED", "a.yaml:15"),
        ("EITHER|OR", "a.yaml:16"),
    )
    assert set(entry.variables) == {
        *(
            "IN_PROMPT",
            "IN_PROMPT_TOO",
            "TOKEN",
            "FIRST",
            "SECOND",
            "OPTIONAL",
            "NEEDED",
            "EITHER",
            "OR",
            "GIVEN",
            "NOT_GIVEN",
        )
    }


def test_what_is_missing_in_a_list_or_a_plain_mcp_json_has_its_line_too() -> None:
    files = {
        "a.yaml": "- name: a\n  description: d\n- name: b\n  description: d\n  url: ${B_URL}\n",
        "mcp.json": '{"mcpServers": {\n"c": {\n"url": "https://x",\n"headers": {"K": "${C_KEY}"}}}}',
    }
    assert [entry.missing for entry in load_files(files)] == [
        (),
        (("B_URL", "a.yaml:5"),),
        (("C_KEY", "mcp.json:4"),),
    ]


def test_entries_whose_variables_are_not_set_are_left_out() -> None:
    text = """\
name: demo
title: ${T:-}
description: d
model: ${M:-}
mcpServers:
  a:
    command: x
    cwd: ${D:-}
    env: {EMPTY: "${A:-}", MISSING: "${B}", PART: "Bearer ${B}", LITERAL: "", KEPT: "${C}"}
  b:
    url: https://x
    headers: {Authorization: "Bearer ${B}", X: y}
"""
    entry = load_files({"a.yaml": text}, {"C": "c", "ENABLE_DEMO": "true"}).get("demo")
    assert entry
    definition = entry.definition
    assert (definition.title, definition.model, definition.mcp_servers["a"].cwd) == (None, None, None)
    assert definition.mcp_servers["a"].env == {"LITERAL": "", "KEPT": "c"}
    assert definition.mcp_servers["b"].headers == {"X": "y"}


@pytest.mark.parametrize("key", ["command", "url"])
def test_a_server_with_nothing_to_start_or_reach_is_not_configured(key: str) -> None:
    catalog = load_files({"a.yaml": GOOD + f"mcpServers:\n  a:\n    {key}: ${{WHERE:-}}\n"})
    assert [(entry.status, entry.missing) for entry in catalog] == [
        ("not_configured", (("WHERE", "a.yaml:5"),))
    ]


# Status


NEEDY = GOOD + "requires: [KEY]\n"


@pytest.mark.parametrize(
    ("enable", "key", "distributed", "status", "missing"),
    [
        (None, "k", False, "ready", False),
        (None, None, False, "not_configured", True),
        (None, "", False, "not_configured", True),
        ("", None, False, "not_configured", True),
        ("true", None, False, "ready", True),
        (" YES ", None, False, "ready", True),
        ("1", "k", False, "ready", False),
        ("false", "k", False, "disabled", False),
        ("0", None, False, "disabled", False),
        ("false", None, True, "disabled", False),
        (None, None, True, "ready", True),
        ("true", None, True, "ready", True),
    ],
)
def test_the_status_follows_from_switch_variables_and_placement(
    enable: str | None, key: str | None, distributed: bool, status: str, missing: bool
) -> None:
    variables = {
        name: value for name, value in {"ENABLE_DEMO": enable, "KEY": key}.items() if value is not None
    }
    variables |= {"DEMO_AGENT_URL": "http://demo.example:8001"} if distributed else {}
    catalog = load_files({"a.yaml": NEEDY}, variables, distributed={"demo"} if distributed else ())
    [entry] = catalog
    assert (entry.status, bool(entry.missing)) == (status, missing)
    assert [definition.name for definition in catalog.ready] == (["demo"] if status == "ready" else [])


def test_an_agent_with_a_hyphen_has_variables_with_an_underscore() -> None:
    files = {"a.yaml": "- {name: my-agent, description: d}\n- {name: other, description: d, model: a:b}\n"}
    catalog = load_files(
        files,
        {
            "ENABLE_MY_AGENT": "false",
            "ENABLE_TELEMETRY": "false",
            "OTHER_LLM_MODEL": "c:d",
            "LLM_MODEL": "e:f",
        },
    )
    assert [(entry.status, entry.definition.model) for entry in catalog] == [
        ("disabled", None),
        ("ready", "c:d"),
    ]


def test_the_report_says_what_to_do() -> None:
    text = "".join(
        f"- {{name: {name}, description: d, requires: [KEY, A|B]}}\n" for name in ("bare", "idle", "forced")
    )
    rows = load_files({"a.yaml": text}, {"ENABLE_IDLE": "false", "ENABLE_FORCED": "true"}).report()
    assert [(row.name, row.status, row.source, row.note) for row in rows] == [
        ("bare", "not_configured", "a.yaml:1", "set KEY (a.yaml:1) and A or B (a.yaml:1)"),
        ("idle", "disabled", "a.yaml:2", "switched off by ENABLE_IDLE"),
        (
            "forced",
            "ready",
            "a.yaml:3",
            "offered because ENABLE_FORCED is true, without KEY (a.yaml:3) and A or B (a.yaml:3)",
        ),
    ]
    assert json.loads(json.dumps([asdict(row) for row in rows]))[0]["missing"] == [
        ["KEY", "a.yaml:1"],
        ["A|B", "a.yaml:1"],
    ]


def test_no_value_of_a_variable_is_ever_shown(caplog: pytest.LogCaptureFixture) -> None:
    secret = secrets.token_hex(8)
    everywhere = """\
name: demo
title: a ${S}
description: a ${S}
prompt: a ${S}
mcpServers:
  a: {command: "a ${S}", args: ["a ${S}"], env: {A: "a ${S}"}, cwd: "/a/${S}"}
  b: {url: "a ${S}", headers: {A: "a ${S}"}}
url: a ${S}
tools: {allow: ["a ${S}"], ask: ["a ${S}"], deny: ["a ${S}"]}
examples: ["a ${S}"]
model: a ${S}
install: {npm: ["a ${S}"]}
requires: [T]
"""
    with caplog.at_level(logging.DEBUG):
        catalog = load_files(
            {"a.yaml": everywhere, "mcp.json": '{"mcpServers": {"c": {"command": "${S}"}}}'},
            {"S": secret, "C_LLM_MODEL": secret},
        )
    entry = catalog.get("demo")
    assert entry
    assert f"a {secret}" in entry.definition.mcp_servers["a"].env.values()
    outputs = [
        catalog,
        catalog.report(),
        entry,
        entry.definition,
        *entry.definition.mcp_servers.values(),
        entry.definition.tools,
    ]
    assert all(
        secret not in text(value)
        for value in [*outputs, entry.definition.install, expand_text("${S}", {"S": secret})]
        for text in (repr, str)
    )
    assert secret not in caplog.text


# --- switches that protect ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["ENABLE_ARGOCD", "ARGOCD_READ_ONLY"])
@pytest.mark.parametrize("value", ["ture", "readonly", "2"])
def test_a_switch_of_an_agent_that_is_neither_on_nor_off_is_refused(name: str, value: str) -> None:
    variables = {"ARGOCD_TOKEN": "t", "ARGOCD_API_URL": "https://cd", name: value}
    with pytest.raises(ConfigurationError, match=f"{name}: a switch is one of"):
        load_catalog(variables, agents_config=None)


@pytest.mark.parametrize(
    ("value", "passed"), [("1", "true"), ("YES", "true"), ("off", "false"), ("0", "false")]
)
def test_a_server_gets_a_switch_in_one_form(value: str, passed: str) -> None:
    """argocd-mcp takes anything but `true` for no."""
    variables = {"ARGOCD_TOKEN": "t", "ARGOCD_API_URL": "https://cd", "ARGOCD_READ_ONLY": value}
    entry = load_catalog(variables, agents_config=None).get("argocd")
    assert entry is not None
    assert entry.definition.mcp_servers["argocd"].env["MCP_READ_ONLY"] == passed


def test_a_misspelled_switch_is_told(caplog: pytest.LogCaptureFixture) -> None:
    variables = {"ENABLE_ARGCD": "false", "ENABLE_SOMETHING_ELSE": "1", "ENABLE_RAG": "true"}
    load_placed_catalog(Settings.from_variables(variables), variables)
    assert "ENABLE_ARGCD belongs to no agent. Did you mean ENABLE_ARGOCD?" in caplog.text
    assert "SOMETHING_ELSE" not in caplog.text


@pytest.mark.parametrize(
    ("token", "uses_oauth", "headers"),
    [("", True, {"X-Tenant": "t"}), ("secret", False, {"Authorization": "Bearer secret", "X-Tenant": "t"})],
)
def test_a_token_that_is_set_takes_the_place_of_a_sign_in(
    token: str, uses_oauth: bool, headers: dict[str, str]
) -> None:
    server = "    url: https://x.example/mcp\n    auth: oauth\n    headers:\n      X-Tenant: t\n"
    text = f"{GOOD}mcpServers:\n  x:\n{server}      Authorization: Bearer ${{X_TOKEN:-}}\n"
    [entry] = load_files({"foo.yaml": text}, {"X_TOKEN": token})
    server_definition = entry.definition.mcp_servers["x"]
    assert (server_definition.oauth is not None) == uses_oauth
    assert server_definition.sent_headers == headers
