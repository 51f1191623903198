"""The prompts that Slack suggests where somebody begins to talk to the bot; the app's manifest lists the
same.
"""

from collections.abc import Mapping, Sequence

SUGGESTED_PROMPTS: Sequence[Mapping[str, str]] = (
    {"title": "What can you do?", "message": "What can you do, and which agents do you have?"},
    {"title": "Check a service", "message": "Check a service"},
    {"title": "Create a repository", "message": "Create GitHub Repo"},
    {"title": "How do I …?", "message": "What does the knowledge base say about onboarding a service?"},
)
