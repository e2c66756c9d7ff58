"""DescribeClientQuotas (API 48), AlterClientQuotas (49): quotas of users, clients and addresses.

Behaviour (KIP-546, KIP-612). A description is that of this broker's image; a filter names each
type of entity once. The active controller decides an alteration and answers when it is committed;
each entity has its own error. Texts are Kafka's.

Version notes. 1 is flexible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.cluster.controller.decisions import RefusedError
from tidelog.cluster.metadata.image import CLIENT_ID, IP, USER
from tidelog_protocol.apis import ApiKey
from tidelog_protocol.errors import ErrorCode
from tidelog_protocol.messages.quotas import AlterClientQuotasResponse, DescribeClientQuotasResponse
from tidelog_storage.types import StorageError

if TYPE_CHECKING:
    from tidelog.cluster.controller.controller import Controller
    from tidelog.cluster.metadata.image import QuotaEntity
    from tidelog.cluster.metadata.log import MetadataLog
    from tidelog.network.dispatch import Handler, RequestContext
    from tidelog_protocol.messages.quotas import (
        AlterClientQuotasRequest,
        DescribeClientQuotasRequest,
    )

    Component = DescribeClientQuotasRequest.ComponentData

__all__ = ["ClientQuotasApi"]

EXACT, DEFAULT, SPECIFIED = 0, 1, 2
_MATCH_NAMES = {
    EXACT: "MATCH_TYPE_EXACT",
    DEFAULT: "MATCH_TYPE_DEFAULT",
    SPECIFIED: "MATCH_TYPE_SPECIFIED",
}


class ClientQuotasApi:
    """Handlers of client quotas; `controller` is this node's."""

    def __init__(self, metadata: MetadataLog, controller: Controller) -> None:
        self._metadata = metadata
        self._controller = controller

    def handlers(self) -> dict[ApiKey, Handler]:
        """Return the handlers by API key."""
        return {
            ApiKey.DESCRIBE_CLIENT_QUOTAS: self.describe_client_quotas,
            ApiKey.ALTER_CLIENT_QUOTAS: self.alter_client_quotas,
        }

    def describe_client_quotas(
        self, context: RequestContext, request: DescribeClientQuotasRequest
    ) -> DescribeClientQuotasResponse:
        """Answer a DescribeClientQuotas request."""
        del context
        try:
            wanted = _filter(request.components)
        except RefusedError as refusal:
            return DescribeClientQuotasResponse(
                error_code=refusal.code, error_message=refusal.message, entries=None
            )
        Entry = DescribeClientQuotasResponse.EntryData  # noqa: N806 - a class
        return DescribeClientQuotasResponse(
            entries=[
                Entry(
                    entity=[
                        Entry.EntityData(entity_type=kind, entity_name=name)
                        for kind, name in entity
                    ],
                    values=[Entry.ValueData(key=key, value=value) for key, value in quotas.items()],
                )
                for entity, quotas in self._metadata.image.client_quotas.items()
                if _matches(entity, wanted, strict=request.strict)
            ]
        )

    async def alter_client_quotas(
        self, context: RequestContext, request: AlterClientQuotasRequest
    ) -> AlterClientQuotasResponse:
        """Answer an AlterClientQuotas request."""
        del context
        Entry = AlterClientQuotasResponse.EntryData  # noqa: N806 - a class
        try:
            results = await self._controller.alter_client_quotas(request)
        except StorageError as error:
            return AlterClientQuotasResponse(
                entries=[
                    Entry(
                        error_code=error.code,
                        error_message=error.message,
                        entity=[
                            Entry.EntityData(
                                entity_type=each.entity_type, entity_name=each.entity_name
                            )
                            for each in entry.entity
                        ],
                    )
                    for entry in request.entries
                ]
            )
        return AlterClientQuotasResponse(
            entries=[
                Entry(
                    error_code=result.code,
                    error_message=result.message,
                    entity=[
                        Entry.EntityData(entity_type=kind, entity_name=name)
                        for kind, name in result.entity
                    ],
                )
                for result in results
            ]
        )


def _filter(components: list[Component]) -> dict[str, tuple[int, str | None]]:
    """Return how each type of entity is matched; RefusedError like Kafka's ClientQuotasImage."""
    wanted: dict[str, tuple[int, str | None]] = {}
    for component in components:
        kind, how = component.entity_type, component.match_type
        if not kind:
            raise _invalid("Invalid empty entity type.")
        if kind in wanted:
            raise _invalid(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in (IP, USER, CLIENT_ID):
            raise RefusedError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        if how not in _MATCH_NAMES:
            raise _invalid(f"Unknown match type {how}")
        if how == EXACT and component.match is None:
            raise _invalid("Request specified MATCH_TYPE_EXACT, but set match string to null.")
        if how != EXACT and component.match is not None:
            raise _invalid(
                f"Request specified {_MATCH_NAMES[how]}, but also specified a match string."
            )
        wanted[kind] = how, component.match
    if IP in wanted and len(wanted) > 1:
        raise _invalid(
            "Invalid entity filter component combination. IP filter component should not be used "
            "with user or clientId filter component."
        )
    return wanted


def _matches(
    entity: QuotaEntity, wanted: dict[str, tuple[int, str | None]], *, strict: bool
) -> bool:
    names = dict(entity)
    if strict and len(names) != len(wanted):
        return False
    return all(
        kind in names and (how == SPECIFIED or names[kind] == name)
        for kind, (how, name) in wanted.items()
    )


def _invalid(message: str) -> RefusedError:
    return RefusedError(ErrorCode.INVALID_REQUEST, message)
