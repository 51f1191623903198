"""Logging of the commands: warnings that are written for people, and with LOG_LEVEL=DEBUG everything."""

import logging

from ai_platform_engineering.core.environment import wants_debug_log

# Their warnings say what a person should do; what other modules log is for who runs a server.
_FOR_PEOPLE = (
    "ai_platform_engineering.core.env_files",
    "ai_platform_engineering.core.private_files",
    "ai_platform_engineering.core.unused_variables",
    "ai_platform_engineering.runtime.storage",
)
_DEBUG_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def configure_logging() -> None:
    """Prints what is written for people, as it is, and nothing else; with LOG_LEVEL=DEBUG every log line."""
    if wants_debug_log():
        logging.basicConfig(level=logging.DEBUG, format=_DEBUG_FORMAT)
        for library in ("a2a", "asyncio", "httpcore", "httpx"):  # they log whole requests
            logging.getLogger(library).setLevel(logging.INFO)
        return
    handler = logging.StreamHandler()
    handler.addFilter(_is_for_people)
    logging.basicConfig(level=logging.WARNING, format="%(message)s", handlers=[handler])


def _is_for_people(record: logging.LogRecord) -> bool:
    return record.name in _FOR_PEOPLE
