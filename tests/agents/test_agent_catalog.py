"""Agents as data: what may be written, where it may stand, and that every mistake is told with its file and
line."""

import json
import logging
import os
import secrets
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ai_platform_engineering.agents.definition_reader import derive_agent_name
from ai_platform_engineering.core.agent_definition import AgentDefinition
from tests.support.agent_files import GOOD, load_files, load_problems

# What may be written


def test_a_definition_may_use_every_key(tmp_path: Path) -> None:
    text = """\
# comments are welcome
name: my-agent
title: My agent
description: Does things.
prompt: |
  First line.
  Second line.
mcpServers:
  one:
    type: stdio
    command: tool
    args: [-v, 3]
    env: {PORT: 8080, DEBUG: true, NAME: x}
    cwd: work
    sandbox: {read: [data, "${NOT_SET:-}"], write: [/var/cache/tool], network: false}
  two:
    type: http
    url: https://tools.example/mcp
    headers: {Authorization: Bearer x}
    auth: {type: oauth, owner: installation, client_id: "${NOT_SET:-}", scopes: [read]}
url: https://agent.example/
tools:
  {allow: ["get_*"], ask: [put], deny: [get_secret], read: ["get_*"], idempotent: [put], poll: [get_state],
   targets: {"get_*": {url: url}}}
requires: []
examples: ["What is new?"]
model: openai:gpt-5-mini
install: {pip: [tool==1.0], python: "3.12"}
check: {tool: get_state, arguments: {limit: 1}}
"""
    entry = load_files({"all.yaml": text}).get("my-agent")
    assert entry
    assert set(AgentDefinition.model_fields) == entry.definition.model_fields_set
    assert entry.definition.model_dump(by_alias=True) == {
        "name": "my-agent",
        "title": "My agent",
        "description": "Does things.",
        "prompt": "First line.\nSecond line.\n",
        "mcpServers": {
            "one": {
                "type": "stdio",
                "command": "tool",
                "args": ("-v", "3"),
                "env": {"PORT": "8080", "DEBUG": "true", "NAME": "x"},
                "cwd": str(tmp_path / "work"),
                "sandbox": {
                    "read": (str(tmp_path / "data"),),
                    "write": ("/var/cache/tool",),
                    "network": False,
                },
                "url": None,
                "headers": {},
                "auth": None,
                "sends_user": False,
            },
            "two": {
                "type": "http",
                "command": None,
                "args": (),
                "env": {},
                "cwd": None,
                "sandbox": {"read": (), "write": (), "network": True},
                "url": "https://tools.example/mcp",
                "headers": {"Authorization": "Bearer x"},
                "auth": {
                    "type": "oauth",
                    "owner": "installation",
                    "client_id": None,
                    "client_secret": None,
                    "scopes": ("read",),
                },
                "sends_user": False,
            },
        },
        "url": "https://agent.example/",
        "tools": {
            "allow": ("get_*",),
            "ask": ("put",),
            "deny": ("get_secret",),
            "read": ("get_*",),
            "idempotent": ("put",),
            "poll": ("get_state",),
            "targets": {"get_*": {"url": "url"}},
        },
        "requires": (),
        "examples": ("What is new?",),
        "model": "openai:gpt-5-mini",
        "install": {"pip": ("tool==1.0",), "npm": (), "python": "3.12"},
        "check": {"tool": "get_state", "arguments": {"limit": 1}},
    }
    assert (entry.source, entry.status, entry.from_server) == ("all.yaml:2", "ready", False)


def test_a_file_may_hold_a_list_and_another_one_definition_and_another_nothing() -> None:
    both = "- name: one\n  description: One.\n- description: Two.\n  name: two\n"
    catalog = load_files({"list.yaml": both, "one.yml": GOOD, "none.yaml": "# nothing yet\n"})
    assert [(entry.name, entry.source) for entry in catalog] == [
        ("one", "list.yaml:1"),
        ("two", "list.yaml:4"),
        ("demo", "one.yml:1"),
    ]


def test_json_is_read_with_tabs_escapes_and_a_byte_order_mark() -> None:
    text = '\ufeff{\n\t"name": "demo",\n\t"description": "a \\ud83d\\ude00 \\/ \\\\ud83d \\u00e9"\n}\n'
    catalog = load_files({"agent.json": text})
    assert [(definition.description, definition.name) for definition in catalog.ready] == [
        ("a \U0001f600 / \\ud83d é", "demo")
    ]


