"""DescribeUserScramCredentials (API 50): the SCRAM credentials of users (KIP-554).

Behaviour. `kafka-configs --describe --entity-type users` asks for them beside the users' quotas.
They are those of this broker's image, without secrets (ScramImage). None can be altered yet: they
come with the metadata of Apache Kafka.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tidelog.security.scram import SCRAM
from tidelog_protocol.apis import ApiKey
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.users import DescribeUserScramCredentialsResponse

if TYPE_CHECKING:
    from tidelog.cluster.metadata.image import ClusterImage
    from tidelog.cluster.metadata.log import MetadataLog
    from tidelog.network.dispatch import Handler, RequestContext
    from tidelog_protocol.messages.users import DescribeUserScramCredentialsRequest

__all__ = ["UserCredentialsApi"]


class UserCredentialsApi:
    """Describes the credentials of users."""

    def __init__(self, metadata: MetadataLog) -> None:
        self._metadata = metadata

    def handlers(self) -> dict[ApiKey, Handler]:
        """Return the handlers by API key."""
        return {ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: self.describe}

    def describe(
        self, context: RequestContext, request: DescribeUserScramCredentialsRequest
    ) -> DescribeUserScramCredentialsResponse:
        """Answer a DescribeUserScramCredentials request."""
        del context
        image = self._metadata.image
        names = [each.name for each in request.users or ()]
        if not names:
            names = list(dict.fromkeys(name for name, _ in image.scram_credentials))
        return DescribeUserScramCredentialsResponse(
            results=[_described(image, user, count) for user, count in Counter(names).items()]
        )


def _described(
    image: ClusterImage, user: str, count: int
) -> DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult:
    Result = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult  # noqa: N806 - a class
    if count > 1:
        return Result(
            user=user,
            error_code=ErrorCode.DUPLICATE_RESOURCE,
            error_message="Cannot describe SCRAM credentials for the same user twice in a single"
            f" request: {user}",
        )
    found = [
        Result.CredentialInfo(mechanism=scram.number, iterations=credential.iterations)
        for scram in SCRAM.values()
        if (credential := image.scram_credentials.get((user, scram.number))) is not None
    ]
    if not found:
        return Result(
            user=user,
            error_code=ErrorCode.RESOURCE_NOT_FOUND,
            error_message=f"Attempt to describe a user credential that does not exist: {user}",
        )
    return Result(user=user, credential_infos=found)
