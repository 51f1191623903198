"""The netutils MCP server on web addresses and certificates, with web and TLS servers on loopback; and what
it must not reach.
"""

import re
import secrets
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
import trustme

from tests.conftest import take_violations
from tests.support.fakes.network import Web, closed_port, open_port, tls_service
from tests.support.netutils_client import NetutilsClient, start_server


@pytest.fixture(scope="module")
def trusted() -> trustme.CA:
    """The authority that the server's machine trusts."""
    return trustme.CA()


@pytest.fixture(scope="module")
def netutils(tmp_path_factory: pytest.TempPathFactory, trusted: trustme.CA) -> Iterator[NetutilsClient]:
    folder = tmp_path_factory.mktemp("netutils")
    trusted.cert_pem.write_to_path(str(folder / "ca.pem"))
    with start_server(folder, SSL_CERT_FILE=str(folder / "ca.pem")) as served:
        yield served


@pytest.fixture
def site() -> Iterator[Web]:
    with Web(body=f"<p>{secrets.token_hex(8)}</p>", secret=secrets.token_hex(16)).serving() as web:
        yield web


# The web


def test_an_answer_comes_with_status_timing_size_and_a_preview(netutils: NetutilsClient, site: Web) -> None:
    answer = netutils.call("http_check", url=site.address("/ok"))
    assert (answer.data["status"], answer.data["ok"], answer.data["reason"]) == (200, True, "OK")
    assert answer.data["preview"] == site.body
    assert answer.data["size_bytes"] == len(site.body)
    assert answer.data["headers"]["content-type"] == "text/html; charset=utf-8"
    assert answer.data["timing_ms"].keys() == {"dns", "connect", "first_byte", "total"}
    assert answer.line.startswith(f"GET {site.address('/ok')} answered 200 OK in ")


def test_head_asks_without_the_body(netutils: NetutilsClient, site: Web) -> None:
    answer = netutils.call("http_check", url=site.address("/ok"), method="head")
    assert site.requests == ["HEAD /ok"]
    assert "preview" not in answer.data
    assert answer.data["headers"]["content-length"] == str(len(site.body))


def test_an_error_status_is_an_answer(netutils: NetutilsClient, site: Web) -> None:
    answer = netutils.call("http_check", url=site.address("/down"))
    assert (answer.failed, answer.data["status"], answer.data["ok"]) == (False, 503, False)
    assert "503 Service Unavailable" in answer.line


def test_redirects_are_followed_and_listed(netutils: NetutilsClient, site: Web) -> None:
    answer = netutils.call("http_check", url=site.address("/hop/4"))
    assert [(hop["url"], hop["status"]) for hop in answer.data["redirects"]] == [
        (site.address(f"/hop/{left}"), 302) for left in (4, 3, 2, 1, 0)
    ]
    assert (answer.data["url"], answer.data["status"]) == (site.address("/ok"), 200)
    assert "after 5 redirects" in answer.line


def test_redirects_end_after_five(netutils: NetutilsClient, site: Web) -> None:
    answer = netutils.call("http_check", url=site.address("/hop/9"))
    assert answer.failed
    assert "more than 5 redirects" in answer.line
    assert len(answer.data["redirects"]) == 5
    assert len(site.requests) == 6


def test_redirects_can_be_left_alone(netutils: NetutilsClient, site: Web) -> None:
    answer = netutils.call("http_check", url=site.address("/hop/2"), follow_redirects=False)
    assert (answer.data["status"], answer.data["redirects"], site.requests) == (302, [], ["GET /hop/2"])


@pytest.mark.parametrize("target", ["ftp://127.0.0.1/", "file:///etc/hostname", "http://[", "gopher:x"])
def test_a_redirect_leads_only_to_the_web(netutils: NetutilsClient, site: Web, target: str) -> None:
    answer = netutils.call("http_check", url=site.address(f"/to?{target}"))
    assert answer.failed
    assert "not an http or https address" in answer.line


def test_a_slow_answer_is_given_up(netutils: NetutilsClient, site: Web) -> None:
    answer = netutils.call("http_check", url=site.address("/slow"), timeout=0.4)
    assert answer.failed
    assert "no answer within 0.4 s (waiting for the first byte)" in answer.line
    assert answer.data["failed_at"] == "first_byte"
    assert {"dns", "connect", "total"} <= answer.data["timing_ms"].keys()


def test_a_body_that_never_ends_is_cut_off(netutils: NetutilsClient, site: Web) -> None:
    answer = netutils.call("http_check", url=site.address("/endless"), timeout=0.4)
    assert (answer.failed, answer.data["status"], answer.data["size_is_partial"], answer.data["preview"]) == (
        False,
        200,
        True,
        "data: first",
    )


