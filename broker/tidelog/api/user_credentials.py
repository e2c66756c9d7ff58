"""DescribeUserScramCredentials (API 50): the SCRAM credentials of users, of which there are none.

Behaviour. `kafka-configs --describe --entity-type users` asks for them beside the users' quotas.
There is no SASL: no user has a credential.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tidelog_protocol.apis import ApiKey
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.users import DescribeUserScramCredentialsResponse

if TYPE_CHECKING:
    from tidelog.network.dispatch import Handler, RequestContext
    from tidelog_protocol.messages.users import DescribeUserScramCredentialsRequest

__all__ = ["UserCredentialsApi"]


class UserCredentialsApi:
    """Describes the credentials of users."""

    def handlers(self) -> dict[ApiKey, Handler]:
        """Return the handlers by API key."""
        return {ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: self.describe}

    def describe(
        self, context: RequestContext, request: DescribeUserScramCredentialsRequest
    ) -> DescribeUserScramCredentialsResponse:
        """Answer a DescribeUserScramCredentials request."""
        del context
        Result = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult  # noqa: N806 - a class
        return DescribeUserScramCredentialsResponse(
            results=[
                Result(user=user, error_code=code, error_message=message)
                for user, count in Counter(each.name for each in request.users or ()).items()
                for code, message in [_refusal(user, count)]
            ]
        )


def _refusal(user: str, count: int) -> tuple[ErrorCode, str]:
    if count > 1:
        return (
            ErrorCode.DUPLICATE_RESOURCE,
            "Cannot describe SCRAM credentials for the same user twice in a single request: "
            f"{user}",
        )
    return (
        ErrorCode.RESOURCE_NOT_FOUND,
        f"Attempt to describe a user credential that does not exist: {user}",
    )
