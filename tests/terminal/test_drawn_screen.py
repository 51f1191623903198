"""Answers as they are drawn: long ones, tables, code, a window that changes its size, and waiting."""

import io
import re
import secrets

import pytest
from langchain_core.tools import ToolException, tool
from rich.console import Console

from ai_platform_engineering.terminal.live_region import LiveRegion
from tests.support.echo_supervisor import BlockingScenario
from tests.support.fakes.gate import Gate
from tests.support.fakes.script import Attempts, Call, Fail, Say, Script, Turn
from tests.support.harness import agent, supervisor
from tests.support.terminals import DrawnScreen, PseudoTerminal, start_in_terminal

CTRL_C, CTRL_D = "\x03", "\x04"
COLUMNS, ROWS = 80, 24
READY = "Ask in plain words"
SPINNER = re.compile(r"[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏] ")


async def ask(screen: PseudoTerminal, question: str) -> None:
    await screen.wait_for_window(READY)
    await screen.wait_for_window("›")
    screen.type(f"{question}\r")


async def leave(screen: PseudoTerminal) -> list[str]:
    """Waits for the next prompt and leaves; every line that was drawn, once."""
    await screen.wait_for_window(r"\n› *(\n|$)")
    screen.type(CTRL_D)
    assert await screen.wait_for_exit() == 0
    return screen.screen.lines


def numbered(lines: list[str], pattern: str) -> list[int]:
    """The numbers that the pattern finds, line by line, in the order in which they stand there."""
    return [int(match[1]) for line in lines for match in re.finditer(pattern, line)]


# --- answers that do not fit the window -----------------------------------------------------------


async def test_an_answer_of_three_windows_is_printed_once_and_in_order() -> None:
    paragraphs = [f"Paragraph {number}: " + "lorem ipsum dolor sit amet " * 4 for number in range(1, 61)]
    async with (
        supervisor(Script(Turn(Say("\n\n".join(paragraphs))))) as client,
        start_in_terminal("caipe", "chat", "--url", client.url, columns=COLUMNS, rows=ROWS) as screen,
    ):
        await ask(screen, "Tell.")
        await screen.wait_for_window("Paragraph 60")
        lines = await leave(screen)
    assert numbered(lines, r"Paragraph (\d+):") == list(range(1, 61))
    assert not any(SPINNER.search(line) for line in lines), "the activity is erased at the end"


def test_a_frame_for_a_wider_window_leaves_nothing_behind() -> None:
    """The window got narrower while the frame was on its way."""
    out = io.StringIO()
    region = LiveRegion(Console(file=out, force_terminal=True, width=120, height=ROWS))
    region.start()
    region.draw(["a" * 110, "b" * 110])
    region.print_above("for good\r\n", ["c" * 110, "d" * 110])
    region.stop()
    narrow = DrawnScreen(50, ROWS)
    narrow.feed(out.getvalue().encode())
    assert [line for line in narrow.lines if line] == ["for good"]


@pytest.mark.sample(2)
@pytest.mark.parametrize("kind", ["code", "list", "table", "paragraph"])
async def test_a_block_that_is_taller_than_the_window_is_followed_and_then_printed_whole(kind: str) -> None:
    rows = [f"row-{number:03}" for number in range(100)]
    blocks = {
        "code": "```yaml\n" + "\n".join(f"{row}: 1" for row in rows) + "\n```",
        "list": "\n".join(f"- {row}" for row in rows),
        "table": "| Name | Size |\n|---|---|\n" + "\n".join(f"| {row} | 1 |" for row in rows),
        "paragraph": " ".join(f"{row} {'x' * 60}" for row in rows),
    }
    gate = Gate()
    head, tail = blocks[kind].split("row-080", 1)
    first_piece = f"Begin.\n\n{head}"
    script = Script(Turn(Say(first_piece, f"row-080{tail}\n\nEnd."), gate=gate))
    async with (
        supervisor(script) as client,
        start_in_terminal("caipe", "chat", "--url", client.url, columns=COLUMNS, rows=ROWS) as screen,
    ):
        await ask(screen, "Tell.")
        await screen.wait_for_window("row-079")  # the end of what there is, and not its first page
        assert any(SPINNER.search(line) for line in screen.screen.window)
        gate.seen(first_piece)
        await screen.wait_for_window("End.")
        lines = await leave(screen)
    assert numbered(lines, r"row-(\d+)") == list(range(100))


async def test_a_window_that_changes_its_size_in_the_middle_loses_and_repeats_nothing() -> None:
    paragraphs = [f"Paragraph {number}: " + "lorem ipsum dolor sit amet " * 4 for number in range(1, 41)]
    pieces = [f"{paragraph}\n\n" for paragraph in paragraphs]
    waiting = BlockingScenario()
    script = Script(
        Turn(Say(*pieces[:20]), Call("wait")),
        Turn(Say(*pieces[20:])),
    )
    async with (
        supervisor(script, tools=[waiting.tool]) as client,
        start_in_terminal("caipe", "chat", "--url", client.url, columns=COLUMNS, rows=ROWS) as screen,
    ):
        await ask(screen, "Tell.")
        await waiting.started.wait()
        await screen.wait_for_window("Paragraph 20")
        for columns in (50, 120, 64):
            screen.resize(columns, ROWS)
            await screen.wait_for_text("Working", len(screen.text))  # it is drawn anew
        waiting.released.set()
        await screen.wait_for_window("Paragraph 40")
        lines = await leave(screen)
    assert numbered(lines, r"Paragraph (\d+):") == list(range(1, 41))
    assert not any(SPINNER.search(line) for line in lines)
    wide = [
        line for line in lines[lines.index(next(x for x in lines if "Paragraph 21" in x)) :] if len(line) > 64
    ]
    assert wide == [], "what comes after the change fits the new window"


