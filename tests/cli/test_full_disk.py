"""A disk that fills up under a server: questions are refused with the reason, and taken again afterwards.

A limit to the size of files stands for it: it needs no root, and can be lifted again.
"""

import contextlib
import resource
from collections.abc import Iterator

from tests.support.agent_services import model_of, run_server_process
from tests.support.fakes.mcp_servers import until
from tests.support.fakes.openai_server import serve_openai
from tests.support.fakes.script import Book, Gate, Say, Script, Turn
from tests.support.harness import Client
from tests.support.processes import CommandResult, Program, run_command, start_command

OK, FAILED = 0, 1
REASON = "the disk is full, or a limit to the size of files is reached"


@contextlib.contextmanager
def full_disk(server: Program) -> Iterator[None]:
    """The process can write nothing to files meanwhile."""
    pid = server.process.pid
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (1, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)


async def readiness(client: Client) -> tuple[int, str, str]:
    response = await client.http.get(f"{client.url}ready")
    storage = response.json()["components"]["storage"]
    return response.status_code, storage["status"], storage.get("message", "")


async def ask(client: Client) -> CommandResult:
    return await run_command("caipe", "ask", "hi", env={"CAIPE_URL": client.url})


async def test_a_full_disk_is_told_and_comes_back() -> None:
    gate = Gate()
    held = Script(Turn(Say("beginning", " ending"), gate=gate))
    book = Book({"^wait": held, "": Script(Turn(Say("You said {{user}}.")))})
    async with (
        serve_openai(book) as model,
        run_server_process("caipe", "serve", **model_of(model)) as (server, client),
        start_command("caipe", "ask", "wait", env={"CAIPE_URL": client.url}) as asking,
    ):
        await until(lambda: model.requests, "the first question")
        assert await readiness(client) == (200, "ok", "")
        with full_disk(server):
            refused = await ask(client)
            facts = await run_command("caipe", "facts", "forget", "x", env={"CAIPE_URL": client.url})
            unready = await readiness(client)
            gate.seen("beginning")
            await server.wait_for_stderr("its work broke: ")
        interrupted = await asking.wait_for_exit()
        back = await readiness(client)
        again = await ask(client)
    assert (refused.code, refused.out) == (FAILED, "")
    assert f"Nothing could be stored: {REASON}." in refused.err
    assert "Internal error" not in refused.err + facts.err
    assert unready == (503, "unavailable", f"Nothing can be stored: {REASON}.")
    # What was being answered ends for its reader as soon as that can be stored, and says why.
    assert interrupted.code == FAILED
    assert REASON in asking.err
    assert back[:2] == (200, "ok")
    assert (again.code, again.out) == (OK, "You said hi.\n"), again.err
