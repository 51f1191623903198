"""Key bindings of all prompts."""

from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent


def newline_key_bindings() -> KeyBindings:
    """Makes a new line on Esc-Enter; Enter sends."""
    keys = KeyBindings()

    @keys.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return keys
