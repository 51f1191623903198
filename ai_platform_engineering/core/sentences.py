"""Sentences for people around a text that somebody else wrote, such as the question of a form."""

_QUESTION_MARKS = ("?", "？", "؟")
_SENTENCE_ENDS = (*_QUESTION_MARKS, ".", "!", "…", "。", "！")


def end_sentence(text: str) -> str:
    """The text as the end of a sentence: with a full stop, unless a mark of its own ends it."""
    if text.endswith(_SENTENCE_ENDS):
        return text
    return f"{text}."


def begin_sentence(text: str) -> str:
    """The text as the subject of a sentence: with a capital, or in quotes when it is a question."""
    if text.endswith(_QUESTION_MARKS):
        return f"“{text}”"
    return text[:1].upper() + text[1:]
