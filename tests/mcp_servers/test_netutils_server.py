"""The netutils MCP server: what it offers, how it takes arguments, the arithmetic of networks, and its
process.
"""

import ipaddress
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import scale_examples
from tests.support.fakes.network import open_port
from tests.support.netutils_client import LIMIT, NetutilsClient, definition, start_server

TOOLS = [
    "dns_lookup",
    "reverse_dns",
    "check_port",
    "http_check",
    "tls_certificate",
    "cidr_info",
    "ip_info",
    "subnet_overlap",
]


@pytest.fixture(scope="module")
def netutils(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NetutilsClient]:
    with start_server(tmp_path_factory.mktemp("netutils")) as served:
        yield served


# What is offered


def test_the_definition_is_an_agent_that_needs_nothing() -> None:
    agent = definition()
    assert (agent.name, agent.requires) == ("netutils", ())
    assert agent.title
    assert agent.description
    assert len(agent.examples) >= 3


def test_the_prompt_names_only_tools_that_exist() -> None:
    assert set(re.findall(r"\b[a-z]+_[a-z]+\b", definition().prompt)) <= set(TOOLS)


def test_every_tool_says_what_it_is_for_and_that_it_only_reads(netutils: NetutilsClient) -> None:
    tools = netutils.tools()
    assert [tool.name for tool in tools] == TOOLS
    for tool in tools:
        assert tool.annotations is not None
        assert (
            tool.annotations.read_only_hint,
            tool.annotations.destructive_hint,
            tool.annotations.idempotent_hint,
        ) == (True, False, True)
        assert tool.annotations.open_world_hint is (
            tool.name not in ("cidr_info", "ip_info", "subnet_overlap")
        )
        assert tool.title
        assert tool.description
        assert "\n" not in tool.description
        assert "Use it" in tool.description or "Explain" in tool.description


def test_every_argument_is_described_and_bounded(netutils: NetutilsClient) -> None:
    for tool in netutils.tools():
        schema = tool.input_schema
        assert schema["type"] == "object"
        assert schema["additionalProperties"] is False
        for name, argument in schema["properties"].items():
            assert argument["description"], name
            kinds = argument.get("anyOf", [argument])
            bounds = {
                "string": {"maxLength", "enum"},
                "number": {"maximum"},
                "integer": {"maximum"},
                "array": {"maxItems"},
                "boolean": {"type"},
            }
            assert all(bounds[kind["type"]] & kind.keys() for kind in kinds), f"{tool.name}.{name}"


def test_the_server_gives_its_name_and_version(netutils: NetutilsClient) -> None:
    assert (netutils.about.name, netutils.about.version) == ("netutils", version("ai-platform-engineering"))


# Arguments


@pytest.mark.sample(30)
@pytest.mark.parametrize(
    ("tool", "arguments", "words"),
    [
        ("check_port", {"host": "localhost"}, "`port`: is missing"),
        ("check_port", {"host": "localhost", "port": 80, "timeout": 11}, "less than or equal to 10"),
        (
            "check_port",
            {"host": "localhost", "port": 80, "ports": 81},
            "no argument 'ports'. It takes: host, port, timeout",
        ),
        ("check_port", {"host": "localhost", "port": 0}, "from 1 to 65535"),
        ("check_port", {"host": "localhost", "port": 65536}, "from 1 to 65535"),
        ("check_port", {"host": "localhost", "port": "1-101"}, "101 ports"),
        ("check_port", {"host": "localhost", "port": "20-10"}, "wrong way round"),
        ("check_port", {"host": "localhost", "port": "http"}, "list (22,80,443) or a range (8000-8010)"),
        ("check_port", {"host": "localhost", "port": []}, "That is not a port"),
        ("check_port", {"host": "localhost:80", "port": 80}, "give the port in its own argument"),
        ("check_port", {"host": "http://localhost/", "port": 80}, "without scheme, user or path"),
        ("check_port", {"host": "two words", "port": 80}, "not a host name or an address"),
        ("check_port", {"host": "a" * 64 + ".example", "port": 80}, "not a host name or an address"),
        ("dns_lookup", {"name": "example.com", "record_type": "HINFO"}, "`record_type`"),
        ("dns_lookup", {"name": "10.0.0.1"}, "is an address, not a name. Use reverse_dns"),
        (
            "dns_lookup",
            {"name": "example.com", "server": "203.0.113.1"},
            "no argument 'server'. It takes: name, record_type, timeout",
        ),
        ("reverse_dns", {"address": "10.0.0.1", "server": "203.0.113.1"}, "no argument 'server'"),
        ("reverse_dns", {"address": "example.com"}, "for a name use dns_lookup"),
        ("http_check", {"url": "ftp://localhost/"}, "'ftp' cannot be checked"),
        ("http_check", {"url": "http://"}, "no host"),
        ("http_check", {"url": "http://localhost:99999/"}, "not a web address"),
        ("http_check", {"url": "http://localhost/", "method": "POST"}, "'GET' or 'HEAD'"),
        ("http_check", {"url": "http://localhost/", "timeout": 31}, "less than or equal to 30"),
        ("tls_certificate", {"host": "localhost", "port": 0}, "greater than or equal to 1"),
        ("cidr_info", {"cidr": "10.0.0.0/33"}, "like 10.0.0.0/22"),
        ("cidr_info", {"cidr": "10.0.0.0/22", "contains": "x"}, "is not a network"),
        ("cidr_info", {"cidr": "10.0.0.0/22", "split_prefix": 21}, "from 22 (its own) to 32"),
        ("ip_info", {"address": "10.0.0.0/8"}, "use cidr_info for a network"),
        ("ip_info", {"address": "256.0.0.1"}, "is not an IP address"),
        ("subnet_overlap", {"a": "10.0.0.0/8", "b": "here"}, "is not a network"),
        ("traceroute", {}, "There is no tool 'traceroute'. There are: dns_lookup"),
    ],
)
def test_an_error_says_what_is_wrong_and_what_is_expected(
    netutils: NetutilsClient, tool: str, arguments: dict[str, Any], words: str
) -> None:
    assert words in netutils.call_and_fail(tool, **arguments)


