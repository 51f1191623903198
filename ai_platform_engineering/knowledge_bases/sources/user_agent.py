"""The name that sites know this program by, in requests and in their rules for crawlers."""

USER_AGENT = "caipe"
