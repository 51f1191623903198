"""Agents made with the frameworks of others, as processes in environments of their own (`make peers`)."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.conftest import ROOT, need
from tests.support.harness import PLAIN

LOCKS = ROOT / "tests" / "fixtures" / "peers"
PROGRAMS = ROOT / "tests" / "support" / "fakes"
RECORDINGS = LOCKS / "recordings"
NARRATION = "Let me look."  # before the peer's tool call
_START_SECONDS = 120.0  # a loaded machine takes long to import a framework


@dataclass(frozen=True)
class Peer:
    """A framework in one of its modes, and what it can do there."""

    framework: str
    mode: str
    package: str
    tells_tools: bool = False
    streams_tokens: bool = True
    tells_narration: bool = True
    joins_narration: bool = False  # it sends narration and answer as one text
    tells_errors: bool = True
    stops_when_cancelled: bool = True

    def __str__(self) -> str:
        return f"{self.framework}-{self.mode}"

    def expected_texts(self, answer: str) -> list[str]:
        """The texts of a question with narration, a tool call and an answer."""
        if self.joins_narration:
            return [NARRATION + answer]
        if not self.tells_narration:
            return [answer]
        return [NARRATION, answer]

    @property
    def version(self) -> str:
        """The version in the lock."""
        for line in (LOCKS / f"{self.framework}.txt").read_text().splitlines():
            if line.startswith(f"{self.package}=="):
                return line.removeprefix(f"{self.package}==").split()[0]
        raise AssertionError(f"{self.package} is in no lock")


def _strands(mode: str, **traits: bool) -> Peer:
    return Peer("strands", mode, "strands-agents", **traits)


def _adk(mode: str) -> Peer:
    return Peer("adk", mode, "google-adk", tells_tools=True, streams_tokens="sse" in mode)


def _fasta2a(mode: str, **traits: bool) -> Peer:
    return Peer("fasta2a", mode, "fasta2a", tells_errors=False, stops_when_cancelled=False, **traits)


PEERS = (
    _strands("default"),
    _strands("compliant", joins_narration=True),
    _strands("no-stream"),
    _adk("default"),
    _adk("sse"),
    _adk("sse-0.3"),
    _adk("new"),
    _adk("new-sse"),
    _adk("no-stream"),
    _fasta2a("default"),
    _fasta2a("whole", streams_tokens=False, tells_narration=False),
)


@dataclass(frozen=True)
class RunningPeer:
    """A peer's process; its gates open and its records are read over HTTP."""

    peer: Peer
    process: subprocess.Popen[bytes]
    url: str

    async def open(self, gate: str) -> None:
        async with httpx.AsyncClient(verify=PLAIN) as http:
            (await http.post(f"{self.url}gates/{gate}")).raise_for_status()

    async def methods(self) -> list[str]:
        """The methods that were called, in order."""
        return [call["method"] for call in await self._read("requests")]

    async def outcome(self, question: str) -> str | None:
        """How far the work on a question is: None, `working`, `answered` or `stopped`."""
        outcomes: dict[str, str] = await self._read("outcomes")
        return outcomes.get(question)

    async def _read(self, path: str) -> Any:
        async with httpx.AsyncClient(verify=PLAIN) as http:
            return (await http.get(f"{self.url}{path}")).json()


def find_interpreter(framework: str) -> Path:
    """The interpreter of the framework's environment."""
    folder = Path(sys.prefix) / "peers" / framework
    lock = (LOCKS / f"{framework}.txt").read_bytes()
    installed = [mark.read_bytes() for mark in folder.glob(".installed-*")]
    need(framework, lock in installed, "`make peers` installs it")
    return folder / "bin" / "python"


@contextlib.contextmanager
def run_peer(peer: Peer) -> Iterator[RunningPeer]:
    """Starts the peer; it is killed at the end."""
    command = [str(find_interpreter(peer.framework)), str(PROGRAMS / f"peer_{peer.framework}.py"), peer.mode]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    try:
        url = process.stdout.readline().decode().strip()
        assert url, f"{peer} did not start"
        # Connections wait in the kernel until it answers.
        httpx.get(f"{url}requests", timeout=_START_SECONDS, verify=PLAIN).raise_for_status()
        yield RunningPeer(peer, process, url)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def write_question(*turns: dict[str, Any]) -> str:
    """A question that makes the peer's model say these turns."""
    return json.dumps(turns)
