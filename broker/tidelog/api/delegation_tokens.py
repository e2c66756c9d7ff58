"""CreateDelegationToken (API 38), RenewDelegationToken (39), ExpireDelegationToken (40),
DescribeDelegationToken (41): delegation tokens (KIP-48).

Behaviour. The active controller decides; a broker forwards with the client's principal. A
description is that of this broker's image. Requests of a connection that a token authenticated, or
that nothing did, are refused with DELEGATION_TOKEN_REQUEST_NOT_ALLOWED. An authorizer is asked for
CREATE_TOKENS and DESCRIBE_TOKENS on the owner's name, and for DESCRIBE on tokens; owners and
renewers need no right.

Version notes. 2 is flexible. 3 (KIP-373): owners, and the requester of a token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidelog.cluster.controller.delegation_tokens import owner_of
from tidelog.network.wide_requests import PART_MAX, in_turns
from tidelog.security.acls import Operation, ResourceType
from tidelog.security.delegation_tokens import is_of, token_hmac
from tidelog.security.principal import ANONYMOUS, USER, Principal
from tidelog_protocol.apis import API, ApiKey
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.tokens import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    DescribeDelegationTokenResponse,
)
from tidelog_storage.types import StorageError

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from tidelog.cluster.controller.controller import Controller
    from tidelog.cluster.metadata.log import MetadataLog
    from tidelog.config.broker import BrokerConfig
    from tidelog.network.dispatch import Handler, RequestContext
    from tidelog.security.authorizer import Authorizer
    from tidelog_protocol.messages.metadata_records import DelegationTokenRecord
    from tidelog_protocol.messages.tokens import DescribeDelegationTokenRequest

__all__ = ["DelegationTokensApi", "gated"]

NO_TIME = -1  # in the place of a token's times

_Described = DescribeDelegationTokenResponse.DescribedDelegationToken
_Renewer = DescribeDelegationTokenResponse.DescribedDelegationTokenRenewer


class DelegationTokensApi:
    """Handlers of callers that may ask for tokens; `controller` is this node's."""

    def __init__(
        self,
        metadata: MetadataLog,
        controller: Controller,
        authorizer: Authorizer | None,
        secret: str | None,
    ) -> None:
        self._metadata = metadata
        self._controller = controller
        self._authorizer = authorizer
        self._secret = secret

    def handlers(self) -> dict[ApiKey, Handler]:
        """Return the handlers by API key."""
        return {
            ApiKey.CREATE_DELEGATION_TOKEN: self.alter,
            ApiKey.RENEW_DELEGATION_TOKEN: self.alter,
            ApiKey.EXPIRE_DELEGATION_TOKEN: self.alter,
            ApiKey.DESCRIBE_DELEGATION_TOKEN: self.describe,
        }

    async def alter(self, context: RequestContext, request: Any) -> Any:
        """Answer a CreateDelegationToken, RenewDelegationToken or ExpireDelegationToken request."""
        try:
            return await self._controller.alter_tokens(request, context.peer.principal)
        except StorageError as error:
            return _refused(context, request, error.code)

    def describe(self, context: RequestContext, request: DescribeDelegationTokenRequest) -> Any:
        """Answer a DescribeDelegationToken request; thousands of tokens in parts."""
        return in_turns(self._description(context, request), context)

    def _description(
        self, context: RequestContext, request: DescribeDelegationTokenRequest
    ) -> Generator[None, None, DescribeDelegationTokenResponse]:
        secret, owners = self._secret, request.owners
        if not secret:
            code = ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
            return DescribeDelegationTokenResponse(error_code=code)
        wanted = None
        if owners is not None:
            wanted = {str(Principal(each.principal_type, each.principal_name)) for each in owners}
        described, done = [], 0
        for token in list(self._metadata.image.delegation_tokens.values()):
            if done >= PART_MAX:
                yield
                done = 0
            done += 1 + len(token.renewers)
            if wanted is not None and wanted.isdisjoint((token.owner, *token.renewers)):
                continue
            if self._may_see(context, token):
                described.append(_described(token, secret))
        return DescribeDelegationTokenResponse(tokens=described)

    def _may_see(self, context: RequestContext, token: DelegationTokenRecord) -> bool:
        principal = context.peer.principal
        if self._authorizer is None or is_of(token, principal):
            return True
        caller = self._authorizer.caller(principal, context.client_host)
        return caller.allows(
            Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id
        ) or caller.allows(Operation.DESCRIBE_TOKENS, ResourceType.USER, token.owner)


