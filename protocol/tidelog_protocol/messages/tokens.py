"""Tables of delegation tokens: creating, renewing, expiring, describing (KIP-48, KIP-373)."""

from __future__ import annotations

from tidelog_protocol.schema import Message, Struct, array, bytes_, int16, int32, int64, string

__all__ = [
    "CreateDelegationTokenRequest",
    "CreateDelegationTokenResponse",
    "DescribeDelegationTokenRequest",
    "DescribeDelegationTokenResponse",
    "ExpireDelegationTokenRequest",
    "ExpireDelegationTokenResponse",
    "RenewDelegationTokenRequest",
    "RenewDelegationTokenResponse",
]


class CreateDelegationTokenRequest(Message, api_key=38, versions="1-3", flexible="2+"):
    """Create a token, for oneself unless it names an owner.

    v2: flexible
    v3: the owner (KIP-373)
    """

    class CreatableRenewers(Struct):
        principal_type: str = string()
        principal_name: str = string()

    owner_principal_type: str | None = string("3+", nullable="3+")
    owner_principal_name: str | None = string("3+", nullable="3+")
    renewers: list[CreatableRenewers] = array(CreatableRenewers)
    max_lifetime_ms: int = int64()  # -1: the broker's


class CreateDelegationTokenResponse(Message, api_key=38, versions="1-3", flexible="2+"):
    """The token, and the secret that proves it.

    v2: flexible
    v3: the requester (KIP-373)
    """

    error_code: int = int16()
    principal_type: str = string()  # the owner
    principal_name: str = string()
    token_requester_principal_type: str = string("3+")
    token_requester_principal_name: str = string("3+")
    issue_timestamp_ms: int = int64()
    expiry_timestamp_ms: int = int64()
    max_timestamp_ms: int = int64()
    token_id: str = string()
    hmac: bytes = bytes_()
    throttle_time_ms: int = int32()


class RenewDelegationTokenRequest(Message, api_key=39, versions="1-2", flexible="2+"):
    """Move the end of a token away.

    v2: flexible
    """

    hmac: bytes = bytes_()
    renew_period_ms: int = int64()


class RenewDelegationTokenResponse(Message, api_key=39, versions="1-2", flexible="2+"):
    """The new end.

    v2: flexible
    """

    error_code: int = int16()
    expiry_timestamp_ms: int = int64()
    throttle_time_ms: int = int32()


class ExpireDelegationTokenRequest(Message, api_key=40, versions="1-2", flexible="2+"):
    """Let a token end after a time; at once if it is negative.

    v2: flexible
    """

    hmac: bytes = bytes_()
    expiry_time_period_ms: int = int64()


class ExpireDelegationTokenResponse(Message, api_key=40, versions="1-2", flexible="2+"):
    """The new end.

    v2: flexible
    """

    error_code: int = int16()
    expiry_timestamp_ms: int = int64()
    throttle_time_ms: int = int32()


class DescribeDelegationTokenRequest(Message, api_key=41, versions="1-3", flexible="2+"):
    """Ask for the tokens of owners; null: of all, an empty list: of none.

    v2: flexible
    v3: nothing new in the request
    """

    class DescribeDelegationTokenOwner(Struct):
        principal_type: str = string()
        principal_name: str = string()

    owners: list[DescribeDelegationTokenOwner] | None = array(
        DescribeDelegationTokenOwner, nullable="0+"
    )


class DescribeDelegationTokenResponse(Message, api_key=41, versions="1-3", flexible="2+"):
    """The tokens that the caller may see, with their secrets.

    v2: flexible
    v3: their requesters (KIP-373)
    """

    class DescribedDelegationToken(Struct):
        class DescribedDelegationTokenRenewer(Struct):
            principal_type: str = string()
            principal_name: str = string()

        principal_type: str = string()  # the owner
        principal_name: str = string()
        token_requester_principal_type: str = string("3+")
        token_requester_principal_name: str = string("3+")
        issue_timestamp: int = int64()
        expiry_timestamp: int = int64()
        max_timestamp: int = int64()
        token_id: str = string()
        hmac: bytes = bytes_()
        renewers: list[DescribedDelegationTokenRenewer] = array(DescribedDelegationTokenRenewer)

    error_code: int = int16()
    tokens: list[DescribedDelegationToken] = array(DescribedDelegationToken)
    throttle_time_ms: int = int32()

    DescribedDelegationTokenRenewer = DescribedDelegationToken.DescribedDelegationTokenRenewer
