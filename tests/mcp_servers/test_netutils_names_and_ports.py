"""The netutils MCP server on names and ports, with a DNS server of the test and ports on loopback; and what
it says without a network.
"""

import asyncio
import secrets
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conftest import take_violations
from tests.support.fakes.network import Web, closed_port, dns_server, open_port, silent_port
from tests.support.netutils_client import LIMIT, NetutilsClient, ToolAnswer, start_server

BEYOND = "93.184.215.14"  # an address of the internet; the guard stops what goes there


@pytest.fixture(scope="module")
def netutils(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NetutilsClient]:
    with start_server(tmp_path_factory.mktemp("netutils")) as served:
        yield served


@pytest.fixture(scope="module")
def resolving(tmp_path_factory: pytest.TempPathFactory, name_server: str) -> Iterator[NetutilsClient]:
    """A server whose operator has set the DNS server of the test."""
    with start_server(tmp_path_factory.mktemp("resolving"), NETWORK_DNS_SERVERS=name_server) as served:
        yield served


# Names


@pytest.fixture(scope="module")
def address_of_www() -> str:
    return f"203.0.113.{secrets.randbelow(254) + 1}"


@pytest.fixture(scope="module")
def name_server(address_of_www: str) -> Iterator[str]:
    zone = {
        ("www.example.test", "A"): [address_of_www, "203.0.113.255"],
        ("www.example.test", "AAAA"): ["2001:db8::5"],
        ("alias.example.test", "CNAME"): ["middle.example.test."],
        ("middle.example.test", "CNAME"): ["www.example.test."],
        ("example.test", "MX"): ["10 mx1.example.test.", "20 mx2.example.test."],
        ("example.test", "NS"): ["ns1.example.test."],
        ("example.test", "TXT"): ['"v=spf1 " "-all"', '"\\027[31mred\\226\\128\\174"'],
        ("example.test", "SOA"): ["ns1.example.test. admin.example.test. 7 3600 600 86400 300"],
        ("example.test", "CAA"): ['0 issue "ca.example.test"'],
        ("_sip._tcp.example.test", "SRV"): ["1 5 5060 sip.example.test."],
        ("long.example.test", "TXT"): [f'"{secrets.token_hex(100)}"' for _ in range(20)],
        ("many.example.test", "A"): [f"198.18.{number // 250}.{number % 250}" for number in range(130)],
        ("7.113.0.203.in-addr.arpa", "PTR"): ["seven.example.test."],
        ("5.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa", "PTR"): [
            "five.example.test."
        ],
    }
    with dns_server(zone) as server:
        yield server


def values(answer: ToolAnswer) -> set[str]:
    return {record["value"] for record in answer.data["records"]}


def test_addresses_come_with_their_time_to_live(
    resolving: NetutilsClient, name_server: str, address_of_www: str
) -> None:
    answer = resolving.call("dns_lookup", name="www.example.test")
    assert values(answer) == {address_of_www, "203.0.113.255"}
    assert {record["ttl"] for record in answer.data["records"]} == {321}
    assert (answer.data["source"], answer.data["server"], answer.failed) == ("dns", name_server, False)
    assert address_of_www in answer.line
    assert name_server in answer.line


@pytest.mark.parametrize(
    ("name", "record_type", "expected"),
    [
        ("www.example.test", "AAAA", [{"value": "2001:db8::5"}]),
        ("alias.example.test", "CNAME", [{"value": "middle.example.test"}]),
        (
            "example.test",
            "MX",
            [{"value": "mx1.example.test", "priority": 10}, {"value": "mx2.example.test", "priority": 20}],
        ),
        ("example.test", "NS", [{"value": "ns1.example.test"}]),
        (
            "_sip._tcp.example.test",
            "SRV",
            [{"value": "sip.example.test", "priority": 1, "weight": 5, "port": 5060}],
        ),
        ("example.test", "SOA", [{"value": "ns1.example.test. admin.example.test. 7 3600 600 86400 300"}]),
        ("example.test", "CAA", [{"value": '0 issue "ca.example.test"'}]),
        ("7.113.0.203.in-addr.arpa", "PTR", [{"value": "seven.example.test"}]),
        ("203.0.113.7", "PTR", [{"value": "seven.example.test"}]),
    ],
)
def test_each_type_of_record_is_read(
    resolving: NetutilsClient, name: str, record_type: str, expected: list[dict[str, Any]]
) -> None:
    answer = resolving.call("dns_lookup", name=name, record_type=record_type)
    wanted = [{"type": record_type, "ttl": 321, **record} for record in expected]
    assert sorted(answer.data["records"], key=lambda record: record["value"]) == wanted


