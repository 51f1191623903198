"""The notices that tell of the start of a tool server, which most tests have no interest in."""

from ai_platform_engineering.core.events import AnyEvent, Notice
from ai_platform_engineering.mcp_client.server_state import describe_start

_SERVER = "<server>"
START_TEXT, _, _END = describe_start(_SERVER).partition(_SERVER)


def is_server_start(event: AnyEvent) -> bool:
    if not isinstance(event, Notice):
        return False
    return event.text.startswith(START_TEXT) and event.text.endswith(_END)
