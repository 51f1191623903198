"""The content of a turn's messages: chunks of a stream, and the text and blocks of a posted message."""

from collections.abc import Sequence

from ai_platform_engineering.integrations.slack_bot.blocks import Block, Chunk, markdown, notification_text
from ai_platform_engineering.integrations.slack_bot.stream_progress import MessageFooter, SentContent
from ai_platform_engineering.integrations.slack_bot.stream_text import TextSegment
from ai_platform_engineering.integrations.slack_bot.thread_view import TaskCard, ThreadView, progress_blocks


def build_chunks(title: str, cards: Sequence[TaskCard], segment: TextSegment | None) -> list[Chunk]:
    """The chunks of one call to a stream: the plan's title, changed cards, new text."""
    chunks: list[Chunk] = []
    if title:
        chunks.append({"type": "plan_update", "title": title})
    chunks += [card.to_chunk() for card in cards]
    if segment is not None:
        chunks.append({"type": "markdown_text", "text": segment.text})
    return chunks


def build_posted_message(
    view: ThreadView, text: str, blocks_below: Sequence[Block] = ()
) -> tuple[str, list[Block]]:
    """The notification and the blocks of a message that is posted and updated."""
    notification = notification_text(text) or view.title or "Working on it."
    blocks = [*_content_blocks(view, text), *blocks_below]
    return notification, blocks or [markdown(notification)]


def build_repaired_message(
    sent: SentContent, view: ThreadView, text: str, footer: MessageFooter
) -> tuple[str, list[Block]]:
    """The notification and the blocks that replace an ended stream, in which no card may stay open.

    Left out are steps that go on below, have not begun, or are no longer planned: Slack has no word for them.
    """
    current = {card.card_id: card for card in view.cards}
    cards = []
    for card_id in sent.cards:
        card = current.get(card_id)
        if card is not None and (card.is_waiting or not card.is_open):
            cards.append(card)
    repaired = ThreadView(title=sent.title, cards=tuple(cards))
    return notification_text(text) or "Continues below.", [*_content_blocks(repaired, text), *footer.blocks]


def close_cards(sent: SentContent, view: ThreadView) -> list[Chunk]:
    """The chunks for cards that a message shows as open and that are not; `sent` has them afterwards."""
    chunks = []
    for card in view.cards:
        sent_card = sent.cards.get(card.card_id)
        if sent_card is not None and sent_card.is_open and not card.is_open:
            sent.cards[card.card_id] = card
            chunks.append(card.to_chunk())
    return chunks


def footer_notification(footer: MessageFooter) -> str:
    """The notification of a footer that is a message of its own: the first text in its blocks."""
    for block in footer.blocks:
        for element in (block.get("text") or {}, *block.get("elements", ())):
            if isinstance(element.get("text"), str):
                return notification_text(element["text"])
    return "Done."


def _content_blocks(view: ThreadView, text: str) -> list[Block]:
    blocks = progress_blocks(view)
    if text.strip():
        blocks.append(markdown(text))
    return blocks
