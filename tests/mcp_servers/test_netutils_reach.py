"""What the netutils MCP server reaches: nothing private on a server that several people use, the platform's
own ports for a port check alone, and some addresses never.
"""

from collections.abc import Iterator

import pytest

from tests.conftest import take_violations
from tests.support.fakes.network import Web, open_port
from tests.support.netutils_client import NetutilsClient, start_server

CLOSED = {"NETWORK_ALLOW_PRIVATE_ADDRESSES": "false"}
# Whatever an operator allows.
EVERYTHING_ALLOWED = {
    "NETWORK_ALLOW_PRIVATE_ADDRESSES": "true",
    "NETWORK_ALLOWED_HOSTS": "0.0.0.0/0, ::/0, metadata.google.internal, *.internal, 169.254.169.254",
}
ALWAYS_REFUSED = [
    "169.254.169.254",
    "169.254.1.1",
    "169.254.170.2",
    "2852039166",
    "0xa9fea9fe",
    "0251.0376.0251.0376",
    "100.100.100.200",
    "168.63.129.16",
    "192.0.0.192",
    "fe80::1",
    "fe80::1%lo",
    "fd00:ec2::254",
    "::ffff:169.254.169.254",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b:1::a9fe:a9fe",
    "2002:a9fe:a9fe::1",
    "2001:0:a9fe:a9fe::1",
    "::a9fe:a9fe",
    "0.0.0.0",
    "::",
    "metadata",
    "metadata.google.internal",
    "Metadata.Google.Internal.",
    "instance-data",
]
PRIVATE = ["127.0.0.1", "localhost", "app.localhost", "10.0.0.5", "192.168.0.1", "::1", "::ffff:10.0.0.5"]
PRIVATE += ["127.1", "0x7f000001", "fd00::1", "100.64.0.1", "64:ff9b::a00:5"]


@pytest.fixture(scope="module")
def open_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NetutilsClient]:
    with start_server(tmp_path_factory.mktemp("open"), **EVERYTHING_ALLOWED) as served:
        yield served


@pytest.fixture(scope="module")
def closed_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NetutilsClient]:
    with start_server(tmp_path_factory.mktemp("closed"), **CLOSED) as served:
        yield served


def refusals(netutils: NetutilsClient, host: str) -> list[str]:
    """The errors of all tools that connect to a host."""
    authority = f"[{host}]" if ":" in host else host
    return [
        netutils.call_and_fail("http_check", url=f"http://{authority}/"),
        netutils.call_and_fail("check_port", host=host, port=80),
        netutils.call_and_fail("tls_certificate", host=host),
    ]


@pytest.mark.parametrize("host", ALWAYS_REFUSED)
def test_link_local_and_metadata_are_refused_whatever_is_allowed(
    open_server: NetutilsClient, host: str
) -> None:
    for text in refusals(open_server, host):
        assert "refused" in text
    assert take_violations() == []


@pytest.mark.parametrize("host", PRIVATE)
def test_this_machine_and_private_networks_are_closed_to_several_people(
    closed_server: NetutilsClient, host: str
) -> None:
    for text in refusals(closed_server, host):
        assert "which is closed here" in text
    assert take_violations() == []


def test_a_server_that_is_told_nothing_is_closed(tmp_path_factory: pytest.TempPathFactory) -> None:
    with start_server(tmp_path_factory.mktemp("told"), NETWORK_ALLOW_PRIVATE_ADDRESSES="") as served:
        assert "which is closed here" in served.call_and_fail("check_port", host="127.0.0.1", port=80)


def test_an_allow_list_opens_single_hosts_and_networks(tmp_path_factory: pytest.TempPathFactory) -> None:
    allowed = {"NETWORK_ALLOWED_HOSTS": "127.0.0.0/30, *.localhost"}
    with start_server(tmp_path_factory.mktemp("allowed"), **CLOSED, **allowed) as served, open_port() as port:
        assert served.call("check_port", host="127.0.0.1", port=port).data["open"] == [port]
        assert served.call("check_port", host="app.localhost", port=port).data["open"] == [port]
        assert "which is closed here" in served.call_and_fail("check_port", host="127.0.0.5", port=port)
        assert "which is closed here" in served.call_and_fail("check_port", host="10.0.0.5", port=port)


@pytest.mark.parametrize("private", ["true", "false"])
def test_the_platforms_own_port_answers_a_port_check_and_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, private: str
) -> None:
    folder = tmp_path_factory.mktemp("own")
    with Web(body="the facts of another person", secret="").serving() as web:
        variables = {"NETWORK_OWN_PORTS": f"3000,{web.port}", "NETWORK_ALLOW_PRIVATE_ADDRESSES": private}
        with start_server(folder, **variables) as served:
            for host in ("127.0.0.1", "localhost", "127.1", "[::ffff:127.0.0.1]"):
                assert served.call("check_port", host=host, port=web.port).data["open"] == [web.port]
                page = served.call("http_check", url=f"http://{host}:{web.port}/v1/facts")
                certificate = served.call("tls_certificate", host=host, port=web.port)
                assert (page.failed, certificate.failed, web.requests) == (True, True, [])
                assert "the facts" not in page.everything


def test_a_redirect_to_an_own_port_is_refused(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("own")
    with (
        Web(body="the facts", secret="").serving() as own,
        Web(body="", secret="").serving() as site,
        start_server(folder, NETWORK_OWN_PORTS=str(own.port)) as served,
    ):
        answer = served.call("http_check", url=site.address(f"/to?{own.address('/v1/facts')}"))
    assert (answer.failed, own.requests) == (True, [])
    assert "belongs to this platform itself" in answer.line


def test_a_redirect_to_a_host_that_nobody_named_is_not_followed(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with Web(body="inside", secret="").serving() as inside, Web(body="", secret="").serving() as site:
        url = site.address(f"/to?http://localhost:{inside.port}/secret")
        with start_server(tmp_path_factory.mktemp("redirected")) as served:
            answer = served.call("http_check", url=url)
        assert (answer.failed, answer.data["status"], inside.requests) == (False, 302, [])
        assert "another host and was not followed" in answer.line
        with start_server(tmp_path_factory.mktemp("allowed"), NETWORK_ALLOWED_HOSTS="localhost") as served:
            assert served.call("http_check", url=url).data["preview"] == "inside"


def test_an_operator_sets_how_many_ports_one_call_checks(tmp_path_factory: pytest.TempPathFactory) -> None:
    with start_server(tmp_path_factory.mktemp("ports"), NETWORK_PORT_LIMIT="3") as served:
        assert not served.call("check_port", host="127.0.0.1", port="1-3").failed
        text = served.call_and_fail("check_port", host="127.0.0.1", port="1-4")
        endless = served.call_and_fail("check_port", host="127.0.0.1", port="1-65535," * 80 + "1")
    assert "These are 4 ports" in text
    assert "too many ports" in endless


def test_tools_say_which_arguments_are_targets(closed_server: NetutilsClient) -> None:
    targets = {tool.name: (tool.meta or {}).get("caipe/targets") for tool in closed_server.tools()}
    assert targets == {
        "dns_lookup": {"name": "host"},
        "reverse_dns": {"address": "host"},
        "check_port": {"host": "host", "port": "ports"},
        "http_check": {"url": "url", "method": "method"},
        "tls_certificate": {"host": "host", "server_name": "host"},
        "cidr_info": None,
        "ip_info": None,
        "subnet_overlap": None,
    }
