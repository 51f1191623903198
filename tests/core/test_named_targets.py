"""The hosts that people name, those that an operator allows, and what a call with targets may do."""

from typing import Any

import pytest

from ai_platform_engineering.core.agent_definition import ToolPolicy
from ai_platform_engineering.core.call_targets import CallTargets, TargetKind
from ai_platform_engineering.core.host_patterns import AllowedHosts, canonical_host
from ai_platform_engineering.core.named_targets import MAX_TEXT, NamedTargets
from ai_platform_engineering.core.policy import PolicyDecision, decide_targets
from ai_platform_engineering.core.port_ranges import parse_ports

NOBODY = AllowedHosts()
REQUEST: dict[str, TargetKind] = {"url": "url", "method": "method", "headers": "data", "body": "data"}


@pytest.mark.parametrize(
    ("text", "host"),
    [
        (" Example.COM. ", "example.com"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("_sip._tcp.example.com", "_sip._tcp.example.com"),
        ("127.1", "127.0.0.1"),
        ("0x7f000001", "127.0.0.1"),
        ("2130706433", "127.0.0.1"),
        ("::ffff:10.0.0.5", "10.0.0.5"),
        ("[::1]", "::1"),
        ("fe80::1%eth0", "fe80::1"),
        ("two words", None),
        ("10.0.0.0/24", None),
        ("user@example.com", None),
        ("", None),
        ("a" * 64 + ".example", None),
    ],
)
def test_a_host_has_one_form(text: str, host: str | None) -> None:
    assert canonical_host(text) == host


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("Is port 22 open on 10.0.0.5?", "10.0.0.5"),
        ("Check 10.0.0.5:443, please.", "10.0.0.5"),
        ("Is (example.com) up?", "example.com"),
        ("look at https://api.example.com:8443/health?x=1.", "api.example.com"),
        ("see <https://example.com/a|this>", "example.com"),
        ("ist bücher.example da?", "xn--bcher-kva.example"),
        ("is 2001:db8::5 up", "2001:db8::5"),
        ("is http://[2001:db8::5]:80/ up", "2001:db8::5"),
        ("postgres on db01", "db01"),
        ("is LOCALHOST up", "localhost"),
    ],
)
def test_a_person_names_a_host(text: str, host: str) -> None:
    assert host in NamedTargets.from_texts([text]).hosts


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("What does 10.0.0.5/24 contain?", "10.0.0.5"),
        ("Write to admin@example.com.", "example.com"),
        ("Read https://example.com/?next=evil.example", "evil.example"),
        ("Read https://evil.example@example.com/", "evil.example"),
        ("Is a.example.com up?", "example.com"),
        ("Is example.com up?", "a.example.com"),
        ("Is 110.0.0.5 up?", "10.0.0.5"),
        ("port 2130706433", "127.0.0.1"),
        ("x" * MAX_TEXT + " 10.0.0.5", "10.0.0.5"),
    ],
)
def test_what_does_not_name_a_host(text: str, host: str) -> None:
    assert host not in NamedTargets.from_texts([text]).hosts


def test_what_travels_with_a_delegation() -> None:
    """Whole names and addresses do; of single words those that the delegation has, too."""
    named = NamedTargets.from_texts(["Is db01 or web02 up? Our secret word is swordfish. And 10.0.0.5?"])
    sent = named.to_data("Check db01.")
    assert sent["hosts"] == ["10.0.0.5", "db01"]
    assert NamedTargets.from_data(sent).hosts == {"10.0.0.5", "db01"}


@pytest.mark.parametrize("data", [None, [], "x", {"hosts": "10.0.0.5"}, {"hosts": [{}, 1]}, {"urls": 5}])
def test_what_is_not_understood_names_nothing(data: Any) -> None:
    assert NamedTargets.from_data(data) == NamedTargets()


def test_an_allow_list() -> None:
    allowed = AllowedHosts.parse(["db.example.com", "*.corp.example", "10.0.0.0/8", "192.168.0.7"])
    yes = ["db.example.com", "a.corp.example", "a.b.corp.example", "10.1.2.3", "192.168.0.7"]
    no = ["example.com", "x.db.example.com", "corp.example", "evilcorp.example", "11.0.0.1", "192.168.0.8"]
    assert [host for host in [*yes, *no] if allowed.has_host(host)] == yes


