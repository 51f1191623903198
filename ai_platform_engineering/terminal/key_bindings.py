"""Keys of every prompt."""

from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent


def newline_key_bindings() -> KeyBindings:
    """Esc-Enter makes a new line; Enter sends."""
    keys = KeyBindings()

    @keys.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return keys