@pytest.mark.parametrize("columns", [60, 80, 120])
async def test_a_table_keeps_every_cell_whatever_the_width(columns: int) -> None:
    names = [f"checkout-7c9d8b5f6-{secrets.token_hex(3)}" for _ in range(4)]
    cells = [
        [name, "payments-production", "CrashLoopBackOff", f"ip-10-0-0-{i}.ec2.internal"]
        for i, name in enumerate(names)
    ]
    table = "\n".join(f"| {' | '.join(row)} |" for row in cells)
    answer = (
        f"Pods of <namespace>:\n\n| Pod | Namespace | Status | Node |\n|---|---|---|---|\n{table}\n\nDone."
    )
    async with (
        supervisor(Script(Turn(Say(answer)))) as client,
        start_in_terminal("caipe", "chat", "--url", client.url, columns=columns, rows=ROWS) as screen,
    ):
        await ask(screen, "Which pods?")
        await screen.wait_for_window("Done.")
        text = "\n".join(await leave(screen))
    assert "Pods of <namespace>" in text
    assert "…" not in text
    for row in cells:
        for cell in row:
            assert cell in text, f"{cell} is cut"
    assert [text.count(name) for name in names] == [1, 1, 1, 1]


# --- waiting --------------------------------------------------------------------------------------


async def test_waiting_is_visible_with_the_time_and_what_is_waited_for() -> None:
    waiting = BlockingScenario()
    script = Script(
        Turn(Call("task", {"description": "Look at the pods", "subagent_type": "argocd"})), Turn(Say("So."))
    )
    argocd = agent("argocd", Script(Turn(Call("wait")), Turn(Say("Looked."))), waiting.tool)
    async with (
        supervisor(script, agents=[argocd]) as client,
        start_in_terminal("caipe", "chat", "--url", client.url, columns=COLUMNS, rows=ROWS) as screen,
    ):
        await ask(screen, "Look.")
        await waiting.started.wait()
        await screen.wait_for_window(r"→ argocd: Look at the pods")
        await screen.wait_for_window(
            r"  argocd · wait · \d+\.\d s\n[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏] Working.* · \d+\.\d s · Ctrl-C stops"
        )
        assert screen.screen.cursor_hidden
        waiting.released.set()
        await screen.wait_for_window(r"So\.")
        lines = await leave(screen)
    assert any(re.fullmatch(r"  ✓ argocd · wait · \d+\.\d s", line) for line in lines)
    assert any(re.fullmatch(r"✓ argocd · \d+\.\d s", line) for line in lines)
    assert not screen.screen.cursor_hidden


async def test_a_retry_is_named_with_its_reason_and_number() -> None:
    answers = Attempts(Turn(Fail(429)), Turn(Fail(503)), Turn(Say("It works.")))
    async with (
        supervisor(Script(answers)) as client,
        start_in_terminal("caipe", "chat", "--url", client.url, columns=COLUMNS, rows=ROWS) as screen,
    ):
        await ask(screen, "Well?")
        await screen.wait_for_window(r"It works\.")
        text = "\n".join(await leave(screen))
    assert "The model is busy (rate limit). Trying again now (attempt 2 of 3)." in text
    assert "The model failed in the middle of its answer. Trying again now (attempt 3 of 3)." in text


async def test_a_failed_tool_is_shown_with_its_arguments_and_its_reason() -> None:
    @tool
    async def check_port(host: str, port: int) -> str:
        """Checks."""
        raise ToolException("connection refused")

    check_port.handle_tool_error = True
    script = Script(
        Turn(Call("check_port", {"host": "db.example", "port": 5432})), Turn(Say("It is closed."))
    )
    async with (
        supervisor(script, tools=[check_port]) as client,
        start_in_terminal("caipe", "chat", "--url", client.url, columns=COLUMNS, rows=ROWS) as screen,
    ):
        await ask(screen, "Is it open?")
        await screen.wait_for_window(r"It is closed\.")
        text = "\n".join(await leave(screen))
    assert re.search(r"✗ check_port host=db\.example port=5432 · \d+\.\d s\n +connection refused", text)


async def test_the_banner_names_server_and_model() -> None:
    async with (
        supervisor(Script(Turn(Say("Yes.")))) as client,
        start_in_terminal("caipe", "chat", "--url", client.url, columns=COLUMNS, rows=ROWS) as screen,
    ):
        await screen.wait_for_window(READY)
        text = "\n".join(screen.screen.window)
        screen.type(CTRL_D)
        assert await screen.wait_for_exit() == 0
    assert re.search(rf"caipe \d+\.\d+\.\d+ · {re.escape(client.url.rstrip('/'))}", text)
