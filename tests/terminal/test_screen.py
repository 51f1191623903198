"""Texts of others on a terminal: none of them controls it, whatever command shows them."""

import io
from collections.abc import Callable

import pytest
from rich.console import Console

from ai_platform_engineering.core.settings_report import SettingRow
from ai_platform_engineering.terminal import agent_view, doctor_view, screen

EVIL = "\x1b]0;owned\x07\x1b[2Jevil\x9b31m\u202e\r"


def shown_by(draw: Callable[[Console], None]) -> str:
    """What a terminal would get, without colours."""
    out = io.StringIO()
    draw(Console(file=out, force_terminal=True, color_system=None, width=200))
    return out.getvalue()


@pytest.mark.parametrize(
    "draw",
    [
        lambda console: agent_view.print_tool(console, EVIL, EVIL, needs_approval=True),
        lambda console: agent_view.print_server_problem(console, EVIL, EVIL),
        lambda console: agent_view.print_agents(console, [agent_view.AgentRow("a", "ready", EVIL, EVIL)]),
        lambda console: doctor_view.print_report(
            console,
            [doctor_view.DoctorFinding("wrong", EVIL, remedy=EVIL)],
            [SettingRow("NAME", EVIL, "environment")],
            show_all=True,
            command=EVIL,
        ),
        lambda console: screen.print_plain(console, EVIL, "red"),
    ],
    ids=["tool", "server", "agents", "doctor", "text"],
)
def test_no_text_of_others_controls_the_terminal(draw: Callable[[Console], None]) -> None:
    text = shown_by(draw)
    assert "evil" in text
    for sequence in ("\x1b]", "\x1b[2J", "\x9b", "\u202e", "\x07", "\r"):
        assert sequence not in text