def test_definitions_may_share_parts_with_anchors() -> None:
    text = GOOD + (
        "mcpServers:\n  a:\n    command: x\n    env: &env {KEY: '${KEY}'}\n  b:\n    command: y\n "
        "   env: *env\n"
    )
    entry = load_files({"a.yaml": text}, {"KEY": "k"}).get("demo")
    assert entry
    assert [server.env for server in entry.definition.mcp_servers.values()] == [{"KEY": "k"}] * 2


# A plain mcp.json


def test_each_server_of_a_plain_mcp_json_becomes_an_agent() -> None:
    servers = {
        "My Files": {"command": "files", "args": ["/data"], "env": {"DEPTH": 3}},
        "docs": {
            "type": "http",
            "url": "https://docs.example/mcp",
            "headers": {"X-Key": "${DOCS_KEY}"},
            "description": "Our docs.",
        },
        "old": {"command": "old", "disabled": True},
    }
    catalog = load_files({"mcp.json": json.dumps({"mcpServers": servers}, indent=2)}, {"DOCS_KEY": "k"})
    files, docs, old = catalog.entries
    assert (files.name, files.definition.title, files.definition.description) == (
        "my-files",
        "My Files",
        "Works with the tools of the MCP server my-files.",
    )
    assert files.definition.mcp_servers["My Files"].env == {"DEPTH": "3"}
    assert (files.source, files.from_server, files.status) == ("mcp.json:3", True, "ready")
    assert (docs.name, docs.definition.description) == ("docs", "Our docs.")
    assert docs.definition.mcp_servers["docs"].headers == {"X-Key": "k"}
    assert (old.status, old.note) == ("disabled", "disabled at mcp.json:20")


def test_a_server_switched_off_in_mcp_json_can_be_switched_on() -> None:
    text = json.dumps({"mcpServers": {"old": {"command": "old", "disabled": True}}})
    assert [entry.status for entry in load_files({"mcp.json": text}, {"ENABLE_OLD": "true"})] == ["ready"]


@pytest.mark.parametrize(
    ("server", "agent"),
    [
        ("files", "files"),
        ("My Server", "my-server"),
        ("@scope/pkg.name", "scope-pkg-name"),
        ("snake_case", "snake_case"),
        ("7zip", "mcp-7zip"),
        ("task", "mcp-task"),
        ("--", ""),
        ("日本", ""),
    ],
)
def test_the_name_of_a_server_is_made_an_agents_name(server: str, agent: str) -> None:
    assert derive_agent_name(server) == agent


@given(st.text(max_size=30))
def test_every_made_name_is_allowed(server: str) -> None:
    if name := derive_agent_name(server):
        assert AgentDefinition(name=name, description="x").name == name


