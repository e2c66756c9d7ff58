"""DescribeUserScramCredentials (API 50), AlterUserScramCredentials (51): users of SCRAM (KIP-554).

Behaviour. `kafka-configs --describe --entity-type users` asks for them beside the users' quotas.
They are those of this broker's image, without secrets (ScramImage). The active controller sets and
removes them; clients send salted passwords.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tidelog.security.scram import SCRAM
from tidelog_protocol.apis import ApiKey
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.users import (
    AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsResponse,
)
from tidelog_storage.types import StorageError

if TYPE_CHECKING:
    from tidelog.cluster.controller.controller import Controller
    from tidelog.cluster.metadata.image import ClusterImage
    from tidelog.cluster.metadata.log import MetadataLog
    from tidelog.network.dispatch import Handler, RequestContext
    from tidelog_protocol.messages.users import (
        AlterUserScramCredentialsRequest,
        DescribeUserScramCredentialsRequest,
    )

__all__ = ["UserCredentialsApi"]


class UserCredentialsApi:
    """Describes and alters the credentials of users; `controller` is this node's."""

    def __init__(self, metadata: MetadataLog, controller: Controller) -> None:
        self._metadata = metadata
        self._controller = controller

    def handlers(self) -> dict[ApiKey, Handler]:
        """Return the handlers by API key."""
        return {
            ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: self.describe,
            ApiKey.ALTER_USER_SCRAM_CREDENTIALS: self.alter,
        }

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

    async def alter(
        self, context: RequestContext, request: AlterUserScramCredentialsRequest
    ) -> AlterUserScramCredentialsResponse:
        """Answer an AlterUserScramCredentials request."""
        del context
        try:
            return await self._controller.alter_user_credentials(request)
        except StorageError as error:
            Result = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult  # noqa: N806 - a class
            users = {each.name for each in request.deletions}
            users |= {each.name for each in request.upsertions}
            return AlterUserScramCredentialsResponse(
                results=[
                    Result(user=user, error_code=error.code, error_message=error.message)
                    for user in sorted(users)
                ]
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
