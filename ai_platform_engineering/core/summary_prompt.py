"""The words by which a conversation's summary is asked for and recognised."""

HEADING = "Summary of the conversation so far:"
REQUEST = "Summarise the conversation below"