# Mistakes, with their places


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            GOOD + "promt: hello\n",
            ["foo.yaml:3: unknown key `promt`; did you mean `prompt`?"],
            id="unknown key",
        ),
        pytest.param(
            GOOD + "mcp_servers: {}\n",
            ["foo.yaml:3: unknown key `mcp_servers`; did you mean `mcpServers`?"],
            id="field name",
        ),
        pytest.param(
            GOOD + "tools:\n  allow: [a]\n  allways: [b]\n",
            ["foo.yaml:5: unknown key `allways`; did you mean `allow`?"],
            id="nested key",
        ),
        pytest.param(
            GOOD + "mcpServers:\n  x:\n    command: y\n    timeout: 3\n",
            [
                (
                    "foo.yaml:6: unknown key `timeout`; known are `args`, `auth`, `command`, `cwd`, `env`,"
                    " `headers`, `sandbox`, `sends_user`, `type`, `url`"
                ),
            ],
            id="key of a server",
        ),
        pytest.param(
            GOOD + "mcpServers:\n  x:\n    command: y\n    sandbox: {reed: [a]}\n",
            ["foo.yaml:6: unknown key `reed`; did you mean `read`?"],
            id="key of a sandbox",
        ),
        pytest.param(
            GOOD + "mcpServers:\n  x:\n    url: y\n    auth: {client-id: a}\n",
            ["foo.yaml:6: unknown key `client-id`; did you mean `client_id`?"],
            id="key of auth",
        ),
        pytest.param(
            GOOD + "mcpServers:\n  x:\n    url: y\n    auth: basic\n",
            ["foo.yaml:6: `auth` is `oauth`, or a mapping with `type: oauth`"],
            id="another kind of auth",
        ),
        pytest.param(
            GOOD + "mcpServers:\n  x:\n    command: y\n    auth: oauth\n",
            ["foo.yaml:4: `auth` goes with `url`"],
            id="auth of a command",
        ),
        pytest.param(
            GOOD + "install: {pipx: [a], npm: [b]}\n",
            ["foo.yaml:3: unknown key `pipx`; did you mean `pip`?"],
            id="key of install",
        ),
        pytest.param("name: demo\n", ["foo.yaml:1: the key `description` is missing"], id="missing key"),
        pytest.param("# c\n\ndescription: d\n", ["foo.yaml:1: the key `name` is missing"], id="missing name"),
        pytest.param(
            "name: demo\ndescription: 5\n",
            ["foo.yaml:2: `description` must be text; numbers, true and false need quotes"],
            id="number for text",
        ),
        pytest.param(
            GOOD + "prompt:\n",
            ["foo.yaml:3: `prompt` must be text; numbers, true and false need quotes"],
            id="nothing for text",
        ),
        pytest.param(
            GOOD + "examples: one\n", ["foo.yaml:3: `examples` must be a list"], id="text for a list"
        ),
        pytest.param(
            GOOD + "examples:\n  - one\n  - 2\n",
            ["foo.yaml:5: every item of `examples` must be text; numbers, true and false need quotes"],
            id="number in a list",
        ),
        pytest.param(
            GOOD + "tools: [a]\n",
            ["foo.yaml:3: `tools` must be a mapping of keys and values"],
            id="list for a mapping",
        ),
        pytest.param(
            GOOD + "mcpServers:\n  x: y\n",
            ["foo.yaml:4: `x` must be a mapping of keys and values"],
            id="text for a server",
        ),
        pytest.param(
            GOOD + "mcpServers: []\n",
            ["foo.yaml:3: `mcpServers` must be a mapping of keys and values"],
            id="list of servers",
        ),
        pytest.param(
            GOOD + "mcpServers:\n  x:\n    args: [a]\n",
            ["foo.yaml:4: a server needs either `command` or `url`"],
            id="neither command nor url",
        ),
        pytest.param(
            GOOD + "mcpServers:\n  x: {command: a, url: b}\n",
            ["foo.yaml:4: a server needs either `command` or `url`"],
            id="command and url",
        ),
        pytest.param(
            GOOD + "mcpServers:\n  x: {command: a, type: http}\n",
            ["foo.yaml:4: `type: stdio` goes with `command`, the other types go with `url`"],
            id="type against command",
        ),
        pytest.param(
            GOOD + "mcpServers:\n  x:\n    url: a\n    type: sse\n",
            ["foo.yaml:6: `type`: should be 'stdio', 'http' or 'streamable-http'"],
            id="unknown type",
        ),
        pytest.param(
            GOOD + "mcpServers:\n  x:\n    command: a\n    env:\n      KEY:\n",
            ["foo.yaml:7: `KEY` must be text"],
            id="empty env",
        ),
        pytest.param(
            GOOD + "install: {}\n",
            ["foo.yaml:3: `install` needs either `pip` or `npm`, a list of packages"],
            id="empty install",
        ),
        pytest.param(
            GOOD + "requires:\n  - OK|FINE\n  - not ok\n",
            ["foo.yaml:5: `requires` lists names of variables, alternatives as `A|B`"],
            id="bad requirement",
        ),
        pytest.param(
            "name: My Agent\ndescription: d\n",
            [
                (
                    "foo.yaml:1: an agent's name is made of a-z, 0-9, _ and -, and starts with a"
                    " letter; 'My Agent' is not"
                )
            ],
            id="bad name",
        ),
        pytest.param(
            "description: d\nname: task\n",
            ["foo.yaml:2: 'task' is reserved; choose another name"],
            id="reserved name",
        ),
        pytest.param(
            "name: ${X}\ndescription: d\n",
            ["foo.yaml:1: an agent's name is made of"],
            id="variable as a name",
        ),
        pytest.param(
            GOOD + "title: a\ntitle: b\n",
            ["foo.yaml:4: `title` is written twice; the first is on line 3"],
            id="key twice",
        ),
        pytest.param(GOOD + "? [a]\n: b\n", ["foo.yaml:3: a key must be text"], id="odd key"),
        pytest.param(
            GOOD + "title: !secret abc\n",
            ["foo.yaml:3: a value that YAML does not accept unquoted; put it in quotes"],
            id="tag",
        ),
        pytest.param(
            GOOD + "examples: &a [*a]\n",
            ["foo.yaml:3: is not valid YAML: a value contains itself"],
            id="cycle",
        ),
        pytest.param(
            "just text\n",
            ["foo.yaml:1: an agent's definition must be a mapping of keys and values"],
            id="text alone",
        ),
        pytest.param(
            "- name: a\n  description: b\n- 3\n",
            ["foo.yaml:3: an agent's definition must be a mapping"],
            id="number in the list",
        ),
        pytest.param(
            "name: demo\n  description: d\n", ["foo.yaml:2: is not valid YAML: "], id="invalid YAML"
        ),
        pytest.param("name: [a\n", ["foo.yaml:2: is not valid YAML: "], id="open bracket"),
        pytest.param("name: demo\x00\n", ["foo.yaml:1: is not valid YAML: "], id="control character"),
        pytest.param("a: b\n---\nc: d\n", ["foo.yaml:2: is not valid YAML: "], id="two documents"),
        pytest.param(
            '{"name": "demo"\n "description": "d"}', ["foo.yaml:2: is not valid YAML: "], id="invalid JSON"
        ),
        pytest.param(
            GOOD + "prompt: |\n  fine ${OK}\n  broken ${0}\n",
            [
                (
                    "foo.yaml:5: `${` must be followed by the name of a variable; write `$${` for the"
                    " characters themselves"
                )
            ],
            id="bad reference",
        ),
        pytest.param(
            GOOD + "title: ${A:-x\n", ["foo.yaml:3: `${` is not closed by `}`"], id="open reference"
        ),
        pytest.param(
            GOOD + "title: ${input:key}\n",
            ["foo.yaml:3: a variable is written `${NAME}` or `${NAME:-default}`"],
            id="other client",
        ),
    ],
)
def test_a_mistake_is_told_with_file_and_line(text: str, expected: list[str]) -> None:
    messages = load_problems({"foo.yaml": text})
    assert len(messages) == len(expected)
    assert all(line.startswith(start) for line, start in zip(messages, expected, strict=True)), messages


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            '{"mcpServers": {\n"x": {"command": "a", "autoApprove": []}}}',
            "mcp.json:2: unknown key `autoApprove`;",
            id="server",
        ),
        pytest.param(
            '{"mcpServers": {},\n"inputs": []}',
            "mcp.json:2: unknown key `inputs`; known are `mcpServers`",
            id="top",
        ),
        pytest.param(
            '{\n"servers": {}}',
            "mcp.json:2: unknown key `servers`; did you mean `mcpServers`?",
            id="other client",
        ),
        pytest.param('{"mcpServers":\n []}', "mcp.json:1: `mcpServers` must be a mapping", id="list"),
        pytest.param('{"mcpServers": {\n"x": 3}}', "mcp.json:2: `x` must be a mapping", id="number"),
        pytest.param(
            '{"mcpServers": {\n"x": {}}}',
            "mcp.json:2: a server needs either `command` or `url`",
            id="empty server",
        ),
        pytest.param(
            '{"mcpServers": {\n"x": {"command": "a",\n"disabled": "no"}}}',
            "mcp.json:3: `disabled` must be true or false",
            id="off",
        ),
        pytest.param(
            '{"mcpServers": {\n"!": {"command": "a"}}}',
            "mcp.json:2: a server's name becomes an agent's name",
            id="name",
        ),
        pytest.param(
            '{"mcpServers": {\n"A b": {"command": "a"},\n"a-b": {"command": "b"}}}',
            "mcp.json:3: the name `a-b` is taken by the agent at mcp.json:2",
            id="same name",
        ),
    ],
)
def test_a_mistake_in_a_plain_mcp_json_is_told_too(text: str, expected: str) -> None:
    messages = load_problems({"mcp.json": text})
    assert any(line.startswith(expected) for line in messages), messages


