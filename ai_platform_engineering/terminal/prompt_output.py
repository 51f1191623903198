"""Where prompts are drawn."""

import sys

from prompt_toolkit.output import Output
from prompt_toolkit.output.plain_text import PlainTextOutput
from prompt_toolkit.utils import is_dumb_terminal


def prompt_output() -> Output | None:
    """Plain text for a dumb terminal, which would show cursor sequences as they are; else the default."""
    if is_dumb_terminal():
        return PlainTextOutput(sys.stdout)
    return None
