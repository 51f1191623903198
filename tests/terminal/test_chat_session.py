"""Sessions of `caipe chat`: commands, typing, pasting, history, colours, and a server that goes away."""

import contextlib
import re
import secrets
from pathlib import Path

import pytest

from tests.support.echo_supervisor import BlockingScenario
from tests.support.fakes.gate import Gate
from tests.support.fakes.openai_server import serve_openai
from tests.support.fakes.script import Attempts, Book, Call, Die, Hang, Say, Script, Turn
from tests.support.harness import agent, supervisor
from tests.support.ports import free_port
from tests.support.processes import run_command, start_command
from tests.support.skill_files import build_catalog, skill_files, write_skill
from tests.support.terminals import PseudoTerminal, start_in_terminal

CTRL_C, CTRL_D, TAB, UP, ESCAPE = "\x03", "\x04", "\t", "\x1b[A", "\x1b"
ECHO = Script(Turn(Say("You asked: {{user}}")))
READY = "Ask in plain words"


async def open_chat(screen: PseudoTerminal) -> int:
    """Waits for the first prompt; where it stands in the text."""
    return await screen.wait_for_text("›", await screen.wait_for_text(READY))


async def leave(screen: PseudoTerminal) -> list[str]:
    """Leaves at an empty prompt; every line that was drawn."""
    await screen.wait_for_window(r"(^|\n)› *(\n|$)")
    screen.type(CTRL_D)
    assert await screen.wait_for_exit() == 0
    return screen.screen.lines


# --- commands -------------------------------------------------------------------------------------


async def test_workflows_and_skills_are_listed_and_a_typing_mistake_is_not_sent(
    tmp_path: Path,
) -> None:
    catalog = build_catalog(tmp_path / "home")
    write_skill(tmp_path / "home" / "folder" / "triage", skill_files("triage"))
    async with (
        supervisor(ECHO, skills=catalog) as client,
        start_in_terminal("caipe", "chat", "--url", client.url, columns=60, rows=60) as screen,
    ):
        await open_chat(screen)
        screen.type("/workflows\r")
        await screen.wait_for_window(r"Check a service  needs the agents: netutils\n  Checks .*\n  \S")
        await screen.wait_for_window(r"Create GitHub Repo  needs the agents: github\n")
        screen.type("/skills\r")
        await screen.wait_for_window(r"› /skills\n(.*\n)*/triage  \S.*")
        screen.type("/trage payments are slow\r")
        await screen.wait_for_window(r"There is no command or skill /trage\. See /help and /skills\.")
        screen.type("/triage payments are slow\r")
        await screen.wait_for_window(r"You asked: ")
        screen.type("/etc/hosts is odd\r")
        await screen.wait_for_window(r"You asked: /etc/hosts is odd")
        await leave(screen)
        tasks = (await client.call("ListTasks", {}))["result"]["tasks"]
    assert len(tasks) == 2, "the mistake did not reach the model"


async def test_commands_and_skills_are_completed(tmp_path: Path) -> None:
    catalog = build_catalog(tmp_path / "home")
    write_skill(tmp_path / "home" / "folder" / "triage", skill_files("triage"))
    async with (
        supervisor(ECHO, skills=catalog) as client,
        start_in_terminal("caipe", "chat", "--url", client.url) as screen,
    ):
        await open_chat(screen)
        screen.type("/con")
        await screen.wait_for_window(r"/context +the id of this conversation")
        screen.type(f"{TAB}\r")
        await screen.wait_for_window(r"› /context\n[0-9a-f]{8}-")
        screen.type("/tri")
        await screen.wait_for_window(r"/triage  ")
        screen.type(f"{TAB} checkout\r")
        await screen.wait_for_window(r"› /triage checkout\n")
        await screen.wait_for_window(r"You asked: ")
        await leave(screen)


# --- typing ---------------------------------------------------------------------------------------


async def test_pasted_lines_are_one_question() -> None:
    async with (
        supervisor(ECHO) as client,
        start_in_terminal("caipe", "chat", "--url", client.url) as screen,
    ):
        await open_chat(screen)
        screen.type(f"{ESCAPE}[200~first line\nsecond line\r\nthird 日本語 🚀{ESCAPE}[201~")
        await screen.wait_for_window(r"› first line\n  second line\n  third 日")
        screen.type("\r")
        await screen.wait_for_window("You asked: first line")
        await leave(screen)
        (task,) = (await client.call("ListTasks", {"historyLength": 1}))["result"]["tasks"]
    assert task["history"][0]["parts"][0]["text"] == "first line\nsecond line\nthird 日本語 🚀"