def test_text_records_are_joined_and_stripped_of_control_characters(resolving: NetutilsClient) -> None:
    answer = resolving.call("dns_lookup", name="example.test", record_type="TXT")
    assert values(answer) == {"v=spf1 -all", "\ufffd[31mred\ufffd"}
    assert "\x1b" not in answer.everything


def test_aliases_are_followed_and_shown(resolving: NetutilsClient, address_of_www: str) -> None:
    answer = resolving.call("dns_lookup", name="alias.example.test")
    assert address_of_www in values(answer)
    assert answer.data["aliases"] == ["middle.example.test", "www.example.test"]


def test_any_asks_for_all_common_types(resolving: NetutilsClient) -> None:
    answer = resolving.call("dns_lookup", name="example.test", record_type="ANY")
    assert {record["type"] for record in answer.data["records"]} == {"MX", "NS", "TXT", "SOA", "CAA"}


def test_a_long_answer_comes_over_tcp(resolving: NetutilsClient) -> None:
    assert resolving.call("dns_lookup", name="long.example.test", record_type="TXT").data["total"] == 20


def test_a_very_long_list_is_cut_and_counted(resolving: NetutilsClient) -> None:
    answer = resolving.call("dns_lookup", name="many.example.test")
    assert (len(answer.data["records"]), answer.data["total"]) == (100, 130)
    assert "130 A records" in answer.line
    assert "and 122 more" in answer.line


def test_no_such_name_and_no_such_record_are_answers(resolving: NetutilsClient) -> None:
    absent = resolving.call("dns_lookup", name="nothing.example.test")
    assert (absent.failed, absent.data["status"], absent.data["records"]) == (False, "NXDOMAIN", [])
    assert "does not exist" in absent.line
    empty = resolving.call("dns_lookup", name="www.example.test", record_type="MX")
    assert (empty.failed, empty.data["status"], empty.data["records"]) == (False, "NOERROR", [])
    assert "has no MX records" in empty.line


@pytest.mark.parametrize("reason", ["SERVFAIL", "REFUSED"])
def test_a_server_that_refuses_is_an_error(resolving: NetutilsClient, reason: str) -> None:
    assert reason in resolving.call_and_fail("dns_lookup", name=f"{reason.lower()}.example.test")


def test_a_server_that_is_silent_is_given_up(resolving: NetutilsClient, name_server: str) -> None:
    text = resolving.call_and_fail("dns_lookup", name="silent.example.test", timeout=0.3)
    assert f"{name_server} did not answer within 0.3 s" in text


def test_the_name_of_an_address(resolving: NetutilsClient) -> None:
    answer = resolving.call("reverse_dns", address="203.0.113.7")
    assert values(answer) == {"seven.example.test"}
    assert "203.0.113.7 is seven.example.test" in answer.line
    assert values(resolving.call("reverse_dns", address="2001:db8::5")) == {"five.example.test"}
    unknown = resolving.call("reverse_dns", address="203.0.113.8")
    assert (unknown.failed, unknown.data["status"]) == (False, "NXDOMAIN")
    assert "not known by any name" in unknown.line


def test_localhost_works_without_dns(netutils: NetutilsClient) -> None:
    assert values(netutils.call("dns_lookup", name="localhost")) == {"127.0.0.1"}
    assert "127.0.0.1" in values(netutils.call("dns_lookup", name="my-app.localhost", record_type="ANY"))
    assert not netutils.call("dns_lookup", name="localhost", record_type="MX").failed
    assert netutils.call("reverse_dns", address="127.0.0.1").data["source"] == "system"
    assert len(values(netutils.call("reverse_dns", address="::1"))) == 1


# Without a network: the guard refuses what leaves this machine, as a machine without a network would


def test_a_name_that_cannot_be_looked_up_is_a_clear_error(netutils: NetutilsClient) -> None:
    name = f"{secrets.token_hex(4)}.invalid"
    for tool, arguments in (
        ("check_port", {"host": name, "port": 80}),
        ("http_check", {"url": f"http://{name}/"}),
        ("tls_certificate", {"host": name}),
    ):
        assert f"Cannot look up {name}" in netutils.call_and_fail(tool, **arguments)
    assert len([line for line in take_violations() if name in line]) == 3


