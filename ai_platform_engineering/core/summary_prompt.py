"""The words by which a conversation's summary is asked for and recognised."""

SUMMARY_HEADING = "Summary of the conversation so far:"
SUMMARY_REQUEST = "Summarise the conversation below"
