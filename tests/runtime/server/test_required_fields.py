"""Required fields of a request: refused exactly when the SDK refuses, with the same words."""

from typing import Any

import pytest
from a2a.types import (
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    SendMessageRequest,
    SubscribeToTaskRequest,
)
from a2a.utils.errors import InvalidParamsError
from a2a.utils.proto_utils import validate_proto_required_fields
from google.protobuf.json_format import ParseDict
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as st

from ai_platform_engineering.runtime.server.required_fields import check_required_fields
from tests.support import strategies as given_by

TEXT = st.sampled_from(["", "a"])
VALUE = st.none() | st.booleans() | TEXT | st.lists(TEXT, max_size=1)
STRUCT = st.dictionaries(TEXT, VALUE, max_size=1)


def some_of(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields)


PART = some_of(text=TEXT, filename=TEXT, metadata=STRUCT) | some_of(data=VALUE | STRUCT, mediaType=TEXT)
MESSAGE = some_of(
    messageId=TEXT,
    role=st.sampled_from(["ROLE_USER", "ROLE_AGENT", "ROLE_UNSPECIFIED"]),
    parts=st.lists(PART, max_size=2),
    contextId=TEXT,
    metadata=STRUCT,
)
PUSH = some_of(url=TEXT, id=TEXT, authentication=some_of(scheme=TEXT, credentials=TEXT))
REQUEST = some_of(
    message=MESSAGE,
    configuration=some_of(taskPushNotificationConfig=PUSH, historyLength=st.integers(0, 2)),
    metadata=STRUCT,
)


def refusal(check: Any, message: Message) -> object:
    try:
        check(message)
    except InvalidParamsError as error:
        return (error.message, error.data)
    return None


def compare(message: Message) -> None:
    assert refusal(check_required_fields, message) == refusal(validate_proto_required_fields, message)


@given_by.examples(300)
@given(params=REQUEST)
def test_a_message_is_refused_as_the_sdk_refuses_it(params: dict[str, Any]) -> None:
    compare(ParseDict(params, SendMessageRequest()))


@pytest.mark.parametrize(
    "kind", [GetTaskRequest, CancelTaskRequest, SubscribeToTaskRequest, ListTasksRequest]
)
@pytest.mark.parametrize("params", [{}, {"id": ""}, {"id": "a"}], ids=str)
def test_a_request_for_tasks_is_refused_as_the_sdk_refuses_it(
    kind: type[Message], params: dict[str, Any]
) -> None:
    compare(ParseDict(params, kind(), ignore_unknown_fields=True))


def test_a_whole_message_is_accepted_and_one_without_an_id_is_not() -> None:
    message: dict[str, Any] = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": ""}]}
    check_required_fields(ParseDict({"message": message}, SendMessageRequest()))
    del message["messageId"]
    with pytest.raises(InvalidParamsError):
        check_required_fields(ParseDict({"message": message}, SendMessageRequest()))