def test_what_models_get_slightly_wrong_is_understood(netutils: NetutilsClient) -> None:
    with open_port() as port:
        assert netutils.call("check_port", host=" LocalHost. ", port=str(port)).data["open"] == [port]
        assert netutils.call("check_port", host="localhost", port=f"[{port}]").data["open"] == [port]
        assert netutils.call("check_port", host="localhost", port=port, timeout="2").data["open"] == [port]
    assert netutils.call("dns_lookup", name="localhost", record_type=" a ").data["records"][0]["type"] == "A"
    assert (
        netutils.call("cidr_info", cidr=" 10.0.0.0/255.255.252.0 ", contains="").data["network"]
        == "10.0.0.0/22"
    )


def test_control_characters_do_not_come_back(netutils: NetutilsClient) -> None:
    assert "\x1b" not in netutils.call_and_fail("ip_info", address="\x1b[2J\x1b]0;x\x07")


# Arithmetic

ADDRESSES = st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6))
NETWORKS = ADDRESSES.flatmap(
    lambda address: st.integers(0, address.max_prefixlen).map(
        lambda prefix: ipaddress.ip_network((address, prefix), strict=False)
    )
)
FEW = settings(max_examples=scale_examples(60), deadline=None)


def number(value: int | str) -> int:
    """Large numbers come as digits in a string, small ones as numbers."""
    assert isinstance(value, str) == (int(value) > 2**53 - 1)
    return int(value)


@FEW
@given(network=NETWORKS)
def test_a_network_is_what_ipaddress_says(
    netutils: NetutilsClient, network: ipaddress.IPv4Network | ipaddress.IPv6Network
) -> None:
    answer = netutils.call("cidr_info", cidr=str(network))
    data = answer.data
    assert (data["network"], data["version"], data["prefix"]) == (
        str(network),
        network.version,
        network.prefixlen,
    )
    assert (data["netmask"], data["wildcard"]) == (str(network.netmask), str(network.hostmask))
    assert (data["first"], data["last"]) == (str(network[0]), str(network[-1]))
    assert (data["is_private"], data["is_global"]) == (network.is_private, network.is_global)
    assert number(data["addresses"]) == network.num_addresses
    assert data.get("broadcast") == (
        str(network.broadcast_address) if network.version == 4 and network.prefixlen < 31 else None
    )
    assert str(network) in answer.line
    if network.num_addresses <= 4096:  # all of them, counted
        hosts = list(network.hosts())
        assert (number(data["usable_hosts"]), data["first_usable"], data["last_usable"]) == (
            len(hosts),
            str(hosts[0]),
            str(hosts[-1]),
        )


@FEW
@given(network=NETWORKS, other=NETWORKS, position=st.floats(0, 1))
def test_containment_is_what_ipaddress_says(
    netutils: NetutilsClient,
    network: ipaddress.IPv4Network | ipaddress.IPv6Network,
    other: ipaddress.IPv4Network | ipaddress.IPv6Network,
    position: float,
) -> None:
    inner = network[int((network.num_addresses - 1) * position)] if position < 1 else network[-1]
    assert netutils.call("cidr_info", cidr=str(network), contains=str(inner)).data["contains"] == {
        "what": str(inner),
        "inside": True,
    }
    inside = network.version == other.version and other.subnet_of(network)  # type: ignore[arg-type]
    assert (
        netutils.call("cidr_info", cidr=str(network), contains=str(other)).data["contains"]["inside"]
        is inside
    )
    overlap = netutils.call("subnet_overlap", a=str(network), b=str(other)).data
    assert overlap["overlap"] is (network.version == other.version and network.overlaps(other))


@FEW
@given(network=NETWORKS, more=st.integers(0, 20))
def test_a_split_is_what_ipaddress_says_and_shows_at_most_256(
    netutils: NetutilsClient, network: ipaddress.IPv4Network | ipaddress.IPv6Network, more: int
) -> None:
    prefix = min(network.prefixlen + more, network.max_prefixlen)
    split = netutils.call("cidr_info", cidr=str(network), split_prefix=prefix).data["split"]
    assert number(split["total"]) == 2 ** (prefix - network.prefixlen)
    assert split["shown"] == len(split["subnets"]) == min(256, int(split["total"]))
    expected = [str(part) for part, _ in zip(network.subnets(new_prefix=prefix), range(256), strict=False)]
    assert [part["network"] for part in split["subnets"]] == expected