def test_dns_without_a_network_gives_no_records(netutils: NetutilsClient) -> None:
    name = f"{secrets.token_hex(4)}.invalid"
    answer = netutils.call("dns_lookup", name=name, timeout=0.5)
    assert answer.data.get("records", []) == []
    assert (
        "Cannot look up" in answer.line or "no name server" in answer.line or "does not exist" in answer.line
    )
    assert take_violations()


def test_an_address_without_a_route_is_a_clear_error(netutils: NetutilsClient) -> None:
    assert f"{BEYOND} cannot be reached" in netutils.call_and_fail("check_port", host=BEYOND, port="80,443")
    assert f"{BEYOND}:443 cannot be reached" in netutils.call_and_fail("tls_certificate", host=BEYOND)
    assert "failed: not permitted on this machine" in netutils.call_and_fail(
        "http_check", url=f"http://{BEYOND}/"
    )
    assert len(take_violations()) == 4


# Ports


def test_open_closed_and_filtered_ports_are_told_apart(netutils: NetutilsClient) -> None:
    with open_port() as opened, closed_port() as closed, silent_port() as silent:
        answer = netutils.call("check_port", host="127.0.0.1", port=[opened, closed, silent], timeout=2)
    assert [(port["port"], port["state"]) for port in answer.data["ports"]] == [
        (opened, "open"),
        (closed, "closed"),
        (silent, "filtered"),
    ]
    assert answer.data["open"] == [opened]
    assert "of 3 ports 1 open" in answer.line


def test_one_port_is_told_in_a_sentence(netutils: NetutilsClient) -> None:
    with open_port() as opened, closed_port() as closed, silent_port() as silent:
        assert netutils.call("check_port", host="localhost", port=opened).line.startswith(
            f"Port {opened} on localhost (127.0.0.1) is open"
        )
        assert (
            "is closed: connection refused" in netutils.call("check_port", host="127.0.0.1", port=closed).line
        )
        assert (
            "is filtered: no answer within 0.2 s"
            in netutils.call("check_port", host="127.0.0.1", port=silent, timeout=0.2).line
        )


def test_a_hundred_ports_are_checked_at_once(netutils: NetutilsClient) -> None:
    with open_port() as port:
        first = max(1, min(port - 50, 65436))
        answer = netutils.call("check_port", host="127.0.0.1", port=f"{first}-{first + 99}")
    assert [entry["port"] for entry in answer.data["ports"]] == list(range(first, first + 100))
    assert port in answer.data["open"]


# Many calls


def test_many_calls_at_once_each_get_their_own_answer(resolving: NetutilsClient, address_of_www: str) -> None:
    site = Web(body=secrets.token_hex(8), secret="")
    with open_port() as opened, closed_port() as closed, silent_port() as silent, site.serving():
        round_of_calls: list[tuple[str, dict[str, Any]]] = [
            ("check_port", {"host": "127.0.0.1", "port": opened}),
            ("check_port", {"host": "127.0.0.1", "port": closed}),
            ("check_port", {"host": "127.0.0.1", "port": silent, "timeout": 1}),
            ("dns_lookup", {"name": "www.example.test"}),
            ("http_check", {"url": site.address("/hop/1")}),
            ("ip_info", {"address": "10.0.0.1"}),
        ]
        answers = resolving.calls(*(round_of_calls * 10))
    for start in range(0, len(answers), 6):
        is_open, is_closed, is_silent, name, page, address = answers[start : start + 6]
        assert [each.data["ports"][0]["state"] for each in (is_open, is_closed, is_silent)] == [
            "open",
            "closed",
            "filtered",
        ]
        assert address_of_www in values(name)
        assert page.data["preview"] == site.body
        assert address.data["address"] == "10.0.0.1"


def test_a_silent_port_does_not_hold_up_other_calls(netutils: NetutilsClient) -> None:
    async def race() -> bool:
        async with asyncio.timeout(LIMIT):
            slow = asyncio.create_task(
                netutils.session.call_tool("check_port", {"host": "127.0.0.1", "port": silent, "timeout": 10})
            )
            await netutils.session.call_tool("ip_info", {"address": "10.0.0.1"})
            waiting = not slow.done()
            slow.cancel()
            return waiting

    with silent_port() as silent:
        assert netutils.portal.call(race)
    assert not netutils.call("ip_info", address="10.0.0.1").failed
