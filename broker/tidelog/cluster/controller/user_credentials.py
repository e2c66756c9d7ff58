"""Pure decisions about SCRAM users (KIP-554): their credentials are set and removed.

Codes and texts are those of Kafka's ScramControlManager. A user is changed at most once in a
request, whatever the mechanism; one failure does not stop the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.cluster.controller.decisions import Decision, RefusedError
from tidelog.cluster.metadata.features import METADATA_FEATURE, SCRAM_SINCE
from tidelog.security.scram import ITERATIONS_MAX, ITERATIONS_MIN, SCRAM, credential
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.metadata_records import RemoveUserScramCredentialRecord
from tidelog_protocol.messages.users import AlterUserScramCredentialsRequest as Request
from tidelog_protocol.messages.users import AlterUserScramCredentialsResponse

if TYPE_CHECKING:
    from tidelog.cluster.metadata.image import ClusterImage
    from tidelog_protocol.schema import Message

    Change = Request.ScramCredentialDeletion | Request.ScramCredentialUpsertion

__all__ = ["alter_user_credentials"]

_Result = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult
_MECHANISMS = {scram.number: scram for scram in SCRAM.values()}


def alter_user_credentials(
    image: ClusterImage, request: Request
) -> Decision[AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult]:
    """Decide a request's changes."""
    records: dict[str, Message] = {}
    refusals: dict[str, RefusedError] = {}
    changes: list[Change] = [*request.deletions, *request.upsertions]
    for change in changes:
        user = change.name
        if user in refusals:
            continue
        try:
            if records.pop(user, None) is not None:
                raise RefusedError(
                    ErrorCode.DUPLICATE_RESOURCE,
                    "A user credential cannot be altered twice in the same request",
                )
            records[user] = _record(image, change)
        except RefusedError as refusal:
            refusals[user] = refusal
    results = [_Result(user=user, error_message=None) for user in records]
    results += [
        _Result(user=user, error_code=refusal.code, error_message=refusal.message)
        for user, refusal in refusals.items()
    ]
    return Decision(list(records.values()), results)


def _record(image: ClusterImage, change: Change) -> Message:
    """Return the record of a change; RefusedError."""
    if image.features.get(METADATA_FEATURE, 0) < SCRAM_SINCE:
        raise RefusedError(
            ErrorCode.UNSUPPORTED_VERSION, "The current metadata.version does not support SCRAM"
        )
    if not change.name:
        raise RefusedError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    scram = _MECHANISMS.get(change.mechanism)
    if scram is None:
        raise RefusedError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
    if isinstance(change, Request.ScramCredentialDeletion):
        if (change.name, change.mechanism) not in image.scram_credentials:
            raise RefusedError(
                ErrorCode.RESOURCE_NOT_FOUND,
                "Attempt to delete a user credential that does not exist",
            )
        return RemoveUserScramCredentialRecord(name=change.name, mechanism=change.mechanism)
    if not ITERATIONS_MIN <= change.iterations <= ITERATIONS_MAX:
        what = "few" if change.iterations < ITERATIONS_MIN else "many"
        raise RefusedError(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"Too {what} iterations")
    salted_password = bytes(change.salted_password)
    if not salted_password:  # Java's HMAC has no empty keys
        raise RefusedError(ErrorCode.UNKNOWN_SERVER_ERROR, None)
    return credential(scram, change.name, bytes(change.salt), salted_password, change.iterations)
