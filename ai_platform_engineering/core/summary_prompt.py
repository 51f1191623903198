"""Fixed texts of the prompt that summarises a conversation, and of the summary."""

SUMMARY_HEADING = "Summary of the conversation so far:"
SUMMARY_REQUEST = "Summarise the conversation below"