def test_a_large_body_is_counted_up_to_a_limit(netutils: NetutilsClient, site: Web) -> None:
    answer = netutils.call("http_check", url=site.address("/big"))
    assert answer.data["size_is_partial"] is True
    assert 1024 * 1024 <= answer.data["size_bytes"] < 2 * 1024 * 1024
    assert "preview" not in answer.data


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/broken", "broke the rules of HTTP"),
        ("/gone", "without an answer"),
        ("/short", "broke the rules of HTTP"),
    ],
)
def test_a_server_that_does_not_speak_http_is_a_clear_error(
    netutils: NetutilsClient, site: Web, path: str, words: str
) -> None:
    assert words in netutils.call_and_fail("http_check", url=site.address(path))


def test_nobody_listening_is_a_clear_error(netutils: NetutilsClient) -> None:
    with closed_port() as port:
        answer = netutils.call("http_check", url=f"localhost:{port}/x")
    assert answer.line == f"GET http://localhost:{port}/x failed: connection refused."
    assert (answer.failed, answer.data["failed_at"]) == (True, "connect")


def test_credentials_are_neither_sent_nor_shown(netutils: NetutilsClient, site: Web) -> None:
    hidden = [secrets.token_hex(12) for _ in range(4)]
    url = f"http://user:{hidden[0]}@127.0.0.1:{site.port}/ok?page=2&access_token={hidden[1]}&X-Amz-Signature={hidden[2]}"
    answer = netutils.call("http_check", url=url)
    assert site.authorizations == [None]
    assert hidden[1] in site.requests[0]
    assert (
        answer.data["url"] == f"http://127.0.0.1:{site.port}/ok?page=2&access_token=***&X-Amz-Signature=***"
    )
    assert "not sent" in answer.line
    led = netutils.call(
        "http_check", url=site.address(f"/to?http://me:{hidden[3]}@127.0.0.1:{site.port}/ok?code={hidden[3]}")
    )
    assert led.data["url"] == f"http://127.0.0.1:{site.port}/ok?code=***"
    broken = netutils.call("http_check", url=f"http://user:{hidden[0]}@127.0.0.1:99999/")
    unheard = netutils.call("check_port", host=f"user:{hidden[0]}@localhost", port=1)
    for each in (answer, broken, unheard):
        assert not [secret for secret in hidden[:3] if secret in each.everything]
    assert site.secret not in answer.everything + led.everything


def test_a_verified_https_address_answers(netutils: NetutilsClient, trusted: trustme.CA) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trusted.issue_cert("localhost").configure_cert(context)
    with Web(body=secrets.token_hex(8), secret="").serving(context) as web:
        answer = netutils.call("http_check", url=f"https://localhost:{web.port}/ok")
    assert answer.data["preview"] == web.body
    assert answer.data["tls_version"] == "TLSv1.3"
    assert answer.data["timing_ms"].keys() == {"dns", "connect", "tls", "first_byte", "total"}


def test_an_untrusted_https_address_is_a_clear_error(netutils: NetutilsClient) -> None:
    with tls_service(trustme.CA().issue_cert("localhost")) as port:
        text = netutils.call_and_fail("http_check", url=f"https://localhost:{port}/")
    assert "the certificate is not trusted" in text
    assert "tls_certificate shows more" in text


# Metadata services


@pytest.mark.parametrize(
    "host",
    [
        "169.254.169.254",
        "2852039166",
        "0xa9fea9fe",
        "[::ffff:169.254.169.254]",
        "[64:ff9b::a9fe:a9fe]",
        "[fd00:ec2::254]",
        "[fd00:ec2::254%1]",
        "metadata.google.internal",
        "METADATA.google.internal.",
    ],
)
def test_metadata_services_are_refused(netutils: NetutilsClient, host: str) -> None:
    for tool, arguments in (
        ("http_check", {"url": f"http://{host}/"}),
        ("check_port", {"host": host, "port": 80}),
        ("tls_certificate", {"host": host}),
    ):
        assert "is a cloud metadata service" in netutils.call_and_fail(tool, **arguments)
    assert take_violations() == []


def test_a_redirect_to_a_metadata_service_is_refused(netutils: NetutilsClient, site: Web) -> None:
    assert "is a cloud metadata service" in netutils.call_and_fail(
        "http_check", url=site.address("/to?http://169.254.169.254/latest/")
    )
    assert take_violations() == []


# Certificates


def test_a_trusted_certificate(netutils: NetutilsClient, trusted: trustme.CA) -> None:
    ends = datetime.now(UTC) + timedelta(days=secrets.randbelow(300) + 30, hours=12)
    certificate = trusted.issue_cert("localhost", "*.example.test", "127.0.0.1", not_after=ends)
    with tls_service(certificate) as port:
        answer = netutils.call("tls_certificate", host="localhost", port=port)
    assert (answer.failed, answer.data["verified"], answer.data["problems"], answer.data["name_matches"]) == (
        False,
        True,
        [],
        True,
    )
    assert set(answer.data["names"]) == {"localhost", "*.example.test", "127.0.0.1"}
    assert answer.data["days_left"] == (ends - datetime.now(UTC)).days
    assert answer.data["not_after"] == ends.replace(microsecond=0).isoformat()
    assert (answer.data["expired"], answer.data["self_signed"], answer.data["protocol"]) == (
        False,
        False,
        "TLSv1.3",
    )
    assert answer.data["key"] == "EC secp256r1"
    assert re.fullmatch(r"([0-9a-f]{2}:){31}[0-9a-f]{2}", answer.data["fingerprint_sha256"])
    assert answer.data["cipher"] in answer.line
    assert "trusted by this machine" in answer.line
    assert f"valid until {ends:%Y-%m-%d}, {answer.data['days_left']} days left" in answer.line


