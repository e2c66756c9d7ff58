"""Tables of users' credentials (KIP-554)."""

from __future__ import annotations

from tidelog_protocol.schema import Message, Struct, array, int8, int16, int32, string

__all__ = ["DescribeUserScramCredentialsRequest", "DescribeUserScramCredentialsResponse"]


class DescribeUserScramCredentialsRequest(Message, api_key=50, versions="0", flexible="0+"):
    """Ask for the SCRAM credentials of users; null or none: of all."""

    class UserName(Struct):
        name: str = string()

    users: list[UserName] | None = array(UserName, nullable="0+")


class DescribeUserScramCredentialsResponse(Message, api_key=50, versions="0", flexible="0+"):
    """The credentials of each user, without secrets."""

    class DescribeUserScramCredentialsResult(Struct):
        class CredentialInfo(Struct):
            mechanism: int = int8()
            iterations: int = int32()

        user: str = string()
        error_code: int = int16()
        error_message: str | None = string(nullable="0+")
        credential_infos: list[CredentialInfo] = array(CredentialInfo)

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    results: list[DescribeUserScramCredentialsResult] = array(DescribeUserScramCredentialsResult)