def test_all_mistakes_of_all_files_are_told_together() -> None:
    files = {
        "a.yaml": GOOD + "promt: x\nexamples: y\n",
        "b.yaml": "name: [\n",
        "c.yaml": "- name: Bad\n  description: d\n- name: ok\n",
    }
    assert [line.split(": ")[0] for line in load_problems(files)] == [
        "a.yaml:3",
        "a.yaml:4",
        "b.yaml:2",
        "c.yaml:1",
        "c.yaml:3",
    ]


def test_a_name_that_is_taken_names_both_places() -> None:
    files = {"a.yaml": GOOD, "b.yaml": "# first\n" + GOOD}
    assert load_problems(files) == ["b.yaml:2: the name `demo` is taken by the agent at a.yaml:1"]


def test_two_names_with_the_same_variables_are_refused() -> None:
    text = "- {name: my-agent, description: a}\n- {name: my_agent, description: b}\n"
    assert load_problems({"a.yaml": text}) == [
        "a.yaml:2: the name `my_agent` has the same variables as `my-agent` at a.yaml:1"
    ]


@pytest.mark.parametrize(
    "broken",
    ["name: demo\ndescription: x\npromt: {}\n", "name: demo\ndescription: [{}\n", "title: *{}\n", "[{},\n"],
)
def test_no_mistake_quotes_a_value(broken: str) -> None:
    secret = secrets.token_hex(8)
    assert secret not in "\n".join(load_problems({"a.yaml": broken.format(secret)}))