async def test_what_is_typed_meanwhile_is_kept_also_when_the_answer_is_stopped() -> None:
    waiting = BlockingScenario()
    script = Script(Turn(Call("wait")), Turn(Say("Never said.")))
    async with (
        supervisor(script, tools=[waiting.tool]) as client,
        start_in_terminal("caipe", "chat", "--url", client.url) as screen,
    ):
        await open_chat(screen)
        screen.type("Wait.\r")
        await waiting.started.wait()
        await screen.wait_for_window(r"Working .*Ctrl-C stops")
        screen.type("no, the other cluster")
        screen.type(CTRL_C)
        await screen.wait_for_window(r"Stopped\.\n\n› no, the other cluster")
        screen.type(CTRL_C)  # it clears the line
        await leave(screen)


async def test_earlier_questions_are_found_after_a_restart_and_their_file_has_a_limit(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    old = "".join(f"\n# 2026-01-01 00:00:00\n+question {number} {'x' * 900}\n" for number in range(1500))
    (home / "history").write_text(old)
    env = {"CAIPE_HOME": str(home)}
    word = secrets.token_hex(4)
    async with supervisor(ECHO) as client:
        async with start_in_terminal("caipe", "chat", "--url", client.url, env=env) as screen:
            await open_chat(screen)
            screen.type(f"first {word}\r")
            await screen.wait_for_window(f"You asked: first {word}")
            await leave(screen)
        async with start_in_terminal("caipe", "chat", "--url", client.url, env=env) as screen:
            await open_chat(screen)
            screen.type(UP)
            await screen.wait_for_window(f"› first {word}")
            screen.type(UP)
            await screen.wait_for_window("› question 1499")
            screen.type(CTRL_C)
            await leave(screen)
    content = (home / "history").read_text()
    assert len(content) < len(old) / 2
    assert content.startswith("# 2026"), "it begins with a whole question"
    assert (home / "history").stat().st_mode & 0o077 == 0


# --- terminals ------------------------------------------------------------------------------------


async def test_no_color_draws_without_colours_and_without_suggestions(tmp_path: Path) -> None:
    env = {"NO_COLOR": "1", "CAIPE_HOME": str(tmp_path)}
    answer = "# Head\n\n```python\nprint(1)\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\nDone."
    async with (
        supervisor(Script(Turn(Say(answer)))) as client,
        start_in_terminal("caipe", "chat", "--url", client.url, env=env) as screen,
    ):
        await open_chat(screen)
        screen.type("colourful\r")
        await screen.wait_for_window(r"Done\.\n\n›")
        screen.type("colo")
        await screen.wait_for_window("› colo")
        screen.type(" now\r")
        await screen.wait_for_window("› colo now *\n")
        await screen.wait_for_window(r"colo now\n(.*\n)+Done\.\n\n›")
        await leave(screen)
    colours = re.findall(r"\x1b\[(?:\d+;)*(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])(?:;\d+)*m", screen.raw)
    assert colours == []
    assert "colourful" not in screen.text.partition("Done.")[2], "no suggestion that looks like typed text"


async def test_a_dumb_terminal_gets_no_sequences() -> None:
    waiting = BlockingScenario()
    waiting.released.set()
    async with (
        supervisor(waiting.script, tools=[waiting.tool]) as client,
        start_in_terminal("caipe", "chat", "--url", client.url, env={"TERM": "dumb"}) as screen,
    ):
        at = await open_chat(screen)
        screen.type("Wait.\r")
        await screen.wait_for_text("›", await screen.wait_for_text(waiting.answer, at))
        screen.type(CTRL_D)
        assert await screen.wait_for_exit() == 0
    assert "\x1b" not in screen.raw
    assert "✓ wait" in screen.raw


async def test_in_a_narrow_window_the_time_stays_and_words_are_not_broken() -> None:
    waiting = BlockingScenario()
    task = "Look at every pod of the namespace payments"
    script = Script(Turn(Call("task", {"description": task, "subagent_type": "argocd"})), Turn(Say("So.")))
    argocd = agent("argocd", Script(Turn(Call("wait")), Turn(Say("Looked."))), waiting.tool)
    async with (
        supervisor(script, agents=[argocd]) as client,
        start_in_terminal("caipe", "chat", "--url", client.url, columns=30, rows=20) as screen,
    ):
        await open_chat(screen)
        screen.type("Look.\r")
        await waiting.started.wait()
        await screen.wait_for_window(r"→ argocd: Look at every pod of\n  the namespace payments\n")
        await screen.wait_for_window(r"\n[⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏] Working.* · \d+\.\d s\n")
        waiting.released.set()
        await screen.wait_for_window(r"So\.")
        await leave(screen)


async def test_lists_keep_their_numbers_and_tables_stand_close() -> None:
    answer = "Steps:\n\n1. First\n2. Second\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\nDone."
    async with (
        supervisor(Script(Turn(Say(answer)))) as client,
        start_in_terminal("caipe", "chat", "--url", client.url) as screen,
    ):
        await open_chat(screen)
        screen.type("How?\r")
        await screen.wait_for_window("Done.")
        text = "\n".join(await leave(screen))
    assert re.search(r"Steps:\n\n1\. First\n2\. Second\n\n *a +b\n *─+\n *1 +2\n\nDone\.\n\n›", text), text


async def test_delegations_to_one_agent_are_told_apart() -> None:
    calls = [Call("task", {"description": name, "subagent_type": "argocd"}) for name in ("Prod", "Stage")]
    argocd = agent("argocd", Script(Turn(Say("Fine."))))
    async with (
        supervisor(Script(Turn(*calls), Turn(Say("Both are fine."))), agents=[argocd]) as client,
        start_in_terminal("caipe", "chat", "--url", client.url) as screen,
    ):
        await open_chat(screen)
        screen.type("Look.\r")
        await screen.wait_for_window("Both are fine")
        text = "\n".join(await leave(screen))
    assert re.search(r"✓ argocd: Prod · \d", text)
    assert re.search(r"✓ argocd: Stage · \d", text)


# --- servers that go away -------------------------------------------------------------------------


async def test_a_text_that_was_cut_off_is_marked_and_written_again() -> None:
    first = "The first paragraph.\n\nThe second"
    gate = Gate()
    answers = Attempts(Turn(Say(first, " one breaks"), Die(), gate=gate), Turn(Say("All of it.")))
    async with (
        supervisor(Script(answers)) as client,
        start_in_terminal("caipe", "ask", "--url", client.url, "Well?") as screen,
    ):
        await screen.wait_for_window("The second")  # the first one is printed for good
        gate.seen(first)
        await screen.wait_for_window("All of it")
        assert await screen.wait_for_exit() == 0
    text = "\n".join(screen.screen.lines)
    assert re.search(r"The first paragraph\.\n+\(Ignore the text above: the answer was cut off\.", text), text


@pytest.fixture
def model_env(tmp_path: Path) -> dict[str, str]:
    return {
        "CAIPE_HOME": str(tmp_path / "home"),
        "LLM_MODEL": "openai:scripted",
        "OPENAI_API_KEY": "key-of-the-test",
        "A2A_PORT": str(free_port()),
    }


@pytest.mark.full
async def test_a_conversation_goes_on_over_a_killed_and_restarted_server(model_env: dict[str, str]) -> None:
    half = "The first half.\n\nAnd then"
    told = Script(Attempts(Turn(Say(half, " …"), Hang()), Turn(Say("The whole answer."))))
    book = Book({"Tell": told, "And now": Script(Turn(Say("Nothing more.")))})
    async with serve_openai(book) as model:
        env = {**model_env, "OPENAI_BASE_URL": model.url}
        async with contextlib.AsyncExitStack() as stack:
            first = await stack.enter_async_context(start_command("caipe", "serve", env=env))
            # Before the chat, which starts a server of its own where there is none.
            await first.wait_for_stderr("serving on")
            screen = await stack.enter_async_context(start_in_terminal("caipe", "chat", env=env))
            await open_chat(screen)
            screen.type("Tell.\r")
            await screen.wait_for_window("And then")
            first.process.kill()
            await screen.wait_for_window(r"The server cannot be reached.* · Ctrl-C stops")
            async with start_command("caipe", "serve", env=env) as second:
                await screen.wait_for_window(r"The whole answer\.")
                screen.type("/agents\r")
                await screen.wait_for_window(r"› /agents\nnetutils  ready\n")
                await screen.wait_for_window(r"\nkomodor  not configured  set KOMODOR_TOKEN")
                screen.type("And now?\r")
                await screen.wait_for_window(r"Nothing more\.")
                text = "\n".join(await leave(screen))
                tasks = await run_command("caipe", "tasks", env=env)
                assert second.process.returncode is None
    assert "(Ignore the text above: the server was restarted. It is written again.)" in text
    assert "The server was restarted; the run continues where it left off." in text
    assert tasks.out.count("completed") == 2, tasks.out
    contexts = set(re.findall(r"completed +(\S+)", tasks.out))
    assert len(contexts) == 1, "both questions are in one conversation"


async def test_ctrl_c_while_the_server_is_away_says_how_to_come_back() -> None:
    waiting = BlockingScenario()
    script = Script(Turn(Call("wait")))
    async with supervisor(script, tools=[waiting.tool]) as client:
        chat = start_in_terminal("caipe", "chat", "--url", client.url)
        screen = await chat.__aenter__()
        await open_chat(screen)
        screen.type("Wait.\r")
        await screen.wait_for_window(r"  wait · \d")
    await screen.wait_for_window("The server (cannot be reached|ended the stream)")
    screen.type(CTRL_C)
    await screen.wait_for_window(
        r"Stopped waiting; the server cannot be reached\.\n.*caipe follow [0-9a-f]{8}-"
    )
    await leave(screen)
    await chat.__aexit__(None, None, None)


async def test_the_latest_conversation_is_continued(tmp_path: Path) -> None:
    env = {"CAIPE_HOME": str(tmp_path)}
    async with supervisor(ECHO) as client:
        none = await run_command("caipe", "chat", "-c", "--url", client.url, env=env)
        for text in ("first", "second"):
            await run_command("caipe", "ask", "--url", client.url, text, env=env)
        async with start_in_terminal("caipe", "chat", "-c", "--url", client.url, env=env) as screen:
            await screen.wait_for_window(r"continuing after: second \(completed\)")
            await open_chat(screen)
            screen.type("third\r")
            await screen.wait_for_window("You asked: third")
            await leave(screen)
        tasks = (await client.call("ListTasks", {"historyLength": 1}))["result"]["tasks"]
    assert (none.code, "no conversation to continue" in none.err) == (1, True)
    contexts = {task["history"][0]["parts"][0]["text"]: task["contextId"] for task in tasks}
    assert contexts["third"] == contexts["second"] != contexts["first"]
    assert re.search(rf"chat --context {contexts['third']}", screen.text)


# --- the first minutes ----------------------------------------------------------------------------


async def test_without_a_model_the_banner_says_so_once_and_the_start_is_shown(tmp_path: Path) -> None:
    env = {"CAIPE_HOME": str(tmp_path / "home"), "A2A_PORT": str(free_port())}
    async with start_in_terminal("caipe", "chat", env=env) as screen:
        await screen.wait_for_text("Starting a server")
        await open_chat(screen)
        await screen.wait_for_window("caipe .* · server started for this chat\nNo language model is set")
        for cidr, count in (("10.0.0.0/22", "1,022"), ("10.0.0.0/23", "510")):
            screen.type(f"what does {cidr} contain?\r")
            await screen.wait_for_window(rf"{cidr} contain\?\n(.*\n)*.*{count}(.*\n)*\n› *(\n|$)")
        text = "\n".join(await leave(screen))
    assert text.count("No language model is set") == 1


async def test_ask_draws_markdown_on_a_terminal_and_pipes_it_as_it_is() -> None:
    answer = "**Pods** of `shop`:\n\n| Pod | State |\n|---|---|\n| web | Running |"
    async with supervisor(Script(Turn(Say(answer)))) as client:
        async with start_in_terminal("caipe", "ask", "--url", client.url, "Which?") as screen:
            await screen.wait_for_window(r"Pods of shop:\n\n *Pod +State\n *─+\n *web +Running")
            assert await screen.wait_for_exit() == 0
        piped = await run_command("caipe", "ask", "--url", client.url, "Which?")
    assert piped.out == f"{answer}\n"
