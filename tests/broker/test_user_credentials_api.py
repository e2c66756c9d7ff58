"""DescribeUserScramCredentials of users; codes and texts are those of a Kafka 4.3.1."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from support.handler_calls import make_context
from tidelog.api.user_credentials import UserCredentialsApi
from tidelog.cluster.metadata.image import ClusterImage
from tidelog_protocol.apis import API, ApiKey
from tidelog_protocol.messages.metadata_records import UserScramCredentialRecord
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
def test_users_without_credentials(
    users: tuple[str, ...] | None, expected: list[tuple[str, int, str]]
) -> None:
    answer = described(users)
    assert answer.error_code == 0
    assert [(each.user, each.error_code, each.error_message) for each in answer.results] == expected


@pytest.mark.parametrize("users", [None, ("u",)])
def test_credentials_are_listed_without_secrets(users: tuple[str, ...] | None) -> None:
    kept = {
        ("u", number): UserScramCredentialRecord(name="u", mechanism=number, iterations=count)
        for number, count in ((2, 8192), (1, 4096))
    }
    [user] = described(users, kept).results
    assert (user.user, user.error_code, user.error_message) == ("u", 0, "")
    infos = [(info.mechanism, info.iterations) for info in user.credential_infos]
    assert infos == [(1, 4096), (2, 8192)]


def described(
    users: tuple[str, ...] | None,
    credentials: dict[tuple[str, int], UserScramCredentialRecord] | None = None,
) -> Any:
    name = DescribeUserScramCredentialsRequest.UserName
    request = DescribeUserScramCredentialsRequest(
        users=None if users is None else [name(name=user) for user in users]
    )
    image = ClusterImage(cluster_id="c", scram_credentials=credentials or {})
    metadata: Any = SimpleNamespace(image=image)
    response = UserCredentialsApi(metadata, Mock()).handlers()[KEY](make_context(KEY, 0), request)
    codec = API[KEY].response_codec(0)
    return codec.decode(codec.encode(response))
