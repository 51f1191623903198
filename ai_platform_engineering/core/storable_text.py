"""Text that databases and protobuf can hold."""


def clean_text(text: str) -> str:
    """The text without what a database or protobuf cannot hold: lone surrogates and NUL become U+FFFD."""
    if text.isascii():
        if "\x00" in text:
            return text.replace("\x00", "\ufffd")
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if "\x00" in text:
        return text.replace("\x00", "\ufffd")
    return text