def gated(
    handlers: Mapping[ApiKey, Handler], config: BrokerConfig, authorizer: Authorizer | None
) -> dict[ApiKey, Handler]:
    """Return the handlers of tokens behind the checks of their callers (Kafka: KafkaApis)."""

    def gate(handler: Handler) -> Handler:
        def check(context: RequestContext, request: Any) -> Any:
            code = _problem(context, request, config, authorizer)
            if code is not None:
                return _refused(context, request, code)
            return handler(context, request)

        return check

    return {
        key: gate(handlers[key])
        for key in (
            ApiKey.CREATE_DELEGATION_TOKEN,
            ApiKey.RENEW_DELEGATION_TOKEN,
            ApiKey.EXPIRE_DELEGATION_TOKEN,
            ApiKey.DESCRIBE_DELEGATION_TOKEN,
        )
    }


def _problem(
    context: RequestContext, request: Any, config: BrokerConfig, authorizer: Authorizer | None
) -> ErrorCode | None:
    principal = context.peer.principal
    if _has_no_type(request):
        return ErrorCode.UNKNOWN_SERVER_ERROR
    if principal.is_of_token or _is_open(context, config):
        return ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    if not isinstance(request, CreateDelegationTokenRequest):
        return None
    owner = str(owner_of(request, principal))
    if authorizer is not None and owner != str(principal):
        caller = authorizer.caller(principal, context.client_host)
        if not caller.allows(Operation.CREATE_TOKENS, ResourceType.USER, owner):
            return ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    if any(each.principal_type != USER for each in request.renewers):
        return ErrorCode.INVALID_PRINCIPAL_TYPE
    return None


def _has_no_type(request: Any) -> bool:
    """Return whether a token is asked for an owner whose type is null: a KafkaPrincipal has one."""
    return (
        isinstance(request, CreateDelegationTokenRequest)
        and bool(request.owner_principal_name)
        and request.owner_principal_type is None
    )


def _is_open(context: RequestContext, config: BrokerConfig) -> bool:
    """Return whether nothing authenticated a client; a broker that forwards has looked itself."""
    if context.peer.is_forwarded:
        return False
    protocol = config.listener_settings(context.peer.listener).protocol
    is_anonymous = str(context.peer.principal) == str(ANONYMOUS)
    return protocol == "PLAINTEXT" or (protocol == "SSL" and is_anonymous)


def _refused(context: RequestContext, request: Any, code: ErrorCode) -> Any:
    """Return the answer of a request that is not carried out."""
    if context.api_key == ApiKey.DESCRIBE_DELEGATION_TOKEN:
        return DescribeDelegationTokenResponse(error_code=code)
    if not isinstance(request, CreateDelegationTokenRequest):
        response: Any = API[context.api_key].response
        return response(error_code=code, expiry_timestamp_ms=NO_TIME)
    principal = context.peer.principal
    owner = owner_of(request, principal)
    if _has_no_type(request):  # as CreateDelegationTokenRequest.getErrorResponse
        owner = principal = ANONYMOUS
    return CreateDelegationTokenResponse(
        error_code=code,
        principal_type=owner.type,
        principal_name=owner.name,
        token_requester_principal_type=principal.type,
        token_requester_principal_name=principal.name,
        issue_timestamp_ms=NO_TIME,
        expiry_timestamp_ms=NO_TIME,
        max_timestamp_ms=NO_TIME,
    )


def _described(
    token: DelegationTokenRecord, secret: str
) -> DescribeDelegationTokenResponse.DescribedDelegationToken:
    owner, requester = Principal.parse(token.owner), Principal.parse(token.requester)
    return _Described(
        principal_type=owner.type,
        principal_name=owner.name,
        token_requester_principal_type=requester.type,
        token_requester_principal_name=requester.name,
        issue_timestamp=token.issue_timestamp,
        expiry_timestamp=token.expiration_timestamp,
        max_timestamp=token.max_timestamp,
        token_id=token.token_id,
        hmac=token_hmac(secret, token.token_id),
        renewers=[
            _Renewer(principal_type=each.type, principal_name=each.name)
            for each in map(Principal.parse, token.renewers)
        ],
    )