# AGENTS_CONFIG


def test_a_folder_gives_its_yaml_and_json_files_in_order() -> None:
    files = {
        f"agents/{name}": f"name: {name[0]}\ndescription: d\n"
        for name in ("c.yml", "a.yaml", "d.txt", ".e.yaml", "sub/f.yaml")
    }
    catalog = load_files({**files, "agents/b.json": '{"name": "b", "description": "d"}'}, config="agents")
    assert [entry.source for entry in catalog] == ["agents/a.yaml:1", "agents/b.json:1", "agents/c.yml:1"]


def test_files_and_folders_are_joined_by_the_path_separator() -> None:
    files = {
        "one/a.yaml": "name: a\ndescription: d\n",
        "b.conf": "name: b\ndescription: d\n",
        "c.yaml": "name: c\ndescription: d\n",
    }
    config = os.pathsep.join(["one", " b.conf ", "", "c.yaml"])
    assert [entry.name for entry in load_files(files, config=config)] == ["a", "b", "c"]


def test_a_path_that_does_not_exist_is_told() -> None:
    assert load_problems({}, config="nowhere") == [
        "nowhere:1: AGENTS_CONFIG names it, and there is no such file or folder"
    ]


def test_a_file_that_is_not_text_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes(b"name: \xff\xfe\n")
    assert load_problems({}, config="a.yaml") == ["a.yaml:1: is not UTF-8 text"]


def test_a_folder_without_definitions_is_warned_about(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "empty").mkdir()
    assert load_files({}, config="empty").entries == ()
    assert "AGENTS_CONFIG: empty holds no file" in caplog.text


def test_a_definition_replaces_the_shipped_one_of_its_name(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        catalog = load_files({"mine.yaml": "name: github\ndescription: Ours.\n"}, shipped=True)
    names_found = [entry.name for entry in catalog]
    assert names_found.count("github") == 1
    assert names_found == sorted(names_found)
    mine = catalog.get("github")
    assert mine
    assert (mine.source, mine.definition.mcp_servers, mine.status) == ("mine.yaml:1", {}, "ready")
    assert "Agent github from mine.yaml:1 replaces the shipped one" in caplog.text


def test_our_own_servers_run_with_our_own_python() -> None:
    text = (
        GOOD + "mcpServers:\n  ours: {command: python, args: [-m, ai_platform_engineering.mcp_servers.x]}\n"
    )
    [definition] = load_files({"a.yaml": text + "  theirs: {command: python, args: [-m, other.x]}\n"}).ready
    assert [server.command for server in definition.mcp_servers.values()] == [sys.executable, "python"]
