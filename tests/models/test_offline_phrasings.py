"""Phrasings of questions, and the agent, tool and arguments that the offline model finds for them."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage

from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.models.offline_model import OfflineModel, reply
from ai_platform_engineering.multi_agents.platform_engineer.deep_agent import PlatformEngineerDeepAgent
from tests.conftest import ROOT
from tests.support.offline_tools import Recorder

Calls = list[tuple[str, str, dict[str, Any]]]


def port(host: str, number: int) -> tuple[str, str, dict[str, Any]]:
    return "netutils", "check_port", {"host": host, "port": number}


def net(tool: str, **arguments: Any) -> tuple[str, str, dict[str, Any]]:
    return "netutils", tool, arguments


def issue(key: str) -> tuple[str, str, dict[str, Any]]:
    return "jira", "get_issue", {"issue_key": key}


CERTIFICATE = net("tls_certificate", host="example.com")
PHRASINGS: list[tuple[str, Calls]] = [
    ("is port 8000 open on localhost?", [port("localhost", 8000)]),
    ("Is example.com:443 reachable?", [port("example.com", 443)]),
    ("is example.com reachable?", [port("example.com", 443)]),
    ("ping 192.0.2.7", [port("192.0.2.7", 443)]),
    ("ping db01:5432", [port("db01", 5432)]),
    ("dig example.com mx", [net("dns_lookup", name="example.com", record_type="MX")]),
    ("nslookup example.com", [net("dns_lookup", name="example.com")]),
    ("nslookup 192.0.2.7", [net("reverse_dns", address="192.0.2.7")]),
    ("curl https://example.com/health", [net("http_check", url="https://example.com/health")]),
    ("curl -I example.com", [net("http_check", url="https://example.com")]),
    ("is 192.0.2.7 a private address?", [net("ip_info", address="192.0.2.7")]),
    ("can I connect to db01 on port 5432?", [port("db01", 5432)]),
    ("is ssh open on db01?", [port("db01", 22)]),
    (
        "ports 80, 443 and 8080 on a.example.com",
        [port("a.example.com", 80), port("a.example.com", 443), port("a.example.com", 8080)],
    ),
    (
        "port 80 on a.example.com and 22 on b.example.com",
        [port("a.example.com", 80), port("b.example.com", 22)],
    ),
    ("does [::1]:8080 accept connections?", [port("::1", 8080)]),
    ('is "localhost" listening on port 22', [port("localhost", 22)]),
    ("check_port host=localhost port=22", [port("localhost", 22)]),
    ("Check whether TCP port 8000 is open on localhost. Report the result.", [port("localhost", 8000)]),
    ("We have an outage. Is port 5432 open on 10.0.0.5?", [port("10.0.0.5", 5432)]),
    ("resolve example.com", [net("dns_lookup", name="example.com")]),
    ("what is the IP address of example.com?", [net("dns_lookup", name="example.com")]),
    ("MX records of example.com", [net("dns_lookup", name="example.com", record_type="MX")]),
    ("Which mail servers does example.com have?", [net("dns_lookup", name="example.com", record_type="MX")]),
    ("nameservers of example.com", [net("dns_lookup", name="example.com", record_type="NS")]),
    ("IPv6 address of example.com", [net("dns_lookup", name="example.com", record_type="AAAA")]),
    (
        "look up a.example.com and b.example.com",
        [net("dns_lookup", name="a.example.com"), net("dns_lookup", name="b.example.com")],
    ),
    ("resolve jira.example.com", [net("dns_lookup", name="jira.example.com")]),
    ("reverse lookup of 192.0.2.7", [net("reverse_dns", address="192.0.2.7")]),
    ("which name does 192.0.2.7 have?", [net("reverse_dns", address="192.0.2.7")]),
    ("PTR record for 192.0.2.7", [net("reverse_dns", address="192.0.2.7")]),
    ("what kind of address is 2001:db8::1?", [net("ip_info", address="2001:db8::1")]),
    ("is 10.1.2.3 private?", [net("ip_info", address="10.1.2.3")]),
    ("is https://example.com/health up?", [net("http_check", url="https://example.com/health")]),
    ("is the site example.com up?", [net("http_check", url="https://example.com")]),
    ("does the web server on 127.0.0.1:9000 respond?", [net("http_check", url="http://127.0.0.1:9000")]),
    ("when does the certificate of example.com expire?", [net("tls_certificate", host="example.com")]),
    ("check TLS on example.com:8443", [net("tls_certificate", host="example.com", port=8443)]),
    (
        "ssl cert of a.example.com and b.example.com",
        [net("tls_certificate", host=f"{label}.example.com") for label in "ab"],
    ),
    ("what does 10.0.0.0/22 contain?", [net("cidr_info", cidr="10.0.0.0/22")]),
    ("how many hosts fit in 192.168.0.0/28?", [net("cidr_info", cidr="192.168.0.0/28")]),
    ("is 10.0.1.5 in 10.0.0.0/22?", [net("cidr_info", cidr="10.0.0.0/22", contains="10.0.1.5")]),
    ("2001:db8::/32", [net("cidr_info", cidr="2001:db8::/32")]),
    ("do 10.0.0.0/8 and 10.1.0.0/16 overlap?", [net("subnet_overlap", a="10.0.0.0/8", b="10.1.0.0/16")]),
    (
        "is there a conflict between 10.0.0.0/24 and 10.0.0.128/25?",
        [net("subnet_overlap", a="10.0.0.0/24", b="10.0.0.128/25")],
    ),
    (
        "1. resolve example.com 2. is port 22 open on localhost?",
        [net("dns_lookup", name="example.com"), port("localhost", 22)],
    ),
    (
        "- resolve example.com\n- is port 22 open on localhost?",
        [net("dns_lookup", name="example.com"), port("localhost", 22)],
    ),
    (
        "is port 22 open on these?\n\na.example.com\n10.0.0.5\n",
        [port("a.example.com", 22), port("10.0.0.5", 22)],
    ),
    ("Is port 80 open on example.com? And 443?", [port("example.com", 80), port("example.com", 443)]),
    ("resolve example.com; check its certificate", [net("dns_lookup", name="example.com"), CERTIFICATE]),
    (
        "the DNS records and the certificate of example.com",
        [net("dns_lookup", name="example.com"), CERTIFICATE],
    ),
    ("which apps are out of sync?", [("argocd", "list_applications", {})]),
    ("list the first 5 argocd applications", [("argocd", "list_applications", {"limit": 5})]),
    ("show the application guestbook", [("argocd", "get_application", {"application_name": "guestbook"})]),
    ("is guestbook in sync?", [("argocd", "get_application", {"application_name": "guestbook"})]),
    (
        "sync history of the application guestbook",
        [("argocd", "get_application", {"application_name": "guestbook"})],
    ),
    (
        "please sync the application guestbook",
        [("argocd", "sync_application", {"application_name": "guestbook"})],
    ),
    ("show OPS-12", [issue("OPS-12")]),
    ("what is the state of the tickets OPS-3 and OPS-4?", [issue("OPS-3"), issue("OPS-4")]),
    ("search issues for login failure", [("jira", "search_issues", {"query": "login failure"})]),
    (
        'find closed tickets about "disk full"',
        [("jira", "search_issues", {"query": "disk full", "status": "closed"})],
    ),
    (
        'open a ticket in project OPS summary="disk full"',
        [("jira", "create_issue", {"project": "OPS", "summary": "disk full"})],
    ),
    ("list argocd applications and show ticket OPS-9", [("argocd", "list_applications", {}), issue("OPS-9")]),
]


@pytest.mark.sample(32)
@pytest.mark.parametrize(("question", "expected"), PHRASINGS, ids=[question for question, _ in PHRASINGS])
async def test_a_question_reaches_the_right_tool_with_the_right_arguments(
    question: str, expected: Calls
) -> None:
    recorder = Recorder()
    supervisor = PlatformEngineerDeepAgent(
        Settings.from_variables({}),
        agents=recorder.agents("netutils", "argocd", "jira"),
        model=OfflineModel(),
    )

    result = await (await supervisor.graph()).ainvoke({"messages": [HumanMessage(question)]})

    assert sorted(recorder.calls, key=repr) == sorted(expected, key=repr)
    assert all(token in result["messages"][-1].text for token in recorder.tokens), (
        "the answer holds what the tools returned"
    )


@pytest.mark.parametrize(
    "question",
    [
        "sync history of guestbook",
        "is guestbook in sync?",
        "sync guestbook?",
        "show the status and sync history of the application guestbook",
        "did somebody delete the application guestbook?",
        "what would delete the application guestbook?",
        "why was the application guestbook deleted",
        "deploy status of guestbook",
    ],
)
async def test_a_question_never_changes_anything(question: str) -> None:
    recorder = Recorder()
    agent = create_agent(OfflineModel(), tools=list(recorder.tools("argocd")))

    await agent.ainvoke({"messages": [HumanMessage(question)]})

    assert {tool for _, tool, _ in recorder.calls} <= {"list_applications", "get_application"}


@pytest.mark.parametrize(
    "order",
    [
        "restart the application guestbook",
        "please roll out and scale guestbook",
        "rename the application guestbook",
    ],
)
async def test_an_order_that_no_tool_can_carry_out_is_refused_and_not_read_as_a_question(order: str) -> None:
    recorder = Recorder()
    agent = create_agent(OfflineModel(), tools=list(recorder.tools("argocd")))

    result = await agent.ainvoke({"messages": [HumanMessage(order)]})

    assert recorder.calls == []
    assert "I cannot do this" in result["messages"][-1].text


@pytest.mark.parametrize(
    ("name", "reads"),
    [
        ("pods_exec", False),
        ("gitlab_set_variable", False),
        ("get_or_create_label", False),
        ("push_files", False),
        ("comment_on_issue", False),
        ("resources_create_or_update", False),
        ("resolve_incident", False),
        ("pods_delete", False),
        ("issue_write", False),
        ("pods_log", True),
        ("workflow_runs_list", True),
        ("issue_comment_list", True),
        ("resolve_host_name", True),
        ("argocd_list_sync_windows", True),
        ("get_deployment", True),
        ("updates", True),
    ],
)
def test_a_tool_that_changes_something_is_known_by_its_name(name: str, reads: bool) -> None:
    tools = [
        {
            "type": "function",
            "function": {"name": name, "description": "", "parameters": {"type": "object", "properties": {}}},
        }
    ]

    model_reply = reply([HumanMessage(f"what about the {name.replace('_', ' ')}?")], tools)

    assert [call.name for call in model_reply.calls] == ([name] if reads else [])


def test_the_examples_of_the_shipped_agents_reach_their_agents() -> None:
    definitions = [
        yaml.safe_load(path.read_text("utf-8"))
        for path in sorted((Path(ROOT) / "ai_platform_engineering" / "agents").glob("*.yaml"))
    ]
    lines = list[str]()
    examples = list[tuple[str, str]]()
    for definition in definitions:
        agent_examples = definition.get("examples") or ()
        lines.append(
            f"- {definition['name']}: {definition['description']} Examples: {' | '.join(agent_examples)}"
        )
        examples += [(definition["name"], example) for example in agent_examples]
    offered = "\n".join(lines)
    tools = [
        {"type": "function", "function": {"name": "task", "description": f"Delegate. Agents:\n{offered}"}}
    ]

    missed = dict[str, set[str]]()
    for name, example in examples:
        agents = {call.arguments["subagent_type"] for call in reply([HumanMessage(example)], tools).calls}
        if agents != {name}:
            missed[example] = agents

    # The first names another product as well, the second speaks of spaces as Confluence does.
    assert missed == {
        "Which incidents are open in Splunk On-Call?": {"splunk"},
        "Which spaces am I in that are about incidents?": {"confluence"},
    }