def test_the_whole_chain_is_counted(netutils: NetutilsClient, trusted: trustme.CA) -> None:
    middle = trusted.create_child_ca()
    with tls_service(middle.issue_cert("localhost")) as port:
        answer = netutils.call("tls_certificate", host="localhost", port=port)
    assert (answer.data["verified"], answer.data["chain_length"]) == (True, 2)
    assert answer.data["chain"][0]["issuer"] == answer.data["chain"][1]["subject"]


def test_an_unknown_authority_is_the_reason_and_the_certificate_is_shown(netutils: NetutilsClient) -> None:
    with tls_service(trustme.CA().issue_cert("localhost")) as port:
        answer = netutils.call("tls_certificate", host="localhost", port=port)
    assert (answer.failed, answer.data["verified"], answer.data["name_matches"], answer.data["expired"]) == (
        False,
        False,
        True,
        False,
    )
    assert answer.data["problems"] == ["unable to get local issuer certificate"]
    assert "not trusted: unable to get local issuer certificate" in answer.line


def test_an_expired_certificate_is_shown_with_its_age(netutils: NetutilsClient, trusted: trustme.CA) -> None:
    ended = datetime.now(UTC) - timedelta(days=10, hours=1)
    with tls_service(
        trusted.issue_cert("localhost", not_before=ended - timedelta(days=30), not_after=ended)
    ) as port:
        answer = netutils.call("tls_certificate", host="localhost", port=port)
    assert (answer.data["verified"], answer.data["expired"], answer.data["days_left"]) == (False, True, -11)
    assert answer.data["problems"] == ["certificate has expired"]
    assert f"expired on {ended:%Y-%m-%d}, 10 days ago" in answer.line


def test_a_certificate_of_the_future_is_not_yet_valid(netutils: NetutilsClient, trusted: trustme.CA) -> None:
    begins = datetime.now(UTC) + timedelta(days=5)
    with tls_service(
        trusted.issue_cert("localhost", not_before=begins, not_after=begins + timedelta(days=5))
    ) as port:
        answer = netutils.call("tls_certificate", host="localhost", port=port)
    assert answer.data["problems"] == ["certificate is not yet valid"]


def test_a_certificate_for_another_name_is_told(netutils: NetutilsClient, trusted: trustme.CA) -> None:
    with tls_service(trusted.issue_cert("other.example.test", "*.example.test")) as port:
        wrong = netutils.call("tls_certificate", host="localhost", port=port)
        asked = netutils.call("tls_certificate", host="127.0.0.1", port=port, server_name="this.example.test")
        deeper = netutils.call(
            "tls_certificate", host="127.0.0.1", port=port, server_name="too.deep.example.test"
        )
    assert (wrong.data["verified"], wrong.data["name_matches"]) == (False, False)
    assert "mismatch" in wrong.data["problems"][0].lower()
    assert (asked.data["verified"], asked.data["name_matches"], asked.data["server_name"]) == (
        True,
        True,
        "this.example.test",
    )
    assert (deeper.data["verified"], deeper.data["name_matches"]) == (False, False)


def test_all_problems_are_told_not_only_the_first(netutils: NetutilsClient) -> None:
    ended = datetime.now(UTC) - timedelta(days=2)
    certificate = trustme.CA().issue_cert(
        "other.example.test", not_before=ended - timedelta(days=2), not_after=ended
    )
    with tls_service(certificate) as port:
        problems = netutils.call("tls_certificate", host="localhost", port=port).data["problems"]
    assert problems == [
        "unable to get local issuer certificate",
        "certificate has expired",
        "certificate is not valid for localhost",
    ]


def test_an_older_protocol_is_shown(netutils: NetutilsClient, trusted: trustme.CA) -> None:
    with tls_service(trusted.issue_cert("localhost"), newest=ssl.TLSVersion.TLSv1_2) as port:
        assert netutils.call("tls_certificate", host="localhost", port=port).data["protocol"] == "TLSv1.2"


def test_a_port_that_does_not_speak_tls_is_a_clear_error(netutils: NetutilsClient, site: Web) -> None:
    assert "does not speak TLS" in netutils.call_and_fail("tls_certificate", host="localhost", port=site.port)
    with closed_port() as port:
        assert f"localhost:{port} cannot be reached: connection refused" in netutils.call_and_fail(
            "tls_certificate", host="localhost", port=port
        )
    with open_port() as port:  # takes the connection and says nothing
        assert "no certificate within 0.3 s" in netutils.call_and_fail(
            "tls_certificate", host="localhost", port=port, timeout=0.3
        )
