"""DescribeUserScramCredentials: no user has any; codes and texts are those of a Kafka 4.3.1."""

from __future__ import annotations

import pytest

from support.handler_calls import make_context
from tidelog.api.user_credentials import UserCredentialsApi
from tidelog_protocol.apis import API, ApiKey
from tidelog_protocol.messages.users import DescribeUserScramCredentialsRequest

KEY = ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS
MISSING = "Attempt to describe a user credential that does not exist: "
TWICE = "Cannot describe SCRAM credentials for the same user twice in a single request: "


@pytest.mark.parametrize(
    ("users", "expected"),
    [
        (None, []),
        ((), []),
        (("a",), [("a", 91, MISSING + "a")]),
        (("a", "b", "a"), [("a", 92, TWICE + "a"), ("b", 91, MISSING + "b")]),
    ],
)
def test_users(users: tuple[str, ...] | None, expected: list[tuple[str, int, str]]) -> None:
    name = DescribeUserScramCredentialsRequest.UserName
    request = DescribeUserScramCredentialsRequest(
        users=None if users is None else [name(name=user) for user in users]
    )
    response = UserCredentialsApi().handlers()[KEY](make_context(KEY, 0), request)
    codec = API[KEY].response_codec(0)
    answer = codec.decode(codec.encode(response))
    assert answer.error_code == 0
    assert [(each.user, each.error_code, each.error_message) for each in answer.results] == expected