@pytest.mark.parametrize("pattern", ["*", "*.*", "a b", "*example.com", "10.0.0.0/33", "https://x.example/"])
def test_a_pattern_that_is_not_understood_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="is neither a host name"):
        AllowedHosts.parse([pattern])


@pytest.mark.parametrize(
    "arguments",
    [
        {"url": "http://good.example\\@evil.example/"},
        {"url": "http://good.example /"},
        {"url": "http://evil.example#@good.example/"},
        {"url": "http://good.example@evil.example/"},
        {"url": ["http://good.example/", "http://evil.example/"]},
        {"url": {"href": "http://evil.example/"}},
        {"url": 5},
    ],
)
def test_a_url_that_goes_elsewhere_is_not_named(arguments: dict[str, Any]) -> None:
    named = NamedTargets.from_texts(["Is http://good.example/ up?"])
    targets = CallTargets.of(REQUEST, arguments)
    assert decide_targets(targets, named, NOBODY, read_only=False).permission == "ask"


@pytest.mark.parametrize(
    ("arguments", "permission"),
    [
        ({"url": "https://example.com/health"}, "allow"),
        ({"url": "https://EXAMPLE.com./health", "method": "head"}, "allow"),
        ({"url": "https://example.com/?q=written"}, "allow"),
        ({"url": "https://example.com/?q=chosen"}, "ask"),
        ({"url": "https://example.com/" + "x" * 127}, "allow"),
        ({"url": "https://example.com/" + "x" * 128}, "ask"),
        ({"url": "https://example.com/", "method": "POST"}, "ask"),
        ({"url": "https://example.com/", "body": "data"}, "ask"),
        ({"url": "https://example.com/", "headers": {"X-Data": "data"}}, "ask"),
        ({"url": "https://example.com/", "headers": {}, "body": None}, "allow"),
    ],
)
def test_what_a_call_carries(arguments: dict[str, Any], permission: str) -> None:
    named = NamedTargets.from_texts(["Is https://example.com/?q=written up?"])
    targets = CallTargets.of(REQUEST, arguments)
    assert decide_targets(targets, named, NOBODY, read_only=False).permission == permission
    strict = "allow" if permission == "allow" else "deny"
    assert decide_targets(targets, named, NOBODY, read_only=True).permission == strict


def test_decisions_are_combined() -> None:
    allow = PolicyDecision("allow")
    ask = PolicyDecision("ask", "Because.")
    ask_host = PolicyDecision("ask", "Nobody named it.", "10.0.0.5")
    deny = PolicyDecision("deny", "Never.")
    assert allow.combine(ask_host) == ask_host
    assert ask.combine(ask_host) == PolicyDecision("ask", "Because. Nobody named it.", "10.0.0.5")
    assert ask.combine(deny) == deny == deny.combine(ask_host)


def test_a_definition_names_the_targets_of_other_servers() -> None:
    policy = ToolPolicy.model_validate({"targets": {"fetch_*": {"url": "url"}}})
    assert policy.find_targets("fetch_page") == {"url": "url"}
    assert policy.find_targets("other") is None
    with pytest.raises(ValueError, match="targets"):
        ToolPolicy.model_validate({"targets": {"fetch": {"url": "adress"}}})


@pytest.mark.parametrize(
    ("ports", "count"),
    [
        (443, 1),
        ("22,80,443", 3),
        ("1-100", 100),
        ([1, 2, 2], 2),
        ("1-65535," * 10_000 + "1", 65535),
        ("x", 1),
    ],
)
def test_ports_are_counted(ports: Any, count: int) -> None:
    assert CallTargets.of({"port": "ports"}, {"port": ports}).ports == count


def test_ports_are_read_in_order_and_once() -> None:
    assert parse_ports("443, 22 - 24,443", limit=10) == (443, 22, 23, 24)
