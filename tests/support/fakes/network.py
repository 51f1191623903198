"""Far ends of the network on loopback: a DNS server, a web server, TLS services, and ports that are open,
closed or silent."""

from __future__ import annotations

import socket
import socketserver
import ssl
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rdatatype
import dns.rrset
import trustme

Zone = Mapping[tuple[str, str], Sequence[str]]
TTL = 321


@contextmanager
def dns_server(zone: Zone) -> Iterator[str]:
    """Serves the zone over UDP and TCP; `silent.*` gets no answer, `servfail.*` and `refused.*` the error
    they name."""
    udp, tcp = _same_port(zone)
    with _running(udp), _running(tcp):
        yield f"127.0.0.1:{udp.server_address[1]}"


class _Datagrams(socketserver.ThreadingUDPServer):
    daemon_threads = True
    max_packet_size = 65535

    def __init__(self, zone: Zone) -> None:
        self.zone = zone
        super().__init__(("127.0.0.1", 0), _OverUdp)


class _Streams(socketserver.ThreadingTCPServer):
    daemon_threads = True

    def __init__(self, zone: Zone, port: int) -> None:
        self.zone = zone
        super().__init__(("127.0.0.1", port), _OverTcp)


def _same_port(zone: Zone) -> tuple[_Datagrams, _Streams]:
    for _ in range(50):
        udp = _Datagrams(zone)
        try:
            return udp, _Streams(zone, udp.server_address[1])
        except OSError:  # taken by someone else
            udp.server_close()
    raise RuntimeError("no port is free for both UDP and TCP")


class _OverUdp(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        data, sock = self.request
        answer = _answer(dns.message.from_wire(data), self.server.zone)  # type: ignore[attr-defined]
        if answer is None:
            return
        wire = answer.to_wire(max_size=65535)
        if len(wire) > 1232:  # too long for a datagram: the client must come back over TCP
            short = dns.message.make_response(dns.message.from_wire(data))
            short.flags |= dns.flags.TC
            wire = short.to_wire()
        sock.sendto(wire, self.client_address)


class _OverTcp(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        size = int.from_bytes(self.rfile.read(2), "big")
        answer = _answer(dns.message.from_wire(self.rfile.read(size)), self.server.zone)  # type: ignore[attr-defined]
        if answer is not None:
            wire = answer.to_wire(max_size=65535)
            self.wfile.write(len(wire).to_bytes(2, "big") + wire)


def _answer(query: dns.message.Message, zone: Zone) -> dns.message.Message | None:
    question = query.question[0]
    name, kind = question.name, dns.rdatatype.to_text(question.rdtype)
    first = name.labels[0].decode().lower()
    if first == "silent":
        return None
    response = dns.message.make_response(query)
    if first in ("servfail", "refused"):
        response.set_rcode(dns.rcode.from_text(first.upper()))
        return response
    for _ in range(10):
        text = name.to_text(omit_final_dot=True).lower()
        if values := zone.get((text, kind)):
            response.answer.append(dns.rrset.from_text(name, TTL, "IN", kind, *values))
            return response
        if not (alias := zone.get((text, "CNAME"))):
            break
        response.answer.append(dns.rrset.from_text(name, TTL, "IN", "CNAME", *alias))
        name = dns.name.from_text(alias[0])
    if not any(zone_name == text for zone_name, _ in zone):
        response.set_rcode(dns.rcode.NXDOMAIN)
    return response


class Web:
    """A web server whose paths do what a check may meet; `body` and `secret` are for the test to choose."""

    def __init__(self, body: str, secret: str) -> None:
        self.body, self.secret = body, secret
        self.requests: list[str] = []
        self.authorizations: list[str | None] = []
        self.over = threading.Event()
        self.port = 0

    def address(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    @contextmanager
    def serving(self, context: ssl.SSLContext | None = None) -> Iterator[Web]:
        web = self

        class Handler(_WebHandler):
            site = web

        server = _Quiet(("127.0.0.1", 0), Handler)
        if context is not None:
            server.socket = context.wrap_socket(
                server.socket, server_side=True, do_handshake_on_connect=False
            )
        self.port = server.server_address[1]
        with _running(server):
            yield self
            self.over.set()


class _Quiet(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes away, or does not like the certificate, is what many tests are about."""


class _WebHandler(BaseHTTPRequestHandler):
    site: Web
    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        self.site.requests.append(f"{self.command} {self.path}")
        self.site.authorizations.append(self.headers.get("Authorization"))
        path = self.path.partition("?")[0]
        if path.startswith("/hop/"):
            remaining = int(path.removeprefix("/hop/"))
            self._redirect(f"/hop/{remaining - 1}" if remaining else "/ok")
        elif path == "/to":
            self._redirect(self.path.partition("?")[2])
        elif path == "/slow":
            self.site.over.wait(60)
        elif path == "/endless":
            self._endless()
        elif path == "/big":
            self._plain(b"x" * (3 * 1024 * 1024), "application/octet-stream")
        elif path == "/broken":
            self.wfile.write(b"SSH-2.0-Nothing\r\n\r\n")
            self.close_connection = True
        elif path == "/gone":
            self.close_connection = True
        elif path == "/short":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this")
            self.close_connection = True
        elif path == "/down":
            self._plain(b"", "text/plain", 503)
        else:
            self._plain(self.site.body.encode(), "text/html; charset=utf-8")

    def _redirect(self, target: str) -> None:
        self.send_response(302)
        self.send_header("Location", target)
        self.send_header("Set-Cookie", f"session={self.site.secret}")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _plain(self, body: bytes, kind: str, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Set-Cookie", f"session={self.site.secret}")
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def _endless(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        self.wfile.write(b"data: first\n\n")
        self.wfile.flush()
        self.site.over.wait(60)

    def log_message(self, format: str, *args: object) -> None:
        """Nobody reads it."""


@contextmanager
def tls_service(
    certificate: trustme.LeafCert, *, newest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3
) -> Iterator[int]:
    """A port that shakes hands with the certificate and says nothing more."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.maximum_version = newest
    certificate.configure_cert(context)

    class Shake(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with suppress(OSError), context.wrap_socket(self.request, server_side=True) as secured:
                secured.settimeout(10)
                secured.recv(1)

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True

    server = Server(("127.0.0.1", 0), Shake)
    with _running(server):
        yield server.server_address[1]


@contextmanager
def open_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        yield server.getsockname()[1]


@contextmanager
def closed_port() -> Iterator[int]:
    """A port that is ours, so that nobody else opens it, and on which nobody listens."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        yield sock.getsockname()[1]


@contextmanager
def silent_port() -> Iterator[int]:
    """A port that drops what comes, as a firewall does: its queue is full and nobody takes anything from
    it."""
    with ExitStack() as stack:
        server = stack.enter_context(socket.socket())
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(server.getsockname())
        yield server.getsockname()[1]


@contextmanager
def _running(server: socketserver.BaseServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join(10)
        server.server_close()