@FEW
@given(address=ADDRESSES)
def test_an_address_is_what_ipaddress_says(
    netutils: NetutilsClient, address: ipaddress.IPv4Address | ipaddress.IPv6Address
) -> None:
    data = netutils.call("ip_info", address=str(address)).data
    assert (data["address"], data["version"], data["reverse_pointer"]) == (
        str(address),
        address.version,
        address.reverse_pointer,
    )
    assert number(data["integer"]) == int(address) == int(data["hexadecimal"], 16)
    assert (data["is_private"], data["is_global"]) == (address.is_private, address.is_global)


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("10.1.2.3", "private"),
        ("100.64.0.1", "shared address space (carrier-grade NAT)"),
        ("127.0.0.1", "loopback"),
        ("169.254.1.1", "link-local"),
        ("198.51.100.9", "documentation"),
        ("224.0.0.1", "multicast"),
        ("255.255.255.255", "limited broadcast"),
        ("8.8.8.8", "global"),
        ("::1", "loopback"),
        ("fd12::1", "unique local (private)"),
        ("fe80::1%lo", "link-local"),
        ("2a00::1", "global"),
        ("4000::1", "reserved"),
        ("::ffff:10.0.0.1", "IPv4-mapped"),
    ],
)
def test_the_kind_of_an_address_has_a_name(netutils: NetutilsClient, address: str, kind: str) -> None:
    assert netutils.call("ip_info", address=address).data["kind"] == kind


def test_the_question_of_the_readme(netutils: NetutilsClient) -> None:
    line = netutils.call("cidr_info", cidr="10.0.0.0/22").line
    assert "1,024 addresses, 1,022 usable hosts, 10.0.0.1 to 10.0.3.254" in line
    assert "(private)" in line


def test_bits_of_a_host_are_noted_not_refused(netutils: NetutilsClient) -> None:
    answer = netutils.call("cidr_info", cidr="10.0.1.5/22")
    assert answer.data["network"] == "10.0.0.0/22"
    assert "10.0.1.5 is inside; the network starts at 10.0.0.0" in answer.line


@pytest.mark.parametrize(
    ("a", "b", "relation", "words"),
    [
        ("10.0.0.0/16", "10.0.128.0/20", "a contains b", "10.0.0.0/16 contains 10.0.128.0/20"),
        ("10.0.128.0/20", "10.0.0.0/16", "b contains a", "10.0.0.0/16 contains 10.0.128.0/20"),
        ("10.0.0.0/16", "10.0.5.0/16", "equal", "the same network"),
        ("10.0.0.0/24", "10.0.1.0/24", "disjoint", "together make 10.0.0.0/23"),
        ("10.0.1.0/24", "10.0.2.0/24", "disjoint", "do not overlap."),
        ("10.0.0.0/8", "::/0", "disjoint", "do not overlap."),
    ],
)
def test_how_two_networks_lie(netutils: NetutilsClient, a: str, b: str, relation: str, words: str) -> None:
    answer = netutils.call("subnet_overlap", a=a, b=b)
    assert answer.data["relation"] == relation
    assert words in answer.line


# The process


def test_the_process_ends_with_its_input(guarded_environment: dict[str, str]) -> None:
    command = [sys.executable, "-m", "ai_platform_engineering.mcp_servers.netutils"]
    done = subprocess.run(
        command, input="", env=guarded_environment, capture_output=True, text=True, timeout=LIMIT, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.full
def test_a_wrong_flag_is_a_usage_error(guarded_environment: dict[str, str]) -> None:
    command = [sys.executable, "-m", "ai_platform_engineering.mcp_servers.netutils", "--nothing"]
    done = subprocess.run(
        command, env=guarded_environment, capture_output=True, text=True, timeout=LIMIT, check=False
    )
    assert done.returncode == 2
    assert "unrecognized arguments: --nothing" in done.stderr
    assert done.stdout == ""


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("NETWORK_ALLOWED_HOSTS", "example.com, not a host", "'not a host'"),
        ("NETWORK_ALLOWED_HOSTS", "*", "'*'"),
        ("NETWORK_OWN_PORTS", "8000,99999", "NETWORK_OWN_PORTS"),
        ("NETWORK_DNS_SERVERS", "dns.example.com", "is not an IP address"),
        ("NETWORK_DNS_SERVERS", "127.0.0.1:0", "is not from 1 to 65535"),
    ],
)
def test_a_wrong_setting_is_told_at_the_start(
    guarded_environment: dict[str, str], variable: str, value: str, words: str
) -> None:
    command = [sys.executable, "-m", "ai_platform_engineering.mcp_servers.netutils"]
    environment = {**guarded_environment, variable: value}
    done = subprocess.run(
        command, input="", env=environment, capture_output=True, text=True, timeout=LIMIT, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
