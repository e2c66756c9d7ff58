"""Pure decisions about delegation tokens (KIP-48): they are created, renewed, expired and removed.

Codes are those of Kafka's DelegationTokenControlManager 4.3.1. The secrets of tokens are computed,
never stored.
"""

from __future__ import annotations

import logging
from hmac import compare_digest
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from tidelog.cluster.metadata.features import METADATA_FEATURE, TOKENS_SINCE
from tidelog.security.delegation_tokens import is_of, token_hmac
from tidelog.security.principal import USER, Principal
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.metadata_records import (
    DelegationTokenRecord,
    RemoveDelegationTokenRecord,
)
from tidelog_protocol.messages.tokens import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from tidelog_protocol.primitives import uuid_to_str

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tidelog.cluster.metadata.image import ClusterImage
    from tidelog.config.broker import BrokerConfig
    from tidelog_protocol.schema import Message

__all__ = ["Asking", "TokenRequest", "TokenResponse", "alter_tokens", "expired", "owner_of"]

TokenRequest: TypeAlias = (
    CreateDelegationTokenRequest | RenewDelegationTokenRequest | ExpireDelegationTokenRequest
)
TokenResponse: TypeAlias = (
    CreateDelegationTokenResponse | RenewDelegationTokenResponse | ExpireDelegationTokenResponse
)
_INT64_MAX = (1 << 63) - 1

log = logging.getLogger("tidelog.cluster.controller")


class Asking(NamedTuple):
    """The requester and the time; `new_id` draws a token's id."""

    principal: Principal
    now_ms: int
    new_id: Callable[[], bytes]


def alter_tokens(
    image: ClusterImage, config: BrokerConfig, request: TokenRequest, asking: Asking
) -> tuple[Sequence[Message], TokenResponse]:
    """Decide a request."""
    problem = None
    if not config.delegation_token_secret_key:
        problem = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    elif image.features.get(METADATA_FEATURE, 0) < TOKENS_SINCE:
        problem = ErrorCode.UNSUPPORTED_VERSION
    if isinstance(request, CreateDelegationTokenRequest):
        return _create(config, request, asking, problem)
    response = (
        RenewDelegationTokenResponse()
        if isinstance(request, RenewDelegationTokenRequest)
        else ExpireDelegationTokenResponse()
    )
    if problem is None:
        token = _find(image, config.delegation_token_secret_key or "", bytes(request.hmac))
        if token is None:
            problem = ErrorCode.DELEGATION_TOKEN_NOT_FOUND
        elif isinstance(request, RenewDelegationTokenRequest):
            problem, records = _renew(config, request, asking, token, response)
        else:
            problem, records = _expire(request, asking, token, response)
    if problem is not None:
        response.error_code = problem
        return (), response
    return records, response


def owner_of(request: CreateDelegationTokenRequest, requester: Principal) -> Principal:
    """Return the owner of a new token (KIP-373)."""
    if not request.owner_principal_name:
        return requester
    return Principal(request.owner_principal_type or "", request.owner_principal_name)


def expired(image: ClusterImage, now_ms: int) -> list[RemoveDelegationTokenRecord]:
    """Return the records that remove what has expired."""
    gone = []
    for token in image.delegation_tokens.values():
        if _is_over(token, now_ms):
            log.info("delegation token %s of %s has expired", token.token_id, token.owner)
            gone.append(RemoveDelegationTokenRecord(token_id=token.token_id))
    return gone


def _create(
    config: BrokerConfig,
    request: CreateDelegationTokenRequest,
    asking: Asking,
    problem: ErrorCode | None,
) -> tuple[Sequence[Message], CreateDelegationTokenResponse]:
    owner = owner_of(request, asking.principal)
    response = CreateDelegationTokenResponse(
        principal_type=owner.type,
        principal_name=owner.name,
        token_requester_principal_type=asking.principal.type,
        token_requester_principal_name=asking.principal.name,
    )
    if problem is None and any(each.principal_type != USER for each in request.renewers):
        problem = ErrorCode.INVALID_PRINCIPAL_TYPE
    if problem is not None:
        response.error_code = problem
        return (), response
    lifetime_ms = config.delegation_token_max_lifetime_ms
    if request.max_lifetime_ms > 0:
        lifetime_ms = min(lifetime_ms, request.max_lifetime_ms)
    latest_ms = _sum(asking.now_ms, lifetime_ms)
    token = DelegationTokenRecord(
        owner=str(owner),
        requester=str(asking.principal),
        renewers=[f"{each.principal_type}:{each.principal_name}" for each in request.renewers],
        issue_timestamp=asking.now_ms,
        max_timestamp=latest_ms,
        expiration_timestamp=min(
            latest_ms, _sum(asking.now_ms, config.delegation_token_expiry_time_ms)
        ),
        token_id=uuid_to_str(asking.new_id()),
    )
    response.issue_timestamp_ms = token.issue_timestamp
    response.max_timestamp_ms = token.max_timestamp
    response.expiry_timestamp_ms = token.expiration_timestamp
    response.token_id = token.token_id
    response.hmac = token_hmac(config.delegation_token_secret_key or "", token.token_id)
    return [token], response


def _find(image: ClusterImage, secret: str, wanted: bytes) -> DelegationTokenRecord | None:
    for token_id, token in image.delegation_tokens.items():
        if compare_digest(token_hmac(secret, token_id), wanted):
            return token
    return None


def _renew(
    config: BrokerConfig,
    request: RenewDelegationTokenRequest,
    asking: Asking,
    token: DelegationTokenRecord,
    response: TokenResponse,
) -> tuple[ErrorCode | None, Sequence[Message]]:
    if _is_over(token, asking.now_ms):
        return ErrorCode.DELEGATION_TOKEN_EXPIRED, ()
    if not is_of(token, asking.principal):
        return ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, ()
    period_ms = config.delegation_token_expiry_time_ms
    if request.renew_period_ms > 0:
        period_ms = min(period_ms, request.renew_period_ms)
    return None, [_ending(token, asking.now_ms, period_ms, response)]


def _expire(
    request: ExpireDelegationTokenRequest,
    asking: Asking,
    token: DelegationTokenRecord,
    response: TokenResponse,
) -> tuple[ErrorCode | None, Sequence[Message]]:
    if not is_of(token, asking.principal):
        return ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, ()
    if request.expiry_time_period_ms < 0:
        response.expiry_timestamp_ms = asking.now_ms
        return None, [RemoveDelegationTokenRecord(token_id=token.token_id)]
    if _is_over(token, asking.now_ms):
        return ErrorCode.DELEGATION_TOKEN_EXPIRED, ()
    return None, [_ending(token, asking.now_ms, request.expiry_time_period_ms, response)]


def _ending(
    token: DelegationTokenRecord, now_ms: int, period_ms: int, response: TokenResponse
) -> DelegationTokenRecord:
    """Return the token with its new end."""
    end_ms = min(token.max_timestamp, _sum(now_ms, period_ms))
    response.expiry_timestamp_ms = end_ms
    values = {field.name: getattr(token, field.name) for field in token.FIELDS}
    return DelegationTokenRecord(**{**values, "expiration_timestamp": end_ms})


def _is_over(token: DelegationTokenRecord, now_ms: int) -> bool:
    return token.max_timestamp < now_ms or token.expiration_timestamp < now_ms


def _sum(now_ms: int, period_ms: int) -> int:
    return min(now_ms + period_ms, _INT64_MAX)
